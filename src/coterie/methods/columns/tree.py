"""Chambolle–Pock with exact sums over a spanning tree, or through a server, for columns split over
agents and labels at one.

In `graph-cp` every agent has its own copy of the dual variables λ, and neighbours bring the copies
together. With a `Sum` over all agents one λ is enough, and the iteration equals that of a single
agent with all columns:

    θ_j⁺ = prox_{n a_j r_j}(θ_j − a_j X_jᵀλ)          a_j = 1 / (s κ N_j)
    u⁺   = u + Σ_j X_j(θ_j⁺ − θ_j)                    a `Sum` of n numbers to the label agent
    λ⁺   = prox_{s ℓ*}(λ + s(2u⁺ − u))                the label agent sends it to all

κ = ‖[X_1 N_1^{-1/2} ... X_m N_m^{-1/2}]‖² is between 1 and m; the agents estimate it before the
first round. Blocks of nearly dependent columns are whitened, unless κ shows that all blocks have
about the same directions. Halpern's form, the restarts and the balance of the steps are those of
`graph-cp` without edges. The label agent alone decides on them, and sends its decision in the
second `Sum`. So measuring the residual in every round needs no further message.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from coterie.methods.auto.costs import Sizes
from coterie.methods.columns import chambolle_pock
from coterie.methods.columns.chambolle_pock import (
    dual_step,
    first_dual_step,
    most_of_pooled_norm,
    own_norms,
    own_step,
    own_weight,
    point_at,
    pooled_norm,
    products,
    rebalanced,
    traffic,
    values_at,
)
from coterie.methods.method import Method, Rows
from coterie.networks import Network
from coterie.numerics.acceleration.halpern import restarts
from coterie.numerics.arrays import FloatArray
from coterie.problems.problem import Problem
from coterie.run.agent import Agent
from coterie.run.certificate import Point
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import SCORES_OF_BRANCHES, SCORES_OF_OTHERS, Case, Counts, Disclosure


@dataclass(frozen=True, slots=True)
class State:
    """Where one agent stands between two rounds. Fields for the label agent are empty at the
    others.
    """

    theta: FloatArray
    theta_0: FloatArray
    """z_0 of this epoch: θ and, at the label agent, λ and u."""
    lam: FloatArray
    """λ, the same at all agents."""
    lam_0: FloatArray
    u: FloatArray
    """Xθ over all columns, at the label agent only."""
    u_0: FloatArray
    w: FloatArray
    """The last θ⁺: unlike θ, it lies in the penalty's domain."""
    v: FloatArray
    """The last λ⁺, at the label agent only: it lies in the domain of ℓ*."""
    norms: FloatArray
    """One number per column: κ N_j."""
    s: float
    k: int
    """Rounds since the epoch began."""
    first: float
    """‖z − T z‖²_M when the epoch began, at the label agent only."""
    before: float | None
    """‖z − T z‖²_M a round ago, if this epoch had begun, at the label agent only."""
    whiten: bool = False
    """Whether blocks of nearly dependent columns are whitened."""


