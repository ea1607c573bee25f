"""Where in a CSV file a wrong value is: errors count rows from 0, people see lines of a file, the header first."""

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
"""What errors call a value, and the role of its column."""


@dataclass(frozen=True)
class Origin:
    """The CSV file from which a table was read."""

    file: Path
    separator: str
    named: Mapping[str, str] = field(default_factory=dict)
    """The columns of labels, weights and so on, by their roles."""
    rows: npt.NDArray[np.intp] | None = None
    """Which rows of the file are left; None: all."""

    def taken(self, rows: Any) -> Origin:
        """That of some of its rows."""
        return replace(self, rows=np.asarray(rows) if self.rows is None else self.rows[rows])

    def told(self, message: str) -> str:
        """The message with the file, line, column and value in place of the number of a row."""
        found = re.search(r"\brow (\d+)(\))?", message)
        if found is None:
            return message
        row = int(found[1]) if self.rows is None else int(self.rows[int(found[1])])
        named = re.search(r"column '([^']+)'", message)
        roles = (role for noun, role in NOUNS.items() if re.search(rf"\b{noun}", message) and role in self.named)
        column = named[1] if named else next((self.named[role] for role in roles), None)
        line, cell = self._cell(row, column)
        if line is None:
            return message
        place = f"line {line} of {self.file}"
        if column is not None and not named:
            place += f", column {column!r}"
        if found[2] and cell is not None:
            place += f": {cell!r}" if cell.strip() else ": an empty cell"
        rest = message[found.end() :]
        if rest.startswith(" has") and place.endswith("'"):
            place += ","
        rest = rest.replace(" of column", ", column", 1) if rest.startswith(" of column") else rest
        return message[: found.start()] + place + (found[2] or "") + rest

    def _cell(self, row: int, column: str | None) -> tuple[int | None, str | None]:
        """The line of that row, and what it has in that column."""
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


@contextmanager
def naming_lines(*tables: Table) -> Iterator[None]:
    """Let errors about rows of these tables name the line of the file, where they were read from one."""
    try:
        yield
    except InvalidData as error:
        message = str(error)
        for table in tables:
            if table.origin is not None and message.startswith(f"party {table.name!r}:"):
                raise InvalidData(table.origin.told(message)) from None
        raise


def encoding_error(path: Path, party: str) -> InvalidData | None:
    """The error about a text file that is not UTF-8: the first line that shows it. None if it is."""
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
