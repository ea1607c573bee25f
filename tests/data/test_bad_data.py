"""Data that cannot be learned from is refused at the door: the error names party, column, count and
fix.
"""

from __future__ import annotations

import gzip
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp

import coterie as co
from coterie.data import Table, align, encode_labels, read, split, validated, validated_all
from coterie.errors import InvalidData, InvalidInput
from coterie.run.statuses import Status

Y = np.array([1.0, -1.0, 1.0])


def table(X=None, y=Y, **fields) -> Table:
    X = np.ones((3, 2)) if X is None else X
    return Table(
        X=X, y=y, **{"columns": ("age", "pay")[: np.shape(X)[1]], "name": "shop", **fields}
    )


def with_value(value, dtype=float) -> np.ndarray:
    X = np.ones((3, 2)).astype(dtype)
    X[1:, 1] = value
    return X


def message(call, *args, error=InvalidInput, **kwargs) -> str:
    with pytest.raises(error) as caught:
        call(*args, **kwargs)
    assert caught.value.status is Status.INVALID_DATA
    return str(caught.value)


def says(text: str, *parts: object) -> None:
    missing = [part for part in parts if str(part) not in text]
    assert not missing, f"{text!r} does not say {missing}"


# -- row 1: values, types and weights --------------------------------------------------------------

BAD_TABLES = {
    "nan": (table(with_value(np.nan)), ["column 'pay'", "2 values", "row 1", "Drop or impute"]),
    "inf": (table(with_value(-np.inf)), ["column 'pay'", "2 values", "row 1", "Drop or impute"]),
    "nan float32": (table(with_value(np.nan, np.float32)), ["column 'pay'", "2 values", "impute"]),
    "nan fortran": (
        table(np.asfortranarray(with_value(np.nan))),
        ["column 'pay'", "2 values", "row 1"],
    ),
    "nan sparse": (
        table(sp.csc_matrix(with_value(np.nan))),
        ["column 'pay'", "2 values", "row 1", "impute"],
    ),
    "nan in two": (table(np.full((3, 2), np.nan)), ["column 'age'", "3 values", "1 other column"]),
    "no names": (table(with_value(np.nan), columns=None), ["column 1", "2 values", "impute"]),
    "longdouble": (
        table(with_value(np.longdouble("1e400"), np.longdouble)),
        ["column 'pay'", "2 values"],
    ),
    "object text": (
        table(with_value("x", object)),
        ["column 'pay'", "2 values of 3", "row 1: 'x'", "Encode"],
    ),
    "object None": (
        table(with_value(None, object)),
        ["column 'pay'", "2 values of 3", "None", "drop"],
    ),
    "object numbers": (
        table(np.ones((3, 2), object)),
        ["6 numbers as objects", "'age'", "astype(float)"],
    ),
    "text": (table(np.array([["1", "2"]] * 3)), ["column 'age'", "3 values of 3", "astype(float)"]),
    "complex": (table(np.ones((3, 2), complex)), ["column 'age'", "complex", "3 rows", "X.real"]),
    "complex sparse": (
        table(sp.csr_array(np.ones((3, 2), complex))),
        ["column 'age'", "complex", "X.real"],
    ),
    "dates": (table(np.zeros((3, 2), "M8[s]")), ["column 'age'", "datetime64", "3 rows", "astype"]),
    "masked": (
        table(np.ma.masked_equal(with_value(9.0), 9)),
        ["column 'pay'", "2 masked", "impute"],
    ),
    "names": (table(columns=("a", "b", "c")), ["2 columns", "3 column names"]),
    "labels nan": (table(y=np.array([1, np.nan, np.inf])), ["2 labels", "row 1", "Drop or impute"]),
    "label nan": (table(y=np.array([1, np.nan, 2])), ["1 label is", "row 1"]),
    "labels None": (
        table(y=np.array([1, None, 2], object)),
        ["1 label is", "row 1: None", "Drop or impute"],
    ),
    "labels mixed": (
        table(y=np.array([1, "a", 2], object)),
        ["1 label is text", "2 labels are a number", "one type"],
    ),
    "labels short": (table(y=np.ones(2)), ["3 rows", "labels is 2", "one label per row"]),
    "labels 2-D": (table(y=np.ones((3, 1))), ["shape (3, 1)", "y.ravel()"]),
    "labels complex": (table(y=np.ones(3, complex)), ["3 labels", "complex", "astype"]),
    "labels text": (
        table(y=np.array(["a", "b", "a"])),
        ["3 labels are text", "'a'", "classification loss"],
    ),
    "labels large": (
        table(np.ones((3, 2), np.float32), np.full(3, 1e60)),
        ["3 labels", "float32", "float64"],
    ),
    "weights zero": (
        table(weights=np.array([1.0, 0, 0])),
        ["2 weights", "zero or negative", "row 1", "positive"],
    ),
    "weights negative": (
        table(weights=np.array([1, 1, -2])),
        ["1 weight is", "row 2: -2.0", "Drop"],
    ),
    "weights nan": (
        table(weights=np.array([1, 1, np.nan])),
        ["1 weight is", "not finite", "row 2", "Drop"],
    ),
    "weights short": (table(weights=np.ones(2)), ["3 rows", "weights is 2", "one weight per row"]),
    "weights text": (table(weights=np.array(["1", "2", "3"])), ["weights", "Give numbers"]),
    "offset infinite": (
        table(offset=np.array([0.0, 1.0, np.inf])),
        ["1 offset is not finite", "row 2", "Drop"],
    ),
    "offset missing": (
        table(offset=np.array([0.0, np.nan, np.nan])),
        ["2 offsets are not finite", "row 1"],
    ),
    "offset short": (table(offset=np.ones(2)), ["3 rows", "offsets is 2", "one offset per row"]),
    "offset text": (table(offset=np.array(["1", "2", "3"])), ["offsets", "Give numbers"]),
    "offset alone": (
        table(y=None, offset=np.ones(3)),
        ["3 offsets but no labels", "the party with the labels"],
    ),
    "weights alone": (
        table(y=None, weights=np.ones(3)),
        ["3 weights but no labels", "the party with the labels"],
    ),
    "ids short": (table(ids=np.arange(2)), ["3 rows", "ids is 2"]),
    "ids float": (table(ids=np.ones(3)), ["3 ids", "float64", "integers or to text"]),
}


