"""Linear classification with any loss and penalty, on data that is apart; several classes one against the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import validate_data

from coterie.arrays import FloatArray, product
from coterie.engines import Engine
from coterie.estimators.callbacks import with_callbacks
from coterie.estimators.distributed import (
    Distributed,
    class_weights,
    linear_problem,
    positive_weights,
    rows_of,
    two_classes_at_least,
)
from coterie.losses import LOSSES, Loss
from coterie.methods import Method
from coterie.penalties import Penalty

__all__ = ["LinearClassifier"]


def _has_probabilities(estimator: LinearClassifier) -> bool:
    loss = estimator.loss
    chosen = type(loss) if isinstance(loss, Loss) else dict(LOSSES).get(loss)
    if chosen is not None and chosen.probability is not Loss.probability:
        return True
    raise AttributeError(f"loss={estimator.loss!r} has no probabilities; use loss='logistic', or decision_function.")


class LinearClassifier(ClassifierMixin, Distributed):  # type: ignore[misc]
    """A certified linear classifier: min over w, b of (1/n) Σ sᵢ loss(yᵢ(xᵢ·w + b)) + alpha · penalty(w).

    `LinearClassifier(alpha=1 / (n * C))` is `LogisticRegression(C=C)`, and with `loss="hinge"` a linear SVM. With more
    than two classes there is one problem for each, that class against the rest, and `result_`, `certificate_`, `bill_`,
    `dual_gap_` and `n_iter_` have one entry per class.

    Parameters
    ----------
    loss : "logistic", "hinge" or "squared_hinge"
        or a `Loss`.
    penalty : "l2", "l1", "elasticnet", "nonnegative" or "none"
        or a `Penalty`, which has its own parameters.
    alpha : float
        How strong the penalty is.
    l1_ratio : float
        The share of the l1 part in "elasticnet".
    fit_intercept : bool
        Whether b is fitted; it is never penalised.
    class_weight : dict, "balanced" or None
        Weights of the classes, which multiply those of the samples.
    split : "samples" or "features"
        What is apart.
    agents : int or list
        How many agents (8), or which sizes, rows or columns each has.
    network, method, engine, acceleration
        As in `co.solve`.
    tol : float
        Stop when the certified gap is at most tol times the objective of the best constant model (of 0 without
        an intercept).
    max_rounds : int
        Rounds at most; a `ConvergenceWarning` says that they did not suffice.
    warm_start : bool
        Whether the next `fit` starts from this one's answer, if the data has the same shape and number of classes.
    checkpoint : path
        A folder from which the same fit goes on after a crash.
    secure_sums : bool, optional
        Whether sums are of whole numbers, and between organisations masked, as in `coterie.solve`.
    random_state : int, RandomState or None
        The seed of everything random; None is 0.

    Attributes
    ----------
    classes_ : the labels, sorted
    coef_, intercept_ : the model; one row per class, or a single one for two classes
    result_, certificate_, bill_ : what `co.solve` returned, its proof, and what it cost
    dual_gap_ : how far the objective can be from the least possible one
    n_iter_ : how many rounds were run
    n_features_in_, feature_names_in_ : what was seen in `fit`
    """

    def __init__(
        self,
        loss: str | Loss = "logistic",
        *,
        penalty: str | Penalty = "l2",
        alpha: float = 1e-3,
        l1_ratio: float = 0.5,
        fit_intercept: bool = True,
        class_weight: Any = None,
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
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
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
        problem = linear_problem(self, "classification")
        if (rows := rows_of(X, y, sample_weight)) is not None:
            model = self._solve_rows(problem, rows, self.tol).model
            self.classes_, self.coef_ = model.classes_, model.coef_[None]
            self.intercept_ = np.array([model.intercept_], model.coef_.dtype)
            return self
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], order="C")
        kept, weights = positive_weights(X, sample_weight)
        X, y = X[kept], y[kept]
        self.classes_, place = two_classes_at_least(y)
        weights = class_weights(self.class_weight, self.classes_, place, y, weights)
        several = len(self.classes_) > 2
        labels = [np.where(place == k, 1, -1) for k in range(len(self.classes_))] if several else [y]
        results = self._solve(problem, X, weights, labels, self.tol)
        self.coef_ = np.array([result.model.coef_ for result in results])
        self.intercept_ = np.array([result.model.intercept_ for result in results], self.coef_.dtype)
        return self

    def decision_function(self, X: Any) -> FloatArray:
        """The scores: one number per row for two classes (positive: the second), else one per row and class."""
        scores: FloatArray = product(self._checked(X), self.coef_.T) + self.intercept_
        return scores.ravel() if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The class with the largest score."""
        scores = self.decision_function(X)
        places = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        predicted: npt.NDArray[Any] = self.classes_[places]
        return predicted

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> FloatArray:
        """The probabilities of the classes; for more than two, those of one against the rest, scaled to add up to 1."""
        scores, probability = self.decision_function(X), linear_problem(self, "classification").loss.probability
        positive = probability(scores, 1.0)
        if scores.ndim == 1:
            return np.column_stack([probability(scores, -1.0), positive])
        totals = positive.sum(axis=1, keepdims=True)
        uniform = np.full_like(positive, 1.0 / len(self.classes_))
        shares: FloatArray = np.divide(positive, totals, out=uniform, where=totals > 0)
        return shares

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> FloatArray:
        """The logarithms of the probabilities."""
        with np.errstate(divide="ignore"):
            logarithms: FloatArray = np.log(self.predict_proba(X))
        return logarithms
