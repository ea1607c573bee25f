"""Linear models: one number or one of two classes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.arrays import FloatArray, Matrix, digest, is_sparse, product
from coterie.data import read, validated
from coterie.errors import CorruptFile, InvalidData
from coterie.files import read_archive, readable, write_archive
from coterie.problem import Problem

__all__ = ["LinearModel"]


@dataclass(frozen=True)
class LinearModel:
    """u = X·coef_ + intercept_; a number for regression, one of two classes for classification."""

    coef_: FloatArray
    intercept_: float
    problem: Problem
    classes_: npt.NDArray[Any] | None = None
    columns: tuple[str, ...] | None = None
    part: str | None = None
    """Whose part of which study's model this is, where the parties have different columns: "clinic of readmission"."""

    def decision_function(self, X: Matrix) -> FloatArray:
        """The scores X·coef_ + intercept_. The columns of a frame are found by their names."""
        plain = isinstance(X, np.ndarray | list) or is_sparse(X)
        table = read(np.asarray(X) if isinstance(X, list) else X, columns=None if plain else self.columns)
        X = validated(table, classification=None).X
        if X.shape[1] != len(self.coef_):
            raise InvalidData(
                f"the model has {len(self.coef_)} columns, but the data has {X.shape[1]}. Give the columns of the fit."
            )
        scores: FloatArray = product(X, self.coef_) + self.intercept_
        return scores

    def predict(self, X: Matrix) -> npt.NDArray[Any]:
        """Numbers for regression, classes for classification."""
        scores = self.decision_function(X)
        return scores if self.classes_ is None else self.classes_[(scores > 0).astype(int)]

    def predict_proba(self, X: Matrix) -> FloatArray:
        """The probabilities of the two classes, where the loss has them (logistic)."""
        loss, scores = self.problem.loss, self.decision_function(X)
        return np.column_stack([loss.probability(scores, -1.0), loss.probability(scores, 1.0)])

    def digest(self) -> str:
        """The digest of everything that the model's predictions depend on."""
        names = json.dumps([None if self.classes_ is None else self.classes_.tolist(), self.columns])
        return digest(self.coef_, np.array(self.intercept_), json.dumps(self.problem.settings(), sort_keys=True), names)

    def save(self, path: str | Path) -> Path:
        """Write one `.npz` file: plain arrays and a JSON header with the digest."""
        header = {
            "coterie_model": 1,
            "kind": "linear",
            "problem": self.problem.settings(),
            "classes": None if self.classes_ is None else self.classes_.tolist(),
            "columns": self.columns,
            "part": self.part,
            "digest": self.digest(),
        }
        return write_archive(path, header, {"coef": self.coef_, "intercept": np.array(self.intercept_)})

    @staticmethod
    def load(path: str | Path) -> LinearModel:
        """Read a model; a file that was changed or truncated is refused."""
        header, arrays = read_archive(path, "model")
        with readable(path, "model"):
            model = LinearModel(
                arrays["coef"],
                float(arrays["intercept"]),
                Problem.from_settings(header["problem"]),
                None if header["classes"] is None else np.array(header["classes"]),
                None if header["columns"] is None else tuple(header["columns"]),
                header.get("part"),
            )
            untouched = model.digest() == header["digest"]
        if not untouched:
            raise CorruptFile(f"{path} was changed after it was written: its digest does not match its content.")
        return model
