"""The primal-dual family of "CoCoA Is ADMM" (Wu, Liu, Wang, Wang), for samples split over agents
around a server.

| paper            | code             | meaning                                                  |
|------------------|------------------|----------------------------------------------------------|
| w                | `w`              | the model, the same at every agent                       |
| v_[k]            | `v`              | dual variables, one per row of agent k                   |
| X_[k] v_[k]      | `Xv`             | the message of agent k                                   |
| X_[k] (d × n_k)  | `agent.centred`  | the data of agent k (here rows are samples), with a      |
|                  |                  | column for the intercept                                 |
| ρ, β             | `rho`, `beta`    | the parameter of the augmented Lagrangian; βK = 1/ρ      |
| η₁, η₂ = ητ      | `eta`            | keeps Q₁, Q₂ positive semi-definite (Lemma 1); η = K by  |
|                  |                  | default                                                  |
| τ                | `tau`            | max over k of λmax(X_[k]ᵀ X_[k])                         |
| σ', γ            | `sigma`, `gamma` | CoCoA's subproblem and aggregation parameters; K and 1   |
|                  |                  | by default                                               |

All rules move w by prox_{ρg}(w − (ρ/n) X·) and v by a proximal step with the metric (ρη/n²) M. They
differ in the order of these steps, and in M:

|                 | the order, and the extrapolated point               | M                 |
|-----------------|-----------------------------------------------------|-------------------|
| `consensus`     | v, then w at 2v⁺ − v                            (1) | X_[k]ᵀ X_[k]      |
| `lin-consensus` | v, then w at 2v⁺ − v                            (2) | τ I               |
| `proximal-1`    | w, then v at 2w⁺ − w                            (3) | X_[k]ᵀ X_[k]      |
| `proximal-2`    | w, then v at 2w⁺ − w                            (4) | τ I               |
| `cocoa`         | w = ∇g*(−Xv/n), then v at w                     (5) | X_[k]ᵀ X_[k]      |

With sample weights s, a sample of weight 2 equals two samples: X_[k] v is a weighted sum, and τ is
the squared norm of √s X.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from typing import ClassVar, Literal

import numpy as np

from coterie.errors import InvalidProblem
from coterie.methods.auto.costs import Sizes
from coterie.methods.columns.chambolle_pock import extreme_eigenvalues
from coterie.methods.largest import largest, most_of_largest
from coterie.methods.method import Method, Rows
from coterie.methods.primal_dual.dual_block import knows, solve_block
from coterie.networks import Network
from coterie.numerics.acceleration import Anderson, Halpern
from coterie.numerics.arrays import FloatArray, shared_result, whole_number
from coterie.numerics.tuning import Tuning, tuned
from coterie.problems.problem import Problem
from coterie.run.agent import Agent
from coterie.run.certificate import Point
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import WEIGHTED_ROWS, Case, Counts, Disclosure
from coterie.run.steps import Coordinate, Steps

Auto = float | Literal["auto"]


@dataclass(frozen=True)
class _Tuning(Tuning):
    smooth_first: int = tuned(
        4, "The first round after which ρ may change by itself, for smooth losses.", costs=2.5
    )
    smooth_share: float = tuned(
        0.5, "The share of the way to the balanced ρ that late changes go, in logarithms.", below=1
    )
    nonsmooth_pace: float = tuned(
        1.0, "Non-smooth losses: ρ may change after rounds 3, 6, 10, ... times this.", costs=2.0
    )
    nonsmooth_share: float = tuned(
        0.25, "Non-smooth losses: the share of the way that late changes go.", below=1
    )
    whole_way: int = tuned(
        80, "Non-smooth losses: from this round on, distances are measured in stretches."
    )
    worth_a_change: float = tuned(
        1.15, "ρ stays as it is if it would change by less than this factor.", above=1, costs=2.5
    )
    least_way: float = tuned(
        0.3, "With one agent: the least distance of v, as a share of its first estimate.", below=1
    )
    roughest: float = tuned(0.1, "The tolerance of local problems in the first rounds.", below=1)
    exact_from: float = tuned(10.0, "The round from which that tolerance decreases.")
    norm_steps: int = tuned(20, "Steps of Lanczos's method for λmax(XᵀX), at most.")
    norm_margin: float = tuned(0.01, "By how much λmax(XᵀX) is rounded up.", below=0.2)
    decay: float = tuned(
        1.1,
        "The power of the round by which the tolerance decreases.",
        "theorem: errors above 1 are summable",
        above=1,
    )

    @cached_property
    def smooth(self) -> dict[int, float]:
        """The rounds after which ρ may change, and the share of the way that it goes.

        They are finitely many, so proofs for a fixed ρ apply to the rest.
        """
        first = self.smooth_first
        early = {first: 1.0, 3 * first: 0.75, 6 * first: 0.75}
        late = {12 * first * 2**j: self.smooth_share for j in range(10)}
        return early | late

    @cached_property
    def nonsmooth(self) -> dict[int, float]:
        """The same for non-smooth losses. There, Anderson's memory, which a change of ρ empties,
        gains little at first.
        """
        pace = self.nonsmooth_pace
        early = {int(t * pace): 1.0 for t in (3, 6, 10, 16, 25, 40, 80)}
        late = {int(80 * 1.5**j * pace): self.nonsmooth_share for j in range(1, 14)}
        return early | late


TUNING = _Tuning()


@dataclass(frozen=True, slots=True)
class State:
    """Where one agent stands between two rounds."""

    w: FloatArray
    v: FloatArray
    Xv: FloatArray
    rho: float
    eta: float
    """η₁, or η₂ = ητ for the linearised rules."""
    w_tuned: FloatArray
    """The w from which distances are measured: that of the last change of ρ. For non-smooth losses,
    see `whole_way`.
    """
    dual_tuned: FloatArray
    """The dual variables from which distances are measured: Xv, or v for the linearised rules."""


@dataclass(frozen=True)
class PrimalDual(Method[State, Rows]):
    """The common part of the five rules."""

    split: ClassVar[str] = "samples"
    linearised: ClassVar[bool] = False
    disclosure: ClassVar[Disclosure] = replace(
        WEIGHTED_ROWS, sometimes=lambda case: (1, 1), before=most_of_largest
    )
    discloses_labels: ClassVar[bool] = False

    inner_tolerance: Auto = "auto"
    """The tolerance of local problems; "auto" is rough at first and summable over the rounds
    (Theorem 2).
    """
    inner_epochs: int = 50
    """The largest number of sweeps over the agent's own samples in one round."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            is_positive = isinstance(value, Real) and 0 < float(value) < math.inf
            by_norm = self.linearised and name == "eta"
            if value == "auto" or is_positive or (by_norm and value == "norm"):
                continue
            words = "a positive number or 'auto'"
            if by_norm:
                words = "a positive number, 'norm' or 'auto'"
            raise InvalidProblem(f"{self.name}: {name} must be {words}, not {value!r}.")
        whole_number(f"{self.name}: inner_epochs", self.inner_epochs)

    def warmed(self, agent: Agent, state: State, point: Point) -> State:
        w = agent.centred.inner(point.w).astype(state.w.dtype)
        if point.v is None:
            v = state.v
        else:
            v = point.v.astype(state.v.dtype)
        Xv = agent.centred.adjoint(agent.weighted(v))
        return self.from_here(replace(state, w=w, v=v, Xv=Xv))

    def measured(self, state: State) -> FloatArray:
        """Return the dual variables whose distances are measured: Xv, or v for linearised rules."""
        if self.linearised:
            return state.v
        return state.Xv

    def from_here(self, state: State) -> State:
        """Return the State that measures distances from its own model and dual variables."""
        return replace(state, w_tuned=state.w, dual_tuned=self.measured(state))

    def dual_step(
        self, agent: Agent, state: State, w: FloatArray, t: int
    ) -> tuple[FloatArray, FloatArray]:
        """Return v⁺ = argmin (1/n)ℓ*(v) + (ρη/2n²)‖v − v⁰‖²_M − ⟨Xᵀw, v⟩/n and Xv⁺.

        M is X_[k]ᵀX_[k], or τI, where τ is in `eta`.
        """
        n = agent.total
        v = state.v
        if not self.linearised:
            c = state.rho * state.eta / n
            tolerance = self.tolerance(t)
            return solve_block(agent, v, state.Xv, w, c, tolerance, self.inner_epochs, t)
        step = n / (state.rho * state.eta)
        scores = agent.centred.forward(w)
        v = agent.loss.dual_prox(v + step * scores, agent.labels, step)
        return v, agent.centred.adjoint(agent.weighted(v))

    def tolerance(self, t: int) -> float:
        """Return the tolerance of local problems in round t.

        Errors are relative to bounded moves, so a summable sequence makes them summable.
        """
        if self.inner_tolerance != "auto":
            return float(self.inner_tolerance)
        late = (TUNING.exact_from / t) ** TUNING.decay
        return float(min(TUNING.roughest, late))

    def point(self, agent: Agent, state: State) -> Point:
        return Point(agent.centred.plain(state.w), state.v)

    def coordinates(self, agent: Agent, state: State) -> tuple[Coordinate, ...]:
        """Return w and v in the metric of Lemma 2, where M measures v: as Xv, or as v itself."""
        if self.linearised:
            measured = "v"
            other = "Xv"
        else:
            measured = "Xv"
            other = "v"
        scale_of_w = 1 / math.sqrt(state.rho)
        scale_of_v = math.sqrt(state.rho * state.eta) / agent.total
        return (
            Coordinate("w", scale_of_w, shared=True),
            Coordinate(measured, scale_of_v, shared=False),
            Coordinate(other, 1.0, shared=False, counts=False),
        )

    def accelerated(self, problem: Problem) -> Steps:
        """Return this rule in Anderson's acceleration. For non-smooth losses, steps are relaxed
        until the map is nearly affine.

        Where the penalty is not strongly convex either, relaxed steps circle around the solution,
        and Halpern's anchor prevents that.
        """
        if problem.loss.smooth:
            return Anderson(self)
        if problem.penalty.strong_convexity <= 0:
            return Halpern(self)
        return Anderson(self, alpha=1.9, promise=0.3, patience=80, safeguard=10.0)


