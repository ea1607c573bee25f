"""The samples inside an interior-point method, each a maximum over a ≤ v ≤ b of v r (see `interior_point.py`)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from coterie.arrays import FloatArray
from coterie.kernels import barrier as kernel


class Way(NamedTuple):
    """Where the samples go: to products s p = c and t q = e."""

    c: FloatArray
    e: FloatArray
    theta: FloatArray
    g: FloatArray
    """Δv = θ Δr + g."""
    dv: FloatArray
    ds: FloatArray
    dt: FloatArray
    longest: float = 0.0
    """The longest step that stays inside, at most 2."""
    linear: float = 0.0
    """How Σ ω (s p + t q) changes along it."""
    quadratic: float = 0.0


class Samples:
    """Its own samples: where they stand, and where they are going."""

    def __init__(
        self,
        r: FloatArray,
        v: FloatArray,
        s: FloatArray,
        t: FloatArray,
        lower: FloatArray,
        upper: FloatArray,
        weights: FloatArray,
    ):
        self.r, self.v, self.s, self.t = r, v, s, t
        self.lower, self.upper, self.weights = lower, upper, weights

    def complementarity(self) -> float:
        """Σ ω (s p + t q)."""
        return float(self.weights @ (self.s * (self.upper - self.v) + self.t * (self.v - self.lower)))

    def aimed(self, c: FloatArray, e: FloatArray) -> Way:
        """Towards those products, before the change of r is known."""
        theta, g, unknown = np.empty(len(c)), np.empty(len(c)), np.empty(0)
        pull: Any = kernel.pull
        pull(self.r, self.v, self.s, self.t, self.lower, self.upper, c, e, theta, g)
        return Way(c, e, theta, g, unknown, unknown, unknown)

    def moved(self, way: Way, dr: FloatArray) -> Way:
        """The same with the directions for that change of r."""
        here = self.v, self.s, self.t, self.lower, self.upper, self.weights
        dv, ds, dt = (np.empty(len(dr)) for _ in range(3))
        move: Any = kernel.move
        return Way(*way[:4], dv, ds, dt, *move(dr, *here, *way[:4], dv, ds, dt))

    def recentred(self, way: Way, step: float, least: float, most: float) -> Way:
        """Towards products between those after that step."""
        c, e, here = way.c.copy(), way.e.copy(), (self.v, self.s, self.t, self.lower, self.upper)
        recentre: Any = kernel.recentre
        recentre(*here, way.dv, way.ds, way.dt, step, least, most, c, e)
        return self.aimed(c, e)

    def after(self, alpha: float, way: Way) -> tuple[FloatArray, FloatArray, FloatArray]:
        """v, s and t after the share α of the way."""
        return self.v + alpha * way.dv, self.s + alpha * way.ds, self.t + alpha * way.dt
