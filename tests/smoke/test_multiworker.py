"""launch/multiworker.sh: two processes learn what one does, in one run directory, and survive the loss of one."""

import json
import os
import shlex
import shutil
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from distribution import (
    THREE_EPOCHS,
    TOLERANCE,
    TWENTY_STEPS,
    distribution_problems,
    free_ports,
    interruption_problems,
    worker,
)
from test_faults import Fault
from workspace import (
    EXHAUSTIVE,
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

LAUNCH = ("launch/multiworker.sh", "--nproc-per-node", "2", "--run-name")
TWELVE_STEPS = (*TWENTY_STEPS[:-1], "12")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return workspace(tmp_path_factory.mktemp("multiworker") / "project", "tensorflow")


@pytest.fixture(scope="module")
def two(project: Workspace) -> subprocess.CompletedProcess[str]:
    """A run of two processes, which others are compared with."""
    return project.run(*LAUNCH, "two", "--", *TWENTY_STEPS)


def test_two_processes_equal_one(project: Workspace, single: Path, two: subprocess.CompletedProcess[str]) -> None:
    run = project.run_dir("two")
    assert not distribution_problems(project, single, run)
    assert set((project.path / "runs/baseline").iterdir()) == {single, run}
    assert {path.name for path in (run / "checkpoints").iterdir()} == {"best.npz", "last.npz"}
    lines = [line for line in two.stdout.splitlines() if line]
    assert len(lines) == len(set(lines)), "a line is printed once, by rank 0"
    assert "world size 2" in lines[0]
    assert not two.stderr, "nothing but what training prints"


@IN_DEPTH
def test_accumulation_in_two_processes(project: Workspace, single: Path) -> None:
    project.run(*LAUNCH, "parts", "--", *TWENTY_STEPS, "--trainer.accumulation-steps", "2")
    assert not distribution_problems(project, single, project.run_dir("parts"))


def test_a_run_goes_on_in_any_number_of_processes(
    project: Workspace, single: Path, two: subprocess.CompletedProcess[str]
) -> None:
    """To the bit in as many as before."""
    first = project.run_dir("twelve")
    project.run(*LAUNCH, first.name, "--", *TWELVE_STEPS)
    alone = shutil.copytree(first, project.run_dir("then-one"))
    project.train(alone.name, *TWENTY_STEPS)
    assert differences(project, single, alone)["last model"] <= TOLERANCE
    project.run(*LAUNCH, first.name, "--", *TWENTY_STEPS)
    assert not any(differences(project, project.run_dir("two"), first).values())


STEPS_AND_RANKS = [(25, 1), (8, 0), (41, 0), (52, 1), (77, 1), (98, 0)]


@pytest.mark.parametrize(("step", "rank"), STEPS_AND_RANKS if EXHAUSTIVE else STEPS_AND_RANKS[:1])
def test_a_killed_process_is_replaced(project: Workspace, long_single: Path, step: int, rank: int) -> None:
    run, before = project.run_dir(f"killed-{step}"), set((project.path / "runs/baseline").iterdir())
    with project.started(*LAUNCH, run.name, "--", *THREE_EPOCHS) as launcher:
        wait_until(lambda: last_step(run) >= step, launcher, f"step {step}")
        pid = worker(launcher.pid, rank)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        print(f"rank {rank} killed after step {last_step(run)}")
        assert last_step(run) < last_step(long_single)
        assert launcher.wait(300) == 0
    assert not distribution_problems(project, long_single, run)
    assert set((project.path / "runs/baseline").iterdir()) == before | {run}
    starts = [line for line in (project.path / "out.txt").read_text("utf-8").splitlines() if line.startswith("run ")]
    assert len(starts) == 2
    assert step < 11 or ", from step " in starts[1], "from the last checkpoint, which a start from nothing equals too"
    errors = [line for line in (project.path / "err.txt").read_text("utf-8").splitlines() if line]
    assert errors[-1] == "a process was lost (exit code 137); start 2, from the last checkpoint"
    assert all(line.startswith("error: another process of this run has ended") for line in errors[:-1]), errors


@IN_DEPTH
@pytest.mark.parametrize("how", ["Ctrl-C", "SIGTERM"])
def test_interrupted_processes_save_once_and_go_on(project: Workspace, long_single: Path, how: str) -> None:
    assert not interruption_problems(project, long_single, LAUNCH, how)


FAULTS = [
    ("gradients summed wrongly", "train.py", "(size / count / runtime", "(runtime.copies * size / count / runtime"),
    ("gradients not reduced", "train.py", "= runtime.sum([*parts, stop])", "= [*parts, *runtime.sum([stop])]"),
    ("the same data in every process", "train.py", "pieces, runtime.data_rank, ", "pieces, 0, "),
    ("metrics not gathered", "evaluate.py", "runtime.gather(sums)[: runtime.data_size]", "[sums]"),
]


@pytest.mark.parametrize("fault", FAULTS if EXHAUSTIVE else FAULTS[:1], ids=lambda fault: fault[0])
def test_a_planted_fault_is_seen(
    project: Workspace, single: Path, fault: tuple[str, str, str, str], tmp_path: Path
) -> None:
    faulty = workspace(tmp_path / "project", "tensorflow")
    Fault(*fault, lambda _: []).plant(faulty)
    faulty.run(*LAUNCH, "faulty", "--", *TWENTY_STEPS)
    problems = distribution_problems(faulty, single, faulty.run_dir("faulty"))
    assert problems
    print(f"{len(problems)} problems, such as: {problems[0]}")


def machines(project: Workspace, name: str, hosts: str) -> list[tuple[str, ...]]:
    """The commands that start a run on two machines; the machines are this one."""
    options = ("--hosts", hosts, "--nproc-per-node", "1", "--port", str(free_ports(1)[0]), "--run-name", name)
    return [("launch/multiworker.sh", *options, "--node-rank", node, "--") for node in ("0", "1")]


@IN_DEPTH
@pytest.mark.parametrize("hosts", ["127.0.0.1,localhost", "127.0.0.1,127.0.0.2"])
def test_two_machines_equal_one(project: Workspace, single: Path, hosts: str) -> None:
    run = project.run_dir(hosts.replace(",", "-"))
    first, second = machines(project, run.name, hosts)
    with project.started(*first, *TWENTY_STEPS) as launcher:
        done = project.run(*second, *TWENTY_STEPS)
        assert launcher.wait(120) == 0
    assert not distribution_problems(project, single, run)
    assert not done.stdout + done.stderr, "rank 0 prints"


@IN_DEPTH
@pytest.mark.parametrize("what", ["process", "machine"])
def test_what_is_lost_of_two_machines_is_replaced(project: Workspace, long_single: Path, what: str) -> None:
    run = project.run_dir(f"lost-{what}")
    first, second = machines(project, run.name, "127.0.0.1,localhost")
    with ThreadPoolExecutor() as pool, ExitStack() as stack:
        launcher = stack.enter_context(project.started(*first, *THREE_EPOCHS))
        other = pool.submit(project.run, *second, *THREE_EPOCHS)
        wait_until(lambda: last_step(run) >= 25, launcher, "step 25")
        if what == "process":
            pid = worker(launcher.pid, 0)
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
        else:
            os.killpg(launcher.pid, signal.SIGKILL)
            launcher = stack.enter_context(project.started(*first, *THREE_EPOCHS))  # as one does where it is back
        assert launcher.wait(300) == 0
        assert "a process was lost; start 2, from the last checkpoint" in other.result().stderr
    assert not distribution_problems(project, long_single, run)


def test_a_failure_is_one_line_and_is_not_tried_again(project: Workspace) -> None:
    diverge = (*SMALL, "--optimizer.name", "sgd", "--optimizer.learning-rate", "1e30")
    done = project.run(*LAUNCH, "diverged", "--", *diverge, check=False)
    assert done.returncode == 1
    assert "step 2: the loss is" in error_line(done)
    assert done.stdout.count("run runs/baseline/diverged") == 1, "started once"
    assert status(project.run_dir("diverged")) == "failed"


BAD = [
    (("--nproc", "2"), "unknown option --nproc"),
    (("--nproc-per-node",), "--nproc-per-node needs a value"),
    (("--nproc-per-node", "0"), "take whole numbers"),
    (("--max-restarts", "many"), "take whole numbers"),
    (("--hosts", "a,,b", "--run-name", "bad"), "--hosts takes machines"),
    (("--hosts", "a,b"), "several machines need --run-name"),
    (("--hosts", "a,b", "--run-name", "bad"), "this machine is none of --hosts a,b"),
    (("--hosts", "a,b", "--run-name", "bad", "--node-rank", "2"), "this machine is none of --hosts a,b"),
    (("--", "--trainer.max-epoch", "3"), "did you mean --trainer.max-epochs?"),
    (("--", "--trainer.global-batch-size", "63"), "63 does not divide by 2 processes"),
    (("--", "--trainer.strategy", "ddp"), "no such strategy in this project, which has: auto, mirrored, multiworker"),
    (("--", "--trainer.strategy", "mirrored"), "mirrored is one process for all GPUs, and WORLD_SIZE is 2"),
]


def test_a_usage_error_is_one_line(project: Workspace) -> None:
    before = snapshot(project.path / "runs")
    for words, says in BAD:
        options = ("--nproc-per-node", "2") if "--" in words or "--hosts" in words else ()
        done = project.run("launch/multiworker.sh", *options, *words, check=False)
        assert done.returncode == 2, words
        assert says in error_line(done)
    for words, says in (
        (("--trainer.strategy", "multiworker"), "several processes need TF_CONFIG, which a launcher sets"),
        (("--trainer.compile",), "XLA compiles no sums over several GPUs or processes"),
    ):
        done = project.cli("train", *words, check=False, env={"WORLD_SIZE": "2"})
        assert done.returncode == 2
        assert says in error_line(done)
    assert snapshot(project.path / "runs") == before


def test_a_dry_run_shows_the_commands(project: Workspace) -> None:
    before = snapshot(project.path)
    done = project.run(*LAUNCH, "dry", "--dry-run", "--", "--seed", "3")
    for rank, line in enumerate(done.stdout.splitlines()):
        words = shlex.split(line)
        assert words[:4] == ["env", f"RANK={rank}", f"LOCAL_RANK={rank}", "WORLD_SIZE=2"]
        assert words[-7:] == ["-m", project.package, "train", "--run-name", "dry", "--seed", "3"]
        config = json.loads(next(word for word in words if word.startswith("TF_CONFIG=")).partition("=")[2])
        assert config["task"] == {"type": "worker", "index": rank}
        assert len(set(config["cluster"]["worker"])) == 2
    assert len(done.stdout.splitlines()) == 2
    assert snapshot(project.path) == before


def test_help(project: Workspace) -> None:
    assert "--nproc-per-node N" in project.run("launch/multiworker.sh", "--help").stdout
