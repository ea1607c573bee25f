"""No cell that is withheld is known from those that are told and the totals of rows and columns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.optimize import linprog

from coterie.run.groups import small
from coterie.stats.suppression import withheld

MINIMUM = 5


@st.composite
def tables(draw):
    """Counts of which no total of a row or column is small: such categories are pooled before."""
    shape = draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    counts = draw(
        arrays.arrays(np.intp, shape, elements=st.sampled_from([0, 0, 1, 2, 3, 4, 4, 5, 6, 9, 40]))
    )
    for axis in (0, 1):
        while (few := np.argwhere(small(counts.sum(axis=axis), MINIMUM))).size:
            counts = np.delete(counts, few[0, 0], axis=1 - axis)
    while any(small(counts.sum(axis=axis), MINIMUM).any() for axis in (0, 1)):
        counts = counts[~small(counts.sum(axis=1), MINIMUM)]
        counts = counts[:, ~small(counts.sum(axis=0), MINIMUM)]
    return counts


def bounds(counts, hidden):
    """The least and the largest value of every withheld cell, given the other cells and all
    totals.
    """
    cells = np.argwhere(hidden)
    equations = np.vstack(
        [
            *[cells[:, 0] == row for row in range(counts.shape[0])],
            *[cells[:, 1] == column for column in range(counts.shape[1])],
        ]
    ).astype(float)
    unknown = np.where(hidden, counts, 0)
    totals = np.concatenate([unknown.sum(axis=1), unknown.sum(axis=0)])
    found = []
    for k in range(len(cells)):
        objective = np.eye(len(cells))[k]
        least = linprog(objective, A_eq=equations, b_eq=totals)
        most = linprog(-objective, A_eq=equations, b_eq=totals)
        assert least.success
        assert most.success
        found.append((round(least.fun, 6), round(-most.fun, 6)))
    return cells, found


def check(counts, hidden, minimum=MINIMUM):
    """Every withheld cell may have two values, and a small one may be one that is not small."""
    assert (hidden | ~small(counts, minimum)).all()
    for cell, (least, most) in zip(*bounds(counts, hidden), strict=True):
        assert most >= least + 1, f"cell {cell} is {least}"
        if small(counts[tuple(cell)], minimum):
            assert most >= minimum, f"cell {cell} is at most {most}"


@settings(max_examples=200)
@given(tables())
def test_no_cell_that_is_withheld_is_known(counts):
    hidden = withheld(counts, MINIMUM)
    if counts.size:
        check(counts, hidden)
    assert hidden.any() == small(counts, MINIMUM).any()


@given(tables())
def test_rows_and_columns_may_change_places(counts):
    np.testing.assert_array_equal(withheld(counts, 1), np.zeros(counts.shape, bool))
    if counts.size:
        check(counts.T, withheld(counts.T, MINIMUM))


SMALL_CELL = np.array([[3, 40, 12], [9, 30, 20], [8, 7, 6]])


@pytest.mark.parametrize(
    "weaker",
    [
        small,
        lambda counts, minimum: (
            small(counts, minimum) | (np.arange(3) == 2)[:, None] & small(counts, minimum).any(0)
        ),
    ],
    ids=["small cells alone", "one more cell of the column"],
)
def test_less_would_tell_a_small_cell(weaker):
    """Without the second step, or with a part of it, a total less the cells that are told is the
    small cell.
    """
    with pytest.raises(AssertionError, match=r"cell \[0 0\] is"):
        check(SMALL_CELL, weaker(SMALL_CELL, MINIMUM))
    check(SMALL_CELL, withheld(SMALL_CELL, MINIMUM))


def test_the_cheapest_cells_hide_a_small_one():
    hidden = withheld(SMALL_CELL, MINIMUM)
    np.testing.assert_array_equal(
        hidden, [[True, False, True], [False, False, False], [True, False, True]]
    )


def test_cells_without_rows_are_withheld_only_where_nothing_else_hides_a_small_cell():
    ring = np.array([[3, 5, 0], [2, 0, 9]])
    hidden = withheld(ring, MINIMUM)
    check(ring, hidden)
    assert hidden[1, 1]
    wide = np.array([[3, 5, 6], [2, 0, 9]])
    check(wide, withheld(wide, MINIMUM))
    assert not withheld(wide, MINIMUM)[1, 1]


def test_few_rows_are_withheld_as_a_whole():
    assert withheld(np.array([[2, 0], [1, 1]]), MINIMUM).all()
    assert not withheld(np.zeros((2, 2), np.intp), MINIMUM).any()


def test_a_small_total_is_refused():
    with pytest.raises(ValueError, match="pool its category"):
        withheld(np.array([[3, 0], [0, 40]]), MINIMUM)
