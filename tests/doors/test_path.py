"""A path of strengths with warm starts, and cross-validation that leaves the rows where they are."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from sklearn.linear_model import Lasso

import coterie as co
from coterie.bill import Cost
from coterie.errors import InvalidData, InvalidProblem

RNG = np.random.default_rng(0)
X = RNG.standard_normal((120, 15))
TRUTH = np.where(np.arange(15) < 4, 2.0, 0.0)
Y = X @ TRUTH + RNG.standard_normal(120)
LASSO = co.Problem("squared", "l1", 1.0)
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
    cold = [co.solve(co.Problem("squared", "l1", s), (X, Y), **run) for s in STRENGTHS]
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
    """With one party the folds are known: compare with a loop that does the same with pooled data."""
    found = co.path(LASSO, (X, Y), [0.1], cv=3, agents=1, tol=1e-10, seed=5)
    fold = np.random.default_rng([5, 0]).permutation(np.arange(120) % 3)
    for k in range(3):
        twin = Lasso(alpha=0.1, fit_intercept=False, tol=1e-12).fit(X[fold != k], Y[fold != k])
        expected = 0.5 * np.mean((X[fold == k] @ twin.coef_ - Y[fold == k]) ** 2)
        assert found.scores[k, 0] == pytest.approx(expected, rel=1e-4)


def test_classification_with_words_as_labels():
    y = np.where(Y > 0, "yes", "no")
    found = co.path(co.Problem("logistic", "l2", 1.0, intercept=True), (X, y), [0.1, 0.01], cv=3, agents=4)
    assert set(found.best_result.model.predict(X)) <= {"yes", "no"}
    assert (found.scores < np.log(2)).all()


def test_mistakes_name_the_fix():
    with pytest.raises(InvalidProblem, match="at least one strength"):
        co.path(LASSO, (X, Y), [])
    with pytest.raises(InvalidProblem, match="cv must be a whole number from 2"):
        co.path(LASSO, (X, Y), [1.0], cv=1)
    with pytest.raises(InvalidProblem, match="no strength"):
        co.path(co.Problem("squared", "none"), (X, Y), [1.0])
    with pytest.raises(InvalidProblem, match="cv=5"):
        _ = co.path(LASSO, (X, Y), [1.0], agents=2).best


@pytest.mark.parametrize("split", ["samples", "features"])
@pytest.mark.parametrize("cv", [2, 3, 10])
def test_no_fold_takes_the_last_row_of_a_class(split, cv):
    """Two rows of a class: each of them is kept back once, and the other one is there to learn from."""
    logistic = co.Problem("logistic", "l2", 1.0)
    for seed in range(6):
        y = np.where(np.isin(np.arange(40), [seed, 39 - seed]), "rare", "usual")
        found = co.path(logistic, (X[:40], y), [1.0], cv=cv, seed=seed, agents=3, split=split, tol=1e-2)
        assert np.isfinite(found.scores).all()


def test_a_class_with_one_row_is_refused_before_the_path_starts(monkeypatch):
    monkeypatch.setattr(sys.modules["coterie.path"], "solve", lambda *_, **__: pytest.fail("the path has started"))
    y = np.where(np.arange(40) == 33, "rare", "usual")
    with pytest.raises(InvalidData, match=r"'rare' has 1 row, at party 'party 1'.*leave cv out"):
        co.path(co.Problem("logistic", "l2", 1.0), [(X[:20], y[:20]), (X[20:40], y[20:])], [1.0], cv=3)


def test_every_fold_has_rows_where_parties_have_one_or_none():
    parts = [(X[:1], Y[:1]), (X[:0], Y[:0]), (X[1:2], Y[1:2])]
    assert np.isfinite(co.path(co.Problem("squared", "l2", 1.0), parts, [1.0], cv=2).scores).all()


def test_cross_validation_is_on_the_bill():
    problem, cv = co.Problem("squared", "l2", 1.0), 3
    found = co.path(problem, (X, Y), [0.1], cv=cv, agents=4, method="gram")
    plain = co.path(problem, (X, Y), [0.1], agents=4, method="gram")
    assert plain.validation == Cost()
    assert plain.total == plain.results[0].bill.total == found.results[0].bill.total
    # Each fold fits once more, and its score is one Sum of two numbers, up and down.
    score = Cost(2 * 4, 2 * 4 * 2, 2 * 4 * 2 * 64)
    fit = co.solve(problem, (X[: len(X) * 2 // 3], Y[: len(X) * 2 // 3]), agents=4, method="gram", tol=1e-6).bill.total
    assert found.validation == sum((fit + score for _ in range(cv)), Cost())
    assert found.total == plain.total + found.validation


def test_parties_with_fewer_rows_than_folds_fill_every_fold():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((18, 3))
    y = X @ [1.0, 2.0, 3.0]
    parts = [(X[i : i + 3], y[i : i + 3]) for i in range(0, 18, 3)]
    assert co.path(co.Problem("squared", "l2", 1.0), parts, [1.0, 0.1, 0.01], cv=5).best_strength == 0.01
