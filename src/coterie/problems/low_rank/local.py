"""The loss of an agent's own rows at a low-rank model, and the size of the gradient at zero."""

from __future__ import annotations

import numpy as np

from coterie.numerics.arrays import FloatArray
from coterie.numerics.factors import apart, factors_of
from coterie.problems.low_rank.tasks import Means, Task
from coterie.problems.parts.local import Local
from coterie.problems.problem import Problem
from coterie.run.agent import Agent
from coterie.run.certificate.intercepts import information_of
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import TOTALS, Protocols, discloses

PRODUCTS = 10
"""Power iterations that estimate the spectral norm of the gradient of a matrix."""


class LowRankLocal(Local[Problem[Task]]):
    """Computes through the statistics of a task, without a view."""

    def losses(self, agent: Agent[Problem[Task]], w: FloatArray) -> float:
        task = agent.problem.loss
        free = None
        d, m = task.size(agent.data)
        if agent.problem.intercept:
            free = Means(*apart(w[: d + m, -1], d))
            w = w[:, :-1]
        factors = factors_of(w, (d, m))
        lost = 0.0
        for block in task.blocks(agent.data):
            information = task.stats(block, "implicit", free)
            information.reset(*factors)
            lost += information.loss()
        return lost

    @discloses(
        "products of the gradient of a model of zeros with ten pairs of vectors, as part of a sum",
        "ten pairs of weighted sums of your rows",
        TOTALS,
        most=lambda case: (2 * PRODUCTS, PRODUCTS * sum(case.matrix)),
    )
    def gradient_at_constant(self, agent: Agent[Problem[Task]]) -> Protocol[FloatArray]:
        """The spectral norm of the gradient of the mean loss at W = 0."""
        information = information_of(agent, "auto")
        v = (
            agent.common_random(0)
            .standard_normal(agent.problem.loss.size(agent.data)[1])
            .astype(information.dtype)
        )
        size = 0.0
        for _ in range(PRODUCTS):
            u = yield Sum(information.times(v / (np.linalg.norm(v) or 1.0)))
            size = float(np.linalg.norm(u))
            v = yield Sum(information.times_transposed(u / (size or 1.0)))
        return np.array([size / agent.total])

    finds_strengths: Protocols = (gradient_at_constant,)
