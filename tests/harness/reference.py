"""Pooled answers from somebody else's solver: the naive twin of everything distributed."""

from __future__ import annotations

import cvxpy as cp
import numpy as np

from coterie.problems.problem import Problem


def pooled_optimum(problem: Problem, X, y, weights=None) -> tuple[np.ndarray, float, float]:
    """(w*, b*, P*) of the pooled problem, by cvxpy's interior-point solver."""
    X = np.asarray(X.todense() if hasattr(X, "todense") else X, float)
    s = np.ones(len(y)) if weights is None else np.asarray(weights, float)
    w, b = cp.Variable(X.shape[1]), cp.Variable()
    u = X @ w + b if problem.intercept else X @ w
    loss, penalty = problem.loss, problem.penalty
    each = {
        "squared": lambda: 0.5 * cp.square(u - y),
        "logistic": lambda: cp.logistic(-cp.multiply(y, u)),
        "poisson": lambda: cp.exp(u) - cp.multiply(y, u),
        "gamma": lambda: cp.multiply(y, cp.exp(-u)) + u,
        "hinge": lambda: cp.pos(1 - cp.multiply(y, u)),
        "squared_hinge": lambda: cp.square(cp.pos(1 - cp.multiply(y, u))),
        "huber": lambda: 0.5 * cp.huber(u - y, loss.threshold),
        "absolute": lambda: cp.abs(u - y),
        "quantile": lambda: cp.maximum(loss.level * (y - u), (1 - loss.level) * (u - y)),
    }[loss.name]()
    value, constraints = {
        "none": lambda: (0, []),
        "l2": lambda: (0.5 * penalty.strength * cp.sum_squares(w), []),
        "l1": lambda: (penalty.strength * cp.norm1(w), []),
        "elasticnet": lambda: (
            penalty.strength
            * (penalty.l1_ratio * cp.norm1(w) + 0.5 * (1 - penalty.l1_ratio) * cp.sum_squares(w)),
            [],
        ),
        "group": lambda: (
            penalty.strength
            * sum(
                np.sqrt(np.sum(np.array(penalty.groups) == g))
                * cp.norm2(w[np.array(penalty.groups) == g])
                for g in set(penalty.groups)
            ),
            [],
        ),
        "nonnegative": lambda: (0, [w >= 0]),
        "box": lambda: (
            0,
            [w >= penalty.lower] * int(np.isfinite(penalty.lower))
            + [w <= penalty.upper] * int(np.isfinite(penalty.upper)),
        ),
        "l1ball": lambda: (0, [cp.norm1(w) <= penalty.radius]),
    }[penalty.name]()
    task = cp.Problem(cp.Minimize(s @ each / s.sum() + value), constraints)
    task.solve(solver=cp.CLARABEL)
    return w.value, float(b.value) if problem.intercept else 0.0, float(task.value)
