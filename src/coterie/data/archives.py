"""Files that appear in one step, and archives of plain arrays with a JSON header (no pickle)."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.errors import CorruptFile, CoterieError, InvalidInput, NotRegistered
from coterie.numerics.arrays import digest

STAGED = ".coterie-new-"
"""The beginning of the names of temporary folders."""


def write_atomically(path: str | Path, content: bytes, *, public: bool = False) -> Path:
    """Write to a temporary file in the same folder, flush it to the disk, and put it in place in
    one step.

    Only the owner can read the file, unless it is `public`: then the process's file mode mask
    decides.
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
    """Add a record to the end of a file that only its owner can read.

    The record stays even if the process dies now. It overwrites an incomplete record of an earlier
    process.
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
    """Make a temporary folder for files that belong together, inside their final folder.

    When all of them are written, they replace the old files; otherwise the old files stay.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob(f"{STAGED}*"):  # by a process that was killed
        shutil.rmtree(left, ignore_errors=True)
    temporary = Path(tempfile.mkdtemp(dir=folder, prefix=STAGED))
    try:
        yield temporary
        for file in sorted(temporary.iterdir()):
            file.replace(folder / file.name)
        _flush(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _flush(folder: Path) -> None:
    """Make sure that the names in a folder outlast a crash."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_bytes(path: str | Path) -> bytes:
    """Read a file. A missing or unreadable file is an error of the caller, not a corrupt file."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidInput(
            f"{path} cannot be read ({error.strerror}). Is the path right?"
        ) from error


def _umask() -> int:
    """The process's file mode mask; reading it requires setting it."""
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
    """Read header and arrays of a file that `write_archive` wrote; refuse other files.

    Old files have no seal. A caller that needs one checks `"seal" in header`.
    """
    content = read_bytes(path)
    with readable(path, kind):
        if not zipfile.is_zipfile(io.BytesIO(content)):
            raise ValueError("it is not an .npz file, or it is truncated")
        with zipfile.ZipFile(io.BytesIO(content)) as stored:
            entries = stored.infolist()
            # `write_archive` never compresses: a file that would unpack to more than its size is
            # refused before it does.
            compressed = any(entry.compress_type != zipfile.ZIP_STORED for entry in entries)
            announced = sum(entry.file_size for entry in entries)
            if compressed or len(content) < announced:
                raise ValueError("it is compressed, or announces more than it has")
            arrays = {}
            for entry in entries:
                name = entry.filename.removesuffix(".npy")
                arrays[name] = _array(stored.read(entry))
        header = json.loads(arrays.pop("header").tobytes())
        seal = {key: value for key, value in header.items() if key != "seal"}
        if "seal" in header and header["seal"] != _seal(seal, arrays):
            raise CorruptFile(
                f"{path} was changed after it was written: its digest does not match its content."
            )
    return header, arrays


def csv_text(header: Sequence[str], rows: Iterable[Sequence[object]], *, raw: bool = False) -> str:
    """Write a table as CSV; cells that a spreadsheet would run become plain text, unless `raw`."""
    written: Callable[[object], str] = plain_cell
    if raw:
        written = str
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in (header, *rows):
        writer.writerow(map(written, row))
    return text.getvalue()


def plain_cell(value: object) -> str:
    """Write a cell of a table as text, with an apostrophe before the formula of a spreadsheet."""
    if value is None:
        return ""
    text = str(value)
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
    """Turn errors in the interpretation of a file's content into `CorruptFile`, except `passes`."""
    try:
        yield
    except (CorruptFile, passes):
        raise
    except Exception as error:
        raise CorruptFile(
            f"{path} is not a readable {kind} ({type(error).__name__}: {error})."
        ) from error


def _array(entry: bytes) -> npt.NDArray[Any]:
    """Read one array of an archive, after comparing its size with the size that it announces."""
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
    """Compute a digest of the content of an archive."""
    parts: list[Any] = [json.dumps(header)]
    for name in sorted(arrays):
        parts += [name, arrays[name]]
    return digest(*parts)


def without_nan(value: Any) -> Any:
    """Prepare plain values for JSON: infinite numbers become text, NaN becomes null."""
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
    """Read numbers that `without_nan` wrote."""
    return {name: _number(value) for name, value in values.items()}


def _number(value: Any) -> float:
    if value is None:
        return math.nan
    return float(value)
