"""Fixtures that the tiers share."""

import shutil
from collections.abc import Iterator

import pytest

import support


@pytest.fixture(scope="session", autouse=True)
def _clean_template_source() -> Iterator[None]:
    yield
    if support.template_source.cache_info().currsize:
        shutil.rmtree(support.template_source())


@pytest.fixture(scope="session")
def shared_project() -> support.Project:
    """A default project whose environment is set up; treat it as read-only."""
    return support.shared_project()
