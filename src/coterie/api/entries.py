"""Completing a matrix whose rows and columns have names: tables of places, and results that know
the names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from coterie.api.result import Result
from coterie.data import Table
from coterie.data.entries import Names, distinct, places_of
from coterie.errors import InvalidData


@dataclass(frozen=True)
class NamedMatrix:
    """The names of the rows and of the columns."""

    rows: Names
    columns: Names

    @staticmethod
    def of(pairs: Sequence[tuple[Names, Names]]) -> NamedMatrix:
        """Collect the names of all parties' entries."""
        if not sum(len(rows) for rows, _ in pairs):
            raise InvalidData("there are no entries. Give at least one row, column and value.")
        rows, columns = zip(*pairs, strict=True)
        return NamedMatrix(distinct(rows), distinct(columns))

    @property
    def shape(self) -> tuple[int, int]:
        """The size of the matrix."""
        return len(self.rows), len(self.columns)

    def table(
        self,
        pairs: tuple[Names, Names],
        y: Any,
        weights: Any = None,
        columns: Any = None,
        name: str = "data",
    ) -> Table:
        """Make a table of entries: their places in the matrix, and their values."""
        places = []
        for names, known in zip(pairs, (self.rows, self.columns), strict=True):
            found = places_of(names, known)
            if (found < 0).any():
                new = names[(found < 0).argmax()].item()
                raise InvalidData(
                    f"party {name!r}: {new!r} is not in the matrix. Give the entries that were "
                    "fitted."
                )
            places.append(found)
        X = np.column_stack(places).astype(float)
        return Table(X, y, weights, columns=columns, name=name)

    def named(self, result: Result) -> Result:
        """Give the model of a result these names; the certificate is about that model then."""
        model = replace(result.model, row_ids=self.rows, column_ids=self.columns)
        certificate = replace(result.certificate, model_digest=model.digest())
        return replace(result, model=model, certificate=certificate)
