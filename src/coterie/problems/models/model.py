"""The base class of all models. It reads rows to predict. It saves a model as one file of plain
arrays with a JSON header, never as pickle.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, ClassVar, Generic, Self

import numpy as np

from coterie.data import Table, read, validated
from coterie.data.archives import read_archive, readable, write_archive
from coterie.data.preparation.prepared import Prepared
from coterie.errors import CorruptFile, shortened
from coterie.numerics.arrays import Matrix, digest, host, is_sparse
from coterie.numerics.losses.huber import Huber
from coterie.problems.problem import P, Problem

MOST_LETTERS = 80
"""Largest number of characters of a list of classes in an output."""


def shown_label(label: Any) -> str:
    """A class as an output shows it. Whole numbers have no decimal point."""
    if isinstance(label, float | np.floating):
        return f"{label:g}"
    return str(label)


class Model(Generic[P]):
    """A fitted model. Subclasses are frozen dataclasses, and a model file stores their fields."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    kind: ClassVar[str]
    """The name of the model's kind, which the model file also stores."""
    one_score: ClassVar[bool] = True
    """Whether a row has a single score, also with two classes."""
    problem: P
    classes_: Any
    columns: tuple[str, ...] | None
    preparation: Prepared | None = None
    """The preparation of raw columns before the model computes scores."""

    def notes(self) -> list[str]:
        """Notes for every output: the modelled class, units and reference levels."""
        notes = []
        modelled = self._modelled()
        if modelled:
            notes.append(modelled)
        loss = getattr(self.problem, "loss", None)  # a personal problem has none
        if isinstance(loss, Huber):
            notes.append(f"threshold: {loss.threshold:g} (in units of the label)")
        if self.preparation is not None and self.preparation.references:
            references = self.preparation.references.items()
            levels = ", ".join(f"{column} = {level}" for column, level in references)
            notes.append(f"reference levels: {levels}")
        return notes

    def counted(self, counts: Sequence[float]) -> str:
        """Text with the number of events, or the number of rows of each class. `counts` is as in a
        certificate.
        """
        if len(counts) == 1:
            return f"events: {counts[0]:.10g} (the sum of the labels)"
        if self.one_score and len(counts) == 2:
            return f"events: {counts[1]:.10g} of {sum(counts):.10g}"
        if self.classes_ is None:
            labels = range(len(counts))
        else:
            labels = self.classes_.tolist()
        parts = []
        for label, rows in zip(labels, counts, strict=True):
            parts.append(f"{shown_label(label)} {rows:.10g}")
        return f"rows per class: {shortened(', '.join(parts), MOST_LETTERS)}"

    def of_run(self, run: str) -> Self:
        """The model as it is saved. A part of a model also stores the run that fitted it."""
        return self

    def units(self) -> str:
        """The meaning of a coefficient, and the unit of its column. Empty for a model without such
        coefficients.
        """
        return ""

    def _modelled(self) -> str:
        """The class that a positive score means, or the classes that have scores."""
        if self.classes_ is None:
            return ""
        labels = list(map(shown_label, self.classes_.tolist()))
        if self.one_score and len(labels) == 2:
            return f"modelled class: {labels[1]} (reference: {labels[0]})"
        return f"classes: {len(labels):,} ({shortened(', '.join(labels), MOST_LETTERS)})"

    def _numbers(self) -> dict[str, Any]:
        """The arrays of the model, dense and sparse, by name."""
        found: dict[str, Any] = {}
        for field in fields(self):
            name = field.name.rstrip("_")
            value = getattr(self, field.name)
            if name == "classes":
                continue
            if isinstance(value, float):
                found[name] = np.array(value)
            elif isinstance(value, np.ndarray) or is_sparse(value):
                found[name] = value
        return found

    def _words(self) -> dict[str, Any]:
        """The fields that are not arrays and that affect predictions, by name."""
        classes = None
        if self.classes_ is not None:
            classes = self.classes_.tolist()
        known = {"classes": classes, "columns": self.columns}
        if self.preparation is None:
            return known
        return {**known, "preparation": self.preparation.state()}

    def digest(self) -> str:
        """The digest of all values that affect the model's predictions and its proof."""
        problem = json.dumps(self.problem.settings(), sort_keys=True)
        words = json.dumps(list(self._words().values()))
        return digest(*self._numbers().values(), problem, words)

    def save(self, path: str | Path) -> Path:
        """Write one `.npz` file with plain arrays and a JSON header that has the digest."""
        header = {
            "coterie_model": 1,
            "kind": self.kind,
            "problem": self.problem.settings(),
            **self._words(),
            **self._notes(),
            "digest": self.digest(),
        }
        return write_archive(path, header, self._stored())

    def _notes(self) -> dict[str, Any]:
        """The fields of a file that do not affect predictions."""
        return {}

    def _stored(self) -> dict[str, Any]:
        """The arrays that the file stores."""
        return self._numbers()

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model file. A file that was changed or truncated raises an error."""
        header, arrays = read_archive(path, "model")
        with readable(path, "model"):
            classes = header["classes"]
            columns = header["columns"]
            if classes is not None:
                classes = np.array(classes)
            if columns is not None:
                columns = tuple(columns)
            known: dict[str, Any] = {"classes_": classes, "columns": columns}
            prepared = header.get("preparation")
            if prepared is not None:
                known["preparation"] = Prepared.restored(prepared)
            model = cls(**known, **cls._restored(header, arrays))
            untouched = model.digest() == header["digest"]
        if not untouched:
            raise CorruptFile(
                f"{path} was changed after it was written: its digest does not match its content."
            )
        return model

    @classmethod
    def _restored(cls, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
        """The other fields of the model, from the header and the arrays of a file."""
        return {"problem": Problem.from_settings(header["problem"]), **arrays}

    def _read(self, X: Matrix) -> Table:
        """Read, check and prepare rows to predict. The columns of a data frame are selected by
        name.
        """
        X = host(X)
        if self.preparation is None:
            names = self.columns
            dtype = None
        else:
            names = self.preparation.raw
            dtype = object
        if isinstance(X, np.ndarray | list | Table) or is_sparse(X):
            names = None
        if isinstance(X, list):
            X = np.array(X, dtype)
        table = read(X, columns=names, prepare=self.preparation)
        return validated(self.prepared(table), classification=None)

    def prepared(self, table: Table) -> Table:
        """The table with prepared columns. Values far from those of the fit give a warning."""
        if self.preparation is None:
            return table
        return self.preparation.apply(table, warn=True)
