"""Quasi-Newton steps whose pairs have the curvature of where they are, for data split by samples.

    S, Y      the last k steps, and by how much each changed ∇f when it was taken
    A         S (∇²f(w) + Λ) Sᵀ, Λ the ridge. Every agent has the scores X̃ s of all steps on its
              own rows, so that A is exact at every w: k²/2 numbers in the message that says ∇f
              there
    Ỹ         Y with each row in the length that A wants, then corrected within D S so that S Ỹᵀ = A
    D         γ D₀ + Λ, D₀ the diagonal of ∇²f at the start, γ by how much the mean of ℓ'' has
              changed since
    p = −H ∇P,   H = SᵀA⁻¹S + (I − SᵀA⁻¹Ỹ) D⁻¹ (I − ỸᵀA⁻¹S)            BFGS with all pairs at once

Steps that are old still say the truth about where they lead: on text with 20,000 columns this takes
as many messages as conjugate gradients would if they knew ∇²f at the minimum from the beginning.

Changes of ∇f travel in single precision: their error is relative to the change. What an agent's
messages left out is part of its next one. When ∇P has become so small that single precision would
show, ∇f itself travels.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import scipy.linalg

from coterie.methods.line_search import Line, objective_at, objectives_at
from coterie.methods.quasi_newton.pairs import Memory
from coterie.methods.quasi_newton.rounds import (
    Form,
    Found,
    State,
    Way,
    gradient_at,
    nothing,
    ridge_of,
    with_curvature,
)
from coterie.numerics.arrays import FloatArray, sealed, shared_result
from coterie.numerics.local_loss import LocalLoss, Together
from coterie.numerics.losses import Loss
from coterie.numerics.tuning import Tuning, tuned
from coterie.problems.problem import Problem
from coterie.run.agent import Agent, AgentForm
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import Counts, triangle
from coterie.stats.moments import unpacked

TEXT = "measured: logistic l2 on text, 72309 × 20958"


@dataclass(frozen=True)
class _Tuning(Tuning):
    single: float = tuned(
        3e-5,
        "From this share of the first ‖∇P‖ on, ∇f itself travels.",
        "rounding: float32 changes",
    )
    dependent: float = tuned(
        1e-12, "Steps that are dependent up to this share are taken to be so.", TEXT
    )


TUNING = _Tuning()
TRIALS = 2.0 ** np.array([0, -1, -2, -3, -4, -6, -8, -14])
"""The step sizes of which every message has the losses, the whole step first."""


@dataclass(frozen=True, slots=True)
class CurvedState(State):
    """The memory keeps S and Y, and in SY the part of A that is ∇²f."""

    score_changes: FloatArray = field(default_factory=nothing)
    """The scores of S on its own rows, a row each."""
    own: FloatArray = field(default_factory=nothing)
    """What this agent has sent of its own X̃ᵀ(s∘ℓ')."""
    sent: FloatArray = field(default_factory=nothing)
    """What all agents have sent, added up."""
    steepest: float = 0.0
    """‖∇P‖ at the start."""
    curvature: float = 1.0
    """The guess of the mean of ℓ'' in `base`."""
    softer: float = 1.0
    """γ."""
    along: float = 0.0
    """The curvature of f along the first step."""


def suits(problem: Problem) -> bool:
    """Whether the loss is curved everywhere, and the penalty a ridge."""
    loss = problem.loss
    pieces = problem.penalty.pieces
    curved = type(loss).curvature is not Loss.curvature and (
        loss.quadratic or loss.conjugate_curvature is None
    )
    return curved and pieces is not None and not pieces.kinds


def started(agent: Agent, w: FloatArray, sent: FloatArray | None) -> Protocol[CurvedState]:
    """At w, where the sum of all X̃ᵀ(s∘ℓ') is known, or is sent now; and the curvature along the
    first step.
    """
    local = agent.at(w, agent.centred)
    n = agent.total
    ridge = ridge_of(agent)
    loss = agent.loss
    if sent is None:
        sent = yield Sum(local.adjoint)
    # The first guess of the mean of ℓ'' is its bound; the message has the mean itself.
    if np.isfinite(loss.smoothness):
        guess = loss.smoothness
    else:
        guess = 1.0
    gradient = gradient_at(agent, w, sent)
    base = with_curvature(guess * _lengths(agent) / n)
    curvatures = agent.weighted(local.curvature)
    score_change = agent.centred.forward(-gradient / (base + ridge))
    received = yield Sum(
        np.array(
            [
                local.losses,
                curvatures.sum(axis=-1),
                np.vecdot(score_change, curvatures * score_change),
            ]
        ).T
    )
    losses, curvature, along = map(float, received / n)
    return CurvedState(
        w,
        gradient,
        Memory.empty(len(w), 0),
        base,
        objective_at(agent, n * losses, w),
        score_changes=np.empty((*local.y.shape[:-1], 0, local.y.shape[-1])),
        own=local.adjoint,
        sent=sent,
        steepest=float(np.linalg.norm(gradient)),
        curvature=guess,
        softer=curvature / guess or 1.0,
        along=along,
    )


def _lengths(agent: Agent) -> FloatArray:
    """Σ s x̃² of every column, which all agents know: about the means, if there is an intercept."""
    known = agent.known
    assert known.lengths is not None
    if known.centre is None:
        return known.lengths.astype(float)
    about = np.maximum(known.lengths - known.total * known.centre**2, 0.0)
    return np.append(about, known.total * known.unit**2)


class Curved(Form):
    """Where rows are split and the curvature of every pair is known."""

    def __init__(self, most: int):
        """`most`: how many pairs to remember."""
        self._most = most

    def way(self, agent: Agent, state: CurvedState, t: int) -> Protocol[Way]:
        yield from ()  # every agent has all columns
        return shared_result(state.gradient, _way, agent, state)

    def search(self, agent: Agent, state: CurvedState, way: Way) -> Protocol[Found]:
        local = agent.at(state.w, agent.centred)
        score_change = agent.centred.forward(way.p)
        line = Line(state.w, way.p, state.objective, way.steep)
        single = float(np.linalg.norm(state.gradient)) > TUNING.single * state.steepest
        ways, received, own = yield from _sent(agent, state, local, score_change, single)
        reply = shared_result(received, _read, agent, state, received, single)
        step_size = 1.0
        objectives = shared_result(received, objectives_at, agent, line, TRIALS, reply.losses)
        if not line.is_some(float(objectives[0])):
            step_size = float(TRIALS[int(np.argmin(objectives))])
        if step_size < 1.0:
            ways, received, own = yield from _sent(
                agent, state, local, step_size * score_change, single
            )
            reply = shared_result(received, _read, agent, state, received, single)
        score_changes = ways[..., max(ways.shape[-2] - self._most, 0) :, :]
        after = replace(
            state, score_changes=score_changes, own=own, sent=reply.sent, softer=reply.softer
        )
        return Found(after, received, step_size, reply.sent, float(reply.losses[0]))

    def learned(
        self, agent: Agent, state: CurvedState, way: Way, found: Found, gradient: FloatArray
    ) -> tuple[Memory, float]:
        n = agent.total
        pairs = self._most
        none = np.empty((0, 0, 0))
        S = np.vstack([state.memory.S, found.step_size * way.p])[-pairs:]
        Y = np.vstack([state.memory.Y, (found.adjoint - state.sent) / n])[-pairs:]
        triangle = found.received[len(state.w) + 2 * len(TRIALS) + 1 :].astype(float)
        curvature = unpacked(triangle, len(state.memory.S) + 1)[-pairs:, -pairs:] / n
        return Memory(S, Y, curvature, none, none), 1.0


def most_of_round(width: int, pairs: int) -> Counts:
    """The largest counts of a round without a shorter step: the gradient, losses, the Hessian on
    pairs and step.
    """
    return 1, width + 2 * len(TRIALS) + 1 + triangle(pairs + 1)


def _way(agent: Agent, state: CurvedState) -> Way:
    p = aimed(agent, state)
    return Way(state.memory, p, steep=float(state.gradient @ p))


def aimed(agent: Agent, state: CurvedState) -> FloatArray:
    """The direction p, along which P falls."""
    S = state.memory.S
    Y = state.memory.Y
    gradient = state.gradient
    ridge = ridge_of(agent)
    D = state.softer * state.base + ridge
    if not len(S):
        # As long as the curvature along it says.
        first = -gradient / (state.base + ridge)
        curvature = state.along + float(first @ (ridge * first)) or 1.0
        return -float(gradient @ first) / curvature * first
    A = state.memory.SY + (S * ridge) @ S.T
    # Steps along which nothing is curved, up to rounding, say nothing.
    known = (A.diagonal() > 0) & np.isfinite(A).all(axis=0)
    if not known.all():
        S = S[known]
        Y = Y[known]
        A = A[np.ix_(known, known)]
    if not len(S):
        return -gradient / D
    unit = 1.0 / np.sqrt(A.diagonal())
    # In units in which the diagonal of A is 1.
    S = S * unit[:, None]
    A = A * unit[:, None] * unit
    along = np.einsum("ij,ij->i", S, Y)
    wanted = np.maximum(A.diagonal() - np.einsum("ij,j,ij->i", S, ridge, S), 0.0)
    scale = np.divide(wanted, along, out=np.ones(len(S)), where=along > 0)
    Y = Y * scale[:, None] + S * ridge
    DS = S * D
    Y = Y + _solved(DS @ S.T, A - S @ Y.T).T @ DS
    a = _solved(A, S @ gradient)
    z = (gradient - a @ Y) / D
    p: FloatArray = -(z + (a - _solved(A, Y @ z)) @ S)
    if float(p @ gradient) < 0:
        return p
    return -gradient / D


def _solved(matrix: FloatArray, right: FloatArray) -> FloatArray:
    """The shortest solution, where steps are dependent."""
    solution: FloatArray = scipy.linalg.lstsq(matrix, right, cond=TUNING.dependent)[0]
    return solution


def _sent(
    agent: Agent,
    state: CurvedState,
    local: LocalLoss | Together,
    score_change: FloatArray,
    single: bool,
) -> Protocol[tuple[FloatArray, FloatArray, FloatArray]]:
    """Send the numbers at the model after a step that changes the scores by `score_change`.

    Returns the scores of all steps, the reply, and what the agent has sent of ∇f.

    The message has ∇f, losses, the mean of ℓ'' and ∇²f on all steps; in single precision the change
    of ∇f.
    """
    ways = np.concatenate([state.score_changes, score_change[..., None, :]], axis=-2)
    there = local.moved(score_change)
    losses = local.losses_along(score_change, TRIALS)
    adjoint = there.adjoint
    curvatures = agent.weighted(there.curvature)
    # In two parts each: single precision would hide small decreases.
    rough = losses.astype(np.float32).astype(float)
    more = np.concatenate([rough, losses - rough, curvatures.sum(axis=-1, keepdims=True)], axis=-1)
    products = (ways * curvatures[..., None, :]) @ np.swapaxes(ways, -1, -2)
    rows, columns = np.triu_indices(products.shape[-1])
    triangle = products[..., rows, columns]
    if not single:
        received = yield Sum(np.concatenate([adjoint, more, triangle], axis=-1))
        return ways, received, adjoint
    change = (adjoint - state.own).astype(np.float32)
    received = yield Sum(
        np.concatenate([change, more.astype(np.float32), triangle.astype(np.float32)], axis=-1)
    )
    return ways, received, state.own + change


class _Reply(NamedTuple):
    """What all agents read in a reply."""

    sent: FloatArray
    """n ∇f after the step, as it was sent."""
    losses: FloatArray
    """n f after each of the trial steps."""
    softer: float
    """γ."""


def _read(agent: Agent, state: CurvedState, received: FloatArray, single: bool) -> _Reply:
    d = len(state.w)
    k = len(TRIALS)
    total = received.astype(float)
    sent = total[:d].copy()
    if single:
        sent = state.sent + sent
    losses = total[d : d + k] + total[d + k : d + 2 * k]
    curvature = float(total[d + 2 * k]) / agent.total
    softer = state.softer
    if curvature > 0:
        softer = curvature / state.curvature
    return _Reply(sealed(sent), losses, softer)


def expected_gap(agent: AgentForm, state: State) -> float | None:
    """The gap that a certificate would show with a ridge: ‖∇P‖² / 2λ."""
    strength = agent.problem.penalty.strong_convexity
    if not strength:
        return None
    gradient = agent.problem.coefficients(state.gradient)
    return float(gradient @ gradient) / (2.0 * strength)
