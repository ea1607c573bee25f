"""Doors for people who know scikit-learn: fit, predict, and a certificate."""

from __future__ import annotations

from coterie.estimators.linear_classifier import LinearClassifier
from coterie.estimators.linear_regressor import LinearRegressor
from coterie.estimators.low_rank_classifier import LowRankClassifier
from coterie.estimators.low_rank_regressor import LowRankRegressor
from coterie.estimators.personalized import PersonalizedClassifier

__all__ = ["LinearClassifier", "LinearRegressor", "LowRankClassifier", "LowRankRegressor", "PersonalizedClassifier"]
