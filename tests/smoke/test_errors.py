"""Every mistake is one clear line with the right exit code; nothing is overwritten or lost."""

import json
import os
import pickle
import shutil
import stat
import subprocess
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from workspace import (
    FIRST_FRAMEWORK,
    FRAMEWORKS,
    SMALL,
    Workspace,
    error_line,
    last_step,
    snapshot,
    status,
    wait_until,
    workspace,
)

USAGE, FAILURE = 2, 1
SHORT = (*SMALL, "--trainer.max-epochs", "1", "--trainer.max-steps", "2")


@pytest.fixture(scope="module", params=FRAMEWORKS)
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A project with a finished run, exported."""
    project = workspace(tmp_path_factory.mktemp("errors") / "project", request.param)
    run = project.train("finished", *SHORT)
    project.cli("export", run)
    assert (run / "model.onnx").is_file()
    files = {
        "misspelt.yaml": "trainer:\n  max_epoch: 3\n",
        "section.yaml": "trainers:\n  max_epochs: 3\n",
        "wrong-type.yaml": "trainer:\n  max_epochs: many\n",
        "not-yaml.yaml": "trainer: {max_epochs: 3\n",
        "list.yaml": "- trainer\n",
        "newer.yaml": "schema_version: 2\n",
        "binary.yaml": "\udc80\udcff",
    }
    for name, text in files.items():
        (project.path / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    (project.path / "empty").mkdir()
    (project.path / "text.png").write_text("this is no picture")
    (project.path / "zero.png").touch()
    project.script("write_pictures.py", project.path / "good", "one")
    return project


@pytest.fixture
def run(project: Workspace, tmp_path: Path) -> Path:
    """A copy of the finished run, to be broken."""
    shutil.copytree(project.run_dir("finished"), tmp_path / "broken")
    return tmp_path / "broken"


def refused(project: Workspace, code: int, *arguments: str | Path, env: dict[str, str] | None = None) -> str:
    """The line that a command ends with, having changed no file."""
    before = snapshot(project.path)
    done = project.cli(*arguments, check=False, env=env)
    assert done.returncode == code, done.stderr
    line = error_line(done)
    assert snapshot(project.path) == before
    return line


# What is wrong: the command, and what its line must say.
CASES = {
    "unknown key": ("train --experiment misspelt.yaml", "misspelt.yaml: trainer.max_epoch", "mean trainer.max_epochs?"),
    "unknown section": ("train --experiment section.yaml", "section.yaml: trainers", "did you mean trainer?"),
    "wrong type": ("train --experiment wrong-type.yaml", "wrong-type.yaml: trainer.max_epochs", "integer", "'many'"),
    "bad YAML": ("train --experiment not-yaml.yaml", "not-yaml.yaml: not valid YAML", "line 2"),
    "a list": ("train --experiment list.yaml", "list.yaml: must hold keys and values"),
    "newer schema": ("train --experiment newer.yaml", "newer.yaml: schema_version"),
    "not text": ("train --experiment binary.yaml", "binary.yaml: cannot be read"),
    "a folder": ("train --experiment src", "src: cannot be read"),
    "missing file": ("train --experiment configs/experiment/no.yaml", "no.yaml: no such file", "baseline.yaml"),
    "wrong type of flag": ("train --trainer.max-epochs many", "--trainer.max-epochs", "'many'"),
    "out of range": ("train --trainer.max-epochs 0", "--trainer.max-epochs", "greater than or equal to 1"),
    "misspelt flag": ("train --trainer.max-epoch 3", "--trainer.max-epoch", "did you mean --trainer.max-epochs?"),
    "misspelt flag, joined": ("train --trainer.max-epoch=3", "did you mean --trainer.max-epochs?"),
    "not a choice": ("train --optimizer.name adam", "--optimizer.name", "'adamw'", "'adam'"),
    "unknown tracker": ("train --tracking.trackers wandbb", "--tracking.trackers", "wandbb"),
    "unknown command": ("trian", "trian", "train"),
    "a run outside": ("train --run-name ../../outside", "--run-name"),
    "resume a missing run": ("train --resume runs/baseline/missing", "runs/baseline/missing: no such run"),
    "resume what is no run": ("train --resume src", "src", "config.yaml"),
    "evaluate a missing run": ("evaluate runs/baseline/missing", "runs/baseline/missing: no such run"),
    "export what is no run": ("export empty", "empty", "best."),
    "predict nothing": ("predict", "PATH"),
    "predict a missing file": ("predict missing.png", "missing.png: no such file"),
    "predict an empty folder": ("predict empty", "empty", ".png"),
    "predict without a model": ("predict text.png --model empty", "model.json", "export"),
}


@pytest.fixture(scope="module")
def outcomes(project: Workspace) -> dict[str, subprocess.CompletedProcess[str]]:
    """What each command of CASES says; two at a time, since most of it is waiting for imports."""
    before = snapshot(project.path)
    with ThreadPoolExecutor(2) as pool:
        done = pool.map(lambda case: project.cli(*CASES[case][0].split(), check=False), CASES)
        outcomes = dict(zip(CASES, done, strict=True))
    assert snapshot(project.path) == before
    return outcomes


@FIRST_FRAMEWORK
@pytest.mark.parametrize("case", CASES)
def test_usage(outcomes: dict[str, subprocess.CompletedProcess[str]], case: str) -> None:
    _, *words = CASES[case]
    line = error_line(outcomes[case])
    assert outcomes[case].returncode == USAGE
    assert not [word for word in words if word not in line], line


def test_a_precision_that_the_device_lacks(project: Workspace) -> None:
    line = refused(project, USAGE, "train", "--trainer.precision", "fp16", "--trainer.device", "cpu")
    assert "trainer.precision" in line and "fp32" in line


@FIRST_FRAMEWORK
@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("TRAINER__MAX_EPOCH", "3", ("TRAINER__MAX_EPOCH: no such setting", "TRAINER__MAX_EPOCHS?")),
        ("TRAINER__MAX_EPOCHS", "many", ("TRAINER__MAX_EPOCHS", "'many'")),
        ("TRACKING__TRACKERS", "tensorboard", ("tracking", "JSON")),
    ],
)
def test_environment_variables(project: Workspace, name: str, value: str, words: tuple[str, ...]) -> None:
    line = refused(project, USAGE, "train", env={f"{project.package.upper()}__{name}": value})
    assert not [word for word in words if word not in line], line


def test_no_run_yet(tmp_path: Path) -> None:
    project = workspace(tmp_path / "project")
    for command in (("train", "--resume"), ("evaluate",), ("export",), ("predict", "README.md")):
        assert "train" in refused(project, USAGE, *command)
    assert not (project.path / "runs").exists()


@FIRST_FRAMEWORK
def test_a_run_name_that_is_a_file(project: Workspace) -> None:
    (project.path / "runs/baseline/a-file").write_text("mine")
    assert "runs/baseline/a-file" in refused(project, FAILURE, "train", "--run-name", "a-file")
    (project.path / "runs/baseline/a-file").unlink()


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def empty(file: Path) -> None:
    file.write_bytes(b"")


class Payload:
    """Unpickling it makes a folder."""

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, ("executed",)


def plant_code(file: Path) -> None:
    """Put an object that runs code when it is unpickled where the checkpoint's own pickle, or an array, was."""
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    (pickled,) = (name for name in members if name.endswith(("data.pkl", "values.npy")))
    members[pickled] = pickle.dumps({"schema_version": 1, "model": Payload()}, protocol=2)
    if file.suffix == ".npz":
        header = b"{'descr': '|O', 'fortran_order': False, 'shape': (), }\n"
        members[pickled] = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + members[pickled]
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


