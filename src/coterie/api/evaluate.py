"""Evaluate a model on rows held by several parties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from coterie.api.describe import about as rows_and_parties
from coterie.api.evaluation import Evaluation
from coterie.api.result import Result
from coterie.data import Table, encode_classes, validated
from coterie.data.places import naming_lines
from coterie.data.summary import TableSummary, common_shape, in_common_shape
from coterie.data.table import Indices, columns_in_turn, party_error
from coterie.data.values import is_text, plain
from coterie.engines import Engine
from coterie.errors import InvalidData, InvalidInput, UnknownName
from coterie.numerics.arrays import digest, is_sparse, whole_number
from coterie.problems.models import Model
from coterie.problems.parts.data import on_the_host
from coterie.problems.parts.report import intercept_words
from coterie.run.collectives import Protocol, Sum, alone, limited
from coterie.run.disclosure import SCORES_AT_THE_LABELS, TOTALS, a_score_per_row, discloses
from coterie.run.parties import Meeting, Operation, Parties, hosted
from coterie.run.settings import Placement, Settings
from coterie.run.setup import check_offset
from coterie.run.site import Rules, Site
from coterie.run.tables import attach_offset
from coterie.stats.preparing import Prepare, dealt_columns
from coterie.stats.scoring import check_problem, measured, raw_scores

ALLOWANCE = 2.0**20
"""The maximum number of numbers that an agent sends."""
_TOO_MANY = "an evaluation takes more numbers than the page of a party allows to send."
NUMBERS_OF_A_CURVE = 5_000
"""The numbers that a page reserves for scores of other parties, for each class."""
OF_ONE_PARTY = (
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
    "concordance",
)
"""The scores that are shown of single parties."""


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
    """Evaluate how well a model predicts rows, from sums and counts over all parties' rows.

    Parameters
    ----------
    model : LinearModel, MulticlassModel, SurvivalModel or Result
        The model, or the result that has it.
    data : one party's data or a list
        Rows with labels, in the forms that `solve` takes.
    offset : array or list of arrays, optional
        A number per row that is added to its score, for a model that was fitted with an offset.
    split : {"samples", "features"}, default="samples"
        Whether each party holds rows, or columns. With "features", only the party with the labels
        learns the scores.
    agents : int or list, optional
        Number of agents that hold data which is given in one piece, or their rows or columns. By
        default 1.
    engine : str or Engine, default="local"
        Where the data is.
    secure_sums : bool, optional
        Whether parties see exact sums over all parties only, as in `solve`.
    per_party : bool, default=False
        Whether to return the scores of every party, too.
    minimum : int, default=1
        Smallest group of a party's rows that the scores may show. Smaller groups are pooled or left
        out, and `auc_bound` says how far this moves the AUC.
    same_order : bool, default=False
        With split "features": whether all parties list the same rows in the same order.

    Returns
    -------
    Evaluation

    Raises
    ------
    InvalidInput
        If the first argument is no model.
    InvalidData
        If the data does not have the columns or the labels of the model.

    Examples
    --------
    >>> import coterie as co, numpy as np
    >>> X = np.random.default_rng(0).standard_normal((60, 2))
    >>> y = np.where(X[:, 0] > 0, "ill", "healthy")
    >>> fit = co.solve(co.Problem("logistic", "l2", 0.1), (X[:40], y[:40]), agents=2)
    >>> scores = co.evaluate(fit, (X[40:], y[40:]))
    >>> scores.rows, scores.scores["accuracy"]
    (20, 1.0)
    """
    if isinstance(model, Result):
        model = model.model
    if not isinstance(model, Model):
        raise InvalidInput(
            f"the first argument is a model or the Result of a fit, not {type(model).__name__}."
        )
    check_problem(model.problem)
    if split not in ("samples", "features"):
        raise UnknownName("split of data to evaluate", split, ("samples", "features"))
    data = attach_offset(data, offset, split, model.preparation)
    network = None
    if split == "samples":
        network = "star"
    meeting = Meeting(
        split=split,
        agents=model.problem.kind.data.agents(model.problem, data, agents),
        network=network,
        secure_sums=secure_sums,
        prepare=model.preparation,
        same_order=same_order,
        rules=Rules(whole_number("minimum", minimum), ALLOWANCE, per_party),
    )
    asked = Evaluate(model, split)
    with hosted(asked, data, meeting, engine) as parties:
        found = asked.together(parties)
    assert found is not None, "with all parties here, one of them has the labels"
    return found


# -- queries and protocols -------------------------------------------------------------------------


@discloses(
    "the losses and errors of your rows, and how many of your rows are in each class, bin of "
    "probability and bin of scores, as part of sums",
    "how well the model predicts your rows, and how many of them each class has",
    TOTALS,
    splits=("samples",),
    spare=lambda case: NUMBERS_OF_A_CURVE * case.outputs * case.problem.kind.stats.counts_bins,
)
@discloses(
    "for groups with fewer of your rows than minimum-count: only that you object to them, as "
    "part of a sum",
    splits=("samples",),
)
def scored(model: Any, rules: Rules, site: Site) -> Protocol[Evaluation]:
    """Compute the scores over all parties' rows."""
    scores = raw_scores(model, site.data) + model.intercept_
    sums = measured(model, site.data, scores, minimum=rules.minimum, allowance=rules.allowance)
    return (yield from limited(sums, rules.page, InvalidData(_TOO_MANY)))


