"""The curvature of an agent's rows in a Newton step: how many of them it needs, and how flat they
may be.

With m rows for d columns H is off by a share of about √(d/m). Far from the minimum that is as good
as all rows. Where rows are many it still is near the minimum: a step with an H that is off by ε
leaves ε² of the gap, and as long as P falls by what the quadratic model foresees, ε is small.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coterie.numerics.arrays import FloatArray, is_sparse
from coterie.numerics.losses import Loss
from coterie.numerics.losses.loss import Step
from coterie.numerics.tuning import Tuning, tuned
from coterie.run.agent import Agent

MNIST = "measured: MNIST, logistic"
MANY = "measured: 3,000,000 × 50, logistic"


@dataclass(frozen=True)
class _Tuning(Tuning):
    sampled_from: int = tuned(
        2**20, "Numbers from which on H is made of a part of the dense rows, ...", MNIST
    )
    sampled_rows: int = tuned(4, "... of at least so many for each column, ...", MNIST)
    thinnest: int = tuned(
        7,
        "... of every third, fifth or at most this one (rows may come in twos and fours), ...",
        MNIST,
    )
    stride: float = tuned(
        0.3, "... while P falls by more than this share in a round, ...", MNIST, below=1
    )
    rich: int = tuned(500, "... or, with so many rows of the part for each column, ...", MANY)
    faithful: float = tuned(
        0.2, "... while P falls by what was foreseen, up to this share of it.", MANY, below=1
    )


TUNING = _Tuning()


def first_sample(agent: Agent, suits: bool) -> int:
    """How many rows one stands for in the first H, if it suits the problem.

    Sparse columns might be missed, and are cheap; and with weights n is no count.
    """
    n = agent.total
    width = agent.design.shape[1]
    if (
        not suits
        or is_sparse(agent.design.X)
        or agent.data.weights is not None
        or n * width < TUNING.sampled_from
    ):
        return 1
    every = min(int(n / (TUNING.sampled_rows * width)), TUNING.thinnest)
    return max(every - 1 + every % 2, 1)


def next_sample(agent: Agent, every: int, before: float, after: float, foreseen: float) -> int:
    """How many rows one stands for in the next H, after P fell from `before` to `after`."""
    if every == 1:
        return 1
    gain = before - after
    width = agent.design.shape[1]
    rich = (
        agent.total >= TUNING.rich * width * every
        and abs(gain - foreseen) <= TUNING.faithful * foreseen
    )
    if rich or gain > TUNING.stride * abs(before):
        return every
    return 1


def thinned(curvature: FloatArray, every: int) -> FloatArray:
    """One of so many of these numbers, enlarged so that they stand for all; 0 for the others."""
    some = np.zeros_like(curvature)
    chosen = curvature[..., ::every]
    some[..., ::every] = chosen * (curvature.shape[-1] / max(chosen.shape[-1], 1))
    return some


def raised(loss: Loss, curvature: FloatArray, floor: Step) -> FloatArray:
    """ℓ'' with that floor; where it is constant by pieces, only if most of its own rows are below
    it.
    """
    enough: FloatArray = np.maximum(curvature, floor)
    if by_pieces(loss):
        few = 2 * np.count_nonzero(curvature < floor, axis=-1, keepdims=True) <= curvature.shape[-1]
        enough = np.where(few, curvature, enough)
    return enough


def by_pieces(loss: Loss) -> bool:
    """Whether ℓ'' is constant by pieces."""
    return loss.conjugate_curvature is not None
