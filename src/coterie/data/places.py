"""The place of a wrong value in a CSV file.

Errors count rows from 0; a reader of the file sees lines, the header first.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from coterie.errors import InvalidData, WrongValue

if TYPE_CHECKING:
    from coterie.data.table import Table

ROLES: dict[str | None, tuple[str, ...]] = {
    "label": ("target",),
    "weight": ("weight",),
    "offset": ("exposure", "offset"),
    "id": ("id",),
    "time": ("time",),
    "event": ("event",),
    "entry": ("entry",),
}
"""The roles that the column of a value can have, by the noun for the value."""


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

    def message(self, value: WrongValue) -> str | None:
        """Write the message about a value with its file, line, column and cell.

        None if the value is not in the file.
        """
        column = value.column or self._column_of(value.noun)
        line, cell = self._cell(self._row_of_file(value.row), column)
        if line is None:
            return None
        place = f"line {line} of {self.file}"
        if column is not None and f"column {column!r}" not in value.before + value.after:
            place += f", column {column!r}"
            if value.after.startswith(" "):  # a verb
                place += ","
        if value.shows_cell:
            place += _shown(cell)
        return value.message(place)

    def _row_of_file(self, row: int) -> int:
        if self.rows is None:
            return row
        return int(self.rows[row])

    def _column_of(self, noun: str | None) -> str | None:
        """The column of the labels, weights and so on."""
        for role in ROLES.get(noun, ()):
            if role in self.named:
                return self.named[role]
        return None

    def _cell(self, row: int, column: str | None) -> tuple[int | None, str | None]:
        """Find the line of a row, and its cell in a column."""
        import pyarrow as pa

        with (
            pa.input_stream(str(self.file)) as stream,
            io.TextIOWrapper(stream, "utf-8-sig", "replace") as text,
        ):
            lines = csv.reader(text, delimiter=self.separator)
            header = next(lines, [])
            for cells in lines:
                if not cells:
                    continue
                if row == 0:
                    return lines.line_num, _cell(header, cells, column)
                row -= 1
        return None, None


def _cell(header: list[str], cells: list[str], column: str | None) -> str | None:
    """The cell of a line in a column; None if the line or the file does not have it."""
    if column not in header:
        return None
    place = header.index(column)
    if place >= len(cells):
        return None
    return cells[place]


def _shown(cell: str | None) -> str:
    if cell is None:
        return ""
    if not cell.strip():
        return ": an empty cell"
    return f": {cell!r}"


@contextmanager
def naming_lines(*tables: Table) -> Iterator[None]:
    """Let errors about rows of these tables name the line of the CSV file from which they were
    read.
    """
    try:
        yield
    except InvalidData as error:
        value = error.value
        for table in tables:
            if value is None or table.origin is None or table.name != value.party:
                continue
            message = table.origin.message(value)
            if message:
                raise InvalidData(message) from None
        raise


def encoding_error(path: Path, party: str) -> InvalidData | None:
    """Make the error about a text file that is not UTF-8, with the first such line; None for a
    UTF-8 file.
    """
    import pyarrow as pa

    with pa.input_stream(str(path)) as stream:
        for number, line in enumerate(io.BufferedReader(stream), 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                kind = "Latin-1 or Windows-1252"
                name = "cp1252"
                if line.startswith((b"\xff\xfe", b"\xfe\xff")):
                    kind = "UTF-16"
                    name = "utf-16"
                where = f"line {number} has the byte 0x{line[error.start]:02X}"
                return InvalidData(
                    f"party {party!r}: the file {str(path)!r} is not encoded in UTF-8 ({where}; it "
                    f"may be {kind}). Save it as UTF-8, e.g. with: iconv -f {name} -t utf-8 "
                    f"{path.name} > utf8.csv"
                )
    return None
