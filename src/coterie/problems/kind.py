"""What every kind of problem has of its own: how its data is prepared, what its points and its model are, its words."""

from __future__ import annotations

import reprlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from coterie.data import Table
from coterie.data.check import ClassCounts, encoded_as_signs
from coterie.data.labels import Labels
from coterie.data.table import party_error
from coterie.errors import InvalidInput
from coterie.numerics.arrays import CentredDesign, Design, FloatArray, host, is_sparse, is_tensor
from coterie.numerics.losses import Fit
from coterie.problems.problem import AnyProblem, Problem
from coterie.run.agent import Agent, Facts
from coterie.run.certificate import ANY, Bound, Participant, Point
from coterie.run.collectives import Talk

if TYPE_CHECKING:
    from coterie.api.result import Result
    from coterie.methods import Method
    from coterie.networks import Network
    from coterie.problems.models.model import Model
    from coterie.problems.stats import Stats
    from coterie.run.rounds import Outcome

Classes = npt.NDArray[Any] | None
Ask = Callable[[Sequence[Callable[[], Any]]], list[Any]]
"""One question per agent, answered where the agent's data is; see `Engine.ask`."""
Protocols = tuple[Callable[..., Any], ...]
K = TypeVar("K", bound=AnyProblem)
M = TypeVar("M", bound="Model[Any]")
SHOWN = 20
"""So many numbers of a model are drawn."""


def ask_here(questions: Sequence[Callable[[], Any]]) -> list[Any]:
    """The answers where all data is in this process."""
    return [question() for question in questions]


@dataclass(frozen=True)
class Shown:
    """The numbers of a model that are worth a picture, and what it is called."""

    picture: str
    explanation: str
    headings: tuple[str, str]
    bars: Sequence[tuple[str, float]]
    """The most important first."""
    shares: bool = False
    """Whether they are shares of 1."""


