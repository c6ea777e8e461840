"""Changing one's mind: presets and choices are switched by one command, and what is switched off leaves no trace."""

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import owner
from choices import CHOICES, can_be
from history import MINOR, NOW, commit, git
from support import FRAMEWORKS, ROOT, Project
from workspace import EXHAUSTIVE, IN_DEPTH, Workspace

COPIER = Path(sys.executable).with_name("copier")
# Yours, or made by a command: as an update finds them.
KEPT = r"README.md|configs/.*|tests/test_model.py|src/wing_spans/(settings|data|model|task).py"


def make(project: Workspace, *arguments: str, tests: bool = False, check: bool = True) -> str:
    """make, as the owner runs it; without `tests` all that follows the update is a dry run.

    The environment is shared, so that it is never set up here.
    """
    scratch = project.path.parent / "scratch"
    scratch.mkdir(exist_ok=True)
    python = project.python if tests else "true"
    shared = (f"COPIER={COPIER}", f"VENV={scratch}", "SYSTEM_UV=true", "UV=true", f"PYTHON={python}")
    done = project.make(*arguments, *shared, check=check, timeout=900)
    assert (done.returncode == 0) == check
    return done.stdout if check else done.stderr


def traces(project: Workspace, template: Path, folder: Path) -> Iterator[str]:
    """Where a project differs from a fresh one with the same answers."""
    fresh = owner.render_anew(project, template, NOW, folder / "fresh")
    found = owner.read(project.path)
    for name in fresh.keys() | found.keys():
        if fresh.get(name) != found.get(name) and not re.fullmatch(KEPT, name):
            yield name
    folders = [path for path in project.path.rglob("*") if path.is_dir() and ".git" not in path.parts]
    yield from (str(path) for path in folders if not any(path.iterdir()))
    shutil.rmtree(folder / "fresh")


KEPT_ANSWERS = {"license", "framework"}
PATH = (
    ("startup", "large-org", "startup", "solo", "large-org", "solo") if EXHAUSTIVE else ("startup", "large-org", "solo")
)


def test_presets_are_switched_by_one_command(template: Path, tmp_path: Path) -> None:
    """What the owner chose aside from the preset goes with it; names, licence and version stay."""
    project = owner.generate(template, NOW, tmp_path / "project", ci="gitlab", notebooks=False)
    identity = {name: value for name, value in project.answers.items() if name not in CHOICES.keys() - KEPT_ANSWERS}
    first = owner.read(project.path)
    for preset in PATH:
        make(project, "preset", f"PRESET={preset}", tests=EXHAUSTIVE)
        values = yaml.safe_load((ROOT / "presets" / f"{preset}.yml").read_text("utf-8"))
        assert project.answers == identity | values | {"author_email": ""}
        assert list(traces(project, template, tmp_path)) == []
        commit(project.path, preset)
    make(project, "update", "ARGS=--vcs-ref :current: --data ci=gitlab --data notebooks=false")
    project.cli("schema")  # which follows the trackers
    assert owner.read(project.path) == first, "back where it began"


# (what is on, what is switched to): everything at once, and each by itself.
CHOSEN = {name: values for name, values in CHOICES.items() if name not in ("preset", "author_email", *KEPT_ANSWERS)}
SWITCHES = [
    ({name: values[0] for name, values in CHOSEN.items()}, {name: values[-1] for name, values in CHOSEN.items()})
]
if EXHAUSTIVE:
    alone = ((name, on, off) for name, (on, *others) in CHOSEN.items() for off in others)
    usual = {"trackers": ["tensorboard"], "search": []}
    SWITCHES += [({name: on}, {name: off}) for name, on, off in alone if can_be(usual | {name: off})]


@pytest.mark.parametrize(("on", "off"), SWITCHES, ids=lambda answers: "-".join(answers))
def test_choices_are_switched_off_and_on(
    template: Path, on: dict[str, Any], off: dict[str, Any], tmp_path: Path
) -> None:
    project = owner.generate(template, NOW, tmp_path / "project", **on)
    first = owner.read(project.path)
    for answers in (off, on):
        owner.update(project, NOW, **answers)
        assert answers.items() <= project.answers.items()
        assert list(traces(project, template, tmp_path)) == []
        if answers == off:
            project.cli("schema")
            owner.run_own_tests(project)
            git(project.path, "checkout", "--", "configs")
        commit(project.path, str(answers))
    assert owner.read(project.path) == first


