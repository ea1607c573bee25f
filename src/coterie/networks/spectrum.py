"""The two ends of the spectrum of a graph Laplacian: λ₂, its smallest non-zero eigenvalue, and λmax
= ‖L‖.

Small Laplacians are diagonalised. For large ones λmax comes from Lanczos on L, and 1/λ₂ = ‖L†‖ from
Lanczos on L†: for b ⟂ 1, L† b is the solution of L x = b with x₀ = 0, centred, and L without its
first row and column is positive definite and sparse. The starting vector is fixed, so the numbers
are the same in every run.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse.linalg as spla
from scipy.sparse import csgraph

from coterie.numerics.arrays import FloatArray, Matrix

DENSE_LIMIT = 1500
LANCZOS_TOLERANCE = 1e-8
LANCZOS_VECTORS = 64


def laplacian_ends(L: Matrix) -> tuple[float, float]:
    """(λ₂, λmax) of a weighted Laplacian; λ₂ is 0 for a graph that is not connected, and both are 0
    for one agent.
    """
    m = L.shape[0]
    connected = m > 1 and csgraph.connected_components(L, directed=False, return_labels=False) == 1
    if m <= DENSE_LIMIT:
        eigenvalues = np.linalg.eigvalsh(L.toarray()).tolist()
        largest = max(eigenvalues[-1], 0.0)
        if not connected:
            return 0.0, largest
        return eigenvalues[1], largest
    if not connected:
        return 0.0, _largest(L)
    return 1.0 / _largest(_pseudoinverse(L)), _largest(L)


def _largest(operator: Matrix) -> float:
    start = np.random.default_rng(0).standard_normal(operator.shape[0])
    eigenvalues = spla.eigsh(
        operator,
        k=1,
        which="LA",
        v0=start - start.mean(),
        ncv=LANCZOS_VECTORS,
        tol=LANCZOS_TOLERANCE,
        return_eigenvectors=False,
    )
    return float(eigenvalues[0])


def _pseudoinverse(L: Matrix) -> Matrix:
    grounded = spla.splu(
        L[1:, 1:].tocsc(), permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True}
    )

    def apply(b: FloatArray) -> FloatArray:
        b = b.ravel()
        x: FloatArray = np.concatenate([[0.0], grounded.solve(b[1:] - b.mean())])
        x -= x.mean()
        return x

    return spla.LinearOperator(L.shape, matvec=apply, dtype=np.float64)
