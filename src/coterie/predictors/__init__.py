"""Base predictors: the functions h_1, ..., h_n of which every user's classifier is a weighted sum."""

from __future__ import annotations

from coterie.predictors.given import Given
from coterie.predictors.linear import Linear
from coterie.predictors.predictors import Predictors
from coterie.predictors.stumps import Stumps

__all__ = ["Given", "Linear", "Predictors", "Stumps"]
