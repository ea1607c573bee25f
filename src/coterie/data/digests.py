"""The digest of a large table's numbers, computed in parallel: SHA-256 of every 64 KiB, and of
those in their order.

One SHA-256 reads its bytes one after the other, a gigabyte in half a second or more. From `LARGE`
bytes on, the bytes of a dense array (its numbers in C order, little-endian, half precision as
float32) are cut into leaves of 64 KiB, the last one shorter, and what is digested in their place is
`leaves`, type, shape and the SHA-256 of all leaves' SHA-256. Type and shape say how many leaves
there are and how long, so two arrays of one digest would be a collision of SHA-256 itself. Where
the numbers lie does not matter: threads digest memory, and a GPU its own.
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
"""Bytes that a thread digests at a time."""
LARGE = 1 << 26
ON_DEVICE = 1 << 28
"""Numbers that a GPU digests at a time: half precision is widened for it."""


def fingerprint(X: Matrix) -> Any:
    """What is digested of X: itself where it is small or sparse, and otherwise a text that stands
    for its bytes.
    """
    if is_sparse(X):
        return X
    kind = (
        np.dtype(np.float64 if X.element_size() == 8 else np.float32) if is_tensor(X) else X.dtype
    )
    shape = tuple(X.shape)
    if int(np.prod(shape)) * kind.itemsize < LARGE:
        return X
    leaves = _of_tensor(X) if is_tensor(X) and X.is_cuda else _of_memory(host(X))
    return f"leaves:{kind.newbyteorder('<').str}:{shape}:{hashlib.sha256(leaves).hexdigest()}"


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
    """Compile what digests X in a thread of its own, if a GPU will: the end of a run need not wait
    for it.
    """
    if is_tensor(X) and X.is_cuda and X.numel() * max(X.element_size(), 4) >= LARGE:
        _compiled(X.device)


@cache
def _compiled(device: Any) -> Future[Any]:
    """The function that digests words on that GPU; None for a torch without Triton."""

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
        numbers = part.float() if part.element_size() < 4 else part
        whole = numbers.numel() * numbers.element_size() // LEAF * (LEAF // numbers.element_size())
        leaves += [leaf_digests(_words(numbers[:whole]))] if whole else []
        leaves += (
            [hashlib.sha256(host(numbers[whole:]).tobytes()).digest()]
            if whole < numbers.numel()
            else []
        )
    return b"".join(leaves)


def _words(numbers: Any) -> Any:
    import torch

    return numbers.view(torch.int32)
