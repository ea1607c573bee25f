"""A path of strengths with warm starts, and cross-validation that leaves the rows where they
are.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import (
    GammaRegressor,
    Lasso,
    LassoCV,
    LogisticRegression,
    PoissonRegressor,
)
from sklearn.metrics import log_loss

import coterie as co
from coterie.commands.exit_codes import REFUSED
from coterie.engines import Engine
from coterie.engines.local import Local
from coterie.engines.processes import with_data
from coterie.errors import CorruptFile, InvalidData, InvalidProblem, UnknownName
from coterie.run.bill import Cost
from tests.harness.shell import shell

RNG = np.random.default_rng(0)
X = RNG.standard_normal((120, 15))
TRUTH = np.where(np.arange(15) < 4, 2.0, 0.0)
Y = X @ TRUTH + RNG.standard_normal(120)
LASSO = co.Problem("squared", "l1", 1.0, intercept=False)
STRENGTHS = np.logspace(0, -3, 8)


def test_every_point_is_certified_and_is_scikit_learns():
    found = co.path(LASSO, (X, Y), STRENGTHS, agents=4, tol=1e-9)
    assert found.strengths == pytest.approx(tuple(STRENGTHS))
    for strength, result in zip(STRENGTHS, found.results, strict=True):
        assert result.status == "optimal"
        twin = Lasso(alpha=strength, fit_intercept=False, tol=1e-12, max_iter=100_000).fit(X, Y)
        np.testing.assert_allclose(result.model.coef_, twin.coef_, atol=1e-4)
        assert co.verify(result.certificate, result.model, (X, Y)).holds
    assert found.coefficients.shape == (8, 15)


def test_warm_starts_save_rounds():
    run = {"agents": 4, "check_every": 1, "method": "proximal-1"}
    warm = co.path(LASSO, (X, Y), STRENGTHS, **run)
    cold = [
        co.solve(co.Problem("squared", "l1", s, intercept=False), (X, Y), **run) for s in STRENGTHS
    ]
    assert sum(r.rounds for r in warm.results) < 0.9 * sum(r.rounds for r in cold)


def test_starting_at_the_answer_ends_at_once():
    first = co.solve(LASSO, (X, Y), agents=4, tol=1e-10)
    again = co.solve(LASSO, (X, Y), agents=4, tol=1e-6, warm_start=first)
    assert again.rounds <= 2


@pytest.mark.parametrize("agents", [3, 5])
def test_a_start_from_other_parties_is_refused(agents):
    first = co.solve(LASSO, (X, Y), agents=4)
    with pytest.raises(co.CoterieError, match="do not belong to these parties"):
        co.solve(LASSO, (X, Y), agents=agents, warm_start=first)


@pytest.mark.parametrize("agents", [1, 4])
def test_cross_validation_finds_a_sensible_strength(agents):
    found = co.path(LASSO, (X, Y), STRENGTHS, cv=4, agents=agents)
    assert found.scores.shape == (4, 8)
    assert 1e-3 < found.best_strength < 1.0
    assert found.best_result is found.results[found.best]
    np.testing.assert_allclose(found.best_result.model.coef_, TRUTH, atol=0.6)


def test_scores_are_the_mean_loss_on_rows_that_were_kept_back():
    """With one party the folds are known: compare with a loop that does the same with pooled
    data.
    """
    found = co.path(LASSO, (X, Y), [0.1], cv=3, agents=1, tol=1e-10, seed=5)
    fold = np.random.default_rng([5, 0]).permutation(np.arange(120) % 3)
    for k in range(3):
        twin = Lasso(alpha=0.1, fit_intercept=False, tol=1e-12).fit(X[fold != k], Y[fold != k])
        expected = 0.5 * np.mean((X[fold == k] @ twin.coef_ - Y[fold == k]) ** 2)
        assert found.scores[k, 0] == pytest.approx(expected, rel=1e-4)


def test_classification_with_words_as_labels():
    y = np.where(Y > 0, "yes", "no")
    found = co.path(
        co.Problem("logistic", "l2", 1.0, intercept=True), (X, y), [0.1, 0.01], cv=3, agents=4
    )
    assert set(found.best_result.model.predict(X)) <= {"yes", "no"}
    assert (found.scores < np.log(2)).all()


def test_mistakes_name_the_fix():
    with pytest.raises(InvalidProblem, match="at least one strength"):
        co.path(LASSO, (X, Y), [])
    with pytest.raises(InvalidProblem, match="cv must be a whole number from 2"):
        co.path(LASSO, (X, Y), [1.0], cv=1)
    with pytest.raises(InvalidProblem, match="no strength"):
        co.path(co.Problem("squared", "none", intercept=False), (X, Y), [1.0])
    with pytest.raises(InvalidProblem, match="cv=5"):
        _ = co.path(LASSO, (X, Y), [1.0], agents=2).best


@pytest.mark.parametrize("split", ["samples", "features"])
@pytest.mark.parametrize("cv", [2, 3, 10])
def test_no_fold_takes_the_last_row_of_a_class(split, cv):
    """Two rows of a class: each of them is kept back once, and the other one is there to learn
    from.
    """
    logistic = co.Problem("logistic", "l2", 1.0, intercept=False)
    for seed in range(6):
        y = np.where(np.isin(np.arange(40), [seed, 39 - seed]), "rare", "usual")
        found = co.path(
            logistic, (X[:40], y), [1.0], cv=cv, seed=seed, agents=3, split=split, tol=1e-2
        )
        assert np.isfinite(found.scores).all()


class Refusing(Local):
    def run(self, run):
        pytest.fail("the path has started")


def test_a_class_with_one_row_is_refused_before_the_path_starts():
    y = np.where(np.arange(40) == 33, "rare", "usual")
    with pytest.raises(InvalidData, match=r"'rare' has 1 row, at party 'party 1'.*leave cv out"):
        co.path(
            co.Problem("logistic", "l2", 1.0, intercept=False),
            [(X[:20], y[:20]), (X[20:40], y[20:])],
            [1.0],
            cv=3,
            engine=Refusing(),
        )


def test_every_fold_has_rows_where_parties_have_one_or_none():
    parts = [(X[:1], Y[:1]), (X[:0], Y[:0]), (X[1:2], Y[1:2])]
    assert np.isfinite(
        co.path(co.Problem("squared", "l2", 1.0, intercept=False), parts, [1.0], cv=2).scores
    ).all()


def test_cross_validation_is_on_the_bill():
    problem, cv = co.Problem("squared", "l2", 1.0, intercept=False), 3
    found = co.path(problem, (X, Y), [0.1], cv=cv, agents=4, method="gram")
    plain = co.path(problem, (X, Y), [0.1], agents=4, method="gram")
    assert plain.validation == Cost()
    assert plain.total == plain.results[0].bill.total == found.results[0].bill.total
    # Each fold fits once more, and its score is one Sum of two numbers, up and down.
    score = Cost(2 * 4, 2 * 4 * 2, 2 * 4 * 2 * 64)
    fit = co.solve(
        problem, (X[: len(X) * 2 // 3], Y[: len(X) * 2 // 3]), agents=4, method="gram", tol=1e-6
    ).bill.total
    assert found.validation == sum((fit + score for _ in range(cv)), Cost())
    assert found.total == plain.total + found.validation


def test_parties_with_fewer_rows_than_folds_fill_every_fold():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((18, 3))
    y = X @ [1.0, 2.0, 3.0]
    parts = [(X[i : i + 3], y[i : i + 3]) for i in range(0, 18, 3)]
    assert (
        co.path(
            co.Problem("squared", "l2", 1.0, intercept=False), parts, [1.0, 0.1, 0.01], cv=5
        ).best_strength
        == 0.01
    )


# -- the choice ------------------------------------------------------------------------------------


def folds_of_one_party(rows, cv, seed=0):
    return np.random.default_rng([seed, 0]).permutation(np.arange(rows) % cv)


def test_the_curve_and_the_grid_are_those_of_scikit_learn():
    found = co.path(
        co.Problem("squared", "l1", 1.0, intercept=True), (X, Y), cv=4, agents=1, count=6, tol=1e-10
    )
    fold = folds_of_one_party(120, 4)
    pairs = [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(4)]
    twin = LassoCV(alphas=found.strengths, cv=pairs, tol=1e-12, max_iter=100_000).fit(X, Y)
    np.testing.assert_allclose(found.scores, twin.mse_path_.T / 2, rtol=1e-6)
    assert found.best_strength == pytest.approx(twin.alpha_)
    assert LassoCV(alphas=6).fit(X, Y).alphas_ == pytest.approx(found.strengths)


def losses_of_scikit_learn(loss, X, y, strength, train, test):
    """The mean loss on the test rows of scikit-learn's model of the others."""
    if loss == "multinomial":
        model = LogisticRegression(C=1 / (strength * len(train)), tol=1e-10, max_iter=10_000)
        return log_loss(
            y[test], model.fit(X[train], y[train]).predict_proba(X[test]), labels=np.unique(y)
        )
    model = {"poisson": PoissonRegressor, "gamma": GammaRegressor}[loss](
        alpha=strength, tol=1e-12, max_iter=10_000
    )
    means = model.fit(X[train], y[train]).predict(X[test])
    return np.mean(
        means - y[test] * np.log(means) if loss == "poisson" else y[test] / means + np.log(means)
    )


