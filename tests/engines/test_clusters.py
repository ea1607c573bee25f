"""Real clusters: every method ends with the same model and the same bill on Ray, Spark and MPI as
in one process, and whoever is killed on the way is named, or the run goes on from its checkpoint to
the same iterate.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import coterie as co
from coterie.data.remote import table_of
from coterie.engines.sealed import pack
from coterie.engines.spark_session import session as spark_session
from coterie.engines.worker_connections import WorkerConnections, serve
from coterie.numerics.threads import one_blas_thread
from tests.harness import cluster_cases
from tests.harness.cluster_cases import LOADERS, Murder, fit, loaded_fit, long_fit, names, summary
from tests.harness.clusters import MPI_ENVIRONMENT, ROOT, mpiexec, needs
from tests.harness.worker_cases import CLUSTER, told

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("clusters"), pytest.mark.timeout(600)]


@functools.cache
def embedded(name):
    with one_blas_thread():  # as each of the processes has
        return summary(fit(name, "local"))


def assert_alike(found, expected):
    """The same model to 1e-10 (in fact to the last bit, where sums keep their order) and the same
    bill.
    """
    assert found["status"] == expected["status"]
    assert found["changed"] == expected["changed"]
    assert found["bill"] == expected["bill"]
    np.testing.assert_allclose(found["coefficients"], expected["coefficients"], rtol=0, atol=1e-10)
    np.testing.assert_allclose(found["gaps"], expected["gaps"], rtol=1e-6, atol=1e-10)
    assert len(found["witness"]) == len(expected["witness"])
    for own, other in zip(found["witness"], expected["witness"], strict=True):
        np.testing.assert_allclose(own, other, rtol=0, atol=1e-9)
    if expected["covariance"] is not None:
        np.testing.assert_array_equal(found["covariance"], expected["covariance"])


# -- one engine each, started once -----------------------------------------------------------------


@pytest.fixture(scope="module")
def on_mpi(tmp_path_factory):
    """All cases in one mpiexec: starting ranks takes longer than running them."""
    file = tmp_path_factory.mktemp("mpi") / "results.pickle"
    process = mpiexec(3, "-m", "tests.harness.cluster_cases", str(file), *names())
    output, errors = process.communicate(timeout=500)
    assert process.returncode == 0, output + errors
    return pickle.loads(file.read_bytes())


ONE_OF_EACH = (
    "proximal-2",
    "graph-cp",
    "vrd2",
    "dfw-subspace",
    "newton",
    "global",
    "an empty party",
    "standard errors",
    "prepared where it lies",
)
"""A method of every family. The others run in `make test-slow`; MPI, whose runs cost least, takes
all of them.
"""
SOME_CASES = [
    name if name in ONE_OF_EACH else pytest.param(name, marks=pytest.mark.slow) for name in names()
]


@needs("ray")
@pytest.mark.parametrize("name", SOME_CASES)
def test_ray_is_like_one_process(name, on_ray):
    assert_alike(summary(fit(name, on_ray)), embedded(name))


@needs("spark")
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if n == "dfw-subspace" else n for n in SOME_CASES],
)  # low-rank estimators are fitted on Spark below
def test_spark_is_like_one_process(name, on_spark):
    assert_alike(summary(fit(name, on_spark)), embedded(name))


@needs("spark")
def test_spark_without_barrier_stages_is_like_one_process(on_spark):
    few = {"agents": 2, "max_rounds": 2, "check_every": 2, "method": "consensus", "progress": False}
    data = cluster_cases.X, cluster_cases.NUMBERS
    found = co.solve(cluster_cases.LINEAR, data, engine=replace(on_spark, barrier=False), **few)
    assert_alike(summary(found), summary(co.solve(cluster_cases.LINEAR, data, **few)))


@needs("spark")
def test_a_description_without_barrier_stages_is_like_one_process(on_spark):
    X = cluster_cases.X
    data = [co.Table(X[:20]), co.Table(X[20:])]
    found = co.describe(data, engine=replace(on_spark, barrier=False))
    expected = co.describe(data)
    assert found.summary() == expected.summary()
    assert found.bill.state() == expected.bill.state()


@needs("mpi")
@pytest.mark.parametrize("name", names())
def test_mpi_is_like_one_process(name, on_mpi):
    assert_alike(on_mpi[name], embedded(name))


# -- the pages of the guide ------------------------------------------------------------------------


def commands_of(page):
    """What a page of the guide shows: how to fit patients.csv."""
    text = (ROOT / "docs/engines" / f"{page}.md").read_text().replace("\\\n", "")
    found = re.findall(r"^\$ (.*coterie fit patients.csv.*)$", text, re.MULTILINE)
    assert found, f"{page}.md shows none"
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(one, marks=needs(page))
        for page in ("mpi", "ray", "spark")
        for one in commands_of(page)
    ],
    ids=lambda command: (
        " ".join(command.partition("coterie")[0].split()) + command.partition("--engine")[2]
    ),
)
def test_the_command_of_an_engines_page_runs_as_it_is_written(command, tmp_path):
    if (
        "setarch" in command
        and subprocess.run("setarch -R true", shell=True, capture_output=True).returncode
    ):
        pytest.skip("setarch -R is not allowed here")
    table = np.column_stack([cluster_cases.X, cluster_cases.SIGNS])
    np.savetxt(
        tmp_path / "patients.csv",
        table,
        "%.17g",
        ",",
        header="a,b,c,d,e,f,g,h,i,j,ill",
        comments="",
    )
    environment = {
        **os.environ,
        **MPI_ENVIRONMENT,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    ended = subprocess.run(
        command,
        shell=True,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = co.Result.load(tmp_path / "coterie-fit")
    agents = re.search(r"--agents (\d+)", command)
    patients = co.read(tmp_path / "patients.csv", target="ill")
    expected = co.solve(
        co.Problem("logistic", "l1", 0.01, intercept=False),
        patients,
        agents=int(agents[1]) if agents else None,
    )
    np.testing.assert_allclose(found.model.coef_, expected.model.coef_, rtol=0, atol=1e-10)
    assert found.bill == expected.bill


# -- data that stays at the workers ----------------------------------------------------------------


@functools.cache
def embedded_loaded(split):
    return loaded_fit(split, "local")


def assert_loaded_alike(found, split):
    expected = embedded_loaded(split)
    assert_alike(summary(found) if isinstance(found, co.Result) else found, summary(expected))
    if isinstance(found, co.Result):
        assert found.certificate.data_digest == expected.certificate.data_digest
        assert found.model.classes_.tolist() == ["no", "yes"]
        assert co.verify(found.certificate, found.model, LOADERS[split]).holds


@pytest.mark.parametrize("split", ["samples", "features"])
@pytest.mark.parametrize(
    "engine", [pytest.param("ray", marks=needs("ray")), pytest.param("spark", marks=needs("spark"))]
)
def test_loaders_are_called_where_agents_live(engine, split, request):
    assert_loaded_alike(loaded_fit(split, request.getfixturevalue(f"on_{engine}")), split)


@needs("mpi")
def test_loaders_are_called_at_their_rank(on_mpi):
    for split in LOADERS:
        assert_loaded_alike(on_mpi[split], split)
    assert REFUSAL.search(on_mpi["refusal"])


@functools.cache
def told_here(case):
    with one_blas_thread():
        return told(case, case.fit("local"))


def assert_told_alike(found, case):
    """The same names and counts, and the same predictions."""
    expected = told_here(case)
    assert found[0] == expected[0]
    for own, other in zip(found[1], expected[1], strict=True):
        assert own.dtype == other.dtype
        if own.dtype.kind == "f":
            np.testing.assert_allclose(own, other, atol=1e-9)
        else:
            np.testing.assert_array_equal(own, other)


@pytest.mark.parametrize(
    "case",
    [CLUSTER[0], *(pytest.param(case, marks=pytest.mark.slow) for case in CLUSTER[1:])],
    ids=lambda case: case.id,
)
@pytest.mark.parametrize(
    "engine", [pytest.param("ray", marks=needs("ray")), pytest.param("spark", marks=needs("spark"))]
)
def test_a_model_of_tables_at_workers_is_the_model(engine, case, request):
    found = case.fit(request.getfixturevalue(f"on_{engine}"), secure_sums=False)
    assert_told_alike(told(case, found), case)


@needs("mpi")
@pytest.mark.parametrize("case", CLUSTER, ids=lambda case: case.id)
def test_a_model_of_tables_at_ranks_is_the_model(case, on_mpi):
    assert_told_alike(on_mpi[case.id], case)


@needs("spark")
@pytest.mark.slow
def test_a_model_of_columns_that_every_job_reads_again_is_the_model(on_spark):
    case = CLUSTER[0]
    found = case.fit(replace(on_spark, barrier=False), max_rounds=2)
    expected = case.fit("local", max_rounds=2)
    np.testing.assert_allclose(
        case.predictions(found.model), case.predictions(expected.model), atol=1e-9
    )


REFUSAL = re.compile(r"party 'party 0': column 2 has 1 value that is not finite \(first at row 3\)")


@pytest.mark.parametrize(
    "engine", [pytest.param("ray", marks=needs("ray")), pytest.param("spark", marks=needs("spark"))]
)
def test_bad_data_at_a_worker_names_the_party(engine, request):
    sources = [replace(LOADERS["samples"][0], spoilt=True), *LOADERS["samples"][1:]]
    with pytest.raises(co.CoterieError, match=REFUSAL):
        co.solve(cluster_cases.OF_TEXT, sources, engine=request.getfixturevalue(f"on_{engine}"))


def frame_problem():
    return co.Problem("squared", "l2", 0.05, intercept=True)


@needs("spark")
@pytest.mark.parametrize("columns", ["plain", "vectors"])
def test_a_spark_frame_is_fitted_where_it_lies(columns, on_spark):
    from pyspark.ml.linalg import Vectors

    session = spark_session()
    X, y = cluster_cases.X, cluster_cases.NUMBERS
    if columns == "plain":
        names = [f"x{j}" for j in range(X.shape[1])]
        rows = [(*map(float, x), float(label)) for x, label in zip(X, y, strict=True)]
        frame = session.createDataFrame(rows, [*names, "y"])
        data = co.Rows(frame.coalesce(2), target="y")
    else:
        rows = [(Vectors.dense(x), float(label)) for x, label in zip(X, y, strict=True)]
        data = co.Rows(
            session.createDataFrame(rows, ["x", "y"]).coalesce(2), target="y", columns="x"
        )
    found = co.solve(frame_problem(), data, engine=on_spark, tol=1e-9)
    pooled = co.solve(frame_problem(), (X, y), agents=2, tol=1e-9)
    assert found.status == "optimal"
    assert sum(p.rows for p in found.certificate.participants) == len(X)
    np.testing.assert_allclose(found.model.coef_, pooled.model.coef_, atol=1e-5)
    assert found.model.columns == (tuple(names) if columns == "plain" else None)


LOW_RANK = {"method": "dfw-trace", "max_rounds": 8, "tol": 1e-13}
LOW_RANK_RUN = {**LOW_RANK, "max_rounds": 40, "check_every": 5}
CLASSES = np.array(["low", "middle", "high"])[np.digitize(cluster_cases.NUMBERS, [-1.0, 1.0])]


def low_rank_frame(spoilt=None):
    """Two partitions with a column of vectors and several of labels, and the same rows as
    arrays.
    """
    from pyspark.ml.linalg import Vectors

    session = spark_session()
    X, Y = cluster_cases.X.copy(), cluster_cases.PAIRS
    if spoilt == "nan":
        X[30, 4] = np.nan
    rows = [
        (Vectors.dense(x), *map(float, y), y.tolist(), str(label))
        for x, y, label in zip(X, Y, CLASSES, strict=True)
    ]
    halves = [rows[:24], rows[24:] if spoilt != "empty" else []]
    there = session.sparkContext.parallelize(halves, 2).flatMap(list)
    frame = session.createDataFrame(there, ["x", "a", "b", "ab", "label"])
    return frame, [X[:24], X[24:]]


def low_rank_expected():
    """What a run of `LOW_RANK_RUN` comes to in one process."""
    halves = zip(np.split(cluster_cases.X, 2), np.split(cluster_cases.PAIRS, 2), strict=True)
    return co.solve(cluster_cases.LOW_RANK, [*halves], **LOW_RANK_RUN)


@needs("spark")
@pytest.mark.parametrize(
    "target", [["a", "b"], pytest.param("ab", marks=pytest.mark.slow), "label"]
)
def test_low_rank_estimators_fit_a_spark_frame_where_it_lies(target, on_spark):
    frame, halves = low_rank_frame()
    classes = target == "label"
    labels = np.split(CLASSES if classes else cluster_cases.PAIRS, 2)
    estimator = (co.LowRankClassifier if classes else co.LowRankRegressor)(
        3.0, engine=on_spark, **LOW_RANK
    )
    given = (
        (frame.select("x", *target), target)
        if target == ["a", "b"]
        else (co.Rows(frame, target, columns="x"),)
    )
    with pytest.warns(ConvergenceWarning, match="iteration_limit"):
        estimator.fit(*given)
    problem = co.Problem(
        "multinomial" if classes else "squared", "traceball", radius=3.0, intercept=True
    )
    expected = co.solve(problem, [*zip(halves, labels, strict=True)], **LOW_RANK)
    np.testing.assert_allclose(estimator.coef_, expected.model.coef_.T, rtol=0, atol=1e-10)
    assert estimator.bill_ == expected.bill
    assert estimator.certificate_.data_digest == expected.certificate.data_digest
    assert estimator.n_features_in_ == 10
    found, known = estimator.predict(cluster_cases.X), expected.model.predict(cluster_cases.X)
    np.testing.assert_array_equal(found, known) if classes else np.testing.assert_allclose(
        found, known, atol=1e-9
    )


@needs("spark")
@pytest.mark.slow
def test_linear_estimators_fit_a_spark_frame_where_it_lies(on_spark):
    frame, _ = low_rank_frame()
    labels = np.where(CLASSES == "low", "low", "other")
    two = frame.selectExpr("x", "if(label = 'low', 'low', 'other') as label")
    found = co.LinearClassifier(engine=on_spark, agents=2).fit(two.repartition(1), "label")
    expected = co.LinearClassifier().fit(cluster_cases.X, labels)
    assert found.classes_.tolist() == ["low", "other"]
    np.testing.assert_allclose(
        found.decision_function(cluster_cases.X),
        expected.decision_function(cluster_cases.X),
        atol=0.05,
    )
    regressor = co.LinearRegressor(engine=on_spark, alpha=0.1, tol=1e-9).fit(
        frame.select("x", "a"), "a"
    )
    pooled = co.LinearRegressor(alpha=0.1, tol=1e-9).fit(cluster_cases.X, cluster_cases.PAIRS[:, 0])
    np.testing.assert_allclose(regressor.coef_, pooled.coef_, atol=1e-3)
    assert regressor.intercept_ == pytest.approx(pooled.intercept_, abs=1e-3)


@needs("spark")
@pytest.mark.slow
def test_partitions_of_a_spark_frame_are_no_strata(on_spark):
    """Two partitions, one baseline hazard: the model is that of all rows."""
    times = co.survival_labels(np.arange(1.0, 49.0), np.arange(48) % 3 > 0)
    rows = [(x.tolist(), *y) for x, y in zip(cluster_cases.X, times.tolist(), strict=True)]
    frame = spark_session().createDataFrame(rows, ["x", "days", "died"]).repartition(2)
    found = co.CoxRegressor(engine=on_spark, alpha=0.1, tol=1e-9).fit(
        co.Rows(frame, ["days", "died"], columns="x")
    )
    expected = co.CoxRegressor(alpha=0.1, tol=1e-9).fit(cluster_cases.X, times)
    np.testing.assert_allclose(found.coef_, expected.coef_, atol=1e-6)


@needs("spark")
@pytest.mark.parametrize(
    ("spoilt", "told"),
    [
        ("nan", "party 'partition 1': column 4 has 1 value that is not finite"),
        ("empty", "'partition 1' has no rows"),
    ],
)
def test_a_bad_partition_is_named(spoilt, told, on_spark):
    frame, _ = low_rank_frame(spoilt)
    with pytest.raises(co.CoterieError, match=told):
        co.LowRankRegressor(3.0, engine=on_spark).fit(co.Rows(frame, ["a", "b"], columns="x"))


@needs("ray")
def test_a_ray_dataset_is_fitted_where_it_lies(on_ray):
    import ray

    fit("cocoa", on_ray)
    X, y = cluster_cases.X, cluster_cases.NUMBERS
    rows = [{"x": x.tolist(), "y": float(label)} for x, label in zip(X, y, strict=True)]
    data = co.Rows(ray.data.from_items(rows), target="y", columns="x")
    found = co.solve(frame_problem(), data, engine=on_ray, agents=3, tol=1e-9)
    pooled = co.solve(frame_problem(), (X, y), agents=3, tol=1e-9)
    assert [p.rows for p in found.certificate.participants] == [16, 16, 16]
    np.testing.assert_allclose(found.model.coef_, pooled.model.coef_, atol=1e-5)


@needs("ray")
@pytest.mark.parametrize("kind", [pytest.param("ndarray", marks=pytest.mark.slow), "csr"])
def test_tensors_sparse_vectors_and_single_precision_come_through_ray(kind, on_ray, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq
    import ray

    X = np.random.default_rng(1).random((60, 40)).astype(np.float32)
    X *= X < 0.1
    y = (X[:, :9].sum(axis=1) > 0) * 1.0
    single = pa.struct(
        [
            ("size", pa.int32()),
            ("indices", pa.list_(pa.int32())),
            ("values", pa.list_(pa.float32())),
        ]
    )
    vectors = [
        {"size": 40, "indices": np.flatnonzero(row).tolist(), "values": row[row > 0].tolist()}
        for row in X
    ]
    fit("cocoa", on_ray)  # whose actors wait, and occupy all processors
    if kind == "ndarray":
        frame = ray.data.from_items(
            [{"x": row, "y": label} for row, label in zip(X, y.tolist(), strict=True)]
        )
    else:
        pq.write_table(
            pa.table({"x": pa.array(vectors, single), "y": y}),
            tmp_path / "rows.parquet",
            row_group_size=20,
        )
        frame = ray.data.read_parquet(tmp_path / "rows.parquet")
    data = co.Rows(frame, target="y", columns="x")
    engine, sources = on_ray.hosting(data, 3)
    with engine.held():
        kinds = engine.ask([functools.partial(cluster_cases.kind_of, source) for source in sources])
    assert kinds == [(kind, "float32")] * 3
    problem = co.Problem("logistic", "l2", 0.01, intercept=False)
    found = co.solve(problem, data, engine=on_ray, agents=3, tol=1e-8)
    pooled = co.solve(problem, (X, y), agents=3, tol=1e-8)
    np.testing.assert_allclose(found.model.coef_, pooled.model.coef_, atol=1e-5)


@needs("ray")
def test_a_ray_dataset_is_read_once_by_the_actors_that_run(on_ray):
    import ray

    fit("cocoa", on_ray)
    frame = ray.data.from_items([{"x": float(k), "y": float(k % 5)} for k in range(40)])
    engine, sources = on_ray.hosting(co.Rows(frame, target="y"), 3)
    with engine.held():
        first, second = (
            engine.ask([functools.partial(cluster_cases.seen, source) for source in sources])
            for _ in range(2)
        )
        assert first == second  # the same arrays in the same processes
        assert len({pid for pid, _ in first}) == 2
    assert len(on_ray._actors) == 2
    assert ray.get(on_ray._actors[0].pid.remote()) == first[0][0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "engine", [pytest.param("ray", marks=needs("ray")), pytest.param("spark", marks=needs("spark"))]
)
def test_raw_columns_of_a_frame_are_prepared_where_they_lie(engine, request):
    import pandas as pd

    runner = request.getfixturevalue(f"on_{engine}")
    fit("cocoa", runner)
    towns = np.array(list("abc") * 16)
    frame = pd.DataFrame({"x": cluster_cases.X[:, 0], "town": towns, "y": cluster_cases.NUMBERS})
    frame.loc[::5, "x"] = np.nan
    recipes = ["impute, standardise", "one-hot"]
    if engine == "ray":
        import ray

        rows = co.Rows(ray.data.from_pandas(frame), target="y")
    else:
        from pyspark.sql import SparkSession

        made = SparkSession.builder.getOrCreate().createDataFrame(frame.to_dict("records"))
        rows = co.Rows(made.coalesce(2), target="y", columns=["x", "town"])
    found = co.solve(frame_problem(), rows, engine=runner, agents=2, prepare=recipes, tol=1e-9)
    pooled = co.solve(
        frame_problem(), (frame[["x", "town"]], frame["y"]), agents=2, prepare=recipes, tol=1e-9
    )
    assert found.model.columns == pooled.model.columns
    np.testing.assert_allclose(found.model.coef_, pooled.model.coef_, atol=1e-6)
    assert found.bill.per_purpose["preparation"] == pooled.bill.per_purpose["preparation"]


# -- somebody is killed ----------------------------------------------------------------------------


@functools.cache
def undisturbed():
    return long_fit("local")


def assert_resumed(result):
    np.testing.assert_allclose(result.model.coef_, undisturbed().model.coef_, rtol=0, atol=1e-12)
    assert result.status == "iteration_limit"
    assert result.bill == undisturbed().bill


MANY = 5000
"""Rounds of a run that must not be over before its worker is killed: the callback is a process
away.
"""


def assert_lost(result, who):
    assert result.status == "party_lost"
    assert re.fullmatch(f"({who}) stopped answering: .* (died|failed).", str(result.error))
    assert 0 < result.certificate.gap == result.history.gap.min()
    assert co.verify(
        result.certificate, result.model, (cluster_cases.X, cluster_cases.NUMBERS)
    ).holds


def actor_of_place_1(engine):
    """The number of the process in which agents 2 and 3 will live."""
    import ray

    long_fit(engine, 1)
    return ray.get(engine._actors[1].pid.remote())


@pytest.mark.rotates
@needs("ray")
@pytest.mark.chaos
def test_ray_goes_on_when_an_actor_is_killed(on_ray, tmp_path):
    pid = actor_of_place_1(on_ray)
    murder = Murder(lambda: pid)
    assert_resumed(long_fit(on_ray, checkpoint=tmp_path, callback=murder))
    assert murder.done


@pytest.mark.rotates
@needs("ray")
@pytest.mark.chaos
def test_ray_names_the_actor_that_was_killed(on_ray):
    pid = actor_of_place_1(on_ray)
    assert_lost(long_fit(on_ray, MANY, callback=Murder(lambda: pid)), "agent 2 and agent 3")


def children(pid):
    """The numbers of the processes that this process started."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = status.read_text().rpartition(")")[2].split()
            if int(fields[1]) == pid:
                found.append(int(status.parent.name))
    return found