@discloses(
    "if your policy says per-party: how well the model predicts your own rows", splits=("samples",)
)
def scored_alone(model: Any, site: Site) -> dict[str, float] | None:
    """Compute the scores of one party, if it allows that."""
    if not site.rules.may_answer_alone(site.data.n):
        return None
    scores = raw_scores(model, site.data) + model.intercept_
    return headline_scores(alone(measured(model, site.data, scores)))


@discloses("a digest of the ids of your rows, if you have ids", splits=("features",))
def order_of_rows(site: Site) -> str | None:
    """Compute a digest that two parties with the same rows in the same order have in common."""
    if site.data.ids is None or not site.data.d:
        return None
    return digest(site.data.ids)


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
    """Compute the scores at the party with the labels, where parties hold columns.

    `model` is this party's part of the model.
    """
    total = yield Sum(raw_scores(model, site.data) + model.intercept_, to=holder)
    if total is None:
        return None
    return alone(measured(model, site.data, total))


@discloses(
    "your partial scores, as part of a sum that only the party with the labels receives",
    SCORES_AT_THE_LABELS,
    splits=("features",),
    most=a_score_per_row,
)
def scored_by_columns(model: Any, holder: int, site: Site) -> Protocol[Evaluation | None]:
    """Compute the scores at the party with the labels, with the whole model at every party.

    `Table.cols` says which columns of the model this party has.
    """
    own = replace(model, coef_=model.coef_[..., site.data.cols])
    total = yield Sum(raw_scores(own, site.data), to=holder)
    if total is None:
        return None
    return alone(measured(model, site.data, total + model.intercept_))


