"""Chambolle–Pock with exact sums over a spanning tree, or through a server: columns split over
agents, labels at one.

`graph-cp` gives every agent its own copy of the dual λ and lets neighbours bring the copies
together. Where a `Sum`
over all agents is possible there is only one λ, and the iteration is that of a single agent with
all the columns:

    θ_j⁺ = prox_{n a_j r_j}(θ_j − a_j X_jᵀλ)                                        a_j = 1 / (s κ
    N_j)
    u⁺   = u + Σ_j X_j(θ_j⁺ − θ_j)                                                  a `Sum` of n
         numbers
    λ⁺   = prox_{s ℓ*}(λ + s(2u⁺ − u))                                              told by the
         label agent: another

κ = ‖[X_1 N_1^{-1/2} ... X_m N_m^{-1/2}]‖², between 1 and m, is estimated by the agents beforehand.
Blocks of nearly dependent columns are whitened, unless κ says that all blocks are much the same.
Halpern's form, the restarts and the balance of the steps are those of `graph-cp` with no edges to
weigh; the label agent alone decides them, and tells the others in the second `Sum`: to look at the
residual in every round takes no message of its own.
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
    told,
    traffic,
)
from coterie.methods.method import Method, Rows
from coterie.networks import Network
from coterie.numerics.acceleration.halpern import restarts
from coterie.numerics.arrays import FloatArray, shared_result
from coterie.problems.problem import Problem
from coterie.run.agent import Agent
from coterie.run.certificate import Point
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import SCORES_OF_BRANCHES, SCORES_OF_OTHERS, Case, Counts, Disclosure


@dataclass(frozen=True, slots=True)
class State:
    """Where one agent stands between two rounds. What only the label agent needs is empty
    elsewhere.
    """

    theta: FloatArray
    theta_0: FloatArray
    """z_0 of this epoch: θ, and at the labels λ and u."""
    lam: FloatArray
    """λ, the same at all agents."""
    lam_0: FloatArray
    u: FloatArray
    """Xθ over all columns, at the labels only."""
    u_0: FloatArray
    w: FloatArray
    """The last θ⁺: unlike θ, it lies in the penalty's domain."""
    v: FloatArray
    """The last λ⁺, at the labels only: it lies in the domain of ℓ*."""
    norms: FloatArray
    """One number per column: κ N_j."""
    s: float
    k: int
    """Rounds since the epoch began."""
    first: float
    """‖z − T z‖²_M when the epoch began, at the labels only."""
    before: float | None
    """‖z − T z‖²_M a round ago, if this epoch had begun, at the labels only."""
    whiten: bool = False
    """Whether blocks of nearly dependent columns are whitened."""