def descendants(pid):
    return [below for child in children(pid) for below in (child, *descendants(child))]


def command_line(pid):
    return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")


def sockets(pid):
    """How many connections a process has."""
    links = Path(f"/proc/{pid}/fd").iterdir()
    return sum(link.is_symlink() and str(link.readlink()).startswith("socket:") for link in links)


def spark_worker():
    """A Python process of Spark that has agents: of those forked, one that works. Others wait to be
    used again.
    """
    daemon = next(pid for pid in descendants(os.getpid()) if "pyspark.daemon" in command_line(pid))
    before, until = {pid: ticks(pid) for pid in children(daemon)}, time.monotonic() + 2.0
    spent = dict.fromkeys(before, 0)
    while (
        max(spent.values()) < 10 and time.monotonic() < until
    ):  # on a busy machine, work takes its time to begin
        time.sleep(0.05)
        spent = {pid: ticks(pid) - before[pid] for pid in before}
    return max(before, key=lambda pid: (spent[pid], sockets(pid)))


def ticks(pid):
    """The processor time that a process has used."""
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))


@pytest.mark.rotates
@needs("spark")
@pytest.mark.chaos
def test_spark_goes_on_when_a_python_worker_is_killed(on_spark, tmp_path):
    murder = Murder(spark_worker)
    assert_resumed(long_fit(on_spark, checkpoint=tmp_path, callback=murder))
    assert murder.done


