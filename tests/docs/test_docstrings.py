"""The examples in docstrings of public functions and classes run, and print what they say."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest

MODULES = (
    "coterie.api.crosstab",
    "coterie.api.describe",
    "coterie.api.evaluate",
    "coterie.api.path",
    "coterie.api.plan",
    "coterie.api.result",
    "coterie.api.solve",
    "coterie.api.verify",
    "coterie.data.align",
    "coterie.data.preparation.recipes",
    "coterie.data.read",
    "coterie.data.split",
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    found = doctest.testmod(import_module(name))
    assert found.attempted
    assert not found.failed
