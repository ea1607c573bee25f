"""Predict new rows with a model of split columns: each party has a part of the scores, and one
party receives the sum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from coterie.api.evaluate import refuse_other_runs, run_of_part, with_labels
from coterie.data import Table
from coterie.data.summary import refuse_unequal_rows
from coterie.data.table import party_error
from coterie.errors import InvalidInput
from coterie.numerics.arrays import FloatArray
from coterie.problems.linear.model import LinearModel
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import SCORES_AT_THE_LABELS, a_score_per_row, discloses
from coterie.run.parties import Operation, Parties
from coterie.run.site import Site
from coterie.stats.scoring import raw_scores

T = TypeVar("T")


@dataclass(frozen=True)
class Predictions:
    """The predictions at one party."""

    model: LinearModel
    """Its part of the model, with the classes of all parties."""
    table: Table
    """Its rows, in the order of the predictions; `rows` are their places in its file."""
    scores: FloatArray | None
    """The scores of the whole model, at the party with the labels."""

    @property
    def answers(self) -> npt.NDArray[Any] | None:
        """The predictions, at the party with the labels."""
        return None if self.scores is None else self.model.answers(self.scores)


# -- queries and protocols -------------------------------------------------------------------------


@discloses("whether you have labels", splits=("features",))
def has_target(target: str | None, site: Site) -> bool:
    """Whether this party names a target: it gets the predictions."""
    return target is not None


@discloses(
    "your partial scores, as part of a sum that only the party with the labels receives",
    SCORES_AT_THE_LABELS,
    splits=("features",),
    most=a_score_per_row,
)
def scores_at_the_labels(
    model: LinearModel, holder: int, site: Site
) -> Protocol[FloatArray | None]:
    """The scores of the whole model, at that party."""
    total: FloatArray | None = yield Sum(_partial_scores(model, site), to=holder)
    return total


@discloses(
    "your partial scores of the rows that were fitted, and your penalty, as part of a sum that "
    "only the party with the labels receives",
    SCORES_AT_THE_LABELS,
    splits=("features",),
    most=lambda case: (1, case.rows * case.outputs + 1),
)
def scores_and_penalty_at_the_labels(
    model: LinearModel, holder: int, site: Site
) -> Protocol[FloatArray | None]:
    """The scores of the rows that were fitted, and last the penalty of the whole model."""
    penalty = model.problem.penalty.value(model.coef_)
    own = np.append(_partial_scores(model, site), penalty)
    total: FloatArray | None = yield Sum(own, to=holder)
    return total


def _partial_scores(model: LinearModel, site: Site) -> FloatArray:
    scores: FloatArray = raw_scores(model, site.data) + model.intercept_
    wrong = int(np.count_nonzero(~np.isfinite(scores)))
    if wrong:
        text = f"{wrong} of {scores.size} scores are not finite numbers. Nothing is written."
        raise party_error(site.data.name, text)
    return scores


# -- the operations --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _OfScores(Operation[T]):
    """An operation on the scores of rows, from all parts of the model."""

    splits: ClassVar[tuple[str, ...]] = ("features",)
    governed: ClassVar[bool] = False

    model: LinearModel
    target: str | None
    model_file: str = "model.npz"

    def at_the_labels(
        self, parties: Parties, protocol: Callable[..., Protocol[FloatArray | None]]
    ) -> FloatArray | None:
        """The value of this protocol, at the party with the labels; parts of different runs are
        refused.
        """
        runs = parties.ask(partial(run_of_part, self.model), str)
        refuse_other_runs(parties.names, runs, self.model_file)
        holders = parties.ask(partial(has_target, self.target), bool)
        if sum(holders) != 1:
            raise InvalidInput(
                f"{sum(holders)} parties name a target; exactly one must: it gets the predictions."
            )
        refuse_unequal_rows(parties.names, [card.rows for card in parties.cards])
        return parties.run_protocol(partial(protocol, self.model, holders.index(True)))


@dataclass(frozen=True)
class Predict(_OfScores[Predictions]):
    """Compute the scores of new rows, from all parts of the model."""

    name: ClassVar[str] = "predict"
    discloses: ClassVar = (run_of_part, has_target, scores_at_the_labels)

    def together(self, parties: Parties) -> Predictions:
        scores = self.at_the_labels(parties, scores_at_the_labels)
        return Predictions(self.model, own_table(parties), scores)


@dataclass(frozen=True)
class ObjectiveOfParts(_OfScores[tuple[float | None, int]]):
    """Compute the objective of the other parts of the model, on the rows that were fitted."""

    name: ClassVar[str] = "predict --without"
    discloses: ClassVar = (run_of_part, has_target, scores_and_penalty_at_the_labels)

    def together(self, parties: Parties) -> tuple[float | None, int]:
        """The objective, at the party with the labels, and the number of rows."""
        received = self.at_the_labels(parties, scores_and_penalty_at_the_labels)
        table, problem = own_table(parties), self.model.problem
        if received is None:
            return None, table.n
        scores, penalty = received[:-1], float(received[-1])
        local = with_labels(table, self.model)
        assert local.y is not None
        total = float(local.n) if local.weights is None else float(local.weights.sum())
        losses = problem.loss.value(scores, local.y.astype(float), local.weights)
        return float(problem.primal(losses, total, penalty)), local.n


def own_table(parties: Parties) -> Table:
    """The rows of this party, as they were matched; no message is sent."""
    return next(table for table in parties.look(_table) if table is not None)


def _table(site: Site) -> Table:
    return site.data
