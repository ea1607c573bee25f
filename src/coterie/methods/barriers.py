"""The pieces of a penalty inside an interior-point method: one class each, all with the same few verbs.

A barrier stands for g, less its ridge, in g + μ·(logarithms). Its own variables x follow the model w: on the central
path they are a function of (w, μ), and off it they move by Newton's method on the equations of the class.

    force(x)                 what x pulls w by: on the path the slope of the smoothed g
    products(w, x)           what shall become β μ, and 0 at the end
    direction(w, x, Δw, a)   Δx for a change of w, affine in it, so that Δforce = C Δw + force(direction for Δw = 0);
                             `a` is what the equations aim at: the products, and more where x has more equations
    add_curvature(w, x, H)   H ← H + C

`Barrier` itself is that of no penalty at all. All arrays are over w, where an intercept comes last and is free.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from coterie.arrays import FloatArray
from coterie.kernels import barrier as kernel
from coterie.penalties.pieces import Pieces

LEAST_ROOM = 1e-14
"""How far from their bounds duals are at least when the path is reached."""
DEPTH = 0.25
"""Bounds are kept off by this share of their distance at the start, or by the length that is given."""
FAR = 100.0
"""How far from a lonely bound a model may go for nothing, in units of the lengths that are given."""
EPS, TINY = float(np.finfo(float).eps), float(np.finfo(float).tiny)
"""What touches its bound by rounding is a hair's breadth away from it."""
LEAST_PRODUCT = 0.1
"""What the product of a bound is at least after a step, in units of β μ."""
LONGEST = 2.0
BALL_STEPS = 100


class Step(NamedTuple):
    """A direction of the model and the barrier's variables."""

    dw: FloatArray
    dx: FloatArray


class Barrier:
    """No penalty: no variables, no force."""

    weight: float = 0.0
    """What the weighted sum of products is on the central path, in units of μ."""
    beta: float = 1.0
    """What each product is there, in units of μ."""

    def __init__(self, width: int):
        self.width = width
        self.stuck = np.zeros(width, bool)
        """Which entries of w cannot move, or need not."""
        self.tilt: FloatArray = np.zeros(width)
        """A force on w in units of μ, which goes to 0: where g has no growth, logarithms alone have no minimum."""

    def inside(self, w: FloatArray) -> FloatArray:
        """A point near w at which the barrier is finite."""
        return w

    def centred(self, w: FloatArray, mu: float) -> FloatArray:
        """x on the central path."""
        return np.empty(0)

    def value(self, w: FloatArray, mu: float) -> float:
        """The smoothed g, up to a constant; +∞ outside."""
        return 0.0

    def force(self, x: FloatArray) -> FloatArray:
        return np.zeros(self.width)

    def add_curvature(self, w: FloatArray, x: FloatArray, H: FloatArray) -> None:
        pass

    def aims(self, mu: float, w: FloatArray, x: FloatArray, last: Step | None = None) -> FloatArray:
        """What to aim at for that μ; corrected for the second-order term of a last direction (Mehrotra)."""
        return np.empty(0)

    def recentred(
        self, aims: FloatArray, w: FloatArray, x: FloatArray, step: Step, share: float, least: float, most: float
    ) -> FloatArray:
        """Aims that bring products after that share of a step to between `least` and `most` times μ (Gondzio)."""
        after = self.products(w + share * step.dw, x + share * step.dx)
        least, most, aims = self.beta * least, self.beta * most, aims.copy()
        aims[len(aims) - len(after) :] += np.maximum(np.clip(after, least, most) - after, -most)
        return aims

    def direction(self, w: FloatArray, x: FloatArray, dw: FloatArray, aims: FloatArray) -> FloatArray:
        return np.empty(0)

    def longest(self, w: FloatArray, x: FloatArray, dw: FloatArray, dx: FloatArray) -> float:
        """The longest step that stays inside, at most 2: one that ends before is a full step."""
        return LONGEST

    def kept(self, w: FloatArray, x: FloatArray, mu: float) -> FloatArray:
        """x, or what it has to be for no product to be far below β μ: what vanishes early no longer holds w."""
        return x

    def products(self, w: FloatArray, x: FloatArray) -> FloatArray:
        return np.empty(0)

    def complementarity(self, w: FloatArray, x: FloatArray) -> float:
        """The weighted sum of the products."""
        return float(self.products(w, x).sum())


