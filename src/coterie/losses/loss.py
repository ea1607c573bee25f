"""What every loss can do.

A loss is ℓ(u; y), convex in the score u, for a label y. All sums run over samples and are never divided by their
number: the only place where 1/n appears is `problem.py`.

    ℓ*(v; y) = sup_u  u v − ℓ(u; y)                       conjugate, +∞ outside an interval [lower, upper] that holds 0
    prox_{sℓ}(u)  = argmin_x  s ℓ(x; y) + ½ (x − u)²
    prox_{sℓ*}(u) = argmin_v  s ℓ*(v; y) + ½ (v − u)²     dual_prox; Moreau: prox_{sℓ}(u) = u − s prox_{ℓ*/s}(u/s)
    ℓ(u; y) + ℓ*(v; y) − u v ≥ 0                          fenchel_young, 0 where v = ℓ'(u): what a gap is made of

Every function here works sample by sample on arrays and leaves its arguments alone; `step` may be a number or one
number per sample. Arrays of float32 stay float32, also beside a plain Python number.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from coterie.arrays import FloatArray, is_tensor
from coterie.errors import InvalidProblem
from coterie.losses.fit import Fit

Step = float | FloatArray


@dataclass(frozen=True)
class Loss(Fit):
    """A convex loss of a score and a label. Subclasses are frozen dataclasses of their parameters."""

    name: ClassVar[str]
    kind: ClassVar[str]
    """"regression" (any label) or "classification" (labels −1 and +1)."""
    quadratic: ClassVar[bool] = False
    """Whether ℓ(u; y) = ½ (u − y)²: the problem is then least squares."""
    conjugate_entropy: ClassVar[bool] = False
    """Whether ℓ*(v; y) = a log a + (1 − a) log(1 − a) for a = −y v: what compiled solvers need to know."""
    moves_with_labels: ClassVar[bool] = False
    """Whether ℓ(u + c; y + c) = ℓ(u; y): then labels far from 0 are lowered, beside an intercept."""
    steep: ClassVar[bool] = False
    """Whether ℓ'' has no bound although there is no kink: methods then start from the best constant."""
    dispersion: ClassVar[bool | None] = None
    """For a negative log-likelihood, whether it is one up to a dispersion that is estimated; None: it is none."""
    tensors: ClassVar[bool] = False
    """Whether `each`, `gradient`, `curvature` and `value` also take torch tensors, and compute where these lie."""
    labels: ClassVar[str] = ""
    """Which labels it takes, in words, if not all numbers are: see `accepts`."""

    def accepts(self, y: FloatArray) -> npt.NDArray[np.bool_]:
        """Which of these labels it takes."""
        return np.ones(y.shape, bool)

    @property
    @abstractmethod
    def smoothness(self) -> float:
        """Lipschitz constant of the gradient in u; infinite where there is a kink."""

    @property
    @abstractmethod
    def lipschitz(self) -> float:
        """Lipschitz constant of the loss in u; infinite for losses that grow quadratically."""

    @property
    def smooth(self) -> bool:
        """Whether there is no kink."""
        return self.steep or math.isfinite(self.smoothness)

    def curvature_scale(self, u: FloatArray, y: FloatArray) -> Step:
        """What ℓ'' is large or small beside: its largest value, or where it has none, |ℓ'|."""
        return self.smoothness

    def curvature_near(self, u: FloatArray, y: FloatArray, distance: float) -> float:
        """The most that ℓ'' can be within that distance of these scores."""
        return self.smoothness

    @property
    def conjugate_curvature(self) -> float | None:
        """a, if ℓ*(v; y) = (a/2) v² + y v on its domain: what compiled solvers need to know; None for other shapes."""
        return None

    @abstractmethod
    def each(self, u: FloatArray, y: FloatArray) -> FloatArray:
        """ℓ(u_i; y_i) for every sample."""

    def sizes(self, u: FloatArray, y: FloatArray) -> FloatArray:
        """The sums of the absolute values of what ℓ(u_i; y_i) is made of: how large rounding errors can be."""
        return self.each(u, y)

    @abstractmethod
    def gradient(self, u: FloatArray, y: FloatArray) -> FloatArray:
        """ℓ'(u_i; y_i), at a kink one element of the subdifferential."""

    def curvature(self, u: FloatArray, y: FloatArray) -> FloatArray:
        """ℓ''(u_i; y_i), where it jumps one of its two values; smooth losses have it, second-order methods need it."""
        raise InvalidProblem(f"the {self.name} loss has no second derivative (curvature); use a first-order method.")

    def expected_curvature(self, u: FloatArray, y: FloatArray) -> FloatArray:
        """The mean of ℓ''(u_i; y) over labels y of the distribution that u_i stands for."""
        return self.curvature(u, y)

    def response(self, u: FloatArray) -> FloatArray:
        """What is predicted where the score is u: the score itself, or the mean that it stands for."""
        return u

    def probability(self, u: FloatArray, y: Step) -> FloatArray:
        """How probable the label y is where the score is u; losses that are no log-likelihood of a class have none."""
        raise InvalidProblem(f"the {self.name} loss has no probabilities (probability); fit with loss='logistic'.")

    @abstractmethod
    def conjugate_each(self, v: FloatArray, y: FloatArray) -> FloatArray:
        """ℓ*(v_i; y_i), +∞ outside the domain."""

    def fenchel_young_each(self, u: FloatArray, v: FloatArray, y: FloatArray) -> FloatArray:
        """ℓ(u_i; y_i) + ℓ*(v_i; y_i) − u_i v_i ≥ 0, +∞ outside the domain, from above where rounding has a say.

        Large numbers cancel in this sum; a loss that has a closed form without them overrides it.
        """
        values, conjugates, products = self.each(u, y), self.conjugate_each(v, y), u * v
        sizes = np.abs(values) + np.abs(conjugates) + np.abs(products)
        total: FloatArray = np.maximum(values + conjugates - products, 0.0) + 4.0 * np.finfo(u.dtype).eps * sizes
        return total

    def constant(self, mean: float) -> float | None:
        """The constant score that fits best where it follows from the mean label alone; None: it does not."""
        return None

    @abstractmethod
    def domain(self, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The interval [lower_i, upper_i] on which ℓ*(·; y_i) is finite; it always holds 0."""

    @abstractmethod
    def dual_prox(self, u: FloatArray, y: FloatArray, step: Step) -> FloatArray:
        """prox_{step ℓ*}(u), inside the domain exactly."""

    def prox(self, u: FloatArray, y: FloatArray, step: Step) -> FloatArray:
        """prox_{step ℓ}(u), from Moreau's identity; a loss with a better-conditioned closed form overrides this."""
        result: FloatArray = u - step * self.dual_prox(u / step, y, 1.0 / step)
        return result

    def value(self, u: FloatArray, y: FloatArray, weights: FloatArray | None = None) -> float:
        """Σ_i weights_i ℓ(u_i; y_i): a sum, never a mean."""
        return _total(self.each(u, y), weights)

    def conjugate(self, v: FloatArray, y: FloatArray, weights: FloatArray | None = None) -> float:
        """Σ_i weights_i ℓ*(v_i; y_i): a sum, never a mean; +∞ as soon as one v_i is outside its domain."""
        return _total(self.conjugate_each(v, y), weights)

    def fenchel_young(self, u: FloatArray, v: FloatArray, y: FloatArray, weights: FloatArray | None = None) -> float:
        """Σ_i weights_i (ℓ(u_i; y_i) + ℓ*(v_i; y_i) − u_i v_i): a sum, never a mean, of terms that are not negative."""
        return _total(self.fenchel_young_each(u, v, y), weights)

    def settings(self) -> dict[str, Any]:
        """Name and parameters as plain values: what `loss(**settings)` needs to make this loss again."""
        return {"name": self.name, **asdict(self)}


@cache
def towards_zero(bound: float, dtype: np.dtype[Any]) -> float:
    """The last number of that precision before the bound, seen from 0: what fits in float32 also fits in float64."""
    rounded = dtype.type(bound)
    return float(np.nextafter(rounded, dtype.type(0)) if abs(float(rounded)) > abs(bound) else rounded)


def _total(values: Any, weights: Any) -> float:
    if is_tensor(values):
        return float(values.double().sum() if weights is None else values.double().dot(weights))
    values = values.astype(np.float64, copy=False)
    return float(values.sum() if weights is None else np.dot(values, weights))
