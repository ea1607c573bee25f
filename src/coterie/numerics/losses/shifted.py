"""Losses of scores with a known offset o for every sample: ℓ(u + o; y).

gradient, curvature       those of ℓ at u + o
ℓ*(v; y) − o v            conjugate; its domain is that of ℓ*
prox_s(u)      = prox_{sℓ}(u + o) − o
dual_prox_s(u) = prox_{sℓ*}(u + s o)
ℓ(u + o; y) + ℓ*(v; y) − (u + o) v          fenchel_young: that of ℓ at u + o
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.numerics.arrays import FloatArray, is_tensor
from coterie.numerics.losses.loss import Loss, Step


@dataclass(frozen=True, eq=False)
class Shifted(Loss):
    """A loss of scores plus an offset. It is not in the catalogue, because the offset is data."""

    base: Loss
    offset: FloatArray
    """In double precision; like labels, it is rounded to the precision of the scores. For scores in
    a tensor it is a tensor.
    """

    def __post_init__(self) -> None:
        for attribute in (
            "name",
            "kind",
            "quadratic",
            "conjugate_entropy",
            "steep",
            "dispersion",
            "labels",
            "tensors",
        ):
            object.__setattr__(self, attribute, getattr(self.base, attribute))

    def _at(self, u: FloatArray) -> FloatArray:
        offset = self.offset
        if not is_tensor(u):
            offset = self._rounded(u.dtype)
        shifted: FloatArray = u + offset
        return shifted

    def _rounded(self, dtype: Any) -> FloatArray:
        """Return the offset in the precision of scores or dual variables."""
        return self.offset.astype(dtype, copy=False)

    def accepts(self, y: FloatArray) -> npt.NDArray[np.bool_]:
        return self.base.accepts(y)

    @property
    def smoothness(self) -> float:
        return self.base.smoothness

    @property
    def lipschitz(self) -> float:
        return self.base.lipschitz

    @property
    def conjugate_curvature(self) -> float | None:
        """a, if ℓ*(v; y) − o v = (a/2) v² + (y − o) v."""
        return self.base.conjugate_curvature

    def curvature_scale(self, u: FloatArray, y: FloatArray) -> Step:
        return self.base.curvature_scale(self._at(u), y)

    def curvature_near(self, u: FloatArray, y: FloatArray, distance: float) -> float:
        return self.base.curvature_near(self._at(u), y, distance)

    def each(self, u: FloatArray, y: FloatArray) -> FloatArray:
        return self.base.each(self._at(u), y)

    def sizes(self, u: FloatArray, y: FloatArray) -> FloatArray:
        return self.base.sizes(self._at(u), y)

    def gradient(self, u: FloatArray, y: FloatArray) -> FloatArray:
        return self.base.gradient(self._at(u), y)

    def curvature(self, u: FloatArray, y: FloatArray) -> FloatArray:
        return self.base.curvature(self._at(u), y)

    def expected_curvature(self, u: FloatArray, y: FloatArray) -> FloatArray:
        return self.base.expected_curvature(self._at(u), y)

    def response(self, u: FloatArray) -> FloatArray:
        return self.base.response(self._at(u))

    def probability(self, u: FloatArray, y: Step) -> FloatArray:
        return self.base.probability(self._at(u), y)

    def conjugate_each(self, v: FloatArray, y: FloatArray) -> FloatArray:
        values = self.base.conjugate_each(v, y)
        finite = np.where(np.isfinite(v), v, 0)
        values = values - self._rounded(v.dtype) * finite
        return values.astype(v.dtype, copy=False)

    def fenchel_young_each(self, u: FloatArray, v: FloatArray, y: FloatArray) -> FloatArray:
        return self.base.fenchel_young_each(self._at(u), v, y)

    def domain(self, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        return self.base.domain(y)

    def dual_prox(self, u: FloatArray, y: FloatArray, step: Step) -> FloatArray:
        shift = step * self._rounded(u.dtype)
        return self.base.dual_prox(u + shift, y, step)

    def prox(self, u: FloatArray, y: FloatArray, step: Step) -> FloatArray:
        nearest: FloatArray = self.base.prox(self._at(u), y, step)
        return nearest - self._rounded(u.dtype)

    def settings(self) -> dict[str, Any]:
        return self.base.settings()
