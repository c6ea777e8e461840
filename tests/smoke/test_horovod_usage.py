"""launch/horovod.sh and trainer.strategy horovod where Horovod is not installed; what it does is in tests/engines."""

import shlex
import shutil

import pytest

from workspace import FIRST_FRAMEWORK, FRAMEWORKS, SMALL, Workspace, error_line, snapshot, workspace

NEEDS = "launch/install_horovod.sh"


@pytest.fixture(scope="module", params=FRAMEWORKS)
def project(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Workspace:
    return workspace(tmp_path_factory.mktemp("horovod") / "project", request.param)


@FIRST_FRAMEWORK
def test_a_dry_run_shows_the_command(project: Workspace) -> None:
    before = snapshot(project.path)
    options = ("--hosts", "a:4,b:4", "--run-name", "first", "--dry-run")
    done = project.run("launch/horovod.sh", *options, "--", "--experiment", "configs/experiment/baseline.yaml")
    words = shlex.split(done.stdout)
    assert words[:4] == [".venv/bin/python", "launch/horovodrun.py", "a:4,b:4", ".venv/bin/python"]
    assert words[4:7] == ["-m", project.package, "train"]
    assert "--run-name first --experiment configs/experiment/baseline.yaml --trainer.strategy horovod" in done.stdout
    assert snapshot(project.path) == before


def test_without_a_number_it_starts_one_a_gpu_or_two(project: Workspace) -> None:
    done = project.run("launch/horovod.sh", "--dry-run", env={"CUDA_VISIBLE_DEVICES": ""})
    assert " launch/horovodrun.py localhost:2 " in done.stdout
    assert not done.stderr


@FIRST_FRAMEWORK
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--np 2", "unknown option --np"),
        ("--nproc", "--nproc needs a value"),
        ("--nproc two", "--nproc takes a whole number"),
        ("--nproc 0", "--nproc takes a whole number"),
        ("--hosts a:4,b", "such as a:4,b:4"),
        ("--hosts a;b:4", "such as a:4,b:4"),
        ("--nproc 2 --hosts a:4", "one of the two"),
        ("--nproc 3", "64 does not divide by 3 processes"),
        ("--hosts a:4,b:3 --dry-run", "64 does not divide by 7 processes"),
        ("--nproc 2 -- --trainer.max-epoch 3", "did you mean --trainer.max-epochs?"),
        ("--nproc 2", NEEDS),
    ],
)
def test_a_mistake_is_one_line(project: Workspace, words: str, reason: str) -> None:
    before = snapshot(project.path)
    done = project.run("launch/horovod.sh", *words.split(), check=False)
    assert done.returncode == 2
    assert reason in error_line(done)
    assert not done.stdout
    assert snapshot(project.path) == before


@FIRST_FRAMEWORK
@pytest.mark.parametrize("rank", ["0", "1"])
def test_the_strategy_names_what_installs_horovod(project: Workspace, rank: str) -> None:
    """From rank 0 alone."""
    arguments = ("train", "--run-name", "missing", *SMALL, "--trainer.strategy", "horovod")
    done = project.cli(*arguments, check=False, env={"RANK": rank, "WORLD_SIZE": "2"})
    assert done.returncode == 2
    if rank == "0":
        assert NEEDS in error_line(done)
    else:
        assert not done.stderr
    assert not project.run_dir("missing").exists()


@FIRST_FRAMEWORK
def test_help_is_there(project: Workspace) -> None:
    assert "--nproc N" in project.run("launch/horovod.sh", "--help").stdout
    assert "g++, cmake and make" in project.run(NEEDS, "--help").stdout
    done = project.run(NEEDS, "--now", check=False)
    assert done.returncode == 2
    assert "unknown option --now" in error_line(done)


def test_an_image_takes_it_as_a_build_argument(project: Workspace) -> None:
    asked = project.make("--dry-run", "image", "HOROVOD=1").stdout
    assert "--build-arg HOROVOD=1" in asked
    assert "HOROVOD" not in project.make("--dry-run", "image").stdout
    assert "ARG HOROVOD=\n" in (project.path / "Dockerfile").read_text("utf-8")


def test_what_is_missing_to_build_is_named(project: Workspace) -> None:
    """With a PATH of what every system has, and an empty cache."""
    tools = project.path / "tools"
    tools.mkdir()
    for name in ("bash", "dirname", "env", "uname"):
        (tools / name).symlink_to(str(shutil.which(name)))
    env = {"PATH": str(tools), "XDG_CACHE_HOME": str(project.path / "cache")}
    done = project.run(NEEDS, check=False, env=env)
    assert done.returncode == 2
    assert "apt-get install g++ cmake make" in error_line(done)
    assert not (project.path / "cache/horovod").exists()
