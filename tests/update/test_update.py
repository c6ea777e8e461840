"""`copier update` of a project that its owner has edited: nothing of theirs is lost, the rest is as generated anew."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import copier
import pytest
from jinja2 import UndefinedError

import history
import owner
from history import MAJOR, MINOR, NOW, RELEASES, append, commit, git, replace
from owner import Edited
from support import FRAMEWORKS, PRESETS, Project
from workspace import EXHAUSTIVE, Workspace

RENAMED = {"description": "summary"}
YOURS = r"README.md|CODEOWNERS|configs/experiment/.*|configs/experiment.schema.json|tests/test_model.py"
YOURS += r"|(app|notebooks)/.*|src/wing_spans/((settings|data|model|task).py|model/.*)"


def merged(owners: bytes, before: bytes, after: bytes, folder: Path) -> bytes:
    """What git makes of two edits of one file."""
    names = [folder / name for name in ("owners", "before", "after")]
    for name, content in zip(names, (owners, before, after), strict=True):
        name.write_bytes(content)
    done = subprocess.run(["git", "merge-file", "--stdout", *names], capture_output=True)
    assert done.returncode == 0, f"a conflict where both sides edited apart:\n{done.stdout.decode()}"
    return done.stdout


def expected_files(
    before: dict[str, bytes], owners: dict[str, bytes], after: dict[str, bytes], folder: Path
) -> Iterator[tuple[str, bytes | None]]:
    """What must be at each path; None: nothing."""
    for name in before.keys() | owners.keys() | after.keys():
        old, mine, new = before.get(name), owners.get(name), after.get(name)
        if re.fullmatch(YOURS, name):
            yield name, mine
        elif name == ".copier-answers.yml" or mine == old:
            yield name, new
        elif old == new or new is None:
            yield name, mine
        elif mine is None:
            yield name, None
        else:
            yield name, merged(mine, old or b"", new, folder)


def lost_lines(project: Project, work: str) -> Iterator[str]:
    """Lines that the owner's commit added and that are no longer where they were."""
    name = ""
    for line in git(project.path, "show", "--format=", "--unified=0", "--no-renames", work).splitlines():
        if line.startswith("+++ "):
            name = line.removeprefix("+++ b/")
        elif line.startswith("+"):
            file = project.path / name
            if not file.is_file() or line[1:] not in file.read_text("utf-8").splitlines():
                yield f"{name}: lost {line[1:]!r}"


def update_problems(project: Workspace, template: Path, version: str, folder: Path) -> list[str]:
    """Update a project that its owner has edited, and compare it with what it must be."""
    work = git(project.path, "rev-parse", "HEAD").strip()
    answers, owners = project.answers, owner.read(project.path)
    git(project.path, "checkout", "--quiet", "HEAD~")
    before = owner.read(project.path)
    git(project.path, "checkout", "--quiet", "main")
    owner.update(project, version)
    now = project.answers
    known = {name for name in copier_questions(template, version) if name in now}
    kept = {RENAMED.get(name, name) if RENAMED.get(name) in known else name: value for name, value in answers.items()}
    problems = [
        f"answer {name}: {now[name]!r} instead of {kept[name]!r}"
        for name in known & kept.keys()
        if now[name] != kept[name]
    ]
    after = owner.render_anew(project, template, version, folder / "fresh")
    found = owner.read(project.path)
    for name, content in expected_files(before, owners, after, folder):
        if found.get(name) != content:
            problems.append(f"{name}: is {found.get(name)!r:.300}, not {content!r:.300}")
    problems += [f"{name}: is new" for name in found.keys() - before.keys() - owners.keys() - after.keys()]
    return [*problems, *lost_lines(project, work)]


def copier_questions(template: Path, version: str) -> list[str]:
    return re.findall(r"^([a-z]\w+):$", git(template, "show", f"{version}:copier.yml"), re.MULTILINE)


def chosen_releases() -> list[str]:
    """The oldest release, the newest, and the newest of each minor release."""
    versions = sorted(RELEASES, key=lambda version: [int(part) for part in version.split(".")])
    newest = {version.rpartition(".")[0]: version for version in versions}
    return [f"v{version}" for version in dict.fromkeys([*versions[:1], *newest.values()])]


STEPS = [*((release, NOW) for release in chosen_releases()), (NOW, MINOR), (NOW, MAJOR)]
PAIRS = [(*step, framework) for step in STEPS for framework in FRAMEWORKS]
if not EXHAUSTIVE:  # with one preset each, and what may follow in one framework
    PAIRS = [(old, new, framework) for old, new, framework in PAIRS if new == NOW or framework == "pytorch"]
UPDATES = [
    (old, new, preset, framework)
    for number, (old, new, framework) in enumerate(PAIRS)
    for preset in (PRESETS if EXHAUSTIVE else [PRESETS[number % len(PRESETS)]])
]


