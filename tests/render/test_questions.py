"""The questions: what is asked, what is recorded, and what becomes of answers that nobody should give."""

import keyword
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import copier
import pytest
import yaml

from checks import everything_parses, text_is_clean
from choices import CHOICES as OFFERED
from support import PRESETS, ROOT, Project, render, template_source

SETTINGS = {"_min_copier_version", "_subdirectory", "_answers_file", "_envops", "_message_after_copy"}
SETTINGS |= {"_exclude", "_skip_if_exists", "_external_data"}
KEYS = {"type", "help", "choices", "multiselect", "default", "validator", "when", "ask"}
CONFIG: dict[str, Any] = yaml.safe_load((ROOT / "copier.yml").read_text("utf-8"))
QUESTIONS: dict[str, dict[str, Any]] = {name: value for name, value in CONFIG.items() if not name.startswith("_")}
CHOICES = {name: QUESTIONS[name] for name in OFFERED if name not in ("preset", "framework", "license", "author_email")}
HIDDEN = {name for name, question in QUESTIONS.items() if question.get("when") is False}


def copier_copy(dest: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """As a user runs it: without --trust, and nobody there to answer."""
    command = [Path(sys.executable).parent / "copier", "copy", *arguments, template_source(), dest]
    return subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, capture_output=True, text=True)


def read(project: Path) -> dict[str, bytes]:
    return {path.relative_to(project).as_posix(): path.read_bytes() for path in project.rglob("*") if path.is_file()}


def test_every_key_is_one_that_copier_knows() -> None:
    assert {name for name in CONFIG if name.startswith("_")} == SETTINGS
    assert {key for question in QUESTIONS.values() for key in question} <= KEYS
    assert CONFIG["_envops"] == {"undefined": "jinja2.StrictUndefined"}
    for name, question in QUESTIONS.items():
        asked = name not in HIDDEN and question.get("ask", True) is not False
        assert not asked or question["help"], name
        assert not asked or question["type"] != "str" or question.get("choices") or question["validator"], name


@pytest.mark.parametrize("preset", PRESETS)
def test_preset_answers_every_choice(preset: str, tmp_path: Path) -> None:
    values = yaml.safe_load((ROOT / "presets" / f"{preset}.yml").read_text("utf-8"))
    assert next(iter(values.items())) == ("preset", preset)
    assert values.keys() - {"preset"} == CHOICES.keys()
    for name, question in CHOICES.items():
        choices = question.get("choices", [True, False])
        allowed = set(choices.values() if isinstance(choices, dict) else choices)
        assert set(values[name] if question.get("multiselect") else [values[name]]) <= allowed
        assert allowed == {
            value for offered in OFFERED[name] for value in (offered if isinstance(offered, list) else [offered])
        }


@pytest.mark.parametrize("preset", PRESETS)
def test_defaults_ask_nothing_and_data_file_equals_preset(preset: str, tmp_path: Path) -> None:
    by_name = copier_copy(tmp_path / "name", "--defaults", "--data", f"preset={preset}")
    by_file = copier_copy(tmp_path / "file", "--defaults", "--data-file", str(ROOT / "presets" / f"{preset}.yml"))
    assert by_name.returncode == by_file.returncode == 0, by_name.stderr + by_file.stderr
    assert read(tmp_path / "name") == read(tmp_path / "file")
    assert "make setup" in by_name.stderr


