"""Linear regression with any loss and penalty, on data that is apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import validate_data

from coterie.arrays import FloatArray, product
from coterie.engines import Engine
from coterie.estimators.callbacks import with_callbacks
from coterie.estimators.distributed import Distributed, linear_problem, positive_weights, rows_of
from coterie.losses import Loss
from coterie.methods import Method
from coterie.penalties import Penalty

__all__ = ["LinearRegressor"]


class LinearRegressor(RegressorMixin, Distributed):  # type: ignore[misc]
    """A certified linear model: min over w, b of (1/n) Σ sᵢ loss(xᵢ·w + b, yᵢ) + alpha · penalty(w).

    `LinearRegressor(penalty="l1", alpha=a)` is `Lasso(alpha=a)`, with `loss="quantile"` it is
    `QuantileRegressor(alpha=a)`, and `LinearRegressor(alpha=a / n)` is `Ridge(alpha=a)`.

    Parameters
    ----------
    loss : "squared", "huber", "absolute" or "quantile"
        or a `Loss`.
    penalty : "l2", "l1", "elasticnet", "nonnegative" or "none"
        or a `Penalty`, which has its own parameters.
    alpha : float
        How strong the penalty is.
    l1_ratio : float
        The share of the l1 part in "elasticnet".
    threshold : float
        Where the Huber loss turns linear, in units of y.
    level : float
        Which quantile, between 0 and 1.
    fit_intercept : bool
        Whether b is fitted; it is never penalised.
    split : "samples" or "features"
        What is apart.
    agents : int or list
        How many agents (8), or which sizes, rows or columns each has.
    network, method, engine, acceleration
        As in `co.solve`.
    tol : float
        Stop when the certified gap is at most tol times the objective of the best constant model (of 0 without
        intercept).
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
    coef_, intercept_ : the model
    result_, certificate_, bill_ : what `co.solve` returned, its proof, and what it cost
    dual_gap_ : how far the objective can be from the least possible one
    n_iter_ : how many rounds were run
    n_features_in_, feature_names_in_ : what was seen in `fit`
    """

    def __init__(
        self,
        loss: str | Loss = "squared",
        *,
        penalty: str | Penalty = "l2",
        alpha: float = 1e-3,
        l1_ratio: float = 0.5,
        threshold: float = 1.35,
        level: float = 0.5,
        fit_intercept: bool = True,
        split: str = "samples",
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
        self.loss = loss
        self.penalty = penalty
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.threshold = threshold
        self.level = level
        self.fit_intercept = fit_intercept
        self.split = split
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
        problem = linear_problem(self, "regression")
        if (rows := rows_of(X, y, sample_weight)) is not None:
            model = self._solve_rows(problem, rows, self.tol).model
            self.coef_, self.intercept_ = model.coef_, model.intercept_
            return self
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], y_numeric=True, order="C")
        kept, weights = positive_weights(X, sample_weight)
        X, y = X[kept], y[kept].astype(X.dtype, copy=False)
        results = self._solve(problem, X, weights, [y], self.tol)
        self.coef_ = results[0].model.coef_
        self.intercept_ = results[0].model.intercept_
        return self

    def predict(self, X: Any) -> FloatArray:
        """X·coef_ + intercept_."""
        scores: FloatArray = product(self._checked(X), self.coef_) + self.intercept_
        return scores
