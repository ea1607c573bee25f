"""Coterie learns certified convex models from data that stays where it is.

import coterie as co
result = co.solve(co.Problem(loss="logistic", penalty="l2", strength=1e-3), (X, y), agents=8)
print(result)

Public names, and the modules of this package, are imported at their first use: `import coterie`,
and a misspelt command, wait neither for numpy nor for compilers. So any module may use `co.solve`
and `co.losses.LOSSES` by importing `coterie` alone.
"""

from __future__ import annotations

import sys
import typing
from importlib import import_module

if typing.TYPE_CHECKING:
    from coterie import data, engines, methods, networks, report
    from coterie.api import demo, doctor, progress, sinks
    from coterie.api.choose import ChosenModel, choose
    from coterie.api.crosstab import Crosstab, crosstab
    from coterie.api.describe import describe
    from coterie.api.description import Description
    from coterie.api.evaluate import evaluate
    from coterie.api.evaluation import Evaluation
    from coterie.api.inference import Inference
    from coterie.api.path import Path, path
    from coterie.api.plan import Plan, plan
    from coterie.api.result import Result
    from coterie.api.solve import solve
    from coterie.api.verify import verify
    from coterie.catalogue import register
    from coterie.data import Table, align, read
    from coterie.data import archives as files
    from coterie.data.preparation.recipes import Preparation
    from coterie.data.remote import Rows
    from coterie.engines import Engine
    from coterie.errors import CoterieError
    from coterie.estimators import (
        CoxRegressor,
        LinearClassifier,
        LinearRegressor,
        LowRankClassifier,
        LowRankRegressor,
        MatrixCompleter,
        PersonalizedClassifier,
        PersonalizedRegressor,
    )
    from coterie.methods import Disclosure, Method
    from coterie.networks import Network
    from coterie.numerics import losses, penalties
    from coterie.numerics.losses import Loss
    from coterie.numerics.penalties import Penalty
    from coterie.problems import models
    from coterie.problems.kind import Kind
    from coterie.problems.linear.model import LinearModel
    from coterie.problems.low_rank import tasks
    from coterie.problems.low_rank.model import LowRankModel
    from coterie.problems.multiclass.model import MulticlassModel
    from coterie.problems.personal.model import PersonalModel
    from coterie.problems.personal.problem import Personal
    from coterie.problems.problem import Problem
    from coterie.problems.shared.model import SharedModel
    from coterie.problems.shared.problem import Shared
    from coterie.problems.survival.labels import survival_labels
    from coterie.problems.survival.model import Baseline, SurvivalModel
    from coterie.run.agent import Agent
    from coterie.run.bill import Bill
    from coterie.run.certificate import Certificate, Point
    from coterie.run.collectives import Ask, Exchange, Mix, Protocol, Sum
    from coterie.run.statuses import Status

__version__: str

__all__ = [
    "Agent",
    "Ask",
    "Baseline",
    "Bill",
    "Certificate",
    "ChosenModel",
    "CoterieError",
    "CoxRegressor",
    "Crosstab",
    "Description",
    "Disclosure",
    "Engine",
    "Evaluation",
    "Exchange",
    "Inference",
    "Kind",
    "LinearClassifier",
    "LinearModel",
    "LinearRegressor",
    "Loss",
    "LowRankClassifier",
    "LowRankModel",
    "LowRankRegressor",
    "MatrixCompleter",
    "Method",
    "Mix",
    "MulticlassModel",
    "Network",
    "Path",
    "Penalty",
    "Personal",
    "PersonalModel",
    "PersonalizedClassifier",
    "PersonalizedRegressor",
    "Plan",
    "Point",
    "Preparation",
    "Problem",
    "Protocol",
    "Result",
    "Rows",
    "Shared",
    "SharedModel",
    "Status",
    "Sum",
    "SurvivalModel",
    "Table",
    "align",
    "choose",
    "crosstab",
    "describe",
    "evaluate",
    "networks",
    "path",
    "plan",
    "read",
    "register",
    "solve",
    "survival_labels",
    "verify",
]

_NAMES_OF = {
    "api.choose": "ChosenModel choose",
    "api.crosstab": "Crosstab crosstab",
    "api.describe": "describe",
    "api.description": "Description",
    "api.evaluate": "evaluate",
    "api.evaluation": "Evaluation",
    "api.inference": "Inference",
    "api.path": "Path path",
    "api.plan": "Plan plan",
    "api.result": "Result",
    "api.solve": "solve",
    "api.verify": "verify",
    "catalogue": "register",
    "data": "Table align read",
    "data.preparation.recipes": "Preparation",
    "data.remote": "Rows",
    "engines": "Engine",
    "errors": "CoterieError",
    "estimators": "CoxRegressor LinearClassifier LinearRegressor LowRankClassifier "
    "LowRankRegressor MatrixCompleter PersonalizedClassifier PersonalizedRegressor",
    "methods": "Disclosure Method",
    "networks": "Network",
    "numerics.losses": "Loss",
    "numerics.penalties": "Penalty",
    "problems.kind": "Kind",
    "problems.linear.model": "LinearModel",
    "problems.low_rank.model": "LowRankModel",
    "problems.multiclass.model": "MulticlassModel",
    "problems.personal.model": "PersonalModel",
    "problems.personal.problem": "Personal",
    "problems.problem": "Problem",
    "problems.shared.model": "SharedModel",
    "problems.shared.problem": "Shared",
    "problems.survival.labels": "survival_labels",
    "problems.survival.model": "Baseline SurvivalModel",
    "run.agent": "Agent",
    "run.bill": "Bill",
    "run.certificate": "Certificate Point",
    "run.collectives": "Ask Exchange Mix Protocol Sum",
    "run.statuses": "Status",
}
_HOME = {name: module for module, names in _NAMES_OF.items() for name in names.split()}
"""The module of each public name."""

_MODULES = {
    "data": "data",
    "demo": "api.demo",
    "doctor": "api.doctor",
    "engines": "engines",
    "errors": "errors",
    "files": "data.archives",
    "losses": "numerics.losses",
    "methods": "methods",
    "models": "problems.models",
    "networks": "networks",
    "penalties": "numerics.penalties",
    "progress": "api.progress",
    "report": "report",
    "sinks": "api.sinks",
    "tasks": "problems.low_rank.tasks",
}
"""The modules that are public as a whole, as in `co.losses.LOSSES`."""

if not typing.TYPE_CHECKING:

    def __getattr__(name: str) -> typing.Any:
        if name in _HOME:
            value = getattr(import_module(f"coterie.{_HOME[name]}"), name)
        elif name in _MODULES:
            value = import_module(f"coterie.{_MODULES[name]}")
        elif name == "__version__":
            # Reading it takes most of the time of `import coterie`, in which a command cannot say
            # that it was stopped.
            value = import_module("importlib.metadata").version("coterie")
        else:
            raise AttributeError(
                f"module 'coterie' has no attribute {name!r}", name=name, obj=sys.modules[__name__]
            )
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, "__version__"})
