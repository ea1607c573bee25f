"""Tables at workers: the driver has no number of theirs, and the model is the one that tables in
this process give.
"""

from __future__ import annotations

import functools
import pickle
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import coterie as co
from coterie.data.remote_table import NotLocal, RemoteTable, keeping
from coterie.errors import CoterieError, InvalidData
from coterie.networks import star
from coterie.numerics.threads import one_blas_thread
from coterie.run.agent import AgentForm, left_there, with_data
from coterie.run.setup import make_agent
from coterie.run.site import Site, SiteForm, site_of
from tests.harness.threads import Threads
from tests.harness.worker_cases import (
    FEW,
    GRID,
    NAMES,
    NUMBERS,
    RECIPES,
    WEIGHTS,
    Case,
    N,
    X,
    plain,
    same,
)
from tests.harness.workers import Visited, Workers

SOME = [case if case in FEW else pytest.param(case, marks=pytest.mark.slow) for case in GRID]


@functools.cache
def here(case):
    with one_blas_thread():
        return case.fit("local")


def assert_same(found, expected, case, exact=True):
    """The same model, the same proof and the same predictions; to the last bit, where sums keep
    their order.
    """
    assert plain(found) == plain(expected)
    off = 0 if exact else 1e-9
    if exact:
        assert found.model.digest() == expected.model.digest()
        assert found.bill.state() == expected.bill.state()
    for own, other in zip(
        case.predictions(found.model), case.predictions(expected.model), strict=True
    ):
        assert own.dtype == other.dtype
        if own.dtype.kind == "f":
            np.testing.assert_allclose(own, other, rtol=off, atol=off)
        else:
            np.testing.assert_array_equal(own, other)
    assert found.certificate.gap == pytest.approx(expected.certificate.gap, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("case", SOME, ids=lambda case: case.id)
def test_a_model_of_tables_at_workers_is_the_model(case, tmp_path):
    with one_blas_thread():
        found = case.fit(Workers())
    assert_same(found, here(case), case)
    assert co.verify(found.certificate, found.model, case.tables()).holds
    found.save(tmp_path / "fit")
    assert_same(co.Result.load(tmp_path / "fit"), here(case), case)


VISITED = [case for case in GRID if case.kind != "personal"]
SOME_VISITED = [
    case if place % 40 == 5 else pytest.param(case, marks=pytest.mark.slow)
    for place, case in enumerate(VISITED)
]


@pytest.mark.parametrize("case", SOME_VISITED, ids=lambda case: case.id)
def test_a_model_of_tables_that_are_visited_for_every_word_is_the_model(case):
    with one_blas_thread():
        found = case.fit(Visited(), max_rounds=3)
        assert_same(found, case.fit("local", max_rounds=3), case)
    np.testing.assert_equal(
        found.certificate.witness, case.fit("local", max_rounds=3).certificate.witness
    )


# -- what is asked of a fit ------------------------------------------------------------------------

EVALUATED = [
    case
    for case in GRID
    if case.kind in ("linear", "multiclass", "survival")
    and case.loss in ("squared", "logistic", "multinomial", "cox")
    and case.weights
    and case.offset == (case.kind != "multiclass")
]


@pytest.mark.parametrize("case", EVALUATED, ids=lambda case: case.id)
def test_an_evaluation_at_workers_is_the_evaluation(case):
    model, split = here(case).model, case.split
    found = co.evaluate(model, case.sources(), split=split, engine=Workers())
    expected = co.evaluate(model, case.tables(), split=split)
    assert found.scores == pytest.approx(expected.scores, rel=1e-12)
    pooled = co.evaluate(model, [case.whole()])
    exact = {"log_loss", "brier", "rmse", "mae", "mean_loss"} & set(found.scores)
    assert {name: found.scores[name] for name in exact} == pytest.approx(
        {name: pooled.scores[name] for name in exact}
    )


PATHS = [
    Case("linear", "squared", weights=True, offset=True),
    Case("linear", "logistic", prepare=True, noisy=True),
    Case("linear", "squared", "features", weights=True, offset=True),
    Case("linear", "logistic", "features", noisy=True),
    Case("linear", "squared", "features", prepare=True),
    Case("multiclass", "multinomial", weights=True),
    Case("survival", "cox", intercept=False),
    Case("low-rank", "squared"),
]


def followed(case, data, engine):
    """A path with folds."""
    settings = {"cv": 2, "max_rounds": 8, "progress": False, "split": case.split, "engine": engine}
    if case.prepare:
        settings["prepare"] = RECIPES
    settings |= {"count": 2} if case.split == "samples" else {"strengths": [0.1, 0.01]}
    with one_blas_thread():
        return co.path(case.problem, data, **settings)


@pytest.mark.parametrize("case", PATHS, ids=lambda case: case.id)
def test_a_path_at_workers_is_the_path(case):
    found = followed(case, case.sources(), Workers())
    expected = followed(case, case.tables(), "local")
    assert found.strengths == expected.strengths
    np.testing.assert_array_equal(found.scores, expected.scores)
    assert found.validation == expected.validation
    for own, other in zip(found.results, expected.results, strict=True):
        assert_same(own, other, case)


READINGS = []


def counted(table):
    """A source that notes how often it is called."""
    READINGS.append(table.name)
    return table


class Keeping(Workers):
    """Workers that keep what they have read, as those of a cluster."""

    def held(self):
        return keeping()


def test_a_path_at_workers_reads_each_table_once():
    case = Case("linear", "logistic", noisy=True)
    READINGS.clear()
    tables = [replace(table, name=f"party {k}") for k, table in enumerate(case.tables())]
    found = followed(case, [functools.partial(counted, table) for table in tables], Keeping())
    expected = followed(case, tables, "local")
    np.testing.assert_array_equal(found.scores, expected.scores)
    assert len(READINGS) == len(tables)


def test_a_path_of_columns_at_workers_starts_from_the_model_before():
    case = Case("linear", "squared", "features", weights=True)
    found, expected = (
        co.path(case.problem, data, [0.1, 0.01], split="features", engine=engine, progress=False)
        for data, engine in ((case.sources(), Workers()), (case.tables(), "local"))
    )
    for own, other in zip(found.results, expected.results, strict=True):
        assert_same(own, other, case)


@pytest.mark.parametrize(
    "case", [Case("linear", "squared", "features"), Case("personal", "stumps", "users", False)]
)
@pytest.mark.parametrize("engine", [Workers(), Visited()], ids=["workers", "visited"])
def test_a_warm_start_at_workers_is_the_warm_start(case, engine):
    if case.kind == "personal" and isinstance(engine, Visited):
        pytest.skip("agents that wake up alone cannot be visited")
    before = case.fit("local", max_rounds=3)
    with one_blas_thread():
        found, expected = (
            case.fit(one, warm_start=before, max_rounds=2) for one in (engine, "local")
        )
    assert_same(found, expected, case)


@pytest.mark.parametrize("kind", ["model", "robust", "clustered"])
@pytest.mark.parametrize("loss", ["squared", "multinomial", "cox"])
def test_standard_errors_of_tables_at_workers_are_the_same(loss, kind):
    problem = co.Problem(loss, "none", intercept=loss != "cox")
    labels = {"squared": "linear", "multinomial": "multiclass", "cox": "survival"}
    case = Case(labels[loss], loss, weights=True, noisy=True)
    clusters = np.arange(N) % 24 if kind == "clustered" else None
    fits = [
        co.solve(problem, data, engine=engine, progress=False, tol=1e-10)
        for data, engine in ((case.sources(), Workers()), (case.tables(), "local"))
    ]
    meaning = "precision" if kind == "model" else "sampling"
    few = (
        pytest.warns(UserWarning, match="only 24 clusters")
        if kind == "clustered"
        else nullcontext()
    )
    with few:
        found, expected = (fit.inference(kind, clusters, weights=meaning) for fit in fits)
    assert str(found) == str(expected)
    np.testing.assert_allclose(found.covariance, expected.covariance, rtol=1e-9)


def test_a_description_of_tables_at_workers_is_the_same():
    case = Case("linear", "squared", prepare=True)
    tables = [replace(table, name=f"north {k}") for k, table in enumerate(case.tables())]
    sources = [functools.partial(same, table) for table in tables]
    found, expected = (
        co.describe(sources, engine=Workers(), per_party=True),
        co.describe(tables, per_party=True),
    )
    assert str(found) == str(expected)


def test_an_interrupted_run_of_columns_at_workers_goes_on_to_the_same_model(tmp_path):
    case = Case("linear", "huber", "features")
    how = {"method": "graph-cp", "tol": 1e-12, "check_every": 2}
    with one_blas_thread():
        case.fit(Workers(), max_rounds=4, checkpoint=tmp_path, **how)
        found = case.fit(Workers(), max_rounds=8, checkpoint=tmp_path, **how)
        assert_same(found, case.fit("local", max_rounds=8, **how), case)


# -- what sources may give -------------------------------------------------------------------------


def both(problem, data, **settings):
    """The results of data that is here and of the same at workers."""
    sources = [functools.partial(same, part) for part in data]
    ways = ((sources, Workers()), (data, "local"))
    return [
        co.solve(problem, given, engine=engine, progress=False, **settings)
        for given, engine in ways
    ]


@pytest.mark.parametrize(
    "labels",
    [
        np.arange(N) % 3,
        np.arange(N) % 2 == 0,
        np.array(["a", "b"])[np.arange(N) % 2],
        np.arange(N) % 2 * 1.5,
    ],
    ids=["ints", "bools", "text", "floats"],
)
def test_classes_keep_their_type(labels):
    several = len(np.unique(labels)) > 2
    problem = co.Problem("multinomial" if several else "logistic", "l2", 0.1, intercept=True)
    found, expected = both(problem, [(X[:20], labels[:20]), (X[20:], labels[20:])], max_rounds=3)
    assert found.model.classes_.dtype == expected.model.classes_.dtype == labels.dtype
    np.testing.assert_array_equal(found.model.predict(X), expected.model.predict(X))
    assert found.model.digest() == expected.model.digest()


@pytest.mark.parametrize("kind", [np.float32, "sparse", "frame", "mixed"])
@pytest.mark.parametrize("split", ["samples", "features"])
def test_tables_of_every_form_at_workers(kind, split):
    import pandas as pd

    table = co.Table(X, NUMBERS, WEIGHTS, columns=NAMES)
    parts = co.data.split(table, split, 3)
    if kind == "sparse":
        parts = [replace(part, X=sp.csr_array(part.X)) for part in parts]
    elif kind == "mixed":
        parts[1] = replace(parts[1], X=parts[1].X.astype(np.float32))
    elif kind == "frame":
        parts = [
            (pd.DataFrame(part.X, columns=part.columns), part.y, part.weights) for part in parts
        ]
        parts = [part if part[1] is not None else part[0] for part in parts]
    else:
        parts = [replace(part, X=part.X.astype(kind)) for part in parts]
    found, expected = both(
        co.Problem("squared", "l2", 0.01, intercept=True), parts, split=split, same_order=True
    )
    assert plain(found) == plain(expected)
    assert found.model.digest() == expected.model.digest()


def test_parties_are_called_alike_wherever_they_are(tmp_path):
    file = tmp_path / "north.npz"
    np.savez(file, X=X[:20], y=NUMBERS[:20])
    data = [file, co.Table(X[20:30], NUMBERS[20:30], name="south"), (X[30:], NUMBERS[30:])]
    results = both(co.Problem("squared", "l2", 0.01, intercept=True), data)
    for result in results:
        assert [participant.name for participant in result.certificate.participants] == [
            "north",
            "south",
            "party 2",
        ]


def test_a_recipe_for_a_column_that_nobody_has_is_refused_at_workers():
    case = Case("linear", "squared", "features")
    with pytest.raises(CoterieError, match="'weight'"):
        case.fit(Workers(), prepare=["weight: standardise"])


def test_errors_count_the_labels_that_workers_have():
    labels = np.array(["a", "b", "c"])[[0] * 20 + [1] * 16 + [2] * 12]
    with pytest.raises(InvalidData, match=r"'a' \(20 rows\), 'b' \(16 rows\), 'c' \(12 rows\)"):
        both(
            co.Problem("logistic", "l2", 0.1, intercept=True),
            [(X[:30], labels[:30]), (X[30:], labels[30:])],
        )


# -- what the driver has ---------------------------------------------------------------------------


def test_a_remote_table_tells_its_form_and_has_no_number():
    table = co.Table(X, NUMBERS, WEIGHTS, columns=NAMES, ids=np.arange(N), offset=NUMBERS)
    remote = RemoteTable.of(table, functools.partial(same, table))
    assert not isinstance(remote, co.Table)
    told = ("n", "d", "name", "columns", "precision", "outputs", "has_ids", "roles", "open_ended")
    for field in told:
        assert getattr(remote, field) == getattr(table, field)
    assert remote.row_values == ("weights", "offset")
    for field in ("X", "y", "weights", "offset", "ids", "texts", "take_rows", "take_columns"):
        assert not hasattr(remote, field)
    for value in vars(remote).values():
        assert not isinstance(value, np.ndarray)
    with pytest.raises(NotLocal, match="where its agent lives"):
        remote.digest()
    with pytest.raises(NotLocal, match="where its agent lives"):
        RemoteTable.of(table).read(0)
    assert pickle.loads(pickle.dumps(remote)).fetch().digest() == table.digest()


def test_a_site_has_a_table_only_where_the_table_is():
    table = co.Table(X, NUMBERS)
    form = site_of(1, 2, RemoteTable.of(table, functools.partial(same, table)))
    assert not isinstance(form, Site)
    site = with_data(form)
    assert isinstance(site, Site)
    assert site.data is table
    assert (site.index, site.count) == (1, 2)
    assert with_data(site) is site


def test_a_site_whose_table_is_left_at_a_worker_stays_a_site():
    """A conversation runs on sites, so an engine leaves the tables of sites at workers, too."""
    table = co.Table(X, NUMBERS)
    remote = RemoteTable.of(table, functools.partial(same, table))
    site = site_of(1, 2, table, secure_sums=True)
    form = left_there(site, remote)
    assert type(form) is SiteForm
    assert (form.index, form.count, form.secure_sums) == (1, 2, True)
    assert with_data(form).data is table
    agent = make_agent(1, table, np.arange(table.d), co.Problem("squared"), "samples", star(2), 0)
    form = left_there(agent, remote)
    assert type(form) is AgentForm
    assert form.data is remote


# -- real processes --------------------------------------------------------------------------------


def test_threads_with_keys_come_to_the_model_of_columns():
    case = Case("linear", "squared", "features", weights=True, offset=True)
    assert_same(case.fit(Threads(), secure_sums=False), here(case), case, exact=False)


@pytest.mark.rotates
@pytest.mark.parametrize(
    "case",
    [
        Case("linear", "squared", "features", prepare=True),
        Case("personal", "stumps", "users", False),
    ],
    ids=lambda case: case.id,
)
def test_processes_come_to_the_same_model(case):
    assert_same(case.fit("peers", secure_sums=False), here(case), case, exact=False)
