"""The directory of one run: runs/<experiment>/<time>-<id>/."""

import hashlib
import importlib.metadata
import os
import platform
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal

from .errors import UserError
from .files import read_json, write_json, write_text
from .framework import CHECKPOINT_SUFFIX, RESTART_COUNT

if TYPE_CHECKING:
    from .config import Config
    from .distributed import Runtime

Status = Literal["running", "finished", "failed", "interrupted"]
Checkpoint = Literal["best", "last"]


@dataclass(frozen=True)
class Run:
    """A run directory and the names of what is in it."""

    path: Path

    @property
    def name(self) -> str:
        """The experiment and the run, such as baseline/20260101T120000Z-1a2b3c."""
        return f"{self.path.parent.name}/{self.path.name}"

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def id(self) -> str:
        """32 hexadecimal digits, by which a tracker knows the run wherever its directory lies."""
        return str(self.read_environment().get("id") or hashlib.sha256(self.name.encode()).hexdigest()[:32])

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def model(self) -> Path:
        return self.path / "model.onnx"

    @staticmethod
    def checkpoint_name(which: Checkpoint) -> str:
        return f"checkpoints/{which}{CHECKPOINT_SUFFIX}"

    def checkpoint(self, which: Checkpoint) -> Path:
        return self.path / self.checkpoint_name(which)

    def read_status(self) -> dict[str, Any]:
        return read_json(self.path / "status.json")

    def read_environment(self) -> dict[str, Any]:
        return read_json(self.path / "environment.json")

    @property
    def is_training(self) -> bool:
        """Whether another process of this machine trains it."""
        status = self.read_status()
        return self.may_be_training and status.get("host") == socket.gethostname()

    @property
    def may_be_training(self) -> bool:
        """Whether a process of this machine trains it, or one of another machine, of which this one cannot know."""
        status = self.read_status()
        here = status.get("host") == socket.gethostname()
        lost = here and not is_alive(status.get("pid", 0), status.get("began", ""))
        return status.get("status") == "running" and not lost

    def write_status(self, status: Status, **more: object) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        write_json(self.path / "status.json", {"status": status, **whoami(), "time": now, **more})


def make_name() -> str:
    """A run's name where none is given."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"


def check_name(flag: str, name: str) -> None:
    """Of a folder below runs/."""
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise UserError(f"{flag} {name}: may hold letters, digits, '_', '.' and '-'")


def open_run(config: "Config", resumed: Run | None, name: str | None) -> Run:
    """A new run, or the one given or so named, which can go on with the settings that it began with; writes nothing."""
    if name:
        check_name("--run-name", name)
    run = resumed or Run(config.runs_dir / config.name / (name or make_name()))
    if run.config.is_file():
        _check_that_it_can_go_on(run, config)
    return run


def _check_that_it_can_go_on(run: Run, config: "Config") -> None:
    from .config import read_config

    before, status = read_config(run.config), run.read_status()
    for key in ("seed", "data", "model", "task", "trainer.global_batch_size"):
        if attrgetter(key)(before) != attrgetter(key)(config):
            raise UserError(f"{key}: cannot change while {run.path} goes on; start a new run instead")
    if run.is_training:
        raise UserError(f"{run.path}: process {status['pid']} is training it; if not, delete its status.json")
    if "error" in status and int(os.environ.get(RESTART_COUNT, "0")) > 0:
        raise UserError("", exit_code=1)  # the first attempt has said why; another would end the same way
    if run.checkpoint("best").is_file() and not run.checkpoint("last").is_file():
        raise UserError(f"{run.checkpoint('last')}: is missing, so the run cannot go on; start a new run")


def whoami() -> dict[str, Any]:
    """This process, among those of all machines."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "began": _began(os.getpid())}