@pytest.mark.parametrize("loss", ["multinomial", "poisson", "gamma"])
def test_classes_counts_and_amounts_have_the_scores_of_scikit_learn(loss):
    rng = np.random.default_rng(1)
    scores = 0.3 * X[:, 0] + 0.5
    y = {
        "multinomial": np.array(["a", "b", "c"])[
            np.digitize(scores + 0.2 * rng.standard_normal(120), [0.3, 0.7])
        ],
        "poisson": rng.poisson(np.exp(scores)),
        "gamma": rng.gamma(2.0, np.exp(scores)) + 1e-3,
    }[loss]
    found = co.path(
        co.Problem(loss, "l2", 1.0, intercept=True), (X, y), [1.0, 0.1], cv=3, agents=1, tol=1e-10
    )
    fold = folds_of_one_party(120, 3)
    for k in range(3):
        rows = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
        twins = [
            losses_of_scikit_learn(loss, X, y, strength, *rows) for strength in found.strengths
        ]
        np.testing.assert_allclose(found.scores[k], twins, rtol=1e-5)


def test_a_path_is_the_fits_at_its_strengths():
    problem = co.Problem("logistic", "elasticnet", 1.0, intercept=True)
    y = np.where(Y > 0, 1, 0)
    found = co.path(problem, (X, y), count=4, agents=3)
    for strength, result in zip(found.strengths, found.results, strict=True):
        alone = co.solve(
            co.Problem("logistic", "elasticnet", strength, intercept=True), (X, y), agents=3
        )
        apart = abs(result.certificate.primal - alone.certificate.primal)
        assert apart <= max(result.certificate.gap, alone.certificate.gap)


