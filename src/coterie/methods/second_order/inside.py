"""The minimum of a quadratic and a penalty that is not separable, by an interior-point method.

    z = argmin ⟨gradient, z − w⟩ + ½ (z − w)ᵀ H (z − w) + g(z)

Each agent computes it alone, by Mehrotra's predictor and corrector on the barrier of g. It takes a
few dozen equations with H, also where gradient steps would be slow in a long and narrow valley.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from coterie.methods.second_order.barriers import Barrier, Step
from coterie.numerics.arrays import FloatArray
from coterie.numerics.tuning import Tuning, tuned

STEPS = 60
"""The largest number of steps."""
ROUNDING = 1e-14
"""The share of the first μ below which float64 sees no difference."""
FAR = 1e6
"""Steps end where the distance to the optimum is this multiple of the least so far."""


@dataclass(frozen=True)
class _Tuning(Tuning):
    inside: float = tuned(
        0.995, "The largest share of the way to the boundary that a step takes.", below=1
    )


TUNING = _Tuning()


Solver = Callable[[FloatArray], FloatArray]


def minimum_inside(
    H: FloatArray,
    ridge: FloatArray,
    gradient: FloatArray,
    w: FloatArray,
    barrier: Barrier,
    solver: Callable[[FloatArray], Solver],
    should_stop: Callable[[], bool],
) -> FloatArray:
    """Return z, nearly as exact as float64 allows.

    `solver` turns a matrix A into b ↦ (A + diag(ridge))⁻¹b, where g has that ridge.
    """
    z = barrier.inside(w)
    diagonal = np.diag(H) + ridge
    # The first μ: the decrease of the quadratic, one coefficient at a time.
    first = gradient + H @ (z - w) + ridge * z
    decreases = np.divide(first**2, diagonal, out=np.zeros(len(z)), where=diagonal > 0)
    scale = float(decreases.sum())
    if not scale > 0:
        return z
    x = barrier.centred(z, scale)
    least_left = np.inf
    best = z
    for _ in range(STEPS):
        A = H.copy()
        barrier.add_curvature(z, x, A)
        solve = solver(A)
        residual = gradient + H @ (z - w) + ridge * z + barrier.force(x)
        mu = barrier.complementarity(z, x) / barrier.weight
        largest_residual = float(np.abs(residual).max())
        left = mu + largest_residual * float(np.abs(z).max())
        if left < least_left:
            least_left = left
            best = z
        if mu <= ROUNDING * scale or not left < FAR * least_left or should_stop():
            break
        aims = barrier.aims(0.0, z, x)
        predictor = _step(barrier, z, x, residual, aims, solve)
        mu = _next_mu(barrier, z, x, predictor, mu)
        aims = barrier.aims(mu, z, x, predictor)
        step = _step(barrier, z, x, residual, aims, solve)
        longest = barrier.longest(z, x, step.dw, step.dx)
        alpha = min(1.0, TUNING.inside * longest)
        z = z + alpha * step.dw
        x = x + alpha * step.dx
    return best


def _next_mu(barrier: Barrier, z: FloatArray, x: FloatArray, predictor: Step, mu: float) -> float:
    """Return the μ at which the corrector aims: the longer the predictor's step, the smaller."""
    longest = barrier.longest(z, x, predictor.dw, predictor.dx)
    alpha = min(1.0, longest)
    complementarity = barrier.complementarity(z + alpha * predictor.dw, x + alpha * predictor.dx)
    after = complementarity / barrier.weight
    share = min(1.0, after / mu) ** 3
    return mu * share


def _step(
    barrier: Barrier,
    z: FloatArray,
    x: FloatArray,
    residual: FloatArray,
    aims: FloatArray,
    solve: Solver,
) -> Step:
    shift = barrier.shift(z, x, aims)
    dz = solve(-residual - shift)
    dx = barrier.direction(z, x, dz, aims)
    return Step(dz, dx)
