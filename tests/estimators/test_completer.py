"""`MatrixCompleter`: entries by the names of rows and columns, a radius that is chosen, and what it
refuses.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import coterie as co
from coterie.api.entries import NamedMatrix
from coterie.errors import InvalidData
from tests.harness.shell import shell
from tests.papers.test_004_completion import alternating, made

SHAPE = (24, 18)
RNG = np.random.default_rng(0)
TRUTH = (
    3.0
    + RNG.standard_normal((24, 1))
    + RNG.standard_normal(18)
    + np.outer(*map(RNG.standard_normal, SHAPE))
)
PLACES = np.argwhere(RNG.random(SHAPE) < 0.6)
VALUES = TRUTH[*PLACES.T] + 0.1 * RNG.standard_normal(len(PLACES))
FRAME = pd.DataFrame(
    {"user": [f"user {row:02d}" for row in PLACES[:, 0]], "film": 10 * PLACES[:, 1]}
)
RADIUS = float(
    np.linalg.norm(TRUTH - TRUTH.mean(0) - TRUTH.mean(1, keepdims=True) + TRUTH.mean(), "nuc")
)


@pytest.fixture(scope="module")
def fitted():
    return clone(co.MatrixCompleter(RADIUS, stages=2, agents=3, tol=1e-3)).fit(FRAME, VALUES)


def error(model):
    everywhere = np.argwhere(np.ones(SHAPE))
    names = pd.DataFrame(
        {"user": [f"user {row:02d}" for row in everywhere[:, 0]], "film": 10 * everywhere[:, 1]}
    )
    return float(np.sqrt(np.mean((model.predict(names) - TRUTH.ravel()) ** 2)))


def test_names_are_places(fitted):
    problem = co.Problem(
        "completion", "traceball", radius=RADIUS, intercept=True, shape=SHAPE, stages=2
    )
    plain = co.solve(
        problem, (PLACES.astype(float), VALUES), agents=3, tol=1e-3, max_rounds=200, progress=False
    )
    assert fitted.predict(FRAME) == pytest.approx(
        plain.model.predict(PLACES.astype(float)), abs=1e-12
    )
    assert (fitted.rows_[3], fitted.columns_[3], fitted.radius_) == ("user 03", 30, RADIUS)
    assert error(fitted) < 0.2
    assert fitted.score(FRAME, VALUES) > 0.95


def test_a_new_name_has_the_mean_of_all(fitted):
    new = pd.DataFrame({"user": ["nobody", "user 02"], "film": [30, 31]})
    rows, columns = fitted.mean_ + fitted.row_means_, fitted.column_means_
    assert fitted.predict(new) == pytest.approx(
        [fitted.mean_ + columns[3], rows[2] + columns.mean()]
    )


def test_a_file_has_the_names_and_its_proof_holds(fitted, tmp_path):
    loaded = co.Result.load(fitted.result_.save(tmp_path / "run"))
    assert (loaded.model.predict(FRAME) == fitted.predict(FRAME)).all()
    names = FRAME["user"].to_numpy(), FRAME["film"].to_numpy()
    table = NamedMatrix(fitted.rows_, fitted.columns_).table(names, VALUES)
    assert co.verify(loaded.certificate, loaded.model, table).holds


def test_the_radius_is_chosen_on_entries_that_are_kept_back(fitted):
    chosen = co.MatrixCompleter([0.3 * RADIUS, RADIUS], cv=2, stages=1, agents=2, tol=1e-3).fit(
        FRAME, VALUES
    )
    assert chosen.radius_ == RADIUS
    assert chosen.path_.scores.shape == (2, 2)


@pytest.mark.slow
def test_a_radius_is_found_without_a_word_about_it(fitted):
    searched = co.MatrixCompleter(agents=2).fit(FRAME, VALUES)
    assert error(searched) < 1.3 * error(fitted)
    assert list(searched.path_.strengths) == sorted(searched.path_.strengths)


@pytest.mark.slow
def test_the_radius_that_is_found_comes_near_to_alternating_least_squares():
    truth, pairs, values = made((200, 120), 3, 0.2, 0.3, 0)
    searched = co.MatrixCompleter(agents=2).fit(pairs, values)
    ours = np.sqrt(
        np.mean((searched.predict(np.argwhere(np.ones(truth.shape))) - truth.ravel()) ** 2)
    )
    theirs = min(
        np.sqrt(np.mean((alternating(pairs, values, truth.shape, 3, ridge, True) - truth) ** 2))
        for ridge in (0.3, 1.0)
    )
    assert ours <= 1.1 * theirs


def test_weights_of_zero_leave_entries_out():
    weights = np.ones(len(VALUES))
    weights[FRAME["user"] == "user 00"] = 0.0
    weighed = co.MatrixCompleter(RADIUS, agents=2, stages=1, tol=1e-3).fit(FRAME, VALUES, weights)
    assert "user 00" not in weighed.rows_


@pytest.mark.parametrize(
    ("X", "y", "told"),
    [
        (np.zeros((3, 3)), [1.0] * 3, r"pairs \(row, column\)"),
        ([["a", "b"], ["a", "c"]], [1.0, np.nan], "NaN"),
        (pd.DataFrame({"user": ["a", None], "film": ["x", "y"]}), [1.0, 2.0], "entry 1 has no row"),
        (np.zeros((0, 2)), np.zeros(0), "sample"),
        ([["a", "b"]], None, "y is missing"),
        ([["a", "b"]], [[1.0, 2.0]], "one number for each entry"),
    ],
)
def test_what_is_no_entry_is_refused(X, y, told):
    with pytest.raises((InvalidData, ValueError), match=told):
        co.MatrixCompleter(1.0).fit(X, y)


@pytest.mark.parametrize(
    "how", [["--radius", str(RADIUS)], ["--cv", "2", "--strengths", f"5,{RADIUS}"]]
)
def test_files_of_entries_from_the_shell(how, tmp_path):
    known = FRAME.assign(rating=VALUES)
    halves = [tmp_path / "north.csv", tmp_path / "south.csv"]
    for place, half in enumerate(halves):
        known[place::2].to_csv(half, index=False)
    new, out = tmp_path / "new.csv", tmp_path / "answer"
    pd.DataFrame({"film": [30, 40], "user": ["user 02", "nobody"]}).to_csv(new, index=False)
    roles = ["--columns", "user,film", "--target", "rating"]
    told = shell(
        "fit",
        *map(str, halves),
        "--loss",
        "completion",
        *roles,
        "--intercept",
        "--tol",
        "1e-3",
        *how,
        "-o",
        str(out),
    )
    assert told.exit_code == 0, told.output
    model, certificate = str(out / "model.npz"), str(out / "certificate.json")
    told = shell("verify", certificate, model, *map(str, halves), "--target", "rating")
    assert told.exit_code == 0, told.output
    told = shell("predict", model, str(new), "-o", str(tmp_path / "predicted.csv"))
    assert told.exit_code == 0, told.output
    found = pd.read_csv(tmp_path / "predicted.csv")["prediction"]
    assert abs(found[0] - TRUTH[2, 3]) < 0.5
    assert co.models.load_model(model).column_ids.tolist() == sorted(
        {str(film) for film in FRAME["film"]}
    )
    assert np.isfinite(found[1])


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (["--columns", "user"], "--columns ROW,COLUMN"),
        (["--columns", "user,film,rating"], "--columns ROW,COLUMN"),
        (["--target", "user"], "holds no numbers"),
        (["--columns", "user,flim"], "flim"),
    ],
)
def test_the_shell_says_what_a_file_of_entries_has(changed, told, tmp_path):
    file = tmp_path / "ratings.csv"
    FRAME.assign(rating=VALUES).to_csv(file, index=False)
    roles = ["--columns", "user,film", "--target", "rating", *changed]
    found = shell("fit", str(file), "--loss", "completion", "--radius", "5", *roles)
    assert found.exit_code != 0
    assert told in found.text
