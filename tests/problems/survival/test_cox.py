"""Proportional hazards: risk sets, derivatives, proofs in 60 digits, and what statsmodels says."""

from __future__ import annotations

from dataclasses import replace

import mpmath as mp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.duration.hazard_regression import PHReg

import coterie as co
from coterie.data import Table
from coterie.errors import InvalidData, InvalidProblem, NumericalError
from coterie.methods.second_order import newton as proximal_newton
from coterie.networks import star
from coterie.numerics.arrays import Design
from coterie.problems import proof as skeleton
from coterie.problems.survival.likelihood import CoxLocalLoss, RiskSets, risk_of
from coterie.problems.survival.proof import _Gaps
from coterie.run.bill import Bill
from coterie.run.certificate import Point, certify
from coterie.run.rounds import introduced
from coterie.run.setup import make_agents
from coterie.run.tables import prepare_tables
from coterie.transport.in_process import InProcess

RNG = np.random.default_rng(22)
N, D = 150, 4
X = RNG.standard_normal((N, D)) * [1.0, 2.0, 0.5, 1.0] + [0.0, 5.0, 100.0, -3.0]
TIME = np.ceil(RNG.exponential(np.exp(-(X - X.mean(axis=0)) @ [0.5, -0.3, 0.0, 0.8])) * 12)
EVENT = RNG.random(N) < 0.7
ENTRY = np.where(RNG.random(N) < 0.5, 0.0, np.floor(TIME * RNG.random(N) * 0.9) + 0.5)
STRATA = RNG.integers(0, 2, N)
PARTY = np.arange(N) % 3
Y = co.survival_labels(TIME, EVENT)
PENALTIES = {
    "none": {},
    "l2": {"strength": 0.02},
    "l1": {"strength": 0.02},
    "elasticnet": {"strength": 0.02, "l1_ratio": 0.4},
    "group": {"strength": 0.02, "groups": (0, 0, 1, 1)},
    "box": {"lower": -0.1, "upper": 0.3},
}


def parties(y=Y, rows=X, weights=None):
    parts = [(rows[k == PARTY], y[k == PARTY]) for k in range(3)]
    return (
        parts if weights is None else [(*part, weights[k == PARTY]) for k, part in enumerate(parts)]
    )


# -- risk sets and derivatives ---------------------------------------------------------------------


def drawn(seed, n=30, truncated=True):
    rng = np.random.default_rng([seed, n])
    time = rng.integers(1, 12, n).astype(float)
    entry = np.floor(time * rng.random(n) * rng.integers(0, 2, n)) - 1.0 if truncated else None
    y = co.survival_labels(
        time, rng.random(n) < rng.choice([0.0, 0.3, 1.0]), entry, rng.integers(0, 3, n)
    )
    return rng, y, rng.uniform(0.3, 3.0, n), rng.standard_normal(n) * rng.choice([0.1, 2.0, 30.0])


def present(y, k, risk):
    """Who is at risk at an event time, by the definition."""
    stratum = y[risk.events & (risk.end - 1 == k), 3][0]
    return (y[:, 2] < risk.times[k]) & (risk.times[k] <= y[:, 0]) & (y[:, 3] == stratum)


@given(seed=st.integers(0, 10_000), truncated=st.booleans(), n=st.integers(0, 40))
@settings(max_examples=60, deadline=None)
def test_sums_over_risk_sets_are_what_they_say(seed, truncated, n):
    rng, y, s, _ = drawn(seed, n, truncated)
    risk = RiskSets(y, s)
    sets = np.array([present(y, k, risk) for k in range(risk.count)]).reshape(risk.count, n)
    values, hazards = rng.standard_normal(n), rng.standard_normal(risk.count)
    np.testing.assert_allclose(risk.at_risk(values), sets @ values, atol=1e-12)
    np.testing.assert_allclose(risk.exposed(hazards), sets.T @ hazards, atol=1e-12)
    assert risk.deaths.sum() == pytest.approx(s[y[:, 1] > 0].sum())


def test_sums_in_order_lose_nothing_that_counts():
    n = 20_000
    y = co.survival_labels(np.arange(n) + 1.0, np.ones(n))
    values = RNG.uniform(0.5, 1.0, n) * 10.0 ** RNG.uniform(-8, 8, n)
    exact = mp.fsum(map(mp.mpf, values.tolist()))
    assert abs(RiskSets(y).at_risk(values)[0] / exact - 1) < 4e-16
    assert abs(RiskSets(y).exposed(values)[-1] / exact - 1) < 4e-16


