"""The line search: a whole step if P falls enough, else the best of a few shorter steps.

    P(w + p) − P(w) ≤ ¼ (⟨∇f(w), p⟩ + g(w + p) − g(w))          A quadratic P would fall by a half of the right side.

The value after a whole step is one number. The values after seven shorter steps are one `Sum`. If P falls after none of
them, seven steps that are 1024 times shorter follow, until rounding hides what they could gain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from coterie.agent import Agent
from coterie.arrays import FloatArray, sealed, shared_result
from coterie.tuning import Tuning, tuned
from coterie.words import Sum, Talk

SHORTER = np.array([1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 64, 1 / 256, 1 / 1024])
"""The sizes of the steps that are tried together where a whole step is too long."""
Values = Callable[[FloatArray], FloatArray]
"""The agent's own losses after steps of these sizes."""


@dataclass(frozen=True)
class _Tuning(Tuning):
    enough: float = tuned(0.25, "Share of the linear decrease at which a full step is taken.", "paper: Armijo 1966")
    rounding: float = tuned(1e-13, "Values of P that differ by less, relatively, are equal.", "rounding: float64 sums")


TUNING = _Tuning()


class Line(NamedTuple):
    """The line from a model to a target."""

    w: FloatArray
    target: FloatArray
    objective: float
    """P(w)."""
    linear: float
    """⟨∇f(w), p⟩ + g(w + p) − g(w), the linear change of P: negative."""

    @property
    def rounding(self) -> float:
        """Values of P that differ by less are equal."""
        return TUNING.rounding * abs(self.objective)

    def is_enough(self, objective: float) -> bool:
        """Whether a whole step is taken after which P is that."""
        return objective - self.objective <= TUNING.enough * self.linear + self.rounding

    def at(self, step_size: float) -> FloatArray:
        """The model after a step of that size."""
        return sealed(self.w + step_size * (self.target - self.w))


def penalty_at(agent: Agent, w: FloatArray) -> float:
    """g(w)."""
    return agent.problem.penalty.value(agent.problem.coefficients(w))


def line_to(agent: Agent, w: FloatArray, target: FloatArray, gradient: FloatArray, losses: float) -> Line:
    """The line to that target from w, where f has that gradient and n f is `losses`."""
    penalty, penalty_there = penalty_at(agent, w), penalty_at(agent, target)
    objective = agent.problem.primal(losses, agent.total, penalty)
    return Line(w, target, objective, float(gradient @ (target - w)) + penalty_there - penalty)


def objective_at(agent: Agent, losses: float, w: FloatArray) -> float:
    """P(w), where n f(w) is `losses`."""
    return agent.problem.primal(losses, agent.total, penalty_at(agent, w))


def shorter_step(agent: Agent, line: Line, whole: float, values: Values) -> Talk[float]:
    """The size of the best step; 0 if P falls after none. P after a whole step is `whole`."""
    step_size, step_sizes = 0.0, SHORTER
    while step_size == 0.0 and step_sizes[0] * -line.linear > line.rounding:
        losses = yield Sum(values(step_sizes))
        step_size = shared_result(losses, _best, agent, line, whole, step_sizes, losses)
        step_sizes = step_sizes * SHORTER[-1]
    return step_size


def _best(agent: Agent, line: Line, whole: float, step_sizes: FloatArray, losses: FloatArray) -> float:
    """The longest of the best steps, a whole one among them; 0 if none is better than to stay."""
    way = line.target - line.w
    after = [objective_at(agent, float(f), line.w + t * way) for f, t in zip(losses, step_sizes, strict=True)]
    objectives = np.array([whole, *after])
    good = np.flatnonzero(objectives <= min(line.objective, objectives.min()) + line.rounding)
    return float([1.0, *step_sizes][good[0]]) if good.size else 0.0
