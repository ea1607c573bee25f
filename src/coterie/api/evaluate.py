"""How well a model predicts rows held by several parties."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from coterie.api.evaluation import Evaluation
from coterie.api.result import Result
from coterie.data import Table, encode_classes, validated
from coterie.data.places import naming_lines
from coterie.data.summary import common_shape, in_common_shape
from coterie.data.table import Indices, columns_in_turn, party_error
from coterie.data.values import is_text, plain
from coterie.engines import Engine
from coterie.errors import InvalidData, InvalidInput, UnknownName
from coterie.numerics.arrays import digest, is_sparse, whole_number
from coterie.problems.models import Model
from coterie.problems.parts.data import on_the_host
from coterie.problems.parts.report import said_of_intercept
from coterie.run.collectives import Protocol, Sum, alone, limited
from coterie.run.disclosure import SCORES_AT_THE_LABELS, TOTALS, a_score_per_row, discloses
from coterie.run.parties import Meeting, Operation, Parties, hosted
from coterie.run.settings import Placement, Settings
from coterie.run.setup import check_offset
from coterie.run.site import Rules, Site
from coterie.run.tables import attach_offset
from coterie.stats.preparing import Prepare, dealt_columns
from coterie.stats.scoring import check_problem, measured, raw_scores

ROOM = 2.0**20
"""How many numbers an agent tells at most."""
_TOO_MANY = "an evaluation takes more numbers than the page of a party allows to send."
NUMBERS_OF_A_CURVE = 5_000
"""What a page spares for scores of other parties, for each class."""


def evaluate(
    model: Any,
    data: Any,
    *,
    offset: Any = None,
    split: str = Placement.split,
    agents: int | Sequence[Any] | None = Placement.agents,
    engine: str | Engine = Placement.engine,
    secure_sums: bool | None = Settings.secure_sums,
    per_party: bool = False,
    minimum: int = 1,
    same_order: bool = Placement.same_order,
) -> Evaluation:
    """How well a model predicts these rows: what all parties' rows give together, from sums and
    counts.

    model       a `LinearModel`, a `MulticlassModel` or a `SurvivalModel`, or the `Result` that has
                it
    data        in the forms that `solve` takes, with labels
    offset      as in `solve`, for a model that was fitted with one
    split       "samples" (each party holds rows) or "features" (columns; the party with the labels
                learns the scores)
    agents      how many hold data that is given in one piece (1)
    engine      where they are
    secure_sums as in `solve`
    per_party   whether to say the scores of every party, too
    minimum     groups of fewer rows than this, of any party that has some, are pooled or left out:
                the AUC is then known less well, as `auc_bound` says
    same_order  as in `solve`, for split "features"
    """
    model = model.model if isinstance(model, Result) else model
    if not isinstance(model, Model):
        raise InvalidInput(
            f"the first argument is a model or the Result of a fit, not {type(model).__name__}."
        )
    check_problem(model.problem)
    if split not in ("samples", "features"):
        raise UnknownName("split of data to evaluate", split, ("samples", "features"))
    family, prepared = model.problem.kind, model.preparation
    data = attach_offset(data, offset, split, prepared)
    agents = family.data.agents(model.problem, data, agents)
    meeting = Meeting(
        split=split,
        agents=agents,
        network="star" if split == "samples" else None,
        secure_sums=secure_sums,
        prepare=prepared,
        same_order=same_order,
        rules=Rules(whole_number("minimum", minimum), ROOM, per_party),
    )
    asked = Evaluate(model, split)
    with hosted(asked, data, meeting, engine) as parties:
        found = asked.together(parties)
    assert found is not None, "with all parties here, one of them has the labels"
    return found


# -- what parties are asked ------------------------------------------------------------------------


@discloses(
    "the losses and errors of your rows, and how many of your rows are in each class, bin of "
    "probability and bin of "
    "scores, as part of sums",
    "how well the model predicts your rows, and how many of them each class has",
    TOTALS,
    splits=("samples",),
    spare=lambda case: NUMBERS_OF_A_CURVE * case.outputs * case.problem.kind.stats.counts_bins,
)
@discloses(
    (
        "for groups with fewer of your rows than minimum-count: only that you object to them, as "
        "part "
        "of a sum"
    ),
    splits=("samples",),
)
def scored(model: Any, rules: Rules, site: Site) -> Protocol[Evaluation]:
    """The scores over all parties' rows."""
    scores = raw_scores(model, site.data) + model.intercept_
    sums = measured(model, site.data, scores, minimum=rules.minimum, room=rules.room)
    return (yield from limited(sums, rules.page, InvalidData(_TOO_MANY)))


