"""Coterie learns certified convex models from data that stays where it is.

import coterie as co
result = co.solve(co.Problem(loss="logistic", penalty="l2", strength=1e-3), (X, y), agents=8)
print(result)
"""

from __future__ import annotations

import typing
from importlib.metadata import version

from coterie import networks
from coterie.bill import Bill
from coterie.certificate import Certificate
from coterie.data import Table, align, read
from coterie.data.distant import Rows
from coterie.errors import CoterieError
from coterie.models import LinearModel, LowRankModel, PersonalModel
from coterie.networks import Network
from coterie.path import Path, path
from coterie.personal import Personal
from coterie.plan import Plan, plan
from coterie.problem import Problem
from coterie.result import Result
from coterie.solve import solve
from coterie.statuses import Status
from coterie.verify import verify
from coterie.words import Ask, Exchange, Mix, Sum

if typing.TYPE_CHECKING:
    from coterie.estimators import (
        LinearClassifier,
        LinearRegressor,
        LowRankClassifier,
        LowRankRegressor,
        PersonalizedClassifier,
    )

__version__ = version("coterie")

__all__ = [
    "Ask",
    "Bill",
    "Certificate",
    "CoterieError",
    "Exchange",
    "LinearClassifier",
    "LinearModel",
    "LinearRegressor",
    "LowRankClassifier",
    "LowRankModel",
    "LowRankRegressor",
    "Mix",
    "Network",
    "Path",
    "Personal",
    "PersonalModel",
    "PersonalizedClassifier",
    "Plan",
    "Problem",
    "Result",
    "Rows",
    "Status",
    "Sum",
    "Table",
    "align",
    "networks",
    "path",
    "plan",
    "read",
    "solve",
    "verify",
]


def __getattr__(name: str) -> typing.Any:
    """The estimators, when they are first asked for: scikit-learn takes longer to import than all the rest."""
    if name in __all__:
        from coterie import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module 'coterie' has no attribute {name!r}")
