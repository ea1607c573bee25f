"""Laws of a common model with deviations: it is the pooled fit on expanded columns, and its
certificate is a bound.
"""

from __future__ import annotations

import math
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import coterie as co
from coterie.errors import InvalidProblem

RNG = np.random.default_rng(20261116)
K, D = 4, 3
USERS = np.repeat(np.arange(K), [9, 14, 2, 20])
N = len(USERS)
X = RNG.standard_normal((N, D)) + 0.5
OWN = RNG.standard_normal(D) + 0.7 * RNG.standard_normal((K, D))
NUMBERS = (
    (X * OWN[USERS]).sum(axis=1)
    + RNG.standard_normal(K)[USERS]
    + 5.0
    + 0.3 * RNG.standard_normal(N)
)
SIGNS = np.where(NUMBERS > 5.0, 1.0, -1.0)
COUNTS = RNG.poisson(np.exp(np.clip((X * OWN[USERS]).sum(axis=1) / 4, -2, 2))).astype(float)
WEIGHTS = RNG.uniform(0.5, 2.0, N)
PRICES = [(0.02, 0.05), (math.inf, 0.05), (0.02, math.inf), (math.inf, math.inf)]
RUN = {"split": "users", "tol": 1e-11, "progress": False}
EXACT = RUN | {"tol": 1e-16, "max_rounds": 30}
"""As far as float64 goes: a coefficient is as exact as the root of a gap."""


def labels(loss):
    return {"logistic": SIGNS, "squared_hinge": SIGNS, "poisson": COUNTS}.get(loss, NUMBERS)


def expanded(mu, nu):
    """A block of columns for every user, and a column of ones, in units in which all have one
    ridge.
    """
    member = (USERS[:, None] == np.arange(K)).astype(float)
    blocks = [X * member[:, [k]] / math.sqrt(mu) for k in range(K)] if math.isfinite(mu) else []
    return np.hstack(
        [*blocks, *([member / math.sqrt(nu)] if math.isfinite(nu) else []), np.empty((N, 0))]
    )


def optimum(problem, y, weights):
    """The pooled optimum on expanded columns, by somebody else's solver."""
    E, w, b = expanded(problem.mu, problem.nu), cp.Variable(D), cp.Variable()
    v = cp.Variable(max(E.shape[1], 1))
    u = X @ w + b + (E @ v if E.shape[1] else 0)
    each = {
        "squared": lambda: 0.5 * cp.square(u - y),
        "logistic": lambda: cp.logistic(-cp.multiply(y, u)),
        "huber": lambda: 0.5 * cp.huber(u - y, problem.loss.threshold),
        "squared_hinge": lambda: cp.square(cp.pos(1 - cp.multiply(y, u))),
        "poisson": lambda: cp.exp(u) - cp.multiply(y, u),
    }[problem.loss.name]()
    pieces = problem.penalty.pieces
    penalty = (
        pieces.threshold * cp.norm1(w)
        + 0.5 * pieces.ridge * cp.sum_squares(w)
        + 0.5 * cp.sum_squares(v)
    )
    task = cp.Problem(cp.Minimize(weights @ each / weights.sum() + penalty))
    task.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    return float(task.value)


def value(problem, model, y, weights):
    """The objective of a model, by definition."""
    u = (
        X @ model.coef_
        + model.intercept_
        + (X * model.deviations[USERS]).sum(axis=1)
        + model.offsets[USERS]
    )
    each = problem.loss.each(u, y)
    own = [(problem.mu, model.deviations), (problem.nu, model.offsets)]
    deviations = sum(
        0.5 * price * float((part**2).sum()) for price, part in own if math.isfinite(price)
    )
    return weights @ each / weights.sum() + problem.penalty.value(model.coef_) + deviations


def pooled(wide, lam):
    """Logistic regression with a ridge by Newton's method: coefficients and intercept, which is the
    last column's.
    """
    ridge, w = np.full(wide.shape[1], lam), np.zeros(wide.shape[1])
    ridge[-1] = 0.0
    for _ in range(30):
        p = 1 / (1 + np.exp(SIGNS * (wide @ w)))
        slope = -wide.T @ (SIGNS * p) / N + ridge * w
        w = w - np.linalg.solve(
            wide.T @ (wide * (p * (1 - p))[:, None]) / N + np.diag(ridge), slope
        )
    return w[:-1], w[-1]


NEAR = 1e-7
"""A gap of 5e-15, which rounding allows, permits √(2 gap / λ) = 6e-7."""


