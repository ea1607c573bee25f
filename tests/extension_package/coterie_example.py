"""A package of its own that extends Coterie: one small thing of each kind."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

import coterie as co
from coterie.numerics.penalties.penalty import positive

FloatArray = NDArray[np.floating[Any]]
Step = float | FloatArray


@dataclass(frozen=True)
class ScaledSquared(co.Loss):
    """ℓ(u; y) = (a/2) (u − y)², with ℓ*(v; y) = v²/(2a) + y v."""

    name: ClassVar[str] = "scaled_squared"
    kind: ClassVar[str] = "regression"
    scale: float = 1.0

    @property
    def smoothness(self) -> float:
        return self.scale

    @property
    def lipschitz(self) -> float:
        return math.inf

    def each(self, u: FloatArray, y: FloatArray) -> FloatArray:
        return 0.5 * self.scale * (u - y) ** 2

    def gradient(self, u: FloatArray, y: FloatArray) -> FloatArray:
        return self.scale * (u - y)

    def curvature(self, u: FloatArray, y: FloatArray) -> FloatArray:
        return np.full_like(u, self.scale)

    def conjugate_each(self, v: FloatArray, y: FloatArray) -> FloatArray:
        return v * (0.5 * v / self.scale + y)

    def fenchel_young_each(self, u: FloatArray, v: FloatArray, y: FloatArray) -> FloatArray:
        r = self.scale * (u - y) - v
        return 0.5 * r * r / self.scale

    def domain(self, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        return np.full_like(y, -np.inf), np.full_like(y, np.inf)

    def dual_prox(self, u: FloatArray, y: FloatArray, step: Step) -> FloatArray:
        # s (v/a + y) + v − u = 0
        return (u - step * y) / (1.0 + step / self.scale)

    def prox(self, u: FloatArray, y: FloatArray, step: Step) -> FloatArray:
        return (u + step * self.scale * y) / (1.0 + step * self.scale)


@dataclass(frozen=True)
class Square(co.Penalty):
    """g(w) = strength ‖w‖², without a half, with g*(u) = ‖u‖² / (4 strength)."""

    name: ClassVar[str] = "square"
    separable: ClassVar[bool] = True
    quadratic: ClassVar[bool] = True
    strength: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "strength", positive(self.strength, "square strength", "for 0 use 'none'")
        )

    @property
    def strong_convexity(self) -> float:
        return 2 * self.strength

    def value(self, w: FloatArray) -> float:
        return self.strength * _norm(w) ** 2

    def prox(self, w: FloatArray, step: Step) -> FloatArray:
        return w / (1.0 + 2 * np.asarray(step, w.dtype) * self.strength)

    def conjugate(self, u: FloatArray) -> float:
        return _norm(u) * (_norm(u) / (4 * self.strength))

    def conjugate_gradient(self, u: FloatArray) -> FloatArray:
        return u / (2 * self.strength)

    def fenchel_young(self, w: FloatArray, u: FloatArray, error: Step = 0.0) -> float:
        # strength ‖w − u / (2 strength)‖², and no less if u is off by the error, or by rounding
        ideal = u / (2 * self.strength)
        off = _norm(np.broadcast_to(error, w.shape)) / (2 * self.strength)
        rounding = 2.0**-48 * (_norm(w) + _norm(ideal))
        return self.strength * (_norm(w - ideal) + off + rounding) ** 2

    def scale_into_domain(self, u: FloatArray, error: Step = 0.0) -> float:
        return 1.0

    def bounded_conjugate(self, u: FloatArray, radius: float) -> float:
        # max over 0 ≤ ρ ≤ radius of ρ ‖u‖ − strength ρ²
        reach = min(_norm(u) / (2 * self.strength), radius)
        return reach * (_norm(u) - self.strength * reach)


@dataclass(frozen=True)
class State:
    """Where one agent stands between two rounds: the model, and 1/L."""

    w: FloatArray
    step: float


@dataclass(frozen=True)
class PlainGradient(co.Method[State]):
    """w ← prox_{g/L}(w − ∇f(w)/L): one sum a round."""

    name: ClassVar[str] = "plain-gradient"
    split: ClassVar[str] = "samples"
    summary: ClassVar[str] = "proximal gradient, without acceleration"
    disclosure: ClassVar[co.Disclosure] = co.Disclosure(
        sent="the gradient of its own loss, one number per column, added up",
        learned="a weighted sum of rows, another one each round",
        secure="the totals over all parties",
    )
    discloses_labels: ClassVar[bool] = False
    shorter: float = 1.0
    """What to divide the safe step 1/L by."""

    def start(self, agent: co.Agent) -> co.Protocol[State]:
        curvatures = yield co.Sum(np.array([agent.design.squared_norm(agent.data.weights)]))
        L = self.shorter * agent.problem.loss.smoothness * float(curvatures[0]) / agent.total
        return State(np.zeros(agent.design.shape[1]), 1.0 / L)

    def round(self, agent: co.Agent, state: State, t: int) -> co.Protocol[State]:
        gradients = agent.problem.loss.gradient(agent.design.forward(state.w), agent.labels)
        total = yield co.Sum(agent.design.adjoint(agent.weighted(gradients)))
        return replace(
            state, w=agent.problem.prox(state.w - state.step / agent.total * total, state.step)
        )

    def point(self, agent: co.Agent, state: State) -> co.Point:
        return co.Point(state.w)


class Announced(co.Engine):
    """The local engine, which says that it was used."""

    name: ClassVar[str] = "announced"
    summary: ClassVar[str] = "all agents in this process, with a line before it starts"

    def run(self, *arguments: Any, **more: Any) -> Any:
        print("announced: the run begins", file=sys.stderr)
        return co.engines.engine("local").run(*arguments, **more)


def wheel(agents: int) -> co.Network:
    """A ring around agent 0, which knows everybody."""
    rim = [(i, i % (agents - 1) + 1) for i in range(1, agents)] if agents > 3 else []
    spokes = [(0, i) for i in range(1, agents)]
    return replace(
        co.networks.from_edges(sorted({(min(e), max(e)) for e in rim + spokes}), agents),
        name="wheel",
    )


ALL = (ScaledSquared, Square, PlainGradient, Announced, wheel)


def register() -> None:
    """What the entry point names."""
    for entry in ALL:
        co.register(entry)


def _norm(w: FloatArray) -> float:
    return float(np.linalg.norm(w.astype(float)))