# -- the operation ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Evaluate(Operation[Evaluation | None]):
    """Evaluate a model, or a party's part of one, on rows.

    Split by features, only the party with the labels has a result; the others have None.
    """

    name: ClassVar[str] = "evaluate"
    file: ClassVar[str] = "evaluation"
    tabulates: ClassVar[bool] = True
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
        """Whether columns can only be prepared once parties know which columns each of them has."""
        return self.split == "features" and not self.has_part and self.model.preparation is not None

    def alone(self, table: Table) -> Table:
        if self.prepares_together:
            return table
        if self.model.preparation is not None:
            table = self.model.preparation.apply(table)
        return self._checked(table)

    def _checked(self, table: Table) -> Table:
        """Check a prepared table, and give it the columns and the labels of the model."""
        problem = self.model.problem
        [table] = on_the_host([table])
        if self.split == "samples":
            table = _with_columns(table, self.model)
        elif self.has_part:
            _refuse_other_width(table, self.model)
        classification = problem.kind.data.classification(problem)
        with naming_lines(table):
            table = validated(table, classification=classification)
            if table.n and (self.split == "samples" or table.y is not None):
                check_offset(problem, table.offset is not None)
            return with_labels(table, self.model)

    def together(self, parties: Parties) -> Evaluation | None:
        parties.check()
        shape = common_shape(parties.cards)
        parties = parties.map(partial(_shaped, shape, parties.split))
        if parties.split == "features":
            found = self._by_columns(parties)
        else:
            found = self._by_rows(parties)
        if found is None:
            return None
        return self._of_model(found, parties)

    def _by_rows(self, parties: Parties) -> Evaluation:
        differ = "the parties hold different models. Fit the study again, with `coterie agent`."
        parties.agree(self.model.digest(), differ)
        found = parties.run_protocol(partial(scored, self.model, parties.rules))
        assert found is not None
        answers = parties.ask(partial(scored_alone, self.model), dict[str, float] | None)
        by_name = zip(parties.names, answers, strict=True)
        own = {name: scores for name, scores in by_name if scores is not None}
        return replace(found, parties=own)

    def _by_columns(self, parties: Parties) -> Evaluation | None:
        if self.has_part:
            runs = parties.ask(partial(run_of_part, self.model), str)
            refuse_other_runs(parties.names, runs, self.model_file)
        _refuse_other_orders(parties)
        holder = next(index for index, card in enumerate(parties.cards) if card.outputs is not None)
        if self.has_part:
            return parties.run_protocol(partial(scored_at_the_labels, self.model, holder))
        if self.prepares_together:
            prepared = Prepare(self.model.preparation, self.split).together(parties)
            parties = prepared.parties.map(partial(_prepared_and_checked, self))
        places = _places(parties, self.model)
        parties = parties.map(partial(_placed, places))
        return parties.run_protocol(partial(scored_by_columns, self.model, holder))

    def _of_model(self, found: Evaluation, parties: Parties) -> Evaluation:
        """Add to the scores which model they are of, and how many rows."""
        problem = self.model.problem
        intercept = intercept_words(problem.intercept)
        rows = rows_and_parties(found.rows, len(parties.cards))
        about = f"{problem.loss.name} model {intercept} on {rows}"
        if found.weight != found.rows:
            about = f"{about} (weights add up to {found.weight:.6g})"
        return replace(found, about=about, model=self.model.digest(), bill=parties.bill)


def headline_scores(found: Evaluation) -> dict[str, float]:
    """Select the scores that are shown of one party."""
    scores = {"rows": float(found.rows)}
    for name in OF_ONE_PARTY:
        if name in found.scores:
            scores[name] = found.scores[name]
    return scores


# -- tables that fit the model ---------------------------------------------------------------------


def with_labels(table: Table, model: Any) -> Table:
    """Encode the labels of a checked table as the model does."""
    family = model.problem.kind
    family.data.check_labels(table, model.problem)
    if model.classes_ is None:
        known: Table = family.data.encode(table, model.problem, None)
        return known
    _refuse_other_labels(table, model.classes_)
    [encoded], _ = encode_classes([table], model.classes_)
    if encoded.y is None:
        return encoded
    codes = family.data.codes(model.classes_)
    return replace(encoded, y=codes[encoded.y.astype(np.intp)])


def _shaped(shape: tuple[int, int], split: str, site: Site) -> Table:
    return in_common_shape(site.data, shape, split)


def _prepared_and_checked(asked: Evaluate, site: Site) -> Table:
    return asked._checked(site.data)


def _placed(places: Sequence[Indices], site: Site) -> Table:
    """Note in the table the places of its columns in the model."""
    return replace(site.data, cols=places[site.index])


