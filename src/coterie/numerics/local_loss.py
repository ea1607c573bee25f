"""Local losses: the loss of an agent's own rows at one model, alone or for a batch of agents.

At a model that all agents share, a `Batch` computes the local losses of all its agents at once,
with the same operations in the same order: stacked matrices are multiplied one by one, and sums run
along each agent's own rows. So the bits equal those of single agents. It takes a tenth of the time,
because calling numpy takes longer than the product of a few rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np

from coterie.numerics.arrays import (
    SUMMED_ROWS,
    CentredDesign,
    Design,
    FloatArray,
    host,
    is_tensor,
    sealed,
)
from coterie.numerics.kernels.tensors import to_device_of
from coterie.numerics.losses import Loss
from coterie.numerics.losses.loss import Step

LEAST = 4
"""The least number of agents in a batch: fewer agents gain nothing."""
SMALL = 1 << 16
"""The largest size of the data of an agent in a batch: with more, products take most of the time.
"""
FEW_ROWS = 2 * SUMMED_ROWS
"""Agents of a batch have fewer rows than this: `Design` adds more rows up in blocks."""
ALL = 1 << 24
"""The largest size of the data of all agents of a batch, which is copied."""


def weighted_norm(values: FloatArray, weights: FloatArray | None) -> Any:
    """Return √(Σ s x²) along the last axis; infinite, without a warning, where squares overflow."""
    if weights is None:
        other = values
    else:
        other = values * weights
    if values.ndim == 1:
        if is_tensor(values):
            return math.sqrt(values.dot(other))
        return math.sqrt(np.vdot(values, other))  # vdot never warns
    with np.errstate(over="ignore"):
        return np.sqrt(np.vecdot(values, other))


def side_by_side(numbers: Sequence[Any], of_several: bool) -> FloatArray:
    """Return the numbers of one agent as an array, or an array with a row for each of several."""
    if of_several:
        return np.stack(np.broadcast_arrays(*numbers), axis=-1)
    return np.array(numbers, float)


class LocalLoss:
    """The loss of an agent's own rows at one model. Each part is computed once, at its
    first use.
    """

    def __init__(
        self,
        w: FloatArray,
        design: Design,
        loss: Loss,
        y: FloatArray,
        weights: FloatArray | None,
        scores: FloatArray | None = None,
    ):
        self.w = w
        self.y = y
        if scores is None:
            scores = design.forward(w)
        self._scores = scores
        self._design = design
        self._loss = loss
        self._weights = weights
        self._losses: float | None = None
        self._gradients: FloatArray | None = None
        self._adjoint: FloatArray | None = None
        self._gradients_norm: float | None = None
        self._curvature: FloatArray | None = None

    @property
    def scores(self) -> FloatArray:
        """X̃ w."""
        return self._scores

    @property
    def losses(self) -> float:
        """Σ s ℓ."""
        if self._losses is None:
            self._losses = self._loss.value(self.scores, self.y, self._weights)
        return self._losses

    @property
    def gradients(self) -> FloatArray:
        """ℓ' of every row."""
        if self._gradients is None:
            self._gradients = self._loss.gradient(self.scores, self.y)
        return self._gradients

    @property
    def gradients_norm(self) -> float:
        """√(Σ s ℓ'²)."""
        if self._gradients_norm is None:
            self._gradients_norm = weighted_norm(self.gradients, self._weights)
        return self._gradients_norm

    @property
    def adjoint(self) -> FloatArray:
        """X̃ᵀ(s∘ℓ')."""
        if self._adjoint is None:
            weighted = self.gradients
            if self._weights is not None:
                weighted = weighted * self._weights
            self._adjoint = self._design.adjoint(weighted)
        return self._adjoint

    @property
    def curvature(self) -> FloatArray:
        """ℓ'' of every row."""
        if self._curvature is None:
            self._curvature = self._loss.curvature(self.scores, self.y)
        return self._curvature

    @property
    def curvature_scale(self) -> Step:
        """The scale of ℓ''."""
        return self._loss.curvature_scale(self.scores, self.y)

    def moved(self, score_change: FloatArray) -> LocalLoss:
        """Return the local loss after the scores have changed by `score_change`."""
        scores = self.scores + score_change
        return LocalLoss(self.w, self._design, self._loss, self.y, self._weights, scores)

    def losses_along(self, score_change: FloatArray, steps: FloatArray) -> FloatArray:
        """Return Σ s ℓ after the scores have changed by these multiples of `score_change`."""
        return np.array([self.losses_at(self.scores + float(t) * score_change) for t in steps])

    def losses_at(self, scores: FloatArray) -> float:
        """Return Σ s ℓ at other scores."""
        return self._loss.value(scores, self.y, self._weights)


