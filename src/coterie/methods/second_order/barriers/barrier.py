"""The base class of barriers, their constants, and arithmetic that they share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from coterie.numerics.arrays import FloatArray
from coterie.numerics.kernels import barrier as kernel
from coterie.numerics.tuning import Tuning, tuned


@dataclass(frozen=True)
class _Tuning(Tuning):
    least_margin: float = tuned(
        1e-14,
        "Distance of dual variables to their bounds when the path is reached.",
        "rounding: the precision of float64",
    )
    depth: float = tuned(
        0.25,
        "The start keeps this share of their distance from bounds, or the given length.",
        "measured: digits and diabetes in boxes",
        below=0.5,
    )
    far: float = tuned(
        100.0,
        "How far from a single bound the logarithms alone may push a model, in given lengths.",
        "measured: digits and diabetes with one-sided bounds",
    )
    least_product: float = tuned(
        0.1,
        "The least product of a bound after a step, in units of β μ.",
        "paper: Gondzio 1996",
        below=1,
    )
    ball_steps: int = tuned(
        100,
        "Newton steps for the one number τ of a ball.",
        "theorem: from below they converge, and end by themselves",
    )


TUNING = _Tuning()
LONGEST = 2.0
"""The longest step size. A step that meets no bound before 1 is a full step."""
EPS = float(np.finfo(float).eps)
TINY = float(np.finfo(float).tiny)
"""A coefficient that touches its bound by rounding counts as EPS of the bound, plus TINY, away."""


class Step(NamedTuple):
    """A direction of the model and of the barrier's variables."""

    dw: FloatArray
    dx: FloatArray


class Barrier:
    """No penalty: no variables, no force."""

    weight: float = 0.0
    """The weighted sum of the products on the central path, in units of μ."""
    beta: float = 1.0
    """Each product on the central path, in units of μ."""

    def __init__(self, width: int):
        self.width = width
        self.stuck = np.zeros(width, bool)
        """The entries of w that cannot move, or need not."""
        self.tilt: FloatArray = np.zeros(width)
        """A force on w in units of μ, which goes to 0 with μ. Where g does not grow, logarithms
        alone have no minimum.
        """

    def inside(self, w: FloatArray) -> FloatArray:
        """Return a point near w at which the barrier is finite."""
        return w

    def centred(self, w: FloatArray, mu: float) -> FloatArray:
        """Return x on the central path."""
        return np.empty(0)

    def value(self, w: FloatArray, mu: float) -> float:
        """Return the smoothed g, up to a constant; +∞ outside."""
        return 0.0

    def force(self, x: FloatArray) -> FloatArray:
        return np.zeros(self.width)

    def add_curvature(self, w: FloatArray, x: FloatArray, H: FloatArray) -> None:
        pass

    def aims(self, mu: float, w: FloatArray, x: FloatArray, last: Step | None = None) -> FloatArray:
        """Return the products to aim at for that μ, corrected for the second-order term of the
        last direction (Mehrotra).
        """
        return np.empty(0)

    def recentred(
        self,
        aims: FloatArray,
        w: FloatArray,
        x: FloatArray,
        step: Step,
        share: float,
        least: float,
        most: float,
    ) -> FloatArray:
        """Return aims that bring the products after that share of a step to between `least` and
        `most` times μ (Gondzio).
        """
        after = self.products(w + share * step.dw, x + share * step.dx)
        least = self.beta * least
        most = self.beta * most
        correction = np.clip(after, least, most) - after
        aims = aims.copy()
        aims[len(aims) - len(after) :] += np.maximum(correction, -most)
        return aims

    def direction(
        self, w: FloatArray, x: FloatArray, dw: FloatArray, aims: FloatArray
    ) -> FloatArray:
        return np.empty(0)

    def shift(self, w: FloatArray, x: FloatArray, aims: FloatArray) -> FloatArray:
        """Return the change of the force where w stays."""
        direction = self.direction(w, x, np.zeros(self.width), aims)
        return self.force(direction)

    def longest(self, w: FloatArray, x: FloatArray, dw: FloatArray, dx: FloatArray) -> float:
        """Return the longest step size that stays inside, at most 2."""
        return LONGEST

    def kept(self, w: FloatArray, x: FloatArray, mu: float) -> FloatArray:
        """Return x, raised so that no product is far below β μ. A product that vanishes early no
        longer holds w.
        """
        return x

    def products(self, w: FloatArray, x: FloatArray) -> FloatArray:
        return np.empty(0)

    def complementarity(self, w: FloatArray, x: FloatArray) -> float:
        """Return the weighted sum of the products."""
        return float(self.products(w, x).sum())


def padded(values: FloatArray, width: int) -> FloatArray:
    """Append zeros for the intercept, which has no penalty."""
    full = np.zeros(width)
    full[: len(values)] = values
    return full


def sums(places: npt.NDArray[np.intp], values: FloatArray, count: int) -> FloatArray:
    """Add up the values of every place; 0 where a place has none."""
    sums: FloatArray = np.bincount(places, values, count).astype(float)
    return sums


def diagonal(H: FloatArray) -> FloatArray:
    view: FloatArray = H.reshape(-1)[:: len(H) + 1]
    return view


def logarithms(mu: float, distances: FloatArray) -> float:
    """Return −μ Σ log(distance), +∞ where a distance is not positive."""
    if (distances > 0).all():
        return -mu * float(np.log(distances).sum())
    return math.inf


def longest(*pairs: tuple[FloatArray, FloatArray]) -> float:
    """Return the largest α ≤ 2 for which x + α Δx ≥ 0 in all of these pairs."""
    share = LONGEST
    shorten = kernel.longest
    for x, change in pairs:
        share = shorten(x, change, share)
    return share
