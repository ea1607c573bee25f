"""A preparation between organisations: the party's own columns, with numbers that come from sums
over all parties.

Split by samples, the parties first compare what they hold (raw columns), and then add up. Split by
features, each prepares its columns alone, and the others hear how many there are then.
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
from coterie.study.broadcasts import LEAST_ROWS
from coterie.study.dry_run import Asked, dry_run
from coterie.study.policy import Account
from coterie.study.session import Session, prepare_table


@dataclass(frozen=True)
class Ready:
    """A party's table as the fits take it, and what all know of the tables."""

    table: Table
    parts: list[TableSummary]
    classes: npt.NDArray[Any] | None
    account: Account
    """Counts what this party says."""
    held: list[TableSummary]
    """What the parties hold, before columns were prepared: policies count that."""
    prepared: Prepared | None = None
    sent: dict[str, Any] | None = None
    """The state of a bill: what the preparation cost."""


def prepare_own(session: Session, table: Table) -> Ready:
    """Compare what the parties hold, and prepare the columns if the study says so."""
    study = session.study
    problem, recipes = study.make_problem(), study.make_preparation()
    if recipes is None:
        table, parts, classes = prepare_table(session, table, problem)
        return Ready(table, parts, classes, Account.of(session, parts[session.me]), parts)
    asked = Prepare(recipes, study.split)
    if study.split == "features":
        # Its own columns, before the others hear how many there are then.
        account = Account(session.own.party, math.inf)
        found = asked.together(Among.of(session, asked, table, [], account, NO_RULES))
        table, parts, classes = prepare_table(session, found.parties.site.data, problem)
        return Ready(
            table, parts, classes, Account.of(session, parts[session.me]), parts, found.prepared
        )
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
    told = session.all_gather(mine, LEAST_ROWS, tuple[int, float])
    return Rules(max(least for least, _ in told), page=min(page for _, page in told))


def _as_fitted(table: Table, parts: Sequence[TableSummary]) -> tuple[Table, list[TableSummary]]:
    """A prepared table, and what is known of everybody's: prepared columns are dense, and all have
    the same.
    """
    table = by_rows(table)
    wide = [
        msgspec.structs.replace(part, columns=table.d, nonzeros=part.rows * table.d, single=False)
        for part in parts
    ]
    return table, wide


def check_raw(table: Table, recipes: Preparation, problem: AnyProblem, split: str) -> Table:
    """The party's raw table, checked as far as one can alone; nothing has been sent."""
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
