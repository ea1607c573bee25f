"""Anderson acceleration of any method's map T: State → State, safeguarded so that it falls back to
a relaxed step.

With f = T(x) − x and the last differences ΔX, ΔF of x and f, the next round starts at

    x⁺ = x̄ + α f̄,   x̄ = x − ΔX γ,   f̄ = f − ΔF γ,   γ = argmin ‖f − ΔF γ‖² + tiny Σ ‖ΔF_i‖² γ_i²

in a metric that the method gives. x⁺ is a combination of the last few x + α f, of which every agent
keeps its own part; of ΔF it keeps the measured entries. Agents exchange only inner products, a few
numbers in one `Sum`. If the residual ‖f‖ at an extrapolated point is much larger than before, the
memory is dropped, and the next round starts from the best image so far.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from coterie.numerics.acceleration.wrapper import Wrapped, Wrapper, relaxed
from coterie.numerics.arrays import FloatArray, shared_result
from coterie.numerics.tuning import Tuning, tuned
from coterie.run.agent import Agent
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import discloses
from coterie.run.steps import Coordinate


@dataclass(frozen=True)
class _Tuning(Tuning):
    farthest: float = tuned(1e3, "The largest Σ|γ| with which a step extrapolates.")
    tiny: float = tuned(
        1e-6,
        "The share of each difference that keeps γ small.",
        "measured: without, linearised rules took twice the rounds",
    )


TUNING = _Tuning()


@dataclass(frozen=True, slots=True)
class State(Wrapped):
    """The state of a run and its memory, oldest round first."""

    shared: tuple[FloatArray, ...]
    """x + α f of the last starts, scaled: the coordinates that are equal at all agents."""
    aheads: tuple[FloatArray, ...]
    """x + α f of the last starts, scaled: the agent's own coordinates."""
    f: FloatArray
    """T(x) − x of the last start: the measured entries of this agent."""
    f_changes: tuple[FloatArray, ...]
    gram: FloatArray
    """⟨ΔF_i, ΔF_j⟩ over all agents, known to all of them."""
    safe: Any
    """The image of the start with the least residual, from which to restart."""
    least: float
    """The least ‖f‖ over all agents since the memory was empty; infinite while it is."""


@dataclass(frozen=True)
class Anderson(Wrapper[State]):
    """`steps`, accelerated by a memory of the last few rounds."""

    memory: int = 15
    alpha: float = 1.6
    promise: float = 1.0
    """Extrapolate only if ‖f̄‖ ≤ promise · ‖f‖; otherwise x⁺ = x + α f."""
    patience: int = 0
    """Number of first rounds that are only relaxed, without memory and without messages."""
    safeguard: float = 2.0
    """Largest ratio of a residual to the least one so far."""

    def fresh(self, agent: Agent, inner: Any) -> State:
        nothing = np.empty(0)
        return State(inner, inner, (), (), nothing, (), np.empty((0, 0)), inner, math.inf)

    @discloses(
        "sums of squares and of products of your own changes of State, a few numbers, as part of "
        "a sum",
        most=lambda case: (1, 1 + 2 * Anderson.memory),
    )
    def advance(self, agent: Agent, state: State, image: Any, t: int) -> Protocol[State]:
        parts = self.steps.coordinates(agent, image)
        if t <= self.patience:
            start = relaxed(parts, state.start, image, self.alpha)
            return replace(self.fresh(agent, start), image=image, safe=image)
        common = [part for part in parts if part.shared]
        own = [part for part in parts if not part.shared]
        common_ahead, f_common = _ahead(common, state.start, image, self.alpha)
        ahead, f = _ahead(own, state.start, image, self.alpha)
        if agent.index == 0:
            f = np.concatenate([f_common, f])
        f_changes: tuple[FloatArray, ...] = ()
        if math.isfinite(state.least):
            f_changes = (*state.f_changes, f - state.f)[-self.memory :]
        sums = yield Sum(_inner_products(f, f_changes))
        size = math.sqrt(sums[0])
        remembered = len(f_changes)
        if size > self.safeguard * state.least:
            return self.fresh(agent, state.safe)
        projected = sums[1 : 1 + remembered]
        gram = _bordered(state.gram, sums[1 + remembered :])
        gamma = shared_result(sums, _coefficients, gram, projected)
        weights = np.zeros(remembered + 1)
        promised = sums[0] - projected @ gamma <= self.promise**2 * sums[0]
        if promised and np.abs(gamma).sum() <= TUNING.farthest:
            # x⁺ = x + α f − (ΔX + α ΔF) γ, where a change is the x + α f of one round less that of
            # the round before
            weights = np.diff(gamma, prepend=0.0, append=0.0)
        weights[-1] += 1.0
        # In one process, coordinates that are equal at all agents are stored once.
        shared = (*state.shared, shared_result(sums, lambda: common_ahead))[-remembered - 1 :]
        aheads = (*state.aheads, ahead)[-remembered - 1 :]
        start = _with_vector(common, image, shared_result(sums, _combined, weights, shared))
        start = _with_vector(own, start, _combined(weights, aheads))
        safe = state.safe
        if size <= state.least:
            safe = image
        return State(start, image, shared, aheads, f, f_changes, gram, safe, min(size, state.least))


