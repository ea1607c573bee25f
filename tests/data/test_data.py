"""Laws of the data layer: nothing is lost, doubled or reordered, whichever way the data comes in or
is cut.
"""

from __future__ import annotations

import bz2
import gzip
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file

from coterie.data import (
    Table,
    align,
    check,
    encode_labels,
    order_digest,
    read,
    split,
    validated,
    validated_all,
)
from coterie.data.table import ROW_VALUES
from coterie.errors import InvalidData

law = settings(deadline=None, max_examples=60)

LAYOUTS = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "strided": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "csr": sp.csr_array,
    "unsorted csr": lambda X: reversed_indices(sp.csr_array(X)),
}


def reversed_indices(X: sp.csr_array) -> sp.csr_array:
    order = np.concatenate(
        [np.arange(a, b)[::-1] for a, b in zip(X.indptr, X.indptr[1:], strict=False)] or [[]]
    )
    order = order.astype(int)
    return sp.csr_array((X.data[order], X.indices[order], X.indptr), shape=X.shape)


def dense(X) -> np.ndarray:
    return X.toarray() if sp.issparse(X) else X


@st.composite
def tables(draw, min_rows: int = 0, min_columns: int = 0, layouts=tuple(LAYOUTS)) -> Table:
    n, d = draw(st.integers(min_rows, 9)), draw(st.integers(min_columns, 5))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    X = rng.integers(-2, 3, (n, d)) * rng.choice([1.0, 0.125], (n, d))
    return Table(
        X=LAYOUTS[draw(st.sampled_from(layouts))](
            X.astype(draw(st.sampled_from([np.float32, np.float64])))
        ),
        y=rng.integers(-4, 5, n) / 4,
        weights=rng.integers(1, 5, n) / 4 if draw(st.booleans()) else None,
        offset=rng.integers(-4, 5, n) / 4 if draw(st.booleans()) else None,
        ids=rng.permutation(n) if draw(st.booleans()) else None,
        columns=tuple(f"c{j}" for j in range(d)) if draw(st.booleans()) else None,
    )


def agents_for(draw, size: int, names: tuple[str, ...] | None = None):
    """A count, sizes, or lists for `size` things."""
    labels = np.array(draw(st.lists(st.integers(0, 3), min_size=size, max_size=size)), int)
    forms = {
        "count": draw(st.integers(1, size + 3)),
        "sizes": np.bincount(labels, minlength=4).tolist(),
        "lists": [draw(st.permutations(np.flatnonzero(labels == k).tolist())) for k in range(4)],
    }
    if names:
        forms["names"] = [[names[j] for j in part] for part in forms["lists"]]
    return forms[draw(st.sampled_from(sorted(forms)))]


# -- split -----------------------------------------------------------------------------------------


@law
@given(st.data())
def test_split_by_samples_is_a_partition(data):
    table = data.draw(tables())
    shards = split(table, "samples", agents_for(data.draw, table.n), seed=3)
    order = np.concatenate([shard.rows for shard in shards])
    assert sorted(order) == list(range(table.n))
    np.testing.assert_array_equal(
        np.vstack([dense(shard.X) for shard in shards]), dense(table.X)[order]
    )
    for field in ("y", *ROW_VALUES.values(), "ids"):
        whole, parts = getattr(table, field), [getattr(shard, field) for shard in shards]
        if whole is None:
            assert parts == [None] * len(parts)
        else:
            np.testing.assert_array_equal(np.concatenate(parts), whole[order])
    assert {shard.columns for shard in shards} == {table.columns}
    assert len({shard.name for shard in shards}) == len(shards)


@law
@given(st.data())
def test_split_by_features_is_a_partition(data):
    table = data.draw(tables())
    agents = agents_for(data.draw, table.d, table.columns)
    owner = data.draw(st.integers(0, (agents if isinstance(agents, int) else len(agents)) - 1))
    shards = split(table, "features", agents, labels_at=owner)
    order = np.concatenate([shard.cols for shard in shards])
    assert sorted(order) == list(range(table.d))
    np.testing.assert_array_equal(
        np.hstack([dense(shard.X) for shard in shards]), dense(table.X)[:, order]
    )
    assert [shard.y is not None for shard in shards] == [k == owner for k in range(len(shards))]
    assert not any(shard.row_values for k, shard in enumerate(shards) if k != owner)
    assert all(
        shards[owner].row_values[field] is values for field, values in table.row_values.items()
    )
    assert all(shard.ids is table.ids for shard in shards)
    assert all(sp.issparse(shard.X) == sp.issparse(table.X) for shard in shards)
    if table.columns is not None:
        assert [name for shard in shards for name in shard.columns] == [
            table.columns[j] for j in order
        ]


