"""The primal-dual family of "CoCoA Is ADMM" (Wu, Liu, Wang, Wang): samples split over agents around
a server.

| paper            | code             | meaning
                   |
|------------------|------------------|-------------------------------------------------------------------------------|
| w                | `w`              | the model, the same at every agent
                   |
| v_[k]            | `v`              | the dual, one number per own sample
                   |
| X_[k] v_[k]      | `Xv`             | what the agent says of it
                   |
| X_[k] (d × n_k)  | `agent.centred`  | its own data (rows are samples here), with the intercept's
                   column             |
| ρ, β             | `rho`, `beta`    | the parameter of the augmented Lagrangian; βK = 1/ρ
                   |
| η₁, η₂ = ητ      | `eta`            | keeps Q₁, Q₂ positive semi-definite (Lemma 1); η = K by
                   default               |
| τ                | `tau`            | max over k of λmax(X_[k]ᵀ X_[k])
                   |
| σ', γ            | `sigma`, `gamma` | CoCoA's subproblem and aggregation parameters; K and 1 by
                   default             |

All rules move w by prox_{ρg}(w − (ρ/n) X·) and v by a proximal step with the metric (ρη/n²) M. They
differ in two
lines:

|                 | who moves first, and who is looked ahead            | M                 |
|-----------------|-----------------------------------------------------|-------------------|
| `consensus`     | v, then w at 2v⁺ − v                            (1) | X_[k]ᵀ X_[k]      |
| `lin-consensus` | v, then w at 2v⁺ − v                            (2) | τ I               |
| `proximal-1`    | w, then v at 2w⁺ − w                            (3) | X_[k]ᵀ X_[k]      |
| `proximal-2`    | w, then v at 2w⁺ − w                            (4) | τ I               |
| `cocoa`         | w = ∇g*(−Xv/n), then v at w                     (5) | X_[k]ᵀ X_[k]      |

With sample weights s, a sample of weight 2 is two samples: X_[k] v is a weighted sum and τ the norm
of √s X.
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
from coterie.run.disclosure import WEIGHTED_ROWS, Disclosure
from coterie.run.steps import Coordinate, Steps

Auto = float | Literal["auto"]


@dataclass(frozen=True)
class _Tuning(Tuning):
    smooth_first: int = tuned(
        4, "The first round after which ρ may change by itself, ...", costs=2.5
    )
    smooth_share: float = tuned(
        0.5, "... and how far late changes go to the balanced one, in logarithms.", below=1
    )
    kinks_pace: float = tuned(
        1.0, "By what factor later than 3, 6, 10, ... it may with kinks, ...", costs=2.0
    )
    kinks_share: float = tuned(0.25, "... and how far late changes go there.", below=1)
    whole_way: int = tuned(
        80, "With kinks, the way is measured from the start until this round, then in stretches."
    )
    worth_a_change: float = tuned(
        1.15, "Closer than by this factor, ρ stays as it is.", above=1, costs=2.5
    )
    least_way: float = tuned(
        0.3, "Of one agent's first guess of the way, at least this share counts as gone.", below=1
    )
    roughest: float = tuned(0.1, "How exactly local problems are solved at first.", below=1)
    exact_from: float = tuned(10.0, "The round from which they are solved better.")
    decay: float = tuned(
        1.1,
        "The power of the round by which errors fall.",
        "theorem: errors above 1 are summable",
        above=1,
    )

    @cached_property
    def smooth(self) -> dict[int, float]:
        """After which rounds ρ may change, and how far. Finitely many, so proofs for a fixed ρ
        apply to the rest.
        """
        first = self.smooth_first
        late = self.smooth_share
        return {first: 1.0, 3 * first: 0.75, 6 * first: 0.75} | {
            12 * first * 2**j: late for j in range(10)
        }

    @cached_property
    def kinks(self) -> dict[int, float]:
        """With kinks, Anderson's memory, which a change of ρ empties, is of little use at first."""
        early = {int(t * self.kinks_pace): 1.0 for t in (3, 6, 10, 16, 25, 40, 80)}
        return early | {int(80 * 1.5**j * self.kinks_pace): self.kinks_share for j in range(1, 14)}


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
    """w from which travelled distances are measured: when ρ was last changed; with kinks, see
    `whole_way`.
    """
    dual_tuned: FloatArray
    """The dual from which they are, as it is measured: Xv, or v for the linearised rules."""


