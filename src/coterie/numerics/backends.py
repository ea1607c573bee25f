"""Arithmetic of low-rank tasks on numpy arrays (and scipy.sparse), or on torch tensors on a CPU or
a GPU.

The data determine `backend(X)`. Tasks keep their large arrays there. Vectors, small blocks and
messages that enter and leave are numpy arrays, so methods, collectives and checkpoints contain no
tensor. Data in half precision (bfloat16, float16) keeps its precision, and every sum over it is
taken in float32. Only this file imports torch, and only if a tensor was given.

| operation             | meaning                                                               |
|-----------------------|-----------------------------------------------------------------------|
| `product(M, v)`       | M v                                                                   |
| `adjoint(M, z)`       | Mᵀ z                                                                  |
| `blend(R, Y, ...)`    | R ← (1 − γ) R − γ Y + (γ·scale) x vᵀ, in place                        |
| `softmax(A, P, ...)`  | A ← (1 − γ) A + (γ·scale) x vᵀ and P ← softmax of its rows, in place  |
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg

from coterie.numerics.arrays import FloatArray, is_sparse, is_tensor, product

BLOCK = 1 << 16
"""Numbers of a block, so that several passes over it find them in the cache."""
SQUARINGS = 24
"""Squarings of a Gram matrix, which separate singular values a millionth apart."""
DEVICE_BLOCK = 1 << 26
"""Numbers of a block of tensors: enough to keep a GPU busy, and little of its memory."""


def backend(X: Any) -> NumpyBackend | TorchBackend:
    """Return the backend for arrays like X."""
    if is_tensor(X):
        return TorchBackend(X)
    return NumpyBackend(X)


class NumpyBackend:
    """numpy and scipy.sparse."""

    fast = False
    """Whether it is a GPU, which is slow on few rows."""

    def __init__(self, X: Any):
        self.dtype: np.dtype[Any] = X.dtype

    def converted(self, v: FloatArray) -> Any:
        """Return v in the precision of the large arrays."""
        return np.asarray(v, self.dtype)

    def to_numpy(self, x: Any) -> FloatArray:
        """Return x as a numpy array for messages."""
        return np.asarray(x)

    def labels(self, y: Any) -> Any:
        """Return class numbers as indices."""
        return np.asarray(y).astype(np.intp)

    def zeros(self, rows: int, columns: int, stored: bool = False) -> Any:
        """Return a large array of zeros in the precision of sums; `stored`: in that of the data."""
        return np.zeros((rows, columns), self.dtype)

    def ones(self, rows: int) -> Any:
        """Return a vector of ones in the precision of sums."""
        return np.ones(rows, self.dtype)

    def widened(self, X: Any) -> Any:
        """Return X in float64."""
        return X.astype(np.float64, copy=False)

    def joined(self, one: Any, other: Any) -> Any:
        """Return the columns of both."""
        return np.hstack([one, other])

    def gram(self, X: Any, Y: Any) -> Any:
        """Return Xᵀ Y as a dense array."""
        product = X.T @ Y
        if is_sparse(product):
            return product.toarray()
        return product

    def gram_square(self, X: Any, R: Any) -> float:
        """Return ‖Xᵀ R‖²_F = ⟨X Xᵀ, R Rᵀ⟩, from the smaller of the two matrices."""
        n, d = X.shape
        if n * n > d * R.shape[1]:
            return float(np.linalg.norm(self.gram(X, R))) ** 2
        kernel = X @ X.T
        if is_sparse(kernel):
            kernel = kernel.toarray()
        return float(np.vdot(kernel, R @ R.T))

    def largest_eigenvalue(self, M: FloatArray) -> float:
        """Return λmax(MᵀM) of an array in float64."""
        last = M.shape[1] - 1
        gram = M.T @ M
        largest = scipy.linalg.eigvalsh(gram, subset_by_index=(last, last), check_finite=False)
        return float(largest[0])

    def scaled_rows(self, X: Any, factors: Any) -> Any:
        """Return diag(factors) X."""
        if is_sparse(X):
            scaled = X.copy()
            factor_of_number = np.repeat(factors, np.diff(X.indptr))
            scaled.data = X.data * factor_of_number.astype(X.dtype)
            return scaled
        return X * factors.reshape(-1, *(1,) * (X.ndim - 1))

    def product(self, M: Any, v: Any) -> Any:
        """Return M v."""
        return product(M, v)

    def adjoint(self, M: Any, z: Any) -> Any:
        """Return Mᵀ z."""
        return product(M.T, z)

    def count(self, labels: Any, z: Any, classes: int) -> Any:
        """Return Hᵀ z for the indicator matrix H of the labels."""
        if z.ndim == 1:
            counts = np.bincount(labels, z, classes)
        else:
            columns = [np.bincount(labels, column, classes) for column in z.T]
            counts = np.stack(columns, 1)
        return counts.astype(self.dtype, copy=False)

    def less_one(self, P: Any, labels: Any) -> Any:
        """Return P − H in the precision of sums."""
        residual = np.array(P)
        residual[np.arange(len(labels)), labels] -= 1.0
        return residual

    def total(self, x: Any, y: Any) -> float:
        """Return ⟨x, y⟩."""
        return float(np.vdot(x, y))

    def blend(self, R: Any, Y: Any, gamma: float, scale: float, x: Any, v: Any) -> None:
        """R ← (1 − γ) R − γ Y + (γ·scale) x vᵀ."""
        for rows in _row_blocks(*R.shape):
            block = R[rows]
            block *= 1.0 - gamma
            block -= gamma * Y[rows]
            block += np.multiply.outer((gamma * scale) * x[rows], v)

    def softmax(
        self, A: Any, P: Any, gamma: float, scale: float, x: Any, v: Any, b: Any = None
    ) -> None:
        """A ← (1 − γ) A + (γ·scale) x vᵀ, and P ← softmax of the rows of A + 1bᵀ."""
        for rows in _row_blocks(*A.shape):
            block = A[rows]
            block *= 1.0 - gamma
            block += np.multiply.outer((gamma * scale) * x[rows], v)
            _softmax(_raised(block, b), P[rows])

    def scores(self, A: Any, P: Any, projected: Any, right: Any, b: Any = None) -> None:
        """A ← projected rightᵀ, and P ← softmax of the rows of A + 1bᵀ."""
        for rows in _row_blocks(*A.shape):
            np.matmul(projected[rows], right.T, out=A[rows])
            _softmax(_raised(A[rows], b), P[rows])

    def probabilities(self, A: Any, P: Any, b: Any) -> None:
        """P ← softmax of the rows of A + 1bᵀ."""
        for rows in _row_blocks(*A.shape):
            _softmax(_raised(A[rows], b), P[rows])

    def cross_entropy(self, A: Any, labels: Any, weights: Any, b: Any = None) -> float:
        """Return Σ_i s_i (log Σ_l exp(A_il + b_l) − A_i,y − b_y)."""
        total = 0.0
        for rows in _row_blocks(*A.shape):
            scores = _raised(A[rows], b)
            losses = _cross_entropies(scores, labels[rows])
            total += float(np.dot(weights[rows], losses))
        return total

    def softmax_gradients(
        self,
        A: Any,
        labels: Any,
        weights: Any,
        gamma: float,
        scale: float,
        x: Any,
        v: Any,
        b: Any = None,
    ) -> FloatArray:
        """Return the first and the second derivative, at γ, of the cross entropy along
        A + γ D + 1bᵀ with D = scale·x vᵀ − A.
        """
        gradient = 0.0
        curvature = 0.0
        for rows in _row_blocks(*A.shape):
            D = np.multiply.outer(scale * x[rows], v) - A[rows]
            P = _raised(A[rows] + gamma * D, b)
            _softmax(P, P)
            mean = np.einsum("ij,ij->i", P, D)
            square = np.einsum("ij,ij,ij->i", P, D, D) - mean * mean
            change = mean - _picked(D, labels[rows])
            gradient += float(np.dot(weights[rows], change))
            curvature += float(np.dot(weights[rows], square))
        return np.array([gradient, curvature])


def _row_blocks(n: int, m: int, *, numbers: int = BLOCK) -> list[slice]:
    step = max(1, numbers // max(1, m))
    return [slice(start, min(start + step, n)) for start in range(0, n, step)]


def _raised(A: Any, b: Any) -> Any:
    if b is None:
        return A
    return A + b


def _softmax(A: FloatArray, out: FloatArray) -> None:
    np.subtract(A, A.max(axis=1, keepdims=True), out=out)
    np.exp(out, out=out)
    out /= out.sum(axis=1, keepdims=True)


def _cross_entropies(A: FloatArray, labels: npt.NDArray[np.intp]) -> FloatArray:
    """Return log Σ_l exp(A_il) − A_i,y of every row; a common part of all scores of a row costs no
    digits.
    """
    top = A.argmax(axis=1)
    lowered = A - _picked(A, top)[:, None]
    others = np.exp(lowered)
    np.put_along_axis(others, top[:, None], 0.0, axis=1)
    losses: FloatArray = np.log1p(others.sum(axis=1)) - _picked(lowered, labels)
    return losses


def _picked(A: FloatArray, labels: npt.NDArray[np.intp]) -> FloatArray:
    return np.take_along_axis(A, labels[:, None], 1)[:, 0]


class TorchBackend:
    """The arithmetic of `NumpyBackend` for torch tensors, on the device of the data. On a GPU,
    products with half precision are compiled.
    """

    def __init__(self, X: Any):
        import torch

        self.torch: Any = torch
        self.device = X.device
        self.stored = X.dtype
        self.summed: Any
        if X.dtype in (torch.bfloat16, torch.float16):
            self.summed = torch.float32
        else:
            self.summed = X.dtype
        self.dtype: np.dtype[Any] = np.dtype(np.float32)
        if self.summed == torch.float64:
            self.dtype = np.dtype(np.float64)
        self.fast = X.device.type == "cuda"
        self._sorted: tuple[Any, Any, Any] | None = None

    def converted(self, v: Any) -> Any:
        """Return v on the device of the large arrays, in the precision of sums."""
        if not is_tensor(v):
            v = self.torch.from_numpy(np.array(v))
        return v.to(self.device, self.summed)

    def to_numpy(self, x: Any) -> FloatArray:
        kind = self.torch.float32
        if self.dtype == np.float64:
            kind = self.torch.float64
        array: FloatArray = x.to("cpu", kind).numpy()
        return array

    def labels(self, y: Any) -> Any:
        if is_tensor(y):
            tensor = y
        else:
            tensor = self.torch.from_numpy(np.asarray(y).astype(np.int64))
        return tensor.to(self.device, self.torch.int64)

    def zeros(self, rows: int, columns: int, stored: bool = False) -> Any:
        if stored:
            kind = self.stored
        else:
            kind = self.summed
        return self.torch.zeros((rows, columns), dtype=kind, device=self.device)

    def ones(self, rows: int) -> Any:
        return self.torch.ones(rows, dtype=self.summed, device=self.device)

    def widened(self, X: Any) -> Any:
        return X.to(self.torch.float64)

    def joined(self, one: Any, other: Any) -> Any:
        return self.torch.hstack([one, other])

    def gram(self, X: Any, Y: Any) -> Any:
        if self.stored == self.summed:
            return X.T @ Y
        total = self.torch.zeros((X.shape[1], Y.shape[1]), dtype=self.summed, device=self.device)
        for start in range(0, len(X), BLOCK):
            rows = slice(start, start + BLOCK)
            total += X[rows].to(self.summed).T @ Y[rows].to(self.summed)
        return total

    def gram_square(self, X: Any, R: Any) -> float:
        """Return ‖Xᵀ R‖²_F."""
        return float(self.torch.linalg.norm(self.gram(X, R))) ** 2

    def largest_eigenvalue(self, M: FloatArray) -> float:
        there = self.torch.from_numpy(np.array(M)).to(self.device)
        return float(self.torch.linalg.eigvalsh(there.T @ there)[-1])

    def leading_pair(self, M: Any) -> tuple[FloatArray, FloatArray]:
        """Return unit vectors u, v with uᵀ M v = σ_max(M). MᵀM is squared until only one singular
        value is left of it.

        A GPU multiplies matrices in the time in which one vector goes to the host and back.
        """
        tiny = self.torch.finfo(M.dtype).tiny
        wide = M.shape[1] > M.shape[0]
        tall = M.T if wide else M
        tall = tall / M.abs().max().clamp_min(tiny)
        G = tall.T @ tall
        for _ in range(SQUARINGS):
            size = (G * G).sum().sqrt()
            G = G @ G / size.clamp_min(tiny)
        v = self._unit(G[:, G.diagonal().argmax()])
        u = self._unit(tall @ v)
        if wide:
            return self.to_numpy(v), self.to_numpy(u)
        return self.to_numpy(u), self.to_numpy(v)

    def _unit(self, v: Any) -> Any:
        """Return v with length 1; the first unit vector if v is 0."""
        if bool(v.any()):
            return v / v.norm()
        return self.torch.eye(1, len(v), dtype=v.dtype, device=self.device)[0]

    def scaled_rows(self, X: Any, factors: Any) -> Any:
        return X * factors.to(X.dtype).reshape(-1, *(1,) * (X.ndim - 1))

    def product(self, M: Any, v: Any) -> Any:
        """Return M v, summed in float32 where M is in half precision."""
        if M.dtype == v.dtype:
            return M @ v
        if v.ndim == 1:
            if self.fast:
                return self._kernels().row_products(M, v)
            return (M.to(v.dtype) * v).sum(1)
        return self.torch.cat([block.to(v.dtype) @ v for block in M.split(BLOCK)])

    def adjoint(self, M: Any, z: Any) -> Any:
        """Return Mᵀ z, summed in float32 where M is in half precision."""
        if M.dtype == z.dtype:
            return M.T @ z
        if z.ndim == 1:
            if self.fast:
                return self._kernels().column_products(M, z)
            return (M.to(z.dtype) * z[:, None]).sum(0)
        return self.gram(M, z)

    def count(self, labels: Any, z: Any, classes: int) -> Any:
        # Class by class: otherwise a GPU would add the rows in another order every time.
        if self._sorted is None or self._sorted[0] is not labels:
            lengths = self.torch.bincount(labels, minlength=classes)
            self._sorted = labels, labels.argsort(stable=True), lengths
        _, order, lengths = self._sorted
        return self.torch.segment_reduce(z[order], "sum", lengths=lengths, unsafe=True, initial=0)

    def less_one(self, P: Any, labels: Any) -> Any:
        residual = P.to(self.summed, copy=True)
        residual[self.torch.arange(len(labels), device=self.device), labels] -= 1.0
        return residual

    def total(self, x: Any, y: Any) -> float:
        return float((x * y).sum())

    def blend(self, R: Any, Y: Any, gamma: float, scale: float, x: Any, v: Any) -> None:
        R.mul_(1.0 - gamma).sub_(Y, alpha=gamma).addr_(x, v, alpha=gamma * scale)

    def softmax(
        self, A: Any, P: Any, gamma: float, scale: float, x: Any, v: Any, b: Any = None
    ) -> None:
        if self.fast and self.stored != self.summed and b is None:
            self._kernels().update_softmax(A, P, 1.0 - gamma, x, v * (gamma * scale))
            return
        A.mul_(1.0 - gamma).addr_(x, v, alpha=gamma * scale)
        self.probabilities(A, P, b)

    def scores(self, A: Any, P: Any, projected: Any, right: Any, b: Any = None) -> None:
        self.torch.matmul(projected, right.T, out=A)
        self.probabilities(A, P, b)

    def probabilities(self, A: Any, P: Any, b: Any) -> None:
        for rows in _row_blocks(*A.shape, numbers=DEVICE_BLOCK):
            P[rows] = _raised(A[rows], b).softmax(1)

    def cross_entropy(self, A: Any, labels: Any, weights: Any, b: Any = None) -> float:
        total = self.torch.zeros((), dtype=self.torch.float64, device=self.device)
        for rows in _row_blocks(*A.shape, numbers=DEVICE_BLOCK):
            scores = _raised(A[rows], b)
            losses = self.torch.nn.functional.cross_entropy(scores, labels[rows], reduction="none")
            total += self.torch.dot(weights[rows].double(), losses.double())
        return float(total)

    def softmax_gradients(
        self,
        A: Any,
        labels: Any,
        weights: Any,
        gamma: float,
        scale: float,
        x: Any,
        v: Any,
        b: Any = None,
    ) -> FloatArray:
        sums = self.torch.zeros(2, dtype=self.torch.float64, device=self.device)
        for rows in _row_blocks(*A.shape, numbers=DEVICE_BLOCK):
            D = (scale * x[rows])[:, None] * v - A[rows]
            P = _raised(A[rows] + gamma * D, b).softmax(1)
            picked = D.gather(1, labels[rows, None])[:, 0]
            P *= D
            mean = P.sum(1)
            square = P.mul_(D).sum(1) - mean * mean
            derivatives = self.torch.stack([mean - picked, square]).double()
            sums += derivatives @ weights[rows].double()
        return np.array(sums.tolist())

    @staticmethod
    def _kernels() -> Any:
        from coterie.numerics.kernels import half_precision

        return half_precision
