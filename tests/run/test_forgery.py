"""Whatever is forged in a certificate and sealed again: none holds whose claim is false."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from functools import cache

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coterie as co
from coterie.errors import CoterieError
from coterie.run.certificate import Certificate
from tests.harness.exact import DIGITS, Exact

MEANS = (0.0, 2e3, 1e6, 1e9)
SCALES = (1e-8, 1e-3, 1.0, 1e3, 1e8)
PROBLEMS = {
    "ridge": co.Problem("squared", "l2", 1e-2, intercept=True),
    "plain": co.Problem("squared", "none", intercept=True),
    "lasso": co.Problem("squared", "l1", 1e-2, intercept=True),
    "median": co.Problem("absolute", "l2", 1e-2, intercept=True),
    "logistic": co.Problem("logistic", "l1", 1e-2, intercept=True),
    "through zero": co.Problem("huber", "elasticnet", 1e-2, intercept=False),
}
NUMBERS = (
    "primal",
    "dual",
    "gap",
    "relative_gap",
    "unit",
    "primal_at_zero",
    "radius",
    "room",
    "tolerance",
)


@cache
def make(name: str, mean: float, scale: float, seed: int = 0):
    """A small problem, its data, and an honest answer."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((40, 3))
    y = X @ [1.0, -2.0, 0.5] + 0.3 * rng.standard_normal(40)
    problem = PROBLEMS[name]
    y = np.where(y > 0, 1.0, -1.0) if problem.loss.kind == "classification" else y * scale + mean
    X = X * scale
    data = [(X[:25], y[:25]), (X[25:], y[25:])]
    return problem, X, y, data, co.solve(problem, data, max_rounds=300, progress=False)


def resealed(certificate: Certificate, tmp_path) -> Certificate:
    """What a forger would send: the file is whole, and its seal is right."""
    return Certificate.load(certificate.save(tmp_path / "forged.json"))


def is_true(
    exact: Exact, model: co.LinearModel, claim: Certificate, best: co.LinearModel, rounding: float
) -> bool:
    """Whether no better model is known than the claim allows for."""
    with mp.workdps(DIGITS):
        here = exact.primal(model.coef_, model.intercept_)
        better = [(best.coef_, best.intercept_)]
        if exact.problem.loss.name == "squared" and exact.problem.penalty.name in ("l2", "none"):
            better.append(exact.polished(best.coef_, best.intercept_, steps=2))
        lowest = min(exact.primal(w, b) for w, b in better)
        return bool(here - lowest <= mp.mpf(claim.gap) + mp.mpf(rounding))


def test_a_junk_model_with_a_gap_of_nothing(tmp_path):
    """Labels of mean 1e6: a tolerance of 1e-9 of P(0) is 500, and P(junk) − P* is 456."""
    _problem, _, _, data, result = make("ridge", 1e6, 1.0)
    junk = replace(result.model, intercept_=result.model.intercept_ + 30.2)
    forged = replace(
        result.certificate,
        model_digest=junk.digest(),
        primal=456.0,
        dual=456.0,
        gap=0.0,
        relative_gap=0.0,
    )
    found = co.verify(resealed(forged, tmp_path), junk, data)
    assert not found.holds
    assert found.gap > 400
    assert any("gap" in objection for objection in found.objections)
    assert found.proves == ""


def test_a_deleted_radius(tmp_path):
    _problem, _, _, data, result = make("plain", 1e6, 1.0)
    assert result.status == "optimal_within_radius"
    assert co.verify(result.certificate, result.model, data).holds
    found = co.verify(
        resealed(replace(result.certificate, radius=None), tmp_path), result.model, data
    )
    assert not found.holds
    larger = replace(result.certificate, radius=result.certificate.radius * 1e3)
    assert not co.verify(resealed(larger, tmp_path), result.model, data).holds


