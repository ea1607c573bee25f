"""Standard errors, tests and intervals: those of statsmodels, wherever the agents live, or refused
with the reason.
"""

from __future__ import annotations

import json
import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import statsmodels.api as sm

import coterie as co
from coterie.choices import KINDS
from coterie.commands.exit_codes import REFUSED
from coterie.errors import CorruptFile, InvalidData, InvalidProblem, UnknownName
from tests.harness.shell import shell

RNG = np.random.default_rng(3)
N = 240
X = RNG.standard_normal((N, 3)) * [1.0, 20.0, 0.5] + [50.0, 0.0, -3.0]
SCORES = (X - [50.0, 0.0, -3.0]) @ [0.4, -0.02, 0.6] + 0.3
CLUSTERS = RNG.integers(0, 30, N)
LABELS = {
    "squared": SCORES + 0.7 * RNG.standard_normal(N),
    "logistic": np.where(RNG.random(N) < 1 / (1 + np.exp(-SCORES)), "yes", "no"),
    "poisson": RNG.poisson(np.exp(SCORES)),
    "gamma": RNG.gamma(2.0, np.exp(SCORES) / 2.0),
    "multinomial": np.array(["a", "b", "c"])[
        (RNG.random(N)[:, None] > np.cumsum(np.ones(3) / 3) + 0.1 * SCORES[:, None])
        .sum(axis=1)
        .clip(0, 2)
    ],
}
FAMILIES = {
    "logistic": sm.families.Binomial(),
    "poisson": sm.families.Poisson(),
    "gamma": sm.families.Gamma(sm.families.links.Log()),
}
OPTIONS = {
    "model": {},
    "robust": {"cov_type": "HC0"},
    "clustered": {"cov_type": "cluster", "cov_kwds": {"groups": CLUSTERS}},
}


def solved(loss, data=None, **settings):
    problem = co.Problem(loss, "none", intercept=True)
    return co.solve(
        problem,
        (X, LABELS[loss]) if data is None else data,
        **{"agents": 4, "tol": 1e-10, **settings},
    )


@pytest.fixture(scope="module")
def fits():
    return {loss: solved(loss) for loss in LABELS}


