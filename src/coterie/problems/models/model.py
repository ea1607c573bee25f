"""What every model can do: read rows to predict, and be one file of plain arrays with a JSON
header, never pickle.
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
"""Length of a list of classes in an output."""


def shown_label(label: Any) -> str:
    """A class as an output shows it: numbers without a decimal point where they are whole."""
    if isinstance(label, float | np.floating):
        return f"{label:g}"
    return str(label)


class Model(Generic[P]):
    """A fitted model. Subclasses are frozen dataclasses, whose fields are what their file has:
    numbers and words.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    kind: ClassVar[str]
    """The name of its family, and of its file's kind."""
    one_score: ClassVar[bool] = True
    """Whether a row has one score, also if there are two classes."""
    problem: P
    classes_: Any
    columns: tuple[str, ...] | None
    preparation: Prepared | None = None
    """What is done with raw columns before the coefficients act on them."""

    def notes(self) -> list[str]:
        """What the coefficients are about, for every output: the modelled class, units and
        reference levels.
        """
        notes = []
        if modelled := self._modelled():
            notes.append(modelled)
        loss = getattr(self.problem, "loss", None)  # a personal problem has none
        if isinstance(loss, Huber):
            notes.append(f"threshold: {loss.threshold:g} (in units of the label)")
        if self.preparation is not None and self.preparation.references:
            levels = ", ".join(
                f"{column} = {level}" for column, level in self.preparation.references.items()
            )
            notes.append(f"reference levels: {levels}")
        return notes

    def counted(self, counts: Sequence[float]) -> str:
        """How many events there are, or rows of each class: `counts` as a certificate has them."""
        if len(counts) == 1:
            return f"events: {counts[0]:.10g} (the sum of the labels)"
        if self.one_score and len(counts) == 2:
            return f"events: {counts[1]:.10g} of {sum(counts):.10g}"
        if self.classes_ is None:
            labels = range(len(counts))
        else:
            labels = self.classes_.tolist()
        each = [
            f"{shown_label(label)} {rows:.10g}" for label, rows in zip(labels, counts, strict=True)
        ]
        return f"rows per class: {shortened(', '.join(each), MOST_LETTERS)}"

    def of_run(self, run: str) -> Self:
        """The model as its file says it; one that is part of a model names the run that it comes
        from.
        """
        return self

    def units(self) -> str:
        """What a coefficient is, and of which unit of its column; empty where there are no such
        coefficients.
        """
        return ""

    def _modelled(self) -> str:
        """Which class a positive score means, or which classes there is a score for."""
        if self.classes_ is None:
            return ""
        labels = list(map(shown_label, self.classes_.tolist()))
        if self.one_score and len(labels) == 2:
            return f"modelled class: {labels[1]} (reference: {labels[0]})"
        return f"classes: {len(labels):,} ({shortened(', '.join(labels), MOST_LETTERS)})"

    def _numbers(self) -> dict[str, Any]:
        """Its arrays, dense and sparse, by name."""
        found = {field.name.rstrip("_"): getattr(self, field.name) for field in fields(self)}
        return {
            name: np.array(value) if isinstance(value, float) else value
            for name, value in found.items()
            if name != "classes" and (isinstance(value, np.ndarray | float) or is_sparse(value))
        }

    def _words(self) -> dict[str, Any]:
        """What is no array, by name: that which predictions depend on, and then the rest."""
        known = {
            "classes": None if self.classes_ is None else self.classes_.tolist(),
            "columns": self.columns,
        }
        if self.preparation is None:
            return known
        return {**known, "preparation": self.preparation.state()}

    def digest(self) -> str:
        """The digest of everything that the model's predictions (and its proof) depend on."""
        problem = json.dumps(self.problem.settings(), sort_keys=True)
        return digest(*self._numbers().values(), problem, json.dumps(list(self._words().values())))

    def save(self, path: str | Path) -> Path:
        """Write one `.npz` file: plain arrays and a JSON header with the digest."""
        header = {
            "coterie_model": 1,
            "kind": self.kind,
            "problem": self.problem.settings(),
            **self._words(),
        }
        return write_archive(
            path, {**header, **self._notes(), "digest": self.digest()}, self._stored()
        )

    def _notes(self) -> dict[str, Any]:
        """What a file says beside."""
        return {}

    def _stored(self) -> dict[str, Any]:
        """The arrays of a file."""
        return self._numbers()

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model; a file that was changed or truncated is refused."""
        header, arrays = read_archive(path, "model")
        with readable(path, "model"):
            classes = header["classes"]
            columns = header["columns"]
            known: dict[str, Any] = {
                "classes_": None if classes is None else np.array(classes),
                "columns": None if columns is None else tuple(columns),
            }
            if (prepared := header.get("preparation")) is not None:
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
        """The other fields of the model of a file."""
        return {"problem": Problem.from_settings(header["problem"]), **arrays}

    def _read(self, X: Matrix) -> Table:
        """Rows to predict, checked and prepared. The columns of a frame are found by their
        names.
        """
        X = host(X)
        if self.preparation is None:
            names = self.columns
        else:
            names = self.preparation.raw
        plain = isinstance(X, np.ndarray | list | Table) or is_sparse(X)
        if isinstance(X, list):
            X = np.array(X, None if self.preparation is None else object)
        table = read(X, columns=None if plain else names, prepare=self.preparation)
        return validated(self.prepared(table), classification=None)

    def prepared(self, table: Table) -> Table:
        """The table with the columns that the coefficients are for; what is far from the fit gives
        a warning.
        """
        if self.preparation is None:
            return table
        return self.preparation.apply(table, warn=True)
