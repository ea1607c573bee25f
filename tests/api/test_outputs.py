"""Every output says what is modelled: the class, the intercept, the levels that are left out, and
units.
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import coterie as co
from tests.harness.shell import shell

RNG = np.random.default_rng(4)
FRAME = pd.DataFrame({"age": RNG.normal(50, 12, 120), "dose": RNG.normal(2e-3, 1e-3, 120)})
FRAME["sex"] = RNG.choice(["female", "male"], 120)
FRAME["group"] = np.where((FRAME.age - 50) / 12 + RNG.normal(size=120) > 0, "case", "control")
PREPARATION = co.Preparation("standardise", text="one-hot(10, drop-first)")


@pytest.fixture(scope="module")
def result():
    problem = co.Problem("logistic", "l2", 0.01, intercept=True)
    return co.solve(
        problem, (FRAME.drop(columns="group"), FRAME.group), agents=2, prepare=PREPARATION
    )


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
    np.testing.assert_allclose(
        X @ coef + constant, result.model.decision_function(features), atol=1e-10
    )
    assert f"{coef[1]:.6g}".replace("-", "−") in page


def test_scores_of_several_classes_name_them_all():
    labels = RNG.integers(0, 3, 60).astype(float)
    found = co.solve(
        co.Problem("multinomial", "l2", 0.1, intercept=True),
        (RNG.normal(size=(60, 2)), labels),
        agents=2,
    )
    assert "classes: 3 (0, 1, 2)" in str(found)


def test_a_threshold_has_a_unit():
    problem = co.Problem("huber", "l2", 0.1, threshold=2.0, intercept=True)
    found = co.solve(problem, (FRAME[["age"]].to_numpy(), FRAME.dose.to_numpy()), agents=2)
    assert "threshold: 2 (in units of the label)" in str(found)


def test_the_shell_says_it_too(tmp_path):
    FRAME.drop(columns="sex").to_csv(tmp_path / "rows.csv", index=False)
    ask = [
        "fit",
        str(tmp_path / "rows.csv"),
        "--target",
        "group",
        "--loss",
        "logistic",
        "-o",
        str(tmp_path / "out"),
    ]
    assert "modelled class: control (reference: case)" in shell(*ask).output
    told = json.loads(shell(*ask, "--json").output.splitlines()[-1])
    events = f"events: {(FRAME.group == 'control').sum()} of 120"
    assert told["notes"][:2] == ["modelled class: control (reference: case)", events]
    assert told["intercept"] is True


LABELS = {
    "text": FRAME.group.to_numpy(),
    "bool": (FRAME.group == "control").to_numpy(),
    "numbers": (FRAME.group == "control").to_numpy().astype(int),
    "signs": np.where(FRAME.group == "control", 1.0, -1.0),
}
COUNTED = f"events: {(FRAME.group == 'control').sum()} of 120"
NUMBERS = FRAME[["age", "dose"]].to_numpy()
X_OF_COUNTS = RNG.standard_normal((120, 3))


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("intercept", [False, True])
def test_the_number_of_events_is_in_every_output(labels, intercept, tmp_path):
    y = LABELS[labels]
    fit = co.solve(co.Problem("logistic", "l2", 0.1, intercept=intercept), (NUMBERS, y), agents=3)
    assert COUNTED in str(fit)
    again = co.Result.load(fit.save(tmp_path / "fit"))
    assert COUNTED in str(again)
    assert (
        COUNTED.removeprefix("events: ")
        in co.report.write_report(again, tmp_path / "report.html").read_text()
    )
    assert co.verify(again.certificate, again.model, (NUMBERS, y)).holds


def test_events_are_counted_where_columns_are_split_and_where_users_deviate():
    y = LABELS["text"]
    by_columns = [NUMBERS[:, :1], (NUMBERS[:, 1:], y)]
    fit = co.solve(co.Problem("logistic", "l2", 0.1), by_columns, split="features", same_order=True)
    assert COUNTED in str(fit)
    users = [(NUMBERS[k::4], y[k::4]) for k in range(4)]
    assert COUNTED in str(co.solve(co.Shared("logistic"), users, split="users"))


def test_a_run_without_counts_says_so():
    y = LABELS["text"]
    by_columns = [NUMBERS[:, :1], (NUMBERS[:, 1:], y)]
    problem = co.Problem("logistic", "l2", 0.1, intercept=False)
    assert "rows per class: not counted" in str(
        co.solve(problem, by_columns, split="features", same_order=True)
    )


def test_a_path_says_what_is_modelled():
    found = co.path(co.Problem("logistic", "l2", 0.1), (NUMBERS, LABELS["text"]), [0.1, 0.2])
    assert "modelled class: control (reference: case)" in str(found)
    assert COUNTED in str(found)


def test_events_of_survival_times_and_rows_of_classes_are_counted():
    time, died = RNG.exponential(size=120), RNG.random(120) < 0.6
    fit = co.solve(co.Problem("cox", "l2", 0.1), (NUMBERS, co.survival_labels(time, died)))
    assert f"events: {died.sum()} of 120" in str(fit)
    kinds = RNG.choice(["a", "b", "c"], 120)
    fit = co.solve(co.Problem("multinomial", "l2", 0.1), (NUMBERS, kinds), agents=2)
    counted = ", ".join(f"{kind} {(kinds == kind).sum()}" for kind in "abc")
    assert f"rows per class: {counted}" in str(fit)


def test_events_of_weighted_rows_are_sums_of_weights():
    weights, y = RNG.integers(1, 4, 120) + 0.5, LABELS["numbers"]
    fit = co.solve(
        co.Problem("logistic", "l2", 0.1), co.Table(NUMBERS, y, weights=weights), agents=2
    )
    assert f"events: {weights[y == 1].sum():g} of {weights.sum():g} (sums of weights)" in str(fit)


@pytest.mark.parametrize(
    ("loss", "meaning"),
    [("logistic", "log odds"), ("poisson", "logarithm of the mean"), ("squared", "mean")],
)
def test_outputs_say_the_unit_of_a_coefficient(loss, meaning):
    y = LABELS["numbers"]
    fit = co.solve(co.Problem(loss, "l2", 0.1), (NUMBERS, y), agents=2)
    assert f"coefficients: change of the {meaning}" in str(fit)
    assert "per unit of the column" in str(fit)
    scaled = co.solve(co.Problem(loss, "l2", 0.1), (NUMBERS, y), agents=2, prepare="standardise")
    assert "per unit of the scaled column in coef_, per unit of the raw column in tables" in str(
        scaled
    )


@pytest.mark.parametrize("split", ["samples", "features"])
@pytest.mark.parametrize("intercept", [False, True])
def test_counts_of_events_are_summed_in_every_output(split, intercept, tmp_path):
    counts = np.random.default_rng(9).poisson(np.exp(0.5 * X_OF_COUNTS[:, 0] + 0.3)).astype(float)
    told = f"events: {counts.sum():g} (the sum of the labels)"
    problem = co.Problem("poisson", "l2", 0.01, intercept=intercept)
    found = co.solve(problem, (X_OF_COUNTS, counts), agents=2, split=split)
    if split == "features" and not intercept:
        assert "events: not counted" in str(found)
        return
    assert told in str(found)
    assert (
        told.removeprefix("events: ")
        in co.report.write_report(found, tmp_path / "report.html").read_text()
    )
    assert co.verify(found.certificate, found.model, (X_OF_COUNTS, counts)).holds
    forged = replace(found.certificate, counts=(counts.sum() + 1,))
    assert not co.verify(forged, found.model, (X_OF_COUNTS, counts)).holds
    assert co.evaluate(found.model, (X_OF_COUNTS, counts)).scores["events"] == counts.sum()


def test_standard_errors_of_counts_have_the_sum_of_the_labels():
    counts, weights = np.arange(120) % 4, np.arange(120) % 3 + 1.0
    plain = co.solve(co.Problem("poisson"), (X_OF_COUNTS, counts), agents=2)
    weighted = co.solve(co.Problem("poisson"), (X_OF_COUNTS, counts, weights), agents=2)
    assert f"events: {counts.sum()} (the sum of the labels)" in str(plain.inference())
    assert f"events: {counts @ weights:g} (the sum of the labels)" in str(weighted.inference())


def test_forged_numbers_of_events_are_refused():
    y = LABELS["text"]
    fit = co.solve(co.Problem("logistic", "l2", 0.1), (NUMBERS, y), agents=2)
    for counts in ((60.0, 60.0), None, fit.certificate.counts[::-1], (120.0,)):
        found = co.verify(replace(fit.certificate, counts=counts), fit.model, (NUMBERS, y))
        assert any("counts is" in text for text in found.objections), counts
