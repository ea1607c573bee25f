"""Labels that a loss takes, made of numbers that any regression would take."""

from __future__ import annotations

import numpy as np

from coterie.numerics.losses import LOSSES


def labels_for(loss: str, numbers: np.ndarray, signs: np.ndarray | None = None) -> np.ndarray:
    """Two classes, counts, amounts above 0, or the numbers themselves."""
    if LOSSES[loss].kind == "classification":
        return np.where(numbers > 0, 1.0, -1.0) if signs is None else signs
    if not LOSSES[loss].steep:
        return numbers
    counts = np.round(np.exp((numbers - numbers.mean()) / (numbers.std() or 1.0)))
    return counts if LOSSES[loss]().accepts(np.zeros(1)).all() else counts + 0.1
