"""Sums that bring the scores of all columns to the label agent, and the gradients back.

| class        | the scores X p                         | the gradients Xᵀ(s∘v)              |
|--------------|----------------------------------------|------------------------------------|
| `RowSums`    | a `Sum` of the X_j p_j of all agents,  | s∘v to all agents: n numbers. Each |
|              | to the label agent: n numbers          | agent multiplies by its own X_jᵀ   |
| `ColumnSums` | a `Sum` of all R_jᵀp_j: a number per   | a `Sum` of R_jᵀX_jᵀ(s∘v): a number |
|              | column                                 | per column                         |

`ColumnSums` is for a label agent that has the X_jR_j of all agents. Only agent j knows its rotation
R_j.
"""

from __future__ import annotations

import numpy as np

from coterie.numerics.arrays import FloatArray
from coterie.run.agent import Agent
from coterie.run.collectives import Protocol, Sum


class RowSums:
    """One number per row in each direction."""

    def scores(
        self, agent: Agent, p: FloatArray, more: tuple[float, ...] = ()
    ) -> Protocol[tuple[FloatArray, FloatArray]]:
        """Return X p and the sums of some more numbers, at the label agent only."""
        rows = agent.design.shape[0]
        own = agent.design.forward(p)
        received = yield Sum(_message(agent, own, more), to=agent.known.labels_at)
        if received is None:
            return np.empty(0), np.empty(0)
        received = received.astype(float)
        return received[:rows], received[rows:]

    def gradients(
        self, agent: Agent, v: FloatArray, more: tuple[float, ...]
    ) -> Protocol[tuple[FloatArray, FloatArray]]:
        """Return Xᵀ(s∘v) of this agent's columns, and some more numbers of the label agent."""
        rows = agent.design.shape[0]
        if agent.data.y is not None:
            message = _message(agent, agent.weighted(v), more)
        else:
            message = np.zeros(rows + len(more), agent.design.dtype)
        received = yield Sum(message, of=agent.known.labels_at)
        received = received.astype(float)
        own = agent.design.adjoint(received[:rows])
        return own, received[rows:]


class ColumnSums:
    """One number per column in each direction; the columns of the label agent do not travel."""

    def __init__(self, rotation: FloatArray, place: int, columns: FloatArray):
        self.rotation = rotation
        """R_j."""
        self.place = place
        """The place of the agent's columns among those of all agents without labels."""
        self.columns = columns
        """These columns, rotated, at the label agent."""

    @property
    def rotated(self) -> bool:
        """Whether the columns are rotated, so that rounding one changes all."""
        return not np.array_equal(self.rotation, np.eye(len(self.rotation)))

    @property
    def _own(self) -> slice:
        return slice(self.place, self.place + len(self.rotation))

    def scores(
        self, agent: Agent, p: FloatArray, more: tuple[float, ...] = ()
    ) -> Protocol[tuple[FloatArray, FloatArray]]:
        """Return X p and the sums of some more numbers, at the label agent only."""
        width = self.columns.shape[1]
        has_labels = agent.data.y is not None
        own = np.zeros(width)
        if not has_labels:
            own[self._own] = self.rotation.T @ p
        received = yield Sum(np.append(own, more), to=agent.known.labels_at)
        if received is None:
            return np.empty(0), np.empty(0)
        received = received.astype(float)
        scores: FloatArray = agent.design.forward(p) + self.columns @ received[:width]
        return scores, received[width:]

    def gradients(
        self, agent: Agent, v: FloatArray, more: tuple[float, ...]
    ) -> Protocol[tuple[FloatArray, FloatArray]]:
        """Return Xᵀ(s∘v) of this agent's columns, and some more numbers of the label agent."""
        width = self.columns.shape[1]
        if agent.data.y is None:
            received = yield Sum(np.zeros(width + len(more)), of=agent.known.labels_at)
            return self.rotation @ received[self._own], received[width:]
        weighted = agent.weighted(v)
        of_others = self.columns.T @ weighted
        received = yield Sum(np.append(of_others, more), of=agent.known.labels_at)
        return agent.design.adjoint(weighted), received[width:]


def _message(agent: Agent, numbers: FloatArray, more: tuple[float, ...] | FloatArray) -> FloatArray:
    """Append some more numbers, in the precision of the data."""
    message: FloatArray = np.append(numbers, more).astype(agent.design.dtype, copy=False)
    return message
