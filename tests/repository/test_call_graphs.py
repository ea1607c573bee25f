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

CALLED_BACK = {
    ("api/solve", "_people"): "digests of the tables are computed when the set-up asks for them",
    ("api/solve", "_watching"): "the live line begins when the method has a name",
    ("study/fits", "ready_to_fit.<locals>.<lambda>"): "as `_people`; here the digests are known",
}
"""The functions that are called while their module waits, and why."""
ENTERED_AGAIN = {
    "co.solve": {},
    "Spark from a data frame": {
        "run/tables": "an offset is attached before the workers are asked",
    },
    "coterie agent": {
        "run/setup": "the page of what is sent needs the problem with its offset",
        "study/among": "the parties, when they have met, are asked for the rounds",
        "study/consent": "the command asks its user, and `fit_together` asks whether it did",
        "study/disclosure": "both compute the page that the user agrees to",
        "study/nonce": "a commitment to the table, then the secret of the masks",
        "study/party": "the command reads the table, and then takes part",
        "study/policy": "parties agree to begin, and on methods when they know the tables",
        "study/session": "each message to all parties passes through it",
    },
    "An estimator": {"run/tables": "arrays are split before the settings are checked"},
    "co.path": {},
}
"""The modules that are left and entered again on each way, and why."""


@cache
def traced(name):
    return WAYS[name]()


@by_way
def test_calls_go_one_way(name):
    assert upward(traced(name)) <= CALLED_BACK.keys()


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
    needed = set().union(*(upward(traced(name)) for name in WAYS))
    assert needed == CALLED_BACK.keys()
    for name in WAYS:
        assert visited_again(traced(name)) == ENTERED_AGAIN[name].keys(), name


@by_way
def test_the_page_shows_the_calls(name):
    """`python scripts/call_graphs.py` writes it."""
    assert section(name, traced(name)) in PAGE.read_text()
