"""Coordinate ascent on one agent's dual block:

    min over v of  Σ_i s_i ℓ*(v_i; y_i) + (c/2) ‖Xᵀ(s∘(v − v⁰))‖² − ⟨s∘v, X w⟩

with z = w − c Xᵀ(s∘(v − v⁰)) kept up to date, so that the best v_i for the others fixed is

    v_i ← prox_{ℓ*/κ_i}(v_i + x_iᵀz / κ_i),   κ_i = c s_i ‖x_i‖².

The conjugates of the catalogue are (a/2)v² + y v on an interval, or the logistic entropy; rows are dense or CSR.
Coordinates that rest at a bound are passed over for a few epochs.

With an intercept, the rows are (x_i − m, u), never stored (see `CentredDesign`). Kept up to date are a, τ and β, which
a step σ = c s_i (v_i⁺ − v_i) moves by −σ x_i, σ and −σ(‖m‖² + u² − x_iᵀm), because with z = (a + τ m, z_b)

    (x_i − m, u)ᵀz = x_iᵀa + τ x_iᵀm + β,      β = u z_b − mᵀ(a + τ m).
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

from coterie.kernels.logistic_prox import scalar_root

ALL_EVERY = 10
"""Every so many epochs all coordinates are visited, resting or not."""
ROUGH = 0.03
"""From this tolerance on it is enough that the coordinates that do not rest have settled."""


@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract"})
def dual_ascent(
    dense: Any,
    data: Any,
    indices: Any,
    indptr: Any,
    is_dense: bool,
    tilts: Any,
    constant: float,
    y: Any,
    offsets: Any,
    lower: Any,
    upper: Any,
    curvature: float,
    logistic: bool,
    weights: Any,
    norms: Any,
    c: float,
    a: Any,
    beta: float,
    v: Any,
    order: Any,
    relative_tolerance: float,
    max_epochs: int,
    tau: float,
    first: float,
) -> tuple[bool, float, float, float]:
    """Improve v and a in place, epoch by epoch in the given order, until an epoch moves v by less than the tolerance
    times what the first one did (in the metric κ). Returns whether it has, β, τ, and by how much the first one did.

    `tilts` holds x_iᵀm, and `constant` is ‖m‖² + u²; without an intercept there are no tilts, and β is 0. `offsets`, if
    there are some, are added to the scores: ℓ*(v_i) − o_i v_i. To go on after `ALL_EVERY` epochs, as if it had not
    returned, hand back β, τ and the last number: 0 before the first epoch.
    """
    columns, intercept, has_offsets = a.size, tilts.size > 0, offsets.size > 0
    everyone = order.copy()
    active, everything = order.size, True
    for epoch in range(max_epochs):
        moved, kept = 0.0, 0
        for position in range(active):
            i = order[position]
            # Unsigned subscripts: signed ones are checked for counting from the end, which costs half the speed.
            begin, end = np.uint64(0), np.uint64(0)
            score = beta + tau * tilts[i] if intercept else 0.0
            if has_offsets:
                score += offsets[i]
            if is_dense:
                for j in range(columns):
                    score += dense[i, j] * a[j]
            else:
                begin, end = np.uint64(indptr[i]), np.uint64(indptr[i + 1])
                for p in range(begin, end):
                    score += data[p] * a[np.uint64(indices[p])]
            kappa = c * weights[i] * norms[i]
            old = v[i]
            if logistic:
                root = scalar_root(-y[i] * (kappa * old + score), 1.0, kappa) if kappa > 0.0 else -y[i] * score
                new = -y[i] / (1.0 + math.exp(-root)) if root > -700.0 else 0.0
            else:
                # argmin over v of (a/2) v² + y v + (κ/2)(v − old)² − score·v on [lower, upper]
                slope = kappa * old + score - y[i]
                steepness = curvature + kappa
                if steepness > 0.0:
                    new = slope / steepness
                elif slope > 0.0:
                    new = upper[i]
                elif slope < 0.0:
                    new = lower[i]
                else:
                    new = old
                new = min(max(new, lower[i]), upper[i])
            change = new - old
            if change == 0.0 and (new == lower[i] or new == upper[i]):
                continue
            order[kept] = i
            kept += 1
            if change != 0.0:
                v[i] = new
                moved += kappa * change * change
                step = c * weights[i] * change
                if is_dense:
                    for j in range(columns):
                        a[j] -= step * dense[i, j]
                else:
                    for p in range(begin, end):
                        a[np.uint64(indices[p])] -= step * data[p]
                if intercept:
                    tau += step
                    beta -= step * (constant - tilts[i])
        if first == 0.0:
            first = moved
        settled = moved <= relative_tolerance * relative_tolerance * first
        if settled and (everything or relative_tolerance >= ROUGH):
            return True, beta, tau, first
        if settled or epoch % ALL_EVERY == ALL_EVERY - 1:
            for place in range(order.size):
                order[place] = everyone[place]
            active, everything = order.size, True
        else:
            active, everything = kept, kept == order.size
    return False, beta, tau, first


@numba.njit(nogil=True, cache=True, error_model="numpy")
def squared_norms(data: Any, indptr: Any) -> Any:
    """‖x_i‖² of CSR rows."""
    norms = np.zeros(indptr.size - 1)
    for i in range(norms.size):
        for p in range(indptr[i], indptr[i + 1]):
            norms[i] += np.float64(data[p]) * np.float64(data[p])
    return norms
