"""Every command of docs/updating.md, as it stands there; `gh:org/mlstack` is a repository on this machine."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

import owner
from history import MAJOR, MINOR, NOW, append, git
from support import ROOT, Project, setup_env
from workspace import Workspace

ADDRESS = "https://github.com/org/mlstack.git"
MIRROR = "https://git.example.org/mlstack.git"
TEXT = (ROOT / "docs/updating.md").read_text("utf-8")
BLOCKS = {
    title: re.findall(r"^```sh\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    for title, section in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
}


@dataclass
class Shell:
    """Where a reader types: with the template's addresses, the tools and an identity in place."""

    home: Path

    def run(self, folder: Path, script: str, stdin: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
        scratch = self.home / "scratch"
        scratch.mkdir(exist_ok=True)
        # What follows an update is a dry run: the environment is shared, and other tests run these commands.
        dry = {"MAKEFLAGS": f"VENV={scratch} PYTHON=true UV=true SYSTEM_UV=true COPIER=copier"}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        env = setup_env() | {"HOME": str(self.home), "PATH": path, "PWD": str(folder)} | dry
        done = subprocess.run(
            ["bash", "-e", "-c", script], cwd=folder, env=env, input=stdin, capture_output=True, text=True
        )
        assert done.returncode == 0 or not check, f"{script}\n{done.stdout}{done.stderr}"
        return done


@pytest.fixture
def shell(template: Path, tmp_path: Path) -> Shell:
    home = tmp_path / "home"
    home.mkdir()
    git(tmp_path, "init", "--quiet", "--bare", "mirror")
    config = {"user.name": "Ada", "user.email": "ada@example.org"}
    config |= {f"url.{template}.insteadOf": ADDRESS, f"url.{tmp_path / 'mirror'}.insteadOf": MIRROR}
    for name, value in config.items():
        git(home, "config", "--file", home / ".gitconfig", name, value)
    return Shell(home)


@pytest.fixture
def project(template: Path, shell: Shell, tmp_path: Path) -> Project:
    """A project of NOW, as a reader has it."""
    shell.run(tmp_path, f"copier copy --quiet --defaults --vcs-ref {NOW} gh:org/mlstack project")
    project = Project(tmp_path / "project")
    shell.run(project.path, "git init --quiet --initial-branch main && git add --all && git commit --quiet -m Begin")
    return project


def update(shell: Shell, project: Project) -> None:
    shell.run(project.path, BLOCKS["Take a new version"][0])
    assert project.answers["_commit"] == MAJOR and project.answers["_src_path"] == "gh:org/mlstack"


def conflict(shell: Shell, project: Project) -> None:
    file = project.path / "pyproject.toml"
    file.write_text(file.read_text("utf-8").replace('"numpy",', '"numpy<3",'), "utf-8")
    shell.run(project.path, "git commit --quiet --all -m Ours")
    assert shell.run(project.path, "make update", check=False).returncode == 2
    done = shell.run(project.path, BLOCKS["Solve a conflict"][0])
    assert done.stdout.startswith("pyproject.toml\n")
    assert '"numpy>=2",' in file.read_text("utf-8") and "<<<<" not in file.read_text("utf-8")


def change_choice(shell: Shell, project: Project) -> None:
    shell.run(project.path, BLOCKS["Change a choice"][0])
    assert project.answers["notebooks"] is False and not (project.path / "notebooks").exists()


def change_preset(shell: Shell, project: Project) -> None:
    shell.run(project.path, BLOCKS["Change the preset"][0])
    assert project.answers["preset"] == "startup" and project.answers["_commit"] == NOW


def adopt(shell: Shell, project: Project) -> None:
    """A repository that has files of the same names, and others."""
    path = project.path.parent / "existing"
    own = {"README.md": "Ours.\n", "pyproject.toml": "[project]\n", "src/wing_spans/model.py": "x = 1\n", "a": "a\n"}
    for name, text in own.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    shell.run(path, "git init --quiet --initial-branch main && git add --all && git commit --quiet -m Ours")
    adopt, compare = BLOCKS["Adopt the template in an existing repository"]
    half = shell.run(path, re.sub(r" --skip '\*'", "", adopt.splitlines()[1]), check=False)
    assert half.returncode != 0, "nobody there to answer"
    assert shell.run(path, "git diff").stdout == ""
    shell.run(path, "git clean -d --force --quiet")
    shell.run(path, adopt.replace("copier copy", f"copier copy --vcs-ref {NOW}"))
    assert {name: (path / name).read_text() for name in own} == own
    adopted = Project(path)
    assert adopted.package == "wing_spans" and "src/wing_spans/train.py" in adopted.files()
    assert "-Ours.\n" in shell.run(path, compare).stdout
    assert shell.run(path, "git status --porcelain").stdout == ""
    shell.run(path, "copier update --defaults")
    assert adopted.answers["_commit"] == MAJOR
    ours = own.pop("pyproject.toml")
    assert {name: (path / name).read_text() for name in own} == own
    merged = (path / "pyproject.toml").read_text("utf-8")
    assert merged.startswith(ours) and "<<<<<<< before updating" in merged and '"numpy>=2",' in merged


def change_name(shell: Shell, project: Project) -> None:
    append(project.path / "src/my_model/model.py", "# ours\n")
    shell.run(project.path, BLOCKS["Change what stays: the package's name, the framework"][0])
    moved = Workspace(project.path.parent / "shapes")
    owner.use_shared_environment(moved)
    assert (moved.path / "src/wing_shapes/model.py").read_text("utf-8").endswith("# ours\n")
    owner.adapt_to_major(moved.path / "src/wing_shapes/model.py")
    moved.cli("check")


def cookiecutter(shell: Shell, project: Project) -> None:
    folder = project.path.parent / "cookies"
    folder.mkdir()
    shell.run(folder, BLOCKS["Cookiecutter"][0], stdin="Wing spans\n2\n1\n")
    answers = Project(folder / "wing-spans").answers
    assert (answers["preset"], answers["_src_path"], answers["_commit"]) == ("startup", "gh:org/mlstack", MAJOR)


def own_preset(shell: Shell, project: Project) -> None:
    folder = project.path.parent
    values = yaml.safe_load((ROOT / "presets/startup.yml").read_text("utf-8")) | {"ci": "gitlab"}
    (folder / "our-preset.yml").write_text(yaml.safe_dump(values), "utf-8")
    shell.run(folder, BLOCKS["A preset of your own"][0])
    assert values.items() <= Project(folder / "wing-spans").answers.items()
    shell.run(project.path, "make preset PRESET=../our-preset.yml")
    assert values.items() <= project.answers.items()


def mirror(shell: Shell, project: Project) -> None:
    make, follow = BLOCKS["A mirror of the template"]
    shell.run(project.path.parent, make)
    shell.run(project.path, follow)
    assert (project.answers["_src_path"], project.answers["_commit"]) == (MIRROR, MAJOR)
    assert "_src_path" in shell.run(project.path, "git show --format= --unified=0").stdout


def versions(shell: Shell, project: Project) -> None:
    shell.run(project.path.parent, f"copier copy --quiet --defaults --vcs-ref {MINOR} gh:org/mlstack other")
    done = shell.run(project.path.parent, BLOCKS["Which project has which version"][0])
    assert done.stdout.splitlines() == [
        f"other/.copier-answers.yml:_commit: {MINOR}",
        f"project/.copier-answers.yml:_commit: {NOW}",
    ]


READERS: list[Callable[[Shell, Project], None]] = [
    update,
    conflict,
    change_choice,
    change_preset,
    adopt,
    change_name,
    cookiecutter,
    own_preset,
    mirror,
    versions,
]


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_what_the_page_says_works(shell: Shell, project: Project, reader: Callable[[Shell, Project], None]) -> None:
    reader(shell, project)


def test_no_command_of_the_page_is_left_out() -> None:
    assert len(READERS) == len(BLOCKS) and all(BLOCKS.values())
    assert sum(map(len, BLOCKS.values())) == TEXT.count("```") / 2


def test_the_page_of_options_is_current() -> None:
    done = subprocess.run([sys.executable, ROOT / "docs/options.py"], capture_output=True, text=True, check=True)
    assert done.stdout == (ROOT / "docs/options.md").read_text("utf-8"), "make options"
