"""The trials of a search are directories of runs, each with a trial.json: all machines and engines build on these."""

import math
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any, Literal

from ..config import ENV_PREFIX, Config, set_values
from ..errors import UserError
from ..files import dump_yaml, flatten, read_json, read_yaml, write_json, write_text
from ..run import Run, is_alive, whoami
from ..tracking import read_rows
from .space import Space, Value

EVERY = 0.5
"""Seconds between two looks at a trial's metrics."""
LOST = 60.0
"""Seconds after which a trial is lost whose process gives no sign of life, such as on another machine."""
PACKAGE = __package__.partition(".")[0]
State = Literal["running", "finished", "pruned", "failed"]


@dataclass
class Trial:
    """`curve` has the monitored metric by epoch, `value` the best of it.

    `owner` is the process that conducts it, and `environment` what it set for training; `process` trains, if it was
    started here.
    """

    run: Run
    number: int
    parameters: dict[str, Value]
    state: State = "running"
    value: float | None = None
    error: str = ""
    metric: str = "loss"
    mode: str = "min"
    curve: list[tuple[int, float]] = field(default_factory=list)
    owner: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    process: "subprocess.Popen[bytes] | None" = None

    @classmethod
    def read(cls, folder: Path) -> "Trial":
        content = read_json(folder / "trial.json")
        try:
            content["curve"] = [(epoch, value) for epoch, value in content["curve"]]
            return cls(run=Run(folder), **content)
        except (KeyError, TypeError, ValueError):
            problem = f"{folder}/trial.json: is not a trial as this version writes it"
            raise UserError(f"{problem}; remove {folder}, and another takes its place") from None

    def write(self) -> None:
        content = {name: value for name, value in vars(self).items() if name not in ("run", "process")}
        write_json(self.run.path / "trial.json", content)

    @property
    def is_left(self) -> bool:
        """Whether the process that conducted it has ended, here or on another machine."""
        if self.state != "running" or self.owner == whoami():
            return False
        if self.owner["host"] == socket.gethostname() and not is_alive(self.owner["pid"], self.owner["began"]):
            return True
        signs = [file.stat().st_mtime for file in (self.run.path / "trial.json", self.run.metrics) if file.exists()]
        return time.time() - max(signs) > LOST

    def take_over(self) -> bool:
        """Conduct it from now on, unless another process was faster."""
        try:
            (self.run.path / ".left-by-{host}-{pid}-{began}".format(**self.owner)).touch(exist_ok=False)
        except FileExistsError:
            return False
        self.owner = whoami()
        self.write()
        return True

    def measure(self) -> None:
        """Take the curve from the run's metrics."""
        monitor = self.run.read_environment().get("monitor", {"metric": self.metric, "mode": self.mode})
        self.metric, self.mode = monitor["metric"], monitor["mode"]
        rows = [row for row in read_rows(self.run.metrics) if row.name == f"val/{self.metric}"]
        self.curve = [(row.epoch, row.value) for row in rows]
        choose = max if self.mode == "max" else min
        self.value = choose((value for _, value in self.curve if math.isfinite(value)), default=None)

    def start(self, environment: Mapping[str, str]) -> None:
        """Train in a process of its own, unless one that outlived an earlier search does so still."""
        if self.run.is_training:
            return
        # Its file has every setting, those of the environment too.
        environment = {name: value for name, value in environment.items() if not name.upper().startswith(ENV_PREFIX)}
        experiment = ("--experiment", str(self.run.path / "experiment.yaml"), "--run-name", self.run.path.name)
        with (self.run.path / "output.txt").open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", PACKAGE, "train", *experiment],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,  # Ctrl-C reaches the search alone
            )

    @property
    def is_training(self) -> bool:
        return self.process.poll() is None if self.process else self.run.is_training

    def epochs(self, stopping: Event | None = None) -> Iterator[None]:
        """Wait for one epoch after the other, until training ends or must stop."""
        ended, stopping = False, stopping or Event()
        while not ended and not stopping.is_set():
            ended = not self.is_training
            os.utime(self.run.path / "trial.json")  # a sign of life
            before = len(self.curve)
            self.measure()
            if len(self.curve) > before:
                yield
            elif not ended:
                stopping.wait(EVERY)

    def stop(self) -> None:
        """Have training save and end; where it has ended, let it tell its trackers."""
        if self.is_training and self.run.read_status().get("status") != "finished":
            with suppress(ProcessLookupError):
                os.kill(self.process.pid if self.process else self.run.read_status()["pid"], signal.SIGTERM)
        while self.is_training:
            os.utime(self.run.path / "trial.json")
            time.sleep(EVERY)

    def conclude(self, pruned: bool = False) -> None:
        """Record how it ended."""
        self.measure()
        status = self.run.read_status()
        if status.get("status") == "finished" and self.value is not None:
            self.state = "finished"
        elif pruned:
            self.state = "pruned"
        else:
            self.state, self.error = "failed", self._reason(status)
        self.write()

    def _reason(self, status: Mapping[str, Any]) -> str:
        if status.get("status") == "finished":
            return f"no val/{self.metric} was a number"
        if "error" in status:
            return str(status["error"])
        if self.process and self.process.returncode < 0:
            return f"killed by {signal.Signals(-self.process.returncode).name}"
        output = self.run.path / "output.txt"
        lines = output.read_text(encoding="utf-8", errors="replace").splitlines() if output.is_file() else []
        last = next((line for line in reversed(lines) if line.startswith("error: ")), "")
        return last.removeprefix("error: ") or f"ended before its time, see {output}"


