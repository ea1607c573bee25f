"""Quasi-Newton steps whose pairs have the curvature of where they are, for data split by samples.

    S, Y      the last k steps, and by how much each changed ∇f when it was taken
    A         S (∇²f(w) + Λ) Sᵀ, Λ the ridge. Every agent has the scores X̃ s of all steps on its own rows, so that A is
              exact at every w: k²/2 numbers in the message that says ∇f there
    Ỹ         Y with each row in the length that A wants, then corrected within D S so that S Ỹᵀ = A
    D         γ D₀ + Λ, D₀ the diagonal of ∇²f at the start, γ by how much the mean of ℓ'' has changed since
    p = −H ∇P,   H = SᵀA⁻¹S + (I − SᵀA⁻¹Ỹ) D⁻¹ (I − ỸᵀA⁻¹S)            BFGS with all pairs at once

Steps that are old still say the truth about where they lead: on text with 20,000 columns this takes as many messages as
conjugate gradients would if they knew ∇²f at the minimum from the beginning.

Changes of ∇f travel in single precision: their error is relative to the change. What an agent's messages left out is
part of its next one. When ∇P has become so small that single precision would show, ∇f itself travels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg

from coterie.methods.line_search import Line, objective_at, objectives_at
from coterie.methods.quasi_newton.lbfgs import NOTHING, ridge_of
from coterie.methods.quasi_newton.lbfgs import State as LbfgsState
from coterie.methods.quasi_newton.pairs import Memory
from coterie.numerics.arrays import FloatArray, sealed, shared_result
from coterie.numerics.local_loss import Here, Together
from coterie.numerics.losses import Loss
from coterie.numerics.tuning import Tuning, tuned
from coterie.problems.problem import Problem
from coterie.run.agent import Agent
from coterie.run.collectives import Sum, Talk
from coterie.stats.moments import unpacked

TEXT = "measured: logistic l2 on text, 72309 × 20958"


@dataclass(frozen=True)
class _Tuning(Tuning):
    single: float = tuned(3e-5, "From this share of the first ‖∇P‖ on, ∇f itself travels.", "rounding: float32 changes")
    dependent: float = tuned(1e-12, "Steps that are dependent up to this share are taken to be so.", TEXT)


TUNING = _Tuning()
TRIALS = 2.0 ** np.array([0, -1, -2, -3, -4, -6, -8, -14])
"""The step, and those that are taken if it is too long: every message has the values of P there."""


@dataclass(frozen=True, slots=True)
class State(LbfgsState):
    """That of `lbfgs`; its memory keeps S and Y, and in SY the part of A that is ∇²f."""

    images: FloatArray
    """The scores of S on its own rows, a row each."""
    own: FloatArray
    """What this agent has said of its own X̃ᵀ(s∘ℓ')."""
    said: FloatArray
    """What all have."""
    steepest: float
    """‖∇P‖ at the start."""
    softer: float
    """γ."""
    along: float
    """The curvature of f along the first step."""


def suits(problem: Problem) -> bool:
    """Whether the loss is curved everywhere, and the penalty a ridge."""
    loss, pieces = problem.loss, problem.penalty.pieces
    curved = type(loss).curvature is not Loss.curvature and (loss.quadratic or loss.conjugate_curvature is None)
    return curved and pieces is not None and not pieces.kinds


def started(agent: Agent, w: FloatArray, told: FloatArray | None) -> Talk[State]:
    """At w, where everybody's X̃ᵀ(s∘ℓ') has been told, or is said now; and the curvature along the first step."""
    here, n, ridge, loss = agent.at(w, agent.centred), agent.total, ridge_of(agent), agent.loss
    if told is None:
        told = yield Sum(here.adjoint)
    # The first guess of the mean of ℓ'' is its bound; the message says what it is.
    guess = loss.smoothness if np.isfinite(loss.smoothness) else 1.0
    slope = sealed(told / n + ridge * w)
    base = guess * _lengths(agent) / n
    # Columns that are 0 have no curvature; any positive number will do.
    base[base <= 0] = base.max(initial=0.0) or 1.0
    bends = agent.weighted(here.curvature)
    image = agent.centred.forward(-slope / (base + ridge))
    heard = yield Sum(np.array([here.losses, bends.sum(axis=-1), np.vecdot(image, bends * image)]).T)
    losses, bend, along = map(float, heard / n)
    value = objective_at(agent, n * losses, w)
    empty, steep = Memory.empty(len(w), 0), float(np.linalg.norm(slope))
    blank = NOTHING, NOTHING, NOTHING, 0.0, 0, 0.0, 1.0, value
    own = np.empty((*here.y.shape[:-1], 0, here.y.shape[-1])), here.adjoint, told, steep, bend / guess or 1.0, along
    return State(w, slope, empty, base, guess, *blank, *own)


def _lengths(agent: Agent) -> FloatArray:
    """Σ s x̃² of every column, of which everybody has been told: about the means, if there is an intercept."""
    known = agent.known
    assert known.lengths is not None
    if known.centre is None:
        return known.lengths.astype(float)
    about = np.maximum(known.lengths - known.total * known.centre**2, 0.0)
    return np.append(about, known.total * known.unit**2)


def taken(agent: Agent, state: State, pairs: int) -> Talk[State]:
    """One step, and what is known after it."""
    p = shared_result(state.slope, aimed, agent, state)
    here = agent.at(state.w, agent.centred)
    image, down = agent.centred.forward(p), float(state.slope @ p)
    single = float(np.linalg.norm(state.slope)) > TUNING.single * state.steepest
    line, step = Line(state.w, p, state.value, down), 1.0
    while True:
        ways = np.concatenate([state.images, image[..., None, :]], axis=-2)
        heard, own = yield from _said(agent, state, here, ways, single)
        after, values = shared_result(heard, _after, agent, state, p, heard, pairs, single)
        if step < 1.0 or line.is_some(after.value):
            break
        step = float(TRIALS[int(np.argmin(values))])
        if step == 1.0:
            break
        p, image = step * p, step * image
    return replace(after, images=ways[..., ways.shape[-2] - len(after.memory.S) :, :], own=own)


def aimed(agent: Agent, state: State) -> FloatArray:
    """p, which leads down."""
    S, Y, slope, ridge = state.memory.S, state.memory.Y, state.slope, ridge_of(agent)
    D = state.softer * state.base + ridge
    if not len(S):
        # As long as the curvature along it says.
        first = -slope / (state.base + ridge)
        return -float(slope @ first) / (state.along + float(first @ (ridge * first)) or 1.0) * first
    A = state.memory.SY + (S * ridge) @ S.T
    # Steps along which nothing bends, up to rounding, say nothing.
    known = (A.diagonal() > 0) & np.isfinite(A).all(axis=0)
    if not known.all():
        S, Y, A = S[known], Y[known], A[np.ix_(known, known)]
    if not len(S):
        return -slope / D
    unit = 1.0 / np.sqrt(A.diagonal())
    # In units in which the diagonal of A is 1.
    S, A = S * unit[:, None], A * unit[:, None] * unit
    along, wanted = np.einsum("ij,ij->i", S, Y), np.maximum(A.diagonal() - np.einsum("ij,j,ij->i", S, ridge, S), 0.0)
    scale = np.divide(wanted, along, out=np.ones(len(S)), where=along > 0)
    Y = Y * scale[:, None] + S * ridge
    DS = S * D
    Y = Y + _solved(DS @ S.T, A - S @ Y.T).T @ DS
    a = _solved(A, S @ slope)
    z = (slope - a @ Y) / D
    p: FloatArray = -(z + (a - _solved(A, Y @ z)) @ S)
    return p if float(p @ slope) < 0 else -slope / D


def _solved(matrix: FloatArray, right: FloatArray) -> FloatArray:
    """The shortest solution, where steps are dependent."""
    solution: FloatArray = scipy.linalg.lstsq(matrix, right, cond=TUNING.dependent)[0]
    return solution


def _said(
    agent: Agent, state: State, here: Here | Together, ways: FloatArray, single: bool
) -> Talk[tuple[FloatArray, FloatArray]]:
    """After the last of the ways: what is heard of ∇f, losses, the mean of ℓ'' and ∇²f; and what was said of ∇f."""
    last = ways[..., -1, :]
    there, losses = here.moved(last), here.losses_along(last, TRIALS)
    adjoint, bends = there.adjoint, agent.weighted(there.curvature)
    # In two parts each: single precision would hide small decreases.
    rough = losses.astype(np.float32).astype(float)
    more = np.concatenate([rough, losses - rough, bends.sum(axis=-1, keepdims=True)], axis=-1)
    products = (ways * bends[..., None, :]) @ np.swapaxes(ways, -1, -2)
    rows, columns = np.triu_indices(products.shape[-1])
    triangle = products[..., rows, columns]
    if not single:
        return (yield Sum(np.concatenate([adjoint, more, triangle], axis=-1))), adjoint
    change = (adjoint - state.own).astype(np.float32)
    heard = yield Sum(np.concatenate([change, more.astype(np.float32), triangle.astype(np.float32)], axis=-1))
    return heard, state.own + change


def _after(
    agent: Agent, state: State, p: FloatArray, heard: FloatArray, pairs: int, single: bool
) -> tuple[State, FloatArray]:
    """What all agents know there, and P after each of the trial steps."""
    d, n, k = len(state.w), agent.total, len(TRIALS)
    total = heard.astype(float)
    said = sealed(state.said + total[:d] if single else total[:d].copy())
    w, ridge = sealed(state.w + p), ridge_of(agent)
    slope = sealed(said / n + ridge * w)
    losses, bend = total[d : d + k] + total[d + k : d + 2 * k], float(total[d + 2 * k]) / n
    line = Line(state.w, p, state.value, float(state.slope @ p))
    values = objectives_at(agent, line, TRIALS, losses)
    S = np.vstack([state.memory.S, p])[-pairs:]
    Y = np.vstack([state.memory.Y, (said - state.said) / n])[-pairs:]
    curvature = unpacked(total[d + 2 * k + 1 :], len(state.memory.S) + 1)[-pairs:, -pairs:] / n
    none = np.empty((0, 0, 0))
    softer = bend / state.bend if bend > 0 else state.softer
    memory = Memory(S, Y, curvature, none, none)
    return replace(state, w=w, slope=slope, memory=memory, value=float(values[0]), said=said, softer=softer), values


def expected_gap(agent: Agent, state: LbfgsState) -> float | None:
    """What a certificate would show of w beside a ridge: ‖∇P‖² / 2λ."""
    strength = agent.problem.penalty.strong_convexity
    slope = agent.problem.coefficients(state.slope)
    return float(slope @ slope) / (2.0 * strength) if strength else None
