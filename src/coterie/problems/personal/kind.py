"""Personal models: a classifier for every user, and the graph of similar users."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from coterie.data.remote_table import AnyTable
from coterie.errors import InvalidProblem
from coterie.networks import Network
from coterie.problems.kind import Kind
from coterie.problems.parts.data import Data
from coterie.problems.parts.problems import Problems
from coterie.problems.personal.assembly import PersonalModels
from coterie.problems.personal.methods import Dada, DadaLinear, Global, Local, PersoLinear
from coterie.problems.personal.model import PersonalModel
from coterie.problems.personal.problem import LEARNED, Personal
from coterie.problems.personal.proof import PersonalProof
from coterie.problems.personal.report import PersonalReport


class PersonalData(Data[Personal]):
    """The data of a personal problem: one table per user, with labels of two classes."""

    fields: ClassVar[tuple[str, ...]] = ("weights",)
    labels_alone = False

    def classification(self, problem: Personal) -> bool:
        return True

    def check_split(self, problem: Personal, split: str) -> None:
        if split != "users":
            raise InvalidProblem(
                "a personal problem has a model for every user, but the data is split by "
                f"{split}. Use split='users' "
                "with (X, y, users), or a list with one entry per user."
            )


class PersonalProblems(Problems[Personal]):
    """The network is the graph of similar users. Stumps need the value ranges of the columns."""

    graph_is_data = True

    def wants_ranges(self, problem: Personal) -> bool:
        return problem.predictors == "stumps"

    def for_tables(self, problem: Personal, tables: Sequence[AnyTable]) -> Personal:
        return problem.on(tables)

    def for_graph(self, problem: Personal, graph: Network) -> Personal:
        return problem.but(learned=graph.name == LEARNED)


class PersonalKind(Kind[Personal, PersonalModel]):
    """Models of users that minimise the users' own losses. Each model lies in a ball and is
    penalised for its distance from the models of similar users.
    """

    name = "personal"
    called = "model for each of them"
    methods = (Dada, DadaLinear, Global, Local, PersoLinear)
    model_class = PersonalModel
    data = PersonalData()
    problems = PersonalProblems()
    proof = PersonalProof()
    models = PersonalModels()
    report = PersonalReport()
