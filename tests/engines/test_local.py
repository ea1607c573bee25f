"""The embedded engine: words are answered right, disagreement is named, nothing leaks, everything
is billed.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import InvalidNetwork, NumericalError, ProtocolError
from coterie.networks import Network, complete, expander, path, ring, star
from coterie.run.bill import Bill
from coterie.run.collectives import Ask, Exchange, Mix, Sum
from coterie.transport.in_process import InProcess


def transport_on(network):
    return InProcess(network, Bill(network))


def say(collective):
    """A conversation of one word that returns the reply."""
    reply = yield collective
    return reply


def messages(count, size=6, seed=0):
    return list(np.random.default_rng(seed).standard_normal((count, size)))


@pytest.mark.parametrize(
    "network", [star(5, server=True), ring(5), path(5), star(5), complete(5), path(1)]
)
def test_sum_is_the_sum_everywhere(network):
    x = messages(network.agents)
    replies = transport_on(network).converse([say(Sum(own)) for own in x], "rounds")
    for reply in replies:
        np.testing.assert_allclose(reply, np.sum(x, axis=0), rtol=1e-14)


@given(st.integers(1, 12), st.integers(0, 5))
def test_sum_adds_in_a_fixed_order(count, seed):
    """With a server: agent by agent. On a graph: each agent adds its children's sums, the last
    child first.
    """
    x = messages(count, 4, seed)
    served = transport_on(star(count, server=True)).converse(
        [say(Sum(own)) for own in x], "rounds"
    )[0]
    in_order = x[0].copy()
    for own in x[1:]:
        in_order = in_order + own
    np.testing.assert_array_equal(served, in_order)

    network = path(count)
    along = x[-1].copy()
    for own in reversed(x[:-1]):
        along = own + along
    np.testing.assert_array_equal(
        transport_on(network).converse([say(Sum(own)) for own in x], "rounds")[0], along
    )


def nearly_complete(agents):
    """A complete graph with one edge that is heavier than the others."""
    weights = complete(agents).weights.toarray()
    weights[0, -1] = weights[-1, 0] = 3.0
    return Network(sp.csr_array(weights), "nearly complete")


@pytest.mark.parametrize("rule", ["laplacian", "metropolis"])
@pytest.mark.parametrize(
    "network",
    [ring(6), complete(6), star(6), expander(30, degree=4), complete(20), nearly_complete(20)],
    ids=lambda n: f"{n.name}-{n.agents}",
)
def test_mix_is_one_matrix_product(network, rule):
    x = messages(network.agents)
    replies = transport_on(network).converse([say(Mix(own, rule)) for own in x], "rounds")
    expected = sp.csr_array(network.mixing(rule)).toarray() @ np.array(x)
    np.testing.assert_allclose(np.array(replies), expected, atol=1e-12)


def test_mix_with_a_given_matrix_and_matrix_letters():
    network = ring(4)
    A = network.metropolis().toarray()
    x = np.random.default_rng(1).standard_normal((4, 3, 2))
    replies = transport_on(network).converse([say(Mix(own, A)) for own in x], "rounds")
    np.testing.assert_allclose(np.array(replies), np.einsum("ij,jkl->ikl", A, x), atol=1e-12)


def test_exchange_brings_the_neighbours_letters():
    network = path(3)
    x = [np.arange(j + 1.0) for j in range(3)]
    replies = transport_on(network).converse([say(Exchange(own)) for own in x], "rounds")
    assert [sorted(reply) for reply in replies] == [[1], [0, 2], [1]]
    np.testing.assert_array_equal(replies[1][2], x[2])


def test_ask_brings_what_was_published():
    network = ring(4)
    transport = transport_on(network)
    transport.publish(2, np.array([1.0, 2.0]))
    replies = transport.converse([say(Ask((2, 3))) for _ in range(4)], "rounds")
    assert all(list(reply) == [2] for reply in replies)
    np.testing.assert_array_equal(replies[0][2], [1.0, 2.0])
    assert transport.bill.scalars == 4 * 2


def test_replies_are_read_only_and_letters_do_not_leak():
    network = ring(3)
    transport = transport_on(network)

    def sends_then_changes():
        x = np.ones(2)
        theirs = yield Exchange(x)
        x[:] = 99.0
        total = yield Sum(x)
        mixed = yield Mix(x, "metropolis")
        return theirs, total, mixed

    for theirs, total, mixed in transport.converse(
        [sends_then_changes() for _ in range(3)], "rounds"
    ):
        assert all((message == 1.0).all() for message in theirs.values())
        for reply in (*theirs.values(), total, mixed):
            with pytest.raises(ValueError, match="read-only"):
                reply[0] = 0.0


def test_two_words_at_one_step_name_both_agents():
    with pytest.raises(ProtocolError, match=r"agent 0 yielded Sum and agent 2 yielded Mix"):
        transport_on(ring(3)).converse(
            [say(Sum(np.ones(2))), say(Sum(np.ones(2))), say(Mix(np.ones(2)))], "rounds"
        )


def test_an_agent_that_falls_silent_is_noticed():
    def silent():
        return None
        yield

    with pytest.raises(ProtocolError, match="agent 1 ended the round while agent 0 yielded Sum"):
        transport_on(ring(3)).converse(
            [say(Sum(np.ones(2))), silent(), say(Sum(np.ones(2)))], "rounds"
        )


def test_letters_of_different_shape_or_type_are_named():
    with pytest.raises(ProtocolError, match=r"agent 1 sent float64\(3,\)"):
        transport_on(ring(3)).converse([say(Sum(np.ones(k))) for k in (2, 3, 2)], "rounds")
    with pytest.raises(ProtocolError, match="float32"):
        transport_on(ring(3)).converse(
            [say(Sum(np.ones(2, t))) for t in ("f8", "f4", "f8")], "rounds"
        )


@pytest.mark.parametrize("collective", [Sum, Mix, Exchange])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_letter_that_is_not_finite_names_its_sender(collective, bad):
    x = messages(3)
    x[1][0] = bad
    with pytest.raises(
        NumericalError, match=f"agent 1 sent {collective.__name__} with 1 of 6 numbers not finite"
    ):
        transport_on(ring(3)).converse([say(collective(own)) for own in x], "rounds")


def test_huge_numbers_are_no_false_alarm():
    reply = transport_on(ring(3)).converse(
        [say(Sum(np.full(4, 1e300))) for _ in range(3)], "rounds"
    )[0]
    np.testing.assert_array_equal(reply, 3e300)


def test_mix_needs_edges():
    with pytest.raises(InvalidNetwork, match="server"):
        transport_on(star(3, server=True)).converse(
            [say(Mix(np.ones(2))) for _ in range(3)], "rounds"
        )


@given(st.integers(1, 10), st.integers(0, 20), st.sampled_from(["f4", "f8"]))
def test_the_bill_is_the_closed_form(count, size, dtype):
    x = np.zeros(size, dtype)
    bits = 8 * x.itemsize
    served, graph = star(count, server=True), ring(count) if count > 2 else path(count)
    for network, collective, copies in (
        (served, Sum(x), 2 * count),
        (graph, Sum(x), 2 * (count - 1)),
        (graph, Mix(x), 2 * graph.n_edges),
        (graph, Exchange(x), 2 * graph.n_edges),
    ):
        transport = transport_on(network)
        for _ in range(3):
            transport.converse([say(collective) for _ in range(count)], "rounds")
            transport.bill.end_round()
        transport.converse([say(collective) for _ in range(count)], "proof")
        bill = transport.bill
        assert (bill.messages, bill.scalars, bill.bits) == (
            3 * copies,
            3 * copies * size,
            3 * copies * size * bits,
        )
        assert bill.per_round == [copies * size] * 3
        assert bill.total.scalars == 4 * copies * size
        assert sum(cost.scalars for cost in bill.per_agent) == bill.total.scalars
        assert sum(cost.bits for cost in bill.per_word.values()) == bill.total.bits
        assert sum(bill.per_edge.values()) == bill.total.bits
        restored = Bill(network)
        restored.restore(bill.state())
        assert restored == bill


def test_seconds_on_a_link():
    network = star(4, server=True)
    transport = transport_on(network)
    for _ in range(10):
        transport.converse([say(Sum(np.zeros(100))) for _ in range(4)], "rounds")
    # 10 sums, two hops each; the server sends 4 copies of 100 doubles each time
    assert transport.bill.seconds(latency=0.01, bandwidth=1e6) == pytest.approx(
        10 * 2 * 0.01 + 10 * 4 * 6400 / 1e6
    )


def test_exchanges_of_unequal_letters_are_counted_on_their_links():
    network = path(3)
    transport = transport_on(network)
    for _ in range(5):
        transport.converse([say(Exchange(np.zeros(size))) for size in (1, 10, 100)], "rounds")
    bill = transport.bill
    assert bill.per_direction == {(0, 1): 320, (1, 0): 3200, (1, 2): 3200, (2, 1): 32000}
    assert bill.per_edge == {(0, 1): 5 * 64 * (1 + 10), (1, 2): 5 * 64 * (10 + 100)}
    assert sum(bill.per_edge.values()) == bill.total.bits
    # Five hops: all neighbours hear at once; the last agent has the longest message.
    assert bill.seconds(latency=0.01, bandwidth=1e6) == pytest.approx(5 * 0.01 + 5 * 64 * 100 / 1e6)
    assert bill.money(per_gigabyte=2.0) == pytest.approx(2.0 * bill.total.bits / 8e9)


def test_every_matrix_is_its_own_rule():
    """Matrices that come and go must not be mistaken for each other, and equal ones are one
    rule.
    """
    network = ring(4)
    transport = transport_on(network)
    x = messages(4)
    for step in np.linspace(0.05, 0.3, 20):
        protocols = [say(Mix(own, network.laplacian_mixing(step).toarray())) for own in x]
        expected = network.laplacian_mixing(step).toarray() @ np.array(x)
        np.testing.assert_allclose(
            np.array(transport.converse(protocols, "rounds")), expected, atol=1e-12
        )
