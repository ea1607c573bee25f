"""The certificate is a true bound: gap ≥ 0 and P(w) − P* ≤ gap, whatever is split how, for any
point whatsoever.
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import coterie as co
from coterie.data import Table, split
from coterie.errors import CorruptFile, InvalidInput, NotRegistered
from coterie.numerics.arrays import sealed
from coterie.numerics.losses import LOSSES
from coterie.problems import points_of
from coterie.run.bill import Bill
from coterie.run.certificate import Certificate, certify, introduce
from coterie.run.rounds import introduced
from coterie.run.setup import make_agents
from coterie.transport.in_process import InProcess
from tests.harness.labels import labels_for
from tests.harness.reference import pooled_optimum

PENALTIES = {
    "none": {},
    "l2": {"strength": 0.1},
    "l1": {"strength": 0.05},
    "elasticnet": {"strength": 0.1, "l1_ratio": 0.4},
    "group": {"strength": 0.05, "groups": (0, 0, 1, 2, 2)},
    "nonnegative": {},
    "box": {"lower": -0.5, "upper": float("inf")},
    "l1ball": {"radius": 1.5},
}
NETWORKS = {
    "server": lambda m: co.networks.star(m, server=True),
    "ring": co.networks.ring,
    "path": co.networks.path,
    "complete": co.networks.complete,
    "star": co.networks.star,
}


def make_problem(loss: str, penalty: str, intercept: bool, seed: int, weighted: bool = False):
    rng = np.random.default_rng(seed)
    n, d = 24, 5
    X, truth = rng.standard_normal((n, d)), rng.standard_normal(d)
    y = X @ truth + 0.5 * rng.standard_normal(n)
    y = labels_for(loss, y)
    if LOSSES[loss].kind == "classification":
        y[:2] = 1.0, -1.0
    weights = rng.uniform(0.5, 2.0, n) if weighted else None
    return co.Problem(loss, penalty, intercept=intercept, **PENALTIES[penalty]), X, y, weights


def bound_at(problem, X, y, weights, w, b, v, by="samples", agents=3, network="server"):
    """The bound that the agents compute together for the pooled point (w, b, v)."""
    tables = split(Table(X, y, weights), by, agents)
    graph = NETWORKS[network](len(tables))
    members = make_agents(tables, problem, by, graph, 0)
    transport = InProcess(graph, Bill(graph))
    statistics = transport.converse([introduce(a) for a in members], "setup")
    witness = None
    if v is not None:
        witness = [v[a.data.rows] if by == "samples" else v[: len(a.labels)] for a in members]
    points = points_of(co.LinearModel(w, b, problem), members, witness)
    ready = [replace(a, statistics=known) for a, known in zip(members, statistics, strict=True)]
    lowered = [replace(p, w=a.lowered(p.w)) for a, p in zip(ready, points, strict=True)]
    bounds = transport.converse(
        [certify(a, p) for a, p in zip(ready, lowered, strict=True)], "proof"
    )
    assert all(bound == bounds[0] for bound in bounds), "the agents disagree about what is proven"
    return bounds[0]


@pytest.mark.parametrize("intercept", [False, True])
def test_a_model_is_looked_at_once_unless_it_can_change(intercept):
    problem, X, y, weights = make_problem("logistic", "l2", intercept, 3, weighted=True)
    graph = NETWORKS["server"](2)
    members = make_agents(split(Table(X, y, weights), "samples", 2), problem, "samples", graph, 0)
    agent = introduced(members, InProcess(graph, Bill(graph)), "setup")[0]
    X, y, weights = agent.data.X, agent.labels, agent.data.weights
    w = np.linspace(-1, 1, 5 + intercept)
    for _ in range(2):
        agent.at(w)
        w += 1.0  # still a blackboard: what was seen there is of no use
        scores = X @ w[:5] + (w[-1] if intercept else 0.0)
        gradients = problem.loss.gradient(scores, y)
        local = agent.at(w)
        np.testing.assert_allclose(local.scores, scores)
        assert local.losses == pytest.approx(problem.loss.value(scores, y, weights))
        np.testing.assert_allclose(local.adjoint[:5], X.T @ (weights * gradients))
        np.testing.assert_allclose(agent.at(w, agent.centred).scores, agent.centred.forward(w))
    view, w = sealed(w[:]), sealed(w.copy())
    local = agent.at(w)
    np.testing.assert_allclose(agent.at(w, agent.centred).scores, agent.centred.forward(w))
    assert agent.at(w) is local
    assert agent.at(view) is not agent.at(view)  # what it looks at can change


@pytest.mark.parametrize("w", [np.zeros(5), -np.zeros(5), np.full(5, 1e-300)])
def test_what_the_introduction_saw_at_0_serves_the_first_look_at_0_and_no_other(w):
    problem, X, y, weights = make_problem("logistic", "l2", False, 3, weighted=True)
    graph = NETWORKS["server"](2)
    members = make_agents(split(Table(X, y, weights), "samples", 2), problem, "samples", graph, 0)
    agent = introduced(members, InProcess(graph, Bill(graph)), "setup")[0]
    seen, local = agent.scratch["at 0"], agent.at(w)
    assert (local is seen) == (not w.any())
    assert local.w is w
    assert "at 0" not in agent.scratch  # it is not kept for ever
    gradients = problem.loss.gradient(np.zeros(12), y[:12])
    np.testing.assert_allclose(local.adjoint, X[:12].T @ (weights[:12] * gradients))
    assert agent.at(np.zeros(5)) is not seen


@given(
    loss=st.sampled_from(sorted(LOSSES)),
    penalty=st.sampled_from(sorted(PENALTIES)),
    by=st.sampled_from(["samples", "features"]),
    agents=st.integers(1, 6),
    network=st.sampled_from(sorted(NETWORKS)),
    intercept=st.booleans(),
    weighted=st.booleans(),
    seed=st.integers(0, 100),
    distance=st.sampled_from([0.0, 1e-3, 1.0]),
    dual=st.sampled_from(["random", "gradient", "wild"]),
)
@settings(max_examples=150)
def test_gap_bounds_the_suboptimality(
    loss, penalty, by, agents, network, intercept, weighted, seed, distance, dual
):
    if by == "features" and penalty == "group":
        agents = [[0, 1], [2, 3, 4]]
    problem, X, y, weights = make_problem(loss, penalty, intercept, seed, weighted)
    best_w, best_b, best = pooled_optimum(problem, X, y, weights)
    rng = np.random.default_rng(seed)
    w = problem.penalty.prox(best_w + distance * rng.standard_normal(len(best_w)), 1e-12)
    v = {
        "random": rng.uniform(-1, 1, len(y)),
        "gradient": None,
        "wild": 1e3 * rng.standard_normal(len(y)),
    }[dual]
    if problem.penalty.name == "l1ball" and by == "features":
        return  # a ball is not separable over columns; a method for it must be split by samples
    bound = bound_at(problem, X, y, weights, w, best_b, v, by, agents, network)
    rounding = 1e-6 * max(1.0, abs(best))  # cvxpy's own accuracy
    assert bound.gap >= 0
    assert bound.primal >= best - rounding
    if bound.radius is None or np.linalg.norm(best_w) <= bound.radius:
        assert bound.dual <= best + rounding
        assert bound.primal - best <= bound.gap + rounding
    total = np.sum(np.ones(len(y)) if weights is None else weights)
    direct = problem.loss.value(X @ w + best_b, y, weights) / total + problem.penalty.value(w)
    assert bound.primal == pytest.approx(direct, rel=1e-12)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("penalty", sorted(PENALTIES))
@pytest.mark.parametrize("loss", ["squared", "logistic", "squared_hinge", "huber"])
def test_gap_closes_at_the_optimum_of_smooth_losses(loss, penalty, intercept):
    problem, X, y, _ = make_problem(loss, penalty, intercept, 3)
    w, b, best = pooled_optimum(problem, X, y)
    w = problem.penalty.prox(w, 1e-12)
    assert bound_at(problem, X, y, None, w, b, None).gap <= 1e-3 * max(best, 0.01)


@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_bounds_do_not_depend_on_split_or_network(loss):
    problem, X, y, weights = make_problem(loss, "elasticnet", True, 5, weighted=True)
    w, v = np.linspace(-1, 1, 5), np.linspace(-0.4, 0.4, len(y))
    pooled = bound_at(problem, X, y, weights, w, 0.3, v, "samples", 1)
    for by in ("samples", "features"):
        for network in NETWORKS:
            apart = bound_at(problem, X, y, weights, w, 0.3, v, by, 4, network)
            assert apart.primal == pytest.approx(pooled.primal, rel=1e-12)
            assert apart.dual + apart.rounding == pytest.approx(
                pooled.dual + pooled.rounding, rel=1e-12
            )
    sparse = bound_at(problem, sp.csr_matrix(X), y, weights, w, 0.3, v, "samples", 4)
    assert sparse.dual + sparse.rounding == pytest.approx(pooled.dual + pooled.rounding, rel=1e-12)


def test_weight_two_is_two_samples():
    problem, X, y, _ = make_problem("logistic", "l1", True, 7)
    w, v = np.linspace(-1, 1, 5), np.linspace(-0.4, 0.4, len(y))
    twice = bound_at(problem, X, y, np.full(len(y), 2.0), w, 0.1, v)
    copies = bound_at(
        problem, np.vstack([X, X]), np.concatenate([y, y]), None, w, 0.1, np.concatenate([v, v])
    )
    assert (twice.primal, twice.dual) == pytest.approx((copies.primal, copies.dual), rel=1e-12)


def test_a_flat_problem_says_of_which_models_it_speaks():
    problem, X, y, _ = make_problem("squared", "none", False, 1)
    result = co.solve(problem, (X, y), agents=3)
    assert result.status == "optimal_within_radius"
    assert result.status.success
    assert result.status.exit_code == 0
    assert result.certificate.radius > np.linalg.norm(pooled_optimum(problem, X, y)[0])
    assert "norm at most" in result.certificate.proves


def test_separable_data_without_penalty_is_certified_without_a_norm():
    X = np.vstack([np.full((5, 1), 1.0), np.full((5, 1), -1.0)])
    y = np.repeat([1.0, -1.0], 5)
    result = co.solve(co.Problem("squared_hinge", "none", intercept=False), (X, y), agents=2)
    assert result.status == "optimal"
    assert result.certificate.radius is None


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    problem, X, y, weights = make_problem("logistic", "l1", True, 2, weighted=True)
    result = co.solve(
        problem, (X, y, weights), agents=3, method="proximal-1", tol=1e-3, acceleration="none"
    )
    folder = result.save(tmp_path_factory.mktemp("fitted"))
    return result, (X, y, weights), folder


def test_verify_recomputes_the_numbers(fitted):
    result, data, folder = fitted
    certificate = Certificate.load(folder / "certificate.json")
    found = co.verify(certificate, co.LinearModel.load(folder / "model.npz"), data)
    assert found.holds, found.objections
    assert found.gap == pytest.approx(result.certificate.gap, abs=1e-12)


def test_verify_objects_to_other_data_and_another_model(fitted):
    result, (X, y, weights), _ = fitted
    other = X.copy()
    other[0, 0] += 1e-9
    assert "data" in co.verify(result.certificate, result.model, (other, y, weights)).objections[0]
    wrong = replace(result.model, coef_=result.model.coef_ * 1.0001)
    assert "model" in co.verify(result.certificate, wrong, (X, y, weights)).objections[0]


@pytest.mark.parametrize("name", ["gap", "primal", "dual", "relative_gap", "primal_at_zero"])
def test_verify_objects_to_a_certificate_that_was_sealed_again_after_a_change(fitted, name):
    """Whoever forges the seal too is caught by the numbers."""
    result, data, _ = fitted
    forged = replace(result.certificate, **{name: getattr(result.certificate, name) * 0.5})
    objections = co.verify(forged, result.model, data).objections
    assert any(name in objection for objection in objections)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {
                "problem": {
                    "loss": {"name": "hinge"},
                    "penalty": {"name": "none"},
                    "intercept": True,
                }
            },
            "another problem",
        ),
        ({"limits": {"tol": 1e-9}}, "tolerance"),
        ({"classes": ["ill", "well"]}, "classes"),
        ({"method": {"name": "graph-cp"}}, "graph-cp"),
        ({"seed": -1}, "seed"),
    ],
)
def test_verify_objects_to_settings_that_contradict_the_model_or_each_other(fitted, change, words):
    result, data, _ = fitted
    forged = replace(result.certificate, settings={**result.certificate.settings, **change})
    assert any(words in objection for objection in co.verify(forged, result.model, data).objections)


def test_a_method_that_nobody_knows_is_to_be_registered(fitted):
    result, data, _ = fitted
    forged = replace(
        result.certificate, settings={**result.certificate.settings, "method": {"name": "alchemy"}}
    )
    with pytest.raises(NotRegistered, match=r"alchemy.*register it"):
        co.verify(forged, result.model, data)


def test_verify_objects_to_a_tolerance_that_was_not_asked_for(fitted):
    result, data, _ = fitted
    forged = replace(result.certificate, tolerance=1e-12)
    assert any(
        "tolerance" in objection for objection in co.verify(forged, result.model, data).objections
    )


@pytest.mark.parametrize("cut", [slice(0, 2), slice(0, 0)])
def test_a_witness_of_other_parties_is_refused(fitted, cut):
    result, data, _ = fitted
    whole = result.certificate.witness
    for witness in (whole[cut], (whole[0][:3], *whole[1:])):
        with pytest.raises(CorruptFile, match="do not belong"):
            co.verify(replace(result.certificate, witness=witness), result.model, data)


def test_a_changed_file_is_refused(fitted, tmp_path):
    _, _, folder = fitted
    text = (folder / "certificate.json").read_text()
    content = json.loads(text)
    path = tmp_path / "certificate.json"
    for change in (
        {"gap": content["gap"] / 2},
        {"participants": content["participants"][:-1]},
        {"settings": {**content["settings"], "seed": 1}},
        {"witness": []},
        {"proves": "This model is perfect."},
    ):
        path.write_text(json.dumps({**content, **change}))
        with pytest.raises(CorruptFile, match="changed"):
            Certificate.load(path)
    path.write_text(text[: len(text) // 2])
    with pytest.raises(CorruptFile, match="not a readable certificate"):
        Certificate.load(path)
    with pytest.raises(InvalidInput, match="cannot be read"):
        Certificate.load(tmp_path / "nowhere.json")


def test_a_changed_model_is_refused(fitted, tmp_path):
    result, _, folder = fitted
    whole = (folder / "model.npz").read_bytes()
    path = tmp_path / "model.npz"
    path.write_bytes(whole[:-50])
    with pytest.raises(CorruptFile):
        co.LinearModel.load(path)
    header = np.load(folder / "model.npz")["header"]
    np.savez(
        path,
        header=header,
        coef=result.model.coef_ + 1e-12,
        intercept=np.array(result.model.intercept_),
    )
    with pytest.raises(CorruptFile, match="changed"):
        co.LinearModel.load(path)