def loss(u, y, s, number=float, log=np.log, exp=np.exp):
    """The definition: a sum over events of logarithms of sums over those at risk."""
    total = number(0)
    for i in np.flatnonzero(y[:, 1] > 0):
        at_risk = (y[:, 2] < y[i, 0]) & (y[i, 0] <= y[:, 0]) & (y[:, 3] == y[i, 3])
        total += number(s[i]) * (
            log(sum(number(s[j]) * exp(u[j]) for j in np.flatnonzero(at_risk))) - u[i]
        )
    return total


@given(seed=st.integers(0, 10_000), truncated=st.booleans())
@settings(max_examples=20, deadline=None)
def test_value_slopes_and_curvature_in_many_digits(seed, truncated):
    rng, y, s, u = drawn(seed, 12, truncated)
    risk, design = RiskSets(y, s), Design(rng.standard_normal((12, 2)))
    local = CoxLocalLoss(np.zeros(2), design, risk, u)
    y = y if truncated else np.column_stack([y[:, 0], y[:, 1], np.full(12, -1.0), y[:, 3]])
    way = rng.standard_normal(12)
    with mp.workdps(40):
        line = [(mp.mpf(a), mp.mpf(b)) for a, b in zip(u, way, strict=True)]

        def at(t):
            return loss([a + t * b for a, b in line], y, s, mp.mpf, mp.log, mp.exp)

        value, slope, bend = (float(mp.diff(at, 0, order)) for order in range(3))
    assert local.losses == pytest.approx(value, rel=1e-12, abs=1e-11)
    assert local.gradients @ way == pytest.approx(slope, rel=1e-9, abs=1e-9)
    assert way @ local.hessian_product(way) == pytest.approx(bend, rel=1e-7, abs=1e-7)
    np.testing.assert_allclose(local.row_scores().sum(axis=0), -local.adjoint, atol=1e-8)
    H = local.hessian()
    H = H + np.triu(H, 1).T
    np.testing.assert_allclose(
        H[0], design.adjoint(local.hessian_product(design.X[:, 0])), atol=1e-7
    )
    assert (local.diagonal() >= H.diagonal() - 1e-9).all()


# -- answers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["plain", "entry", "strata", "entry and strata"])
def test_statsmodels_has_the_same_answer(how):
    entry, strata = ENTRY if "entry" in how else None, STRATA if "strata" in how else None
    y = co.survival_labels(TIME, EVENT, entry, strata)
    result = co.solve(co.Problem("cox"), parties(y), tol=1e-10)
    groups = PARTY if strata is None else PARTY + 3 * STRATA
    twin = PHReg(TIME, X, status=EVENT, entry=entry, strata=groups, ties="breslow").fit(disp=0)
    assert result.status.success
    np.testing.assert_allclose(result.model.coef_, twin.params, atol=1e-6)
    assert result.certificate.primal == pytest.approx(-twin.llf / N, rel=1e-9)
    assert co.verify(result.certificate, result.model, parties(y)).holds
    np.testing.assert_allclose(result.model.predict(X), X @ result.model.coef_)
    np.testing.assert_allclose(result.model.hazard_ratios(), np.exp(twin.params), rtol=1e-6)


def test_an_offset_is_a_column_with_a_known_coefficient():
    data = [(rows[:, :3], y, None, 0.5 * rows[:, 3]) for rows, y in parties()]
    result = co.solve(co.Problem("cox"), data, tol=1e-10)
    offset = 0.5 * X[:, 3]
    twin = PHReg(TIME, X[:, :3], EVENT, strata=PARTY, offset=offset, ties="breslow").fit(disp=0)
    np.testing.assert_allclose(result.model.coef_, twin.params, atol=1e-6)
    assert co.verify(result.certificate, result.model, data).holds
    np.testing.assert_allclose(result.inference().standard_errors, twin.bse, rtol=1e-6)
    first = np.column_stack([data[0][0], data[0][3]])
    whole = replace(
        result.model, coef_=np.append(result.model.coef_, 1.0), problem=co.Problem("cox")
    )
    np.testing.assert_allclose(
        result.model.baseline(data[0]).table()[5]["survival"],
        whole.baseline((first, data[0][1])).table()[5]["survival"],
    )
    scores = co.evaluate(result, data).scores["concordance"]
    assert 0.5 < scores < 1


