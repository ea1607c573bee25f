"""Agents in several processes give the bits and the bill of agents in one process, and stop after
the same round.
"""

from __future__ import annotations

import threading
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.errors import NumericalError, PartyLost, ProtocolError
from coterie.networks import complete, erdos_renyi, expander, path, ring, star
from coterie.run.bill import Bill
from coterie.run.collectives import Ask, Exchange, Mix, Sum
from coterie.transport import point_to_point
from coterie.transport.driver import Driver
from coterie.transport.in_process import InProcess
from coterie.transport.point_to_point import PointToPoint
from tests.harness.places import Queues, at_each


def everywhere(network, process_of, job, secure=False):
    """Run `job(transport)` at every process at the same time; what each came to, by process."""
    links = Queues.mesh(network, process_of)
    transports = [
        Driver(Bill(network), PointToPoint(network, own, process_of, process), secure_sums=secure)
        for process, own in enumerate(links)
    ]
    return transports, at_each(links, lambda process, _: job(transports[process]))


def conversation(agent, count, dtype, neighbours):
    rng = np.random.default_rng(agent)
    x = (rng.standard_normal(5) * 10.0 ** rng.integers(-8, 8)).astype(dtype)
    total = yield Sum(x)
    mixed = yield Mix(x.reshape(1, 5), "metropolis")
    flat = yield Mix(total + x, "laplacian")
    theirs = yield Exchange(np.full((agent % 2 + 1, 2), agent, dtype))
    alike = yield Exchange(x)
    number = yield Sum(x[:1])
    long = yield Mix(np.tile(x, 1000), "metropolis")
    nothing = yield Sum(x[:0])
    assert nothing.shape == (0,)
    still_nothing = yield Mix(x[:0])
    assert still_nothing.shape == (0,)
    public = yield Ask(((agent + 1) % count, (agent + 2) % count))
    return total, mixed, flat, theirs, alike, number, public, long


def same(one, other):
    if isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            same(one[key], other[key])
        return
    assert one.dtype == other.dtype
    assert not other.flags.writeable
    np.testing.assert_array_equal(one, other)


MANY = erdos_renyi(70, 0.5, seed=0)
NETWORKS = [
    ring(7),
    path(6),
    star(5),
    complete(8),
    expander(30, degree=4),
    complete(20),
    complete(70),
    MANY,
    path(2),
]


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("network", NETWORKS, ids=lambda n: f"{n.name}-{n.agents}")
@pytest.mark.parametrize("layout", ["one each", "two processes", "dealt"])
def test_the_bits_and_the_bill_of_one_process(network, layout, dtype):
    m = network.agents
    processes = {"one each": min(m, 30), "two processes": 2, "dealt": min(m, 3)}[layout]
    process_of = [j % processes if layout == "dealt" else processes * j // m for j in range(m)]

    def protocol(transport):
        for agent in transport.local:
            transport.publish(agent, np.full(agent % 3 + 1, agent, dtype))
        protocols = [
            conversation(agent, m, dtype, network.neighbours(agent)) for agent in transport.local
        ]
        results = transport.converse(protocols, "rounds")
        transport.bill.end_round()
        return results

    embedded = InProcess(network, Bill(network))
    expected = protocol(embedded)
    transports, found = everywhere(network, process_of, protocol)
    for transport, results in zip(transports, found, strict=True):
        assert transport.bill == embedded.bill
        for agent, result in zip(transport.local, results, strict=True):
            for number, (one, other) in enumerate(zip(expected[agent], result, strict=True)):
                if (
                    isinstance(one, np.ndarray) and network is MANY and number in (1, 2, 7)
                ):  # dense products of many
                    tiny = (
                        np.finfo(dtype).eps
                        * max(abs(w).max() for e in expected for w in e[1:3])
                        * m
                    )
                    np.testing.assert_allclose(one, other, atol=tiny)
                else:
                    same(one, other)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=9),
    st.booleans(),
    st.booleans(),
    st.sampled_from((24, 48, 4096)),
)
def test_sums_do_not_depend_on_who_lives_where_or_on_how_they_are_cut(
    process_of, served, secure, piece
):
    process_of = [sorted(set(process_of)).index(home) for home in process_of]
    m = len(process_of)
    network = star(m, server=True) if served else ring(m) if m > 2 else path(m)

    def protocol(transport):
        def total(agent):
            first = yield Sum(np.random.default_rng(agent).standard_normal(4))
            second = yield Sum(first / 3)
            return second

        return transport.converse([total(agent) for agent in transport.local], "rounds")

    expected = protocol(InProcess(network, Bill(network), secure_sums=secure))[0]
    with mock.patch.object(point_to_point, "PIECE", piece):
        found = everywhere(network, process_of, protocol, secure)[1]
    for results in found:
        for result in results:
            np.testing.assert_array_equal(result, expected)


