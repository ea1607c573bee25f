"""Files that a reader never sees half of, and archives of plain arrays with a JSON header, never
pickle.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.errors import CorruptFile, CoterieError, InvalidInput, NotRegistered
from coterie.numerics.arrays import digest


def write_atomically(path: str | Path, content: bytes, *, public: bool = False) -> Path:
    """Write to a temporary file in the same folder, flush it to the disk, and put it in place in
    one step.

    Only its owner can read it, unless it is `public`: then whoever the process's file mode mask
    allows.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if public:
            Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _flush(path.parent)
    return path


def append(path: str | Path, record: bytes) -> None:
    """Add a record to the end of a file that its owner alone can read; it is there even if the
    process dies now.

    Part of a record that an earlier process could not write to its end is overwritten.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        end = os.fstat(handle).st_size // len(record) * len(record)
        os.pwrite(handle, record, end)
    finally:
        os.close(handle)


@contextmanager
def staged(folder: str | Path) -> Iterator[Path]:
    """A place beside what is in that folder, for files that belong together.

    When all of them are written, they replace the old ones; if one could not be, the old ones stay
    as they were.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob(".new-*"):  # by a process that was killed
        shutil.rmtree(left, ignore_errors=True)
    beside = Path(tempfile.mkdtemp(dir=folder, prefix=".new-"))
    try:
        yield beside
        for file in sorted(beside.iterdir()):
            file.replace(folder / file.name)
        _flush(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _flush(folder: Path) -> None:
    """Make sure that the names in a folder outlast a crash."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_bytes(path: str | Path) -> bytes:
    """The content of a file; one that is not there, or cannot be read, is the caller's mistake and
    not the file's.
    """
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidInput(
            f"{path} cannot be read ({error.strerror}). Is the path right?"
        ) from error


def _umask() -> int:
    """The process's file mode mask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_archive(path: str | Path, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> Path:
    """Write a header of plain values and named arrays as one `.npz` file, atomically, with a digest
    of all of it.
    """
    sealed = {**header, "seal": _seal(header, arrays)}
    buffer = io.BytesIO()
    np.savez(buffer, header=np.frombuffer(json.dumps(sealed).encode(), np.uint8), **arrays)
    return write_atomically(path, buffer.getvalue())


def read_archive(path: str | Path, kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and arrays of a file that `write_archive` wrote; anything else is refused as no
    readable `kind`.

    Files of before there were seals are read without one; whoever needs it asks for `"seal" in
    header`.
    """
    content = read_bytes(path)
    with readable(path, kind):
        if not zipfile.is_zipfile(io.BytesIO(content)):
            raise ValueError("it is not an .npz file, or it is truncated")
        with zipfile.ZipFile(io.BytesIO(content)) as stored:
            entries = stored.infolist()
            # Ours are never compressed: what would unpack to more than is there is refused before
            # it does.
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries) or len(
                content
            ) < sum(entry.file_size for entry in entries):
                raise ValueError("it is compressed, or announces more than it has")
            arrays = {
                entry.filename.removesuffix(".npy"): _array(stored.read(entry)) for entry in entries
            }
        header = json.loads(arrays.pop("header").tobytes())
        seal = {key: value for key, value in header.items() if key != "seal"}
        if "seal" in header and header["seal"] != _seal(seal, arrays):
            raise CorruptFile(
                f"{path} was changed after it was written: its digest does not match its content."
            )
    return header, arrays


def csv_text(header: Sequence[str], rows: Iterable[Sequence[object]], *, raw: bool = False) -> str:
    """A table as CSV; cells that a spreadsheet would run are made plain text, unless it is to be
    `raw`.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows(map(str if raw else plain_cell, row) for row in (header, *rows))
    return text.getvalue()


def plain_cell(value: object) -> str:
    """A cell of a table as text; an apostrophe stands before what a spreadsheet would take for a
    formula.
    """
    text = "" if value is None else str(value)
    try:
        float(text)
    except ValueError:
        if text.startswith(("=", "+", "-", "@", "\t", "\r")):
            return f"'{text}"
        return text
    return text


@contextmanager
def readable(
    path: str | Path, kind: str, passes: type[CoterieError] = NotRegistered
) -> Iterator[None]:
    """Whatever goes wrong inside while a file's content is made sense of, is that file's fault, but
    for `passes`.
    """
    try:
        yield
    except (CorruptFile, passes):
        raise
    except Exception as error:
        raise CorruptFile(
            f"{path} is not a readable {kind} ({type(error).__name__}: {error})."
        ) from error


def _array(entry: bytes) -> npt.NDArray[Any]:
    """One array of an archive; its size is compared with what it announces before memory is taken
    for it.
    """
    stream = io.BytesIO(entry)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError("an array in another format")
    shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    if math.prod(shape) * dtype.itemsize != len(entry) - stream.tell():
        raise ValueError(f"an array of shape {shape} has {len(entry) - stream.tell()} bytes")
    stream.seek(0)
    found: npt.NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
    return found


def _seal(header: Mapping[str, Any], arrays: Mapping[str, Any]) -> str:
    """A digest of all that an archive says."""
    return digest(
        json.dumps(header), *(part for name in sorted(arrays) for part in (name, arrays[name]))
    )


def without_nan(value: Any) -> Any:
    """Plain values for JSON: infinite numbers as text, what is no number as null."""
    if isinstance(value, dict):
        return {key: without_nan(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        if math.isnan(value):
            return None
        return str(value)
    return value


def with_nan(values: Mapping[str, Any]) -> dict[str, float]:
    """Numbers that `without_nan` wrote."""
    return {name: math.nan if value is None else float(value) for name, value in values.items()}