@law
@given(st.data())
def test_split_by_users_gathers_each_user(data):
    table = data.draw(tables(min_rows=1))
    users = np.array(
        data.draw(
            st.lists(st.sampled_from(["eve", "bob", "joe"]), min_size=table.n, max_size=table.n)
        )
    )
    shards = split(table, "users", users)
    assert [shard.name for shard in shards] == sorted(set(users))
    for shard in shards:
        np.testing.assert_array_equal(shard.rows, np.flatnonzero(users == shard.name))
        np.testing.assert_array_equal(dense(shard.X), dense(table.X)[users == shard.name])
        np.testing.assert_array_equal(shard.y, table.y[users == shard.name])
    counted = split(table, "users", np.unique(users, return_inverse=True)[1].tolist())
    assert [shard.n for shard in counted] == [shard.n for shard in shards]


@pytest.mark.parametrize("by", ["samples", "features"])
def test_a_shuffled_split_depends_on_the_seed_alone(by):
    table = Table(X=np.arange(400.0).reshape(20, 20), y=np.zeros(20))

    def deal(seed):
        return [
            (s.rows if by == "samples" else s.cols).tolist()
            for s in split(table, by, 3, shuffle=True, seed=seed)
        ]

    assert deal(0) == deal(0) != deal(1)
    assert sorted(number for part in deal(0) for number in part) == list(range(20))
    assert [len(part) for part in deal(0)] == [7, 7, 6]


@pytest.mark.parametrize(
    ("rank", "least", "most"), [(120, 0.6, 1.0), (12, 0.05, 0.2), (1, 0.0, 0.01)]
)
def test_how_independent_columns_are_is_their_effective_rank(rank, least, most):
    """Of `rank` directions of equal variance among 120; a mean far from 0 does not count."""
    rng = np.random.default_rng(rank)
    basis = np.linalg.qr(rng.standard_normal((120, 120)))[0][:, :rank]
    X = 50.0 + rng.standard_normal((4000, rank)) @ basis.T
    found = [table.independence for table in split(Table(X), "samples", 4)]
    assert least <= np.mean(found) <= most
    assert Table(1e100 * X).independence == pytest.approx(Table(X).independence)
    assert Table(np.eye(120)).independence == 1.0
    assert (
        Table(X[:3]).independence
        is Table(sp.csr_array(X)).independence
        is Table(0 * X).independence
        is None
    )


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_rows_between_consecutive_ends_need_not_be_consecutive(make):
    shard = split(Table(X=make(np.arange(1.0, 6.0)[:, None])), "samples", [[0, 2, 1, 3], [4]])[0]
    assert dense(shard.X).ravel().tolist() == [1.0, 3.0, 2.0, 4.0]


@pytest.mark.parametrize("make", [np.ascontiguousarray, np.asfortranarray, sp.csr_array])
@pytest.mark.parametrize("agents", [3, [5, 0, 4], [[4, 5, 6, 7, 8], [0, 1, 2, 3]]])
def test_blocks_of_rows_share_memory(make, agents):
    X = make(np.arange(1.0, 28.0).reshape(9, 3))
    values = X.data if sp.issparse(X) else X
    for shard in split(Table(X=X, y=np.arange(9.0)), "samples", agents):
        assert shard.n == 0 or np.shares_memory(shard.X.data if sp.issparse(X) else shard.X, values)
    for shard in split(Table(X=X, y=np.arange(9.0)), "features", 2):
        assert sp.issparse(shard.X) or shard.X.flags.f_contiguous


# -- align -----------------------------------------------------------------------------------------

ID_LISTS = st.one_of(
    st.lists(st.lists(st.integers(-5, 9), max_size=9), min_size=1, max_size=4),
    st.lists(st.lists(st.text("ab0é", max_size=3), max_size=9), min_size=1, max_size=4),
)


