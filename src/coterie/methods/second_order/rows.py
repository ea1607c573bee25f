"""The losses of an agent's rows, as Newton's method for linear models asks for them.

    F_k(w) = Σ_i s_i ℓ(x_iᵀw; y_i),   ∇²F_k = Xᵀ diag(s ℓ'') X

Losses may be flat far from the minimum (`huber`, `squared_hinge`): where most of an agent's rows
are there, their ℓ'' is raised to a floor, which falls tenfold with every full step, so that the
last steps are Newton's. Their ℓ'' is constant by pieces, so that after the first round an agent
only multiplies out the rows whose ℓ'' has changed, and sends by how much H has. Of other losses,
where dense rows are many, a part of them is enough for H while steps are long.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coterie.methods.line_search import Line
from coterie.methods.second_order import careful
from coterie.methods.second_order.newton import State
from coterie.methods.second_order.oracle import NOTHING, Aim, Columns, ScoreOracle
from coterie.methods.second_order.sampled_rows import by_pieces, next_sample, raised, thinned
from coterie.numerics.arrays import FloatArray
from coterie.numerics.tuning import Tuning, tuned
from coterie.run.agent import Agent
from coterie.stats.moments import diagonal, moment_message, packed, second_moment


@dataclass(frozen=True)
class _Tuning(Tuning):
    floor: float = tuned(
        1e-3,
        "The first floor under ℓ'', in units of its largest value.",
        "measured: Huber with one row × 300",
    )


TUNING = _Tuning()


@dataclass(frozen=True, slots=True)
class Memory:
    """What all agents remember between two rounds."""

    floor: float
    """ℓ'' is raised to this share of its largest value."""
    single: bool
    """Whether single precision is enough for H; it is not where H is kept."""
    every: int
    """One of so many of an agent's rows is in H."""
    triangle: FloatArray
    """The upper triangle of n H in the last round, if it is kept: the State's `own` are then the s
    ℓ'' in it.
    """


class RowsOracle(ScoreOracle):
    """Σ s ℓ of the agent's own rows."""

    def __init__(self, agent: Agent, state: State):
        super().__init__(agent, state.w)
        memory: Memory = state.memory
        self.memory = memory
        self._last = state.own
        self.remembers = by_pieces(agent.problem.loss)
        self._raised = raised(
            agent.loss, self.here.curvature, memory.floor * self.here.curvature_scale
        )
        self.curvature = agent.weighted(self._raised)
        """s ℓ'' of the rows in H."""
        if memory.every > 1:
            self.curvature = thinned(self.curvature, memory.every)

    def hessian(self, *more: FloatArray) -> FloatArray:
        change: FloatArray = self.curvature
        if self.memory.triangle.size:
            change = change - self._last
        return moment_message(self.agent.centred, change, self.memory.single, *more)

    def block(self, columns: Columns) -> FloatArray:
        return packed(second_moment(self.agent.centred, self.curvature, columns))

    def diagonal(self) -> FloatArray:
        return diagonal(self.agent.centred, self.curvature)

    def product(self, direction: FloatArray) -> FloatArray:
        design = self.agent.centred
        return design.adjoint(self.curvature * design.forward(direction))

    def careful_curvature(self) -> FloatArray:
        """ℓ'' of all rows, for a run that stalled."""
        if not by_pieces(self.agent.problem.loss):
            return self._raised
        # Rows without curvature may be all that a direction has: where they are, the loss is a
        # parabola at first.
        local = self.here
        share = min(1.0, self.memory.floor / TUNING.floor)
        secant = careful.secant(self.agent.loss, local.scores, local.gradients, local.y)
        curvature: FloatArray = np.maximum(local.curvature, share * secant)
        return curvature

    def triangle(self, received: FloatArray) -> FloatArray:
        if not self.remembers:
            return received
        if self.memory.triangle.size:
            return received + self.memory.triangle
        return received.copy()

    def memory_after(self, aim: Aim, line: Line, whole: float, step_size: float) -> Memory:
        last = self.memory
        if step_size == 1.0:
            floor = last.floor / 10
        else:
            floor = last.floor
        if step_size <= 1 / 8:
            floor = min(1.0, 10 * max(floor, 1e-6))
        every = next_sample(self.agent, last.every, line.objective, whole, aim.foreseen)
        return Memory(floor, aim.firm and last.single, every, aim.triangle)

    def own_after(self, aim: Aim, step_size: float) -> FloatArray:
        return self.curvature if aim.triangle.size else NOTHING


def first_floor(agent: Agent) -> float:
    """The floor under ℓ'' in the first round."""
    return 1.0 if agent.problem.loss.steep else TUNING.floor
