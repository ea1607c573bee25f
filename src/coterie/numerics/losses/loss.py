"""The interface of losses.

A loss is ℓ(u; y), convex in the score u, for a label y. All sums run over samples and are never
divided by their number: the only place where 1/n appears is `problem.py`.

    ℓ*(v; y) = sup_u  u v − ℓ(u; y)                       conjugate, +∞ outside an interval [lower,
                      upper] that holds 0
    prox_{sℓ}(u)  = argmin_x  s ℓ(x; y) + ½ (x − u)²
    prox_{sℓ*}(u) = argmin_v  s ℓ*(v; y) + ½ (v − u)²     dual_prox; Moreau: prox_{sℓ}(u) = u − s
                              prox_{ℓ*/s}(u/s)
    ℓ(u; y) + ℓ*(v; y) − u v ≥ 0                          fenchel_young, 0 for v = ℓ'(u): the terms
    of a duality gap

Every function works sample by sample on arrays and does not change its arguments; `step` is a
number, or one number per sample. Arrays of float32 stay float32, also in operations with a Python
number.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from coterie.errors import InvalidProblem
from coterie.numerics.arrays import FloatArray, is_tensor
from coterie.numerics.losses.fit import Fit

Step = float | FloatArray


@dataclass(frozen=True)
class Loss(Fit):
    """A convex loss of a score and a label. Subclasses are frozen dataclasses of their
    parameters.
    """

    name: ClassVar[str]
    kind: ClassVar[str]
    """"regression" (any label) or "classification" (labels −1 and +1)."""
    quadratic: ClassVar[bool] = False
    """Whether ℓ(u; y) = ½ (u − y)²: the problem is then least squares."""
    conjugate_entropy: ClassVar[bool] = False
    """Whether ℓ*(v; y) = a log a + (1 − a) log(1 − a) for a = −y v, for compiled solvers."""
    moves_with_labels: ClassVar[bool] = False
    """Whether ℓ(u + c; y + c) = ℓ(u; y): then, with an intercept, labels far from 0 are lowered."""
    steep: ClassVar[bool] = False
    """Whether the loss is smooth but ℓ'' is unbounded: methods then start from the null model."""
    counts: ClassVar[bool] = False
    """Whether labels are numbers of events, so that their sum is one."""
    dispersion: ClassVar[bool | None] = None
    """Whether the loss is a negative log-likelihood up to a dispersion that is estimated; None if
    it is no log-likelihood.
    """
    tensors: ClassVar[bool] = False
    """Whether `each`, `gradient`, `curvature` and `value` also take torch tensors, and compute on
    their device.
    """
    labels: ClassVar[str] = ""
    """The labels that it accepts, in words; empty if all numbers are (see `accepts`)."""

    def accepts(self, y: FloatArray) -> npt.NDArray[np.bool_]:
        """Whether the loss accepts each of these labels."""
        return np.ones(y.shape, bool)

    @property
    @abstractmethod
    def smoothness(self) -> float:
        """Lipschitz constant of the gradient in u; infinite for non-smooth losses."""

    @property
    @abstractmethod
    def lipschitz(self) -> float:
        """Lipschitz constant of the loss in u; infinite for losses that grow quadratically."""

    @property
    def smooth(self) -> bool:
        """Whether the loss has a derivative everywhere."""
        return self.steep or math.isfinite(self.smoothness)

    def curvature_scale(self, u: FloatArray, y: FloatArray) -> Step:
        """The scale to which ℓ'' is compared: its largest value or, if it is unbounded, |ℓ'|."""
        return self.smoothness

    def curvature_near(self, u: FloatArray, y: FloatArray, distance: float) -> float:
        """The largest value of ℓ'' within that distance of these scores."""
        return self.smoothness

    @property
    def conjugate_curvature(self) -> float | None:
        """a, if ℓ*(v; y) = (a/2) v² + y v on its domain, for compiled solvers; None for other
        conjugates.
        """
        return None

    @abstractmethod
    def each(self, u: FloatArray, y: FloatArray) -> FloatArray:
        """ℓ(u_i; y_i) for every sample."""

    def sizes(self, u: FloatArray, y: FloatArray) -> FloatArray:
        """The sums of the absolute values of the terms of ℓ(u_i; y_i), to which rounding errors are
        proportional.
        """
        return self.each(u, y)

    @abstractmethod
    def gradient(self, u: FloatArray, y: FloatArray) -> FloatArray:
        """ℓ'(u_i; y_i), or one element of the subdifferential where there is no derivative."""

    def curvature(self, u: FloatArray, y: FloatArray) -> FloatArray:
        """ℓ''(u_i; y_i), one of its two values where it jumps. Second-order methods need it."""
        raise InvalidProblem(
            f"the {self.name} loss has no second derivative (curvature); use a first-order method."
        )

    def expected_curvature(self, u: FloatArray, y: FloatArray) -> FloatArray:
        """The mean of ℓ''(u_i; y) over labels y with the distribution of score u_i."""
        return self.curvature(u, y)

    def response(self, u: FloatArray) -> FloatArray:
        """The prediction for a score u: the score itself, or the mean of its distribution."""
        return u

    def probability(self, u: FloatArray, y: Step) -> FloatArray:
        """The probability of label y for a score u; only log-likelihoods of classes have one."""
        raise InvalidProblem(
            f"the {self.name} loss has no probabilities (probability); fit with loss='logistic'."
        )

    @abstractmethod
    def conjugate_each(self, v: FloatArray, y: FloatArray) -> FloatArray:
        """ℓ*(v_i; y_i), +∞ outside the domain."""

    def fenchel_young_each(self, u: FloatArray, v: FloatArray, y: FloatArray) -> FloatArray:
        """ℓ(u_i; y_i) + ℓ*(v_i; y_i) − u_i v_i ≥ 0, +∞ outside the domain; rounding errors are
        bounded from above.

        Large numbers cancel in this sum; a loss that has a closed form without them overrides it.
        """
        values = self.each(u, y)
        conjugates = self.conjugate_each(v, y)
        products = u * v
        sizes = np.abs(values) + np.abs(conjugates) + np.abs(products)
        rounding = 4.0 * np.finfo(u.dtype).eps * sizes
        total: FloatArray = np.maximum(values + conjugates - products, 0.0) + rounding
        return total

    def constant(self, mean: float) -> float | None:
        """The score of the null model, if it follows from the mean label; None if it does not."""
        return None

    @abstractmethod
    def domain(self, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The interval [lower_i, upper_i] on which ℓ*(·; y_i) is finite; it always holds 0."""

    @abstractmethod
    def dual_prox(self, u: FloatArray, y: FloatArray, step: Step) -> FloatArray:
        """prox_{step ℓ*}(u), inside the domain exactly."""

    def prox(self, u: FloatArray, y: FloatArray, step: Step) -> FloatArray:
        """prox_{step ℓ}(u), from Moreau's identity; a loss with a better-conditioned closed form
        overrides this.
        """
        result: FloatArray = u - step * self.dual_prox(u / step, y, 1.0 / step)
        return result

    def value(self, u: FloatArray, y: FloatArray, weights: FloatArray | None = None) -> float:
        """Σ_i weights_i ℓ(u_i; y_i): a sum, never a mean."""
        return _total(self.each(u, y), weights)

    def conjugate(self, v: FloatArray, y: FloatArray, weights: FloatArray | None = None) -> float:
        """Σ_i weights_i ℓ*(v_i; y_i): a sum, never a mean; +∞ as soon as one v_i is outside its
        domain.
        """
        return _total(self.conjugate_each(v, y), weights)

    def fenchel_young(
        self, u: FloatArray, v: FloatArray, y: FloatArray, weights: FloatArray | None = None
    ) -> float:
        """Σ_i weights_i (ℓ(u_i; y_i) + ℓ*(v_i; y_i) − u_i v_i): a sum, never a mean, of terms that
        are not negative.
        """
        return _total(self.fenchel_young_each(u, v, y), weights)

    def settings(self) -> dict[str, Any]:
        """Name and parameters as plain values; `loss(**settings)` makes the same loss."""
        return {"name": self.name, **asdict(self)}


@cache
def towards_zero(bound: float, dtype: np.dtype[Any]) -> float:
    """The last number of that precision before the bound, so that a float32 result is also feasible
    in float64.
    """
    rounded = dtype.type(bound)
    if abs(float(rounded)) > abs(bound):
        rounded = np.nextafter(rounded, dtype.type(0))
    return float(rounded)


def _total(values: Any, weights: Any) -> float:
    if is_tensor(values):
        values = values.double()
    else:
        values = values.astype(np.float64, copy=False)
    if weights is None:
        return float(values.sum())
    return float(values.dot(weights))
