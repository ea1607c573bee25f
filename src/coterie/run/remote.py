"""Tables that stay at the workers of a cluster: looked at where they are, checked together from
what is known of them.

    sources ─→ summaries (told there) ─→ checked together (here) ─→ prepared and digested (there) ─→
    remote tables

Everything is checked before the first message, as for data that is here, and an error names the
party.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from coterie.data import Table, validated
from coterie.data.keys import noted, warn_caller
from coterie.data.labels import Labels
from coterie.data.pairing import paired
from coterie.data.read import read_party
from coterie.data.remote import RemoteTable, Source, keep
from coterie.data.summary import TableSummary
from coterie.data.table import Indices
from coterie.engines import Engine
from coterie.numerics.arrays import digest, is_sparse
from coterie.problems.problem import AnyProblem

Prepare = Callable[[Sequence[Table]], tuple[list[Table], npt.NDArray[Any] | None]]

PAIRS = 2
"""Columns of a dense table that may be places in a matrix: its placeholder is dense, too."""


@dataclass(frozen=True)
class _Known:
    """What a party tells of its table: never a row of it."""

    summary: TableSummary
    labels: npt.NDArray[Any] | None
    """Its different labels, if they are classes; of numbers, only of which type they are."""
    counts: npt.NDArray[np.intp]
    """How many rows have each of these labels."""
    beside: tuple[str, ...]
    """What stands beside the labels: fields of a `Table`."""
    ids: str | None
    """The digest of its row ids."""
    dense: bool
    rows: Indices | None
    """Pooled row numbers, if it knows them, ..."""
    cols: Indices | None
    """... and pooled column numbers."""
    roles: tuple[str, ...] | None
    """For a file or a data frame: columns of labels and so on, as a `Table` has them."""
    notes: tuple[str, ...] | None
    """What its owner is warned of."""

    def placeholder(self, labels: Labels, small: bool = False) -> Table:
        """A table of that form, to be checked with the others; a small one has no more rows than
        show all labels.

        Its numbers are invented: nothing that is computed from them may leave this module.
        """
        told, y = self.summary, None
        n = told.rows
        if small:
            n = min(n, 0 if self.labels is None else len(self.labels))
        if self.labels is not None:
            each = self.labels if small else np.repeat(self.labels, self.counts)
            y = labels.placeholder(np.resize(each, (n, *(told.outputs or ()))))
        beside: dict[str, Any] = dict.fromkeys(self.beside, np.ones(n))
        precision = np.float32 if told.single else np.float64
        pairs = self.dense and told.columns == PAIRS
        shape = n, told.columns
        return Table(
            X=np.zeros(shape, precision) if pairs else sp.csr_array(shape, dtype=precision),
            y=y,
            ids=None if self.ids is None else np.full(n, self.ids),
            columns=told.names,
            name=told.name,
            rows=None if small else self.rows,
            cols=self.cols,
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
    problem: AnyProblem,
    same_order: bool = False,
    warn: bool = True,
) -> tuple[list[Table], npt.NDArray[Any] | None]:
    """A stand-in for each source's table, and the classes; `prepare` checks tables together and
    encodes labels.

    `same_order` and `warn` are those of `gather`.
    """
    labels = problem.kind.labels
    how = split, problem.kind.data.classification(problem)
    known = engine.ask(
        [partial(summary_of, source, index, *how) for index, source in enumerate(sources)]
    )
    held = [one.placeholder(labels) for one in known]
    if split == "features":
        held = paired(held, same_order)
    if warn:
        warn_caller(note for one in known for note in one.notes or ())
    tables, classes = prepare(held)
    fetches = [
        partial(_fetched, source, index, known, prepare, labels, *how)
        for index, source in enumerate(sources)
    ]
    digests = engine.ask([partial(_digest_of, fetch, index) for index, fetch in enumerate(fetches)])
    return [
        RemoteTable.of(
            table,
            fetch,
            known_digest=found,
            known_nonzeros=one.summary.nonzeros,
            known_independence=one.summary.independence,
        )
        for table, fetch, found, one in zip(tables, fetches, digests, known, strict=True)
    ], classes


def source_table(source: Source, index: int, split: str, classification: bool | None) -> Table:
    """What a source holds, read and checked alone."""
    table = noted(read_party(source(), index, by_columns=split == "features"))
    return validated(table, classification=classification)


def summary_of(source: Source, index: int, split: str, classification: bool | None) -> _Known:
    """What is known of a source's table, told where it is."""
    table = source_table(source, index, split, classification)
    labels, counts = None, np.empty(0, int)
    if table.y is not None:
        labels, counts = np.unique(table.y, return_counts=True)
        if labels.dtype.kind in "biuf" and not classification:
            labels, counts = np.ones(1, labels.dtype), np.ones(1, int)
    ids = None if table.ids is None else digest(table.ids)
    return _Known(
        summary=TableSummary.of(table, independence=True),
        labels=labels,
        counts=counts,
        beside=tuple(table.beside),
        ids=ids,
        dense=not is_sparse(table.X),
        rows=table.rows,
        cols=table.cols,
        roles=table.roles,
        notes=table.notes,
    )


def _fetched(
    source: Source,
    index: int,
    known: Sequence[_Known],
    prepare: Prepare,
    labels: Labels,
    split: str,
    classification: bool | None,
) -> Table:
    """The real table of one party, prepared as if all were here."""
    tables = [one.placeholder(labels, small=split != "features") for one in known]
    own = source_table(source, index, split, classification)
    tables[index] = own if own.ids is None else replace(own, ids=np.full(own.n, known[index].ids))
    return prepare(tables)[0][index]


def _digest_of(fetch: Callable[[], Table], index: int) -> str:
    table = fetch()
    found = table.digest()
    keep(index, found, lambda: table)  # for the run, see `with_data`
    return found
