"""How the scores of all columns come to the agent with the labels, and the slopes back: over rows,
or over columns.

| courier  | the scores X p                                  | the slopes Xᵀ(s∘v)
           |
|----------|-------------------------------------------------|--------------------------------------------------|
| `Sums`   | a `Sum` of everybody's X_j p_j, n numbers       | one of s∘v, n numbers: each makes its
           own slopes |
| `Blocks` | one of everybody's R_jᵀp_j, a number per column | one of R_jᵀX_jᵀ(s∘v), a number per
column        |

`Blocks` is for an agent with the labels that holds everybody's X_jR_j, R_j a rotation that is known
to agent j alone.
"""

from __future__ import annotations

import numpy as np

from coterie.numerics.arrays import FloatArray
from coterie.run.agent import Agent
from coterie.run.collectives import Protocol, Sum


class Sums:
    """A number per row each way."""

    def scores(
        self, agent: Agent, p: FloatArray, more: tuple[float, ...] = ()
    ) -> Protocol[tuple[FloatArray, FloatArray]]:
        """X p, and the sums of some more numbers."""
        rows = agent.design.shape[0]
        received = (yield Sum(_message(agent, agent.design.forward(p), more))).astype(float)
        return received[:rows], received[rows:]

    def gradients(
        self, agent: Agent, v: FloatArray, more: tuple[float, ...]
    ) -> Protocol[tuple[FloatArray, FloatArray]]:
        """Xᵀ(s∘v) of this agent's columns, and some more numbers, as the agent with the labels
        tells them.
        """
        rows = agent.design.shape[0]
        if agent.data.y is not None:
            message = _message(agent, agent.weighted(v), more)
        else:
            message = _message(agent, np.zeros(rows), np.zeros(len(more)))
        received = (yield Sum(message)).astype(float)
        return agent.design.adjoint(received[:rows]), received[rows:]


class Blocks:
    """A number per column each way; the columns of the agent with the labels need not travel."""

    def __init__(self, rotation: FloatArray, place: int, columns: FloatArray):
        self.rotation = rotation
        self.place = place
        self.columns = columns
        """R_j; where its columns begin among those of all who have no labels; and at the labels
        these, rotated.
        """

    @property
    def rotated(self) -> bool:
        """Whether its columns were, so that rounding of one is rounding of all."""
        return not np.array_equal(self.rotation, np.eye(len(self.rotation)))

    @property
    def _mine(self) -> slice:
        return slice(self.place, self.place + len(self.rotation))

    def scores(
        self, agent: Agent, p: FloatArray, more: tuple[float, ...] = ()
    ) -> Protocol[tuple[FloatArray, FloatArray]]:
        """X p, at the labels only, and the sums of some more numbers."""
        width = self.columns.shape[1]
        local = agent.data.y is not None
        said = np.zeros(width)
        if not local:
            said[self._mine] = self.rotation.T @ p
        received = (yield Sum(np.append(said, more))).astype(float)
        if not local:
            return np.empty(0), received[width:]
        scores: FloatArray = agent.design.forward(p) + self.columns @ received[:width]
        return scores, received[width:]

    def gradients(
        self, agent: Agent, v: FloatArray, more: tuple[float, ...]
    ) -> Protocol[tuple[FloatArray, FloatArray]]:
        """Xᵀ(s∘v) of this agent's columns, and some more numbers, as the agent with the labels
        tells them.
        """
        width = self.columns.shape[1]
        local = agent.data.y is not None
        if local:
            weighted = agent.weighted(v)
        else:
            weighted = v
        if local:
            said = np.append(self.columns.T @ weighted, more)
        else:
            said = np.zeros(width + len(more))
        received = yield Sum(said)
        if local:
            own = agent.design.adjoint(weighted)
        else:
            own = self.rotation @ received[self._mine]
        return own, received[width:]


def _message(agent: Agent, numbers: FloatArray, more: tuple[float, ...] | FloatArray) -> FloatArray:
    """Numbers, and some more, in the precision of the data."""
    said: FloatArray = np.append(numbers, more).astype(agent.design.dtype, copy=False)
    return said
