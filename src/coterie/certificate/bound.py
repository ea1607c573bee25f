"""What agents put on the table, and what is proven of it."""

from __future__ import annotations

from dataclasses import dataclass

from coterie.arrays import FloatArray

__all__ = ["Bound", "Point"]


@dataclass(frozen=True)
class Point:
    """What one agent puts on the table: its (copy or block of the) model w, and its dual v.

    Split by samples: w is the whole model, v has one entry per own sample. Split by features: w is the own block, and
    v, one entry per sample, is read at the agent that has the labels. Without v the gradient of the loss at w takes
    its place.
    """

    w: FloatArray
    v: FloatArray | None = None
    kept: FloatArray | None = None
    """What a method may use again for another penalty on the same data; no part of a proof."""


@dataclass(frozen=True)
class Bound:
    """P(w) and a lower bound D on every P; `radius` if the bound speaks only of models of at most that norm."""

    primal: float
    dual: float
    radius: float | None = None

    @property
    def gap(self) -> float:
        """P(w) − D(v) ≥ P(w) − P*."""
        return max(self.primal - self.dual, 0.0)
