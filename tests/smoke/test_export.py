"""What is exported gives the model's answers, and is read without this project's code."""

import json
from pathlib import Path

import pytest

from workspace import SMALL, Workspace, workspace

FILES = {"onnx": "model.onnx", "pt2": "model.pt2", "torchscript": "model.torchscript.pt"}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return workspace(tmp_path_factory.mktemp("export") / "project")


@pytest.fixture(scope="module")
def run(project: Workspace) -> Path:
    """Two epochs, of which `best` and `last` differ."""
    return project.train("exported", *SMALL, "--trainer.max-epochs", "2", "--trainer.max-steps", "50")


@pytest.mark.parametrize(("form", "checkpoint"), [*((form, "best") for form in FILES), ("onnx", "last")])
def test_exports_agree_with_the_model(project: Workspace, run: Path, form: str, checkpoint: str) -> None:
    done = project.cli("export", run, "--format", form, "--checkpoint", checkpoint)
    assert str(run / FILES[form]) in done.stdout and f"{checkpoint} checkpoint" in done.stdout
    notes = [line for line in (done.stdout + done.stderr).splitlines() if "deprecate" in line.lower()]
    assert len(notes) == (1 if form == "torchscript" else 0)
    assert not done.stderr
    answer = json.loads(project.script("compare_export.py", project.package, run, form, checkpoint).stdout)
    assert answer["examples"] == 360
    assert answer["difference"] <= 1e-4
    assert answer["spread"] > 0.01, "the answers depend on the input"


def test_model_json_describes_the_model(project: Workspace, run: Path) -> None:
    project.cli("export", run)
    description = json.loads((run / "model.json").read_text("utf-8"))
    assert description["schema_version"] == 1
    (image,), (output,) = description["inputs"], description["outputs"]
    assert (image["name"], image["kind"], image["shape"], image["dtype"]) == ("image", "image", [8, 8, 1], "float32")
    assert output["kind"] == "probabilities"
    assert output["names"] == list("0123456789")
