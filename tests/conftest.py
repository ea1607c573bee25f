"""What all tests share: quiet, reproducible hypothesis settings, and which of them run in one
process.
"""

import functools
import os
import re
import sys
from collections import defaultdict
from datetime import date
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "coterie",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("coterie")

ROOT = Path(__file__).parents[1]
BEGINNINGS: dict[str, dict] = {}
"""The state of the random numbers of each file when its first test begins."""

ROTATIONS = 4
"""Runs in which every test that rotates is run once."""


def pytest_configure(config):
    """Choose the part of the rotating tests that runs, once for all processes: they inherit the
    environment.
    """
    os.environ.setdefault("ROTATION", str(date.today().toordinal() % ROTATIONS))


def pytest_report_header(config):
    return (
        f"rotation {os.environ['ROTATION']} of {ROTATIONS}: repeat it with ROTATION=n, run all "
        "with ROTATION=all"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Leave out the rotating tests of other days, unless a test is asked for by its name (a::b, or
    -k).

    The tests of each file are dealt out on their own: a number stands for the same tests when only
    some files run.
    """
    chosen = os.environ["ROTATION"]
    if (
        chosen == "all"
        or config.option.keyword
        or any("::" in argument for argument in config.args)
    ):
        return
    rotating = defaultdict(list)
    for item in items:
        if item.get_closest_marker("rotates"):
            rotating[item.path].append(item)
    left_out = set()
    for path, found in rotating.items():
        first = (
            int(chosen) + crc32(path.name.encode())
        ) % ROTATIONS  # so that files of one test have different days
        left_out |= {*found} - {*found[first::ROTATIONS]}
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture
def shell(monkeypatch, tmp_path):
    """The command line, in this process and an empty folder: its exit code, its output and its
    errors.
    """
    from tests.harness.shell import shell as command

    monkeypatch.chdir(tmp_path)
    return command


@pytest.fixture(scope="module")
def on_ray():
    """Two actors, kept for the tests of one file; the cluster goes on for the next file."""
    from coterie.engines.ray import Ray

    with Ray(workers=2, deadline=20.0) as engine:
        yield engine
        engine._actors.clear()


@pytest.fixture(scope="session")
def on_spark():
    """Two workers, kept for all tests."""
    from pyspark.sql import SparkSession

    from coterie.engines.spark import Spark

    yield Spark(workers=2, deadline=20.0)
    if (session := SparkSession.getActiveSession()) is not None:
        session.stop()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    """Ray ends with the last test of its group."""
    if "ray" in sys.modules and uses_clusters(item) and not uses_clusters(nextitem):
        sys.modules["ray"].shutdown()


def uses_clusters(item):
    return item is not None and group_of(item.nodeid.partition("::")[0]) == "clusters"


@functools.cache
def group_of(file):
    """The group that a file of tests is marked with; the file itself if fixtures serve all of it;
    or none.
    """
    text = (ROOT / file).read_text("utf-8")
    if named := re.search(r'xdist_group\("(\w+)"\)', text):
        return named[1]
    return file if 'fixture(scope="module"' in text else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Let processes take whole groups: pytest-xdist 3.8 does not see the marks of pytest 9.2 (its
    issue 1386), so that each process started a Ray, a Spark and an MPI of its own, at the same
    time.
    """
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadGroupScheduling

    class Groups(LoadGroupScheduling):
        def _split_scope(self, nodeid):
            return group_of(nodeid.partition("::")[0]) or nodeid

    return Groups(config, log)


@pytest.fixture(autouse=True)
def same_numbers_in_any_order(request):
    """Set the `RNG` of a file back before each test, so that its numbers depend on no test that ran
    before.
    """
    generator = getattr(request.module, "RNG", None) if request.module else None
    if isinstance(generator, np.random.Generator):
        bits = generator.bit_generator
        bits.state = BEGINNINGS.setdefault(request.module.__name__, bits.state)
