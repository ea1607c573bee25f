"""Protocols of sums that one process drives: alone, observed, limited and combined."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.numerics.arrays import FloatArray
from coterie.run.collectives import Exchange, Protocol, Sum, alone, combined, limited, observed


def two_sums(x: FloatArray) -> Protocol[FloatArray]:
    """The sum of x, and then the sum of twice the first reply: three times the result of each."""
    first = yield Sum(x)
    second = yield Sum(2 * first)
    return first + second


def one_exchange() -> Protocol[None]:
    yield Exchange(np.zeros(1))


def test_a_sum_of_one_party_is_its_own_message() -> None:
    assert alone(two_sums(np.array([1.0, 2.0]))).tolist() == [3.0, 6.0]


def test_each_sum_is_observed_before_it_is_sent() -> None:
    seen: list[list[float]] = []
    protocol = observed(two_sums(np.ones(1)), lambda message: seen.append(message.x.tolist()))
    assert next(protocol).x.tolist() == [1.0]
    assert seen == [[1.0]]
    # Two parties with the same numbers: the reply is twice the message.
    assert protocol.send(np.full(1, 2.0)).x.tolist() == [4.0]
    assert seen == [[1.0], [4.0]]
    with pytest.raises(StopIteration) as end:
        protocol.send(np.full(1, 8.0))
    assert end.value.value.tolist() == [10.0]


def test_a_limited_protocol_is_refused_before_the_message_that_is_too_long() -> None:
    x = np.ones(3)
    refusal = ValueError("too many numbers")
    assert alone(limited(two_sums(x), 6, refusal)).tolist() == [3.0, 3.0, 3.0]
    protocol = limited(two_sums(x), 5, refusal)
    assert next(protocol).x.size == 3
    with pytest.raises(ValueError, match="too many numbers"):
        protocol.send(x)


def test_combined_protocols_send_one_message_in_each_step() -> None:
    sizes: list[int] = []
    protocols = [two_sums(np.ones(2)), two_sums(np.full((1, 3), 2.0))]
    together = observed(combined(protocols), lambda message: sizes.append(message.x.size))
    first, second = alone(together)
    assert first.tolist() == [3.0, 3.0]
    assert second.tolist() == [[6.0, 6.0, 6.0]]
    assert sizes == [5, 5]


def test_only_sums_can_be_answered_alone() -> None:
    with pytest.raises(AssertionError, match="only sums"):
        alone(one_exchange())
