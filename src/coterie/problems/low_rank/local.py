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
    """Computes losses and gradients through the sufficient information of a task."""

    def losses(self, agent: Agent[Problem[Task]], w: FloatArray) -> float:
        task = agent.problem.loss
        free = None
        d, m = task.size(agent.data)
        if agent.problem.intercept:
            rows, columns = apart(w[: d + m, -1], d)
            free = Means(rows, columns)
            w = w[:, :-1]
        left, right = factors_of(w, (d, m))
        total = 0.0
        for block in task.blocks(agent.data):
            information = task.stats(block, "implicit", free)
            information.reset(left, right)
            total += information.loss()
        return total

    @discloses(
        "products of the gradient of a model of zeros with ten pairs of vectors, as part of a sum",
        "ten pairs of weighted sums of your rows",
        TOTALS,
        most=lambda case: (2 * PRODUCTS, PRODUCTS * sum(case.matrix)),
    )
    def gradient_at_constant(self, agent: Agent[Problem[Task]]) -> Protocol[FloatArray]:
        """The spectral norm of the gradient of the mean loss at W = 0."""
        information = information_of(agent, "auto")
        _, m = agent.problem.loss.size(agent.data)
        random = agent.common_random(0).standard_normal(m)
        v = random.astype(information.dtype)
        size = 0.0
        for _ in range(PRODUCTS):
            unit_v = v / (np.linalg.norm(v) or 1.0)
            u = yield Sum(information.times(unit_v))
            size = float(np.linalg.norm(u))
            unit_u = u / (size or 1.0)
            v = yield Sum(information.times_transposed(unit_u))
        return np.array([size / agent.total])

    finds_strengths: Protocols = (gradient_at_constant,)
