"""Intercepts of low-rank models: for columns as they are stored, for centred columns, and the best
ones.

    X W + 1bᵀ = (X − 1x̄ᵀ) W + 1βᵀ,     β = b + Wᵀx̄

For least squares the best β is the mean of the labels, which the introduction computes. For classes
β follows W. Newton's method finds its best value, each step by conjugate gradients, with sums of
one or two numbers per class:

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
from coterie.run.disclosure import NO_MESSAGES, Case, Counts

STEPS = 60
"""Newton steps at most."""
PRODUCTS = 50
"""Conjugate gradients of one Newton step at most."""
NEAR, EXACT = 1e-20, 1e-26
"""The share of n (or of the loss of a quadratic) below which gᵀD⁻¹g ends the method, between rounds
and for a proof.
"""


def intercepts_of(case: Case) -> int:
    """The number of intercepts that follow W: of every class, or of every row and column of the
    matrix.
    """
    task = case.problem.loss
    if not case.intercept or task.kind == "numbers":
        return 0
    return sum(case.matrix) if task.kind == "entries" else case.matrix[1]


def most_of_search(case: Case) -> Counts:
    """The largest counts of a search for the best intercepts: all steps, with all products."""
    intercepts = intercepts_of(case)
    if not intercepts:
        return NO_MESSAGES
    return STEPS * (1 + PRODUCTS), STEPS * (2 + PRODUCTS) * intercepts


def information_of(agent: Agent[Problem[Task]], kind: str) -> Information:
    """The numbers that this agent keeps, at W = 0."""
    return agent.problem.loss.stats(agent.data, kind, agent.known.means)


def as_array(beta: FloatArray | None) -> FloatArray:
    """The intercept as an array; None is an empty one."""
    if beta is None:
        return np.zeros(0)
    return beta.astype(float)


def taken_apart(
    agent: Agent[Problem[Task]], w: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray | None]:
    """Both factors, and β or the means of rows and columns, of a stored model."""
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
    """The inverse of `taken_apart`: the model as it is stored."""
    U, s, V = decomposed(left, right, NEGLIGIBLE)
    means = agent.known.means
    if means is None:
        return written(U, s, V)
    own = None if beta is None else beta.astype(float)
    if agent.problem.loss.kind == "entries":
        return written(U, s, V, np.concatenate(means) if own is None else own)
    centred = means.right if own is None else own
    b = centred - (means.left @ (U * s)) @ V.T
    return written(U, s, V, np.concatenate([np.zeros(len(U)), b]))


def adjusted(agent: Agent[Problem[Task]], information: Information) -> Protocol[FloatArray | None]:
    """The best β at the W of that information, which then has it, too; None if β does not follow
    W.
    """
    if information.b is None:
        return None

    def look(beta: FloatArray) -> FloatArray:
        information.put(beta)
        return information.gradient_of_intercept()

    enough = max(NEAR, (10.0 * float(np.finfo(information.dtype).eps)) ** 2)
    product = information.curvature_of_intercept
    best, _ = yield from best_intercept(agent, look, product, information.b, enough)
    return best


def best_intercept(
    agent: Agent[Problem[Task]],
    look: Callable[[FloatArray], FloatArray],
    product: Callable[[FloatArray], FloatArray],
    beta: FloatArray,
    enough: float,
) -> Protocol[tuple[FloatArray, FloatArray]]:
    """The best β, from one that is near, and its g: gᵀD⁻¹g is at most `enough` of n, or as small as
    rounding allows.

    `look` computes g and D at a β, and `product` H x for the β of the last look.
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
            share = math.sqrt(0.1 * enough * total / size)
            step = yield from _newton(g, D, product, share)
            beta = beta - step
            continue
        # A constant on all classes changes nothing: neither g nor x has one.
        weights = shares / shares.sum()
        share = min(0.1, math.sqrt(size / total))
        x = yield from _newton(g - g.sum() * weights, D, product, share)
        x = np.where(shares > 0, x - x @ weights, 0.0)
        t = float(np.ptp(x))
        length = math.log1p(t) / t if t > 0 else 0.0
        beta = beta - length * x
    return best, best_g


def _newton(
    g: FloatArray, D: FloatArray, product: Callable[[FloatArray], FloatArray], share: float
) -> Protocol[FloatArray]:
    """x ≈ H⁻¹g by conjugate gradients in the lengths of D, up to that share of g."""
    x, left = np.zeros_like(g), g
    z = left / D
    p, size = z, float(left @ z)
    goal = share * share * size
    for _ in range(PRODUCTS):
        Hp = (yield Sum(product(p))).astype(float)
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
