"""The line search: a whole step if P falls enough, else the best of a few others.

    P(w + p) − P(w) ≤ ¼ (⟨∇f(w), p⟩ + g(w + p) − g(w))

For a quadratic P, the left side is a half of the expression in brackets. The value after a whole
step is one number. The values after several steps are one `Sum`. If P falls after none of them, a
`Sum` with shorter steps follows: all sizes are multiplied by the last one, until rounding hides
their gain. Newton's steps have about the right length, so the longest of the best steps is taken.
Other steps do not, and the best size is the minimum of a parabola through three values.

This is the only line search on sums over agents.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from coterie.numerics.arrays import FloatArray, sealed, shared_result
from coterie.numerics.tuning import Tuning, tuned
from coterie.run.agent import Agent
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import Counts

SHORTER = np.array([1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 64, 1 / 256, 1 / 1024])
"""The sizes of the steps that are tried together where a whole step is too long."""
LONGEST_SEARCH = 10
"""The number of sums after which a step is too short to matter: its size falls to 1024⁻¹⁰."""
HOPELESS = 1e20
"""Losses that overflow after a step count as this multiple of the objective."""
Values = Callable[[FloatArray], FloatArray]
"""The agent's own losses after steps of these sizes."""


@dataclass(frozen=True)
class _Tuning(Tuning):
    enough: float = tuned(
        0.25, "Share of the linear decrease at which a full step is taken.", "paper: Armijo 1966"
    )
    some: float = tuned(
        1e-4, "That share for a step whose length is a guess.", "paper: Armijo 1966"
    )
    rounding: float = tuned(
        1e-13, "Values of P with a smaller relative difference are equal.", "rounding: float64 sums"
    )


TUNING = _Tuning()


class Line(NamedTuple):
    """The line from a model, in the direction of a step."""

    w: FloatArray
    p: FloatArray
    """A whole step."""
    objective: float
    """P(w)."""
    linear: float
    """⟨∇f(w), p⟩ + g(w + p) − g(w), the linear change of P: negative."""

    @property
    def rounding(self) -> float:
        """The difference below which values of P are equal."""
        return TUNING.rounding * abs(self.objective)

    def is_enough(self, objective: float, share: float | None = None) -> bool:
        """Return whether a whole step that leads to that P decreases it enough: by that share of
        the linear decrease.
        """
        if share is None:
            share = TUNING.enough
        change = objective - self.objective
        return change <= share * self.linear + self.rounding

    def is_some(self, objective: float) -> bool:
        """Return whether P decreases enough for a step whose length is a guess."""
        return self.is_enough(objective, TUNING.some)

    def at(self, step_size: float) -> FloatArray:
        """Return the model after a step of that size."""
        return sealed(self.w + step_size * self.p)


def penalty_at(agent: Agent, w: FloatArray) -> float:
    """Return g(w)."""
    return agent.problem.penalty.value(agent.problem.coefficients(w))


def line_to(
    agent: Agent, w: FloatArray, target: FloatArray, gradient: FloatArray, losses: float
) -> Line:
    """Return the line from w to that target. At w, f has that gradient and n f is `losses`."""
    penalty = penalty_at(agent, w)
    penalty_there = penalty_at(agent, target)
    objective = agent.problem.primal(losses, agent.total, penalty)
    p = target - w
    linear = float(gradient @ p) + penalty_there - penalty
    return Line(w, p, objective, linear)


def objective_at(agent: Agent, losses: float, w: FloatArray) -> float:
    """Return P(w), where n f(w) is `losses`."""
    return agent.problem.primal(losses, agent.total, penalty_at(agent, w))


def objectives_at(
    agent: Agent, line: Line, step_sizes: FloatArray, losses: FloatArray
) -> FloatArray:
    """Return P after steps of these sizes, where n f is `losses`."""
    objectives = np.empty(len(losses))
    for k, step_size in enumerate(step_sizes):
        there = line.w + step_size * line.p
        objectives[k] = objective_at(agent, float(losses[k]), there)
    return objectives


def hopeless(agent: Agent, line: Line) -> float:
    """Return the number that an agent sends for losses that overflow after a step."""
    return HOPELESS * max(1.0, abs(line.objective) * agent.total)


def most_of_search(step_sizes: FloatArray = SHORTER) -> Counts:
    """Return the largest counts of one line search."""
    return LONGEST_SEARCH, LONGEST_SEARCH * len(step_sizes)


