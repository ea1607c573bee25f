"""Matrices that memory does not hold: numbers in a temporary file that is mapped, and read again on
every pass.

The file has no name and is gone with the last array that looks at it, also after `kill -9`. What
was read and is clean can be dropped from memory at any time, so a pass over more rows than memory
holds is slow and not an error.
"""

from __future__ import annotations

import math
import os
import resource
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.errors import InvalidData

SHARE = 0.6
"""Of the memory that is left, matrices may take so much: a run has numbers of its own, about a
dozen for each row.
"""
BLOCK = 1 << 20
"""Numbers that are copied at a time."""


def memory_left() -> float:
    """Bytes that this process may still take, as far as the system tells: memory, its control
    group, its limits.
    """
    found = [math.inf]
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            found.append(1024.0 * int(line.split()[1]))
    group = [_lines(f"/sys/fs/cgroup/memory.{name}") for name in ("max", "current")]
    if all(group) and group[0][0].strip() != "max":
        found.append(float(group[0][0]) - float(group[1][0]))
    for limit, taken in ((resource.RLIMIT_DATA, "VmData:"), (resource.RLIMIT_AS, "VmSize:")):
        most = resource.getrlimit(limit)[0]
        if most != resource.RLIM_INFINITY:
            used = (
                line.split()[1] for line in _lines("/proc/self/status") if line.startswith(taken)
            )
            found.append(most - 1024.0 * int(next(used, "0")))
    return max(min(found), 0.0)


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def empty_matrix(
    shape: tuple[int, int],
    dtype: npt.DTypeLike,
    *,
    by_columns: bool = False,
    on_disk: bool | None = None,
) -> npt.NDArray[Any]:
    """A matrix to be filled, in memory or in a temporary file; with None, in a file if memory would
    not hold it.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    order: Any = "F" if by_columns else "C"
    if not size or not (size > SHARE * memory_left() if on_disk is None else on_disk):
        return np.empty(shape, dtype, order)
    folder = tempfile.gettempdir()
    with tempfile.TemporaryFile(dir=folder) as file:
        try:
            os.posix_fallocate(
                file.fileno(), 0, size
            )  # a full disk is an error now, and not a dead process later
        except OSError as error:
            free = shutil.disk_usage(folder).free
            raise InvalidData(
                f"the data takes {size / 1e9:.3g} GB as numbers, more than memory holds, and "
                f"{folder!r} has room for "
                f"{free / 1e9:.3g} GB ({error.strerror}). Set TMPDIR to a folder on a larger "
                "disk, or choose fewer "
                "columns."
            ) from None
        return np.memmap(file, dtype, "r+", shape=shape, order=order).view(np.ndarray)


def is_on_disk(X: object) -> bool:
    """Whether these numbers are in a file that is mapped."""
    while isinstance(X, np.ndarray):
        if isinstance(X, np.memmap):
            return True
        X = X.base
    return False


def copied_rows(X: npt.NDArray[Any], rows: npt.NDArray[np.intp]) -> npt.NDArray[Any]:
    """X[rows], in a file of its own if X is in one."""
    by_columns = X.flags.f_contiguous and not X.flags.c_contiguous
    result = empty_matrix((len(rows), X.shape[1]), X.dtype, by_columns=by_columns, on_disk=True)
    step = max(1, BLOCK // max(X.shape[1], 1))
    for start in range(0, len(rows), step):
        result[start : start + step] = X[rows[start : start + step]]
    return result
