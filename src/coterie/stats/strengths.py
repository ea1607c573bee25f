"""Which strengths are worth trying: a grid from a model that uses no column to one that hardly
feels the penalty.

    q = ∇ (1/n) Σ s ℓ   at coefficients of 0 and the best intercept: a `Sum` for the intercept, and
                        one of q

The first strength is the least at which all coefficients are 0: prox_g(q) = 0. A penalty such as l2
never gives 0; then it is the strength at which scores are less than a tenth of the labels' scale
from the constant:

    w ≈ q/λ,   √(mean (x·w)²) ≤ √trace(S) ‖q‖/λ   with S the covariance of the columns

For a ball, the radius takes the place of the strength, from a small one up. P is convex, so that no
model in a ball of less than P/‖q‖ (in the dual norm) loses nothing: radii are multiples of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from coterie.errors import InvalidProblem
from coterie.numerics.arrays import FloatArray, as_number
from coterie.numerics.losses import Fit
from coterie.numerics.penalties import PENALTIES
from coterie.numerics.penalties.ball import Ball
from coterie.problems.problem import AnyProblem, F, Problem
from coterie.run.agent import Agent
from coterie.run.certificate import introduce
from coterie.run.collectives import Protocol
from coterie.run.disclosure import discloses
from coterie.run.finish import agent_at, most_of_introduction
from coterie.run.site import Site

COUNT = 20
"""Default number of strengths in a grid."""
SPARSE, SMOOTH = 1e-3, 1e-5
"""The last strength as a share of the first, for penalties that give zeros and for others."""
MOVED = 0.1
"""How far, as a share of the labels' scale, scores move at the first strength of a penalty that
gives no zeros.
"""
HALVINGS = 60
SMALLEST, LARGEST = 0.25, 64.0
"""First and last radius of a ball. The unit is the radius at which a model could have no loss."""
KNOBS = ("strength", "radius")
"""Settings that a path varies: the strength of a penalty, or the radius of a ball."""


def with_strength(problem: Problem[F], strength: float) -> Problem[F]:
    """Return the problem with another strength of the penalty, or radius of the ball."""
    check_strength(problem)
    changed: Any = replace(problem.penalty, **{knob(problem.penalty.settings()): float(strength)})
    return problem.changed(penalty=changed)


def knob(settings: dict[str, Any]) -> str:
    """Return the setting that a path varies, from the settings of a penalty.

    It is "strength" or, for a ball, "radius".
    """
    return next((name for name in KNOBS if name in settings), KNOBS[0])


def knob_of(penalty: object) -> str:
    """Return the setting that a path varies, from the name of a penalty."""
    if not isinstance(penalty, str) or penalty not in PENALTIES:
        return KNOBS[0]
    return knob(vars(PENALTIES[penalty])["__dataclass_fields__"])


def check_folds(split: str, cv: int | None) -> None:
    """Refuse folds of the rows of users, in the same words in every interface."""
    if split == "users" and cv is not None:
        raise InvalidProblem(
            "a path of models of users has no folds. Call co.path without cv, or fit one strength."
        )


def check_strength(problem: Problem[Fit]) -> None:
    """Refuse a problem whose penalty has no strength to choose."""
    if not any(hasattr(getattr(problem, "penalty", None), name) for name in KNOBS):
        what = problem.kind.report.words(problem)
        raise InvalidProblem(
            f"{what}: this penalty has no strength; use l1 or l2, or a ball, which has a radius."
        )


def check_strengths(strengths: Sequence[float]) -> tuple[float, ...]:
    """The strengths as numbers, if they make sense."""
    if not len(strengths):
        raise InvalidProblem(
            "a path needs at least one strength, e.g. strengths=np.logspace(0, -3, 10)."
        )
    if wrong := [strength for strength in strengths if not 0 <= as_number(strength) < math.inf]:
        raise InvalidProblem(f"strengths are numbers from 0 up, not {wrong[0]!r}.")
    if len(set(map(float, strengths))) < len(strengths):
        raise InvalidProblem("a path has every strength once.")
    return tuple(map(float, strengths))


def gradient_at_constant(agent: Agent[AnyProblem]) -> Protocol[FloatArray]:
    """q: the gradient of the mean loss at coefficients of 0 and the best intercept, of an agent
    that was introduced.
    """
    return (yield from agent.problem.kind.local.gradient_at_constant(agent))


@discloses(
    "the first sums of a fit, once more",
    splits=("samples",),
    # The page counts the introduction of one more fit.
    most=most_of_introduction,
)
def grid_of_strengths(
    problem: Problem[Fit], count: int, seed: int, site: Site
) -> Protocol[tuple[float, ...]]:
    """Compute a grid of `count` strengths for the data of all parties."""
    agent = replace(agent_at(site, problem, "samples"), seed=seed)
    agent = replace(agent, statistics=(yield from introduce(agent)))
    q = yield from gradient_at_constant(agent)
    return grid(agent, q, count)


def grid(agent: Agent[Problem[Fit]], q: FloatArray, count: int = COUNT) -> tuple[float, ...]:
    """Return `count` strengths with equal ratios, the largest first.

    `agent` has summary statistics, and all agents have the vector `q`.
    """
    length = float(np.linalg.norm(q))
    if not length > 0:
        raise InvalidProblem(
            "no column has anything to do with the labels, so no strength is better than another."
        )
    if isinstance(ball := agent.problem.penalty, Ball):
        unit = agent.known.gap_unit / (length if ball.for_matrices else ball.dual_norm(q))
        return tuple(np.geomspace(SMALLEST * unit, LARGEST * unit, count).tolist())
    zeros = _least_with_zeros(agent.problem, q)
    ratio = SMOOTH if zeros is None else SPARSE
    top = _spread(agent) * length / (MOVED * agent.known.label_scale) if zeros is None else zeros
    return tuple(np.geomspace(top, ratio * top, count).tolist())


def _least_with_zeros(problem: Problem[Fit], q: FloatArray) -> float | None:
    """The least strength at which no coefficient is worth its price; None if there is none.

    Columns with factors may have no l1 part; they count as little as an intercept does.
    """
    counted = np.ones(len(q), bool)
    pieces = problem.penalty.pieces
    if pieces is not None and pieces.per_column:
        counted &= np.asarray(pieces.threshold) > 0
        if not counted.any():
            return None

    def zero(strength: float) -> bool:
        return not with_strength(problem, strength).penalty.prox(q, 1.0)[counted].any()

    high = float(np.abs(q).sum())
    while not zero(high):
        high *= 10.0
        if high > 1e6 * float(np.abs(q).sum()):
            return None
    low = 0.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        low, high = (low, middle) if zero(middle) else (middle, high)
    return high


def _spread(agent: Agent[AnyProblem]) -> float:
    """√trace(S)."""
    known = agent.known
    if known.centre is not None:
        return known.unit * math.sqrt(len(known.centre))
    assert known.lengths is not None
    return math.sqrt(float(known.lengths.sum()) / known.total)
