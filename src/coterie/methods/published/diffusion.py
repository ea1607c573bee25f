"""Diffusion learning of "An Exponentially Convergent Algorithm for Learning under Distributed
Features" (Ying, Yuan, Sayed): columns split over the agents of any connected graph, every iteration
one `Mix` among neighbours.

| paper                | code                  | meaning
                       |
|----------------------|-----------------------|-----------------------------------------------------------------------|
| N, K                 | `n`, `agent.count`    | samples, agents
                       |
| h_{n,k}, w_k         | `agent.design`, `w`   | its own columns of sample n, and their coefficients
                       |
| γ_n, Q(·; γ_n)       | label, `problem.loss` | the label, known to all, and the loss, smooth, Q'
                       its derivative      |
| A = [a_ℓk]           | `mixing`              | symmetric, doubly stochastic
                       |
| μ                    | `step`                | the step size
                       |
| J                    | `pipeline`            | slots of the pipeline: how often a score is mixed
                       before it is used   |
| u_{n,k}, v_{n,k}     | `memory`              | the score of n that k used last, and K h_{n,k}ᵀ w_k
                       at that time      |
| (1/N) Σ Q'(u_n) h_n  | `average`             | the average gradient of the memory, SAGA's
                       |
| z_{n,k}              | the messages          | on their way from K h_{n,k}ᵀ w_k to the score Σ_k
                       h_{n,k}ᵀ w_k        |

Everybody's gradient needs everybody's label: **choosing one of these methods tells the labels (and
the weights) to all agents**, once, in the set-up. From the messages of `graph-cp` and `tree` they
can be computed, too.

All agents draw the same samples from the run's seed, without a message. The objective has an l2
penalty ρ > 0, so the gradient has a further term ρ w_k; the intercept, held by the agent with the
labels, has none. (Without strong convexity in the intercept's direction Theorem 1 does not apply;
with both classes or with any quadratic loss the objective still has one minimiser, and the methods
find it.) A sample of weight s has the loss (N s / Σ s) Q.

Beyond the paper: **columns in one unit**. Unless a step is given, and where it promises fewer
epochs, all of this is done with columns c_j h_j whose part of the curvature is the same, c_j² (mean
of h_j² + ρ/β) = 1.

And **the pipeline's filter**. J mixings multiply the disagreement of a score among the agents by a
polynomial p(A), A^J in the paper. `chebyshev` takes, with the same messages, the polynomial of
degree J that is least on the spectrum of A among those that are nowhere negative there,

    p = (1 + T_J(x̂)) / (1 + T_J(x̂(1))),      x̂ maps [λ_min, λ₂] of A to [−1, 1].

Not negative matters. Let a = K h_kᵀ w_k differ between the agents in a mode of which the pipeline
leaves p, and let y = u + a − v be what is pushed of it. With the curvature h of the objective along
that mode, and κ = K ∇²_k, each iteration moves them on average by

    a' = −μ h a − μ κ p y,      y' = −((1 − p) / N) y + a',      stable exactly if  μ κ p + μ h + (1
                                − p) / N > 0:

for every step if p ≥ 0, but only for steps of the order 1/N if p < 0. So an indefinite A
(Metropolis weights on a ring) wants a small step with J = 1, and T_J(x̂) / T_J(x̂(1)) itself, half
as large as p, diverges on correlated columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from coterie.errors import InvalidProblem
from coterie.methods.method import Method, Rows
from coterie.methods.published.diffusion_rows import (
    by_rows,
    column_scale,
    gain,
    least_bend,
    row_squares,
)
from coterie.methods.published.mixing_filter import mixing_filter, response, safe_step, spectrum_of
from coterie.networks import Network
from coterie.numerics.arrays import FloatArray, Matrix, as_number, is_sparse, whole_number
from coterie.numerics.kernels.pipeline import LABEL, WEIGHT, Z, advance, numbers, push
from coterie.numerics.losses import Loss
from coterie.numerics.losses.huber import Huber
from coterie.numerics.losses.logistic import Logistic
from coterie.numerics.losses.squared import Squared
from coterie.numerics.losses.squared_hinge import SquaredHinge
from coterie.problems.problem import Problem
from coterie.run.agent import Agent
from coterie.run.certificate import Point
from coterie.run.collectives import Mix, Protocol, Sum
from coterie.run.disclosure import LABELS_FIRST, SAME, Case, Counts, Disclosure
from coterie.run.steps import S

SLOPES: dict[type[Loss], int] = {Squared: 0, Huber: 1, SquaredHinge: 2, Logistic: 3}
"""The losses whose slope `numerics/kernels/pipeline.py` has, and its number there."""


@dataclass(frozen=True, slots=True)
class State:
    """Where one agent stands between two rounds, with all that is in the pipeline."""

    w: FloatArray
    average: FloatArray
    """(1/N) Σ_n Q'(u_n) h_{n,k}, in double precision, because a long sum is accumulated in it."""
    memory: FloatArray
    """One row per sample: u, v, its label, its weight times N / Σ weights."""
    pipe: FloatArray
    """Four rows of J·batch numbers, see `numerics/kernels/pipeline.py`; the oldest slot is the
    first.
    """
    sequence: npt.NDArray[np.intp]
    """The samples in the J slots, −1 in those that are still empty."""
    step: float
    filters: FloatArray
    """α_j, β_j, γ_j for each age j."""
    tau: float
    scale: FloatArray
    """c_j of every column, the intercept's is 1; the model is scale ∘ w."""


