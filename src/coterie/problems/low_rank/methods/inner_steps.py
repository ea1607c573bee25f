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
    memory: int = tuned(20, "Number of inner steps that the model of F remembers.")


TUNING = _Tuning()
ROUNDING = 1e-14
"""Relative to μ‖G‖: the error of ⟨G, S⟩ for matrices of trace norm μ."""


@dataclass(frozen=True, slots=True)
class Place:
    """The state of the inner steps."""

    S: FloatArray
    gradient: FloatArray
    beta: FloatArray
    kappa: float
    pairs: FloatArray


class _Inside:
    """F at matrices of the two spaces and at intercepts β, as functions of one vector z."""

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
        """The units of β."""

    def move(self, z: FloatArray, scores: Any) -> None:
        """Move the agent's information to z."""
        S = self.matrix(z)
        if len(z) > self.cells:
            beta = z[self.cells :] / self.unit
            self.information.put(beta)
        moved = (self.basis @ S).astype(self.information.dtype)
        scores_of_moved = scores @ backend(scores).converted(S)
        self.information.reset(moved, self.right, scores_of_moved)

    def addend(self, scores: Any, intercept: bool) -> FloatArray:
        """The agent's addend of the gradient in S, the loss, and the gradient and curvature in
        β.
        """
        information = self.information
        projected = information.projected(self.basis, scores, self.right)
        own = np.append(projected.ravel().astype(float), information.loss())
        if intercept:
            own = np.append(own, information.gradient_of_intercept())
        return own

    def matrix(self, z: FloatArray) -> FloatArray:
        """S of z."""
        return z[: self.cells].reshape(self.shape)

    def gradient(self, sums: FloatArray) -> FloatArray:
        """The gradient in z, from the sums of `addend`."""
        start = self.cells + 1
        in_beta = sums[start : start + len(self.unit)]
        return np.append(sums[: self.cells], in_beta / self.unit)

    def noise(self, gradient: FloatArray) -> float:
        """The rounding error of ⟨G, S⟩, where two terms cancel at the edge of the ball."""
        return ROUNDING * self.mu * float(np.linalg.norm(gradient[: self.cells]))

    def falls(
        self, loss: float, gradient: FloatArray, z: FloatArray, way: FloatArray, sums: FloatArray
    ) -> bool:
        """Whether a step lowers F. Where rounding hides that, the gradient along the step decides,
        or the gap.
        """
        promised = float(gradient @ way)
        reached = self.gradient(sums)
        if abs(promised) <= self.noise(gradient):
            # The gradient along the step is rounding, too.
            return self._gap(reached, z + way) < 2.0 * self._gap(gradient, z)
        reached_loss = sums[self.cells]
        if reached_loss <= loss + 0.1 * promised:
            return True
        hidden = -promised <= 1e-10 * abs(loss)
        return hidden and float(reached @ way) <= -0.5 * promised

    def _gap(self, gradient: FloatArray, z: FloatArray) -> float:
        """⟨G, S⟩ + μ‖G‖₂ in the spaces."""
        norm = float(np.linalg.norm(self.matrix(gradient), 2))
        inner = float(gradient[: self.cells] @ z[: self.cells])
        return inner + self.mu * norm

    def measured(self, M: FloatArray, way: FloatArray, change: FloatArray) -> float:
        """The curvature of F along a step, as a share of the curvature of M."""
        step = self.matrix(way)
        model_curvature = float(np.vdot(step, M @ step))
        if model_curvature > 0:
            curvature = float(way[: self.cells] @ change[: self.cells])
            return curvature / model_curvature
        return 1.0


def corrected(
    agent: Agent[Problem[Task]],
    information: Information,
    basis: FloatArray,
    scores: Any,
    right: FloatArray,
    at: Place,
    M: FloatArray,
    inner: int,
) -> Protocol[Place]:
    """A few steps to the minimum of a model of F around (S, β), each accepted only if F falls."""
    inside = _Inside(agent, information, basis, right)
    intercept = at.beta.size > 0
    sums = yield Sum(inside.addend(scores, intercept)[at.S.size :])
    loss = float(sums[0])
    g, D = np.split(sums[1:], 2)
    ell = float(np.linalg.norm(M, 2))
    unit = np.ones(at.beta.size)
    if ell > 0:
        # D bounds the curvature in β. In these units, it is at most that in S.
        unit = np.sqrt(np.maximum(D, 1e-12 * agent.total) / ell)
    inside.unit = unit
    z = np.append(at.S.ravel(), at.beta * unit)
    gradient = np.append(at.gradient.ravel(), g / unit)
    scale = np.append(np.ones(at.S.size), unit)
    pairs = [(s * scale, y / scale) for s, y in at.pairs]
    kappa = at.kappa
    accepted = True
    shorter = 1.0
    for _ in range(inner):
        if accepted:
            columns = inside.shape[1]
            best = shared_result(
                sums, _step, gradient, kappa * M, columns, kappa * ell, pairs, z, inside.mu
            )
            way = best - z
        else:
            # F falls between z and a trial that is too far: F and the ball are convex.
            way = shorter * way
        trial = z + way
        promised = float(gradient @ way)
        least_fall = max(inside.noise(gradient), -1e-22 * abs(loss))
        if not promised < least_fall or not way.any():
            break
        inside.move(trial, scores)
        sums = yield Sum(inside.addend(scores, intercept))
        reached = inside.gradient(sums)
        change = reached - gradient
        pairs = [*pairs, (way, change)][-TUNING.memory :]
        accepted = inside.falls(loss, gradient, z, way, sums)
        if not accepted:
            shorter = _shorter(promised, float(reached @ way))
            kappa = min(1.0, 4.0 * kappa)
            continue
        measured = inside.measured(M, way, change)
        kappa = min(1.0, max(measured, 0.5 * kappa, 1e-8))
        z = trial
        gradient = reached
        loss = float(sums[inside.cells])
    beta = at.beta
    if intercept:
        if not accepted:
            inside.move(z, scores)
        found = yield from adjusted(agent, information)
        beta = as_array(found)
    in_units = [(s / scale, y * scale) for s, y in pairs]
    kept = np.array(in_units).reshape(-1, 2, len(z))
    return Place(inside.matrix(z), inside.matrix(gradient), beta, kappa, kept)


def _shorter(promised: float, uphill: float) -> float:
    """The share of a step at which its derivative would be 0 if that changed evenly: s'(0) / (s'(0)
    − s'(1)).
    """
    if uphill > -promised > 0:
        return max(promised / (promised - uphill), 0.1)
    return 0.5


def _step(
    gradient: FloatArray,
    M: FloatArray,
    columns: int,
    ell: float,
    pairs: list[tuple[FloatArray, FloatArray]],
    z: FloatArray,
    mu: float,
) -> FloatArray:
    quadratic = Quadratic(M, columns, ell, pairs)
    return least(gradient, quadratic, z, mu, 100, 1e-2)
