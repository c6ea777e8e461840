"""launch/ddp.sh: two processes learn what one does, in one run directory, and survive the loss of one of them."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from workspace import (
    EXHAUSTIVE,
    HERE,
    SMALL,
    Workspace,
    differences,
    error_line,
    last_step,
    read_metrics,
    snapshot,
    status,
    wait_until,
    workspace,
)

# Adam would hide a gradient that is doubled or not averaged; momentum and a plain learning rate show it.
SGD = ("--optimizer.name", "sgd", "--optimizer.momentum", "0.9", "--optimizer.schedule", "constant")
EXACT = (*SMALL, *SGD, "--trainer.precision", "fp32", "--trainer.device", "cpu", "--optimizer.learning-rate")
TWENTY_STEPS = (*EXACT, "0.05", "--trainer.max-steps", "20")
# Long enough to be stopped on the way, and too gentle for a difference in the last bit to grow.
THREE_EPOCHS = (*EXACT, "0.005", "--trainer.max-epochs", "3", "--trainer.checkpoint-every", "10")
TOLERANCE = 1e-5


def launch(
    project: Workspace, name: str, *arguments: str, check: bool = True, restarts: int = 3
) -> subprocess.CompletedProcess[str]:
    options = ("--nproc-per-node", "2", "--max-restarts", str(restarts), "--run-name", name)
    return project.run("launch/ddp.sh", *options, "--", *arguments, check=check)


def distribution_problems(project: Workspace, single: Path, several: Path) -> list[str]:
    """What tells the run of several processes from that of one."""
    apart = differences(project, single, several)
    weights = {part: apart[part] for part in ("last model", "best model")}
    problems = [f"{part} differs by {by}" for part, by in weights.items() if not by <= TOLERANCE]
    expected, got = read_metrics(single), read_metrics(several)
    if expected.keys() != got.keys():
        problems.append(f"logged by one only: {sorted(expected.keys() ^ got.keys())}")
    for key in expected.keys() & got.keys():
        if not abs(expected[key] - got[key]) <= 1e-6 * max(1, abs(expected[key])):
            problems.append(f"metric {key}: {expected[key]}, {got[key]}")
    if status(several) != "finished":
        problems.append(f"status: {status(several)}")
    return problems


def worker(launcher: int, rank: int) -> int | None:
    """The pid of the training process of a rank among a launcher's descendants."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    family = [launcher]
    for pid in family:
        family += [child for child, parent in parents.items() if parent == pid]
    for pid in family:
        try:
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if f"RANK={rank}".encode() in variables:
            return pid
    return None


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return workspace(tmp_path_factory.mktemp("distributed") / "project")


@pytest.fixture(scope="module")
def single(project: Workspace) -> Path:
    return project.train("single", *TWENTY_STEPS)


@pytest.fixture(scope="module")
def long_single(project: Workspace) -> Path:
    return project.train("long-single", *THREE_EPOCHS)


def test_two_processes_equal_one(project: Workspace, single: Path) -> None:
    examples = 287
    assert examples % 2 == 1, "the processes must get shares of the validation set that differ in size"
    done = launch(project, "two", *TWENTY_STEPS)
    assert not distribution_problems(project, single, project.run_dir("two"))
    assert {"single", "two"} == {path.name for path in (project.path / "runs/baseline").iterdir()}
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line]
    assert len(lines) == len(set(lines)), "a line is printed once, by rank 0"
    assert "world size 2" in lines[0]
    assert not done.stderr, "nothing but what training prints"


@pytest.mark.skipif(not EXHAUSTIVE, reason="one launch more: make test-all")
def test_accumulation_in_two_processes(project: Workspace, single: Path) -> None:
    launch(project, "parts", *TWENTY_STEPS, "--trainer.accumulation-steps", "2")
    assert not distribution_problems(project, single, project.run_dir("parts"))