@dataclass(frozen=True)
class FullState:
    """Where one agent stands between two full-gradient iterations."""

    w: FloatArray
    z: FloatArray
    """z_{n,k} for all samples."""
    before: FloatArray
    """K h_{n,k}ᵀ w_k for all samples, one iteration ago."""
    labels: FloatArray
    weights: FloatArray
    step: float
    scale: FloatArray
    """c_j of every column; w is in the columns' own units."""


@dataclass(frozen=True)
class _Family(Method[S, Rows]):
    """What the family shares: the problems it solves, the mixing matrix, and what the agents tell
    each other first.
    """

    split: ClassVar[str] = "features"
    disclosure: ClassVar[Disclosure] = Disclosure(
        sent=f"{LABELS_FIRST} the partial scores of a few rows, mixed",
        learned=(
            "the labels; and after as many rounds as you have columns, your columns up to a "
            "rotation"
        ),
        secure=SAME,
        most=lambda case: (case.rows, case.rows),
        before=lambda case: _most_before(case),
    )
    tells_labels: ClassVar[bool] = True

    step: float | Literal["auto"] = "auto"
    """μ; "auto" is a safe one, from the norms of the rows and of the blocks of columns, brought to
    one unit.
    """
    mixing: str | Matrix = "metropolis"
    """A: "metropolis", "laplacian-mixing", or a symmetric doubly stochastic matrix on the edges of
    the network.
    """

    def __post_init__(self) -> None:
        if self.step != "auto":
            if isinstance(self.step, bool) or not 0 < as_number(self.step) < math.inf:
                raise InvalidProblem(
                    f"{self.name}: step must be a positive number or 'auto', not {self.step!r}."
                )
            object.__setattr__(self, "step", float(self.step))
        if not isinstance(self.mixing, str):
            if is_sparse(self.mixing):
                matrix = self.mixing.toarray()
            else:
                matrix = np.asarray(self.mixing, float)
            object.__setattr__(self, "mixing", matrix.tolist())
        elif self.mixing.replace("_", "-") == "laplacian":
            raise InvalidProblem(
                f"{self.name}: the Laplacian is not doubly stochastic; use 'laplacian-mixing' or "
                "'metropolis'."
            )

    @cached_property
    def rule(self) -> str | FloatArray:
        """A as a `Mix` takes it: the same object each time."""
        if isinstance(self.mixing, str):
            return self.mixing
        return np.array(self.mixing, float)

    def check(self, problem: Problem, network: Network) -> None:
        able = [loss for loss in SLOPES if loss.moves_with_labels or not problem.offset]
        if type(problem.loss) not in able:
            what = (
                f"{' or '.join(loss.name for loss in able)} "
                f"loss{' beside an offset' * problem.offset}"
            )
            said = (
                f"{self.name} needs a {what}, whose slope is compiled; this problem has "
                f"{problem.loss.name!r}."
            )
            raise InvalidProblem(f"{said} Use graph-cp, which takes every loss.")
        if not problem.penalty.quadratic:
            raise InvalidProblem(
                f"{self.name} needs an l2 penalty (quadratic); this problem has "
                f"{problem.penalty.name!r}. "
                "Use graph-cp, which takes every penalty, or penalty='l2'."
            )
        network.mixing(self.rule)

    def _share(
        self, agent: Agent
    ) -> Protocol[tuple[FloatArray, FloatArray, FloatArray, FloatArray]]:
        """Labels, weights (with mean 1) and ‖h_n‖² of all samples: from here on every agent knows
        them; and its c_j.
        """
        measures = self.step == "auto"
        scale = column_scale(agent)
        told = np.zeros((3 + measures, agent.design.shape[0]), agent.design.dtype)
        if agent.data.y is not None:
            told[0] = agent.labels
            if agent.data.weights is None:
                told[1] = 1.0
            else:
                told[1] = agent.data.weights
        told[2] = row_squares(agent.design)
        if measures:
            told[3] = row_squares(agent.design, scale)
        labels, weights, squares, *scaled = yield Sum(told)
        weights = weights * (len(weights) / agent.total)
        if measures:
            # One unit for all columns shortens the step where some are mostly 0: does it make good
            # for it?
            least = yield Sum(agent.one_hot(least_bend(agent)))
            beta = agent.problem.loss.smoothness
            rows = [float((weights * one).max()) for one in (squares, *scaled)]
            if rows[1] + 1.0 < gain() * (beta * rows[0] + self._ridge(agent)) / float(
                least[least > 0].min()
            ):
                return labels, weights, scaled[0], scale
        return labels, weights, squares, np.ones(len(scale))

    def _blocks(self, agent: Agent, weights: FloatArray, scale: FloatArray) -> Protocol[FloatArray]:
        """A bound on the curvature of the losses in the columns of each agent: λmax of β X_kᵀ
        diag(weights) X_k / N.
        """
        n = agent.design.shape[0]
        weights = weights.astype(float)
        squared_norms: FloatArray = yield Sum(
            agent.one_hot(agent.design.squared_norm(weights, columns=scale))
        )
        return squared_norms * (agent.problem.loss.smoothness / n)

    def _ridge(self, agent: Agent) -> float:
        return agent.problem.penalty.strong_convexity


