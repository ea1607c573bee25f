"""The bytes of gossip messages: they are read as they were written, and anything else is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import ProtocolError
from coterie.transport.updates import CHANGES, KIND_BITS, NOTE, Message, bits_for, encode

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


@given(st.integers(1, 3000), st.data())
def test_entries_are_read_as_written(n, data):
    width, agent = bits_for(n), data.draw(st.integers(0, 4))
    places = data.draw(st.lists(st.integers(0, n - 1), max_size=9)) if n > 1 else [0]
    plain = data.draw(st.integers(0, 3))
    size = plain + len(places)
    numbers = data.draw(st.lists(NUMBERS, min_size=size, max_size=size))
    last = data.draw(st.booleans())
    fields = [(agent, 3), *((place, width) for place in places)]
    written = encode(CHANGES, fields, numbers, last)
    bits = KIND_BITS + 3 + width * len(places)
    assert written.nbytes == -(-bits // 8) + 8 * size
    message = Message.of(written)
    assert (message.kind, message.last, message.fields([3])) == (CHANGES, last, [agent])
    found, values = message.entries(3, plain, width)
    assert found == places
    assert values.tolist() == numbers


@pytest.mark.parametrize(
    "message",
    [np.empty(0, np.uint8), np.zeros(3), encode(NOTE, [(1, 3)], [1.0])[:-1]],
    ids=["empty", "numbers", "cut off"],
)
def test_other_messages_are_refused(message):
    with pytest.raises(ProtocolError):
        Message.of(message).numbers(3)
    with pytest.raises(ProtocolError):
        Message.of(message).entries(3, 0, 4)


def test_a_message_without_its_whole_numbers_is_refused():
    with pytest.raises(ProtocolError, match="too short"):
        Message.of(encode(NOTE, [])).fields([9])
