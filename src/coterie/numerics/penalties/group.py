"""g(w) = Σ_G λ_G ‖w_G‖, λ_G = strength √|G|, with g*(u) = 0 where ‖u_G‖ ≤ λ_G for every group G and
+∞ elsewhere.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from coterie.errors import InvalidProblem
from coterie.numerics.arrays import FloatArray
from coterie.numerics.penalties.penalty import (
    ROUNDING,
    Penalty,
    Step,
    ball_supremum,
    inside,
    norm,
    positive,
    shrink_factor,
)
from coterie.numerics.penalties.pieces import Pieces


@dataclass(frozen=True)
class Group(Penalty):
    """Group lasso: keeps or drops whole groups of columns. `groups` gives one whole number per
    column.
    """

    name: ClassVar[str] = "group"
    strength: float
    groups: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "strength", positive(self.strength, "group strength", "for 0 use 'none'")
        )
        try:
            object.__setattr__(
                self, "groups", tuple(operator.index(label) for label in self.groups)
            )
        except TypeError:
            raise InvalidProblem(
                "the groups must be one whole number per column, e.g. (0, 0, 1), not "
                f"{self.groups!r}."
            ) from None

    @cached_property
    def _layout(self) -> tuple[npt.NDArray[np.intp], ...]:
        """The distinct labels, the place of each column's label among them, their counts, and their
        first columns.
        """
        labels, first, positions, sizes = np.unique(
            np.array(self.groups, np.intp), True, True, True
        )
        return labels, positions, sizes, first

    @cached_property
    def _strengths(self) -> npt.NDArray[np.float64]:
        """λ_G, one per group."""
        strengths: npt.NDArray[np.float64] = self.strength * np.sqrt(self._layout[2])
        return strengths

    @property
    def pieces(self) -> Pieces:
        return Pieces(groups=self._layout[1], strengths=self._strengths)

    def value(self, w: FloatArray) -> float:
        return float(self._strengths @ self._norms(w))

    def prox(self, w: FloatArray, step: Step) -> FloatArray:
        _, positions, _, first = self._layout
        steps = np.broadcast_to(np.asarray(step, float), w.shape)
        norms = self._norms(w)
        thresholds = steps[first] * self._strengths
        kept = norms > thresholds
        factors = np.divide(norms - thresholds, norms, out=np.zeros_like(norms), where=kept)
        shrunk: FloatArray = w * factors[positions]
        return shrunk.astype(w.dtype, copy=False)

    def tied(self, steps: FloatArray) -> FloatArray:
        labels, positions, _, _ = self._layout
        least = np.full(labels.size, np.inf)
        np.minimum.at(least, positions, steps)
        return least[positions].astype(steps.dtype)

    def conjugate(self, u: FloatArray) -> float:
        if inside(self._excess(u, 0.0)):
            return 0.0
        return math.inf

    def fenchel_young(self, w: FloatArray, u: FloatArray, error: Step = 0.0) -> float:
        # ‖w‖ ((λ − ‖u‖) + ½ ‖u‖ ‖w/‖w‖ − u/‖u‖‖²) for every group
        if not inside(self._excess(u, error)):
            return math.inf
        sizes = self._norms(w)
        lengths = self._norms(u)
        off = self._norms(self._errors(u, error))
        difference = self._directions(w, sizes) - self._directions(u, lengths)
        apart = self._norms(difference)
        left = np.maximum(self._strengths - lengths, 0.0) + 0.5 * lengths * apart**2
        terms = left + 2.0 * off + ROUNDING * self._strengths
        return float(sizes @ terms)

    def scale_into_domain(self, u: FloatArray, error: Step = 0.0) -> float:
        return shrink_factor(self._excess(u, error), u.dtype)

    def bounded_conjugate(self, u: FloatArray, radius: float) -> float:
        # ⟨u, w⟩ − g(w) ≤ Σ_G (‖u_G‖ − λ_G) ‖w_G‖ ≤ ‖excess‖ ‖w‖, excess_G = (‖u_G‖ − λ_G)₊;
        # equalities at the best w.
        excess = norm(np.maximum(self._norms(u) - self._strengths, 0.0))
        return min(self.conjugate(u), ball_supremum(excess, 0.0, radius))

    def repeated(self, columns: int, times: int) -> Group:
        """Without groups, every column is one."""
        groups = np.array(self.groups or range(columns), np.intp)
        return Group(self.strength, tuple(np.repeat(groups, times).tolist()))

    def restrict(self, columns: npt.NDArray[np.intp]) -> Group:
        labels, positions, sizes, _ = self._layout
        local = np.bincount(positions[columns], minlength=labels.size)
        cut = np.flatnonzero((local > 0) & (local < sizes))
        if cut.size:
            first = cut[0]
            raise InvalidProblem(
                f"group {labels[first]} is cut: {local[first]} of its {sizes[first]} columns are "
                "at one agent, the "
                "rest elsewhere. Give each agent whole groups (agents= a list of column lists), "
                "or split by samples."
            )
        return Group(self.strength, tuple(labels[positions[columns]].tolist()))

    def _excess(self, u: FloatArray, error: Step) -> float:
        """The largest ratio of ‖u_G‖ (plus error) to λ_G: at most 1 inside the domain."""
        lengths = self._norms(u) * (1.0 + ROUNDING) + self._norms(self._errors(u, error))
        return float(np.max(lengths / self._strengths, initial=0))

    def _errors(self, u: FloatArray, error: Step) -> FloatArray:
        return np.broadcast_to(np.asarray(error, float), u.shape)

    def _directions(self, w: FloatArray, norms: npt.NDArray[Any]) -> FloatArray:
        """w_G / ‖w_G‖, 0 for a group of zeros."""
        inverse = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
        directions: FloatArray = w * inverse[self._layout[1]]
        return directions

    def _norms(self, w: FloatArray) -> npt.NDArray[Any]:
        """‖w_G‖, one per group."""
        if w.shape != (len(self.groups),):
            raise InvalidProblem(
                f"the group penalty has labels for {len(self.groups)} columns, the coefficients "
                f"have shape {w.shape}. "
                "Give one label per column."
            )
        labels, positions, _, _ = self._layout
        squares = w.astype(np.float64) ** 2
        sums = np.bincount(positions, squares, minlength=labels.size)
        norms: npt.NDArray[Any] = np.sqrt(sums)
        return norms
