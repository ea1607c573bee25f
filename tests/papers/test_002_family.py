"""Paper 002: the five rules are one family. Its corollaries, lemmas and theorems, iterate by
iterate.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import coterie as co
from coterie.data import Table, split
from coterie.errors import InvalidProblem, UnknownName
from coterie.methods import method
from coterie.methods.primal_dual.dual_block import solve_block
from coterie.networks import star
from coterie.numerics.acceleration import Anderson, Halpern, Relaxation, accelerated
from coterie.numerics.losses import LOSSES
from coterie.run.bill import Bill
from coterie.run.certificate import introduce
from coterie.run.disclosure import Case
from coterie.run.setup import make_agents
from coterie.transport.in_process import InProcess
from tests.harness.labels import labels_for
from tests.harness.reference import pooled_optimum

RULES = ["consensus", "lin-consensus", "proximal-1", "proximal-2", "cocoa"]
RNG = np.random.default_rng(0)
N, D, K = 60, 8, 4
X = RNG.standard_normal((N, D))
NUMBERS = X @ RNG.standard_normal(D) + 0.5 * RNG.standard_normal(N)
SIGNS = np.where(NUMBERS + RNG.standard_normal(N) > 0, 1.0, -1.0)
EXACT = {"inner_tolerance": 1e-14, "inner_epochs": 10_000}


def labels(loss):
    return labels_for(loss, NUMBERS, SIGNS)


def agents_for(problem, y, count=K, weights=None):
    network = star(count, server=True)
    members = make_agents(
        split(Table(X, y, weights), "samples", count), problem, "samples", network, 0
    )
    transport = InProcess(network, Bill(network))
    statistics = transport.converse([introduce(a) for a in members], "setup")
    return transport, [
        replace(a, statistics=known) for a, known in zip(members, statistics, strict=True)
    ]


def iterates(steps, problem, y, rounds, count=K):
    """(w, v) after each round, v pooled."""
    transport, members = agents_for(problem, y, count)
    states = transport.converse([steps.start(a) for a in members], "setup")
    for t in range(1, rounds + 1):
        states = transport.converse(
            [steps.round(a, s, t) for a, s in zip(members, states, strict=True)], "rounds"
        )
        yield states[0].w, np.concatenate([s.v for s in states])


@pytest.mark.parametrize("loss", ["squared", "hinge", "logistic", "huber"])
def test_corollary_1_cocoa_is_proximal_1_with_rho_one_over_lambda(loss):
    lam = 0.05
    problem = co.Problem(loss, "l2", lam, intercept=False)
    one = iterates(method("cocoa", **EXACT), problem, labels(loss), 50)
    two = iterates(method("proximal-1", rho=1 / lam, **EXACT), problem, labels(loss), 50)
    before = np.zeros(D)
    for (w_cocoa, v_cocoa), (w, v) in zip(one, two, strict=True):
        np.testing.assert_allclose(v, v_cocoa, atol=1e-9)
        np.testing.assert_allclose(w, (before + w_cocoa) / 2, atol=1e-9)  # w⁺ = (w + w̃⁺)/2
        before = w


def test_corollary_1_fails_for_another_rho():
    problem = co.Problem("squared", "l2", 0.05, intercept=False)
    *_, (_, one) = iterates(method("cocoa", **EXACT), problem, NUMBERS, 3)
    *_, (_, two) = iterates(method("proximal-1", rho=0.5 / 0.05, **EXACT), problem, NUMBERS, 3)
    assert np.abs(one - two).max() > 1e-3


@pytest.mark.parametrize(
    ("first", "second"), [("consensus", "proximal-1"), ("lin-consensus", "proximal-2")]
)
@pytest.mark.parametrize("loss", ["squared", "hinge", "logistic"])
def test_corollary_2_consensus_is_proximal_for_l2(first, second, loss):
    rho = 0.7
    problem = co.Problem(loss, "l2", 0.05, intercept=False)
    exact = EXACT if second == "proximal-1" else {}
    one = iterates(method(first, beta=1 / (rho * K), **exact), problem, labels(loss), 50)
    two = iterates(method(second, rho=rho, **exact), problem, labels(loss), 50)
    for (_, v_one), (_, v_two) in zip(one, two, strict=True):
        np.testing.assert_allclose(v_one, v_two, atol=1e-9)


def test_corollary_2_holds_only_in_the_limit_for_l1():
    problem = co.Problem("squared", "l1", 0.05, intercept=False)
    one = list(iterates(method("consensus", beta=1 / (0.7 * K)), problem, NUMBERS, 400))
    two = list(iterates(method("proximal-1", rho=0.7), problem, NUMBERS, 400))
    assert max(np.abs(a[1] - b[1]).max() for a, b in zip(one, two, strict=True)) > 1e-4
    np.testing.assert_allclose(one[-1][1], two[-1][1], atol=1e-7)


@given(st.integers(1, 6), st.integers(0, 10**6))
@settings(max_examples=30)
def test_lemma_1_both_metrics_are_positive_semidefinite(count, seed):
    A = np.random.default_rng(seed).standard_normal((12, 5))
    blocks = np.array_split(np.arange(12), count)
    block_diagonal = np.zeros((12, 12))
    for rows in blocks:
        block_diagonal[np.ix_(rows, rows)] = A[rows] @ A[rows].T
    tau = max(np.linalg.norm(A[rows], 2) ** 2 for rows in blocks)
    assert np.linalg.eigvalsh(count * block_diagonal - A @ A.T)[0] >= -1e-9
    assert np.linalg.eigvalsh(count * tau * np.eye(12) - A @ A.T)[0] >= -1e-9


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_agents_compute_the_norm_of_all_rows_themselves(seed, weighted):
    """η₂ = λmax(XᵀX) is at most Kτ, and costs a few sums of d numbers."""
    random = np.random.default_rng(seed)
    weights = random.uniform(0.1, 3.0, N) if weighted else None
    problem = co.Problem("squared", "l2", 0.05, intercept=False)
    transport, members = agents_for(problem, NUMBERS, weights=weights)
    members = [replace(one, seed=seed) for one in members]
    before = transport.bill.total.scalars
    steps = method("proximal-2", eta="norm")
    states = transport.converse([steps.start(one) for one in members], "setup")
    scaled = X if weights is None else np.sqrt(weights)[:, None] * X
    norm = np.linalg.norm(scaled, 2) ** 2
    assert norm <= states[0].eta <= 1.011 * norm
    assert len({one.eta for one in states}) == 1
    most = steps.disclosure.before(Case.of(members[0]))
    assert 0 < (transport.bill.total.scalars - before) / (2 * K) <= most[1]
    usual = transport.converse([method("proximal-2").start(one) for one in members], "setup")
    assert states[0].eta < 0.95 * usual[0].eta


def test_the_norm_is_for_linearised_rules_only():
    with pytest.raises(InvalidProblem, match="eta must be a positive number or 'auto'"):
        method("proximal-1", eta="norm")
    with pytest.raises(InvalidProblem, match="eta must be a positive number, 'norm' or 'auto'"):
        method("proximal-2", eta="norms")
    with pytest.raises(InvalidProblem, match="rho must be a positive number or 'auto'"):
        method("proximal-2", rho="norm")


def test_the_norm_saves_rounds_where_agents_differ():
    """Each agent has columns of its own, so that λmax(XᵀX) is τ, and not Kτ."""
    problem = co.Problem("squared", "l2", 0.01, intercept=False)
    own = np.where(np.arange(N)[:, None] * K // N == np.arange(D) * K // D, X, 0.0)
    data = own, own @ np.arange(D) + NUMBERS
    settings = {"agents": K, "method": "proximal-2", "acceleration": "none", "tol": 1e-6}
    usual, shorter = (co.solve(problem, data, eta=eta, **settings) for eta in ("auto", "norm"))
    assert shorter.rounds < 0.9 * usual.rounds
    assert shorter.certificate.relative_gap <= 1e-6


@pytest.mark.parametrize("rule", ["consensus", "lin-consensus", "proximal-1", "proximal-2"])
@pytest.mark.parametrize("loss", ["squared", "hinge"])
def test_theorem_1_the_ergodic_bound(rule, loss):
    """L(w̄; v) − L(w; v̄) ≤ ‖z − z⁰‖²_P / 2T for any z = (w, v), with Lemma 2's P and, as it
    counts, T rounds.
    """
    lam, rho, rounds, y = 0.05, 0.5, 40, labels(loss)
    problem = co.Problem(loss, "l2", lam, intercept=False)
    steps = method(rule, rho=rho, **({} if "2" in rule or "lin" in rule else EXACT))
    path = list(iterates(steps, problem, y, rounds))
    if steps.dual_first:
        pairs = path
    else:  # Lemma 2 pairs w⁽ᵗ⁾ with v⁽ᵗ⁾, which is one round older
        pairs = list(
            zip([w for w, _ in path], [np.zeros(N), *(v for _, v in path[:-1])], strict=True)
        )[1:]
    start = (np.zeros(D), np.zeros(N)) if steps.dual_first else pairs[0]
    used = pairs if steps.dual_first else pairs[1:]
    w_mean, v_mean = (np.mean([pair[i] for pair in used], axis=0) for i in (0, 1))

    def lagrangian(w, v):
        return -problem.loss.conjugate(v, y) / N + w @ X.T @ v / N + problem.penalty.value(w)

    blocks = np.array_split(np.arange(N), K)
    B = np.zeros((N, N))
    for rows in blocks:
        B[np.ix_(rows, rows)] = X[rows] @ X[rows].T
    if steps.linearised:
        from coterie.numerics.arrays import Design

        B = max(Design(X[rows]).squared_norm() for rows in blocks) * np.eye(N)
    sign = 1 if steps.dual_first else -1
    P = np.block([[np.eye(D) / rho, sign * X.T / N], [sign * X / N, rho * K * B / N**2]])
    w_star, _, _ = pooled_optimum(problem, X, y)
    v_star = np.clip(problem.loss.gradient(X @ w_star, y), *problem.loss.domain(y))
    for w, v in ((w_star, v_star), (np.ones(D), 0.3 * v_star), (np.zeros(D), np.zeros(N))):
        z = np.concatenate([w - start[0], v - start[1]])
        assert lagrangian(w_mean, v) - lagrangian(w, v_mean) <= z @ P @ z / (2 * len(used)) + 1e-9


@pytest.mark.parametrize("rule", ["consensus", "proximal-1"])
def test_theorem_2_the_ergodic_bound_of_inexact_steps(rule):
    """With ε⁽ᵗ⁾ the part of F(z⁽ᵗ⁾) that P(z⁽ᵗ⁻¹⁾ − z⁽ᵗ⁾) lacks, and D ≥ ‖z⁽ᵗ⁾ − z*‖:

    L(w̄; v*) − L(w*; v̄) ≤ ‖z* − z⁽⁰⁾‖²_P / 2T + D Σ‖ε⁽ᵗ⁾‖ / T.
    """
    lam, rho, rounds, y = 0.05, 0.5, 60, SIGNS
    problem = co.Problem("logistic", "l2", lam, intercept=False)
    zeros = np.zeros(D), np.zeros(N)
    path = [zeros, *iterates(method(rule, rho=rho), problem, y, rounds)]
    z = np.array([np.concatenate(pair) for pair in path])
    B = np.zeros((N, N))
    for rows in np.array_split(np.arange(N), K):
        B[np.ix_(rows, rows)] = X[rows] @ X[rows].T
    sign = 1 if rule == "consensus" else -1
    P = np.block([[np.eye(D) / rho, sign * X.T / N], [sign * X / N, rho * K * B / N**2]])
    w, v = z[1:, :D], z[1:, D:]
    scores = y * np.log((1 + y * v) / (-y * v))  # ∇ℓ*(v) of the logistic loss
    monotone = np.hstack([v @ X / N + lam * w, (scores - w @ X.T) / N])
    errors = monotone - (z[:-1] - z[1:]) @ P
    # The server's step is exact; those of the agents are rough at first, and summable.
    np.testing.assert_allclose(errors[:, :D], 0.0, atol=1e-12)
    sizes = np.linalg.norm(errors, axis=1)
    assert sizes[0] > 1e-4
    assert (sizes <= 2e-3 * np.arange(1, rounds + 1) ** -1.1).all()

    w_star, _, _ = pooled_optimum(problem, X, y)
    v_star = problem.loss.gradient(X @ w_star, y)
    z_star = np.concatenate([w_star, v_star])
    farthest = np.linalg.norm(z[1:] - z_star, axis=1).max()

    def lagrangian(w, v):
        return -problem.loss.conjugate(v, y) / N + w @ X.T @ v / N + problem.penalty.value(w)

    for T in (1, 2, 5, 20, rounds):
        mean = z[1 : T + 1].mean(axis=0)
        gap = lagrangian(mean[:D], v_star) - lagrangian(w_star, mean[D:])
        first = z_star @ P @ z_star / (2 * T)
        assert 0 <= gap <= first + farthest * sizes[:T].sum() / T


@pytest.mark.parametrize("loss", sorted(LOSSES))
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_the_local_solver_solves_its_problem(loss, weighted, sparse):
    """Optimality: v = prox_{ℓ*}(v + X(w − c Xᵀ(s∘(v − v⁰)))) at the answer, for any c, with and
    without intercept.
    """
    import scipy.sparse as sp

    rng = np.random.default_rng(1)
    weights = rng.uniform(0.5, 2, N) if weighted else None
    problem = co.Problem(loss, "l2", 0.1, intercept=True)
    y = labels(loss)
    data = Table(sp.csr_array(X) if sparse else X, y, weights)
    agent = make_agents([data], problem, "samples", star(1, server=True), 0)[0]
    v = np.clip(0.2 * rng.standard_normal(N), *problem.loss.domain(y))
    w = rng.standard_normal(D + 1)
    for c in (0.01, 0.3, 10.0):
        new, Xnew = solve_block(
            agent, v, agent.design.adjoint(agent.weighted(v)), w, c, 1e-13, 100_000, 1
        )
        np.testing.assert_allclose(Xnew, agent.design.adjoint(agent.weighted(new)), atol=1e-9)
        pull = agent.design.forward(w - c * agent.design.adjoint(agent.weighted(new - v)))
        np.testing.assert_allclose(new, problem.loss.dual_prox(new + pull, y, 1.0), atol=1e-8)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("rows", [400, 30], ids=["tall", "wide"])
@pytest.mark.parametrize("loss", ["logistic", "huber", "squared_hinge"])
def test_correlated_columns_leave_no_local_problem_half_solved(loss, rows, sparse):
    """Fifty sweeps are far from enough for columns that are nearly alike."""
    import scipy.sparse as sp

    rng = np.random.default_rng(2)
    smooth = np.cumsum(rng.standard_normal((rows, 50)), axis=1)
    y = labels_for(
        loss,
        smooth[:, 20] + rng.standard_normal(rows),
        np.sign(smooth[:, 20] + rng.standard_normal(rows)),
    )
    problem = co.Problem(loss, "l2", 1e-4, intercept=True)
    data = Table(sp.csr_array(smooth) if sparse else smooth, y, rng.uniform(0.5, 2.0, rows))
    agent = make_agents([data], problem, "samples", star(1, server=True), 0)[0]
    v, w = np.zeros(rows), np.zeros(51)
    new, Xnew = solve_block(agent, v, np.zeros(51), w, 1.0, 1e-3, 50, 1)
    np.testing.assert_allclose(
        Xnew, agent.design.adjoint(agent.weighted(new)), rtol=1e-9, atol=1e-9
    )
    # The naive twin: v⁺ = ℓ'(X̃z) where Σ s ℓ(X̃z) + ‖z‖²/2c is least
    scores, back = agent.design.forward, lambda u: agent.design.adjoint(agent.weighted(u))
    found = minimize(
        lambda z: agent.loss.value(scores(z), y, data.weights) + z @ z / 2,
        w,
        jac=lambda z: back(agent.loss.gradient(scores(z), y)) + z,
        method="BFGS",
        options={"gtol": 1e-9, "maxiter": 10_000},
    )
    exact = agent.loss.gradient(scores(found.x), y)
    assert np.linalg.norm(new - exact) <= 0.01 * np.linalg.norm(exact)


@pytest.mark.rotates
@pytest.mark.parametrize("penalty", ["l2", "l1", "elasticnet", "none", "group"])
@pytest.mark.parametrize("loss", sorted(LOSSES))
@pytest.mark.parametrize("rule", RULES)
def test_every_rule_reaches_the_pooled_optimum(rule, loss, penalty):
    parameters = {
        "l2": {"strength": 0.05},
        "l1": {"strength": 0.05},
        "elasticnet": {"strength": 0.05, "l1_ratio": 0.5},
        "none": {},
        "group": {"strength": 0.03, "groups": tuple(np.arange(D) // 2)},
    }[penalty]
    problem = co.Problem(loss, penalty, intercept=False, **parameters)
    if rule == "cocoa" and penalty not in ("l2", "elasticnet"):
        with pytest.raises(InvalidProblem, match="proximal-1"):
            co.solve(problem, (X, labels(loss)), agents=K, method=rule)
        return
    result = co.solve(problem, (X, labels(loss)), agents=K, method=rule, tol=1e-4, max_rounds=1500)
    hard = not np.isfinite(problem.loss.smoothness) and (
        problem.penalty.strong_convexity == 0 or rule == "cocoa"
    )
    assert result.status.success or hard, "without smoothness and growth the rate is only 1/t"
    best = pooled_optimum(problem, X, labels(loss))[2]
    assert -1e-7 <= result.certificate.primal - best <= result.certificate.gap + 1e-7
    assert result.certificate.relative_gap <= 0.05
    assert result.bill.scalars == 2 * K * D * result.rounds


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    "agents", [1, N, [40, 20], [30, 0, 30]], ids=["one", "one each", "unequal", "one empty"]
)
def test_any_split_gives_the_same_answer(rule, agents):
    problem = co.Problem("logistic", "l2", 0.05, intercept=False)
    result = co.solve(problem, (X, SIGNS), agents=agents, method=rule, tol=1e-6, max_rounds=5000)
    assert result.status == "optimal"
    assert (
        result.certificate.primal - pooled_optimum(problem, X, SIGNS)[2]
        <= result.certificate.gap + 1e-8
    )


def test_cocoa_refuses_an_intercept():
    with pytest.raises(InvalidProblem, match="intercept"):
        co.solve(co.Problem("logistic", "l2", 0.1, intercept=True), (X, SIGNS), method="cocoa")


# -- acceleration ----------------------------------------------------------------------------------


@pytest.mark.rotates
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("loss", ["squared", "logistic", "huber", "squared_hinge"])
@pytest.mark.parametrize("penalty", ["l2", "l1"])
def test_anderson_is_never_much_worse_than_plain(rule, loss, penalty):
    if rule == "cocoa" and penalty == "l1":
        pytest.skip("cocoa needs l2")
    problem = co.Problem(loss, penalty, 0.01, intercept=False)
    run = {"agents": K, "method": rule, "tol": 1e-6, "check_every": 1, "max_rounds": 3000}
    plain = co.solve(problem, (X, labels(loss)), acceleration="none", **run)
    fast = co.solve(problem, (X, labels(loss)), acceleration="anderson", **run)
    assert fast.status == "optimal"
    assert fast.rounds <= 1.1 * plain.rounds + 2
    assert fast.bill.scalars == 2 * K * D * fast.rounds


def hinge_rounds(seed, penalty, acceleration, limit):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((200, 20))
    y = np.where(A @ rng.standard_normal(20) + rng.standard_normal(200) > 0, 1.0, -1.0)
    run = {"agents": 5, "method": "proximal-1", "tol": 1e-6, "check_every": 1, "max_rounds": limit}
    return co.solve(
        co.Problem("hinge", penalty, 0.005, intercept=False),
        (A, y),
        acceleration=acceleration,
        **run,
    ).rounds


def test_the_hinge_is_relaxed_until_anderson_has_something_to_promise():
    kinds = ("none", "relaxation", "auto")
    rounds = {
        kind: np.array([hinge_rounds(seed, "l2", kind, 5000) for seed in range(4)])
        for kind in kinds
    }
    assert (rounds["relaxation"] <= 1.1 * rounds["none"]).all()
    assert (rounds["auto"] <= 0.8 * rounds["none"]).all()
    assert rounds["auto"].sum() <= 0.6 * rounds["none"].sum()


@pytest.mark.rotates
@pytest.mark.parametrize("seed", [1, 2])
def test_an_anchor_ends_the_circling_where_nothing_is_strongly_convex(seed):
    anchored = hinge_rounds(seed, "l1", "auto", 2000)
    assert anchored < 2000
    assert all(
        hinge_rounds(seed, "l1", kind, 2 * anchored) == 2 * anchored
        for kind in ("none", "relaxation")
    )


@pytest.mark.parametrize("acceleration", ["anderson", "halpern", "relaxation"])
@pytest.mark.parametrize("stop", [3, 11, 25])
def test_accelerated_runs_resume_bit_by_bit(tmp_path, acceleration, stop):
    problem = co.Problem("logistic", "l1", 0.01, intercept=False)
    run = {"agents": K, "tol": 1e-15, "acceleration": acceleration, "check_every": 40}
    whole = co.solve(problem, (X, SIGNS), max_rounds=40, **run)
    co.solve(problem, (X, SIGNS), max_rounds=stop, checkpoint=tmp_path, **run)
    resumed = co.solve(problem, (X, SIGNS), max_rounds=40, checkpoint=tmp_path, **run)
    np.testing.assert_array_equal(resumed.model.coef_, whole.model.coef_)
    assert resumed.bill.scalars == whole.bill.scalars


def test_anderson_solves_a_linear_map_in_as_many_rounds_as_it_has_dimensions():
    """On x ↦ Mx + b in d dimensions the plain iteration creeps; with memory d it is exact after d +
    1 rounds.
    """
    problem = co.Problem("squared", "l2", 0.05, intercept=False)
    steps = Anderson(method("cocoa"), memory=15, alpha=1.0, safeguard=1e9)
    transport, members = agents_for(problem, NUMBERS, count=1)
    states = transport.converse([steps.start(a) for a in members], "setup")
    for t in range(1, 12):
        states = transport.converse(
            [steps.round(a, s, t) for a, s in zip(members, states, strict=True)], "rounds"
        )
        states = transport.converse(
            [steps.tune(a, s, t) for a, s in zip(members, states, strict=True)], "tuning"
        )
    best = pooled_optimum(problem, X, NUMBERS)[0]
    np.testing.assert_allclose(states[0].image.w, best, atol=1e-6)


def accelerated_states(steps, problem, y, rounds):
    transport, members = agents_for(problem, y)
    states = transport.converse([steps.start(a) for a in members], "setup")
    for t in range(1, rounds + 1):
        states = transport.converse(
            [steps.round(a, s, t) for a, s in zip(members, states, strict=True)], "rounds"
        )
        states = transport.converse(
            [steps.tune(a, s, t) for a, s in zip(members, states, strict=True)], "tuning"
        )
        yield states


def test_without_a_promise_anderson_is_the_plain_iteration():
    problem = co.Problem("squared", "l2", 0.05, intercept=False)
    plain = iterates(method("proximal-1", rho=0.7), problem, NUMBERS, 6)
    steps = Anderson(method("proximal-1", rho=0.7), promise=0.0, alpha=1.0)
    for (w, _), states in zip(plain, accelerated_states(steps, problem, NUMBERS, 6), strict=True):
        np.testing.assert_allclose(states[0].image.w, w, atol=1e-12)


@pytest.mark.parametrize("loss", ["hinge", "squared", "logistic"])
@pytest.mark.parametrize("rule", ["consensus", "lin-consensus", "proximal-1", "proximal-2"])
def test_what_an_agent_says_of_its_dual_is_carried_along_with_it(rule, loss):
    """Xv is never computed again from v; relaxed, extrapolated, with an intercept, it stays the
    image of v.
    """
    problem = co.Problem(loss, "l2", 0.05, intercept=True)
    steps = Anderson(method(rule), patience=10, promise=1.0, alpha=1.5)
    _, members = agents_for(problem, labels(loss))
    for states in accelerated_states(steps, problem, labels(loss), 30):
        for agent, state in zip(members, states, strict=True):
            for inner in (state.start, state.image):
                image = agent.centred.adjoint(inner.v)
                np.testing.assert_allclose(inner.Xv, image, atol=1e-10 * (1 + np.abs(image).max()))


def test_a_patient_anderson_is_relaxed_and_says_nothing_at_first():
    problem = co.Problem("hinge", "l2", 0.05, intercept=False)
    run = {"agents": K, "method": "proximal-1", "rho": 1.0, "max_rounds": 8}
    relaxed = Relaxation(method("proximal-1", rho=1.0))
    patient = Anderson(method("proximal-1", rho=1.0), alpha=1.9, patience=8)
    paths = (accelerated_states(steps, problem, SIGNS, 8) for steps in (relaxed, patient))
    for one, two in zip(*paths, strict=True):
        np.testing.assert_allclose(one[0].image.w, two[0].image.w, atol=1e-12)
        assert not len(two[0].f_changes)
    assert co.solve(problem, (X, SIGNS), **run).bill.per_purpose.get("tuning") is None


def test_after_a_bad_extrapolation_anderson_goes_back_to_the_best_image():
    """Steps that are far too long explode; the safeguard must lead back, and forget."""
    problem = co.Problem("squared", "l2", 0.05, intercept=False)
    wild = Anderson(method("proximal-2", rho=1.0, eta=0.2 * np.linalg.norm(X, 2) ** 2))
    path = list(accelerated_states(wild, problem, NUMBERS, 60))
    went_back = [states[0] for states in path if states[0].least == np.inf]
    assert went_back, "the safeguard never acted"
    assert all(np.array_equal(state.start.w, state.safe.w) for state in went_back)
    assert np.isfinite(path[-1][0].image.w).all()


def test_relaxation_gives_way_when_the_residual_grows():
    problem = co.Problem("squared", "l2", 0.05, intercept=False)
    steps = Relaxation(
        method("proximal-2", rho=1.0, eta=0.3 * np.linalg.norm(X, 2) ** 2)
    )  # too bold a step
    transport, members = agents_for(problem, NUMBERS)
    states = transport.converse([steps.start(a) for a in members], "setup")
    for t in range(1, 31):
        states = transport.converse(
            [steps.round(a, s, t) for a, s in zip(members, states, strict=True)], "rounds"
        )
        states = transport.converse(
            [steps.tune(a, s, t) for a, s in zip(members, states, strict=True)], "tuning"
        )
    assert states[0].alpha < 1.9


def test_halperns_iteration_is_pulled_back_to_where_it_was_restarted():
    """x⁺ = (k+1)/(k+2) (2T(x) − x) + 1/(k+2) x₀, in w and in every agent's v; a restart begins at
    T(x).
    """
    steps, restarts = Halpern(method("proximal-1", rho=1.0)), 0
    before = None
    for states in accelerated_states(
        steps, co.Problem("hinge", "l1", 0.01, intercept=False), SIGNS, 40
    ):
        for old, new in zip(before or states, states, strict=True):
            if new.k == 0:
                assert new.start is new.image
                assert new.anchor is new.image
                restarts += 1
            elif before:
                for name in ("w", "v", "Xv"):
                    x, x0, Tx = (
                        getattr(old.start, name),
                        getattr(old.anchor, name),
                        getattr(new.image, name),
                    )
                    expected = (new.k * (2 * Tx - x) + x0) / (new.k + 1)
                    np.testing.assert_allclose(
                        getattr(new.start, name), expected, atol=1e-12 * (1 + np.abs(x).max())
                    )
                assert new.anchor is old.anchor
        before = states
    assert K < restarts < 40 * K


def test_names_of_accelerations():
    with pytest.raises(UnknownName, match="anderson"):
        co.solve(
            co.Problem("squared", "l2", 0.1, intercept=False), (X, NUMBERS), acceleration="andersen"
        )
    with pytest.raises(InvalidProblem, match="cannot be accelerated"):
        accelerated(Anderson(method("cocoa")), "relaxation", method("cocoa"))


@pytest.mark.parametrize("agents", [1, 2, 4])
@pytest.mark.parametrize("rule", ["proximal-1", "consensus"])
def test_halperns_anchor_forgives_large_blocks_that_are_solved_roughly(rule, agents):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((200, 8)) * rng.uniform(0.3, 3, 8)
    y = np.sign(A[:, 0] + rng.standard_normal(200))
    result = co.solve(
        co.Problem("hinge", "l1", 0.01, intercept=False),
        (A, y),
        agents=agents,
        method=rule,
        tol=1e-5,
        max_rounds=1000,
    )
    assert result.status == "optimal"
