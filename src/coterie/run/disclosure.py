"""What messages disclose: declared next to the code that sends them, and checked before they are
sent.

    @discloses("for each column: the sum of its squares", most=lambda case: (1, case.columns))
    def introduce(agent): ...

A query or a protocol carries one `Disclosure` for each kind of thing that it sends. A message
belongs to the innermost declared generator of its protocol: helpers need no declaration of their
own. A method states one for its rounds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from coterie.data.summary import TableSummary
from coterie.problems.problem import AnyProblem

if TYPE_CHECKING:
    from coterie.run.agent import Agent
    from coterie.run.collectives import Collective, Protocol
    from coterie.transport.links import Tag

F = TypeVar("F", bound=Callable[..., Any])
Protocols: TypeAlias = tuple[Callable[..., Any], ...]
"""Protocols that carry `@discloses`."""
SPLITS = ("samples", "features", "users")
STEPS = ("start", "warm", "round", "tune")
"""The protocols of a method."""
METHOD = "method"
"""What counts call the messages of a method."""


@dataclass(frozen=True)
class Case:
    """What decides which declarations apply, and how long messages are."""

    problem: Any
    split: str
    card: TableSummary
    """Of the table of this party."""
    parties: int
    secure_sums: bool = False
    steps: tuple[str, ...] = ()
    """The steps of a preparation."""
    correction: str = ""
    """Of standard errors for few clusters; none is named: it depends on the clusters."""
    all_columns: int | None = None
    """At all parties; None: they have not met."""

    @staticmethod
    def of(agent: Agent[AnyProblem]) -> Case:
        """That of an agent."""
        card = TableSummary.of(agent.data, names=False)
        return Case(agent.problem, agent.split, card, agent.count, agent.secure_sums)

    @property
    def rows(self) -> int:
        """At this party."""
        return self.card.rows

    @property
    def columns(self) -> int:
        """At this party."""
        return self.card.columns

    @property
    def outputs(self) -> int:
        """Scores of a row."""
        return max(int(self.problem.outputs), 1)

    @property
    def labels(self) -> int:
        """Labels of a row."""
        return math.prod(self.card.outputs or ())

    @property
    def matrix(self) -> tuple[int, int]:
        """Rows and columns of the matrix that a task for matrices learns."""
        size: tuple[int, int] = self.problem.loss.size_for(self.columns, self.labels)
        return size

    @property
    def intercept(self) -> bool:
        """Whether the model has an intercept."""
        return bool(self.problem.intercept)

    @property
    def width(self) -> int:
        """Columns at this party, with that of the intercept."""
        return self.columns + self.intercept


Counts: TypeAlias = tuple[int, int]
"""How many collectives, and how many numbers one party sends in them."""
NO_MESSAGES: Counts = (0, 0)
Most: TypeAlias = Callable[[Case], Counts | None]
"""The largest counts in a case; None: they depend on what is not known yet."""
Spare: TypeAlias = Callable[[Case], int]
"""Numbers in a case."""


def always(case: Case) -> bool:
    """In every case."""
    return True


def a_number_per_column(case: Case) -> Counts:
    """One sum with a number for each coefficient of a linear model."""
    return 1, case.width


def a_score_per_row(case: Case) -> Counts:
    """One sum with each score of each row."""
    return 1, case.rows * case.outputs


def triangle(width: int) -> int:
    """The numbers in the upper triangle of a symmetric matrix."""
    return width * (width + 1) // 2


@dataclass(frozen=True)
class Disclosure:
    """What a party sends, and what a recipient can compute from it.

    Consent pages and the tables in docs/disclosure.md consist of these sentences. They address the
    party as "you".
    """

    sent: str
    """What one party's message is."""
    learned: str = ""
    """What a recipient of that message can compute."""
    secure: str = ""
    """What a recipient can compute with secure sums, where a `Sum` shows its total and nothing
    else.
    """
    setup: str = ""
    """Of a method: what is sent in addition to the messages of the rounds."""
    splits: tuple[str, ...] = SPLITS
    applies: Callable[[Case], bool] = field(default=always, repr=False)
    most: Most | None = field(default=None, repr=False, compare=False)
    """The largest counts in one conversation, of a method in every round; None: they depend on the
    data.
    """
    sometimes: Most | None = field(default=None, repr=False, compare=False)
    """Of a method: what some rounds send in addition, such as the search for a step size."""
    before: Most | None = field(default=None, repr=False, compare=False)
    """Of a method: the largest counts before the first round."""
    spare: Spare | None = field(default=None, repr=False, compare=False)
    """Of what depends on the data: numbers for values that only other parties have."""
    unbounded: str = field(default="", repr=False, compare=False)
    """Why no page can state a largest number of numbers, as a sentence without its end; empty if
    one can.
    """

    def holds(self, case: Case) -> bool:
        """Whether it is sent in that case."""
        return case.split in self.splits and self.applies(case)


