"""The base class of the estimators: parameters in the style of scikit-learn, the call of `solve`,
and fitted attributes.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from coterie.api.result import Result
from coterie.api.solve import fit as solve_with
from coterie.data import Table
from coterie.data.check import valid_offset
from coterie.data.read import values_of
from coterie.data.remote import Rows
from coterie.engines import Engine
from coterie.errors import InvalidData, InvalidProblem
from coterie.estimators.callbacks import CallbackSupport, each_certificate, with_callbacks
from coterie.estimators.checked import checked
from coterie.methods import Method
from coterie.numerics.arrays import FloatArray, Matrix, whole_number
from coterie.problems.problem import Problem
from coterie.run.settings import KEYWORDS, Algorithm, Limits, Placement, Settings
from coterie.run.tables import gather

E = TypeVar("E", bound=type[Any])
SECTIONS = ("Parameters", "Attributes")


def explained(cls: E) -> E:
    """Complete the signature and the docstring of a dataclass. In the signature, its own parameters
    come first, and those of its bases follow. The docstring also gets the entries of its base.
    """
    known, line = (
        inspect.signature(cls.__init__),
        [inspect.get_annotations(base) for base in cls.__mro__],
    )
    first, *others = known.parameters.values()
    ordered = sorted(
        others, key=lambda p: (p.kind, next(k for k, names in enumerate(line) if p.name in names))
    )
    cls.__init__.__signature__ = known.replace(parameters=[first, *ordered])
    base = next((base for base in cls.__bases__ if "__dataclass_fields__" in vars(base)), None)
    if base is not None:
        local, there = _told(cls), _told(base)
        parts = [
            f"{title}\n{'-' * len(title)}{_joined(local.get(title, ''), there[title])}"
            for title in SECTIONS
        ]
        cls.__doc__ = "\n\n".join([local[""], *parts])
    return cls


def _joined(own: str, inherited: str) -> str:
    """A section of a docstring, followed by the entries of its base that it does not have."""
    known = set(own.splitlines())
    entries = re.split(r"\n(?=\S)", inherited)[1:]
    new = [entry for entry in entries if entry.splitlines()[0] not in known]
    return "\n".join([own, *new])


def _told(cls: type) -> dict[str, str]:
    """The sections of a docstring, by title. The text before the sections has the title ""."""
    text, *parts = re.split(rf"\n\n({'|'.join(SECTIONS)})\n-+", inspect.cleandoc(cls.__doc__ or ""))
    return {"": text, **dict(zip(parts[::2], parts[1::2], strict=True))}


@explained
@dataclass(eq=False, repr=False, kw_only=True)
class Distributed(CallbackSupport, BaseEstimator):
    """An estimator that splits data over agents and calls `solve` to fit a model.

    Parameters
    ----------
    agents : int or list
        Number of agents (8), or a list of the size, the rows or the columns of each.
    network, method, engine, acceleration
        As in `co.solve`.
    tol : float
        The fit stops when the certified gap is at most `tol` times the null loss. The null loss is
        the objective of the best intercept-only model, or of the zero model without an intercept.
    max_rounds : int
        Maximum number of rounds. If they do not suffice, the fit gives a `ConvergenceWarning`.
    warm_start : bool
        Whether the next `fit` starts from the result of this one, if the data has the same shape
        and the same number of classes.
    checkpoint : path
        Folder of checkpoints. After a crash, the same fit continues from the last checkpoint.
    secure_sums : bool, optional
        As in `co.solve`.
    threads : int, optional
        Number of threads of engine "local"; default: one per core. Results do not depend on it.
    random_state : int, RandomState or None
        Random seed; None is 0.

    Attributes
    ----------
    result_, certificate_, bill_ : the result of `co.solve`, its certificate, its communication cost
    dual_gap_ : the certified gap, an upper bound of the objective minus the least objective
    n_iter_ : the number of rounds
    n_features_in_, feature_names_in_ : the number and the names of the columns in `fit`
    """

    agents: Any = Placement.agents
    network: Any = Settings.network
    method: str | Method = Algorithm.method
    engine: str | Engine = Placement.engine
    acceleration: str = Algorithm.acceleration
    tol: float = Limits.tol
    max_rounds: int = Limits.max_rounds
    warm_start: bool = False
    checkpoint: str | Path | None = Settings.checkpoint
    secure_sums: bool | None = Settings.secure_sums
    threads: int | None = Placement.threads
    random_state: Any = None

    _reading: ClassVar[Mapping[str, Any]] = {}
    """Options of `validate_data` for the labels."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @with_callbacks
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, offset: Any = None) -> Self:
        """Fit the model. Rows of weight zero are left out. Offsets are added to the scores of
        linear models.

        X may also be rows of a cluster: `co.Rows`, a Spark DataFrame or a Ray Dataset. For the
        latter two, y, sample_weight and offset are names of columns.
        """
        problem = self._problem()
        if (rows := _rows_of(X, y, sample_weight, offset)) is not None:
            model = self._solve_rows(problem, self._of_rows(rows)).model
            if model.classes_ is not None:
                self.classes_ = model.classes_
            self._take([model], None, one=isinstance(rows.target, str))
            return self
        how = {
            "accept_sparse": "csr",
            "dtype": [np.float64, np.float32],
            "order": "C",
            **self._reading,
        }
        X, y = checked(self, X, y, **how)
        kept, weights = _positive_weights(X, sample_weight)
        if offset is not None:
            offset = valid_offset(values_of(offset, "data", "offset"), "data", X.shape[0])[kept]
        X, y = X[kept], y[kept]
        labels, weights = self._labels(X, y, weights)
        if offset is not None and len(getattr(self, "classes_", ())) > 2:
            raise InvalidData(
                "an offset is for numbers or two classes; several classes would need one each."
            )
        problem = self._problem_for_classes(problem)
        models = [result.model for result in self._solve(problem, X, weights, labels, offset)]
        self._take(models, X.dtype, one=y.ndim == 1)
        return self

    def _with_offset(self, scores: FloatArray, offset: Any) -> FloatArray:
        """The scores plus the offsets of these rows. A model that was fitted with offsets needs
        them.
        """
        model: Any = self._results[0].model
        shifted: FloatArray = model.with_offset(scores, offset)
        return shifted

    def _problem(self) -> Problem:
        """The problem that the parameters describe."""
        raise NotImplementedError

    def _problem_for_classes(self, problem: Problem) -> Problem:
        """The problem to solve, given the labels in `fit`."""
        return problem

    def _of_rows(self, rows: Rows) -> Rows:
        """The rows of a cluster in the form that this estimator needs."""
        return rows

    def _labels(
        self, X: Matrix, y: npt.NDArray[Any], weights: FloatArray | None
    ) -> tuple[list[npt.NDArray[Any]], FloatArray | None]:
        """The labels of each problem to solve, and the weights of the rows."""
        return [y], weights

    def _classes(
        self, y: npt.NDArray[Any], weights: FloatArray | None
    ) -> tuple[npt.NDArray[np.intp], Any]:
        """Store the classes, of which there must be at least two. Return the index of the class of
        every row, and the weights of the rows.
        """
        check_classification_targets(y)
        self.classes_, place = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InvalidData(
                f"the labels (of positive weight) have one class, {self.classes_.tolist()[0]!r}. "
                "A classifier needs "
                "two classes: add rows of another one."
            )
        if self.class_weight is None:
            return place, weights
        of_row: FloatArray = compute_class_weight(self.class_weight, classes=self.classes_, y=y)[
            place
        ]
        return place, of_row if weights is None else weights * of_row

    def _take(self, models: Sequence[Any], dtype: Any, one: bool) -> None:
        """Set the fitted attributes, in the precision of the data. `one`: whether y is a vector."""
        raise NotImplementedError

    def _solve(
        self,
        problem: Problem,
        X: Matrix,
        weights: FloatArray | None,
        labels: Sequence[npt.NDArray[Any]],
        offset: FloatArray | None = None,
    ) -> list[Result]:
        """Solve the problem once for each entry of `labels`. The parameters say how the data is
        split over agents.
        """
        names = getattr(self, "feature_names_in_", None)
        columns = None if names is None else tuple(map(str, names))
        datasets = [Table(X, y, weights, columns=columns, offset=offset) for y in labels]
        most = X.shape[self.split == "features"]
        family = problem.kind
        agents = family.data.agents(problem, datasets[0], self.agents)
        settings = self._settings().but(agents=_at_most(agents, most, family.data.pieces))
        known: Any = [y.shape[1:] for y in labels], len(getattr(self, "classes_", ()))
        previous: Sequence[Result | None] = [None] * len(labels)
        if self.warm_start:
            tables = gather(datasets[0], self.split, settings.placement.agents, settings.seed)
            sizes = [(table.n, table.d) for table in tables]
            if (sizes, known) == getattr(self, "_kind", None):
                previous = self._results
        results = self._solve_each(problem, datasets, settings, previous)
        parties = results[0].certificate.participants
        self._kind: Any = [(party.rows, party.columns) for party in parties], known
        return results

    def _solve_rows(self, problem: Problem, rows: Rows) -> Result:
        """Solve the problem for rows of a cluster, on the cluster. The fitted model has the names
        of the columns.
        """
        if self.warm_start:
            raise InvalidProblem(
                "warm_start is for arrays; for Rows use co.solve(..., warm_start=result)."
            )
        if getattr(self, "class_weight", None) is not None:
            raise InvalidProblem(
                "class_weight is for arrays; give Rows a column of weights: co.Rows(..., weight=)."
            )
        (result,) = self._solve_each(problem, [rows], self._settings(), [None])
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
        settings: Settings,
        previous: Sequence[Result | None],
    ) -> list[Result]:
        """Solve the problem for each of the datasets, call the callbacks, and store the results."""
        context = None
        if hasattr(self, "_init_callback_context"):
            context = self._init_callback_context(
                max_subtasks=len(datasets)
            ).call_on_fit_task_begin(estimator=self)
        results = []
        for place, data in enumerate(datasets):
            task = None
            if context is not None:
                task = context.subcontext(
                    task_name="problem", max_subtasks=None
                ).call_on_fit_task_begin(estimator=self)
            with _own_words():
                watched = (
                    each_certificate(self, task) if getattr(self, "_skl_callbacks", None) else None
                )
                own = settings.but(
                    checkpoint=self._checkpoint(place, len(datasets)), callback=watched
                )
                result = solve_with(problem, data, own, warm_start=previous[place])
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

    def _settings(self) -> Settings:
        """The settings that the parameters describe."""
        shared = {name: getattr(self, name) for name in KEYWORDS if hasattr(self, name)}
        return Settings.of(**shared, seed=seed_of(self.random_state))

    def _checked(self, X: Any) -> Matrix:
        """X, checked to have the columns of `fit`. It is dense or sparse, in single or double
        precision.
        """
        check_is_fitted(self)
        return checked(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)

    def _checkpoint(self, place: int, problems: int) -> Any:
        if self.checkpoint is None or problems == 1:
            return self.checkpoint
        return Path(self.checkpoint) / f"problem-{place:03d}"

    def _keep(self, results: Sequence[Result]) -> None:
        """Set `result_` and its parts. For several problems, each has one entry per problem."""
        certificates = tuple(result.certificate for result in results)
        gaps, rounds = [c.gap for c in certificates], [result.rounds for result in results]
        several = len(results) > 1
        self.result_: Any = tuple(results) if several else results[0]
        self.certificate_ = certificates if several else certificates[0]
        self.bill_ = tuple(result.bill for result in results) if several else results[0].bill
        self.dual_gap_ = np.array(gaps) if several else gaps[0]
        self.n_iter_ = np.array(rounds) if several else rounds[0]


