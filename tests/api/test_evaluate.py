"""Evaluation: scikit-learn's scores of the pooled rows, from sums and counts that parties tell."""

from __future__ import annotations

import functools
import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

import coterie as co
from coterie.errors import CorruptFile, InvalidData, InvalidInput, InvalidProblem, UnknownName
from coterie.networks import star
from coterie.run.bill import Bill
from coterie.run.collectives import alone
from coterie.stats.curves import Curve, curves
from coterie.transport.in_process import InProcess
from tests.harness.shell import shell

RNG = np.random.default_rng(5)
N = 600
X = RNG.standard_normal((N, 4))
SCORES = X @ [1.0, -0.7, 0.4, 0.0] + 0.3
LABELS = {
    "squared": SCORES + 0.5 * RNG.standard_normal(N),
    "logistic": np.where(RNG.random(N) < 1 / (1 + np.exp(-SCORES)), "yes", "no"),
    "poisson": RNG.poisson(np.exp(0.5 * SCORES)),
    "gamma": RNG.gamma(2.0, np.exp(0.5 * SCORES) / 2.0),
    "multinomial": np.array(["a", "b", "c"])[
        (X[:, :3] + RNG.standard_normal((N, 3))).argmax(axis=1)
    ],
}
LABELS |= dict.fromkeys(("huber", "absolute", "quantile"), LABELS["squared"])
LABELS |= dict.fromkeys(("hinge", "squared_hinge"), LABELS["logistic"])
WEIGHTS = RNG.integers(1, 4, N).astype(float)
HALF = N // 2


COEF = np.array([0.9, -0.6, 0.3, 0.1])


@functools.cache
def model(loss):
    """As if it had been fitted."""
    problem = co.Problem(
        loss, "l2", 1e-2, intercept=True, **({"level": 0.8} if loss == "quantile" else {})
    )
    if loss == "multinomial":
        return co.MulticlassModel(
            np.eye(3, 4), np.array([0.1, 0.0, -0.1]), problem, np.array(["a", "b", "c"])
        )
    steep = 0.5 if problem.loss.steep else 1.0
    classes = np.array(["no", "yes"]) if problem.loss.kind == "classification" else None
    return co.LinearModel(steep * COEF, 0.2, problem, classes)


def parties(loss, weights=None, parts=3, rows=slice(HALF, N)):
    where = np.array_split(np.arange(N)[rows], parts)
    return [(X[k], LABELS[loss][k], None if weights is None else weights[k]) for k in where]


def evaluated(loss, weights=None, **options):
    return co.evaluate(model(loss), parties(loss, weights), **options)