class Intervals(Barrier):
    """λ |w_j| = max over |u_j| ≤ 1 of λ u_j w_j:  w = s − t,  s (1 − u) = t (1 + u) = β μ;  x = (u, s, t)."""

    def __init__(self, width: int, count: int, threshold: float, unit: float):
        super().__init__(width)
        self.count, self.threshold = count, threshold
        self.beta, self.weight = unit / (2 * count * threshold), unit

    def centred(self, w: FloatArray, mu: float) -> FloatArray:
        w, u, theta, one = w[: self.count], np.empty(self.count), np.empty(self.count), np.ones(self.count)
        centre: Any = kernel.centre
        mu = self.beta * mu
        centre(w, mu, -one, one, u, theta)
        u = np.clip(u, LEAST_ROOM - 1, 1 - LEAST_ROOM)
        return np.concatenate([u, mu / (1 - u), mu / (1 + u)])

    def value(self, w: FloatArray, mu: float) -> float:
        w, values, one = w[: self.count], np.zeros(1), np.ones(self.count)
        smoothed: Any = kernel.smoothed
        smoothed(w, np.zeros(self.count), self.beta * mu, -one, one, self.threshold * one, np.ones(1), values)
        return float(values[0])

    def force(self, x: FloatArray) -> FloatArray:
        return _padded(self.threshold * np.split(x, 3)[0], self.width)

    def add_curvature(self, w: FloatArray, x: FloatArray, H: FloatArray) -> None:
        u, s, t = np.split(x, 3)
        p, q = self._rooms(u)
        _diagonal(H)[: self.count] += self.threshold / (s / p + t / q)

    def _rooms(self, u: FloatArray) -> tuple[FloatArray, FloatArray]:
        return np.maximum(1 - u, EPS), np.maximum(1 + u, EPS)

    def aims(self, mu: float, w: FloatArray, x: FloatArray, last: Step | None = None) -> FloatArray:
        du, ds, dt = np.split(last.dx if last else np.zeros(len(x)), 3)
        return np.append(self.beta * mu + ds * du, self.beta * mu - dt * du)

    def direction(self, w: FloatArray, x: FloatArray, dw: FloatArray, aims: FloatArray) -> FloatArray:
        (u, s, t), (c, e) = np.split(x, 3), np.split(aims, 2)
        p, q = self._rooms(u)
        c, e = c / p, e / q
        du = ((w + dw)[: self.count] - c + e) / (s / p + t / q)
        return np.concatenate([du, c - s + s / p * du, e - t - t / q * du])

    def longest(self, w: FloatArray, x: FloatArray, dw: FloatArray, dx: FloatArray) -> float:
        (u, s, t), (du, ds, dt) = np.split(x, 3), np.split(dx, 3)
        return _longest((1 - u, -du), (1 + u, du), (s, ds), (t, dt))

    def products(self, w: FloatArray, x: FloatArray) -> FloatArray:
        u, s, t = np.split(x, 3)
        return np.append(s * (1 - u), t * (1 + u))

    def complementarity(self, w: FloatArray, x: FloatArray) -> float:
        return self.threshold * super().complementarity(w, x)


