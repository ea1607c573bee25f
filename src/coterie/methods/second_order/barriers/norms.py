"""Barriers of norms: g grows in every direction, and x holds the dual inside the ball of the dual
norm.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.methods.second_order.barriers import barrier
from coterie.methods.second_order.barriers.barrier import (
    EPS,
    LONGEST,
    Barrier,
    Step,
    diagonal,
    longest,
    padded,
    sums,
)
from coterie.numerics.arrays import FloatArray
from coterie.numerics.kernels import barrier as kernel


class Intervals(Barrier):
    """λ |w_j| = max over |u_j| ≤ 1 of λ u_j w_j:  w = s − t,  s (1 − u) = t (1 + u) = β μ;  x = (u,
    s, t).
    """

    def __init__(self, width: int, count: int, threshold: float, unit: float):
        super().__init__(width)
        self.count = count
        self.threshold = threshold
        self.beta = unit / (2 * count * threshold)
        self.weight = unit

    def _split(self, x: FloatArray) -> FloatArray:
        return x.reshape(3, self.count)

    def centred(self, w: FloatArray, mu: float) -> FloatArray:
        w = w[: self.count]
        u = np.empty(self.count)
        theta = np.empty(self.count)
        one = np.ones(self.count)
        centre: Any = kernel.centre
        mu = self.beta * mu
        centre(w, mu, -one, one, u, theta)
        u = np.clip(u, barrier.TUNING.least_room - 1, 1 - barrier.TUNING.least_room)
        return np.concatenate([u, mu / (1 - u), mu / (1 + u)])

    def value(self, w: FloatArray, mu: float) -> float:
        w = w[: self.count]
        values = np.zeros(1)
        one = np.ones(self.count)
        smoothed: Any = kernel.smoothed
        smoothed(
            w,
            np.zeros(self.count),
            self.beta * mu,
            -one,
            one,
            self.threshold * one,
            np.ones(1),
            values,
        )
        return float(values[0])

    def force(self, x: FloatArray) -> FloatArray:
        return padded(self.threshold * x[: self.count], self.width)

    def add_curvature(self, w: FloatArray, x: FloatArray, H: FloatArray) -> None:
        u, s, t = self._split(x)
        p, q = self._rooms(u)
        diagonal(H)[: self.count] += self.threshold / (s / p + t / q)

    def _rooms(self, u: FloatArray) -> tuple[FloatArray, FloatArray]:
        return np.maximum(1 - u, EPS), np.maximum(1 + u, EPS)

    def aims(self, mu: float, w: FloatArray, x: FloatArray, last: Step | None = None) -> FloatArray:
        if last is None:
            return np.full(2 * self.count, self.beta * mu)
        du, ds, dt = self._split(last.dx)
        return np.concatenate([self.beta * mu + ds * du, self.beta * mu - dt * du])

    def shift(self, w: FloatArray, x: FloatArray, aims: FloatArray) -> FloatArray:
        u, s, t = self._split(x)
        c, e = aims.reshape(2, self.count)
        p, q = self._rooms(u)
        return padded(
            self.threshold * (w[: self.count] - c / p + e / q) / (s / p + t / q), self.width
        )

    def direction(
        self, w: FloatArray, x: FloatArray, dw: FloatArray, aims: FloatArray
    ) -> FloatArray:
        u, s, t = self._split(x)
        c, e = aims.reshape(2, self.count)
        p, q = self._rooms(u)
        a = s / p
        b = t / q
        c = c / p
        e = e / q
        du = ((w + dw)[: self.count] - c + e) / (a + b)
        return np.concatenate([du, c - s + a * du, e - t - b * du])

    def longest(self, w: FloatArray, x: FloatArray, dw: FloatArray, dx: FloatArray) -> float:
        u, s, t = self._split(x)
        du, ds, dt = self._split(dx)
        return longest((1 - u, -du), (1 + u, du), (s, ds), (t, dt))

    def products(self, w: FloatArray, x: FloatArray) -> FloatArray:
        u, s, t = self._split(x)
        return np.append(s * (1 - u), t * (1 + u))

    def complementarity(self, w: FloatArray, x: FloatArray) -> float:
        return self.threshold * super().complementarity(w, x)


class Norms(Barrier):
    """λ_G ‖w_G‖ = max over ‖u_G‖ ≤ 1 of λ_G ⟨u, w_G⟩:  w = s_G u,  s_G π_G = β μ,  π = (1 −
    ‖u_G‖²)/2;  x = (u, s).
    """

    def __init__(
        self, width: int, groups: npt.NDArray[np.intp], strengths: FloatArray, unit: float
    ):
        super().__init__(width)
        self.groups = groups
        self.strengths = strengths
        self.beta = unit / float(strengths.sum())
        self.weight = unit
        self.count = len(groups)
        self.members = [np.flatnonzero(groups == group) for group in range(len(strengths))]

    def _split(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        return x[: self.count], x[self.count :]

    def _sums(self, values: FloatArray) -> FloatArray:
        """Σ over the coefficients of every group."""
        return sums(self.groups, values, len(self.strengths))

    def _multiplier(self, w: FloatArray, mu: float) -> FloatArray:
        # s ‖u‖ = ‖w‖ and s (1 − ‖u‖²) = 2μ
        mu = self.beta * mu
        multiplier: FloatArray = mu + np.sqrt(mu**2 + self._sums(w[: self.count] ** 2))
        return multiplier

    def centred(self, w: FloatArray, mu: float) -> FloatArray:
        s = self._multiplier(w, mu)
        return np.append(w[: self.count] / s[self.groups], s)

    def value(self, w: FloatArray, mu: float) -> float:
        s = self._multiplier(w, mu)
        m = self.beta * mu
        return float(
            self.strengths @ (self._sums(w[: self.count] ** 2) / s + m * np.log(2 * m / s))
        )

    def force(self, x: FloatArray) -> FloatArray:
        return padded(self.strengths[self.groups] * x[: self.count], self.width)

    def add_curvature(self, w: FloatArray, x: FloatArray, H: FloatArray) -> None:
        # C = λ/s (I − u uᵀ / (π + ‖u‖²)) in every group
        u, s = self._split(x)
        scale = self.strengths / s
        for group, at in enumerate(self.members):
            direction = u[at] / math.sqrt(0.5 * (1 + u[at] @ u[at]))
            H[np.ix_(at, at)] -= scale[group] * np.outer(direction, direction)
        diagonal(H)[: self.count] += scale[self.groups]

    def aims(self, mu: float, w: FloatArray, x: FloatArray, last: Step | None = None) -> FloatArray:
        """What s u shall be less than w, and s π."""
        u, s = self._split(x)
        du, ds = self._split(last.dx if last else np.zeros(len(x)))
        return np.append(
            ds[self.groups] * du,
            self.beta * mu + 0.5 * s * self._sums(du * du) + ds * self._sums(u * du),
        )

    def direction(
        self, w: FloatArray, x: FloatArray, dw: FloatArray, aims: FloatArray
    ) -> FloatArray:
        u, s = self._split(x)
        less, product = self._split(aims)
        pi = self._pi(u)
        # Δs − s uᵀΔu / π = k and s Δu + u Δs = w + Δw − s u − less
        k = product / pi - s
        b = (w + dw)[: self.count] - (s + k)[self.groups] * u - less
        along = self._sums(u * b) / (0.5 * (1 + self._sums(u * u)))
        return np.append((b - along[self.groups] * u) / s[self.groups], k + along)

    def _pi(self, u: FloatArray) -> FloatArray:
        room: FloatArray = np.maximum(0.5 * (1 - self._sums(u * u)), EPS)
        return room

    def longest(self, w: FloatArray, x: FloatArray, dw: FloatArray, dx: FloatArray) -> float:
        u, s = self._split(x)
        du, ds = self._split(dx)
        # ‖u + α Δu‖ = 1
        a = self._sums(du * du)
        b = self._sums(u * du)
        c = 2 * self._pi(u)
        root = np.sqrt(b * b + a * c)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(b > 0, c / (b + root), (root - b) / a)
        return min(longest((s, ds)), float(np.nanmin(share, initial=LONGEST)))

    def products(self, w: FloatArray, x: FloatArray) -> FloatArray:
        u, s = self._split(x)
        return s * self._pi(u)

    def complementarity(self, w: FloatArray, x: FloatArray) -> float:
        return float(self.strengths @ self.products(w, x))
