"""The workflow that tells of new versions, run step by step with a stand-in for GitHub's command line."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

import owner
from history import MAJOR, NOW, commit, git
from workspace import Workspace

VERSION = MAJOR.removeprefix("v")
GH = """#!/usr/bin/env bash
if test "$1 $2" = "issue list"; then cat "$STATE/titles"; exit; fi
echo "$*" >> "$STATE/calls"
while test $# -gt 0; do
    case "$1" in
        --title) test "$KIND" = pr || echo "$2" >> "$STATE/titles" ;;
        --body-file) cp "$2" "$STATE/body.md" ;;
    esac
    shift
done
"""


@dataclass
class Runner:
    """A clone of the project on GitHub's machine."""

    project: Workspace
    state: Path

    def step(self, name: str, **env: str) -> None:
        workflow = yaml.safe_load((self.project.path / ".github/workflows/update.yml").read_text("utf-8"))
        steps = {step.get("name"): step for step in workflow["jobs"]["update"]["steps"]}
        path = f"{self.state / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        output = self.state / "output"
        known = {"PATH": path, "STATE": str(self.state), "RUNNER_TEMP": str(self.state), "GITHUB_OUTPUT": str(output)}
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", steps[name]["run"]]
        done = subprocess.run(
            command, cwd=self.project.path, env=os.environ | known | env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def read(self, name: str) -> str:
        return (self.state / name).read_text("utf-8")


@pytest.fixture
def runner(template: Path, tmp_path: Path) -> Runner:
    project = owner.generate(template, NOW, tmp_path / "project")
    git(tmp_path, "init", "--quiet", "--bare", "origin")
    git(project.path, "remote", "add", "origin", tmp_path / "origin")
    state = tmp_path / "state"
    (state / "bin").mkdir(parents=True)
    for name in ("calls", "titles", "output"):
        (state / name).touch()
    for name, script in (("gh", GH), ("make", "#!/bin/sh\n")):
        (state / "bin" / name).write_text(script)
        (state / "bin" / name).chmod(0o755)
    return Runner(project, state)


def test_without_a_token_one_issue_is_opened_with_the_changelog(runner: Runner) -> None:
    for _ in range(2):
        runner.step("look")
        assert f"version={VERSION}\n" in runner.read("output")
        runner.step("issue", VERSION=VERSION)
        subprocess.run(["rm", "-r", runner.state / "template"], check=True)
    assert len(runner.read("calls").splitlines()) == 1, "not repeated"
    assert runner.read("titles") == f"Update the template to {VERSION}\n"
    body = runner.read("body.md")
    assert "make update" in body and f"this project has {NOW.removeprefix('v')}" in body
    assert "## 1001.0.0\n" in body and "## 1000.1.0\n" in body and "## 1000.0.0" not in body


@pytest.mark.parametrize("conflict", [False, True])
def test_with_a_token_a_pull_request_is_opened(runner: Runner, conflict: bool) -> None:
    path, edited = runner.project.path, runner.project.path / "pyproject.toml"
    if conflict:
        edited.write_text(edited.read_text("utf-8").replace('"numpy",', '"numpy<3",'), "utf-8")
        commit(path, "Our bound")
    runner.step("look")
    for _ in range(2):
        runner.step("pull request", VERSION=VERSION, KIND="pr")
        git(path, "switch", "--quiet", "main")
    calls = runner.read("calls").splitlines()
    assert len(calls) == 1 and calls[0].startswith(f"pr create --head template-{VERSION} ")
    assert calls[0].endswith("--draft") == conflict
    assert ("## To solve in this branch\n\npyproject.toml" in runner.read("body.md")) == conflict
    pushed = git(path, "show", f"origin/template-{VERSION}:pyproject.toml")
    assert ("<<<<<<<" in pushed) == conflict and "numpy>=2" in pushed
    assert git(path, "diff", "--name-only", "main", f"origin/template-{VERSION}", "--", "README.md", "configs") == ""


def test_nothing_is_said_of_the_newest_version(runner: Runner) -> None:
    owner.update(runner.project, MAJOR)
    commit(runner.project.path, "Update")
    runner.step("look")
    assert runner.read("output") == ""


def test_the_steps_are_sound(runner: Runner) -> None:
    workflow = yaml.safe_load((runner.project.path / ".github/workflows/update.yml").read_text("utf-8"))
    for step in workflow["jobs"]["update"]["steps"]:
        command = [Path(sys.executable).with_name("shellcheck"), "--shell=bash", "--exclude=SC2016", "-"]
        done = subprocess.run(list(map(str, command)), input=step.get("run", ""), capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
