"""What all barriers can do, their numbers, and arithmetic that they share."""

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
    least_room: float = tuned(
        1e-14, "Room of duals when the path is reached.", "rounding: what float64 sees"
    )
    depth: float = tuned(
        0.25,
        (
            "Bounds are kept off by this share of their distance at the start, or by the length "
            "that "
            "is given."
        ),
        "measured: digits and diabetes in boxes",
        below=0.5,
    )
    far: float = tuned(
        100.0,
        (
            "How far from a lonely bound a model may go for nothing, in units of the lengths that "
            "are "
            "given."
        ),
        "measured: digits and diabetes with one-sided bounds",
    )
    least_product: float = tuned(
        0.1,
        "What the product of a bound is at least after a step, in units of β μ.",
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
"""Steps are at most that long: one that ends at 1 is a full step."""
EPS, TINY = float(np.finfo(float).eps), float(np.finfo(float).tiny)
"""What touches its bound by rounding is a hair's breadth away from it."""


class Step(NamedTuple):
    """A direction of the model and the barrier's variables."""

    dw: FloatArray
    dx: FloatArray


class Barrier:
    """No penalty: no variables, no force."""

    weight: float = 0.0
    """What the weighted sum of products is on the central path, in units of μ."""
    beta: float = 1.0
    """What each product is there, in units of μ."""

    def __init__(self, width: int):
        self.width = width
        self.stuck = np.zeros(width, bool)
        """Which entries of w cannot move, or need not."""
        self.tilt: FloatArray = np.zeros(width)
        """A force on w in units of μ, which goes to 0: where g has no growth, logarithms alone have
        no minimum.
        """

    def inside(self, w: FloatArray) -> FloatArray:
        """A point near w at which the barrier is finite."""
        return w

    def centred(self, w: FloatArray, mu: float) -> FloatArray:
        """x on the central path."""
        return np.empty(0)

    def value(self, w: FloatArray, mu: float) -> float:
        """The smoothed g, up to a constant; +∞ outside."""
        return 0.0

    def force(self, x: FloatArray) -> FloatArray:
        return np.zeros(self.width)

    def add_curvature(self, w: FloatArray, x: FloatArray, H: FloatArray) -> None:
        pass

    def aims(self, mu: float, w: FloatArray, x: FloatArray, last: Step | None = None) -> FloatArray:
        """What to aim at for that μ; corrected for the second-order term of a last direction
        (Mehrotra).
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
        """Aims that bring products after that share of a step to between `least` and `most` times μ
        (Gondzio).
        """
        after = self.products(w + share * step.dw, x + share * step.dx)
        least = self.beta * least
        most = self.beta * most
        aims = aims.copy()
        aims[len(aims) - len(after) :] += np.maximum(np.clip(after, least, most) - after, -most)
        return aims

    def direction(
        self, w: FloatArray, x: FloatArray, dw: FloatArray, aims: FloatArray
    ) -> FloatArray:
        return np.empty(0)

    def shift(self, w: FloatArray, x: FloatArray, aims: FloatArray) -> FloatArray:
        """By how much the force changes where w stays."""
        return self.force(self.direction(w, x, np.zeros(self.width), aims))

    def longest(self, w: FloatArray, x: FloatArray, dw: FloatArray, dx: FloatArray) -> float:
        """The longest step that stays inside, at most 2: one that ends before is a full step."""
        return LONGEST

    def kept(self, w: FloatArray, x: FloatArray, mu: float) -> FloatArray:
        """x, or what it has to be for no product to be far below β μ: what vanishes early no longer
        holds w.
        """
        return x

    def products(self, w: FloatArray, x: FloatArray) -> FloatArray:
        return np.empty(0)

    def complementarity(self, w: FloatArray, x: FloatArray) -> float:
        """The weighted sum of the products."""
        return float(self.products(w, x).sum())


def padded(values: FloatArray, width: int) -> FloatArray:
    """Those values and then zeros: an intercept feels nothing."""
    full = np.zeros(width)
    full[: len(values)] = values
    return full


def sums(places: npt.NDArray[np.intp], values: FloatArray, count: int) -> FloatArray:
    """What is said for every place, added up; 0 where nothing is."""
    sums: FloatArray = np.bincount(places, values, count).astype(float)
    return sums


def diagonal(H: FloatArray) -> FloatArray:
    view: FloatArray = H.reshape(-1)[:: len(H) + 1]
    return view


def logarithms(mu: float, rooms: FloatArray) -> float:
    if (rooms > 0).all():
        return -mu * float(np.log(rooms).sum())
    return math.inf


def longest(*pairs: tuple[FloatArray, FloatArray]) -> float:
    """The largest α ≤ 2 for which x + α Δx ≥ 0 in all of those pairs."""
    share = LONGEST
    shorten = kernel.longest
    for x, change in pairs:
        share = shorten(x, change, share)
    return share
