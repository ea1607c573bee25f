"""Several classes at once: softmax with every penalty, its proofs, and what scikit-learn and cvxpy
say.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

import cvxpy as cp
import mpmath as mp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

import coterie as co
from coterie.data import Table
from coterie.errors import InvalidProblem
from coterie.methods.second_order import newton as proximal_newton
from coterie.networks import star
from coterie.problems.multiclass.proof import _balanced
from coterie.run.bill import Bill
from coterie.run.certificate import Point, certify
from coterie.run.rounds import introduced
from coterie.run.setup import make_agents
from coterie.run.tables import prepare_tables
from coterie.transport.in_process import InProcess

RNG = np.random.default_rng(0)
N, D, C = 120, 4, 3
X = RNG.standard_normal((N, D)) * np.linspace(0.5, 2.0, D) + 1.0
NAMES = np.array(["red", "green", "blue"])
PLACES = (X @ RNG.standard_normal((D, C)) + RNG.gumbel(size=(N, C))).argmax(axis=1)
Y = NAMES[PLACES]
WEIGHTS = RNG.uniform(0.5, 2.0, N)
PENALTIES = {
    "none": {},
    "l2": {"strength": 0.02},
    "l1": {"strength": 0.02},
    "elasticnet": {"strength": 0.02, "l1_ratio": 0.4},
    "group": {"strength": 0.02},
    "nonnegative": {},
    "box": {"lower": -0.3, "upper": (0.2, 0.3, 0.4, 0.5)},
    "l1ball": {"radius": 2.0},
}


def optimum(penalty: str, intercept: bool, weights) -> float:
    """P* of the pooled problem, by cvxpy."""
    W, b, s = cp.Variable((D, C)), cp.Variable(C), np.ones(N) if weights is None else weights
    H = (np.unique(Y)[None, :] == Y[:, None]).astype(float)
    scores = X @ W + np.ones((N, 1)) @ cp.reshape(b, (1, C), order="C") * intercept
    loss = s @ (cp.log_sum_exp(scores, axis=1) - cp.sum(cp.multiply(H, scores), axis=1)) / s.sum()
    strength = PENALTIES[penalty].get("strength", 0.0)
    flat, bounds = cp.vec(W, order="C"), []
    value = {
        "l2": lambda: strength / 2 * cp.sum_squares(flat),
        "l1": lambda: strength * cp.norm1(flat),
        "elasticnet": lambda: strength * (0.4 * cp.norm1(flat) + 0.3 * cp.sum_squares(flat)),
        "group": lambda: strength * np.sqrt(C) * sum(cp.norm2(W[j]) for j in range(D)),
    }.get(penalty, lambda: 0.0)()
    if penalty == "nonnegative":
        bounds = [W >= 0]
    elif penalty == "box":
        bounds = [W >= -0.3, np.array(PENALTIES["box"]["upper"])[:, None] @ np.ones((1, C)) >= W]
    elif penalty == "l1ball":
        bounds = [cp.norm1(flat) <= 2.0]
    with warnings.catch_warnings(action="ignore"):
        return float(cp.Problem(cp.Minimize(loss + value), bounds).solve(solver=cp.CLARABEL))


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weights"])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_the_pooled_optimum_within_the_certificate(penalty, intercept, weights):
    problem = co.Problem("multinomial", penalty, intercept=intercept, **PENALTIES[penalty])
    data = (X, Y) if weights is None else (X, Y, weights)
    result = co.solve(problem, data, agents=4, tol=1e-8, max_rounds=60)
    best = optimum(penalty, intercept, weights)
    assert result.status.success
    assert -1e-6 <= result.certificate.primal - best <= result.certificate.gap + 1e-6
    assert co.verify(result.certificate, result.model, data).holds


@pytest.mark.parametrize(
    "storage", [np.asarray, sp.csr_array, sp.csc_array], ids=["dense", "csr", "csc"]
)
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weights"])
def test_scikit_learn_has_the_same_answer(storage, intercept, weights):
    twin = LogisticRegression(
        C=1 / (0.02 * (N if weights is None else WEIGHTS.sum())), tol=1e-12, max_iter=10_000
    )
    twin.set_params(solver="newton-cg", fit_intercept=intercept).fit(X, Y, weights)
    problem = co.Problem("multinomial", "l2", 0.02, intercept=intercept)
    data = (storage(X), Y) if weights is None else (storage(X), Y, weights)
    model = co.solve(problem, data, agents=3, tol=1e-11).model
    assert model.classes_.tolist() == twin.classes_.tolist()
    np.testing.assert_allclose(model.coef_, twin.coef_, atol=1e-6)
    np.testing.assert_allclose(model.predict_proba(X), twin.predict_proba(X), atol=1e-6)
    assert (model.predict(X) == twin.predict(X)).all()
    fitted = co.LinearClassifier(alpha=0.02, fit_intercept=intercept, tol=1e-10).fit(X, Y, weights)
    np.testing.assert_allclose(fitted.coef_, twin.coef_, atol=1e-6)
    np.testing.assert_allclose(fitted.predict_proba(X), twin.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("penalty", ["l2", "l1", "group", "none"])
def test_products_lead_where_hessians_do(penalty, monkeypatch):
    problem = co.Problem("multinomial", penalty, intercept=True, **PENALTIES[penalty])
    whole = co.solve(problem, (X, Y), agents=3, tol=1e-9)
    monkeypatch.setattr(
        proximal_newton, "TUNING", proximal_newton._Tuning(full=0, full_nonsmooth=0)
    )
    apart = co.solve(problem, (X, Y), agents=3, tol=1e-9)
    assert whole.status.success
    assert apart.status.success
    assert apart.certificate.primal == pytest.approx(whole.certificate.primal, abs=1e-8)
    assert apart.rounds <= 30


# -- proofs ----------------------------------------------------------------------------------------


def exact(problem, rows, y, s, coef, intercept) -> mp.mpf:
    """P in 60 digits."""
    total, n = mp.mpf(0), mp.fsum(map(mp.mpf, s.tolist()))
    for row, label, weight in zip(rows.astype(float), y, s, strict=True):
        scores = [
            mp.fdot(map(mp.mpf, row.tolist()), w) + b for w, b in zip(coef, intercept, strict=True)
        ]
        most = max(scores)
        total += mp.mpf(float(weight)) * (
            most + mp.log(mp.fsum(mp.exp(u - most) for u in scores)) - scores[label]
        )
    flat = [w for row in coef for w in row]
    strength = mp.mpf(getattr(problem.penalty, "strength", 0.0))
    if problem.penalty.name == "l2":
        return total / n + strength / 2 * mp.fsum(w * w for w in flat)
    return total / n + (strength * mp.fsum(map(abs, flat)) if problem.penalty.name == "l1" else 0)


def numbers(values) -> list:
    values = np.asarray(values, float)
    return (
        [[mp.mpf(x) for x in row] for row in values.tolist()]
        if values.ndim == 2
        else [*map(mp.mpf, values.tolist())]
    )


@pytest.mark.parametrize("seed", range(24))
def test_no_gap_is_smaller_than_the_truth(seed):
    rng = np.random.default_rng([22, seed])
    n, d, classes = int(rng.integers(8, 25)), int(rng.integers(1, 4)), int(rng.integers(2, 5))
    rows = rng.standard_normal((n, d)) * 10.0 ** rng.uniform(-6, 6, d)
    if rng.random() < 0.3:
        rows = rows + np.abs(rows).mean(axis=0) * 10.0 ** rng.uniform(0, 6)
    y = np.r_[np.arange(classes), rng.integers(0, classes, n - classes)]
    rows = rows.astype(np.float32) if rng.random() < 0.3 else rows
    s = rng.uniform(0.1, 3.0, n).astype(rows.dtype) if rng.random() < 0.3 else np.ones(n)
    penalty = str(rng.choice(["l2", "l1", "none"]))
    strength = {} if penalty == "none" else {"strength": float(10 ** rng.uniform(-4, -1))}
    problem = co.Problem("multinomial", penalty, intercept=bool(rng.random() < 0.6), **strength)
    run = {
        "agents": int(rng.integers(1, 4)),
        "max_rounds": int(rng.choice([1, 3, 40])),
        "progress": False,
    }
    result = co.solve(problem, (rows, y, s), **run)
    better = co.solve(problem, (rows, y, s), agents=1, tol=1e-13, max_rounds=60, progress=False)
    with mp.workdps(60):
        here, there = (
            exact(problem, rows, y, s, numbers(one.model.coef_), numbers(one.model.intercept_))
            for one in (result, better)
        )
        radius = result.certificate.radius
        if radius is None or np.linalg.norm(better.model.coef_) <= radius:
            assert here - there <= mp.mpf(result.certificate.gap)


@given(
    seed=st.integers(0, 1000), wild=st.sampled_from([0.0, 1e-3, 1.0, 30.0]), intercept=st.booleans()
)
@settings(max_examples=25, deadline=None)
def test_any_dual_proves_something_true(seed, wild, intercept):
    problem = co.Problem("multinomial", "l1", 0.02, intercept=intercept)
    rng, graph = np.random.default_rng(seed), star(2, server=True)
    tables, classes = prepare_tables(
        [Table(X[:50], Y[:50]), Table(X[50:], Y[50:])], problem, "samples"
    )
    members = make_agents(tables, problem.with_classes(classes), "samples", graph, 0)
    transport = InProcess(graph, Bill(graph))
    members = introduced(members, transport, "setup")
    w = rng.standard_normal((D + intercept) * C)
    duals = [wild * rng.standard_normal(agent.data.n * C) for agent in members]
    bounds = transport.converse(
        [certify(a, Point(w, v)) for a, v in zip(members, duals, strict=True)], "proof"
    )
    assert bounds[0] == bounds[1]
    assert bounds[0].dual <= co.solve(problem, (X, Y), agents=2, tol=1e-9).certificate.primal + 1e-9


@given(seed=st.integers(0, 1000), concentration=st.sampled_from([0.05, 1.0, 20.0]))
@settings(max_examples=30, deadline=None)
def test_balanced_probabilities_weigh_every_class_as_the_labels_do(seed, concentration):
    rng = np.random.default_rng(seed)
    p, counts = (
        rng.dirichlet(np.full(C, concentration), N),
        rng.multinomial(N, rng.dirichlet(np.ones(C))).astype(float),
    )
    balanced = _balanced(p, p.sum(axis=0), counts)
    assert (balanced >= 0).all()
    np.testing.assert_allclose(balanced.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_allclose(balanced.sum(axis=0), counts, atol=1e-9)


def test_a_forged_gap_does_not_hold():
    problem = co.Problem("multinomial", "l2", 0.02, intercept=True)
    result = co.solve(problem, (X, Y), agents=3, max_rounds=1)
    forged = replace(
        result.certificate, gap=result.certificate.gap / 2, dual=result.certificate.primal
    )
    assert not co.verify(forged, result.model, (X, Y)).holds


# -- manners ---------------------------------------------------------------------------------------


def test_parties_may_know_some_of_the_classes_or_have_no_rows():
    problem, red = co.Problem("multinomial", "l2", 0.02, intercept=True), Y == "red"
    parties = [(X[red], Y[red]), (X[:0], Y[:0]), (X[~red], Y[~red])]
    whole = co.solve(problem, (X, Y), agents=1, tol=1e-10)
    np.testing.assert_allclose(
        co.solve(problem, parties, tol=1e-10).model.coef_, whole.model.coef_, atol=1e-6
    )


def test_saved_resumed_and_warm(tmp_path):
    problem = co.Problem("multinomial", "l2", 0.02, intercept=True)
    cut = co.solve(problem, (X, Y), agents=3, max_rounds=2, tol=1e-10, checkpoint=tmp_path / "c")
    resumed = co.solve(problem, (X, Y), agents=3, tol=1e-10, checkpoint=tmp_path / "c")
    fresh = co.solve(problem, (X, Y), agents=3, tol=1e-10)
    assert cut.status == "iteration_limit"
    np.testing.assert_array_equal(resumed.model.coef_, fresh.model.coef_)
    assert co.solve(problem, (X, Y), agents=3, warm_start=fresh).rounds <= 1
    loaded = co.MulticlassModel.load(fresh.model.save(tmp_path / "model.npz"))
    assert (loaded.predict(X) == fresh.model.predict(X)).all()
    assert co.verify(fresh.certificate, loaded, (X, Y)).holds


def test_a_path_with_folds():
    rows, y = load_iris(return_X_y=True)
    found = co.path(
        co.Problem("multinomial", "l2", 1.0, intercept=True),
        (rows, y),
        strengths=[1.0, 0.1, 1e-3],
        cv=3,
    )
    assert found.best_strength == 1e-3


def test_one_against_the_rest_by_name():
    rows, y = load_iris(return_X_y=True)
    softmax, rest = (
        co.LinearClassifier(alpha=0.01, multi_class=how).fit(rows, y)
        for how in ("auto", "one-vs-rest")
    )
    assert softmax.score(rows, y) > rest.score(rows, y)
    assert len(rest.result_) == 3
    assert softmax.certificate_.relative_gap <= 1e-6
    columns = co.LinearClassifier(alpha=0.01, split="features", agents=2).fit(rows, y)
    np.testing.assert_allclose(columns.coef_, rest.coef_, atol=0.05)
    two = co.LinearClassifier("multinomial", alpha=0.01).fit(rows[:100], y[:100])
    assert two.score(rows[:100], y[:100]) == 1.0
    with pytest.raises(InvalidProblem, match="multi_class"):
        co.LinearClassifier(multi_class="ovr").fit(rows, y)


def test_columns_apart_are_refused_with_what_to_do():
    with pytest.raises(InvalidProblem, match="one class against the rest"):
        co.solve(co.Problem("multinomial", "l2", 0.1, intercept=False), (X, Y), split="features")


def test_between_processes_the_bits_are_the_same():
    problem = co.Problem("multinomial", "l2", 0.02, intercept=True)
    here = co.solve(problem, (X, Y), agents=3, secure_sums=True)
    there = co.solve(problem, (X, Y), agents=3, secure_sums=True, engine="peers")
    np.testing.assert_array_equal(here.model.coef_, there.model.coef_)
    assert here.certificate.gap == there.certificate.gap
