"""Factors of columns, unpenalised columns, and a penalty per party, against other programs."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression, Ridge

import coterie as co
from coterie.errors import InvalidProblem, UnknownName
from coterie.methods import METHODS
from coterie.numerics.penalties import penalty
from coterie.numerics.penalties.columnwise import Columnwise
from coterie.study.proof import verify_together
from tests.harness.parties import data, together, write_data, write_study
from tests.harness.shell import shell

FACTORS = (1.0, 0.5, 2.0, 0.0, 1.5, 1.0, 3.0, 0.0, 1.0)
FREE = np.array(FACTORS) == 0
STRENGTH = 0.05
SPLITS = ("samples", "features")


@cache
def rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((120, 9)) * [1, 2, 0.5, 1, 1, 3, 1, 1, 1]
    X[:, 0] += 0.5 * X[:, 3]
    truth = rng.standard_normal(9) * (rng.random(9) < 0.6)
    return X, X @ truth + 0.3 * rng.standard_normal(120) + 1.0


def classes() -> np.ndarray:
    y = rows()[1]
    return np.where(y > np.median(y), 1, -1)


def partialled_out() -> tuple[np.ndarray, np.ndarray]:
    """The penalised columns and the labels, less what the others and an intercept explain."""
    X, y = rows()
    others = np.column_stack([np.ones(len(y)), X[:, FREE]])
    both = np.column_stack([X[:, ~FREE], y])
    left = both - others @ np.linalg.lstsq(others, both)[0]
    return left[:, :-1], left[:, -1]


def fitted(problem: co.Problem, labels=None, split="samples", **settings) -> co.Result:
    X, y = rows()
    given = {"agents": 3, "tol": 1e-10, **settings}
    if split == "features":
        given["network"] = "ring"
    return co.solve(problem, (X, y if labels is None else labels), split=split, **given)


# -- against other programs ------------------------------------------------------------------------


@pytest.mark.parametrize("split", SPLITS)
def test_factors_are_scales_of_columns(split):
    X, y = rows()
    factors = np.where(FREE, 0.7, FACTORS)
    found = fitted(co.Problem("squared", "l1", STRENGTH, factors=factors), split=split)
    other = Lasso(alpha=STRENGTH, tol=1e-13, max_iter=100_000).fit(X / factors, y)
    np.testing.assert_allclose(found.model.coef_, other.coef_ / factors, atol=2e-5)
    assert np.count_nonzero(other.coef_) < 9


@pytest.mark.parametrize("split", SPLITS)
def test_unpenalised_columns_are_partialled_out(split):
    A, b = partialled_out()
    scales = np.array(FACTORS)[~FREE]
    problem = co.Problem("squared", "l1", STRENGTH, factors=FACTORS)
    found = fitted(problem, split=split)
    lasso = Lasso(alpha=STRENGTH, fit_intercept=False, tol=1e-13, max_iter=100_000)
    lasso.fit(A / scales, b)
    np.testing.assert_allclose(found.model.coef_[~FREE], lasso.coef_ / scales, atol=2e-5)
    assert (found.model.coef_[FREE] != 0).all()

    problem = co.Problem("squared", "l2", STRENGTH, factors=FACTORS)
    found = fitted(problem, split=split)
    ridge = Ridge(alpha=STRENGTH * len(b), fit_intercept=False, tol=1e-13)
    ridge.fit(A / np.sqrt(scales), b)
    expected = ridge.coef_ / np.sqrt(scales)
    np.testing.assert_allclose(found.model.coef_[~FREE], expected, atol=2e-5)


def test_equal_factors_are_one_strength():
    X, y = rows()
    parameters = {"penalty": "elasticnet", "l1_ratio": 0.4}
    found = fitted(co.Problem("squared", strength=[0.2] * 9, **parameters))
    other = ElasticNet(alpha=0.2, l1_ratio=0.4, tol=1e-13, max_iter=100_000).fit(X, y)
    np.testing.assert_allclose(found.model.coef_, other.coef_, atol=2e-6)


def test_logistic_regression_with_factors():
    X, _ = rows()
    scales = np.sqrt(np.where(FREE, 0.3, FACTORS))
    problem = co.Problem("logistic", "l2", STRENGTH, factors=scales**2)
    found = fitted(problem, labels=classes())
    other = LogisticRegression(C=1 / (len(X) * STRENGTH), tol=1e-12, max_iter=10_000)
    other.fit(X / scales, classes())
    np.testing.assert_allclose(found.model.coef_, other.coef_[0] / scales, atol=1e-5)


# -- every method ----------------------------------------------------------------------------------

LABELS = {"squared": False, "logistic": True, "hinge": True}
NEEDS_ONE_STRENGTH = ("blocks", "diffusion", "dynamic-diffusion", "pvrd2", "relay", "vrd2")
NEEDS_A_RIDGE_EVERYWHERE = ("cocoa", "semismooth")
SLOW = ("consensus", "graph-cp", "lin-consensus", "proximal-2")


def problem_of(loss: str, name: str, method: str = "auto", **factors) -> co.Problem:
    return co.Problem(loss, name, STRENGTH, intercept=method != "cocoa", **factors)


def refusal(problem: co.Problem, method: str) -> str:
    try:
        METHODS[method]().check(problem, co.networks.ring(3))
    except InvalidProblem as error:
        return str(error)
    return ""


def cases() -> list[tuple[str, str, str]]:
    """The methods and problems that go together with one strength for all columns."""
    found = []
    for method, entry in METHODS.items():
        for loss in LABELS:
            for name in ("l1", "l2", "elasticnet"):
                if entry.family == "linear" and not refusal(problem_of(loss, name, method), method):
                    found.append((method, loss, name))
    return found


@cache
def fit_of(loss: str, name: str, intercept: bool) -> co.Certificate:
    problem = co.Problem(loss, name, STRENGTH, intercept=intercept, factors=FACTORS)
    return fitted(problem, classes() if LABELS[loss] else None, tol=1e-7).certificate


@pytest.mark.rotates
@pytest.mark.parametrize(("method", "loss", "name"), cases())
def test_every_method_takes_factors_or_names_those_that_do(method, loss, name):
    problem = problem_of(loss, name, method, factors=FACTORS)
    if method in (*NEEDS_ONE_STRENGTH, *NEEDS_A_RIDGE_EVERYWHERE):
        assert re.search(r"Use [\w-]+", refusal(problem, method))
    if method in NEEDS_ONE_STRENGTH:
        return
    reference = fit_of(loss, name, problem.intercept)
    if method in NEEDS_A_RIDGE_EVERYWHERE:
        problem = problem_of(loss, name, method, factors=np.add(FACTORS, 0.2))
        labels = classes() if LABELS[loss] else None
        reference = fitted(problem, labels, tol=1e-7).certificate
    labels = classes() if LABELS[loss] else None
    most = 300 if method in SLOW else 3000
    split = METHODS[method].split
    found = fitted(problem, labels, split, method=method, tol=1e-4, max_rounds=most).certificate
    assert found.primal >= reference.primal - reference.gap - 1e-9
    assert found.primal - found.gap <= reference.primal + 1e-9
    assert found.primal <= reference.primal * (1.01 if method in SLOW else 1.001)


def test_blocks_needs_one_ridge_for_all_columns_in_a_box_too():
    box = Columnwise(1.0, l2=(0.1, 0.2, 0.3), lower=-1.0, upper=1.0)
    assert "one strength for all columns" in refusal(co.Problem("squared", box), "blocks")


@pytest.mark.parametrize("hessian", ["full", "products", "active"])
def test_newton_has_factors_in_all_its_forms(hessian):
    name = "l2" if hessian == "products" else "l1"
    method = METHODS["newton"](hessian=hessian)
    problem = co.Problem("logistic", name, STRENGTH, factors=FACTORS)
    found = fitted(problem, classes(), method=method, tol=1e-7)
    assert found.certificate.primal == pytest.approx(
        fit_of("logistic", name, True).primal, rel=1e-7
    )


# -- a penalty per party ---------------------------------------------------------------------------

COLUMNS = ([0, 4, 8], [1, 2, 3], [5, 6, 7])
PARTS = [
    penalty("l1", strength=0.1),
    {"name": "l2", "strength": 0.5},
    penalty("box", lower=-0.1, upper=(0.2, math.inf, 0.3)),
]


def parties() -> list:
    X, y = rows()
    tables = [(X[:, own], None) for own in COLUMNS]
    tables[1] = (tables[1][0], y)
    return tables


def check_optimal(w, gradient, part) -> None:
    """−gradient is in the subdifferential of that party's penalty at w."""
    if part.name == "l1":
        assert np.all(np.abs(gradient) <= part.strength + 1e-5)
        np.testing.assert_allclose((gradient + part.strength * np.sign(w))[w != 0], 0, atol=1e-5)
    elif part.name == "l2":
        np.testing.assert_allclose(gradient + part.strength * w, 0, atol=1e-5)
    else:
        lower, upper = np.broadcast_to(part.lower, 3), np.array(part.upper)
        assert np.all((lower - 1e-9 <= w) & (w <= upper + 1e-9))
        inside = (w > lower + 1e-4) & (w < upper - 1e-4)
        np.testing.assert_allclose(gradient[inside], 0, atol=1e-5)
        assert np.all(gradient[w >= upper - 1e-4] <= 1e-5)
        assert np.all(gradient[w <= lower + 1e-4] >= -1e-5)