@pytest.mark.rotates
@needs("spark")
@pytest.mark.chaos
def test_a_low_rank_fit_of_a_spark_frame_goes_on_when_a_python_worker_is_killed(on_spark, tmp_path):
    frame, _ = low_rank_frame()
    murder = Murder(spark_worker, round=15)
    rows = co.Rows(frame, ["a", "b"], columns="x")
    found = co.solve(
        cluster_cases.LOW_RANK,
        rows,
        engine=on_spark,
        checkpoint=tmp_path,
        callback=murder,
        **LOW_RANK_RUN,
    )
    expected = low_rank_expected()
    assert murder.done
    np.testing.assert_allclose(found.model.coef_, expected.model.coef_, rtol=0, atol=1e-12)
    assert found.bill == expected.bill


@pytest.mark.rotates
@needs("spark")
@pytest.mark.chaos
def test_spark_names_the_worker_that_was_killed(on_spark):
    result = long_fit(on_spark, MANY, callback=Murder(spark_worker))
    assert_lost(result, "agent 0 and agent 1|agent 2 and agent 3")


EXECUTORS = """
import os, pickle, shutil, sys
from pathlib import Path
import pyspark
from pyspark.sql import SparkSession
from tests.harness.cluster_cases import LOW_RANK, Murder
from tests.engines.test_clusters import LOW_RANK_RUN, command_line, descendants, low_rank_frame
import coterie as co
from coterie.engines.spark import Spark
from coterie.engines.spark_session import SETTINGS, prepare_environment

def executor():
    return max(pid for pid in descendants(os.getpid()) if "CoarseGrainedExecutorBackend" in command_line(pid))

folder = Path(sys.argv[1])
prepare_environment()
builder = SparkSession.builder.master("local-cluster[2,1,1024]")
for name, value in SETTINGS.items():
    builder = builder.config(name, value)
session = builder.getOrCreate()
session.sparkContext.setLogLevel("OFF")
frame, _ = low_rank_frame()
results = []
for settings in ({"checkpoint": folder / "saved"}, {}):
    murder = Murder(executor, round=15)
    rows = co.Rows(frame, ["a", "b"], columns="x")
    result = co.solve(LOW_RANK, rows, engine=Spark(deadline=20.0), callback=murder, **LOW_RANK_RUN, **settings)
    assert murder.done
    results.append(result)
(folder / "results.pickle").write_bytes(pickle.dumps(results))
logs = Path(pyspark.__file__).parent / "work" / session.sparkContext.applicationId
session.stop()
shutil.rmtree(logs, ignore_errors=True)
"""


