"""What is exported gives the model's answers, and is read without this project's code."""

import json
from pathlib import Path

import pytest

from support import ROOT
from workspace import FIRST, FRAMEWORKS, SMALL, Workspace, workspace

FILES = {
    "pytorch": {"onnx": "model.onnx", "pt2": "model.pt2", "torchscript": "model.torchscript.pt"},
    "tensorflow": {"onnx": "model.onnx", "savedmodel": "savedmodel"},
}
CASES = [(framework, form, "best") for framework in FRAMEWORKS for form in FILES[framework]]
CASES += [(framework, "onnx", "last") for framework in FIRST]


@pytest.fixture(scope="module", params=FRAMEWORKS)
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return workspace(tmp_path_factory.mktemp("export") / "project", request.param)


@pytest.fixture(scope="module")
def run(project: Workspace) -> Path:
    """Two epochs, of which `best` and `last` differ."""
    return project.train("exported", *SMALL, "--trainer.max-epochs", "2", "--trainer.max-steps", "50")


@pytest.mark.parametrize(("project", "form", "checkpoint"), CASES, indirect=["project"], scope="module")
def test_exports_agree_with_the_model(project: Workspace, run: Path, form: str, checkpoint: str) -> None:
    done = project.cli("export", run, "--format", form, "--checkpoint", checkpoint)
    assert (
        str(run / FILES[project.answers["framework"]][form]) in done.stdout
        and f"{checkpoint} checkpoint" in done.stdout
    )
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


def test_each_framework_reads_what_the_other_exports(tmp_path: Path) -> None:
    """One predictor, one layout of model.json."""
    projects = [workspace(tmp_path / framework, framework) for framework in FRAMEWORKS]
    runs = [project.train("short", *SMALL, "--trainer.max-steps", "20") for project in projects]
    for project, run in zip(projects, runs, strict=True):
        project.cli("export", run)
        project.run(project.python, ROOT / "tests/write_digits.py", "digits")
    one, other = ((run / "model.json").read_text("utf-8") for run in runs)
    assert one == other
    for run in runs:
        answers = [project.cli("predict", "digits", "--format", "jsonl", "--model", run).stdout for project in projects]
        assert answers[0] == answers[1]
        assert len(answers[0].splitlines()) == 10