def reference(loss, kind):
    """What statsmodels says of the pooled rows, the intercept last."""
    columns, labels = sm.add_constant(X, prepend=False), LABELS[loss]
    if loss == "squared":
        return sm.OLS(labels, columns).fit(**OPTIONS[kind])
    if loss == "multinomial":
        numbers = np.searchsorted(["a", "b", "c"], labels)
        return sm.MNLogit(numbers, columns).fit(disp=0, tol=1e-10, maxiter=100, **OPTIONS[kind])
    numbers = (labels == "yes").astype(int) if loss == "logistic" else labels
    return sm.GLM(numbers, columns, family=FAMILIES[loss]).fit(
        tol=1e-14, maxiter=200, **OPTIONS[kind]
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loss", LABELS)
def test_numbers_are_those_of_statsmodels(fits, loss, kind):
    found = fits[loss].inference(kind, CLUSTERS if kind == "clustered" else None, level=0.9)
    known = reference(loss, kind)
    intervals = np.reshape(known.conf_int(alpha=0.1), (-1, 2))
    close = {"rtol": 1e-6, "atol": 1e-9}
    np.testing.assert_allclose(found.estimates, np.ravel(known.params.T), **close)
    np.testing.assert_allclose(found.standard_errors, np.ravel(known.bse.T), **close)
    np.testing.assert_allclose(found.p_values, np.ravel(known.pvalues.T), **close)
    np.testing.assert_allclose(found.covariance, known.cov_params(), **close)
    np.testing.assert_allclose(found.intervals, intervals, **close)
    assert found.statistic == ("t" if known.use_t else "z")


def test_several_classes_are_compared_with_the_first(fits):
    found = fits["multinomial"].inference()
    assert found.names[:4] == ("b: x0", "b: x1", "b: x2", "b: intercept")
    assert found.names[-1] == "c: intercept"
    assert "against class a" in found.about


@pytest.mark.parametrize("kind", ["model", "robust"])
@pytest.mark.parametrize("loss", ["squared", "gamma"])
def test_a_weight_counts_as_that_many_rows(loss, kind):
    times = np.arange(N) % 3 + 1
    weighted = solved(loss, (X, LABELS[loss], times.astype(float))).inference(kind)
    repeated = solved(
        loss, (np.repeat(X, times, axis=0), np.repeat(LABELS[loss], times))
    ).inference(kind)
    np.testing.assert_allclose(weighted.covariance, repeated.covariance, rtol=1e-6, atol=1e-12)


def test_clusters_at_one_party_and_at_several_are_the_same_clusters():
    order = np.argsort(CLUSTERS, kind="stable")
    at_one = np.split(order, [len(order[CLUSTERS[order] < 10]), len(order[CLUSTERS[order] < 20])])
    y, kind = LABELS["poisson"], "clustered"
    apart = solved("poisson", [(X[rows], y[rows]) for rows in at_one], agents=None)
    there = apart.inference(kind, [CLUSTERS[rows] for rows in at_one])
    mixed = solved("poisson").inference(kind, CLUSTERS)
    np.testing.assert_allclose(there.covariance, mixed.covariance, rtol=1e-6)
    # Four parties have rows of all 30 clusters: of each, 4 scores are told; in order, only products
    # are.
    numbers = [found.bill.per_purpose["rounds"].scalars for found in (there, mixed)]
    triangle, counts = 10, 4
    each = 2 * triangle + 4 + 1 + 2 + counts
    assert numbers == [2 * 3 * each, 2 * 4 * (each + 30 * 4)]


def test_without_an_intercept_sparse_and_in_single_precision():
    problem, y = co.Problem("poisson", "none", intercept=False), LABELS["poisson"]
    Z = np.where(np.abs(X - X.mean(0)) > 0.3 * X.std(0), (X - X.mean(0)) / X.std(0), 0.0)
    known = sm.GLM(y, Z, family=FAMILIES["poisson"]).fit(tol=1e-14, cov_type="HC0")
    for given, rtol in ((Z, 1e-6), (sp.csr_array(Z), 1e-6), (Z.astype(np.float32), 1e-4)):
        found = co.solve(problem, (given, y), agents=3, tol=1e-9).inference("robust")
        np.testing.assert_allclose(found.standard_errors, known.bse, rtol=rtol)
        assert found.names == ("x0", "x1", "x2")


@pytest.mark.parametrize("secure", [pytest.param(False, marks=pytest.mark.slow), True])
def test_processes_find_the_same_bits(secure):
    settings = {"agents": 2, "secure_sums": secure}
    here = solved("logistic", **settings).inference("clustered", CLUSTERS)
    there = solved("logistic", engine="peers", **settings).inference("clustered", CLUSTERS)
    np.testing.assert_array_equal(here.covariance, there.covariance)
    assert here.bill.table() == there.bill.table()


# -- what the table is about -----------------------------------------------------------------------


def test_the_table_says_which_class_is_modelled_and_how_many_events_there_are(fits):
    shown = str(fits["logistic"].inference())
    assert "modelled class: yes (reference: no)" in shown
    assert f"events: {(LABELS['logistic'] == 'yes').sum()} of 240" in shown
    assert "change of the log odds per unit of the column" in shown
    case = np.where(LABELS["logistic"] == "yes", "case", "control")
    found = (
        co.LinearClassifier("logistic", penalty="none", agents=2).fit(X, case).result_.inference()
    )
    assert "modelled class: control (reference: case)" in str(found)
    assert f"events: {(case == 'control').sum()} of 240" in str(found)
    several = str(fits["multinomial"].inference())
    assert "modelled classes: b, c (reference: a)" in several
    counts = [f"{label} {(LABELS['multinomial'] == label).sum()}" for label in "abc"]
    assert f"rows per class: {', '.join(counts)}" in several
    assert "logarithm of the mean" in str(fits["poisson"].inference())
    assert "in units of the label" in str(fits["squared"].inference())


def test_counts_of_events_are_of_rows_or_of_their_frequencies():
    s = np.arange(N) % 3 + 1.0
    fit = solved("logistic", (X, LABELS["logistic"], s))
    yes = LABELS["logistic"] == "yes"
    assert f"events: {s[yes].sum():g} of {s.sum():g}" in str(fit.inference(weights="frequency"))
    assert f"events: {yes.sum()} of 240" in str(fit.inference(weights="sampling"))


RECIPES = {
    "standardise": 1,
    "min-max": 1,
    "polynomial(2), standardise": 2,
    "standardise, polynomial(3)": 3,
    "impute(0), standardise": 1,
}


@pytest.mark.parametrize("recipe", RECIPES)
def test_prepared_columns_have_coefficients_in_raw_units(recipe):
    Z = (X[:, 1:] + [0.0, 3.0]) / [20.0, 1.0] + [0.3, 0.2]
    powers = [column**power for column in Z.T for power in range(1, RECIPES[recipe] + 1)]
    raw = sm.add_constant(np.column_stack(powers), prepend=False)
    for loss, known in (
        ("squared", sm.OLS(LABELS["squared"], raw)),
        ("poisson", sm.GLM(LABELS["poisson"], raw, family=FAMILIES["poisson"])),
    ):
        fit = solved(loss, (Z, LABELS[loss]), prepare=recipe)
        for kind, clusters in (("model", None), ("robust", None), ("clustered", CLUSTERS)):
            found, expected = fit.inference(kind, clusters), known.fit(**OPTIONS[kind])
            np.testing.assert_allclose(found.estimates, expected.params, rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(found.standard_errors, expected.bse, rtol=1e-5)
            np.testing.assert_allclose(found.p_values, expected.pvalues, rtol=1e-3, atol=1e-9)
        assert "in raw units" in str(found)


def test_classes_of_prepared_columns_have_coefficients_in_raw_units(fits):
    found, known = (
        solved("multinomial", prepare="standardise").inference("robust"),
        fits["multinomial"].inference("robust"),
    )
    np.testing.assert_allclose(found.estimates, known.estimates, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found.covariance, known.covariance, rtol=1e-4, atol=1e-9)


def test_degrees_of_freedom_are_those_of_raw_units():
    few = CLUSTERS % 7
    problem, y = co.Problem("squared", "none", intercept=True), LABELS["squared"]
    fits = [
        co.solve(problem, (X, y), agents=2, tol=1e-12, **more)
        for more in ({}, {"prepare": "standardise"})
    ]
    with pytest.warns(UserWarning, match="only 7 clusters"):
        raw, prepared = (fit.inference("clustered", few) for fit in fits)
    np.testing.assert_allclose(prepared.degrees, raw.degrees, rtol=1e-6)
    np.testing.assert_allclose(prepared.covariance, raw.covariance, rtol=1e-6)


def test_coefficients_per_standard_deviation_are_a_column_on_request(tmp_path):
    problem, y = co.Problem("poisson", "none", intercept=True), LABELS["poisson"]
    fit = co.solve(problem, (X, y), agents=2, prepare="standardise", tol=1e-10)
    plain, found = fit.inference(), fit.inference(per_sd=True)
    assert "per SD" not in plain.table()[0]
    per_sd = [row["per SD"] for row in found.table()]
    np.testing.assert_allclose(per_sd[:3], found.estimates[:3] * X.std(axis=0), rtol=1e-9)
    assert "per SD" in str(found)
    assert (
        co.Inference.load(plain.save(tmp_path / "inference.json")).with_per_sd().table()
        == found.table()
    )
    with pytest.raises(InvalidProblem, match="prepare='standardise'"):
        co.solve(problem, (X, y), agents=2).inference(per_sd=True)


def test_reference_levels_are_named():
    frame = pd.DataFrame(
        {"age": X[:, 0], "ward": np.array(["north", "south", "west"])[CLUSTERS % 3]}
    )
    problem = co.Problem("squared", "none", intercept=True)
    fit = co.solve(
        problem,
        (frame, LABELS["squared"]),
        prepare=["standardise", "one-hot(5, drop-first)"],
        agents=2,
    )
    assert "reference levels: ward = north" in str(fit.inference())


def test_without_an_intercept_the_constant_of_centred_columns_is_named():
    problem = co.Problem("squared", "none", intercept=False)
    fit = co.solve(problem, (X, LABELS["squared"]), prepare="standardise", agents=2)
    found = fit.inference()
    constant = -float(found.estimates @ X.mean(axis=0))
    assert f"constant: {constant:.5g} (fixed" in str(found)
    np.testing.assert_allclose(X[:5] @ found.estimates + constant, fit.model.predict(X[:5]))


# -- what is refused -------------------------------------------------------------------------------


def test_problems_without_a_likelihood_are_refused():
    y = LABELS["squared"]
    for problem, reason in (
        (
            co.Problem("squared", "l2", 0.1, intercept=False),
            "the l2 penalty biases the coefficients",
        ),
        (
            co.Problem("huber", "none", intercept=False),
            "the huber loss is not a likelihood.* Use kind='robust'",
        ),
    ):
        with pytest.raises(InvalidProblem, match=reason):
            co.solve(problem, (X, y), max_rounds=3).inference()
    with pytest.raises(InvalidProblem, match="split by features"):
        co.solve(
            co.Problem("squared", "none", intercept=False),
            (X, y),
            split="features",
            agents=2,
            max_rounds=3,
        ).inference()


def test_settings_that_make_no_sense_are_refused(fits):
    ask = fits["squared"].inference
    with pytest.raises(UnknownName, match="'robust'"):
        ask("robsut")
    with pytest.raises(InvalidProblem, match="level is between 0 and 1"):
        ask(level=95)
    with pytest.raises(InvalidProblem, match="give clusters="):
        ask("clustered")
    with pytest.raises(InvalidProblem, match="leave clusters out"):
        ask("robust", CLUSTERS)
    with pytest.raises(InvalidData, match="cluster of each of the 240 rows"):
        ask("clustered", CLUSTERS[1:])
    with pytest.raises(InvalidData, match="some rows have no cluster"):
        ask("clustered", np.where(CLUSTERS == 3, np.nan, CLUSTERS))
    with pytest.raises(InvalidData, match="3 clusters and 4 coefficients"):
        ask("clustered", CLUSTERS % 3)


@pytest.mark.parametrize("tol", [1e-3, 1e-6, 1e-9])
def test_separable_labels_are_refused(tol):
    first = X[:, 0] > X[:, 0].mean()
    with pytest.raises(InvalidData, match="the best coefficients are infinite"):
        solved("logistic", (X, first.astype(int)), tol=tol).inference()


def test_separable_labels_are_refused_where_rounding_leaves_no_curvature():
    fit = solved("logistic", (X, (X[:, 0] > X[:, 0].mean()).astype(int)))
    further = replace(fit.model, coef_=100 * fit.model.coef_, intercept_=100 * fit.model.intercept_)
    with pytest.raises(InvalidData, match="the best coefficients are infinite"):
        replace(fit, model=further).inference()


@pytest.mark.parametrize("loss", ["logistic", "poisson"])
def test_one_column_that_separates_a_few_rows_is_refused(loss):
    few = np.arange(N) < 5
    y = np.where(few, "no" if loss == "logistic" else 0, LABELS[loss])
    with pytest.raises(InvalidData, match="the best coefficients are infinite"):
        solved(
            loss,
            (np.column_stack([X, few]), y if loss == "logistic" else y.astype(float)),
            tol=1e-6,
        ).inference()


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_columns_that_cannot_be_told_apart_are_named(loss):
    columns = np.column_stack([X, X[:, 0] - 2 * X[:, 2]])
    with pytest.raises(InvalidData, match="singular: x0, x2, x3 cannot be distinguished"):
        solved(loss, (columns, LABELS[loss]), tol=1e-6).inference()


def test_too_few_rows_and_perfect_fits_are_refused():
    with pytest.raises(InvalidData, match="There must be more rows than coefficients"):
        solved("squared", (X[:4], LABELS["squared"][:4]), tol=1e-3).inference()


def test_a_rough_fit_is_refused_with_a_tolerance_that_is_enough():
    rough = solved("logistic", method="consensus", tol=0.05)
    with pytest.raises(
        InvalidData, match=r"standard errors from the best one. Fit again with tol=.e-"
    ) as refusal:
        rough.inference()
    enough = float(str(refusal.value).rpartition("tol=")[2].rstrip("."))
    assert solved("logistic", tol=enough).inference().distance < 0.1


# -- files -----------------------------------------------------------------------------------------


def test_a_loaded_result_takes_the_data(fits, tmp_path):
    known = fits["gamma"].inference("robust")
    loaded = co.Result.load(fits["gamma"].save(tmp_path / "fit"))
    with pytest.raises(InvalidData, match="Give data="):
        loaded.inference("robust")
    with pytest.raises(InvalidData, match="not the data that the model was fitted to"):
        loaded.inference("robust", data=(X + 1, LABELS["gamma"]))
    found = loaded.inference("robust", data=(X, LABELS["gamma"]))
    np.testing.assert_array_equal(found.covariance, known.covariance)


def test_rows_do_not_travel_in_a_pickle(fits):
    copy = pickle.loads(pickle.dumps(fits["squared"]))
    assert fits["squared"].parties is not None
    assert copy.parties is None
    assert X[5].tobytes() not in pickle.dumps(fits["squared"])


def test_it_is_saved_and_loaded(fits, tmp_path):
    found = fits["poisson"].inference()
    again = co.Inference.load(found.save(tmp_path / "inference.json"))
    assert str(again) == str(found)
    np.testing.assert_array_equal(again.covariance, found.covariance)
    assert found.table()[0].keys() == {"name", "coef", "std err", "z", "p", "lower", "upper"}
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(CorruptFile, match="not a readable inference"):
        co.Inference.load(tmp_path / "other.json")


# -- the shell -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def patients(tmp_path_factory):
    """A file with ids, text clusters that look like formulas, and labels."""
    rows = [["who", "age", "dose", "ward", "ill"]]
    for k in range(N):
        rows.append(
            [f"{k:03}", *map(repr, X[k, :2].tolist()), f"={CLUSTERS[k]}", LABELS["logistic"][k]]
        )
    file = tmp_path_factory.mktemp("patients") / "patients.csv"
    file.write_text("\n".join(",".join(row) for row in rows) + "\n")
    return file


FIT = ["--target", "ill", "--columns", "age,dose", "--loss", "logistic", "--intercept"]


@pytest.fixture(scope="module")
def fitted(patients):
    output = patients.parent / "fit"
    clustered = ["--inference", "clustered", "--cluster", "ward"]
    ran = shell("fit", str(patients), *FIT, *clustered, "--json", "-o", str(output))
    assert ran.exit_code == 0, ran.output
    return output, json.loads(ran.stdout)


def test_fit_tells_saves_and_reports_it(fitted):
    output, told = fitted
    known = sm.GLM(
        (LABELS["logistic"] == "yes").astype(int),
        sm.add_constant(X[:, :2], prepend=False),
        sm.families.Binomial(),
    ).fit(tol=1e-14, **OPTIONS["clustered"])
    np.testing.assert_allclose([row["std err"] for row in told["inference"]], known.bse, rtol=1e-6)
    assert co.Inference.load(output / "inference.json").table() == told["inference"]
    assert '<section id="inference">' in (output / "report.html").read_text()
    shown = shell("report", str(output))
    assert "by 30 clusters, n = 240" in shown.stdout
    assert '<section id="inference">' in (output / "report.html").read_text()


def test_fit_refuses_before_it_begins(patients, tmp_path):
    for flags, reason in (
        (["--inference", "model", "--strength", "0.1"], "penalty biases"),
        (["--inference", "clustered"], "belong together"),
        (["--inference", "model", "--cluster", "ward"], "belong together"),
        (["--cluster", "ward"], "belong together"),
        (["--inference", "modle"], "Did you mean 'model'"),
    ):
        ran = shell("fit", str(patients), *FIT, *flags, "-o", str(tmp_path / "fit"))
        assert ran.exit_code == REFUSED, ran.output
        assert reason in ran.text
        assert not (tmp_path / "fit").exists()


def test_fit_takes_the_meaning_of_weights_and_corrections(patients, tmp_path):
    rows = [line.split(",") for line in patients.read_text().splitlines()]
    weights = np.linspace(0.5, 3.0, N)
    rows = [
        [*rows[0], "share"],
        *([*row, repr(s)] for row, s in zip(rows[1:], weights.tolist(), strict=True)),
    ]
    file = tmp_path / "weighted.csv"
    file.write_text("\n".join(map(",".join, rows)) + "\n")
    fit = ["fit", str(file), *FIT, "--weight", "share", "-o", str(tmp_path / "fit")]
    known = solved("logistic", (X[:, :2], LABELS["logistic"], weights))
    ran = shell(*fit, "--inference", "robust", "--weights", "sampling", "--json")
    assert ran.exit_code == 0, ran.output
    told = json.loads(ran.stdout)
    errors = [row["std err"] for row in told["inference"]]
    np.testing.assert_allclose(
        errors, known.inference("robust", weights="sampling").standard_errors, rtol=1e-4
    )
    assert "modelled class: yes (reference: no)" in told["inference_notes"]
    few = [
        "--inference",
        "clustered",
        "--cluster",
        "ward",
        "--correction",
        "CR1",
        "--weights",
        "precision",
    ]
    shown = shell(*fit, *few)
    assert "clustered standard errors (CR1) by 30 clusters, n = 240" in shown.stdout
    assert "weights: precision" in shown.stdout
    for flags, reason in (
        (["--inference", "robust"], "--weights sampling"),
        (["--inference", "robust", "--weights", "sampel"], "Did you mean 'sampling'"),
        (["--weights", "sampling"], "--weights is for standard errors"),
        (
            ["--inference", "robust", "--weights", "sampling", "--correction", "CR2"],
            "--correction CR2 is not for --inference robust",
        ),
        (
            ["--inference", "robust", "--weights", "sampling", "--per-sd"],
            "--per-sd is for standardised columns",
        ),
    ):
        ran = shell(*fit, *flags)
        assert ran.exit_code == REFUSED, ran.output
        assert reason in ran.text


def test_fit_warns_of_few_clusters_and_shows_coefficients_per_standard_deviation(
    patients, tmp_path
):
    rows = [line.split(",") for line in patients.read_text().splitlines()]
    rows = [rows[0], *([*row[:3], f"w{k % 7}", row[4]] for k, row in enumerate(rows[1:]))]
    file = tmp_path / "few.csv"
    file.write_text("\n".join(map(",".join, rows)) + "\n")
    fit = [
        "fit",
        str(file),
        *FIT,
        "-o",
        str(tmp_path / "fit"),
        "--prepare",
        "standardise",
        "--per-sd",
    ]
    ran = shell(*fit, "--inference", "clustered", "--cluster", "ward")
    assert ran.exit_code == 0, ran.output
    assert "warning: there are only 7 clusters (CR2" in ran.stdout
    assert "per SD" in ran.stdout
    assert "there are only 7 clusters" in (tmp_path / "fit" / "report.html").read_text()


def test_a_fit_without_standard_errors_is_written_all_the_same(patients, tmp_path):
    rows = [line.split(",") for line in patients.read_text().splitlines()]
    rows[1:] = [[*row[:-1], "yes" if float(row[1]) > 50 else "no"] for row in rows[1:]]
    (tmp_path / "data.csv").write_text("\n".join(map(",".join, rows)) + "\n")
    command = [
        "fit",
        str(tmp_path / "data.csv"),
        *FIT,
        "--inference",
        "model",
        "-o",
        str(tmp_path / "fit"),
    ]
    ran = shell(*command)
    assert "the best coefficients are infinite" in ran.text
    assert co.Result.load(tmp_path / "fit").status.success
    assert (tmp_path / "fit" / "report.html").is_file()


def test_predict_writes_probabilities_scores_ids_and_kept_columns(patients, fitted, tmp_path):
    output = tmp_path / "predictions.csv"
    flags = [
        "--proba",
        "--score",
        "--id",
        "who",
        "--keep",
        "ward",
        "--keep",
        "ill",
        "-o",
        str(output),
    ]
    ran = shell("predict", str(fitted[0] / "model.npz"), str(patients), *flags)
    assert ran.exit_code == 0, ran.output
    head, *lines = output.read_text().splitlines()
    assert head == "who,ward,ill,prediction,probability no,probability yes,score"
    cells = [line.split(",") for line in lines]
    assert [row[0] for row in cells] == [f"{k:03}" for k in range(N)]
    assert [row[1] for row in cells] == [f"'={k}" for k in CLUSTERS]
    model = co.LinearModel.load(fitted[0] / "model.npz")
    np.testing.assert_array_equal([row[3] for row in cells], model.predict(X[:, :2]))
    numbers = np.array([row[4:] for row in cells], float)
    np.testing.assert_allclose(numbers[:, :2], model.predict_proba(X[:, :2]), rtol=1e-9)
    np.testing.assert_allclose(numbers[:, 2], model.decision_function(X[:, :2]), rtol=1e-9)


def test_predict_with_several_classes(fits, tmp_path):
    names = tuple("uvw")
    replace(fits["multinomial"].model, columns=names).save(tmp_path / "model.npz")
    np.savetxt(tmp_path / "new.csv", X[:3], delimiter=",", header=",".join(names), comments="")
    ran = shell(
        "predict", str(tmp_path / "model.npz"), str(tmp_path / "new.csv"), "--proba", "--json"
    )
    told = json.loads(ran.stdout)
    probabilities = np.array([told["columns"][f"probability {label}"] for label in "abc"])
    np.testing.assert_allclose(probabilities.T, fits["multinomial"].model.predict_proba(X[:3]))


def test_predict_refuses_what_is_not_there(patients, fits, tmp_path):
    replace(fits["squared"].model, columns=("age", "dose", "who")).save(tmp_path / "model.npz")
    new, command = str(patients), ["predict", str(tmp_path / "model.npz")]
    for flags, reason in (
        (["--proba"], "--proba is for models with probabilities"),
        (["--keep", "wrd"], "Did you mean 'ward'"),
    ):
        ran = shell(*command, new, *flags)
        assert ran.exit_code == REFUSED
        assert reason in ran.text