@needs("spark")
@pytest.mark.slow
@pytest.mark.chaos
def test_a_low_rank_fit_of_a_spark_frame_goes_on_when_an_executor_is_killed(tmp_path):
    """Executors that are processes of their own, each a Java machine with a worker of Python."""
    script = [sys.executable, "-c", EXECUTORS, str(tmp_path)]
    ended = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert ended.returncode == 0, ended.stderr
    resumed, lost = pickle.loads((tmp_path / "results.pickle").read_bytes())
    assert lost.status == "party_lost"
    assert re.fullmatch(
        r"partition [01] stopped answering: its (task failed|Python process died)\.",
        str(lost.error),
    )
    assert 0 < lost.certificate.gap < np.inf
    expected = low_rank_expected()
    np.testing.assert_allclose(resumed.model.coef_, expected.model.coef_, rtol=0, atol=1e-12)
    assert resumed.status == expected.status
    assert resumed.bill == expected.bill


MPI_SCRIPT = """
import os, pickle, signal, sys
from pathlib import Path
from tests.harness.cluster_cases import Murder, long_fit
from coterie.transport import watchdog
from coterie.engines.mpi import Mpi, _world

def endless(name, value, round):
    while round >= 60:
        pass

folder, checkpoint, fate = Path(sys.argv[1]), sys.argv[2] == "checkpoint", sys.argv[3]
settings = {"checkpoint": folder / "saved"} if checkpoint else {}
if fate != "peaceful" and _world().rank == 1:
    how = {"deadly": signal.SIGKILL, "frozen": signal.SIGSTOP}
    settings["callback"] = endless if fate == "endless" else Murder(os.getpid, how=how[fate])
watchdog.LONG = 1
deadline = 4.0 if fate in ("frozen", "endless") else 60.0
result = long_fit(Mpi(deadline=deadline), **settings)
if Mpi().writes_output:
    (folder / "result.pickle").write_bytes(pickle.dumps(result))
"""