@law
@given(ID_LISTS, st.sampled_from(["error", "first"]))
def test_align_is_the_naive_join(id_lists, duplicates):
    assume(duplicates == "first" or all(len(set(ids)) == len(ids) for ids in id_lists))
    parties = [
        Table(
            X=100.0 * k + np.arange(len(ids))[:, None],
            y=np.arange(len(ids)),
            ids=np.array(ids),
            name=f"p{k}",
        )
        for k, ids in enumerate(id_lists)
    ]
    common = sorted(set.intersection(*map(set, id_lists)))
    if not common:
        with pytest.raises(InvalidData, match="no id occurs at every party"):
            align(parties, duplicates=duplicates)
        return
    aligned, order = align(parties, duplicates=duplicates)
    for k, (table, ids) in enumerate(zip(aligned, id_lists, strict=True)):
        assert table.X[:, 0].tolist() == [100.0 * k + ids.index(key) for key in common]
        assert table.y.tolist() == [ids.index(key) for key in common]
        assert table.ids.tolist() == common
        assert order_digest(table) == order
    validated_all(
        [aligned[0], *(replace(t, y=None) for t in aligned[1:])],
        split="features",
        classification=False,
    )


def test_the_order_digest_knows_order_and_type():
    def order(*ids):
        return order_digest(Table(X=np.zeros((len(ids), 1)), ids=np.array(ids)))

    digests = [
        order(1, 2),
        order(2, 1),
        order(1),
        order("1", "2"),
        order("12"),
        order("1", "2", ""),
    ]
    assert len(set(digests)) == len(digests)
    wide = np.array(["1", "2"], dtype="<U40")
    assert order_digest(Table(X=np.zeros((2, 1)), ids=wide)) == order("1", "2")
    assert order_digest(Table(X=np.zeros((2, 1)), ids=np.array([1, 2], np.uint8))) == order(1, 2)
    assert order_digest(Table(X=np.zeros((2, 1)), ids=np.array(["1", "2"], object))) == order(
        "1", "2"
    )


@pytest.mark.parametrize("kind", [np.int64, str])
def test_align_is_fast(kind):
    rng = np.random.default_rng(0)
    n = 200_000
    parties = [
        Table(X=np.zeros((n, 1)), ids=rng.permutation(n + 1000)[:n].astype(kind)) for _ in range(2)
    ]
    start = time.process_time()
    aligned, _ = align(parties)
    assert time.process_time() - start < 5
    assert aligned[0].n == aligned[1].n >= n - 1000


# -- digests ---------------------------------------------------------------------------------------


@law
@given(tables(layouts=("C",)))
def test_the_digest_does_not_depend_on_memory_layout(table):
    groups = [("C", "F", "strided"), ("csr", "unsorted csr")]
    for group in groups:
        assert len({replace(table, X=LAYOUTS[layout](table.X)).digest() for layout in group}) == 1


@law
@given(st.data())
def test_the_digest_changes_with_any_value(data):
    table = data.draw(tables(min_rows=2, min_columns=1))
    i, j = data.draw(st.integers(0, table.n - 1)), data.draw(st.integers(0, table.d - 1))
    changed = {"X": dense(table.X).copy(), "y": table.y.copy()}
    changed["X"][i, j] += 1
    changed["y"][i] += 1
    remake = sp.csr_array if sp.issparse(table.X) else np.asarray
    others = [
        replace(table, X=remake(changed["X"])),
        replace(table, y=changed["y"]),
        replace(table, y=None),
        *(replace(table, **{field: np.full(table.n, 9.0)}) for field in ROW_VALUES.values()),
        replace(table, X=table.X.astype(np.float32 if table.X.dtype == np.float64 else np.float64)),
    ]
    digests = {table.digest(), *(other.digest() for other in others)}
    assert len(digests) == 1 + len(others)
    swapped = table.take_rows(np.arange(table.n)[::-1])
    same = np.array_equal(dense(swapped.X), dense(table.X)) and np.array_equal(swapped.y, table.y)
    same = same and all(
        np.array_equal(swapped.row_values[field], values)
        for field, values in table.row_values.items()
    )
    assert (swapped.digest() == table.digest()) == same


# -- read ------------------------------------------------------------------------------------------


def frame_columns(X, y, w) -> dict[str, np.ndarray]:
    beside = {"w": w, "o": w - 2, "who": np.arange(len(y)) * 3}
    return {"label": y, **{f"c{j}": X[:, j] for j in range(X.shape[1])}, **beside}


