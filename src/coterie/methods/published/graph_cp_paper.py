"""`graph-cp` as published: equations (9) to (14) with the steps of Theorem 1, two exchanges per
iteration.

The table of `columns/graph_cp.py` explains the symbols.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from coterie.methods.columns import chambolle_pock
from coterie.methods.columns.chambolle_pock import (
    block_step,
    dual_step,
    extreme_eigenvalues,
    pooled_norm,
)
from coterie.methods.largest import largest
from coterie.numerics.arrays import FloatArray
from coterie.numerics.losses import Loss
from coterie.run.agent import Agent
from coterie.run.collectives import Mix, Protocol, Sum


@dataclass(frozen=True, slots=True)
class PaperState:
    """Where one agent stands between two rounds of the paper's variant."""

    theta: FloatArray
    V: FloatArray
    lam: FloatArray
    theta_mean: FloatArray
    """θ̄, the mean over all rounds so far."""
    lam_mean: FloatArray
    """λ̄, at the label agent only."""
    a: float
    s: float


def paper_start(
    agent: Agent,
    R: float | None,
    chi: float | None,
    delta: float | str | None,
    D: float | str | None,
) -> Protocol[PaperState]:
    """Start at 0 with the steps of Theorem 1; the agents estimate the constants that are None."""
    R = R or _estimated_R(agent)
    if chi is None:
        chi = yield from _estimated_chi(agent)
    rho = steepness(agent.problem.loss)
    if agent.count > 1:
        delta, D = yield from _ends(agent, delta, D)
        spread = math.sqrt(1.0 + 2.0 * chi**2 / delta**2)
    else:
        D = 0.0
        spread = 1.0
    # σ = m^{1/2} n^{3/2} ρ / ((χ + D) R √(1 + 2χ²/δ²)),  τ = n² / ((χ + D)² σ)
    # Theorem 1
    s = math.sqrt(agent.count * agent.total) * rho / ((chi + D) * R * spread)
    a = 1.0 / ((chi + D) ** 2 * s)
    rows, columns = agent.design.shape
    dtype = agent.design.dtype
    theta = np.zeros(columns, dtype)
    zeros = np.zeros(rows, dtype)
    if agent.data.y is not None:
        lam_mean = zeros
    else:
        lam_mean = np.empty(0, dtype)
    return PaperState(theta, zeros, zeros, theta, lam_mean, a, s)


def _estimated_R(agent: Agent) -> float:
    assert agent.statistics is not None
    reach = agent.statistics.reach
    if not 0 < reach < math.inf:
        reach = 0.5
    return 2.0 * reach


def _estimated_chi(agent: Agent) -> Protocol[float]:
    ones = np.ones(agent.design.shape[1], agent.design.dtype)
    square = yield from pooled_norm(agent, ones)
    return math.sqrt(square) or 1.0


def _ends(
    agent: Agent, delta: float | str | None, D: float | str | None
) -> Protocol[tuple[float, float]]:
    """Return δ and D, bounds of the eigenvalues of L, and estimate those that are not given."""
    if delta == "diameter":
        delta = yield from smallest_by_diameter(agent)
    if D == "degree":
        # ‖L‖ ≤ 2Δ(G)
        # Section 3
        degree = yield from own_degree(agent)
        largest_degree = yield from largest(agent, degree)
        D = 2.0 * largest_degree
    if delta is None or D is None:
        low, high = yield from laplacian_ends(agent)
        delta = delta or low
        D = D or high
    assert not isinstance(delta, str)
    assert not isinstance(D, str)
    return delta, D


def paper_round(agent: Agent, state: PaperState, t: int) -> Protocol[PaperState]:
    """Equations (9) to (14)."""
    a = state.a
    s = state.s
    local = agent.data.y is not None
    # θ_{t+1} = prox_{τr}(θ_t − (τ/n) Xᵀλ_t)
    # (9)
    theta = block_step(agent, state.theta, state.lam, np.full_like(state.theta, a))
    lam = s * agent.design.forward(2.0 * theta - state.theta)
    lam += state.lam
    V = state.V
    if agent.count > 1:
        # v_{t+1} = v_t − (τ/n) Σ_{j'} (λ_t − λ_{j',t})
        # (10)
        mixed = yield Mix(state.lam, "laplacian")
        V = V - a * mixed
        # λ_{t+½} = λ_t + (σ/n) X(2θ_{t+1} − θ_t)
        #         + (σ/n) Σ_{j'} 2(v − v_{j'})_{t+1} − (v − v_{j'})_t
        # (11), (13)
        mixed = yield Mix(2.0 * V - state.V, "laplacian")
        lam += s * mixed
    if local:
        # λ_{t+1} = prox_{(σ/n) Σℓ*}(λ_{t+½})
        #         = argmin (1/n) Σ ℓ_i((n/σ)(λ_{t+½} − λ)_i) + ‖λ‖²/2σ
        # (12)
        lam = dual_step(agent, lam, s)
    # θ̄ = (1/T) Σ_{t=1}^T θ_t
    # (14)
    theta_mean = state.theta_mean + (theta - state.theta_mean) / t
    lam_mean = state.lam_mean
    if local:
        lam_mean = lam_mean + (lam - lam_mean) / t
    return PaperState(theta, V, lam, theta_mean, lam_mean, a, s)


