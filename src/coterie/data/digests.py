"""The digest of a large table's numbers, computed in parallel: SHA-256 of every 64 KiB, and of
those in their order.

One SHA-256 reads its bytes one after the other, a gigabyte in half a second or more. From `LARGE`
bytes on, the bytes of a dense array (its numbers in C order, little-endian, half precision as
float32) are cut into leaves of 64 KiB, the last one shorter. The digest is then that of a text:
`leaves`, type, shape, and the SHA-256 of all leaves' SHA-256. Type and shape determine the number
and the length of the leaves, so two arrays of one digest would be a collision of SHA-256 itself.
Threads digest memory, and a GPU digests its own.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np

from coterie.numerics.arrays import Matrix, host, is_sparse, is_tensor
from coterie.numerics.threads import spread

LEAF = 1 << 16
PIECE = 1 << 22
"""The number of bytes that a thread digests at a time."""
LARGE = 1 << 26
ON_DEVICE = 1 << 28
"""The number of numbers that a GPU digests at a time; it widens half precision for this."""


def fingerprint(X: Matrix) -> Any:
    """Return X itself where it is small or sparse, else a text that stands for its bytes."""
    if is_sparse(X):
        return X
    kind = _kind_of(X)
    shape = tuple(X.shape)
    if int(np.prod(shape)) * kind.itemsize < LARGE:
        return X
    if is_tensor(X) and X.is_cuda:
        leaves = _of_tensor(X)
    else:
        leaves = _of_memory(host(X))
    return f"leaves:{kind.newbyteorder('<').str}:{shape}:{hashlib.sha256(leaves).hexdigest()}"


def _kind_of(X: Matrix) -> np.dtype[Any]:
    """The type of the numbers that are digested; half precision is digested as float32."""
    if not is_tensor(X):
        kind: np.dtype[Any] = X.dtype
        return kind
    if X.element_size() == 8:
        return np.dtype(np.float64)
    return np.dtype(np.float32)


def _of_memory(X: Any) -> bytes:
    little: Any = np.ascontiguousarray(X, X.dtype.newbyteorder("<"))
    data = memoryview(little.reshape(-1).view(np.uint8))

    def digested(start: int) -> bytes:
        end = min(start + PIECE, len(data))
        return b"".join(
            hashlib.sha256(data[at : min(at + LEAF, end)]).digest()
            for at in range(start, end, LEAF)
        )

    return b"".join(spread(digested, range(0, len(data), PIECE), PIECE))


def begin_to_compile(X: Matrix) -> None:
    """Compile the kernel that digests X, if X is on a GPU, in a thread of its own.

    The end of a run then need not wait for it.
    """
    if is_tensor(X) and X.is_cuda and X.numel() * max(X.element_size(), 4) >= LARGE:
        _compiled(X.device)


@cache
def _compiled(device: Any) -> Future[Any]:
    """Compile the kernel that digests integers on that GPU; None for a torch without Triton."""

    def compiled() -> Any:
        try:
            from coterie.numerics.kernels.leaf_digests import leaf_digests
        except ImportError:
            return None
        import torch

        leaf_digests(torch.zeros(LEAF // 4, dtype=torch.int32, device=device))
        return leaf_digests

    pool = ThreadPoolExecutor(1, "coterie-compile")
    try:
        return pool.submit(compiled)
    finally:
        pool.shutdown(wait=False)


def _of_tensor(X: Any) -> bytes:
    leaf_digests = _compiled(X.device).result()
    if leaf_digests is None:
        return _of_memory(host(X))
    leaves = []
    for part in X.detach().contiguous().view(-1).split(ON_DEVICE):
        numbers = part
        if part.element_size() < 4:
            numbers = part.float()
        size = numbers.element_size()
        whole = numbers.numel() * size // LEAF * (LEAF // size)
        if whole:
            leaves.append(leaf_digests(_integers(numbers[:whole])))
        if whole < numbers.numel():
            rest = host(numbers[whole:]).tobytes()
            leaves.append(hashlib.sha256(rest).digest())
    return b"".join(leaves)


def _integers(numbers: Any) -> Any:
    import torch

    return numbers.view(torch.int32)
