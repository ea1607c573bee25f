"""What a `Design` does with dense rows that are a torch tensor, on the device where they lie, a block after the other.

X never travels. What is one number per column comes and goes as a numpy array; what is one per row may stay beside X.
Products are in the finer precision of X and the vector, so that a certificate is in float64 whatever X is stored in.
Sums over rows are taken in runs of `RUN`, so that no number goes through more roundings than in a product on the host
(`Design.roundings`). There is no import of torch: who holds a tensor has it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.floating[Any]]
NUMBERS = 1 << 26
"""Numbers of X that are widened at a time."""
RUN = 2048


def dtype_of(X: Any) -> np.dtype[Any]:
    """The precision of a model of these rows: half precision counts as single."""
    return np.dtype(np.float64 if X.element_size() == 8 else np.float32)


def product(X: Any, w: FloatArray) -> Any:
    """X w, beside X."""
    kind = _kind(np.result_type(dtype_of(X), w.dtype))
    v = beside(X, w, kind)
    products = [block.to(kind) @ v for _, block in blocks(X)]
    return _torch().cat(products) if products else _torch().empty(0, dtype=kind, device=X.device)


def adjoint(X: Any, v: Any) -> FloatArray:
    """Xᵀ v, for a v that is an array or already beside X."""
    kind = _kind(np.result_type(dtype_of(X), v.dtype)) if isinstance(v, np.ndarray) else v.dtype
    z = beside(X, v, kind)
    total = _torch().zeros(X.shape[1], dtype=kind, device=X.device)
    for rows, block in blocks(X):
        A, share = block.to(kind), z[rows]
        whole = len(A) // RUN * RUN
        runs = share[:whole].view(-1, 1, RUN) @ A[:whole].reshape(-1, RUN, A.shape[1])
        total += runs.sum((0, 1)) + A[whole:].T @ share[whole:]
    return _back(total)


def squares(X: Any, weights: FloatArray | None) -> FloatArray:
    """Σ_i s_i x_ij² of every column, in double precision."""
    torch = _torch()
    total = torch.zeros(X.shape[1], dtype=torch.float64, device=X.device)
    s = None if weights is None else beside(X, weights, torch.float64)
    for rows, block in blocks(X):
        A = block.to(torch.float64).square()
        total += A.sum(0) if s is None else A.T @ s[rows]
    return _back(total)


def moment(
    X: Any,
    columns: npt.NDArray[np.intp] | None,
    scale: FloatArray,
    centre: FloatArray | None,
    noise: float,
    single: bool,
) -> FloatArray:
    """Σ_i s_i (x_i − c)(x_i − c)ᵀ of these columns; what is left of an x beside c, below that share of it, is 0."""
    d = X.shape[1] if columns is None else len(columns)
    kind = _kind(np.dtype(np.float32 if single else np.float64))
    total = _torch().zeros((d, d), dtype=_kind(np.dtype(np.float64)), device=X.device)
    counted = np.flatnonzero(scale)
    if 2 * len(counted) < len(scale):  # a part of the rows stands for all
        X, scale = X[beside(X, counted)], scale[counted]
    s, c = beside(X, scale, kind), None if centre is None else beside(X, centre, kind)
    chosen = None if columns is None else beside(X, columns)
    for rows, block in blocks(X):
        A = (block if chosen is None else block[:, chosen]).to(kind)
        if c is not None:
            A = A - c
            A[A.abs() <= noise * c.abs()] = 0.0
        total += (A * s[rows, None]).T @ A
    return _back(total)


def largest(X: Any) -> FloatArray:
    """The largest |x| of every column."""
    sizes = [block.abs().amax(0) for _, block in blocks(X)]
    return _back(_torch().stack(sizes).amax(0).double()) if sizes else np.zeros(X.shape[1])


def _torch() -> Any:
    return sys.modules["torch"]


def _kind(dtype: np.dtype[Any]) -> Any:
    return getattr(_torch(), dtype.name)


def beside(X: Any, x: Any, kind: Any = None) -> Any:
    """x on the device of X, explicitly, whichever that is: in that precision, or in its own."""
    tensor = _torch().from_numpy(np.array(x)) if isinstance(x, np.ndarray) else x
    return tensor.to(X.device, tensor.dtype if kind is None else kind)


def _back(x: Any) -> FloatArray:
    array: FloatArray = x.cpu().numpy()
    return array


def blocks(X: Any) -> Iterator[tuple[slice, Any]]:
    """Some rows of X after the other, with their places."""
    step = max(1, NUMBERS // (RUN * max(1, X.shape[1]))) * RUN
    for start in range(0, len(X), step):
        yield slice(start, start + step), X[start : start + step]