@pytest.mark.rotates
@pytest.mark.parametrize("factor", [0.0, 0.5, 1 - 1e-6, 1 + 1e-6, 2.0, -1.0])
@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize("name", sorted(PROBLEMS))
def test_every_number_changed_alone(name, mean, factor, tmp_path):
    if mean and name in ("logistic", "through zero"):
        pytest.skip("no labels to move, or no intercept to move with them")
    problem, X, y, data, result = make(name, mean, 1.0)
    assert co.verify(result.certificate, result.model, data).holds
    exact = Exact(problem, X, y)
    for field in NUMBERS:
        value = getattr(result.certificate, field)
        if value is None:
            continue
        forged = replace(result.certificate, **{field: value * factor})
        found = co.verify(resealed(forged, tmp_path), result.model, data)
        if field not in ("gap", "dual") and value * factor != value:
            assert not found.holds, f"{field} times {factor}"
        if found.holds:
            assert is_true(exact, result.model, forged, result.model, found.rounding), field


def test_every_field_of_the_file_changed_alone(tmp_path):
    """Also those that are no numbers: what is about another problem, other data or other parties is
    refused.
    """
    _problem, _, _, data, result = make("ridge", 2e3, 1.0)
    kept = {field.name for field in fields(Certificate)} - {*NUMBERS, "version", "signatures"}
    other = make("ridge", 2e3, 1.0, seed=1)[-1].certificate
    for name in kept:
        changed = {
            "settings": {**result.certificate.settings, "problem": PROBLEMS["lasso"].settings()},
            "model_digest": "0" * 64,
            "counts": (1.0, 2.0),
            "witness": tuple(-1e3 * v for v in result.certificate.witness),
        }.get(name, getattr(other, name))
        forged = resealed(replace(result.certificate, **{name: changed}), tmp_path)
        try:
            assert not co.verify(forged, result.model, data).holds or name == "witness", name
        except CoterieError:
            continue


@given(
    name=st.sampled_from(sorted(PROBLEMS)),
    mean=st.sampled_from(MEANS),
    scale=st.sampled_from(SCALES),
    moved=st.sampled_from([0.0, 1e-9, 1e-4, 1e-1, 30.0]),
    gap=st.floats(0, 1e3) | st.just(0.0),
    radius=st.none() | st.floats(1e-6, 1e12),
    dual=st.sampled_from(["kept", "nothing", "wild"]),
    seed=st.integers(0, 3),
)
@settings(max_examples=60, deadline=None)
def test_a_forger_who_thinks(name, mean, scale, moved, gap, radius, dual, seed):
    """A moved model, its own digest, any gap, consistent numbers, any witness: it holds only if it
    is true.
    """
    problem, X, y, data, result = make(name, mean, scale, seed)
    honest = result.certificate
    rng = np.random.default_rng(seed)
    coef = result.model.coef_ + moved * np.abs(result.model.coef_).max() * rng.standard_normal(3)
    model = replace(result.model, coef_=coef)
    witness = {
        "kept": honest.witness,
        "nothing": tuple(0.0 * v for v in honest.witness),
        "wild": tuple(1e3 * rng.standard_normal(v.shape) for v in honest.witness),
    }[dual]
    exact = Exact(problem, X, y)
    primal = float(exact.primal(model.coef_, model.intercept_))
    for primal_said in (primal, honest.primal):
        numbers = {
            "primal": primal_said,
            "dual": primal_said - gap,
            "gap": gap,
            "relative_gap": gap / honest.unit,
        }
        forged = replace(
            honest, **numbers, radius=radius, witness=witness, model_digest=model.digest()
        )
        found = co.verify(forged, model, data)
        if found.holds:
            assert is_true(exact, model, forged, result.model, found.rounding)


def test_verify_speaks_for_itself(tmp_path, capsys):
    """It tells its own numbers and which problem they are about, not what the file says of
    itself.
    """
    _problem, _, _, data, result = make("lasso", 2e3, 1.0)
    found = co.verify(result.certificate, result.model, data)
    assert found.holds
    assert "squared loss, l1 (strength 0.01) penalty with an intercept" in found.about
    assert "40 rows, 3 columns, 2 parties" in found.about
    assert f"{found.gap:.3g}" in found.proves
    path = result.certificate.save(tmp_path / "certificate.json")
    content = json.loads(path.read_text())
    content["proves"] = "This model is perfect."
    path.write_text(json.dumps(content))
    with pytest.raises(CoterieError):
        Certificate.load(path)
