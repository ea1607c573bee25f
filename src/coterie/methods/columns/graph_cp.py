"""Chambolle–Pock on a graph (Ancelin, Bahmani, Romberg, "Decentralized Feature-Distributed
Optimization for Generalized Linear Models"): columns split over the agents of any connected graph,
labels at one of them.

| paper        | code              | meaning                                                       |
|--------------|-------------------|---------------------------------------------------------------|
| X_j          | `agent.design`    | the columns of agent j; the label agent also has that of the  |
|              |                   | intercept                                                     |
| θ_j          | `theta`           | its block of the model                                        |
| λ_j          | `lam`             | its copy of the dual variables, one per row; all copies agree |
|              |                   | at the end                                                    |
| v_j          | `V`               | its multiplier of the constraint L λ = 0                      |
| L            | `"laplacian"`     | the weighted Laplacian of the network                         |
| τ/n, σ/n     | `a`, `s`          | the primal and the dual step; prox_{τr} is prox_{n a r}       |
| R, χ, δ, D   | `R`, `chi`, ...   | ‖θ̂‖ ≤ R, ‖X‖ ≤ χ, ‖L†‖ ≤ 1/δ, ‖L‖ ≤ D                         |
| ρ            | `steepness(loss)` | |ℓ'| ≤ ρ, or |ℓ'| ≤ ρ√ℓ for a loss that is not Lipschitz      |
| ℓ_i, r_j     | `agent.problem`   | loss and penalty                                              |

`variant="paper"` is in `graph_cp_paper.py`: equations (9)–(13) with the steps of Theorem 1, two
exchanges per iteration.

The default needs one exchange. With P = L V, only L² appears in the paper's iteration. With L in
place of L², it is Chambolle–Pock on the incidence matrix of the graph. That has the same saddle
points, and cond(L) where the paper has cond(L)². A State keeps only u_j = X_jθ_j + P_j:

    θ_j⁺ = prox_{n a_j r_j}(θ_j − a_j X_jᵀλ_j)                     a_j = c / (s_j N_j)
    u_j⁺ = u_j + X_j(θ_j⁺ − θ_j) − b (L Λ)_j                       b = (1 − c) / (2 s)
    λ_j⁺ = λ_j + s_j(2u_j⁺ − u_j)                                  s_j = s / deg_j
           at the label agent prox_{s_j ℓ*} of that

N_j has a number per column: its squared length, times a factor with ‖X_j N_j^{-1/2}‖ = 1. So the
unit of a column does not matter. For whitened blocks N_j is a matrix (see `chambolle_pock.py`).
Since ‖D^{-1/2} L D^{-1/2}‖ ≤ 2, these steps fit every graph and every block, and no agent needs a
constant of the others. The map T: z = (θ, u, Λ) ↦ z⁺ is firmly non-expansive in the metric M of
its steps. It is iterated in reflected Halpern form with restarts, as in the successors of PDLP:

    z_{k+1} = (k+1)/(k+2) (2 T z_k − z_k) + 1/(k+2) z_0

A new epoch starts, with z_0 = z_k, when ‖z − T z‖_M has fallen enough or the epoch has become long.
Its s and c are nearer to those at which dual variables, blocks and edges have the same weight in M.
All agents decide this from one `Sum` of five numbers every ten rounds. A single agent needs no
message, and decides in every round.

With sample weights, a sample of weight 2 equals two samples: at the label agent λ = weights ∘ v,
where v is the dual variable of one sample.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from coterie.errors import InvalidProblem
from coterie.methods.auto.costs import Sizes
from coterie.methods.columns.chambolle_pock import (
    dual_step,
    first_dual_step,
    own_norms,
    own_step,
    own_weight,
    point_at,
    rebalanced,
    traffic,
    values_at,
)
from coterie.methods.method import Method, Rows
from coterie.methods.published.graph_cp_paper import PaperState, paper_round, paper_start, steepness
from coterie.networks import Network
from coterie.numerics.acceleration.halpern import restarts
from coterie.numerics.arrays import FloatArray
from coterie.numerics.kernels.graph_steps import advance, blend, moved
from coterie.numerics.tuning import Tuning, tuned
from coterie.problems.problem import Problem
from coterie.run.agent import Agent
from coterie.run.certificate import Point
from coterie.run.collectives import Mix, Protocol, Sum
from coterie.run.disclosure import SAME, Disclosure


@dataclass(frozen=True)
class _Tuning(Tuning):
    look_every: int = tuned(10, "Rounds from one `Sum` for ‖z − T z‖_M to the next.")
    first_share: float = tuned(
        0.5, "The first c.", "theorem: blocks and edges have equal shares", below=1
    )


TUNING = _Tuning()


@dataclass(frozen=True, slots=True)
class State:
    """Where one agent stands between two rounds of the default variant."""

    theta: FloatArray
    lam: FloatArray
    u: FloatArray
    theta_0: FloatArray
    """z_0 of this epoch: θ, λ and u."""
    lam_0: FloatArray
    u_0: FloatArray
    w: FloatArray
    """The last θ⁺: unlike θ, it lies in the penalty's domain."""
    v: FloatArray
    """The last λ⁺, at the label agent only: it lies in the domain of ℓ*."""
    norms: FloatArray
    """One number per column: ‖X_j diag(norms)^{-1/2}‖ ≤ 1."""
    degree: float
    s: float
    c: float
    k: int
    """Rounds since the epoch began."""
    shares: FloatArray
    """The agent's shares of the last measured residual, see `residual_shares`."""
    first: float
    """The agent's share of ‖z − T z‖²_M in the first round of the epoch."""
    before: float | None
    """‖z − T z‖²_M of all agents when it was last measured in this epoch."""


