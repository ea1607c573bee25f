"""Operations of a `Design` on dense rows in a torch tensor X, on the device of X, block by block.

X never leaves its device. Vectors with a number per column are numpy arrays; those with a number
per row may stay on the device. Products have the higher precision of X and the vector, so that a
certificate is in float64 for every type of X. Sums over rows are taken in runs of `RUN` rows, so
that no number is rounded more often than in a product on the host (`Design.roundings`). This module
does not import torch: a caller that has a tensor has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.floating[Any]]
NUMBERS = 1 << 26
"""Number of entries of X in a block, which is converted to another precision at once."""
RUN = 2048


def dtype_of(X: Any) -> np.dtype[Any]:
    """The precision of a model of these rows: single precision also for rows in half precision."""
    if X.element_size() == 8:
        return np.dtype(np.float64)
    return np.dtype(np.float32)


def product(X: Any, w: FloatArray) -> Any:
    """X w, on the device of X."""
    kind = _kind(np.result_type(dtype_of(X), w.dtype))
    v = to_device_of(X, w, kind)
    products = [block.to(kind) @ v for _, block in blocks(X)]
    if not products:
        return _torch().empty(0, dtype=kind, device=X.device)
    return _torch().cat(products)


def adjoint(X: Any, v: Any) -> FloatArray:
    """Xᵀ v, for a numpy array v or a tensor v on any device."""
    kind = v.dtype
    if isinstance(v, np.ndarray):
        kind = _kind(np.result_type(dtype_of(X), v.dtype))
    z = to_device_of(X, v, kind)
    total = _torch().zeros(X.shape[1], dtype=kind, device=X.device)
    for rows, block in blocks(X):
        A = block.to(kind)
        part = z[rows]
        whole = len(A) // RUN * RUN
        runs = part[:whole].view(-1, 1, RUN) @ A[:whole].reshape(-1, RUN, A.shape[1])
        rest = A[whole:].T @ part[whole:]
        total += runs.sum((0, 1)) + rest
    return _to_array(total)


def squares(X: Any, weights: FloatArray | None) -> FloatArray:
    """Σ_i s_i x_ij² of every column j, in double precision; all s_i are 1 without weights."""
    torch = _torch()
    total = torch.zeros(X.shape[1], dtype=torch.float64, device=X.device)
    if weights is not None:
        s = to_device_of(X, weights, torch.float64)
    for rows, block in blocks(X):
        A = block.to(torch.float64).square()
        if weights is None:
            total += A.sum(0)
        else:
            total += A.T @ s[rows]
    return _to_array(total)


def moment(
    X: Any,
    columns: npt.NDArray[np.intp] | None,
    scale: FloatArray,
    centre: FloatArray | None,
    noise: float,
    single: bool,
) -> FloatArray:
    """Σ_i s_i (x_i − c)(x_i − c)ᵀ on the given columns (None: all), without c if `centre` is None.

    `scale` holds the s_i. An entry of x − c that is at most `noise` times c counts as 0.
    """
    torch = _torch()
    d = X.shape[1] if columns is None else len(columns)
    kind = torch.float32 if single else torch.float64
    total = torch.zeros((d, d), dtype=torch.float64, device=X.device)
    counted = np.flatnonzero(scale)
    if 2 * len(counted) < len(scale):  # most weights are 0, as in a sample of the rows
        X = X[to_device_of(X, counted)]
        scale = scale[counted]
    s = to_device_of(X, scale, kind)
    if centre is not None:
        c = to_device_of(X, centre, kind)
    if columns is not None:
        chosen = to_device_of(X, columns)
    for rows, block in blocks(X):
        if columns is not None:
            block = block[:, chosen]
        A = block.to(kind)
        if centre is not None:
            A = A - c
            A[A.abs() <= noise * c.abs()] = 0.0
        total += (A * s[rows, None]).T @ A
    return _to_array(total)


def largest(X: Any) -> FloatArray:
    """The largest |x_ij| of every column j."""
    sizes = [block.abs().amax(0) for _, block in blocks(X)]
    if not sizes:
        return np.zeros(X.shape[1])
    return _to_array(_torch().stack(sizes).amax(0).double())


def _torch() -> Any:
    return sys.modules["torch"]


def _kind(dtype: np.dtype[Any]) -> Any:
    return getattr(_torch(), dtype.name)


def to_device_of(X: Any, x: Any, kind: Any = None) -> Any:
    """x on the device of X, in the precision `kind`, or in its own if `kind` is None."""
    tensor = x
    if isinstance(x, np.ndarray):
        tensor = _torch().from_numpy(np.array(x))
    if kind is None:
        kind = tensor.dtype
    return tensor.to(X.device, kind)


def _to_array(x: Any) -> FloatArray:
    array: FloatArray = x.cpu().numpy()
    return array


def blocks(X: Any) -> Iterator[tuple[slice, Any]]:
    """The blocks of rows of X, each with the slice of its rows."""
    runs = NUMBERS // (RUN * max(1, X.shape[1]))
    step = max(1, runs) * RUN
    for start in range(0, len(X), step):
        yield slice(start, start + step), X[start : start + step]
