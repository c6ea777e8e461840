"""Fixtures that the tiers share."""

import shutil
from collections.abc import Iterator

import pytest

import support
from choices import COMBINATIONS, label

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
