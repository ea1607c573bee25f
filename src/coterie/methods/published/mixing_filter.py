"""The pipeline's filter of diffusion learning: which polynomial of the mixing matrix A it is, and
the step it bears.

`diffusion.py` says why the polynomial should be nowhere negative on the spectrum of A.
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
        "The pipeline leaves at most this share of a disagreement.",
        "measured: docs/papers/003.md",
        below=1,
    )
    longest: int = tuned(1000, 'The longest pipeline that "auto" takes.')


TUNING = _Tuning()


def spectrum_of(agent: Agent, rule: str | FloatArray) -> Protocol[FloatArray]:
    """All eigenvalues of A but the largest, 1: each agent learns its row of A from its neighbours,
    then all rows.
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
    """α_j, β_j, γ_j by age, and τ, of the polynomial that the pipeline applies."""
    for J in range(1, TUNING.longest) if length == "auto" else (length,):
        power = power_filter(J)
        smooth = chebyshev_filter(spectrum, J)
        if chebyshev == "auto":
            left = response(*power, spectrum)
            right = response(*smooth, spectrum)
            good = left.min(initial=0.0) >= 0.0 and left.max(initial=0.0) <= right.max(initial=0.0)
            if good:
                chosen = power
            else:
                chosen = smooth
        else:
            if chebyshev:
                chosen = smooth
            else:
                chosen = power
        if np.abs(response(*chosen, spectrum)).max(initial=0.0) <= TUNING.leftover:
            break
    return chosen


def power_filter(J: int) -> tuple[FloatArray, float]:
    """p(A) = A^J."""
    filters = np.zeros((3, J))
    filters[0] = 1.0
    return filters, 1.0


def chebyshev_filter(spectrum: FloatArray, J: int) -> tuple[FloatArray, float]:
    """p(A) = (1 + T_J(Â)) / (1 + T_J(x̂(1))), Â = (2A − (λ_min + λ₂) I) / (λ₂ − λ_min).

    The three-term recurrence of T_j(Â) / T_j(x̂(1)), with T_j(x̂(1)) / T_{j+1}(x̂(1)) = g h_j, g =
    1 / x̂(1): nothing is divided by λ₂ − λ_min, and nothing overflows.
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
    filters[:, 0] = 2.0 / scale, -(low + high) / scale, 0.0
    for j in range(1, J):
        previous = h
        h = 1.0 / (2.0 - g * g * h)
        filters[:, j] = 4.0 * h / scale, -2.0 * (low + high) * h / scale, -g * g * previous * h
        inverse *= g * h
    return filters, 1.0 / (1.0 + inverse)


def response(filters: FloatArray, tau: float, spectrum: FloatArray) -> FloatArray:
    """p at those eigenvalues: what the pipeline leaves of each mode of disagreement."""
    z = np.ones_like(spectrum)
    older = np.zeros_like(spectrum)
    for alpha, beta, gamma in filters.T:
        z, older = alpha * spectrum * z + beta * z + gamma * older, z
    p = tau * z + (1.0 - tau)
    return np.where(np.abs(p) < ROUNDING, 0.0, p)


def safe_step(row: float, blocks: FloatArray, n: int, B: int, J: int, least: float) -> float:
    """μ from bounds on the curvature: of one sample (`row`), and of the mean loss in each agent's
    columns (`blocks`).

    The least of three: half of 1/L for a batch, L = L_row / B + (1 − 1/B) L_mean; 1 / ((J − 1)
    L_mean), because a gradient comes J − 1 iterations late (two thirds of where that alone gets
    unstable); and where the filter has a negative value p, the step below which the memory is
    stable whatever h is, (1 − p) / ((N/B) κ |p|).
    """
    mean = float(blocks.sum())
    batch = row / B + (1.0 - 1.0 / B) * mean
    driven = (n / B) * len(blocks) * float(blocks.max()) * -least / (1.0 - least)
    return 1.0 / max(2.0 * batch, (J - 1) * mean, driven)