@dataclass(frozen=True)
class PrimalDual(Method[State, Rows]):
    """What the five rules share."""

    split: ClassVar[str] = "samples"
    linearised: ClassVar[bool] = False
    disclosure: ClassVar[Disclosure] = replace(
        WEIGHTED_ROWS, sometimes=lambda case: (1, 1), before=most_of_largest
    )
    tells_labels: ClassVar[bool] = False

    inner_tolerance: Auto = "auto"
    """How exactly local problems are solved; "auto" is rough at first and summable over the rounds
    (Theorem 2).
    """
    inner_epochs: int = 50
    """Sweeps over its own samples in one round at most."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value != "auto" and not (isinstance(value, Real) and 0 < float(value) < math.inf):
                raise InvalidProblem(
                    f"{self.name}: {name} must be a positive number or 'auto', not {value!r}."
                )
        whole_number(f"{self.name}: inner_epochs", self.inner_epochs)

    def warmed(self, agent: Agent, state: State, point: Point) -> State:
        w = agent.centred.inner(point.w).astype(state.w.dtype)
        if point.v is None:
            v = state.v
        else:
            v = point.v.astype(state.v.dtype)
        return self.from_here(replace(state, w=w, v=v, Xv=agent.centred.adjoint(agent.weighted(v))))

    def from_here(self, state: State) -> State:
        """The State that measures distances from where it is."""
        return replace(state, w_tuned=state.w, dual_tuned=state.v if self.linearised else state.Xv)

    def dual_step(
        self, agent: Agent, state: State, w: FloatArray, t: int
    ) -> tuple[FloatArray, FloatArray]:
        """v⁺ = argmin (1/n)ℓ*(v) + (ρη/2n²)‖v − v⁰‖²_M − ⟨Xᵀw, v⟩/n, for M = X_[k]ᵀX_[k] or τI (τ
        is in `eta`); Xv⁺.
        """
        n = agent.total
        rho = state.rho
        eta = state.eta
        v = state.v
        if not self.linearised:
            return solve_block(
                agent, v, state.Xv, w, rho * eta / n, self.tolerance(t), self.inner_epochs, t
            )
        step = n / (rho * eta)
        v = agent.loss.dual_prox(v + step * agent.centred.forward(w), agent.labels, step)
        return v, agent.centred.adjoint(agent.weighted(v))

    def tolerance(self, t: int) -> float:
        """Errors relative to bounded moves, so a summable sequence makes them summable."""
        if self.inner_tolerance != "auto":
            return float(self.inner_tolerance)
        return float(min(TUNING.roughest, (TUNING.exact_from / t) ** TUNING.decay))

    def point(self, agent: Agent, state: State) -> Point:
        return Point(agent.centred.plain(state.w), state.v)

    def coordinates(self, agent: Agent, state: State) -> tuple[Coordinate, ...]:
        """w and v in the metric of Lemma 2, where v is measured by M: as Xv, or as it is."""
        metric = math.sqrt(state.rho * state.eta) / agent.total
        if self.linearised:
            measured = "v"
            other = "Xv"
        else:
            measured = "Xv"
            other = "v"
        return (
            Coordinate("w", 1 / math.sqrt(state.rho), shared=True),
            Coordinate(measured, metric, shared=False),
            Coordinate(other, 1.0, shared=False, counts=False),
        )

    def accelerated(self, problem: Problem) -> Steps:
        """Anderson's; where the loss has kinks, only once the map has become nearly affine, and
        relaxed until then.

        Where nothing is strongly convex either, relaxed steps circle around the solution: an anchor
        stops that.
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
    eta: Auto = "auto"
    """η₁, or η₂ for the linearised rules; "auto" is K, or Kτ."""

    def start(self, agent: Agent) -> Protocol[State]:
        assert agent.statistics is not None
        eta = float(agent.count)
        tau = 1.0
        if self.linearised and self.eta == "auto":
            # τ = max_k λmax(X_[k]ᵀ X_[k])
            # Lemma 1
            tau = (yield from largest(agent, agent.centred.squared_norm(agent.data.weights))) or 1.0
        if self.eta == "auto":
            eta = eta * tau
        else:
            eta = float(self.eta)
        rho = self.given_rho(agent.count) or self.first_rho(agent, eta)
        w = agent.centred.inner(agent.first_model())
        v = np.zeros(agent.design.shape[0], agent.design.dtype)
        return self.from_here(State(w, v, np.zeros_like(w), rho, eta, w, v))

    def given_rho(self, agents: int) -> float | None:
        """ρ if the caller gave it."""
        if self.rho == "auto":
            return None
        return float(self.rho)

    def first_rho(self, agent: Agent, eta: float) -> float:
        """`balance` at w = 0, as if w had to travel `reach` and v to ∇ℓ(0), where Xᵀv = n∇P(0) in K
        equal parts.
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
        # With kinks w travels farther, but not beyond (λ/2)‖w‖² ≤ P(0): half-way, on a log scale.
        farthest = math.sqrt(2 * statistics.primal_at_start / ridge)
        return rho * math.sqrt(max(1.0, farthest / statistics.reach))

    def first_way(self, agent: Agent, eta: float) -> float:
        """How far `first_rho` takes the Xv of all agents to travel."""
        assert agent.statistics is not None
        statistics = agent.statistics
        if statistics.reach > 0:
            return (
                statistics.total * statistics.primal_at_start / (statistics.reach * math.sqrt(eta))
            )
        return 0.0

    def round(self, agent: Agent, state: State, t: int) -> Protocol[State]:
        if self.dual_first:
            v, Xv = self.dual_step(agent, state, state.w, t)
            # w⁽ᵗ⁾ = prox_{ρg}(w⁽ᵗ⁻¹⁾ − (ρ/n) X(2v⁽ᵗ⁾ − v⁽ᵗ⁻¹⁾)),  ρ = 1/(βK)
            # (1), (2)
            w, _ = self.primal_step(agent, state, (yield Sum(2 * Xv - state.Xv)))
        else:
            # w⁽ᵗ⁾ = prox_{ρg}(w⁽ᵗ⁻¹⁾ − (ρ/n) Xv⁽ᵗ⁾)
            # (3), (4)
            w, ahead = self.primal_step(agent, state, (yield Sum(state.Xv)))
            v, Xv = self.dual_step(agent, state, ahead, t)
        return replace(state, w=w, v=v, Xv=Xv)

    def primal_step(
        self, agent: Agent, state: State, total: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """w⁺ and 2w⁺ − w, which follow from what everybody heard."""

        def compute() -> tuple[FloatArray, FloatArray]:
            w = agent.problem.prox(state.w - (state.rho / agent.total) * total, state.rho)
            return w, 2 * w - state.w

        return shared_result(total, compute)

    def tunes_after(self, t: int) -> bool:
        return self.given_rho(1) is None and (t in TUNING.smooth or t in TUNING.kinks)

    def tune(self, agent: Agent, state: State, t: int) -> Protocol[State]:
        smooth = agent.problem.loss.smooth
        share = (TUNING.smooth if smooth else TUNING.kinks).get(t)
        if share is None:
            return state
        change = (state.v if self.linearised else state.Xv) - state.dual_tuned
        moved = change @ (agent.weighted(change) if self.linearised else change)
        dual = math.sqrt((yield Sum(np.array([moved], float)))[0])
        if agent.count == 1 and not smooth and not self.linearised:
            # One agent's Xv ends near where it began, at −n∇g(w): that tells no length.
            dual = max(dual, TUNING.least_way * self.first_way(agent, state.eta))
        primal = float(np.linalg.norm(state.w - state.w_tuned))
        if not (primal > 0 and dual > 0):
            return state
        factor = (balance(primal, dual, agent.total, state.eta) / state.rho) ** share
        if max(factor, 1 / factor) >= TUNING.worth_a_change:
            state = replace(state, rho=state.rho * factor)
        elif smooth:
            return state
        stretches = smooth or (t >= TUNING.whole_way and agent.count > 1)
        if stretches:
            return self.from_here(state)
        return state


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
    linearised: ClassVar[bool] = True

    @classmethod
    def score(
        cls, problem: Problem, network: Network, sizes: Sizes | None = None
    ) -> tuple[float, str]:
        return 1.0, "its local steps have a closed form for every loss and penalty"


def balance(primal: float, dual: float, n: float, eta: float) -> float:
    """The ρ for which both distances weigh the same in the metric of Lemma 2: ‖Δw‖²/ρ =
    ρη‖Δv‖²_M/n².
    """
    if primal > 0 and dual > 0 and eta > 0:
        return n * primal / (math.sqrt(eta) * dual)
    return 1.0
