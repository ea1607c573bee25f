"""Non-smooth losses, smoothed by a clipped line: ℓ(r) = max over a ≤ v ≤ b of v r.

    ℓ_ε(r) = max over a ≤ v ≤ b of v r − ε (v − v̄)²/2         v̄: the centre, ε: the width
    v(r)   = clip(v̄ + r/ε, a, b)                              its derivative

`methods/second_order/semismooth.py` has the method that uses it. All arrays are float64.
"""

from __future__ import annotations

from typing import Any

from coterie.numerics.kernels.compiled import compiled


@compiled
def clip_line(
    r: Any,
    centre: Any,
    width: float,
    lower: Any,
    upper: Any,
    weights: Any,
    v: Any,
    inside: Any,
    sums: Any,
) -> None:
    """Write v(r), and where it is not clipped the weight of the row to `inside`, else 0.

    Write Σ s ℓ_ε, Σ s (ℓ − v r), Σ s v r, and the number of rows that are not clipped to `sums`.
    """
    squares = 0.0
    missing = 0.0
    linear = 0.0
    count = 0.0
    inverse = 1.0 / width
    for i in range(r.size):
        low = lower[i]
        high = upper[i]
        residual = r[i]
        weight = weights[i]
        value = centre[i] + residual * inverse
        if value <= low:
            value = low
            inside[i] = 0.0
        elif value >= high:
            value = high
            inside[i] = 0.0
        else:
            inside[i] = weight
            count += 1.0
        v[i] = value
        bound = high if residual > 0.0 else low
        missing += weight * (bound - value) * residual
        linear += weight * value * residual
        squares += weight * (value - centre[i]) ** 2
    sums[0] = linear - 0.5 * width * squares
    sums[1] = missing
    sums[2] = linear
    sums[3] = count


@compiled
def clip_lines(
    r: Any,
    centre: Any,
    width: float,
    lower: Any,
    upper: Any,
    weights: Any,
    v: Any,
    inside: Any,
    sums: Any,
) -> None:
    """Call `clip_line` for each agent of a batch: the rows of these arrays."""
    for k in range(r.shape[0]):
        clip_line(
            r[k],
            centre[k],
            width,
            lower[k],
            upper[k],
            weights[k],
            v[k],
            inside[k],
            sums[k],
        )


@compiled
def slopes_along(
    r: Any,
    change: Any,
    centre: Any,
    width: float,
    lower: Any,
    upper: Any,
    weights: Any,
    step_sizes: Any,
    slopes: Any,
) -> None:
    """Write Σ s v(r + t Δr) Δr to `slopes`, for each step size t."""
    inverse = 1.0 / width
    for j in range(step_sizes.size):
        step_size = step_sizes[j] * inverse
        total = 0.0
        for i in range(r.size):
            line = centre[i] + r[i] * inverse + step_size * change[i]
            value = min(max(line, lower[i]), upper[i])
            total += weights[i] * value * change[i]
        slopes[j] = total


@compiled
def slopes_along_lines(
    r: Any,
    change: Any,
    centre: Any,
    width: float,
    lower: Any,
    upper: Any,
    weights: Any,
    step_sizes: Any,
    slopes: Any,
) -> None:
    """Call `slopes_along` for each agent of a batch: the rows of these arrays."""
    for k in range(r.shape[0]):
        slopes_along(
            r[k],
            change[k],
            centre[k],
            width,
            lower[k],
            upper[k],
            weights[k],
            step_sizes,
            slopes[k],
        )
