"""Coterie learns certified convex models from data that stays where it is.

import coterie as co
result = co.solve(co.Problem(loss="logistic", penalty="l2", strength=1e-3), (X, y), agents=8)
print(result)

Public names, and the modules of this package, are imported when they are first asked for: `import coterie`, and a
command that was misspelt, wait neither for numpy nor for compilers. So `co.solve` and `co.losses.LOSSES` are names that
any module may use without importing anything but `coterie`.
"""

from __future__ import annotations

import sys
import typing
from importlib import import_module
from importlib.metadata import version
from types import ModuleType

if typing.TYPE_CHECKING:
    from coterie import (
        data,
        demo,
        doctor,
        engines,
        files,
        losses,
        methods,
        models,
        networks,
        penalties,
        progress,
        report,
        tasks,
    )
    from coterie.agent import Agent
    from coterie.bill import Bill
    from coterie.catalogue import register
    from coterie.certificate import Certificate, Point
    from coterie.data import Table, align, read
    from coterie.data.recipes import Preparation
    from coterie.data.remote import Rows
    from coterie.describe import describe
    from coterie.description import Description
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
    from coterie.evaluate import evaluate
    from coterie.evaluation import Evaluation
    from coterie.inference import Inference
    from coterie.losses import Loss
    from coterie.methods import Disclosure, Method
    from coterie.networks import Network
    from coterie.path import Path, path
    from coterie.penalties import Penalty
    from coterie.plan import Plan, plan
    from coterie.problem import Problem
    from coterie.problems.kind import Kind
    from coterie.problems.linear.model import LinearModel
    from coterie.problems.low_rank.model import LowRankModel
    from coterie.problems.multiclass.model import MulticlassModel
    from coterie.problems.personal.model import PersonalModel
    from coterie.problems.personal.problem import Personal
    from coterie.problems.shared.model import SharedModel
    from coterie.problems.shared.problem import Shared
    from coterie.problems.survival.labels import survival_labels
    from coterie.problems.survival.model import Baseline, SurvivalModel
    from coterie.result import Result
    from coterie.solve import solve
    from coterie.statuses import Status
    from coterie.verify import verify
    from coterie.words import Ask, Exchange, Mix, Sum, Talk

__version__ = version("coterie")

__all__ = [
    "Agent",
    "Ask",
    "Baseline",
    "Bill",
    "Certificate",
    "CoterieError",
    "CoxRegressor",
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
    "Result",
    "Rows",
    "Shared",
    "SharedModel",
    "Status",
    "Sum",
    "SurvivalModel",
    "Table",
    "Talk",
    "align",
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
    "agent": "Agent",
    "bill": "Bill",
    "catalogue": "register",
    "certificate": "Certificate Point",
    "data": "Table align read",
    "data.recipes": "Preparation",
    "data.remote": "Rows",
    "engines": "Engine",
    "errors": "CoterieError",
    "estimators": "CoxRegressor LinearClassifier LinearRegressor LowRankClassifier LowRankRegressor "
    "MatrixCompleter PersonalizedClassifier PersonalizedRegressor",
    "describe": "describe",
    "description": "Description",
    "evaluate": "evaluate",
    "evaluation": "Evaluation",
    "inference": "Inference",
    "losses": "Loss",
    "methods": "Disclosure Method",
    "networks": "Network",
    "path": "Path path",
    "penalties": "Penalty",
    "plan": "Plan plan",
    "problem": "Problem",
    "problems.kind": "Kind",
    "problems.linear.model": "LinearModel",
    "problems.low_rank.model": "LowRankModel",
    "problems.multiclass.model": "MulticlassModel",
    "problems.personal.model": "PersonalModel",
    "problems.personal.problem": "Personal",
    "problems.shared.model": "SharedModel",
    "problems.shared.problem": "Shared",
    "problems.survival.labels": "survival_labels",
    "problems.survival.model": "Baseline SurvivalModel",
    "result": "Result",
    "solve": "solve",
    "statuses": "Status",
    "verify": "verify",
    "words": "Ask Exchange Mix Sum Talk",
}
_HOME = {name: module for module, names in _NAMES_OF.items() for name in names.split()}
"""The module of each public name."""


class _Package(ModuleType):
    """`co.solve` is the function, also after somebody has imported the module of that name."""

    def __setattr__(self, name: str, value: object) -> None:
        if isinstance(value, ModuleType) and _HOME.get(name) == name:
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package

if not typing.TYPE_CHECKING:

    def __getattr__(name: str) -> typing.Any:
        if name.startswith("_"):
            raise AttributeError(f"module 'coterie' has no attribute {name!r}")
        if name not in _HOME:
            try:
                return import_module(f"coterie.{name}")
            except ModuleNotFoundError as error:
                if error.name != f"coterie.{name}":
                    raise
                raise AttributeError(
                    f"module 'coterie' has no attribute {name!r}", name=name, obj=sys.modules[__name__]
                ) from None
        globals()[name] = value = getattr(import_module(f"coterie.{_HOME[name]}"), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
