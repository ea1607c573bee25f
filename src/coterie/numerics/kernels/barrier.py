"""The interior of max over a ≤ v ≤ b of v r, sample by sample, for a residual r.

`methods/second_order/interior_point.py` has the method that uses it.

    p = b − v,  q = v − a                distances of v to its bounds
    s, t > 0,   r = s − t                multipliers of the bounds b and a; on the central path s p
                = t q = μ

All arrays are float64. A function changes an array only where its docstring says so.
"""

from __future__ import annotations

import math
from typing import Any

from coterie.numerics.kernels.compiled import compiled

TINY = 1e-300


@compiled
def centre(r: Any, mu: float, lower: Any, upper: Any, v: Any, theta: Any) -> None:
    """v = argmax v r + μ log(b − v) + μ log(v − a), and θ = dv/dr there."""
    for i in range(r.size):
        half = 0.5 * (upper[i] - lower[i])
        root = math.sqrt(mu * mu + (r[i] * half) ** 2)
        v[i] = lower[i] + half + r[i] * half * half / (mu + root)
        # 1/θ = μ/p² + μ/q², where p q = 2μ half²/(μ + root): without the difference b − v, which
        # may be all rounding.
        product = 2.0 * mu * half * half / (mu + root)
        theta[i] = product * product / (mu * (4.0 * half * half - 2.0 * product))


@compiled
def smoothed(
    r: Any, change: Any, mu: float, lower: Any, upper: Any, weights: Any, steps: Any, values: Any
) -> None:
    """Add Σ_i ω_i max over v of v r' + μ log((b − v)(v − a)) to `values`, for every r' = r + step ·
    change.
    """
    for i in range(r.size):
        half = 0.5 * (upper[i] - lower[i])
        middle = lower[i] + half
        for k in range(steps.size):
            there = r[i] + steps[k] * change[i]
            root = math.sqrt(mu * mu + (there * half) ** 2)
            v = middle + there * half * half / (mu + root)
            product = 2.0 * mu * half * half / (mu + root)
            values[k] += weights[i] * (v * there + mu * math.log(product))


@compiled
def pull(
    r: Any, v: Any, s: Any, t: Any, lower: Any, upper: Any, mu: float, last: Any, aim: Any
) -> None:
    """Aim at s p = c and t q = e, with c = μ + Δs Δv and e = μ − Δt Δv: the last move leaves out
    these products.

    The rows of `aim` become c, e, θ = 1/(s/p + t/q), and g = θ (r − c/p + e/q), the change of v for
    Δr = 0.
    """
    for i in range(r.size):
        dv = last[0, i]
        aim[0, i] = mu + last[1, i] * dv
        aim[1, i] = mu - last[2, i] * dv
    _lead(r, v, s, t, lower, upper, aim)


@compiled
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
    """Correct the aim so that the products lie between `least` and `most` after a step along the
    last move (Gondzio).

    The correction lowers a product by at most `most`, because large products do not shorten steps.
    """
    for i in range(r.size):
        after = v[i] + step * last[0, i]
        s_after = s[i] + step * last[1, i]
        t_after = t[i] + step * last[2, i]
        high = s_after * (upper[i] - after)
        low = t_after * (after - lower[i])
        high_wanted = min(max(high, least), most)
        low_wanted = min(max(low, least), most)
        aim[0, i] = before[0, i] + max(high_wanted - high, -most)
        aim[1, i] = before[1, i] + max(low_wanted - low, -most)
    _lead(r, v, s, t, lower, upper, aim)


@compiled
def _lead(r: Any, v: Any, s: Any, t: Any, lower: Any, upper: Any, aim: Any) -> None:
    """Write θ and g for the c and e of `aim`."""
    for i in range(r.size):
        p = max(upper[i] - v[i], TINY)
        q = max(v[i] - lower[i], TINY)
        theta = 1.0 / (s[i] / p + t[i] / q)
        aim[2, i] = theta
        aim[3, i] = theta * (r[i] - aim[0, i] / p + aim[1, i] / q)


@compiled
def move(dr: Any, v: Any, s: Any, t: Any, lower: Any, upper: Any, aim: Any, way: Any) -> None:
    """Write Δv, Δs and Δt for a change Δr of the residuals to `way`, and in its last row each
    sample's speed towards a bound.

    A sample of speed f reaches its bound after a step of size 1/f. The loop has no sum and no
    branch, so that the compiler vectorises it, which makes it four times as fast.
    """
    for i in range(dr.size):
        p = max(upper[i] - v[i], TINY)
        q = max(v[i] - lower[i], TINY)
        dv = aim[2, i] * dr[i] + aim[3, i]
        up = dv / p
        down = dv / q
        ds = aim[0, i] / p - s[i] + s[i] * up
        dt = aim[1, i] / q - t[i] - t[i] * down
        way[0, i] = dv
        way[1, i] = ds
        way[2, i] = dt
        speed_of_v = max(up, -down)
        speed_of_multipliers = max(-ds / s[i], -dt / t[i])
        way[3, i] = max(speed_of_v, speed_of_multipliers)


@compiled
def quadratic(weights: Any, way: Any) -> float:
    """Σ ω (Δt − Δs) Δv: the coefficient of step² in Σ ω (s p + t q)."""
    total = 0.0
    for i in range(weights.size):
        total += weights[i] * (way[2, i] - way[1, i]) * way[0, i]
    return total


@compiled
def longest(x: Any, change: Any, most: float) -> float:
    """The largest α ≤ `most` for which x + α Δx ≥ 0."""
    for i in range(x.size):
        if change[i] < 0.0:
            most = min(most, -x[i] / change[i])
    return most


@compiled
def complementarity(v: Any, s: Any, t: Any, lower: Any, upper: Any, weights: Any) -> float:
    """Σ ω (s p + t q)."""
    total = 0.0
    for i in range(v.size):
        p = upper[i] - v[i]
        q = v[i] - lower[i]
        total += weights[i] * (s[i] * p + t[i] * q)
    return total
