"""Parquet and Arrow files: a few rows at a time into one matrix, which may be larger than
memory.
"""

from __future__ import annotations

import os
import subprocess
import sys
from decimal import Decimal
from io import StringIO

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from numba.core import event
from rich.console import Console

import coterie as co
from coterie.api import progress
from coterie.data import on_disk, streams
from coterie.data.on_disk import is_on_disk
from coterie.errors import InvalidData
from coterie.run.stages import listening
from tests.harness.shell import shell

METHODS = [
    ("gram", "squared"),
    ("newton", "logistic"),
    ("proximal-2", "logistic"),
    ("lbfgs-rows", "logistic"),
]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Files of a few rows have many blocks, and several groups of columns."""
    monkeypatch.setattr(streams, "BLOCK", 64)
    monkeypatch.setattr(streams, "AT_ONCE", 4)


def frame(rows=300):
    rng = np.random.default_rng(0)
    known = {f"x{j}": rng.standard_normal(rows) for j in range(6)}
    known |= {"count": rng.integers(0, 9, rows), "flag": rng.random(rows) > 0.5}
    known["price"] = pd.Series([Decimal(f"{value:.2f}") for value in rng.random(rows)])
    return pd.DataFrame(
        {**known, "y": (known["x0"] + rng.logistic(size=rows) > 0) * 1.0, "person": np.arange(rows)}
    )


def write(table, path):
    table = pa.Table.from_pandas(table) if isinstance(table, pd.DataFrame) else table
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=70)
    elif path.suffix == ".feather":
        feather.write_feather(table, str(path), chunksize=70)
    else:
        with pa.ipc.new_file(str(path), table.schema) as file:
            file.write_table(table, max_chunksize=70)
    return path


@pytest.mark.parametrize("ending", [".parquet", ".arrow", ".feather"])
@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("by_columns", [False, True])
def test_a_file_is_read_as_its_frame_is(ending, single, by_columns, tmp_path):
    table = frame()
    roles = {"target": "y", "id": "person", "weight": "count"}
    if single:
        table = table.astype({f"x{j}": np.float32 for j in range(6)}).drop(
            columns=["flag", "price"]
        )
    table["count"] += 1
    whole = co.read(pa.Table.from_pandas(table, preserve_index=False), **roles)
    streamed = co.read(write(table, tmp_path / f"all{ending}"), by_columns=by_columns, **roles)
    assert streamed.X.dtype == (np.float32 if single else np.float64)
    assert streamed.X.flags.f_contiguous if by_columns else streamed.X.flags.c_contiguous
    assert streamed.columns == whole.columns
    for field in ("X", "y", "weights", "ids"):
        np.testing.assert_array_equal(getattr(streamed, field), getattr(whole, field))
    some = co.read(tmp_path / f"all{ending}", target="y", columns=["x3", "x1"])
    np.testing.assert_array_equal(some.X, table[["x3", "x1"]])


def vectors(kind, rows=300):
    """A column of vectors, and what it holds."""
    X = np.random.default_rng(1).random((rows, 30))
    X *= X < 0.1
    if kind == "lists":
        X = X.astype(np.float32)
        return pa.array(X.tolist(), pa.list_(pa.float32())), X
    if kind == "tensors":
        return pa.FixedShapeTensorArray.from_numpy_ndarray(X), X
    parts = {"size": pa.int32(), "indices": pa.list_(pa.int32()), "values": pa.list_(pa.float32())}
    rows = [
        {"size": 30, "indices": np.flatnonzero(row).tolist(), "values": row[row > 0].tolist()}
        for row in X
    ]
    return pa.array(rows, pa.struct(parts)), X.astype(np.float32)


@pytest.mark.parametrize("ending", [".parquet"])
@pytest.mark.parametrize("kind", ["lists", "tensors", "sparse"])
def test_columns_of_vectors_are_matrices_and_sparse_ones_stay_sparse(
    kind, ending, tmp_path, monkeypatch
):
    monkeypatch.setattr(streams, "VECTORS", 64)
    column, X = vectors(kind)
    y = (X[:, 0] + X[:, 1] > 0) * 1.0
    path = write(pa.table({"features": column, "age": X[:, 0], "y": y}), tmp_path / f"all{ending}")
    table = co.read(path, target="y", columns=["features"])
    assert (table.X.format if kind == "sparse" else type(table.X)) == (
        "csr" if kind == "sparse" else np.ndarray
    )
    assert table.X.dtype == X.dtype
    np.testing.assert_array_equal(table.X.toarray() if kind == "sparse" else table.X, X)
    both = co.read(path, target="y").X
    np.testing.assert_array_equal(
        both.toarray() if kind == "sparse" else both, np.column_stack([X, X[:, 0]])
    )
    monkeypatch.chdir(tmp_path)
    new = write(pa.table({"features": column, "age": X[:, 0]}), tmp_path / f"new{ending}")
    fit = [
        "fit",
        path.name,
        "--target",
        "y",
        "--loss",
        "logistic",
        "--penalty",
        "l2",
        "--strength",
        "0.1",
    ]
    for command in (
        [*fit, "--output", "run"],
        ["predict", "run/model.npz", new.name, "--output", "p.csv"],
    ):
        ran = shell(*command)
        assert ran.exit_code == 0, ran.output
    model = co.Result.load("run").model
    assert model.coef_.shape == (31,)
    predicted = pd.read_csv("p.csv").iloc[:, -1].to_numpy()
    np.testing.assert_array_equal(predicted, model.predict(np.column_stack([X, X[:, 0]])))


def test_vectors_of_different_lengths_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "VECTORS", 2)
    for lengths in ([3, 2, 3, 3], [3, 3, 2, 2]):
        column = pa.array([[1.0] * length for length in lengths])
        path = write(
            pa.table({"x": column, "y": [0.0, 1.0, 2.0, 3.0]}), tmp_path / "ragged.parquet"
        )
        with pytest.raises(InvalidData, match=r"numbers\. Give all the same"):
            co.read(path, target="y")


def test_errors_are_about_all_rows_of_the_first_wrong_column(tmp_path):
    table = frame()
    table.loc[[250, 270, 280], "x1"] = np.nan
    table.loc[3, "x5"] = np.nan
    path = write(pa.Table.from_pandas(table, preserve_index=False), tmp_path / "shop.parquet")
    assert pq.read_table(path)["x1"].null_count == 3
    with pytest.raises(
        InvalidData, match=r"'shop'.*'x1' has 3 missing values \(first at row 250\)"
    ):
        co.read(path, target="y")
    with pytest.raises(InvalidData, match=r"'shop'.*'x1' has 3 missing values"):
        co.read(path, target="x1")
    path = write(frame().assign(town="Lille"), tmp_path / "text.parquet")
    with pytest.raises(InvalidData, match=r"'town' holds 300 values of type String, not numbers"):
        co.read(path, target="y")
    twice = pa.table([[1.0], [2.0], [3.0]], names=["a", "a", "b"])
    with pytest.raises(InvalidData, match=r"more than one column called a\. Rename"):
        co.read(write(twice, tmp_path / "twice.parquet"), target="b")
    (tmp_path / "no.arrow").write_text("no")
    with pytest.raises(InvalidData, match="cannot be read as Arrow"):
        co.read(tmp_path / "no.arrow")


def test_missing_values_and_text_are_kept_for_a_preparation(tmp_path):
    table = frame().assign(town=[["Lille", "Lyon", None][k % 3] for k in range(300)])
    table.loc[[5, 250], "x1"] = np.nan
    recipes = co.Preparation.of(["impute", "town: one-hot"])
    whole = co.read(pa.Table.from_pandas(table, preserve_index=False), target="y", prepare=recipes)
    streamed = co.read(write(table, tmp_path / "raw.parquet"), target="y", prepare=recipes)
    np.testing.assert_array_equal(streamed.X, whole.X)
    assert streamed.texts == whole.texts == {"town": ("Lille", "Lyon")}


def test_rows_are_told_while_they_are_read_and_checked(tmp_path):
    path, told = write(frame(), tmp_path / "shop.parquet"), []
    with listening(lambda stage, done, total: told.append((stage, done, total))):
        table = co.read(path, target="y")
        co.data.validated(table, classification=True)
    done = [rows for stage, rows, total in told if stage == "reading shop.parquet" and total == 300]
    assert done == sorted(done)
    assert len(done) > 10
    assert done[-1] == 300
    assert told[-1] == ("checking", 300, 300)


def test_the_line_names_rows(tmp_path, monkeypatch):
    shown = StringIO()
    monkeypatch.setattr(
        progress, "Console", lambda stderr: Console(file=shown, force_terminal=True, width=100)
    )
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", -1.0)
    path = write(frame(), tmp_path / "shop.parquet")
    clock = iter(range(10**6))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(clock)))
    with progress.stage_watch(True):
        co.read(path, target="y")
    assert "300 of 300 rows" in shown.getvalue()
    assert "reading shop.parquet" in shown.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
def test_a_line_is_shown_on_a_terminal_only(terminal, monkeypatch):
    stream = StringIO()
    stream.isatty = lambda: terminal
    monkeypatch.setattr(sys, "stderr", stream)
    assert progress.shows_lines(None) is terminal
    monkeypatch.setattr(sys, "stderr", None)
    assert not progress.shows_lines(None)


def test_the_line_names_what_is_compiled(monkeypatch):
    shown = StringIO()
    monkeypatch.setattr(
        progress, "Console", lambda stderr: Console(file=shown, force_terminal=True, width=100)
    )
    with progress.progress_watch(True, "newton"):
        with event.trigger_event("numba:compile"):
            assert "compiling" not in shown.getvalue(), "not for what is over at once"
        monkeypatch.setattr(progress, "PATIENCE_SECONDS", -1.0)
        with event.trigger_event("numba:compile"):
            assert "compiling, once" in shown.getvalue()
    told = shown.getvalue()
    with event.trigger_event("numba:compile"):
        assert shown.getvalue() == told


# -- larger than memory ----------------------------------------------------------------------------


@pytest.fixture
def little_memory(monkeypatch):
    monkeypatch.setattr(on_disk, "memory_left", lambda: 1000.0)


@pytest.mark.parametrize(
    ("method", "loss"),
    [
        ("gram", "squared"),
        ("newton", "logistic"),
        ("proximal-2", "logistic"),
        ("lbfgs-rows", "huber"),
    ],
)
def test_on_disk_a_run_has_the_same_bits(method, loss, tmp_path, little_memory):
    path = write(frame(), tmp_path / "shop.arrow")
    problem = co.Problem(loss, "l2", 1e-2, intercept=True)
    how = {"method": method, "agents": 3, "progress": False}
    mapped = co.read(path, target="y", id="person")
    assert is_on_disk(mapped.X)
    kept = co.read(path, target="y", id="person", on_disk=False)
    assert not is_on_disk(kept.X)
    on, off = co.solve(problem, mapped, **how), co.solve(problem, kept, **how)
    assert all(is_on_disk(agent.data.X) for agent in on.parties.sites)
    np.testing.assert_array_equal(on.model.coef_, off.model.coef_)
    assert on.certificate.participants == off.certificate.participants
    assert on.certificate.gap == off.certificate.gap


def test_by_features_agents_share_the_file(tmp_path, little_memory):
    path = write(frame(), tmp_path / "shop.parquet")
    table = co.read(path, target="y", id="person", by_columns=True)
    result = co.solve(
        co.Problem("squared", "l2", 1e-2, intercept=False),
        table,
        split="features",
        agents=3,
        progress=False,
    )
    assert result.status == "optimal"
    assert all(is_on_disk(agent.data.X) for agent in result.parties.sites)


def test_rows_that_are_picked_go_to_a_file_of_their_own(tmp_path, little_memory):
    path = write(frame(), tmp_path / "shop.parquet")
    kept, held = co.data.hold_out([co.read(path, target="y")], 0.3, by="samples", seed=0)
    assert is_on_disk(kept[0].X)
    assert kept[0].n + held[0].n == 300
    every = np.concatenate([kept[0].X, held[0].X])
    np.testing.assert_array_equal(np.sort(every[:, 0]), np.sort(frame()["x0"]))


def test_a_full_disk_names_the_variable_to_set(tmp_path, little_memory, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(on_disk.os, "posix_fallocate", full)
    with pytest.raises(
        InvalidData, match=r"2\.4e-05 GB as numbers.*Set TMPDIR to a folder on a larger disk"
    ):
        co.read(write(frame(), tmp_path / "shop.parquet"), target="y")


def test_what_is_left_is_the_least_of_all_limits(monkeypatch):
    files = {"/proc/meminfo": ["MemAvailable:  1000 kB"], "/sys/fs/cgroup/memory.max": ["900000"]}
    files["/sys/fs/cgroup/memory.current"] = ["500000"]
    monkeypatch.setattr(on_disk, "_lines", lambda path: files.get(path, []))
    assert on_disk.memory_left() == 400_000
    files["/sys/fs/cgroup/memory.max"] = ["max"]
    assert on_disk.memory_left() == 1_024_000
    monkeypatch.setattr(on_disk.resource, "getrlimit", lambda limit: (300_000, -1))
    files["/proc/self/status"] = ["VmData:  100 kB", "VmSize:  200 kB"]
    assert on_disk.memory_left() == 300_000 - 204_800


@pytest.mark.parametrize(
    ("flags", "said"), [([], None), (["--on-disk"], True), (["--in-memory"], False)]
)
def test_a_command_says_where_data_goes_and_what_to_do_without_memory(
    flags, said, tmp_path, monkeypatch, shell
):
    seen = []

    def out(*given, on_disk, **how):
        seen.append(on_disk)
        raise MemoryError("8 GB")

    monkeypatch.setattr(streams, "empty_matrix", out)
    path = write(frame(), tmp_path / "a.parquet")
    code, _, shown = shell("fit", path, "--target", "y", *flags)
    assert code == 3
    assert seen == [said]
    assert "memory is out (8 GB). Parquet and Arrow files stay on disk with --on-disk." in " ".join(
        shown.split()
    )


# -- in processes of their own ---------------------------------------------------------------------

PEAK = """
import gc, resource, sys
import coterie as co
from coterie.data.on_disk import is_on_disk

