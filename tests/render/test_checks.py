"""Each check sees the fault that it is there for."""

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

import checks
from support import Project
from test_projects import BIN, schema_check

FAULTS: list[tuple[checks.Check, str, str]] = [
    (checks.everything_parses, "pyproject.toml", "name = 'a\n"),
    (checks.everything_parses, ".github/workflows/ci.yml", "a: [\n"),
    (checks.everything_parses, "src/wing_spans/cli.py", "def f(:\n"),
    (checks.text_is_clean, "docs/guide.md", "{{ project_name }}\n"),
    (checks.text_is_clean, "docs/guide.md", "{% if ci %}\n"),
    (checks.text_is_clean, "src/wing_spans/empty.py", ""),
    (checks.text_is_clean, "ruff.toml", "\n\n"),
    (checks.text_is_clean, "notes.txt", "#!/bin/sh\n"),
    (checks.choices_that_are_off_are_not_mentioned, "Makefile", "# GitLab\n"),
    (checks.choices_that_are_off_are_not_mentioned, "src/wing_spans/cli.py", "# make sbom\n"),
    (checks.dependencies_are_used_and_declared, "src/wing_spans/cli.py", "import scipy\n"),
    (checks.dependencies_are_used_and_declared, "src/wing_spans/tracking/tensorboard.py", "DELETE"),
    (checks.pages_name_what_exists, "docs/guide.md", "[a](no.md)\n"),
    (checks.pages_name_what_exists, "docs/guide.md", "`make coffee`\n"),
    (checks.pages_name_what_exists, "docs/guide.md", "`python -m wing_spans dance`\n"),
    (checks.pages_name_what_exists, "docs/guide.md", "`src/wing_spans/no.py`\n"),
    (checks.map_is_complete, "src/wing_spans/more.py", "a = 1\n"),
    (checks.solo_is_small, "src/wing_spans/long.py", "a = 1\n" * 2100),
    (checks.functions_fit_on_a_screen, "src/wing_spans/long.py", "def f():\n" + "    a = 1\n" * 60),
]


@pytest.mark.parametrize(
    ("check", "name", "text"), FAULTS, ids=[f"{check.__name__}-{name}" for check, name, _ in FAULTS]
)
def test_a_planted_fault_is_seen(
    projects: Mapping[str, Project], check: checks.Check, name: str, text: str, tmp_path: Path
) -> None:
    project = Project(shutil.copytree(projects["solo"].path, tmp_path / "project"))
    before = set(check(project))
    file = project.path / name
    if text == "DELETE":
        file.unlink()
    else:
        file.write_text((file.read_text("utf-8") if file.exists() else "") + text, "utf-8")
    assert set(check(project)) - before