class Bounds(Barrier):
    """lower ≤ w ≤ upper:  z_k p_k = β μ for every finite bound, p = ±(b − w) the room, force = Σ ± z;  x = z."""

    def __init__(self, width: int, lower: FloatArray, upper: FloatArray, lengths: FloatArray, beta: float):
        super().__init__(width)
        moves, lengths = (lower < upper) & (lengths[: len(lower)] > 0), lengths[: len(lower)]
        self.stuck[: len(moves)] = ~moves
        above, below = (np.flatnonzero(np.isfinite(side) & moves) for side in (upper, lower))
        self.at, self.bound = np.concatenate([above, below]), np.concatenate([upper[above], lower[below]])
        self.sign = np.repeat([1.0, -1.0], [len(above), len(below)])
        self.beta, self.weight = beta, beta * len(self.at)
        # −log p + p / (FAR · length) is least at a finite p
        lonely = self.at[np.bincount(self.at, minlength=width)[self.at] == 1]
        self.tilt[self.at] = -self.beta * self.sign / (FAR * lengths[self.at])
        self.tilt[np.setdiff1d(self.at, lonely)] = 0.0
        room = np.minimum(DEPTH * (upper - lower), lengths)
        self.start = lower + room, upper - room

    def inside(self, w: FloatArray) -> FloatArray:
        d = len(self.start[0])
        return np.append(np.clip(w[:d], *self.start), w[d:])

    def _room(self, w: FloatArray) -> FloatArray:
        room: FloatArray = np.maximum(self.sign * (self.bound - w[self.at]), EPS * np.abs(self.bound) + TINY)
        return room

    def centred(self, w: FloatArray, mu: float) -> FloatArray:
        return self.beta * mu / self._room(w)

    def value(self, w: FloatArray, mu: float) -> float:
        return _logarithms(self.beta * mu, self.sign * (self.bound - w[self.at]))

    def force(self, x: FloatArray) -> FloatArray:
        return _sums(self.at, self.sign * x, self.width)

    def add_curvature(self, w: FloatArray, x: FloatArray, H: FloatArray) -> None:
        _diagonal(H)[:] += _sums(self.at, x / self._room(w), self.width)

    def aims(self, mu: float, w: FloatArray, x: FloatArray, last: Step | None = None) -> FloatArray:
        aims: FloatArray = np.full(len(x), self.beta * mu)
        return aims + self.sign * last.dw[self.at] * last.dx if last else aims

    def direction(self, w: FloatArray, x: FloatArray, dw: FloatArray, aims: FloatArray) -> FloatArray:
        p, dp = self._room(w), -self.sign * dw[self.at]
        # z p + p Δz + z Δp = aim
        change: FloatArray = aims / p - x - x / p * dp
        return change

    def longest(self, w: FloatArray, x: FloatArray, dw: FloatArray, dx: FloatArray) -> float:
        return _longest((self._room(w), -self.sign * dw[self.at]), (x, dx))

    def kept(self, w: FloatArray, x: FloatArray, mu: float) -> FloatArray:
        least: FloatArray = LEAST_PRODUCT * self.beta * mu / self._room(w)
        return np.maximum(x, least)

    def products(self, w: FloatArray, x: FloatArray) -> FloatArray:
        return x * self._room(w)


class Norms(Barrier):
    """λ_G ‖w_G‖ = max over ‖u_G‖ ≤ 1 of λ_G ⟨u, w_G⟩:  w = s_G u,  s_G π_G = β μ,  π = (1 − ‖u_G‖²)/2;  x = (u, s)."""

    def __init__(self, width: int, groups: npt.NDArray[np.intp], strengths: FloatArray, unit: float):
        super().__init__(width)
        self.groups, self.strengths = groups, strengths
        self.beta, self.weight = unit / float(strengths.sum()), unit
        self.count = len(groups)
        self.members = [np.flatnonzero(groups == group) for group in range(len(strengths))]

    def _sums(self, values: FloatArray) -> FloatArray:
        """Σ over the coefficients of every group."""
        return _sums(self.groups, values, len(self.strengths))

    def _multiplier(self, w: FloatArray, mu: float) -> FloatArray:
        # s ‖u‖ = ‖w‖ and s (1 − ‖u‖²) = 2μ
        mu = self.beta * mu
        multiplier: FloatArray = mu + np.sqrt(mu**2 + self._sums(w[: self.count] ** 2))
        return multiplier

    def centred(self, w: FloatArray, mu: float) -> FloatArray:
        s = self._multiplier(w, mu)
        return np.append(w[: self.count] / s[self.groups], s)

    def value(self, w: FloatArray, mu: float) -> float:
        s, m = self._multiplier(w, mu), self.beta * mu
        return float(self.strengths @ (self._sums(w[: self.count] ** 2) / s + m * np.log(2 * m / s)))

    def force(self, x: FloatArray) -> FloatArray:
        return _padded(self.strengths[self.groups] * x[: self.count], self.width)

    def add_curvature(self, w: FloatArray, x: FloatArray, H: FloatArray) -> None:
        # C = λ/s (I − u uᵀ / (π + ‖u‖²)) in every group
        u, s = np.split(x, [self.count])
        scale = self.strengths / s
        for group, at in enumerate(self.members):
            direction = u[at] / math.sqrt(0.5 * (1 + u[at] @ u[at]))
            H[np.ix_(at, at)] -= scale[group] * np.outer(direction, direction)
        _diagonal(H)[: self.count] += scale[self.groups]

    def aims(self, mu: float, w: FloatArray, x: FloatArray, last: Step | None = None) -> FloatArray:
        """What s u shall be less than w, and s π."""
        u, s = np.split(x, [self.count])
        du, ds = np.split(last.dx if last else np.zeros(len(x)), [self.count])
        return np.append(ds[self.groups] * du, self.beta * mu + 0.5 * s * self._sums(du * du) + ds * self._sums(u * du))

    def direction(self, w: FloatArray, x: FloatArray, dw: FloatArray, aims: FloatArray) -> FloatArray:
        (u, s), (less, product) = np.split(x, [self.count]), np.split(aims, [self.count])
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
        (u, s), (du, ds) = np.split(x, [self.count]), np.split(dx, [self.count])
        # ‖u + α Δu‖ = 1
        a, b, c = self._sums(du * du), self._sums(u * du), 2 * self._pi(u)
        root = np.sqrt(b * b + a * c)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(b > 0, c / (b + root), (root - b) / a)
        return min(_longest((s, ds)), float(np.nanmin(share, initial=LONGEST)))

    def products(self, w: FloatArray, x: FloatArray) -> FloatArray:
        u, s = np.split(x, [self.count])
        return s * self._pi(u)

    def complementarity(self, w: FloatArray, x: FloatArray) -> float:
        return float(self.strengths @ self.products(w, x))


