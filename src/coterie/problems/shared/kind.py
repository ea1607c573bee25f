"""A common linear model and deviations of every user from it."""

from __future__ import annotations

from typing import Any, ClassVar

from coterie.errors import InvalidProblem
from coterie.problems.kind import Kind
from coterie.problems.one_score import OneScoreData, OneScoreLocal
from coterie.problems.rows import RowProblems
from coterie.problems.shared.assembly import SharedModels
from coterie.problems.shared.methods import SharedNewton, SharedQuasiNewton
from coterie.problems.shared.model import SharedModel
from coterie.problems.shared.problem import Shared
from coterie.problems.shared.proof import SharedProof
from coterie.problems.shared.report import SharedReport


class SharedData(OneScoreData[Shared]):
    """The rows of one user are one table."""

    def check_split(self, problem: Shared, split: str) -> None:
        if split != "users":
            raise InvalidProblem(
                f"a common model with deviations has users, but the data is split by {split}. Use "
                "split='users' with "
                "(X, y, users), or a list with one entry per user; or co.Problem for one model."
            )


class SharedProblems(RowProblems[Shared]):
    """Usually with an intercept, and without a network."""

    usual_intercept = True
    graph_is_data = True
    only_sums = True

    def check_network(self, network: Any) -> None:
        if network is not None:
            raise InvalidProblem(
                "a common model with deviations has no graph of similar users, so "
                f"network={network!r} does not apply. "
                "Leave network out."
            )


class SharedLocal(OneScoreLocal[Shared]):
    """Small users are computed in one batch."""

    batches: ClassVar[tuple[str, ...]] = ("users",)


class SharedKind(Kind[Shared, SharedModel]):
    """A linear model on the columns of all and on those of each user."""

    name = "shared"
    called = "common model with deviations"
    methods = (SharedQuasiNewton, SharedNewton)
    model_class = SharedModel
    data = SharedData()
    problems = SharedProblems()
    local = SharedLocal()
    proof = SharedProof()
    models = SharedModels()
    report = SharedReport()
