"""A user's own pictures: any format, colour and size; bad files are named, and splits stay when files come."""

import json
import shutil
from pathlib import Path

import pytest

from workspace import FIRST, FIRST_FRAMEWORK, SMALL, Workspace, error_line, status, workspace

PICTURES = 48
FOLDER = ("--data.source", "image-folder", "--data.folder", "pictures", "--data.image-size", "16")


@pytest.fixture(scope="module", params=FIRST)
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    project = workspace(tmp_path_factory.mktemp("images") / "project", request.param)
    project.script("write_pictures.py", "pictures", f"0-{PICTURES}")
    return project


def splits(project: Workspace) -> dict[str, list[str]]:
    """The pictures of each split, by name."""
    return dict(json.loads(project.script("list_splits.py", project.package, "pictures").stdout))


def test_all_formats_are_learned_and_predicted(project: Workspace) -> None:
    suffixes = {path.suffix for path in (project.path / "pictures").rglob("*.*")}
    assert suffixes == {".png", ".gif", ".tif", ".tiff", ".bmp", ".jpg", ".jpeg", ".webp"}
    run = project.train("formats", *SMALL, *FOLDER, "--trainer.max-epochs", "12", "--trainer.read-workers", "2")
    project.cli("evaluate", run)
    tables = json.loads((run / "evaluation/test/tables.json").read_text("utf-8"))
    assert [row["label"] for row in tables["per class"]] == ["lying", "standing"]
    project.cli("export", run)
    labels = project.predict("pictures", "--model", run)
    assert len(labels) == PICTURES, "named by number, the same in both classes"
    lying, standing = (project.predict(f"pictures/{name}", "--model", run) for name in ("lying", "standing"))
    right = sum(label == "lying" for label in lying.values()) + sum(label == "standing" for label in standing.values())
    assert right > 0.8 * 2 * PICTURES


def test_grey(project: Workspace) -> None:
    run = project.train("grey", *SMALL, *FOLDER, "--data.channels", "1", "--trainer.max-epochs", "1")
    project.cli("export", run)
    (item,) = json.loads((run / "model.json").read_text("utf-8"))["inputs"]
    assert item["shape"] == [16, 16, 1]
    assert len(project.predict("pictures/lying", "--model", run)) == PICTURES


@FIRST_FRAMEWORK
def test_bad_files_are_named_and_left_out_or_fatal(project: Workspace) -> None:
    bad = project.path / "pictures/lying"
    (bad / "text.png").write_text("this is no picture")
    (bad / "zero.jpg").touch()
    whole = next(bad.glob("*.jpg")).read_bytes()
    (bad / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (bad / "notes.txt").write_text("not taken for a picture")
    try:
        arguments = (*SMALL, *FOLDER, "--trainer.max-epochs", "1")
        done = project.cli("train", "--run-name", "bad", *arguments)
        warnings = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
        assert len(warnings) == 3
        for name, reason in (("text.png", "not a readable"), ("zero.jpg", "empty"), ("cut.jpg", "runcated")):
            assert [line for line in warnings if f"lying/{name}" in line and reason in line], warnings
        assert status(project.run_dir("bad")) == "finished"
        done = project.cli("train", "--run-name", "strict", *arguments, "--data.strict", check=False)
        assert done.returncode == 2
        line = error_line(done)
        assert all(name in line for name in ("text.png", "zero.jpg", "cut.jpg"))
    finally:
        for name in ("text.png", "zero.jpg", "cut.jpg", "notes.txt"):
            (bad / name).unlink()


@FIRST_FRAMEWORK
def test_new_files_move_no_old_one_to_another_split(project: Workspace) -> None:
    before = splits(project)
    assert all(before.values()), "each split has pictures"
    project.script("write_pictures.py", "pictures", f"{PICTURES}-{2 * PICTURES}")
    try:
        after = splits(project)
    finally:
        for path in (project.path / "pictures").rglob("*.*"):
            if int(path.stem) >= PICTURES:
                path.unlink()
    for name, files in before.items():
        assert set(files) < set(after[name])
    names = [file for files in after.values() for file in files]
    assert len(names) == len(set(names)) == 4 * PICTURES


@FIRST_FRAMEWORK
def test_a_moved_folder_keeps_its_splits(project: Workspace, tmp_path: Path) -> None:
    shutil.copytree(project.path / "pictures", tmp_path / "elsewhere")
    moved = json.loads(project.script("list_splits.py", project.package, tmp_path / "elsewhere").stdout)
    assert moved == splits(project)