def test_standard_errors_are_those_of_statsmodels():
    result, twin = (
        co.solve(co.Problem("cox"), parties(), tol=1e-10),
        PHReg(TIME, X, EVENT, strata=PARTY, ties="breslow"),
    )
    found, model = result.inference(), twin.fit(disp=0)
    np.testing.assert_allclose(found.standard_errors, model.bse, rtol=1e-6)
    np.testing.assert_allclose(found.covariance, model.cov_params(), rtol=1e-6)
    np.testing.assert_allclose(found.intervals, model.conf_int(), rtol=1e-6)
    assert found.table()[3]["exp(coef)"] == pytest.approx(np.exp(model.params[3]), rel=1e-6)
    assert "exp(coef)" in str(found)
    robust = twin.fit(disp=0, groups=np.arange(N))
    np.testing.assert_allclose(result.inference("robust").standard_errors, robust.bse, rtol=1e-6)
    groups = np.arange(N) // 5  # with rows at all parties
    clustered = result.inference("clustered", [groups[k == PARTY] for k in range(3)])
    np.testing.assert_allclose(
        clustered.standard_errors, twin.fit(disp=0, groups=groups).bse, rtol=1e-6
    )


def test_weights_of_standard_errors_are_repeated_rows():
    times = RNG.integers(1, 4, N)
    repeated = np.repeat(np.arange(N), times)
    weighted = co.solve(co.Problem("cox"), (X, Y, times.astype(float)), tol=1e-10)
    whole = co.solve(co.Problem("cox"), (X[repeated], Y[repeated]), tol=1e-10)
    for kind in ("model", "robust"):
        found, twin = (one.inference(kind).standard_errors for one in (weighted, whole))
        np.testing.assert_allclose(found, twin, rtol=1e-6)


def test_standard_errors_that_there_are_not():
    nothing = co.survival_labels(np.exp(-X[:40, 0] / 3), np.arange(40) < 4)
    with pytest.raises(InvalidData, match="monotone likelihood"):
        co.solve(co.Problem("cox"), (X[:40], nothing)).inference()
    with pytest.raises(InvalidData, match="x4 cannot be distinguished"):
        co.solve(
            co.Problem("cox"),
            (np.column_stack([X, STRATA]), co.survival_labels(TIME, EVENT, None, STRATA)),
        ).inference()
    with pytest.raises(InvalidProblem, match="l2 penalty biases"):
        co.solve(co.Problem("cox", "l2", 0.1), (X, Y)).inference()


def test_one_piece_is_one_stratum_and_weights_are_repeated_rows():
    times = RNG.integers(1, 4, N)
    repeated = np.repeat(np.arange(N), times)
    weighted = co.solve(co.Problem("cox", "l2", 0.01), (X, Y, times.astype(float)), tol=1e-11)
    whole = co.solve(co.Problem("cox", "l2", 0.01), (X[repeated], Y[repeated]), tol=1e-11)
    np.testing.assert_allclose(weighted.model.coef_, whole.model.coef_, atol=1e-7)
    assert len(whole.certificate.participants) == 1


SOME = 60


def exact_slope(coef, lam2):
    """∇ and ∇² of the smooth part in many digits, some rows in one stratum."""
    rows = [[mp.mpf(x) for x in row] for row in (X - X.mean(axis=0))[:SOME].tolist()]
    e = [mp.exp(mp.fdot(row, coef)) for row in rows]
    slope = [lam2 * w for w in coef]
    hessian = mp.matrix(D, D) + lam2 * mp.eye(D)
    for i in np.flatnonzero(EVENT[:SOME]):
        held = np.flatnonzero(TIME[i] <= TIME[:SOME]).tolist()
        total = mp.fsum(e[j] for j in held)
        means = [mp.fsum(e[j] * rows[j][k] for j in held) / total for k in range(D)]
        for k in range(D):
            slope[k] += (means[k] - rows[i][k]) / SOME
            for m in range(k, D):
                moment = mp.fsum(e[j] * rows[j][k] * rows[j][m] for j in held) / total
                hessian[k, m] += (moment - means[k] * means[m]) / SOME
                hessian[m, k] = hessian[k, m]
    return slope, hessian


