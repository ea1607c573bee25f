"""Python, the shell, the estimators and study files have the same defaults: those of
`coterie.run.settings`.
"""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields

import msgspec
import pytest
import typer

import coterie as co
from coterie import cli
from coterie.estimators import __all__ as ESTIMATORS
from coterie.problems.parts.data import Data
from coterie.run.settings import KEYWORDS, Algorithm, Limits, Placement, Settings
from coterie.study.study import Study

PARTS = (Limits, Algorithm, Placement, Settings)
KNOWN = [one for part in PARTS for one in fields(part) if one.name in KEYWORDS]
DEFAULTS = {one.name: one.default for one in KNOWN if one.default is not MISSING}
COMMANDS = typer.main.get_command(cli.app).commands
OWN = {
    "users": {"split": "users", "tol": 1e-2, "max_rounds": 500, "network": "learned"},
    "provision": {"split": "features"},
    "demo": {},
}
"""Commands, estimators and files that are about other models, or other data, and what they have
instead.
"""
OWN |= {"LowRankClassifier": {"tol": 1e-4}, "MatrixCompleter": {"tol": 1e-4, "max_rounds": 200}}
OWN |= {"PersonalizedClassifier": {"network": "learned", "tol": 1e-2, "max_rounds": 500}}
OWN |= {"PersonalizedRegressor": {"max_rounds": 2000}}


def agree(given: dict[str, object], own: dict[str, object] | None = None) -> None:
    expected = {
        name: (own or {}).get(name, DEFAULTS[name]) for name in DEFAULTS.keys() & given.keys()
    }
    assert {name: given[name] for name in expected} == expected


def test_every_keyword_of_solve_is_a_setting():
    known = set(inspect.signature(co.solve).parameters)
    assert known - KEYWORDS == {"problem", "data", "more", "offset", "warm_start", "options"}
    assert known >= KEYWORDS
    assert DEFAULTS.keys() == KEYWORDS


@pytest.mark.parametrize(
    "function", [co.solve, co.path, co.plan, co.evaluate, co.describe], ids=lambda one: one.__name__
)
def test_functions(function):
    agree({name: one.default for name, one in inspect.signature(function).parameters.items()})


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_commands(name):
    agree(
        {param.name: param.default for param in COMMANDS[name].params if param.default is not None},
        OWN.get(name),
    )


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators(name):
    agree(
        {one.name: one.default for one in fields(getattr(co, name))} | {"warm_start": False},
        OWN.get(name),
    )


HELP = {param.name: param.help for param in COMMANDS["fit"].params}


def test_parameters_of_losses():
    for loss, name in (("huber", "threshold"), ("quantile", "level")):
        known = getattr(co.Problem(loss).loss, name)
        assert getattr(co.LinearRegressor(loss=loss), name) == known
        assert f"(default {known:g})" in HELP[name]


def test_the_intercept():
    for loss in ("squared", "logistic", "poisson"):
        assert co.Problem(loss).intercept
    assert co.LinearRegressor().fit_intercept
    assert co.LinearClassifier().fit_intercept
    assert "default: yes" in HELP["intercept"]


def test_the_number_of_agents():
    assert f"(default {Data.pieces})" in HELP["agents"]
    assert f"default={Data.pieces}" in co.solve.__doc__
    assert f"({Data.pieces})" in co.LinearRegressor.__doc__


def test_study_files():
    known = {one.name: one.default for one in msgspec.structs.fields(Study)}
    agree(known, {"split": "features"})