@discloses(
    "if your policy says per-party: how well the model predicts your own rows", splits=("samples",)
)
def scored_alone(model: Any, site: Site) -> dict[str, float] | None:
    """The scores of one party, if it tells them."""
    if not site.rules.tells_alone(site.data.n):
        return None
    scores = raw_scores(model, site.data) + model.intercept_
    return headline_scores(alone(measured(model, site.data, scores)))


@discloses("a digest of the ids of your rows, if you have ids", splits=("features",))
def order_of_rows(site: Site) -> str | None:
    """What two parties with the same rows in the same order have in common."""
    return None if site.data.ids is None or not site.data.d else digest(site.data.ids)


@discloses("which run your part of the model is from", splits=("features",))
def run_of_part(model: Any, site: Site) -> str:
    """The digest of the run that fitted this party's part of a model."""
    return model.run or ""


@discloses(
    "your partial scores, as part of a sum that only the party with the labels receives",
    SCORES_AT_THE_LABELS,
    splits=("features",),
    most=a_score_per_row,
)
def scored_at_the_labels(model: Any, holder: int, site: Site) -> Protocol[Evaluation | None]:
    """The scores where parties have columns, at the one that has the labels; `model` is the party's
    part of it.
    """
    total = yield Sum(raw_scores(model, site.data) + model.intercept_, to=holder)
    return None if total is None else alone(measured(model, site.data, total))


@discloses(
    "your partial scores, as part of a sum that only the party with the labels receives",
    SCORES_AT_THE_LABELS,
    splits=("features",),
    most=a_score_per_row,
)
def scored_by_columns(model: Any, holder: int, site: Site) -> Protocol[Evaluation | None]:
    """The same with the whole model, where `Table.cols` says which columns of it this party has."""
    own = replace(model, coef_=model.coef_[..., site.data.cols])
    total = yield Sum(raw_scores(own, site.data), to=holder)
    return None if total is None else alone(measured(model, site.data, total + model.intercept_))


