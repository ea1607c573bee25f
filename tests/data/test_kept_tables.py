"""A worker keeps what it has read, and forgets it, also while another thread reads."""

from __future__ import annotations

from coterie.data.remote_table import keep, keeping


def test_a_worker_keeps_the_last_key_of_a_place():
    read = []

    def reading(key):
        return keep("table", key, lambda: read.append(key) or len(read))

    assert (reading("a"), reading("a")) == (1, 2)
    with keeping():
        assert [reading("a"), reading("a"), reading("b"), reading("b")] == [3, 3, 4, 4]
    assert reading("b") == 5


def test_what_is_read_while_a_worker_forgets_is_returned():
    """An operation ends, and its worker forgets, while a question of the next one reads."""
    kept = keeping()
    kept.__enter__()

    def reading():
        kept.__exit__(None, None, None)
        return "read"

    assert keep("table", "a", reading) == "read"