@pytest.mark.parametrize("method", ["shared", "shared-newton"])
@pytest.mark.parametrize(("mu", "nu"), PRICES)
def test_it_is_the_pooled_fit_on_expanded_columns(method, mu, nu):
    """With l2 everywhere, a ridge on [X, blocks] in units in which all columns have the same
    one.
    """
    lam = 0.03
    run = EXACT | {"method": method} | ({"few_rows": True} if method == "shared-newton" else {})
    result = co.solve(co.Shared("logistic", "l2", lam, mu=mu, nu=nu), (X, SIGNS, USERS), **run)
    wide = np.hstack([X, expanded(mu, nu) * math.sqrt(lam)])
    found, intercept = pooled(np.hstack([wide, np.ones((N, 1))]), lam)
    assert result.model.coef_ == pytest.approx(found[:D], abs=NEAR)
    assert result.model.intercept_ == pytest.approx(intercept, abs=NEAR)
    if math.isfinite(mu):
        blocks = found[D : D + K * D].reshape(K, D) * math.sqrt(lam / mu)
        assert result.model.deviations == pytest.approx(blocks, abs=NEAR)
    else:
        assert not result.model.deviations.any()
    if math.isfinite(nu):
        assert result.model.offsets == pytest.approx(found[-K:] * math.sqrt(lam / nu), abs=NEAR)
    else:
        assert not result.model.offsets.any()


PENALTIES = {
    "l2": {"penalty": "l2", "strength": 0.03},
    "l1": {"penalty": "l1", "strength": 0.05},
    "elasticnet": {"penalty": "elasticnet", "strength": 0.05, "l1_ratio": 0.6},
}


@pytest.mark.parametrize(
    ("loss", "penalty"),
    [
        ("squared", "l2"),
        ("logistic", "l1"),
        ("huber", "elasticnet"),
        ("squared_hinge", "l2"),
        ("poisson", "l1"),
    ],
)
def test_gaps_bound_the_distance_to_the_optimum(loss, penalty):
    mu, nu = PRICES[sum(map(ord, loss + penalty)) % 3]
    problem, y = co.Shared(loss, mu=mu, nu=nu, **PENALTIES[penalty]), labels(loss)
    tables = [
        co.Table(X[k == USERS], y[k == USERS], WEIGHTS[k == USERS], name=str(k)) for k in range(K)
    ]
    least = optimum(problem, y, WEIGHTS)
    for rounds in (1, 3, 200):
        result = co.solve(problem, tables, max_rounds=rounds, **RUN)
        here = value(problem, result.model, y, WEIGHTS)
        assert result.certificate.primal == pytest.approx(here, abs=1e-12)
        assert here - least <= result.certificate.gap + 1e-9
        assert co.verify(result.certificate, result.model, tables).holds
    assert result.status.success
    assert here - least <= 1e-8


def test_without_deviations_it_is_one_model():
    shared = co.solve(
        co.Shared("huber", "l1", 0.02, mu=math.inf, nu=math.inf), (X, NUMBERS, USERS), **EXACT
    )
    one = co.solve(
        co.Problem("huber", "l1", 0.02, intercept=True), (X, NUMBERS), tol=1e-16, max_rounds=30
    )
    assert shared.model.coef_ == pytest.approx(one.model.coef_, abs=1e-8)
    assert shared.certificate.unit == pytest.approx(one.certificate.unit)


def test_a_deviation_that_is_not_allowed_is_no_proof():
    data = (X, SIGNS, USERS)
    result = co.solve(co.Shared(mu=math.inf), data, **RUN)
    hessian_product = replace(result.model, deviations=result.model.deviations + 1e-3)
    forged = replace(result.certificate, model_digest=hessian_product.digest())
    with pytest.raises(co.CoterieError, match="deviates from the common one"):
        co.verify(forged, hessian_product, [(X[k == USERS], SIGNS[k == USERS]) for k in range(K)])


def test_a_shifted_deviation_costs_what_it_costs():
    """The proof of another model is another: a forged deviation shows in the recomputed gap."""
    result = co.solve(co.Shared(mu=0.02), (X, SIGNS, USERS), **RUN)
    hessian_product = replace(result.model, deviations=result.model.deviations + 1e-3)
    forged = replace(result.certificate, model_digest=hessian_product.digest())
    found = co.verify(
        forged, hessian_product, [(X[k == USERS], SIGNS[k == USERS]) for k in range(K)]
    )
    assert not found.holds
    assert "primal" in " ".join(found.objections)