def own_degree(agent: Agent) -> Protocol[float]:
    """Return the sum of the weights of the agent's edges, from the diagonal of L."""
    own = agent.one_hot(1.0).astype(agent.design.dtype)
    row = yield Mix(own, "laplacian")
    return float(row[agent.index])


def smallest_by_diameter(agent: Agent) -> Protocol[float]:
    """Return δ = 4/(m diam(G)), at most λ₂ of a connected graph of weight 1 (Mohar 1991, Theorem
    4.2).

    Each agent sends its neighbours the set of agents that it has reached, until all have reached
    all: diam(G) times m numbers per edge.
    """
    dtype = agent.design.dtype
    reached = agent.one_hot(1.0).astype(dtype)
    row = yield Mix(reached, "laplacian")
    around = -row
    around[agent.index] = 0.0
    # Lighter edges make λ₂ smaller in proportion, at most.
    own_lightest = float(around[around > 0].min())
    largest_inverse = yield from largest(agent, 1.0 / own_lightest)
    lightest = 1.0 / largest_inverse
    degree = float(around.sum())
    diameter = 0
    while True:
        missing = yield Sum(np.array([float(np.count_nonzero(reached == 0))]))
        if not missing[0] > 0:
            break
        mixed = yield Mix(reached, "laplacian")
        of_neighbours = degree * reached - mixed
        # By rounding, this is less than an edge's weight where no neighbour has reached an agent.
        is_reached = (reached > 0) | (of_neighbours > 0.5 * lightest)
        reached = np.where(is_reached, 1.0, 0.0).astype(dtype)
        diameter += 1
    return 4.0 * lightest / (agent.count * max(diameter, 1))


def laplacian_ends(agent: Agent) -> Protocol[tuple[float, float]]:
    """Return (λ₂, ‖L‖), rounded down and up a little, by Lanczos's method with full
    orthogonalisation: one number per edge and step.

    It is exact for up to a hundred agents, and nearly exact for graphs whose λ₂ is not tiny.
    """
    dtype = agent.design.dtype
    basis = np.array([1.0 / math.sqrt(agent.count)])
    entry = float(agent.random(0).standard_normal())
    diagonal: list[float] = []
    off: list[float] = []
    for _ in range(min(agent.count - 1, chambolle_pock.TUNING.lanczos_steps)):
        # `basis` has the agent's entries of all basis vectors so far. The first is the constant
        # vector, the kernel of L.
        along = yield Sum(entry * basis)
        entry -= float(along @ basis)
        again = yield Sum(np.append(entry * basis, entry**2))
        corrections = again[:-1]
        entry -= float(corrections @ basis)
        square = float(again[-1] - corrections @ corrections)
        beta = math.sqrt(max(square, 0.0))
        if len(basis) > 1:
            diagonal.append(float(along[-1] + corrections[-1]))
            if beta <= 1e-5 * max(diagonal):
                break
            off.append(beta)
        basis = np.append(basis, entry / beta)
        mixed = yield Mix(np.array([basis[-1]], dtype), "laplacian")
        entry = float(mixed[0])
    else:
        along = yield Sum(np.array([entry * basis[-1]]))
        diagonal.append(float(along[0]))
    low, high = extreme_eigenvalues(diagonal, off)
    tolerance = chambolle_pock.TUNING.norm_tolerance
    return low * (1.0 - tolerance), high * (1.0 + tolerance)


def steepness(loss: Loss) -> float:
    """Return ρ: |ℓ'| ≤ ρ for a Lipschitz loss, |ℓ'| ≤ ρ √ℓ for any other: √2 for ½(u − y)²."""
    if math.isfinite(loss.lipschitz):
        return loss.lipschitz
    return math.sqrt(2.0 * loss.smoothness)