small, big, loss, method, limit = sys.argv[1:]
problem = co.Problem(loss, "l2", 1e-3, intercept=True)
fit = lambda path: co.solve(problem, co.read(path, target="y"), method=method, progress=False)
fit(small)  # what is imported and compiled once is not counted

def status(name):
    return next(1024 * int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name))

def peak(path):
    gc.collect()
    open("/proc/self/clear_refs", "w").write("5")  # forget the peak so far
    return fit(path), status("VmHWM")

low = peak(small)[1]
gc.collect()
before = status("VmRSS"), status("VmData")
if int(limit):
    resource.setrlimit(resource.RLIMIT_DATA, (before[1] + int(limit),) * 2)
result, high = peak(big)
print(result.status.value, is_on_disk(result.parties.sites[0].data.X), high - before[0], high - low)
"""


def fitted(folder, rows, columns, loss, method, limit=0, before=2000):
    """The bytes of a file's numbers, and what a fit of it in another process says: status, on disk,
    peak, and how much that is above the peak of so many rows before.
    """
    rng, weights = np.random.default_rng(0), np.random.default_rng(1).standard_normal(columns)
    for name, count in (("small.parquet", before), ("big.parquet", rows)):
        writer = None
        for start in range(0, count, 50_000):
            X = rng.standard_normal((min(50_000, count - start), columns))
            y = (X @ weights + rng.logistic(size=len(X)) > 0) * 1.0
            table = pa.table([*X.T, y], names=[*(f"x{j}" for j in range(columns)), "y"])
            writer = writer or pq.ParquetWriter(
                folder / name, table.schema, compression="none", use_dictionary=False
            )
            writer.write_table(table)
        writer.close()
    size = 8 * rows * (columns + 1)
    line = [
        sys.executable,
        "-c",
        PEAK,
        folder / "small.parquet",
        folder / "big.parquet",
        loss,
        method,
    ]
    done = subprocess.run(
        [*map(str, line), str(int(limit * size))],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ},
    )
    status, mapped, peak, above = done.stdout.split()
    return size, status, mapped == "True", int(peak), int(above)


def test_a_file_is_not_in_memory_twice(tmp_path):
    """Of two sizes: what decoding and linear algebra take, whatever the file's size, is no part of
    the difference.
    """
    size, status, mapped, _, above = fitted(tmp_path, 250_000, 50, "squared", "gram", before=50_000)
    assert (status, mapped) == ("optimal", False)
    assert above <= 1.75 * (1 - 50_000 / 250_000) * size


@pytest.mark.slow
def test_the_peak_is_the_data_and_a_third(tmp_path):
    size, status, mapped, peak, _ = fitted(tmp_path, 600_000, 80, "logistic", "newton")
    assert (status, mapped) == ("optimal", False)
    assert peak <= 1.3 * size


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "loss"),
    [
        ("gram", "squared"),
        ("newton", "logistic"),
        ("proximal-2", "logistic"),
        ("lbfgs-rows", "logistic"),
    ],
)
def test_a_limit_below_the_data_is_kept(method, loss, tmp_path):
    """Private memory is limited to half of the data; what is mapped from the file is no part of
    it.
    """
    _, status, mapped, _, _ = fitted(tmp_path, 250_000, 200, loss, method, limit=0.5)
    assert (status, mapped) == ("optimal", True)


def test_a_csv_file_without_rows_is_a_party_without_rows(tmp_path):
    pd.DataFrame({"age": [1.0, 2.0, 4.0], "y": [2.0, 3.0, 5.0]}).to_csv(
        tmp_path / "north.csv", index=False
    )
    (tmp_path / "south.csv").write_text("age,y\n")
    tables = [co.read(tmp_path / f"{name}.csv", target="y") for name in ("north", "south")]
    result = co.solve(co.Problem("squared", "l2", 1e-3), tables, progress=False)
    alone = co.solve(co.Problem("squared", "l2", 1e-3), tables[:1], progress=False)
    assert tables[1].n == 0
    np.testing.assert_allclose(result.model.coef_, alone.model.coef_, rtol=1e-6)