def _most_before(case: Case) -> Counts:
    """The largest counts before the first round: labels, weights and lengths of rows; curvatures;
    the network.
    """
    return 5, 4 * case.rows + 3 * case.parties + case.parties**2


@dataclass(frozen=True)
class _Stochastic(_Family[State]):
    """One sample (or batch) an iteration, the same at every agent."""

    remembers: ClassVar[bool] = True
    """Whether u, v and their average gradient correct what one mixing and one sample get wrong."""

    batch: int = 1
    """Samples per iteration."""
    iterations_per_round: int | None = None
    """By default as many as make one pass over the data."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in (
            ("batch", self.batch),
            ("iterations_per_round", self.iterations_per_round),
        ):
            if not (value is None and name != "batch"):
                whole_number(f"{self.name}: {name}", value)

    def _wishes(self) -> tuple[int | Literal["auto"], bool | Literal["auto"]]:
        """The pipeline's length, and whether its filter is Chebyshev's."""
        return 1, False

    def start(self, agent: Agent) -> Protocol[State]:
        labels, weights, squares, scale = yield from self._share(agent)
        length, chebyshev = self._wishes()
        spectrum: FloatArray = np.zeros(0)
        if self.step == "auto" or length == "auto" or chebyshev == "auto" or chebyshev:
            spectrum = yield from spectrum_of(agent, self.rule)
        filters, tau = mixing_filter(spectrum, length, chebyshev)
        if self.step == "auto":
            blocks = yield from self._blocks(agent, weights, scale)
            if self.remembers:
                least = float(response(filters, tau, spectrum).min(initial=0.0))
            else:
                least = 0.0
            row = agent.problem.loss.smoothness * float((weights * squares).max()) + self._ridge(
                agent
            )
            step = safe_step(row, blocks, len(labels), self.batch, filters.shape[1], least)
        else:
            step = self.step

        n = len(labels)
        columns = agent.design.shape[1]
        dtype = agent.design.dtype
        memory = np.zeros((n, 4), dtype)
        memory[:, LABEL], memory[:, WEIGHT] = labels, weights
        # avg_k starts at (1/N) Σ_n Q'(0; γ_n) h_{n,k}: u = 0 is what the memory holds
        gradients = weights * agent.problem.loss.gradient(np.zeros(n, dtype), labels)
        if self.remembers:
            average = scale * agent.design.adjoint(gradients.astype(float)) / n
        else:
            average = np.zeros(columns)
        J = filters.shape[1]
        pipe = np.zeros((4, J * self.batch), dtype)
        sequence = np.full((J, self.batch), -1, np.intp)
        return State(
            np.zeros(columns, dtype), average, memory, pipe, sequence, step, filters, tau, scale
        )

    def round(self, agent: Agent, state: State, t: int) -> Protocol[State]:
        n = len(state.memory)
        J, B = state.sequence.shape
        iterations = self.iterations_per_round or -(-n // B)
        loss = agent.problem.loss
        if isinstance(loss, Huber):
            threshold = loss.threshold
        else:
            threshold = 0.0
        constants = numbers(
            SLOPES[type(loss)],
            threshold,
            agent.count,
            state.step,
            state.tau,
            agent.design.intercept,
            self.remembers,
        )
        rows = by_rows(agent, bool((state.scale != 1.0).any()))
        filters = state.filters
        shrink = 1.0 - state.step * (self._ridge(agent) * state.scale**2)
        w = state.w.copy()
        average = state.average.copy()
        memory = state.memory.copy()
        pipe = state.pipe.copy()
        # n_i ~ U[1, N], the same at all agents
        # (9), (22), (31)
        drawn = agent.common_random(t).integers(0, n, (iterations, B))
        sequence = np.concatenate([state.sequence, drawn])

        push(*rows, w, memory, pipe, sequence[J], 0, constants)
        collective = Mix(pipe[Z], self.rule)
        for i in range(iterations):
            # [z⁽¹⁾, ..., z⁽ᴶ⁾]_k = Σ_ℓ a_ℓk [z⁽⁰⁾, ..., z⁽ᴶ⁻¹⁾]_ℓ
            # (37)
            reply = yield collective
            # w_k ← w_k − μ {[Q'(z⁽ᴶ⁾) − Q'(u_n')] h_{n',k} + avg_k + ρ w_k};  u_n' ← z⁽ᴶ⁾;  v_n' ←
            # v⁽⁰⁾      (33)–(35)
            advance(reply, i, *rows, w, average, memory, pipe, sequence, filters, constants, shrink)
        oldest_first = np.roll(pipe.reshape(4, J, B), -(iterations % J), axis=1).reshape(4, J * B)
        in_flight = sequence[iterations:].copy()
        return replace(
            state, w=w, average=average, memory=memory, pipe=oldest_first, sequence=in_flight
        )

    def point(self, agent: Agent, state: State) -> Point:
        return Point((state.scale * state.w).astype(state.w.dtype, copy=False))


@dataclass(frozen=True)
class Diffusion(_Stochastic):
    """Algorithm 1, the naïve one: a score is mixed once and used. Biased unless A averages at
    once.
    """

    name: ClassVar[str] = "diffusion"
    summary: ClassVar[str] = (
        "stochastic gradients of scores mixed once: near the optimum, never at it"
    )
    remembers: ClassVar[bool] = False


@dataclass(frozen=True)
class VRD2(_Stochastic):
    """Algorithm 2, variance-reduced dynamic diffusion: linear convergence to the exact
    minimiser.
    """

    name: ClassVar[str] = "vrd2"
    summary: ClassVar[str] = (
        "variance-reduced dynamic diffusion: exact, one number per iteration and neighbour"
    )


@dataclass(frozen=True)
class PVRD2(_Stochastic):
    """Algorithm 3, VRD² with a pipeline: every score is mixed J times before it is used, without
    waiting for it.
    """

    name: ClassVar[str] = "pvrd2"
    disclosure: ClassVar[Disclosure] = replace(_Family.disclosure, most=None)
    """How long its messages are depends on the network."""
    summary: ClassVar[str] = "pipelined VRD²: exact, scores are mixed J times on their way"

    pipeline: int | Literal["auto"] = "auto"
    """J; "auto" is the shortest that leaves little of the agents' disagreement, from the spectrum
    of A.
    """
    chebyshev: bool | Literal["auto"] = "auto"
    """Filter by a non-negative Chebyshev polynomial of A in place of A^J, with the same messages;
    "auto": if better.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pipeline != "auto":
            whole_number("pvrd2: pipeline", self.pipeline)
        if self.chebyshev not in (True, False, "auto"):
            raise InvalidProblem(
                f"pvrd2: chebyshev must be True, False or 'auto', not {self.chebyshev!r}."
            )

    def _wishes(self) -> tuple[int | Literal["auto"], bool | Literal["auto"]]:
        return self.pipeline, self.chebyshev


