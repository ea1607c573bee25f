"""Rows of a cluster's frame: what becomes of their columns, what their holders tell, and how
mistakes are named.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
import pytest

import coterie as co
from coterie.data.remote import table_of
from coterie.data.summary import TableSummary
from coterie.engines import Engine
from coterie.errors import InvalidData, InvalidProblem
from coterie.run.settings import Settings
from coterie.run.site import Site
from coterie.stats.reading import known_of_table, remote_tables

BATCH = pa.table(
    {
        "x": [[1.0, 2.0], [3.0, 4.0]],
        "a": [5.0, 6.0],
        "b": [7.0, 8.0],
        "ab": [[5.0, 7.0], [6.0, 8.0]],
        "s": ["u", "v"],
    }
)


@pytest.mark.parametrize(
    ("target", "y"),
    [
        ("a", [5, 6]),
        (["a"], [[5], [6]]),
        (["a", "b"], [[5, 7], [6, 8]]),
        ("ab", [[5, 7], [6, 8]]),
        ("s", ["u", "v"]),
    ],
)
def test_one_target_several_or_vectors(target, y):
    table = table_of(BATCH, co.Rows(None, target, columns="x", weight="b", offset="b"))
    np.testing.assert_array_equal(table.X, [[1, 2], [3, 4]])
    np.testing.assert_array_equal(table.y, y)
    np.testing.assert_array_equal(table.weights, [7, 8])
    np.testing.assert_array_equal(table.offset, [7, 8])


RAGGED = pa.table({"x": [[1.0]] * 1500 + [[], [1.0, 2.0]], "a": [1.0] * 1502})


@pytest.mark.parametrize(
    ("batch", "rows", "told"),
    [
        (BATCH, co.Rows(None, "a", columns=["s"]), "column 's' holds string, not numbers"),
        (BATCH, co.Rows(None, "c"), "no column called 'c'"),
        (BATCH, co.Rows(None, "a", columns="x", weight="w"), "no column called 'w'"),
        (BATCH, co.Rows(None, "a", columns="x", offset="o"), "no column called 'o'"),
        (RAGGED, co.Rows(None, "a"), "the vectors of column 'x' have 0 to 2 numbers"),
        (
            pa.table({"x": [1.0, None], "a": [1.0, 2.0]}),
            co.Rows(None, "a"),
            "column 'x' has 1 missing values",
        ),
    ],
)
def test_bad_columns_name_their_partition(batch, rows, told):
    with pytest.raises(InvalidData, match=f"party 'partition 3': .*{told}"):
        table_of(batch, rows, "partition 3")


class Elsewhere(Engine):
    """Data is elsewhere, and agents never run."""

    name = "elsewhere"

    def run(self, *_):
        raise AssertionError


def made(y):
    return np.ones((len(y), 1)), y


def test_all_classes_are_known_everywhere_however_many():
    parts = [partial(made, np.arange(0, 1500)), partial(made, np.arange(1200, 2600))]
    problem = co.Problem("multinomial", "traceball", radius=1.0)
    found = remote_tables(parts, Elsewhere(), problem, Settings())
    np.testing.assert_array_equal(found.classes, np.arange(2600))
    np.testing.assert_array_equal(found.tables[1].fetch().y, np.arange(1200, 2600))


def test_numbers_that_are_not_classes_are_not_told():
    secret = np.array([0.123, 4.567, 8.9])
    site = Site(0, 1, co.Table(*made(secret)))
    cards = [TableSummary.of(site.data)]
    labels = {}
    for loss in ("squared", "multinomial"):
        known = known_of_table(co.Problem(loss, "none"), cards, "samples", site)
        labels[loss] = known.labels[0]
    assert not labels["squared"].size
    assert np.isin(secret, labels["multinomial"]).all()


def wide(seed):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((60, 120)), rng.standard_normal(60)


def test_a_table_elsewhere_is_as_large_as_it_is_there():
    problem = co.Problem("squared", "l2", 1e-2, intercept=False)
    sources = [partial(wide, 0), partial(wide, 1)]
    tables = remote_tables(sources, Elsewhere(), problem, Settings()).tables
    there, here = (
        [TableSummary.of(one, independence=True) for one in them]
        for them in (tables, [one.fetch() for one in tables])
    )
    assert [(one.nonzeros, one.independence) for one in there] == [
        (one.nonzeros, one.independence) for one in here
    ]
    assert there[0].nonzeros == 60 * 120
    assert there[0].independence > 0.5


class Frame:
    """Looks like a Spark DataFrame from afar."""

    mapInArrow = None


@pytest.mark.parametrize(
    ("estimator", "arguments", "error", "told"),
    [
        (
            co.LowRankRegressor(),
            (co.Rows(Frame(), "a"),),
            InvalidData,
            "use engine='spark' or 'ray', not 'local'",
        ),
        (
            co.LinearRegressor(),
            (co.Rows(Frame(), "a"), "a"),
            InvalidData,
            "leave y and sample_weight out",
        ),
        (co.LinearClassifier(), (Frame(),), InvalidData, "y names the labels' column"),
        (
            co.LowRankClassifier(class_weight="balanced"),
            (Frame(), "a"),
            InvalidProblem,
            "column of weights",
        ),
        (
            co.LowRankRegressor(warm_start=True),
            (Frame(), ["a", "b"]),
            InvalidProblem,
            "warm_start is for arrays",
        ),
    ],
)
def test_estimators_say_what_rows_need(estimator, arguments, error, told):
    with pytest.raises(error, match=told):
        estimator.fit(*arguments)
