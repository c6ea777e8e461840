"""Projects that borrow one environment, and what the smoke tests read from their runs."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import preload
from support import FRAMEWORKS as FRAMEWORKS
from support import Project, finished, render, setup_env, shared_project

HERE = Path(__file__).parent
EXHAUSTIVE = os.environ.get("MLSTACK_EXHAUSTIVE") == "1"
# For a test of files that are the same text in both frameworks, or of what another one sees in the second too.
FIRST = FRAMEWORKS if EXHAUSTIVE else FRAMEWORKS[:1]
FIRST_FRAMEWORK = pytest.mark.parametrize("project", FIRST, indirect=True)
IN_DEPTH = pytest.mark.skipif(not EXHAUSTIVE, reason="in the exhaustive form: make test-all")
ONE_THREAD = {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
# Small enough for seconds, with every part of the state in use: AdamW, its schedule, augmentation.
SMALL = ("--model.width", "8", "--trainer.global-batch-size", "32", "--trainer.log-every", "1")


@dataclass(frozen=True)
class Workspace(Project):
    """A fresh project whose .venv is the shared environment; its package comes first on the path."""

    @property
    def env(self) -> dict[str, str]:
        # Bytecode is kept even where the machine's settings forbid it: without it a start takes twice as long.
        own = {"PYTHONPATH": str(self.path / "src"), "PYTHONDONTWRITEBYTECODE": ""}
        own["MYPY_CACHE_DIR"] = str((self.path / ".venv").resolve().with_name(".mypy_cache"))
        return setup_env() | own | ONE_THREAD

    def run(
        self, *command: str | Path, check: bool = True, timeout: float = 600, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return super().run(*command, check=check, timeout=timeout, env=self.env | dict(env or {}))

    def python_run(
        self,
        *command: str | Path,
        check: bool = True,
        timeout: float = 600,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """`python COMMAND`; where nothing is asked of its environment, without the start of the framework."""
        if env or EXHAUSTIVE:
            return self.run(self.python, *command, check=check, timeout=timeout, env=env)
        words = [str(part) for part in command]
        python = self.python.parent.resolve() / self.python.name
        return finished(preload.run(python, self.answers["framework"], words, self.path, self.env, timeout), check)

    def cli(self, *arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
        return self.python_run("-m", self.package, *arguments, **options)

    def script(self, name: str, *arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run one of this folder's scripts with the project's interpreter."""
        return self.python_run(HERE / name, *arguments, **options)

    @property
    def suffix(self) -> str:
        """Of checkpoints."""
        return {"pytorch": ".pt", "tensorflow": ".npz"}[self.answers["framework"]]

    def run_dir(self, name: str, experiment: str = "baseline") -> Path:
        return self.path / "runs" / experiment / name

    def train(self, name: str, *arguments: str | Path, **options: Any) -> Path:
        """Train in the run directory `name`."""
        self.cli("train", "--run-name", name, *arguments, **options)
        return self.run_dir(name)

    def predict(self, *arguments: str | Path) -> dict[str, str]:
        """The predicted label of each file, by its name."""
        lines = self.cli("predict", "--format", "jsonl", *arguments).stdout.splitlines()
        return {Path(line["file"]).name: line["label"] for line in map(json.loads, lines)}

    @contextmanager
    def started(self, *command: str | Path) -> Iterator[subprocess.Popen[bytes]]:
        """A running command in a process group of its own, which ends with the block.

        Its output is in out.txt and err.txt.
        """
        with open(self.path / "out.txt", "wb") as out, open(self.path / "err.txt", "wb") as err:
            process = subprocess.Popen(
                [str(part) for part in command],
                cwd=self.path,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def started_cli(self, *arguments: str | Path) -> Any:
        return self.started(self.python, "-m", self.package, *arguments)


def workspace(dest: Path, framework: str = "pytorch", **answers: Any) -> Workspace:
    project = Workspace(render(dest, framework=framework, **answers).path)
    (project.path / ".venv").symlink_to(shared_project(framework).path / ".venv")
    return project


def wait_until(holds: Callable[[], bool], process: subprocess.Popen[bytes], what: str, seconds: float = 180) -> None:
    """Poll while the process runs; fails where it ends first or takes longer."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert process.poll() is None, f"ended with {process.returncode} before {what}"
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.001)


def last_step(run: Path) -> int:
    """The last step in metrics.jsonl; 0 before the first."""
    try:
        lines = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return 0
    complete = [line for line in lines if line.endswith(b"\n")]
    return int(json.loads(complete[-1])["step"]) if complete else 0


def status(run: Path) -> str:
    return str(json.loads((run / "status.json").read_text("utf-8"))["status"])


Metric = tuple[int, int, str, str]


def read_metrics(run: Path) -> dict[Metric, float]:
    """(step, epoch, split, name) -> value, of everything that does not depend on time."""
    metrics: dict[Metric, float] = {}
    for row in map(json.loads, (run / "metrics.jsonl").read_text("utf-8").splitlines()):
        if row["name"] != "examples_per_second":
            key = (row["step"], row["epoch"], row["split"], row["name"])
            key = key if key not in metrics else (*key[:3], f"{row['name']}, logged again")
            metrics[key] = float(row["value"])
    assert metrics
    return metrics


def read_accuracy(run: Path, split: str = "test") -> float:
    """What `evaluate` wrote."""
    return float(json.loads((run / "evaluation" / split / "metrics.json").read_text("utf-8"))["accuracy"])


def differences(project: Workspace, reference: Path, other: Path) -> dict[str, float]:
    """The largest difference of each part of two runs' checkpoints, such as "last model" or "best state"."""
    answer: dict[str, float] = json.loads(project.script("compare_checkpoints.py", reference, other).stdout)
    return answer


def snapshot(folder: Path) -> dict[str, str]:
    """A fingerprint of every file below the folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if path.is_symlink():
            found[str(inside)] = f"-> {path.readlink()}"
        elif path.is_file() and "__pycache__" not in inside.parts:
            found[str(inside)] = sha256(path.read_bytes()).hexdigest()
    return found


def error_line(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that a user sees of a mistake."""
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: "), done.stderr
    return lines[0]
