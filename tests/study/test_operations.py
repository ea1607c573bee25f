"""Every operation and kind gives the same result and bill in one process, at workers and between
organisations.

A combination that is not supported is refused with the same message. Clusters are in
tests/engines/test_operations.py.
"""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest

import coterie
from tests.harness import operations
from tests.harness.operations import CELLS, KINDS, Among, On, ask, assert_alike
from tests.harness.workers import Workers


@functools.cache
def in_one_process(operation, kind):
    return ask(operation, kind, On("local"))


@pytest.mark.parametrize("cell", CELLS, ids=" of ".join)
def test_it_is_the_same_at_workers(cell):
    assert_alike(ask(*cell, On(Workers())), in_one_process(*cell))


@pytest.mark.rotates
@pytest.mark.parametrize("cell", CELLS, ids=" of ".join)
def test_it_is_the_same_between_organisations(cell, tmp_path):
    found, expected = ask(*cell, Among(tmp_path)), in_one_process(*cell)
    if cell == ("path", "columns"):
        found = found | {"validation": without_digests(found, expected)}
    assert_alike(found, expected, exact=False)


def without_digests(found, expected):
    """The cost of a cross-validation without the digests that organisations compare after each sum
    that has no masks: they are messages without numbers.
    """
    own, alone = found["validation"], expected["validation"]
    assert own["messages"] > alone["messages"]
    assert own["bits"] > alone["bits"]
    return alone | {"scalars": own["scalars"]}


def test_every_kind_of_problem_has_cells():
    folders = (Path(coterie.__file__).parent / "problems").glob("*/kind.py")
    names = {file.parent.name.replace("_", "-") for file in folders}
    assert {case.kind for case in KINDS.values()} == names


def test_too_few_clusters_are_refused_in_words_of_all_interfaces(monkeypatch):
    monkeypatch.setattr(operations, "wards_of", lambda table: np.array(["a", "b"] * 8))
    refused = ask("inference by clustered", "linear", On("local"))["refused"]
    assert refused.endswith("Use robust standard errors, or fewer columns.")


@pytest.mark.parametrize("kind", ["low-rank", "shared", "personal"])
def test_a_refusal_says_which_kind_is_refused(kind):
    assert "is of another kind" in in_one_process("evaluate", kind)["refused"]
    assert "no standard errors" in in_one_process("inference", kind)["refused"]
