"""Paper 002, equation (4): proximal-2 is what the paper says, and reaches the pooled optimum within
its own gap.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import Lasso, LogisticRegression, Ridge
from sklearn.svm import LinearSVC

import coterie as co
from coterie.methods.primal_dual.rules import balance
from coterie.numerics.losses import LOSSES
from tests.harness.labels import labels_for
from tests.harness.reference import pooled_optimum

RNG = np.random.default_rng(0)
N, D, K = 120, 12, 6
X = RNG.standard_normal((N, D)) * (RNG.random((N, D)) < 0.6)
TRUTH = RNG.standard_normal(D) * (RNG.random(D) < 0.5)
NUMBERS = X @ TRUTH + 0.3 * RNG.standard_normal(N)
SIGNS = np.where(NUMBERS + 0.3 * RNG.standard_normal(N) > 0, 1.0, -1.0)


def labels(loss):
    return labels_for(loss, NUMBERS, SIGNS)


def test_eq_4_iterate_by_iterate():
    """The distributed rounds equal the paper's two lines for the pooled data, in its layout (X is d
    × n).
    """
    rho, eta, lam, rounds = 0.7, 2.0 * np.linalg.norm(X, 2) ** 2, 0.05, 20
    A, w, v = X.T, np.zeros(D), np.zeros(N)
    for _ in range(rounds):
        before = w
        w = w - rho / N * A @ v
        w = np.sign(w) * np.maximum(np.abs(w) - rho * lam, 0)  # prox of ρ λ‖·‖₁
        step = N / (rho * eta)
        u = v + step * A.T @ (2 * w - before)
        v = np.clip((u - step * NUMBERS) / (1 + step), -1.0, 1.0)  # prox of step·ℓ*, Huber
    problem = co.Problem("huber", "l1", lam, threshold=1.0, intercept=False)
    run = {"rho": rho, "eta": eta, "tol": 1e-15, "max_rounds": rounds, "acceleration": "none"}
    result = co.solve(
        problem, (X, NUMBERS), agents=K, method="proximal-2", check_every=rounds, **run
    )
    np.testing.assert_allclose(result.model.coef_, w, atol=1e-12)
    np.testing.assert_allclose(np.concatenate(result.certificate.witness), v, atol=1e-12)


def test_lemma_1_the_default_eta_bounds_the_norm():
    blocks = np.array_split(X, K)
    tau = max(np.linalg.norm(block, 2) ** 2 for block in blocks)
    assert K * tau >= np.linalg.norm(X, 2) ** 2
    from coterie.numerics.arrays import Design

    for block in blocks:
        exact = np.linalg.norm(block, 2) ** 2
        assert exact <= Design(block).squared_norm() <= exact * (1 + 1e-3)


def test_balance_weighs_both_distances_the_same():
    rho = balance(primal=2.0, dual=3.0, n=50, eta=7.0)
    assert 2.0**2 / rho == pytest.approx(rho * 7.0 * 3.0**2 / 50**2)


@pytest.mark.rotates
@pytest.mark.parametrize("layout", [np.asarray, np.asfortranarray, sp.csr_matrix, sp.csc_array])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("name", ["ridge", "lasso", "logistic", "svm"])
def test_the_answer_is_scikit_learns(name, intercept, layout):
    lam = 0.02
    problem, y, twin = {
        "ridge": (
            ("squared", "l2"),
            NUMBERS,
            Ridge(alpha=lam * N, fit_intercept=intercept, tol=1e-12),
        ),
        "lasso": (
            ("squared", "l1"),
            NUMBERS,
            Lasso(alpha=lam, fit_intercept=intercept, tol=1e-12, max_iter=100_000),
        ),
        "logistic": (
            ("logistic", "l2"),
            SIGNS,
            LogisticRegression(
                C=1 / (lam * N), fit_intercept=intercept, tol=1e-12, max_iter=10_000
            ),
        ),
        # liblinear penalises its intercept, so the SVM with one is compared with cvxpy below
        "svm": (
            ("hinge", "l2"),
            SIGNS,
            LinearSVC(C=1 / (lam * N), loss="hinge", fit_intercept=False, tol=1e-9, max_iter=10**7),
        ),
    }[name]
    task = co.Problem(*problem, lam, intercept=intercept)
    result = co.solve(
        task, (layout(X), y), agents=K, method="proximal-1", tol=1e-7, max_rounds=50_000
    )
    assert result.status == "optimal"
    _, _, best = pooled_optimum(task, X, y)
    assert result.certificate.primal - best <= result.certificate.gap + 1e-8
    assert result.certificate.dual <= best + 1e-8
    if not (name == "svm" and intercept):
        twin.fit(X, y)
        np.testing.assert_allclose(result.model.coef_, np.ravel(twin.coef_), atol=5e-3)
    assert result.bill.scalars == 2 * K * (D + intercept) * result.rounds


@pytest.mark.rotates
@pytest.mark.parametrize(
    "penalty", ["none", "l2", "l1", "elasticnet", "group", "nonnegative", "box", "l1ball"]
)
@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_every_loss_and_penalty_reaches_the_pooled_optimum(loss, penalty):
    parameters = {
        "none": {},
        "l2": {"strength": 0.05},
        "l1": {"strength": 0.05},
        "elasticnet": {"strength": 0.05, "l1_ratio": 0.5},
        "group": {"strength": 0.03, "groups": tuple(np.arange(D) // 3)},
        "nonnegative": {},
        "box": {"lower": -0.5, "upper": 0.5},
        "l1ball": {"radius": 1.0},
    }[penalty]
    problem = co.Problem(loss, penalty, intercept=True, **parameters)
    result = co.solve(
        problem, (X, labels(loss)), agents=K, method="proximal-1", tol=1e-4, max_rounds=5000
    )
    hard = not np.isfinite(problem.loss.smoothness) and problem.penalty.strong_convexity == 0
    assert result.status.success or hard, "without smoothness and growth the rate is only 1/t"
    assert result.certificate.relative_gap <= 0.05
    best = pooled_optimum(problem, X, labels(loss))[2]
    assert -1e-7 <= result.certificate.primal - best <= result.certificate.gap + 1e-7


@pytest.mark.parametrize(
    "agents",
    [1, N, [100, 20], [60, 0, 60], [list(range(0, N, 2)), list(range(1, N, 2))]],
    ids=["one", "one each", "unequal", "one empty", "interleaved"],
)
def test_any_split_gives_the_same_answer(agents):
    problem = co.Problem("logistic", "elasticnet", 0.02, l1_ratio=0.5, intercept=False)
    best = pooled_optimum(problem, X, SIGNS)[2]
    result = co.solve(problem, (X, SIGNS), agents=agents, method="proximal-1", tol=1e-7)
    assert result.status == "optimal"
    assert result.certificate.primal - best <= result.certificate.gap + 1e-8


@pytest.mark.parametrize("network", ["star", "path", "ring", "lattice", "erdos-renyi", "complete"])
def test_any_network_gives_the_same_answer(network):
    """Only the words' way, and so the bill and the rounding, depends on the graph."""
    problem = co.Problem("squared", "l1", 0.05, intercept=False)
    served = co.solve(problem, (X, NUMBERS), agents=6, method="proximal-1")
    graph = co.networks.star(6) if network == "star" else network
    result = co.solve(problem, (X, NUMBERS), agents=6, method="proximal-1", network=graph)
    np.testing.assert_allclose(result.model.coef_, served.model.coef_, atol=1e-12)
    assert result.bill.scalars == 2 * 5 * D * result.rounds