def pooled(loss, weights=None):
    """Rows, labels, weights, predictions."""
    held = X[HALF:]
    return (
        held,
        LABELS[loss][HALF:],
        None if weights is None else weights[HALF:],
        model(loss).predict(held),
    )


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weights"])
def test_two_classes(weights):
    found = evaluated("logistic", weights)
    held, y, s, predicted = pooled("logistic", weights)
    p, yes = model("logistic").predict_proba(held)[:, 1], y == "yes"
    expected = {
        "log_loss": metrics.log_loss(yes, p, sample_weight=s),
        "deviance": 2 * metrics.log_loss(yes, p, sample_weight=s, normalize=False),
        "explained_deviance": metrics.d2_log_loss_score(yes, p, sample_weight=s),
        "accuracy": metrics.accuracy_score(y, predicted, sample_weight=s),
        "balanced_accuracy": metrics.balanced_accuracy_score(y, predicted, sample_weight=s),
        "brier": metrics.brier_score_loss(yes, p, sample_weight=s),
        "sensitivity": metrics.recall_score(y, predicted, pos_label="yes", sample_weight=s),
        "specificity": metrics.recall_score(y, predicted, pos_label="no", sample_weight=s),
        "precision": metrics.precision_score(y, predicted, pos_label="yes", sample_weight=s),
        "f1": metrics.f1_score(y, predicted, pos_label="yes", sample_weight=s),
    }
    assert {name: found.scores[name] for name in expected} == pytest.approx(expected, rel=1e-9)
    assert found.scores["auc"] == pytest.approx(
        metrics.roc_auc_score(yes, p, sample_weight=s), abs=found.auc_bound
    )
    assert 0 < found.auc_bound <= 1e-3
    np.testing.assert_array_equal(
        found.confusion, metrics.confusion_matrix(y, predicted, sample_weight=s)
    )
    ones = np.ones(len(y)) if s is None else s
    place = np.minimum((10 * p).astype(int), 9)
    assert [one.weight for one in found.calibration] == np.bincount(
        place, ones, minlength=10
    ).tolist()
    seen = [one.weight * one.observed for one in found.calibration if one.weight]
    assert seen == pytest.approx(
        np.bincount(place, ones * yes, minlength=10)[np.bincount(place, minlength=10) > 0]
    )


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weights"])
def test_several_classes(weights):
    found = evaluated("multinomial", weights)
    held, y, s, predicted = pooled("multinomial", weights)
    p = model("multinomial").predict_proba(held)
    expected = {
        "log_loss": metrics.log_loss(y, p, sample_weight=s),
        "accuracy": metrics.accuracy_score(y, predicted, sample_weight=s),
        "balanced_accuracy": metrics.balanced_accuracy_score(y, predicted, sample_weight=s),
        "explained_deviance": metrics.d2_log_loss_score(y, p, sample_weight=s),
        "brier": np.average(((p - (y[:, None] == ["a", "b", "c"])) ** 2).sum(axis=1), weights=s),
    }
    assert {name: found.scores[name] for name in expected} == pytest.approx(expected, rel=1e-9)
    areas = [
        metrics.roc_auc_score(y == label, p[:, k], sample_weight=s) for k, label in enumerate("abc")
    ]
    assert found.scores["auc"] == pytest.approx(np.mean(areas), abs=found.auc_bound)
    assert found.auc_bound <= 1e-3
    np.testing.assert_array_equal(
        found.confusion, metrics.confusion_matrix(y, predicted, sample_weight=s)
    )
    assert set(found.roc) == {"a", "b", "c"}
    assert sum(one.weight for one in found.calibration) == found.weight


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weights"])
@pytest.mark.parametrize("loss", ["squared", "huber", "absolute", "quantile", "poisson", "gamma"])
def test_numbers(loss, weights):
    found = evaluated(loss, weights)
    _, y, s, predicted = pooled(loss, weights)
    expected = {
        "r2": metrics.r2_score(y, predicted, sample_weight=s),
        "rmse": metrics.root_mean_squared_error(y, predicted, sample_weight=s),
        "mae": metrics.mean_absolute_error(y, predicted, sample_weight=s),
        "mean_observed": np.average(y, weights=s),
        "mean_predicted": np.average(predicted, weights=s),
    }
    total = len(y) if s is None else s.sum()
    power = {"squared": 0, "poisson": 1, "gamma": 2}.get(loss)
    if power is not None:
        expected["deviance"] = total * metrics.mean_tweedie_deviance(
            y, predicted, power=power, sample_weight=s
        )
        expected["explained_deviance"] = metrics.d2_tweedie_score(
            y, predicted, power=power, sample_weight=s
        )
    if loss == "quantile":
        expected["mean_loss"] = metrics.mean_pinball_loss(y, predicted, alpha=0.8, sample_weight=s)
        expected["share_below"] = np.average(y <= predicted, weights=s)
    assert {name: found.scores[name] for name in expected} == pytest.approx(expected, rel=1e-8)
    assert sum(one.weight for one in found.calibration) == pytest.approx(total)
    assert len(found.calibration) == 10


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_classes_without_probabilities(loss):
    found = evaluated(loss)
    held, y, _, predicted = pooled(loss)
    assert found.scores["accuracy"] == metrics.accuracy_score(y, predicted)
    area = metrics.roc_auc_score(y == "yes", model(loss).decision_function(held))
    assert found.scores["auc"] == pytest.approx(area, abs=1e-3)
    assert "brier" not in found.scores
    assert not found.calibration


