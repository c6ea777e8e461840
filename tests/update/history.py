"""A throw-away repository of the template: its releases, the working tree, and two versions that could follow it."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from support import ROOT, template_source

RELEASES: dict[str, str] = json.loads((ROOT / "releases.json").read_text("utf-8"))
NOW, MINOR, MAJOR = "v1000.0.0", "v1000.1.0", "v1001.0.0"
IDENTITY = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false")

Edit = Callable[[Path], None]


def git(folder: Path, *arguments: str | Path, check: bool = True) -> str:
    command = ["git", *IDENTITY, *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0 or not check, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def commit(folder: Path, message: str, tag: str = "") -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--no-verify", "--message", message)
    if tag:
        git(folder, "tag", tag)


def build(dest: Path) -> Path:
    """Every release under its tag, for a clone may lack tags; then the working tree; then what could follow."""
    git(ROOT, "clone", "--quiet", "--no-checkout", "--no-tags", ROOT, dest)
    for version, revision in RELEASES.items():
        git(dest, "tag", f"v{version}", revision)
    git(dest, "--work-tree", template_source(), "add", "--all")
    git(dest, "commit", "--quiet", "--allow-empty", "--message", "The working tree")
    git(dest, "tag", NOW)
    git(dest, "reset", "--quiet", "--hard")
    for tag, edit in ((MINOR, edit_minor), (MAJOR, edit_major)):
        edit(dest)
        commit(dest, tag, tag)
    git(dest, "gc", "--quiet", "--prune=now")  # as on a server; a folder for each object makes clones slow
    return dest


def add_version(template: Path, start: str, tag: str, edit: Edit) -> None:
    """A further version, made from an older one; it must not be the newest, which others update to."""
    git(template, "checkout", "--quiet", start)
    edit(template)
    commit(template, tag, tag)


def replace(file: Path, old: str, new: str) -> None:
    text = file.read_text("utf-8")
    assert old in text, f"{file} does not hold {old!r}"
    file.write_text(text.replace(old, new), "utf-8")


def append(file: Path, text: str) -> None:
    file.write_text(file.read_text("utf-8") + text, "utf-8")


def find(template: Path, name: str) -> list[Path]:
    """A module of the package, in each framework's version."""
    found = sorted((template / "template" / "src").glob(f"*/{name}"))
    assert found, name
    return found


# Files of an owner, as the template names them.
YOURS = ("README.md.jinja", "CODEOWNERS.jinja", "tests/test_model.py.jinja", "configs/experiment.schema.json.jinja")
YOURS_IN_PACKAGE = ("settings.py", "data.py", "model.py", "task.py")


NEW_QUESTION = """
history:
  type: bool
  ask: "{{ review }}"
  help: Keep a history?
  default: "{{ preset_values.history }}"
"""
NEW_EXCLUSION = """  - "{{ '' if history | default(true) else '/HISTORY.md' }}"\n"""


def edit_minor(template: Path) -> None:
    """Every kind of change that a minor version may bring; all that belongs to an owner changes too."""
    files, questions = template / "template", template / "copier.yml"
    replace(template / "CHANGELOG.md", "## Unreleased\n", "## 1000.1.0\n\n- A history.\n\n## 1000.0.0\n")
    # a new question with a new file, a renamed question, a removed one
    append(questions, NEW_QUESTION)
    replace(questions, "  # Choices that are off", NEW_EXCLUSION + "  # Choices that are off")
    for preset in (template / "presets").iterdir():
        append(preset, f"history: {'false' if preset.stem == 'solo' else 'true'}\n")
    (files / "HISTORY.md.jinja").write_text("# History of {{ project_name }}\n")
    replace(questions, "\ndescription:\n", "\nsummary:\n")
    renamed = "default: \"{{ description | default('A deep-learning project.') }}\""
    replace(questions, "default: A deep-learning project.", renamed)
    replace(questions, "check_line(description, 200)", "check_line(summary, 200)")
    replace(files / "README.md.jinja", "{{ description }}", "{{ summary }}")
    replace(files / "pyproject.toml.jinja", "{{ description |", "{{ summary |")
    text = re.sub(r"^author_email:\n(?:[ ].*\n|\n)+", "", questions.read_text("utf-8"), flags=re.MULTILINE)
    questions.write_text(text, "utf-8")
    replace(files / "pyproject.toml.jinja", '{% if author_email %}, email = "{{ author_email }}"{% endif %}', "")
    (files / "CODEOWNERS.jinja").write_text("# * @your-organisation/your-team\n")
    # a new file, a renamed one, removed ones, one of which is its owner's
    (files / "src" / "{{ package_name }}" / "average.py").write_text('"""A running average."""\n')
    (schedule,) = find(template, "schedule.py")
    schedule.rename(schedule.with_name("warmup.py"))
    for train in find(template, "train.py"):
        replace(train, "from .schedule import", "from .warmup import")
        # a changed loop
        old = "        state.epoch, state.step_in_epoch = state.epoch + 1, 0\n"
        replace(train, old, "        state.epoch += 1\n        state.step_in_epoch = 0\n")
    (files / ".gitattributes").unlink()
    (files / "configs/experiment/debug-profile.yaml").unlink()
    # dependencies, tools, commands, CI, editor
    replace(files / "pyproject.toml.jinja", '"numpy",', '"numpy>=2",')
    replace(files / "constraints.txt", "\ntqdm==", "\n# a progress bar\ntqdm==")
    replace(files / "ruff.toml", '"RUF"]', '"RUF", "PIE"]')
    replace(files / "Makefile.jinja", "## Show the devices and", "## Name the devices, and say")
    for name in (".github/workflows/ci.yml.jinja", ".gitlab-ci.yml.jinja"):
        replace(files / name, "}}: cpu\n", "}}: cpu\n  TZ: UTC\n")
    replace(files / ".vscode/tasks.json.jinja", "Train; writes a new folder", "Train: write a new folder")
    append(files / ".dockerignore.jinja", "**/.pytest_cache\n")
    # and everything that an owner has
    for name in YOURS:
        append(files / name, "\n")
    modules = [file for name in YOURS_IN_PACKAGE for file in find(template, name)]
    for file in (*files.glob("configs/experiment/*.yaml"), *modules):
        append(file, "# new\n")
    (files / "configs/experiment/new.yaml").write_text("schema_version: 1\n")


def edit_major(template: Path) -> None:
    """What an owner writes changes: build_model is given the seed too."""
    replace(template / "CHANGELOG.md", "## 1000.1.0\n", "## 1001.0.0\n\n- Seeds.\n\n## 1000.1.0\n")
    for model in find(template, "model.py"):
        replace(model, "facts: DataFacts) -> Model:", "facts: DataFacts, seed: int) -> Model:")
    for name in ("check.py", "checkpoint.py"):
        for file in find(template, name):
            replace(file, "build_model(config.model, ", "build_model(config.model, seed=config.seed, facts=")
