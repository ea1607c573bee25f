"""Perso-linear as paper 001 has it: iterate by iterate beside plain numpy, its optimum beside
cvxpy, and its bill.
"""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import minimize

import coterie as co
from coterie.engines.local import Local
from coterie.numerics.kernels.hinge_block import hinge_block, mean_hinge
from coterie.transport.gossip import Gossip

K, D, MU, Z = 5, 3, 0.4, 64


def tables(seed=0):
    """Users of different sizes, one of them without rows."""
    rng = np.random.default_rng(seed)
    found = []
    for k in range(K):
        X = rng.standard_normal((0 if k == 3 else 4 + 2 * k, D))
        y = np.where(X @ [1.0, k % 2, -0.5] + 0.3 * rng.standard_normal(len(X)) > 0, 1.0, -1.0)
        found.append(co.Table(X, y, name=f"user-{k}"))
    return found


def ties():
    W = np.roll(np.diag([0.4, 1.7, 0.9, 1.1, 0.6]), 1, axis=1)
    return W + W.T


def signed(users):
    return [table.y[:, None] * table.X for table in users]


def block(A, s, q, centre):
    """The minimiser of (s/m) Σ max(0, 1 − Aθ) + (q/2)‖θ − centre‖² by its dual, with a general
    solver.
    """
    if not len(A):
        return centre

    def dual(u):
        theta = centre + s / len(A) * (A.T @ u) / q
        return 0.5 * q * (theta @ theta) - s / len(A) * u.sum(), s / len(A) * (A @ theta - 1.0)

    found = minimize(
        dual, np.zeros(len(A)), jac=True, bounds=[(0, 1)] * len(A), method="L-BFGS-B",
        options={"ftol": 1e-16, "gtol": 1e-12, "maxiter": 5000},
    )  # fmt: skip
    return centre + s / len(A) * (A.T @ found.x) / q


def fit(users, W, **how):
    settings = {
        "split": "users",
        "method": "perso-linear",
        "network": W,
        "tol": 1e-12,
        "progress": False,
        "seed": 4,
    }
    problem = co.Personal(beta=how.pop("beta", 50.0), mu=MU)
    return co.solve(problem, users, **{**settings, **how})


def test_iterates_are_those_of_the_plain_algorithm():
    users, W = tables(), ties()
    gossip = Gossip(record=True)
    result = fit(users, W, engine=Local(gossip), max_rounds=6)
    A, rows = signed(users), np.array([table.n for table in users])
    d, c = W.sum(axis=1), rows / rows.max()
    theta, copies = np.zeros((K, D)), np.zeros((K, K, D))

    def moved(k):
        return block(A[k], c[k], MU, W[k] @ copies[k] / d[k])

    meetings = [(one.agent, one.seen[0][0]) for one in gossip.sights if one.agent >= 0]
    assert len(meetings) == 6 * K
    assert all(W[k, other] > 0 for k, other in meetings)
    for k, other in meetings:
        copies[k, other], copies[other, k] = theta[other].copy(), theta[k].copy()
        theta[k], theta[other] = moved(k), moved(other)
    np.testing.assert_allclose(result.model.coef_.toarray(), theta, atol=2e-5)
    # Two models an iteration, as the paper counts: 2DZ bits.
    assert result.bill.bits == 6 * K * 2 * D * Z


def value(A, c, W, theta):
    apart = sum(
        W[k, m] * cp.sum_squares(theta[k] - theta[m]) for k in range(K) for m in range(k) if W[k, m]
    )
    losses = [cp.sum(cp.pos(1 - A[k] @ theta[k])) / len(A[k]) for k in range(K) if len(A[k])]
    weights = [W[k].sum() * c[k] for k in range(K) if len(A[k])]
    return sum(w * one for w, one in zip(weights, losses, strict=True)) + MU / 2 * apart


@pytest.mark.parametrize("beta", [5.0, 0.5], ids=["mostly inside", "at the ball"])
def test_optimum_gap_and_proof(beta):
    users, W = tables(), ties()
    result = fit(users, W, beta=beta, max_rounds=800, tol=2e-3)
    A, rows = signed(users), np.array([table.n for table in users])
    theta = cp.Variable((K, D))
    inside = [cp.norm2(theta[k]) <= beta for k in range(K)]
    optimum = cp.Problem(cp.Minimize(value(A, rows / rows.max(), W, theta)), inside).solve(
        solver=cp.CLARABEL
    )
    theta.value = result.model.coef_.toarray()
    found = value(A, rows / rows.max(), W, theta).value
    assert result.status == "optimal"
    assert result.certificate.primal == pytest.approx(found)
    assert -1e-6 <= found - optimum <= result.certificate.gap + 1e-6
    assert (np.linalg.norm(theta.value, axis=1) <= beta * (1 + 1e-12)).all()
    assert co.verify(result.certificate, result.model, users).holds
    np.testing.assert_allclose(
        result.model.losses, [mean_hinge(A[k], theta.value[k]) for k in range(K)]
    )
    assert result.model.problem.base.count == D


def test_gap_holds_at_every_round():
    users, W = tables(1), ties()
    history = fit(users, W, max_rounds=30, check_every=1).history
    best = fit(users, W, max_rounds=400).certificate.primal
    assert (history.primal - best <= history.gap + 1e-6).all()
    assert history.gap[-1] < 0.2 * history.gap[0]


def test_a_learned_graph_and_a_beginning():
    users = tables(2)
    how = {
        "graph_step": "gradient",
        "likeness": "models",
        "schedule": "paper",
        "alternations": 1,
        "sample": 2,
    }
    result = fit(users, "learned", max_rounds=70, tol=1e-3, **how)
    assert result.model.weights.nnz > 0
    assert co.verify(result.certificate, result.model, users).holds
    # Models that are begun from are known to nobody else until two users meet.
    again = fit(users, ties(), max_rounds=100, warm_start=fit(users, ties(), max_rounds=50))
    assert again.certificate.gap <= fit(users, ties(), max_rounds=50).certificate.gap


def test_kernel_without_rows_and_with_an_empty_one():
    centre = np.array([1.0, -2.0])
    np.testing.assert_array_equal(
        hinge_block(np.empty((0, 2)), centre, 0.0, 0.7, 9.0, np.empty(0), 10), centre
    )
    np.testing.assert_array_equal(
        hinge_block(np.zeros((1, 2)), centre, 1.0, 0.7, 9.0, np.zeros(1), 10), centre
    )
