"""`Sum(to=)`: a total that one agent alone hears, and what it costs."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import coterie as co
from coterie.engines import Run
from coterie.engines import engine as find_engine
from coterie.errors import ProtocolError
from coterie.networks import path, star
from coterie.run.collectives import Sum
from coterie.run.rounds import Conversation
from coterie.run.settings import Limits
from coterie.run.site import Site
from tests.harness.threads import Threads

NUMBERS = np.random.default_rng(3).normal(size=(4, 7)) * [1e8, 1.0, 1e-8, 1.0, 3.0, 1e3, 1.0]


def to_one(to, site):
    """What the holder hears of everybody's numbers, and after that the total of a usual sum."""
    received = yield Sum(site.data.X[0], to=to)
    both = yield Sum(np.ones(1))
    return received, float(both[0])


def outcome(engine, network, to, secure):
    sites = [
        Site(
            index,
            len(NUMBERS),
            co.Table(NUMBERS[[index]], name=f"party {index}"),
            secure_sums=secure,
        )
        for index in range(len(NUMBERS))
    ]
    return find_engine(engine).run(
        Run(sites, Conversation(partial(to_one, to)), network, Limits(), secure_sums=secure)
    )


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "secure"])
@pytest.mark.parametrize("network", [star(4, server=True), path(4)], ids=["star", "path"])
@pytest.mark.parametrize("to", [0, 1, 3])
def test_one_party_hears_it_and_the_others_nothing(network, to, secure):
    here, apart = (outcome(engine, network, to, secure) for engine in ("local", Threads()))
    for found in (here, apart):
        assert [answer[0] is not None for answer in found.answers] == [
            index == to for index in range(4)
        ]
        assert [answer[1] for answer in found.answers] == [4.0] * 4
    np.testing.assert_allclose(apart.answers[to][0], NUMBERS.sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(here.answers[to][0], NUMBERS.sum(axis=0), rtol=1e-12)
    if secure:
        np.testing.assert_array_equal(here.answers[to][0], apart.answers[to][0])
    assert here.bill == apart.bill
    # Three parties send their seven numbers once, and nothing comes back but to the one, if there
    # is a server; then there is a sum for all.
    copies = 8 if network.server else 6
    senders = 4 if network.server else 3
    assert here.bill.total.scalars == senders * 7 + copies


def different(site):
    yield Sum(np.ones(1), to=site.index)


def test_all_must_send_to_the_same_party():
    sites = [Site(index, 3, co.Table(np.ones((1, 1)))) for index in range(3)]
    with pytest.raises(ProtocolError, match="different agents"):
        find_engine("local").run(
            Run(sites, Conversation(different), star(3, server=True), Limits())
        )
