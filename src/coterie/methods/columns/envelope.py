"""A loss that is smooth, or is made so, as the agent with the labels sees it along a line.

Around a centre c, one number per row, a loss with kinks is replaced by its envelope of that width:

    ℓ_c(u) = max_v  u v − ℓ*(v) − (width/2)(v − c)²            with the slope v =
                    prox_{ℓ*/width}(u/width + c)

Its minimum is one step of the proximal point method on the dual, of which c is the last point: the
envelope becomes exact although the width does not go to 0. Nobody but the agent with the labels
needs to know c or the width.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coterie.numerics.arrays import FloatArray
from coterie.numerics.losses import Loss
from coterie.numerics.tuning import Tuning, tuned
from coterie.run.agent import Agent

FARTHEST = 1e8
"""No step is longer than so many times the way."""
EXACT, LOOKS = 1e-8, 60
"""A step ends the search if the slope along the line is this share of the first one; at most so
many looks.
"""


@dataclass(frozen=True)
class _Tuning(Tuning):
    few: int = tuned(
        6, "The width becomes less for the next centre where one took fewer rounds than this ..."
    )
    slow: float = tuned(
        0.3, "... or its envelope costs more than this share of what the last one cost.", below=1
    )
    many: int = tuned(16, "The width becomes more where one took more rounds than this.")
    narrower: float = tuned(
        0.5,
        "By which factor it becomes less; one over it, by which it becomes more.",
        below=1,
        costs=2.2,
    )
    least_inside: float = tuned(
        0.1, "The least share of rows that are between kinks, in the first guess.", below=1
    )


TUNING = _Tuning()


def is_smooth(agent: Agent) -> bool:
    """Whether the loss needs no envelope."""
    return agent.problem.loss.smooth


def gradients(agent: Agent, scores: FloatArray, centre: FloatArray, width: float) -> FloatArray:
    """ℓ' of every row; with a width, that of the envelope, which lies in the domain of ℓ*."""
    loss = agent.loss
    y = agent.exact_labels
    if width:
        return loss.dual_prox(scores / width + centre, y, 1.0 / width)
    return loss.gradient(scores, y)


def bend_of(agent: Agent, scores: FloatArray, v: FloatArray, width: float) -> float:
    """The mean of ℓ'', in a first guess."""
    loss = agent.loss
    y = agent.exact_labels
    if type(agent.problem.loss).curvature is Loss.curvature and not width:
        return loss.smoothness
    if not width:
        return float(agent.weighted(loss.curvature(scores, y)).sum()) / agent.total or 1.0
    lower, upper = loss.domain(y)
    return max(float(np.mean((lower < v) & (v < upper))), TUNING.least_inside) / width


def next_width(width: float, rounds: int, cost: float, last: float) -> float:
    """The width around the next centre, when this one took so many rounds, and what it and the last
    one cost.
    """
    if rounds > TUNING.many:
        return width / TUNING.narrower
    fast = rounds < TUNING.few or cost > TUNING.slow * last
    if fast:
        return width * TUNING.narrower
    return width


def step_along(
    agent: Agent,
    scores: FloatArray,
    image: FloatArray,
    centre: FloatArray,
    width: float,
    penalty: tuple[float, float],
    most: float,
) -> float:
    """The t up to `most` that minimises (1/n) Σ s ℓ(scores + t image) + a t + ½ b t², where the
    penalty is (a, b); 0 where the way does not lead down.
    """
    weighted = agent.weighted(image) / agent.total

    def slope(t: float) -> float:
        return (
            float(gradients(agent, scores + t * image, centre, width) @ weighted)
            + penalty[0]
            + t * penalty[1]
        )

    low = 0.0
    at_low = slope(0.0)
    first = at_low
    if not first < 0:
        return 0.0
    high = 1.0
    while (at_high := slope(high)) < 0:
        if high >= min(most, FARTHEST):
            return high
        low = high
        at_low = at_high
        high = 4.0 * high
    # Regula falsi in Illinois's form: it stays between, and for a quadratic its first look is
    # exact.
    kept = 0
    for look in range(1, LOOKS + 1):
        # Every third look is half way: a loss may be as steep as eᵘ.
        if look % 3 == 0:
            t = (low + high) / 2
        else:
            t = low - at_low * (high - low) / (at_high - at_low)
        at = slope(t)
        if abs(at) <= -EXACT * first or not low < t < high:
            return t
        if at < 0:
            low = t
            at_low = at
            if kept < 0:
                at_high = at_high / 2
            kept = -1
        else:
            high = t
            at_high = at
            if kept > 0:
                at_low = at_low / 2
            kept = 1
    return low