@dataclass(frozen=True)
class Admm(PrimalDual):
    """Equations (1) to (4)."""

    dual_first: ClassVar[bool]

    rho: Auto = "auto"
    """ρ; "auto" starts from a scale-free guess and balances primal and dual progress."""
    eta: float | Literal["auto", "norm"] = "auto"
    """η₁, or η₂ for the linearised rules; "auto" is K, or Kτ. "norm", for the linearised rules, is
    λmax(XᵀX), which the agents compute together: at most Kτ, for a few sums of d numbers.
    """

    def start(self, agent: Agent) -> Protocol[State]:
        assert agent.statistics is not None
        eta = float(agent.count)
        tau = 1.0
        if self.linearised and self.eta == "auto":
            # τ = max_k λmax(X_[k]ᵀ X_[k])
            # Lemma 1
            own = agent.centred.squared_norm(agent.data.weights)
            tau = yield from largest(agent, own)
            tau = tau or 1.0
        if self.eta == "auto":
            eta = eta * tau
        elif self.eta == "norm":
            # η₂ = λmax(XᵀX)
            # Section 3.2
            eta = (yield from norm_of_all(agent)) or 1.0
        else:
            eta = float(self.eta)
        rho = self.given_rho(agent.count) or self.first_rho(agent, eta)
        w = agent.centred.inner(agent.first_model())
        v = np.zeros(agent.design.shape[0], agent.design.dtype)
        return self.from_here(State(w, v, np.zeros_like(w), rho, eta, w, v))

    def given_rho(self, agents: int) -> float | None:
        """Return ρ if the caller gave it."""
        if self.rho == "auto":
            return None
        return float(self.rho)

    def first_rho(self, agent: Agent, eta: float) -> float:
        """Return the ρ of `balance` at w = 0 for estimated distances: `reach` for w, and the
        distance to ∇ℓ(0) for v, where Xᵀv = n∇P(0) in K equal parts.
        """
        assert agent.statistics is not None
        statistics = agent.statistics
        ridge = agent.problem.penalty.strong_convexity
        if self.linearised:
            return balance(statistics.reach, statistics.residual, statistics.total, eta)
        if not (statistics.primal_at_start > 0 and statistics.reach > 0):
            return 1.0
        rho = statistics.reach**2 / statistics.primal_at_start
        if agent.problem.loss.smooth or not ridge:
            return rho
        # For non-smooth losses w moves farther, but not beyond (λ/2)‖w‖² ≤ P(0): half-way, on a
        # log scale.
        farthest = math.sqrt(2 * statistics.primal_at_start / ridge)
        factor = max(1.0, farthest / statistics.reach)
        return rho * math.sqrt(factor)

    def first_way(self, agent: Agent, eta: float) -> float:
        """Return the distance that `first_rho` estimates for the Xv of all agents."""
        assert agent.statistics is not None
        statistics = agent.statistics
        if not statistics.reach > 0:
            return 0.0
        scale = statistics.reach * math.sqrt(eta)
        return statistics.total * statistics.primal_at_start / scale

    def round(self, agent: Agent, state: State, t: int) -> Protocol[State]:
        if self.dual_first:
            v, Xv = self.dual_step(agent, state, state.w, t)
            # w⁽ᵗ⁾ = prox_{ρg}(w⁽ᵗ⁻¹⁾ − (ρ/n) X(2v⁽ᵗ⁾ − v⁽ᵗ⁻¹⁾)),  ρ = 1/(βK)
            # (1), (2)
            total = yield Sum(2 * Xv - state.Xv)
            w, _ = self.primal_step(agent, state, total)
        else:
            # w⁽ᵗ⁾ = prox_{ρg}(w⁽ᵗ⁻¹⁾ − (ρ/n) Xv⁽ᵗ⁾)
            # (3), (4)
            total = yield Sum(state.Xv)
            w, ahead = self.primal_step(agent, state, total)
            v, Xv = self.dual_step(agent, state, ahead, t)
        return replace(state, w=w, v=v, Xv=Xv)

    def primal_step(
        self, agent: Agent, state: State, total: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return w⁺ and 2w⁺ − w, which all agents compute from the same sum."""

        def compute() -> tuple[FloatArray, FloatArray]:
            moved = state.w - (state.rho / agent.total) * total
            w = agent.problem.prox(moved, state.rho)
            return w, 2 * w - state.w

        return shared_result(total, compute)

    def tunes_after(self, t: int) -> bool:
        may_change = t in TUNING.smooth or t in TUNING.nonsmooth
        return may_change and self.given_rho(1) is None

    def tune(self, agent: Agent, state: State, t: int) -> Protocol[State]:
        """Move ρ towards the value that balances the distances of w and v."""
        smooth = agent.problem.loss.smooth
        share = _share_of_change(smooth, t)
        if share is None:
            return state
        squares = yield Sum(np.array([self._squared_way(agent, state)], float))
        primal = float(np.linalg.norm(state.w - state.w_tuned))
        dual = self._dual_way(agent, state, float(squares[0]))
        if not (primal > 0 and dual > 0):
            return state
        balanced = balance(primal, dual, agent.total, state.eta)
        factor = (balanced / state.rho) ** share
        if max(factor, 1 / factor) >= TUNING.worth_a_change:
            state = replace(state, rho=state.rho * factor)
        elif smooth:
            return state
        if smooth or (t >= TUNING.whole_way and agent.count > 1):
            return self.from_here(state)
        return state

    def _squared_way(self, agent: Agent, state: State) -> float:
        """Return the squared distance of the agent's own v, or Xv."""
        change = self.measured(state) - state.dual_tuned
        if self.linearised:
            return float(change @ agent.weighted(change))
        return float(change @ change)

    def _dual_way(self, agent: Agent, state: State, square: float) -> float:
        """Return the distance of the dual variables of all agents."""
        way = math.sqrt(square)
        if agent.count > 1 or agent.problem.loss.smooth or self.linearised:
            return way
        # With one agent, Xv ends near its start, at −n∇g(w), so its distance determines no scale.
        return max(way, TUNING.least_way * self.first_way(agent, state.eta))


def _share_of_change(smooth: bool, t: int) -> float | None:
    """Return how far ρ goes after round t; None if it does not change."""
    if smooth:
        return TUNING.smooth.get(t)
    return TUNING.nonsmooth.get(t)


def norm_of_all(agent: Agent) -> Protocol[float]:
    """Return λmax(XᵀX) of the rows of all agents, rounded up a little, by Lanczos's method.

    Each step is a `Sum` of one number per coefficient. All agents have the same vectors.
    """
    vector = agent.common_random(0).standard_normal(agent.design.shape[1])
    basis = (vector / np.linalg.norm(vector))[np.newaxis]
    diagonal: list[float] = []
    off: list[float] = []
    top = 0.0
    for _ in range(min(TUNING.norm_steps, agent.design.shape[1])):
        scores = agent.centred.forward(basis[-1].astype(agent.design.dtype))
        own = agent.centred.adjoint(agent.weighted(scores))
        product = (yield Sum(own.astype(float))).astype(float)
        diagonal.append(float(basis[-1] @ product))
        # Twice is enough: rounding would leave a part of the vectors before.
        for _ in range(2):
            product = product - basis.T @ (basis @ product)
        before = top
        top = extreme_eigenvalues(diagonal, off)[1]
        beta = float(np.linalg.norm(product))
        if beta <= TUNING.norm_margin * TUNING.norm_margin * top:
            break
        if len(diagonal) > 3 and top - before <= 0.1 * TUNING.norm_margin * top:
            break
        off.append(beta)
        basis = np.vstack([basis, product / beta])
    return top * (1.0 + TUNING.norm_margin)


def _most_before(case: Case) -> Counts:
    """Return the largest counts before the first round, with any `eta`."""
    collectives, numbers = most_of_largest(case)
    width = case.columns + case.intercept
    steps = min(TUNING.norm_steps, width)
    return max(collectives, steps), max(numbers, steps * width)


@dataclass(frozen=True)
class Consensus(Admm):
    """Consensus ADMM, equation (1)."""

    name: ClassVar[str] = "consensus"
    summary: ClassVar[str] = "consensus ADMM: exact local problems"
    dual_first: ClassVar[bool] = True

    beta: Auto = "auto"
    """β = 1/(ρK), the paper's parameter of the consensus rules, in place of `rho`."""

    def given_rho(self, agents: int) -> float | None:
        if self.beta == "auto":
            return super().given_rho(agents)
        return 1.0 / (float(self.beta) * agents)


@dataclass(frozen=True)
class LinConsensus(Consensus):
    """Linearised consensus ADMM, equation (2)."""

    name: ClassVar[str] = "lin-consensus"
    summary: ClassVar[str] = "linearised consensus ADMM: closed-form local steps"
    disclosure: ClassVar[Disclosure] = replace(Admm.disclosure, before=_most_before)
    linearised: ClassVar[bool] = True


@dataclass(frozen=True)
class Proximal1(Admm):
    """Proximal ADMM on the dual, equation (3)."""

    name: ClassVar[str] = "proximal-1"
    summary: ClassVar[str] = "proximal ADMM: exact local problems"
    dual_first: ClassVar[bool] = False

    @classmethod
    def score(
        cls, problem: Problem, network: Network, sizes: Sizes | None = None
    ) -> tuple[float, str] | None:
        if knows(problem.loss):
            return (2.0, "exact local problems save rounds")
        return None


@dataclass(frozen=True)
class Proximal2(Proximal1):
    """Linearised proximal ADMM on the dual, equation (4)."""

    name: ClassVar[str] = "proximal-2"
    tensors: ClassVar[bool] = True
    summary: ClassVar[str] = "linearised proximal ADMM: closed-form local steps"
    disclosure: ClassVar[Disclosure] = replace(Admm.disclosure, before=_most_before)
    linearised: ClassVar[bool] = True

    @classmethod
    def score(
        cls, problem: Problem, network: Network, sizes: Sizes | None = None
    ) -> tuple[float, str]:
        return 1.0, "its local steps have a closed form for every loss and penalty"


def balance(primal: float, dual: float, n: float, eta: float) -> float:
    """Return the ρ for which both distances have the same weight in the metric of Lemma 2:

    ‖Δw‖²/ρ = ρη‖Δv‖²_M/n².
    """
    if primal > 0 and dual > 0 and eta > 0:
        return n * primal / (math.sqrt(eta) * dual)
    return 1.0