@pytest.mark.parametrize("penalty", ["l2", "l1", "elasticnet"])
def test_penalised_answers_are_those_of_many_digits(penalty):
    """Newton's method in 30 digits on the coefficients that are not 0; the others are within the
    slope of the kink.
    """
    result = co.solve(
        co.Problem("cox", penalty, **PENALTIES[penalty]), (X[:SOME], Y[:SOME]), tol=1e-11
    )
    lam1 = {"l2": 0.0, "l1": 0.02, "elasticnet": 0.02 * 0.4}[penalty]
    lam2 = {"l2": 0.02, "l1": 0.0, "elasticnet": 0.02 * 0.6}[penalty]
    signs = np.sign(result.model.coef_)
    active = np.flatnonzero(signs).tolist()
    with mp.workdps(30):
        coef = [mp.mpf(w) for w in result.model.coef_.tolist()]
        for _ in range(2):
            slope, hessian = exact_slope(coef, mp.mpf(lam2))
            pull = mp.matrix([slope[j] + mp.mpf(lam1) * int(signs[j]) for j in active])
            step = mp.lu_solve(mp.matrix([[hessian[j, k] for k in active] for j in active]), pull)
            for place, j in enumerate(active):
                coef[j] -= step[place]
        assert mp.norm(pull) < 1e-12
        assert all(abs(slope[j]) <= lam1 + 1e-9 for j in range(D) if j not in active)
    np.testing.assert_allclose(result.model.coef_, [float(w) for w in coef], atol=1e-6)


@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_products_lead_where_hessians_do(penalty, storage, monkeypatch):
    problem = co.Problem("cox", penalty, **PENALTIES[penalty])
    rows = (X - X.mean(axis=0)) if storage is sp.csr_array else X
    data = parties(rows=storage(rows) if storage is np.asarray else rows)
    if storage is sp.csr_array:
        data = [(sp.csr_array(part), y) for part, y in data]
    whole = co.solve(problem, data, tol=1e-9)
    monkeypatch.setattr(
        proximal_newton, "TUNING", proximal_newton._Tuning(full=0, full_nonsmooth=0)
    )
    apart = co.solve(problem, data, tol=1e-9)
    assert whole.status.success
    assert apart.status.success
    assert apart.certificate.primal == pytest.approx(whole.certificate.primal, abs=1e-8)
    assert apart.rounds <= 30


# -- proofs ----------------------------------------------------------------------------------------


def exact(problem, rows, y, s, coef) -> mp.mpf:
    """P in 60 digits."""
    coef = [mp.mpf(w) for w in coef.tolist()]
    u = [mp.fdot(map(mp.mpf, row.tolist()), coef) for row in rows.astype(float)]
    s = s.astype(float)
    total = loss(u, y, s, mp.mpf, mp.log, mp.exp) / mp.fsum(map(mp.mpf, s.tolist()))
    strength, share = (
        mp.mpf(getattr(problem.penalty, "strength", 0.0)),
        getattr(problem.penalty, "l1_ratio", None),
    )
    l1 = {"l1": mp.mpf(1), "elasticnet": None if share is None else mp.mpf(share)}.get(
        problem.penalty.name, mp.mpf(0)
    )
    l2 = 0 if problem.penalty.name in ("l1", "none") else 1 - l1
    return total + strength * (l1 * mp.fsum(map(abs, coef)) + l2 / 2 * mp.fsum(w * w for w in coef))


@pytest.mark.rotates
@pytest.mark.parametrize("seed", range(24))
def test_no_gap_is_smaller_than_the_truth(seed):
    rng = np.random.default_rng([23, seed])
    n, d = int(rng.integers(6, 22)), int(rng.integers(1, 4))
    rows = rng.standard_normal((n, d)) * 10.0 ** rng.uniform(-6, 6, d)
    if rng.random() < 0.4:
        rows = rows + np.abs(rows).mean(axis=0) * 10.0 ** rng.uniform(0, 8)
    time = rng.integers(1, 9, n).astype(float)
    entry = time - 1.0 - rng.integers(0, 5, n) if rng.random() < 0.4 else np.full(n, -9.0)
    y = co.survival_labels(time, np.r_[True, rng.random(n - 1) < 0.6], entry, rng.integers(0, 2, n))
    rows = rows.astype(np.float32) if rng.random() < 0.3 else rows
    s = (
        rng.uniform(0.1, 3.0, n).astype(rows.dtype)
        if rng.random() < 0.3
        else np.ones(n, rows.dtype)
    )
    penalty = str(rng.choice(["l2", "l1", "elasticnet", "none"]))
    strength = {} if penalty == "none" else {"strength": float(10 ** rng.uniform(-4, -1))}
    problem = co.Problem("cox", penalty, **strength)
    result = co.solve(
        problem, (rows, y, s), max_rounds=int(rng.choice([0, 1, 3, 40])), progress=False
    )
    better = co.solve(problem, (rows, y, s), tol=1e-13, max_rounds=60, progress=False)
    with mp.workdps(60):
        local, there = (exact(problem, rows, y, s, one.model.coef_) for one in (result, better))
        radius = result.certificate.radius
        assert abs(local - mp.mpf(result.certificate.primal)) <= 1e-9 * (1 + abs(local))
        if radius is None or np.linalg.norm(better.model.coef_) <= radius:
            assert local - there <= mp.mpf(result.certificate.gap)