def best_step(
    agent: Agent,
    line: Line,
    whole: float,
    values: Values,
    step_sizes: FloatArray = SHORTER,
    between: bool = False,
) -> Protocol[float]:
    """Return the size of the best step; 0 if P falls after none.

    `whole` is P after a whole step, infinite if unknown. `between`: whether to find the minimum
    between the steps of these sizes.
    """
    if between:
        choose = _between
    else:
        choose = _longest
    step_size = 0.0
    tried = step_sizes
    while step_size == 0.0 and min(tried[0], 1.0) * -line.linear > line.rounding:
        own = values(tried)
        own = np.where(np.isfinite(own), own, hopeless(agent, line))
        losses = yield Sum(own)
        objectives = shared_result(losses, objectives_at, agent, line, tried, losses)
        step_size = shared_result(losses, choose, agent, line, whole, tried, objectives)
        tried = tried * step_sizes[-1]
    return step_size


def _longest(
    agent: Agent, line: Line, whole: float, step_sizes: FloatArray, objectives: FloatArray
) -> float:
    """Return the longest of the best steps, a whole one among them."""
    sizes = [1.0, *step_sizes]
    objectives = np.append(whole, objectives)
    least = min(line.objective, objectives.min())
    good = np.flatnonzero(objectives <= least + line.rounding)
    if good.size:
        return float(sizes[good[0]])
    return 0.0


def _between(
    agent: Agent, line: Line, whole: float, step_sizes: FloatArray, objectives: FloatArray
) -> float:
    """Return the minimum of a parabola through the best of these steps and its neighbours."""
    k = int(np.argmin(objectives))
    best = float(step_sizes[k])
    if not objectives[k] < line.objective:
        return 0.0
    is_last = not 0 < k < len(step_sizes) - 1
    if is_last or objectives[k - 1] * agent.total >= 0.5 * hopeless(agent, line):
        return best
    three = slice(k - 1, k + 2)
    a, b, _ = np.polyfit(step_sizes[three], objectives[three], 2)
    if not a > 0:
        return best
    minimum = -b / (2 * a)
    return float(np.clip(minimum, step_sizes[k + 1], step_sizes[k - 1]))


def penalty_slopes(
    agent: Agent, w: FloatArray, p: FloatArray, step_sizes: FloatArray
) -> FloatArray:
    """Return the derivatives of g(w + t p) by t after steps of these sizes, for a penalty by
    coefficient whose bounds are not passed.

    Where g has no derivative, it is the one before the step; at 0, the one after it.
    """
    pieces = agent.problem.penalty.pieces
    assert pieces is not None
    way = agent.problem.coefficients(p)
    there = agent.problem.coefficients(w) + step_sizes[:, None] * way
    slopes: FloatArray
    if np.ndim(pieces.ridge):
        slopes = there @ (pieces.ridge * way)
    else:
        slopes = pieces.ridge * (there @ way)
    if pieces.has_threshold:
        side = np.where(step_sizes > 0, -1.0, 1.0)[:, None]
        signs = np.where(there == 0, side * np.sign(way), np.sign(there))
        if np.ndim(pieces.threshold):
            slopes += signs @ (pieces.threshold * way)
        else:
            slopes += pieces.threshold * (signs @ way)
    return slopes


def step_by_slopes(step_sizes: FloatArray, slopes: FloatArray, first_slope: float) -> float:
    """The size of a step to where the slope of a convex function along it is about 0.

    Parameters
    ----------
    step_sizes : array
        Descending, the first one is a whole step.
    slopes : array
        The slope after a step of each of these sizes.
    first_slope : float
        The slope at the beginning, negative; 0 where it is not known.

    Returns
    -------
    float
        1 if the function still falls after a whole step. Else the zero of the line through the
        slopes on both sides of 0. If the slope is positive after the shortest step and not known
        at the beginning, 0.
    """
    if slopes[0] <= 0.0:
        return 1.0
    below = np.flatnonzero(slopes <= 0.0)
    if below.size:
        k = int(below[0])
        low, high = float(step_sizes[k]), float(step_sizes[k - 1])
        rise, fall = float(slopes[k - 1]), float(-slopes[k])
    elif first_slope < 0.0:
        low, high = 0.0, float(step_sizes[-1])
        rise, fall = float(slopes[-1]), -first_slope
    else:
        return 0.0
    return low + (high - low) * fall / (rise + fall)