@dataclass(frozen=True)
class GraphCP(Method[State | PaperState, Rows]):
    """Chambolle–Pock over the edges of a graph: one `Mix` of n numbers per round (the paper's
    variant: two).
    """

    name: ClassVar[str] = "graph-cp"
    split: ClassVar[str] = "features"
    summary: ClassVar[str] = (
        "primal-dual over the edges of any graph, every loss, labels at one agent"
    )
    disclosure: ClassVar[Disclosure] = Disclosure(
        sent="your copy of the dual variables, one number per row, unmasked, to your neighbours",
        learned=(
            "the labels: dual variables have the signs of the labels, eight hops away after ten "
            "rounds. And the changes of your scores: after as many rounds as you have columns, "
            "your columns up to a rotation (which rows resemble each other, to 2e-9)"
        ),
        secure=SAME,
        setup=(
            "before the first round the number of your neighbours; about every tenth round five "
            "sums of squares, as part of a sum; in the paper's variant also the messages that tree "
            "sends before the first round"
        ),
        most=lambda case: (1, case.rows),
        sometimes=lambda case: (1, 5),
        before=lambda case: (4, case.parties + 1 + 2 * case.rows),
    )
    discloses_labels: ClassVar[bool] = True

    variant: Literal["improved", "paper"] = "improved"
    iterate: Literal["last", "average"] = "last"
    """The result of the paper's variant: its last iterate, or the mean of all, as in Theorem 1."""
    R: float | None = None
    """‖θ̂‖ ≤ R; by default twice the `reach` of the introduction, an estimate of the size of the
    model.
    """
    chi: float | None = None
    """‖X‖ ≤ χ; by default the agents estimate it, and `delta` and `D`."""
    delta: float | Literal["diameter"] | None = None
    """‖L†‖ ≤ 1/δ; "diameter" is the paper's 4/(m diam), a safe bound that is cheaper to find."""
    D: float | Literal["degree"] | None = None
    """‖L‖ ≤ D; "degree" is the paper's 2Δ, twice the largest degree."""

    def __post_init__(self) -> None:
        _check_choice("variant", self.variant, ("improved", "paper"))
        _check_choice("iterate", self.iterate, ("last", "average"))
        _check_constant("R", self.R)
        _check_constant("chi", self.chi)
        _check_constant("delta", self.delta, "diameter")
        _check_constant("D", self.D, "degree")
        has_constants = any((self.R, self.chi, self.delta, self.D))
        if self.variant == "improved" and (self.iterate != "last" or has_constants):
            raise InvalidProblem(
                "graph-cp: R, chi, delta, D and iterate belong to variant='paper'; the default "
                "needs none of them."
            )

    @classmethod
    def score(
        cls, problem: Problem, network: Network, sizes: Sizes | None = None
    ) -> tuple[float, str] | None:
        if network.server:
            return None
        mine, trees, words = traffic(network)
        share = 0.5
        if network.n_edges:
            share = trees / (mine + trees)
        return 1.0 + share, f"it is expected to send less: {words}"

    def check(self, problem: Problem, network: Network) -> None:
        if network.server:
            raise InvalidProblem(
                "graph-cp sends along the edges of a graph, but these agents are connected to a "
                "server only. Use method='tree', or a network with edges: star(agents) with agent "
                "0 as hub, ring, ..."
            )
        if self.variant == "paper" and not math.isfinite(steepness(problem.loss)):
            raise InvalidProblem(
                "graph-cp: the step sizes of variant='paper' are for losses with |ℓ'| ≤ ρ (hinge, "
                "logistic, ...) or |ℓ'| ≤ ρ√ℓ (squared, ...), and there is no such ρ for "
                f"{problem.loss.name}. Use variant='improved', which needs none."
            )

    @property
    def states(self) -> tuple[type, ...]:
        if self.variant == "paper":
            return (PaperState,)
        return (State,)

    def start(self, agent: Agent) -> Protocol[State | PaperState]:
        if self.variant == "paper":
            return (yield from paper_start(agent, self.R, self.chi, self.delta, self.D))
        return (yield from self._start(agent))

    def warm(
        self, agent: Agent, state: State | PaperState, point: Point
    ) -> Protocol[State | PaperState]:
        """Start at that point, with the edges that fulfil the optimality conditions. The paper's
        variant starts at 0, as published.
        """
        if isinstance(state, PaperState):
            return state
        theta, scores, lam = yield from values_at(agent, point)
        if agent.data.y is not None:
            u = scores
            v = lam
        else:
            u = np.zeros_like(lam)
            v = state.v
        return replace(
            state, theta=theta, theta_0=theta, w=theta, lam=lam, lam_0=lam, u=u, u_0=u, v=v
        )

    def round(
        self, agent: Agent, state: State | PaperState, t: int
    ) -> Protocol[State | PaperState]:
        if isinstance(state, PaperState):
            return (yield from paper_round(agent, state, t))
        return (yield from self._round(agent, state, t))

    def point(self, agent: Agent, state: State | PaperState) -> Point:
        if isinstance(state, State):
            return point_at(agent, state.w, state.v)
        if self.iterate == "average":
            return point_at(agent, state.theta_mean, state.lam_mean)
        return point_at(agent, state.theta, state.lam)

    def _start(self, agent: Agent) -> Protocol[State]:
        rows = agent.design.shape[0]
        dtype = agent.design.dtype
        degree = 1.0
        c = 1.0
        if agent.count > 1:
            own = agent.one_hot(1.0).astype(dtype)
            laplacian_row = yield Mix(own, "laplacian")
            degree = float(laplacian_row[agent.index])
            c = TUNING.first_share
        degrees = yield Sum(np.array([degree]))
        mean_degree = float(degrees[0]) / agent.count
        # The copies of λ together have the weight of one with the step s/(m deg); the edges need
        # s/deg. The first s is between the two.
        s = first_dual_step(agent) * mean_degree * math.sqrt(agent.count) / 4
        theta = agent.first_model()
        u = agent.design.forward(theta)
        zeros = np.zeros(rows, dtype)
        if agent.data.y is not None:
            v = zeros
        else:
            v = np.empty(0, dtype)
        return State(
            theta=theta,
            lam=zeros,
            u=u,
            theta_0=theta,
            lam_0=zeros,
            u_0=u,
            w=theta,
            v=v,
            norms=own_norms(agent),
            degree=degree,
            s=s,
            c=c,
            k=0,
            shares=np.zeros(4),
            first=0.0,
            before=None,
        )

    def _round(self, agent: Agent, state: State, t: int) -> Protocol[State]:
        if agent.count > 1:
            look_every = TUNING.look_every
        else:
            look_every = 1
        if t % look_every == 0:
            state = yield from self._look(state, t)
        lam = state.lam
        k = state.k
        if agent.count > 1:
            mixed = yield Mix(lam, "laplacian")
        else:
            mixed = np.zeros_like(lam)

        # θ⁺ = prox_{n a r}(θ − a Xᵀλ)
        s_j = state.s / state.degree
        a = state.c / s_j / state.norms
        theta = own_step(agent, state.theta, lam, a)
        theta_change = theta - state.theta
        # ũ = 2u⁺ − u = u + 2X(θ⁺ − θ) − 2b Lλ,  λ⁺ = λ + s ũ, or prox_{s ℓ*} of that (labels)
        # z_{k+1} = (k+1)/(k+2) (2z⁺ − z_k) + 1/(k+2) z_0
        b = (1.0 - state.c) / (2.0 * state.s)
        old = 1.0 / (k + 2)
        new = (k + 1) / (k + 2)
        u_ahead = agent.design.forward(2.0 * theta_change)
        lam_next = np.empty_like(lam)
        local = agent.data.y is not None
        measures = k == 0 or (t + 1) % look_every == 0
        if local or measures:
            blend(u_ahead, 1.0, u_ahead, 1.0, state.u, -2.0 * b, mixed)
            blend(lam_next, 1.0, lam, s_j, u_ahead, 0.0, lam)
            lam_after = lam_next
            if local:
                lam_after = dual_step(agent, lam_next, s_j)
                state = replace(state, v=lam_after)
            if measures:
                weight = own_weight(agent, state.norms, theta_change)
                state = _measured(state, weight, lam_after, u_ahead, mixed)
            blend(lam_next, 2.0 * new, lam_after, -new, lam, old, state.lam_0)
            blend(u_ahead, new, u_ahead, old, state.u_0, 0.0, u_ahead)
        else:
            u_0 = state.u_0
            lam_0 = state.lam_0
            advance(u_ahead, lam_next, state.u, mixed, lam, u_0, lam_0, -2.0 * b, s_j, new, old)
        theta_next = new * (state.theta + 2.0 * theta_change) + old * state.theta_0
        return replace(state, theta=theta_next, lam=lam_next, u=u_ahead, w=theta, k=k + 1)

    def _look(self, state: State, t: int) -> Protocol[State]:
        """Begin a new epoch here, with better weights, if the residual asks for one."""
        sums = yield Sum(np.append(state.shares, state.first))
        duals, blocks, edges, now, first = map(float, sums)
        before = state.before
        if before is None:
            before = math.inf
        if not restarts(now, first, before, state.k, t):
            return replace(state, before=now)
        s, c = rebalanced(state.s, state.c, duals, blocks, edges)
        return replace(
            state, theta_0=state.theta, lam_0=state.lam, u_0=state.u, s=s, c=c, k=0, before=None
        )