@settings(deadline=None, max_examples=15)
@given(st.integers(1, 8), st.integers(1, 4), st.integers(0, 99))
def test_readers_agree(tmp_path_factory, n, d, seed):
    folder = tmp_path_factory.mktemp("readers")
    rng = np.random.default_rng(seed)
    X, y, w = rng.integers(-3, 4, (n, d)) / 8, rng.integers(-3, 4, n) / 4, rng.integers(1, 4, n) / 2
    columns = frame_columns(X, y, w)
    names = [f"c{j}" for j in range(d)]
    frame = pd.DataFrame(columns)
    arrow = pa.table(columns)
    pq.write_table(arrow, folder / "t.parquet")
    frame.to_csv(folder / "t.csv", index=False)
    frame.to_csv(folder / "t.csv.gz", index=False)
    dump_svmlight_file(X, y, str(folder / "t.svm"), zero_based=False)
    (folder / "t.txt.bz2").write_bytes(bz2.compress((folder / "t.svm").read_bytes()))
    (folder / "t.libsvm.gz").write_bytes(gzip.compress((folder / "t.svm").read_bytes()))
    np.savez(folder / "dense.npz", X=X, y=y, weights=w, offset=w - 2)
    csr = sp.csr_array(X)
    np.savez(
        folder / "sparse.npz",
        data=csr.data,
        indices=csr.indices,
        indptr=csr.indptr,
        shape=csr.shape,
        y=y,
    )

    named = {"target": "label", "id": "who", "weight": "w", "offset": "o"}
    frames = [
        frame,
        pl.DataFrame(columns),
        pl.LazyFrame(columns),
        arrow,
        *(folder / f"t{e}" for e in _FRAME_ENDINGS),
    ]
    for source in frames:
        table = read(source, **named)
        np.testing.assert_array_equal(table.X, X)
        np.testing.assert_array_equal(table.y, y)
        np.testing.assert_array_equal(table.weights, w)
        np.testing.assert_array_equal(table.offset, w - 2)
        np.testing.assert_array_equal(read(source, target="label", exposure="w").offset, np.log(w))
        np.testing.assert_array_equal(table.ids, np.arange(n) * 3)
        assert table.ids.dtype == np.int64
        assert table.columns == tuple(names)
        assert read(source, target="label", columns=names[::-1]).columns == tuple(names[::-1])
    arrays = [
        (X, y),
        (X.tolist(), y.tolist()),
        (frame[names], frame["label"]),
        (X, pl.Series(y)),
        (X, pa.array(y)),
    ]
    sparse = [(make(X), y) for make in (sp.csr_matrix, sp.csc_array, sp.coo_matrix, sp.lil_array)]
    files = [str(folder / name) for name in ("t.svm", "t.txt.bz2", "t.libsvm.gz", "sparse.npz")]
    for source in [*arrays, *sparse, *files, folder / "dense.npz"]:
        table = read(source, columns=names)
        assert sp.issparse(table.X) == (source in files or any(source is s for s in sparse))
        np.testing.assert_array_equal(dense(table.X), X)
        np.testing.assert_array_equal(table.y, y)
        assert table.columns == tuple(names)
        if sp.issparse(table.X):
            assert table.X.format == "csr"
            assert table.X.indices.dtype == table.X.indptr.dtype == np.int32
            assert table.X.has_canonical_format
    assert read(X).y is None
    assert read(frame, columns=names).y is None
    for table in (read((X, y, w, w - 2)), read(folder / "dense.npz")):
        np.testing.assert_array_equal(table.weights, w)
        np.testing.assert_array_equal(table.offset, w - 2)
    assert read((X, y, w)).offset is None
    assert read((X, y, None, w)).weights is None


_FRAME_ENDINGS = (".parquet", ".csv", ".csv.gz")


def test_read_keeps_types(tmp_path):
    single = pd.DataFrame(
        {"a": np.float32([1, 2]), "b": np.float32([3, 4]), "town": ["x", "y"], "ok": [True, False]}
    )
    assert read(single, columns=["a", "b"]).X.dtype == np.float32
    assert read(single, columns=["a", "ok"]).X.tolist() == [[1.0, 1.0], [2.0, 0.0]]
    assert read(single, columns=["a"], target="town").y.tolist() == ["x", "y"]
    assert read(single, columns=["a"], id="town").ids.dtype.kind == "U"
    assert read(single.astype({"town": "category"}), columns=["a"], id="town").ids.tolist() == [
        "x",
        "y",
    ]
    (tmp_path / "shop.csv").write_text("id,a\n007,1\n7,2\n")
    table = read(tmp_path / "shop.csv", id="id")
    assert table.ids.tolist() == ["007", "7"]
    assert table.name == "shop"
    assert read(table) is table
    assert read(table, name="stall").name == "stall"
    assert read(np.float32([[1]])).X.dtype == np.float32
    unsorted = reversed_indices(sp.csr_array(np.arange(1.0, 7.0).reshape(2, 3)))
    before = unsorted.indices.copy()
    read(unsorted)
    np.testing.assert_array_equal(unsorted.indices, before)


