"""Barriers of constraints: models between bounds, or in a ball. x holds their multipliers."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from coterie.methods.second_order.barriers import barrier
from coterie.methods.second_order.barriers.barrier import (
    EPS,
    TINY,
    Barrier,
    Step,
    diagonal,
    logarithms,
    longest,
    padded,
    sums,
)
from coterie.numerics.arrays import FloatArray


class Bounds(Barrier):
    """lower ≤ w ≤ upper, with x = z:

    z_k p_k = β μ for every finite bound b,   p = ±(b − w) its distance,   force = Σ ± z.
    """

    def __init__(
        self, width: int, lower: FloatArray, upper: FloatArray, lengths: FloatArray, beta: float
    ):
        super().__init__(width)
        lengths = lengths[: len(lower)]
        moves = (lower < upper) & (lengths > 0)
        self.stuck[: len(moves)] = ~moves
        above = np.flatnonzero(np.isfinite(upper) & moves)
        below = np.flatnonzero(np.isfinite(lower) & moves)
        self.at = np.concatenate([above, below])
        self.bound = np.concatenate([upper[above], lower[below]])
        self.sign = np.repeat([1.0, -1.0], [len(above), len(below)])
        self.weight = beta * len(self.at)
        self.beta = beta
        # −log p + p / (far · length) is least at a finite p. Coefficients with two bounds need
        # no such tilt.
        reach = barrier.TUNING.far * lengths[self.at]
        self.tilt[self.at] = -beta * self.sign / reach
        bounds_of_entry = np.bincount(self.at, minlength=width)
        has_two = bounds_of_entry[self.at] != 1
        self.tilt[self.at[has_two]] = 0.0
        depth = barrier.TUNING.depth * (upper - lower)
        margin = np.minimum(depth, lengths)
        self.lowest_start = lower + margin
        self.highest_start = upper - margin

    def inside(self, w: FloatArray) -> FloatArray:
        d = len(self.lowest_start)
        clipped = np.clip(w[:d], self.lowest_start, self.highest_start)
        return np.append(clipped, w[d:])

    def _distance(self, w: FloatArray) -> FloatArray:
        """Return p, without its sign, however small."""
        distance = self.sign * (self.bound - w[self.at])
        least = EPS * np.abs(self.bound) + TINY
        positive: FloatArray = np.maximum(distance, least)
        return positive

    def centred(self, w: FloatArray, mu: float) -> FloatArray:
        return self.beta * mu / self._distance(w)

    def value(self, w: FloatArray, mu: float) -> float:
        distance = self.sign * (self.bound - w[self.at])
        return logarithms(self.beta * mu, distance)

    def force(self, x: FloatArray) -> FloatArray:
        return sums(self.at, self.sign * x, self.width)

    def add_curvature(self, w: FloatArray, x: FloatArray, H: FloatArray) -> None:
        curvatures = x / self._distance(w)
        diagonal(H)[:] += sums(self.at, curvatures, self.width)

    def aims(self, mu: float, w: FloatArray, x: FloatArray, last: Step | None = None) -> FloatArray:
        aims: FloatArray = np.full(len(x), self.beta * mu)
        if last:
            aims += self.sign * last.dw[self.at] * last.dx
        return aims

    def direction(
        self, w: FloatArray, x: FloatArray, dw: FloatArray, aims: FloatArray
    ) -> FloatArray:
        p = self._distance(w)
        dp = -self.sign * dw[self.at]
        # z p + p Δz + z Δp = aim
        change: FloatArray = aims / p - x - x / p * dp
        return change

    def longest(self, w: FloatArray, x: FloatArray, dw: FloatArray, dx: FloatArray) -> float:
        p = self._distance(w)
        dp = -self.sign * dw[self.at]
        return longest((p, dp), (x, dx))

    def kept(self, w: FloatArray, x: FloatArray, mu: float) -> FloatArray:
        least_product = barrier.TUNING.least_product * self.beta * mu
        least: FloatArray = least_product / self._distance(w)
        return np.maximum(x, least)

    def products(self, w: FloatArray, x: FloatArray) -> FloatArray:
        return x * self._distance(w)


class _BallVariables(NamedTuple):
    """x of a ball by name, or a change of x."""

    e: FloatArray
    s: FloatArray
    t: FloatArray
    tau: float


class _BallDistances(NamedTuple):
    """The distances of a model to the constraints of a ball."""

    p: FloatArray
    """e − w."""
    q: FloatArray
    """e + w."""
    rest: float
    """R − Σ e."""


class Ball(Barrier):
    """‖w‖₁ ≤ R as |w_j| ≤ e_j, Σ e_j ≤ R, with x = (e, s, t, τ):

    s (e − w) = t (e + w) = τ (R − Σ e) = β μ,   s + t = τ.
    """

    def __init__(self, width: int, count: int, radius: float, beta: float):
        super().__init__(width)
        self.count = count
        self.radius = radius
        self.beta = beta
        self.weight = beta * (2 * count + 1)

    def inside(self, w: FloatArray) -> FloatArray:
        coefficients = w[: self.count]
        norm = float(np.abs(coefficients).sum())
        most = (1 - barrier.TUNING.depth) * self.radius
        shrink = min(1.0, most / max(norm, 1e-300))
        return np.append(coefficients * shrink, w[self.count :])

    def _tau(self, w: FloatArray, mu: float) -> float:
        """Return τ for which Σ e = R − β μ / τ, where e = (β μ + √((β μ)² + (τ w)²)) / τ is best.

        Newton's method from below.
        """
        m = self.beta * mu
        tau = m * (2 * len(w) + 1) / self.radius
        for _ in range(barrier.TUNING.ball_steps):
            roots = np.sqrt(m * m + (tau * w) ** 2)
            left = m * (len(w) + 1) + float(roots.sum()) - self.radius * tau
            derivative = self.radius - tau * float((w * w / roots).sum())
            enough = 1e-14 * self.radius * tau
            if not left > enough or derivative <= 0:
                break
            tau += left / derivative
        return tau

    def centred(self, w: FloatArray, mu: float) -> FloatArray:
        w = w[: self.count]
        m = self.beta * mu
        tau = self._tau(w, mu)
        e = (m + np.sqrt(m * m + (tau * w) ** 2)) / tau
        # s and t are m / (e ∓ w), where e² − w² = 2 m e / τ
        s = 0.5 * tau * (1 + w / e)
        t = 0.5 * tau * (1 - w / e)
        return np.concatenate([e, s, t, [tau]])

    def value(self, w: FloatArray, mu: float) -> float:
        w = w[: self.count]
        m = self.beta * mu
        norm = float(np.abs(w).sum())
        if norm >= self.radius:
            return math.inf
        tau = self._tau(w, mu)
        e = (m + np.sqrt(m * m + (tau * w) ** 2)) / tau
        products = 2 * m * e / tau
        return logarithms(m, np.append(products, m / tau))

    def _variables(self, x: FloatArray) -> _BallVariables:
        e, s, t = x[:-1].reshape(3, self.count)
        return _BallVariables(e, s, t, float(x[-1]))

    def _distances(self, w: FloatArray, e: FloatArray) -> _BallDistances:
        w = w[: self.count]
        least = EPS * e + TINY
        p = np.maximum(e - w, least)
        q = np.maximum(e + w, least)
        rest = self.radius - float(e.sum())
        rest = max(rest, EPS * self.radius)
        return _BallDistances(p, q, rest)

    def force(self, x: FloatArray) -> FloatArray:
        _, s, t, _ = self._variables(x)
        return padded(s - t, self.width)

    def add_curvature(self, w: FloatArray, x: FloatArray, H: FloatArray) -> None:
        e, s, t, tau = self._variables(x)
        p, q, rest = self._distances(w, e)
        a = s / p
        b = t / q
        both = a + b
        d = self.count
        g = (a - b) / both
        scale = rest / tau + float((1 / both).sum())
        H[:d, :d] += np.outer(g, g) / scale
        diagonal(H)[:d] += 4 * a * (b / both)

    def aims(self, mu: float, w: FloatArray, x: FloatArray, last: Step | None = None) -> FloatArray:
        aims: FloatArray = np.full(2 * self.count + 1, self.beta * mu)
        if last is not None:
            de, ds, dt, dtau = self._variables(last.dx)
            dw = last.dw[: self.count]
            of_s = ds * (de - dw)
            of_t = dt * (de + dw)
            of_tau = -dtau * de.sum()
            aims -= np.concatenate([of_s, of_t, [of_tau]])
        return aims

    def direction(
        self, w: FloatArray, x: FloatArray, dw: FloatArray, aims: FloatArray
    ) -> FloatArray:
        e, s, t, tau = self._variables(x)
        p, q, rest = self._distances(w, e)
        a = s / p
        b = t / q
        both = a + b
        dw = dw[: self.count]
        # s⁺ = c − a (Δe − Δw), t⁺ = f − b (Δe + Δw), τ⁺ = h + (τ/rest) Σ Δe, and s⁺ + t⁺ = τ⁺
        c, f = aims[:-1].reshape(2, self.count)
        h = float(aims[-1]) / rest
        c = c / p
        f = f / q
        r = (c + f - h + (a - b) * dw) / both
        scale = rest / tau + float((1 / both).sum())
        together = float(r.sum()) / scale
        de: FloatArray = r - together / both
        ds = c - s - a * (de - dw)
        dt = f - t - b * (de + dw)
        dtau = h - tau + tau / rest * de.sum()
        return np.concatenate([de, ds, dt, [dtau]])

    def longest(self, w: FloatArray, x: FloatArray, dw: FloatArray, dx: FloatArray) -> float:
        e, s, t, tau = self._variables(x)
        de, ds, dt, dtau = self._variables(dx)
        dw = dw[: self.count]
        p, q, rest = self._distances(w, e)
        scalars = np.array([rest, tau])
        changes = np.array([-de.sum(), dtau])
        return longest((p, de - dw), (q, de + dw), (s, ds), (t, dt), (scalars, changes))

    def products(self, w: FloatArray, x: FloatArray) -> FloatArray:
        e, s, t, tau = self._variables(x)
        p, q, rest = self._distances(w, e)
        return np.concatenate([s * p, t * q, [tau * rest]])