def test_weights_count_as_copies():
    counts = RNG.integers(1, 4, N)
    problem = co.Problem("huber", "l1", 0.05, intercept=True)
    weighted = co.solve(
        problem, (X, NUMBERS, counts.astype(float)), agents=K, method="proximal-1", tol=1e-9
    )
    copied = co.solve(
        problem,
        (np.repeat(X, counts, axis=0), np.repeat(NUMBERS, counts)),
        agents=K,
        method="proximal-1",
        tol=1e-9,
    )
    assert weighted.certificate.primal == pytest.approx(copied.certificate.primal, abs=1e-8)
    np.testing.assert_allclose(weighted.model.coef_, copied.model.coef_, atol=1e-4)


def test_float32_is_kept_and_halves_the_bill():
    problem = co.Problem("logistic", "l2", 0.02, intercept=False)
    single = co.solve(problem, (X.astype("f4"), SIGNS), agents=K, method="proximal-1", tol=1e-5)
    double = co.solve(problem, (X, SIGNS), agents=K, method="proximal-1", tol=1e-5)
    assert single.status == double.status == "optimal"
    assert single.model.coef_.dtype == np.float32
    assert single.bill.bits / single.bill.scalars == 32
    assert double.bill.bits / double.bill.scalars == 64
    np.testing.assert_allclose(single.model.coef_, double.model.coef_, atol=1e-3)


def test_a_given_rho_is_respected():
    problem = co.Problem("squared", "l2", 0.02, intercept=False)
    result = co.solve(problem, (X, NUMBERS), agents=K, rho=0.5, acceleration="none")
    assert "tuning" not in result.bill.per_purpose
    assert result.certificate.settings["method"]["rho"] == 0.5
    with pytest.raises(co.CoterieError, match="rho must be a positive number"):
        co.solve(problem, (X, NUMBERS), agents=K, rho=-1.0)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_auto_rho_does_not_depend_on_units(scale):
    """Rescaling columns and labels alike rescales the answer; the rounds must not explode."""
    problem = co.Problem("squared", "l2", 0.05 * scale**2, intercept=False)
    result = co.solve(
        problem,
        (scale * X, 7.0 * NUMBERS),
        agents=K,
        method="proximal-1",
        tol=1e-6,
        max_rounds=2000,
    )
    reference = co.solve(
        co.Problem("squared", "l2", 0.05, intercept=False),
        (X, NUMBERS),
        agents=K,
        method="proximal-1",
        tol=1e-6,
    )
    assert result.status == "optimal"
    assert result.rounds <= reference.rounds + 2