READERS: dict[Callable[[Path], None], tuple[str, ...]] = {
    truncate: ("train", "evaluate", "export"),
    empty: ("train",),
    plant_code: ("train", "evaluate"),
}


@pytest.mark.parametrize("damage", READERS, ids=lambda damage: damage.__name__)
def test_damaged_checkpoints(project: Workspace, run: Path, damage: Callable[[Path], None]) -> None:
    for command in READERS[damage]:
        checkpoint = run / "checkpoints" / (f"{'last' if command == 'train' else 'best'}{project.suffix}")
        damage(checkpoint)
        before = snapshot(run / "checkpoints")
        line = refused(project, USAGE, command, *(["--resume"] if command == "train" else []), run)
        assert f"{checkpoint}: not a readable checkpoint" in line
        assert snapshot(run / "checkpoints") == before
    assert not (project.path / "executed").exists()


@FIRST_FRAMEWORK
def test_damaged_or_newer_model(project: Workspace, run: Path) -> None:
    description = json.loads((run / "model.json").read_text("utf-8"))
    (run / "model.json").write_text(json.dumps(description | {"schema_version": 2}), "utf-8")
    assert "model.json: schema_version 2 is newer" in refused(project, USAGE, "predict", "text.png", "--model", run)
    truncate(run / "model.json")
    assert "model.json" in refused(project, USAGE, "predict", "text.png", "--model", run)
    shutil.copy(project.run_dir("finished") / "model.json", run)
    truncate(run / "model.onnx")
    assert "model.onnx: cannot be loaded" in refused(project, USAGE, "predict", "text.png", "--model", run)


@FIRST_FRAMEWORK
def test_files_that_are_no_pictures(project: Workspace) -> None:
    for bad, reason in (("text.png", "not a readable picture"), ("zero.png", "the file is empty")):
        done = project.cli("predict", "good", bad, "--format", "jsonl", check=False)
        assert done.returncode == FAILURE
        assert bad in error_line(done) and reason in error_line(done)
        assert len(done.stdout.splitlines()) == 1, "the readable picture is predicted all the same"