@pytest.mark.parametrize("method", ["auto", "tree", "graph-cp"])
def test_every_party_has_its_own_penalty(method, tmp_path):
    problem = co.Problem("squared", PARTS)
    found = co.solve(
        problem, parties(), split="features", method=method, network="ring", tol=1e-10,
        max_rounds=20_000,
    )  # fmt: skip
    assert found.status.value.startswith("optimal")
    X, y = rows()
    whole = np.column_stack([X[:, own] for own in COLUMNS])
    w = found.model.coef_
    residual = whole @ w + found.model.intercept_ - y
    assert abs(residual.mean()) < 1e-5
    for place, part in enumerate(co.Problem("squared", PARTS).penalty.parts):
        own = slice(3 * place, 3 * place + 3)
        check_optimal(w[own], whole[:, own].T @ residual / len(y), part)
    found.save(tmp_path)
    again = co.Result.load(tmp_path)
    assert co.verify(again.certificate, again.model, parties()).holds
    assert isinstance(again.model.problem.penalty, Columnwise)


def test_lists_of_penalties_are_checked():
    problem = co.Problem("squared", [penalty("l1", strength=1.0), "none"])
    with pytest.raises(InvalidProblem, match="it needs split='features'"):
        fitted(problem)
    with pytest.raises(InvalidProblem, match="2 penalties for 3 parties"):
        co.solve(problem, parties(), split="features")
    with pytest.raises(InvalidProblem, match="the l1ball penalty cannot be that of one party"):
        co.Problem("squared", [penalty("l1ball", radius=1.0), "none"])
    with pytest.raises(InvalidProblem, match="is empty"):
        co.Problem("squared", [])
    box = penalty("box", lower=(0.0, 0.0), upper=1.0)
    with pytest.raises(InvalidProblem, match="party with 3 columns has numbers for another"):
        co.solve(co.Problem("squared", [box, "none", "none"]), parties(), split="features")
    with pytest.raises(InvalidProblem, match="depends on the columns of all parties"):
        problem.penalty.value(np.zeros(3))