def discloses(
    sent: str,
    learned: str = "",
    secure: str = "",
    splits: Sequence[str] = SPLITS,
    *,
    applies: Callable[[Case], bool] = always,
    most: Most | None = None,
    spare: Spare | None = None,
    unbounded: str = "",
) -> Callable[[F], F]:
    """Declare what a query or a protocol sends. Several declarations of one function add up.

    Parameters
    ----------
    sent : str
        What one party's message is, in words that address the party as "you".
    learned : str, default=""
        What a recipient can compute.
    secure : str, default=""
        What a recipient can compute with secure sums.
    splits : sequence of str, default=("samples", "features", "users")
        How data may be split.
    applies : callable, optional
        Whether it is sent in a `Case`.
    most : callable, optional
        The largest number of collectives, and of numbers in them, in one conversation; None where
        they depend on what is not known yet.
    spare : callable, optional
        Where the counts depend on the data: the numbers that a page adds to those of a dry run, for
        values that only other parties have.
    unbounded : str, default=""
        Why no page can state a largest number of numbers, as a sentence without its end.
    """
    declaration = Disclosure(
        sent,
        learned,
        secure,
        splits=tuple(splits),
        applies=applies,
        most=most,
        spare=spare,
        unbounded=unbounded,
    )

    def declared(function: F) -> F:
        vars(function)["disclosures"] = (declaration, *declared_by(function))
        return function

    return declared


def declared_by(function: Callable[..., Any]) -> tuple[Disclosure, ...]:
    """The declarations of a query or a protocol."""
    found: tuple[Disclosure, ...] = getattr(function, "disclosures", ())
    return found


def applying(functions: Iterable[Callable[..., Any]], case: Case) -> list[Disclosure]:
    """Their declarations that hold in that case."""
    return [one for function in functions for one in declared_by(function) if one.holds(case)]


def most_of(function: Callable[..., Any], case: Case) -> Counts | None:
    """The most collectives and numbers that it sends in one conversation; None: it depends on the
    data.
    """
    counts = [
        one.most(case) for one in declared_by(function) if one.most is not None and one.holds(case)
    ]
    return added(counts) if counts else None


def spare_of(function: Callable[..., Any], case: Case) -> int:
    """The numbers that its declarations spare for values of other parties."""
    return sum(
        one.spare(case)
        for one in declared_by(function)
        if one.spare is not None and one.holds(case)
    )


def added(counts: Iterable[Counts | None]) -> Counts | None:
    """All of them together; None if one is not known."""
    collectives = numbers = 0
    for one in counts:
        if one is None:
            return None
        collectives += one[0]
        numbers += one[1]
    return collectives, numbers


@dataclass(frozen=True)
class OfMethod:
    """The counts of a method."""

    before: Counts | None
    """Before the first round."""
    round: Counts | None
    """In every round."""
    sometimes: Counts | None
    """What some rounds send in addition."""

    @staticmethod
    def of(declaration: Disclosure, case: Case) -> OfMethod:
        """Those that it declares."""
        before, sometimes = declaration.before, declaration.sometimes
        return OfMethod(
            NO_MESSAGES if before is None else before(case),
            None if declaration.most is None else declaration.most(case),
            NO_MESSAGES if sometimes is None else sometimes(case),
        )

    @property
    def longest_round(self) -> Counts | None:
        """In any one round."""
        return added([self.round, self.sometimes])


# -- at run time -----------------------------------------------------------------------------------


class Undeclared(AssertionError):
    """A collective that no declaration of the operation is about."""


