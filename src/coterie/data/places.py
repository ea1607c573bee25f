"""The place of a wrong value in a CSV file: errors count rows from 0, readers see lines of a file, the header first."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from coterie.errors import InvalidData

if TYPE_CHECKING:
    from coterie.data.table import Table

NOUNS = {"label": "target", "weight": "weight", "exposure": "exposure", "offset": "offset", "event": "event"}
NOUNS |= {"time": "time", "enters": "entry", "id": "id"}
"""The noun for a value in errors, and the role of its column."""


@dataclass(frozen=True)
class Origin:
    """The CSV file from which a table was read."""

    file: Path
    separator: str
    named: Mapping[str, str] = field(default_factory=dict)
    """The columns of labels, weights and so on, by their roles."""
    rows: npt.NDArray[np.intp] | None = None
    """The remaining rows of the file; None: all."""

    def taken(self, rows: Any) -> Origin:
        """The origin of some of the rows."""
        if self.rows is None:
            return replace(self, rows=np.asarray(rows))
        return replace(self, rows=self.rows[rows])

    def told(self, message: str) -> str:
        """The message with the file, line, column and value in place of the number of a row."""
        found = re.search(r"\brow (\d+)(\))?", message)
        if found is None:
            return message
        row = self._row_of_file(int(found[1]))
        named = re.search(r"column '([^']+)'", message)
        column = named[1] if named else self._column_of_noun(message)
        line, cell = self._cell(row, column)
        if line is None:
            return message
        place = f"line {line} of {self.file}"
        if column is not None and not named:
            place += f", column {column!r}"
        closing = found[2] or ""
        if closing:
            place += _shown(cell)
        rest = message[found.end() :]
        if rest.startswith(" has") and place.endswith("'"):
            place += ","
        if rest.startswith(" of column"):
            rest = ", column" + rest.removeprefix(" of column")
        return message[: found.start()] + place + closing + rest

    def _row_of_file(self, row: int) -> int:
        if self.rows is None:
            return row
        return int(self.rows[row])

    def _column_of_noun(self, message: str) -> str | None:
        """The column of the labels, weights and so on that the message names."""
        for noun, role in NOUNS.items():
            if role in self.named and re.search(rf"\b{noun}", message):
                return self.named[role]
        return None

    def _cell(self, row: int, column: str | None) -> tuple[int | None, str | None]:
        """The line of a row, and its cell in a column."""
        import pyarrow as pa

        with pa.input_stream(str(self.file)) as stream, io.TextIOWrapper(stream, "utf-8-sig", "replace") as text:
            lines = csv.reader(text, delimiter=self.separator)
            header = next(lines, [])
            for cells in lines:
                if not cells:
                    continue
                if row == 0:
                    place = header.index(column) if column in header else len(cells)
                    return lines.line_num, cells[place] if place < len(cells) else None
                row -= 1
        return None, None


def _shown(cell: str | None) -> str:
    if cell is None:
        return ""
    if not cell.strip():
        return ": an empty cell"
    return f": {cell!r}"


@contextmanager
def naming_lines(*tables: Table) -> Iterator[None]:
    """Let errors about rows of these tables name the line of the CSV file from which they were read."""
    try:
        yield
    except InvalidData as error:
        message = str(error)
        for table in tables:
            if table.origin is not None and message.startswith(f"party {table.name!r}:"):
                raise InvalidData(table.origin.told(message)) from None
        raise


def encoding_error(path: Path, party: str) -> InvalidData | None:
    """The error about a text file that is not UTF-8, with the first line that is not; None for a UTF-8 file."""
    import pyarrow as pa

    with pa.input_stream(str(path)) as stream:
        for number, line in enumerate(io.BufferedReader(stream), 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                wide = line.startswith((b"\xff\xfe", b"\xfe\xff"))
                kind, name = ("UTF-16", "utf-16") if wide else ("Latin-1 or Windows-1252", "cp1252")
                where = f"line {number} has the byte 0x{line[error.start]:02X}"
                return InvalidData(
                    f"party {party!r}: the file {str(path)!r} is not encoded in UTF-8 ({where}; it may be {kind}). "
                    f"Save it as UTF-8, e.g. with: iconv -f {name} -t utf-8 {path.name} > utf8.csv"
                )
    return None