class Kind(ABC, Generic[K, M]):
    """One kind of problem: what its labels are, what agents see, how it is proved, what its model is and tells."""

    name: ClassVar[str]
    losses: ClassVar[Mapping[str, type[Fit]]] = {}
    """What may stand for the loss of a `Problem` of this kind, by name."""
    loss_class: ClassVar[type[Fit] | None] = None
    """The class of these: of an object one does not know the name."""
    for_matrices: ClassVar[bool] = False
    """Whether the penalty is one of matrices."""
    model_class: ClassVar[type[Model[Any]]]
    methods: ClassVar[tuple[type[Method[Any, Any]], ...]] = ()
    """Methods that only this kind has; they become known with it."""
    exact_methods: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """By split, the names of methods that go on where an automatic run stalls: the first that fits."""
    labels: ClassVar[Labels] = Labels()
    cohorts: ClassVar[tuple[str, ...]] = ()
    """Splits in which small agents may look at their rows together: losses of single scores, row by row."""

    def on_device(self, split: str, tensors: bool) -> bool:
        """Whether rows that are tensors may stay where they are; `tensors`: if the caller's method takes them."""
        return False

    prepares: ClassVar[bool] = False
    """Whether the model can hold a preparation of columns."""
    called: ClassVar[str]
    """What its models are called in a report."""
    labels_alone: ClassVar[bool] = True
    """Whether labels can be encoded before the rows are split over agents: then one piece is checked as one."""
    usual_intercept: ClassVar[bool] = False
    """Whether problems have an intercept unless they say otherwise; every other place asks here, by `None`."""
    beside: ClassVar[tuple[str, ...]] = ("weights",)
    """What may stand beside the labels: fields of a `Table`."""

    pieces: ClassVar[int] = 8
    """The number of agents that data in one piece is split over, where none is given."""

    # -- data --------------------------------------------------------------------------------------------------------

    @abstractmethod
    def classification(self, problem: K) -> bool | None:
        """Whether labels are classes; None where they may be several numbers per row."""

    def check_beside(self, table: Table) -> None:
        """Refuse what stands beside the labels and would be ignored."""
        for field in table.beside:
            if field not in self.beside:
                raise party_error(table.name, f"the data has {field}, but a {self.called} takes none. Leave it out.")

    def agents(self, problem: K, data: Any, agents: Any) -> Any:
        """The agents that `solve` was asked for, once it is clear that their number does not change the model."""
        return agents

    def note(self, problem: K, parties: int) -> str:
        """What the parties mean for the model, if they mean anything: a sentence for every result."""
        return ""

    def check_network(self, network: Any) -> None:
        """Refuse a network that was asked for and that models of this kind have no use for."""

    def check_split(self, problem: K, split: str) -> None:
        """Refuse a split that models of this kind cannot be learned from."""

    def check_labels(self, table: Table, problem: K) -> None:
        """Refuse labels that the problem has no use for; the party has been checked alone."""

    def classes(self, problem: K, found: ClassCounts) -> npt.NDArray[Any]:
        """The classes of all parties together, sorted, where labels are classes."""
        return found.two()

    def encode(self, table: Table, problem: K, classes: Classes) -> Table:
        """One party's labels as numbers, once the classes of all parties are known."""
        return table if classes is None else encoded_as_signs(table, classes)

    def made_up(self, problem: K, scores: FloatArray) -> FloatArray:
        """Labels that go with these scores, to try a problem out."""
        return np.where(scores > 0, 1.0, -1.0) if self.classification(problem) else scores

    def codes(self, classes: npt.NDArray[Any]) -> FloatArray:
        """What stands for these classes in encoded labels."""
        return np.array([-1.0, 1.0])

    # -- the problem -------------------------------------------------------------------------------------------------

    def takes(self, given: str | Fit) -> bool:
        """Whether that may stand for the loss."""
        if isinstance(given, Fit):
            return self.loss_class is not None and isinstance(given, self.loss_class)
        return isinstance(given, str) and given in self.losses

    def check_problem(self, problem: K) -> None:
        """Refuse what no problem of this kind can have, such as an intercept."""

    def outputs(self, problem: K) -> int:
        """How many scores a row has."""
        return 1

    def with_classes(self, problem: K, classes: Classes) -> K:
        """The problem, once the classes of all parties are known."""
        return problem

    def flattened(self, problem: K, columns: int) -> K:
        """The problem for all coefficients in one vector, those of a column side by side."""
        return problem

    def check_columns(self, problem: K, columns: int) -> None:
        """Refuse a problem that is made for another number of columns."""

    only_sums: ClassVar[bool] = False
    """Split by users, whether these say nothing but sums, which can be secure."""
    graph_is_data: ClassVar[bool] = False
    """Whether the network says who is alike, not who can reach whom: that is everybody, as if through a server."""

    def wants_ranges(self, problem: K) -> bool:
        """Whether `for_tables` needs the least and the largest value of every column."""
        return False

    def for_tables(self, problem: K, tables: Sequence[Table]) -> K:
        """The problem, once the data is known; tables of the ranges of columns will do."""
        return problem

    def for_graph(self, problem: K, graph: Network) -> K:
        """The problem, once the network is known."""
        return problem

    @abstractmethod
    def words(self, problem: K) -> str:
        """What is fitted, in a few words."""

    @abstractmethod
    def described(self, settings: dict[str, Any]) -> str:
        """What a proof is about, from the `settings()` of a problem."""

    def has_intercept(self, settings: dict[str, Any]) -> bool:
        """Whether the model has an intercept, from the `settings()` of a problem."""
        return bool(settings["intercept"])

    def fitted(self, problem: K, data: str) -> str:
        """What was fitted to that data, in a sentence."""
        return f"One {self.called} ({self.words(problem)}) was fitted to {data}."

    @abstractmethod
    def call(self, problem: K) -> tuple[str, dict[str, Any]]:
        """The class of a problem in `co`, and the arguments that make it again."""

    @abstractmethod
    def parts(self, settings: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        """What defines a problem, from its `settings()`: headings, each with a name and its parameters."""

    # -- what an agent sees ------------------------------------------------------------------------------------------

    def moves_labels(self, problem: K) -> bool:
        """Whether an offset, and the best constant, are taken off the labels."""
        return False

    def design(self, agent: Agent[K]) -> Design:
        """Its rows as a linear map."""
        X, intercept = agent.data.X, agent.problem.intercept
        if agent.split != "features" or not intercept:
            return Design(X, intercept)
        if is_sparse(X) or not X.size:
            return Design(X, agent.has_intercept)
        return CentredDesign(X, agent.has_intercept, X.mean(axis=0, dtype=float))

    def centred(self, agent: Agent[K]) -> Design:
        """The same about the means of all, once introduced."""
        known = agent.known
        assert known.centre is not None
        return CentredDesign(agent.data.X, True, known.centre, known.unit)

    def view(self, agent: Agent[K], w: FloatArray, design: Design) -> Any:
        """The loss at a model: scores, losses, slopes and what methods of this kind ask for."""
        raise NotImplementedError(f"{self.name} has no view of a vector")

    # -- proofs ------------------------------------------------------------------------------------------------------

    @property
    def introduces(self) -> Protocols:
        """The protocols of `introduce` that send something: each carries `@discloses`."""
        return ()

    @property
    def proves(self) -> Protocols:
        """Those of `certify`."""
        return ()

    @property
    def finds_strengths(self) -> Protocols:
        """Those of `slope_at_constant`."""
        return ()

    @abstractmethod
    def introduce(self, agent: Agent[K]) -> Talk[Facts]:
        """The first conversation: how much data there is, and on which scale."""

    @abstractmethod
    def certify(self, agent: Agent[K], point: Point, target: float = 0.0, radius: float | None = ANY) -> Talk[Bound]:
        """P at that point, and how far it can be above the least."""

    @abstractmethod
    def dual_at(self, agent: Agent[K], w: FloatArray) -> FloatArray | None:
        """The dual that a model has where no other is given."""

    def has_own_number(self, agent: Agent[K]) -> bool:
        """Whether the model needs a number of each agent's data beside the points: its `own_number`."""
        return False

    def own_number(self, agent: Agent[K], w: FloatArray) -> float:
        """What a model needs of an agent's data beside w, computed where the data is."""
        raise NotImplementedError(f"{self.name} has no such number")

    # -- after the fit -----------------------------------------------------------------------------------------------

    @property
    def stats(self) -> Stats[K]:
        """How good scores are, and standard errors. It is loaded when it is asked for."""
        from coterie.problems.stats import Stats

        return Stats()

    def losses_at(self, agent: Agent[K], w: FloatArray) -> float:
        """Σ s ℓ of its own rows at that model."""
        losses: float = agent.at(w).losses
        return losses

    def slope_at_constant(self, agent: Agent[K]) -> Talk[FloatArray]:
        """The gradient of the mean loss at coefficients of 0 and the best intercept, or its size: for strengths."""
        raise NotImplementedError(f"{self.name} has no strength")

    def sections(self, tables: Callable[[], Sequence[Table]]) -> list[Callable[[Result], str]]:
        """Sections of a report of its own, where the tables of all agents are here: `tables` makes them."""
        return []

    # -- points and models -------------------------------------------------------------------------------------------

    def points(
        self,
        model: M,
        members: Sequence[Agent[K]],
        witness: Sequence[FloatArray] | None = None,
        ask: Ask = ask_here,
    ) -> list[Point]:
        """What each of these agents would put on the table for that model and those dual vectors.

        `ask` answers one question per agent, where the agent's data is.
        """
        if model.problem.kind.name != self.name:
            raise InvalidInput(f"that model is a {model.problem.kind.name} one, but the problem asks for {self.name}.")
        known, asked = self.shapes(model, members)
        if known != asked:
            raise InvalidInput(
                f"that model has {' x '.join(map(str, known))} coefficients, but this data and problem ask for "
                f"{' x '.join(map(str, asked))}; use a model of the same columns."
            )
        return self._points(model, members, witness, ask)

    @abstractmethod
    def shapes(self, model: M, members: Sequence[Agent[K]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """How many coefficients the model has, and how many these agents' data asks for."""

    @abstractmethod
    def _points(
        self, model: M, members: Sequence[Agent[K]], witness: Sequence[FloatArray] | None, ask: Ask
    ) -> list[Point]:
        """The points of a model that has the right shape."""

    @abstractmethod
    def model(self, outcome: Outcome, members: Sequence[Agent[K]], problem: K, classes: Classes) -> M:
        """What these agents, all or some, know of the model."""

    def network(self, model: M, graph: Network) -> Network:
        """The network that a result shows."""
        return graph

    @abstractmethod
    def shown(self, model: M, people: Sequence[Participant]) -> Shown:
        """What a report draws of a model."""

    @abstractmethod
    def facts(self, model: M, network: Network) -> dict[str, str]:
        """What a report says of a model."""

    def proof_network(self, model: M, network: Network) -> Network:
        """Who is whose neighbour in a proof, where the messages travel on that network."""
        return network

    def problem_of(self, model: M, settings: dict[str, Any]) -> K:
        """The problem that a certificate's settings describe."""
        found: Any = Problem.from_settings(settings)
        return found  # type: ignore[no-any-return]

    def unproven(self, model: M, members: Sequence[Agent[K]]) -> Iterator[str]:
        """What is wrong with those parts of a model that no proof looks at, because the problem has no use for them."""
        yield from ()

    def proven_network(self, model: M, settings: Mapping[str, Any], agents: int) -> Network:
        """Where the network says who is alike: the one that a proof used."""
        from coterie.networks import Network

        return Network(sp.csr_array((agents, agents)))


DEVICES = ("cpu", "cuda")
"""Kinds of devices that compute in float64; torch calls AMD's GPUs cuda, too."""


def on_the_host(tables: Sequence[Table]) -> list[Table]:
    """The tables without tensors: only some low-rank tasks compute with those where they are."""
    return [replace(table, X=host(table.X)) if is_tensor(table.X) else table for table in tables]


def can_stay(tables: Sequence[Table]) -> bool:
    """Whether all rows are tensors of one precision, on devices that have float64: agents then compute where they are.

    Which devices does not matter: what agents tell each other comes to the host, and is added there in their order.
    """
    kinds = {str(table.X.dtype) for table in tables}
    return len(kinds) == 1 and all(is_tensor(table.X) and table.X.device.type in DEVICES for table in tables)


def by_rows(table: Table) -> Table:
    """Dense rows one after the other in memory, as methods for samples read them; data frames come by columns."""
    dense = isinstance(table.X, np.ndarray)
    return replace(table, X=np.ascontiguousarray(table.X)) if dense and not table.X.flags.c_contiguous else table


def said_of_intercept(there: bool) -> str:
    """The words by which every output says whether there is an intercept."""
    return "with an intercept" if there else "without an intercept"


def said_of_penalty(spelt_out: str) -> str:
    """The words for a penalty of that name and parameters, or for none."""
    return "no penalty" if spelt_out == "none" else f"{spelt_out} penalty"


def spelt(settings: dict[str, Any]) -> str:
    """A name and its parameters; long lists are cut."""
    parameters = [f"{name} {reprlib.repr(value)}" for name, value in settings.items() if name != "name"]
    name = settings.get("name", "")
    return f"{name} ({', '.join(parameters)})" if name and parameters else name or ", ".join(parameters)
