"""launch/ddp.sh: two processes learn what one does, in one run directory, and survive the loss of one of them."""

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from distribution import EXACT, THREE_EPOCHS, TOLERANCE, TWENTY_STEPS, distribution_problems, free_ports, worker
from workspace import (
    EXHAUSTIVE,
    HERE,
    IN_DEPTH,
    SMALL,
    Workspace,
    differences,
    error_line,
    last_step,
    snapshot,
    status,
    wait_until,
    workspace,
)


def launch(
    project: Workspace, name: str, *arguments: str, check: bool = True, restarts: int = 3, processes: int = 2
) -> subprocess.CompletedProcess[str]:
    options = ("--nproc-per-node", str(processes), "--max-restarts", str(restarts), "--run-name", name)
    return project.run("launch/ddp.sh", *options, "--", *arguments, check=check)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return workspace(tmp_path_factory.mktemp("distributed") / "project")


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_processes_equal_one(project: Workspace, single: Path, strategy: str) -> None:
    examples = 287
    assert examples % 2 == 1, "the processes must get shares of the validation set that differ in size"
    before = set((project.path / "runs/baseline").iterdir())
    done = launch(project, strategy, *TWENTY_STEPS, "--trainer.strategy", strategy)
    run = project.run_dir(strategy)
    assert not distribution_problems(project, single, run)
    assert set((project.path / "runs/baseline").iterdir()) == before | {run}
    shards = {f"{name}-20-{rank}-of-2.pt" for name in ("best", "last") for rank in (0, 1)}
    kept = {path.name for path in (run / "checkpoints").iterdir()}
    assert kept == {"best.pt", "last.pt"} | (shards if strategy == "fsdp" else set())
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line]
    assert len(lines) == len(set(lines)), "a line is printed once, by rank 0"
    assert "world size 2" in lines[0]
    assert not done.stderr, "nothing but what training prints"


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
@IN_DEPTH
def test_accumulation_in_two_processes(project: Workspace, single: Path, strategy: str) -> None:
    parts = ("--trainer.accumulation-steps", "2", "--trainer.strategy", strategy)
    launch(project, f"parts-{strategy}", *TWENTY_STEPS, *parts)
    assert not distribution_problems(project, single, project.run_dir(f"parts-{strategy}"))


def test_shards_go_on_in_any_number_of_processes(project: Workspace, single: Path) -> None:
    fsdp, first = (*TWENTY_STEPS[:-1], "12", "--trainer.strategy", "fsdp"), project.run_dir("sharded")
    launch(project, first.name, *fsdp)
    for processes in (1, 4):
        run = shutil.copytree(first, project.run_dir(f"sharded-{processes}"))
        words = (*fsdp, "--trainer.max-steps", "20")
        if processes == 1:
            project.train(run.name, *words)
        else:
            launch(project, run.name, *words, processes=processes)
        assert differences(project, single, run)["last model"] <= TOLERANCE
        shards = [path.name for path in (run / "checkpoints").glob("last-*")]
        assert len(shards) == (0 if processes == 1 else processes), "those of before are gone"
        if EXHAUSTIVE or processes == 4:
            project.cli("evaluate", run)
            project.cli("export", run)  # which compares what it wrote with the model
    (run / "checkpoints/last-20-2-of-4.pt").write_bytes(b"")
    done = project.cli("export", run, "--checkpoint", "last", check=False)
    assert "last-20-2-of-4.pt: not a readable checkpoint" in error_line(done)


