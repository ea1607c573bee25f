"""Standard errors, tests and intervals: those of statsmodels, wherever the agents live, or refused with the reason."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import statsmodels.api as sm
from typer.testing import CliRunner

import coterie as co
from coterie.cli import app
from coterie.errors import CorruptFile, InvalidData, InvalidInput, InvalidProblem, UnknownName
from coterie.inference import KINDS

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
        (RNG.random(N)[:, None] > np.cumsum(np.ones(3) / 3) + 0.1 * SCORES[:, None]).sum(axis=1).clip(0, 2)
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
SHELL = CliRunner()


def solved(loss, data=None, **settings):
    problem = co.Problem(loss, "none", intercept=True)
    return co.solve(problem, (X, LABELS[loss]) if data is None else data, **{"agents": 4, "tol": 1e-10, **settings})


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
    return sm.GLM(numbers, columns, family=FAMILIES[loss]).fit(tol=1e-14, maxiter=200, **OPTIONS[kind])


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
    repeated = solved(loss, (np.repeat(X, times, axis=0), np.repeat(LABELS[loss], times))).inference(kind)
    np.testing.assert_allclose(weighted.covariance, repeated.covariance, rtol=1e-6, atol=1e-12)


def test_a_cluster_for_each_row_takes_weights_as_sampling_weights():
    s, y = np.arange(N) % 3 + 0.5, LABELS["poisson"]
    found = solved("poisson", (X, y, s)).inference("clustered", np.arange(N))
    Z = sm.add_constant(X, prepend=False)
    means = np.exp(Z @ found.estimates)
    inverse = np.linalg.inv(Z.T @ (Z * (s * means)[:, None]))
    middle = Z.T @ (Z * ((s * (means - y)) ** 2)[:, None])
    correction = N / (N - 1) * (s.sum() - 1) / (s.sum() - 4)
    np.testing.assert_allclose(found.covariance, correction * inverse @ middle @ inverse, rtol=1e-6)


def test_clusters_at_one_party_and_at_several_are_the_same_clusters():
    order = np.argsort(CLUSTERS, kind="stable")
    at_one = np.split(order, [len(order[CLUSTERS[order] < 10]), len(order[CLUSTERS[order] < 20])])
    y, kind = LABELS["poisson"], "clustered"
    apart = solved("poisson", [(X[rows], y[rows]) for rows in at_one], agents=None)
    there = apart.inference(kind, [CLUSTERS[rows] for rows in at_one])
    mixed = solved("poisson").inference(kind, CLUSTERS)
    np.testing.assert_allclose(there.covariance, mixed.covariance, rtol=1e-6)
    # Four parties have rows of all 30 clusters: of each, 4 scores are told; in order, only products are.
    numbers = [found.bill.per_purpose["rounds"].scalars for found in (there, mixed)]
    triangle = 10
    assert numbers == [2 * 3 * (2 * triangle + 4 + 1 + 2), 2 * 4 * (2 * triangle + 4 + 1 + 2 + 30 * 4)]


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


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_problems_without_a_likelihood_are_refused():
    y = LABELS["squared"]
    for problem, reason in (
        (co.Problem("squared", "l2", 0.1, intercept=False), "the l2 penalty biases the coefficients"),
        (co.Problem("huber", "none", intercept=False), "the huber loss is no likelihood"),
    ):
        with pytest.raises(InvalidProblem, match=reason):
            co.solve(problem, (X, y), max_rounds=3).inference()
    with pytest.raises(InvalidProblem, match="split by features"):
        co.solve(
            co.Problem("squared", "none", intercept=False), (X, y), split="features", agents=2, max_rounds=3
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
        solved(loss, (np.column_stack([X, few]), y if loss == "logistic" else y.astype(float)), tol=1e-6).inference()


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_columns_that_cannot_be_told_apart_are_named(loss):
    columns = np.column_stack([X, X[:, 0] - 2 * X[:, 2]])
    with pytest.raises(InvalidData, match="singular: x0, x2, x3 cannot be told apart"):
        solved(loss, (columns, LABELS[loss]), tol=1e-6).inference()


def test_too_few_rows_and_perfect_fits_are_refused():
    with pytest.raises(InvalidData, match="There must be more rows than coefficients"):
        solved("squared", (X[:4], LABELS["squared"][:4]), tol=1e-3).inference()


def test_a_rough_fit_is_refused_with_a_tolerance_that_is_enough():
    rough = solved("logistic", method="consensus", tol=0.05)
    with pytest.raises(InvalidData, match=r"standard errors from the best one. Fit again with tol=.e-") as refusal:
        rough.inference()
    enough = float(str(refusal.value).rpartition("tol=")[2].rstrip("."))
    assert solved("logistic", tol=enough).inference().distance < 0.1


# -- files -------------------------------------------------------------------------------------------------------------


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
    assert fits["squared"].rerun is not None
    assert copy.rerun is None
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


# -- the shell ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def patients(tmp_path_factory):
    """A file with ids, text clusters that look like formulas, and labels."""
    rows = [["who", "age", "dose", "ward", "ill"]]
    for k in range(N):
        rows.append([f"{k:03}", *map(repr, X[k, :2].tolist()), f"={CLUSTERS[k]}", LABELS["logistic"][k]])
    file = tmp_path_factory.mktemp("patients") / "patients.csv"
    file.write_text("\n".join(",".join(row) for row in rows) + "\n")
    return file


FIT = ["--target", "ill", "--columns", "age,dose", "--loss", "logistic", "--intercept"]


@pytest.fixture(scope="module")
def fitted(patients):
    output = patients.parent / "fit"
    clustered = ["--inference", "clustered", "--cluster", "ward"]
    ran = SHELL.invoke(app, ["fit", str(patients), *FIT, *clustered, "--json", "-o", str(output)])
    assert ran.exit_code == 0, ran.output
    return output, json.loads(ran.stdout)


def test_fit_tells_saves_and_reports_it(fitted):
    output, told = fitted
    known = sm.GLM(
        (LABELS["logistic"] == "yes").astype(int), sm.add_constant(X[:, :2], prepend=False), sm.families.Binomial()
    ).fit(tol=1e-14, **OPTIONS["clustered"])
    np.testing.assert_allclose([row["std err"] for row in told["inference"]], known.bse, rtol=1e-6)
    assert co.Inference.load(output / "inference.json").table() == told["inference"]
    assert '<section id="inference">' in (output / "report.html").read_text()
    shown = SHELL.invoke(app, ["report", str(output)])
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
        ran = SHELL.invoke(app, ["fit", str(patients), *FIT, *flags, "-o", str(tmp_path / "fit")])
        assert isinstance(ran.exception, InvalidInput), ran.output
        assert reason in str(ran.exception)
        assert not (tmp_path / "fit").exists()


def test_a_fit_without_standard_errors_is_written_all_the_same(patients, tmp_path):
    rows = [line.split(",") for line in patients.read_text().splitlines()]
    rows[1:] = [[*row[:-1], "yes" if float(row[1]) > 50 else "no"] for row in rows[1:]]
    (tmp_path / "data.csv").write_text("\n".join(map(",".join, rows)) + "\n")
    command = ["fit", str(tmp_path / "data.csv"), *FIT, "--inference", "model", "-o", str(tmp_path / "fit")]
    ran = SHELL.invoke(app, command)
    assert "the best coefficients are infinite" in str(ran.exception)
    assert co.Result.load(tmp_path / "fit").status.success
    assert (tmp_path / "fit" / "report.html").is_file()


def test_predict_writes_probabilities_scores_ids_and_kept_columns(patients, fitted, tmp_path):
    output = tmp_path / "predictions.csv"
    flags = ["--proba", "--score", "--id", "who", "--keep", "ward", "--keep", "ill", "-o", str(output)]
    ran = SHELL.invoke(app, ["predict", str(fitted[0] / "model.npz"), str(patients), *flags])
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
    ran = SHELL.invoke(app, ["predict", str(tmp_path / "model.npz"), str(tmp_path / "new.csv"), "--proba", "--json"])
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
        ran = SHELL.invoke(app, [*command, new, *flags])
        assert isinstance(ran.exception, InvalidInput)
        assert reason in str(ran.exception)
