"""The minimum of a quadratic and a penalty through the interior, alone: for penalties that tie
coefficients together.

    z = argmin ⟨slope, z − w⟩ + ½ (z − w)ᵀ H (z − w) + g(z)

Mehrotra's predictor and corrector on the barrier of g: a few dozen equations with H, however long
and thin the valley is in which steps along slopes would creep.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from coterie.methods.second_order.barriers import Barrier, Step
from coterie.numerics.arrays import FloatArray
from coterie.numerics.tuning import Tuning, tuned

STEPS, ROUNDING = 60, 1e-14
"""How many steps at most, and the share of the first μ at which float64 sees no more."""


@dataclass(frozen=True)
class _Tuning(Tuning):
    inside: float = tuned(
        0.995, "The share of the way to the boundary that a step takes at most.", below=1
    )


TUNING = _Tuning()


def minimum_inside(
    H: FloatArray,
    ridge: FloatArray,
    slope: FloatArray,
    w: FloatArray,
    barrier: Barrier,
    solver: Callable[[FloatArray], Callable[[FloatArray], FloatArray]],
    should_stop: Callable[[], bool],
) -> FloatArray:
    """z, to nearly what float64 sees; `solver` makes b ↦ (A + diag(ridge))⁻¹b of a matrix A, where
    g has that ridge.
    """
    z = barrier.inside(w)
    diagonal = np.diag(H) + ridge
    # How much the quadratic could fall, one coefficient at a time: the first μ.
    first = slope + H @ (z - w) + ridge * z
    scale = float(np.divide(first**2, diagonal, out=np.zeros(len(z)), where=diagonal > 0).sum())
    if not scale > 0:
        return z
    x = barrier.centred(z, scale)
    best = (np.inf, z)
    for _ in range(STEPS):
        A = H.copy()
        barrier.add_curvature(z, x, A)
        solve = solver(A)
        residual = slope + H @ (z - w) + ridge * z + barrier.force(x)
        mu = barrier.complementarity(z, x) / barrier.weight
        left = mu + float(np.abs(residual).max()) * float(np.abs(z).max())
        if left < best[0]:
            best = left, z
        if mu <= ROUNDING * scale or not left < 1e6 * best[0] or should_stop():
            break
        way = _step(barrier, z, x, residual, barrier.aims(0.0, z, x), solve)
        alpha = min(1.0, barrier.longest(z, x, *way))
        after = barrier.complementarity(z + alpha * way.dw, x + alpha * way.dx) / barrier.weight
        aims = barrier.aims(mu * min(1.0, after / mu) ** 3, z, x, way)
        way = _step(barrier, z, x, residual, aims, solve)
        alpha = min(1.0, TUNING.inside * barrier.longest(z, x, *way))
        z = z + alpha * way.dw
        x = x + alpha * way.dx
    return best[1]


def _step(
    barrier: Barrier,
    z: FloatArray,
    x: FloatArray,
    residual: FloatArray,
    aims: FloatArray,
    solve: Callable[[FloatArray], FloatArray],
) -> Step:
    dz = solve(-residual - barrier.shift(z, x, aims))
    return Step(dz, barrier.direction(z, x, dz, aims))
