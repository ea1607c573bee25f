"""Dada: models given the graph, the graph given the models, gossip, and what each message costs."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import ClassVar

import cvxpy as cp
import numpy as np
import pytest
from benchmarks.personal import best_graph, graph_learning, introduced_agents
from scipy.optimize import approx_fprime, minimize

import coterie as co
from coterie.engines.local import Local
from coterie.errors import InvalidProblem
from coterie.numerics.kernels.boosting import (
    frank_wolfe_step,
    graph_block,
    log_sum,
    log_sum_gradient,
    pairwise_step,
)
from coterie.problems.personal.methods.dada import HEAD, Dada
from coterie.problems.personal.predictors import Linear, Stumps
from coterie.problems.personal.problem import confidence, margins
from coterie.transport.gossip import Gossip, wake_ups
from papers import datasets

K, N, Z = 6, 12, 64
BETA, MU = 4.0, 0.5


def users_data(seed=0, users=K, rows=(2, 9)):
    """Users in two camps: the label is the sign of the first column, or of the second."""
    rng = np.random.default_rng(seed)
    parts = []
    for k in range(users):
        X = rng.uniform(-1, 1, (rng.integers(*rows), 3))
        y = np.where(X[:, k % 2] + 0.3 * rng.standard_normal(len(X)) > 0, 1.0, -1.0)
        parts.append(co.Table(X, y, name=f"user {k}"))
    parts[0].y[0], parts[1].y[0] = 1.0, -1.0
    return parts


def ring_of(users=K, seed=0):
    W = np.zeros((users, users))
    for k in range(users):
        W[k, (k + 1) % users] = W[(k + 1) % users, k] = np.random.default_rng([seed, k]).uniform(
            0.2, 2
        )
    return W


def problem(**changes):
    return co.Personal(**{"count": N, "beta": BETA, "mu": MU, **changes})


def matrices(tables, personal):
    members = introduced_agents(tables, personal)
    return [margins(agent) for agent in members], np.array([confidence(agent) for agent in members])


def value(A, c, W, alpha, mu):
    """(1), as it is printed."""
    d = W.sum(axis=1)
    fit = sum(d[k] * c[k] * np.log(np.exp(-A[k] @ alpha[k]).sum()) for k in range(len(A)))
    pairs = sum(
        W[k, m] * np.sum((alpha[k] - alpha[m]) ** 2)
        for k in range(len(A))
        for m in range(k + 1, len(A))
    )
    return fit + mu / 2 * pairs


def best(A, c, W, mu, beta, norm=1):
    """The optimum of (1) by a convex solver."""
    models = [cp.Variable(A[0].shape[1]) for _ in A]
    d = np.where(W.sum(axis=1) > 0, W.sum(axis=1), 1.0)
    fit = sum(d[k] * c[k] * cp.log_sum_exp(-A[k] @ models[k]) for k in range(len(A)))
    pairs = [(k, m) for k in range(len(A)) for m in range(k) if W[k, m]]
    apart = sum(W[k, m] * cp.sum_squares(models[k] - models[m]) for k, m in pairs) if pairs else 0.0
    task = cp.Problem(cp.Minimize(fit + mu / 2 * apart), [cp.norm(a, norm) <= beta for a in models])
    task.solve(solver=cp.CLARABEL)
    return task.value, np.array([a.value for a in models])


# -- models given the graph ------------------------------------------------------------------------


def test_partial_gradient():
    rng = np.random.default_rng(0)
    A = [rng.choice([-1.0, 1.0], (m, N)) for m in (3, 5, 2)]
    c, W, alpha = (
        np.array([0.6, 1.0, 0.4]),
        np.array([[0, 1, 0.5], [1, 0, 0], [0.5, 0, 0]]),
        rng.standard_normal((3, N)),
    )
    numeric = approx_fprime(alpha.ravel(), lambda a: value(A, c, W, a.reshape(3, N), MU)).reshape(
        3, N
    )
    for k in range(3):
        g, d = np.empty(N), W[k].sum()
        loss = log_sum_gradient(A[k], alpha[k], MU * W[k] @ alpha, d * c[k], MU * d, g)
        assert loss == pytest.approx(np.log(np.exp(-A[k] @ alpha[k]).sum()))
        np.testing.assert_allclose(g, numeric[k], atol=1e-5)


def test_published_step_and_what_a_neighbour_can_rebuild():
    rng = np.random.default_rng(1)
    A, old, gamma = rng.choice([-1.0, 1.0], (5, N)), rng.standard_normal(N) / 4, 0.3
    g, new = np.empty(N), old.copy()
    log_sum_gradient(A, old, np.zeros(N), 1.0, MU, g)
    j = frank_wolfe_step(A, new, np.zeros(N), 1.0, MU, BETA, gamma)
    expected = (1 - gamma) * old
    expected[np.argmax(np.abs(g))] -= gamma * BETA * np.sign(g[np.argmax(np.abs(g))])
    np.testing.assert_allclose(new, expected)
    # The neighbour is sent j and the new value; it finds the sign and γ, and with them everything
    # else.
    found = [(new[j] - old[j]) / (sign * BETA - old[j]) for sign in (-1, 1)]
    assert any(0 < share <= 1 and share == pytest.approx(gamma) for share in found)


def test_pairwise_step_is_the_best_on_its_segment():
    rng = np.random.default_rng(2)
    for trial in range(30):
        A, pull = rng.choice([-1.0, 1.0], (4, N)), rng.standard_normal(N)
        alpha = rng.standard_normal(N) * (rng.random(N) < 0.4)
        alpha *= BETA * (1.0 if trial % 2 else 0.7) / max(np.abs(alpha).sum(), 1e-9)

        def phi(a, A=A, pull=pull):
            return 0.7 * log_sum(A, a) + 0.2 * a @ a / 2 - pull @ a

        new = alpha.copy()
        assert pairwise_step(A, new, pull, 0.7, 0.2, BETA) in (1, 2)
        assert np.abs(new).sum() <= BETA * (1 + 1e-12)
        along = new - alpha
        assert phi(new) < phi(alpha)
        inner = min(phi(alpha + share * along) for share in np.linspace(0, 1, 101))
        assert phi(new) <= inner + 1e-9
        beyond = alpha + 1.001 * along
        assert (
            phi(beyond) >= phi(new) - 1e-9
            or np.abs(beyond).sum() > BETA
            or (np.sign(beyond) * np.sign(alpha) < 0).any()
        )


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        ({}, {}),
        ({}, {"local_steps": 5}),
        ({"predictors": "linear", "norm": "l2"}, {"method": "dada-linear"}),
    ],
)
def test_optimum_and_gap_against_a_convex_solver(changes, options):
    tables, W = users_data(), ring_of()
    result = co.solve(
        problem(**changes), tables, split="users", network=W, tol=1e-5, max_rounds=5000, **options
    )
    A, c = matrices(tables, problem(**changes))
    optimum, _ = best(A, c, W, MU, BETA, 2 if changes else 1)
    certificate = result.certificate
    assert result.status == "optimal"
    assert certificate.primal == pytest.approx(value(A, c, W, result.model.coef_.toarray(), MU))
    assert -1e-6 <= certificate.primal - optimum <= certificate.gap + 1e-6
    assert co.verify(certificate, result.model, tables).holds


def test_gap_bounds_the_error_at_every_round():
    tables, W = users_data(3), ring_of()
    result = co.solve(
        problem(),
        tables,
        split="users",
        network=W,
        step="frank-wolfe",
        tol=1e-9,
        max_rounds=40,
        check_every=1,
    )
    A, c = matrices(tables, problem())
    optimum, _ = best(A, c, W, MU, BETA)
    errors = result.history.primal - optimum
    assert (errors >= -1e-6).all()
    assert (errors <= result.history.gap + 1e-6).all()
    assert errors[-1] < 0.2 * errors[0]
    # Theorem 1: E f(α⁽ᵗ⁾) − f* ≤ 2K (C + p₀)/(t + 2K), with Lemma 1's bound on C
    d = W.sum(axis=1)
    C = (
        4
        * BETA**2
        * sum(d[k] * c[k] * np.abs(A[k]).sum(axis=0).max() ** 2 + MU * d[k] for k in range(K))
    )
    p0 = value(A, c, W, np.zeros((K, N)), MU) - optimum
    t = K * result.history.round
    assert (errors <= 2 * K * (C + p0) / (t + 2 * K)).all()


def test_scale_of_the_graph_does_not_matter():
    """α(W) = α(8W), step by step; with 7 in place of 8 rounding decides ties otherwise, and only
    the optimum agrees.
    """
    tables, W = users_data(), ring_of()
    how = {"split": "users", "max_rounds": 5000, "tol": 1e-5}
    one, eight, seven = (
        co.solve(problem(), tables, network=scale * W, **how) for scale in (1, 8, 7)
    )
    np.testing.assert_allclose(one.model.coef_.toarray(), eight.model.coef_.toarray(), atol=1e-9)
    assert seven.certificate.primal / 7 == pytest.approx(one.certificate.primal, rel=1e-4)


def test_limits_of_mu():
    tables, W = users_data(), ring_of()
    how = {"split": "users", "tol": 1e-6, "max_rounds": 20_000}
    alone = co.solve(problem(), tables, method="local", **how)
    assert alone.bill.bits == 0
    A, c = matrices(tables, problem())
    assert alone.certificate.primal == pytest.approx(
        best(A, c, np.zeros((K, K)), 0.0, BETA)[0], abs=1e-4
    )
    loose = co.solve(problem(mu=1e-6), tables, network=W, **how)
    own_losses = [log_sum(A[k], loose.model.coef_[[k]].toarray()[0]) for k in range(K)]
    np.testing.assert_allclose(own_losses, alone.model.losses, atol=1e-3)
    # As μ grows, one model that minimises Σ d_k c_k L_k.
    tight = co.solve(problem(mu=100.0), tables, network=W, local_steps=20, **{**how, "tol": 3e-3})
    models = tight.model.coef_.toarray()
    assert np.abs(models - models.mean(axis=0)).max() < 0.1
    common = cp.Variable(N)
    d = W.sum(axis=1)
    fit = sum(d[k] * c[k] * cp.log_sum_exp(-A[k] @ common) for k in range(K))
    together = cp.Problem(cp.Minimize(fit), [cp.norm1(common) <= BETA]).solve(solver=cp.CLARABEL)
    assert tight.certificate.primal == pytest.approx(together, rel=0.05)


def test_global_is_adaboost_on_all_rows():
    tables = users_data()
    result = co.solve(problem(), tables, split="users", method="global", tol=1e-5, max_rounds=3000)
    A = np.concatenate(matrices(tables, problem())[0])
    model = cp.Variable(N)
    pooled = cp.Problem(cp.Minimize(cp.log_sum_exp(-A @ model)), [cp.norm1(model) <= BETA]).solve(
        solver=cp.CLARABEL
    )
    assert result.status == "optimal"
    assert -1e-6 <= result.certificate.primal - pooled <= result.certificate.gap + 1e-6
    assert co.verify(result.certificate, result.model, tables).holds


def test_isolated_and_empty_users():
    tables = users_data()
    tables[2] = co.Table(np.empty((0, 3)), np.empty(0), name="user 2")
    W = ring_of()
    W[5, :] = W[:, 5] = 0.0
    result = co.solve(problem(), tables, split="users", network=W, tol=1e-6, max_rounds=5000)
    models = result.model.coef_.toarray()
    assert log_sum(margins(introduced_agents(tables, problem())[5]), models[5]) == pytest.approx(
        co.solve(problem(), tables, split="users", method="local", tol=1e-6).model.losses[5],
        abs=1e-3,
    )
    average = (W[2, 1] * models[1] + W[2, 3] * models[3]) / W[2].sum()
    np.testing.assert_allclose(models[2], average, atol=0.05)


# -- the graph given the models --------------------------------------------------------------------


@pytest.mark.parametrize("lam", [0.05, 1.0, 50.0])
def test_exact_block_minimisation(lam):
    rng = np.random.default_rng(4)
    for _ in range(5):
        price, others, own = (
            rng.normal(0.5, 2.0, 6),
            rng.uniform(0.1, 3.0, 6),
            rng.uniform(0.1, 2.0),
        )

        def fun(w, price=price, others=others, own=own):
            v = price @ w - np.log(own + w.sum()) - np.log(others + w).sum() + lam * w @ w
            return v, price - 1 / (own + w.sum()) - 1 / (others + w) + 2 * lam * w

        reference = minimize(
            fun,
            np.full(6, 0.1),
            jac=True,
            bounds=[(0, None)] * 6,
            method="L-BFGS-B",
            options={"ftol": 1e-16, "gtol": 1e-12},
        )
        w = graph_block(price, others, own, lam)
        assert (w >= 0).all()
        assert fun(w)[0] <= reference.fun + 1e-9
        np.testing.assert_allclose(w, reference.x, atol=1e-4)


def graph_run(users, personal, rounds, **options):
    """Graph steps from an empty graph with random sparse models."""
    rng = np.random.default_rng(11)
    models = rng.standard_normal((users, personal.count)) * (
        rng.random((users, personal.count)) < 0.5
    )
    return models, graph_learning(users_data(7, users), personal, models, rounds, **options)


def test_graph_steps_reach_the_optimum_of_h():
    users, personal = 20, problem(lam=0.5)
    _, (values, price, W, _) = graph_run(users, personal, 150, likeness="models", sample=5)
    optimum, _ = best_graph(price, personal.lam, personal.delta)
    assert (np.diff(values) <= 1e-10).all(), "h never rises"
    assert abs(values[-1] - optimum) <= 1e-6 * abs(optimum)
    assert users * int(np.argmax(values <= optimum + 1e-6 * abs(optimum))) < 6000
    # KKT: no slope where there is weight, an upward one where there is none.
    upper = np.triu_indices(users, 1)
    inverse = 1 / (W.sum(axis=1) + personal.delta)
    gradients = (price - inverse[:, None] - inverse + 2 * personal.lam * W)[upper]
    assert np.abs(gradients[W[upper] > 1e-8]).max() < 1e-2
    assert gradients[W[upper] == 0].min() > -1e-6


def test_published_graph_steps_keep_theorem_2():
    users, personal, kappa = 8, problem(lam=5.0, delta=1.0), 3
    _, (values, price, *_) = graph_run(
        users,
        personal,
        60,
        likeness="models",
        graph_step="gradient",
        graph_factor=1.0,
        sample=kappa,
        revisit=False,
    )
    optimum, _ = best_graph(price, personal.lam, personal.delta)
    start = values[0]
    ld2 = personal.lam * personal.delta**2
    rho = 1 - 2 / (users * (users - 1)) * kappa * ld2 / (kappa + 1 + ld2)
    bound = rho ** (users * np.arange(61)) * (start - optimum)
    assert (values - optimum <= bound * 1.05 + 1e-9).all()
    assert (np.diff(values) <= 1e-10).all()


def test_graph_steps_that_suit_the_curvature_go_further():
    """Steps of 1/L_κ leave most of the way; those of the curvature at hand go it, and h never
    rises.
    """
    users, personal = 8, problem(lam=1.0, delta=0.1)
    left = {}
    for factor in (1.0, None):
        _, (values, price, *_) = graph_run(
            users,
            personal,
            60,
            likeness="models",
            graph_step="gradient",
            graph_factor=factor,
            sample=3,
            revisit=False,
        )
        optimum, _ = best_graph(price, personal.lam, personal.delta)
        left[factor] = (values[-1] - optimum) / (values[0] - optimum)
        assert (np.diff(values) <= 1e-10).all()
    assert left[None] < 1e-3 < 0.02 < left[1.0]


def test_at_most_so_many_neighbours():
    few, free = (graph_run(16, problem(lam=50.0), 15, sample=5, nearest=n)[1][2] for n in (3, None))
    # An end drops what is one too many for itself when it wakes up; until then it may have one
    # more.
    assert (few > 0).sum(axis=1).mean() <= 3.5
    assert (free > 0).sum(axis=1).mean() > 5


# -- what it costs ---------------------------------------------------------------------------------


def test_bill_of_model_steps():
    """(Z + log₂ n)·|N_k| bits for every published step, with n = 16 so that log₂ n is a whole
    number.
    """
    tables, W = users_data(), ring_of()
    W[0, 3] = W[3, 0] = 1.0
    engine = Local(Gossip(record=True))
    result = co.solve(
        problem(count=16),
        tables,
        split="users",
        network=W,
        step="frank-wolfe",
        max_rounds=20,
        engine=engine,
    )
    woken = [sight.agent for sight in engine.gossip.sights if sight.agent >= 0]
    assert len(woken) == 20 * K
    neighbours = (W > 0).sum(axis=1)
    assert result.bill.bits == sum((Z + math.log2(16)) * neighbours[k] for k in woken)
    assert result.bill.messages == sum(neighbours[k] for k in woken)


@pytest.mark.parametrize("cache", [False, True])
def test_bill_of_graph_steps(cache):
    """κ(3Z + nnz(Z + log₂ n)), or with a memory κ2Z + κ_new(Z + nnz(Z + log₂ n)) (Appendix C)."""
    users, kappa, personal = 8, 3, problem(count=16, lam=0.5)
    models, (*_, bill) = graph_run(
        users, personal, 4, likeness="models", sample=kappa, cache=cache, revisit=False
    )
    known, expected = set(), 0.0
    for t in range(1, 5):
        order = np.random.default_rng([0, 0x11, t]).integers(users, size=users)
        for place, k in enumerate(order.tolist()):
            tick = (t - 1) * users + place + 1
            drawn = np.random.default_rng([0, 1 + k, tick]).choice(users - 1, kappa, replace=False)
            for peer in (drawn + (drawn >= k)).tolist():
                body = Z + np.count_nonzero(models[peer]) * (Z + 4)
                expected += 2 * Z + (0 if cache and (k, peer) in known else body)
                known.add((k, peer))
    assert bill.per_word["Ask"].bits == expected


# -- asynchronous gossip ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{"network": "ring"}, {"network": "learned", "alternations": 1, "sample": 2}]
)
def test_lost_and_late_messages_and_their_replay(options):
    tables = users_data(5, 8)
    how = {"split": "users", "tol": 1e-9, "max_rounds": 70, "local_steps": 3, **options}
    recorded = Local(Gossip(lost=0.2, late=0.5, record=True))
    storm = co.solve(problem(), tables, engine=recorded, **how)
    calm = co.solve(problem(), tables, **how)
    assert abs(storm.model.coef_ - calm.model.coef_).max() > 0, "the weather does something"
    again = co.solve(problem(), tables, engine=Local(Gossip(replay=recorded.gossip.sights)), **how)
    assert (again.model.coef_ != storm.model.coef_).nnz == 0
    assert (again.model.weights != storm.model.weights).nnz == 0


def test_gossip_converges_in_bad_weather():
    tables, W = users_data(), ring_of()
    engine = Local(Gossip(lost=0.3, late=1.0))
    result = co.solve(
        problem(), tables, split="users", network=W, tol=1e-3, max_rounds=3000, engine=engine
    )
    assert result.status == "optimal"


@pytest.mark.parametrize("wrong", [{"lost": 1.0}, {"lost": -0.1}, {"late": -1.0}, {"late": "soon"}])
def test_impossible_weather_is_refused(wrong):
    with pytest.raises(co.CoterieError, match=next(iter(wrong))):
        Gossip(**wrong)


@pytest.mark.parametrize("network", ["ring", "learned"])
def test_a_resumed_run_is_the_run_that_never_stopped(network, tmp_path):
    tables = users_data(5, 8)
    how = {
        "split": "users",
        "network": network,
        "tol": 1e-9,
        "check_every": 5,
        "sample": 3,
        "alternations": 1,
    }
    whole = co.solve(problem(), tables, max_rounds=60, **how)
    co.solve(problem(), tables, max_rounds=25, checkpoint=tmp_path, **how)
    resumed = co.solve(problem(), tables, max_rounds=60, checkpoint=tmp_path, **how)
    assert (whole.model.coef_ != resumed.model.coef_).nnz == 0
    assert (whole.model.weights != resumed.model.weights).nnz == 0
    assert resumed.bill == whole.bill


# -- learning both ---------------------------------------------------------------------------------


def test_the_two_camps_find_each_other():
    users = 20
    tables = users_data(2, users, rows=(6, 14))
    result = co.solve(
        problem(count=30, beta=10.0, mu=1.0, lam=10.0),
        tables,
        split="users",
        tol=1e-2,
        max_rounds=150,
        local_steps=5,
        alternations=2,
        sample=5,
    )
    W, camp = result.model.weights.toarray(), np.arange(users) % 2
    inside = W[camp[:, None] == camp].sum() / W.sum()
    assert inside > 0.75, "chance is 0.47"
    assert result.status == "optimal"
    assert result.history[-1].round > 0
    assert co.verify(result.certificate, result.model, tables).holds


def test_moons_as_published_and_as_programmed():
    paper, zeros, code = datasets.moons(), datasets.moons(extra="zeros"), datasets.moons("code")
    for data in (paper, zeros, code):
        assert data.train.d == 20
        counts = np.bincount(data.extras["user_train"])
        assert (len(counts), counts.min(), counts.max()) == (100, 3, 15)
        assert data.test.n == 100 * 100
        assert np.bincount(data.extras["clusters"]).tolist() == [10, 20, 30, 40]
        W, cluster = data.extras["graph"], data.extras["clusters"]
        np.testing.assert_array_equal(W, W.T)
        assert W[cluster[:, None] == cluster].sum() > 0.99 * W.sum()
    assert (zeros.train.X[:, 2:] == 0).all()
    assert (code.train.X[:, 2:] == 0).all()
    assert paper.train.X[:, 2:].std() == pytest.approx(1.0, abs=0.05)
    spread = [np.rad2deg(np.std(data.extras["angles"][60:])) for data in (paper, code)]
    assert spread[0] == pytest.approx(5, abs=1.5)
    assert spread[1] == pytest.approx(12, abs=4)
    assert np.bincount(datasets.moons100().extras["user_train"]).max() <= 20
    with pytest.raises(co.CoterieError, match="variant"):
        datasets.moons("other")


def test_stumps_are_spread_evenly():
    stumps = Stumps.spread([0.0, -1.0], [1.0, 1.0], 5)
    assert stumps.columns == (0, 0, 0, 1, 1)
    np.testing.assert_allclose(stumps.thresholds, [0.25, 0.5, 0.75, -1 / 3, 1 / 3])
    np.testing.assert_array_equal(stumps.values(np.array([[0.6, 0.0]])), [[1, 1, -1, 1, -1]])
    assert Linear(2).values(np.array([[3.0, 4.0]])).tolist() == [[3.0, 4.0, 1.0]]


def test_how_long_users_learn_alone_and_the_graph_can_be_said():
    short = Dada(learn=True, schedule="paper", alternations=1, alone=3, graph_rounds=2)
    assert [short.phase(round) for round in range(1, 8)] == 3 * ["alone"] + 2 * ["graph"] + 2 * [
        "models"
    ]
    assert short.settles_after == 5
    assert short.gamma(10, 51) == pytest.approx(1.0)
    assert (Dada().rhythm, Dada(schedule="paper").rhythm) == ((10, 20, 10), (30, 10, 20))
    assert not {"alone", "graph_rounds"} & set(Dada().settings())
    assert short.settings()["alone"] == 3
    for bad in ({"alone": 0}, {"graph_rounds": 2.5}, {"local_steps": None}):
        with pytest.raises(InvalidProblem, match=f"{next(iter(bad))} must be a whole number"):
            Dada(**bad)


def test_the_published_schedule_has_both_numbers_and_goes_on_to_the_end():
    """Section 6: the graph is learned after every 2000 updates of 100 users, or 200, κ users a
    step.
    """
    for updates in (2000, 200):
        dada = Dada(
            learn=True, schedule="paper", alternations=None, model_rounds=updates // 100, alone=1
        )
        phases = [dada.phase(round) for round in range(1, 1000)]
        turns = "".join(phase[0] for phase in phases).split("g" * 10)
        assert turns[0] == "a"
        assert {len(turn) for turn in turns[1:-1]} == {updates // 100}
        assert len(turns) > 1000 // (10 + updates // 100)
        # γ counts the steps on models.
        steps = [t for t in range(1, 100 * 200) if dada.phase((t - 1) // 100 + 1) == "models"]
        gammas = [dada.gamma(100, t) for t in steps]
        np.testing.assert_allclose(gammas, 200 / (np.arange(len(steps)) + 200))
    result = learned(max_rounds=60, alternations=None, model_rounds=2, alone=2, graph_rounds=2)
    assert result.status == "iteration_limit"
    assert result.history[-1].round == 60


def learned(**options):
    return co.solve(
        co.Personal(count=12, beta=4.0, mu=0.5),
        users_data(2, rows=(5, 10)),
        split="users",
        tol=1e-9,
        progress=False,
        **{"sample": 2, **options},
    )


@pytest.mark.parametrize(
    "options",
    [{}, {"graph_step": "gradient", "revisit": False}],
    ids=["exact", "published"],
)
def test_graph_steps_end_when_h_no_longer_improves(options):
    """Section 6.1: a phase of the graph ends early, at nearly the same h."""
    how = {"alone": 10, "graph_rounds": 200, "alternations": 1, "max_rounds": 210}
    how |= {"likeness": "models", "network": "learned", **options}
    whole, early, rough = (learned(graph_stop=stop, **how) for stop in (None, 1e-6, 0.1))
    assert early.bill.messages < 0.5 * whole.bill.messages
    assert rough.bill.messages < early.bill.messages
    best, found, empty = (graph_objective(whole, w) for w in (whole, early, None))
    assert best < empty
    assert found - best < 1e-3 * (empty - best)
    assert graph_objective(whole, rough) > found
    with pytest.raises(InvalidProblem, match="graph_stop is a relative improvement"):
        Dada(graph_stop=0.0)


def graph_objective(result, of):
    """h/μ of (3) at the models of one run and the graph of another, or without edges."""
    model, problem = result.model, result.model.problem
    W = np.zeros((K, K)) if of is None else of.model.weights.toarray()
    alpha, own = model.coef_.toarray(), model.confidence * model.losses
    apart = ((alpha[:, None] - alpha) ** 2).sum(axis=2)
    linear = (own[:, None] + own) / problem.mu + 0.5 * apart
    edges = np.triu(W)
    degrees = W.sum(axis=1)
    logs = np.log(degrees + problem.delta).sum()
    return (edges * linear).sum() - logs + problem.lam * (edges**2).sum()


def test_a_new_phase_of_the_graph_begins_anew():
    how = {"alone": 5, "graph_rounds": 20, "model_rounds": 10, "graph_stop": 0.5}
    one = learned(alternations=1, max_rounds=65, **how)
    two = learned(alternations=2, max_rounds=65, **how)
    asked = [sum(result.bill.per_round[35:55]) for result in (one, two)]
    notes = two.bill.per_word["Ask"].messages
    assert asked[0] > 0
    assert notes != one.bill.per_word["Ask"].messages


@pytest.mark.parametrize(("users", "sample"), [(4, 1), (6, 2), (9, 4)])
def test_new_users_become_rare_as_lemma_4_says(users, sample):
    """Lemma 4: of κ users drawn in wake-up T, κ(1 − κ/(K(K − 1)))^(T − 1) are new on average."""
    dada = Dada(learn=True, sample=sample, alone=1, graph_rounds=10**6)
    runs, last = 400, 30
    new = np.zeros((runs, last))
    for run in range(runs):
        met: dict[int, set[int]] = {who: set() for who in range(users)}
        agent = SimpleNamespace(
            count=users, random_of=lambda who, t, run=run: np.random.default_rng([run, who, t])
        )
        rounds = -(-last // users)
        order = [who for t in range(2, 2 + rounds) for _, who in wake_ups(run, users, t)]
        for T, who in enumerate(order[:last]):
            drawn = set(dada.drawn(agent, who, users + 1 + T).tolist())
            assert len(drawn) == sample
            assert who not in drawn
            new[run, T] = len(drawn - met[who])
            met[who] |= drawn
    expected = sample * (1 - sample / (users * (users - 1))) ** np.arange(last)
    error = new.std(axis=0) / np.sqrt(runs)
    assert np.abs(new.mean(axis=0) - expected).max() < 4.5 * error.max()
    assert expected[-1] < 0.6 * expected[0]


class Watching(Dada):
    """Dada that records whom users know, and whom they ask."""

    name = "watching"
    log: ClassVar[list[tuple[int, list[int], list[int]]]] = []

    def graph_turn(self, agent, state, t):
        turn = super().graph_turn(agent, state, t)
        ask = next(turn)
        self.log.append((agent.index, state.view.tolist(), list(map(int, ask.peers))))
        try:
            turn.send((yield ask))
        except StopIteration as end:
            return end.value


class Dropping(Dada):
    """Dada that records the sizes of models before and after each wake-up for models."""

    name = "dropping"
    log: ClassVar[list[tuple[int, int, int]]] = []

    def round(self, agent, state, t):
        after = yield from super().round(agent, state, t)
        if self.phase((t - 1) // agent.count + 1) == "models":
            sizes = (np.count_nonzero(one.x[HEAD:]) for one in (state, after))
            self.log.append((agent.index, *sizes))
        return after


@pytest.mark.parametrize("schedule", ["auto", "paper"])
def test_published_models_start_again_from_zero_after_the_rounds_alone(schedule):
    """Section 6: every user drops its local model at its first wake-up with others."""
    Dropping.log = []
    co.solve(
        co.Personal(count=12, beta=4.0, mu=0.5),
        users_data(2, rows=(5, 10)),
        split="users",
        method=Dropping(step="frank-wolfe", schedule=schedule, alone=20, graph_rounds=2, sample=2),
        max_rounds=25,
        progress=False,
        tol=1e-9,
    )
    first = {}
    for who, before, after in Dropping.log:
        first.setdefault(who, (before, after))
    assert any(before > 1 for before, _ in first.values())
    dropped = [after <= 1 for before, after in first.values() if before > 1]
    assert dropped == [schedule == "paper"] * len(dropped), first


def test_users_know_few_others_and_meet_most_of_them():
    """Section 4.2: a peer sampling service. Views are small and change, so that a user meets nearly
    as many others as if it drew them from all.
    """
    users, known, sample = 40, 8, 2
    Watching.log = []
    method = Watching(known=known, sample=sample, revisit=False, alone=1, graph_rounds=60)
    co.solve(
        co.Personal(count=6, beta=2.0, mu=0.5),
        users_data(users=users, rows=(3, 5)),
        split="users",
        method=method,
        max_rounds=61,
        progress=False,
        tol=1e-9,
    )
    asked = np.zeros((users, users))
    for who, view, peers in Watching.log:
        assert len(view) == len(set(view)) == known
        assert who not in view
        assert set(peers) <= set(view)
        assert len(peers) == sample
        asked[who, peers] += 1
    met = (asked > 0).sum(axis=1)
    assert (met >= 3 * known).all()
    of_all = (users - 1) * (1 - (1 - 1 / (users - 1)) ** asked.sum(axis=1))
    assert met.mean() > 0.85 * of_all.mean()
    popular = asked.sum(axis=0)
    assert popular.max() < 2 * popular.mean()
    assert popular.min() > 0.5 * popular.mean()


def test_few_known_users_suffice_for_the_graph():
    camps = np.arange(30) % 2
    same = camps[:, None] == camps
    shares = {}
    for known in (None, 4):
        result = co.solve(
            co.Personal(count=12, beta=4.0, mu=0.5),
            users_data(1, users=30, rows=(10, 20)),
            split="users",
            known=known,
            sample=2,
            alternations=1,
            max_rounds=40,
            progress=False,
            tol=1e-9,
        )
        W = result.model.weights.toarray()
        shares[known] = W[same].sum() / W.sum()
    assert shares[None] > 0.9
    assert shares[4] > shares[None] - 0.05
    with pytest.raises(InvalidProblem, match="perso-linear has no peer sampling"):
        learned(method="perso-linear", known=4)


def test_models_may_begin_near_the_common_one_with_an_intercept_of_their_own(tmp_path):
    """The beginning is sums of everybody; a user whose labels are all alike is served by its
    intercept alone.
    """
    rng = np.random.default_rng(3)
    users = np.repeat(np.arange(4), 12)
    X = rng.uniform(-1, 1, (48, 2))
    y = np.where(users == 3, 1.0, np.where(X[:, 0] > 0.1, 1.0, -1.0))
    problem = co.Personal(count=8, beta=5.0, constant=True)
    how = {
        "split": "users",
        "network": "ring",
        "max_rounds": 1,
        "check_every": 1,
        "progress": False,
    }
    zeros, common = (
        co.solve(problem, (X, y, users), begin=begin, **how) for begin in ("zeros", "global")
    )
    assert common.certificate.primal < zeros.certificate.primal
    assert common.bill.total.bits > zeros.bill.total.bits, (
        "the steps on everybody's rows are billed"
    )
    assert common.model.coef_.shape == (4, 9)
    assert (common.model.problem.base.values(X)[:, -1] == 1.0).all()
    again = co.models.load_model(common.model.save(tmp_path / "model.npz"))
    np.testing.assert_array_equal(
        again.decision_function(X, users), common.model.decision_function(X, users)
    )
    assert co.verify(common.certificate, again, (X, y, users)).holds
    assert "begin" not in zeros.certificate.settings["method"]
    with pytest.raises(co.CoterieError, match="begin of dada"):
        co.solve(problem, (X, y, users), begin="anywhere", **how)
