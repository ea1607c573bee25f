"""Linear models have an intercept unless somebody says otherwise, and every output says which."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression, LogisticRegression

import coterie as co
from coterie.errors import InvalidInput, InvalidProblem
from coterie.numerics.losses import LOSSES
from coterie.report.call import solve_call
from coterie.study.disclosure import disclosure
from coterie.study.study import load_party, load_study
from tests.harness.parties import NAMES, data, together, write_study

RNG = np.random.default_rng(0)
X = RNG.standard_normal((80, 4)) + 1.0
SCORES = X @ np.array([1.0, -0.5, 0.3, 0.0]) + 2.0
LABELS = {
    "classification": np.where(SCORES + RNG.standard_normal(80) > SCORES.mean(), "ill", "well"),
    "regression": SCORES + 0.1 * RNG.standard_normal(80),
}
PENALTIES = {
    "none": {},
    "l2": {"strength": 0.01},
    "l1": {"strength": 0.01},
    "elasticnet": {"strength": 0.01, "l1_ratio": 0.5},
    "group": {"strength": 0.01, "groups": (0, 0, 1, 1)},
    "box": {"lower": -1.0, "upper": 1.0},
    "nonnegative": {},
    "l1ball": {"radius": 1.0},
}
RIDGE = {"loss": "squared", "penalty": "l2", "strength": 0.1}


def labels(loss):
    found = LABELS[LOSSES[loss].kind]
    return np.round(np.abs(found)) + 1.0 if loss in ("poisson", "gamma") else found


def rows_file(folder, y, name="rows.csv"):
    lines = [
        ",".join([*(f"{value:.17g}" for value in row), str(label)])
        for row, label in zip(X, y, strict=True)
    ]
    (folder / name).write_text("\n".join(["a,b,c,d,y", *lines]) + "\n")
    return str(folder / name)


# -- the default -----------------------------------------------------------------------------------


def test_each_kind_has_its_default_and_it_is_a_bool():
    assert co.Problem().intercept is True
    assert co.Problem("logistic", "l1", 0.1, intercept=None).intercept is True
    assert co.Problem("multinomial", "l2", 0.1).intercept is True
    assert co.Problem("cox").intercept is False
    assert co.Problem("squared", "traceball", radius=1.0).intercept is False
    assert co.Problem("multinomial", "traceball", radius=1.0).intercept is False
    assert co.Personal().intercept is False
    assert (co.Shared().intercept, co.Shared(intercept=None).intercept) == (True, True)
    assert co.Shared(intercept=False).nu == np.inf
    for stated in (True, False):
        assert co.Problem("squared", intercept=stated).intercept is stated
        assert co.Problem("squared", "traceball", radius=1.0, intercept=stated).intercept is stated
    with pytest.raises(InvalidProblem, match="cox has no intercept"):
        co.Problem("cox", intercept=True)


def test_settings_state_it_and_come_back():
    for problem in (
        co.Problem("squared", "l2", 0.1),
        co.Problem("squared", intercept=False),
        co.Problem("cox"),
    ):
        assert problem.settings()["intercept"] is problem.intercept
        assert co.Problem.from_settings(problem.settings()) == problem
        assert problem.changed(offset=True).intercept is problem.intercept


@pytest.mark.parametrize("split", ["samples", "features"])
@pytest.mark.parametrize(
    "loss",
    [
        pytest.param(loss, marks=[pytest.mark.slow] * (loss not in ("squared", "hinge")))
        for loss in LOSSES
    ],
)
def test_auto_fits_every_loss_and_penalty_with_it(loss, split):
    for penalty, given in PENALTIES.items():
        if (penalty, split) == ("l1ball", "features"):
            continue
        result = co.solve(
            co.Problem(loss, penalty, **given), (X, labels(loss)), agents=2, split=split, tol=1e-4
        )
        assert result.status.success, (loss, penalty, str(result))
        assert result.model.problem.intercept


def test_it_is_the_model_of_scikit_learn():
    result = co.solve(co.Problem("squared"), (X, LABELS["regression"]), agents=3, tol=1e-10)
    theirs = LinearRegression().fit(X, LABELS["regression"])
    assert result.model.intercept_ == pytest.approx(theirs.intercept_, abs=1e-6)
    y = np.digitize(SCORES, np.quantile(SCORES, [0.3, 0.7]))
    result = co.solve(co.Problem("multinomial", "l2", 1 / len(X)), (X, y), agents=3, tol=1e-10)
    theirs = LogisticRegression(C=1.0, tol=1e-10, max_iter=1000).fit(X, y)
    np.testing.assert_allclose(result.model.coef_, theirs.coef_, atol=1e-4)


def test_the_shell_fits_diabetes(shell, tmp_path):
    table = load_diabetes()
    lines = [
        ",".join(map(repr, map(float, [*row, label])))
        for row, label in zip(table.data, table.target, strict=True)
    ]
    (tmp_path / "diabetes.csv").write_text(
        "\n".join([",".join([*table.feature_names, "target"]), *lines])
    )
    printed = shell(
        "fit",
        tmp_path / "diabetes.csv",
        "--target",
        "target",
        "--test",
        "0.3",
        "--json",
        "-o",
        tmp_path / "a",
    )[1]
    told = json.loads(printed)
    assert told["intercept"] is True
    assert told["evaluation"]["scores"]["r2"] == pytest.approx(0.488, abs=0.02)


def test_the_shell_has_three_answers(shell, tmp_path):
    file = rows_file(tmp_path, LABELS["regression"])
    (tmp_path / "settings.toml").write_text("intercept = false\n")
    options = {
        (): True,
        ("--intercept",): True,
        ("--no-intercept",): False,
        ("--config", str(tmp_path / "settings.toml")): False,
        ("--loss", "multinomial", "--penalty", "traceball", "--radius", "1"): False,
    }
    for given, expected in options.items():
        printed = shell("plan", file, "--target", "y", *given, "--json")[1]
        assert json.loads(printed)["intercept"] is expected, given


def test_a_study_has_it_unless_it_says_otherwise(tmp_path):
    for name, problem in {
        "none": {},
        "yes": {"intercept": True},
        "no": {"intercept": False},
    }.items():
        write_study(tmp_path / name, problem=RIDGE | problem, split="samples")
    studies = {name: load_study(tmp_path / name / "study.toml") for name in ("none", "yes", "no")}
    assert [study.make_problem().intercept for study in studies.values()] == [True, True, False]
    # The default is a line of what all parties agree on, so that a version with another default is
    # found out.
    assert "problem.intercept = true" in studies["none"].agreement
    assert "problem.intercept = false" in studies["no"].agreement


def test_parties_fit_it_together(tmp_path):
    tables = data("samples")
    write_study(tmp_path, problem=RIDGE, split="samples")
    own, study = load_party(tmp_path / NAMES[0] / "party.toml")
    assert "Model: squared loss, l2 (strength 0.1) penalty with an intercept." in disclosure(
        study, own.party, tables[0]
    )
    local = co.solve(co.Problem(**RIDGE), tables)
    for result in together(tmp_path, tables):
        assert result.model.intercept_ == pytest.approx(local.model.intercept_)


# -- methods without one ---------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["cocoa", "relay"])
def test_methods_without_an_intercept_say_how_to_leave_it_out(method, tmp_path, shell):
    y = LABELS["regression"]
    with pytest.raises(
        InvalidProblem,
        match=f"{method} fits no intercept.* Use intercept=False, or method='proximal-1'",
    ):
        co.solve(co.Problem(**RIDGE), (X, y), agents=2, method=method)
    assert co.solve(
        co.Problem(**RIDGE, intercept=False), (X, y), agents=2, method=method, tol=1e-3
    ).status.success
    with pytest.raises(InvalidProblem, match="Use fit_intercept=False"):
        co.LinearRegressor(method=method).fit(X, y)
    said = shell(
        "fit", rows_file(tmp_path, y), "--target", "y", "--strength", "0.1", "--method", method
    )[2]
    assert "Use --no-intercept, or --method proximal-1." in " ".join(said.split())
    said = r'study.toml: .* Use intercept = false, or method = "proximal-1"'
    with pytest.raises(InvalidInput, match=said):
        write_study(tmp_path / "study", problem=RIDGE, split="samples", method=method)
    write_study(
        tmp_path / "without", problem=RIDGE | {"intercept": False}, split="samples", method=method
    )
    assert load_study(tmp_path / "without" / "study.toml").method == method


# -- outputs say which -----------------------------------------------------------------------------


def test_every_output_says_whether_there_is_one(shell, tmp_path):
    file, answer = rows_file(tmp_path, LABELS["regression"]), tmp_path / "answer"
    asked = [file, "--target", "y", "--penalty", "l2"]
    ridge = [*asked, "--strength", "0.1"]
    for arguments in (
        ["fit", *ridge, "--test", "0.3", "-o", answer],
        ["plan", *ridge],
        ["compare", *ridge, "-m", "newton", "--turns", "1", "-o", tmp_path / "both"],
        ["path", *asked, "--strengths", "1", "-o", tmp_path / "path"],
    ):
        printed = " ".join(shell(*arguments)[1].split())
        assert "with an intercept" in printed, arguments
    for page in (answer, tmp_path / "both", tmp_path / "path"):
        assert "with an intercept" in (page / "report.html").read_text(), page
    result = co.Result.load(answer)
    assert "with an intercept" in str(result)
    assert "intercept=True," in solve_call(result)


def test_and_whether_there_is_none(shell, tmp_path):
    file, answer = rows_file(tmp_path, LABELS["regression"]), tmp_path / "answer"
    ridge = [file, "--target", "y", "--penalty", "l2", "--strength", "0.1", "--no-intercept"]
    printed = " ".join(shell("fit", *ridge, "-o", answer)[1].split())
    assert "Model: squared loss, l2 (strength 0.1) penalty without an intercept" in printed
    assert "without an intercept" in (answer / "report.html").read_text()
    assert json.loads(shell("plan", *ridge, "--json")[1])["intercept"] is False
    result = co.Result.load(answer)
    assert "without an intercept" in str(result)
    assert "intercept=False," in solve_call(result)
    checked = shell(
        "verify", answer / "certificate.json", answer / "model.npz", file, "--target", "y"
    )
    assert "penalty without an intercept;" in " ".join(checked[1].split())
    evaluated = shell("evaluate", answer / "model.npz", file, "--target", "y")
    assert "squared model without an intercept on 80 rows" in evaluated[1]


KINDS = {
    "classes": (co.Problem("multinomial", "l2", 0.1), np.arange(80) % 3, {}, "with an intercept"),
    "survival": (
        co.Problem("cox"),
        co.survival_labels(np.arange(80) + 1.0, np.ones(80)),
        {},
        "without an intercept",
    ),
    "low rank": (
        co.Problem("squared", "traceball", radius=1.0),
        np.column_stack([SCORES, -SCORES]),
        {},
        "without an intercept",
    ),
    "shared": (
        co.Shared(mu=0.1),
        LABELS["classification"],
        {"split": "users"},
        "with an intercept",
    ),
    "stumps": (co.Personal(), LABELS["classification"], {"split": "users"}, "without an intercept"),
    "stumps and a constant": (
        co.Personal(constant=True),
        LABELS["classification"],
        {"split": "users"},
        "with an intercept",
    ),
    "linear": (
        co.Personal("linear"),
        LABELS["classification"],
        {"split": "users"},
        "with an intercept",
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_says_whether_there_is_one(kind, tmp_path):
    problem, y, how, said = KINDS[kind]
    rows = (X, y, np.arange(80) % 4) if how else (X, y)
    result = co.solve(problem, rows, max_rounds=3, **how)
    assert said in str(result), str(result)
    assert result.has_intercept is (said == "with an intercept")
    assert co.Result.load(result.save(tmp_path / "answer")).has_intercept is result.has_intercept


def test_the_call_of_a_report_makes_the_same_problem():
    for problem in (
        co.Problem("squared", "l2", 0.1),
        co.Problem("squared", "l2", 0.1, intercept=False),
    ):
        result = co.solve(problem, (X, LABELS["regression"]), agents=2)
        found: dict = {}
        exec(solve_call(result).partition("# data")[0], found)
        assert found["problem"] == problem
