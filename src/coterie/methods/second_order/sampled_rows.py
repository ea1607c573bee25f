"""The part of an agent's rows that a Newton step needs, and the least curvature of these rows.

With m rows for d columns, H is off by a share ε of about √(d/m). Far from the minimum, that is as
good as all rows. With many rows it is good near the minimum, too: a step with that H leaves ε² of
the gap, and ε is small as long as P falls by as much as the quadratic model foresees.
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
        2**20, "Size of dense data from which on H is made of a part of the rows.", MNIST
    )
    sampled_rows: int = tuned(4, "The least number of rows of the part, per column.", MNIST)
    thinnest: int = tuned(
        7,
        "The part has every third, fifth or at most this row (rows may come in twos and fours).",
        MNIST,
    )
    stride: float = tuned(
        0.3, "The part serves while P falls by more than this share in a round.", MNIST, below=1
    )
    rich: int = tuned(500, "A part with this number of rows per column is rich.", MANY)
    faithful: float = tuned(
        0.2, "A rich part serves while P falls as foreseen, up to this share of it.", MANY, below=1
    )


TUNING = _Tuning()


def first_sample(agent: Agent, suits: bool) -> int:
    """Return the number of rows that one row represents in the first H, if a part suits the
    problem.

    A part may lack sparse columns, and sparse products are cheap. With weights, n is no count.
    """
    n = agent.total
    width = agent.design.shape[1]
    is_small = n * width < TUNING.sampled_from
    is_weighted = agent.data.weights is not None
    if not suits or is_small or is_weighted or is_sparse(agent.design.X):
        return 1
    most = int(n / (TUNING.sampled_rows * width))
    every = min(most, TUNING.thinnest)
    odd = every - 1 + every % 2
    return max(odd, 1)


def next_sample(agent: Agent, every: int, before: float, after: float, foreseen: float) -> int:
    """Return the number of rows that one row represents in the next H, after P fell from `before`
    to `after`.
    """
    if every == 1:
        return 1
    gain = before - after
    width = agent.design.shape[1]
    is_rich = agent.total >= TUNING.rich * width * every
    is_faithful = abs(gain - foreseen) <= TUNING.faithful * foreseen
    if (is_rich and is_faithful) or gain > TUNING.stride * abs(before):
        return every
    return 1


def thinned(curvature: FloatArray, every: int) -> FloatArray:
    """Keep every n-th of these numbers, enlarged so that they represent all; 0 for the others."""
    some = np.zeros_like(curvature)
    chosen = curvature[..., ::every]
    represented = curvature.shape[-1] / max(chosen.shape[-1], 1)
    some[..., ::every] = chosen * represented
    return some


def raised(loss: Loss, curvature: FloatArray, floor: Step) -> FloatArray:
    """Raise ℓ'' to that floor; a piecewise constant ℓ'' only if most of the agent's rows are below
    it.
    """
    enough: FloatArray = np.maximum(curvature, floor)
    if by_pieces(loss):
        below = np.count_nonzero(curvature < floor, axis=-1, keepdims=True)
        is_few = 2 * below <= curvature.shape[-1]
        enough = np.where(is_few, curvature, enough)
    return enough


def by_pieces(loss: Loss) -> bool:
    """Return whether ℓ'' is piecewise constant."""
    return loss.conjugate_curvature is not None
