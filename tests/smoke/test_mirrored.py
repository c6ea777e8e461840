"""trainer.strategy mirrored: copies of the model in one process learn what one does."""

from pathlib import Path

import pytest

from distribution import TOLERANCE, TWENTY_STEPS, distribution_problems
from test_faults import Fault
from workspace import IN_DEPTH, Workspace, differences, error_line, workspace

TWO_COPIES = ("--trainer.strategy", "mirrored")
CLIPPED = ("--trainer.max-grad-norm", "0.1")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return workspace(tmp_path_factory.mktemp("mirrored") / "project", "tensorflow")


def train_copies(project: Workspace, name: str, *arguments: str) -> Path:
    words = ("train", "--run-name", name, *TWENTY_STEPS, *TWO_COPIES, *arguments)
    done = project.script("on_two_devices.py", project.package, *words)
    assert "world size 2" in done.stdout
    assert not done.stderr, "nothing but what training prints"
    return project.run_dir(name)


def test_two_copies_equal_one_and_go_on_alone(project: Workspace, single: Path) -> None:
    run = train_copies(project, "two", "--trainer.max-steps", "12")
    project.train(run.name, *TWENTY_STEPS)
    assert differences(project, single, run)["last model"] <= TOLERANCE
    assert not distribution_problems(project, single, train_copies(project, "all"))


def test_clipping(project: Workspace) -> None:
    clipped = project.train("one-clipped", *TWENTY_STEPS, *CLIPPED)
    assert not distribution_problems(project, clipped, train_copies(project, "clipped", *CLIPPED))


@IN_DEPTH
def test_accumulation(project: Workspace, single: Path) -> None:
    run = train_copies(project, "parts", "--trainer.accumulation-steps", "2")
    assert not distribution_problems(project, single, run)


def test_a_planted_fault_is_seen(project: Workspace, single: Path, tmp_path: Path) -> None:
    faulty = workspace(tmp_path / "project", "tensorflow")
    Fault("counted for each copy", "train.py", " / runtime.replicas) for", ") for", lambda _: []).plant(faulty)
    assert distribution_problems(faulty, single, train_copies(faulty, "faulty"))


def test_a_usage_error_is_one_line(project: Workspace) -> None:
    for words, size, says in (
        ((), "2", "mirrored is one process for all GPUs, and WORLD_SIZE is 2"),
        (("--trainer.compile",), "1", "XLA compiles no sums over several GPUs or processes"),
    ):
        done = project.cli("train", *TWO_COPIES, *words, check=False, env={"WORLD_SIZE": size})
        assert done.returncode == 2
        assert says in error_line(done)
