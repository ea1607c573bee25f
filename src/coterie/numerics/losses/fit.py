"""The base class of losses of all kinds of problems. A loss may be a sum over rows, or not."""

from __future__ import annotations

from abc import ABC
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from coterie.numerics.arrays import FloatArray


@dataclass(frozen=True)
class Fit(ABC):
    """A comparison of scores with labels: of one score per row (`Loss`), of several, or of all rows
    at once.
    """

    name: ClassVar[str]
    kind: ClassVar[str]
    """The kind of labels, e.g. "regression" or "classification"."""
    quadratic: ClassVar[bool] = False
    dispersion: ClassVar[bool | None] = None
    """Whether the loss is a negative log-likelihood up to a dispersion that is estimated; None if
    it is no log-likelihood.
    """
    moves_with_labels: ClassVar[bool] = False
    steep: ClassVar[bool] = False
    tensors: ClassVar[bool] = False

    @property
    def outputs(self) -> int:
        """The number of scores of a row."""
        return 1

    @property
    def smooth(self) -> bool:
        """Whether the loss has a derivative everywhere."""
        return True

    def response(self, u: FloatArray) -> FloatArray:
        """Return the prediction for the score u."""
        return u

    def settings(self) -> dict[str, Any]:
        """Return name and parameters as plain values."""
        return {"name": self.name, **asdict(self)}
