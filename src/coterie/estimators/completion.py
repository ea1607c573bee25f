"""Complete a matrix, e.g. of users' ratings of films, from entries held by several parties."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import (
    _check_sample_weight,
    check_array,
    check_consistent_length,
    check_is_fitted,
)

from coterie.api.entries import NamedMatrix
from coterie.api.path import Path, Search, path_of
from coterie.api.solve import fit
from coterie.data.entries import pairs_of
from coterie.errors import InvalidData
from coterie.estimators.distributed import Distributed, explained, warn_unless_optimal
from coterie.numerics.arrays import FloatArray, whole_number
from coterie.problems.parts.data import Data
from coterie.problems.problem import Problem
from coterie.run.settings import Settings

QUICK = {"tol": 1e-3, "max_rounds": 60, "inner": 5, "space": 20}
"""Settings of the fits that only choose a radius. The tolerance is a share of the labels' variance
that is below the noise of most data.
"""
DOUBLINGS = 12
"""Largest number of radii in the sequence of doubled radii."""
STEPS = 3
"""Number of radii on each side of the best one in the second search, up to half and twice the best
radius.
"""


@explained
@dataclass(eq=False, repr=False, kw_only=True)
class MatrixCompleter(RegressorMixin, Distributed):
    """Certified completion of a low-rank matrix: min of (1/n) Σ sᵢ ½(W + a1ᵀ + 1bᵀ − y)² over all W
    of trace norm at most `radius`, in stages that hardly shrink large singular values.

    The sum is over the known entries. X has two columns: the name of an entry's row (e.g. a user)
    and the name of its column (e.g. a film). Names are text or numbers. y has the values of the
    entries. Data is split by samples.

    Parameters
    ----------
    radius : float, sequence or None
        Largest trace norm of W. If it is a sequence, cross-validation at the agents chooses one of
        its numbers. If it is None, cross-validation searches for the best radius, upwards from one
        that the data suggests.
    stages : int
        Number of convex problems that are solved one after the other. With 1, the trace norm is the
        only constraint.
    fit_intercept : bool
        Whether every row and column has an intercept, which is added to W and never penalised.
    cv : int
        Number of folds that choose the radius.

    Attributes
    ----------
    rows_, columns_ : the names of rows and columns, sorted
    path_ : the radii that were compared and their scores, if the radius was chosen
    radius_ : the radius of the model
    singular_values_, rank_ : the singular values and the rank of W
    mean_, row_means_, column_means_ : the intercepts, which are added to W
    """

    radius: Any = field(default=None, kw_only=False)
    stages: int = 5
    fit_intercept: bool = True
    cv: int = 3
    tol: float = 1e-4
    max_rounds: int = 200
    split: ClassVar[str] = "samples"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, offset: Any = None) -> Self:
        """Fit the model to pairs (row, column) and the values of these entries. Entries of weight
        zero are left out.
        """
        if offset is not None:
            raise InvalidData(
                "a completed matrix takes no offset. Take it off the values, and leave it out."
            )
        if y is None:
            raise InvalidData("y is missing: the values of the entries.")
        pairs = pairs_of(X)
        values = check_array(y, ensure_2d=False, dtype=[np.float64, np.float32], input_name="y")
        if values.ndim != 1:
            raise InvalidData(f"y has one number for each entry, but its shape is {values.shape}.")
        check_consistent_length(pairs[0], values)
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(
                sample_weight, values, dtype=np.float64, ensure_non_negative=True
            )
            kept = weights > 0
            pairs = pairs[0][kept], pairs[1][kept]
            values = values[kept]
            weights = weights[kept]
        matrix = NamedMatrix.of([pairs])
        table = matrix.table(pairs, values, weights, columns=_titles(X))
        self._fitted(matrix, table)
        self.n_features_in_ = 2
        return self

    def _fitted(self, matrix: NamedMatrix, table: Any) -> None:
        one = None if self.radius is None or np.ndim(self.radius) else self.radius
        problem = Problem(
            "completion",
            "traceball",
            radius=1.0 if one is None else one,
            intercept=self.fit_intercept,
            shape=matrix.shape,
            stages=self.stages,
        )
        settings = self._settings().but(agents=self._agents(table.n))
        if one is None:
            tried = self._tried(problem, table, settings.but(**QUICK, checkpoint=None))
            self.path_ = replace(tried, results=tuple(map(matrix.named, tried.results)))
            best = tried.best_result
            result = matrix.named(fit(best.model.problem, table, settings, warm_start=best))
        else:
            before = getattr(self, "result_", None) if self.warm_start else None
            same = before is not None and before.model.problem.loss == problem.loss
            result = matrix.named(
                fit(problem, table, settings, warm_start=before if same else None)
            )
        warn_unless_optimal(result, stacklevel=5)
        self._results = (result,)
        self._keep([result])
        self._take([result.model], None, one=True)

    def _tried(self, problem: Problem, table: Any, settings: Settings) -> Path:
        """Compare radii by cross-validation."""
        cv = whole_number("cv", self.cv, least=2)
        if self.radius is None:
            return _searched(problem, table, settings, cv)
        return path_of(problem, table, Search.of(list(self.radius), cv=cv), settings)

    def _agents(self, entries: int) -> Any:
        count = Data.pieces if self.agents is None else self.agents
        return min(count, entries) if isinstance(count, int | np.integer) else count

    def _take(self, models: Sequence[Any], dtype: Any, one: bool) -> None:
        (model,) = models
        self.rows_ = model.row_ids
        self.columns_ = model.column_ids
        self.radius_ = model.problem.penalty.radius
        self.singular_values_ = model.s
        self.rank_ = model.rank_
        self.mean_ = model.mean_
        self.row_means_ = model.row_means_
        self.column_means_ = model.column_means_

    def predict(self, X: Any) -> FloatArray:
        """Predict the entries at pairs (row, column). A row or column whose name was not in the
        data of `fit` has the mean of all rows or columns.
        """
        check_is_fitted(self)
        entries: FloatArray = self.result_.model.predict(X)
        return entries


def _searched(problem: Problem, table: Any, settings: Settings, cv: int) -> Path:
    """Double the radius while the score improves. Then compare closer radii around the best one,
    each fit as a warm start of the next.

    The result of the stages depends on their start. The model of a smaller radius is the better
    start.
    """

    def scored(radii: list[float]) -> Path:
        return path_of(problem, table, Search.of(radii, cv=cv), settings)

    radii, tried = [], [path_of(problem, table, Search.of(count=1, cv=cv), settings)]
    while True:
        radii.append(tried[-1].strengths[0])
        means = [float(np.mean(np.asarray(one.scores))) for one in tried]
        best = int(np.argmin(means))
        if best < len(tried) - 1 or len(tried) == DOUBLINGS:
            break
        tried.append(scored([2.0 * radii[-1]]))
    around = [radii[best] * 2.0 ** (step / STEPS) for step in range(-STEPS, STEPS + 1)]
    found = scored(around)
    return replace(found, validation=sum((one.validation for one in tried), found.validation))


def _titles(X: Any) -> tuple[str, ...] | None:
    """The names of the two columns of a data frame; None for other data."""
    titles = getattr(X, "column_names", None) or getattr(X, "columns", None)
    if titles is None:
        return None
    return tuple(map(str, titles))
