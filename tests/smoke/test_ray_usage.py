"""launch/ray before it starts anything: what is wrong is said in one line."""

import os
import re
from pathlib import Path

import pytest

from workspace import FIRST, Workspace, error_line, workspace

TRAIN, QUEUE = "launch/ray/train.py", "launch/ray/gpu_queue.py"


@pytest.fixture(scope="module", params=FIRST)
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return workspace(tmp_path_factory.mktemp("ray") / "project", request.param, launchers=["ray"])


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ((TRAIN,), "the following arguments are required: --workers"),
        ((TRAIN, "--workers", "0"), "argument --workers: invalid count value: '0'"),
        ((TRAIN, "--worker", "2"), "--worker"),
        ((TRAIN, "--workers", "2", "--", "--trainer.max-epoch", "3"), "did you mean --trainer.max-epochs?"),
        ((TRAIN, "--workers", "3"), "64 does not divide by 3 processes"),
        ((TRAIN, "--workers", "2", "--run-name", "../x"), "--run-name ../x: may hold letters"),
        ((TRAIN, "--workers", "2", "--", "--run-name", "x"), "--run-name goes before --"),
        ((QUEUE,), "the following arguments are required: COMMAND"),
        ((QUEUE, "dance"), "invalid choice: 'dance'"),
        ((QUEUE, "submit", "--gpus", "none"), "argument --gpus: invalid count value: 'none'"),
        ((QUEUE, "submit", "--", "--trainer.max-epoch", "3"), "did you mean --trainer.max-epochs?"),
        ((QUEUE, "submit", "--gpus", "3"), "64 does not divide by 3 processes"),
    ],
)
def test_a_usage_error_is_one_line(project: Workspace, words: tuple[str, ...], problem: str) -> None:
    done = project.run(project.python, *words, check=False)
    assert done.returncode == 2
    assert problem in error_line(done)
    assert not (project.path / "runs").exists()


def test_a_dry_run_starts_nothing(project: Workspace) -> None:
    words = ("--workers", "2", "--run-name", "first", "--dry-run", "--", "--trainer.max-epochs", "3")
    done = project.run(project.python, TRAIN, *words)
    command = f"python -m {project.package} train --run-name first --trainer.max-epochs 3"
    assert done.stdout.splitlines() == ["in each of 2 workers of Ray on this machine:", command]
    assert not (project.path / "runs").exists()


@pytest.mark.parametrize("words", [(TRAIN, "--workers", "2"), *((QUEUE, word) for word in ("submit", "list", "stop"))])
def test_ray_is_not_installed(project: Workspace, words: tuple[str, ...], tmp_path: Path) -> None:
    hide = tmp_path / "hide/sitecustomize.py"
    hide.parent.mkdir()
    hide.write_text("import sys\n\nsys.modules['ray'] = None\n")
    path = os.pathsep.join([str(hide.parent), project.env["PYTHONPATH"]])
    env = {"XDG_STATE_HOME": str(tmp_path / "state"), "PYTHONPATH": path}
    done = project.run(project.python, *words, check=False, env=env)
    assert done.returncode == 2
    assert error_line(done) == "error: Ray is not installed: make setup"
    assert not (tmp_path / "state").exists()


def test_help_names_every_command(project: Workspace) -> None:
    shown = project.run(project.python, QUEUE, "--help").stdout
    for command in ("submit", "list", "logs", "cancel", "start", "stop"):
        assert re.search(rf"^  {command} ", shown, re.MULTILINE)


def test_nothing_ends_the_rays_of_others(project: Workspace) -> None:
    """`ray stop` ends every process of Ray on the machine, whoever started it."""
    for name in project.files():
        assert not re.search(r"ray\W{1,4}stop|ray\.scripts\S*\W+stop", (project.path / name).read_text("utf-8")), name
