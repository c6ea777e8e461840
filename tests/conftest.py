"""Fixtures that the tiers share."""

import os
import shutil
from collections.abc import Iterator

import pytest

import support
from choices import COMBINATIONS, label
from programs import find_browser, find_npm_tool

IDENTITY = {"project_name": "Wing spans", "author_name": 'Ada "the" Ünal \\ Co'}


@pytest.fixture(scope="session", autouse=True)
def _clean_template_source() -> Iterator[None]:
    yield
    if support.template_source.cache_info().currsize:
        shutil.rmtree(support.template_source())


@pytest.fixture(scope="session")
def projects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, support.Project]:
    """Every preset and every pair of choices, by label; read-only."""
    root = tmp_path_factory.mktemp("projects")
    return {label(answers): support.render(root / label(answers), **IDENTITY, **answers) for answers in COMBINATIONS}


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