@pytest.mark.parametrize(
    "kind", [sp.csr_array, lambda X: X.astype("f4")], ids=["sparse", "float32"]
)
def test_other_arrays_give_the_same_model(kind):
    problem = co.Shared("logistic", "l2", 0.03, mu=0.02)
    dense = co.solve(problem, (X, SIGNS, USERS), **RUN).model
    other = co.solve(problem, (kind(X), SIGNS, USERS), **RUN | {"max_rounds": 60}).model
    assert other.coef_ == pytest.approx(dense.coef_, abs=1e-5)
    assert other.deviations == pytest.approx(dense.deviations, abs=1e-5)
    assert other.predict(kind(X), USERS) == pytest.approx(dense.predict(X, USERS))


def test_users_with_more_columns_than_rows_solve_in_their_rows():
    wide = RNG.standard_normal((N, 30))
    problem = co.Shared("logistic", "l2", 0.03, mu=0.01, nu=0.02)
    result = co.solve(problem, (wide, SIGNS, USERS), **EXACT)
    twice = co.solve(problem, (wide, SIGNS, USERS), method="shared-newton", few_rows=True, **EXACT)
    assert result.model.deviations == pytest.approx(twice.model.deviations, abs=1e-8)


def test_a_user_without_rows_has_the_common_model():
    tables = [(X[k == USERS], SIGNS[k == USERS]) for k in range(K)] + [(X[:0], SIGNS[:0])]
    result = co.solve(co.Shared(mu=0.02), tables, **RUN)
    assert result.status.success
    assert not result.model.deviations[-1].any()
    assert result.model.predict_proba(X, "party 4") == pytest.approx(
        result.model.predict_proba(X, "somebody", unknown="common")
    )


def test_a_round_is_a_number_per_column():
    result = co.solve(co.Shared(mu=0.02), (X, SIGNS, USERS), **RUN)
    assert result.certificate.settings["method"]["name"] == "shared"
    one = 64 * (D + 2)
    assert result.bill.bits <= 2 * K * (one * (result.rounds + 1) + 64 * 17)


def test_matrices_of_few_rows_are_refused():
    with pytest.raises(
        InvalidProblem, match=r"1 of 4 users have no more rows than columns.*few_rows=True"
    ):
        co.solve(co.Shared(mu=0.02), (X, SIGNS, USERS), method="shared-newton", **RUN)


def test_kinks_are_refused_with_a_relative():
    with pytest.raises(InvalidProblem, match="squared_hinge"):
        co.solve(co.Shared("hinge"), (X, SIGNS, USERS), **RUN)


def test_it_is_kept_in_a_file(tmp_path):
    data = (X, SIGNS, USERS)
    result = co.solve(co.Shared(mu=math.inf, nu=0.1), data, **RUN)
    result.save(tmp_path)
    again = co.Result.load(tmp_path)
    assert again.model.problem == result.model.problem
    assert (
        again.model.decision_function(X, USERS) == result.model.decision_function(X, USERS)
    ).all()
    assert co.verify(
        again.certificate, again.model, [(X[k == USERS], SIGNS[k == USERS]) for k in range(K)]
    ).holds


@pytest.mark.parametrize("method", ["shared", "shared-newton"])
def test_a_resumed_run_is_the_run_that_never_stopped(tmp_path, method):
    run = (
        RUN
        | {"method": method, "check_every": 1}
        | ({"few_rows": True} if method != "shared" else {})
    )
    problem, data = co.Shared("logistic", "l1", 0.01, mu=0.02), (X, SIGNS, USERS)
    whole = co.solve(problem, data, max_rounds=6, **run)
    co.solve(problem, data, max_rounds=2, checkpoint=tmp_path, **run)
    resumed = co.solve(problem, data, max_rounds=6, checkpoint=tmp_path, **run)
    assert resumed.model.digest() == whole.model.digest()


def test_secure_sums_give_the_same_model():
    problem, data = co.Shared(mu=0.02), (X, SIGNS, USERS)
    plain, secure = (
        co.solve(problem, data, secure_sums=wanted, **EXACT) for wanted in (False, True)
    )
    assert secure.model.deviations == pytest.approx(plain.model.deviations, abs=1e-7)
    assert secure.certificate.relative_gap <= 1e-11


def test_a_warm_start_takes_no_time():
    problem, data = co.Shared(mu=0.02), (X, SIGNS, USERS)
    first = co.solve(problem, data, **RUN)
    again = co.solve(problem, data, warm_start=first, **RUN)
    assert again.rounds <= 2 < first.rounds


def test_what_is_no_price_is_refused():
    with pytest.raises(InvalidProblem, match="mu must be a positive number or inf"):
        co.Shared(mu=0.0)
    with pytest.raises(InvalidProblem, match="split='users'"):
        co.solve(co.Shared(), (X, SIGNS))
