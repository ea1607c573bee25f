"""Tables that stay at the workers of a cluster: looked at where they are, checked together from what is known of them.

    sources ─→ describe (there) ─→ forms ─→ checked together (here) ─→ prepared and digested (there) ─→ Distant tables

Everything is checked before the first message, as for data that is here, and an error names the party.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from coterie.arrays import digest
from coterie.data import Table, read, validated
from coterie.data.distant import Distant, Source
from coterie.engines import Engine

__all__ = ["Form", "hosted"]

Prepare = Callable[[Sequence[Table]], tuple[list[Table], npt.NDArray[Any] | None]]


@dataclass(frozen=True)
class Form:
    """What a party tells of its table: never a row of it."""

    name: str
    shape: tuple[int, int]
    dtype: str
    columns: tuple[str, ...] | None
    labels: npt.NDArray[Any] | None
    """Its different labels, if they are classes; of numbers, only of which type they are."""
    outputs: tuple[int, ...]
    """The shape of one row's label."""
    weighted: bool
    ids: str | None
    """The digest of its row ids."""

    def hollow(self, small: bool = False) -> Table:
        """A table of that form without content; a small one has no more rows than show all labels."""
        n = min(self.shape[0], 0 if self.labels is None else len(self.labels)) if small else self.shape[0]
        return Table(
            X=sp.csr_array((n, self.shape[1]), dtype=self.dtype),
            y=None if self.labels is None else np.resize(self.labels, (n, *self.outputs)),
            weights=np.ones(n) if self.weighted else None,
            ids=None if self.ids is None else np.full(n, self.ids),
            columns=self.columns,
            name=self.name,
        )


def hosted(
    sources: Sequence[Source], engine: Engine, prepare: Prepare, split: str, classification: bool
) -> tuple[list[Table], npt.NDArray[Any] | None]:
    """A stand-in for each source's table, and the classes; `prepare` checks tables together and encodes labels."""
    forms = engine.ask([partial(_described, source, index, classification) for index, source in enumerate(sources)])
    tables, classes = prepare([form.hollow() for form in forms])
    fetches = [partial(_fetched, source, index, forms, prepare, split) for index, source in enumerate(sources)]
    digests = engine.ask([partial(_digest_of, fetch) for fetch in fetches])
    return [
        Distant(**vars(table), fetch=fetch, known_digest=known)
        for table, fetch, known in zip(tables, fetches, digests, strict=True)
    ], classes


def _table(source: Source, index: int) -> Table:
    given = source()
    table = (
        given if isinstance(given, Table) else read(given, name=None if isinstance(given, str) else f"party {index}")
    )
    return validated(replace(table, name=f"party {index}") if table.name == "data" else table, classification=None)


def _described(source: Source, index: int, classification: bool) -> Form:
    table = _table(source, index)
    labels = None if table.y is None else np.unique(table.y)
    if labels is not None and labels.dtype.kind in "biuf" and not classification:
        labels = np.zeros(1, labels.dtype)
    return Form(
        table.name,
        (table.n, table.d),
        table.X.dtype.str,
        table.columns,
        labels,
        () if table.y is None else table.y.shape[1:],
        table.weights is not None,
        None if table.ids is None else digest(table.ids),
    )


def _fetched(source: Source, index: int, forms: Sequence[Form], prepare: Prepare, split: str) -> Table:
    """The real table of one party, prepared as if all were here."""
    tables = [form.hollow(small=split != "features") for form in forms]
    own = _table(source, index)
    tables[index] = own if own.ids is None else replace(own, ids=np.full(own.n, forms[index].ids))
    return prepare(tables)[0][index]


def _digest_of(fetch: Callable[[], Table]) -> str:
    return fetch().digest()