def test_an_offset_belongs_to_the_scores():
    exposure = RNG.uniform(0.1, 2.0, N)
    counts = RNG.poisson(exposure * np.exp(0.5 * SCORES))
    table = co.data.Table(X=X, y=counts.astype(float), offset=np.log(exposure))
    plain = model("poisson")
    with pytest.raises(InvalidData, match="the data has an offset, but the model has none"):
        co.evaluate(plain, [table])
    fitted = replace(plain, problem=plain.problem.changed(offset=True))
    found = co.evaluate(fitted, [table])
    assert found.scores == co.evaluate(fitted, (X, counts), offset=np.log(exposure)).scores
    with pytest.raises(InvalidData, match="the model has an offset, but the data has none"):
        co.evaluate(fitted, (X, counts))
    expected = plain.predict(X) * exposure
    assert found.scores["deviance"] == pytest.approx(
        N * metrics.mean_poisson_deviance(counts, expected), rel=1e-9
    )
    constant = exposure * counts.sum() / exposure.sum()
    null = N * metrics.mean_poisson_deviance(counts, constant)
    assert found.scores["null_deviance"] == pytest.approx(null, rel=1e-9)


# -- odd data --------------------------------------------------------------------------------------


def test_one_class_only():
    yes = LABELS["logistic"] == "yes"
    found = co.evaluate(model("logistic"), (X[yes], LABELS["logistic"][yes]))
    assert math.isnan(found.scores["auc"])
    assert math.isnan(found.scores["specificity"])
    assert found.scores["sensitivity"] == found.scores["accuracy"]
    assert "AUC                                          –" in str(found)
    assert not len(found.roc["yes"])


def test_constant_scores_are_ties():
    flat = co.LinearModel(
        np.zeros(4),
        0.25,
        co.Problem("logistic", "l2", 1.0, intercept=False),
        np.array(["no", "yes"]),
    )
    found = co.evaluate(flat, parties("logistic"))
    assert found.scores["auc"] == 0.5
    assert found.auc_bound == 0.0
    assert found.roc["yes"].tolist() == [[0, 0], [1, 1]]
    numbers = co.LinearModel(np.zeros(4), 2.0, co.Problem("squared", "l2", 1.0, intercept=False))
    assert sum(one.weight for one in co.evaluate(numbers, parties("squared")).calibration) == HALF


def test_few_different_scores_are_exact():
    stepped = co.LinearModel(
        np.array([1.0]), 0.0, co.Problem("logistic", "l2", 1.0, intercept=False), np.array([0, 1])
    )
    x = RNG.integers(0, 3, 200).astype(float)[:, None]
    y = RNG.integers(0, 2, 200)
    found = co.evaluate(stepped, (x, y), agents=3)
    assert found.auc_bound == 0
    assert found.scores["auc"] == pytest.approx(metrics.roc_auc_score(y, x[:, 0]), abs=1e-15)


def test_an_empty_party_changes_nothing_and_no_rows_are_refused():
    whole = evaluated("logistic")
    empty = (X[:0], LABELS["logistic"][:0])
    other = co.evaluate(model("logistic"), [*parties("logistic"), empty], per_party=True)
    assert other.scores == whole.scores
    assert len(other.parties) == 3
    with pytest.raises(InvalidData, match="no party has any rows"):
        co.evaluate(model("logistic"), [empty])


def test_labels_and_columns_that_the_model_does_not_know():
    ask = functools.partial(co.evaluate, model("logistic"))
    with pytest.raises(InvalidData, match=r"party 'party 1'.*outside the 2 classes.*'maybe'"):
        ask([parties("logistic")[0], (X[:1], ["maybe"])])
    with pytest.raises(
        InvalidData, match="the model are text, but these rows have the labels numbers"
    ):
        ask((X, np.zeros(N)))
    with pytest.raises(InvalidData, match="no labels at party"):
        ask([co.read(X)])
    with pytest.raises(InvalidData, match="model has 4 columns, but the data has 2"):
        ask((X[:, :2], LABELS["logistic"]))
    with pytest.raises(InvalidData, match="takes counts, 0 or more"):
        co.evaluate(model("poisson"), (X, -LABELS["poisson"]))
    with pytest.raises(InvalidInput, match="a model or the Result"):
        co.evaluate(3, (X, LABELS["logistic"]))
    with pytest.raises(UnknownName, match="split"):
        ask((X, LABELS["logistic"]), split="users")
    low_rank = co.solve(
        co.Problem("squared", "traceball", radius=1.0), (X, X[:, :2]), max_rounds=3, progress=False
    )
    with pytest.raises(InvalidProblem, match="of another kind"):
        co.evaluate(low_rank, (X, X[:, :2]))