@given(
    seed=st.integers(0, 1000),
    far=st.sampled_from([0.0, 1e-9, 1e-3, 3.0]),
    c=st.sampled_from([0.0, 0.3, 1 - 1e-9, 1.0]),
)
@settings(max_examples=40, deadline=None)
def test_what_is_lost_is_the_divergence_from_the_dual(seed, far, c):
    """The formula with sums over risk sets against all probabilities of all rows at risk, in 60
    digits.
    """
    rng, y, s, u = drawn(seed, 14)
    risk, design = RiskSets(y, s), Design(np.zeros((14, 1)))
    local = CoxLocalLoss(np.zeros(1), design, risk, u)
    dual = (
        local
        if far == 0
        else CoxLocalLoss(np.zeros(1), design, risk, u + far * rng.standard_normal(14))
    )
    found, error = _Gaps(local, dual, 0.0, float(risk.deaths.sum())).at(c)
    true = mp.mpf(0)
    with mp.workdps(60):
        for k in range(risk.count):
            held = np.flatnonzero(present(y, k, risk)).tolist()
            events = [i for i in held if risk.events[i] and risk.end[i] == k + 1]
            deaths = mp.fsum(mp.mpf(s[i]) for i in events)
            masses = [
                [mp.mpf(s[i]) * mp.exp(mp.mpf(z.scores[i])) for i in held] for z in (local, dual)
            ]
            for i, there, mass in zip(held, *masses, strict=True):
                p = c * mass / mp.fsum(masses[1]) + (
                    (1 - mp.mpf(c)) * mp.mpf(s[i]) / deaths if i in events else 0
                )
                true += deaths * p * mp.log(p * mp.fsum(masses[0]) / there) if p else 0
    assert found - error <= true + mp.mpf(10) ** -50 <= found + error + mp.mpf(10) ** -40
    assert error <= 1e-9 * (1 + risk.deaths.sum()) * (1 + float(np.abs(u).max()))


@given(
    seed=st.integers(0, 1000),
    wild=st.sampled_from([0.0, 1e-3, 1.0, 30.0]),
    penalty=st.sampled_from(["l1", "l2"]),
)
@settings(max_examples=25, deadline=None)
def test_any_dual_proves_something_true(seed, wild, penalty):
    problem = co.Problem("cox", penalty, 0.02)
    rng, data = np.random.default_rng(seed), [Table(X[:50], Y[:50]), Table(X[50:], Y[50:])]
    members, transport = introduced_agents(problem, data)
    w = rng.standard_normal(D)
    duals = [wild * rng.standard_normal(agent.data.n) for agent in members]
    bounds = transport.converse(
        [certify(a, Point(w, v)) for a, v in zip(members, duals, strict=True)], "proof"
    )
    assert bounds[0] == bounds[1]
    assert bounds[0].dual <= co.solve(problem, data, tol=1e-9).certificate.primal + 1e-9


def introduced_agents(problem, tables):
    graph = star(len(tables), server=True)
    tables, _ = prepare_tables(tables, problem, "samples")
    transport = InProcess(graph, Bill(graph))
    return introduced(
        make_agents(tables, problem, "samples", graph, 0), transport, "setup"
    ), transport


def test_light_events_let_the_objective_fall_below_zero():
    """The least of f is Σ D log D, which is negative where events weigh less than 1; ties of heavy
    ones raise it.
    """
    for weight, events in ((0.1, 1), (1.0, 3)):
        n = events + 2
        y = co.survival_labels(np.ones(n), np.arange(n) < events)
        table = Table((np.arange(n) < events).astype(float)[:, None], y, np.full(n, weight))
        (agent,), transport = introduced_agents(co.Problem("cox"), [table])
        deaths = weight * events
        infimum = deaths * np.log(deaths) / (weight * n)
        bound = transport.converse([certify(agent, Point(np.array([30.0])), radius=None)], "proof")[
            0
        ]
        assert bound.dual <= infimum <= bound.primal + 1e-12
        assert bound.gap < 1e-8