def mpi_fit(folder, *words, flags=()):
    process = mpiexec(2, "-c", MPI_SCRIPT, str(folder), *words, flags=flags)
    try:
        output, errors = process.communicate(timeout=280)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, output + errors


def mpi_result(folder):
    return pickle.loads((folder / "result.pickle").read_bytes())


@pytest.mark.rotates
@needs("mpi")
@pytest.mark.chaos
def test_mpi_goes_on_when_it_is_started_again(tmp_path):
    code, output = mpi_fit(tmp_path, "checkpoint", "deadly")
    assert code != 0
    assert re.search(r"rank 1|,1\]", output)
    assert not (tmp_path / "result.pickle").exists()
    code, output = mpi_fit(tmp_path, "checkpoint", "peaceful")
    assert code == 0, output
    assert_resumed(mpi_result(tmp_path))


@pytest.mark.rotates
@needs("mpi")
@pytest.mark.chaos
def test_mpi_that_survives_names_the_rank_that_was_killed(tmp_path):
    _, output = mpi_fit(tmp_path, "none", "deadly", flags=["--with-ft", "ulfm"])
    assert (tmp_path / "result.pickle").exists(), output
    assert_lost(mpi_result(tmp_path), "agent 2 and agent 3")


FROZEN = (
    "agent 2 and agent 3 stopped answering: rank 1 sent no message for 4 seconds (the deadline "
    "is 4)."
)