@contextmanager
def _own_words() -> Iterator[None]:
    """In errors, replace the parameter name of `Problem` by that of the estimator."""
    try:
        yield
    except InvalidProblem as error:
        told = re.sub(r"\bintercept=", "fit_intercept=", str(error))
        if told == str(error):
            raise
        raise InvalidProblem(told) from error


def _rows_of(X: Any, y: Any, sample_weight: Any, offset: Any = None) -> Rows | None:
    """The rows of a cluster: `X` itself if it is `Rows`, or `Rows` of a Spark DataFrame or Ray
    Dataset with the names of its columns of labels, weights and offsets. None for data in this
    process.
    """
    if isinstance(X, Rows):
        if y is not None or sample_weight is not None or offset is not None:
            raise InvalidData(
                "Rows name their columns themselves: leave y and sample_weight out, and offset."
            )
        return X
    if not is_rows(X):
        return None
    if not (
        isinstance(y, str)
        or (isinstance(y, list | tuple) and all(isinstance(name, str) for name in y))
    ):
        raise InvalidData(
            f"y names the labels' column, or columns, of the {type(X).__name__}: fit(frame, "
            "'label')."
        )
    return Rows(X, target=y, weight=sample_weight, offset=offset)


def is_rows(X: Any) -> bool:
    """Whether X is rows of a cluster: `Rows`, a Spark DataFrame or a Ray Dataset."""
    return isinstance(X, Rows) or hasattr(X, "mapInArrow") or hasattr(X, "to_arrow_refs")


