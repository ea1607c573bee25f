"""Intercepts of low-rank models: as people know them, beside centred columns, and where they are
best.

    X W + 1bᵀ = (X − 1x̄ᵀ) W + 1βᵀ,     β = b + Wᵀx̄

For least squares the best β is the mean of the labels, known once the parties have introduced
themselves. For classes β follows W. Its best value is found by Newton's method, each step by
conjugate gradients, for which messages of one or
two numbers per class are added up:

    g = Σ_i s_i (p_i − h_i),     H x = Σ_i s_i p_i∘(x − ⟨p_i, x⟩) ≼ D = diag(Σ_i s_i p_i)
    β ← β − log(1 + t)/t · x,    x ≈ H⁻¹g,   t = max x − min x                 a step that long
                                 always lowers the loss

A completed matrix has a β of every row and column, which follows W likewise, by whole steps: its
loss is a quadratic.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from coterie.numerics.arrays import FloatArray
from coterie.numerics.factors import NEGLIGIBLE, decomposed, factors_of, written
from coterie.problems.low_rank.tasks import Information, Task
from coterie.problems.problem import Problem
from coterie.run.agent import Agent
from coterie.run.collectives import Protocol, Sum

STEPS = 60
"""Newton steps at most."""
PRODUCTS = 50
"""Conjugate gradients of one of them at most."""
NEAR, EXACT = 1e-20, 1e-26
"""Up to which share of n (or of the loss of a quadratic) gᵀD⁻¹g is brought, between rounds and for
a proof.
"""


def information_of(agent: Agent[Problem[Task]], kind: str) -> Information:
    """What this agent keeps, at W = 0."""
    return agent.problem.loss.stats(agent.data, kind, agent.known.means)


def as_array(beta: FloatArray | None) -> FloatArray:
    """That intercept; none is empty."""
    return np.zeros(0) if beta is None else beta.astype(float)


def taken_apart(
    agent: Agent[Problem[Task]], w: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray | None]:
    """Both factors, and β or the means of rows and columns, of a model as people know it."""
    (d, m), means = agent.problem.loss.size(agent.data), agent.known.means
    if means is None:
        return *factors_of(w, (d, m)), None
    left, right = factors_of(w[:, :-1], (d, m))
    free = w[: d + m, -1]
    if agent.problem.loss.kind == "entries":
        return left, right, free
    return left, right, free[d:] + (means.left @ left) @ right.T


def put_together(
    agent: Agent[Problem[Task]], left: FloatArray, right: FloatArray, beta: FloatArray | None
) -> FloatArray:
    """The inverse of it: the model as people know it, as it will be stored."""
    U, s, V = decomposed(left, right, NEGLIGIBLE)
    means = agent.known.means
    if means is None:
        return written(U, s, V)
    if agent.problem.loss.kind == "entries":
        return written(U, s, V, np.concatenate(means) if beta is None else beta.astype(float))
    b = (means.right if beta is None else beta.astype(float)) - (means.left @ (U * s)) @ V.T
    return written(U, s, V, np.concatenate([np.zeros(len(U)), b]))


def adjusted(agent: Agent[Problem[Task]], information: Information) -> Protocol[FloatArray | None]:
    """The best β beside the W where that information is, which is moved there; None if β does not
    follow W.
    """
    if information.b is None:
        return None

    def look(beta: FloatArray) -> FloatArray:
        information.put(beta)
        return information.gradient_of_intercept()

    enough = max(NEAR, (10.0 * float(np.finfo(information.dtype).eps)) ** 2)
    return (
        yield from best_intercept(
            agent, look, information.curvature_of_intercept, information.b, enough
        )
    )[0]


def best_intercept(
    agent: Agent[Problem[Task]],
    look: Callable[[FloatArray], FloatArray],
    bend: Callable[[FloatArray], FloatArray],
    beta: FloatArray,
    enough: float,
) -> Protocol[tuple[FloatArray, FloatArray]]:
    """The best β, from one that is near, and its g: gᵀD⁻¹g is at most `enough` of n, or what
    rounding leaves.

    `look` says g and D at a β, and `bend` H x for the β of the last look.
    """
    quadratic = agent.problem.loss.quadratic
    total = agent.total * (agent.known.gap_unit if quadratic else 1.0)
    best, best_g, least = beta, beta, math.inf
    for _ in range(STEPS):
        g, shares = np.split((yield Sum(look(beta))).astype(float), 2)
        D = np.where(shares > 0, shares, np.inf)
        size = float((g * g / D).sum())
        if not size < least:
            look(best)
            break
        best, best_g, least = beta, g, size
        if size <= enough * total:
            break
        if quadratic:
            beta = beta - (yield from _newton(g, D, bend, math.sqrt(0.1 * enough * total / size)))
            continue
        # A constant on all classes changes nothing: neither g nor x has one.
        weights = shares / shares.sum()
        x = yield from _newton(g - g.sum() * weights, D, bend, min(0.1, math.sqrt(size / total)))
        x = np.where(shares > 0, x - x @ weights, 0.0)
        t = float(np.ptp(x))
        beta = beta - (math.log1p(t) / t if t > 0 else 0.0) * x
    return best, best_g


def _newton(
    g: FloatArray, D: FloatArray, bend: Callable[[FloatArray], FloatArray], share: float
) -> Protocol[FloatArray]:
    """x ≈ H⁻¹g by conjugate gradients in the lengths of D, up to that share of g."""
    x, left = np.zeros_like(g), g
    z = left / D
    p, size = z, float(left @ z)
    goal = share * share * size
    for _ in range(PRODUCTS):
        Hp = (yield Sum(bend(p))).astype(float)
        along = float(p @ Hp)
        if not along > 0:
            break
        x, left = x + (size / along) * p, left - (size / along) * Hp
        z = left / D
        before, size = size, float(left @ z)
        if size <= goal:
            break
        p = z + (size / before) * p
    return x
