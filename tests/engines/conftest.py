"""The engines, by fixture. A missing one fails in CI; a developer's run skips it and says how to install it."""

import os

import pytest

from engines import find_browser, find_npm_tool


def required(path: str | None, name: str) -> str:
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