@FIRST_FRAMEWORK
def test_an_empty_image_folder(project: Workspace) -> None:
    folder = ("--data.source", "image-folder", "--data.folder")
    for name in ("empty", "missing"):
        before = {path.name for path in project.path.glob("runs/*/*")}
        done = project.cli("train", *folder, name, "--run-name", f"no-{name}", check=False)
        assert done.returncode == USAGE
        assert f"data.folder: {name}" in error_line(done)
        new = {path.name for path in project.path.glob("runs/*/*")} - before
        assert new <= {f"no-{name}"}
    line = refused(project, USAGE, "train", *folder[:2])
    assert "data.folder" in line


def test_a_loss_that_is_not_finite(project: Workspace) -> None:
    diverge = ("--optimizer.name", "sgd", "--optimizer.learning-rate", "1e30", "--optimizer.warmup-steps", "0")
    done = project.cli("train", "--run-name", "diverged", *SMALL, *diverge, check=False)
    assert done.returncode == FAILURE
    assert "step 2: the loss is" in error_line(done) and "optimizer.learning_rate" in error_line(done)
    assert status(project.run_dir("diverged")) == "failed"
    assert not list(project.run_dir("diverged").glob("checkpoints/*"))


@FIRST_FRAMEWORK
def test_a_batch_that_is_too_large_or_does_not_divide(project: Workspace) -> None:
    for name, flags, words in (
        ("large", ("--trainer.global-batch-size", "2000"), "2000"),
        ("uneven", ("--trainer.global-batch-size", "62", "--trainer.accumulation-steps", "4"), "62 does not divide"),
    ):
        done = project.cli("train", "--run-name", name, *flags, check=False)
        assert done.returncode == USAGE
        assert "trainer.global_batch_size" in error_line(done) and words in error_line(done)


@FIRST_FRAMEWORK
def test_a_full_disk_during_a_checkpoint(project: Workspace) -> None:
    arguments = (*SMALL, "--trainer.max-epochs", "2")
    whole = project.train("enough-room", *arguments)
    run = project.train("full", *SMALL, "--trainer.max-epochs", "2", "--trainer.max-steps", "35")
    first = snapshot(run / "checkpoints")
    for name in ("last", "best"):
        (run / f"checkpoints/{name}{project.suffix}.tmp").symlink_to("/dev/full")
    done = project.cli("train", "--resume", run, *arguments, "--trainer.max-steps", "70", check=False)
    assert done.returncode == FAILURE
    assert "No space left on device" in error_line(done) and "untouched" in error_line(done)
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)
    now = {name: text for name, text in snapshot(run / "checkpoints").items() if not name.endswith(".tmp")}
    assert now == first
    assert status(run) == "failed"
    for left in run.glob("checkpoints/*.tmp"):
        left.unlink()
    project.cli("train", "--resume", run, *arguments, "--trainer.max-steps", "70")
    assert last_step(run) == last_step(whole)


@FIRST_FRAMEWORK
def test_a_folder_that_cannot_be_written(project: Workspace) -> None:
    """Also as root, for whom no folder is read-only: one below a device cannot be made."""
    done = project.cli("train", "--runs-dir", "/dev/null/runs", check=False)
    assert done.returncode == FAILURE
    assert "/dev/null" in error_line(done)
    locked = project.path / "locked"
    locked.mkdir(mode=0o555)
    if os.geteuid():
        done = project.cli("train", "--runs-dir", "locked/runs", check=False)
        assert done.returncode == FAILURE
        assert "locked" in error_line(done) and "Permission denied" in error_line(done)


@FIRST_FRAMEWORK
def test_another_folder(project: Workspace, tmp_path: Path) -> None:
    """Where the project's files are not found, the line says which; with paths it works from anywhere."""

    def call(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [str(project.python), "-m", project.package, *map(str, arguments)]
        return subprocess.run(command, cwd=tmp_path, env=project.env, capture_output=True, text=True, timeout=300)

    done = call("train")
    assert done.returncode == USAGE
    assert "configs/experiment/baseline.yaml: no such file" in error_line(done)
    assert not list(tmp_path.iterdir())
    run = project.run_dir("finished")
    for command in (("evaluate", run), ("export", run), ("predict", project.path / "good", "--model", run)):
        done = call(*command)
        assert done.returncode == 0, done.stderr
    assert not list(tmp_path.iterdir())


@FIRST_FRAMEWORK
def test_a_run_without_a_finished_epoch(project: Workspace) -> None:
    run = project.run_dir("early")
    with project.started_cli("train", "--run-name", "early", *SMALL) as process:
        wait_until(lambda: last_step(run) >= 2, process, "step 2")
        process.kill()
        process.wait()
    assert not list(run.glob("checkpoints/best.*"))
    for command in ("evaluate", "export"):
        line = refused(project, USAGE, command, run)
        assert f"best{project.suffix}" in line and str(run) in line


@FIRST_FRAMEWORK
def test_output_cut_short_is_no_error(project: Workspace) -> None:
    """`| head` ends the reader first."""
    command = f"{project.python} -m {project.package} train --dry-run | head -n 1"
    done = project.run("bash", "-c", f"set -o pipefail; {command}", check=False)
    assert done.stdout.strip() and not done.stderr
