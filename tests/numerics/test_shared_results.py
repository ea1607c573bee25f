"""What all agents of a process make of one message is computed once, by whichever thread comes
first.
"""

from __future__ import annotations

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from coterie.numerics import arrays
from coterie.numerics.arrays import sealed, shared_result
from tests.engines.test_replayed import LONG, SYNCHRONOUS
from tests.harness.cluster_cases import fit, summary

PATIENCE = 200


class Forgetful(dict):
    """A memory in which nothing is found."""

    def get(self, key, default=None):
        return default


@pytest.mark.rotates
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in SYNCHRONOUS],
)
def test_sharing_changes_no_bit(name, monkeypatch):
    """Two questions that share a function and a message by mistake would be answered alike."""
    shared = summary(fit(name, "local"))
    monkeypatch.setattr(arrays, "_shared", Forgetful())
    alone = summary(fit(name, "local"))
    assert alone["model"] == shared["model"]
    assert alone["bill"] == shared["bill"]
    assert list(alone["gaps"]) == list(shared["gaps"])


def in_threads(*tasks):
    """What each of them gives, all begun at the same time; none may wait for ever."""
    together = threading.Barrier(len(tasks))

    def begun(task):
        together.wait(PATIENCE)
        return task()

    with ThreadPoolExecutor(len(tasks)) as pool:
        return [future.result(PATIENCE) for future in [pool.submit(begun, task) for task in tasks]]


def test_threads_compute_it_once():
    calls = []

    def total(x):
        calls.append(threading.get_ident())
        threading.Event().wait(0.05)
        return float(x.sum())

    for _ in range(3):
        message = sealed(np.arange(5.0))
        assert (
            in_threads(*[lambda message=message: shared_result(message, total, message)] * 8)
            == [10.0] * 8
        )
    assert len(calls) == 3


def test_results_that_ask_for_each_other_in_any_order():
    calls = []

    def counted(name, *needs):
        threading.Event().wait(0.01)
        calls.append(name)
        return sum((need() for need in needs), 1)

    def first():
        return counted("first")

    def second():
        return counted("second", ask_first)

    def third():
        return counted("third", ask_second, ask_first)

    def ask_first():
        return shared_result(message, first)

    def ask_second():
        return shared_result(message, second)

    def ask_third():
        return shared_result(message, third)

    for _ in range(5):
        message, calls[:] = sealed(np.zeros(1)), []
        assert in_threads(ask_third, ask_first, ask_second, ask_third, ask_second) == [
            4,
            1,
            2,
            4,
            2,
        ]
        assert sorted(calls) == ["first", "second", "third"]


def test_nobody_waits_for_another_message():
    """Two runs in one process: while one computes, the other does."""
    began, other_done = threading.Event(), threading.Event()

    def work(name):
        if name == "slow":
            began.set()
            assert other_done.wait(PATIENCE)
        return name

    def other():
        assert began.wait(PATIENCE)
        answer = shared_result(two, work, "quick")
        other_done.set()
        return answer

    one, two = sealed(np.zeros(1)), sealed(np.zeros(1))
    assert in_threads(lambda: shared_result(one, work, "slow"), other) == ["slow", "quick"]


def test_a_failure_is_not_remembered():
    attempts = []

    def work():
        attempts.append(1)
        if len(attempts) == 1:
            raise ZeroDivisionError
        return len(attempts)

    message = sealed(np.zeros(1))
    with pytest.raises(ZeroDivisionError):
        shared_result(message, work)
    assert [shared_result(message, work) for _ in range(2)] == [2, 2]


def test_another_message_key_or_place_in_the_code_is_another_question():
    message, calls = sealed(np.zeros(1)), []

    def work(x):
        calls.append(x)
        return len(calls)

    assert shared_result(message, work, 1) == shared_result(message, work, 1) == 1
    assert shared_result(message, work, 1, key="other") == 2
    assert shared_result(sealed(np.zeros(1)), work, 1) == 3
    assert shared_result(message, lambda: work(1)) == 4
    blackboard = np.zeros(1)
    assert shared_result(blackboard, work, 1) == 5
    assert shared_result(blackboard, work, 1) == 6, "what can still be written on is no message"


def test_results_live_as_long_as_their_message():
    message = sealed(np.zeros(1))
    result = weakref.ref(shared_result(message, lambda: np.ones(3)))
    gc.collect()
    assert result() is not None
    del message
    gc.collect()
    assert result() is None