# -- the operation ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Evaluate(Operation[Evaluation | None]):
    """How well a model, or a party's part of one, predicts rows; split by features, None but where
    the labels are.
    """

    name: ClassVar[str] = "evaluate"
    file: ClassVar[str] = "evaluation"
    splits: ClassVar[tuple[str, ...]] = ("samples", "features")
    needs_rows: ClassVar[bool] = False
    discloses: ClassVar = (
        scored,
        scored_alone,
        run_of_part,
        order_of_rows,
        scored_at_the_labels,
        scored_by_columns,
    )

    model: Any
    split: str
    model_file: str = "model.npz"

    @property
    def has_part(self) -> bool:
        """Whether the model is a party's part of one."""
        return bool(getattr(self.model, "part", None))

    @property
    def prepares_together(self) -> bool:
        """Whether columns can only be prepared where it is known who has which."""
        return self.split == "features" and not self.has_part and self.model.preparation is not None

    def alone(self, table: Table) -> Table:
        if self.prepares_together:
            return table
        if self.model.preparation is not None:
            table = self.model.preparation.apply(table)
        return self._checked(table)

    def _checked(self, table: Table) -> Table:
        """A prepared table with the columns of the model, and labels as it has them."""
        problem = self.model.problem
        table = on_the_host([table])[0]
        if self.split == "samples":
            table = _with_columns(table, self.model)
        elif self.has_part:
            _refuse_other_width(table, self.model)
        with naming_lines(table):
            table = validated(table, classification=problem.kind.data.classification(problem))
            if table.n and (self.split == "samples" or table.y is not None):
                check_offset(problem, table.offset is not None)
            return with_labels(table, self.model)

    def together(self, parties: Parties) -> Evaluation | None:
        parties.check()
        parties = parties.map(partial(_shaped, common_shape(parties.cards), parties.split))
        if parties.split == "features":
            found = self._by_columns(parties)
            return None if found is None else self._of_model(found, parties)
        differ = "the parties hold different models. Fit the study again, with `coterie agent`."
        parties.agree(self.model.digest(), differ)
        found = parties.run_protocol(partial(scored, self.model, parties.rules))
        assert found is not None
        told = parties.ask(partial(scored_alone, self.model), dict[str, float] | None)
        own = {name: one for name, one in zip(parties.names, told, strict=True) if one is not None}
        return self._of_model(replace(found, parties=own), parties)

    def _by_columns(self, parties: Parties) -> Evaluation | None:
        if self.has_part:
            refuse_other_runs(
                parties.names, parties.ask(partial(run_of_part, self.model), str), self.model_file
            )
        _refuse_other_orders(parties)
        holder = next(index for index, card in enumerate(parties.cards) if card.outputs is not None)
        if self.has_part:
            return parties.run_protocol(partial(scored_at_the_labels, self.model, holder))
        if self.prepares_together:
            parties = Prepare(self.model.preparation, self.split).together(parties).parties
            parties = parties.map(partial(_prepared_and_checked, self))
        parties = parties.map(partial(_placed, _places(parties, self.model)))
        return parties.run_protocol(partial(scored_by_columns, self.model, holder))

    def _of_model(self, found: Evaluation, parties: Parties) -> Evaluation:
        """The scores, saying which model they are of, and how many rows."""
        count = len(parties.cards)
        where = "1 party" if count == 1 else f"{count} parties"
        weighted = "" if found.weight == found.rows else f" (weights add up to {found.weight:.6g})"
        problem = self.model.problem
        intercept = said_of_intercept(problem.intercept)
        about = f"{problem.loss.name} model {intercept} on {found.rows:,} rows of {where}{weighted}"
        return replace(found, about=about, model=self.model.digest(), bill=parties.bill)


def headline_scores(found: Evaluation) -> dict[str, float]:
    """What is said of one party."""
    kept = [
        "log_loss",
        "accuracy",
        "auc",
        "brier",
        "r2",
        "rmse",
        "mae",
        "mean_loss",
        "deviance",
        "explained_deviance",
    ]
    kept.append("concordance")
    return {
        "rows": float(found.rows),
        **{name: found.scores[name] for name in kept if name in found.scores},
    }


# -- tables that fit the model ---------------------------------------------------------------------


def with_labels(table: Table, model: Any) -> Table:
    """A checked table with labels as the model has them."""
    family = model.problem.kind
    family.data.check_labels(table, model.problem)
    if model.classes_ is None:
        known: Table = family.data.encode(table, model.problem, None)
        return known
    _refuse_other_labels(table, model.classes_)
    encoded = encode_classes([table], model.classes_)[0][0]
    if encoded.y is None:
        return encoded
    codes = family.data.codes(model.classes_)
    return replace(encoded, y=codes[encoded.y.astype(np.intp)])


def _shaped(shape: tuple[int, int], split: str, site: Site) -> Table:
    return in_common_shape(site.data, shape, split)


def _prepared_and_checked(asked: Evaluate, site: Site) -> Table:
    return asked._checked(site.data)


