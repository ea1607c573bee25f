"""Softmax, as an agent sees it on its own rows at one model: what several methods and every proof ask for.

ℓ(u; y) = log Σ_c e^{u_c} − u_y,    p = softmax(u),    ∇ℓ = p − e_y,    ∇²ℓ = diag(p) − p pᵀ
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from coterie.arrays import FloatArray
from coterie.kernels.softmax import log_softmax_rows
from coterie.stacked import StackedDesign


class SoftmaxHere:
    """The loss at one model: each part is computed once, when it is asked for."""

    def __init__(self, w: FloatArray, design: StackedDesign, y: FloatArray, weights: FloatArray | None):
        self.w, self.design, self.weights = w, design, weights
        self.y = y.astype(np.intp)
        self.scores = design.forward(w)

    @cached_property
    def logs(self) -> FloatArray:
        """log p."""
        return _log_softmax(self.scores)

    @cached_property
    def p(self) -> FloatArray:
        """The probabilities of all classes."""
        return np.exp(self.logs)

    @cached_property
    def losses(self) -> float:
        """Σ s ℓ."""
        return self._summed(self.logs)

    @cached_property
    def slopes(self) -> FloatArray:
        """p − e_y of every row."""
        slopes = self.p.copy()
        slopes[np.arange(len(self.y)), self.y] -= 1.0
        return slopes

    @cached_property
    def adjoint(self) -> FloatArray:
        """X̃ᵀ(s∘∇ℓ)."""
        return self.design.adjoint(self.weighted(self.slopes))

    def losses_at(self, scores: FloatArray) -> float:
        """Σ s ℓ at other scores."""
        return self._summed(_log_softmax(scores))

    def bent(self, image: FloatArray) -> FloatArray:
        """s∘∇²ℓ times a change of the scores."""
        return self.weighted(self.p * (image - np.einsum("ij,ij->i", self.p, image)[:, None]))

    def weighted(self, v: FloatArray) -> FloatArray:
        """s∘v, a row of numbers per sample."""
        return v if self.weights is None else v * self.weights[:, None]

    def _summed(self, logs: FloatArray) -> float:
        taken = logs[np.arange(len(self.y)), self.y].astype(float, copy=False)
        return -float(taken.sum() if self.weights is None else taken @ self.weights)


def _log_softmax(scores: FloatArray) -> FloatArray:
    logs, compute = np.empty(scores.shape), log_softmax_rows
    run: Any = compute
    run(scores, logs)
    return logs