@pytest.mark.parametrize("seed", range(6))
def test_allowances_for_rounding_cover_what_was_lost(seed, monkeypatch):
    """Slopes and divergences of the floating-point dual, in 60 digits, beside what the proof says
    of them.
    """
    rng = np.random.default_rng([24, seed])
    n, d = 40, 3
    rows = rng.standard_normal((n, d)) * 10.0 ** rng.uniform(-3, 3, d) + 10.0 ** rng.uniform(
        0, 6, d
    )
    time, entry = np.ceil(rng.exponential(size=n) * 9), np.full(n, -1.0)
    entry = (
        np.where(rng.random(n) < 0.5, entry, np.floor(time * rng.random(n) * 0.9))
        if seed % 2
        else entry
    )
    y = co.survival_labels(time, rng.random(n) < 0.7, entry, rng.integers(0, 2, n))
    (agent,), transport = introduced_agents(co.Problem("cox", "l2", 0.1), [Table(rows, y)])
    seen = {}
    measure, gaps = skeleton.gradient_with_error, _Gaps.at
    monkeypatch.setattr(
        skeleton, "gradient_with_error", lambda *given: seen.setdefault("gradient", measure(*given))
    )
    monkeypatch.setattr(_Gaps, "at", lambda self, c: seen.setdefault("gaps", gaps(self, c)))
    w = rng.standard_normal(d) / rows.std(axis=0)
    transport.converse([certify(agent, Point(w))], "proof")
    scores, risk = agent.at(w).scores, risk_of(agent)
    with mp.workdps(60):
        exact_rows = [[mp.mpf(x) for x in row] for row in rows.tolist()]
        u = [mp.fdot(row, map(mp.mpf, w.tolist())) for row in exact_rows]
        v, lost = [-mp.mpf(int(e)) for e in risk.events], mp.mpf(0)
        for k in range(risk.count):
            held, deaths = np.flatnonzero(present(y, k, risk)).tolist(), int(risk.deaths[k])
            z = [mp.exp(mp.mpf(scores[i])) for i in held]
            true = [mp.exp(u[i] - u[held[0]]) for i in held]
            for i, local, there in zip(held, z, true, strict=True):
                p = local / mp.fsum(z)
                v[i] += deaths * p
                lost += deaths * p * mp.log(p * mp.fsum(true) / there)
        slope = [-mp.fsum(row[j] * v[i] for i, row in enumerate(exact_rows)) / n for j in range(d)]
        found, off, _ = seen["gradient"]
        assert all(
            abs(mp.mpf(a) - b) <= mp.mpf(room) for a, b, room in zip(found, slope, off, strict=True)
        )
        assert mp.mpf(0) < lost <= sum(map(mp.mpf, seen["gaps"]))
    assert (off <= 1e-9 * rows.std(axis=0)).all()
    assert sum(seen["gaps"]) <= 1e-20


def test_a_forged_gap_does_not_hold():
    result = co.solve(co.Problem("cox", "l2", 0.02), parties(), max_rounds=1)
    forged = replace(
        result.certificate, gap=result.certificate.gap / 2, dual=result.certificate.primal
    )
    assert co.verify(result.certificate, result.model, parties()).holds
    assert not co.verify(forged, result.model, parties()).holds


# -- manners ---------------------------------------------------------------------------------------


def test_data_that_says_nothing_is_told_in_words():
    problem = co.Problem("cox", "l2", 0.1)
    with pytest.raises(InvalidData, match="no row of any party has an event"):
        co.solve(problem, (X, co.survival_labels(TIME, np.zeros(N))))
    one = co.solve(problem, (X, co.survival_labels(TIME, np.arange(N) == 7)), tol=1e-9)
    assert one.status.success
    silent = parties(co.survival_labels(TIME, EVENT & (PARTY > 0)))
    # A party without events counts as rows, and has nothing else to say.
    found = co.solve(problem, silent, tol=1e-10).model.coef_
    others = co.solve(co.Problem("cox", "l2", 0.15), silent[1:], tol=1e-10).model.coef_
    np.testing.assert_allclose(found, others, atol=1e-7)
    nobody = [(X[:0], Y[:0]), *silent[1:]]
    np.testing.assert_array_equal(
        co.solve(co.Problem("cox", "l2", 0.15), nobody, tol=1e-10).model.coef_, others
    )