# -- check -----------------------------------------------------------------------------------------


@law
@given(st.data())
def test_one_bad_value_is_found_anywhere(data):
    table = data.draw(tables(min_rows=1, min_columns=1))
    i, j = data.draw(st.integers(0, table.n - 1)), data.draw(st.integers(0, table.d - 1))
    weights = None if table.weights is None else table.weights.astype(float)
    as_given = replace(table, y=table.y.astype(float), weights=weights)
    assert validated(table, classification=False).digest() == as_given.digest()
    X = dense(table.X).copy()
    X[i, j] = data.draw(st.sampled_from([np.nan, np.inf, -np.inf]))
    bad = replace(table, X=sp.csr_array(X) if sp.issparse(table.X) else X)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check, "_BLOCK", data.draw(st.sampled_from([1, 4, 1 << 20])))
        with pytest.raises(InvalidData) as error:
            validated(bad, classification=False)
    assert (
        f"party 'data': {bad.column_name(j)} has 1 value that is not finite (first at row {i})"
        in str(error.value)
    )


@pytest.mark.parametrize("make", [np.ascontiguousarray, np.asfortranarray, sp.csr_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_huge_finite_values_are_no_false_alarm(make, dtype):
    largest = np.finfo(dtype).max
    X = np.full((50, 4), largest, dtype)
    X[::2] *= -1
    X[:25] = largest
    table = Table(X=make(X), y=np.zeros(50))
    assert validated(table, classification=False).X.dtype == dtype
    X[49, 3] = np.inf
    with pytest.raises(
        InvalidData, match=r"column 3 has 1 value that is not finite \(first at row 49\)"
    ):
        validated(replace(table, X=make(X)), classification=False)


@law
@given(
    st.sampled_from(
        [(0, 1), (-1, 1), (1, 2), ("no", "yes"), (False, True), (0.5, -3.0), (b"a", b"b")]
    ),
    st.lists(st.lists(st.booleans(), max_size=5), min_size=1, max_size=4),
    st.sampled_from([np.float32, np.float64]),
)
def test_any_two_labels_become_minus_and_plus_one(classes, sides, dtype):
    assume(len({side for party in sides for side in party}) == 2)
    low, high = sorted(classes)
    parties = [
        Table(
            X=np.ones((len(party), 1), dtype),
            y=np.array([high if side else low for side in party], type(low)),
        )
        for party in sides
    ]
    encoded, found = encode_labels(
        validated_all(parties, split="samples", classification=True), True
    )
    assert found.tolist() == [low, high]
    for table, party in zip(encoded, sides, strict=True):
        assert table.y.tolist() == [1.0 if side else -1.0 for side in party]
        assert table.y.dtype == np.float64


def test_whole_numbers_and_booleans_become_floats():
    for X in (
        np.array([[1, 2]]),
        np.array([[True, False]]),
        sp.csr_array([[1, 2]]),
        np.array([[1.0]], ">f4"),
    ):
        table = validated(Table(X=X, y=np.array([3]), weights=np.array([2])), classification=False)
        assert table.X.dtype == (
            np.float32 if X.dtype.itemsize == 4 and X.dtype.kind == "f" else np.float64
        )
        assert table.y.dtype == table.weights.dtype == np.float64
        assert table.X.dtype.isnative
    assert validated(Table(X=np.ones((2, 1)), y=np.ones((2, 3))), classification=None).y.shape == (
        2,
        3,
    )
    assert encode_labels([Table(X=np.ones((1, 1)), y=np.ones(1))], False)[1] is None


def test_a_pandas_index_is_no_feature(tmp_path):
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "y": [0.0, 1.0, 0.0]}).sample(
        frac=1, random_state=1
    )
    frame.to_parquet(tmp_path / "shuffled.parquet")
    assert read(tmp_path / "shuffled.parquet", target="y").columns == ("a",)
