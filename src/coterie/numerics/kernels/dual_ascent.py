"""Coordinate ascent on the dual block of one agent:

    min over v of  Σ_i s_i ℓ*(v_i; y_i) + (c/2) ‖Xᵀ(s∘(v − v⁰))‖² − ⟨s∘v, X w⟩

Each step updates z = w − c Xᵀ(s∘(v − v⁰)). With the other coordinates fixed, the best v_i is

    v_i ← prox_{ℓ*/κ_i}(v_i + x_iᵀz / κ_i),   κ_i = c s_i ‖x_i‖².

The conjugate is (a/2)v² + y v on an interval, or the logistic entropy. Rows are dense or CSR.
Coordinates that rest at a bound are skipped for a few epochs.

With an intercept, the rows are (x_i − m, u), which are never stored (see `CentredDesign`). A step σ
= c s_i (v_i⁺ − v_i) changes a, τ and β by −σ x_i, σ and −σ(‖m‖² + u² − x_iᵀm), because with z = (a
+ τ m, z_b)

    (x_i − m, u)ᵀz = x_iᵀa + τ x_iᵀm + β,      β = u z_b − mᵀ(a + τ m).
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

from coterie.numerics.kernels.compiled import compiled, inlined
from coterie.numerics.kernels.logistic_prox import scalar_root

_vectorised = numba.njit(
    nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract"}
)

ALL_EVERY = 10
"""Every this many epochs, an epoch visits all coordinates, also those that rest."""
ROUGH = 0.03
"""At or above this tolerance, only the coordinates that do not rest must have settled."""


@_vectorised
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
    """Improve v and a in place, in epochs of the given order, until an epoch moves v little (in the
    metric κ): by less than `relative_tolerance` times the first epoch. Return whether that
    happened, β, τ, and the move of the first epoch.

    `tilts` holds x_iᵀm, and `constant` is ‖m‖² + u²; without an intercept `tilts` is empty and β is
    0. `offsets` (may be empty) are added to the scores: ℓ*(v_i) − o_i v_i. To continue after
    `ALL_EVERY` epochs, pass the returned β, τ and move of the first epoch; `first` is 0 before the
    first epoch.
    """
    columns = a.size
    intercept = tilts.size > 0
    has_offsets = offsets.size > 0
    full_order = order.copy()
    active = order.size
    visits_all = True
    for epoch in range(max_epochs):
        moved = 0.0
        kept = 0
        for position in range(active):
            i = order[position]
            score = 0.0
            if intercept:
                score = beta + tau * tilts[i]
            if has_offsets:
                score += offsets[i]
            if is_dense:
                for j in range(columns):
                    score += dense[i, j] * a[j]
            else:
                score = _add_product(data, indices, indptr, i, a, score)
            kappa = c * weights[i] * norms[i]
            old = v[i]
            if logistic:
                new = _best_logistic(old, score, y[i], kappa)
            else:
                new = _best_quadratic(old, score, y[i], kappa, curvature, lower[i], upper[i])
            change = new - old
            if _rests(new, change, lower[i], upper[i]):
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
                    _subtract_row(data, indices, indptr, i, step, a)
                if intercept:
                    tau += step
                    beta -= step * (constant - tilts[i])
        if first == 0.0:
            first = moved
        settled = moved <= relative_tolerance * relative_tolerance * first
        if settled and (visits_all or relative_tolerance >= ROUGH):
            return True, beta, tau, first
        if settled or epoch % ALL_EVERY == ALL_EVERY - 1:
            _copy(full_order, order)
            active = order.size
        else:
            active = kept
        visits_all = active == order.size
    return False, beta, tau, first


# Unsigned subscripts: signed ones are checked for counting from the end, which costs half the
# speed.


@inlined
def _add_product(data: Any, indices: Any, indptr: Any, i: int, a: Any, score: float) -> float:
    """Return score + x_iᵀa for CSR rows."""
    for p in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
        score += data[p] * a[np.uint64(indices[p])]
    return score


@inlined
def _subtract_row(data: Any, indices: Any, indptr: Any, i: int, step: float, a: Any) -> None:
    """a ← a − step x_i for CSR rows."""
    for p in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
        a[np.uint64(indices[p])] -= step * data[p]


@inlined
def _rests(new: float, change: float, lower: float, upper: float) -> bool:
    """Return whether v_i stays at a bound."""
    return change == 0.0 and not lower < new < upper


@inlined
def _best_logistic(old: float, score: float, y: float, kappa: float) -> float:
    """Return the best v_i for the logistic entropy."""
    if kappa > 0.0:
        root = scalar_root(-y * (kappa * old + score), 1.0, kappa)
    else:
        root = -y * score
    if root > -700.0:
        return -y / (1.0 + math.exp(-root))
    return 0.0


@inlined
def _copy(source: Any, target: Any) -> None:
    for place in range(source.size):
        target[place] = source[place]


@inlined
def _best_quadratic(
    old: float, score: float, y: float, kappa: float, curvature: float, lower: float, upper: float
) -> float:
    """Return argmin over v of (a/2) v² + y v + (κ/2)(v − old)² − score·v on [lower, upper]."""
    target = kappa * old + score - y
    total_curvature = curvature + kappa
    if total_curvature > 0.0:
        new = target / total_curvature
    elif target > 0.0:
        new = upper
    elif target < 0.0:
        new = lower
    else:
        new = old
    return min(max(new, lower), upper)


@compiled
def squared_norms(data: Any, indptr: Any) -> Any:
    """Return ‖x_i‖² of CSR rows."""
    norms = np.zeros(indptr.size - 1)
    for i in range(norms.size):
        for p in range(indptr[i], indptr[i + 1]):
            norms[i] += np.float64(data[p]) * np.float64(data[p])
    return norms
