"""Softmax, by name: several classes, one score for each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from coterie.numerics.losses import Fit

Label = str | int | float | bool


@dataclass(frozen=True)
class Softmax(Fit):
    """log Σ e^{u_c} − u_y: one of several classes per row, with probabilities."""

    name: ClassVar[str] = "multinomial"
    kind: ClassVar[str] = "classification"
    dispersion: ClassVar[bool | None] = False

    classes: tuple[Label, ...] | None = None
    """All classes, if the data may lack some; by default the classes that any party has."""

    def __post_init__(self) -> None:
        if self.classes is not None:
            object.__setattr__(self, "classes", tuple(np.asarray(self.classes).tolist()))

    @property
    def outputs(self) -> int:
        """One score for each class."""
        assert self.classes is not None, "the classes are not known yet"
        return len(self.classes)

    def with_classes(self, classes: npt.NDArray[Any] | None) -> Softmax:
        """This loss with the classes of all parties."""
        if classes is None:
            return self
        return replace(self, classes=tuple(classes.tolist()))
