"""What gossip sends between processes: updates to neighbours only, and no more than is billed."""

from __future__ import annotations

import json

import pytest

from tests.harness.clusters import mpiexec, needs
from tests.harness.gossip_payload import CASES, COUNT, ROUNDS, USERS, measured
from tests.harness.places import Places

Z = 64
NEIGHBOURS = 2
PLACE = (COUNT - 1).bit_length()


def assert_paid(found):
    assert 0.5 * found["billed"] < found["bits"] <= 1.2 * found["billed"]
    # A question is one byte more than what is billed.
    assert found["filled"] <= 2 * found["billed messages"]


@pytest.mark.parametrize("case", CASES)
def test_what_is_sent_is_what_is_billed(case):
    """Between processes with one user each."""
    found, embedded = measured(case, Places(USERS)), measured(case, "local")
    assert embedded["bits"] == 0
    for same in ("model", "graph", "billed", "billed messages"):
        assert found[same] == embedded[same]
    assert_paid(found)


def test_the_bill_is_that_of_section_3_3():
    """(Z + ⌈log₂ n⌉)·|N_k| bits for every update, and a message to every neighbour and no other."""
    found = measured("published, given graph", Places(USERS))
    assert found["billed"] == ROUNDS * USERS * NEIGHBOURS * (Z + PLACE)
    assert found["filled"] == ROUNDS * USERS * NEIGHBOURS
    meetings = 2 * ROUNDS * (USERS - 1)
    firsts = USERS * NEIGHBOURS
    assert found["messages"] == found["filled"] + meetings + firsts


@pytest.mark.cluster
@pytest.mark.xdist_group("clusters")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "case",
    ["published, given graph", pytest.param("published, learned graph", marks=pytest.mark.rotates)],
)
@needs("mpi")
def test_what_ranks_send_is_what_is_billed(case):
    with mpiexec(USERS, "-m", "tests.harness.gossip_payload", case) as ranks:
        out, err = ranks.communicate(timeout=280)
    assert ranks.returncode == 0, err
    found, embedded = json.loads(out.splitlines()[0]), measured(case, "local")
    for same in ("model", "graph", "billed"):
        assert found[same] == embedded[same]
    assert_paid(found)
