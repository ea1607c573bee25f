"""C ← C + α AᵀA by BLAS, on the upper triangle only: half the work of a product, and no copy of the
result.

numpy's product computes both triangles and makes a new array. scipy's function makes other threads
wait.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

import numpy as np
from numba.extending import get_cython_function_address

from coterie.numerics.arrays import FloatArray


def add_gram(A: FloatArray, factor: float, total: FloatArray) -> None:
    """Add factor · AᵀA to the upper triangle of `total`, in C order and in A's precision."""
    n, d = A.shape
    size = A.itemsize
    by_rows = A.strides[1] == size and A.strides[0] >= d * size
    by_columns = A.strides[0] == size and A.strides[1] >= n * size
    if not by_rows and not by_columns:
        A = np.ascontiguousarray(A)
        by_rows = True
    # BLAS reads matrices by columns: a matrix by rows is its transpose, and the upper triangle in C
    # order its lower one.
    if by_rows:
        transposed = b"N"
        stride = A.strides[0] // size
    else:
        transposed = b"T"
        stride = A.strides[1] // size
    real = ctypes.c_double if size == 8 else ctypes.c_float
    _syrk(size)(
        b"L",
        transposed,
        ctypes.byref(ctypes.c_int(d)),
        ctypes.byref(ctypes.c_int(n)),
        ctypes.byref(real(factor)),
        A.ctypes.data,
        ctypes.byref(ctypes.c_int(stride)),
        ctypes.byref(real(1.0)),
        total.ctypes.data,
        ctypes.byref(ctypes.c_int(d)),
    )


def add_grams(stack: FloatArray, totals: FloatArray) -> None:
    """Add AᵀA of each matrix of a stack in double precision to the upper triangle of the first
    columns of its total, with the bits of `add_gram`.
    """
    count, n, d = stack.shape
    size = stack.itemsize
    columns = ctypes.byref(ctypes.c_int(d))
    rows = ctypes.byref(ctypes.c_int(n))
    stride = ctypes.byref(ctypes.c_int(stack.strides[1] // size))
    width = ctypes.byref(ctypes.c_int(totals.strides[1] // size))
    one = ctypes.byref(ctypes.c_double(1.0))
    multiply = _syrk(size)
    source = stack.ctypes.data
    target = totals.ctypes.data
    for _ in range(count):
        multiply(b"L", b"N", columns, rows, one, source, stride, one, target, width)
        source += stack.strides[0]
        target += totals.strides[0]


@lru_cache(maxsize=2)
def _syrk(size: int) -> Any:
    """BLAS's routine for floating-point numbers of `size` bytes. A call does not make other threads
    wait.
    """
    name = "dsyrk" if size == 8 else "ssyrk"
    address = get_cython_function_address("scipy.linalg.cython_blas", name)
    pointers = [ctypes.c_void_p] * 8
    signature = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p, *pointers)
    return signature(address)