@pytest.mark.rotates
@needs("mpi")
@pytest.mark.chaos
def test_mpi_names_the_rank_that_is_frozen_and_goes_on_when_it_is_started_again(tmp_path):
    code, output = mpi_fit(tmp_path, "checkpoint", "frozen")
    assert code == co.Status.PARTY_LOST.exit_code
    assert f"PartyLost: {FROZEN}" in output
    assert not (tmp_path / "result.pickle").exists()
    code, output = mpi_fit(tmp_path, "checkpoint", "peaceful")
    assert code == 0, output
    assert_resumed(mpi_result(tmp_path))


@pytest.mark.rotates
@needs("mpi")
@pytest.mark.chaos
def test_mpi_that_survives_a_frozen_rank_ends_with_the_best_so_far(tmp_path):
    code, output = mpi_fit(tmp_path, "none", "frozen", flags=["--with-ft", "ulfm"])
    assert code == co.Status.PARTY_LOST.exit_code
    assert (tmp_path / "result.pickle").exists(), output
    result = mpi_result(tmp_path)
    assert (result.status, str(result.error)) == ("party_lost", FROZEN)
    assert 0 < result.certificate.gap == result.history.gap.min()


@pytest.mark.rotates
@needs("mpi")
@pytest.mark.chaos
def test_mpi_names_the_rank_that_never_ends(tmp_path):
    code, output = mpi_fit(tmp_path, "none", "endless")
    assert code == co.Status.PARTY_LOST.exit_code
    assert (
        "agent 2 and agent 3 stopped answering: rank 1 has been computing for more than 4 seconds"
        in output
    )


MPI_MISUNDERSTANDING = """
import sys
import numpy as np
import coterie as co
from coterie.run.bill import Bill
from coterie.transport.driver import Driver
from coterie.transport.mpi_collectives import MpiCollectives
from coterie.engines.mpi import _end_all, _world

def words(rank):
    yield co.Sum(np.ones(3))
    yield co.Sum(np.ones(3)) if rank else co.Mix(np.ones(3))

def sizes(rank):
    for size in (5, 6, 6 if rank else 5):
        yield co.Sum(np.ones(size))

world, path, talk = _world(), co.networks.path(2), {"words": words, "sizes": sizes}[sys.argv[1]]
Driver(Bill(path), MpiCollectives(path, world, [0, 1], None, 4.0, _end_all)).converse([talk(world.rank)], "rounds")
"""


@needs("mpi")
@pytest.mark.parametrize(
    ("differing", "said"),
    [
        (
            "words",
            (
                "agent 0 yielded Mix (step 2, rounds) of 3 numbers; agent 1 yielded Sum (step 2, "
                "rounds) of "
                "3 numbers"
            ),
        ),
        (
            "sizes",
            (
                "agent 0 yielded Sum (step 3, rounds) of 5 numbers; agent 1 yielded Sum (step 3, "
                "rounds) of "
                "6 numbers"
            ),
        ),
    ],
)
def test_mpi_names_ranks_that_wait_for_each_other(differing, said):
    process = mpiexec(2, "-c", MPI_MISUNDERSTANDING, differing)
    _, errors = process.communicate(timeout=280)
    assert process.returncode == co.Status.PROTOCOL_ERROR.exit_code
    assert said in errors


