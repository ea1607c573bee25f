"""What the estimators share: from scikit-learn's parameters to `solve`, and from its results to fitted attributes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import fields, replace
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from coterie.arrays import FloatArray, Matrix, whole_number
from coterie.data import Table
from coterie.data.remote import Rows
from coterie.errors import InvalidData, InvalidProblem
from coterie.estimators.callbacks import CallbackSupport, each_certificate
from coterie.losses import LOSSES, Loss
from coterie.penalties import PENALTIES
from coterie.problem import Problem
from coterie.result import Result
from coterie.session.tables import DEFAULT_AGENTS, gather
from coterie.solve import solve

__all__ = [
    "Distributed",
    "class_weights",
    "linear_problem",
    "positive_weights",
    "rows_of",
    "seed_of",
    "two_classes_at_least",
    "warn_unless_optimal",
]


class Distributed(CallbackSupport, BaseEstimator):  # type: ignore[misc]
    """An estimator that is fitted by `solve`, on data that it splits over agents."""

    result_: Any
    _results: tuple[Result, ...]
    _kind: Any

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _solve(
        self, problem: Problem, X: Matrix, weights: FloatArray | None, labels: Sequence[npt.NDArray[Any]], tol: float
    ) -> list[Result]:
        """Split the rows over the agents as the parameters say, and solve the problem once for each kind of labels."""
        seed = seed_of(self.random_state)
        names = getattr(self, "feature_names_in_", None)
        numbered = Table(X, np.arange(X.shape[0]), weights, columns=None if names is None else tuple(map(str, names)))
        tables = gather(numbered, self.split, _at_most(self.agents, X.shape[self.split == "features"]), seed)
        kind = [(t.n, t.d) for t in tables], [y.shape[1:] for y in labels], len(getattr(self, "classes_", ()))
        warm = self.warm_start and kind == getattr(self, "_kind", None)
        previous = self._results if warm else [None] * len(labels)
        datasets = [[t if t.y is None else replace(t, y=y[t.y]) for t in tables] for y in labels]
        results = self._solve_each(problem, datasets, None, previous, tol, seed)
        self._kind = kind
        return results

    def _solve_rows(self, problem: Problem, rows: Rows, tol: float) -> Result:
        """Solve the problem for rows of a cluster, where they are; they tell what their columns are called."""
        if self.warm_start:
            raise InvalidProblem("warm_start is for arrays; for Rows use co.solve(..., warm_start=result).")
        if getattr(self, "class_weight", None) is not None:
            raise InvalidProblem("class_weight is for arrays; give Rows a column of weights: co.Rows(..., weight=).")
        (result,) = self._solve_each(problem, [rows], self.agents, [None], tol, seed_of(self.random_state))
        self._kind = None
        self.n_features_in_ = result.model.coef_.shape[0]
        if result.model.columns is not None:
            self.feature_names_in_ = np.array(result.model.columns, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        return result

    def _solve_each(
        self,
        problem: Problem,
        datasets: Sequence[Any],
        agents: Any,
        previous: Sequence[Result | None],
        tol: float,
        seed: int,
    ) -> list[Result]:
        """Solve the problem for each of the datasets, tell the callbacks, and keep what came of it."""
        context = None
        if hasattr(self, "_init_callback_context"):
            context = self._init_callback_context(max_subtasks=len(datasets)).call_on_fit_task_begin(estimator=self)
        results = []
        for place, data in enumerate(datasets):
            task = None
            if context is not None:
                task = context.subcontext(task_name="problem", max_subtasks=None).call_on_fit_task_begin(estimator=self)
            result = solve(
                problem,
                data,
                split=self.split,
                agents=agents,
                network=self.network,
                method=self.method,
                engine=self.engine,
                acceleration=self.acceleration,
                tol=tol,
                max_rounds=self.max_rounds,
                seed=seed,
                checkpoint=self._checkpoint(place, len(datasets)),
                warm_start=previous[place],
                secure_sums=self.secure_sums,
                callback=each_certificate(self, task) if getattr(self, "_skl_callbacks", None) else None,
            )
            if task is not None:
                task.call_on_fit_task_end(estimator=self)
            results.append(result)
        if context is not None:
            context.call_on_fit_task_end(estimator=self)
        for result in results:
            warn_unless_optimal(result, stacklevel=5)
        self._results = tuple(results)
        self._keep(results)
        return results

    def _checked(self, X: Any) -> Matrix:
        """X as it was in `fit`: the columns, dense or sparse, in single or double precision."""
        check_is_fitted(self)
        return validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)

    def _checkpoint(self, place: int, problems: int) -> Any:
        if self.checkpoint is None or problems == 1:
            return self.checkpoint
        return Path(self.checkpoint) / f"problem-{place:03d}"

    def _keep(self, results: Sequence[Result]) -> None:
        """`result_` and its parts; for several problems one of each per problem."""
        certificates = tuple(result.certificate for result in results)
        gaps, rounds = [c.gap for c in certificates], [result.rounds for result in results]
        several = len(results) > 1
        self.result_ = tuple(results) if several else results[0]
        self.certificate_ = certificates if several else certificates[0]
        self.bill_ = tuple(result.bill for result in results) if several else results[0].bill
        self.dual_gap_ = np.array(gaps) if several else gaps[0]
        self.n_iter_ = np.array(rounds) if several else rounds[0]


def rows_of(X: Any, y: Any, sample_weight: Any) -> Rows | None:
    """Rows of a cluster: as such, or as a Spark DataFrame or Ray Dataset with the names of its columns of labels and
    weights. None for data that is here."""
    if isinstance(X, Rows):
        if y is not None or sample_weight is not None:
            raise InvalidData("Rows name their labels and weights themselves: leave y and sample_weight out.")
        return X
    if not (hasattr(X, "mapInArrow") or hasattr(X, "to_arrow_refs")):
        return None
    if not (isinstance(y, str) or (isinstance(y, list | tuple) and all(isinstance(name, str) for name in y))):
        raise InvalidData(f"y names the labels' column, or columns, of the {type(X).__name__}: fit(frame, 'label').")
    return Rows(X, target=y, weight=sample_weight)


def _at_most(agents: Any, size: int) -> Any:
    """A count of agents, of whom none is idle; anything else is left to `split`."""
    count = DEFAULT_AGENTS if agents is None else agents
    return min(count, size) if isinstance(count, int | np.integer) else count


def seed_of(random_state: Any) -> int:
    """The seed of `solve`; None is 0, so that the same call gives the same numbers."""
    if random_state is None:
        return 0
    if isinstance(random_state, Real):
        return whole_number("random_state", random_state, least=0)
    return int(check_random_state(random_state).randint(2**31 - 1))


def warn_unless_optimal(result: Result, stacklevel: int) -> None:
    """Say in scikit-learn's way that a limit came before the tolerance."""
    if not result.status.success:
        told = f"{result.status}: {result.status.advice} {result.certificate.proves}"
        warnings.warn(told, ConvergenceWarning, stacklevel=stacklevel)


