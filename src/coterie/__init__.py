"""Coterie learns certified convex models from data that stays where it is.

import coterie as co
result = co.solve(co.Problem(loss="logistic", penalty="l2", strength=1e-3), (X, y), agents=8)
print(result)
"""

from __future__ import annotations

from importlib.metadata import version

from coterie import networks
from coterie.bill import Bill
from coterie.certificate import Certificate
from coterie.data import Table, align, read
from coterie.errors import CoterieError
from coterie.models import LinearModel
from coterie.networks import Network
from coterie.path import Path, path
from coterie.problem import Problem
from coterie.result import Result
from coterie.solve import solve
from coterie.statuses import Status
from coterie.verify import verify
from coterie.words import Ask, Exchange, Mix, Sum

__version__ = version("coterie")

__all__ = [
    "Ask",
    "Bill",
    "Certificate",
    "CoterieError",
    "Exchange",
    "LinearModel",
    "Mix",
    "Network",
    "Path",
    "Problem",
    "Result",
    "Status",
    "Sum",
    "Table",
    "align",
    "networks",
    "path",
    "read",
    "solve",
    "verify",
]