MPI_WORDS = """
import sys
import numpy as np
import coterie as co
from coterie.run.bill import Bill
from coterie.transport.in_process import InProcess
from coterie.transport.driver import Driver
from coterie.transport.mpi_collectives import MpiCollectives
from coterie.engines.mpi import _end_all, _world
from coterie.engines.processes import assigned
from coterie.networks import complete, expander, ring, star
from coterie.run.collectives import Exchange, Mix, Sum

world, MANY = _world(), 2**24 + 1  # the first round that float32 does not have

def ranks(network, judge):
    mpi = MpiCollectives(network, world, assigned(network.agents, world.size), None, 30.0, judge)
    return Driver(Bill(network), mpi)

def words(agent, network, dtype):
    rng, heard = np.random.default_rng(agent), []
    for size in (0, 1, 5, 500, 4096, 16391, 5):
        x = (rng.standard_normal(size) * 10.0 ** rng.integers(-8, 8)).astype(dtype)
        heard.append((yield Sum(x.reshape(1, size))))
        if not network.server:
            heard.append((yield Mix(x, "laplacian")))
            heard.append((yield Mix(x.reshape(size, 1))))
            heard += (yield Exchange(x[:agent])).values()
    return heard

def until_told(transport, dtype):
    def say():
        yield (Sum if transport.network.server else Mix)(np.ones(2, dtype))
    for t in range(50):
        mine = {0: 2 if t >= 4 else 0, 2: 1}.get(transport.process, 0)
        if reason := transport.agreed(MANY + t, mine):
            return t, reason
        transport.converse([say() for _ in transport.local], "rounds")

def ill(agent, word):
    yield word(np.array([1.0, np.nan if agent == 5 else 2.0]))
    yield Sum(np.ones(3))

for network in (star(8, server=True), ring(8), complete(7), complete(16), expander(30, degree=4)):
    for judge, dtype in ((_end_all, "f8"), (_end_all, "f4"), (None, "f8")):
        expected = InProcess(network, Bill(network))
        wanted = expected.converse([words(a, network, dtype) for a in range(network.agents)], "rounds")
        transport = ranks(network, judge)
        results = transport.converse([words(a, network, dtype) for a in transport.local], "rounds")
        for agent, found in zip(transport.local, results):
            for x, y in zip(found, wanted[agent], strict=True):
                assert (x.shape, x.dtype, x.tobytes()) == (y.shape, y.dtype, y.tobytes())
                assert not x.flags.writeable
        assert transport.bill == expected.bill
        ((round, reason),) = set(transport.collectives.gathered(until_told(transport, dtype)))
        assert reason == 2 and 4 < round <= 4 + (1 if network.server else network.diameter)
        transport.collectives.leave()
    for word in (Sum,) if network.server else (Sum, Mix):
        transport = ranks(network, _end_all)
        try:
            transport.converse([ill(a, word) for a in transport.local], "rounds")
        except co.errors.NumericalError as error:
            who = str(error)
        told = {str(line) for line in transport.collectives.gathered(who)}
        assert "agent 5 sent %s with 1 of 2 numbers not finite." % word.__name__ in told, told
        assert word is Mix or len(told) == 1, told
        transport.collectives.leave()
print("all is well")
"""


@needs("mpi")
def test_mpi_has_the_bits_of_one_process_for_letters_of_all_sizes():
    process = mpiexec(3, "-c", MPI_WORDS)
    output, errors = process.communicate(timeout=280)
    assert process.returncode == 0, errors
    assert output.count("all is well") == 3


def test_the_drivers_door_lets_everybody_in():
    """Workers that knock all at once, after one without the key, are asked; and nobody waits at the
    door afterwards.
    """
    workers = 40

    def why(process, error):
        return error or co.CoterieError(f"worker {process} left")

    connections = WorkerConnections(workers, "127.0.0.1", pickle.dumps, why)
    with pytest.raises(AuthenticationError):
        Client(connections.driver.address, authkey=b"another key")
    with ThreadPoolExecutor(workers) as pool:
        served = [pool.submit(serve, connections.driver, process) for process in range(workers)]
        connections.gather()
        answers = connections.ask(
            {process: [functools.partial(pow, process, 2)] for process in range(workers)}
        )
        assert answers == {process: [process**2] for process in range(workers)}
        assert connections.whole
        connections.close()
        for end in served:
            end.result(timeout=200)
    assert not any("worker-connections" in thread.name for thread in threading.enumerate())


def test_a_message_that_is_not_signed_is_not_obeyed():
    """Neither by the driver nor by a worker, even of somebody who was let in."""

    def why(process, error):
        return error or co.CoterieError(f"worker {process} left")

    connections = WorkerConnections(1, "127.0.0.1", pickle.dumps, why)
    with Client(connections.driver.address, authkey=connections.driver.key) as line:
        line.send_bytes(pack(("hello", 0), connections.driver.key))
        connections.gather()
        line.send_bytes(pack(("answers", [1]), b"another key"))
        with pytest.raises(co.CoterieError, match="its signature does not match"):
            connections.ask({0: [int]})
    connections.close()


# -- Spark, as people have it ----------------------------------------------------------------------


@needs("spark")
def test_any_number_of_partitions_is_read_once(on_spark):
    """Seven partitions in two slots, in one job, and each row is made once; agents= may be more
    than slots.
    """
    X, y = cluster_cases.X, cluster_cases.NUMBERS
    session = spark_session()
    made = session.sparkContext.accumulator(0)

    def row(pair):
        made.add(1)
        return (*map(float, pair[0]), float(pair[1]))

    there = session.sparkContext.parallelize(list(zip(X, y, strict=True)), 7).map(row)
    frame = session.createDataFrame(
        there, [*(f"x{j}" for j in range(X.shape[1])), "y"], verifySchema=False
    )
    before = made.value
    for agents in (None, 5):
        found = co.solve(
            frame_problem(), co.Rows(frame, target="y"), engine=on_spark, agents=agents, tol=1e-9
        )
        assert made.value - before == len(X)
        before = made.value
        assert len(found.certificate.participants) == (agents or 2)
        pooled = co.solve(frame_problem(), (X, y), agents=2, tol=1e-9)
        np.testing.assert_allclose(found.model.coef_, pooled.model.coef_, atol=1e-5)


