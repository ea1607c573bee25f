"""Newton's step for many columns beside a ridge: preconditioned conjugate gradients on (H + λI) p = −∇P.

One `Sum` of d numbers for each step, however many columns there are; see `newton.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from coterie.agent import Agent
from coterie.arrays import FloatArray, sealed, shared_result
from coterie.here import Here
from coterie.methods.moments import diagonal
from coterie.tuning import Tuning, tuned
from coterie.words import Sum, Talk


@dataclass(frozen=True)
class _Tuning(Tuning):
    forcing: float = tuned(
        0.1,
        "The residual of the equations, as a share of ‖∇P‖, at which steps end; less near the minimum.",
        "theorem: superlinear convergence if it falls with ‖∇P‖ (Dembo, Eisenstat and Steihaug 1982)",
        below=1,
    )


TUNING = _Tuning()


class Target(NamedTuple):
    """Where to go from w."""

    w: FloatArray
    slope: FloatArray
    """∇f where it began."""
    losses: float
    """Σ s ℓ there."""
    steepness: float
    """‖∇P‖ there."""


def target(agent: Agent, w: FloatArray, here: Here, curvature: FloatArray, steepest: float, steps: int) -> Talk[Target]:
    """The minimum of the quadratic model, nearly; `steepest` is ‖∇P‖ in the first round, and 0 in it."""
    design, n = agent.centred, agent.total
    ridge = np.full(len(w), agent.problem.penalty.strong_convexity)
    if agent.problem.intercept:
        ridge[-1] = 0.0
    total = yield Sum(np.concatenate([diagonal(design, curvature), here.adjoint, [here.losses]]))
    scale = total[: len(w)] / n + ridge
    scale[scale <= 0] = 1.0
    slope = total[len(w) : -1] / n + ridge * w
    steepness = float(np.linalg.norm(slope))
    enough = min(TUNING.forcing, math.sqrt(steepness / (steepest or steepness or 1.0))) * steepness
    bent = lambda direction: design.adjoint(curvature * design.forward(direction))  # noqa: E731
    p = yield from solved(agent, bent, ridge, scale, -slope, enough, steps, total)
    return Target(shared_result(total, lambda: sealed(w + p)), slope - ridge * w, float(total[-1]), steepness)


def solved(
    agent: Agent,
    bent: Callable[[FloatArray], FloatArray],
    ridge: FloatArray,
    scale: FloatArray,
    left: FloatArray,
    enough: float,
    steps: int,
    said: FloatArray,
) -> Talk[FloatArray]:
    """p with ‖left − (H + ridge) p‖ ≤ enough, or after so many steps, preconditioned by the scale.

    `bent` is what an agent's own rows make of a direction: n H times it is everybody's sum. `said` was heard last.
    """
    p, scaled = np.zeros(len(left)), left / scale
    direction, size = scaled, float(left @ scaled)
    for _ in range(steps):
        # The clock is asked once for all agents, who must say the same words.
        if np.linalg.norm(left) <= enough or size <= 0 or shared_result(said, agent.should_stop):
            break
        said = yield Sum(bent(direction))
        image = said / agent.total + ridge * direction
        bend = float(direction @ image)
        if not bend > 0:
            break
        p, left = p + size / bend * direction, left - size / bend * image
        scaled = left / scale
        before, size = size, float(left @ scaled)
        direction = scaled + size / before * direction
    return p