class Ball(Barrier):
    """‖w‖₁ ≤ R as |w_j| ≤ e_j, Σ e_j ≤ R:  s (e − w) = t (e + w) = τ (R − Σ e) = β μ,  s + t = τ;  x = (e, s, t, τ)."""

    def __init__(self, width: int, count: int, radius: float, beta: float):
        super().__init__(width)
        self.count, self.radius, self.beta, self.weight = count, radius, beta, beta * (2 * count + 1)

    def inside(self, w: FloatArray) -> FloatArray:
        size = float(np.abs(w[: self.count]).sum())
        return np.append(w[: self.count] * min(1.0, (1 - DEPTH) * self.radius / max(size, 1e-300)), w[self.count :])

    def _tau(self, w: FloatArray, mu: float) -> float:
        """τ for which Σ e = R − β μ / τ, where e = (β μ + √((β μ)² + (τ w)²)) / τ is best: Newton, from below."""
        m = self.beta * mu
        tau = m * (2 * len(w) + 1) / self.radius
        for _ in range(BALL_STEPS):
            roots = np.sqrt(m * m + (tau * w) ** 2)
            left = m * (len(w) + 1) + float(roots.sum()) - self.radius * tau
            slope = self.radius - tau * float((w * w / roots).sum())
            if not left > 1e-14 * self.radius * tau or slope <= 0:
                break
            tau += left / slope
        return tau

    def centred(self, w: FloatArray, mu: float) -> FloatArray:
        w, m = w[: self.count], self.beta * mu
        tau = self._tau(w, mu)
        e = (m + np.sqrt(m * m + (tau * w) ** 2)) / tau
        # s and t are m / (e ∓ w), where e² − w² = 2 m e / τ
        return np.concatenate([e, 0.5 * tau * (1 + w / e), 0.5 * tau * (1 - w / e), [tau]])

    def value(self, w: FloatArray, mu: float) -> float:
        w, m = w[: self.count], self.beta * mu
        if float(np.abs(w).sum()) >= self.radius:
            return math.inf
        tau = self._tau(w, mu)
        e = (m + np.sqrt(m * m + (tau * w) ** 2)) / tau
        return _logarithms(m, np.append(2 * m * e / tau, m / tau))

    def _split(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, float]:
        e, s, t = np.split(x[:-1], 3)
        return e, s, t, float(x[-1])

    def _rooms(self, w: FloatArray, e: FloatArray) -> tuple[FloatArray, FloatArray, float]:
        w, least = w[: self.count], EPS * e + TINY
        return np.maximum(e - w, least), np.maximum(e + w, least), max(self.radius - float(e.sum()), EPS * self.radius)

    def force(self, x: FloatArray) -> FloatArray:
        _, s, t, _ = self._split(x)
        return _padded(s - t, self.width)

    def add_curvature(self, w: FloatArray, x: FloatArray, H: FloatArray) -> None:
        e, s, t, tau = self._split(x)
        p, q, rest = self._rooms(w, e)
        a, b, d = s / p, t / q, self.count
        g = (a - b) / (a + b)
        H[:d, :d] += np.outer(g, g) / (rest / tau + float((1 / (a + b)).sum()))
        _diagonal(H)[:d] += 4 * a * (b / (a + b))

    def aims(self, mu: float, w: FloatArray, x: FloatArray, last: Step | None = None) -> FloatArray:
        aims: FloatArray = np.full(2 * self.count + 1, self.beta * mu)
        if last is not None:
            (de, ds, dt, dtau), dw = self._split(last.dx), last.dw[: self.count]
            aims -= np.concatenate([ds * (de - dw), dt * (de + dw), [-dtau * de.sum()]])
        return aims

    def direction(self, w: FloatArray, x: FloatArray, dw: FloatArray, aims: FloatArray) -> FloatArray:
        e, s, t, tau = self._split(x)
        p, q, rest = self._rooms(w, e)
        a, b, dw = s / p, t / q, dw[: self.count]
        # s⁺ = c − a (Δe − Δw), t⁺ = f − b (Δe + Δw), τ⁺ = h + (τ/rest) Σ Δe, and s⁺ + t⁺ = τ⁺
        (c, f), h = np.split(aims[:-1], 2), float(aims[-1]) / rest
        c, f = c / p, f / q
        r = (c + f - h + (a - b) * dw) / (a + b)
        together = float(r.sum()) / (rest / tau + float((1 / (a + b)).sum()))
        de: FloatArray = r - together / (a + b)
        return np.concatenate([de, c - s - a * (de - dw), f - t - b * (de + dw), [h - tau + tau / rest * de.sum()]])

    def longest(self, w: FloatArray, x: FloatArray, dw: FloatArray, dx: FloatArray) -> float:
        (e, s, t, tau), (de, ds, dt, dtau), dw = self._split(x), self._split(dx), dw[: self.count]
        p, q, rest = self._rooms(w, e)
        ends = np.array([rest, tau]), np.array([-de.sum(), dtau])
        return _longest((p, de - dw), (q, de + dw), (s, ds), (t, dt), ends)

    def products(self, w: FloatArray, x: FloatArray) -> FloatArray:
        e, s, t, tau = self._split(x)
        p, q, rest = self._rooms(w, e)
        return np.concatenate([s * p, t * q, [tau * rest]])


