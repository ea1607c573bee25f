"""P on the columns in play of `working_set.py`: H on a block, a diagonal elsewhere, and what steps
have taught.
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
    mixed: int = tuned(8, "Slopes that are mixed to a better dual, ...", WIDE)
    trusted: float = tuned(
        10.0, "... and what their shares may add up to without their signs.", WIDE, above=1
    )
    sweeps: int = tuned(40, "Sweeps of coordinate descent in a step at most, ...", WIDE)
    share: float = tuned(1e-2, "... and the share of the gain at which they end.", WIDE, below=1)
    decrease: float = tuned(
        0.01, "The share of the linear decrease that a step must come to.", "paper: Armijo 1966"
    )
    patience: int = tuned(
        1,
        "After so many steps that failed though B learned from each, or one from which not, ...",
        WIDE,
    )
    shortest: float = tuned(
        0.1, "... the next one is at least this share of the last, ...", WIDE, below=0.5
    )
    longest: float = tuned(0.5, "... and at most this one.", WIDE, above=0.1, below=1)
    single: float = tuned(
        1e-5,
        "The share of a number in single precision that is not trusted.",
        "rounding: what float32 sees, with room to spare",
    )


TUNING = _Tuning()


@dataclass(frozen=True)
class Model:
    """What all agents know of P on the columns in play, and the step that follows from it."""

    total: float
    """n."""
    w: FloatArray
    slope: FloatArray
    """∇f(w)."""
    ridge: FloatArray
    threshold: FloatArray
    unit: FloatArray
    """What changes of n ∇f are divided by before they travel: the root of the diagonal of n H."""
    H: FloatArray
    place: npt.NDArray[np.int64]
    curvatures: FloatArray
    """B₀: H of the columns with a place there, `bends` of all."""
    enough: float
    """How near to hold the optimality conditions must be."""
    way: FloatArray
    """p."""
    bend: float = 0.0
    """pᵀBp, without the ridge."""
    ways: tuple[FloatArray, ...] = ()
    changes: tuple[FloatArray, ...] = ()
    """All p of this round, and the y that they led to."""
    gradients: tuple[FloatArray, ...] = ()
    """∇f wherever w has been before."""
    steps: int = 0
    failures: int = 0
    """Steps that were taken, and those in succession that were not."""

    def after(self, reply: FloatArray) -> Model:
        """What is known after a step, from what was said about it."""
        p = self.way
        y = reply[:-1].astype(float) * self.unit / self.total
        there = self.w + p
        linear = self._change(self.slope, there)
        # P is convex, and so falls by at least what its slope over there says: less rounding than
        # in f(w + p) − f(w).
        least = self._change(self.slope + y, there)
        losses = float(reply[-1]) / self.total
        noisy = TUNING.single * abs(losses) > abs(linear)
        gained = min(
            least,
            0.5 * (least + linear) if noisy else losses + self._change(np.zeros(len(p)), there),
        )
        learned = replace(self, ways=(*self.ways, p), changes=(*self.changes, y))
        if gained <= TUNING.decrease * linear:
            steps = self.steps + 1
            gradients = (*self.gradients, self.slope)
            w = sealed(there)
            moved = replace(
                learned, w=w, slope=self.slope + y, gradients=gradients, steps=steps, failures=0
            )
            return moved.aimed()
        failures = self.failures + 1
        bend = float(p @ y)
        known = replace(learned if bend > self.bend else self, failures=failures)
        if bend > self.bend and failures <= TUNING.patience:
            return known.aimed()
        # What B learned does not help, or was learned too far away: a shorter step will be one.
        share = min(TUNING.longest, max(TUNING.shortest, -linear / bend if bend > 0 else 0.0))
        return replace(known, way=share * p, bend=share**2 * self.bend)

    def aimed(self) -> Model:
        """The same with p = argmin ⟨∇f(w), p⟩ + ½ pᵀBp + g(w + p), or 0 if w is good enough."""
        if violation(self.w, self.slope, self.ridge, self.threshold) <= self.enough:
            return replace(self, way=np.zeros(len(self.w)))
        U, signs = self._updates()
        H = self.H.copy()
        inside = self.place >= 0
        H.flat[:: len(H) + 1] += self.ridge[inside]
        descend: Any = low_rank_descent
        slope = self.slope + self.ridge * self.w
        curvatures = self.curvatures + self.ridge
        p: FloatArray = descend(
            H,
            self.place,
            curvatures,
            U,
            signs,
            slope,
            self.threshold,
            self.w,
            TUNING.share,
            TUNING.sweeps,
        )
        return replace(self, way=p, bend=float(p @ self._start(p)) + float(signs @ (U.T @ p) ** 2))

    def _start(self, p: FloatArray) -> FloatArray:
        """B₀p, without the ridge."""
        image: FloatArray = self.curvatures * p
        inside = self.place >= 0
        image[inside] = self.H @ p[inside]
        return image

    def _updates(self) -> tuple[FloatArray, FloatArray]:
        """B − B₀ as U diag(signs) Uᵀ."""
        U = np.empty((len(self.w), 2 * len(self.ways)))
        signs = np.empty(2 * len(self.ways))
        rank = 0
        for p, y in zip(self.ways, self.changes, strict=True):
            bend = float(p @ y)
            if not bend > 1e-10 * math.sqrt(float(p @ p) * float(y @ y)):
                continue
            image = self._start(p)
            image += U[:, :rank] @ (signs[:rank] * (U[:, :rank].T @ p))
            expected = float(p @ image)
            if not expected > 0:
                continue
            U[:, rank], U[:, rank + 1] = image / math.sqrt(expected), y / math.sqrt(bend)
            signs[rank : rank + 2] = -1.0, 1.0
            rank += 2
        return np.ascontiguousarray(U[:, :rank]), signs[:rank]

    def mixture(self) -> FloatArray | None:
        """Shares of the last slopes, which add up to 1, so that their sum violates |q_j| ≤ λ less
        than the last does.

        As Massias, Gramfort and Salmon (2018, "Celer") extrapolate a dual: the least squares of q_j
        + λ sign(w_j) on the columns that are not 0. Slopes of the loss are a dual, and so is their
        mixture, once in the domain.
        """
        free = (self.w != 0) | (self.threshold == 0)
        seen = np.array([*self.gradients, self.slope][-TUNING.mixed :])
        left = seen[:, free] + self.threshold[free] * np.sign(self.w[free])
        G = left @ left.T
        if self.ridge.any() or not np.trace(G) > 0:
            return None
        G.flat[:: len(G) + 1] += 1e-12 * np.trace(G)
        shares = np.linalg.solve(G, np.ones(len(G)))
        shares /= shares.sum()
        worst, before = (
            np.abs(q[self.threshold > 0]).max(initial=0.0) for q in (shares @ seen, self.slope)
        )
        if worst < before and np.abs(shares).sum() < TUNING.trusted:
            return shares
        return None

    def _change(self, slope: FloatArray, there: FloatArray) -> float:
        """⟨slope, p⟩ + g(w + p) − g(w), added up so that what cancels does so column by column."""
        p = self.way
        w = self.w
        kink = np.where(there * w > 0, np.sign(w) * p, np.abs(there) - np.abs(w))
        return float(((slope + self.ridge * (w + 0.5 * p)) * p + self.threshold * kink).sum())


def violation(w: FloatArray, slope: FloatArray, ridge: FloatArray, threshold: FloatArray) -> float:
    """By how much the conditions for a minimum fail at most, as a slope."""
    steep = slope + ridge * w
    fails = np.where(
        w != 0, np.abs(steep + threshold * np.sign(w)), np.maximum(np.abs(steep) - threshold, 0.0)
    )
    return float(fails.max(initial=0.0))