@pytest.mark.parametrize("rank", [1, 0] if EXHAUSTIVE else [1])
def test_a_killed_worker_is_replaced(project: Workspace, long_single: Path, rank: int) -> None:
    run, before = project.run_dir(f"killed-{rank}"), set((project.path / "runs/baseline").iterdir())
    options = ("--nproc-per-node", "2", "--run-name", run.name)
    with project.started("launch/ddp.sh", *options, "--", *THREE_EPOCHS) as launcher:
        wait_until(lambda: last_step(run) >= 25, launcher, "step 25")
        pid = worker(launcher.pid, rank)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        killed_at = last_step(run)
        print(f"rank {rank} killed after step {killed_at}")
        assert killed_at < last_step(long_single)
        assert launcher.wait(300) == 0
    assert not distribution_problems(project, long_single, run)
    assert set((project.path / "runs/baseline").iterdir()) == before | {run}
    assert (project.path / "out.txt").read_text("utf-8").count(f"run runs/baseline/{run.name} ") == 2, "started twice"


def test_interrupted_processes_save_once_and_go_on(project: Workspace, long_single: Path) -> None:
    run = project.run_dir("stopped")
    options = ("--nproc-per-node", "2", "--run-name", run.name)
    with project.started("launch/ddp.sh", *options, "--", *THREE_EPOCHS) as launcher:
        wait_until(lambda: last_step(run) >= 40, launcher, "step 40")
        os.killpg(launcher.pid, signal.SIGINT)  # as a terminal does
        assert launcher.wait(120) != 0
    assert status(run) == "interrupted"
    assert 40 <= last_step(run) < last_step(long_single)
    errors = (project.path / "err.txt").read_text("utf-8").splitlines()
    assert len([line for line in errors if line.startswith("error: interrupted, and saved")]) == 1
    launch(project, run.name, *THREE_EPOCHS)
    assert not distribution_problems(project, long_single, run)


def test_a_usage_error_is_one_line(project: Workspace) -> None:
    before = snapshot(project.path / "runs")
    done = launch(project, "usage", "--trainer.max-epoch", "3", check=False)
    assert done.returncode == 2
    assert "did you mean --trainer.max-epochs?" in error_line(done)
    done = project.run("launch/ddp.sh", "--nproc", "2", check=False)
    assert done.returncode == 2
    assert "--nproc" in error_line(done)
    assert snapshot(project.path / "runs") == before


def first_error(done: subprocess.CompletedProcess[str]) -> str:
    """The reason stands once, before torchrun's own report; torchrun's restarts give up at once."""
    first, *more = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert all(line == first.replace("error: ", "error: not tried again: ") for line in more), done.stderr
    return first


def test_a_batch_that_does_not_divide(project: Workspace) -> None:
    done = launch(project, "undivided", "--trainer.global-batch-size", "63", check=False, restarts=0)
    assert done.returncode != 0
    assert "63 does not divide by 2 processes" in first_error(done)


def test_a_loss_that_is_not_finite_is_not_tried_again(project: Workspace) -> None:
    diverge = (*SMALL, "--optimizer.name", "sgd", "--optimizer.learning-rate", "1e30")
    done = launch(project, "diverged", *diverge, check=False, restarts=1)
    assert done.returncode != 0
    assert "step 2: the loss is" in first_error(done)
    assert done.stdout.count("run runs/baseline/diverged") == 1, "started once"
    assert status(project.run_dir("diverged")) == "failed"


@pytest.mark.parametrize("rate", ["0.05", "1e30"], ids=["finished", "failed"])
def test_no_thread_of_gloo_outlives_the_processes_group(project: Workspace, rate: str) -> None:
    """Else a process now and then aborts at its end (list_threads.py runs the command line in this process)."""
    torchrun = (project.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    words = ("train", "--run-name", f"threads-{rate}", *EXACT, rate, "--trainer.max-steps", "4")
    done = project.run(*torchrun, HERE / "list_threads.py", project.package, *words)
    assert "gloo threads []" in done.stdout
    assert status(project.run_dir(f"threads-{rate}")) == ("finished" if rate == "0.05" else "failed")