def _began(pid: int) -> str:
    """When a process began, in ticks of the clock since the machine did, where Linux tells: a pid is given again."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[19]
    except OSError:
        return ""


def is_alive(pid: int, began: str = "") -> bool:
    """Whether another process of this machine has this number, and is the one that began then."""
    if os.name != "posix" or pid == os.getpid():  # on Windows os.kill would end it
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return not began or _began(pid) in ("", began)


class StopRequested(Exception):
    """Ctrl-C or SIGTERM arrived, and the last step is in the checkpoint."""


@contextmanager
def stop_on_signal(runtime: "Runtime") -> Iterator[None]:
    """Ctrl-C or SIGTERM asks the loop to save and stop; a second Ctrl-C ends a lone process at once."""
    if threading.current_thread() is not threading.main_thread():  # signals belong to a launcher, in the main thread
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if runtime.stop_requested and number == signal.SIGINT and runtime.world_size == 1:
            raise KeyboardInterrupt
        first, runtime.stop_requested = not runtime.stop_requested, True
        if first and runtime.is_main:  # what a terminal sends, a launcher passes on once more
            print("\nstopping after this step", file=sys.stderr)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        told = runtime.stop_requested and runtime.world_size > 1
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if told else handler)


@contextmanager
def recorded(run: Run, is_main: bool, tell: Callable[[Status], None]) -> Iterator[None]:
    """Keep status.json true however training ends, and tell the trackers."""

    def write(status: Status, **more: object) -> None:
        if is_main:
            run.write_status(status, **more)
        tell(status)

    try:
        yield
    except StopRequested:
        write("interrupted")
        hint = f"python -m {__package__} train --resume {run.path}"
        raise UserError(f"interrupted, and saved; go on with: {hint}", exit_code=130) from None
    except KeyboardInterrupt:
        write("interrupted")
        raise
    except UserError as error:
        write("failed", error=str(error))
        raise
    except BaseException:
        write("failed")
        raise
    write("finished")


def find_run(path: Path | None, needs: str = "config.yaml", runs_dir: str | None = None) -> Run:
    """The run at `path`, or the one with the newest file `needs`."""
    if path is not None:
        if not path.is_dir():
            raise UserError(f"{path}: no such run directory")
        if not (path / needs).is_file():
            raise UserError(f"{path}: holds no {needs}, so it is not a run that can be used here")
        return Run(path)
    found = list_runs(needs, runs_dir)
    if not found:
        raise UserError(f"{_folder(runs_dir)}: no run with {needs} yet; start one: python -m {__package__} train")
    return found[0]


def list_runs(needs: str = "config.yaml", runs_dir: str | None = None) -> list[Run]:
    """Every run that has the file `needs`; where it is newest comes first."""
    found = sorted(_folder(runs_dir).glob(f"*/*/{needs}"), key=lambda file: (file.stat().st_mtime, file), reverse=True)
    return [Run(file.parents[needs.count("/")]) for file in found]


def _folder(runs_dir: str | None) -> Path:
    return Path(runs_dir or os.environ.get(f"{__package__.upper()}__RUNS_DIR", "runs"))


def record_start(
    run: Run, config: "Config", hardware: dict[str, object], data_version: str, monitor: dict[str, str]
) -> None:
    """Write what the run depends on: its configuration and its environment. The data may not change on the way."""
    from .config import dump_config  # here, since predict needs run directories and no configuration

    before = run.read_environment()
    if run.config.is_file():
        _check_that_it_can_go_on(run, config)
    if run.checkpoint("last").is_file() and before.get("data_version", data_version) != data_version:
        versions = f"{before['data_version']}, now {data_version}"
        raise UserError(f"data: has changed since {run.path} began ({versions}); start a new run")
    (run.path / "checkpoints").mkdir(parents=True, exist_ok=True)
    run.write_status("running")
    write_text(run.config, dump_config(config))
    commit = _git("rev-parse", "HEAD")
    packages = [found.metadata for found in importlib.metadata.distributions()]
    environment = {
        "id": before.get("id") or (run.id if before else secrets.token_hex(16)),
        "commit": commit or None,
        "dirty": bool(_git("status", "--porcelain")) if commit else None,
        "command": sys.argv,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "hardware": hardware,
        "data_version": data_version,
        "monitor": monitor,
        "packages": dict(sorted((found["Name"], found["Version"]) for found in packages)),
    }
    write_json(run.path / "environment.json", environment)


def _git(*args: str) -> str:
    try:
        return subprocess.run(["git", *args], capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
