"""With an intercept, neither the scale of X nor columns far from mean 0 cost rounds, in both
splits.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from benchmarks.auto_problems import CALIBRATION

import coterie as co
from coterie.networks import network as find_network
from coterie.numerics.arrays import CentredDesign
from coterie.run.bill import Bill
from coterie.run.rounds import introduced
from coterie.run.setup import make_agents
from coterie.run.tables import gather, prepare_tables
from coterie.transport.in_process import InProcess
from tests.harness.reference import pooled_optimum

RNG = np.random.default_rng(0)
N, D = 90, 6
X = RNG.standard_normal((N, D))
NUMBERS = X @ RNG.standard_normal(D) + 5.0 + 0.5 * RNG.standard_normal(N)
SIGNS = np.where(NUMBERS + RNG.standard_normal(N) > 5.0, 1.0, -1.0)
FAR = np.where(np.arange(D) == 2, 1000.0, 30.0)
CHANGES = {
    "small": (0.01, 0.0),
    "large": (100.0, 0.0),
    "far": (1.0, FAR),
    "small and far": (0.01, FAR / 10),
}


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("layout", [np.asarray, np.asfortranarray, sp.csr_array])
@pytest.mark.parametrize(("dtype", "exact"), [(np.float64, 1e-12), (np.float32, 1e-5)])
def test_a_centred_design_is_the_matrix_it_stands_for(layout, dtype, exact, intercept):
    stored, centre, unit = (X + 3.0).astype(dtype), np.linspace(2.0, 4.0, D), 0.7
    matrix = np.column_stack([stored - centre, np.full(N, unit)])[:, : D + intercept]
    design = CentredDesign(layout(stored), intercept, centre, unit)
    w, v = RNG.standard_normal(D + intercept).astype(dtype), RNG.standard_normal(N).astype(dtype)
    forward, adjoint = design.forward(w), design.adjoint(v)
    assert forward.dtype == adjoint.dtype == dtype
    np.testing.assert_allclose(forward, matrix @ w, rtol=0, atol=20 * exact)
    np.testing.assert_allclose(adjoint, matrix.T @ v, rtol=0, atol=100 * exact)
    np.testing.assert_allclose(
        stored @ w[:D] + design.offset(w), matrix @ w, rtol=0, atol=20 * exact
    )
    mean = CentredDesign(layout(stored), intercept, stored.mean(axis=0, dtype=float), unit)
    lengths = np.append(((stored - stored.mean(axis=0)) ** 2).sum(axis=0), N * unit**2)[
        : D + intercept
    ]
    np.testing.assert_allclose(mean.squared_lengths(), lengths, rtol=100 * exact)
    if intercept:
        np.testing.assert_allclose(design.inner(design.plain(w)), w, rtol=0, atol=20 * exact)
        np.testing.assert_allclose(
            stored @ w[:D] + design.plain(w)[-1], matrix @ w, rtol=0, atol=20 * exact
        )


def test_a_constant_column_has_no_length_about_its_mean():
    column = np.full((N, 1), 1000.1)
    assert CentredDesign(column, False, column.mean(axis=0)).squared_lengths() == [0.0]


CASES = [
    ("proximal-1", "squared"),
    ("proximal-1", "huber"),
    ("proximal-1", "hinge"),
    ("proximal-2", "logistic"),
    ("consensus", "logistic"),
    ("tree", "logistic"),
    ("graph-cp", "huber"),
]


# The one step size of dynamic-diffusion fits one scale only.
@pytest.mark.parametrize(
    ("method", "loss", "change"),
    [(*case, change) for case in CASES for change in CHANGES]
    + [("dynamic-diffusion", "logistic", "far")],
)
def test_rounds_depend_neither_on_the_scale_nor_on_the_mean(method, loss, change):
    scale, shift = CHANGES[change]
    split = "features" if method in ("tree", "graph-cp", "dynamic-diffusion") else "samples"
    y = SIGNS if loss in ("hinge", "logistic") else NUMBERS
    settings = {"split": split, "agents": 3, "method": method, "max_rounds": 5000, "tol": 1e-5}
    before = co.solve(co.Problem(loss, "l2", 0.1, intercept=True), (X, y), **settings)
    problem, changed = co.Problem(loss, "l2", 0.1 * scale**2, intercept=True), scale * X + shift
    after = co.solve(problem, (changed, y), **settings)
    assert before.status == after.status == "optimal"
    assert after.rounds <= 1.2 * before.rounds + 2
    assert (
        after.certificate.primal - pooled_optimum(problem, changed, y)[2]
        <= after.certificate.gap + 1e-7
    )
    assert co.verify(after.certificate, after.model, (changed, y)).holds
    np.testing.assert_allclose(after.model.coef_ * scale, before.model.coef_, atol=2e-2)


@pytest.mark.parametrize("loss", ["squared", "hinge", "logistic"])
@pytest.mark.parametrize("rows", [N, 8])
def test_sparse_rows_are_centred_alike(loss, rows):
    """Wide and tall blocks, by factors and by coordinates: a sparse matrix takes the same steps as
    a dense one.
    """
    data, y = (X + FAR / 10)[:rows], (NUMBERS if loss == "squared" else SIGNS)[:rows]
    weights = RNG.uniform(0.5, 2.0, rows)
    problem = co.Problem(loss, "l2", 0.1, intercept=True)
    settings = {"agents": 2, "method": "proximal-1", "max_rounds": 12, "tol": 1e-12}
    dense = co.solve(problem, (data, y, weights), **settings)
    sparse = co.solve(problem, (sp.csr_array(data), y, weights), **settings)
    np.testing.assert_allclose(sparse.model.coef_, dense.model.coef_, atol=1e-9)
    assert sparse.model.intercept_ == pytest.approx(dense.model.intercept_, abs=1e-7)


@pytest.mark.parametrize("method", ["proximal-1", "tree"])
def test_a_warm_start_knows_where_the_intercept_is(method):
    split = "features" if method == "tree" else "samples"
    problem, data = co.Problem("huber", "l2", 0.1, intercept=True), (X + FAR, NUMBERS)
    settings = {"split": split, "agents": 3, "method": method, "tol": 1e-5}
    cold = co.solve(problem, data, **settings)
    warm = co.solve(problem, data, warm_start=cold, **settings)
    assert warm.rounds <= max(2, cold.rounds // 5)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("split", ["samples", "features"])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_a_claim_about_models_of_bounded_norm_holds_the_optimum_whatever_the_units_are(
    split, scale, intercept
):
    """Where the penalty does not grow, even the first certificate's radius must have room for the
    pooled optimum.
    """
    scaled = X * np.where(np.arange(D) == 1, scale, 1.0)
    design = np.column_stack([scaled, np.ones(N)]) if intercept else scaled
    best = np.linalg.lstsq(design, NUMBERS, rcond=None)[0][:D]
    problem, network = (
        co.Problem("squared", "none", intercept=intercept),
        find_network("complete", 3),
    )
    tables, _ = prepare_tables(gather((scaled, NUMBERS), split, 3), problem, split)
    agents = introduced(
        make_agents(tables, problem, split, network, 0), InProcess(network, Bill(network)), "setup"
    )
    assert all(agent.statistics.span >= np.linalg.norm(best) for agent in agents)


@pytest.mark.parametrize("layout", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("value", [0.7, 1 / 3, 123.456])
@pytest.mark.parametrize(
    ("method", "loss", "penalty"),
    [
        ("gram", "squared", "none"),
        ("gram", "squared", "nonnegative"),
        ("newton", "logistic", "none"),
        ("newton", "huber", "nonnegative"),
        ("interior-point", "absolute", "none"),
    ],
)
def test_a_constant_column_beside_an_intercept_is_no_column(method, loss, penalty, value, layout):
    """Its mean is rounded, so that it is not exactly 0 when centred: second-order methods must not
    blow that up.
    """
    columns = layout(np.where(np.arange(D) == 2, value, X))
    y = SIGNS if loss == "logistic" else NUMBERS
    result = co.solve(
        co.Problem(loss, penalty, intercept=True), (columns, y), agents=3, method=method, tol=1e-7
    )
    assert result.status.success
    assert abs(result.model.coef_[2]) < 100.0


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(
    ("loss", "penalty"),
    [("absolute", ("none",)), ("quantile", ("none",)), ("absolute", ("l2", 1e-2))],
)
def test_tuning_keeps_its_measure_where_one_agent_has_all_rows(loss, penalty, intercept):
    """There Xv comes back to 0 on the way to the optimum, and a balance of lengths would send ρ to
    infinity.
    """
    problem = co.Problem(loss, *penalty, intercept=intercept)
    result = co.solve(
        problem, (X, NUMBERS), agents=1, method="proximal-1", tol=1e-6, max_rounds=1000
    )
    assert result.status.success


@pytest.mark.slow
def test_the_tail_of_proximal_1_does_not_stall_on_correlated_pixels():
    """Where ρ is far from balanced the gap rests for some time, until it is tuned again."""
    case = CALIBRATION["fields"]
    pixels, labels = (part[:3000] for part in case.data())
    result = co.solve(
        case.problem, (pixels, labels), method="proximal-1", max_rounds=400, progress=False
    )
    assert result.status == "optimal"
