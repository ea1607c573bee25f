"""C + α AᵀA by BLAS, in place and on the upper triangle alone: half the work of a product, and no copy of the result.

numpy's product writes the other triangle, too, into a new array, and scipy's function keeps other threads waiting.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

import numpy as np
from numba.extending import get_cython_function_address

from coterie.arrays import FloatArray


def add_gram(A: FloatArray, factor: float, total: FloatArray) -> None:
    """Add factor · AᵀA to the upper triangle of `total`, in C order and in A's precision."""
    (n, d), size = A.shape, A.itemsize
    # BLAS counts by columns: a matrix by rows is its transpose, and the upper triangle of C order its lower one.
    by_rows = A.strides[1] == size and A.strides[0] >= d * size
    if not by_rows and not (A.strides[0] == size and A.strides[1] >= n * size):
        A, by_rows = np.ascontiguousarray(A), True
    width, count, step, row = (ctypes.c_int(k) for k in (d, n, A.strides[not by_rows] // size, d))
    real = ctypes.c_double if size == 8 else ctypes.c_float
    by = ctypes.byref
    _syrk(size)(
        b"L",
        b"N" if by_rows else b"T",
        by(width),
        by(count),
        by(real(factor)),
        A.ctypes.data,
        by(step),
        by(real(1.0)),
        total.ctypes.data,
        by(row),
    )


@lru_cache(maxsize=2)
def _syrk(size: int) -> Any:
    """BLAS's routine for numbers of so many bytes, called without holding other threads up."""
    address = get_cython_function_address("scipy.linalg.cython_blas", "dsyrk" if size == 8 else "ssyrk")
    text, pointer = ctypes.c_char_p, ctypes.c_void_p
    return ctypes.CFUNCTYPE(None, text, text, *[pointer] * 8)(address)