class TensorLocalLoss(LocalLoss):
    """The local loss of rows in a tensor. Its numbers stay on the device of the tensor, and are
    copied to the host at their first use.
    """

    def __init__(self, y: FloatArray, on_device: LocalLoss):
        self.w = on_device.w
        self.y = y
        self._on_device = on_device

    @cached_property
    def scores(self) -> FloatArray:
        scores: FloatArray = host(self._on_device.scores)
        return scores

    @property
    def losses(self) -> float:
        return self._on_device.losses

    @cached_property
    def gradients(self) -> FloatArray:
        gradients: FloatArray = host(self._on_device.gradients)
        return gradients

    @property
    def gradients_norm(self) -> float:
        return self._on_device.gradients_norm

    @property
    def adjoint(self) -> FloatArray:
        return self._on_device.adjoint

    @cached_property
    def curvature(self) -> FloatArray:
        curvature: FloatArray = host(self._on_device.curvature)
        return curvature

    @property
    def curvature_scale(self) -> Step:
        scale: Step = host(self._on_device.curvature_scale)
        return scale

    def moved(self, score_change: FloatArray) -> LocalLoss:
        there = to_device_of(self._on_device.scores, score_change)
        return TensorLocalLoss(self.y, self._on_device.moved(there))

    def losses_along(self, score_change: FloatArray, steps: FloatArray) -> FloatArray:
        there = to_device_of(self._on_device.scores, score_change)
        return self._on_device.losses_along(there, steps)


class BatchDesign(Design):
    """The designs of all agents of a batch as one: scores and dual variables have a row per
    agent.
    """

    def __init__(self, stack: FloatArray, base: Design):
        """`base` is the design of one of the agents; models are in its coordinates."""
        super().__init__(base.X, base.intercept)
        self.stack = stack
        self.base = base

    def forward(self, w: FloatArray) -> FloatArray:
        d = self.stack.shape[2]
        scores: FloatArray
        if w.ndim == 2:
            # A model for each agent, in the coordinates of the data.
            scores = (self.stack @ w[:, :d, None])[:, :, 0]
            if self.intercept:
                return scores + w[:, d:]
            return scores
        if isinstance(self.base, CentredDesign):
            inner = np.append(w[:d], self.base.offset(w))
        else:
            inner = w
        scores = self.stack @ inner[:d]
        if self.intercept:
            scores += inner[-1]
        return scores

    def offset(self, w: FloatArray) -> float:
        return self.base.offset(w)

    def plain(self, w: FloatArray) -> FloatArray:
        return self.base.plain(w)

    def inner(self, w: FloatArray) -> FloatArray:
        return self.base.inner(w)

    def adjoint(self, v: FloatArray) -> FloatArray:
        X = self.stack
        d = self.stack.shape[2]
        adjoints: FloatArray = np.empty((len(X), self.shape[1]))
        adjoints[:, :d] = (X.transpose(0, 2, 1) @ v[:, :, None])[:, :, 0]
        if self.intercept:
            adjoints[:, d] = v.sum(axis=1)
        if isinstance(self.base, CentredDesign):
            adjoints[:, :d] -= self.base.centre * adjoints[:, d:]
            adjoints[:, d] *= self.base.unit
        return adjoints

    def dense(self, rows: slice) -> FloatArray:
        """Return some rows of every agent."""
        X = self.stack[:, rows]
        d = X.shape[2]
        stored = np.ones((*X.shape[:2], self.shape[1]))
        stored[:, :, :d] = X
        if isinstance(self.base, CentredDesign):
            stored[:, :, :d] -= self.base.centre
            stored[:, :, d:] *= self.base.unit
        return stored

    def member(self, place: int) -> Design:
        """Return the design of the agent at that place."""
        X = self.stack[place]
        if isinstance(self.base, CentredDesign):
            return CentredDesign(X, self.intercept, self.base.centre, self.base.unit)
        return Design(X, self.intercept)


def stacked(parts: Sequence[FloatArray]) -> FloatArray:
    """Return these arrays of one shape as one; a view where they follow each other in memory."""
    first = parts[0]
    if not first.flags.c_contiguous or any(part.base is not first.base for part in parts):
        return np.stack(parts)
    whole = first.base
    if type(whole) is not np.ndarray or not whole.flags.c_contiguous:
        return np.stack(parts)
    start = _address(first)
    for place, part in enumerate(parts):
        follows = _address(part) == start + place * first.nbytes
        if not follows or part.strides != first.strides:
            return np.stack(parts)
    shape = (len(parts), *first.shape)
    return sealed(np.ndarray(shape, first.dtype, whole, start - _address(whole)))


def _address(x: FloatArray) -> int:
    address: int = x.__array_interface__["data"][0]
    return address


def _is_exact(X: Any) -> bool:
    """Return whether X is a dense array in double precision."""
    return type(X) is np.ndarray and X.dtype == np.float64


