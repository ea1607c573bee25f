"""Regression of several numbers at once by a matrix of low rank, on rows that are apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import validate_data

from coterie.arrays import FloatArray
from coterie.engines import Engine
from coterie.estimators.callbacks import with_callbacks
from coterie.estimators.distributed import positive_weights, rows_of
from coterie.estimators.low_rank import LowRank
from coterie.methods import Method
from coterie.problem import Problem

__all__ = ["LowRankRegressor"]


class LowRankRegressor(MultiOutputMixin, RegressorMixin, LowRank):  # type: ignore[misc]
    """A certified multi-task model: min of (1/n) Σ sᵢ ½‖xᵢW − yᵢ‖² over all W of trace norm at most `radius`.

    Rows are apart, and there is no intercept: centre columns and targets, or append a column of ones.

    Parameters
    ----------
    radius : float
        The trace norm of the coefficients at most: small values give few patterns, i.e. a low rank.
    agents : int or list
        How many agents (8), or which sizes or rows each has.
    network, method, engine, acceleration
        As in `co.solve`.
    tol : float
        Stop when the certified gap is at most tol times the objective at 0.
    max_rounds : int
        Rounds at most; a `ConvergenceWarning` says that they did not suffice.
    warm_start : bool
        Whether the next `fit` starts from this one's answer, if the data has the same shape.
    checkpoint : path
        A folder from which the same fit goes on after a crash.
    secure_sums : bool, optional
        Whether sums are of whole numbers, and between organisations masked, as in `coterie.solve`.
    random_state : int, RandomState or None
        The seed of everything random; None is 0.

    Attributes
    ----------
    coef_ : Wᵀ, one row per target, or a single vector if y is one
    singular_values_, rank_ : of W
    result_, certificate_, bill_ : what `co.solve` returned, its proof, and what it cost
    dual_gap_ : how far the objective can be from the least possible one
    n_iter_ : how many rounds were run
    n_features_in_, feature_names_in_ : what was seen in `fit`
    """

    def __init__(
        self,
        radius: float = 10.0,
        *,
        agents: Any = None,
        network: Any = None,
        method: str | Method = "auto",
        engine: str | Engine = "local",
        acceleration: str = "auto",
        tol: float = 1e-6,
        max_rounds: int = 10_000,
        warm_start: bool = False,
        checkpoint: str | Path | None = None,
        secure_sums: bool | None = None,
        random_state: Any = None,
    ):
        self.radius = radius
        self.agents = agents
        self.network = network
        self.method = method
        self.engine = engine
        self.acceleration = acceleration
        self.tol = tol
        self.max_rounds = max_rounds
        self.warm_start = warm_start
        self.checkpoint = checkpoint
        self.secure_sums = secure_sums
        self.random_state = random_state

    @with_callbacks  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model; rows of weight zero are left out.

        On a cluster X may be `co.Rows`, or a Spark DataFrame or Ray Dataset, of which y and sample_weight name columns.
        """
        problem = Problem("squared", "traceball", radius=self.radius)
        if (rows := rows_of(X, y, sample_weight)) is not None:
            targets = [rows.target] if isinstance(rows.target, str) else list(rows.target)
            result = self._solve_rows(problem, replace(rows, target=targets), self.tol)
            self._keep_model(result.model, result.model.U.dtype)
            if isinstance(rows.target, str) and len(self.coef_) == 1:
                self.coef_ = self.coef_.ravel()
            return self
        X, y = validate_data(
            self,
            X,
            y,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            order="C",
            multi_output=True,
            y_numeric=True,
        )
        kept, weights = positive_weights(X, sample_weight)
        X, targets = X[kept], y[kept].astype(X.dtype, copy=False).reshape(-1, 1 if y.ndim == 1 else y.shape[1])
        (result,) = self._solve(problem, X, weights, [targets], self.tol)
        self._keep_model(result.model, X.dtype)
        if y.ndim == 1:
            self.coef_ = self.coef_.ravel()
        return self

    def predict(self, X: Any) -> FloatArray:
        """One number per row, or one per row and target."""
        scores = self._scores(X)
        return scores if self.coef_.ndim == 2 else scores.ravel()