def test_edited_files_of_a_choice_go_with_it_and_are_kept_by_git(template: Path, tmp_path: Path) -> None:
    """The template's come back new, an owner's files beside them stay."""
    project = owner.generate(template, NOW, tmp_path / "project")
    page, own = project.path / "app/main.py", project.path / "app/ours.py"
    page.write_text("ours = 1\n")
    own.write_text("ours = 2\n")
    commit(project.path, "Our demo")
    said = make(project, "update", "ARGS=--vcs-ref :current: --data demo=false")
    assert "removed: app/main.py (git show HEAD:app/main.py has it)" in said
    assert {path.name for path in page.parent.iterdir()} == {"ours.py"}
    assert git(project.path, "show", "HEAD:app/main.py") == "ours = 1\n"
    commit(project.path, "No demo")
    owner.update(project, NOW, demo=True)
    assert "streamlit" in page.read_text("utf-8") and own.read_text("utf-8") == "ours = 2\n"


def test_a_company_keeps_its_own_preset(template: Path, tmp_path: Path) -> None:
    """A file outside the template, kept over updates: recorded answers win over what a preset says."""
    values = yaml.safe_load((ROOT / "presets/startup.yml").read_text("utf-8")) | {"ci": "gitlab", "notebooks": False}
    file = tmp_path / "ours.yml"
    file.write_text(yaml.safe_dump(values), "utf-8")
    project = owner.generate(template, NOW, tmp_path / "project")
    make(project, "preset", f"PRESET={file}")
    assert values.items() <= project.answers.items()
    assert list(traces(project, template, tmp_path)) == []
    commit(project.path, "Our preset")
    make(project, "update")
    assert {**values, "history": True}.items() <= project.answers.items(), "a new question has the preset's answer"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["preset"], "error: which one? make preset PRESET=startup"),
        (["preset", "PRESET=huge"], "Invalid choice for 'preset': 'huge' is not in"),
    ],
)
def test_what_cannot_be_is_one_line(template: Path, arguments: list[str], message: str, tmp_path: Path) -> None:
    project = owner.generate(template, NOW, tmp_path / "project")
    said = make(project, *arguments, check=False).splitlines()
    assert len(said) == 2 and message in said[0] and said[1].startswith("make: *** ")
    assert git(project.path, "status", "--porcelain") == ""


def test_uncommitted_work_is_refused_in_one_line(template: Path, tmp_path: Path) -> None:
    project = owner.generate(template, NOW, tmp_path / "project")
    (project.path / "notes.txt").write_text("mine\n")
    for target in ("update", "preset"):
        said = make(project, target, "PRESET=startup", check=False).splitlines()
        assert said[0] == "error: git status lists changes; commit them first"
        assert git(project.path, "status", "--porcelain") == "?? notes.txt\n"


def test_an_update_names_conflicts_and_tests_nothing(template: Path, tmp_path: Path) -> None:
    project = owner.generate(template, NOW, tmp_path / "project")
    requirements = project.path / "pyproject.toml"
    requirements.write_text(requirements.read_text("utf-8").replace('"numpy",', '"numpy<3",'), "utf-8")
    commit(project.path, "Our bound")
    said = make(project, "update", check=False)
    assert (
        "error: both sides changed the same lines of pyproject.toml - solve that, then: make setup schema test" in said
    )


@IN_DEPTH
def test_an_update_sets_up_and_tests(template: Path, tmp_path: Path) -> None:
    project = Project(owner.generate(template, NOW, tmp_path / "project").path)
    (project.path / ".venv").unlink()
    done = project.make("update", f"COPIER={COPIER}", f"ARGS=--vcs-ref {MINOR}", timeout=1800)
    assert project.answers["_commit"] == MINOR
    assert " passed" in done.stdout and " failed" not in done.stdout


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_what_is_fixed_for_life_is_not_updated(framework: str, template: Path, tmp_path: Path) -> None:
    """Refused in one line that says how to move; nothing changes, and other updates still work."""
    project = owner.generate(template, NOW, tmp_path / "project", framework=framework)
    other = "tensorflow" if framework == "pytorch" else "pytorch"
    for change in (f"framework={other}", "package_name=another"):
        for command in (["update"], ["recopy", "--overwrite"]):
            done = project.run(COPIER, *command, "--defaults", "--vcs-ref", NOW, "--data", change, check=False)
            assert done.returncode != 0
            line = done.stderr.splitlines()[-1]
            assert change.partition("=")[0] in line and "generate a new project" in line and "Moving" in line
            assert git(project.path, "status", "--porcelain") == ""
    owner.update(project, NOW, ci="none")
    assert not (project.path / ".github").exists()
    assert project.answers["framework"] == framework