def test_weights_count_as_rows():
    """A row of weight 2 and the same row twice, in the same fold."""
    s = np.arange(120) % 2 + 1.0
    found = co.path(LASSO, (X, Y, s), [0.1], cv=3, agents=1, tol=1e-10)
    fold, times = folds_of_one_party(120, 3), s.astype(int)
    for k in range(3):
        twin = co.solve(
            co.Problem("squared", "l1", 0.1, intercept=False),
            (
                np.repeat(X[fold != k], times[fold != k], axis=0),
                np.repeat(Y[fold != k], times[fold != k]),
            ),
            agents=1,
            tol=1e-10,
        )
        residuals = X[fold == k] @ twin.model.coef_ - Y[fold == k]
        assert found.scores[k, 0] == pytest.approx(
            0.5 * np.average(residuals**2, weights=s[fold == k]), rel=1e-5
        )


@pytest.mark.parametrize("loss", ["squared", "poisson"])
def test_an_offset_is_part_of_the_scores(loss):
    """A squared loss with an offset is one of labels less that offset; counts are split by rows and
    by columns.
    """
    offset, problem = np.linspace(-2.0, 2.0, 120), co.Problem(loss, "l2", 1.0, intercept=True)
    y = (
        Y + offset
        if loss == "squared"
        else np.random.default_rng(3).poisson(np.exp(offset + 0.3 * X[:, 0]))
    )
    given = {"cv": 3, "agents": 1, "tol": 1e-9}
    found = co.path(problem, (X, y), [0.1], offset=offset, **given)
    by_columns = co.path(
        problem, (X, y), [0.1], offset=offset, **{**given, "split": "features", "agents": 2}
    )
    np.testing.assert_allclose(found.scores, by_columns.scores, rtol=1e-4)
    if loss == "squared":
        np.testing.assert_allclose(
            found.scores, co.path(problem, (X, Y), [0.1], **given).scores, rtol=1e-6
        )


