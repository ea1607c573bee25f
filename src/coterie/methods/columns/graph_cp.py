"""Chambolle–Pock on a graph (Ancelin, Bahmani, Romberg, "Decentralized Feature-Distributed
Optimization for Generalized Linear Models"): columns split over the agents of any connected graph,
labels at one of them.

| paper        | code              | meaning
               |
|--------------|-------------------|--------------------------------------------------------------------------|
| X_j          | `agent.design`    | its own columns; the agent with the labels also has the
               intercept's      |
| θ_j          | `theta`           | its own block of the model
               |
| λ_j          | `lam`             | its own copy of the dual, a number per sample; all agree at the
               end      |
| v_j          | `V`               | its own multiplier of the constraint L λ = 0
               |
| L            | `"laplacian"`     | the weighted Laplacian of the network
               |
| τ/n, σ/n     | `a`, `s`          | the primal and the dual step; prox_{τr} is prox_{n a r}
               |
| R, χ, δ, D   | `R`, `chi`, ...   | ‖θ̂‖ ≤ R, ‖X‖ ≤ χ, ‖L†‖ ≤ 1/δ, ‖L‖ ≤ D
               |
| ρ            | `steepness(loss)` | |ℓ'| ≤ ρ, or |ℓ'| ≤ ρ√ℓ for a loss that is not Lipschitz
               |
| ℓ_i, r_j     | `agent.problem`   | loss and penalty
               |

`variant="paper"` is in `graph_cp_paper.py`: equations (9)–(13) with the steps of Theorem 1, two
exchanges an iteration.

The default needs one. With P = L V only L² appears in the paper's iteration; with L in its place it
is Chambolle–Pock on the incidence matrix of the graph, which has the same saddle points and cond(L)
where the paper has cond(L)². Only u_j = X_jθ_j + P_j is kept:

    θ_j⁺ = prox_{n a_j r_j}(θ_j − a_j X_jᵀλ_j)                                     a_j = c / (s_j
    N_j)
    u_j⁺ = u_j + X_j(θ_j⁺ − θ_j) − b (L Λ)_j                                       b = (1 − c) / (2
    s)
    λ_j⁺ = λ_j + s_j(2u_j⁺ − u_j), at the labels prox_{s_j ℓ*} of that             s_j = s / deg_j

N_j holds a number per column, its squared length times what makes ‖X_j N_j^{-1/2}‖ = 1, so the
units of a column do not matter, or is a matrix (whitening, see `chambolle_pock.py`). Since
‖D^{-1/2} L D^{-1/2}‖ ≤ 2, these steps fit every graph and every block, and no agent needs a
constant from elsewhere. The map T: z = (θ, u, Λ) ↦ z⁺ is firmly non-expansive in the metric M of
its steps, and is iterated in reflected Halpern form with restarts, as the successors
of PDLP do it:

    z_{k+1} = (k+1)/(k+2) (2 T z_k − z_k) + 1/(k+2) z_0

A new epoch starts, with z_0 = z_k, when ‖z − T z‖_M has fallen enough or the epoch has become long.
It takes with it an s and a c nearer to those at which duals, blocks and edges weigh the same in M.
All of this rests on one `Sum` of five numbers every ten rounds; a single agent needs none, and
looks in every round.

With sample weights, a sample of weight 2 is two samples: at the labels λ = weights ∘ v, v the dual
of one sample.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numba
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
    told,
    traffic,
)
from coterie.methods.method import Method, Rows
from coterie.methods.published.graph_cp_paper import PaperState, paper_round, paper_start, steepness
from coterie.networks import Network
from coterie.numerics.acceleration.halpern import restarts
from coterie.numerics.arrays import FloatArray
from coterie.numerics.tuning import Tuning, tuned
from coterie.problems.problem import Problem
from coterie.run.agent import Agent
from coterie.run.certificate import Point
from coterie.run.collectives import Mix, Protocol, Sum
from coterie.run.disclosure import SAME, Disclosure


@dataclass(frozen=True)
class _Tuning(Tuning):
    look_every: int = tuned(10, "Rounds from one look at ‖z − T z‖_M, a `Sum`, to the next.")
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
    """The last λ⁺, at the labels only: it lies in the domain of ℓ*."""
    norms: FloatArray
    """One number per column: ‖X_j diag(norms)^{-1/2}‖ ≤ 1."""
    degree: float
    s: float
    c: float
    k: int
    """Rounds since the epoch began."""
    shares: FloatArray
    """Its own shares of the last measured residual, see `residual_shares`."""
    first: float
    """Its own share of ‖z − T z‖²_M in the epoch's first round."""
    before: float | None
    """Everybody's ‖z − T z‖²_M at the last look of this epoch."""


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
        sent="your copy of the dual, one number per row, as it is, to your neighbours",
        learned=(
            "the labels: the dual's signs are those of the labels, eight hops away after ten "
            "rounds. And how your "
            "scores move: after as many rounds as you have columns, your columns up to a rotation "
            "(which rows "
            "resemble each other, to 2e-9)"
        ),
        secure=SAME,
        setup=(
            "before the first round the number of your neighbours; about every tenth round five "
            "sums of squares, as "
            "part of a sum; in the paper's variant also what tree sends before the first round"
        ),
        most=lambda case: (1, case.rows),
        sometimes=lambda case: (1, 5),
        before=lambda case: (4, case.parties + 1 + 2 * case.rows),
    )
    tells_labels: ClassVar[bool] = True

    variant: Literal["improved", "paper"] = "improved"
    iterate: Literal["last", "average"] = "last"
    """What the paper's variant returns: its last iterate, or the mean of all that Theorem 1 speaks
    of.
    """
    R: float | None = None
    """‖θ̂‖ ≤ R; by default twice the `reach` on which the agents agreed, a guess on the scale of
    the model.
    """
    chi: float | None = None
    """‖X‖ ≤ χ; by default estimated by the agents, as are `delta` and `D`."""
    delta: float | Literal["diameter"] | None = None
    """‖L†‖ ≤ 1/δ; "diameter" is the paper's 4/(m diam), on the safe side and cheaper to find."""
    D: float | Literal["degree"] | None = None
    """‖L‖ ≤ D; "degree" is the paper's 2Δ, twice the largest degree."""

    def __post_init__(self) -> None:
        for name, value, known in (
            ("variant", self.variant, ("improved", "paper")),
            ("iterate", self.iterate, ("last", "average")),
        ):
            if value not in known:
                raise InvalidProblem(
                    f"graph-cp: {name} is {' or '.join(map(repr, known))}, not {value!r}."
                )
        constants = {"R": self.R, "chi": self.chi, "delta": self.delta, "D": self.D}
        words = {"delta": "diameter", "D": "degree"}
        for name, constant in constants.items():
            number = isinstance(constant, (int, float)) and 0 < constant < math.inf
            if constant not in (None, words.get(name)) and not number:
                if name in words:
                    collective = f" or {words[name]!r}"
                else:
                    collective = ""
                raise InvalidProblem(
                    f"graph-cp: {name} must be a positive number{collective}, not {constant!r}."
                )
        if self.variant == "improved" and (self.iterate != "last" or any(constants.values())):
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
        return 1.0 + (
            trees / (mine + trees) if network.n_edges else 0.5
        ), f"it is expected to send less: {words}"

    def check(self, problem: Problem, network: Network) -> None:
        if network.server:
            raise InvalidProblem(
                "graph-cp talks along the edges of a graph, but these agents talk to a server "
                "only. "
                "Use method='tree', or a network with edges: star(agents) with agent 0 as hub, "
                "ring, ..."
            )
        if self.variant == "paper" and not math.isfinite(steepness(problem.loss)):
            raise InvalidProblem(
                "graph-cp: the step sizes of variant='paper' need a loss whose slope is bounded "
                "by the loss, and that "
                f"of {problem.loss.name} is not. Use variant='improved', which needs no bound."
            )

    @property
    def states(self) -> tuple[type, ...]:
        return (PaperState if self.variant == "paper" else State,)

    def start(self, agent: Agent) -> Protocol[State | PaperState]:
        return (
            yield from (
                paper_start(agent, self.R, self.chi, self.delta, self.D)
                if self.variant == "paper"
                else self._start(agent)
            )
        )

    def warm(
        self, agent: Agent, state: State | PaperState, point: Point
    ) -> Protocol[State | PaperState]:
        """There, with every edge as the optimality conditions want it; the paper's form starts at
        0, as published.
        """
        if isinstance(state, PaperState):
            return state
        theta, scores, lam = yield from told(agent, point)
        local = agent.data.y is not None
        if local:
            u = scores
            v = lam
        else:
            u = np.zeros_like(scores)
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
        if agent.count > 1:
            degree = float((yield Mix(agent.one_hot(1.0).astype(dtype), "laplacian"))[agent.index])
        mean_degree = float((yield Sum(np.array([degree])))[0]) / agent.count
        # The copies of λ together weigh like one with the step s/(m deg), the edges ask for s/deg:
        # between the two.
        s = first_dual_step(agent) * mean_degree * math.sqrt(agent.count) / 4
        theta = agent.first_model()
        u = agent.design.forward(theta)
        zeros = np.zeros(rows, dtype)
        if agent.data.y is not None:
            v = zeros
        else:
            v = np.empty(0, dtype)
        norms = own_norms(agent)
        if agent.count > 1:
            c = TUNING.first_share
        else:
            c = 1.0
        return State(
            theta,
            zeros,
            u,
            theta,
            zeros,
            u,
            theta,
            v,
            norms,
            degree,
            s,
            c,
            0,
            np.zeros(4),
            0.0,
            None,
        )

    def _round(self, agent: Agent, state: State, t: int) -> Protocol[State]:
        if agent.count > 1:
            look_every = TUNING.look_every
        else:
            look_every = 1
        if t % look_every == 0:
            state = yield from self._look(state, t)
        lam = state.lam
        u = state.u
        k = state.k
        s = state.s
        c = state.c
        s_j = s / state.degree
        b = (1.0 - c) / (2.0 * s)
        if agent.count > 1:
            mixed = yield Mix(lam, "laplacian")
        else:
            mixed = np.zeros_like(lam)

        # θ⁺ = prox_{n a r}(θ − a Xᵀλ)
        theta = own_step(agent, state.theta, lam, c / s_j / state.norms)
        theta_change = theta - state.theta
        # ũ = 2u⁺ − u = u + 2X(θ⁺ − θ) − 2b Lλ,  λ⁺ = λ + s ũ, at the labels prox_{s ℓ*} of that
        # z_{k+1} = (k+1)/(k+2) (2z⁺ − z_k) + 1/(k+2) z_0
        u_ahead = agent.design.forward(2.0 * theta_change)
        lam_next = np.empty_like(lam)
        old = 1.0 / (k + 2)
        new = (k + 1) / (k + 2)
        local = agent.data.y is not None
        looks = k == 0 or (t + 1) % look_every == 0
        v = state.v
        first = state.first
        shares = state.shares
        if local or looks:
            blend(u_ahead, 1.0, u_ahead, 1.0, u, -2.0 * b, mixed)
            blend(lam_next, 1.0, lam, s_j, u_ahead, 0.0, lam)
            lam_after = lam_next
            if local:
                lam_after = dual_step(agent, lam_next, s_j)
                v = lam_after
            if looks:
                weight = own_weight(agent, state.norms, theta_change)
                shares = residual_shares(state, weight, lam_after, u_ahead, mixed)
                if k == 0:
                    first = float(shares[-1])
                else:
                    first = first
            blend(lam_next, 2.0 * new, lam_after, -new, lam, old, state.lam_0)
            blend(u_ahead, new, u_ahead, old, state.u_0, 0.0, u_ahead)
        else:
            advance(
                u_ahead, lam_next, u, mixed, lam, state.u_0, state.lam_0, -2.0 * b, s_j, new, old
            )
        return replace(
            state,
            theta=new * (state.theta + 2.0 * theta_change) + old * state.theta_0,
            lam=lam_next,
            u=u_ahead,
            w=theta,
            v=v,
            k=k + 1,
            first=first,
            shares=shares,
        )

    def _look(self, state: State, t: int) -> Protocol[State]:
        """Begin a new epoch here, with better weights, if it is time to."""
        duals, blocks, edges, now, first = map(
            float, (yield Sum(np.append(state.shares, state.first)))
        )
        if not restarts(now, first, math.inf if state.before is None else state.before, state.k, t):
            return replace(state, before=now)
        s, c = rebalanced(state.s, state.c, duals, blocks, edges)
        return replace(
            state, theta_0=state.theta, lam_0=state.lam, u_0=state.u, s=s, c=c, k=0, before=None
        )


