"""Where one party's table is: what a question, a step and a talk may see of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from coterie.data import Table


@dataclass(frozen=True)
class Rules:
    """How far a talk may look: what a caller says of parties that are here, or a party's policy."""

    minimum: int = 1
    """Groups of fewer rows, of all parties together, are not looked into."""
    room: float = math.inf
    """How many numbers a party may tell."""
    per_party: bool = False
    """Whether a party also tells of its rows alone."""
    least: int = 1
    """Of how many rows alone, at least."""
    page: float = math.inf
    """How many numbers the pages allow that the parties agreed to."""

    def tells_alone(self, rows: int) -> bool:
        """Whether a party with so many rows tells of them alone."""
        return self.per_party and rows >= max(self.least, 1)


NO_RULES = Rules()


@dataclass(frozen=True)
class Site:
    """One holder of data among others, whatever they came together for. An `Agent` is one that
    solves a problem.
    """

    index: int
    count: int
    data: Table
    secure_sums: bool = field(default=False, kw_only=True)
    """Whether sums are of whole numbers (see `transport.sums`)."""
    rules: Rules = field(default=NO_RULES, kw_only=True)
    """Its own."""
    scratch: dict[str, Any] = field(default_factory=dict, compare=False, repr=False, kw_only=True)
    """What was computed from the data once and may be computed again: never part of a State."""
