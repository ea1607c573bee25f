"""How well a model predicts rows held by several parties."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.arrays import is_sparse, whole_number
from coterie.data import Table, encode_classes, validated_all
from coterie.data.places import naming_lines
from coterie.data.remote import Rows
from coterie.data.table import columns_of, party_error
from coterie.data.values import is_text, plain
from coterie.engines import Engine, Run
from coterie.engines import engine as find_engine
from coterie.errors import InvalidData, InvalidInput, UnknownName
from coterie.evaluation import Evaluation
from coterie.families import family_of
from coterie.families.family import on_the_host, said_of_intercept
from coterie.models import Model
from coterie.problem import Problem
from coterie.result import Result
from coterie.rounds import Conversation
from coterie.session.preparing import prepare_remotely
from coterie.session.remote import remote_tables
from coterie.session.scoring import check_problem, evaluated, evaluated_by_columns
from coterie.session.setup import check_offset, make_agents, make_network, wants_secure_sums
from coterie.session.tables import attach_offset, gather_prepared
from coterie.settings import Limits, Placement, Settings

ROOM = 2.0**20
"""How many numbers an agent tells at most."""


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
    """How well a model predicts these rows: what all parties' rows give together, from sums and counts.

    model       a `LinearModel`, a `MulticlassModel` or a `SurvivalModel`, or the `Result` that has it
    data        in the forms that `solve` takes, with labels
    offset      as in `solve`, for a model that was fitted with one
    split       "samples" (each party holds rows) or "features" (columns; all learn the scores of the rows)
    agents      how many hold data that is given in one piece (1)
    engine      where they are
    secure_sums as in `solve`
    per_party   whether to say the scores of every party, too
    minimum     groups of fewer rows than this, of any party that has some, are pooled or left out: the AUC is
                then known less well, as `auc_bound` says
    same_order  as in `solve`, for split "features"
    """
    model = model.model if isinstance(model, Result) else model
    if not isinstance(model, Model):
        raise InvalidInput(f"the first argument is a model or the Result of a fit, not {type(model).__name__}.")
    check_problem(model.problem)
    if split not in ("samples", "features"):
        raise UnknownName("split of data to evaluate", split, ("samples", "features"))
    minimum = whole_number("minimum", minimum)
    problem, runner = model.problem, find_engine(engine)
    data = replace(data, prepare=model.preparation) if isinstance(data, Rows) and model.preparation else data
    prepare = partial(prepare_rows, model=model, split=split)
    data = attach_offset(data, offset, split, model.preparation)
    agents = family_of(problem).agents(problem, data, agents)
    elsewhere = runner.hosting(data, agents)
    with (runner if elsewhere is None else elsewhere[0]).held():
        if elsewhere is None:
            parts = agents if isinstance(data, list) or agents is not None else 1
            tables, _ = prepare(gather_prepared(data, split, parts, model.preparation, same_order))
        else:
            runner, sources = elsewhere
            if model.preparation is not None:
                settings = Settings.of(split=split, secure_sums=secure_sums, prepare=model.preparation)
                ready = prepare_remotely(sources, problem, settings, runner)
                sources = ready.held
            classification = family_of(problem).classification(problem)
            tables, _ = remote_tables(sources, runner, prepare, split, classification, same_order, warn=False)
        secure = wants_secure_sums(secure_sums, split, len(tables), runner.apart)
        network = make_network("star" if split == "samples" else None, split, len(tables), 0)
        # The model says all there is to say of the problem.
        members = make_agents(tables, Problem("squared", intercept=False), "samples", network, 0, secure)
        talk: Any = partial(evaluated, model, per_party, minimum, ROOM)
        if split == "features":
            talk = partial(evaluated_by_columns, model, columns_of(tables))
        outcome = runner.run(Run(members, Conversation(talk), network, Limits(), secure_sums=secure))
    found: Evaluation = next(total for total, _ in outcome.answers if total is not None)
    own = zip(tables, outcome.answers, strict=True)
    parties = {table.name: headline_scores(one) for table, (_, one) in own if one is not None}
    return of_model(model, replace(found, parties=parties, bill=outcome.bill), len(tables))


def of_model(model: Any, found: Evaluation, parties: int) -> Evaluation:
    """The scores, saying which model they are of, and how many rows."""
    where = "1 party" if parties == 1 else f"{parties} parties"
    weighted = "" if found.weight == found.rows else f" (weights add up to {found.weight:.6g})"
    intercept = said_of_intercept(model.problem.intercept)
    about = f"{model.problem.loss.name} model {intercept} on {found.rows:,} rows of {where}{weighted}"
    return replace(found, about=about, model=model.digest())


def headline_scores(found: Evaluation) -> dict[str, float]:
    """What is said of one party."""
    kept = ["log_loss", "accuracy", "auc", "brier", "r2", "rmse", "mae", "mean_loss", "deviance", "explained_deviance"]
    kept.append("concordance")
    return {"rows": float(found.rows), **{name: found.scores[name] for name in kept if name in found.scores}}


def prepare_rows(tables: Sequence[Table], model: Any, split: str) -> tuple[list[Table], npt.NDArray[Any] | None]:
    """Tables checked alone, together and against the model, with labels as the model has them."""
    classification = family_of(model.problem).classification(model.problem)
    given = [_with_columns(table, model) if split == "samples" else table for table in on_the_host(tables)]
    with naming_lines(*given):
        checked = validated_all(given, split=split, classification=classification)
    check_offset(model.problem, any(table.offset is not None for table in checked))
    if split == "features":
        checked = _in_order(checked, model)
    with naming_lines(*checked):
        return with_labels(checked, model), model.classes_


def with_labels(tables: Sequence[Table], model: Any) -> list[Table]:
    """Checked tables with labels as the model has them."""
    for table in tables:
        family_of(model.problem).check_labels(table, model.problem)
    if model.classes_ is None:
        return [family_of(model.problem).encode(table, model.problem, None) for table in tables]
    for table in tables:
        _refuse_other_labels(table, model.classes_)
    encoded, _ = encode_classes(tables, model.classes_)
    if model.problem.family != "linear":
        return encoded
    return [table if table.y is None else replace(table, y=2.0 * table.y - 1.0) for table in encoded]


def _refuse_other_labels(table: Table, classes: npt.NDArray[Any]) -> None:
    if table.y is None or not len(table.y):
        return
    if is_text(plain(table.y, table.name, "label")) != is_text(classes):
        kinds = ("text", "numbers") if is_text(classes) else ("numbers", "text")
        raise party_error(table.name, f"the classes of the model are {kinds[0]}, but the labels here are {kinds[1]}.")


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
    if table.d != width and (table.n or table.d):
        raise party_error(
            table.name, f"the model has {width} columns, but the data has {table.d}. Give the columns of the fit."
        )
    return table


def _in_order(tables: Sequence[Table], model: Any) -> list[Table]:
    """Split by features: which columns of the model each table has, by their names where all have names."""
    width = sum(table.d for table in tables)
    if width != model.coef_.shape[-1]:
        raise InvalidData(
            f"the model has {model.coef_.shape[-1]} columns, but the parties have {width} together. Give those of the "
            "fit."
        )
    if model.columns is None or any(table.columns is None for table in tables):
        return list(tables)
    places = {name: place for place, name in enumerate(model.columns)}
    for table in tables:
        if absent := [name for name in table.columns or () if name not in places]:
            raise party_error(table.name, f"the model has no column {absent[0]!r}. Give the columns of the fit.")
    return [replace(table, cols=np.array([places[name] for name in table.columns or ()], int)) for table in tables]
