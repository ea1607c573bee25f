"""A party's table with its rules: the argument of queries, steps and protocols."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from coterie.data import Table


@dataclass(frozen=True)
class Rules:
    """Limits on protocols, from the caller if the parties are here, else from a party's policy."""

    minimum: int = 1
    """The least number of rows in a group, of all parties together; smaller ones are not shown."""
    room: float = math.inf
    """The most numbers that a party may send."""
    per_party: bool = False
    """Whether a party also sends summaries of its rows alone."""
    least: int = 1
    """The least number of rows of which a party sends summaries alone."""
    page: float = math.inf
    """The most numbers that the pages allow to which the parties agreed."""

    def tells_alone(self, rows: int) -> bool:
        """Whether a party with this number of rows sends summaries of them alone."""
        return self.per_party and rows >= max(self.least, 1)


NO_RULES = Rules()


@dataclass(frozen=True)
class Site:
    """One party's table among those of all parties, in any operation. An `Agent` is a site that
    solves a problem.
    """

    index: int
    count: int
    data: Table
    secure_sums: bool = field(default=False, kw_only=True)
    """Whether sums are of whole numbers (see `transport.sums`)."""
    rules: Rules = field(default=NO_RULES, kw_only=True)
    """The rules of this party."""
    scratch: dict[str, Any] = field(default_factory=dict, compare=False, repr=False, kw_only=True)
    """Values that follow from the data and may be computed again: never part of a State."""