def held_as(vectors, y, target="y"):
    """The table that a partition of these vectors becomes, as a task sees it: an Arrow table of
    Spark's structs.
    """
    import pyarrow as pa

    kind = pa.struct(
        [
            ("type", pa.int8()),
            ("size", pa.int32()),
            ("indices", pa.list_(pa.int32())),
            ("values", pa.list_(pa.float64())),
        ]
    )
    rows = [
        {"type": 1, "size": None, "indices": None, "values": vector}
        if isinstance(vector, list)
        else {"type": 0, "size": vector[0], "indices": vector[1], "values": vector[2]}
        for vector in vectors
    ]
    batch = pa.table({"x": pa.array(rows, kind), "y": y})
    return table_of(batch, co.Rows(None, target, columns="x"))


def test_sparse_vectors_stay_sparse():
    wide = held_as([(9, [1, 7], [1.0, 2.0]), (9, [], []), (9, [0], [3.0])], [1.0, 2.0, 3.0])
    assert wide.X.format == "csr"
    np.testing.assert_array_equal(wide.X.toarray()[[0, 0, 2], [1, 7, 0]], [1.0, 2.0, 3.0])
    assert wide.X.nnz == 3
    mixed = held_as([(3, [1], [1.0]), [4.0, 5.0, 6.0]], [1.0, 2.0])
    np.testing.assert_array_equal(mixed.X, [[0, 1, 0], [4, 5, 6]])
    np.testing.assert_array_equal(held_as([[1.0, 2.0], [3.0, 4.0]], [1.0, 2.0]).X, [[1, 2], [3, 4]])
    with pytest.raises(co.CoterieError, match="have 3 to 9 numbers"):
        held_as([(9, [1], [1.0]), [4.0, 5.0, 6.0]], [1.0, 2.0])


def kinds_in_spark(frame, engine):
    """What the workers of two partitions hold."""
    host, sources = engine.hosting(co.Rows(frame.coalesce(2), target="y"), None)
    return host.ask([functools.partial(cluster_cases.kind_of, source) for source in sources])


def sparse_frame():
    """Three partitions with sparse vectors, and their rows."""
    from pyspark.ml.linalg import Vectors

    rng = np.random.default_rng(1)
    places = [sorted(rng.choice(50, 3, replace=False).tolist()) for _ in range(60)]
    y = [float(row[0] > 12) for row in places]
    rows = [
        (Vectors.sparse(50, row, [1.0, 1.0, 1.0]), label)
        for row, label in zip(places, y, strict=True)
    ]
    X = np.zeros((60, 50))
    for row, own in zip(X, places, strict=True):
        row[own] = 1.0
    return spark_session().createDataFrame(rows, ["x", "y"]).repartition(3), X, np.array(y)


@needs("spark")
def test_sparse_vectors_stay_sparse_in_spark(on_spark):
    assert kinds_in_spark(sparse_frame()[0], on_spark) == [("csr", "float64")] * 2


@needs("spark")
@pytest.mark.slow
def test_sparse_vectors_and_single_precision_come_through_spark(on_spark):
    frame, X, y = sparse_frame()
    problem = co.Problem("logistic", "l2", 0.01, intercept=False)
    found = co.solve(problem, co.Rows(frame, target="y"), engine=on_spark, tol=1e-9)
    pooled = co.solve(problem, (X, y), agents=2, tol=1e-9)
    np.testing.assert_allclose(found.model.coef_, pooled.model.coef_, atol=1e-5)
    single = frame.selectExpr("float(y) as a", "float(1 - y) as b", "y")
    assert kinds_in_spark(single, on_spark) == [("ndarray", "float32")] * 2


FOREIGN = """
import os, sys
os.environ.pop("PYSPARK_PYTHON", None)
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
if sys.argv[1] == "chosen":
    builder = builder.config("spark.pyspark.python", sys.argv[2])
session = builder.getOrCreate()
session.sparkContext.setLogLevel("OFF")
import coterie as co
frame = session.range(20).selectExpr("double(id) as x", "double(id % 3) as y")
try:
    problem = co.Problem("squared", "l2", 0.1, intercept=False)
    print(co.solve(problem, co.Rows(frame, target="y"), engine="spark").status)
except co.CoterieError as error:
    print(error)
"""


@needs("spark")
@pytest.mark.slow
@pytest.mark.parametrize("whose", ["nobody's", "chosen"])
def test_tasks_run_a_python_that_has_coterie(whose, tmp_path):
    """Where nobody chose one, this one; where the chosen one has no coterie, one sentence says what
    to set.
    """
    bare, system = tmp_path / "python", shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if system is None:
        pytest.skip("there is no Python but this one")
    without = 'PYTHONPATH=$(echo "$PYTHONPATH" | tr : "\\n" | grep spark.*zip | paste -sd :)'
    bare.write_text(f'#!/bin/sh\n{without} exec {system} -S "$@"\n')
    bare.chmod(0o755)
    (tmp_path / "python3").symlink_to(bare)
    pythons = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "src")}
    ended = subprocess.run(
        [sys.executable, "-c", FOREIGN, whose, str(bare)],
        cwd=tmp_path,
        env={**os.environ, **pythons},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr
    if whose == "chosen":
        assert "cannot import coterie. Set PYSPARK_PYTHON or spark.pyspark.python" in ended.stdout
        assert len(ended.stdout.splitlines()) == 1
    else:
        assert ended.stdout == "optimal\n"