# In which file which text is to be replaced by what.
WRONG_NAMES = [
    (".vscode/launch.json", "${file}", "${fil}"),
    (".vscode/launch.json", '"module": "pytest"', '"module": "nose"'),
    (".vscode/launch.json", "debug-one-step.yaml", "debug-no-step.yaml"),
    (".vscode/launch.json", '["check"]', '["dance"]'),
    (".vscode/launch.json", '"name": "Train"', '"name": "Train", "preLaunchTask": "dance"'),
    (".vscode/launch.json", '"name": "Train one step"', '"name": "Train"'),
    (".vscode/tasks.json", '["ruff check"', '["rough check"'),
    (".vscode/tasks.json", '"dependsOn": "environment"', '"dependsOn": "environments"'),
    (".vscode/tasks.json", '"id": "path"', '"id": "paths"'),
    (".vscode/tasks.json", '"command": "uv"', '"command": "ux"'),
    (".vscode/tasks.json", '"command": "uv"', '"command": "make"'),
    (".vscode/tasks.json", '"constraints.txt"', '"constraint.txt"'),
    (".vscode/tasks.json", ".[train", ".[trains"),
    (".vscode/tasks.json", '"evaluate"]', '"dance"]'),
    (".vscode/settings.json", "./configs/experiment.schema.json", "./configs/experiments.schema.json"),
    (".vscode/settings.json", "experiment/*.yaml", "experiment/*.toml"),
    (".vscode/settings.json", '["tests"]', '["test"]'),
    (".vscode/settings.json", "charliermarsh.ruff", "charliermarsh.rough"),
    (".devcontainer/devcontainer.json", "${localWorkspaceFolder}", "${workspaceFolder}"),
    (".devcontainer/devcontainer.json", '"target": "dev"', '"target": "develop"'),
    (".devcontainer/devcontainer.json", "../Dockerfile", "Dockerfile"),
    (".devcontainer/devcontainer.json", '"context": ".."', '"context": "."'),
    (".devcontainer/devcontainer.json", "make setup", "make coffee"),
    (".devcontainer/devcontainer.json", "charliermarsh.ruff", "charliermarsh.rough"),
]
WRONG_SHAPES = [
    (".vscode/extensions.json", '"redhat.vscode-yaml"', '"YAML"'),
    (".vscode/launch.json", '"request": "launch"', '"request": "start"'),
    (".vscode/launch.json", '"program":', '"programme":'),
    (".vscode/settings.json", '"editor.rulers"', '"editor.ruler"'),
    (".vscode/settings.json", '"source.fixAll.ruff": "explicit"', '"source.fixAll.ruff": "sometimes"'),
    (".vscode/tasks.json", '"dependsOn"', '"dependOn"'),
    (".vscode/tasks.json", '"type": "process"', '"type": "shell"'),
    (".vscode/tasks.json", '"dependsOrder": "sequence"', '"dependsOrder": "one by one"'),
    (".devcontainer/devcontainer.json", '"remoteUser": "app"', '"remoteUser": "root"'),
    (".devcontainer/devcontainer.json", "type=volume", "type=disk"),
    (".devcontainer/devcontainer.json", '"gpu": "optional"', '"gpu": "sometimes"'),
    (".devcontainer/devcontainer.json", "openBrowserOnce", "openWindow"),
    (".devcontainer/devcontainer.json", '"postCreateCommand"', '"postCreatedCommand"'),
]


def replace(project: Project, name: str, old: str, new: str) -> None:
    text = (project.path / name).read_text("utf-8")
    assert old in text
    (project.path / name).write_text(text.replace(old, new), "utf-8")
    json.loads((project.path / name).read_text("utf-8"))


@pytest.mark.parametrize(("name", "old", "new"), WRONG_NAMES)
def test_a_wrong_name_is_seen(projects: Mapping[str, Project], name: str, old: str, new: str, tmp_path: Path) -> None:
    project = Project(shutil.copytree(projects["solo"].path, tmp_path / "project"))
    before = set(checks.editor_files_name_what_exists(project))
    replace(project, name, old, new)
    assert set(checks.editor_files_name_what_exists(project)) - before


@pytest.mark.parametrize(("name", "old", "new"), WRONG_SHAPES)
def test_a_wrong_shape_is_seen(projects: Mapping[str, Project], name: str, old: str, new: str, tmp_path: Path) -> None:
    project = Project(shutil.copytree(projects["solo"].path, tmp_path / "project"))
    replace(project, name, old, new)
    tool, *arguments = schema_check(name)
    done = subprocess.run([BIN / tool, *arguments, project.path / name], capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    print(done.stdout)


def test_a_compound_of_what_is_not_there_is_seen(projects: Mapping[str, Project], tmp_path: Path) -> None:
    project = Project(shutil.copytree(projects["solo-tensorflow"].path, tmp_path / "project"))
    replace(project, ".vscode/launch.json", '["Train: process 0', '["Train: process 3')
    assert ".vscode: no configuration Train: process 3 of 2" in checks.editor_files_name_what_exists(project)