def barrier_of(pieces: Pieces, width: int, count: int, unit: float, lengths: FloatArray) -> Barrier:
    """That of those pieces, of one kind at most, for `count` coefficients among the `width` entries of w.

    Its products weigh `unit` together, whatever the strength. The way from a lonely bound to a model has no scale of
    its own: `lengths` are steps on the model's, and 0 for coefficients that do not matter.
    """
    match pieces.kinds:
        case []:
            return Barrier(width)
        case ["l1"]:
            return Intervals(width, count, pieces.threshold, unit)
        case ["bounds"]:
            lower, upper = (np.broadcast_to(side, count).astype(float) for side in (pieces.lower, pieces.upper))
            return Bounds(width, lower, upper, lengths, unit / max(2 * count, 1))
        case ["groups"] if pieces.groups is not None and pieces.strengths is not None:
            return Norms(width, pieces.groups, pieces.strengths, unit)
        case ["ball"]:
            return Ball(width, count, pieces.radius, unit / (2 * count + 1))
    raise NotImplementedError(f"several barriers at once: {pieces.kinds}")


def _padded(values: FloatArray, width: int) -> FloatArray:
    """Those values and then zeros: an intercept feels nothing."""
    full = np.zeros(width)
    full[: len(values)] = values
    return full


def _sums(places: npt.NDArray[np.intp], values: FloatArray, count: int) -> FloatArray:
    """What is said for every place, added up; 0 where nothing is."""
    sums: FloatArray = np.bincount(places, values, count).astype(float)
    return sums


def _diagonal(H: FloatArray) -> FloatArray:
    view: FloatArray = H.reshape(-1)[:: len(H) + 1]
    return view


def _logarithms(mu: float, rooms: FloatArray) -> float:
    return -mu * float(np.log(rooms).sum()) if (rooms > 0).all() else math.inf


def _longest(*pairs: tuple[FloatArray, FloatArray]) -> float:
    """The largest α ≤ 2 for which x + α Δx ≥ 0 in all of those pairs."""
    shares = [np.min(x[dx < 0] / -dx[dx < 0], initial=LONGEST) for x, dx in pairs]
    return float(min(shares))