@dataclass
class Search:
    """All trials of a folder, whichever process conducts them."""

    folder: Path
    space: Space
    config: Config
    trials: int
    workers: int
    stopping: Event = field(default_factory=Event)
    found: dict[int, Trial] = field(default_factory=dict)

    def open(self) -> None:
        """Begin, or go on with what is there, if it searches the same."""
        file = self.folder / "search.yaml"
        content = {"space": self.space.model_dump(mode="json"), "config": self.config.model_dump(mode="json")}
        if not file.is_file():
            self.folder.mkdir(parents=True, exist_ok=True)
            write_text(file, dump_yaml(content))
        before, now = flatten(read_yaml(file)), flatten(content)
        for key in dict.fromkeys([*before, *now]):
            if before.get(key) != now.get(key) and not key.startswith("config.tracking."):
                was = f"{before.get(key)!r}, is now {now.get(key)!r}"
                raise UserError(f"{self.folder}: was begun with another {key} ({was}); choose another --search-name")

    def read(self) -> list[Trial]:
        """All trials so far, by their numbers."""
        for file in self.folder.glob("trial-*/trial.json"):
            digits = file.parent.name.removeprefix("trial-")
            if not digits.isdecimal():  # somebody's copy
                continue
            number = int(digits)
            if number not in self.found or self.found[number].state == "running":
                self.found[number] = Trial.read(file.parent)
        return [self.found[number] for number in sorted(self.found)]

    def claim(self, suggest: "Suggest") -> Trial | None:
        """The next trial to conduct: one that an earlier search left behind, else a new one; None: no more."""
        known = self.read()
        for trial in known:
            if trial.is_left and trial.take_over():
                return trial
        for number in (number for number in count() if number not in self.found):
            if number >= min(self.trials, self.space.size or self.trials):
                return None
            drawn = self.space.sampler != "tpe"
            parameters = self.space.draw(number) if drawn else suggest(self.space, known, number)
            folder = self.folder / f"trial-{number:04d}"
            made = self.folder / f".{folder.name}-{secrets.token_hex(3)}"
            made.mkdir()
            trial = Trial(Run(made), number, parameters, owner=whoami())
            content = set_values(self.config, {**parameters, "name": self.folder.name})
            write_text(made / "experiment.yaml", dump_yaml(content))
            trial.write()
            try:  # which fails where another process was faster
                made.rename(folder)
            except OSError:
                shutil.rmtree(made)
                known = self.read()
                continue
            trial.run = Run(folder)
            self.found[number] = trial
            return trial
        return None


Suggest = Callable[[Space, list[Trial], int], dict[str, Value]]
"""Parameters for the trial of this number, after those that there are."""
