"""A model of P on the active columns of `working_set.py`: H on a block, a diagonal elsewhere, and
an update of low rank from the steps so far.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.numerics.arrays import FloatArray, sealed
from coterie.numerics.kernels.low_rank_descent import low_rank_descent
from coterie.numerics.tuning import Tuning, tuned

WIDE = "measured: logistic l1 with 100,000 rare columns, λ = 3e-5 (docs/benchmarks.md)"


@dataclass(frozen=True)
class _Tuning(Tuning):
    mixed: int = tuned(8, "The number of gradients that are mixed to better dual variables.", WIDE)
    trusted: float = tuned(
        10.0, "The largest sum of the absolute shares of a mixture.", WIDE, above=1
    )
    sweeps: int = tuned(40, "The largest number of sweeps of coordinate descent in a step.", WIDE)
    share: float = tuned(
        1e-2, "Sweeps end when one gains less than this share of the first.", WIDE, below=1
    )
    decrease: float = tuned(
        0.01, "The least decrease of a step, as a share of the linear one.", "paper: Armijo 1966"
    )
    patience: int = tuned(
        1,
        "The number of failed steps in a row that only update B; the next one is also shortened.",
        WIDE,
    )
    shortest: float = tuned(
        0.1, "The least share of the last step that a shortened step has.", WIDE, below=0.5
    )
    longest: float = tuned(
        0.5,
        "The largest share of the last step that a shortened step has.",
        WIDE,
        above=0.1,
        below=1,
    )
    single: float = tuned(
        1e-5,
        "The relative error that a number in single precision may have.",
        "rounding: more than the precision of float32",
    )


TUNING = _Tuning()


@dataclass(frozen=True)
class Model:
    """Facts that all agents know of P on the active columns, and the step that follows."""

    total: float
    """n."""
    w: FloatArray
    gradient: FloatArray
    """∇f(w)."""
    ridge: FloatArray
    threshold: FloatArray
    unit: FloatArray
    """Agents divide changes of n ∇f by this before they send them: the root of diag(n H)."""
    H: FloatArray
    place: npt.NDArray[np.int64]
    """The place of each column in H, −1 outside the block."""
    curvatures: FloatArray
    """The diagonal of B₀; on the block, B₀ is H."""
    enough: float
    """The largest violation of the optimality conditions at which w is good enough."""
    way: FloatArray
    """p."""
    way_curvature: float = 0.0
    """pᵀBp, without the ridge."""
    ways: tuple[FloatArray, ...] = ()
    changes: tuple[FloatArray, ...] = ()
    """All p of this round, and the y of each."""
    gradients: tuple[FloatArray, ...] = ()
    """∇f at the earlier w of this round."""
    steps: int = 0
    """Steps that were taken."""
    failures: int = 0
    """Steps in succession that were not taken."""

    def after(self, reply: FloatArray) -> Model:
        """Return the model after a step, from the sum of the changes that agents sent."""
        p = self.way
        y = reply[:-1].astype(float) * self.unit / self.total
        there = self.w + p
        linear = self._change(self.gradient, there)
        gained = self._gained(reply, y, linear)
        learned = replace(self, ways=(*self.ways, p), changes=(*self.changes, y))
        if gained <= TUNING.decrease * linear:
            moved = replace(
                learned,
                w=sealed(there),
                gradient=self.gradient + y,
                gradients=(*self.gradients, self.gradient),
                steps=self.steps + 1,
                failures=0,
            )
            return moved.aimed()
        failures = self.failures + 1
        curvature = float(p @ y)
        if not curvature > self.way_curvature:
            # The step teaches nothing: shorten it.
            return replace(self, failures=failures)._shortened(linear, curvature)
        known = replace(learned, failures=failures)
        if failures <= TUNING.patience:
            return known.aimed()
        return known._shortened(linear, curvature)

    def _gained(self, reply: FloatArray, y: FloatArray, linear: float) -> float:
        """Return the change of P in the step, or a bound where f is too inexact."""
        p = self.way
        there = self.w + p
        # P is convex, so it changes at most by the linear change with the gradient at w + p. That
        # one has less rounding than f(w + p) − f(w).
        most = self._change(self.gradient + y, there)
        losses = float(reply[-1]) / self.total
        if TUNING.single * abs(losses) > abs(linear):
            estimate = 0.5 * (most + linear)
        else:
            estimate = losses + self._change(np.zeros(len(p)), there)
        return min(most, estimate)

    def _shortened(self, linear: float, curvature: float) -> Model:
        """Return the model with a shorter step, towards the minimum of a parabola."""
        share = 0.0
        if curvature > 0:
            share = -linear / curvature
        share = min(TUNING.longest, max(TUNING.shortest, share))
        way_curvature = share**2 * self.way_curvature
        return replace(self, way=share * self.way, way_curvature=way_curvature)

    def aimed(self) -> Model:
        """Return the model with p = argmin ⟨∇f(w), p⟩ + ½ pᵀBp + g(w + p), or 0 if w is good
        enough.
        """
        if violation(self.w, self.gradient, self.ridge, self.threshold) <= self.enough:
            return replace(self, way=np.zeros(len(self.w)))
        U, signs = self._updates()
        H = self.H.copy()
        inside = self.place >= 0
        H.flat[:: len(H) + 1] += self.ridge[inside]
        descend: Any = low_rank_descent
        gradient = self.gradient + self.ridge * self.w
        curvatures = self.curvatures + self.ridge
        p: FloatArray = descend(
            H,
            self.place,
            curvatures,
            U,
            signs,
            gradient,
            self.threshold,
            self.w,
            TUNING.share,
            TUNING.sweeps,
        )
        of_start = float(p @ self._start(p))
        of_updates = float(signs @ (U.T @ p) ** 2)
        return replace(self, way=p, way_curvature=of_start + of_updates)

    def _start(self, p: FloatArray) -> FloatArray:
        """Return B₀p, without the ridge."""
        product: FloatArray = self.curvatures * p
        inside = self.place >= 0
        product[inside] = self.H @ p[inside]
        return product

    def _updates(self) -> tuple[FloatArray, FloatArray]:
        """Return B − B₀ as U diag(signs) Uᵀ."""
        U = np.empty((len(self.w), 2 * len(self.ways)))
        signs = np.empty(2 * len(self.ways))
        rank = 0
        for p, y in zip(self.ways, self.changes, strict=True):
            curvature = float(p @ y)
            size = math.sqrt(float(p @ p) * float(y @ y))
            if not curvature > 1e-10 * size:
                continue
            before = U[:, :rank]
            Bp = self._start(p)
            Bp += before @ (signs[:rank] * (before.T @ p))
            expected = float(p @ Bp)
            if not expected > 0:
                continue
            U[:, rank] = Bp / math.sqrt(expected)
            U[:, rank + 1] = y / math.sqrt(curvature)
            signs[rank] = -1.0
            signs[rank + 1] = 1.0
            rank += 2
        return np.ascontiguousarray(U[:, :rank]), signs[:rank]

    def mixture(self) -> FloatArray | None:
        """Return shares of the last gradients q, which add up to 1, so that their sum violates
        |q_j| ≤ λ less than the last one; None if there are no such shares.

        Massias, Gramfort and Salmon (2018, "Celer") extrapolate dual variables in this way: by
        least squares of q_j + λ sign(w_j) on the columns that are not 0. The gradients of the loss
        are dual variables, and so is their mixture, once it is in the domain.
        """
        penalised = self.threshold > 0
        free = (self.w != 0) | (self.threshold == 0)
        seen = np.array([*self.gradients, self.gradient][-TUNING.mixed :])
        left = seen[:, free] + self.threshold[free] * np.sign(self.w[free])
        G = left @ left.T
        if self.ridge.any() or not np.trace(G) > 0:
            return None
        G.flat[:: len(G) + 1] += 1e-12 * np.trace(G)
        shares = np.linalg.solve(G, np.ones(len(G)))
        shares /= shares.sum()
        mixed = shares @ seen
        worst = np.abs(mixed[penalised]).max(initial=0.0)
        before = np.abs(self.gradient[penalised]).max(initial=0.0)
        if worst < before and np.abs(shares).sum() < TUNING.trusted:
            return shares
        return None

    def _change(self, gradient: FloatArray, there: FloatArray) -> float:
        """Return ⟨gradient, p⟩ + g(w + p) − g(w). Terms that cancel do so column by column."""
        p = self.way
        w = self.w
        absolute = np.where(there * w > 0, np.sign(w) * p, np.abs(there) - np.abs(w))
        smooth = (gradient + self.ridge * (w + 0.5 * p)) * p
        return float((smooth + self.threshold * absolute).sum())


def violation(
    w: FloatArray, gradient: FloatArray, ridge: FloatArray, threshold: FloatArray
) -> float:
    """Return the largest violation of the conditions for a minimum, in units of the gradient."""
    steep = gradient + ridge * w
    active = np.abs(steep + threshold * np.sign(w))
    inactive = np.maximum(np.abs(steep) - threshold, 0.0)
    violations = np.where(w != 0, active, inactive)
    return float(violations.max(initial=0.0))
