"""The largest of everybody's numbers, without telling who has it where sums are secure."""

from __future__ import annotations

import math

import numpy as np

from coterie.run.agent import Agent
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import Case, Counts

STEPS = 4
"""With secure sums the largest number is rounded up to a power of 2^(1/4), at most 19 % more."""
LOWEST, HIGHEST = -64 * STEPS, 96 * STEPS
"""Between 2⁻⁶⁴ and 2⁹⁶, as secure sums can hold."""


def largest(agent: Agent, value: float) -> Protocol[float]:
    """The largest of the agents' numbers, none of them negative; all hear all of them.

    With secure sums all hear how many lie on which shelf, and the answer is the top of the highest
    shelf.
    """
    if not agent.secure_sums:
        return float((yield Sum(agent.one_hot(value))).max())
    places = np.zeros(HIGHEST - LOWEST + 1)
    if value > 0:
        shelf = min(max(math.ceil(STEPS * math.log2(value)), LOWEST), HIGHEST)
        places[shelf - LOWEST + (_top(shelf) < value and shelf < HIGHEST)] = 1.0
    taken = np.flatnonzero((yield Sum(places)))
    if taken.size:
        return _top(int(taken[-1]) + LOWEST)
    return 0.0


def most_of_largest(case: Case) -> Counts:
    """The largest counts of `largest`."""
    return 1, HIGHEST - LOWEST + 1 if case.secure_sums else case.parties


def _top(shelf: int) -> float:
    return float(2.0 ** (shelf / STEPS))
