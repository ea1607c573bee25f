"""Engines that the tests of several files share, because they are slow to start."""

from __future__ import annotations

import sys

import pytest
from tests.conftest import group_of

from coterie.engines.ray import Ray


@pytest.fixture(scope="module")
def on_ray():
    """Two actors, kept for the tests of one file; the cluster goes on for the next file."""
    with Ray(workers=2, deadline=20.0) as engine:
        yield engine
        engine._actors.clear()


def uses_clusters(item):
    return item is not None and group_of(item.nodeid.partition("::")[0]) == "clusters"


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    """Ray ends with the last test of the group."""
    if "ray" in sys.modules and uses_clusters(item) and not uses_clusters(nextitem):
        sys.modules["ray"].shutdown()
