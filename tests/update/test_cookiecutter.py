"""Cookiecutter asks three questions and hands over to Copier: the same project, which can be updated."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import owner
from history import MAJOR, NOW, git
from support import FRAMEWORKS, PRESETS, ROOT, Project

BIN = Path(sys.executable).parent


def cookiecutter(
    template: str | Path, output: Path, *arguments: str, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    home = output.parent / "home"
    home.mkdir(exist_ok=True)
    command = [BIN / "cookiecutter", "--no-input", "--output-dir", output, template, *arguments]
    env = os.environ | {"HOME": str(home), "PWD": str(cwd or Path.cwd())}
    return subprocess.run(list(map(str, command)), cwd=cwd, env=env, capture_output=True, text=True)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("preset", PRESETS)
def test_the_result_is_that_of_copier(template: Path, preset: str, framework: str, tmp_path: Path) -> None:
    answers = {"project_name": 'Wing "spans" \\ ünal', "preset": preset, "framework": framework}
    done = cookiecutter(template, tmp_path / "out", *(f"{name}={value}" for name, value in answers.items()))
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = (tmp_path / "out").iterdir()
    assert folder.name == "wing-spans-unal"
    words = [word for name, value in answers.items() for word in ("--data", f"{name}={value}")]
    command = [*map(str, (BIN / "copier", "copy", "--quiet", "--defaults", *words, template, tmp_path / "project"))]
    subprocess.run(command, check=True, capture_output=True)
    same = subprocess.run(["diff", "-r", folder, tmp_path / "project"], capture_output=True, text=True)
    assert same.returncode == 0, same.stdout
    assert str(folder) in done.stdout


def test_the_project_can_be_updated(template: Path, tmp_path: Path) -> None:
    """Also when the template was named by a path from here, and a version was asked for."""
    done = cookiecutter(template.name, tmp_path / "out", "--checkout", NOW, cwd=template.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    project = Project(tmp_path / "out" / "my-model")
    assert (project.answers["_commit"], project.answers["_src_path"]) == (NOW, str(template))
    git(project.path, "init", "--quiet")
    git(project.path, "add", "--all")
    git(project.path, "commit", "--quiet", "--message", "Begin")
    owner.update(project, MAJOR)
    assert project.answers["_commit"] == MAJOR


def test_a_bad_answer_is_one_line_and_leaves_nothing(template: Path, tmp_path: Path) -> None:
    done = cookiecutter(template, tmp_path / "out", "project_name=a\tb")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ") and "control characters" in line
    assert not list((tmp_path / "out").iterdir())


def test_without_copier_one_line_says_so(template: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    command = [tmp_path / "venv/bin/python", ROOT / "hooks/pre_prompt.py"]
    done = subprocess.run(command, cwd=tmp_path, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "error: this template needs Copier: pip install copier, or pipx install copier\n"
    assert not list(tmp_path.glob("*cookiecutter*"))


def test_both_ask_the_same() -> None:
    ours = json.loads((ROOT / "cookiecutter.json").read_text("utf-8"))
    questions = yaml.safe_load((ROOT / "copier.yml").read_text("utf-8"))
    assert ours["project_name"] == questions["project_name"]["default"]
    for name, values in (("preset", PRESETS), ("framework", FRAMEWORKS)):
        assert ours[name] == list(values)
        labels = {label: value for value, label in ours["__prompts__"][name].items() if value != "__prompt__"}
        assert labels == questions[name]["choices"]
