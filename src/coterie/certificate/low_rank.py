"""Proofs for low-rank models: the Frank-Wolfe gap, with the spectral norm bounded from above.

With G = ∇P(W), convexity gives for every matrix W' of trace norm at most r

    P(W') ≥ P(W) + ⟨G, W' − W⟩ ≥ P(W) − (⟨G, W⟩ + r ‖G‖₂)

so P(W) − P* ≤ ⟨G, W⟩ + r ‖G‖₂, and all three tasks have P ≥ 0. A linear oracle that is inexact, as the methods' power
iterations are, would give a number that is too small: power iterations bound ‖G‖₂ from *below*. Here it is bounded from
above:

- If W has at most `EXACT_SIZE` entries, the agents' gradients are summed and ‖G‖₂ is computed, d m numbers each.
- Beyond that, with orthonormal U, V from a few block power iterations (started from W's own factors),

      ‖G‖₂ ≤ ‖ [ ‖UᵀGV‖₂           ‖UᵀG(I − VVᵀ)‖₂ ] ‖
             ‖ [ ‖(I − UUᵀ)GV‖₂    Σ_j ρ_j          ] ‖₂,      ρ_j = ‖(I − UUᵀ) G_j (I − VVᵀ)‖_F

  where the first three are exact, from sums of k (d + m) numbers, and the last follows from the triangle inequality.
  Whatever U and V are, this is a bound; the better they are, and the fewer agents, the tighter it is.

Everything is computed from the data, in float64, a few rows at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.linalg

from coterie.agent import Agent, Facts
from coterie.arrays import FloatArray, host, shared_result
from coterie.backends import backend
from coterie.certificate.bound import Bound, Point
from coterie.factors import apart, orthonormal, trace_norm
from coterie.penalties.penalty import FEASIBILITY_TOLERANCE
from coterie.tasks import Information
from coterie.words import Sum, Talk

EXACT_SIZE = 1 << 22
"""Up to how many entries of W the gradient is sent as a whole for a proof."""
EXTRA = 4
"""How many random vectors accompany W's own in the block power iterations."""
ROUNDING = 1e-12
LARGE = 1 << 18
"""Entries from which on a spectral norm is the root of an eigenvalue."""


def introduce(agent: Agent) -> Talk[Facts]:
    """The first conversation: how much data there is, and the objective at W = 0."""
    weights = agent.data.weights
    mine = float(agent.data.n) if weights is None else float(np.sum(weights, dtype=float))
    total, losses = map(float, (yield Sum(np.array([mine, sum(part.loss() for part in _parts(agent))]))))
    at_zero = agent.problem.primal(losses, total, 0.0)
    return Facts(total, at_zero, 0.0, 0.0, gap_unit=at_zero or 1.0, primal_at_zero=at_zero)


def certify(agent: Agent, point: Point, target: float = 0.0, radius: float | None = None) -> Talk[Bound]:
    """P(W), and the lower bound that the Frank-Wolfe gap proves."""
    problem = agent.problem
    d, m = problem.task.size(agent.data)
    r: float = problem.penalty.radius  # type: ignore[attr-defined]
    left, right = (factor.astype(np.float64) for factor in apart(point.w, d))
    loss, inner, norm = yield from (_whole if d * m <= EXACT_SIZE else _in_blocks)(agent, left, right)
    inside = trace_norm(left, right) <= r * (1.0 + FEASIBILITY_TOLERANCE)
    primal = problem.primal(loss, agent.total, 0.0)
    # ⟨G, W⟩ and r ‖G‖₂ cancel at the optimum: what is left of them there is rounding.
    cut = agent.cut * (1.0 + 2.0 * r * (d + m))
    rounding = problem.primal(ROUNDING * (abs(inner) + r * norm) + cut, agent.total, 0.0)
    gap = max(problem.primal(inner + r * norm, agent.total, 0.0), 0.0) + rounding
    return Bound.of(primal, min(gap, primal), rounding) if inside else Bound(math.inf, max(primal - gap, 0.0))


