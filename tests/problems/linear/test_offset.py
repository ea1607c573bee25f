"""Offsets: a number per row added to its score; statsmodels, shifted labels and 60 digits have the
same answers.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import statsmodels.api as sm
from scipy.optimize import minimize_scalar

import coterie as co
from coterie.errors import InvalidData, InvalidProblem
from coterie.methods import METHODS
from coterie.numerics.losses import LOSSES

RNG = np.random.default_rng(3)
N, D = 150, 3
X = RNG.standard_normal((N, D)) + 0.3
EXPOSURE = RNG.uniform(0.05, 4.0, N)
OFFSET = np.log(EXPOSURE)
SCORES = X @ np.array([0.5, -0.3, 0.2]) - 0.4
FAMILIES = {
    "poisson": sm.families.Poisson(),
    "gamma": sm.families.Gamma(sm.families.links.Log()),
    "logistic": sm.families.Binomial(),
    "squared": sm.families.Gaussian(),
}


def labels(loss: str, offset: np.ndarray = OFFSET) -> np.ndarray:
    rng, u = np.random.default_rng(4), SCORES + offset
    if LOSSES[loss].kind == "classification":
        return (rng.random(N) < 1 / (1 + np.exp(-u))).astype(int)
    if loss == "poisson":
        return rng.poisson(np.exp(u)).astype(float)
    return rng.gamma(2.0, np.exp(u) / 2) if loss == "gamma" else u + 0.3 * rng.standard_normal(N)


def twin(loss: str, y: np.ndarray, offset: np.ndarray = OFFSET, weights: np.ndarray | None = None):
    design = sm.add_constant(X)
    made = sm.GLM(y, design, family=FAMILIES[loss], offset=offset, freq_weights=weights)
    return made.fit(tol=1e-13, maxiter=300)


@pytest.mark.parametrize("split", ["samples", "features"])
@pytest.mark.parametrize("loss", FAMILIES)
def test_statsmodels_has_the_same_answer(loss, split):
    y, storage = labels(loss), sp.csr_array if loss == "gamma" else np.asarray
    weights = RNG.integers(1, 4, N).astype(float) if loss == "poisson" else None
    expected = twin(loss, y, weights=weights)
    data, problem = (storage(X), y, weights), co.Problem(loss, intercept=True)
    result = co.solve(problem, data, offset=OFFSET, split=split, agents=3, tol=1e-11)
    assert result.model.problem.offset
    np.testing.assert_allclose(
        [result.model.intercept_, *result.model.coef_], expected.params, atol=1e-6
    )
    predicted = result.model.predict(X, offset=OFFSET)
    mean = expected.predict(sm.add_constant(X), offset=OFFSET)
    np.testing.assert_allclose(predicted, mean > 0.5 if loss == "logistic" else mean, rtol=1e-6)
    if loss == "logistic":
        np.testing.assert_allclose(
            result.model.predict_proba(X, offset=OFFSET)[:, 1], mean, rtol=1e-6
        )
    found = co.verify(result.certificate, result.model, data, offset=OFFSET)
    assert found.holds
    assert "with an intercept and an offset" in found.about
    if split == "samples":
        errors = result.inference("model").standard_errors
        np.testing.assert_allclose(errors, [*expected.bse[1:], expected.bse[0]], rtol=1e-6)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(
    "loss", [loss for loss, entry in LOSSES.items() if entry.moves_with_labels]
)
def test_labels_less_the_offset_are_the_same_problem(loss, intercept):
    y, offset, problem = (
        labels(loss),
        OFFSET + 700.0,
        co.Problem(loss, "l2", 0.01, intercept=intercept),
    )
    here = co.solve(problem, (X, y), offset=offset, agents=3)
    there = co.solve(problem, (X, y - offset), agents=3)
    np.testing.assert_array_equal(here.model.coef_, there.model.coef_)
    assert here.certificate.gap == pytest.approx(there.certificate.gap)


@pytest.mark.parametrize("loss", LOSSES)
def test_an_offset_of_zeros_changes_nothing_and_a_common_one_the_intercept(loss):
    y, problem = labels(loss), co.Problem(loss, "l2", 0.01, intercept=True)
    plain, zeros, common = (
        co.solve(problem, (X, y), offset=offset, agents=3, tol=1e-9)
        for offset in (None, np.zeros(N), np.full(N, 1e3))
    )
    for other, by in ((zeros, 0.0), (common, -1e3)):
        assert other.certificate.primal == pytest.approx(plain.certificate.primal, rel=1e-7)
        assert other.certificate.unit == pytest.approx(plain.certificate.unit, rel=1e-6)
        np.testing.assert_allclose(other.model.coef_, plain.model.coef_, atol=1e-3)
        assert other.model.intercept_ == pytest.approx(plain.model.intercept_ + by, abs=1e-2)
    assert common.certificate.settings["problem"]["offset"] is True
    assert "offset" not in plain.certificate.settings["problem"]


@pytest.mark.parametrize("loss", ["poisson", "gamma", "logistic", "hinge", "squared_hinge"])
def test_the_unit_is_what_the_best_constant_loses_beside_the_offset(loss):
    offset, y = 3 * OFFSET + 5, labels(loss)
    result = co.solve(
        co.Problem(loss, "l2", 0.1, intercept=True), (X, y), offset=offset, agents=2, max_rounds=1
    )
    law, signed = (
        LOSSES[loss](),
        np.where(y > 0, 1.0, -1.0) if LOSSES[loss].kind == "classification" else y,
    )
    best = minimize_scalar(lambda c: law.value(c + offset, signed) / N, (-30, 20), tol=1e-12).fun
    saturated = -law.conjugate(np.zeros(N), signed) / N
    assert result.certificate.unit == pytest.approx(best - saturated, rel=1e-6)


@pytest.mark.parametrize("loss", ["logistic", "poisson", "hinge"])
@pytest.mark.parametrize(
    "name", [name for name, entry in METHODS.items() if entry.family == "linear"]
)
def test_methods_agree_beside_offsets(loss, name):
    y, problem = labels(loss), co.Problem(loss, "l2", 0.1, intercept=name not in ("cocoa", "relay"))
    best = co.solve(problem, (X, y), offset=OFFSET, agents=1, tol=1e-8).certificate.primal
    try:
        found = co.solve(
            problem,
            (X, y),
            offset=OFFSET,
            agents=3,
            split=METHODS[name].split,
            method=name,
            tol=1e-4,
        )
    except InvalidProblem as error:
        pytest.skip(f"it does not apply: {error}")
    assert found.status == "optimal"
    assert -1e-7 <= found.certificate.primal - best <= found.certificate.gap


def test_single_precision_and_an_empty_party():
    y = labels("poisson")
    parts = [
        (X[:0], y[:0]),
        (X[:90].astype(np.float32), y[:90]),
        (X[90:].astype(np.float32), y[90:]),
    ]
    offset = [OFFSET[:0], OFFSET[:90], OFFSET[90:]]
    whole = co.solve(
        co.Problem("poisson", "l2", 0.01, intercept=True), (X, y), offset=OFFSET, tol=1e-9
    )
    for given in (offset, [None, *offset[1:]]):
        result = co.solve(
            co.Problem("poisson", "l2", 0.01, intercept=True), parts, offset=given, tol=1e-5
        )
        assert result.status == "optimal"
        np.testing.assert_allclose(result.model.coef_, whole.model.coef_, atol=1e-3)
        assert co.verify(result.certificate, result.model, parts, offset=given).holds


@pytest.mark.parametrize("loss", ["poisson", "gamma", "logistic"])
def test_offsets_of_a_thousand_overflow_nothing(loss):
    problem, data = co.Problem(loss, "l2", 1e-2, intercept=True), (X, labels(loss))
    wild = RNG.standard_normal(N) * 300 + 1e3
    for offset, secure in ((wild, False), (OFFSET + 1e3, True)):
        result = co.solve(problem, data, offset=offset, agents=3, secure_sums=secure)
        assert result.status == "optimal"
        assert co.verify(result.certificate, result.model, data, offset=offset).holds


def test_hazards_take_offsets():
    times, ends = np.random.default_rng(6).exponential(np.exp(-SCORES - OFFSET)), np.full(N, 1.0)
    y = co.survival_labels(np.minimum(times, ends), times <= ends)
    expected = sm.PHReg(y[:, 0], X, status=y[:, 1], offset=OFFSET).fit()
    result = co.solve(co.Problem("cox"), (X, y), offset=OFFSET, tol=1e-10)
    np.testing.assert_allclose(result.model.coef_, expected.params, atol=1e-6)
    assert co.verify(result.certificate, result.model, (X, y), offset=OFFSET).holds


def test_paths_and_folds_take_offsets(tmp_path):
    y, problem = labels("poisson"), co.Problem("poisson", "l1", 0.1, intercept=True)
    path = co.path(problem, (X, y), [0.1, 0.01], offset=OFFSET, cv=3, agents=3)
    alone = co.solve(
        co.Problem("poisson", "l1", 0.01, intercept=True), (X, y), offset=OFFSET, agents=3
    )
    np.testing.assert_allclose(path.results[1].model.coef_, alone.model.coef_, atol=1e-3)
    # Without the offset, exposures would be noise, and folds would say so.
    assert path.scores.min() < co.path(problem, (X, y), [0.1, 0.01], cv=3, agents=3).scores.min()
    short = co.solve(
        problem,
        (X, y),
        offset=OFFSET,
        agents=3,
        method="proximal-1",
        checkpoint=tmp_path,
        max_rounds=10,
    )
    again = co.solve(
        problem,
        (X, y),
        offset=OFFSET,
        agents=3,
        method="proximal-1",
        checkpoint=tmp_path,
        max_rounds=20,
    )
    once = co.solve(problem, (X, y), offset=OFFSET, agents=3, method="proximal-1", max_rounds=20)
    assert short.rounds == 10
    np.testing.assert_array_equal(again.model.coef_, once.model.coef_)


def test_a_model_remembers_its_offset(tmp_path):
    y = labels("poisson")
    result = co.solve(co.Problem("poisson", intercept=True), (X, y), offset=OFFSET)
    model = co.models.load_model(result.model.save(tmp_path / "model.npz"))
    np.testing.assert_allclose(
        model.predict(X, offset=0.0) * EXPOSURE, model.predict(X, offset=OFFSET)
    )
    with pytest.raises(InvalidData, match="fitted with an offset: give that of the new rows"):
        model.predict(X)
    with pytest.raises(InvalidData, match="150 rows but the number of offsets is 2"):
        model.predict(X, offset=[1.0, 2.0])
    with pytest.raises(InvalidData, match="1 offset is not finite"):
        model.predict(X[:1], offset=[np.nan])
    plain = co.solve(co.Problem("poisson", intercept=True), (X, y)).model
    with pytest.raises(InvalidData, match="fitted without an offset"):
        plain.predict(X, offset=OFFSET)
    with pytest.raises(InvalidData, match="the model has an offset, but the data has none"):
        co.verify(result.certificate, result.model, (X, y))
    assert (
        "the data is not the data"
        in co.verify(result.certificate, model, (X, y), offset=OFFSET + 1).objections[0]
    )


def test_bad_offsets_name_party_and_row():
    y, bad = labels("poisson"), OFFSET.copy()
    bad[[7, 9]] = np.nan
    parties = [co.Table(X, y, name="ann", offset=OFFSET), co.Table(X, y, name="bea", offset=bad)]
    problem = co.Problem("poisson", "l2", 0.1, intercept=False)
    with pytest.raises(InvalidData, match=r"bea.*2 offsets are not finite \(first at row 7\)"):
        co.solve(problem, parties)
    with pytest.raises(
        InvalidData,
        match=r"'bea'.*has no offset, but party 'ann' has. Give all parties one, or none",
    ):
        co.solve(problem, [parties[0], co.Table(X, y, name="bea")])
    with pytest.raises(InvalidData, match="give offset as a list of 2"):
        co.solve(problem, [(X, y), (X, y)], offset=OFFSET)
    with pytest.raises(InvalidData, match="the offset is in the data and in offset="):
        co.solve(problem, parties[0], offset=OFFSET)
    with pytest.raises(InvalidData, match=r"row 0 has the offset 1000.*Fit an intercept"):
        co.solve(problem, (X, y), offset=np.full(N, 1e3))
    with pytest.raises(InvalidData, match="several classes takes none"):
        co.solve(
            co.Problem("multinomial", "l2", 0.1, intercept=False),
            (X, np.arange(N) % 3),
            offset=OFFSET,
        )
    with pytest.raises(InvalidProblem, match="pvrd2 needs a squared or huber loss with an offset"):
        co.solve(
            co.Problem("logistic", "l2", 0.1, intercept=False),
            (X, labels("logistic")),
            offset=OFFSET,
            split="features",
            method="pvrd2",
        )