@pytest.mark.parametrize("case", BAD_TABLES)
def test_bad_values_are_named(case):
    bad, parts = BAD_TABLES[case]
    says(message(validated, bad, classification=False, error=InvalidData), "party 'shop'", *parts)
    other = Table(X=np.ones((1, 2)), y=np.ones(1), name="stall")
    says(
        message(validated_all, [other, bad], split="samples", classification=False),
        "party 'shop'",
        *parts,
    )


def test_wrong_dimensions():
    for X, fix in ((np.ones(3), "reshape(-1, 1)"), (np.ones((3, 2, 2)), "one row per sample")):
        bad = Table(X=X, y=Y, name="shop")
        says(
            message(validated, bad, classification=False),
            "party 'shop'",
            f"{X.ndim} dimension",
            fix,
        )


FRAME = {"age": [1.0, 2.0, 3.0], "town": ["a", "b", "a"], "price": [1.0, 2.0, 3.0]}


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_frames(make, tmp_path):
    text = message(read, make(FRAME), target="price", name="shop", error=InvalidData)
    says(text, "party 'shop'", "column 'town'", "3 values", "one-hot", "columns=")
    holes = {**FRAME, "age": [1.0, None, None]}
    text = message(read, make(holes), columns=["age"], name="shop", error=InvalidData)
    says(text, "party 'shop'", "column 'age'", "2 missing values", "row 1", "Drop or impute")
    text = message(
        read, make({**FRAME, "price": [1, 2, None]}), columns=["age"], target="price", name="shop"
    )
    says(text, "party 'shop'", "column 'price'", "1 missing value ", "row 2")
    text = message(read, make(FRAME), target="prize", name="shop", error=InvalidData)
    says(text, "party 'shop'", "target='prize'", "Did you mean 'price'?")
    says(
        message(read, make(FRAME), columns=["ages"], name="shop"),
        "party 'shop'",
        "Did you mean 'age'?",
    )
    says(
        message(read, make(FRAME), columns=["age"], id="age", name="shop"),
        "column 'age'",
        "also the id",
    )


def test_odd_frames():
    category = pd.DataFrame({"town": pd.Categorical(["a", "b"])})
    says(
        message(read, category, name="shop"),
        "party 'shop'",
        "column 'town'",
        "Categorical",
        "one-hot",
    )
    twice = pd.DataFrame(np.ones((2, 3)), columns=["a", "a", "b"])
    says(message(read, twice, name="shop"), "party 'shop'", "1 column name", "'a'", "Rename")
    dates = pl.DataFrame({"day": pl.Series([1, 2]).cast(pl.Date)})
    says(message(read, dates, name="shop"), "column 'day'", "Date", "columns=")


