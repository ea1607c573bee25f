"""Estimators with the interface of scikit-learn, which also give a certificate of each fit."""

from __future__ import annotations

from coterie.estimators.completion import MatrixCompleter
from coterie.estimators.linear import LinearClassifier, LinearRegressor
from coterie.estimators.low_rank import LowRankClassifier, LowRankRegressor
from coterie.estimators.personalized import PersonalizedClassifier, PersonalizedRegressor
from coterie.estimators.survival import CoxRegressor

__all__ = [
    "CoxRegressor",
    "LinearClassifier",
    "LinearRegressor",
    "LowRankClassifier",
    "LowRankRegressor",
    "MatrixCompleter",
    "PersonalizedClassifier",
    "PersonalizedRegressor",
]
