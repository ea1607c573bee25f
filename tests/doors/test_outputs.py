"""Every output says what is modelled: the class, the intercept, the levels that are left out, and units."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import coterie as co
from coterie.cli import app

RNG = np.random.default_rng(4)
FRAME = pd.DataFrame({"age": RNG.normal(50, 12, 120), "dose": RNG.normal(2e-3, 1e-3, 120)})
FRAME["sex"] = RNG.choice(["female", "male"], 120)
FRAME["group"] = np.where((FRAME.age - 50) / 12 + RNG.normal(size=120) > 0, "case", "control")
PREPARATION = co.Preparation("standardise", text="one-hot(10, drop-first)")


@pytest.fixture(scope="module")
def result():
    problem = co.Problem("logistic", "l2", 0.01, intercept=True)
    return co.solve(problem, (FRAME.drop(columns="group"), FRAME.group), agents=2, prepare=PREPARATION)


def test_the_modelled_class_and_the_reference_levels_are_printed(result):
    assert "modelled class: control (reference: case)" in str(result)
    assert "reference levels: sex = female" in str(result)
    assert "with an intercept" in str(result)


def test_the_report_shows_coefficients_per_unit_of_the_raw_columns(result, tmp_path):
    page = co.report.write_report(result, tmp_path / "report.html").read_text()
    assert "control (reference: case)" in page
    assert "per unit of the raw column" in page
    coef, constant = result.model.in_raw_units()
    X = np.column_stack([FRAME.age, FRAME.dose, FRAME.sex == "male"])
    features = FRAME.drop(columns="group")
    np.testing.assert_allclose(X @ coef + constant, result.model.decision_function(features), atol=1e-10)
    assert f"{coef[1]:.6g}".replace("-", "−") in page


def test_scores_of_several_classes_name_them_all():
    labels = RNG.integers(0, 3, 60).astype(float)
    found = co.solve(co.Problem("multinomial", "l2", 0.1, intercept=True), (RNG.normal(size=(60, 2)), labels), agents=2)
    assert "classes: 3 (0, 1, 2)" in str(found)


def test_a_threshold_has_a_unit():
    problem = co.Problem("huber", "l2", 0.1, threshold=2.0, intercept=True)
    found = co.solve(problem, (FRAME[["age"]].to_numpy(), FRAME.dose.to_numpy()), agents=2)
    assert "threshold: 2 (in units of the label)" in str(found)


def test_the_shell_says_it_too(tmp_path):
    FRAME.drop(columns="sex").to_csv(tmp_path / "rows.csv", index=False)
    ask = ["fit", str(tmp_path / "rows.csv"), "--target", "group", "--loss", "logistic", "-o", str(tmp_path / "out")]
    assert "modelled class: control (reference: case)" in CliRunner().invoke(app, ask).output
    told = json.loads(CliRunner().invoke(app, [*ask, "--json"]).output.splitlines()[-1])
    assert told["notes"] == ["modelled class: control (reference: case)"]
    assert told["intercept"] is True