@pytest.mark.parametrize("review", [False, True])
def test_choices_are_asked_with_review_and_always_recorded(
    review: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def answer(questions: list[dict[str, Any]], answers: dict[str, Any], **_: object) -> dict[str, Any]:
        name = questions[0]["name"]
        if questions[0]["when"](answers):
            asked.append(name)
        return {name: review if name == "review" else answers[name]}

    monkeypatch.setattr("copier._main.unsafe_prompt", answer)
    copier.run_copy(str(template_source()), tmp_path / "project", quiet=True)
    assert asked == [name for name in QUESTIONS if name not in HIDDEN | {"fixed"} and (review or name not in CHOICES)]
    recorded = {name for name in Project(tmp_path / "project").answers if not name.startswith("_")}
    assert recorded == QUESTIONS.keys() - HIDDEN


@pytest.mark.parametrize(
    ("project_name", "package_name"),
    [
        ("Wing spans", "wing_spans"),
        ("3D-Shapes!", "project_3d_shapes"),
        ("🤖", "project"),
        ("class", "class_project"),
        ("Torch", "torch_project"),
        ("con", "con_project"),
        ("x" * 80, "x" * 40),
        ("../../etc", "etc"),
    ],
)
def test_a_package_name_is_suggested(project_name: str, package_name: str, tmp_path: Path) -> None:
    assert render(tmp_path / "project", project_name=project_name).package == package_name


def test_names_that_would_hide_something_are_reserved(projects: Mapping[str, Project]) -> None:
    text = (ROOT / "questions.jinja").read_text("utf-8")
    reserved = set(re.split(r"\{%-? (?:set reserved|endset) -?%\}", text)[1].split())
    project = projects["large-org"]
    pinned = re.findall(r"^([\w.-]+)==", (project.path / "constraints.txt").read_text("utf-8"), re.MULTILINE)
    needed = {name.replace("-", "_").replace(".", "_").lower() for name in pinned if not name.startswith("types-")}
    needed |= {path.name for path in project.path.iterdir() if path.is_dir() and path.name.isidentifier()}
    needed |= {name for name in {*sys.stdlib_module_names, *keyword.kwlist} if name[0] != "_" and name.islower()}
    needed |= {"con", "prn", "aux", "nul", *(f"{port}{digit}" for port in ("com", "lpt") for digit in range(1, 10))}
    assert not needed - reserved


@pytest.mark.parametrize("framework", ["pytorch", "tensorflow"])
def test_no_launcher_leaves_no_trace_of_one(framework: str, tmp_path: Path) -> None:
    project = render(tmp_path / "project", framework=framework, launchers=[])
    assert not (project.path / "launch").exists()
    assert not (project.path / "tests/test_distributed.py").exists()


HOSTILE = [
    "\"double\" 'single' `back` \\ \\\\ \\n",
    "{{ 7 * 7 }} {% raw %} {# no #} ${{ x }} $(HOME) $HOME",
    "a: b # c - [d] {e: f} & *g !h |i >j %k @l",
    "\"\"\" ''' = [table] # toml",
    "🤖👩‍💻 Ünïcödé 中文 עברית",
    "null",
    "true",
    "1e3",
    "- -- ---",
    "<script>alert(1)</script> & ]]> -->",
    "../../etc/passwd",
    "x" * 80,
]


@pytest.mark.parametrize("text", HOSTILE)
def test_any_line_of_text_gives_a_valid_project(text: str, tmp_path: Path) -> None:
    project = render(tmp_path / "project", project_name=text, description=text, author_name=text, preset="large-org")
    assert {project.answers[name] for name in ("project_name", "description", "author_name")} == {text}
    metadata = tomllib.loads((project.path / "pyproject.toml").read_text("utf-8"))["project"]
    assert (metadata["description"], metadata["authors"][0]["name"]) == (text, text)
    assert f"Copyright (c) {text}\n" in (project.path / "LICENSE").read_text("utf-8")
    yours = (
        "README.md",
        "LICENSE",
        "pyproject.toml",
        ".copier-answers.yml",
        ".devcontainer",
    )  # where the text itself stands
    assert not [line for line in (*everything_parses(project), *text_is_clean(project)) if not line.startswith(yours)]
    assert {path.name for path in (project.path / "src").iterdir()} == {project.package}


CONTROL = [
    "\n",
    "\r",
    "\t",
    "\0",
    "\x1b[31m",
    "\x7f",
    "\x85",
    "\u2028",
    "\u2029",
    "\u202e",
    "\ufeff",
    "\udc80",
    "\uffff",
]
REFUSED = [
    *(("project_name", f"a{character}b") for character in CONTROL),
    *((name, "a\nb") for name in ("description", "author_name", "author_email", "package_name")),
    *((name, "x" * 201) for name in ("project_name", "description", "author_name", "author_email", "package_name")),
    *((name, value) for name in ("project_name", "description", "author_name") for value in ("", " ", " a")),
    *(("package_name", name) for name in ("class", "con", "lpt1", "os", "torch", "yaml", "tests", "..", "../x", "a/b")),
    *(
        ("package_name", name)
        for name in ("", "A", "1a", "_a", "a_", "a-b", "a b", "ä", "a.b", "a\\b", "{{ x }}", "a\n")
    ),
    *(
        ("author_email", address)
        for address in ("ada", "ada@", "@example.org", "a b@example.org", "a@b", 'a"@example.org')
    ),
    ("preset", "huge"),
    ("preset", "../solo"),
    ("framework", "jax"),
    ("python_version", "3.10"),
    ("license", "GPL-3.0"),
    ("trackers", "losswise"),
    ("ci", "jenkins"),
]


@pytest.mark.parametrize(("question", "value"), REFUSED, ids=repr)
def test_what_cannot_be_used_is_refused_in_one_line(question: str, value: str, tmp_path: Path) -> None:
    with pytest.raises((TypeError, ValueError)) as raised:
        render(tmp_path / "project", **{question: value})
    assert question in str(raised.value) or value in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1
    assert not (tmp_path / "project").exists()


def test_a_refusal_is_the_last_line_and_a_failure(tmp_path: Path) -> None:
    done = copier_copy(tmp_path / "project", "--defaults", "--data", "package_name=class")
    assert done.returncode != 0
    assert "package_name" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "project").exists()
