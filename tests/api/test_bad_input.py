"""`solve` refuses bad input with party, column and fix named, before any message is sent."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import coterie as co
from coterie.engines.peers import Peers
from coterie.engines.ray import Ray
from coterie.errors import CoterieError, InvalidData
from coterie.estimators import LinearRegressor, PersonalizedClassifier
from coterie.transport.in_process import InProcess

RNG = np.random.default_rng(0)
X = RNG.standard_normal((20, 3))
Y = X.sum(axis=1)
SIGNS = np.where(Y > 0, 1.0, -1.0)
RIDGE = co.Problem("squared", "l2", 0.1, intercept=False)
LOGISTIC = co.Problem("logistic", "l2", 0.1, intercept=False)


def spoiled(value, row=7, column=1):
    bad = X.copy()
    bad[row, column] = value
    return bad


def parties(*parts):
    return [co.Table(x, y, name=name, columns=("age", "height", "weight")) for name, x, y in parts]


@pytest.fixture
def nothing_is_sent(monkeypatch):
    def converse(*_):
        raise AssertionError("a message was sent")

    monkeypatch.setattr(InProcess, "converse", converse)


BAD = {
    "nan": (
        RIDGE,
        parties(("bank", X, Y), ("shop", spoiled(np.nan), Y)),
        {},
        ["shop", "height", "1 value", "row 7"],
    ),
    "inf": (
        RIDGE,
        parties(("bank", X, Y), ("shop", spoiled(np.inf), Y)),
        {},
        ["shop", "height", "1 value"],
    ),
    "sparse nan": (
        RIDGE,
        (sp.csr_matrix(spoiled(np.nan)), Y),
        {"agents": 2},
        ["party 'data'", "column 1", "1 value"],
    ),
    "object": (
        RIDGE,
        parties(("shop", X.astype(object).astype(str).astype(object), Y)),
        {},
        ["shop"],
    ),
    "complex": (RIDGE, parties(("shop", X + 1j, Y)), {}, ["shop", "complex"]),
    "labels nan": (RIDGE, parties(("shop", X, np.where(Y > 0, np.nan, Y))), {}, ["shop", "label"]),
    "weight zero": (
        RIDGE,
        [co.Table(X, Y, np.zeros(20), name="shop")],
        {},
        ["shop", "weight", "20"],
    ),
    "weight negative": (RIDGE, [co.Table(X, Y, -np.ones(20), name="shop")], {}, ["shop", "weight"]),
    "all empty": (RIDGE, [(X[:0], Y[:0]), (X[:0], Y[:0])], {}, ["no party has any rows"]),
    "rows differ": (RIDGE, [(X, Y), X[:-1]], {"split": "features"}, ["20", "19"]),
    "no labels": (RIDGE, [X, X], {"split": "features"}, ["label"]),
    "two labels": (RIDGE, [(X, Y), (X, Y)], {"split": "features"}, ["label", "party 0", "party 1"]),
    "columns differ": (RIDGE, [(X, Y), (X[:, :2], Y)], {}, ["3", "2"]),
    "one class": (LOGISTIC, (X, np.ones(20)), {}, ["class"]),
    "three classes": (LOGISTIC, (X, np.arange(20) % 3), {}, ["3", "class"]),
    "disconnected": (
        RIDGE,
        (X, Y),
        {"agents": 4, "network": np.kron(np.eye(2), [[0, 1], [1, 0]])},
        ["{0, 1}", "{2, 3}"],
    ),
    "asymmetric": (
        RIDGE,
        (X, Y),
        {"agents": 2, "network": np.array([[0.0, 1], [2, 0]])},
        ["symmetric"],
    ),
    "negative edge": (
        RIDGE,
        (X, Y),
        {"agents": 2, "network": np.array([[0.0, -1], [-1, 0]])},
        ["positive", "(0, 1) is -1"],
    ),
    "network size": (
        RIDGE,
        (X, Y),
        {"agents": 3, "network": co.networks.ring(4)},
        ["4 agents", "3 parties"],
    ),
    "network name": (RIDGE, (X, Y), {"network": "rign"}, ["ring"]),
    "method name": (RIDGE, (X, Y), {"method": "proximal2"}, ["proximal-2"]),
    "method option": (RIDGE, (X, Y), {"method": "proximal-2", "roh": 1.0}, ["roh"]),
    "split name": (RIDGE, (X, Y), {"split": "sample"}, ["samples"]),
    "engine name": (RIDGE, (X, Y), {"engine": "locl"}, ["local"]),
    "tol zero": (RIDGE, (X, Y), {"tol": 0}, ["1e-6"]),
    "sizes": (RIDGE, (X, Y), {"agents": [10, 11]}, ["21", "20"]),
    "tuple of parties": (RIDGE, ((X, Y), (X, Y)), {}, ["[(X1, y1), (X2, y2)]"]),
    "no data": (RIDGE, None, {}, ["NoneType"]),
    "no problem": ("ridge", (X, Y), {}, ["co.Problem"]),
    "seed": (RIDGE, (X, Y), {"seed": -1}, ["seed"]),
    "max_rounds": (RIDGE, (X, Y), {"max_rounds": None}, ["max_rounds"]),
    "labels that vanish": (
        RIDGE,
        parties(("shop", X, Y * 1e-170)),
        {},
        ["shop", "the labels", "e-170", "Multiply"],
    ),
    "labels that overflow": (
        RIDGE,
        parties(("shop", X, Y * 1e170)),
        {},
        ["shop", "the labels", "e+170", "Divide"],
    ),
    "tol as text": (RIDGE, (X, Y), {"tol": "1e-6"}, ["tol"]),
    "box of another width": (
        co.Problem("squared", "box", lower=(0.0,) * 5, upper=1.0, intercept=False),
        (X, Y),
        {},
        ["3 columns"],
    ),
    "a penalty for matrices": (
        co.Problem("squared", "traceball", radius=1.0),
        (X, Y),
        {},
        ["traceball"],
    ),
    "agents with a list": (RIDGE, [(X, Y), (X, Y)], {"agents": 3}, ["2 parties"]),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_before_any_message(name, nothing_is_sent):
    problem, data, settings, words = BAD[name]
    with pytest.raises(CoterieError) as refusal:
        co.solve(problem, data, **settings)
    for word in words:
        assert word in str(refusal.value), str(refusal.value)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("split", ["samples", "features"])
@pytest.mark.parametrize(
    ("factor", "precision"), [(1e-170, float), (1e-200, float), (1e170, float), (1e-30, "f4")]
)
def test_squares_that_vanish_or_overflow_are_refused_with_party_column_and_factor(
    kind, split, factor, precision, nothing_is_sent
):
    columns = (X * [1.0, 0.0, factor]).astype(precision)
    with pytest.raises(InvalidData) as refusal:
        co.solve(RIDGE, (kind(columns), Y.astype(precision)), split=split, agents=2)
    direction = "Multiply" if factor < 1 else "Divide"
    for word in ("party 'data'", "column 2 has", str(np.dtype(precision)), f"{direction} them by"):
        assert word in str(refusal.value), str(refusal.value)
    assert "other column" not in str(refusal.value)
    by = float(str(refusal.value).rstrip(".").split()[-1])
    rescaled = columns.astype(float)[:, 2] * (by if factor < 1 else 1 / by)
    assert 0.1 < np.abs(rescaled).max() < 10


def test_columns_of_zeros_or_constants_and_numbers_that_are_tiny_at_one_party_only_are_valid():
    flat = X * [1.0, 0.0, 1.0] + [0.0, 0.0, 7.0]
    for data in (
        (flat, Y),
        (sp.csr_array(flat), Y),
        [(X, Y), (X * 1e-200, Y)],
        [(X, Y), (X, 0 * Y)],
    ):
        assert co.solve(RIDGE, data).status == "optimal"


NO_COUNTS = (2.5, 3.0, float("inf"), float("nan"), True, "3", -1)
COUNTS = {
    "max_rounds": lambda bad: co.solve(RIDGE, (X, Y), max_rounds=bad),
    "check_every": lambda bad: co.solve(RIDGE, (X, Y), check_every=bad),
    "seed": lambda bad: co.solve(RIDGE, (X, Y), seed=bad),
    "agents": lambda bad: co.solve(RIDGE, (X, Y), agents=bad),
    "agents of a list": lambda bad: co.solve(RIDGE, [(X, Y)], agents=bad),
    "agents by users": lambda bad: co.solve(co.Personal(), (X, SIGNS), split="users", agents=bad),
    "products": lambda bad: co.solve(RIDGE, (X, Y), method="newton", products=bad),
    "inner_epochs": lambda bad: co.solve(RIDGE, (X, Y), method="proximal-1", inner_epochs=bad),
    "batch": lambda bad: co.solve(LOGISTIC, (X, SIGNS), split="features", method="vrd2", batch=bad),
    "count": lambda bad: co.Personal(count=bad),
    "seed of a path": lambda bad: co.path(RIDGE, (X, Y), [0.1], seed=bad),
    "cv": lambda bad: co.path(RIDGE, (X, Y), [0.1], cv=bad),
    "seed of a plan": lambda bad: co.plan(RIDGE, (50, 3), seed=bad),
    "max_rounds of an estimator": lambda bad: LinearRegressor(max_rounds=bad).fit(X, Y),
    "agents of an estimator": lambda bad: LinearRegressor(agents=bad).fit(X, Y),
    "random_state": lambda bad: LinearRegressor(random_state=bad).fit(X, Y),
    "cv of an estimator": lambda bad: PersonalizedClassifier(cv=bad).fit(
        X, SIGNS, np.arange(20) % 2
    ),
    "local_steps": lambda bad: PersonalizedClassifier(local_steps=bad).fit(
        X, SIGNS, np.arange(20) % 2
    ),
    "workers": lambda bad: Ray(workers=bad),
    "restarts": lambda bad: Peers(restarts=bad),
}


@pytest.mark.parametrize(
    ("argument", "bad"),
    # scikit-learn has words of its own for text as a random state
    [
        (argument, bad)
        for argument in COUNTS
        for bad in NO_COUNTS
        if (argument, bad) != ("random_state", "3")
    ],
)
def test_what_is_no_whole_number_is_refused_by_name(argument, bad, nothing_is_sent):
    with pytest.raises(CoterieError) as refusal:
        COUNTS[argument](bad)
    for word in (argument.split()[0], repr(bad)):
        assert word in str(refusal.value), str(refusal.value)


def test_whole_numbers_of_numpy_are_whole_numbers(tmp_path):
    two = np.int64(2)
    result = co.solve(
        RIDGE,
        (X, Y),
        agents=two,
        seed=two,
        max_rounds=two,
        check_every=two,
        method="newton",
        products=two,
    )
    result.save(tmp_path / "result")
    assert type(result.certificate.settings["limits"]["max_rounds"]) is int
    assert len(co.path(RIDGE, (X, Y), [0.1], cv=two).scores) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"loss": "logistc"}, ["logistic"]),
        ({"penalty": "l3"}, ["l1", "l2"]),
        ({"penalty": "l1"}, ["needs strength"]),
        ({"penalty": "l1", "strength": -1.0}, ["positive"]),
        ({"penalty": "l1", "strength": float("nan")}, ["positive"]),
        ({"loss": "quantile", "level": 1.5}, ["level"]),
        ({"loss": "squared", "threshold": 1.0}, ["does not take threshold"]),
        ({"penalty": "elasticnet", "strength": 0.1, "l1_ration": 0.5}, ["l1_ratio"]),
    ],
)
def test_a_problem_that_cannot_be_names_the_fix(arguments, words):
    with pytest.raises(CoterieError) as refusal:
        co.Problem(**arguments)
    for word in words:
        assert word in str(refusal.value), str(refusal.value)


def test_an_empty_party_changes_nothing():
    with_empty = co.solve(RIDGE, [(X[:12], Y[:12]), (X[:0], Y[:0]), (X[12:], Y[12:])], tol=1e-9)
    without = co.solve(RIDGE, [(X[:12], Y[:12]), (X[12:], Y[12:])], tol=1e-9)
    assert with_empty.status == without.status == "optimal"
    np.testing.assert_allclose(with_empty.model.coef_, without.model.coef_, atol=1e-4)


def test_any_two_labels_are_classes():
    for values in ((0, 1), ("no", "yes"), (False, True), (2, 5)):
        y = np.where(SIGNS > 0, values[1], values[0])
        model = co.solve(LOGISTIC, (X, y), agents=2).model
        assert list(model.classes_) == list(values)
        assert set(model.predict(X)) <= set(values)
        assert np.mean(model.predict(X) == y) > 0.9


def test_parties_of_different_precision_learn_together():
    result = co.solve(RIDGE, [(X[:10].astype("f4"), Y[:10]), (X[10:], Y[10:])])
    assert result.status == "optimal"
    assert result.model.coef_.dtype == np.float64
