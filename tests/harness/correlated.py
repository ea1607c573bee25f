"""Columns that are nearly dependent, across parties or inside one: what first-order methods are
slow on.
"""

from __future__ import annotations

import numpy as np


def correlated(
    kind: str, rows: int, parties: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Four columns a party, numbers as labels, and signs as labels."""
    rng = np.random.default_rng(seed)
    d = 4 * parties
    if kind == "one factor":
        X = np.sqrt(0.999) * rng.standard_normal((rows, 1)) + np.sqrt(0.001) * rng.standard_normal(
            (rows, d)
        )
    elif kind == "spectrum":
        left, right = (np.linalg.qr(rng.standard_normal((size, d)))[0] for size in (rows, d))
        X = np.sqrt(rows * d) * (left * np.arange(1.0, d + 1) ** -2) @ right.T
    elif kind == "powers":
        X = (rng.uniform(0, 2, (rows, parties, 1)) ** np.arange(1, 5)).reshape(rows, d)
    else:
        X = (rng.random((rows, d)) < rng.beta(0.5, 1.5, d)).astype(float)
    scores = X @ rng.standard_normal(d)
    scores = (scores - scores.mean()) / scores.std()
    noisy = np.where(scores + 0.5 * rng.logistic(size=rows) > 0, 1.0, -1.0)
    return X, scores + 0.3 * rng.standard_normal(rows), noisy
