"""Matrices larger than memory: numbers in a temporary file that is mapped, and read again on every
pass.

The file has no name. It disappears with the last array that maps it, also after `kill -9`. The
system can drop clean pages from memory at any time, so a pass over more rows than memory holds is
slow, but no error.
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
"""The share of the free memory that matrices may take. A run needs memory of its own: about a dozen
numbers for each row.
"""
BLOCK = 1 << 20
"""The maximum number of numbers that are copied at a time."""


def memory_left() -> float:
    """The bytes that this process may still take: the minimum over memory, its control group, and
    its limits.
    """
    found = [math.inf]
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            found.append(1024.0 * int(line.split()[1]))
    most_of_group = _lines("/sys/fs/cgroup/memory.max")
    used_by_group = _lines("/sys/fs/cgroup/memory.current")
    if most_of_group and used_by_group and most_of_group[0].strip() != "max":
        found.append(float(most_of_group[0]) - float(used_by_group[0]))
    for limit, taken in ((resource.RLIMIT_DATA, "VmData:"), (resource.RLIMIT_AS, "VmSize:")):
        most, _ = resource.getrlimit(limit)
        if most != resource.RLIM_INFINITY:
            found.append(most - 1024.0 * _of_process(taken))
    return max(min(found), 0.0)


def _of_process(entry: str) -> int:
    """The kilobytes of an entry in the status of this process; 0 if it has none."""
    for line in _lines("/proc/self/status"):
        if line.startswith(entry):
            return int(line.split()[1])
    return 0


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
    """Make a matrix to be filled, in memory or in a temporary file.

    With `on_disk=None`, the matrix is in a file if memory would not hold it.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    order: Any = "C"
    if by_columns:
        order = "F"
    if on_disk is None:
        on_disk = bool(size) and size > SHARE * memory_left()
    if not size or not on_disk:
        return np.empty(shape, dtype, order)
    folder = tempfile.gettempdir()
    with tempfile.TemporaryFile(dir=folder) as file:
        try:
            # With the space allocated, a full disk is an error now and not a dead process later.
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            free = shutil.disk_usage(folder).free
            raise InvalidData(
                f"the data takes {size / 1e9:.3g} GB as numbers, more than memory holds, and "
                f"{folder!r} has room for {free / 1e9:.3g} GB ({error.strerror}). Set TMPDIR to a "
                "folder on a larger disk, or choose fewer columns."
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
    """Copy X[rows] into a temporary file."""
    by_columns = X.flags.f_contiguous and not X.flags.c_contiguous
    result = empty_matrix((len(rows), X.shape[1]), X.dtype, by_columns=by_columns, on_disk=True)
    step = max(1, BLOCK // max(X.shape[1], 1))
    for start in range(0, len(rows), step):
        result[start : start + step] = X[rows[start : start + step]]
    return result
