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
        """All names that somebody has entries of."""
        if not sum(len(rows) for rows, _ in pairs):
            raise InvalidData("there are no entries. Give at least one row, column and value.")
        return NamedMatrix(*(distinct(side) for side in zip(*pairs, strict=True)))

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
        """Entries as places and values."""
        places = [
            places_of(names, known)
            for names, known in zip(pairs, (self.rows, self.columns), strict=True)
        ]
        for names, found in zip(pairs, places, strict=True):
            if (found < 0).any():
                new = names[(found < 0).argmax()].item()
                raise InvalidData(
                    f"party {name!r}: nobody knows {new!r}. Give the entries that were fitted."
                )
        return Table(np.column_stack(places).astype(float), y, weights, columns=columns, name=name)

    def named(self, result: Result) -> Result:
        """The result, with a model that is asked by names; the certificate is about that model."""
        model = replace(result.model, row_ids=self.rows, column_ids=self.columns)
        return replace(
            result,
            model=model,
            certificate=replace(result.certificate, model_digest=model.digest()),
        )
