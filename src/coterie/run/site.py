"""A party's table with its rules: the argument of queries, steps and protocols."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from coterie.data import Table
from coterie.data.remote_table import AnyTable, NotLocal


@dataclass(frozen=True)
class Rules:
    """Limits on protocols, from the caller if the parties are here, else from a party's policy."""

    minimum: int = 1
    """The least number of rows in a group, of all parties together; smaller ones are not shown."""
    allowance: float = math.inf
    """The most numbers that a party may send."""
    per_party: bool = False
    """Whether a party also sends summaries of its rows alone."""
    least: int = 1
    """The least number of rows of which a party sends summaries alone."""
    page: float = math.inf
    """The most numbers that the pages allow to which the parties agreed."""

    def may_answer_alone(self, rows: int) -> bool:
        """Whether a party with this number of rows sends summaries of them alone."""
        return self.per_party and rows >= max(self.least, 1)


NO_RULES = Rules()


@dataclass(frozen=True)
class SiteForm:
    """One party among all parties, for a process that may not have its table: a driver.

    It may read what every table tells (`AnyTable`), and no number. `with_data` makes a `Site` of it
    where the table is.
    """

    index: int
    count: int
    data: AnyTable
    secure_sums: bool = field(default=False, kw_only=True)
    """Whether sums are of whole numbers (see `transport.sums`)."""
    rules: Rules = field(default=NO_RULES, kw_only=True)
    """The rules of this party."""
    scratch: dict[str, Any] = field(default_factory=dict, compare=False, repr=False, kw_only=True)
    """Values that follow from the data and may be computed again: never part of a State."""


@dataclass(frozen=True)
class Site(SiteForm):
    """One party's table among those of all parties, in any operation, where the table is. An
    `Agent` is a site that solves a problem.
    """

    data: Table


def site_of(index: int, count: int, table: AnyTable, **known: Any) -> SiteForm:
    """One party among all parties: a `Site`, if its table is here."""
    if isinstance(table, Table):
        return Site(index, count, table, **known)
    return SiteForm(index, count, table, **known)


def local_sites(sites: Sequence[SiteForm]) -> list[Site]:
    """The same parties, for code that runs only where all their tables are."""
    found = []
    for site in sites:
        if not isinstance(site, Site):
            raise NotLocal(f"the table of party {site.data.name!r}")
        found.append(site)
    return found