def _inner_products(f: FloatArray, f_changes: tuple[FloatArray, ...]) -> FloatArray:
    """Return ⟨f, f⟩, then ⟨ΔF_i, f⟩ and ⟨ΔF_i, ΔF_last⟩ for every i, of one agent."""
    products = [f @ f]
    products += [change @ f for change in f_changes]
    products += [change @ f_changes[-1] for change in f_changes]
    return np.array(products)


def _ahead(
    parts: list[Coordinate], start: Any, image: Any, alpha: float
) -> tuple[FloatArray, FloatArray]:
    """Return x + α f for f = T(x) − x, and the part of f that is measured; in one metric."""
    x = _vector(parts, start)
    ahead = _vector(parts, image)
    ahead -= x
    measured = sum(getattr(image, part.name).size for part in parts if part.counts)
    f = ahead[:measured].copy()
    ahead *= alpha
    ahead += x
    return ahead, f


def _combined(weights: FloatArray, vectors: tuple[FloatArray, ...]) -> FloatArray:
    result: FloatArray = weights[-1] * vectors[-1]
    for weight, vector in zip(weights[:-1], vectors[:-1], strict=True):
        if weight:
            result += weight * vector
    return result


def _vector(parts: list[Coordinate], inner: Any) -> FloatArray:
    """Return the coordinates of a State one after the other, in one metric."""
    arrays = [getattr(inner, part.name).reshape(-1) for part in parts]
    vector = np.empty(sum(array.size for array in arrays))
    at = 0
    for part, array in zip(parts, arrays, strict=True):
        np.multiply(array, part.scale, out=vector[at : at + array.size], dtype=float)
        at += array.size
    return vector


def _with_vector(parts: list[Coordinate], inner: Any, vector: FloatArray) -> Any:
    """Return the State `inner` with the coordinates of `vector`."""
    changes = {}
    at = 0
    for part in parts:
        old = getattr(inner, part.name)
        new = vector[at : at + old.size] / part.scale
        changes[part.name] = new.reshape(old.shape).astype(old.dtype, copy=False)
        at += old.size
    return replace(inner, **changes)


def _coefficients(gram: FloatArray, projected: FloatArray) -> FloatArray:
    """Return γ, computed with differences scaled to length 1, because the oldest may be longer by
    orders of magnitude.
    """
    lengths = np.sqrt(np.diag(gram))
    lengths[lengths == 0] = 1.0
    unit = gram / lengths / lengths[:, None]
    unit[np.diag_indices_from(unit)] += TUNING.tiny
    gamma: FloatArray = np.linalg.solve(unit, projected / lengths) / lengths
    return gamma


def _bordered(gram: FloatArray, border: FloatArray) -> FloatArray:
    """Return the Gram matrix with its newest row and column, without the oldest ones if there are
    too many.
    """
    size = len(border)
    grown = np.zeros((size, size))
    if size:
        kept = size - 1
        grown[:kept, :kept] = gram[len(gram) - kept :, len(gram) - kept :]
        grown[-1, :] = grown[:, -1] = border
    return grown
