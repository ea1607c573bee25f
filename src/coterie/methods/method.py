"""What every method can do: start, take a round, and show its point.

A method is a frozen dataclass of parameters; what changes lives in a State, a frozen dataclass of
arrays and numbers. All of `start`, `warm`, `round` and `tune` are conversations: they may compute,
or yield a word and be sent the reply.
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
from coterie.run.agent import Agent
from coterie.run.certificate import Point
from coterie.run.collectives import Protocol, Publication
from coterie.run.disclosure import Disclosure
from coterie.run.steps import Coordinate, S, Stateful, Steps

NO_INTERCEPT = (
    "fits no intercept, which has no penalty. Use intercept=False, or method='proximal-1'."
)
"""What a method says that needs a penalty on everything."""


Rows: TypeAlias = Problem[Loss]
"""What methods for linear models solve."""


@dataclass(frozen=True)
class Method(Stateful[S], ABC, Generic[S, Q]):
    """A map State → State, as one agent sees it."""

    name: ClassVar[str]
    state: ClassVar[type[Any]]
    """The State's class, which `Method[State]` names: a frozen dataclass of arrays, numbers,
    strings or None.
    """
    split: ClassVar[str]
    """"samples", "features" or "users"."""
    summary: ClassVar[str]
    """One line for tables and `--help`."""
    disclosure: ClassVar[Disclosure]
    """What its messages tell."""
    tells_labels: ClassVar[bool]
    """Whether parties without labels can compute them from its messages, or from its certificates.
    """

    family: ClassVar[str] = "linear"
    """Which problems it solves, the name of their kind."""
    first_look: ClassVar[int] = 2
    """After which round the first certificate is worth its messages."""

    @property
    def asynchronous(self) -> bool:
        """Whether agents wake up one by one: a `round` is then a wake-up, t counts those of all,
        and it only asks.
        """
        return False

    @property
    def settles_after(self) -> int:
        """The round before which certificates speak of a problem that still changes: they end no
        run.
        """
        return 0

    moves_columns: ClassVar[bool] = False
    """Whether parties send their columns, in whatever form: a party's policy has to allow that by
    name.
    """
    one_speaker: ClassVar[bool] = False
    """Whether in some rounds one agent speaks alone, so that a sum is its message."""
    keeps_sums: ClassVar[bool] = False
    """Whether other penalties on the same data cost no further rounds: the points of a path after
    the first.
    """
    tensors: ClassVar[bool] = False
    """Whether it asks data for nothing but products and moments, so that dense rows may be torch
    tensors on a GPU.
    """
    uses_network: ClassVar[bool] = True
    """Whether it matters who is connected to whom."""

    if not TYPE_CHECKING:

        def __class_getitem__(cls, arguments):
            """`Method[State]` is a method for linear problems: type variables have no defaults
            before Python 3.13.
            """
            if cls is Method and not isinstance(arguments, tuple):
                arguments = (arguments, Rows)
            return super().__class_getitem__(arguments)

    def adapted(self, problem: Q) -> tuple[Method[S, Q], Q]:
        """This method as it suits that problem, and the problem as it suits a method that is a
        baseline.
        """
        return self, problem

    @classmethod
    def score(
        cls, problem: Any, network: Network, sizes: Sizes | None = None
    ) -> tuple[float, str] | None:
        """How well this method fits, for `method="auto"`, and why ("chosen because ..."); None:
        only by name.
        """
        if sizes is None:
            outlook = None
        else:
            outlook = cls.outlook(problem, sizes)
        if sizes is None or outlook is None:
            return None
        return worth(problem, network, sizes, outlook)

    @classmethod
    def outlook(cls, problem: Any, sizes: Sizes) -> Outlook | None:
        """What it is expected to take; None: as a first-order method, or it cannot solve that
        problem.
        """
        return None

    @classmethod
    def rescues(cls, problem: Q, sizes: Sizes) -> bool:
        """Whether a run of "auto" that stalls may go on with it, from the model that it came to."""
        return True

    def check(self, problem: Q, network: Network) -> None:
        """Raise InvalidProblem, naming an alternative, if this method cannot solve that problem."""

    @property
    def states(self) -> tuple[type, ...]:
        """The State's class, alone."""
        return (self.state,)

    @abstractmethod
    def start(self, agent: Agent[Q]) -> Protocol[S]:
        """The first State."""

    def warmed(self, agent: Agent[Q], state: S, point: Point) -> S:
        """The first State moved to a point that another run came to; a method that cannot starts
        where it starts.
        """
        return state

    def warm(self, agent: Agent[Q], state: S, point: Point) -> Protocol[S]:
        """`warmed`, for a method that must ask the others for something on the way."""
        yield from ()
        return self.warmed(agent, state, point)

    @abstractmethod
    def round(self, agent: Agent[Q], state: S, t: int) -> Protocol[S]:
        """The State after round t = 1, 2, ..."""

    @abstractmethod
    def point(self, agent: Agent[Q], state: S) -> Point:
        """The model and the dual that the State stands for."""

    def expected_gap(self, agent: Agent[Q], state: S) -> float | None:
        """The gap that a certificate would show, as far as all agents know it without a word; None:
        they do not.

        While it is too large, a run spends no messages on certificates.
        """
        return None

    def together(self, agent: Agent[Q]) -> tuple[str, ...] | None:
        """If agents that are alike may take rounds as one, which fields of a State they do not
        share; see `crowd`.

        A round then says sums only, and is written for the last axes of arrays: an agent in front
        is an axis more.
        """
        return None

    def tunes_after(self, t: int) -> bool:
        """Whether to `tune` after round t: finitely often, so that proofs for fixed steps apply to
        the rest.
        """
        return False

    def tune(self, agent: Agent[Q], state: S, t: int) -> Protocol[S]:
        """The same State with better parameters."""
        raise NotImplementedError

    def publish(self, agent: Agent[Q], state: S) -> FloatArray | Publication | None:
        """What others may `Ask` for until the next round ends; nothing, unless a method says
        otherwise.
        """
        return None

    def receive(self, agent: Agent[Q], state: S, sender: int, note: tuple[float, ...]) -> S:
        """The State after a note of another agent's `Publication` arrived."""
        return state

    @property
    def can_be_accelerated(self) -> bool:
        """Whether `coordinates` says something."""
        return type(self).coordinates is not Method.coordinates

    def coordinates(self, agent: Agent[Q], state: S) -> tuple[Coordinate, ...]:
        """The arrays of the State on which the map acts: shared first, uncounted last; none: no
        acceleration.
        """
        return ()

    def accelerated(self, problem: Q) -> Steps[Any]:
        """This method in the acceleration that suits it on that problem; as it is, if none does."""
        return self

    def settings(self) -> dict[str, Any]:
        """Name and parameters as plain values."""
        plain = {
            name: x.item() if isinstance(x, np.generic) else x for name, x in asdict(self).items()
        }
        return {"name": self.name, **plain}
