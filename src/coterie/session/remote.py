"""Tables that stay at the workers of a cluster: looked at where they are, checked together from what is known of them.

    sources ─→ summaries (told there) ─→ checked together (here) ─→ prepared and digested (there) ─→ remote tables

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
from coterie.data.keys import noted, warn_caller
from coterie.data.pairing import paired
from coterie.data.remote import RemoteTable, Source, keep
from coterie.data.summary import TableSummary
from coterie.engines import Engine

Prepare = Callable[[Sequence[Table]], tuple[list[Table], npt.NDArray[Any] | None]]


@dataclass(frozen=True)
class _Known:
    """What a party tells of its table: never a row of it."""

    summary: TableSummary
    labels: npt.NDArray[Any] | None
    """Its different labels, if they are classes; of numbers, only of which type they are."""
    beside: tuple[str, ...]
    """What stands beside the labels: fields of a `Table`."""
    ids: str | None
    """The digest of its row ids."""
    roles: tuple[str, ...] | None
    """For a file or a data frame: columns of labels and so on, as a `Table` has them."""
    notes: tuple[str, ...] | None
    """What its owner is warned of."""

    def placeholder(self, small: bool = False) -> Table:
        """A table of that form without content; a small one has no more rows than show all labels."""
        told = self.summary
        n = min(told.rows, 0 if self.labels is None else len(self.labels)) if small else told.rows
        y = None if self.labels is None else np.resize(self.labels, (n, *(told.outputs or ())))
        if y is not None and y.ndim == 2 and y.dtype.kind == "f":
            y[:, 0] += 1  # for survival, a time after its entry
        beside: dict[str, Any] = dict.fromkeys(self.beside, np.ones(n))
        return Table(
            X=sp.csr_array((n, told.columns), dtype=np.float32 if told.single else np.float64),
            y=y,
            ids=None if self.ids is None else np.full(n, self.ids),
            columns=told.names,
            name=told.name,
            open_ended=told.open_ended,
            roles=self.roles,
            notes=self.notes,
            **beside,
        )


def remote_tables(
    sources: Sequence[Source],
    engine: Engine,
    prepare: Prepare,
    split: str,
    classification: bool,
    same_order: bool = False,
    warn: bool = True,
) -> tuple[list[Table], npt.NDArray[Any] | None]:
    """A stand-in for each source's table, and the classes; `prepare` checks tables together and encodes labels.

    `same_order` and `warn` are those of `gather`.
    """
    known = engine.ask([partial(summary_of, source, index, classification) for index, source in enumerate(sources)])
    held = [one.placeholder() for one in known]
    if split == "features":
        held = paired(held, same_order)
    if warn:
        warn_caller(note for one in known for note in one.notes or ())
    tables, classes = prepare(held)
    fetches = [partial(_fetched, source, index, known, prepare, split) for index, source in enumerate(sources)]
    digests = engine.ask([partial(_digest_of, fetch, index) for index, fetch in enumerate(fetches)])
    return [
        RemoteTable(
            **vars(table),
            fetch=fetch,
            known_digest=found,
            known_nonzeros=one.summary.nonzeros,
            known_independence=one.summary.independence,
        )
        for table, fetch, found, one in zip(tables, fetches, digests, known, strict=True)
    ], classes


def source_table(source: Source, index: int) -> Table:
    """What a source holds, read and checked alone."""
    given = source()
    table = (
        given if isinstance(given, Table) else read(given, name=None if isinstance(given, str) else f"party {index}")
    )
    table = noted(replace(table, name=f"party {index}") if table.name == "data" else table)
    return validated(table, classification=None)


def summary_of(source: Source, index: int, classification: bool) -> _Known:
    """What is known of a source's table, told where it is."""
    table = source_table(source, index)
    labels = None if table.y is None else np.unique(table.y)
    if labels is not None and labels.dtype.kind in "biuf" and not classification:
        labels = np.ones(1, labels.dtype)
    ids = None if table.ids is None else digest(table.ids)
    summary = TableSummary.of(table, independence=True)
    return _Known(summary, labels, tuple(table.beside), ids, table.roles, table.notes)


def _fetched(source: Source, index: int, known: Sequence[_Known], prepare: Prepare, split: str) -> Table:
    """The real table of one party, prepared as if all were here."""
    tables = [one.placeholder(small=split != "features") for one in known]
    own = source_table(source, index)
    tables[index] = own if own.ids is None else replace(own, ids=np.full(own.n, known[index].ids))
    return prepare(tables)[0][index]


def _digest_of(fetch: Callable[[], Table], index: int) -> str:
    table = fetch()
    found = table.digest()
    keep(index, found, lambda: table)  # for the run, see `with_data`
    return found
