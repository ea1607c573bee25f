"""The pieces of a penalty inside an interior-point method: one class each, all with the same few
verbs.

A barrier stands for g, less its ridge, in g + μ·(logarithms). Its own variables x follow the model
w: on the central path they are a function of (w, μ), and off it they move by Newton's method on the
equations of the class.

    force(x)                 what x pulls w by: on the path the slope of the smoothed g
    products(w, x)           what shall become β μ, and 0 at the end
    direction(w, x, Δw, a)   Δx for a change of w, affine in it, so that Δforce = C Δw +
                             force(direction for Δw = 0); `a` is what the equations aim at: the
                             products, and more where x has more equations
    add_curvature(w, x, H)   H ← H + C

`Barrier` itself is that of no penalty at all. All arrays are over w, where an intercept comes last
and is free.
"""

from __future__ import annotations

import numpy as np

from coterie.methods.second_order.barriers.barrier import LONGEST, Barrier, Step
from coterie.methods.second_order.barriers.bounds import Ball, Bounds
from coterie.methods.second_order.barriers.norms import Intervals, Norms
from coterie.numerics.arrays import FloatArray
from coterie.numerics.penalties.pieces import Pieces

__all__ = ["LONGEST", "Ball", "Barrier", "Bounds", "Intervals", "Norms", "Step", "barrier_of"]


def barrier_of(pieces: Pieces, width: int, count: int, unit: float, lengths: FloatArray) -> Barrier:
    """That of those pieces, of one kind at most, for `count` coefficients among the `width` entries
    of w.

    Its products weigh `unit` together, whatever the strength. The way from a lonely bound to a
    model has no scale of its own: `lengths` are steps on the model's, and 0 for coefficients that
    do not matter.
    """
    match pieces.kinds:
        case []:
            return Barrier(width)
        case ["l1"]:
            return Intervals(width, count, pieces.threshold, unit)
        case ["bounds"]:
            lower, upper = (
                np.broadcast_to(side, count).astype(float) for side in (pieces.lower, pieces.upper)
            )
            return Bounds(width, lower, upper, lengths, unit / max(2 * count, 1))
        case ["groups"] if pieces.groups is not None and pieces.strengths is not None:
            return Norms(width, pieces.groups, pieces.strengths, unit)
        case ["ball"]:
            return Ball(width, count, pieces.radius, unit / (2 * count + 1))
    raise NotImplementedError(f"several barriers at once: {pieces.kinds}")
