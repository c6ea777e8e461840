"""Each check sees the fault that it is there for."""

import shutil
from pathlib import Path

import pytest

import checks
from support import Project

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
    projects: dict[str, Project], check: checks.Check, name: str, text: str, tmp_path: Path
) -> None:
    project = Project(shutil.copytree(projects["solo"].path, tmp_path / "project"))
    before = set(check(project))
    file = project.path / name
    if text == "DELETE":
        file.unlink()
    else:
        file.write_text((file.read_text("utf-8") if file.exists() else "") + text, "utf-8")
    assert set(check(project)) - before