def test_files(tmp_path):
    says(
        message(read, tmp_path / "no.csv", error=InvalidData),
        str(tmp_path / "no.csv"),
        "does not exist",
    )
    says(message(read, tmp_path), "is a folder")
    (tmp_path / "odd.doc").write_text("")
    says(message(read, tmp_path / "odd.doc"), "odd.doc", ".parquet", ".svmlight")
    for name, kind in (
        ("x.parquet", "Parquet"),
        ("x.svm", "svmlight"),
        ("x.npz", "plain arrays"),
        ("x.csv", "CSV"),
    ):
        (tmp_path / name).write_bytes(b"" if kind == "CSV" else b"PK\x03\x04 nothing")
        says(
            message(read, tmp_path / name, name="shop", error=InvalidData),
            "party 'shop'",
            name,
            kind,
        )
    (tmp_path / "cut.svm.gz").write_bytes(gzip.compress(b"1 1:2\n" * 1000)[:-12])
    says(message(read, tmp_path / "cut.svm.gz", error=InvalidData), "cut.svm.gz", "svmlight")
    np.savez(tmp_path / "pickled.npz", X=np.array([[None]], object))
    says(message(read, tmp_path / "pickled.npz", error=InvalidData), "pickled.npz", "plain arrays")
    np.savez(tmp_path / "other.npz", Z=np.ones(2))
    says(
        message(read, tmp_path / "other.npz", error=InvalidData), "other.npz", "neither X", "but Z"
    )
    (tmp_path / "t.csv").write_text("a,town\n1,x\n,y\n")
    says(
        message(read, tmp_path / "t.csv", columns=["a"], name="shop"),
        "column 'a'",
        "1 missing value ",
        "line 3 of",
    )


def test_arguments_that_do_not_fit():
    says(message(read, np.ones((2, 2)), target="y"), "target='y'", "(X, y)")
    says(message(read, (np.ones((2, 2)), Y, Y, Y, Y)), "tuple of 5", "(X, y, weights)")
    says(message(read, (pd.DataFrame(FRAME), Y), target="price"), "in the tuple and in target=")


# -- row 2: empty parties --------------------------------------------------------------------------

EMPTY = {"no rows": np.ones((0, 2)), "nothing": np.ones((0, 0)), "sparse": sp.csr_array((0, 2))}


@pytest.mark.parametrize("X", EMPTY.values(), ids=EMPTY)
@pytest.mark.parametrize("y", [None, np.empty(0)], ids=["no labels", "no label"])
def test_an_empty_party_is_allowed(X, y):
    for parties in ([table(), Table(X=X, y=y, name="e")], [Table(X=X, y=y, name="e"), table()]):
        good = validated_all(parties, split="samples", classification=True)
        assert sorted(t.n for t in good) == [0, 3]
        assert {t.d for t in good} == {2}
        encoded, classes = encode_labels(good, True)
        assert sorted(len(t.y) for t in encoded) == [0, 3]
        assert classes.tolist() == [-1.0, 1.0]


@pytest.mark.parametrize("X", [np.ones((3, 0)), np.ones((0, 0)), sp.csr_array((3, 0))])
def test_a_party_without_columns_is_allowed(X):
    good = validated_all([table(), Table(X=X, name="e")], split="features", classification=False)
    assert [t.X.shape for t in good] == [(3, 2), (3, 0)]


@pytest.mark.parametrize("split_by", ["samples", "features", "users"])
def test_all_parties_empty_is_refused(split_by):
    empty = [Table(X=np.ones((0, 2)), name="a"), Table(X=np.ones((0, 2)), name="b")]
    text = message(validated_all, empty, split=split_by, classification=False, error=InvalidData)
    says(text, "no party has any rows", "'a'", "'b'", "Give")
    narrow = [Table(X=np.ones((2, 0)), y=np.ones(2), name="a")]
    says(
        message(validated_all, narrow, split=split_by, classification=False),
        "no party has any columns",
        "'a'",
    )
    says(message(validated_all, [], split=split_by, classification=False), "no parties")


# -- row 3: rows that do not match -----------------------------------------------------------------


def by_features(*parties: Table) -> str:
    return message(
        validated_all, parties, split="features", classification=False, error=InvalidData
    )


