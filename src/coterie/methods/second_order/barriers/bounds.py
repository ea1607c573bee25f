"""Barriers of what is allowed: models between bounds, or in a ball; x holds the multipliers."""

from __future__ import annotations

import math

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
    """lower ≤ w ≤ upper:  z_k p_k = β μ for every finite bound, p = ±(b − w) the room, force = Σ ±
    z;  x = z.
    """

    def __init__(
        self, width: int, lower: FloatArray, upper: FloatArray, lengths: FloatArray, beta: float
    ):
        super().__init__(width)
        moves = (lower < upper) & (lengths[: len(lower)] > 0)
        lengths = lengths[: len(lower)]
        self.stuck[: len(moves)] = ~moves
        above, below = (np.flatnonzero(np.isfinite(side) & moves) for side in (upper, lower))
        self.at = np.concatenate([above, below])
        self.bound = np.concatenate([upper[above], lower[below]])
        self.sign = np.repeat([1.0, -1.0], [len(above), len(below)])
        self.weight = beta * len(self.at)
        self.beta = beta
        # −log p + p / (barrier.TUNING.far · length) is least at a finite p
        lonely = self.at[np.bincount(self.at, minlength=width)[self.at] == 1]
        self.tilt[self.at] = -self.beta * self.sign / (barrier.TUNING.far * lengths[self.at])
        self.tilt[np.setdiff1d(self.at, lonely)] = 0.0
        room = np.minimum(barrier.TUNING.depth * (upper - lower), lengths)
        self.start = lower + room, upper - room

    def inside(self, w: FloatArray) -> FloatArray:
        d = len(self.start[0])
        return np.append(np.clip(w[:d], *self.start), w[d:])

    def _room(self, w: FloatArray) -> FloatArray:
        room: FloatArray = np.maximum(
            self.sign * (self.bound - w[self.at]), EPS * np.abs(self.bound) + TINY
        )
        return room

    def centred(self, w: FloatArray, mu: float) -> FloatArray:
        return self.beta * mu / self._room(w)

    def value(self, w: FloatArray, mu: float) -> float:
        return logarithms(self.beta * mu, self.sign * (self.bound - w[self.at]))

    def force(self, x: FloatArray) -> FloatArray:
        return sums(self.at, self.sign * x, self.width)

    def add_curvature(self, w: FloatArray, x: FloatArray, H: FloatArray) -> None:
        diagonal(H)[:] += sums(self.at, x / self._room(w), self.width)

    def aims(self, mu: float, w: FloatArray, x: FloatArray, last: Step | None = None) -> FloatArray:
        aims: FloatArray = np.full(len(x), self.beta * mu)
        if last:
            aims += self.sign * last.dw[self.at] * last.dx
        return aims

    def direction(
        self, w: FloatArray, x: FloatArray, dw: FloatArray, aims: FloatArray
    ) -> FloatArray:
        p = self._room(w)
        dp = -self.sign * dw[self.at]
        # z p + p Δz + z Δp = aim
        change: FloatArray = aims / p - x - x / p * dp
        return change

    def longest(self, w: FloatArray, x: FloatArray, dw: FloatArray, dx: FloatArray) -> float:
        return longest((self._room(w), -self.sign * dw[self.at]), (x, dx))

    def kept(self, w: FloatArray, x: FloatArray, mu: float) -> FloatArray:
        least: FloatArray = barrier.TUNING.least_product * self.beta * mu / self._room(w)
        return np.maximum(x, least)

    def products(self, w: FloatArray, x: FloatArray) -> FloatArray:
        return x * self._room(w)