# -- names and preparation -------------------------------------------------------------------------


def frame() -> pd.DataFrame:
    X, y = rows()
    table = pd.DataFrame(X[:, :4], columns=["age", "dose", "time", "weight"])
    table["city"] = np.array(["Ghent", "Paris", "Rome"])[np.arange(len(y)) % 3]
    table["y"] = y + (np.arange(len(y)) % 3)
    return table


def test_factors_name_columns_and_raw_columns_of_a_preparation():
    table = co.read(frame(), target="y", prepare=["one-hot", "standardise"])
    problem = co.Problem("squared", "l1", 0.5, factors={"city": 0, "dose": 0.5})
    found = co.solve(problem, table, agents=3, prepare=["one-hot", "standardise"], tol=1e-9)
    names = list(found.model.columns)
    numbers = dict(zip(names, found.model.problem.penalty.l1, strict=True))
    cities = [name for name in names if name.startswith("city")]
    assert len(cities) >= 2
    assert {numbers[name] for name in cities} == {0.0}
    assert numbers["dose"] == 0.5
    assert numbers["age"] == numbers["time"] == numbers["weight"] == 1.0
    w = dict(zip(names, found.model.coef_, strict=True))
    assert all(w[name] != 0 for name in cities)
    assert co.verify(found.certificate, found.model, table).holds