def test_rows_that_do_not_match():
    shop = table(ids=np.array([1, 2, 3]))
    says(
        by_features(shop, Table(np.ones((2, 1)), name="bank")),
        "party 'bank'",
        "2 rows",
        "'shop' has 3",
        "align",
    )
    shuffled = Table(np.ones((3, 1)), ids=np.array([1, 3, 2]), name="bank")
    says(
        by_features(shop, shuffled),
        "party 'bank'",
        "2 ids",
        "'shop'",
        "row 1: 3 here and 2 there",
        "align(tables)",
    )
    texts = Table(np.ones((3, 1)), ids=np.array(["1", "2", "3"]), name="bank")
    says(
        by_features(shop, texts),
        "3 ids of party 'bank' are text",
        "'shop' are integers",
        "astype(str)",
    )
    third = Table(np.ones((3, 1)), name="club")
    says(by_features(third, shop, shuffled), "party 'bank'", "align(tables)")
    same = Table(np.ones((3, 1)), ids=np.array([1, 2, 3], np.int16), name="bank")
    assert len(validated_all([shop, same, third], split="features", classification=False)) == 3


def keyed(name: str, *ids) -> Table:
    return Table(X=np.ones((len(ids), 1)), ids=np.array(ids), name=name)


def test_ids_that_do_not_match():
    text = message(align, [keyed("a", 1, 2), keyed("b", 7, 7, 8, 8, 8)], error=InvalidData)
    says(text, "party 'b'", "2 ids occur more than once", "e.g. 7 (2 times)", "duplicates='first'")
    text = message(align, [keyed("a", 1, 2), keyed("b", "1", "2", "3")], error=InvalidData)
    says(text, "3 ids of party 'b' are text", "2 of party 'a' are integers", "astype(str)")
    text = message(align, [keyed("a", 1, 2), keyed("b", 7, 8, 9)], error=InvalidData)
    says(text, "'a' has 2 ids, e.g. 1", "'b' has 3 ids, e.g. 7", "same column")
    says(message(align, [keyed("a", 1), keyed("b")]), "'b' has 0 ids")
    text = message(align, [keyed("a", 1, 2), Table(np.ones((3, 1)), name="b")], error=InvalidData)
    says(text, "party 'b'", "no ids for its 3 rows", "id=")
    says(message(align, [keyed("a", 1.5)]), "party 'a'", "1 id is", "float64")
    says(message(align, [keyed("a", np.uint64(2**64 - 1))]), "party 'a'", "text")
    says(message(align, [keyed("a", 1)], duplicates="last"), "'last'", "first")


def test_columns_that_do_not_match():
    def refused(columns, X=None):
        parties = [table(), table(X, columns=columns, name="b")]
        return message(
            validated_all, parties, split="samples", classification=False, error=InvalidData
        )

    says(refused(None, np.ones((3, 3))), "party 'b'", "3 columns", "'shop' has 2", "same")
    says(refused(("pay", "age")), "party 'b'", "different order", "column 0 is 'pay'", "columns=")
    says(refused(("age", "sum")), "party 'b'", "1 only at party 'b'", "'sum'", "'pay'")
    twins = [Table(np.ones((3, 2)), Y), Table(np.ones((3, 3)), Y)]
    says(
        message(validated_all, twins, split="users", classification=False),
        "'data 1'",
        "'data 0' has 2",
    )
    says(
        message(validated_all, twins, split="sample", classification=False),
        "Did you mean 'samples'?",
    )


# -- row 4: labels at the wrong place --------------------------------------------------------------


def test_labels_at_no_party_or_at_two():
    a, b, c = (Table(np.ones((3, 1)), Y, name=name) for name in "abc")
    bare = [Table(np.ones((3, 1)), name=name) for name in "ab"]
    says(by_features(*bare), "labels at no party", "exactly one party")
    says(by_features(a, b, bare[1]), "labels at 2 parties: a, b", "exactly one party")
    text = message(
        validated_all, [c, *bare], split="samples", classification=False, error=InvalidData
    )
    says(text, "no labels at party 'a' (3 rows), party 'b' (3 rows)", "target=")


@pytest.mark.parametrize(
    ("labels", "parts"),
    [
        ([[1, 1], [1]], ["'a', 'b'", "1 class:", "1 (3 rows)", "two classes"]),
        ([["x", "y"], ["z", "y"]], ["3 classes", "'x' (1 rows)", "'y' (2 rows)", "multinomial"]),
        ([range(12), [1]], ["12 classes", "and 2 more"]),
        ([[0, 1], ["0", "1"]], ["text at party 'b'", "numbers at party 'a'", "one type"]),
        ([[], []], ["no labels at any party"]),
    ],
)
def test_classes(labels, parts):
    parties = [
        Table(np.ones((len(y), 1)), np.array(y), name=name)
        for y, name in zip(labels, "ab", strict=True)
    ]
    says(message(encode_labels, parties, True, error=InvalidData), *parts)


