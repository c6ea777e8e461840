"""Fixtures that the tiers share."""

import os
import shutil
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

import history
import owner
import support
from choices import COMBINATIONS, label
from distribution import THREE_EPOCHS, TWENTY_STEPS
from owner import Edited
from programs import COMPILER, find_browser, find_npm_tool
from workspace import Workspace

IDENTITY = {"project_name": "Wing spans", "author_name": 'Ada "the" Ünal \\ Co'}


@pytest.fixture(scope="session", autouse=True)
def _clean_template_source() -> Iterator[None]:
    yield
    if support.template_source.cache_info().currsize:
        shutil.rmtree(support.template_source())


class Projects(Mapping[str, support.Project]):
    """Every preset and every pair of choices, by label; generated when they are asked for, and read-only."""

    def __init__(self, root: Path) -> None:
        self.answers = {label(answers): answers for answers in COMBINATIONS}
        self.made = {name: root / name for name in self.answers}

    def __getitem__(self, name: str) -> support.Project:
        if self.made[name].exists():
            return support.Project(self.made[name])
        return support.render(self.made[name], **IDENTITY, **self.answers[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.answers)

    def __len__(self) -> int:
        return len(self.answers)


@pytest.fixture(scope="session")
def projects(tmp_path_factory: pytest.TempPathFactory) -> Projects:
    return Projects(tmp_path_factory.mktemp("projects"))


@pytest.fixture(scope="session")
def shared_project() -> support.Project:
    """A default project whose environment is set up; read-only."""
    return support.shared_project()


def required(path: str | None, name: str) -> str:
    """An engine, which CI must have; a developer's run without it skips the test and says how to get it."""
    if path is None:
        refuse = pytest.fail if os.environ.get("CI") else pytest.skip
        refuse(f"no {name}: make engines")
    return path


@pytest.fixture(scope="session")
def browser() -> str:
    """The path of Chromium, for a playwright that is there too."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        required(None, "playwright")
    return required(find_browser(), "Chromium")


@pytest.fixture(scope="session")
def devcontainer() -> str:
    return required(find_npm_tool("devcontainer"), "devcontainer")


@pytest.fixture(scope="session")
def yaml_language_server() -> str:
    return required(find_npm_tool("yaml-language-server"), "yaml-language-server")


@pytest.fixture(scope="session")
def compiler() -> str:
    """What builds Horovod."""
    missing = [name for name in COMPILER if not shutil.which(name)]
    return required(None if missing else shutil.which(COMPILER[0]), ", ".join(missing))


@pytest.fixture(scope="session")
def ssh() -> str:
    """OpenSSH's client, and a server to talk to."""
    try:
        import asyncssh  # noqa: F401
    except ImportError:
        required(None, "asyncssh")
    return required(shutil.which("ssh"), "ssh")


@pytest.fixture(scope="module")
def single(project: Workspace) -> Path:
    """What several processes are compared with, in the project of a module."""
    return project.train("single", *TWENTY_STEPS)


@pytest.fixture(scope="module")
def long_single(project: Workspace) -> Path:
    return project.train("long-single", *THREE_EPOCHS)


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of the template, with the versions that updates go between."""
    return history.build(tmp_path_factory.mktemp("template") / "template")


@pytest.fixture(scope="session")
def kept(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Edited:
    @cache
    def make(version: str, preset: str, framework: str) -> Workspace:
        dest = tmp_path_factory.mktemp("edited") / "project"
        ci = "gitlab" if preset == "startup" else "github"
        project = owner.generate(template, version, dest, preset=preset, framework=framework, ci=ci)
        owner.edit(project)
        return project

    return make


@pytest.fixture
def edited(kept: Edited, tmp_path: Path) -> Edited:
    """A project of a version, preset and framework after its owner's work, to be changed by one test."""

    def copy(version: str, preset: str = "solo", framework: str = "pytorch") -> Workspace:
        return Workspace(shutil.copytree(kept(version, preset, framework).path, tmp_path / "project", symlinks=True))

    return copy