def positive_weights(X: Matrix, sample_weight: Any) -> tuple[npt.NDArray[np.bool_] | slice, FloatArray | None]:
    """Which rows have a weight above zero, and the weights of those; every row, and None, if there are no weights."""
    if sample_weight is None:
        return slice(None), None
    weights = _check_sample_weight(sample_weight, X, dtype=X.dtype, ensure_non_negative=True)
    kept: npt.NDArray[np.bool_] = weights > 0
    if not kept.any():
        raise InvalidData("all sample weights are zero. Give some rows a positive weight.")
    return kept, weights[kept]


def linear_problem(estimator: Any, kind: str) -> Problem:
    """The problem that the parameters describe; a loss of the other kind is refused."""
    loss, penalty = estimator.loss, estimator.penalty
    chosen = type(loss) if isinstance(loss, Loss) else LOSSES[loss]
    if chosen.kind != kind:
        fitting = [known for known, entry in LOSSES.items() if entry.kind == kind]
        other = "LinearClassifier" if kind == "regression" else "LinearRegressor"
        raise InvalidProblem(
            f"loss={chosen.name!r} is for {chosen.kind}; use {other}, or one of: {', '.join(fitting)}."
        )
    wanted = set() if isinstance(loss, Loss) else {field.name for field in fields(chosen)}
    if isinstance(penalty, str):
        wanted |= {field.name for field in fields(PENALTIES[penalty])}
    given = {
        "strength": estimator.alpha,
        **{p: getattr(estimator, p, None) for p in ("l1_ratio", "threshold", "level")},
    }
    parameters = {parameter: value for parameter, value in given.items() if parameter in wanted}
    return Problem(loss, penalty, intercept=estimator.fit_intercept, **parameters)


def two_classes_at_least(y: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.intp]]:
    """The classes, sorted, and the place of every label among them."""
    check_classification_targets(y)
    classes, place = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise InvalidData(
            f"the labels (of positive weight) have one class, {classes.tolist()[0]!r}. A classifier needs two classes: "
            "add rows of another one."
        )
    return classes, place


def class_weights(
    given: Any,
    classes: npt.NDArray[Any],
    place: npt.NDArray[np.intp],
    y: npt.NDArray[Any],
    weights: FloatArray | None,
) -> FloatArray | None:
    """The weights of the samples times those of their classes, by scikit-learn's rules."""
    if given is None:
        return weights
    of_row: FloatArray = compute_class_weight(given, classes=classes, y=y)[place]
    return of_row if weights is None else weights * of_row
