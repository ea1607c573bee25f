"""The inner steps of `dfw-subspace` where F is not its quadratic model: a few in every round,
inside the spaces.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from coterie.numerics.arrays import FloatArray, shared_result
from coterie.numerics.backends import backend
from coterie.numerics.tuning import Tuning, tuned
from coterie.problems.low_rank.methods.frank_wolfe import radius
from coterie.problems.low_rank.methods.small_ball import Quadratic, least
from coterie.problems.low_rank.tasks import Information, Task
from coterie.problems.problem import Problem
from coterie.run.agent import Agent
from coterie.run.certificate.intercepts import adjusted, as_array
from coterie.run.collectives import Protocol, Sum


@dataclass(frozen=True)
class _Tuning(Tuning):
    memory: int = tuned(20, "How many inner steps the model of F remembers.")


TUNING = _Tuning()
ROUNDING = 1e-14
"""Of ⟨G, S⟩ in units of μ‖G‖: matrices of a trace norm of μ are known to about that."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the inner steps are."""

    S: FloatArray
    slope: FloatArray
    beta: FloatArray
    kappa: float
    pairs: FloatArray


class _Inside:
    """F at matrices of the two spaces and at intercepts β, as one vector z of numbers."""

    def __init__(
        self,
        agent: Agent[Problem[Task]],
        information: Information,
        basis: FloatArray,
        right: FloatArray,
    ):
        self.agent = agent
        self.information = information
        self.basis = basis
        self.right = right
        self.mu = radius(agent)
        self.shape = (basis.shape[1], right.shape[1])
        self.cells = basis.shape[1] * right.shape[1]
        self.unit = np.ones(0)
        """β is in these units."""

    def move(self, z: FloatArray, image: Any) -> None:
        """Move the agent's information to z."""
        S = self.matrix(z)
        if len(z) > self.cells:
            self.information.put(z[self.cells :] / self.unit)
        moved = (self.basis @ S).astype(self.information.dtype)
        self.information.reset(moved, self.right, image @ backend(image).here(S))

    def look(self, image: Any, intercept: bool) -> FloatArray:
        """The agent's addend of the gradient in S, the loss, and the gradient and curvature in
        β.
        """
        information = self.information
        projected = information.projected(self.basis, image, self.right).ravel().astype(float)
        told = np.append(projected, information.loss())
        if intercept:
            told = np.append(told, information.gradient_of_intercept())
        return told

    def matrix(self, z: FloatArray) -> FloatArray:
        """S of z."""
        return z[: self.cells].reshape(self.shape)

    def gradient(self, sums: FloatArray) -> FloatArray:
        """The gradient in z, from the totals of `look`."""
        end = self.cells + 1
        return np.append(sums[: self.cells], sums[end : end + len(self.unit)] / self.unit)

    def noise(self, slope: FloatArray) -> float:
        """The rounding of ⟨G, S⟩: what is left of two terms that cancel at the ball's edge."""
        return ROUNDING * self.mu * float(np.linalg.norm(slope[: self.cells]))

    def falls(
        self, loss: float, slope: FloatArray, z: FloatArray, way: FloatArray, sums: FloatArray
    ) -> bool:
        """Whether F falls by a step, or its gradient along the step decides that, or the gap
        does.
        """
        promised = float(slope @ way)
        reached = self.gradient(sums)
        if abs(promised) <= self.noise(slope):
            # The gradient along the step is rounding, too.
            return self._gap(reached, z + way) < 2.0 * self._gap(slope, z)
        if sums[self.cells] <= loss + 0.1 * promised:
            return True
        return -promised <= 1e-10 * abs(loss) and float(reached @ way) <= -0.5 * promised

    def _gap(self, slope: FloatArray, z: FloatArray) -> float:
        """⟨G, S⟩ + μ‖G‖₂ in the spaces."""
        norm = float(np.linalg.norm(self.matrix(slope), 2))
        return float(slope[: self.cells] @ z[: self.cells]) + self.mu * norm

    def measured(self, M: FloatArray, way: FloatArray, change: FloatArray) -> float:
        """The curvature of F along a step, as a share of the curvature of M."""
        step = self.matrix(way)
        hessian_product = float(np.vdot(step, M @ step))
        if hessian_product > 0:
            return float(way[: self.cells] @ change[: self.cells]) / hessian_product
        return 1.0


def corrected(
    agent: Agent[Problem[Task]],
    information: Information,
    basis: FloatArray,
    image: Any,
    right: FloatArray,
    at: Place,
    M: FloatArray,
    inner: int,
) -> Protocol[Place]:
    """A few steps to the minimum of a model of F around (S, β), each accepted only if F falls."""
    inside = _Inside(agent, information, basis, right)
    intercept = at.beta.size > 0
    sums = yield Sum(inside.look(image, intercept)[at.S.size :])
    loss, (g, D) = float(sums[0]), np.split(sums[1:], 2)
    ell = float(np.linalg.norm(M, 2))
    inside.unit = unit = np.ones(at.beta.size)
    if ell > 0:
        # β in units in which its curvature, which is at most D, is at most that of S.
        inside.unit = unit = np.sqrt(np.maximum(D, 1e-12 * agent.total) / ell)
    z = np.append(at.S.ravel(), at.beta * unit)
    slope = np.append(at.slope.ravel(), g / unit)
    scale = np.append(np.ones(at.S.size), unit)
    pairs = [(s * scale, y / scale) for s, y in at.pairs]
    kappa = at.kappa
    here_now = True
    shorter = 1.0
    for _ in range(inner):
        if here_now:
            best = shared_result(
                sums, _step, slope, kappa * M, inside.shape[1], kappa * ell, pairs, z, inside.mu
            )
            way = best - z
        else:
            # Between z and a trial that lies too far F falls: it is convex, and so is the ball.
            way = shorter * way
        trial = z + way
        promised = float(slope @ way)
        if not promised < max(inside.noise(slope), -1e-22 * abs(loss)) or not way.any():
            break
        inside.move(trial, image)
        sums = yield Sum(inside.look(image, intercept))
        reached = inside.gradient(sums)
        pairs = [*pairs, (way, reached - slope)][-TUNING.memory :]
        here_now = inside.falls(loss, slope, z, way, sums)
        if not here_now:
            shorter = _shorter(promised, float(reached @ way))
            kappa = min(1.0, 4.0 * kappa)
            continue
        kappa = min(1.0, max(inside.measured(M, way, reached - slope), 0.5 * kappa, 1e-8))
        z = trial
        slope = reached
        loss = float(sums[inside.cells])
    beta = at.beta
    if intercept:
        if not here_now:
            inside.move(z, image)
        found = yield from adjusted(agent, information)
        beta = as_array(found)
    kept = np.array([(s / scale, y * scale) for s, y in pairs]).reshape(-1, 2, len(z))
    return Place(inside.matrix(z), inside.matrix(slope), beta, kappa, kept)


def _shorter(promised: float, uphill: float) -> float:
    """The share of a step at whose end the slope would be 0, if it changed evenly: s'(0) / (s'(0) −
    s'(1)).
    """
    if uphill > -promised > 0:
        return max(promised / (promised - uphill), 0.1)
    return 0.5


def _step(
    slope: FloatArray,
    M: FloatArray,
    columns: int,
    ell: float,
    pairs: list[tuple[FloatArray, FloatArray]],
    z: FloatArray,
    mu: float,
) -> FloatArray:
    return least(slope, Quadratic(M, columns, ell, pairs), z, mu, 100, 1e-2)
