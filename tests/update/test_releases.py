"""Making a release, on a throw-away clone; and that no version needs --trust."""

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

import owner
from history import MAJOR, MINOR, NOW, RELEASES, commit, git
from support import ROOT, Project

VERSION = "900.0.0"
NEWS = "- Something is new."


@pytest.fixture
def clone(template: Path, tmp_path: Path) -> Path:
    git(template, "clone", "--quiet", "--branch", NOW, template, tmp_path / "clone")
    git(tmp_path / "clone", "switch", "--quiet", "--create", "main")
    changelog = tmp_path / "clone/CHANGELOG.md"  # where there may be nothing, right after a release
    text = changelog.read_text("utf-8")
    changelog.write_text(text.replace("## Unreleased\n", f"## Unreleased\n\n{NEWS}\n", 1), "utf-8")
    commit(tmp_path / "clone", "Say what is new")
    return tmp_path / "clone"


def make_release(clone: Path, version: str, tests: str = "true") -> subprocess.CompletedProcess[str]:
    identity = {f"GIT_{who}_{what}": f"ada@{what}" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    command = [sys.executable, "release.py", version, "--tests", tests]
    return subprocess.run(command, cwd=clone, env=os.environ | identity, capture_output=True, text=True)


def test_a_release_is_tagged_and_recorded(clone: Path, tmp_path: Path) -> None:
    done = make_release(clone, VERSION)
    assert done.returncode == 0, done.stderr
    tagged = git(clone, "rev-list", "--max-count=1", f"v{VERSION}").strip()
    assert json.loads((clone / "releases.json").read_text("utf-8"))[VERSION] == tagged
    assert f"## Unreleased\n\n## {VERSION} (" in git(clone, "show", f"v{VERSION}:CHANGELOG.md")
    assert git(clone, "status", "--porcelain") == ""
    assert git(clone, "log", "--format=%s").splitlines()[:2] == [f"Record release {VERSION}", f"Release {VERSION}"]
    project = owner.generate(clone, f"v{VERSION}", tmp_path / "project")
    assert project.answers["_commit"] == f"v{VERSION}"


def test_a_release_is_published_with_its_part_of_the_changelog(clone: Path, tmp_path: Path) -> None:
    changes = (clone / "CHANGELOG.md").read_text("utf-8").partition("## Unreleased\n")[2].partition("\n## ")[0]
    make_release(clone, VERSION)
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text("utf-8"))
    (script,) = (step["run"] for step in workflow["jobs"]["publish"]["steps"] if step.get("name") == "publish")
    (tmp_path / "gh").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "gh").chmod(0o755)
    env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "GITHUB_REF_NAME": f"v{VERSION}"}
    done = subprocess.run(["bash", "-e", "-c", script], cwd=clone, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"release create v{VERSION} ")
    notes = (clone / "notes.md").read_text("utf-8").strip()
    assert notes == changes.strip() and NEWS in notes


@pytest.mark.parametrize(
    ("version", "tests", "message"),
    [
        ("1.0", "true", "VERSION must be three numbers such as 0.1.0, not '1.0'"),
        ("", "true", "VERSION must be three numbers such as 0.1.0, not ''"),
        ("0.0.0", "true", "0.0.0 must be above"),
        (NOW.removeprefix("v"), "true", f"there is a tag {NOW} already"),
        (VERSION, "false", "false fails; nothing was released"),
    ],
)
def test_what_is_no_release_is_refused_in_one_line(clone: Path, version: str, tests: str, message: str) -> None:
    before = git(clone, "log", "--format=%H", "--all")
    done = make_release(clone, version, tests)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {message}") and done.stderr.count("\n") == 1
    assert git(clone, "log", "--format=%H", "--all") == before and git(clone, "status", "--porcelain") == ""


def test_a_release_needs_a_clean_tree_and_something_new(clone: Path) -> None:
    (clone / "notes.txt").write_text("x\n")
    assert make_release(clone, VERSION).stderr == "error: git status lists changes; commit them first\n"
    (clone / "notes.txt").unlink()
    make_release(clone, VERSION)
    assert make_release(clone, "900.0.1").stderr == "error: CHANGELOG.md says nothing under Unreleased\n"
    assert make_release(clone, "900.0.0").stderr == "error: 900.0.0 must be above 900.0.0, the newest release\n"


def test_no_version_needs_trust(template: Path, tmp_path: Path) -> None:
    """Nothing that Copier calls unsafe; a copy of each, and updates all the way, by a user who trusts nobody."""
    versions = [*(f"v{version}" for version in RELEASES), NOW, MINOR, MAJOR]
    for version in versions:
        settings = yaml.safe_load(git(template, "show", f"{version}:copier.yml"))
        assert not {"_tasks", "_migrations", "_jinja_extensions"} & settings.keys()
    env = os.environ | {"COPIER_SETTINGS_PATH": str(tmp_path / "none.yml")}
    copier, options = str(Path(sys.executable).with_name("copier")), ("--quiet", "--defaults", "--vcs-ref")
    for version in versions:
        command = [copier, "copy", *options, version, str(template), str(tmp_path / version)]
        subprocess.run(command, env=env, check=True, capture_output=True)
    project = Project(tmp_path / versions[0])
    git(project.path, "init", "--quiet")
    commit(project.path, "Begin")
    for _, version in pairwise(versions):
        command = [copier, "update", *options, version]
        subprocess.run(command, cwd=project.path, env=env, check=True, capture_output=True)
        assert project.answers["_commit"] == version
        commit(project.path, version)
