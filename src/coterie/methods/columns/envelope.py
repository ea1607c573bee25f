"""The loss along a line at the label agent; a non-smooth loss is replaced by a smooth envelope.

The envelope has a width, and a centre c with one number per row:

    ℓ_c(u)  = max_v  u v − ℓ*(v) − (width/2)(v − c)²
    ℓ_c'(u) = prox_{ℓ*/width}(u/width + c)

The minimum with the envelope is one step of the proximal point method on the dual problem, from c.
So the envelope becomes exact although the width does not go to 0. Only the label agent needs to
know c and the width.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coterie.numerics.arrays import FloatArray
from coterie.numerics.losses import Loss
from coterie.numerics.tuning import Tuning, tuned
from coterie.run.agent import Agent

FARTHEST = 1e8
"""The largest step size."""
EXACT = 1e-8
"""A step size is found when the derivative along the line is this share of the first one."""
TRIALS = 60
"""The largest number of step sizes that are tried."""


@dataclass(frozen=True)
class _Tuning(Tuning):
    few: int = tuned(6, "After a centre with fewer rounds than this, the next width is smaller.")
    slow: float = tuned(
        0.3,
        "The next width is smaller if an envelope costs more than this share of the last.",
        below=1,
    )
    many: int = tuned(16, "After a centre with more rounds than this, the next width is larger.")
    narrower: float = tuned(
        0.5,
        "The factor of a smaller width; a larger one is divided by it.",
        below=1,
        costs=2.2,
    )
    least_inside: float = tuned(
        0.1,
        "The least share of rows at a smooth point of the envelope, in the estimate of ℓ''.",
        below=1,
    )


TUNING = _Tuning()


def is_smooth(agent: Agent) -> bool:
    """Return whether the loss needs no envelope."""
    return agent.problem.loss.smooth


def gradients(agent: Agent, scores: FloatArray, centre: FloatArray, width: float) -> FloatArray:
    """Return ℓ' of every row; with a width, that of the envelope, which is in the domain of ℓ*."""
    loss = agent.loss
    y = agent.exact_labels
    if width:
        return loss.dual_prox(scores / width + centre, y, 1.0 / width)
    return loss.gradient(scores, y)


def mean_curvature(agent: Agent, scores: FloatArray, v: FloatArray, width: float) -> float:
    """Estimate the mean of ℓ''."""
    loss = agent.loss
    y = agent.exact_labels
    if type(agent.problem.loss).curvature is Loss.curvature and not width:
        return loss.smoothness
    if not width:
        total = float(agent.weighted(loss.curvature(scores, y)).sum())
        return total / agent.total or 1.0
    lower, upper = loss.domain(y)
    inside = float(np.mean((lower < v) & (v < upper)))
    return max(inside, TUNING.least_inside) / width


def next_width(width: float, rounds: int, cost: float, last: float) -> float:
    """Return the width around the next centre, from the rounds of this centre, the cost of its
    envelope and that of the last one.
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
    score_change: FloatArray,
    centre: FloatArray,
    width: float,
    penalty: tuple[float, float],
    most: float,
) -> float:
    """Return the t up to `most` that minimises (1/n) Σ s ℓ(scores + t score_change) + a t + ½ b t².

    The penalty is (a, b). The result is 0 where the objective does not decrease along the line.
    """
    weighted = agent.weighted(score_change) / agent.total
    linear, quadratic = penalty

    def derivative(t: float) -> float:
        of_loss = float(gradients(agent, scores + t * score_change, centre, width) @ weighted)
        return of_loss + linear + t * quadratic

    low = 0.0
    at_low = derivative(0.0)
    first = at_low
    if not first < 0:
        return 0.0
    high = 1.0
    while (at_high := derivative(high)) < 0:
        if high >= min(most, FARTHEST):
            return high
        low = high
        at_low = at_high
        high = 4.0 * high
    # Regula falsi in Illinois's form stays between low and high. For a quadratic its first trial is
    # exact.
    kept = 0
    for trial in range(1, TRIALS + 1):
        # Every third trial is half-way: a loss may be as steep as eᵘ.
        if trial % 3 == 0:
            t = (low + high) / 2
        else:
            t = low - at_low * (high - low) / (at_high - at_low)
        at = derivative(t)
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
