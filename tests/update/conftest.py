"""The template's repository, with the versions that updates go between."""

from pathlib import Path

import pytest

import history


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return history.build(tmp_path_factory.mktemp("template") / "template")
