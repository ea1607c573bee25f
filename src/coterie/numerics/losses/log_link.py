"""The base class of losses of a mean eᵘ. They are smooth, but their gradients and curvature grow
like eᵘ without bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import wrightomega

from coterie.numerics.arrays import FloatArray, namespace, precision_of
from coterie.numerics.losses.loss import Loss, Step

STEEPEST = {8: 600.0, 4: 60.0}
"""The largest score at which losses use eᵘ, by the bytes of a number. Beyond, where no minimum is,
they use its tangent.
"""


@dataclass(frozen=True)
class LogLink(Loss):
    """A loss of the exponential of the score."""

    kind: ClassVar[str] = "regression"
    steep: ClassVar[bool] = True
    tensors: ClassVar[bool] = True

    @property
    def smoothness(self) -> float:
        return np.inf

    @property
    def lipschitz(self) -> float:
        return np.inf

    def curvature_scale(self, u: FloatArray, y: FloatArray) -> FloatArray:
        return abs(self.gradient(u, y))

    def curvature_near(self, u: FloatArray, y: FloatArray, distance: float) -> float:
        largest = float(self.curvature(u, y).max(initial=0.0))
        growth = float(np.exp(min(distance, STEEPEST[8])))
        return largest * growth

    def response(self, u: FloatArray) -> FloatArray:
        return exponential(u)[0]


def exponential(u: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return eᵘ up to the steepest score, and the excess of u over that score."""
    most = u.clip(None, STEEPEST[precision_of(u).itemsize])
    return namespace(u).exp(most), u - most


def root(z: FloatArray, step: Step) -> FloatArray:
    """Return the a > 0 with step · log a + a = z, in double precision."""
    steps = np.asarray(step, float)
    result: FloatArray = steps * wrightomega(z.astype(float) / steps - np.log(steps))
    return result


def more_exact(
    one: FloatArray, other: FloatArray, sizes: FloatArray, other_sizes: FloatArray
) -> FloatArray:
    """Return, of two equal differences, that of smaller numbers."""
    return np.where(sizes <= other_sizes, one, other)


def log_root(z: FloatArray, step: Step) -> FloatArray:
    """Return the t with t + step · eᵗ = z, in double precision."""
    steps = np.asarray(step, float)
    x = z.astype(float) + np.log(steps)
    omega = wrightomega(x)
    # ω = step · eᵗ. Where it is large z − ω cancels, and where it is small its logarithm does.
    with np.errstate(over="ignore"):
        # For a very small step the quotient is infinite, and only its logarithm is a number.
        large = np.where(x > 0, omega, 1.0)
        quotient = large / steps
    difference = np.log(large) - np.log(steps)
    logs = np.where(np.isfinite(quotient), np.log(quotient), difference)
    result: FloatArray = np.where(x > 0, logs, z - omega)
    return result