@numba.njit(nogil=True, cache=True, error_model="numpy")
def blend(
    out: FloatArray, a: float, x: FloatArray, b: float, y: FloatArray, c: float, z: FloatArray
) -> None:
    """out = a x + b y + c z in one pass, also in the memory of x, y or z."""
    # numpy would need five passes and two temporary arrays, which at 16384 × 2048 is felt beside
    # the matrix products.
    for i in range(out.size):
        out[i] = a * x[i] + b * y[i] + c * z[i]


@numba.njit(nogil=True, cache=True, error_model="numpy")
def advance(
    u_next: FloatArray,
    lam_next: FloatArray,
    u: FloatArray,
    mixed: FloatArray,
    lam: FloatArray,
    u_0: FloatArray,
    lam_0: FloatArray,
    b: float,
    s: float,
    new: float,
    old: float,
) -> None:
    """All of a round that follows 2X(θ⁺ − θ), which lies in u_next, in one pass: away from the
    labels.
    """
    for i in range(u.size):
        ahead = u_next[i] + u[i] + b * mixed[i]
        lam_next[i] = new * lam[i] + 2.0 * new * s * ahead + old * lam_0[i]
        u_next[i] = new * ahead + old * u_0[i]


@numba.njit(nogil=True, cache=True, error_model="numpy")
def moved(
    lam_after: FloatArray, lam: FloatArray, u_ahead: FloatArray, u: FloatArray
) -> tuple[float, float]:
    """‖λ⁺ − λ‖² and ⟨λ⁺ − λ, ũ − u⟩, without an array for the differences."""
    square = 0.0
    product = 0.0
    for i in range(lam.size):
        change = lam_after[i] - lam[i]
        square += change * change
        product += change * (u_ahead[i] - u[i])
    return square, product


def residual_shares(
    state: State, weight: float, lam_after: FloatArray, u_ahead: FloatArray, mixed: FloatArray
) -> FloatArray:
    """Its own share of what duals, blocks and edges moved in this round, and of

    ‖z − z⁺‖²_M = Σ_j deg_j‖Δλ_j‖²/s + s‖N_j^½Δθ_j‖²/(c deg_j) + 2s‖ΔE_j‖²/(1 − c) − 2⟨Δλ_j, Δu_j⟩,
    all of it. The weight is ‖N_j^½Δθ_j‖².

    E, one vector per edge, exists only in the proof: Σ_j ‖ΔE_j‖² = b²⟨Λ, LΛ⟩. ũ − u is 2Δu.
    """
    s = state.s
    c = state.c
    square, product = moved(lam_after, state.lam, u_ahead, state.u)
    duals = state.degree * square
    blocks = weight / state.degree
    edges = 2.0 * ((1.0 - c) / (2.0 * s)) ** 2 * float(np.vdot(state.lam, mixed))
    whole = duals / s + s * (blocks / c + (edges / (1.0 - c) if c < 1.0 else 0.0))
    return np.array([duals, blocks, edges, whole - product])