def _placed(places: Sequence[Indices], site: Site) -> Table:
    """The table with the places of its columns in the model."""
    return replace(site.data, cols=places[site.index])


def _places(parties: Parties, model: Any) -> list[Indices]:
    """Split by features: which columns of the model each party has, by their names where all have
    names.
    """
    width, names = sum(card.columns for card in parties.cards), model.columns
    if width != model.coef_.shape[-1]:
        raise InvalidData(
            f"the model has {model.coef_.shape[-1]} columns, but the parties have {width} "
            "together. Give those of the "
            "fit."
        )
    if names is None or any(card.names is None for card in parties.cards):
        return columns_in_turn(
            [card.columns for card in parties.cards], parties.look(dealt_columns)
        )
    places = {name: place for place, name in enumerate(names)}
    for card in parties.cards:
        if absent := [name for name in card.names or () if name not in places]:
            raise party_error(
                card.name, f"the model has no column {absent[0]!r}. Give the columns of the fit."
            )
    return [
        np.array([places[name] for name in card.names or ()], np.intp) for card in parties.cards
    ]


def _refuse_other_orders(parties: Parties) -> None:
    """Ids, where there are some, name the same row everywhere."""
    told = list(zip(parties.names, parties.ask(order_of_rows, str | None), strict=True))
    known = [(name, order) for name, order in told if order is not None]
    for name, order in known:
        if order != known[0][1]:
            raise party_error(
                name,
                f"the ids of its rows are not those of party {known[0][0]!r} in the same order. "
                "Match the rows with "
                "coterie.data.align(tables).",
            )


def refuse_other_runs(names: Sequence[str], runs: list[str], file: str) -> None:
    """Refuse parts of different runs, which do not add up to a model; the error names the parties
    that hold them.
    """
    if unknown := [name for name, run in zip(names, runs, strict=True) if not run]:
        raise InvalidInput(
            f"the part of the model at {' and '.join(unknown)} ({file} there) is of a run that "
            "did not end at all "
            "parties. Fit the study again, with `coterie agent` at every party."
        )
    usual = max(runs, key=runs.count)
    if others := [name for name, run in zip(names, runs, strict=True) if run != usual]:
        raise InvalidInput(
            f"the part of the model at {' and '.join(others)} ({file} there) is of another run "
            "than that of "
            f"{names[runs.index(usual)]}. Put back the part of that run, or fit the study again, "
            "with `coterie agent` "
            "at every party."
        )


def _refuse_other_labels(table: Table, classes: npt.NDArray[Any]) -> None:
    if table.y is None or not len(table.y):
        return
    if is_text(plain(table.y, table.name, "label")) != is_text(classes):
        kinds = ("text", "numbers") if is_text(classes) else ("numbers", "text")
        raise party_error(
            table.name,
            f"the classes of the model are {kinds[0]}, but the labels here are {kinds[1]}.",
        )


def _refuse_other_width(table: Table, model: Any) -> None:
    width = model.coef_.shape[-1]
    if table.d != width:
        raise party_error(
            table.name,
            (
                f"the model has {width} columns, but the data has {table.d}. Give the columns of "
                "the "
                "fit."
            ),
        )


def _with_columns(table: Table, model: Any) -> Table:
    """The table with the columns of the model, found by their names where both have names."""
    width = model.coef_.shape[-1]
    if model.columns is not None and table.columns is not None and table.columns != model.columns:
        places = {name: place for place, name in enumerate(table.columns)}
        if absent := [name for name in model.columns if name not in places]:
            raise party_error(table.name, f"{UnknownName('column', absent[0], table.columns)}")
        return table.take_columns(np.array([places[name] for name in model.columns]))
    if table.open_ended and table.d < width and is_sparse(table.X):
        X = table.X.copy()
        X.resize(table.n, width)
        return replace(table, X=X)
    if table.n or table.d:
        _refuse_other_width(table, model)
    return table
