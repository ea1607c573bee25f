"""The line search: a whole step if P falls enough, else the best of a few others.

    P(w + p) − P(w) ≤ ¼ (⟨∇f(w), p⟩ + g(w + p) − g(w))          A quadratic P would fall by a half
    of the right side.

The value after a whole step is one number. The values after several steps are one `Sum`. If P falls
after none of them, steps follow that are as much shorter as the last of them is than a whole step,
until rounding hides what they could gain. Newton's steps have about the right length: the longest
of the best steps is taken. Others do not: the best step is the minimum of a parabola through three
values.

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
"""The losses after a step that leaves the range of numbers count as this multiple of the objective,
at least.
"""
Values = Callable[[FloatArray], FloatArray]
"""The agent's own losses after steps of these sizes."""


@dataclass(frozen=True)
class _Tuning(Tuning):
    enough: float = tuned(
        0.25, "Share of the linear decrease at which a full step is taken.", "paper: Armijo 1966"
    )
    some: float = tuned(1e-4, "The same for a step whose length is a guess.", "paper: Armijo 1966")
    rounding: float = tuned(
        1e-13, "Values of P that differ by less, relatively, are equal.", "rounding: float64 sums"
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
        """Values of P that differ by less are equal."""
        return TUNING.rounding * abs(self.objective)

    def is_enough(self, objective: float, share: float | None = None) -> bool:
        """Whether a whole step is taken after which P is that: it falls by that share of the linear
        decrease.
        """
        if share is None:
            share = TUNING.enough
        return objective - self.objective <= share * self.linear + self.rounding

    def is_some(self, objective: float) -> bool:
        """The same for a step whose length is a guess."""
        return self.is_enough(objective, TUNING.some)

    def at(self, step_size: float) -> FloatArray:
        """The model after a step of that size."""
        return sealed(self.w + step_size * self.p)


def penalty_at(agent: Agent, w: FloatArray) -> float:
    """g(w)."""
    return agent.problem.penalty.value(agent.problem.coefficients(w))


def line_to(
    agent: Agent, w: FloatArray, target: FloatArray, gradient: FloatArray, losses: float
) -> Line:
    """The line to that target from w, where f has that gradient and n f is `losses`."""
    penalty = penalty_at(agent, w)
    penalty_there = penalty_at(agent, target)
    objective = agent.problem.primal(losses, agent.total, penalty)
    p = target - w
    return Line(w, p, objective, float(gradient @ p) + penalty_there - penalty)


def objective_at(agent: Agent, losses: float, w: FloatArray) -> float:
    """P(w), where n f(w) is `losses`."""
    return agent.problem.primal(losses, agent.total, penalty_at(agent, w))


def objectives_at(
    agent: Agent, line: Line, step_sizes: FloatArray, losses: FloatArray
) -> FloatArray:
    """P after steps of these sizes, where n f is `losses`."""
    pairs = zip(losses, step_sizes, strict=True)
    return np.array([objective_at(agent, float(f), line.w + t * line.p) for f, t in pairs])


def hopeless(agent: Agent, line: Line) -> float:
    """What an agent sends as its losses after a step that leaves the range of numbers."""
    return HOPELESS * max(1.0, abs(line.objective) * agent.total)


def most_of_search(step_sizes: FloatArray = SHORTER) -> Counts:
    """The largest counts of one line search."""
    return LONGEST_SEARCH, LONGEST_SEARCH * len(step_sizes)


def best_step(
    agent: Agent,
    line: Line,
    whole: float,
    values: Values,
    step_sizes: FloatArray = SHORTER,
    between: bool = False,
) -> Protocol[float]:
    """The size of the best step; 0 if P falls after none. P after a whole step is `whole`, infinite
    if not known.

    `between`: whether to look for the minimum between the steps of these sizes.
    """
    step_size = 0.0
    tried = step_sizes
    while step_size == 0.0 and min(tried[0], 1.0) * -line.linear > line.rounding:
        own = values(tried)
        losses = yield Sum(np.where(np.isfinite(own), own, hopeless(agent, line)))
        if between:
            choose = _between
        else:
            choose = _longest
        objectives = shared_result(losses, objectives_at, agent, line, tried, losses)
        step_size = shared_result(losses, choose, agent, line, whole, tried, objectives)
        tried = tried * step_sizes[-1]
    return step_size


def _longest(
    agent: Agent, line: Line, whole: float, step_sizes: FloatArray, objectives: FloatArray
) -> float:
    """The longest of the best steps, a whole one among them."""
    objectives = np.append(whole, objectives)
    good = np.flatnonzero(objectives <= min(line.objective, objectives.min()) + line.rounding)
    if good.size:
        return float([1.0, *step_sizes][good[0]])
    return 0.0


def _between(
    agent: Agent, line: Line, whole: float, step_sizes: FloatArray, objectives: FloatArray
) -> float:
    """The minimum of a parabola through the best of these steps and those next to it."""
    k = int(np.argmin(objectives))
    if not objectives[k] < line.objective:
        return 0.0
    if not 0 < k < len(step_sizes) - 1 or objectives[k - 1] * agent.total >= 0.5 * hopeless(
        agent, line
    ):
        return float(step_sizes[k])
    a, b, _ = np.polyfit(step_sizes[k - 1 : k + 2], objectives[k - 1 : k + 2], 2)
    if a > 0:
        return float(np.clip(-b / (2 * a), step_sizes[k + 1], step_sizes[k - 1]))
    return float(step_sizes[k])
