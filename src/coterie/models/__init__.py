"""The models that come out: plain arrays that predict, saved as arrays and JSON, never as pickle."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

from coterie.errors import CorruptFile
from coterie.files import read_archive
from coterie.models.by_user import UserModel
from coterie.models.linear import LinearModel
from coterie.models.low_rank import LowRankModel
from coterie.models.model import Model
from coterie.models.multiclass import MulticlassModel
from coterie.models.personal import PersonalModel
from coterie.models.shared import SharedModel
from coterie.models.survival import Baseline, SurvivalModel

__all__ = [
    "MODELS",
    "AnyModel",
    "Baseline",
    "LinearModel",
    "LowRankModel",
    "Model",
    "MulticlassModel",
    "PersonalModel",
    "SharedModel",
    "SurvivalModel",
    "UserModel",
    "load_model",
]

AnyModel: TypeAlias = LinearModel | LowRankModel | MulticlassModel | PersonalModel | SharedModel | SurvivalModel
MODELS: dict[str, type[AnyModel]] = {
    model.kind: model
    for model in (LinearModel, LowRankModel, MulticlassModel, PersonalModel, SharedModel, SurvivalModel)
}
"""The class of each kind of model file."""


def load_model(path: str | Path) -> AnyModel:
    """Read a model file of any kind; one that was changed or truncated is refused."""
    kind = read_archive(path, "model")[0].get("kind")
    if not isinstance(kind, str) or kind not in MODELS:
        raise CorruptFile(f"{path} is not a readable model (its kind is {kind!r}); known: {', '.join(MODELS)}.")
    return MODELS[kind].load(path)
