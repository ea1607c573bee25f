"""The points of agents, and the bound that they prove."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

from coterie.numerics.arrays import FloatArray

ANY = 0.0
"""Stands for a norm bound that is still to be chosen."""


@dataclass(frozen=True)
class Point:
    """The model w of one agent, or its block of the model, and its dual variables v.

    Split by samples: w is the whole model, v has one entry per own sample. Split by features: w is
    its own block, and the agent with the labels has v, one entry per sample. Without v, the
    gradient of the loss at w replaces it.
    """

    w: FloatArray
    v: FloatArray | None = None
    kept: FloatArray | None = None
    """Numbers that a method may use again for another penalty on the same data; no part of a proof.
    """
    own: float | None = None
    """A number that the model needs and that only this agent can compute; see `best.own_number`."""


@dataclass(frozen=True)
class Bound:
    """P(w), and a lower bound on every P; with `radius`, on P of models of at most that norm."""

    primal: float
    dual: float
    """The lower bound: P(w) less the gap, and less the rounding error of P(w)."""
    radius: float | None = None
    gap: float = math.nan
    """At least P(w) − P*, rounding included; by default primal less dual."""
    rounding: float = 0.0
    """How much of the gap only allows for rounding."""
    room: float | None = None
    """With an intercept: the distance of other intercepts from this one up to which the bound
    holds.
    """
    primal_rounding: float = 0.0
    """How far rounding can have moved P(w)."""

    def __post_init__(self) -> None:
        if math.isnan(self.gap):
            object.__setattr__(self, "gap", max(self.primal - self.dual, 0.0))

    @staticmethod
    def of(
        primal: float,
        gap: float,
        rounding: float,
        radius: float | None = None,
        room: float | None = None,
        primal_rounding: float = 0.0,
    ) -> Bound:
        """A bound from its gap, which is known to more digits than the difference of two large
        numbers.
        """
        dual = lower_bound(primal, gap, primal_rounding)
        return Bound(primal, dual, radius, gap, rounding, room, primal_rounding)


def lower_bound(primal: float, gap: float, primal_rounding: float) -> float:
    """The lower bound on every objective: P(w) less its gap and its rounding error, and less the
    rounding error of these differences.
    """
    least = primal - gap - primal_rounding
    if not math.isfinite(least):
        return least
    return least - 2.0**-51 * (abs(primal) + gap + primal_rounding)


class OwnParts(Protocol):
    """The parts of a model that only one agent has, and their penalties: terms of a proof in
    addition to those of rows.
    """

    sizes: FloatArray
    """|w|, with its own part, for the rounding of its scores."""

    def value(self) -> tuple[Any, Any]:
        """n times its own penalties, and how far that may be off."""

    def gaps(self, adjoint: FloatArray, length: Any, c: float) -> tuple[Any, Any]:
        """n times its own Fenchel–Young terms at c X̃ᵀ(s∘v), whose rounding that length is for; and
        what is off.
        """
