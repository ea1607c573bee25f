"""The fourth set of problems for "auto": what it has, and choices on some of it, by counts."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from benchmarks.auto_problems import AGENTS, COLUMNS, FOURTH, LOSSES, PENALTIES, SHAPES

import coterie as co

LINK = (0.02, 1e8)
BEST = {
    "squared, l2, samples": "gram",
    "logistic, group, samples": "newton",
    "poisson, box, samples": "newton",
    "gamma, l1, features": "blocks",
    "squared_hinge, nonnegative, features": "blocks",
    "poisson, box, features": "tree",
}
"""Problems that take little time, and the best method of all that were measured on them."""


def test_the_fourth_set_has_everything():
    found = {
        (case.problem.loss.name, case.problem.penalty.name, case.split) for case in FOURTH.values()
    }
    assert found == set(product(LOSSES, PENALTIES, SHAPES))
    drawn = [case.data.__self__ for case in FOURTH.values()]
    assert {one.columns for one in drawn} == set(COLUMNS)
    assert {one.shape for one in drawn} == {"tall", "middle", "wide"}
    assert {one.rare for one in drawn} == {case.problem.intercept for case in FOURTH.values()}
    for split, counts in AGENTS.items():
        assert {case.agents for case in FOURTH.values() if case.split == split} >= set(counts)


def test_a_problem_of_the_fourth_set_is_the_same_each_time():
    case = FOURTH["squared, box, features"]
    for one, again in zip(case.data(), case.data(), strict=True):
        np.testing.assert_array_equal(one, again)


@pytest.mark.parametrize("name", BEST)
def test_auto_sends_and_waits_at_most_twice_as_long_as_the_best_method(name):
    case = FOURTH[name]

    def seconds(**how):
        common = {"agents": case.agents, "split": case.split, "network": case.network}
        result = co.solve(case.problem, case.data(), **common, **how, tol=1e-6, progress=False)
        assert result.status.success
        return result.bill.seconds(*LINK)

    assert seconds(link=LINK) <= 2 * seconds(method=BEST[name])
