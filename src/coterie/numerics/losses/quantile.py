"""ℓ(u; y) = max(level (y − u), (1 − level)(u − y)), with ℓ*(v; y) = y v on v ∈ [−level, 1 −
level].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from coterie.errors import InvalidProblem
from coterie.numerics.arrays import FloatArray, as_number
from coterie.numerics.losses.loss import towards_zero
from coterie.numerics.losses.piecewise_linear import PiecewiseLinear


@dataclass(frozen=True)
class Quantile(PiecewiseLinear):
    """The pinball loss, whose minimum has a share `level` of the labels below the score."""

    name: ClassVar[str] = "quantile"
    kind: ClassVar[str] = "regression"
    moves_with_labels: ClassVar[bool] = True
    level: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < as_number(self.level) < 1:
            raise InvalidProblem(
                f"the quantile level must lie strictly between 0 and 1, not be {self.level!r}; "
                "0.5 is the median."
            )
        object.__setattr__(self, "level", float(self.level))

    @property
    def lipschitz(self) -> float:
        return max(self.level, 1.0 - self.level)

    def ends(self, y: FloatArray) -> tuple[Any, Any]:
        kind = y.dtype.type
        lower = towards_zero(-self.level, y.dtype)
        upper = towards_zero(1.0 - self.level, y.dtype)
        return kind(lower), kind(upper)
