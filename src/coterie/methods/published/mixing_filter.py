"""The filter of the pipeline of diffusion learning, a polynomial of the mixing matrix A, and the
step size that it allows.

`diffusion.py` explains why the polynomial should be nowhere negative on the spectrum of A.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from coterie.numerics.arrays import FloatArray
from coterie.numerics.tuning import Tuning, tuned
from coterie.run.agent import Agent
from coterie.run.collectives import Mix, Protocol, Sum

ROUNDING = 1e-6
"""An eigenvalue closer to 0 than this, in either precision, is 0."""


@dataclass(frozen=True)
class _Tuning(Tuning):
    leftover: float = tuned(
        0.05,
        "The share of a disagreement that the pipeline may leave.",
        "measured: docs/papers/003.md",
        below=1,
    )
    longest: int = tuned(1000, 'The longest pipeline that "auto" takes.')


TUNING = _Tuning()


def spectrum_of(agent: Agent, rule: str | FloatArray) -> Protocol[FloatArray]:
    """Return all eigenvalues of A but the largest, 1. Each agent receives its row of A from its
    neighbours, and then all rows.
    """
    row = yield Mix(agent.one_hot(1.0).astype(agent.design.dtype), rule)
    own = np.zeros((agent.count, agent.count))
    own[agent.index] = row
    rows = yield Sum(own)
    eigenvalues: FloatArray = np.linalg.eigvalsh((rows + rows.T) / 2)[:-1]
    return np.where(np.abs(eigenvalues) < ROUNDING, 0.0, eigenvalues)


def mixing_filter(
    spectrum: FloatArray, length: int | Literal["auto"], chebyshev: bool | Literal["auto"]
) -> tuple[FloatArray, float]:
    """Return α_j, β_j, γ_j by age, and τ, of the polynomial that the pipeline applies."""
    if length == "auto":
        lengths = range(1, TUNING.longest)
    else:
        lengths = range(length, length + 1)
    for J in lengths:
        chosen = _filter(spectrum, J, chebyshev)
        left = np.abs(response(*chosen, spectrum))
        if left.max(initial=0.0) <= TUNING.leftover:
            break
    return chosen


def _filter(
    spectrum: FloatArray, J: int, chebyshev: bool | Literal["auto"]
) -> tuple[FloatArray, float]:
    """Return A^J or Chebyshev's polynomial; "auto": A^J if it leaves no more and is nowhere
    negative.
    """
    power = power_filter(J)
    smooth = chebyshev_filter(spectrum, J)
    if chebyshev == "auto":
        of_power = response(*power, spectrum)
        of_smooth = response(*smooth, spectrum)
        is_positive = of_power.min(initial=0.0) >= 0.0
        chebyshev = not (is_positive and of_power.max(initial=0.0) <= of_smooth.max(initial=0.0))
    if chebyshev:
        return smooth
    return power


def power_filter(J: int) -> tuple[FloatArray, float]:
    """Return the filter of p(A) = A^J."""
    filters = np.zeros((3, J))
    filters[0] = 1.0
    return filters, 1.0


def chebyshev_filter(spectrum: FloatArray, J: int) -> tuple[FloatArray, float]:
    """Return the filter of p(A) = (1 + T_J(Â)) / (1 + T_J(x̂(1))), where
    Â = (2A − (λ_min + λ₂) I) / (λ₂ − λ_min).

    It uses the three-term recurrence of T_j(Â) / T_j(x̂(1)), with
    T_j(x̂(1)) / T_{j+1}(x̂(1)) = g h_j and g = 1 / x̂(1). So no number is divided by λ₂ − λ_min, and
    no number overflows.
    """
    if spectrum.size:
        low = float(spectrum.min())
        high = float(spectrum.max())
    else:
        low = 0.0
        high = 0.0
    scale = 2.0 - low - high
    g = (high - low) / (2.0 - low - high)
    filters = np.zeros((3, J))
    h = 1.0
    inverse = g
    filters[0, 0] = 2.0 / scale
    filters[1, 0] = -(low + high) / scale
    for j in range(1, J):
        previous = h
        h = 1.0 / (2.0 - g * g * h)
        filters[0, j] = 4.0 * h / scale
        filters[1, j] = -2.0 * (low + high) * h / scale
        filters[2, j] = -g * g * previous * h
        inverse *= g * h
    return filters, 1.0 / (1.0 + inverse)


def response(filters: FloatArray, tau: float, spectrum: FloatArray) -> FloatArray:
    """Return p at those eigenvalues: the share that the pipeline leaves of each mode of
    disagreement.
    """
    z = np.ones_like(spectrum)
    older = np.zeros_like(spectrum)
    for alpha, beta, gamma in filters.T:
        before = z
        z = alpha * spectrum * z + beta * z + gamma * older
        older = before
    p = tau * z + (1.0 - tau)
    return np.where(np.abs(p) < ROUNDING, 0.0, p)


def safe_step(row: float, blocks: FloatArray, n: int, B: int, J: int, least: float) -> float:
    """Return μ from bounds on the curvature: of one sample (`row`), and of the mean loss in the
    columns of each agent (`blocks`).

    It is the least of three step sizes. The first is half of 1/L for a batch,
    L = L_row / B + (1 − 1/B) L_mean. The second is 1 / ((J − 1) L_mean), because a gradient is used
    J − 1 iterations late: two thirds of the limit of stability from this delay alone. The third
    applies where the filter has a negative value p: below (1 − p) / ((N/B) κ |p|), the memory is
    stable for every h.
    """
    mean = float(blocks.sum())
    batch = row / B + (1.0 - 1.0 / B) * mean
    driven = (n / B) * len(blocks) * float(blocks.max()) * -least / (1.0 - least)
    return 1.0 / max(2.0 * batch, (J - 1) * mean, driven)