def _places(parties: Parties, model: Any) -> list[Indices]:
    """Find which columns of the model each party has, by their names where all have names."""
    counts = [card.columns for card in parties.cards]
    expected = model.coef_.shape[-1]
    if sum(counts) != expected:
        raise InvalidData(
            f"the model has {expected} columns, but the parties have {sum(counts)} together. Give "
            "those of the fit."
        )
    if model.columns is None or any(card.names is None for card in parties.cards):
        return columns_in_turn(counts, parties.look(dealt_columns))
    known = {name: place for place, name in enumerate(model.columns)}
    return [_places_of(card, known) for card in parties.cards]


def _places_of(card: TableSummary, known: Mapping[str, int]) -> Indices:
    """Find the places of one party's columns in the model."""
    places = []
    for name in card.names or ():
        if name not in known:
            raise party_error(
                card.name, f"the model has no column {name!r}. Give the columns of the fit."
            )
        places.append(known[name])
    return np.array(places, np.intp)


def _refuse_other_orders(parties: Parties) -> None:
    """Refuse parties whose rows have other ids, or the same ids in another order."""
    answers = parties.ask(order_of_rows, str | None)
    by_name = zip(parties.names, answers, strict=True)
    known = [(name, order) for name, order in by_name if order is not None]
    for name, order in known:
        first, expected = known[0]
        if order != expected:
            raise party_error(
                name,
                f"the ids of its rows are not those of party {first!r} in the same order. Match "
                "the rows with coterie.data.align(tables).",
            )


def refuse_other_runs(names: Sequence[str], runs: list[str], file: str) -> None:
    """Refuse parts of different runs, which do not add up to a model; the error names the parties
    that hold them.
    """
    by_name = list(zip(names, runs, strict=True))
    unknown = [name for name, run in by_name if not run]
    if unknown:
        raise InvalidInput(
            f"the part of the model at {' and '.join(unknown)} ({file} there) is of a run that "
            "did not end at all parties. Fit the study again, with `coterie agent` at every party."
        )
    usual = max(runs, key=runs.count)
    others = [name for name, run in by_name if run != usual]
    if others:
        first = names[runs.index(usual)]
        raise InvalidInput(
            f"the part of the model at {' and '.join(others)} ({file} there) is of another run "
            f"than that of {first}. Put back the part of that run, or fit the study again, with "
            "`coterie agent` at every party."
        )


def _refuse_other_labels(table: Table, classes: npt.NDArray[Any]) -> None:
    if table.y is None or not len(table.y):
        return
    labels = _text_or_numbers(plain(table.y, table.name, "label"))
    expected = _text_or_numbers(classes)
    if labels != expected:
        raise party_error(
            table.name,
            f"the classes of the model are {expected}, but these rows have the labels {labels}.",
        )


def _text_or_numbers(values: npt.NDArray[Any]) -> str:
    if is_text(values):
        return "text"
    return "numbers"


def _refuse_other_width(table: Table, model: Any) -> None:
    width = model.coef_.shape[-1]
    if table.d != width:
        raise party_error(
            table.name,
            f"the model has {width} columns, but the data has {table.d}. Give the columns of the "
            "fit.",
        )


def _with_columns(table: Table, model: Any) -> Table:
    """Give a table the columns of the model, found by their names where both have names."""
    width = model.coef_.shape[-1]
    if model.columns is not None and table.columns is not None and table.columns != model.columns:
        return _by_name(table, model.columns)
    if table.open_ended and table.d < width and is_sparse(table.X):
        X = table.X.copy()
        X.resize(table.n, width)
        return replace(table, X=X)
    if table.n or table.d:
        _refuse_other_width(table, model)
    return table


def _by_name(table: Table, wanted: Sequence[str]) -> Table:
    """Take the columns with these names out of a table."""
    names = table.columns or ()
    known = {name: place for place, name in enumerate(names)}
    places = []
    for name in wanted:
        if name not in known:
            raise party_error(table.name, str(UnknownName("column", name, names)))
        places.append(known[name])
    return table.take_columns(np.array(places))
