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
def pull(r: Any, v: Any, s: Any, t: Any, lower: Any, upper: Any, c: Any, e: Any, theta: Any, g: Any) -> None:
    """θ = 1/(s/p + t/q) and g = θ (r − c/p + e/q): for Δr = 0, the change of v that leads to s p = c and t q = e."""
    for i in range(r.size):
        p, q = max(upper[i] - v[i], TINY), max(v[i] - lower[i], TINY)
        theta[i] = 1.0 / (s[i] / p + t[i] / q)
        g[i] = theta[i] * (r[i] - c[i] / p + e[i] / q)


@numba.njit(nogil=True, cache=True, error_model="numpy")
def move(
    dr: Any,
    v: Any,
    s: Any,
    t: Any,
    lower: Any,
    upper: Any,
    weights: Any,
    c: Any,
    e: Any,
    theta: Any,
    g: Any,
    dv: Any,
    ds: Any,
    dt: Any,
) -> tuple[float, float, float]:
    """Write the directions Δv, Δs, Δt that belong to a change Δr of the residuals; a term of weight 0 stays.

    Returns the longest step that stays inside, at most 2, and the linear and quadratic change of Σ ω (s p + t q).
    """
    longest, linear, quadratic = 2.0, 0.0, 0.0
    for i in range(dr.size):
        if weights[i] == 0.0:
            dv[i] = ds[i] = dt[i] = 0.0
            continue
        p, q = max(upper[i] - v[i], TINY), max(v[i] - lower[i], TINY)
        dv[i] = theta[i] * dr[i] + g[i]
        ds[i] = c[i] / p - s[i] + s[i] / p * dv[i]
        dt[i] = e[i] / q - t[i] - t[i] / q * dv[i]
        if dv[i] > 0.0:
            longest = min(longest, p / dv[i])
        elif dv[i] < 0.0:
            longest = min(longest, -q / dv[i])
        if ds[i] < 0.0:
            longest = min(longest, -s[i] / ds[i])
        if dt[i] < 0.0:
            longest = min(longest, -t[i] / dt[i])
        linear += weights[i] * (ds[i] * p - s[i] * dv[i] + dt[i] * q + t[i] * dv[i])
        quadratic += weights[i] * (dt[i] - ds[i]) * dv[i]
    return longest, linear, quadratic


@numba.njit(nogil=True, cache=True, error_model="numpy")
def recentre(
    v: Any,
    s: Any,
    t: Any,
    lower: Any,
    upper: Any,
    dv: Any,
    ds: Any,
    dt: Any,
    step: float,
    least: float,
    most: float,
    c: Any,
    e: Any,
) -> None:
    """Add to c and e what brings the products s p and t q after that step to between `least` and `most` (Gondzio).

    Large products are lowered by `most` at most: they do not shorten steps.
    """
    for i in range(v.size):
        after = v[i] + step * dv[i]
        high, low = (s[i] + step * ds[i]) * (upper[i] - after), (t[i] + step * dt[i]) * (after - lower[i])
        c[i] += max(min(max(high, least), most) - high, -most)
        e[i] += max(min(max(low, least), most) - low, -most)
