"""Cox's proportional hazards model, on rows held by several parties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from coterie.data.remote import Rows
from coterie.errors import InvalidData
from coterie.estimators.distributed import Distributed, explained, is_rows
from coterie.numerics.arrays import FloatArray, product
from coterie.numerics.penalties import PENALTIES, Penalty
from coterie.problems.problem import Problem
from coterie.problems.survival.labels import EVENT, TIME, survival_labels
from coterie.problems.survival.likelihood import concordance_counts
from coterie.problems.survival.model import Baseline


@explained
@dataclass(eq=False, repr=False, kw_only=True)
class CoxRegressor(Distributed):
    """Certified proportional hazards: min over w of −log partial likelihood / n + alpha ·
    penalty(w), with Breslow's method for ties.

    By default one agent has all rows, and the model is that of the pooled data. With
    `agent_strata`, the rows may be split over several agents. Each agent is then a stratum with its
    own baseline hazard, which is a different model.

    Parameters
    ----------
    penalty : "l2", "l1", "elasticnet", "nonnegative" or "none"
        Name of the penalty, or a `Penalty`, which has its own parameters.
    alpha : float or list of float
        Strength of the penalty, or that of every column.
    l1_ratio : float
        Share of the l1 part in "elasticnet".
    factors : list of float or dict, optional
        Factors of the strength, for l1, l2 and elasticnet: one per column, or by the names of
        columns, 1 for the others. A column with factor 0 is unpenalised.
    agent_strata : bool
        Whether each agent is a stratum. Without it, more than one agent raises an error.
    agents : int or list
        Number of agents (1), or a list of the size or the rows of each. More than one agent needs
        `agent_strata`.

    Attributes
    ----------
    coef_ : logarithms of hazard ratios
    baseline_ : the baseline hazards, one `Baseline` per agent; None for rows of a cluster
    """

    penalty: str | Penalty = field(default="l2", kw_only=False)
    alpha: float | Sequence[float] = 1e-3
    l1_ratio: float = 0.5
    factors: Any = None
    agent_strata: bool = False
    split: ClassVar[str] = "samples"
    _reading: ClassVar[Mapping[str, Any]] = {"multi_output": True, "y_numeric": True}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = tags.target_tags.positive_only = True
        return tags

    def fit(
        self,
        X: Any,
        y: Any = None,
        event: Any = None,
        entry: Any = None,
        strata: Any = None,
        sample_weight: Any = None,
        offset: Any = None,
    ) -> Self:
        """Fit the model. Rows of weight zero are left out.

        y       times; or rows of (time, event), as `co.survival_labels` makes them; or a
                structured array of events and times, as in scikit-survival. On a cluster, names of
                columns.
        event   whether each time is the time of an event; by default, all are
        entry   time after which each row was under observation (left truncation)
        strata  the stratum of each row; each stratum has its own baseline hazard
        offset  number added to the logarithm of each hazard; predictions then also need offsets
        """
        self.baseline_: tuple[Baseline, ...] | None = None
        if y is None or is_rows(X):
            super().fit(X, y, sample_weight, offset)
            return self
        super().fit(X, _labels(y, event, entry, strata), sample_weight, offset)
        parties = self.result_.parties
        if parties is not None:
            self.baseline_ = tuple(self.result_.model.baseline(site.data) for site in parties.sites)
        return self

    def _problem(self) -> Problem:
        wanted: set[str] = set()
        if isinstance(self.penalty, str):
            wanted = {one.name for one in fields(PENALTIES[self.penalty])}
        given: dict[str, Any] = {"strength": self.alpha, "l1_ratio": self.l1_ratio}
        own = {name: value for name, value in given.items() if name in wanted}
        return Problem(
            "cox", self.penalty, agent_strata=self.agent_strata, factors=self.factors, **own
        )

    def _of_rows(self, rows: Rows) -> Rows:
        if isinstance(rows.target, str):
            raise InvalidData(
                "rows of a cluster need columns of times and events: y=['days', 'died']."
            )
        return rows

    def _take(self, models: Any, dtype: Any, one: bool) -> None:
        self.coef_ = models[0].coef_

    def predict(self, X: Any, offset: Any = None) -> FloatArray:
        """Predict X·coef_ + offset, the logarithm of the hazard up to a constant. A larger number
        means an earlier event.
        """
        return self._with_offset(product(self._checked(X), self.coef_), offset)

    def predict_survival(
        self, X: Any, times: Any, agent: int = 0, stratum: float | None = None, offset: Any = None
    ) -> FloatArray:
        """The probability of no event until each time, with the baseline hazard of one agent. The
        result has one row per row of X.
        """
        scores = self.predict(X, offset)
        if self.baseline_ is None:
            raise InvalidData(
                "the baseline hazards are where the rows are. Use result_.model.baseline there."
            )
        return self.baseline_[agent].survival(scores, times, stratum)

    def score(
        self,
        X: Any,
        y: Any,
        event: Any = None,
        entry: Any = None,
        strata: Any = None,
        offset: Any = None,
    ) -> float:
        """The concordance: the share of comparable pairs of rows that the scores order correctly. A
        pair is comparable if the data shows which row had the earlier event.
        """
        labels = _labels(y, event, entry, strata)
        lower, equal, every = concordance_counts(labels, self.predict(X, offset))
        if not every:
            return float("nan")
        return float((lower + 0.5 * equal) / every)


def _labels(y: Any, event: Any, entry: Any, strata: Any) -> npt.NDArray[Any]:
    """Labels as `solve` takes them."""
    array = np.asarray(y)
    if array.dtype.kind not in "biufcV":
        raise InvalidData(
            f"Unknown label type: y holds {array.dtype}. Give times as numbers, e.g. of days."
        )
    if array.dtype.kind == "c":
        return array  # the check of the data refuses complex numbers
    if array.dtype.names is not None:
        kinds = {array.dtype[name].kind == "b": name for name in array.dtype.names}
        if len(array.dtype.names) != 2 or set(kinds) != {True, False}:
            raise InvalidData("a structured y has two fields, the event (boolean) and the time.")
        array = survival_labels(array[kinds[False]], array[kinds[True]])
    if array.ndim != 2:
        observed = np.ones(array.shape) if event is None else event
        return survival_labels(array, observed, entry, strata)
    if event is not None:
        raise InvalidData("the events are in y and in event=. Give them once.")
    if entry is None and strata is None:
        return array
    return survival_labels(array[:, TIME], array[:, EVENT], entry, strata)
