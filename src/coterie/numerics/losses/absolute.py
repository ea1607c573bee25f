"""ℓ(u; y) = |u − y|, with ℓ*(v; y) = y v on |v| ≤ 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from coterie.numerics.arrays import FloatArray
from coterie.numerics.losses.piecewise_linear import PiecewiseLinear


@dataclass(frozen=True)
class Absolute(PiecewiseLinear):
    """Least absolute deviations: ℓ(u; y) = |u − y|."""

    name: ClassVar[str] = "absolute"
    kind: ClassVar[str] = "regression"
    moves_with_labels: ClassVar[bool] = True

    @property
    def lipschitz(self) -> float:
        return 1.0

    def ends(self, y: FloatArray) -> tuple[Any, Any]:
        kind = y.dtype.type
        return kind(-1), kind(1)