def test_the_guides_model_is_cut_into_layers(tmp_path: Path) -> None:
    project = workspace(tmp_path / "project")
    guide = (project.path / "docs/guide.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    model = project.path / "src" / project.package / "model.py"
    done = launch(project, "whole", *TWENTY_STEPS, "--trainer.strategy", "tensor", check=False, restarts=0)
    assert "needs a model with a method parallelize" in first_error(done)
    model.write_text('"""YOURS: the model."""\n\n' + code, "utf-8")
    project.run(project.python, "-m", "mypy")
    project.run(project.python, "-m", "ruff", "check", model)
    single = project.train("one", *TWENTY_STEPS)
    launch(project, "cut", *TWENTY_STEPS, "--trainer.strategy", "tensor")
    cut = project.run_dir("cut")
    assert not distribution_problems(project, single, cut)
    project.cli("export", cut)
    if not EXHAUSTIVE:
        return
    clip = ("--trainer.max-grad-norm", "0.1")  # which hides a gradient that is too long
    clipped = project.train("clipped", *TWENTY_STEPS, *clip)
    launch(project, "resumed", *TWENTY_STEPS[:-1], "12", *clip, "--trainer.strategy", "tensor")
    resumed = project.train("resumed", *TWENTY_STEPS, *clip)
    assert differences(project, clipped, resumed)["last model"] <= TOLERANCE


STEPS_AND_RANKS = [(25, 1), (8, 0), (15, 0), (34, 1), (41, 0), (52, 1), (63, 0), (77, 1), (85, 0), (98, 1)]


@pytest.mark.parametrize(("step", "rank"), STEPS_AND_RANKS if EXHAUSTIVE else STEPS_AND_RANKS[:1])
def test_a_killed_worker_is_replaced(project: Workspace, long_single: Path, step: int, rank: int) -> None:
    run, before = project.run_dir(f"killed-{step}"), set((project.path / "runs/baseline").iterdir())
    options = ("--nproc-per-node", "2", "--run-name", run.name)
    with project.started("launch/ddp.sh", *options, "--", *THREE_EPOCHS) as launcher:
        wait_until(lambda: last_step(run) >= step, launcher, f"step {step}")
        pid = worker(launcher.pid, rank)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        killed_at = last_step(run)
        print(f"rank {rank} killed after step {killed_at}")
        assert killed_at < last_step(long_single)
        assert launcher.wait(300) == 0
    assert not distribution_problems(project, long_single, run)
    assert set((project.path / "runs/baseline").iterdir()) == before | {run}
    starts = [line for line in (project.path / "out.txt").read_text("utf-8").splitlines() if line.startswith("run ")]
    assert len(starts) == 2
    assert step < 11 or ", from step " in starts[1], "from the last checkpoint, which a start from nothing equals too"


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


def test_a_signal_while_the_processes_agree_is_not_lost(project: Workspace) -> None:
    """One that came to all of them within a step's exchange once was (stop_while_agreeing.py sends such signals)."""
    words = (project.package, "train", "--run-name", "told", *SMALL, "--trainer.max-steps", "6")
    done = project.script("stop_while_agreeing.py", *words, check=False)
    assert (done.returncode, last_step(project.run_dir("told"))) == (130, 2)


def test_a_usage_error_is_one_line(project: Workspace) -> None:
    before = snapshot(project.path / "runs")
    done = launch(project, "usage", "--trainer.max-epoch", "3", check=False)
    assert done.returncode == 2
    assert "did you mean --trainer.max-epochs?" in error_line(done)
    done = launch(project, "usage", "--trainer.strategy", "fspd", check=False)
    assert done.returncode == 2
    assert "no such strategy in this project, which has: auto, ddp, fsdp" in error_line(done)
    for words, says in ((("--nproc", "2"), "--nproc"), (("--nnodes", "2"), "need --rdzv-endpoint and --run-name")):
        done = project.run("launch/ddp.sh", *words, check=False)
        assert done.returncode == 2
        assert says in error_line(done)
    assert snapshot(project.path / "runs") == before


def test_a_dry_run_shows_the_command(project: Workspace) -> None:
    before = snapshot(project.path)
    done = project.run("launch/ddp.sh", "--nproc-per-node", "2", "--run-name", "dry", "--dry-run", "--", "--seed", "3")
    (command,) = done.stdout.splitlines()
    assert "torch.distributed.run --standalone --nproc-per-node 2" in command
    assert command.split()[-7:] == ["-m", project.package, "train", "--run-name", "dry", "--seed", "3"]
    assert snapshot(project.path) == before


def test_more_processes_than_gpus(project: Workspace) -> None:
    """On a GPU that PyTorch is made to see: rank 0, which has one, says it too."""
    code = "import os, torch; torch.cuda.device_count = lambda: 1\n"
    code += f"from {project.package}.distributed import choose_device; choose_device('cuda', 0)"
    done = project.run(project.python, "-c", code, check=False, env={"LOCAL_WORLD_SIZE": "2", "RANK": "0"})
    assert "trainer.device: cuda takes a GPU a process, 2 here; PyTorch sees 1" in done.stderr


def test_two_machines_equal_one(project: Workspace, single: Path) -> None:
    endpoint = ("--rdzv-endpoint", f"127.0.0.1:{free_ports(1)[0]}")
    options = ("--nnodes", "2", "--nproc-per-node", "1", *endpoint, "--run-name", "machines")
    command = ("launch/ddp.sh", *options, "--", *TWENTY_STEPS)
    with project.started(*command) as first:
        done = project.run(*command)
        assert first.wait(120) == 0
    assert not distribution_problems(project, single, project.run_dir("machines"))
    shown = done.stdout + (project.path / "out.txt").read_text("utf-8")
    assert shown.count("run runs/baseline/machines ") == 1


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


@pytest.mark.parametrize(
    ("ending", "rate"), [("failed", "1e30"), ("interrupted", "0.05"), *([("finished", "0.05")] if EXHAUSTIVE else [])]
)
def test_no_thread_of_gloo_outlives_the_processes_group(project: Workspace, ending: str, rate: str) -> None:
    """Else a process now and then aborts at its end, or never ends (list_threads.py runs the command line)."""
    torchrun = (project.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    words = ("train", "--run-name", f"threads-{ending}", *EXACT, rate, "--trainer.max-steps", "4")
    done = project.run(*torchrun, HERE / "list_threads.py", ending, project.package, *words)
    assert "gloo threads []" in done.stdout
    assert status(project.run_dir(f"threads-{ending}")) == ending