def dual_at(agent: Agent, w: FloatArray) -> None:
    """None: the gradient at W is computed with each proof."""
    return


def _parts(agent: Agent) -> Iterator[Information]:
    """The sufficient information of a few rows after the other, in float64."""
    task = agent.problem.task
    for block in task.blocks(agent.data):
        widened = backend(block.X).widened
        y = block.y if block.y is None else backend(block.y).widened(block.y)
        s = None if block.weights is None else block.weights.astype(np.float64)
        yield task.stats(replace(block, X=widened(block.X), y=y, weights=s), "implicit")


def _whole(agent: Agent, left: FloatArray, right: FloatArray) -> Talk[tuple[float, float, float]]:
    d, m = len(left), len(right)
    gradient: Any = 0.0
    values = np.zeros(2)
    for part in _parts(agent):
        part.reset(left, right)
        gradient = gradient + part.matrix()
        values += part.loss(), part.inner()
    sums = yield Sum(np.append(host(gradient), values))
    norm = shared_result(sums, lambda: _spectral_norm(sums[:-2].reshape(d, m)))
    return float(sums[-2]), float(sums[-1]), norm


def _in_blocks(agent: Agent, left: FloatArray, right: FloatArray) -> Talk[tuple[float, float, float]]:
    d, m = len(left), len(right)
    random = agent.common_random(0).standard_normal((m, EXTRA))

    def products(u: FloatArray | None, v: FloatArray | None) -> FloatArray:
        """G_j v and G_jᵀ u, beside each other in one message."""
        out = np.zeros((0 if v is None else d * v.shape[1]) + (0 if u is None else m * u.shape[1]))
        for part in _parts(agent):
            part.reset(left, right)
            images = [] if v is None else [part.times(v)]
            images += [] if u is None else [part.times_transposed(u)]
            out += np.concatenate([image.ravel() for image in images])
        return out

    V = orthonormal(np.hstack([right, random]))
    U = orthonormal((yield Sum(products(None, V))).reshape(d, -1))
    V = orthonormal((yield Sum(products(U, None))).reshape(m, -1))
    values, rest = np.zeros(2), 0.0
    message = np.zeros(d * V.shape[1] + m * U.shape[1])
    for part in _parts(agent):
        part.reset(left, right)
        GV, GU = part.times(V), part.times_transposed(U)
        message += np.concatenate([GV.ravel(), GU.ravel()])
        values += part.loss(), part.inner()
        whole = part.squared_norm()
        corner = float(np.linalg.norm(U.T @ GV)) ** 2
        seen = float(np.linalg.norm(GV)) ** 2 + float(np.linalg.norm(GU)) ** 2 - corner
        rest += math.sqrt(max(whole - seen, 0.0) + ROUNDING * whole)
    sums = yield Sum(np.append(message, [*values, rest]))
    GV, GU = sums[: d * V.shape[1]].reshape(d, -1), sums[d * V.shape[1] : -3].reshape(m, -1)
    corner = U.T @ GV
    pieces = [[_norm(corner), _norm(GU.T - (GU.T @ V) @ V.T)], [_norm(GV - U @ corner), float(sums[-1])]]
    return float(sums[-3]), float(sums[-2]), _norm(np.array(pieces)) * (1.0 + ROUNDING)


def _spectral_norm(G: FloatArray) -> float:
    """‖G‖₂, to a few units of rounding; of a large matrix as the root of λmax(GᵀG), which takes a tenth of the time."""
    if G.size < LARGE:
        return _norm(G)
    size = float(np.abs(G).max())
    if not size > 0.0:
        return 0.0
    wide = G / size if len(G) >= len(G.T) else G.T / size
    last = wide.shape[1] - 1
    largest = float(scipy.linalg.eigvalsh(wide.T @ wide, subset_by_index=(last, last), check_finite=False)[0])
    return size * math.sqrt(largest) * (1.0 + ROUNDING)


def _norm(M: FloatArray) -> float:
    return float(np.linalg.norm(M, 2)) if M.size else 0.0
