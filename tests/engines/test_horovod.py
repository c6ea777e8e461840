"""launch/horovod.sh with Horovod as launch/install_horovod.sh builds it: two processes learn what one does."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from distribution import THREE_EPOCHS, TWENTY_STEPS, distribution_problems, interruption_problems, listening, worker
from support import FRAMEWORKS, render, shared_project
from test_faults import Fault
from workspace import EXHAUSTIVE, FIRST_FRAMEWORK, IN_DEPTH, SMALL, Workspace, error_line, last_step, status, wait_until

HERE = Path(__file__).parent
LAUNCH = ("launch/horovod.sh", "--nproc", "2", "--run-name")


@pytest.fixture(scope="module", params=FRAMEWORKS)
def project(compiler: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Workspace:
    framework = request.param
    made = Workspace(render(tmp_path_factory.mktemp("horovod") / "project", framework=framework).path)
    (made.path / ".venv").symlink_to(shared_project(framework, horovod=True).path / ".venv")
    return made


def test_two_processes_equal_one(project: Workspace, single: Path) -> None:
    done = project.run(*LAUNCH, "two", "--", *TWENTY_STEPS)
    assert not distribution_problems(project, single, project.run_dir("two"))
    assert {"single", "two"} == {path.name for path in (project.path / "runs/baseline").iterdir()}
    lines = [line for line in done.stdout.splitlines() if line]
    assert len(lines) == len(set(lines)), "a line is printed once, by rank 0"
    assert "world size 2" in lines[0]
    assert not done.stderr, "nothing but what training prints"


@IN_DEPTH
def test_accumulation_in_two_processes(project: Workspace, single: Path) -> None:
    project.run(*LAUNCH, "parts", "--", *TWENTY_STEPS, "--trainer.accumulation-steps", "2")
    assert not distribution_problems(project, single, project.run_dir("parts"))


@FIRST_FRAMEWORK
@pytest.mark.parametrize("rank", [1, 0] if EXHAUSTIVE else [1])
def test_a_killed_process_ends_all_and_the_run_goes_on(project: Workspace, long_single: Path, rank: int) -> None:
    run = project.run_dir(f"killed-{rank}")
    with project.started(*LAUNCH, run.name, "--", *THREE_EPOCHS) as launcher:
        wait_until(lambda: last_step(run) >= 25, launcher, "step 25")
        pids = [worker(launcher.pid, each) for each in (rank, 1 - rank)]
        assert pids[0] is not None and pids[1] is not None
        os.kill(pids[0], signal.SIGKILL)
        assert launcher.wait(120) == 128 + signal.SIGKILL
    assert not Path(f"/proc/{pids[1]}").exists()
    assert last_step(run) < last_step(long_single)
    errors = (project.path / "err.txt").read_text("utf-8")
    assert f"error: process {rank} was ended by SIGKILL; the same --run-name goes on" in errors
    assert "Traceback" not in errors
    project.run(*LAUNCH, run.name, "--", *THREE_EPOCHS)
    assert not distribution_problems(project, long_single, run)


@FIRST_FRAMEWORK
@pytest.mark.parametrize("how", ["Ctrl-C", "SIGTERM"] if EXHAUSTIVE else ["Ctrl-C"])
def test_interrupted_processes_save_once_and_go_on(project: Workspace, long_single: Path, how: str) -> None:
    assert not interruption_problems(project, long_single, LAUNCH, how)


EXCHANGE = "strategies/horovod.py"
SAME_DATA = ("train.py", "pieces, runtime.data_rank, ", "pieces, 0, ")
FAULTS = {
    "gradients summed": {
        "pytorch": (EXCHANGE, "used], op=hvd.Average", "used], op=hvd.Sum"),
        "tensorflow": ("train.py", "(size / count / runtime.replicas)", "(size / count * runtime.copies)"),
    },
    "gradients divided twice": {
        "pytorch": (EXCHANGE, "used], op=hvd", "used], postscale_factor=0.5, op=hvd"),
        "tensorflow": ("train.py", "(size / count / runtime.replicas)", "(size / count / runtime.copies)"),
    },
    "gradients not reduced": {
        "pytorch": ("train.py", "    runtime.reduce_gradients(loop.model)\n", ""),
        "tensorflow": (EXCHANGE, "zip(places, sums, ", "zip(places, group, "),
    },
    "the same data in every process": {"pytorch": SAME_DATA, "tensorflow": SAME_DATA},
}


@pytest.mark.parametrize("fault", [*FAULTS] if EXHAUSTIVE else [*FAULTS][:1])
def test_a_planted_fault_is_seen(project: Workspace, single: Path, fault: str, tmp_path: Path) -> None:
    faulty = Workspace(shutil.copytree(project.path, tmp_path / "project", symlinks=True))
    Fault(fault, *FAULTS[fault][project.answers["framework"]], lambda _: []).plant(faulty)
    faulty.run(*LAUNCH, "faulty", "--", *TWENTY_STEPS)
    problems = distribution_problems(faulty, single, faulty.run_dir("faulty"))
    assert problems
    print(f"{len(problems)} problems, such as: {problems[0]}")


@pytest.mark.parametrize("project", ["pytorch"], indirect=True)
def test_a_weight_without_a_gradient(project: Workspace, tmp_path: Path) -> None:
    """On one process it counts as zero; on all it stays without, so that the optimizer leaves it alone, as in one."""
    script = (project.python, HERE / "horovod_gradients.py", project.package, tmp_path)
    project.run(project.python, "launch/horovodrun.py", "localhost:2", *script)
    expected = {"both": [4.0, 4.0], "one": [3.0, 3.0], "none": None, "wide": [4.0, 4.0], "frozen": None}
    assert [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)] == [expected, expected]


@pytest.mark.parametrize("project", ["tensorflow"], indirect=True)
def test_several_sums_at_a_time(project: Workspace, tmp_path: Path) -> None:
    """In processes of which one has built other graphs."""
    script = (project.python, HERE / "horovod_sums.py", project.package, tmp_path)
    project.run(project.python, "launch/horovodrun.py", "localhost:2", *script)
    expected = {"first": [3.0], "more": [[3.0], [], [6.0]], "scope": [[9.0]], "graph": [[5.0]], "branch": [12.0]}
    expected |= {"eager": [[1], [2.0, 2.0]], "types": [[{"0": ""}, {"1": "a"}], [1, "a"]]}
    assert [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)] == [expected, expected]


@FIRST_FRAMEWORK
def test_a_failure_is_one_line_and_ends_all(project: Workspace) -> None:
    diverge = (*SMALL, "--optimizer.name", "sgd", "--optimizer.learning-rate", "1e30")
    done = project.run(*LAUNCH, "diverged", "--", *diverge, check=False)
    assert done.returncode == 1
    assert "step 2: the loss is" in error_line(done)
    assert status(project.run_dir("diverged")) == "failed"


def test_another_launcher_does_not_start_it(project: Workspace) -> None:
    arguments = ("train", "--run-name", "other", *SMALL, "--trainer.strategy", "horovod")
    done = project.cli(*arguments, check=False, env={"RANK": "0", "WORLD_SIZE": "2"})
    assert done.returncode == 2
    assert "horovod is started by launch/horovod.sh" in error_line(done)
    assert not project.run_dir("other").exists()


@pytest.mark.parametrize("project", ["tensorflow"], indirect=True)
def test_xla_is_refused(project: Workspace) -> None:
    arguments = ("train", *SMALL, "--trainer.strategy", "horovod", "--trainer.compile")
    done = project.cli(*arguments, check=False, env={"RANK": "0", "WORLD_SIZE": "2"})
    assert done.returncode == 2
    assert error_line(done).startswith("error: trainer.compile: ")


@FIRST_FRAMEWORK
def test_two_machines_equal_one(ssh: str, project: Workspace, single: Path, tmp_path: Path) -> None:
    """The second is this one, by another address that only ssh leads to."""
    from ssh import HOST, reached_by_ssh

    with reached_by_ssh(tmp_path, project.env) as client:
        env = {"PATH": f"{client}:{os.environ['PATH']}", "MY_MODEL__TRAINER__MAX_STEPS": "20"}
        options = ("--hosts", f"localhost:1,{HOST}:1", "--run-name", "machines")
        project.run("launch/horovod.sh", *options, "--", *TWENTY_STEPS[:-2], env=env)
    assert not distribution_problems(project, single, project.run_dir("machines"))


@FIRST_FRAMEWORK
def test_a_machine_that_ssh_does_not_reach(ssh: str, project: Workspace) -> None:
    done = project.run("launch/horovod.sh", "--hosts", "localhost:1,nowhere.invalid:1", check=False)
    assert done.returncode == 2
    assert "nowhere.invalid" in error_line(done)


@FIRST_FRAMEWORK
def test_it_listens_on_this_machine_alone_and_shows_no_secret(
    project: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_TOKEN", "not-for-others")
    run = project.run_dir("private")
    with project.started(*LAUNCH, run.name, "--", *THREE_EPOCHS) as launcher:
        wait_until(lambda: last_step(run) >= 1, launcher, "step 1")
        pids = [launcher.pid, worker(launcher.pid, 0), worker(launcher.pid, 1)]
        assert None not in pids
        addresses = [listening(pid) for pid in pids if pid]
        shown = "".join(Path(f"/proc/{pid}/cmdline").read_text() for pid in pids)
        assert b"A_TOKEN=not-for-others" in Path(f"/proc/{pids[1]}/environ").read_bytes()
    assert addresses[0] == {"0100007F"}, "Horovod's server of addresses"
    assert all(found <= {"0100007F"} for found in addresses)
    assert "not-for-others" not in shown