def _at_most(agents: Any, size: int, pieces: int) -> Any:
    """The number of agents, at most `size`, so that no agent is without data. A list is returned
    unchanged.
    """
    count = pieces if agents is None else agents
    return min(count, size) if isinstance(count, int | np.integer) else count


def seed_of(random_state: Any) -> int:
    """The seed for `solve`. None gives 0, so that the same call gives the same numbers."""
    if random_state is None:
        return 0
    if isinstance(random_state, Real):
        return whole_number("random_state", random_state, least=0)
    return int(check_random_state(random_state).randint(2**31 - 1))


def warn_unless_optimal(result: Result, stacklevel: int) -> None:
    """Give a `ConvergenceWarning` if the run ended before it reached the tolerance."""
    if not result.status.success:
        told = f"{result.status}: {result.status.advice} {result.certificate.proves}"
        warnings.warn(told, ConvergenceWarning, stacklevel=stacklevel)


def _positive_weights(
    X: Matrix, sample_weight: Any
) -> tuple[npt.NDArray[np.bool_] | slice, FloatArray | None]:
    """The rows with a weight above zero, and their weights. Without weights: all rows, and None."""
    if sample_weight is None:
        return slice(None), None
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    kept: npt.NDArray[np.bool_] = weights > 0
    if not kept.any():
        raise InvalidData("all sample weights are zero. Give some rows a positive weight.")
    return kept, weights[kept]
