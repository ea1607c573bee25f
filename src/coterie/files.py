"""Files that a reader never sees half of, and archives of plain arrays with a JSON header, never pickle."""

from __future__ import annotations

import io
import json
import os
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from coterie.errors import CorruptFile, InvalidInput

__all__ = ["read_archive", "read_bytes", "write_archive", "write_atomically"]


def write_atomically(path: str | Path, content: bytes) -> Path:
    """Write to a temporary file in the same folder, flush it to the disk, and put it in place in one step."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return path


def read_bytes(path: str | Path) -> bytes:
    """The content of a file; one that is not there, or cannot be read, is the caller's mistake and not the file's."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read ({error.strerror}). Is the path right?") from error


def _umask() -> int:
    """The process's file mode mask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_archive(path: str | Path, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> Path:
    """Write a header of plain values and named arrays as one `.npz` file, atomically."""
    buffer = io.BytesIO()
    np.savez(buffer, header=np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays)
    return write_atomically(path, buffer.getvalue())


def read_archive(path: str | Path, kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and arrays of a file that `write_archive` wrote; anything else is refused as no readable `kind`."""
    content = read_bytes(path)
    try:
        if not zipfile.is_zipfile(io.BytesIO(content)):
            raise ValueError("it is not an .npz file, or it is truncated")
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        header = json.loads(arrays.pop("header").tobytes())
        if not isinstance(header, dict):
            raise ValueError("its header is not a table")
    except (OSError, ValueError, KeyError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise CorruptFile(f"{path} is not a readable {kind} ({type(error).__name__}: {error}).") from error
    return header, arrays