def test_the_least_number_is_known_everywhere():
    for network in (star(4, server=True), ring(4)):
        assert everywhere(network, [0, 1, 2, 2], lambda c: c.least(7 - c.process))[1] == [5, 5, 5]


@pytest.mark.parametrize(
    ("first", "dtype"), [(0, "f8"), (2**23, "f4")], ids=["at first", "after many rounds, in f4"]
)
@pytest.mark.parametrize(
    "network", [star(6, server=True), path(6), ring(6)], ids=["server", "path", "ring"]
)
def test_all_places_stop_after_the_same_round(network, first, dtype):
    """The stop reason of the process of agent 0 travels with the words; those of others do not
    count.
    """

    def protocol(transport):
        def one_round(agent):
            yield Sum(np.ones(2, dtype)) if network.server else Mix(np.ones(2, dtype))

        for t in range(first, first + 100):
            reason = (
                2
                if (transport.process == 0 and t >= first + 4)
                else 1
                if transport.process == 3
                else 0
            )
            if (agreed := transport.agreed(t, reason)) != 0:
                return t, agreed
            transport.converse([one_round(agent) for agent in transport.local], "rounds")
        return None

    stops = everywhere(network, list(range(6)), protocol)[1]
    assert len(set(stops)) == 1
    after, reason = stops[0]
    assert reason == 2
    assert first + 4 < after <= first + 4 + (1 if network.server else network.diameter)


@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_shapes_are_exact_whatever_the_numbers_are(dtype):
    """2²⁴ + 1 is the first whole number that float32 does not have."""
    sizes = [(2**24 + 1, 0), (3,), (2, 1, 2)]

    def protocol(transport):
        def shapes(agent):
            received = yield Exchange(np.ones(sizes[agent], dtype))
            return {other: x.shape for other, x in received.items()}

        return transport.converse([shapes(agent) for agent in transport.local], "rounds")

    for process_of in ([0, 1, 2], [0, 0, 1]):
        for results in everywhere(ring(3), process_of, protocol)[1]:
            for received in results:
                assert all(shape == sizes[other] for other, shape in received.items())


def one_word(words):
    def protocol(transport):
        def say(collective):
            yield collective

        return transport.converse([say(words[agent]) for agent in transport.local], "rounds")

    return protocol


def test_errors_name_who_it_was():
    process_of = [0, 1, 2]
    bad = [Sum(np.ones(2)), Sum(np.array([1.0, np.nan])), Sum(np.ones(2))]
    with pytest.raises(NumericalError, match="agent 1 sent Sum with 1 of 2 numbers not finite"):
        everywhere(ring(3), process_of, one_word(bad))
    for network in (ring(3), star(3, server=True)):
        longer = [Sum(np.ones(2)), Sum(np.ones(2)), Sum(np.ones(3))]
        with pytest.raises(ProtocolError, match=r"agent 0 expected 2 numbers.*agent 2 sent 3"):
            everywhere(network, process_of, one_word(longer))
    with pytest.raises(ProtocolError, match=r"expected (Sum|Mix).*sent (Mix|Sum)"):
        everywhere(
            ring(3), process_of, one_word([Sum(np.ones(2)), Sum(np.ones(2)), Mix(np.ones(2))])
        )


def test_a_silent_place_is_a_lost_party(monkeypatch):
    monkeypatch.setattr(Queues, "deadline", 0.5)

    def protocol(transport):
        if transport.process == 1:
            return None
        return one_word([Sum(np.ones(2))] * 3)(transport)

    with pytest.raises(PartyLost, match="process 1 fell silent"):
        everywhere(star(3, server=True), [0, 1, 2], protocol)
    assert threading.active_count() < 50
