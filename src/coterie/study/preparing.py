"""Prepare the party's own columns, between organisations, with numbers that come from sums over all
parties.

Split by samples, the parties first compare their raw columns, and then add up. Split by features,
each party prepares its columns alone, and then sends their number to the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from coterie.data import Table, validated
from coterie.data.preparation.prepared import Prepared
from coterie.data.preparation.recipes import Preparation
from coterie.data.summary import TableSummary
from coterie.data.table import party_error
from coterie.problems.parts.data import by_rows
from coterie.problems.problem import AnyProblem
from coterie.run.site import NO_RULES, Rules
from coterie.stats.preparing import Prepare, check_alone
from coterie.study.among import Among
from coterie.study.broadcasts import LEAST_ROWS, MINIMUM_COUNT, NUMBERS
from coterie.study.dry_run import Asked, dry_run
from coterie.study.policy import Account
from coterie.study.session import Session, prepare_table


@dataclass(frozen=True)
class Ready:
    """A party's prepared table, and the summaries of all tables."""

    table: Table
    parts: list[TableSummary]
    classes: npt.NDArray[Any] | None
    account: Account
    """Counts the numbers that this party sends."""
    held: list[TableSummary]
    """The summaries of the tables before columns were prepared, for the budgets of policies."""
    prepared: Prepared | None = None
    sent: dict[str, Any] | None = None
    """The state of a bill: the communication cost of the preparation."""


def prepare_own(session: Session, table: Table) -> Ready:
    """Compare the tables of the parties, and prepare the columns if the study has recipes."""
    study = session.study
    problem, recipes = study.make_problem(), study.make_preparation()
    if recipes is None:
        table, parts, classes = prepare_table(session, table, problem)
        return Ready(table, parts, classes, Account.of(session, parts[session.me]), parts)
    asked = Prepare(recipes, study.split)
    if study.split == "features":
        # This party prepares its columns alone, before it sends their number.
        unlimited = Account(session.own.party, math.inf)
        found = asked.together(Among.of(session, asked, table, [], unlimited, NO_RULES))
        table, parts, classes = prepare_table(session, found.parties.site.data, problem)
        account = Account.of(session, parts[session.me])
        return Ready(table, parts, classes, account, parts, found.prepared)
    table, parts, classes = prepare_table(session, table, problem)
    account = Account.of(session, parts[session.me])
    rules = _agreed_rules(session, asked, table)
    found = asked.together(Among.of(session, asked, table, parts, account, rules))
    table, wide = _as_fitted(found.parties.site.data, parts)
    return Ready(table, wide, classes, account, parts, found.prepared, found.sent)


def _agreed_rules(session: Session, asked: Prepare, table: Table) -> Rules:
    """The largest minimum-count, and the numbers of the shortest page."""
    minimum = session.own.policy.minimum_count
    own = Rules(minimum)
    mine = minimum, dry_run(Asked(asked, table, own), session.study).most
    told = session.all_gather(mine, LEAST_ROWS, tuple[MINIMUM_COUNT, NUMBERS])
    return Rules(max(least for least, _ in told), page=min(page for _, page in told))


def _as_fitted(table: Table, parts: Sequence[TableSummary]) -> tuple[Table, list[TableSummary]]:
    """A prepared table, and the summaries of all prepared tables: their columns are dense, and the
    same at all parties.
    """
    table = by_rows(table)
    prepared = []
    for part in parts:
        size = {"columns": table.d, "nonzeros": part.rows * table.d}
        prepared.append(msgspec.structs.replace(part, **size, single=False))
    return table, prepared


def check_raw(table: Table, recipes: Preparation, problem: AnyProblem, split: str) -> Table:
    """Check the party's raw table, as far as the party can alone. Nothing is sent."""
    if not table.d and split == "samples":
        raise party_error(
            table.name,
            "there are no columns to prepare. Give a file with the names of the columns.",
        )
    check_alone(table, recipes, split)
    family = problem.kind
    bare = replace(table, X=np.empty((table.n, 0)), columns=None, texts=None)
    checked = validated(bare, classification=family.data.classification(problem))
    family.data.check_fields(checked, problem)
    family.data.check_labels(checked, problem)
    return replace(checked, X=table.X, columns=table.columns, texts=table.texts)
