"""A common linear model and the deviations of every user from it, as a kind of problem."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

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
from coterie.run.agent import Agent

FEWEST = 8
"""Least number of rows of a user in a batch, including rows of weight 0."""


class SharedData(OneScoreData[Shared]):
    """The data of a shared problem: one table per user."""

    def check_split(self, problem: Shared, split: str) -> None:
        if split != "users":
            raise InvalidProblem(
                f"a common model with deviations has users, but the data is split by {split}. Use "
                "split='users' with "
                "(X, y, users), or a list with one entry per user; or co.Problem for one model."
            )


class SharedProblems(RowProblems[Shared]):
    """Shared problems: with an intercept by default, and without a network."""

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
    """Compute users with few rows in batches. All users of a batch have the same number of
    rows.
    """

    batches: ClassVar[tuple[str, ...]] = ("users",)
    most_in_batch: ClassVar[int] = 1 << 14

    def evened(self, agent: Agent[Shared]) -> Agent[Shared]:
        """The agent with its number of rows raised to the next power of two, at least `FEWEST`. The
        added rows are copies of the first row with weight 0.

        The agent also computes with these rows outside a batch, so that the bits of its results do
        not depend on other users.
        """
        table = agent.data
        X = table.X
        dense = type(X) is np.ndarray and X.dtype == np.float64
        if not dense or table.y is None or table.weights is not None or table.offset is not None:
            return agent
        n, d = X.shape
        size = max(FEWEST, 1 << (n - 1).bit_length())
        if size * d > self.most_in_batch:
            return agent
        places = np.arange(size)
        weights = (places < n).astype(float)
        if n:
            places[n:] = 0
            rows = X[places]
            labels = table.y[places].astype(float, copy=False)
        else:
            rows = np.zeros((size, d))
            labels = np.ones(size)
        even = replace(table, X=rows, y=labels, weights=weights, ids=None, rows=None)
        return replace(agent, data=even, rows=n, scratch={})


class SharedKind(Kind[Shared, SharedModel]):
    """A linear model with common coefficients and coefficients of each user."""

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
