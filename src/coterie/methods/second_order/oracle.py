"""Oracles: one agent's part of a loss at one model, as Newton's method needs it.

    f = (1/n) Σ_agents F_k

An `Oracle` gives F_k at w: value, gradient and Hessian, and the values along a line. An oracle
sends nothing. The method puts the parts that it needs into one `Sum`.

An oracle may have a memory between two rounds: `memory` is equal at all agents, `own` is about the
agent's own rows. The method reads neither of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from coterie.numerics.arrays import FloatArray
from coterie.run.agent import Agent
from coterie.stats.moments import packed

Columns = npt.NDArray[np.intp]
NOTHING: FloatArray = np.empty(0)
WHOLE = np.ones(1)
"""The step size of a whole step, as an array."""


class Aim(NamedTuple):
    """The target of a step, and facts about f at w that all agents know."""

    target: FloatArray
    gradient: FloatArray
    """∇f(w)."""
    losses: float
    """n f(w)."""
    steepness: float
    """‖∇P(w)‖, or ‖∇f(w)‖ where P has no gradient."""
    foreseen: float = 0.0
    """The decrease of P if P is equal to the quadratic model; 0 where it is not computed."""
    triangle: FloatArray = NOTHING
    """The upper triangle of n H, if the oracle remembers it."""
    firm: bool = False
    """Whether H in single precision would lead to about the same target."""
    v: FloatArray | None = None
    """Dual variables of the agent's own rows that are better than the gradient of the loss at the
    target.
    """


class Taken(NamedTuple):
    """A step that was taken, and facts about it that all agents know."""

    w: FloatArray
    """The model after it."""
    step_size: float
    left: float = 0.0
    """The least gap that it can have left; 0 if unknown."""
    before: float = 0.0
    """P before it; as the next number, for a search on values only."""
    whole: float = 0.0
    """P after a whole step."""
    sums: FloatArray = NOTHING
    """Sums over all agents at the new model, for a search on slopes only."""


class Kept(NamedTuple):
    """The numbers that an oracle keeps for the next round."""

    memory: Any = None
    """Equal at all agents."""
    own: FloatArray = NOTHING
    """About the agent's own rows."""
    v: FloatArray | None = None
    """Dual variables of the agent's own rows that are better than the gradient of the loss at the
    new model.
    """


class Oracle(ABC):
    """One agent's part of n f, at w. For a batch of agents, the first axis of arrays is agents."""

    remembers: bool = False
    """Whether `memory` needs the triangle of the Hessian."""
    least_curvature: ClassVar[float] = 0.0
    """Every column counts as having at least this share of the largest curvature: less is rounding.
    """

    def __init__(self, agent: Agent, w: FloatArray):
        self.agent = agent
        self.w = w

    @property
    @abstractmethod
    def losses(self) -> Any:
        """F_k(w)."""

    @property
    @abstractmethod
    def gradient(self) -> FloatArray:
        """∇F_k(w)."""

    @abstractmethod
    def hessian(self, *more: FloatArray) -> FloatArray:
        """Return a message: the upper triangle of ∇²F_k(w), or its change since the last round, and
        then more numbers.
        """

    @abstractmethod
    def values(self, target: FloatArray, step_sizes: FloatArray) -> FloatArray:
        """Return F_k after a step of each of these sizes towards the target."""

    # -- for many coefficients ---------------------------------------------------------------------

    def diagonal(self) -> FloatArray:
        """Return the diagonal of ∇²F_k(w), or numbers that are larger."""
        raise NotImplementedError

    def product(self, direction: FloatArray) -> FloatArray:
        """Return ∇²F_k(w) times a direction."""
        raise NotImplementedError

    # -- between two rounds ------------------------------------------------------------------------

    def triangle(self, received: FloatArray) -> FloatArray:
        """Return the upper triangle of n H, from the sum of the messages of all agents."""
        return received

    def kept_after(self, aim: Aim, taken: Taken) -> Kept:
        """Return the numbers that the next round needs."""
        return Kept(v=aim.v)


class ScoreOracle(Oracle):
    """A function of the agent's scores, as `Agent.at` computes it."""

    def __init__(self, agent: Agent, w: FloatArray):
        super().__init__(agent, w)
        self.local = agent.at(w, agent.centred)

    @property
    def losses(self) -> Any:
        return self.local.losses

    @property
    def gradient(self) -> FloatArray:
        gradient: FloatArray = self.local.adjoint
        return gradient

    def product(self, direction: FloatArray) -> FloatArray:
        design = self.agent.centred
        return design.adjoint(self.local.hessian_product(design.forward(direction)))

    def values(self, target: FloatArray, step_sizes: FloatArray) -> FloatArray:
        # The next round most often begins at the target, so `at` keeps the scores there.
        there = self.agent.at(target, self.agent.centred)
        if step_sizes is WHOLE:
            return np.array([there.losses]).T
        values: FloatArray = self.local.losses_along(there.scores - self.local.scores, step_sizes)
        return values


class HessianOracle(ScoreOracle):
    """A loss that computes its own Hessian at a model, as softmax and partial likelihoods do."""

    least_curvature: ClassVar[float] = 1e-10

    def hessian(self, *more: FloatArray) -> FloatArray:
        return packed(self.local.hessian(), *more)

    def diagonal(self) -> FloatArray:
        diagonal: FloatArray = self.local.diagonal()
        return diagonal