@pytest.mark.parametrize(("old", "new", "preset", "framework"), UPDATES)
def test_an_update_loses_nothing(
    template: Path, edited: Edited, old: str, new: str, preset: str, framework: str, tmp_path: Path
) -> None:
    project = edited(old, preset, framework)
    assert update_problems(project, template, new, tmp_path) == []
    assert not (project.path / "src/wing_spans/model.py").exists()
    if EXHAUSTIVE or (new, framework) == (NOW, "pytorch"):
        if new == MAJOR:
            owner.adapt_to_major(project.path / "src/wing_spans/model/__init__.py")
        owner.run_own_tests(project)


def test_a_new_signature_is_one_line_to_adapt(edited: Edited) -> None:
    project = edited(NOW)
    project.cli("check")
    owner.update(project, MAJOR)
    done = project.cli("check", check=False)
    assert done.returncode != 0
    assert "build_model() got an unexpected keyword argument 'seed'" in done.stderr
    owner.adapt_to_major(project.path / "src/wing_spans/model/__init__.py")
    project.cli("check")


def unlisted(template: Path) -> None:
    """The README is no longer left out of an update."""
    replace(template / "copier.yml", "'/README.md' if _copier_operation", "'' if _copier_operation")


def brought_back(template: Path) -> None:
    """A notebook that its owner has deleted."""
    replace(template / "copier.yml", "'/notebooks' if _copier_operation", "'' if _copier_operation")


def renamed_value(template: Path) -> None:
    for name in ("copier.yml", "template/pyproject.toml.jinja", "template/LICENSE.jinja"):
        file = template / name
        file.write_text(file.read_text("utf-8").replace("Apache-2.0", "Apache"), "utf-8")
    (template / "licenses/Apache-2.0.txt").rename(template / "licenses/Apache.txt")


def added_task(template: Path) -> None:
    append(template / "copier.yml", "\n_tasks: [touch hello]\n")


def forgotten_answer(template: Path) -> None:
    replace(
        template / "copier.yml", "{{ description | default('A deep-learning project.') }}", "A deep-learning project."
    )


def question_without_default(template: Path) -> None:
    """Copier reads the new `_exclude` with the old answers too."""
    append(template / "copier.yml", "\nlater:\n  type: bool\n  help: Later?\n  default: false\n")
    replace(
        template / "copier.yml", "  - __pycache__\n", "  - __pycache__\n  - \"{{ '/later.md' if later else '' }}\"\n"
    )


def untouched(template: Path) -> None:
    append(template / "CHANGELOG.md", "\n")


FAULTS: list[tuple[history.Edit, str | None]] = [
    (untouched, None),
    (unlisted, "README.md: "),
    (brought_back, "notebooks/quickstart.ipynb: "),
    (renamed_value, "answer license: "),
    (added_task, "Template uses potentially unsafe feature: tasks"),
    (question_without_default, "'later' is undefined"),
    (forgotten_answer, "answer summary: "),
]


@pytest.mark.parametrize(("fault", "message"), FAULTS)
def test_a_planted_fault_is_seen(
    template: Path, edited: Edited, fault: history.Edit, message: str | None, tmp_path: Path
) -> None:
    version = f"{MINOR}.{FAULTS.index((fault, message))}"
    history.add_version(template, MINOR, version, fault)
    try:
        problems = update_problems(edited(NOW), template, version, tmp_path)
    except (copier.errors.CopierError, UndefinedError) as error:
        problems = [str(error)]
    print("\n".join(problems))
    if message is None:
        assert problems == []
    else:
        assert any(problem.startswith(message) for problem in problems)


def test_edits_to_the_same_line_are_marked_and_cannot_be_committed(template: Path, tmp_path: Path) -> None:
    project = owner.generate(template, NOW, tmp_path / "project")
    makefile = project.path / "Makefile"
    replace(makefile, "## Show the devices and", "## List the devices and")
    commit(project.path, "Our words")
    owner.update(project, MINOR)
    assert makefile.read_text("utf-8").count("<<<<<<< before updating\nhardware: ## List the devices and") == 1
    assert git(project.path, "diff", "--name-only", "--diff-filter=U") == "Makefile\n"
    project.run(project.python, "-m", "pre_commit", "install")
    refused = project.run("git", "commit", "--all", "--message", "Update", check=False)
    assert refused.returncode == 1
    assert "Merge conflict string '<<<<<<<' found" in refused.stdout + refused.stderr
    git(project.path, "commit", "--quiet", "--all", "--no-verify", "--message", "Update")
    done = project.run(project.python, "-m", "pre_commit", "run", "--all-files", "check-merge-conflict", check=False)
    assert done.returncode == 1, "as CI runs it"
    assert "pre-commit run --all-files" in (project.path / ".github/workflows/ci.yml").read_text("utf-8")
