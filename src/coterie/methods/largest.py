"""The largest number of all agents. With secure sums, no agent learns which agent has it."""

from __future__ import annotations

import math

import numpy as np

from coterie.run.agent import Agent
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import Case, Counts

STEPS = 4
"""With secure sums the largest number is rounded up to a power of 2^(1/4), at most 19 % more."""
LOWEST = -64 * STEPS
HIGHEST = 96 * STEPS
"""Powers between 2⁻⁶⁴ and 2⁹⁶: secure sums can hold these."""


def largest(agent: Agent, value: float) -> Protocol[float]:
    """Return the largest of the agents' numbers, none of them negative; all agents learn all
    numbers.

    With secure sums all agents learn how many numbers are in each interval between two powers, and
    the answer is the upper end of the highest of these intervals.
    """
    if not agent.secure_sums:
        values = yield Sum(agent.one_hot(value))
        return float(values.max())
    own = np.zeros(HIGHEST - LOWEST + 1)
    if value > 0:
        own[_interval(value) - LOWEST] = 1.0
    counts = yield Sum(own)
    taken = np.flatnonzero(counts)
    if taken.size:
        return _top(int(taken[-1]) + LOWEST)
    return 0.0


def most_of_largest(case: Case) -> Counts:
    """Return the largest counts of `largest`."""
    if case.secure_sums:
        return 1, HIGHEST - LOWEST + 1
    return 1, case.parties


def _interval(value: float) -> int:
    """Return the number of the interval that contains a value."""
    power = math.ceil(STEPS * math.log2(value))
    interval = min(max(power, LOWEST), HIGHEST)
    if _top(interval) < value and interval < HIGHEST:
        return interval + 1  # the logarithm was rounded down
    return interval


def _top(interval: int) -> float:
    """Return the upper end of an interval."""
    return float(2.0 ** (interval / STEPS))
