"""Checks of matrices on the edges of a network, and the errors that explain a refusal.

    weights   Wᵀ = W ≥ 0, finite, zero diagonal
    mixing    Aᵀ = A ≥ 0, A 1 = 1, nothing outside the edges and the diagonal

Every refusal lists the offending entries (the first few, and their number) and names the fix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.sparse import csgraph

from coterie.errors import InvalidNetwork
from coterie.numerics.arrays import Matrix

SHOWN = 4
ROUNDING = 1e-12
ROW_SUM_TOLERANCE = 1e-9

IntArray = npt.NDArray[np.integer[Any]]


def check_agents(agents: object) -> int:
    """A number of agents: an integer of at least 1."""
    if isinstance(agents, bool) or not isinstance(agents, int | np.integer) or agents < 1:
        raise InvalidNetwork(
            f"a network needs a whole number of agents, at least 1, not {agents!r}."
        )
    return int(agents)


def as_weights(matrix: Matrix) -> Matrix:
    """A checked copy of an adjacency matrix as canonical CSR in float64: no stored zeros, exactly
    symmetric.
    """
    W = _as_square(matrix, "an adjacency matrix")
    if W.diagonal().any():
        loops = [str(i) for i in np.flatnonzero(W.diagonal())]
        raise InvalidNetwork(
            f"an agent has no edge to itself, but the diagonal is not zero at {_listing(loops)}. "
            "Set the diagonal to 0."
        )
    _refuse_negative(W, 0.0, "an edge weight must be positive", "Use 0 where there is no edge.")
    return _symmetric(W, "(W + W.T) / 2 or numpy.maximum(W, W.T)")


def as_mixing(matrix: Matrix, weights: Matrix) -> Matrix:
    """A checked copy of a mixing matrix as canonical CSR: symmetric, doubly stochastic, zero where
    there is no edge.
    """
    A = _as_square(matrix, "a mixing matrix")
    if A.shape != weights.shape:
        raise InvalidNetwork(
            f"the mixing matrix is {A.shape[0]} × {A.shape[0]}, but the network has "
            f"{weights.shape[0]} agents. "
            "Give one row and one column per agent."
        )
    _refuse_negative(
        A,
        ROUNDING,
        "a mixing matrix must not be negative",
        "Use network.metropolis() for a valid one.",
    )
    A.data[A.data < 0] = 0.0
    A.eliminate_zeros()
    A = _symmetric(A, "(A + A.T) / 2")
    sums = np.asarray(A.sum(axis=1)).ravel()
    off = np.flatnonzero(np.abs(sums - 1.0) > ROW_SUM_TOLERANCE)
    if len(off):
        raise InvalidNetwork(
            "each row of a mixing matrix must sum to 1, but "
            f"{_listing([f'row {i} sums to {sums[i]:.6g}' for i in off])}. "
            "Put the missing weight on the diagonal, or use network.metropolis()."
        )
    outside = sp.coo_array(A - A.multiply(weights != 0) - sp.diags_array(A.diagonal()))
    outside.eliminate_zeros()
    if outside.nnz:
        entries = [f"({i}, {j}) is {v:g}" for i, j, v in _sorted_entries(outside) if i < j]
        raise InvalidNetwork(
            f"a mixing matrix must be zero where there is no edge, but {_listing(entries)}. "
            "Add these edges to the network, or set the entries to 0."
        )
    return A


def components(weights: Matrix) -> list[IntArray]:
    """The agents of each connected component, in the order of their smallest agent."""
    count, labels = csgraph.connected_components(weights, directed=False)
    order = np.argsort(labels, kind="stable")
    groups = np.split(order, np.cumsum(np.bincount(labels, minlength=count))[:-1])
    return sorted(groups, key=lambda group: int(group[0]))


def check_connected(weights: Matrix) -> None:
    """Raise an error that lists the components of a graph that is not connected."""
    groups = components(weights)
    if len(groups) == 1:
        return
    named = [_component(group) for group in groups]
    bridges = [f"({groups[0][0]}, {group[0]})" for group in groups[1:]]
    raise InvalidNetwork(
        f"the network is not connected, it has {len(groups)} components: "
        f"{_listing(named, counted=False)}. "
        f"Add edges between them, for example {_listing(bridges, counted=False)}, or use one of "
        "the named topologies."
    )


def _as_square(matrix: Matrix, noun: str) -> Matrix:
    if not sp.issparse(matrix):
        try:
            matrix = np.asarray(matrix)
        except ValueError as error:
            raise InvalidNetwork(f"{noun} needs rows of equal length: {error}.") from None
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        shape = " × ".join(map(str, matrix.shape)) or "a single value"
        raise InvalidNetwork(
            f"{noun} must be square, one row and one column per agent; this one is {shape}. "
            "For a list of edges use from_edges."
        )
    check_agents(matrix.shape[0])
    if matrix.dtype.kind not in "biuf":
        raise InvalidNetwork(
            f"{noun} must hold real numbers, not {matrix.dtype}. Convert it with .astype(float)."
        )
    square = sp.csr_array(matrix, dtype=np.float64, copy=True)
    square.sum_duplicates()
    square.eliminate_zeros()
    if not np.isfinite(square.data).all():
        entries = [
            f"({i}, {j}) is {v}" for i, j, v in _sorted_entries(square) if not np.isfinite(v)
        ]
        raise InvalidNetwork(
            f"{noun} must be finite, but {_listing(entries)}. Use 0 where there is no edge."
        )
    return square


def _refuse_negative(square: Matrix, tolerance: float, rule: str, fix: str) -> None:
    if (square.data < -tolerance).any():
        entries = [f"({i}, {j}) is {v:g}" for i, j, v in _sorted_entries(square) if v < -tolerance]
        raise InvalidNetwork(f"{rule}, but {_listing(entries)}. {fix}")


def _symmetric(square: Matrix, fix: str) -> Matrix:
    difference = sp.coo_array(square - square.T)
    apart = np.abs(difference.data) > ROUNDING * max(square.data.max(initial=0.0), 1e-300)
    if apart.any():
        rows = difference.row[apart]
        columns = difference.col[apart]
        pairs = sorted((int(i), int(j)) for i, j in zip(rows, columns, strict=True) if i < j)
        entries = [
            f"({i}, {j}) is {square[i, j]:g} but ({j}, {i}) is {square[j, i]:g}"
            for i, j in pairs[: SHOWN + 1]
        ]
        raise InvalidNetwork(
            f"the matrix must be symmetric, but {_listing(entries, total=len(pairs))}. "
            f"Edges have no direction: repair the entries, or use {fix}."
        )
    if difference.data.any():
        square = sp.csr_array((square + square.T) / 2)
    square.sort_indices()
    return square


def _sorted_entries(matrix: Matrix) -> list[tuple[int, int, float]]:
    coo = sp.coo_array(matrix)
    return sorted(
        (int(i), int(j), float(v)) for i, j, v in zip(coo.row, coo.col, coo.data, strict=True)
    )


def _listing(items: Sequence[str], *, total: int | None = None, counted: bool = True) -> str:
    total = len(items) if total is None else total
    text = ", ".join(items[:SHOWN])
    if total > SHOWN:
        text += f", … ({total} in total)" if counted else f", … and {total - SHOWN} more"
    return text


def _component(group: IntArray) -> str:
    if len(group) <= SHOWN:
        return "{" + ", ".join(map(str, group)) + "}"
    return "{" + ", ".join(map(str, group[:2])) + f", …({len(group)} agents)" + "}"
