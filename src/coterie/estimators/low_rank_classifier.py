"""Classification into many classes by a matrix of low rank, on rows that are apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.special import log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import validate_data

from coterie.arrays import FloatArray
from coterie.engines import Engine
from coterie.errors import InvalidProblem
from coterie.estimators.callbacks import with_callbacks
from coterie.estimators.distributed import class_weights, positive_weights, rows_of, two_classes_at_least
from coterie.estimators.low_rank import LowRank
from coterie.methods import Method
from coterie.problem import Problem

__all__ = ["LowRankClassifier"]


class LowRankClassifier(ClassifierMixin, LowRank):  # type: ignore[misc]
    """A certified multinomial model: least mean of −log softmax(xᵢW)[yᵢ] over all W of trace norm at most `radius`.

    Rows are apart, and there is no intercept: centre the columns, or append a column of ones.

    Parameters
    ----------
    radius : float
        The trace norm of the coefficients at most: small values give few patterns, i.e. a low rank.
    class_weight : dict, "balanced" or None
        Weights of the classes, which multiply those of the samples.
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
    classes_ : the labels, sorted
    coef_ : Wᵀ, one row per class
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
        class_weight: Any = None,
        agents: Any = None,
        network: Any = None,
        method: str | Method = "auto",
        engine: str | Engine = "local",
        acceleration: str = "auto",
        tol: float = 1e-4,
        max_rounds: int = 10_000,
        warm_start: bool = False,
        checkpoint: str | Path | None = None,
        secure_sums: bool | None = None,
        random_state: Any = None,
    ):
        self.radius = radius
        self.class_weight = class_weight
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
        problem = Problem("multinomial", "traceball", radius=self.radius)
        if (rows := rows_of(X, y, sample_weight)) is not None:
            result = self._solve_rows(problem, rows, self.tol)
            self.classes_ = result.model.classes_
            self._keep_model(result.model, result.model.U.dtype)
            return self
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], order="C")
        kept, weights = positive_weights(X, sample_weight)
        X, y = X[kept], y[kept]
        self.classes_, place = two_classes_at_least(y)
        weights = class_weights(self.class_weight, self.classes_, place, y, weights)
        (result,) = self._solve(problem, X, weights, [y], self.tol)
        self._keep_model(result.model, X.dtype)
        return self

    def decision_function(self, X: Any) -> FloatArray:
        """One score per row and class; for two classes, how far the second is ahead of the first."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The most probable class."""
        scores = self._scores(X)
        predicted: npt.NDArray[Any] = self.classes_[scores.argmax(axis=1)]
        return predicted

    def predict_proba(self, X: Any) -> FloatArray:
        """The probability of every class."""
        probabilities: FloatArray = softmax(self._scores(X), axis=1)
        return probabilities

    def predict_log_proba(self, X: Any) -> FloatArray:
        """The logarithms of the probabilities."""
        logarithms: FloatArray = log_softmax(self._scores(X), axis=1)
        return logarithms

    def predict_top_k(self, X: Any, k: int = 5) -> npt.NDArray[Any]:
        """The k most probable classes of every row, the best first."""
        scores = self._scores(X)
        if not 1 <= k <= len(self.classes_):
            raise InvalidProblem(f"k must be between 1 and the {len(self.classes_)} classes, not {k!r}.")
        predicted: npt.NDArray[Any] = self.classes_[np.argsort(-scores, axis=1, kind="stable")[:, :k]]
        return predicted

    def top_k_score(self, X: Any, y: Any, k: int = 5, sample_weight: Any = None) -> float:
        """The share of rows whose class is among the k most probable ones."""
        found = (self.predict_top_k(X, k) == np.asarray(y)[:, None]).any(axis=1)
        return float(np.average(found, weights=sample_weight))
