"""Sample by sample: the interior of max over a ≤ v ≤ b of v r, for a residual r (see `methods/interior_point.py`).

    p = b − v,  q = v − a                the room that v has
    s, t > 0,   r = s − t                what pushes v to b, and to a; on the central path s p = t q = μ

Arrays are changed in place where a docstring says so, and are float64.
"""

from __future__ import annotations

import math
from typing import Any

import numba

TINY = 1e-300


@numba.njit(nogil=True, cache=True, error_model="numpy")
def centre(r: Any, mu: float, lower: Any, upper: Any, v: Any, theta: Any) -> None:
    """v = argmax v r + μ log(b − v) + μ log(v − a), and θ = dv/dr there."""
    for i in range(r.size):
        half = 0.5 * (upper[i] - lower[i])
        root = math.sqrt(mu * mu + (r[i] * half) ** 2)
        v[i] = lower[i] + half + r[i] * half * half / (mu + root)
        # 1/θ = μ/p² + μ/q², where p q = 2μ half²/(μ + root): without the difference b − v, which may be all rounding.
        product = 2.0 * mu * half * half / (mu + root)
        theta[i] = product * product / (mu * (4.0 * half * half - 2.0 * product))


@numba.njit(nogil=True, cache=True, error_model="numpy")
def smoothed(r: Any, change: Any, mu: float, lower: Any, upper: Any, weights: Any, steps: Any, values: Any) -> None:
    """Add Σ_i ω_i max over v of v r' + μ log((b − v)(v − a)) to `values`, for every r' = r + step · change."""
    for i in range(r.size):
        half = 0.5 * (upper[i] - lower[i])
        middle = lower[i] + half
        for k in range(steps.size):
            there = r[i] + steps[k] * change[i]
            root = math.sqrt(mu * mu + (there * half) ** 2)
            v = middle + there * half * half / (mu + root)
            values[k] += weights[i] * (v * there + mu * math.log(2.0 * mu * half * half / (mu + root)))


@numba.njit(nogil=True, cache=True, error_model="numpy")
def pull(r: Any, v: Any, s: Any, t: Any, lower: Any, upper: Any, mu: float, last: Any, aim: Any) -> None:
    """Aim at s p = c and t q = e: for c = μ + Δs Δv and e = μ − Δt Δv of a last move, which make good what it misses.

    The rows of `aim` become c, e, θ = 1/(s/p + t/q), and g = θ (r − c/p + e/q), the change of v for Δr = 0.
    """
    for i in range(r.size):
        aim[0, i], aim[1, i] = mu + last[1, i] * last[0, i], mu - last[2, i] * last[0, i]
    _lead(r, v, s, t, lower, upper, aim)


@numba.njit(nogil=True, cache=True, error_model="numpy")
def recentre(
    r: Any,
    v: Any,
    s: Any,
    t: Any,
    lower: Any,
    upper: Any,
    last: Any,
    step: float,
    least: float,
    most: float,
    before: Any,
    aim: Any,
) -> None:
    """Aim as before, and at products between `least` and `most` after that step of the last move (Gondzio).

    Large products are lowered by `most` at most: they do not shorten steps.
    """
    for i in range(r.size):
        after = v[i] + step * last[0, i]
        high, low = (s[i] + step * last[1, i]) * (upper[i] - after), (t[i] + step * last[2, i]) * (after - lower[i])
        aim[0, i] = before[0, i] + max(min(max(high, least), most) - high, -most)
        aim[1, i] = before[1, i] + max(min(max(low, least), most) - low, -most)
    _lead(r, v, s, t, lower, upper, aim)


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _lead(r: Any, v: Any, s: Any, t: Any, lower: Any, upper: Any, aim: Any) -> None:
    """Write θ and g for the c and e of `aim`."""
    for i in range(r.size):
        p, q = max(upper[i] - v[i], TINY), max(v[i] - lower[i], TINY)
        aim[2, i] = 1.0 / (s[i] / p + t[i] / q)
        aim[3, i] = aim[2, i] * (r[i] - aim[0, i] / p + aim[1, i] / q)


@numba.njit(nogil=True, cache=True, error_model="numpy")
def move(dr: Any, v: Any, s: Any, t: Any, lower: Any, upper: Any, aim: Any, way: Any) -> None:
    """Write Δv, Δs, Δt for a change Δr of the residuals, and how fast each sample nears an edge, to the rows of `way`.

    A sample that is as fast as f reaches its edge after a step of 1/f. There is no sum and no branch in the loop, so
    that compilers make vectors of it: a fourth of the time.
    """
    for i in range(dr.size):
        p, q = max(upper[i] - v[i], TINY), max(v[i] - lower[i], TINY)
        dv = aim[2, i] * dr[i] + aim[3, i]
        up, down = dv / p, dv / q
        ds, dt = aim[0, i] / p - s[i] + s[i] * up, aim[1, i] / q - t[i] - t[i] * down
        way[0, i], way[1, i], way[2, i] = dv, ds, dt
        way[3, i] = max(max(up, -down), max(-ds / s[i], -dt / t[i]))


@numba.njit(nogil=True, cache=True, error_model="numpy")
def quadratic(weights: Any, way: Any) -> float:
    """Σ ω (Δt − Δs) Δv: how Σ ω (s p + t q) changes with the square of the step."""
    total = 0.0
    for i in range(weights.size):
        total += weights[i] * (way[2, i] - way[1, i]) * way[0, i]
    return total


@numba.njit(nogil=True, cache=True, error_model="numpy")
def longest(x: Any, change: Any, most: float) -> float:
    """The largest α ≤ `most` for which x + α Δx ≥ 0."""
    for i in range(x.size):
        if change[i] < 0.0:
            most = min(most, -x[i] / change[i])
    return most


@numba.njit(nogil=True, cache=True, error_model="numpy")
def complementarity(v: Any, s: Any, t: Any, lower: Any, upper: Any, weights: Any) -> float:
    """Σ ω (s p + t q)."""
    total = 0.0
    for i in range(v.size):
        total += weights[i] * (s[i] * (upper[i] - v[i]) + t[i] * (v[i] - lower[i]))
    return total
