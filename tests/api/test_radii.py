"""A path over the radius of a ball, with cross-validation, by every door."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest
from scipy.special import log_softmax

import coterie as co
from coterie.run.tables import split_and_prepare
from coterie.stats.folds import deal_folds
from tests.api.test_path import Workers
from tests.harness.shell import shell

RNG = np.random.default_rng(1)
X = RNG.standard_normal((90, 5)) + np.arange(5.0)
W = RNG.standard_normal((5, 2)) @ RNG.standard_normal((2, 4))
NUMBERS = X @ W + 3.0 + RNG.standard_normal((90, 4))
LABELS = np.array(list("abcd"))[
    ((X - X.mean(axis=0)) @ W + RNG.gumbel(size=(90, 4))).argmax(axis=1)
]
PAIRS = np.array([(i, j) for i in range(12) for j in range(9) if (i + j) % 4], float)
ENTRIES = (
    5.0 + (RNG.standard_normal((12, 2)) @ RNG.standard_normal((2, 9)))[tuple(PAIRS.astype(int).T)]
)
DATA = {"squared": (X, NUMBERS), "multinomial": (X, LABELS), "completion": (PAIRS, ENTRIES)}
PROBLEMS = {
    task: co.Problem(
        task,
        "traceball",
        radius=1.0,
        intercept=True,
        **({"shape": (12, 9)} if task == "completion" else {}),
    )
    for task in DATA
}
RADII = [1.0, 4.0, 16.0]


@pytest.mark.parametrize("task", DATA)
def test_scores_are_the_mean_loss_on_rows_that_were_kept_back(task):
    path = co.path(PROBLEMS[task], DATA[task], RADII, cv=3, agents=2, tol=1e-5, progress=False)
    assert path.knob == "radius"
    assert [
        result.certificate.settings["problem"]["penalty"]["radius"] for result in path.results
    ] == RADII
    tables, classes = split_and_prepare(DATA[task], PROBLEMS[task], "samples", 2, 0)
    folds = deal_folds(tables, "samples", 3, 0, classes)
    kept = [
        table.take_rows(np.flatnonzero(own != 1)) for table, own in zip(tables, folds, strict=True)
    ]
    back = [
        table.take_rows(np.flatnonzero(own == 1)) for table, own in zip(tables, folds, strict=True)
    ]
    model = co.solve(
        path.results[1].model.problem.changed(loss=PROBLEMS[task].loss),
        kept,
        tol=1e-8,
        progress=False,
    ).model
    y = np.concatenate([table.y for table in back])
    rows = np.concatenate([table.X for table in back])
    if task == "multinomial":
        losses = -log_softmax(model.decision_function(rows), axis=1)[
            np.arange(len(y)), y.astype(int)
        ]
    else:
        losses = 0.5 * np.square(model.predict(rows) - y).reshape(len(y), -1).sum(axis=1)
    assert path.scores[1, 1] == pytest.approx(losses.mean(), rel=1e-3)


def test_the_grid_begins_small_and_the_simplest_is_the_smallest():
    path = co.path(
        PROBLEMS["squared"],
        DATA["squared"],
        cv=3,
        count=6,
        agents=2,
        tol=1e-4,
        rule="1se",
        progress=False,
    )
    assert list(path.strengths) == sorted(path.strengths)
    assert path.results[0].model.rank_ < path.results[-1].model.rank_
    near = path.means <= path.means[path.best] + path.errors[path.best]
    assert path.chosen_strength == min(np.array(path.strengths)[near])
    assert path.strengths[0] < path.best_strength <= path.strengths[-1]
    text = str(path)
    assert "radius" in text
    assert "rank" in text
    assert "strength" not in text


def test_the_ball_of_vectors_has_a_path_too():
    path = co.path(
        co.Problem("squared", "l1ball", radius=1.0, intercept=False),
        (X, NUMBERS[:, 0]),
        cv=3,
        count=5,
        agents=2,
    )
    assert path.knob == "radius"
    assert np.abs(path.results[-1].model.coef_).sum() > np.abs(path.results[0].model.coef_).sum()


@pytest.mark.slow
def test_data_at_workers_is_scored_there():
    parts = [(X[:50], LABELS[:50]), (X[50:], LABELS[50:])]
    how = {"cv": 3, "count": 2, "tol": 1e-3}
    there = co.path(
        PROBLEMS["multinomial"], [partial(tuple, part) for part in parts], engine=Workers(), **how
    )
    here = co.path(PROBLEMS["multinomial"], parts, **how)
    assert there.strengths == here.strengths
    np.testing.assert_array_equal(there.scores, here.scores)
    assert there.total == here.total


def test_files_and_the_shell(tmp_path):
    lines = [",".join([*"uvwxy", "kind"])] + [
        ",".join([*map(repr, row), label]) for row, label in zip(X.tolist(), LABELS, strict=True)
    ]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    asked = [
        "fit",
        tmp_path / "rows.csv",
        "--target",
        "kind",
        "--loss",
        "multinomial",
        "--penalty",
        "traceball",
    ]
    asked += ["--intercept", "--agents", "2", "--tol", "1e-3"]
    told = shell(*asked, "--cv", "3", "--strengths", "1,8", "--json", "-o", tmp_path / "fit")
    assert told.exit_code == 0, told.output
    known = co.path(
        PROBLEMS["multinomial"],
        co.read(tmp_path / "rows.csv", target="kind"),
        [1.0, 8.0],
        cv=3,
        agents=2,
        tol=1e-3,
    )
    assert json.loads(told.stdout)["radius"] == known.chosen_strength
    loaded = co.Path.load(tmp_path / "fit" / "path")
    assert loaded.knob == "radius"
    assert loaded.chosen_result.model.digest() == known.chosen_result.model.digest()
    assert "radius" in (tmp_path / "fit" / "path" / "report.html").read_text()
    refused = shell(*asked, "--radius", "3", "--cv", "3", "-o", tmp_path / "no")
    assert "leave --radius out" in refused.text
