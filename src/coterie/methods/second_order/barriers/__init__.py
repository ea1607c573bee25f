"""Barriers: the smoothed pieces of a penalty inside an interior-point method.

A barrier stands for g, less its ridge, in g + μ·(logarithms). Every piece has one class, and all
classes have the same methods. The variables x of a barrier follow the model w: on the central path
they are a function of (w, μ). Off the path, Newton's method on the equations of the class moves
them.

    force(x)                 the gradient of the smoothed g on the path: what x adds to the gradient
    products(w, x)           the products that are β μ on the path, and 0 at the end
    direction(w, x, Δw, a)   Δx for a change of w. It is affine in Δw, so that
                             Δforce = C Δw + force(direction for Δw = 0). The equations aim at `a`:
                             the products, and more numbers where x has more equations
    add_curvature(w, x, H)   H ← H + C

`Barrier` itself is the barrier of no penalty. All arrays are over w, where an intercept comes last
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
    """The barrier of a penalty of at most one piece, for the first `count` of the `width` entries
    of w.

    The weighted sum of its products on the path is `unit`, in units of μ. A coefficient with one
    bound may go infinitely far from it: `lengths` are the scales of its steps. A length of 0 marks
    a coefficient that does not matter.
    """
    match pieces.kinds:
        case []:
            return Barrier(width)
        case ["l1"]:
            return Intervals(width, count, pieces.threshold, unit)
        case ["bounds"]:
            lower = np.broadcast_to(pieces.lower, count).astype(float)
            upper = np.broadcast_to(pieces.upper, count).astype(float)
            beta = unit / max(2 * count, 1)
            return Bounds(width, lower, upper, lengths, beta)
        case ["groups"] if pieces.groups is not None and pieces.strengths is not None:
            return Norms(width, pieces.groups, pieces.strengths, unit)
        case ["ball"]:
            beta = unit / (2 * count + 1)
            return Ball(width, count, pieces.radius, beta)
    raise NotImplementedError(f"several barriers at once: {pieces.kinds}")