# -- splits that are no partition ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("by", "agents", "parts"),
    [
        ("samples", 0, ["agents=0", "1 or more"]),
        ("samples", True, ["agents=True"]),
        ("samples", [2, 2], ["2 sizes", "add up to 4", "3 rows"]),
        ("samples", [4, -1], ["neither a count"]),
        ("samples", [], ["neither a count"]),
        ("samples", ["age"], ["neither a count"]),
        ("samples", [[0, 1], [1, 2]], ["1 of 3 rows", "more than one place (1)"]),
        ("samples", [[0], [1]], ["1 of 3 rows", "no agent (2)"]),
        ("samples", [[0, 1], [2, 3]], ["1 row numbers", "outside 0 to 2", "e.g. 3"]),
        ("samples", [[0, 1, 2], [-1]], ["outside 0 to 2", "e.g. -1"]),
        ("samples", [[True, False, True], [False, True, False]], ["bool", "np.flatnonzero"]),
        ("samples", [["age"], ["pay"]], ["not row numbers"]),
        ("features", [["age"], ["pai"]], ["'pai'", "Did you mean 'pay'?"]),
        ("features", [["age"], ["age"]], ["1 of 2 columns", "more than one place (0)"]),
        ("features", [[0.5], [1.0]], ["float64", "column numbers or names"]),
        ("users", ["a", "b"], ["shape (2,)", "3 rows", "one label per row"]),
        ("users", [1.0, np.nan, 2.0], ["1 user label is", "not finite"]),
        ("rows", 2, ["'rows'", "samples"]),
    ],
)
def test_splits_that_are_no_partition(by, agents, parts):
    says(message(split, table(), by, agents), *parts)


def test_split_options_that_do_not_fit():
    says(
        message(split, table(), "samples", [[0, 1], [2]], shuffle=True),
        "shuffle=True",
        "Leave one out",
    )
    says(message(split, table(), "features", 2, labels_at=2), "labels_at=2", "0 to 1")


# -- svmlight files leave their last columns out ---------------------------------------------------


def svmlight_parties(folder) -> list[Table]:
    (folder / "wide.svm").write_text("1 1:1 2:2 3:3\n-1 1:2 3:1\n1 2:1\n")
    (folder / "narrow.svm").write_text("-1 1:1 2:2\n1 1:2\n1 2:1\n")
    return [
        read(folder / "wide.svm", zero_based=False),
        read(folder / "narrow.svm", zero_based=False),
    ]


def test_columns_that_an_svmlight_file_leaves_out_are_zero(tmp_path):
    parties = svmlight_parties(tmp_path)
    good = validated_all(parties, split="samples", classification=False)
    assert [table.X.shape for table in good] == [(3, 3), (3, 3)]
    assert good[1].X.toarray()[:, 2].tolist() == [0.0, 0.0, 0.0]
    problem = co.Problem("squared", "l2", 0.1, intercept=False)
    filled = [(table.X, table.y) for table in good]
    assert (co.solve(problem, parties).model.coef_ == co.solve(problem, filled).model.coef_).all()


def test_other_tables_are_never_padded(tmp_path):
    wide, narrow = svmlight_parties(tmp_path)
    for bare in (
        replace(narrow, open_ended=False),
        replace(narrow, X=narrow.X.toarray(), open_ended=False),
        narrow.take_columns(np.arange(2)),
    ):
        text = message(
            validated_all, [wide, bare], split="samples", classification=False, error=InvalidData
        )
        says(text, "2 columns", "has 3", "same columns")
    dense = Table(np.ones((3, 2)), Y, name="dense")
    text = message(
        validated_all, [dense, wide], split="samples", classification=False, error=InvalidData
    )
    says(text, "wide", "3 columns", "'dense' has 2")
    both = validated_all(
        [Table(np.ones((3, 3)), Y, name="dense"), narrow], split="samples", classification=False
    )
    assert both[1].d == 3


def test_numbers_of_labels_per_row_must_agree():
    two = Table(np.ones((3, 2)), np.ones((3, 2)), name="two")
    text = message(
        validated_all, [table(), two], split="samples", classification=None, error=InvalidData
    )
    says(text, "party 'two'", "labels have 2 columns", "'shop' have 1", "same")
