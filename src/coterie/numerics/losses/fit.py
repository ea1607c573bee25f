"""What stands where a loss does: what every kind of problem asks of it. It may be a sum over rows,
or not.
"""

from __future__ import annotations

from abc import ABC
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from coterie.numerics.arrays import FloatArray


@dataclass(frozen=True)
class Fit(ABC):
    """How scores are compared with labels: of one score a row (`Loss`), of several, or of all rows
    at once.
    """

    name: ClassVar[str]
    kind: ClassVar[str]
    """What labels are, e.g. "regression" or "classification"."""
    quadratic: ClassVar[bool] = False
    dispersion: ClassVar[bool | None] = None
    """For a negative log-likelihood, whether it is one up to a dispersion that is estimated; None:
    it is none.
    """
    moves_with_labels: ClassVar[bool] = False
    steep: ClassVar[bool] = False
    tensors: ClassVar[bool] = False

    @property
    def outputs(self) -> int:
        """How many scores a row has."""
        return 1

    @property
    def smooth(self) -> bool:
        """Whether there is no kink."""
        return True

    def response(self, u: FloatArray) -> FloatArray:
        """What is predicted where the score is u."""
        return u

    def settings(self) -> dict[str, Any]:
        """Name and parameters as plain values."""
        return {"name": self.name, **asdict(self)}
