"""Five ways lead to the rounds of a fit: calls go one way, modules are entered once, and the ways
share their middle part.
"""

from __future__ import annotations

from functools import cache

import pytest
from scripts.call_graphs import PAGE, WAYS, middle, section, upward, visited_again

from coterie.engines import ENGINES

MISSING = ENGINES["spark"].missing()
pytestmark = [
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
    pytest.mark.cluster,
    pytest.mark.xdist_group("clusters"),
    pytest.mark.timeout(600),
]

by_way = pytest.mark.parametrize("name", WAYS)

ENTERED_AGAIN = {
    "co.solve": {},
    "Spark from a data frame": {
        "run/network": "the parties meet to read their tables, and then to fit",
        "run/parties": "the parties, when they have met, are asked for the rounds",
    },
    "coterie agent": {
        "run/certificate/document": "the parties are listed, then a checkpoint reads their digests",
        "run/setup": "the page of what is sent needs the problem with its offset",
        "study/among": "the parties, when they have met, are asked for the rounds",
        "study/disclosure": "the page for the user, then the messages and methods that it allows",
        "study/nonce": "a commitment to the table, then the secret of the masks",
        "study/policy": "parties agree to begin, and on methods when they know the tables",
        "study/session": "each message to all parties passes through it",
    },
    "An estimator": {},
    "co.path": {},
}
"""The modules that are left and entered again on each way, and why."""


@cache
def traced(name):
    return WAYS[name]()


@by_way
def test_calls_go_one_way(name):
    assert not upward(traced(name))


@by_way
def test_modules_are_entered_once(name):
    assert visited_again(traced(name)) <= ENTERED_AGAIN[name].keys()


@by_way
def test_all_ways_share_the_part_before_the_rounds(name):
    shared = middle(traced("co.solve"))
    assert shared[-1] == "stats/fitting → Parties.run_rounds"
    assert middle(traced(name)) == shared


def test_exceptions_are_needed():
    """An exception that no way needs any more is deleted."""
    for name in WAYS:
        assert visited_again(traced(name)) == ENTERED_AGAIN[name].keys(), name


@by_way
def test_the_page_shows_the_calls(name):
    """`python scripts/call_graphs.py` writes it."""
    assert section(name, traced(name)) in PAGE.read_text()
