"""The oracle of Newton's method for linear models: the losses of an agent's rows.

    F_k(w) = Σ_i s_i ℓ(x_iᵀw; y_i),   ∇²F_k = Xᵀ diag(s ℓ'') X

Some losses are flat far from the minimum (`huber`, `squared_hinge`). Where most of an agent's rows
are flat, the agent raises their ℓ'' to a floor. The floor falls tenfold with every full step, so
the last steps are Newton's. The ℓ'' of these losses is piecewise constant. So after the first round
an agent multiplies out only the rows whose ℓ'' has changed, and sends the change of H. For other
losses and many dense rows, a part of the rows is enough for H while steps are long.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coterie.methods.second_order import careful
from coterie.methods.second_order.newton import State
from coterie.methods.second_order.oracle import NOTHING, Aim, Columns, Kept, ScoreOracle, Taken
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
    """The memory between two rounds, equal at all agents."""

    floor: float
    """ℓ'' is raised to this share of its largest value."""
    single: bool
    """Whether single precision is enough for H; it is not where H is kept."""
    every: int
    """H consists of every row with a multiple of this number."""
    triangle: FloatArray
    """The upper triangle of n H in the last round, if it is kept. The State's `own` then has the
    s ℓ'' in it.
    """


class RowsOracle(ScoreOracle):
    """Σ s ℓ of the agent's own rows."""

    def __init__(self, agent: Agent, state: State):
        super().__init__(agent, state.w)
        memory: Memory = state.memory
        self.memory = memory
        self._last = state.own
        self.remembers = by_pieces(agent.problem.loss)
        floor = memory.floor * self.local.curvature_scale
        self._raised = raised(agent.loss, self.local.curvature, floor)
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
        """Return a message: the triangle of the Hessian on these columns."""
        moment = second_moment(self.agent.centred, self.curvature, columns)
        return packed(moment)

    def diagonal(self) -> FloatArray:
        return diagonal(self.agent.centred, self.curvature)

    def product(self, direction: FloatArray) -> FloatArray:
        design = self.agent.centred
        return design.adjoint(self.curvature * design.forward(direction))

    def careful_curvature(self) -> FloatArray:
        """Return ℓ'' of all rows, for a run that stalled."""
        if not by_pieces(self.agent.problem.loss):
            return self._raised
        # A direction may have only rows without curvature: at first, their loss counts as a
        # parabola.
        local = self.local
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

    def kept_after(self, aim: Aim, taken: Taken) -> Kept:
        last = self.memory
        if taken.step_size == 1.0:
            floor = last.floor / 10
        else:
            floor = last.floor
        if taken.step_size <= 1 / 8:
            floor = min(1.0, 10 * max(floor, 1e-6))
        every = next_sample(self.agent, last.every, taken.before, taken.whole, aim.foreseen)
        memory = Memory(floor, aim.firm and last.single, every, aim.triangle)
        own = NOTHING
        if aim.triangle.size:
            own = self.curvature
        return Kept(memory, own, aim.v)


def first_floor(agent: Agent) -> float:
    """Return the floor under ℓ'' in the first round."""
    if agent.problem.loss.steep:
        return 1.0
    return TUNING.floor