@dataclass(frozen=True)
class Tree(Method[State, Rows]):
    """Chambolle–Pock with exact sums: two `Sum`s of n numbers per round."""

    name: ClassVar[str] = "tree"
    split: ClassVar[str] = "features"
    summary: ClassVar[str] = (
        "primal-dual with exact sums over a spanning tree or a server, every loss"
    )
    disclosure: ClassVar[Disclosure] = Disclosure(
        sent="the change of your partial scores, one number per row, as part of a sum along the "
        "tree; the dual comes "
        "back",
        learned=f"the labels, from the dual; and {SCORES_OF_BRANCHES}",
        secure=f"the labels, from the dual; and {SCORES_OF_OTHERS}",
        setup=(
            "before the first round a few products of your columns with secret random vectors, "
            "one number per row, "
            "as part of a sum: of a single column this is the column up to its length"
        ),
        most=lambda case: (2, 2 * case.rows + 3),
        before=lambda case: _most_before(case),
    )
    tells_labels: ClassVar[bool] = True

    @classmethod
    def score(
        cls, problem: Problem, network: Network, sizes: Sizes | None = None
    ) -> tuple[float, str]:
        if network.server:
            return 1.5, "the server gives exact sums"
        graphs, mine, words = traffic(network)
        return 1.0 + (
            graphs / (graphs + mine) if network.n_edges else 0.5
        ), f"it is expected to send less: {words}"

    def start(self, agent: Agent) -> Protocol[State]:
        whiten = bool((yield Sum(np.array([float(products(agent) is not None)])))[0])
        norms = own_norms(agent, whiten)
        kappa = yield from pooled_norm(agent, norms**-0.5, whiten)
        if whiten and kappa > chambolle_pock.TUNING.alike * agent.count:
            whiten = False
            norms = own_norms(agent, False)
            kappa = yield from pooled_norm(agent, norms**-0.5)
        norms *= kappa or 1.0
        theta = agent.first_model()
        u = yield Sum(agent.design.forward(theta))
        lam = np.zeros(agent.design.shape[0], agent.design.dtype)
        dual = lam
        if agent.data.y is None:
            u = dual = np.empty(0, lam.dtype)
        return State(
            theta,
            theta,
            lam,
            dual,
            u,
            u,
            theta,
            dual,
            norms,
            first_dual_step(agent),
            0,
            0.0,
            None,
            whiten,
        )

    def warm(self, agent: Agent, state: State, point: Point) -> Protocol[State]:
        theta, u, lam = yield from told(agent, point)
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
        theta = own_step(agent, state.theta, lam, 1.0 / s / state.norms, state.whiten)
        theta_change = theta - state.theta
        # u⁺ − u = Σ_j X_j(θ_j⁺ − θ_j), and κ Σ_j ‖N_j^½Δθ_j‖²
        received = yield Sum(
            _with(
                agent.design.forward(theta_change),
                own_weight(agent, state.norms, theta_change, state.whiten),
            )
        )
        v = state.v
        u = state.u
        first = state.first
        before = state.before
        if local:
            u_change = received[:-1]
            blocks = float(received[-1])
            # λ⁺ = prox_{s ℓ*}(λ + s(2u⁺ − u))
            v = dual_step(agent, lam + s * (u + 2.0 * u_change), s)
            lam_change = v - lam
            # ‖z − z⁺‖²_M = ‖Δλ‖²/s + s κ Σ_j ‖N_j^½Δθ_j‖² − 2⟨Δλ, Δu⟩
            duals = float(lam_change @ lam_change)
            now = duals / s + s * blocks - 2.0 * float(lam_change @ u_change)
            if k == 0:
                first = now
            # z_{k+1} = (k+1)/(k+2) (2z⁺ − z_k) + 1/(k+2) z_0
            told = new * (lam + 2.0 * lam_change) + old * state.lam_0
            u = new * (u + 2.0 * u_change) + old * state.u_0
            ends = restarts(now, first, math.inf if before is None else before, k + 1, t + 1)
            before = now
            if ends:
                s = rebalanced(s, 1.0, duals, blocks, 0.0)[0]
            else:
                s = s
            received = yield Sum(_with(told, float(ends), s))
        else:
            received = yield Sum(
                shared_result(received, lambda: np.zeros(received.size + 1, received.dtype))
            )
        theta_next = new * (state.theta + 2.0 * theta_change) + old * state.theta_0
        lam = received[:-2]
        ends = bool(received[-2])
        s = float(received[-1])
        after = replace(
            state,
            theta=theta_next,
            lam=lam,
            u=u,
            w=theta,
            v=v,
            s=s,
            k=k + 1,
            first=first,
            before=before,
        )
        if not ends:
            return after
        return replace(
            after, theta_0=theta_next, lam_0=lam if local else state.lam_0, u_0=u, k=0, before=None
        )

    def point(self, agent: Agent, state: State) -> Point:
        return point_at(agent, state.w, state.v)


def _most_before(case: Case) -> Counts:
    """The largest counts before the first round: two estimates of κ, the scores, and what a point
    needs.
    """
    collectives, numbers = most_of_pooled_norm(case)
    return 2 * collectives + 4, 2 * numbers + 1 + 3 * case.rows


def _with(numbers: FloatArray, *more: float) -> FloatArray:
    """The same numbers, and some more."""
    return np.append(numbers, np.array(more, numbers.dtype))