@dataclass(frozen=True)
class Tree(Method[State, Rows]):
    """Chambolle–Pock with exact sums: n numbers to the label agent and n from it per round."""

    name: ClassVar[str] = "tree"
    split: ClassVar[str] = "features"
    summary: ClassVar[str] = (
        "primal-dual with exact sums over a spanning tree or a server, every loss"
    )
    disclosure: ClassVar[Disclosure] = Disclosure(
        sent=(
            "the change of your partial scores, one number per row, as part of a sum to the label "
            "party; the dual variables come back"
        ),
        learned=f"the labels, from the dual variables; and {SCORES_OF_BRANCHES}",
        secure=f"the labels, from the dual variables; and {SCORES_OF_OTHERS}",
        setup=(
            "before the first round a few products of your columns with secret random vectors, "
            "one number per row, as part of a sum: of a single column this is the column up to its "
            "length"
        ),
        most=lambda case: (2, 2 * case.rows + 3),
        before=lambda case: _most_before(case),
    )
    discloses_labels: ClassVar[bool] = True

    @classmethod
    def score(
        cls, problem: Problem, network: Network, sizes: Sizes | None = None
    ) -> tuple[float, str]:
        if network.server:
            return 1.5, "the server gives exact sums"
        graphs, mine, words = traffic(network)
        share = 0.5
        if network.n_edges:
            share = graphs / (graphs + mine)
        return 1.0 + share, f"it is expected to send less: {words}"

    def start(self, agent: Agent) -> Protocol[State]:
        has_metric = products(agent) is not None
        dependent = yield Sum(np.array([float(has_metric)]))
        whiten = bool(dependent[0])
        norms = own_norms(agent, whiten)
        kappa = yield from pooled_norm(agent, norms**-0.5, whiten)
        if whiten and kappa > chambolle_pock.TUNING.alike * agent.count:
            whiten = False
            norms = own_norms(agent, False)
            kappa = yield from pooled_norm(agent, norms**-0.5)
        norms *= kappa or 1.0
        theta = agent.first_model()
        u = yield Sum(agent.design.forward(theta), to=agent.known.labels_at)
        lam = np.zeros(agent.design.shape[0], agent.design.dtype)
        dual = lam
        if agent.data.y is None:
            u = dual = np.empty(0, lam.dtype)
        return State(
            theta=theta,
            theta_0=theta,
            lam=lam,
            lam_0=dual,
            u=u,
            u_0=u,
            w=theta,
            v=dual,
            norms=norms,
            s=first_dual_step(agent),
            k=0,
            first=0.0,
            before=None,
            whiten=whiten,
        )

    def warm(self, agent: Agent, state: State, point: Point) -> Protocol[State]:
        theta, u, lam = yield from values_at(agent, point)
        dual = lam
        if agent.data.y is None:
            u = dual = state.u
        return replace(
            state, theta=theta, theta_0=theta, w=theta, lam=lam, lam_0=dual, u=u, u_0=u, v=dual
        )

    def round(self, agent: Agent, state: State, t: int) -> Protocol[State]:
        k = state.k
        s = state.s
        lam = state.lam
        local = agent.data.y is not None
        old = 1.0 / (k + 2)
        new = (k + 1) / (k + 2)

        # θ⁺ = prox_{n a r}(θ − a Xᵀλ)
        a = 1.0 / s / state.norms
        theta = own_step(agent, state.theta, lam, a, state.whiten)
        theta_change = theta - state.theta
        theta_next = new * (state.theta + 2.0 * theta_change) + old * state.theta_0
        # u⁺ − u = Σ_j X_j(θ_j⁺ − θ_j), and κ Σ_j ‖N_j^½Δθ_j‖²
        weight = own_weight(agent, state.norms, theta_change, state.whiten)
        labels_at = agent.known.labels_at
        change = _with(agent.design.forward(theta_change), weight)
        received = yield Sum(change, to=labels_at)
        after = replace(state, theta=theta_next, w=theta, k=k + 1)
        if local:
            after, message = _dual_side(agent, after, received, t)
        else:
            message = np.zeros(change.size + 1, change.dtype)
        received = yield Sum(message, of=labels_at)
        lam = received[:-2]
        ends = bool(received[-2])
        after = replace(after, lam=lam, s=float(received[-1]))
        if not ends:
            return after
        if local:
            after = replace(after, lam_0=lam)
        return replace(after, theta_0=theta_next, u_0=after.u, k=0, before=None)

    def point(self, agent: Agent, state: State) -> Point:
        return point_at(agent, state.w, state.v)


def _dual_side(
    agent: Agent, state: State, received: FloatArray, t: int
) -> tuple[State, FloatArray]:
    """Move λ and u at the label agent. Return the State and the message to the other agents: λ,
    whether the epoch ends, and s.

    `state` has the k after this round, and the λ, u and s before it.
    """
    k = state.k - 1
    s = state.s
    lam = state.lam
    old = 1.0 / (k + 2)
    new = (k + 1) / (k + 2)
    u_change = received[:-1]
    blocks = float(received[-1])
    # λ⁺ = prox_{s ℓ*}(λ + s(2u⁺ − u))
    v = dual_step(agent, lam + s * (state.u + 2.0 * u_change), s)
    lam_change = v - lam
    # ‖z − z⁺‖²_M = ‖Δλ‖²/s + s κ Σ_j ‖N_j^½Δθ_j‖² − 2⟨Δλ, Δu⟩
    duals = float(lam_change @ lam_change)
    now = duals / s + s * blocks - 2.0 * float(lam_change @ u_change)
    first = state.first
    if k == 0:
        first = now
    before = state.before
    if before is None:
        before = math.inf
    # z_{k+1} = (k+1)/(k+2) (2z⁺ − z_k) + 1/(k+2) z_0
    lam_next = new * (lam + 2.0 * lam_change) + old * state.lam_0
    u = new * (state.u + 2.0 * u_change) + old * state.u_0
    ends = restarts(now, first, before, k + 1, t + 1)
    if ends:
        s = rebalanced(s, 1.0, duals, blocks, 0.0)[0]
    after = replace(state, u=u, v=v, first=first, before=now)
    return after, _with(lam_next, float(ends), s)


def _most_before(case: Case) -> Counts:
    """Return the largest counts before the first round: two estimates of κ, the scores, and the
    sums that a point needs.
    """
    collectives, numbers = most_of_pooled_norm(case)
    return 2 * collectives + 4, 2 * numbers + 1 + 3 * case.rows


def _with(numbers: FloatArray, *more: float) -> FloatArray:
    """Append numbers in the precision of the others."""
    return np.append(numbers, np.array(more, numbers.dtype))
