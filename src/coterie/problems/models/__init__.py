"""Fitted models: plain arrays that predict. A model is saved as arrays and JSON, never as pickle.
Each kind of problem has its model class in its folder of `problems`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

from coterie.data.archives import read_archive
from coterie.errors import CorruptFile
from coterie.problems import KINDS
from coterie.problems.kind import Kind
from coterie.problems.models.by_user import UserModel
from coterie.problems.models.model import Model

__all__ = ["AnyModel", "Model", "UserModel", "kind_of", "load_model"]

AnyModel: TypeAlias = Model[Any]


def kind_of(model: object) -> Kind[Any, Any] | None:
    """The kind of a model. None for an object of another package, which a report can also show."""
    if not isinstance(model, Model):
        return None
    kind: Kind[Any, Any] = model.problem.kind
    return kind


def load_model(path: str | Path) -> AnyModel:
    """Read a model file of any kind. A file that was changed or truncated raises an error."""
    header, _ = read_archive(path, "model")
    kind = header.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise CorruptFile(
            f"{path} is not a readable model (its kind is {kind!r}); known: {', '.join(KINDS)}."
        )
    model: AnyModel = KINDS[kind].model_class.load(path)
    return model
