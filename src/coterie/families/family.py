"""What every kind of problem has of its own: how its data is prepared, what its points and its model are, its words."""

from __future__ import annotations

import reprlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from coterie.agent import Agent
from coterie.arrays import FloatArray, host, is_tensor
from coterie.certificate import Participant, Point
from coterie.data import Table, encode_labels, validated_all
from coterie.data.check import SHARES, are_shares
from coterie.data.table import party_error
from coterie.errors import InvalidData, InvalidInput
from coterie.networks import Network
from coterie.problem import Problem
from coterie.rounds import Outcome

Classes = npt.NDArray[Any] | None
Ask = Callable[[Sequence[Callable[[], Any]]], list[Any]]
"""One question per agent, answered where the agent's data is; see `Engine.ask`."""
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


class Family(ABC):
    """One kind of problem. Its proof is the module of the same name in `certificate`, its model class in `models`."""

    name: ClassVar[str]
    called: ClassVar[str]
    """What its models are called in a report."""
    labels_alone: ClassVar[bool] = True
    """Whether labels can be encoded before the rows are split over agents: then one piece is checked as one."""
    beside: ClassVar[tuple[str, ...]] = ("weights",)
    """What may stand beside the labels: fields of a `Table`."""

    pieces: ClassVar[int] = 8
    """The number of agents that data in one piece is split over, where none is given."""

    # -- data --------------------------------------------------------------------------------------------------------

    @abstractmethod
    def classification(self, problem: Problem) -> bool | None:
        """Whether labels are classes; None where they may be several numbers per row."""

    def check_beside(self, table: Table) -> None:
        """Refuse what stands beside the labels and would be ignored."""
        for field in table.beside:
            if field not in self.beside:
                raise party_error(table.name, f"the data has {field}, but a {self.called} takes none. Leave it out.")

    def agents(self, problem: Problem, data: Any, agents: Any) -> Any:
        """The agents that `solve` was asked for, once it is clear that their number does not change the model."""
        return agents

    def note(self, problem: Problem, parties: int) -> str:
        """What the parties mean for the model, if they mean anything: a sentence for every result."""
        return ""

    def check_network(self, network: Any) -> None:  # noqa: B027
        """Refuse a network that was asked for and that models of this kind have no use for."""

    def check_split(self, problem: Problem, split: str) -> None:  # noqa: B027
        """Refuse a split that models of this kind cannot be learned from."""

    def prepare(self, tables: Sequence[Table], problem: Problem, split: str) -> tuple[list[Table], Classes]:
        """The tables checked, with labels −1 and +1 for a classification, in one precision; and the two classes."""
        classes_wanted = bool(self.classification(problem))
        checked = validated_all(tables, split=split, classification=classes_wanted)
        for table in checked:
            self.check_labels(table, problem)
        valid, classes = encode_labels(checked, classes_wanted)
        return in_one_precision(valid if split == "features" else [by_rows(table) for table in valid]), classes

    def check_labels(self, table: Table, problem: Problem) -> None:  # noqa: B027
        """Refuse labels that the problem has no use for; the party has been checked alone."""

    def classes(self, problem: Problem, labels: Collection[str | float]) -> Classes:
        """The classes of all parties together, sorted; None where labels are numbers."""
        if not self.classification(problem):
            return None
        if len({isinstance(label, str) for label in labels}) > 1:
            raise InvalidData("the labels are text at one party and numbers at another. Convert them to one type.")
        return self._classes(problem, np.unique(np.array(list(labels))))

    def _classes(self, problem: Problem, found: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if len(found) != 2:
            shown = ", ".join(map(repr, found[:10].tolist()))
            fix = f" {SHARES}" if are_shares(found) else ""
            raise InvalidData(f"the labels have {len(found)} classes ({shown}); a classification loss needs two.{fix}")
        return found

    def encode(self, table: Table, problem: Problem, classes: Classes) -> Table:
        """One party's labels as numbers, once the classes of all parties are known."""
        if classes is None or table.y is None:
            return table
        return replace(table, y=np.where(table.y == classes[1], 1.0, -1.0))

    def made_up(self, problem: Problem, scores: FloatArray) -> FloatArray:
        """Labels that go with these scores, to try a problem out."""
        return np.where(scores > 0, 1.0, -1.0) if self.classification(problem) else scores

    # -- the problem -------------------------------------------------------------------------------------------------

    def check_columns(self, problem: Problem, columns: int) -> None:  # noqa: B027
        """Refuse a problem that is made for another number of columns."""

    only_sums: ClassVar[bool] = False
    """Split by users, whether these say nothing but sums, which can be secure."""
    graph_is_data: ClassVar[bool] = False
    """Whether the network says who is alike, not who can reach whom: that is everybody, as if through a server."""

    def wants_ranges(self, problem: Problem) -> bool:
        """Whether `for_tables` needs the least and the largest value of every column."""
        return False

    def for_tables(self, problem: Problem, tables: Sequence[Table]) -> Problem:
        """The problem, once the data is known; tables of the ranges of columns will do."""
        return problem

    def for_graph(self, problem: Problem, graph: Network) -> Problem:
        """The problem, once the network is known."""
        return problem

    @abstractmethod
    def words(self, problem: Problem) -> str:
        """What is fitted, in a few words."""

    @abstractmethod
    def described(self, settings: dict[str, Any]) -> str:
        """What a proof is about, from the `settings()` of a problem."""

    def has_intercept(self, settings: dict[str, Any]) -> bool:
        """Whether the model has an intercept, from the `settings()` of a problem."""
        return bool(settings["intercept"])

    def fitted(self, problem: Problem, data: str) -> str:
        """What was fitted to that data, in a sentence."""
        return f"One {self.called} ({self.words(problem)}) was fitted to {data}."

    @abstractmethod
    def call(self, problem: Problem) -> tuple[str, dict[str, Any]]:
        """The class of a problem in `co`, and the arguments that make it again."""

    @abstractmethod
    def parts(self, settings: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        """What defines a problem, from its `settings()`: headings, each with a name and its parameters."""

    # -- points and models -------------------------------------------------------------------------------------------

    def points(
        self,
        model: Any,
        members: Sequence[Agent],
        witness: Sequence[FloatArray] | None = None,
        ask: Ask = ask_here,
    ) -> list[Point]:
        """What each of these agents would put on the table for that model and those dual vectors.

        `ask` answers one question per agent, where the agent's data is.
        """
        if model.problem.family != self.name:
            raise InvalidInput(f"that model is a {model.problem.family} one, but the problem asks for {self.name}.")
        known, asked = self.shapes(model, members)
        if known != asked:
            raise InvalidInput(
                f"that model has {' x '.join(map(str, known))} coefficients, but this data and problem ask for "
                f"{' x '.join(map(str, asked))}; use a model of the same columns."
            )
        return self._points(model, members, witness, ask)

    @abstractmethod
    def shapes(self, model: Any, members: Sequence[Agent]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """How many coefficients the model has, and how many these agents' data asks for."""

    @abstractmethod
    def _points(
        self, model: Any, members: Sequence[Agent], witness: Sequence[FloatArray] | None, ask: Ask
    ) -> list[Point]:
        """The points of a model that has the right shape."""

    @abstractmethod
    def model(self, outcome: Outcome, members: Sequence[Agent], problem: Problem, classes: Classes) -> Any:
        """What these agents, all or some, know of the model."""

    def network(self, model: Any, graph: Network) -> Network:
        """The network that a result shows."""
        return graph

    @abstractmethod
    def shown(self, model: Any, people: Sequence[Participant]) -> Shown:
        """What a report draws of a model."""

    @abstractmethod
    def facts(self, model: Any, network: Network) -> dict[str, str]:
        """What a report says of a model."""

    # -- proofs ------------------------------------------------------------------------------------------------------

    def proof_network(self, model: Any, network: Network) -> Network:
        """Who is whose neighbour in a proof, where the messages travel on that network."""
        return network

    def problem_of(self, model: Any, settings: dict[str, Any]) -> Problem:
        """The problem that a certificate's settings describe."""
        return Problem.from_settings(settings)

    def unproven(self, model: Any, members: Sequence[Agent]) -> Iterator[str]:
        """What is wrong with those parts of a model that no proof looks at, because the problem has no use for them."""
        yield from ()

    def proven_network(self, model: Any, settings: Mapping[str, Any], agents: int) -> Network:
        """Where the network says who is alike: the one that a proof used."""
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


def in_one_precision(tables: list[Table]) -> list[Table]:
    """X in float32 where all parties have it, in float64 as soon as one has that: messages of both cannot be added."""
    if any(is_tensor(table.X) for table in tables):
        return tables
    finest = np.result_type(*(table.X.dtype for table in tables))
    return [table if table.X.dtype == finest else replace(table, X=table.X.astype(finest)) for table in tables]


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