@pytest.mark.parametrize("split", SPLITS)
def test_factors_by_name_are_those_by_number(split):
    table = frame().drop(columns="city")
    named = co.Problem("squared", "l1", 0.1, factors={"weight": 0, "dose": 0.5})
    listed = co.Problem("squared", "l1", 0.1, factors=[1, 0.5, 1, 0])
    data = co.read(table, target="y")
    found, other = (co.solve(one, data, split=split, agents=2, tol=1e-8) for one in (named, listed))
    np.testing.assert_array_equal(found.model.coef_, other.model.coef_)
    assert found.model.problem == other.model.problem


def test_names_are_checked():
    data = co.read(frame().drop(columns="city"), target="y")
    problem = co.Problem("squared", "l1", 0.1, factors={"wieght": 0})
    with pytest.raises(UnknownName, match="weight"):
        co.solve(problem, data, agents=2)
    with pytest.raises(InvalidProblem, match="Give factors as a list, one number per column"):
        fitted(problem)


# -- paths, certificates and refusals --------------------------------------------------------------


def test_a_path_multiplies_the_factors(tmp_path):
    problem = co.Problem("squared", "l1", factors=FACTORS, strength=1.0)
    X, y = rows()
    found = co.path(problem, (X, y), agents=3, strengths=[0.5, 0.05], cv=3, tol=1e-8)
    alone = fitted(co.Problem("squared", "l1", 0.05, factors=FACTORS), tol=1e-8)
    np.testing.assert_allclose(found.results[1].model.coef_, alone.model.coef_, atol=1e-6)
    grid = co.path(problem, (X, y), agents=3, count=4)
    first = grid.results[0].model.coef_
    assert np.count_nonzero(first[~FREE]) <= 3
    assert (first[FREE] != 0).all()
    # A list of penalties is multiplied as a whole.
    parts = [penalty("l1", strength=1.0), penalty("l2", strength=1.0), "none"]
    halved = [penalty("l1", strength=0.5), penalty("l2", strength=0.5), "none"]
    settings = {"split": "features", "tol": 1e-8}
    tried = co.path(co.Problem("squared", parts), parties(), strengths=[0.5], **settings)
    other = co.solve(co.Problem("squared", halved), parties(), **settings)
    np.testing.assert_allclose(tried.results[0].model.coef_, other.model.coef_, atol=1e-6)


def test_a_certificate_of_factors_is_verified_and_not_for_others(tmp_path):
    found = fitted(co.Problem("logistic", "l1", STRENGTH, factors=FACTORS), classes(), tol=1e-6)
    found.save(tmp_path)
    data = rows()[0], classes()
    again = co.Result.load(tmp_path)
    assert co.verify(again.certificate, again.model, data).holds
    settings = json.loads(json.dumps(again.certificate.settings))
    settings["problem"]["penalty"]["l1"][0] = 0.0
    other = replace(again.certificate, settings=settings)
    other_problem = co.Problem.from_settings(settings["problem"])
    assert not co.verify(other, again.model, data).holds
    assert not co.verify(other, replace(again.model, problem=other_problem), data).holds


def test_several_classes_have_factors():
    X, y = rows()
    labels = np.digitize(y, np.quantile(y, [1 / 3, 2 / 3]))
    scales = np.sqrt(np.where(FREE, 0.3, FACTORS))
    found = fitted(co.Problem("multinomial", "l2", STRENGTH, factors=scales**2), labels, tol=1e-9)
    other = LogisticRegression(C=1 / (len(X) * STRENGTH), tol=1e-12, max_iter=10_000)
    other.fit(X / scales, labels)
    np.testing.assert_allclose(found.model.coef_, other.coef_ / scales, atol=1e-4)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"penalty": "box", "lower": 0, "upper": 1, "factors": [1]},
            "the box penalty takes no fac",
        ),
        ({"penalty": "none", "factors": {"age": 0}}, "the none penalty takes no factors"),
        ({"penalty": "l1", "strength": 1.0, "factors": [1, -1]}, "the factor of column 1 must be"),
        ({"penalty": "l1", "strength": 1.0, "factors": {"age": math.inf}}, "column 'age' must be"),
        ({"penalty": "l1", "strength": [1.0, math.nan]}, "the strength of column 1 must be a num"),
        ({"penalty": "l1", "strength": [1.0, 2.0], "factors": [1, 1]}, "Give a single strength"),
    ],
)
def test_factors_are_checked(parameters, message):
    with pytest.raises(InvalidProblem, match=message):
        co.Problem("squared", **parameters)