def test_one_standard_error():
    """Means 3, 1.2, 1 and 2; the standard error at the best is 0.3, so 1.2 is near enough, and its
    penalty stronger.
    """
    scores = np.array([[3.0, 1.3, 1.3, 2.3], [3.0, 1.1, 0.7, 1.7]])
    known = co.path(LASSO, (X, Y), [1.0, 0.5, 0.1, 0.01], agents=2, tol=1e-2)
    best, near = (replace(known, scores=scores, rule=rule) for rule in ("best", "1se"))
    assert best.errors[2] == pytest.approx(0.3)
    assert (best.chosen_strength, near.chosen_strength) == (0.1, 0.5)
    assert near.chosen_result is near.results[1]
    backwards = replace(
        near, scores=scores[:, ::-1], strengths=near.strengths[::-1], results=near.results[::-1]
    )
    assert backwards.chosen_strength == 0.5
    printed = str(near).splitlines()
    assert printed[0] == "Model: squared loss, l1 penalty, without an intercept."
    assert printed[5].endswith("  best")
    assert printed[4].endswith("  1se")
    assert printed[-1] == "chosen (1se): strength 0.5, from 2 folds"
    falling = replace(known, scores=scores[:, [0, 3, 1, 2]])
    assert str(falling).endswith("try weaker ones, too.")


def test_a_path_is_saved_and_loaded(tmp_path):
    found = co.path(LASSO, (X, Y), [1.0, 0.1], cv=2, rule="1se", agents=2)
    again = co.Path.load(found.save(tmp_path / "path"))
    assert str(again) == str(found)
    assert (again.total, again.chosen) == (found.total, found.chosen)
    np.testing.assert_array_equal(again.coefficients, found.coefficients)
    (tmp_path / "path" / "strength-000" / "model.npz").write_bytes(
        (tmp_path / "path" / "strength-001" / "model.npz").read_bytes()
    )
    with pytest.raises(CorruptFile, match="different runs"):
        co.Path.load(tmp_path / "path")
    file = found.save(tmp_path / "path") / "path.json"
    file.write_text(file.read_text().replace('"1se"', '"best"'))
    with pytest.raises(CorruptFile, match="seal"):
        co.Path.load(tmp_path / "path")


def test_more_mistakes_name_the_fix():
    with pytest.raises(InvalidProblem, match="strengths are numbers from 0 up"):
        co.path(LASSO, (X, Y), [1.0, -1.0])
    with pytest.raises(InvalidProblem, match="every strength once"):
        co.path(LASSO, (X, Y), [1.0, 1.0])
    with pytest.raises(UnknownName, match="1se"):
        co.path(LASSO, (X, Y), [1.0], cv=2, rule="1sd")
    with pytest.raises(InvalidProblem, match="split by features, name the strengths"):
        co.path(LASSO, (X, Y), split="features")
    with pytest.raises(InvalidProblem, match="no column has anything to do with the labels"):
        co.path(LASSO, (X, 0 * Y))
    with pytest.raises(InvalidProblem, match="models of users has no folds"):
        co.path(co.Shared(mu=0.1), (X, Y > 0, np.arange(120) % 3), [1.0], cv=2, split="users")


def test_raw_columns_are_prepared_once_with_the_rows_of_all_parties():
    frame = pd.DataFrame(X[:, :4] * 100.0 + 7.0, columns=list("abcd")).assign(
        kind=np.where(X[:, 4] > 0, "m", "f")
    )
    frame.loc[5, "a"] = np.nan
    prepare = co.Preparation("impute, standardise", text="one-hot")
    rows = [slice(0, 70), slice(70, 120)]
    parts = [co.read(frame[own].assign(y=Y[own]), target="y", prepare=prepare) for own in rows]
    problem = co.Problem("squared", "l2", 1.0, intercept=True)
    found = co.path(problem, parts, [0.1, 0.01], cv=3, prepare=prepare)
    raw = frame["a"].fillna(frame["a"].mean())
    numbers = frame.assign(a=raw)[list("abcd")]
    numbers = (numbers - numbers.mean()) / numbers.std(ddof=0)
    columns = np.column_stack([numbers, frame["kind"] == "f", frame["kind"] == "m"])
    known = co.path(problem, [(columns[own], Y[own]) for own in rows], [0.1, 0.01], cv=3)
    np.testing.assert_allclose(found.scores, known.scores, rtol=1e-6)
    predicted = [
        one.chosen_result.model.predict(given) for one, given in ((found, frame), (known, columns))
    ]
    np.testing.assert_allclose(*predicted, rtol=1e-6)
    assert found.validation.bits > known.validation.bits


class Workers(Local):
    """The embedded engine, for data that it is not handed."""

    name = "workers"

    def hosting(self, data, agents):
        return Engine.hosting(self, data, agents)

    def run(self, run):
        return super().run(replace(run, agents=list(map(with_data, run.agents))))


