"""Every operation and kind gives the same result and the same bill on Ray, Spark and MPI as in one
process.
"""

from __future__ import annotations

import functools
import pickle

import pytest

from tests.harness.clusters import mpiexec, needs
from tests.harness.operations import CELLS, On, ask, assert_alike

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.rotates,
    pytest.mark.xdist_group("clusters"),
    pytest.mark.timeout(600),
]


@functools.cache
def in_one_process(operation, kind):
    return ask(operation, kind, On("local"))


def compare(found, cell):
    assert_alike(found, in_one_process(*cell))


@pytest.fixture(scope="module")
def on_mpi(request, tmp_path_factory):
    """The cells of this run in one mpiexec: starting ranks takes longer than running them."""
    chosen = [
        item for item in request.session.items if item.function is test_mpi_is_like_one_process
    ]
    cells = [CELLS.index(item.callspec.params["cell"]) for item in chosen]
    file = tmp_path_factory.mktemp("mpi") / "answers.pickle"
    process = mpiexec(3, "-m", "tests.harness.operations", str(file), *map(str, cells))
    output, errors = process.communicate(timeout=500)
    assert process.returncode == 0, output + errors
    return pickle.loads(file.read_bytes())


cells = pytest.mark.parametrize("cell", CELLS, ids=" of ".join)


@needs("ray")
@cells
def test_ray_is_like_one_process(cell, on_ray):
    compare(ask(*cell, On(on_ray)), cell)


@needs("spark")
@cells
def test_spark_is_like_one_process(cell, on_spark):
    compare(ask(*cell, On(on_spark)), cell)


@needs("mpi")
@cells
def test_mpi_is_like_one_process(cell, on_mpi):
    compare(on_mpi[cell], cell)