@dataclass(frozen=True)
class DynamicDiffusion(_Family[FullState]):
    """The deterministic comparison, (18)–(19) for all samples at once: full gradients of scores
    that are tracked.
    """

    name: ClassVar[str] = "dynamic-diffusion"
    summary: ClassVar[str] = (
        "full gradients of tracked scores: exact, N numbers per iteration and neighbour"
    )
    disclosure: ClassVar[Disclosure] = replace(
        _Family.disclosure,
        sent=f"{LABELS_FIRST} the partial scores of all rows, mixed",
        most=lambda case: (1, case.rows),
    )

    def start(self, agent: Agent) -> Protocol[FullState]:
        labels, weights, _, scale = yield from self._share(agent)
        if self.step == "auto":
            blocks = yield from self._blocks(agent, weights, scale)
            step = 1.0 / (agent.count * float(blocks.max()) + self._ridge(agent))
        else:
            step = self.step
        zeros = np.zeros(len(labels), agent.design.dtype)
        w = np.zeros(agent.design.shape[1], agent.design.dtype)
        return FullState(w, zeros, zeros, labels, weights, step, scale.astype(w.dtype))

    def round(self, agent: Agent, state: FullState, t: int) -> Protocol[FullState]:
        # z_{n,k} ← Σ_ℓ a_ℓk (z_{n,ℓ} + K h_{n,ℓ}ᵀ w_ℓ − K h_{n,ℓ}ᵀ w_ℓ'), w' one iteration ago
        # (18), (19)
        scores = agent.count * agent.design.forward(state.w)
        z = yield Mix(state.z + scores - state.before, self.rule)
        # w_k ← w_k − μ c² {(1/N) Σ_n Q'(z_{n,k}) h_{n,k} + ρ w_k}
        gradients = state.weights * agent.problem.loss.gradient(z, state.labels)
        pull = self._ridge(agent) * state.w
        if agent.design.intercept:
            pull[-1] = 0.0
        w = state.w - state.step * state.scale**2 * (
            agent.design.adjoint(gradients) / len(gradients) + pull
        )
        return replace(state, w=w, z=z, before=scores)

    def point(self, agent: Agent, state: FullState) -> Point:
        return Point(state.w)