def test_the_number_of_factors_is_that_of_columns():
    with pytest.raises(InvalidProblem, match=r"2 columns.*Give one number per column"):
        fitted(co.Problem("squared", "l1", STRENGTH, factors=[1, 0]))


def test_estimators_have_factors():
    X, y = rows()
    model = co.LinearRegressor(penalty="l1", alpha=STRENGTH, factors=FACTORS, agents=3).fit(X, y)
    wanted = fitted(co.Problem("squared", "l1", STRENGTH, factors=FACTORS), tol=1e-6)
    np.testing.assert_allclose(model.coef_, wanted.model.coef_, atol=1e-3)
    several = co.LinearRegressor(penalty="l1", alpha=np.multiply(FACTORS, STRENGTH), agents=3)
    np.testing.assert_allclose(several.fit(X, y).coef_, wanted.model.coef_, atol=1e-3)
    labels = co.survival_labels(np.exp(y), np.arange(len(y)) % 4 > 0)
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(9)])
    cox = co.CoxRegressor(penalty="l2", alpha=1e6, factors={"x3": 0}).fit(frame, labels)
    alone = co.CoxRegressor(penalty="none").fit(frame[["x3"]], labels)
    assert cox.coef_[3] == pytest.approx(alone.coef_[0], rel=1e-3)
    assert np.abs(np.delete(cox.coef_, 3)).max() < 1e-4


# -- the command line and studies ------------------------------------------------------------------


@pytest.mark.parametrize("factors", ["weight=0,dose=0.5", "1,0.5,1,0"])
def test_the_command_line_has_factors(factors, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = frame().drop(columns="city")
    table.to_csv("rows.csv", index=False)
    words = ["fit", "rows.csv", "--target", "y", "--penalty", "l1", "--strength", 0.1]
    done = shell(*words, "--agents", 3, "--factors", factors, "-o", "answer")
    assert done.exit_code == 0, done.output
    found = co.Result.load("answer")
    problem = co.Problem("squared", "l1", 0.1, factors=[1, 0.5, 1, 0])
    assert found.model.problem == problem
    wanted = co.solve(problem, co.read(table, target="y"), agents=3)
    np.testing.assert_allclose(found.model.coef_, wanted.model.coef_, atol=1e-12)
    files = ["answer/certificate.json", "answer/model.npz", "rows.csv"]
    done = shell("verify", *files, "--target", "y")
    assert done.exit_code == 0, done.output
    assert "one number per column" in shell(*words, "--factors", "age=x").text


def of_study(folder, split: str, problem: dict) -> tuple[list, list]:
    tables = data(split)
    write_study(folder, problem=problem, split=split, tol=1e-8)
    write_data(folder, tables)
    return tables, together(folder, tables)


def test_organisations_have_factors_by_name(tmp_path):
    named = {"loss": "squared", "penalty": "l1", "strength": 0.1, "intercept": True}
    tables, results = of_study(tmp_path, "samples", named | {"factors.x1": 0.0, "factors.x4": 2.0})
    factors = [1.0, 0.0, 1.0, 1.0, 2.0, 1.0, 1.0, 1.0, 1.0]
    problem = co.Problem("squared", "l1", 0.1, factors=factors)
    wanted = co.solve(problem, tables, tol=1e-8)
    for one in results:
        assert one.model.problem == problem
        np.testing.assert_allclose(one.model.coef_, wanted.model.coef_, atol=1e-5)
    for one in together(tmp_path, tables, work=verify_together):
        assert one.holds, one


def test_organisations_with_columns_have_penalties_of_their_own(tmp_path):
    own = ["none", {"name": "l1", "strength": 0.1}, {"name": "l2", "strength": 0.2}]
    text = '["none", {name = "l1", strength = 0.1}, {name = "l2", strength = 0.2}]'
    tables = data("features")
    write_study(tmp_path, problem={"loss": "squared", "intercept": True}, tol=1e-8)
    study = tmp_path / "study.toml"
    study.write_text(study.read_text().replace("[problem]", f"[problem]\npenalty = {text}"))
    write_data(tmp_path, tables)
    results = together(tmp_path, tables)
    wanted = co.solve(co.Problem("squared", own), tables, split="features", tol=1e-8)
    for one, table in zip(results, co.run.setup.columns_of(tables), strict=True):
        np.testing.assert_allclose(one.model.coef_, wanted.model.coef_[table], atol=1e-4)
    for one in together(tmp_path, tables, work=verify_together):
        assert one.holds, one