class Batch:
    """Agents with equally many dense rows in double precision; all of them have weights, or none
    has.
    """

    def __init__(
        self,
        X: Sequence[FloatArray],
        y: Sequence[FloatArray],
        loss: Loss,
        weights: Sequence[FloatArray] | None = None,
    ):
        self.X = stacked(X)
        self.y = stacked(y)
        self.weights = None if weights is None else stacked(weights)
        self.loss = loss
        self.scratch: dict[str, Any] = {}
        """Results that the batch computes once, as `Site.scratch` has those of one agent."""
        self._known: dict[bool, Together] = {}
        self._asked: dict[bool, FloatArray] = {}
        self._lock = Lock()

    @staticmethod
    def fits(X: Sequence[Any], most: int = SMALL) -> bool:
        """Return whether these agents have equal shapes, are small, and are enough for a batch."""
        shape = X[0].shape
        size = math.prod(shape)
        if len(X) < LEAST or not 0 < size <= most or len(X) * size > ALL:
            return False
        if shape[0] >= FEW_ROWS:
            return False
        return all(_is_exact(one) and one.shape == shape for one in X)

    def member(self, place: int, w: FloatArray, design: Design) -> LocalLoss | None:
        """Return the local loss at w of the agent at that place, in the coordinates of its design;
        None for the first agent.

        The first agent computes alone, because other agents may not have the same w.
        """
        centred = isinstance(design, CentredDesign)
        known = self._known.get(centred)
        if known is None or known.w is not w:
            with self._lock:
                known = self._known.get(centred)
                if self._asked.get(centred) is not w:
                    self._asked[centred] = w
                    return None
                if known is None or known.w is not w:
                    known = self._known[centred] = Together(self, w, BatchDesign(self.X, design))
        return _Member(known, place, design)


class Together:
    """The local losses of all agents of a batch at one model, with a row or a number per agent."""

    def __init__(
        self, batch: Batch, w: FloatArray, design: BatchDesign, scores: FloatArray | None = None
    ):
        self.w = w
        self.y = batch.y
        self.batch = batch
        if scores is None:
            scores = design.forward(w)
        self.scores = scores
        self._design = design

    @cached_property
    def losses(self) -> FloatArray:
        """Σ ℓ."""
        return self.losses_at(self.scores)

    @cached_property
    def gradients(self) -> FloatArray:
        """ℓ' of every row."""
        return self._of_rows(self.batch.loss.gradient)

    @cached_property
    def gradients_norm(self) -> FloatArray:
        """√(Σ s ℓ'²)."""
        norms: FloatArray = weighted_norm(self.gradients, self.batch.weights)
        return norms

    @cached_property
    def adjoint(self) -> FloatArray:
        """X̃ᵀ(s∘ℓ')."""
        if self.batch.weights is None:
            return self._design.adjoint(self.gradients)
        return self._design.adjoint(self.gradients * self.batch.weights)

    @cached_property
    def curvature(self) -> FloatArray:
        """ℓ'' of every row."""
        return self._of_rows(self.batch.loss.curvature)

    def losses_at(self, scores: FloatArray) -> FloatArray:
        """Σ s ℓ at other scores."""
        values = self.batch.loss.each(scores.reshape(-1), self.y.reshape(-1))
        values = values.reshape(scores.shape)
        losses: FloatArray
        if self.batch.weights is None:
            losses = values.sum(axis=1)
        else:
            losses = np.vecdot(values, self.batch.weights)
        return losses

    @property
    def curvature_scale(self) -> Step:
        """The scale of ℓ''."""
        return self.batch.loss.curvature_scale(self.scores, self.y)

    def moved(self, score_change: FloatArray) -> Together:
        """Return the local losses after the scores have changed by `score_change`."""
        return Together(self.batch, self.w, self._design, self.scores + score_change)

    def losses_along(self, score_change: FloatArray, steps: FloatArray) -> FloatArray:
        """Return Σ ℓ after the scores have changed by these multiples of `score_change`, a row per
        agent.
        """
        return np.array([self.losses_at(self.scores + float(t) * score_change) for t in steps]).T

    def _of_rows(self, formula: Callable[[FloatArray, FloatArray], FloatArray]) -> FloatArray:
        values = formula(self.scores.reshape(-1), self.y.reshape(-1))
        return values.reshape(self.y.shape)

    @cached_property
    def of_each(self) -> tuple[list[FloatArray], list[float], list[FloatArray], list[FloatArray]]:
        """Scores, losses, gradients and adjoints of each agent."""
        losses = self.losses.tolist()
        return list(self.scores), losses, list(self.gradients), list(self.adjoint)

    @cached_property
    def curvature_of_each(self) -> list[FloatArray]:
        """ℓ'' of each agent."""
        return list(self.curvature)


class _Member(LocalLoss):
    """The local loss of one agent of a batch."""

    def __init__(self, together: Together, place: int, design: Design):
        batch = together.batch
        scores, losses, gradients, adjoints = together.of_each
        weights = batch.weights
        if weights is not None:
            weights = weights[place]
        super().__init__(together.w, design, batch.loss, batch.y[place], weights, scores[place])
        self._losses = losses[place]
        self._gradients = gradients[place]
        self._adjoint = adjoints[place]
        self._together = together
        self._place = place

    @property
    def curvature(self) -> FloatArray:
        return self._together.curvature_of_each[self._place]
