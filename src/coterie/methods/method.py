"""The base class of methods: start, take a round, and return a point.

A method is a frozen dataclass of parameters. All that changes is in a State, a frozen dataclass of
arrays and numbers. `start`, `warm`, `round` and `tune` are protocols: they compute, or yield a
collective and receive the reply.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias

import numpy as np

from coterie.methods.auto.costs import Outlook, Sizes, worth
from coterie.networks import Network
from coterie.numerics.arrays import FloatArray
from coterie.numerics.losses import Loss
from coterie.problems.problem import Problem, Q
from coterie.run.agent import Agent, AgentForm
from coterie.run.certificate import Point
from coterie.run.collectives import IndexArray, Protocol, Publication
from coterie.run.disclosure import Disclosure
from coterie.run.steps import Coordinate, S, Stateful, Steps

NO_INTERCEPT = (
    "fits no intercept, which has no penalty. Use intercept=False, or method='proximal-1'."
)
"""The end of an error message of methods that need a penalty on all coefficients."""

Rows: TypeAlias = Problem[Loss]
"""The problems of methods for linear models."""


@dataclass(frozen=True)
class Method(Stateful[S], ABC, Generic[S, Q]):
    """A map State → State, as one agent computes it."""

    name: ClassVar[str]
    state: ClassVar[type[Any]]
    """The class of the State, from `Method[State]`: a frozen dataclass of arrays, numbers, strings
    or None.
    """
    split: ClassVar[str]
    """"samples", "features" or "users"."""
    summary: ClassVar[str]
    """One line for tables and `--help`."""
    disclosure: ClassVar[Disclosure]
    """The disclosure by its messages."""
    discloses_labels: ClassVar[bool]
    """Whether parties without labels can compute them from its messages, or from its certificates.
    """

    family: ClassVar[str] = "linear"
    """The name of the kind of problem that it solves."""
    first_look: ClassVar[int] = 2
    """The first round after which a certificate is worth its messages."""

    @property
    def asynchronous(self) -> bool:
        """Whether agents wake up one by one. Then a `round` is a wake-up that only asks, and t
        counts the wake-ups of all agents.
        """
        return False

    @property
    def settles_after(self) -> int:
        """The round from which on the problem does not change. Earlier certificates end no run."""
        return 0

    moves_columns: ClassVar[bool] = False
    """Whether parties send their columns in any form. The policy of a party has to allow that by
    name.
    """
    one_sender: ClassVar[bool] = False
    """Whether in some rounds only one agent sends, so that a sum is its message."""
    keeps_sums: ClassVar[bool] = False
    """Whether other penalties on the same data need no further rounds, as on a path."""
    tensors: ClassVar[bool] = False
    """Whether it uses data only for products and moments, so that dense rows may be torch tensors
    on a GPU.
    """
    uses_network: ClassVar[bool] = True
    """Whether the edges of the network matter."""

    if not TYPE_CHECKING:

        def __class_getitem__(cls, arguments):
            """Read `Method[State]` as a method for linear problems: type variables have no
            defaults before Python 3.13.
            """
            if cls is Method and not isinstance(arguments, tuple):
                arguments = (arguments, Rows)
            return super().__class_getitem__(arguments)

    def adapted(self, problem: Q) -> tuple[Method[S, Q], Q]:
        """Return this method, adapted to that problem, and the problem, adapted to a method that is
        a baseline.
        """
        return self, problem

    @classmethod
    def score(
        cls, problem: Any, network: Network, sizes: Sizes | None = None
    ) -> tuple[float, str] | None:
        """Return a score for `method="auto"`, and the reason ("chosen because ..."); None if only
        users choose the method, by name.
        """
        if sizes is None:
            return None
        outlook = cls.outlook(problem, sizes)
        if outlook is None:
            return None
        return worth(problem, network, sizes, outlook)

    @classmethod
    def outlook(cls, problem: Any, sizes: Sizes) -> Outlook | None:
        """Return the expected rounds, messages and work; None for those of a first-order method, or
        if the method cannot solve that problem.
        """
        return None

    @classmethod
    def rescues(cls, problem: Q, sizes: Sizes) -> bool:
        """Return whether a stalled run of "auto" may continue with this method, from its model."""
        return True

    def check(self, problem: Q, network: Network) -> None:
        """Raise InvalidProblem, with an alternative, if this method cannot solve that problem."""

    @property
    def states(self) -> tuple[type, ...]:
        """The class of the State, alone."""
        return (self.state,)

    @abstractmethod
    def start(self, agent: Agent[Q]) -> Protocol[S]:
        """Return the first State."""

    def warmed(self, agent: Agent[Q], state: S, point: Point) -> S:
        """Return the first State, moved to the point of another run if the method can do that."""
        return state

    def warm(self, agent: Agent[Q], state: S, point: Point) -> Protocol[S]:
        """Return `warmed`, for a method that needs messages for it."""
        yield from ()
        return self.warmed(agent, state, point)

    @abstractmethod
    def round(self, agent: Agent[Q], state: S, t: int) -> Protocol[S]:
        """Return the State after round t = 1, 2, ..."""

    @abstractmethod
    def point(self, agent: Agent[Q], state: S) -> Point:
        """Return the model and the dual variables of the State."""

    def expected_gap(self, agent: AgentForm[Q], state: S) -> float | None:
        """Return the gap that a certificate would show, if all agents know it without messages.

        While it is too large, a run makes no certificate.
        """
        return None

    def together(self, agent: Agent[Q]) -> tuple[str, ...] | None:
        """Return the fields of a State that differ between agents, if a batch of equal agents can
        take its rounds together; else None.

        Then a round consists of sums only, and uses the last axes of arrays: the first axis is the
        agent.
        """
        return None

    def tunes_after(self, t: int) -> bool:
        """Return whether to `tune` after round t: finitely often, so that proofs for fixed steps
        apply to the rest.
        """
        return False

    def tune(self, agent: Agent[Q], state: S, t: int) -> Protocol[S]:
        """Return the State with better parameters."""
        raise NotImplementedError

    def publish(self, agent: Agent[Q], state: S) -> FloatArray | Publication | None:
        """Return the numbers that others may `Ask` for until the next round ends; None for none."""
        return None

    def receive(self, agent: Agent[Q], state: S, sender: int, note: tuple[float, ...]) -> S:
        """Return the State after a note of another agent's `Publication` arrived."""
        return state

    def neighbours(self, agent: Agent[Q], state: S) -> IndexArray | None:
        """Return the agents that exchange changes of publications with this one; None if unknown.
        Of two agents, both or neither is a neighbour of the other.
        """
        return None

    def drawn(self, agent: Agent[Q], who: int, t: int) -> IndexArray | None:
        """Return the agents that agent `who` may contact in wake-up t in addition to its
        neighbours, computed from what all agents know; None if others cannot compute them.
        """
        return None

    @property
    def can_be_accelerated(self) -> bool:
        """Whether the method defines `coordinates`."""
        return type(self).coordinates is not Method.coordinates

    def coordinates(self, agent: Agent[Q], state: S) -> tuple[Coordinate, ...]:
        """Return the arrays of the State on which the map acts, shared ones first, uncounted ones
        last; an empty tuple if the method cannot be accelerated.
        """
        return ()

    def accelerated(self, problem: Q) -> Steps[Any]:
        """Return this method with the acceleration that suits it on that problem, if any."""
        return self

    def settings(self) -> dict[str, Any]:
        """Return name and parameters as plain values."""
        plain: dict[str, Any] = {"name": self.name}
        for name, value in asdict(self).items():
            if isinstance(value, np.generic):
                value = value.item()
            plain[name] = value
        return plain
