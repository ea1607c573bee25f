"""The mistakes of a new user's first hour: each is answered with its fix, close names are
suggested, and the command line shows no traceback.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import coterie as co
from coterie.estimators import LinearClassifier, LinearRegressor

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 3))
Y = X.sum(axis=1) + 1.0
SIGNS = np.where(Y > 1, 1, -1)
FRAME = pd.DataFrame(X, columns=["age", "height", "weight"]).assign(
    price=Y, town=["York", "Bath"] * 20
)
RIDGE, LOGISTIC = (
    co.Problem("squared", "l2", 0.1, intercept=False),
    co.Problem("logistic", "l2", 0.1, intercept=False),
)
HOLES = np.where(X > 2.0, np.nan, X)


def fit(problem=RIDGE, data=(X, Y), **settings):
    return lambda: co.solve(problem, data, **settings)


def problem(*arguments, **parameters):
    return lambda: co.Problem(*arguments, **parameters)


IN_PYTHON = {
    # what to minimise
    "a loss misspelt": (problem("logistc"), "Did you mean 'logistic'"),
    "scikit-learn's name of a loss": (problem("log_loss"), "Did you mean 'logistic'"),
    "a loss by its initials": (problem("mse"), "Did you mean 'squared'"),
    "ridge for l2": (problem("squared", "ridge", 0.1), "Did you mean 'l2'"),
    "no penalty by None": (problem("squared", None), "Did you mean 'none'"),
    "a penalty without strength": (problem("squared", "l1"), "needs strength, e.g."),
    "alpha for strength": (problem("squared", "l1", alpha=0.1), "needs strength", "You gave alpha"),
    "a negative strength": (problem("squared", "l1", -1.0), "positive number", "use 'none'"),
    "fit_intercept for intercept": (
        problem("squared", "l1", 0.1, fit_intercept=True),
        "Did you mean 'intercept'",
    ),
    "the class for an object": (fit(co.Problem), "e.g. co.Problem('logistic', 'l2', 1e-3)"),
    "arguments swapped": (lambda: co.solve((X, Y), RIDGE), "the first argument is a Problem"),
    # data
    "X and y apart": (lambda: co.solve(RIDGE, X, Y), "solve(problem, (X, y))"),
    "labels forgotten": (fit(data=X), "there are no labels", "give (X, y)"),
    "labels forgotten, split by features": (
        fit(data=X, split="features"),
        "labels at no party",
        "(X, y)",
    ),
    "labels at two parties": (
        fit(data=[(X, Y), (X, Y)], split="features"),
        "party 0, party 1",
        "exactly one",
    ),
    "too few labels": (
        fit(data=(X, Y[:-1])),
        "has 40 rows but the number of labels is 39",
        "one label per row",
    ),
    "one column as a vector": (fit(data=(X[:, 0], Y)), "X.reshape(-1, 1)"),
    "labels as a column": (fit(data=(X, Y[:, None])), "y.ravel()"),
    "missing values": (fit(data=(HOLES, Y)), "column 1", "Drop or impute"),
    "text among the columns": (
        lambda: co.solve(RIDGE, co.read(FRAME, target="price")),
        "'town'",
        "one-hot",
    ),
    "a wrong column": (lambda: co.read(FRAME, target="prise"), "Did you mean 'price'"),
    "a file that is not there": (
        fit(data="prices.csv"),
        "'prices.csv' does not exist",
        "Check the path",
    ),
    "numbers where classes belong": (fit(LOGISTIC), "40 classes", "use a regression loss"),
    "a start from other columns": (
        lambda: fit(warm_start=fit(data=(X[:, :2], Y))())(),
        "has 2 coefficients",
        "ask for 3",
        "same columns",
    ),
    "a start from another family": (
        lambda: fit(warm_start=fit(co.Problem("squared", "traceball", radius=1.0), (X, X))())(),
        "a low-rank one",
        "asks for linear",
    ),
    "a space in words": (
        fit(
            co.Problem("squared", "traceball", radius=1.0), (X, X), method="dfw-subspace", space="a"
        ),
        "space must be a whole number from 1",
    ),
    "three classes": (fit(LOGISTIC, (X, np.arange(40) % 3)), "3 classes", "multinomial"),
    "one class": (fit(LOGISTIC, (X, np.ones(40))), "1 class", "add rows"),
    "text where numbers belong": (
        fit(data=(X, FRAME["town"])),
        "'York'",
        "use a classification loss",
    ),
    "other columns": (fit(data=[(X, Y), (X[:, :2], Y)]), "has 2 columns but", "same columns"),
    "nobody has the same ids": (
        lambda: co.align([co.Table(X, Y, ids=np.arange(40)), co.Table(X, ids=np.arange(50, 90))]),
        "no id occurs at every party",
    ),
    # who and how
    "a common problem for users": (fit(data=[(X, Y), (X, Y)], split="users"), "co.Personal"),
    "rows for samples": (fit(split="rows"), "Did you mean 'samples'"),
    "a split misspelt": (fit(split="feature"), "Did you mean 'features'"),
    "no agents": (fit(agents=0), "Give 1 or more"),
    "agents as text": (fit(agents="8"), "neither a count (a whole number)"),
    "agents as a float": (fit(agents=8.0), "neither a count (a whole number)"),
    "sizes that do not add up": (fit(agents=[30, 30]), "add up to 60", "there are 40 rows"),
    "agents beside a list": (fit(data=[(X, Y), (X, Y)], agents=4), "2 parties", "leave it out"),
    "a network misspelt": (fit(network="rign"), "Did you mean 'ring'"),
    "a graph in two pieces": (
        fit(agents=4, network=[(0, 1), (2, 3)]),
        "{0, 1}, {2, 3}",
        "for example (0, 2)",
    ),
    "a network of another size": (
        fit(agents=3, network=co.networks.ring(4)),
        "Give a network of 3 agents",
    ),
    "a method misspelt": (fit(method="proximal2"), "Did you mean 'proximal-2'"),
    "a method by another name": (fit(method="admm"), "Did you mean 'consensus'"),
    "a method of the other split": (
        fit(method="graph-cp"),
        "split by features",
        "For samples: cocoa",
    ),
    "a penalty that a method cannot": (
        fit(co.Problem("squared", "l1", 0.1, intercept=False), method="cocoa"),
        "method='proximal-1'",
    ),
    "a parameter misspelt": (fit(method="proximal-2", roh=1.0), "Did you mean 'rho'"),
    "a setting misspelt": (fit(max_round=10), "Did you mean 'max_rounds'"),
    "scikit-learn's name of a setting": (fit(max_iter=10), "Did you mean 'max_rounds'"),
    "tolerance 0": (fit(tol=0), "1e-6 is usual", "0 is never reached"),
    "an engine misspelt": (fit(engine="locl"), "Did you mean 'local'"),
    "an acceleration misspelt": (fit(acceleration="andersen"), "Did you mean 'anderson'"),
    # afterwards
    "fewer columns to predict": (lambda: fit()().model.predict(X[:, :2]), "3 columns", "has 2"),
    "probabilities of a regression": (
        lambda: fit()().model.predict_proba(X),
        "fit with loss='logistic'",
    ),
    "a column of the history": (lambda: fit()().history["gaps"], "Did you mean 'gap'"),
    "no model file": (
        lambda: co.LinearModel.load(__file__),
        "not a readable model",
        "not an .npz file",
    ),
}
WITH_ESTIMATORS = {
    "a classifier for numbers": (
        lambda: LinearClassifier("squared").fit(X, SIGNS),
        "use LinearRegressor",
    ),
    "a regressor for classes": (
        lambda: LinearRegressor("logistic").fit(X, Y),
        "use LinearClassifier",
    ),
    "numbers where classes belong": (
        lambda: LinearClassifier().fit(X, Y),
        "Unknown label type: continuous",
    ),
    "one class": (lambda: LinearClassifier().fit(X, np.ones(40)), "one class, 1.0", "add rows"),
    "a loss by another name": (lambda: LinearRegressor("mae").fit(X, Y), "Did you mean 'absolute'"),
    "capitals": (lambda: LinearRegressor(penalty="L2").fit(X, Y), "Did you mean 'l2'"),
    "a negative alpha": (lambda: LinearRegressor(alpha=-1).fit(X, Y), "positive number"),
    "a penalty that needs more": (lambda: LinearRegressor(penalty="box").fit(X, Y), "needs lower"),
    "a method misspelt": (
        lambda: LinearRegressor(method="cocao").fit(X, Y),
        "Did you mean 'cocoa'",
    ),
    "tolerance 0": (lambda: LinearRegressor(tol=0).fit(X, Y), "1e-6 is usual"),
    "missing values": (
        lambda: LinearRegressor().fit(HOLES, Y),
        "Input X contains NaN",
        "SimpleImputer|impute",
    ),
    "missing values in a frame": (
        lambda: LinearRegressor().fit(FRAME[["age"]].assign(dose=HOLES[:, 1]), Y),
        "column 'dose' has",
    ),
    "text in a frame": (lambda: LinearRegressor().fit(FRAME, Y), "column 'town' holds"),
    "not fitted": (lambda: LinearRegressor().predict(X), "Call 'fit'"),
    "fewer columns to predict": (
        lambda: LinearRegressor().fit(X, Y).predict(X[:, :2]),
        "expecting 3 features",
    ),
    "columns that are not there": (
        lambda: LinearRegressor(split="features", agents=[["age", "hight"], ["weight"]]).fit(
            FRAME.iloc[:, :3], Y
        ),
        "Did you mean 'height'",
    ),
}
MISTAKES = {f"python: {k}": v for k, v in IN_PYTHON.items()} | {
    f"estimator: {k}": v for k, v in WITH_ESTIMATORS.items()
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_answered_with_its_fix(name):
    mistake, *words = MISTAKES[name]
    with pytest.raises((co.CoterieError, ValueError)) as refusal:
        mistake()
    for word in words:
        assert any(part in str(refusal.value) for part in word.split("|")), str(refusal.value)


def test_a_missing_extra_is_named():
    code = (
        "import sys; sys.modules['mlflow'] = None; import coterie.api.sinks; "
        "coterie.api.sinks.mlflow()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode
    assert f"{sys.executable} -m pip install " in done.stderr
    assert "[tracking]'" in done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A new user's folder: some files, and one answer."""
    folder = tmp_path_factory.mktemp("first-hour")
    plain = FRAME.drop(columns="town")
    for name, frame in {
        "good": plain,
        "other": plain,
        "town": FRAME,
        "holes": plain.mask(plain > 2),
        "narrow": plain.drop(columns="weight"),
        "unlabelled": plain.drop(columns="price"),
        "here": plain.assign(id=range(40)),
        "there": plain.assign(id=range(50, 90)),
        "changed": plain.assign(weight=plain.weight + 1),
    }.items():
        frame.to_csv(folder / f"{name}.csv", index=False)
    (folder / "sheet.xlsx").write_text("not a table")
    (folder / "empty.csv").write_text("")
    (folder / "typo.toml").write_text("lose = 'huber'\n")
    (folder / "broken.toml").write_text("loss = huber\n")
    (folder / "edges.txt").write_text("0 1\n2 3\n")
    co.solve(RIDGE, co.read(folder / "good.csv", target="price"), agents=2).save(folder / "answer")
    return folder


