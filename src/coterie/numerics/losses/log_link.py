"""Base of losses of a mean eᵘ: they are smooth, but their gradients and curvature grow like eᵘ
without bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import wrightomega

from coterie.numerics.arrays import FloatArray, namespace, precision_of
from coterie.numerics.losses.loss import Loss, Step

STEEPEST = {8: 600.0, 4: 60.0}
"""Scores up to which e is raised to them, by the bytes of a number; beyond, where no minimum is, go
on its tangents.
"""


@dataclass(frozen=True)
class LogLink(Loss):
    """A loss of the score's exponential."""

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
        return float(self.curvature(u, y).max(initial=0.0)) * float(
            np.exp(min(distance, STEEPEST[8]))
        )

    def response(self, u: FloatArray) -> FloatArray:
        return exponential(u)[0]


def exponential(u: FloatArray) -> tuple[FloatArray, FloatArray]:
    """eᵘ up to the steepest score, and how far u is beyond it."""
    most = u.clip(None, STEEPEST[precision_of(u).itemsize])
    return namespace(u).exp(most), u - most


def root(z: FloatArray, step: Step) -> FloatArray:
    """The a > 0 with step · log a + a = z, in double precision."""
    steps = np.asarray(step, float)
    result: FloatArray = steps * wrightomega(z.astype(float) / steps - np.log(steps))
    return result


def more_exact(
    one: FloatArray, other: FloatArray, sizes: FloatArray, other_sizes: FloatArray
) -> FloatArray:
    """Of two differences that are equal, the one of smaller numbers."""
    return np.where(sizes <= other_sizes, one, other)


def log_root(z: FloatArray, step: Step) -> FloatArray:
    """The t with t + step · eᵗ = z, in double precision."""
    steps = np.asarray(step, float)
    x = z.astype(float) + np.log(steps)
    omega = wrightomega(x)
    # ω = step · eᵗ. Where it is large z − ω cancels, and where it is small its logarithm does.
    with np.errstate(
        over="ignore"
    ):  # an infinite quotient is of a step so small that only its logarithm is a number
        large = np.where(x > 0, omega, 1.0)
        quotient = large / steps
    difference = np.log(large) - np.log(steps)
    logs = np.where(np.isfinite(quotient), np.log(quotient), difference)
    result: FloatArray = np.where(x > 0, logs, z - omega)
    return result
