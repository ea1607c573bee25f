"""Count what an operation sends before it sends anything: it runs on one party's table alone.

Every sum is answered with the party's own message, so nothing leaves the process. Other parties may
have categories and values that this party has not. So a page states two numbers: those of the dry
run, and a limit that the parties keep to.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np

from coterie.data import Table
from coterie.data.summary import TableSummary
from coterie.errors import CoterieError
from coterie.networks import star
from coterie.problems.problem import AnyProblem
from coterie.run.agent import AgentForm
from coterie.run.bill import Bill
from coterie.run.collectives import Protocol, alone, observed
from coterie.run.disclosure import Case, Counts, Guard, spare_of
from coterie.run.parties import AnyOperation, Operation, Parties, Rounds
from coterie.run.rounds import Outcome
from coterie.run.setup import with_offset
from coterie.run.site import Rules, Site

if TYPE_CHECKING:
    from coterie.study.study import Study

T = TypeVar("T")
FACTOR = 4
"""A page allows this many times the numbers of the dry run, and what its declarations spare for
values of other parties.
"""


@dataclass(frozen=True)
class Asked:
    """An operation, and what this party brings to it."""

    operation: AnyOperation
    table: Table
    """What `Operation.alone` made of the party's rows."""
    rules: Rules
    """The party's own: `minimum-count`, and how many numbers its budget allows."""


@dataclass(frozen=True)
class Estimate:
    """The counts of an operation on a page."""

    alone: Counts
    """Sums, and numbers in them, of the dry run."""
    most: float
    """The largest number of numbers in which the parties keep to this page."""
    shown: float
    """The same, or what the budget allows, if that is less."""
    found: Any = None
    """The result for this party alone; None if it needs rows of other parties."""


def dry_run(asked: Asked, study: Study) -> Estimate:
    """Count what an operation on this table sends, and what it may send at most."""
    operation, rules = asked.operation, asked.rules
    assert isinstance(operation, Operation), "the dry run needs an operation on any parties"
    found = None
    card = TableSummary.of(asked.table, names=False)
    network = star(len(study.party), server=True)
    tabulates = operation.tabulates and study.split == "samples"
    guard = Guard(operation.name, operation.discloses, tabulates=tabulates)
    site = Site(0, len(study.party), asked.table, secure_sums=study.has_secure_sums, rules=rules)
    alone = _Alone(operation, study.split, [card], rules, Bill(network), (site,), guard)
    # An operation may need rows of other parties. What was counted so far is part of the limit.
    with contextlib.suppress(CoterieError):
        found = operation.together(alone)
    counts = sum(guard.sent.values()), sum(guard.numbers.values())
    case = case_of(study, asked.table)
    spare = sum(spare_of(one, case) for one in operation.discloses)
    most = float(FACTOR * counts[1] + spare)
    return Estimate(counts, most, min(most, rules.allowance), found)


def case_of(study: Study, table: Table, columns: int | None = None) -> Case:
    """What decides which declarations apply to this party; `columns`: after a preparation."""
    problem = study.make_problem()
    kind = problem.kind
    card = TableSummary.of(
        table, classification=bool(kind.data.classification(problem)), names=False
    )
    if columns is not None:
        card = msgspec.structs.replace(card, columns=columns, nonzeros=card.rows * columns)
    if needs_classes(problem):
        # Those of all parties are known once they have met: until then, the party's own ones.
        classes = card.classes if len(card.classes) > 1 else ["one", "other"]
        problem = problem.with_classes(np.array(classes))
    recipes = study.make_preparation()
    steps = () if recipes is None else tuple(dict.fromkeys(step.name for step in recipes.steps))
    secure = study.has_secure_sums
    problem, correction = with_offset(problem, [card]), study.correction or ""
    return Case(problem, study.split, card, len(study.party), secure, steps, correction)


def needs_classes(problem: AnyProblem) -> bool:
    """Whether the lengths of messages depend on classes that the study does not list."""
    return getattr(getattr(problem, "loss", None), "classes", ()) is None


@dataclass(frozen=True)
class _Alone(Parties):
    """One party that answers all questions of an operation itself."""

    operation: AnyOperation
    split: str
    cards: Sequence[TableSummary]
    rules: Rules
    bill: Bill
    sites: tuple[Site, ...]
    guard: Guard = field(compare=False)

    @property
    def apart(self) -> bool:
        return True

    @property
    def in_memory(self) -> bool:
        return True

    def ask(self, query: Callable[[Site], T], kind: Any) -> list[T]:
        self.declared(query)
        return [query(self.sites[0])]

    def look(self, query: Callable[[Site], T]) -> list[T | None]:
        return [query(self.sites[0])]

    def map(
        self,
        step: Callable[[Site], Table],
        cards: Sequence[TableSummary] | None = None,
        part: str = "",
    ) -> _Alone:
        site = replace(self.sites[0], data=step(self.sites[0]), scratch={})
        return replace(self, sites=(site,), cards=self.cards if cards is None else cards)

    def run_protocol(
        self, protocol: Callable[[Site], Protocol[T]], purpose: str = "rounds"
    ) -> T | None:
        self.declared(protocol)
        running = protocol(self.sites[0])
        return alone(observed(running, partial(self.guard.check, running)))

    def run_rounds(self, agents: Sequence[AgentForm[AnyProblem]], rounds: Rounds) -> Outcome:
        raise NotImplementedError("the rounds of a fit are counted by what methods declare")

    def answers(self, questions: Sequence[Callable[[], T]]) -> list[T]:
        return [question() for question in questions]

    def agree(self, value: str, otherwise: str) -> None:
        """There is one party."""

    def bring(self, brought: Callable[[], T], kind: Any) -> list[T]:
        return [brought()]
