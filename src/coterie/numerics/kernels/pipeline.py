"""One agent's part of one iteration of diffusion learning with a pipeline (see
`methods/published/diffusion.py`).

A pipeline has J slots with a batch of B samples in each. `pipe` has four rows of J·B numbers:

    z        z⁽ʲ⁾, mixed j times: the message to neighbours
    older    z⁽ʲ⁻¹⁾
    first    z⁽⁰⁾
    held     v⁽⁰⁾ = K h_kᵀ w_k, from the time of the push

The reply A z⁽ʲ⁾ advances every slot: z⁽ʲ⁺¹⁾ = α_j A z⁽ʲ⁾ + β_j z⁽ʲ⁾ + γ_j z⁽ʲ⁻¹⁾ (`filters` has α,
β, γ by age). A slot of age J leaves the pipeline with τ z⁽ᴶ⁾ + (1 − τ) z⁽⁰⁾ and takes the next
samples, so that no slot is ever shifted: iteration i = 0, 1, ... of a round has pushed into slot i
mod J and pops slot (i + 1) mod J. `sequence` has one row of samples per push. Its first J rows come
from before the round (−1 where the pipeline was still empty), so that iteration i pops row i + 1
and then pushes row i + J + 1.

`memory` has one row per sample: u, v, its label, its weight. Arrays are changed in place.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from coterie.numerics.arrays import FloatArray, Matrix, is_sparse
from coterie.numerics.kernels.compiled import compiled

Z, OLDER, FIRST, HELD = range(4)
U, V, LABEL, WEIGHT = range(4)
KIND, THRESHOLD, AGENTS, STEP, TAU, INTERCEPT, REMEMBERS = range(7)

ANY_ORDER = {"reassoc", "contract"}
"""Sums may be taken in any order, as in BLAS. Infinite numbers and NaN keep their meaning."""

_vectorised = numba.njit(nogil=True, cache=True, error_model="numpy", fastmath=ANY_ORDER)

Indices = npt.NDArray[np.integer[Any]]
Rows = tuple[FloatArray, Indices, Indices]
"""A matrix by rows: data, column numbers and row starts, as in CSR; the last two are empty for a
dense one.
"""


def rows_of(X: Matrix) -> Rows:
    """The matrix by rows; a dense one is copied only if it is stored by columns."""
    if is_sparse(X):
        csr = X.tocsr()
        return csr.data, csr.indices, csr.indptr
    none = np.empty(0, np.int32)
    return np.ascontiguousarray(X).reshape(-1), none, none


def numbers(
    derivative: int,
    threshold: float,
    agents: int,
    step: float,
    tau: float,
    intercept: bool,
    remembers: bool,
) -> FloatArray:
    """The constants of a round in one array, because calls of a compiled function take longer with
    more arguments.
    """
    return np.array([derivative, threshold, agents, step, tau, intercept, remembers], float)


@compiled
def _derivative(constants: FloatArray, z: float, y: float) -> Any:
    # 0 squared, 1 huber, 2 squared_hinge, 3 logistic, as in `methods/published/diffusion.py`
    # has these numbers.
    kind = constants[KIND]
    threshold = constants[THRESHOLD]
    if kind == 0:
        return z - y
    if kind == 1:
        return min(max(z - y, -threshold), threshold)
    if kind == 2:
        return -2.0 * y * max(0.0, 1.0 - y * z)
    return -y / (1.0 + math.exp(y * z))


@_vectorised
def _dot(
    data: FloatArray, indices: Indices, starts: Indices, n: int, d: int, w: FloatArray
) -> float:
    total = 0.0
    if starts.size:
        for e in range(starts[n], starts[n + 1]):
            total += data[e] * w[indices[e]]
    else:
        row = data[n * d : (n + 1) * d]
        for j in range(d):
            total += row[j] * w[j]
    if w.size > d:
        total += w[d]
    return total


@_vectorised
def _add(
    data: FloatArray,
    indices: Indices,
    starts: Indices,
    n: int,
    d: int,
    factor: float,
    w: FloatArray,
) -> None:
    if starts.size:
        for e in range(starts[n], starts[n + 1]):
            w[indices[e]] += factor * data[e]
    else:
        row = data[n * d : (n + 1) * d]
        for j in range(d):
            w[j] += factor * row[j]
    if w.size > d:
        w[d] += factor


@compiled
def push(
    data: FloatArray,
    indices: Indices,
    starts: Indices,
    w: FloatArray,
    memory: FloatArray,
    pipe: FloatArray,
    samples: Indices,
    slot: int,
    constants: FloatArray,
) -> None:
    """Put z⁽⁰⁾ = u_n + K h_kᵀ w_k − v_n of the given samples into a slot."""
    d = w.size - int(constants[INTERCEPT])
    B = samples.size
    for b in range(B):
        n = samples[b]
        q = slot * B + b
        held = constants[AGENTS] * _dot(data, indices, starts, n, d, w)
        z = memory[n, U] + held - memory[n, V]
        pipe[Z, q] = z
        pipe[OLDER, q] = 0.0
        pipe[FIRST, q] = z
        pipe[HELD, q] = held


@_vectorised
def advance(
    reply: FloatArray,
    i: int,
    data: FloatArray,
    indices: Indices,
    starts: Indices,
    w: FloatArray,
    average: FloatArray,
    memory: FloatArray,
    pipe: FloatArray,
    sequence: Indices,
    filters: FloatArray,
    constants: FloatArray,
    shrink: FloatArray,
) -> None:
    """Iteration i of a round: advance the slots, pop, take a step, update the memory, and push the
    next samples.
    """
    J = filters.shape[1]
    B = sequence.shape[1]
    d = w.size - int(constants[INTERCEPT])
    for slot in range(J):
        age = (i - slot) % J
        alpha = filters[0, age]
        beta = filters[1, age]
        gamma = filters[2, age]
        for q in range(slot * B, (slot + 1) * B):
            z = pipe[Z, q]
            pipe[Z, q] = alpha * reply[q] + beta * z + gamma * pipe[OLDER, q]
            pipe[OLDER, q] = z

    slot = (i + 1) % J
    popped = sequence[i + 1]
    if popped[0] >= 0:
        step = constants[STEP]
        tau = constants[TAU]
        remembers = constants[REMEMBERS] > 0
        # shrink has 1 − μ ρ of every column.
        for j in range(d):
            w[j] = shrink[j] * w[j] - step * average[j]
        if w.size > d:
            w[d] -= step * average[d]
        for b in range(B):
            n = popped[b]
            q = slot * B + b
            z = tau * pipe[Z, q] + (1.0 - tau) * pipe[FIRST, q]
            pipe[Z, q] = z
            change = _derivative(constants, z, memory[n, LABEL])
            if remembers:
                change -= _derivative(constants, memory[n, U], memory[n, LABEL])
            factor = -step / B * memory[n, WEIGHT] * change
            _add(data, indices, starts, n, d, factor, w)
        if remembers:
            # One by one: the second time that a sample is in the batch, its change is 0.
            for b in range(B):
                n = popped[b]
                q = slot * B + b
                z = pipe[Z, q]
                y = memory[n, LABEL]
                change = _derivative(constants, z, y) - _derivative(constants, memory[n, U], y)
                _add(
                    data,
                    indices,
                    starts,
                    n,
                    d,
                    memory[n, WEIGHT] * change / memory.shape[0],
                    average,
                )
                memory[n, U] = z
                memory[n, V] = pipe[HELD, q]
    if i + J + 1 < sequence.shape[0]:
        push(data, indices, starts, w, memory, pipe, sequence[i + J + 1], slot, constants)