def test_a_likelihood_without_a_maximum_is_told_in_words():
    y = co.survival_labels(np.exp(-X[:40, 0]), np.ones(40))
    with pytest.raises(InvalidData, match="monotone likelihood"):
        co.solve(co.Problem("cox"), (X[:40], y))
    assert co.solve(co.Problem("cox", "l2", 1e-3), (X[:40], y)).status.success


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (
            co.survival_labels(np.where(np.arange(N) == 5, -2.0, TIME), EVENT),
            r"party 'party 1': row 0 has the time -2",
        ),
        (np.column_stack([TIME, EVENT * 2.0]), "has the event 2; give 1 for an event"),
        (co.survival_labels(TIME, EVENT, TIME), "it must enter before"),
        (TIME, "one value a row"),
        (np.column_stack([TIME] * 5), "5 values a row"),
    ],
)
def test_labels_that_cannot_be_are_refused_by_party_and_row(labels, words):
    rows = [np.arange(5), np.arange(5, N)]
    with pytest.raises(InvalidData, match=words):
        co.solve(co.Problem("cox"), [(X[part], labels[part]) for part in rows])


def test_problems_that_cannot_be_say_why():
    with pytest.raises(InvalidProblem, match="baseline hazard takes its place"):
        co.Problem("cox", intercept=True)
    with pytest.raises(InvalidProblem, match="split by samples"):
        co.solve(co.Problem("cox"), (X, Y), split="features")
    with pytest.raises(InvalidProblem, match="penalty on matrices"):
        co.Problem("cox", "traceball", radius=1.0)
    with pytest.raises(InvalidData, match="give one value for each"):
        co.survival_labels(TIME, EVENT[:-1])
    with pytest.raises(InvalidData, match="not numbers"):
        co.survival_labels(TIME, np.where(EVENT, "yes", "no"))


def test_hazards_beyond_all_numbers_are_refused_in_words():
    result = co.solve(co.Problem("cox", "l2", 0.1), (X, Y))
    wild = replace(result, model=replace(result.model, coef_=1e4 * result.model.coef_))
    with pytest.raises(NumericalError, match="Scale the columns"):
        co.solve(co.Problem("cox", "l2", 0.1), (X, Y), warm_start=wild)


def test_saved_resumed_and_warm(tmp_path):
    problem = co.Problem("cox", "l1", 0.02)
    cut = co.solve(problem, parties(), max_rounds=2, tol=1e-10, checkpoint=tmp_path / "c")
    resumed = co.solve(problem, parties(), tol=1e-10, checkpoint=tmp_path / "c")
    fresh = co.solve(problem, parties(), tol=1e-10)
    assert cut.status == "iteration_limit"
    np.testing.assert_array_equal(resumed.model.coef_, fresh.model.coef_)
    assert co.solve(problem, parties(), warm_start=fresh).rounds <= 1
    loaded = co.SurvivalModel.load(fresh.model.save(tmp_path / "model.npz"))
    assert (loaded.predict(X) == fresh.model.predict(X)).all()
    assert co.verify(fresh.certificate, loaded, parties()).holds


def test_a_path_with_folds():
    found = co.path(co.Problem("cox", "l1", 1.0), parties(), strengths=[0.5, 0.05, 1e-3], cv=3)
    grid = co.path(co.Problem("cox", "l1", 1.0), parties(), count=4)
    assert not grid.results[0].model.coef_.any()
    assert grid.results[-1].model.coef_.any()
    assert found.best_strength < 0.5


@pytest.mark.parametrize("value", [0.1, 596.6123, 1e6 / 3])
@pytest.mark.parametrize("strata", [1, 3])
def test_a_constant_column_has_no_coefficient(value, strata):
    rng = np.random.default_rng(2)
    X = np.column_stack([rng.standard_normal((63, 3)), np.full(63, value)])
    y = co.survival_labels(rng.exponential(np.exp(-X[:, 0])), rng.random(63) < 0.7)
    problem = co.Problem("cox", agent_strata=True)
    found = co.solve(problem, (X, y), agents=strata, progress=False)
    assert found.status.success
    assert found.model.coef_[3] == 0.0