# command line, exit code, words of the answer
ON_THE_COMMAND_LINE = {
    "a command misspelt": ("fti good.csv", 2, "Did you mean 'fit'"),
    "a flag misspelt": ("fit good.csv --taget price", 2, "No such option: --taget", "--target"),
    "no data": ("fit", 2, "Missing argument"),
    "a word for a number": ("fit good.csv --target price --agents eight", 2, "--agents", "integer"),
    "a key misspelt in TOML": ("fit good.csv --config typo.toml", 2, "Did you mean 'loss'"),
    "broken TOML": ("fit good.csv --config broken.toml", 2, "cannot read broken.toml", "line 1"),
    "a file that is not there": (
        "fit missing.csv --target price",
        3,
        "does not exist",
        "Check the path",
    ),
    "a file of another kind": ("fit sheet.xlsx --target price", 3, "Known endings: .arrow, .csv"),
    "an empty file": ("fit empty.csv --target price", 3, "cannot be read as CSV", "Empty"),
    "no target": ("fit good.csv", 3, "--target is missing"),
    "a wrong column": ("fit good.csv --target prise", 3, "Did you mean 'price'"),
    "text among the columns": ("fit town.csv --target price", 3, "'town'", "one-hot"),
    "missing values": ("fit holes.csv --target price", 3, "missing value", "Drop or impute"),
    "other columns": ("fit good.csv narrow.csv --target price", 3, "'weight'", "same columns"),
    "labels at two parties": (
        "fit good.csv other.csv --target price --split features",
        3,
        "good, other",
        "exactly one",
    ),
    "labels at no party": (
        "fit unlabelled.csv narrow.csv --split features",
        3,
        "--target is missing",
    ),
    "no id in common": (
        "fit here.csv there.csv --target price --id id --split features",
        3,
        "no id occurs at every party",
        "same column as id",
    ),
    "agents beside several files": (
        "fit good.csv other.csv --target price --agents 3",
        3,
        "2 parties",
        "leave it out",
    ),
    "a loss misspelt": ("fit good.csv --target price --loss hubr", 3, "Did you mean 'huber'"),
    "a method misspelt": (
        "fit good.csv --target price --method proximal2",
        3,
        "Did you mean 'proximal-2'",
    ),
    "a penalty without strength": ("fit good.csv --target price --penalty l1", 3, "needs strength"),
    "numbers where classes belong": (
        "fit good.csv --target price --loss logistic",
        3,
        "use a regression loss",
    ),
    "tolerance 0": ("fit good.csv --target price --tol 0", 3, "1e-6 is usual"),
    "a graph in two pieces": (
        "fit good.csv --target price --split features --agents 4 --network edges.txt",
        3,
        "{0, 1}, {2, 3}",
        "Add edges",
    ),
    "figures of an unknown kind": (
        "fit good.csv --target price --figures gif",
        3,
        "figure format",
        "svg",
    ),
    "columns missing to predict": (
        "predict answer/model.npz narrow.csv",
        3,
        "no column called 'weight'",
    ),
    "data in place of the model": (
        "predict good.csv good.csv",
        4,
        "not a readable model",
        "not an .npz file",
    ),
    "model and certificate swapped": (
        "verify answer/model.npz answer/certificate.json good.csv --target price",
        4,
        "not a readable certificate.json",
    ),
    "other data": (
        "verify answer/certificate.json answer/model.npz changed.csv --target price",
        4,
        "data",
    ),
}


@pytest.mark.parametrize("name", ON_THE_COMMAND_LINE)
def test_the_command_line_answers_without_a_traceback(name, folder, monkeypatch, shell):
    line, code, *words = ON_THE_COMMAND_LINE[name]
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "300")
    ended, *printed = shell(*line.split())
    told = "".join(printed)
    assert ended == code, told
    assert "Traceback" not in told
    for word in words:
        assert word in " ".join(told.split()), told