def test_columns_are_found_by_name_and_sparse_rows_are_rows():
    frame = pd.DataFrame(X, columns=list("abcd"))
    fitted = co.solve(
        co.Problem("squared", "l2", 0.1, intercept=False),
        (frame, LABELS["squared"]),
        progress=False,
    ).model
    turned = co.evaluate(fitted, (frame[list("dcba")], LABELS["squared"]))
    assert turned.scores == pytest.approx(co.evaluate(fitted, (frame, LABELS["squared"])).scores)
    with pytest.raises(InvalidData, match="no column called 'd'"):
        co.evaluate(fitted, (frame[list("abc")], LABELS["squared"]))
    sparse = co.evaluate(fitted, (sp.csr_array(X), LABELS["squared"]))
    assert sparse.scores == pytest.approx(turned.scores)


@pytest.mark.parametrize("shelled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_model_with_a_preparation_takes_raw_columns(files, shelled):
    frame = pd.DataFrame({"age": X[:, 0] * 10 + 50, "city": np.where(X[:, 1] > 0, "Oslo", "Rome")})
    frame.loc[::7, "age"] = np.nan
    y = LABELS["logistic"]
    problem = co.Problem("logistic", "l2", 0.01, intercept=True)
    recipes = ["age: impute, standardise", "city: one-hot"]
    fitted = co.solve(problem, [(frame[:HALF], y[:HALF])], prepare=recipes, progress=False).model
    found = co.evaluate(fitted, [(frame[HALF:], y[HALF:])])
    p = fitted.predict_proba(frame[HALF:])[:, 1]
    assert found.scores["brier"] == pytest.approx(metrics.brier_score_loss(y[HALF:] == "yes", p))
    one = co.evaluate(fitted, (frame[HALF:], y[HALF:]), agents=3)
    there = co.evaluate(fitted, [functools.partial(tuple, [frame[HALF:], y[HALF:]])])
    assert (
        one.scores["brier"]
        == pytest.approx(there.scores["brier"])
        == pytest.approx(found.scores["brier"])
    )
    if not shelled:
        return
    fitted.save(files / "model.npz")
    frame.assign(ill=y, ward="w")[HALF:].to_csv(files / "raw.csv", index=False)
    told = json.loads(
        shell(
            "evaluate", files / "model.npz", files / "raw.csv", "--target", "ill", "--json"
        ).output
    )
    assert told["scores"]["brier"] == pytest.approx(found.scores["brier"])
    frame.assign(ill=y)[:HALF].to_csv(files / "train.csv", index=False)
    options = [
        "--target",
        "ill",
        "--loss",
        "logistic",
        "--strength",
        "0.01",
        "--intercept",
        "--json",
    ]
    options += [part for recipe in recipes for part in ("--prepare", recipe)]
    options += ["-o", files / "prepared"]
    ran = shell(
        "fit", files / "train.csv", *options, "--columns", "age,city", "--test", files / "raw.csv"
    )
    assert json.loads(ran.output)["evaluation"]["scores"]["brier"] == pytest.approx(
        found.scores["brier"], abs=1e-4
    )


# -- where parties are -----------------------------------------------------------------------------


def test_with_secure_sums_the_same():
    plain, secure = evaluated("logistic"), evaluated("logistic", secure_sums=True)
    assert secure.scores == pytest.approx(plain.scores, rel=1e-12)
    np.testing.assert_array_equal(secure.confusion, plain.confusion)
    assert secure.bill.total.bits > plain.bill.total.bits


def test_columns_at_several_parties():
    table = co.read((X[HALF:], LABELS["logistic"][HALF:]))
    found = co.evaluate(model("logistic"), co.data.split(table, "features", 3), split="features")
    whole = evaluated("logistic")
    assert found.scores == pytest.approx(whole.scores, abs=1e-9)
    named = co.read(pd.DataFrame(X, columns=list("abcd")).assign(y=LABELS["squared"]), target="y")
    fitted = co.solve(
        co.Problem("squared", "l2", 0.1, intercept=False), named, progress=False
    ).model
    first, second = named.take_columns(np.array([3, 1])), named.take_columns(np.array([0, 2]))
    parts = [first, co.Table(second.X, columns=second.columns)]
    with pytest.raises(InvalidData, match="same_order=True"):
        co.evaluate(fitted, parts, split="features")
    apart = co.evaluate(fitted, parts, split="features", same_order=True)
    assert apart.scores == pytest.approx(co.evaluate(fitted, named).scores)
    with pytest.raises(InvalidData, match="labels at no party"):
        co.evaluate(fitted, [co.Table(second.X), co.Table(first.X)], split="features")
    with pytest.raises(InvalidData, match="4 columns, but the parties have 2"):
        co.evaluate(fitted, [first], split="features")


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize("engine", ["ray", "spark", "peers"])
def test_on_every_engine_the_same(engine):
    data = parties("logistic", WEIGHTS)
    data = [functools.partial(tuple, part) for part in data] if engine != "peers" else data
    there = co.evaluate(model("logistic"), data, engine=engine, secure_sums=False, per_party=True)
    here = co.evaluate(model("logistic"), parties("logistic", WEIGHTS), per_party=True)
    assert there.scores == pytest.approx(here.scores, rel=1e-12)
    assert there.bill == here.bill
    for one, other in zip(there.parties.values(), here.parties.values(), strict=True):
        assert one == pytest.approx(other)


@pytest.mark.slow
def test_a_ray_dataset_of_fewer_blocks_than_agents_leaves_some_empty():
    pytest.importorskip("ray")
    from coterie.engines.ray import _Part

    assert _Part([], co.Rows(None, target="ill"), "party 1")().n == 0


# -- the grid --------------------------------------------------------------------------------------


@settings(max_examples=20)
@given(
    st.lists(
        st.tuples(st.floats(-1e6, 1e6), st.booleans(), st.integers(1, 3)), min_size=2, max_size=40
    ),
    st.sampled_from([1, 5]),
)
def test_the_area_is_within_its_bound(rows, minimum):
    u, yes, s = (np.array(part) for part in zip(*rows, strict=True))
    if yes.all() or not yes.any():
        return
    network = star(2, server=True)
    half = len(u) // 2
    # With a minimum, the caller knows first that the classes are not small.
    of_classes = np.array([[s[yes].sum()], [s[~yes].sum()]], float)
    known = Curve(np.array([-np.inf, np.inf]), *of_classes)
    start = None if minimum == 1 else [known]
    protocols = [
        curves([u[part]], [yes[part]], s[part].astype(float), start=start, minimum=minimum)
        for part in (slice(half), slice(half, None))
    ]
    (curve,), other = InProcess(network, Bill(network)).converse(protocols, "rounds")
    assert curve.auc == other[0].auc
    assert curve.auc == pytest.approx(
        metrics.roc_auc_score(yes, u, sample_weight=s), abs=curve.bound + 1e-12
    )
    if minimum == 1:
        assert curve.bound <= 1e-3


def test_with_little_room_the_bound_is_larger():
    u, yes = SCORES, LABELS["logistic"] == "yes"
    few = alone(curves([u], [yes], allowance=300))[0]
    many = alone(curves([u], [yes]))[0]
    assert len(few.edges) < len(many.edges)
    assert few.bound > 1e-3 >= many.bound
    assert few.auc == pytest.approx(metrics.roc_auc_score(yes, u), abs=few.bound)


def test_many_scores_need_few_numbers():
    u = RNG.standard_normal(200_000)
    yes = RNG.random(200_000) < 1 / (1 + np.exp(-2 * u))
    curve = alone(curves([u], [yes]))[0]
    assert curve.auc == pytest.approx(metrics.roc_auc_score(yes, u), abs=1e-4)
    assert len(curve.edges) < 3000


# -- doors -----------------------------------------------------------------------------------------


def test_it_is_saved_printed_and_read_again(tmp_path):
    found = evaluated("logistic", per_party=True)
    again = co.Evaluation.load(found.save(tmp_path / "evaluation.json"))
    assert again.scores == found.scores
    assert again.parties == found.parties
    np.testing.assert_array_equal(again.confusion, found.confusion)
    np.testing.assert_array_equal(again.roc["yes"], found.roc["yes"])
    assert str(again) == str(found)
    assert found.headline().startswith("AUC 0.")
    (tmp_path / "evaluation.json").write_text("{}")
    with pytest.raises(CorruptFile):
        co.Evaluation.load(tmp_path / "evaluation.json")
    numbers = evaluated("poisson")
    again = co.Evaluation.load(numbers.save(tmp_path / "numbers.json"))
    assert again.calibration == numbers.calibration
    assert "below" in str(again)


@pytest.fixture
def files(tmp_path):
    frame = pd.DataFrame(X, columns=list("abcd")).assign(ill=LABELS["logistic"], ward="w")
    for name, rows in {
        "north": slice(0, 150),
        "south": slice(150, 300),
        "new": slice(300, 600),
    }.items():
        frame[rows].to_csv(tmp_path / f"{name}.csv", index=False)
    return tmp_path


def test_fit_and_evaluate_from_the_shell(files):
    options = [
        "--target",
        "ill",
        "--loss",
        "logistic",
        "--strength",
        "0.01",
        "--intercept",
        "--columns",
        "a,b,c,d",
    ]
    north, south, new = (files / f"{name}.csv" for name in ("north", "south", "new"))
    ran = shell("fit", north, south, *options, "--test", new, "-o", files / "answer", "--json")
    assert ran.exit_code == 0, ran.output
    told = json.loads(ran.output)["evaluation"]
    ran = shell(
        "evaluate",
        files / "answer/model.npz",
        new,
        "--target",
        "ill",
        "--json",
        "-o",
        files / "new.json",
    )
    assert json.loads(ran.output)["scores"] == pytest.approx(told["scores"])
    assert (
        co.Evaluation.load(files / "new.json").confusion.tolist()
        == co.Evaluation.load(files / "answer/evaluation.json").confusion.tolist()
    )
    page = (files / "answer/report.html").read_text()
    assert "Held-out rows" in page
    assert "Held out: AUC" in page
    assert "Confusion matrix" in page
    text = shell(
        "evaluate", files / "answer/model.npz", new, south, "--target", "ill", "--per-party"
    ).output
    assert "AUC" in text
    assert "south: 150 rows" in text


@pytest.mark.slow
def test_a_report_is_written_again(files):
    options = [
        "--target",
        "ill",
        "--loss",
        "logistic",
        "--strength",
        "0.01",
        "--columns",
        "a,b,c,d",
        "--json",
    ]
    answer = files / "answer"
    told = shell(
        "fit",
        files / "north.csv",
        *options,
        "--test",
        files / "new.csv",
        "-o",
        answer,
        "--figures",
        "svg",
    )
    assert {"roc.svg", "calibration.svg"} <= {path.name for path in (answer / "figures").iterdir()}
    again = shell("report", answer, "--json")
    assert (
        json.loads(again.output)["evaluation"]["scores"]
        == json.loads(told.output)["evaluation"]["scores"]
    )
    assert "Held-out rows" in (answer / "report.html").read_text()
    shell("fit", files / "south.csv", *options, "-o", answer)
    assert "evaluation" not in json.loads(shell("report", answer, "--json").output)
    assert "Held-out rows" not in (answer / "report.html").read_text()


def test_a_share_is_held_out(files):
    options = [
        "--target",
        "ill",
        "--loss",
        "logistic",
        "--strength",
        "0.01",
        "--columns",
        "a,b,c,d",
        "--json",
    ]
    ran = shell(
        "fit",
        files / "north.csv",
        files / "south.csv",
        *options,
        "--test",
        "0.2",
        "-o",
        files / "answer",
    )
    told = json.loads(ran.output)
    assert told["evaluation"]["rows"] == 60
    held = [
        participant.rows
        for participant in co.Certificate.load(files / "answer/certificate.json").participants
    ]
    assert held == [120, 120]
    wrong = shell("fit", files / "north.csv", *options, "--test", "2", "-o", files / "answer")
    assert "between 0 and 1" in wrong.text
    wrong = shell(
        "fit", files / "north.csv", *options, "--test", "nowhere.csv", "-o", files / "answer"
    )
    assert "does not exist" in wrong.text
    wrong = shell("fit", files / "north.csv", "--target", "ill", "--users", "ward", "--test", "0.2")
    assert "leave it out for a model per user" in wrong.text