class Ball(Barrier):
    """‖w‖₁ ≤ R as |w_j| ≤ e_j, Σ e_j ≤ R:  s (e − w) = t (e + w) = τ (R − Σ e) = β μ,  s + t = τ;
    x = (e, s, t, τ).
    """

    def __init__(self, width: int, count: int, radius: float, beta: float):
        super().__init__(width)
        self.count = count
        self.radius = radius
        self.beta = beta
        self.weight = beta * (2 * count + 1)

    def inside(self, w: FloatArray) -> FloatArray:
        size = float(np.abs(w[: self.count]).sum())
        return np.append(
            w[: self.count]
            * min(1.0, (1 - barrier.TUNING.depth) * self.radius / max(size, 1e-300)),
            w[self.count :],
        )

    def _tau(self, w: FloatArray, mu: float) -> float:
        """τ for which Σ e = R − β μ / τ, where e = (β μ + √((β μ)² + (τ w)²)) / τ is best: Newton,
        from below.
        """
        m = self.beta * mu
        tau = m * (2 * len(w) + 1) / self.radius
        for _ in range(barrier.TUNING.ball_steps):
            roots = np.sqrt(m * m + (tau * w) ** 2)
            left = m * (len(w) + 1) + float(roots.sum()) - self.radius * tau
            slope = self.radius - tau * float((w * w / roots).sum())
            if not left > 1e-14 * self.radius * tau or slope <= 0:
                break
            tau += left / slope
        return tau

    def centred(self, w: FloatArray, mu: float) -> FloatArray:
        w = w[: self.count]
        m = self.beta * mu
        tau = self._tau(w, mu)
        e = (m + np.sqrt(m * m + (tau * w) ** 2)) / tau
        # s and t are m / (e ∓ w), where e² − w² = 2 m e / τ
        return np.concatenate([e, 0.5 * tau * (1 + w / e), 0.5 * tau * (1 - w / e), [tau]])

    def value(self, w: FloatArray, mu: float) -> float:
        w = w[: self.count]
        m = self.beta * mu
        if float(np.abs(w).sum()) >= self.radius:
            return math.inf
        tau = self._tau(w, mu)
        e = (m + np.sqrt(m * m + (tau * w) ** 2)) / tau
        return logarithms(m, np.append(2 * m * e / tau, m / tau))

    def _split(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, float]:
        e, s, t = x[:-1].reshape(3, self.count)
        return e, s, t, float(x[-1])

    def _rooms(self, w: FloatArray, e: FloatArray) -> tuple[FloatArray, FloatArray, float]:
        w = w[: self.count]
        least = EPS * e + TINY
        return (
            np.maximum(e - w, least),
            np.maximum(e + w, least),
            max(self.radius - float(e.sum()), EPS * self.radius),
        )

    def force(self, x: FloatArray) -> FloatArray:
        _, s, t, _ = self._split(x)
        return padded(s - t, self.width)

    def add_curvature(self, w: FloatArray, x: FloatArray, H: FloatArray) -> None:
        e, s, t, tau = self._split(x)
        p, q, rest = self._rooms(w, e)
        a = s / p
        b = t / q
        d = self.count
        g = (a - b) / (a + b)
        H[:d, :d] += np.outer(g, g) / (rest / tau + float((1 / (a + b)).sum()))
        diagonal(H)[:d] += 4 * a * (b / (a + b))

    def aims(self, mu: float, w: FloatArray, x: FloatArray, last: Step | None = None) -> FloatArray:
        aims: FloatArray = np.full(2 * self.count + 1, self.beta * mu)
        if last is not None:
            de, ds, dt, dtau = self._split(last.dx)
            dw = last.dw[: self.count]
            aims -= np.concatenate([ds * (de - dw), dt * (de + dw), [-dtau * de.sum()]])
        return aims

    def direction(
        self, w: FloatArray, x: FloatArray, dw: FloatArray, aims: FloatArray
    ) -> FloatArray:
        e, s, t, tau = self._split(x)
        p, q, rest = self._rooms(w, e)
        a = s / p
        b = t / q
        dw = dw[: self.count]
        # s⁺ = c − a (Δe − Δw), t⁺ = f − b (Δe + Δw), τ⁺ = h + (τ/rest) Σ Δe, and s⁺ + t⁺ = τ⁺
        c, f = aims[:-1].reshape(2, self.count)
        h = float(aims[-1]) / rest
        c = c / p
        f = f / q
        r = (c + f - h + (a - b) * dw) / (a + b)
        together = float(r.sum()) / (rest / tau + float((1 / (a + b)).sum()))
        de: FloatArray = r - together / (a + b)
        return np.concatenate(
            [de, c - s - a * (de - dw), f - t - b * (de + dw), [h - tau + tau / rest * de.sum()]]
        )

    def longest(self, w: FloatArray, x: FloatArray, dw: FloatArray, dx: FloatArray) -> float:
        e, s, t, tau = self._split(x)
        de, ds, dt, dtau = self._split(dx)
        dw = dw[: self.count]
        p, q, rest = self._rooms(w, e)
        ends = np.array([rest, tau]), np.array([-de.sum(), dtau])
        return longest((p, de - dw), (q, de + dw), (s, ds), (t, dt), ends)

    def products(self, w: FloatArray, x: FloatArray) -> FloatArray:
        e, s, t, tau = self._split(x)
        p, q, rest = self._rooms(w, e)
        return np.concatenate([s * p, t * q, [tau * rest]])
