"""Barriers of norms, which grow in every direction. x holds dual variables inside the ball of the
dual norm.
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
    """λ |w_j| = max over |u_j| ≤ 1 of λ u_j w_j, with x = (u, s, t):

    w = s − t,   s (1 − u) = t (1 + u) = β μ.

    λ is one number, or one per column.
    """

    def __init__(self, width: int, count: int, threshold: float | FloatArray, unit: float):
        super().__init__(width)
        self.count = count
        self.threshold = threshold
        if isinstance(threshold, np.ndarray):
            self.beta = unit / (2 * float(threshold.sum()))
        else:
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
        margin = barrier.TUNING.least_margin
        u = np.clip(u, margin - 1, 1 - margin)
        s = mu / (1 - u)
        t = mu / (1 + u)
        return np.concatenate([u, s, t])

    def value(self, w: FloatArray, mu: float) -> float:
        w = w[: self.count]
        unchanged = np.zeros(self.count)
        one = np.ones(self.count)
        weights = self.threshold * one
        step_sizes = np.ones(1)
        values = np.zeros(1)
        mu = self.beta * mu
        smoothed: Any = kernel.smoothed
        smoothed(w, unchanged, mu, -one, one, weights, step_sizes, values)
        return float(values[0])

    def force(self, x: FloatArray) -> FloatArray:
        return padded(self.threshold * x[: self.count], self.width)

    def add_curvature(self, w: FloatArray, x: FloatArray, H: FloatArray) -> None:
        u, s, t = self._split(x)
        p, q = self._distances(u)
        both = s / p + t / q
        diagonal(H)[: self.count] += self.threshold / both

    def _distances(self, u: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return 1 − u and 1 + u, however small."""
        p = np.maximum(1 - u, EPS)
        q = np.maximum(1 + u, EPS)
        return p, q

    def aims(self, mu: float, w: FloatArray, x: FloatArray, last: Step | None = None) -> FloatArray:
        product = self.beta * mu
        if last is None:
            return np.full(2 * self.count, product)
        du, ds, dt = self._split(last.dx)
        of_s = product + ds * du
        of_t = product - dt * du
        return np.concatenate([of_s, of_t])

    def shift(self, w: FloatArray, x: FloatArray, aims: FloatArray) -> FloatArray:
        u, s, t = self._split(x)
        c, e = aims.reshape(2, self.count)
        p, q = self._distances(u)
        both = s / p + t / q
        left = w[: self.count] - c / p + e / q
        change = self.threshold * left / both
        return padded(change, self.width)

    def direction(
        self, w: FloatArray, x: FloatArray, dw: FloatArray, aims: FloatArray
    ) -> FloatArray:
        u, s, t = self._split(x)
        c, e = aims.reshape(2, self.count)
        p, q = self._distances(u)
        a = s / p
        b = t / q
        c = c / p
        e = e / q
        after = (w + dw)[: self.count]
        du = (after - c + e) / (a + b)
        ds = c - s + a * du
        dt = e - t - b * du
        return np.concatenate([du, ds, dt])

    def longest(self, w: FloatArray, x: FloatArray, dw: FloatArray, dx: FloatArray) -> float:
        u, s, t = self._split(x)
        du, ds, dt = self._split(dx)
        return longest((1 - u, -du), (1 + u, du), (s, ds), (t, dt))

    def products(self, w: FloatArray, x: FloatArray) -> FloatArray:
        u, s, t = self._split(x)
        return np.append(s * (1 - u), t * (1 + u))

    def complementarity(self, w: FloatArray, x: FloatArray) -> float:
        if isinstance(self.threshold, np.ndarray):
            return float((self.threshold * self.products(w, x).reshape(2, self.count)).sum())
        return self.threshold * super().complementarity(w, x)


