"""Anderson acceleration of any method's map T: State → State, safeguarded so that it falls back to a relaxed step.

With f = T(x) − x and the last differences ΔX, ΔF of x and f, the next round starts at

    x⁺ = x̄ + α f̄,   x̄ = x − ΔX γ,   f̄ = f − ΔF γ,   γ = argmin ‖f − ΔF γ‖² + tiny ‖γ‖²

in a metric that the method gives. Every agent keeps its own part of ΔX and ΔF; only inner products travel, a handful of
numbers in one `Sum`. If the residual ‖f‖ at an extrapolated point is much larger than before, the memory is dropped and
the next round starts from the best image so far.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from coterie.acceleration.wrapper import Wrapper
from coterie.agent import Agent
from coterie.arrays import FloatArray
from coterie.factors import once
from coterie.steps import Coordinate
from coterie.words import Sum, Talk

__all__ = ["Anderson"]

FARTHEST = 1e3
"""Σ|γ| up to which an extrapolation is believed."""


@dataclass(frozen=True, slots=True)
class State:
    """Where the next round starts, where the last one ended, and what is remembered, oldest first."""

    start: Any
    image: Any
    x: FloatArray
    """The last start as one scaled vector."""
    f: FloatArray
    """T(x) − x there."""
    x_changes: tuple[FloatArray, ...]
    f_changes: tuple[FloatArray, ...]
    gram: FloatArray
    """⟨ΔF_i, ΔF_j⟩ over all agents, known to everybody."""
    safe: Any
    """The image of the start with the least residual: where to go back to."""
    least: float
    """The least ‖f‖ over all agents since the memory was empty; infinite while it is."""


@dataclass(frozen=True)
class Anderson(Wrapper):
    """`steps`, accelerated by a memory of the last few rounds."""

    memory: int = 15
    alpha: float = 1.6
    promise: float = 1.0
    """Extrapolate only if it promises ‖f̄‖ ≤ promise · ‖f‖; otherwise x⁺ = x + α f."""
    patience: int = 0
    """Rounds at the beginning that are relaxed only, without a memory and without a letter."""
    safeguard: float = 2.0
    """How much larger than the least residual so far the next one may be."""

    @property
    def state(self) -> type:
        return State

    def fresh(self, agent: Agent, inner: Any) -> State:
        nothing = np.empty(0)
        return State(inner, inner, nothing, nothing, (), (), np.empty((0, 0)), inner, math.inf)

    def advance(self, agent: Agent, state: State, image: Any, t: int) -> Talk[State]:
        parts = self.steps.coordinates(agent, image)
        if t <= self.patience:
            pairs = {part.name: (getattr(state.start, part.name), getattr(image, part.name)) for part in parts}
            relaxed = {name: before + self.alpha * (after - before) for name, (before, after) in pairs.items()}
            return replace(self.fresh(agent, replace(image, **relaxed)), image=image, safe=image)
        x = _vector(parts, state.start)
        f = _vector(parts, image)
        f -= x
        x_changes: tuple[FloatArray, ...] = ()
        f_changes: tuple[FloatArray, ...] = ()
        if math.isfinite(state.least):
            x_changes = (*state.x_changes, x - state.x)[-self.memory :]
            f_changes = (*state.f_changes, f - state.f)[-self.memory :]
        own = _counted(parts, image, agent.index == 0)
        partners = [f, f_changes[-1]] if f_changes else [f]
        mine = [f[own] @ f[own], *(change[own] @ partner[own] for partner in partners for change in f_changes)]
        sums = yield Sum(np.array(mine))
        size, remembered = math.sqrt(sums[0]), len(f_changes)
        if size > self.safeguard * state.least:
            return self.fresh(agent, state.safe)
        projected, gram = sums[1 : 1 + remembered], _bordered(state.gram, sums[1 + remembered :])
        gamma = once(sums, "anderson", _coefficients, gram, projected)
        ahead = self.alpha * f
        ahead += x
        promising = sums[0] - projected @ gamma <= self.promise**2 * sums[0]
        if promising and np.abs(gamma).sum() <= FARTHEST:
            for weight, x_change, f_change in zip(gamma, x_changes, f_changes, strict=True):
                ahead -= weight * x_change
                ahead -= (self.alpha * weight) * f_change
        start = _with_vector(parts, image, ahead)
        safe = image if size <= state.least else state.safe
        return State(start, image, x, f, x_changes, f_changes, gram, safe, min(size, state.least))


def _vector(parts: tuple[Coordinate, ...], inner: Any) -> FloatArray:
    """The coordinates of a State one after the other, in one metric."""
    arrays = [getattr(inner, part.name).reshape(-1) for part in parts]
    vector, at = np.empty(sum(array.size for array in arrays)), 0
    for part, array in zip(parts, arrays, strict=True):
        np.multiply(array, part.scale, out=vector[at : at + array.size], dtype=float)
        at += array.size
    return vector


def _with_vector(parts: tuple[Coordinate, ...], inner: Any, vector: FloatArray) -> Any:
    """That State with those coordinates."""
    changes, at = {}, 0
    for part in parts:
        old = getattr(inner, part.name)
        changes[part.name] = (vector[at : at + old.size] / part.scale).reshape(old.shape).astype(old.dtype, copy=False)
        at += old.size
    return replace(inner, **changes)


def _counted(parts: tuple[Coordinate, ...], inner: Any, first: bool) -> slice:
    """The entries that are measured: those at the front, which all hold alike, only at the first agent."""
    sizes = [(part, getattr(inner, part.name).size) for part in parts]
    shared = 0 if first else sum(size for part, size in sizes if part.shared)
    return slice(shared, sum(size for part, size in sizes if part.counts))


def _coefficients(gram: FloatArray, projected: FloatArray) -> FloatArray:
    """γ."""
    ridge = 1e-10 * np.trace(gram) * np.eye(len(gram))
    gamma: FloatArray = np.linalg.lstsq(gram + ridge, projected, rcond=None)[0]
    return gamma


def _bordered(gram: FloatArray, border: FloatArray) -> FloatArray:
    """The Gram matrix with its newest row and column; the oldest go if there are too many."""
    size = len(border)
    grown = np.zeros((size, size))
    if size:
        kept = size - 1
        grown[:kept, :kept] = gram[len(gram) - kept :, len(gram) - kept :]
        grown[-1, :] = grown[:, -1] = border
    return grown