def _check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    """Refuse a parameter that is none of these words."""
    if value not in known:
        words = " or ".join(map(repr, known))
        raise InvalidProblem(f"graph-cp: {name} is {words}, not {value!r}.")


def _check_constant(name: str, value: float | str | None, word: str | None = None) -> None:
    """Refuse a constant that is neither a positive number nor that word."""
    if value is None or value == word:
        return
    if isinstance(value, (int, float)) and 0 < value < math.inf:
        return
    also = ""
    if word is not None:
        also = f" or {word!r}"
    raise InvalidProblem(f"graph-cp: {name} must be a positive number{also}, not {value!r}.")


def _measured(
    state: State, weight: float, lam_after: FloatArray, u_ahead: FloatArray, mixed: FloatArray
) -> State:
    """Return the State with the agent's shares of the residual in this round."""
    shares = residual_shares(state, weight, lam_after, u_ahead, mixed)
    if state.k == 0:
        return replace(state, shares=shares, first=float(shares[-1]))
    return replace(state, shares=shares)


def residual_shares(
    state: State, weight: float, lam_after: FloatArray, u_ahead: FloatArray, mixed: FloatArray
) -> FloatArray:
    """Return the agent's share of the moves of dual variables, blocks and edges in this round, and
    of their weighted sum

    ‖z − z⁺‖²_M = Σ_j deg_j‖Δλ_j‖²/s + s‖N_j^½Δθ_j‖²/(c deg_j) + 2s‖ΔE_j‖²/(1 − c) − 2⟨Δλ_j, Δu_j⟩.

    `weight` is ‖N_j^½Δθ_j‖². E, one vector per edge, exists only in the proof:
    Σ_j ‖ΔE_j‖² = b²⟨Λ, LΛ⟩. ũ − u is 2Δu.
    """
    s = state.s
    c = state.c
    square, product = moved(lam_after, state.lam, u_ahead, state.u)
    duals = state.degree * square
    blocks = weight / state.degree
    b = (1.0 - c) / (2.0 * s)
    edges = 2.0 * b**2 * float(np.vdot(state.lam, mixed))
    weighted_edges = 0.0
    if c < 1.0:
        weighted_edges = edges / (1.0 - c)
    whole = duals / s + s * (blocks / c + weighted_edges)
    return np.array([duals, blocks, edges, whole - product])