class Norms(Barrier):
    """λ_G ‖w_G‖ = max over ‖u_G‖ ≤ 1 of λ_G ⟨u, w_G⟩, with x = (u, s):

    w = s_G u,   s_G π_G = β μ,   π = (1 − ‖u_G‖²)/2.
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
        self.strength_of_entry = strengths[groups]

    def _split(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        return x[: self.count], x[self.count :]

    def _sums(self, values: FloatArray) -> FloatArray:
        """Add up the values of the coefficients of every group."""
        return sums(self.groups, values, len(self.strengths))

    def _multiplier(self, w: FloatArray, mu: float) -> FloatArray:
        # s ‖u‖ = ‖w‖ and s (1 − ‖u‖²) = 2μ
        mu = self.beta * mu
        squares = self._sums(w[: self.count] ** 2)
        multiplier: FloatArray = mu + np.sqrt(mu**2 + squares)
        return multiplier

    def centred(self, w: FloatArray, mu: float) -> FloatArray:
        s = self._multiplier(w, mu)
        u = w[: self.count] / s[self.groups]
        return np.append(u, s)

    def value(self, w: FloatArray, mu: float) -> float:
        s = self._multiplier(w, mu)
        m = self.beta * mu
        squares = self._sums(w[: self.count] ** 2)
        values = squares / s + m * np.log(2 * m / s)
        return float(self.strengths @ values)

    def force(self, x: FloatArray) -> FloatArray:
        u = x[: self.count]
        return padded(self.strength_of_entry * u, self.width)

    def add_curvature(self, w: FloatArray, x: FloatArray, H: FloatArray) -> None:
        # C = λ/s (I − u uᵀ / (π + ‖u‖²)) in every group
        u, s = self._split(x)
        scale = self.strengths / s
        for group, at in enumerate(self.members):
            own = u[at]
            direction = own / math.sqrt(0.5 * (1 + own @ own))
            H[np.ix_(at, at)] -= scale[group] * np.outer(direction, direction)
        diagonal(H)[: self.count] += scale[self.groups]

    def aims(self, mu: float, w: FloatArray, x: FloatArray, last: Step | None = None) -> FloatArray:
        """Return by how much s u shall be less than w, and s π."""
        u, s = self._split(x)
        if last:
            dx = last.dx
        else:
            dx = np.zeros(len(x))
        du, ds = self._split(dx)
        less = ds[self.groups] * du
        product = self.beta * mu + 0.5 * s * self._sums(du * du) + ds * self._sums(u * du)
        return np.append(less, product)

    def direction(
        self, w: FloatArray, x: FloatArray, dw: FloatArray, aims: FloatArray
    ) -> FloatArray:
        u, s = self._split(x)
        less, product = self._split(aims)
        pi = self._pi(u)
        # Δs − s uᵀΔu / π = k and s Δu + u Δs = w + Δw − s u − less
        k = product / pi - s
        after = (w + dw)[: self.count]
        b = after - (s + k)[self.groups] * u - less
        scale = 0.5 * (1 + self._sums(u * u))
        along = self._sums(u * b) / scale
        du = (b - along[self.groups] * u) / s[self.groups]
        ds = k + along
        return np.append(du, ds)

    def _pi(self, u: FloatArray) -> FloatArray:
        squares = self._sums(u * u)
        pi: FloatArray = np.maximum(0.5 * (1 - squares), EPS)
        return pi

    def longest(self, w: FloatArray, x: FloatArray, dw: FloatArray, dx: FloatArray) -> float:
        u, s = self._split(x)
        du, ds = self._split(dx)
        # ‖u + α Δu‖ = 1
        a = self._sums(du * du)
        b = self._sums(u * du)
        c = 2 * self._pi(u)
        root = np.sqrt(b * b + a * c)
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.where(b > 0, c / (b + root), (root - b) / a)
        longest_of_norms = float(np.nanmin(shares, initial=LONGEST))
        longest_of_multipliers = longest((s, ds))
        return min(longest_of_multipliers, longest_of_norms)

    def products(self, w: FloatArray, x: FloatArray) -> FloatArray:
        u, s = self._split(x)
        return s * self._pi(u)

    def complementarity(self, w: FloatArray, x: FloatArray) -> float:
        return float(self.strengths @ self.products(w, x))
