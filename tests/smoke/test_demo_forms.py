"""The demo of other tasks: a form by the kinds of the model's inputs, with the answers of the command line."""

import json
import os
import shutil
from typing import Any

import pytest

from owners import install
from workspace import EXHAUSTIVE, Workspace

PROJECTS = [("pytorch", "tabular"), ("pytorch", "sequence"), *([("tensorflow", "sequence")] if EXHAUSTIVE else [])]


@pytest.fixture(scope="module", params=PROJECTS, ids="-".join)
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A project for one of the tasks, with an exported model that has learned a little."""
    framework, task = request.param
    project = install(task, tmp_path_factory.mktemp(task) / "project", framework)
    project.cli("export", project.train("short", "--trainer.max-epochs", "1"))
    return project


def examples(project: Workspace) -> list[dict[str, Any]]:
    lines = project.script("write_examples.py", project.package).stdout.splitlines()
    return [json.loads(line) for line in lines]


def predicted(project: Workspace, line: dict[str, Any]) -> dict[str, Any]:
    """What `predict` prints."""
    (project.path / "line.jsonl").write_text(json.dumps(line) + "\n", "utf-8")
    answer: dict[str, Any] = json.loads(project.cli("predict", "line.jsonl", "--format", "jsonl").stdout)
    return answer


def opened(project: Workspace, page: str, value: str) -> str:
    """A value of one page of the demo, as an expression of `app`."""
    file = str(project.path / "app" / page)
    code = f"from streamlit.testing.v1 import AppTest; app = AppTest.from_file({file!r}, default_timeout=120).run()"
    return project.run(project.python, "-c", f"{code}; assert not app.exception; print({value})").stdout


def test_the_form_answers_as_the_command_line_does(project: Workspace) -> None:
    for line in examples(project)[:2]:
        field = line.get("columns") or line["text"]
        shown = json.loads(project.script("write_answers.py", project.path / "app/main.py", json.dumps(field)).stdout)
        answer = predicted(project, line)
        if "columns" in line:
            assert shown["metrics"] == [f"{answer['target'][0]:.4g}"]
        else:
            assert " ".join(answer["label"]) in shown["text"]


@pytest.mark.parametrize("project", PROJECTS if EXHAUSTIVE else PROJECTS[:1], ids="-".join, indirect=True)
def test_the_projects_own_test_of_the_demo_holds(project: Workspace) -> None:
    project.run(project.python, "-m", "pytest", "-q", "tests/test_demo.py")


@pytest.mark.parametrize("project", [("pytorch", "tabular")], ids=["tabular"], indirect=True)
def test_a_damaged_description_is_one_line(project: Workspace) -> None:
    description = project.run_dir("short") / "model.json"
    whole = description.read_bytes()
    try:
        for damaged in (whole[:100], b"[]", whole.replace(b'"kind"', b'"kin"')):
            description.write_bytes(damaged)
            os.utime(description)
            assert "model.json: " in opened(project, "main.py", "app.error[0].value")
    finally:
        description.write_bytes(whole)


@pytest.mark.parametrize("project", [("pytorch", "tabular")], ids=["tabular"], indirect=True)
def test_a_long_run_keeps_its_last_step_and_what_its_best_checkpoint_reached(project: Workspace) -> None:
    usual = {("train", "loss"): 1.0, ("val", "mean_loss"): 3.0, ("val", "accuracy"): 0.5}
    best = {**usual, ("val", "mean_loss"): 2.75, ("val", "accuracy"): 0.75}
    lines = [
        {"step": step, "epoch": 0, "split": split, "name": name, "value": value, "time": 0}
        for step in range(1, 2001)
        for (split, name), value in (best if step == 777 else usual).items()
    ]
    run = project.run_dir("long")
    run.mkdir()
    try:
        text = "".join(json.dumps(line) + "\n" for line in lines)
        monitor = {"metric": "mean_loss", "mode": "min"}
        (run / "environment.json").write_text(json.dumps({"monitor": monitor}), "utf-8")
        (run / "metrics.jsonl").write_text(text + '{"step": 2001, "epo', "utf-8")
        shown = json.loads(opened(project, "runs.py", "app.dataframe[0].value.to_json(orient='records')"))
    finally:
        shutil.rmtree(run)
    assert {"run": "baseline/long", "status": "unknown", "steps": 2000}.items() <= shown[0].items()
    assert (shown[0]["val/mean_loss"], shown[0]["val/accuracy"]) == (2.75, 0.75)


LOSSES = """
import json
from pathlib import Path
from {package}.mistakes import find_mistakes
from {package}.run import Run
found = find_mistakes(Run(Path("{run}")), limit=10**6)[1]
print(json.dumps([[m.loss, len(m.example["text"]) if "text" in m.example else 1] for m in found]))
"""


def test_the_losses_of_all_examples_make_the_loss_of_the_split(project: Workspace) -> None:
    run = project.run_dir("short")
    found = json.loads(project.run(project.python, "-c", LOSSES.format(package=project.package, run=run)).stdout)
    losses, weights = zip(*found, strict=True)
    assert len(losses) == len(examples(project))
    assert list(losses) == sorted(losses, reverse=True)
    project.cli("evaluate", run)
    expected = json.loads((run / "evaluation/test/metrics.json").read_text("utf-8"))["loss"]
    mean = sum(loss * weight for loss, weight in found) / sum(weights)
    assert mean == pytest.approx(expected, rel=1e-4)