@pytest.mark.parametrize("loss", ["logistic", pytest.param("multinomial", marks=pytest.mark.slow)])
def test_data_at_workers_is_dealt_and_scored_there(loss):
    y = np.where(Y > 0, "yes", "no") if loss == "logistic" else np.digitize(Y, [-1.0, 1.0])
    parts = [(X[:70], y[:70]), (X[70:], y[70:])]
    problem = co.Problem(loss, "l1", 1.0, intercept=True)
    there = co.path(
        problem, [partial(tuple, part) for part in parts], cv=3, count=3, engine=Workers()
    )
    here = co.path(problem, parts, cv=3, count=3)
    assert there.strengths == here.strengths
    np.testing.assert_array_equal(there.scores, here.scores)
    np.testing.assert_array_equal(there.coefficients, here.coefficients)
    assert there.total == here.total


# -- the shell -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Two parties' files."""
    folder = tmp_path_factory.mktemp("files")
    names = [f"x{j}" for j in range(15)]
    for name, rows in (("north", slice(0, 70)), ("south", slice(70, 120))):
        lines = [",".join([*names, "y"])]
        lines += [",".join(map(repr, row)) for row in np.column_stack([X[rows], Y[rows]]).tolist()]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return [str(folder / "north.csv"), str(folder / "south.csv")]


def test_the_commands_are_the_function(files, tmp_path):
    known = co.path(
        LASSO, [co.read(file, target="y") for file in files], [1.0, 0.1, 0.01], cv=3, rule="1se"
    )
    asked = [
        "--target",
        "y",
        "--penalty",
        "l1",
        "--no-intercept",
        "--cv",
        "3",
        "--rule",
        "1se",
        "--json",
    ]
    path = shell("path", *files, *asked, "--strengths", "1:0.01:3", "-o", tmp_path / "path")
    assert path.exit_code == 0, path.output
    told = json.loads(path.stdout)
    assert told["chosen"] == known.chosen_strength
    assert [row["cv loss"] for row in told["table"]] == pytest.approx(known.means.tolist())
    fit = shell("fit", *files, *asked, "--strengths", "1,0.1,0.01", "-o", tmp_path / "fit")
    assert json.loads(fit.stdout)["strength"] == known.chosen_strength
    chosen = co.Result.load(tmp_path / "fit")
    np.testing.assert_array_equal(chosen.model.coef_, known.chosen_result.model.coef_)
    assert 'id="path"' in (tmp_path / "fit" / "report.html").read_text()
    shown_again(tmp_path / "path")


def shown_again(folder):
    (folder / "report.html").unlink()
    again = shell("report", folder, "--figures", "svg")
    assert "chosen (1se)" in again.stdout, again.output
    assert 'id="path"' in (folder / "report.html").read_text()


@pytest.mark.slow
def test_the_report_of_a_chosen_model_is_written_again(files, tmp_path):
    asked = [
        "--target",
        "y",
        "--penalty",
        "l1",
        "--cv",
        "3",
        "--rule",
        "1se",
        "--strengths",
        "1,0.1",
    ]
    assert shell("fit", *files, *asked, "-o", tmp_path / "fit").exit_code == 0
    shown_again(tmp_path / "fit")
    # A path of another model, left there by an earlier command, is not shown.
    assert (
        shell("fit", *files, "--target", "y", "--strength", "3", "-o", tmp_path / "fit").exit_code
        == 0
    )
    assert "chosen (1se)" not in shell("report", tmp_path / "fit").stdout


def test_the_shell_refuses_before_it_begins(files, tmp_path):
    for command, reason in (
        (["fit", "--cv", "3", "--strength", "1"], "--cv chooses the strength"),
        (["fit", "--strengths", "1,2"], "add --cv 5"),
        (["fit", "--cv", "3", "--penalty", "none"], "does not take strength"),
        (["fit", "--cv", "3", "--users", "x0"], "one per user"),
        (["path", "--rule", "1sd"], "1se"),
    ):
        ran = shell(command[0], *files, "--target", "y", *command[1:], "-o", tmp_path / "out")
        assert ran.exit_code == REFUSED, ran.output
        assert reason in ran.text
    for wrong in ("1:0:3", "a,b", "1:2", "1:0.1:1"):
        ran = shell("path", *files, "--target", "y", "--strengths", wrong, "-o", tmp_path / "out")
        assert ran.exit_code == 2
        assert "first:last:count" in ran.output
