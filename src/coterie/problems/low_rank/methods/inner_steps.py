"""The inner steps of `dfw-subspace` where F is not its quadratic model: a few in every round, inside the spaces."""

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
from coterie.run.collectives import Sum, Talk


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


def corrected(
    agent: Agent[Problem[Task]],
    information: Information,
    basis: FloatArray,
    image: Any,
    right: FloatArray,
    at: Place,
    M: FloatArray,
    inner: int,
) -> Talk[Place]:
    """A few steps to the minimum of a model of F around (S, β), each accepted only if F falls."""
    mu, here, cells, shape = radius(agent), backend(image).here, at.S.size, at.S.shape
    follows = at.beta.size > 0

    def move(z: FloatArray) -> None:
        S = z[:cells].reshape(shape)
        if follows:
            information.put(z[cells:] / unit)
        information.reset((basis @ S).astype(information.dtype), right, image @ here(S))

    def look() -> FloatArray:
        told = np.append(information.projected(basis, image, right).ravel().astype(float), information.loss())
        return np.append(told, information.slope_of_intercept()) if follows else told

    m = at.beta.size
    first = look()[cells:]
    sums = yield Sum(first)
    loss, (g, D) = float(sums[0]), np.split(sums[1:], 2)
    ell = float(np.linalg.norm(M, 2))
    # β in units in which its curvature, which is at most D, is at most that of S
    unit = np.sqrt(np.maximum(D, 1e-12 * agent.total) / ell) if ell > 0 else np.ones(m)
    z, slope = np.append(at.S.ravel(), at.beta * unit), np.append(at.slope.ravel(), g / unit)
    scale = np.append(np.ones(cells), unit)
    pairs = [(s * scale, y / scale) for s, y in at.pairs]
    kappa, here_now, shorter = at.kappa, True, 1.0
    for _ in range(inner):
        if here_now:
            way = shared_result(sums, _step, slope, kappa * M, shape[1], kappa * ell, pairs, z, mu) - z
        else:
            # Between z and a trial that lies too far F falls: it is convex, and so is the ball.
            way = shorter * way
        trial = z + way
        promised = float(slope @ way)
        # What is left of two terms that cancel at the ball's edge.
        noise = ROUNDING * mu * float(np.linalg.norm(slope[:cells]))
        if not promised < max(noise, -1e-22 * abs(loss)) or not way.any():
            break
        move(trial)
        sums = yield Sum(look())
        new_slope = np.append(sums[:cells], sums[cells + 1 : cells + 1 + m] / unit)
        pairs = [*pairs, (way, new_slope - slope)][-TUNING.memory :]
        # Where F falls by less than its rounding, its slope along the way decides.
        lower = sums[cells] <= loss + 0.1 * promised
        flat = -promised <= 1e-10 * abs(loss) and float(new_slope @ way) <= -0.5 * promised
        if abs(promised) <= noise:
            # Where that is rounding, too, the gap decides.
            lower, flat = False, _gap(new_slope, trial, shape, mu) < 2.0 * _gap(slope, z, shape, mu)
        here_now = bool(lower or flat)
        if not here_now:
            # Where the slope along the way would be 0, if it changed evenly: s'(0) / (s'(0) − s'(1)).
            uphill = float(new_slope @ way)
            shorter = max(promised / (promised - uphill), 0.1) if uphill > -promised > 0 else 0.5
            kappa = min(1.0, 4.0 * kappa)
            continue
        bent = float(np.vdot(way[:cells].reshape(shape), M @ way[:cells].reshape(shape)))
        measured = float(way[:cells] @ (new_slope - slope)[:cells]) / bent if bent > 0 else 1.0
        kappa = min(1.0, max(measured, 0.5 * kappa, 1e-8))
        z, slope, loss = trial, new_slope, float(sums[cells])
    beta = at.beta
    if follows:
        if not here_now:
            move(z)
        found = yield from adjusted(agent, information)
        beta = as_array(found)
    kept = np.array([(s / scale, y * scale) for s, y in pairs]).reshape(-1, 2, len(z))
    return Place(z[:cells].reshape(shape), slope[:cells].reshape(shape), beta, kappa, kept)


def _gap(slope: FloatArray, z: FloatArray, shape: tuple[int, int], mu: float) -> float:
    """⟨G, S⟩ + μ‖G‖₂ in the spaces."""
    cells = shape[0] * shape[1]
    return float(slope[:cells] @ z[:cells]) + mu * float(np.linalg.norm(slope[:cells].reshape(shape), 2))


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