class Guard:
    """Refuses what the operation does not declare, and counts the rest.

    A collective is checked first. Only then its messages get a tag, and what leaves without that
    tag is refused at the links (`check_tag`), unless its label is declared.
    """

    def __init__(
        self,
        operation: str,
        protocols: Iterable[Callable[..., Any]],
        methods: Iterable[type] = (),
        labels: Iterable[str] = (),
        *,
        tabulates: bool = False,
    ):
        """With the labels of declared messages outside of sums; those of queries are their
        names. If the operation `tabulates`, all its sums come from `run.groups.released`.
        """
        self._tabulates = tabulates
        protocols = list(protocols)
        self.operation = operation
        self._labels = {*labels, *(_code(one).co_name for one in protocols)}
        self._known = {_code(one): name_of(one) for one in protocols}
        self._of_methods = {code: METHOD for one in methods for code in _codes(one)}
        self._known |= self._of_methods
        self.sent: Counter[str] = Counter()
        """Collectives by the name of the declared protocol."""
        self.numbers: Counter[str] = Counter()
        self._checked = ""
        """The kind of collective that may have the next tag."""
        self._tag: object = None

    def check(
        self, protocol: Protocol[Any], collective: Collective, agent: int | None = None
    ) -> None:
        """Refuse the collective that this protocol is about to send, unless one of its generators
        is declared. In a `Sum(of=)`, only one agent sends numbers: others than `agent` are not
        counted. None counts them all.
        """
        chain = list(_generators(protocol))
        name = next(
            (self._known[one.gi_code] for one in reversed(chain) if one.gi_code in self._known),
            None,
        )
        if name is None:
            raise Undeclared(
                f"{self.operation}: {chain[-1].__qualname__} sends a {type(collective).__name__} "
                "that no declaration "
                'is about. Write @discloses("what you send", learned="what a recipient can '
                'compute") above the '
                "generator, and list it: the proof of a kind in `introduces` or `proves`, an "
                "operation in "
                "`discloses`."
            )
        if self._tabulates and not getattr(collective, "released", False):
            raise Undeclared(
                f"{self.operation}: {chain[-1].__qualname__} sends a {type(collective).__name__} "
                "that does not come from groups.released, which refuses small cells."
            )
        sender = getattr(collective, "of", None)
        numbers = size_of(collective)
        if agent is not None and sender is not None and sender != agent:
            numbers = 0
        self.count(name, numbers)
        self._checked = type(collective).__name__

    def count(self, name: str, numbers: int) -> None:
        """Count a message of one agent."""
        self.sent[name] += 1
        self.numbers[name] += numbers

    def publish(self, numbers: int) -> None:
        """Count what a method publishes; refuse it if the operation has no method."""
        if not self._of_methods:
            raise Undeclared(f"{self.operation}: no declaration is about a publication.")
        self.count(METHOD, numbers)

    def begin(self, tag: Tag) -> None:
        """Let messages with this tag pass: they are those of the collective that was checked."""
        if tag.collective != self._checked:
            raise Undeclared(
                f"{self.operation}: a {tag.collective} was not checked before it is sent."
            )
        self._checked = ""
        self._tag = tag

    def check_tag(self, tag: Tag) -> None:
        """Refuse a message that has no declared label, and is not part of the collective that was
        checked last.
        """
        if tag.collective not in self._labels and tag != self._tag:
            raise Undeclared(
                f"{self.operation}: {tag} is neither a declared message nor part of a declared "
                "collective."
            )


def name_of(protocol: Any) -> str:
    """What the counts call a protocol, or a method."""
    return f"{protocol.__module__.removeprefix('coterie.')}.{protocol.__qualname__}"


def size_of(collective: Collective) -> int:
    """How many numbers one agent sends."""
    message: Any = (
        collective.tell if hasattr(collective, "tell") else getattr(collective, "x", None)
    )
    return 0 if message is None else int(np.size(message))


def _generators(protocol: Any) -> Iterator[Any]:
    """A protocol, the one that it waits for, and so on."""
    while getattr(protocol, "gi_code", None) is not None:
        yield protocol
        protocol = protocol.gi_yieldfrom


def _code(function: Any) -> CodeType:
    while hasattr(function, "func"):
        function = function.func
    found: CodeType = function.__code__
    return found


def _codes(method: type) -> Iterator[CodeType]:
    """The protocols of a method, also those that it inherits."""
    for base in method.__mro__:
        for name in STEPS:
            if hasattr(own := vars(base).get(name), "__code__"):
                yield _code(own)


SAME = "the same: these messages go to neighbours, and are not sums"
NO_SUMS = "the same: models go to those who are to receive them, and are not sums"
LABELS_OF_MODEL = "your labels, about as accurately as your model predicts them"
SCORES_OF_BRANCHES = (
    "how your scores move, if you are a leaf, or those of your branch: after as many rounds as "
    "you have columns, "
    "these up to a rotation (which rows resemble each other, to 2e-9)"
)
SCORES_OF_OTHERS = "how the scores of all other parties together move"
TOTALS = "only the sum over all parties; with two parties, each can compute the other's message"
SCORES_AT_THE_LABELS = (
    "the label party: the scores of all rows. A party on the way: the sum of the scores over each "
    "branch below it"
)
WOKEN = "how often you wake up, and send your model, depends on the time that messages take"
"""Why methods of agents that wake up at their own times have no largest number of numbers."""
LABELS_FIRST = "ALL LABELS AND WEIGHTS, once, to all parties; then"
WEIGHTED_ROWS = Disclosure(
    sent="a weighted sum of your rows, one number per column, as part of a sum",
    learned=(
        "a weighted sum of rows, another one each round: with fewer rows than rounds, the space "
        "that the rows span"
    ),
    secure=TOTALS,
    most=a_number_per_column,
)
HESSIAN = Disclosure(
    sent="the gradient and the Hessian XᵀDX of your rows, one number per column and one per pair "
    "of columns, as part "
    "of a sum",
    learned="all second moments, with new weights in each round. That is more than `gram` sends: "
    "a few rows can be "
    "reconstructed, with their labels (six people of six columns after three rounds, to 5e-12)",
    secure=TOTALS,
)
