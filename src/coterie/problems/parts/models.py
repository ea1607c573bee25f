"""`kind.models`: assembles a model from the points of agents, and takes it apart into them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import scipy.sparse as sp

from coterie.errors import InvalidInput
from coterie.numerics.arrays import FloatArray
from coterie.problems.parts.data import Classes
from coterie.problems.problem import K, Problem
from coterie.run.agent import Agent, AgentForm
from coterie.run.certificate.bound import Point

if TYPE_CHECKING:
    from coterie.networks import Network
    from coterie.problems.models.model import Model
    from coterie.run.rounds import Outcome

M = TypeVar("M", bound="Model[Any]")


class Models(ABC, Generic[K, M]):
    """Assembles a model from points and takes it apart. A verifier also uses it for the parts that
    points leave out.
    """

    prepares: ClassVar[bool] = False
    """Whether the model can hold a preparation of columns."""
    settles: ClassVar[bool] = False
    """Whether the points of a model depend on the agents' own numbers, if they have any: see
    `settled`.
    """

    @abstractmethod
    def assemble(
        self, outcome: Outcome, members: Sequence[AgentForm[K]], problem: K, classes: Classes
    ) -> M:
        """The model, or the part that these agents know, if some are missing."""

    # -- from a model to points --------------------------------------------------------------------

    def points(
        self,
        model: M,
        members: Sequence[AgentForm[K]],
        witness: Sequence[FloatArray] | None = None,
    ) -> list[Point]:
        """The point of each of these agents for that model and those dual variables; it reads no
        number of their data.

        `points_of` also settles them.
        """
        given = model.problem.kind.name
        wanted = members[0].problem.kind.name
        if given != wanted:
            raise InvalidInput(f"that model is a {given} one, but the problem asks for {wanted}.")
        known, asked = self.shapes(model, members)
        if known != asked:
            of_model = " x ".join(map(str, known))
            of_data = " x ".join(map(str, asked))
            raise InvalidInput(
                f"that model has {of_model} coefficients, but this data and problem ask for "
                f"{of_data}; use a model of the same columns."
            )
        return self._points(model, members, witness)

    @abstractmethod
    def shapes(
        self, model: M, members: Sequence[AgentForm[K]]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The numbers of coefficients of the model, and those that these agents' data needs."""

    @abstractmethod
    def _points(
        self, model: M, members: Sequence[AgentForm[K]], witness: Sequence[FloatArray] | None
    ) -> list[Point]:
        """The points of a model that has the right shape."""

    def settled(
        self, model: M, members: Sequence[AgentForm[K]], points: list[Point], own: Sequence[float]
    ) -> list[Point]:
        """The points of these agents, given every agent's own number."""
        return points

    # -- one number of each agent ------------------------------------------------------------------

    def has_own_number(self, agent: AgentForm[K]) -> bool:
        """Whether the model needs one number of each agent's data in addition to the points: its
        `own_number`.
        """
        return False

    def own_number(self, agent: Agent[K], w: FloatArray) -> float:
        """The agent's own number for the point w, computed where the data is."""
        raise NotImplementedError(f"{agent.problem.kind.name} has no such number")

    # -- networks and verification -----------------------------------------------------------------

    def network(self, model: M, graph: Network) -> Network:
        """The network that a result shows."""
        return graph

    def proof_network(self, model: M, network: Network) -> Network:
        """The neighbours in a proof whose messages travel on that network."""
        return network

    def proven_network(self, model: M, settings: Mapping[str, Any], agents: int) -> Network:
        """The network that a proof used, where edges join similar users."""
        from coterie.networks import Network

        return Network(sp.csr_array((agents, agents)))

    def problem_of(self, model: M, settings: dict[str, Any]) -> K:
        """The problem that a certificate's settings describe."""
        found: Any = Problem.from_settings(settings)
        problem: K = found
        return problem

    def unproven(
        self, model: M, members: Sequence[AgentForm[K]], own: Sequence[float]
    ) -> Iterator[str]:
        """Objections to parts of a model that the proof does not cover, because the problem does
        not use them; `own` has the number of each agent, where points do not depend on it.
        """
        yield from ()
