"""Diffusion learning of "An Exponentially Convergent Algorithm for Learning under Distributed
Features" (Ying, Yuan, Sayed): columns split over the agents of any connected graph, with one `Mix`
among neighbours per iteration.

| paper                | code                  | meaning                                          |
|----------------------|-----------------------|--------------------------------------------------|
| N, K                 | `n`, `agent.count`    | samples, agents                                  |
| h_{n,k}, w_k         | `agent.design`, `w`   | the columns of agent k of sample n, and their    |
|                      |                       | coefficients                                     |
| γ_n, Q(·; γ_n)       | label, `problem.loss` | the label, which all agents know, and the smooth |
|                      |                       | loss; Q' is its derivative                       |
| A = [a_ℓk]           | `mixing`              | symmetric, doubly stochastic                     |
| μ                    | `step`                | the step size                                    |
| J                    | `pipeline`            | slots of the pipeline: the number of mixings of  |
|                      |                       | a score before it is used                        |
| u_{n,k}, v_{n,k}     | `memory`              | the score of n that k used last, and             |
|                      |                       | K h_{n,k}ᵀ w_k at that time                      |
| (1/N) Σ Q'(u_n) h_n  | `average`             | the average gradient of the memory, as in SAGA   |
| z_{n,k}              | the messages          | from K h_{n,k}ᵀ w_k on their way to the score    |
|                      |                       | Σ_k h_{n,k}ᵀ w_k                                 |

The gradient of every agent needs all labels: **these methods send the labels (and the weights) to
all agents**, once, before the first round. From the messages of `graph-cp` and `tree`, agents can
compute the labels, too.

All agents draw the same samples from the seed of the run, without a message. The objective has an
l2 penalty ρ > 0, so the gradient has a further term ρ w_k. The intercept, at the label agent, has
no such term. (The objective is then not strongly convex in the direction of the intercept, and
Theorem 1 does not apply. With both classes or with any quadratic loss the objective still has one
minimiser, and the methods find it.) A sample of weight s has the loss (N s / Σ s) Q.

Two additions are not in the paper.

**Columns in one unit.** Where this promises fewer epochs, and no step is given, the methods use
columns c_j h_j with equal parts of the curvature: c_j² (mean of h_j² + ρ/β) = 1.

**The filter of the pipeline.** J mixings multiply the disagreement of a score among the agents by a
polynomial p(A), in the paper A^J. With the same messages, `chebyshev` takes the polynomial of
degree J that is least on the spectrum of A among those that are nowhere negative there,

    p = (1 + T_J(x̂)) / (1 + T_J(x̂(1))),      x̂ maps [λ_min, λ₂] of A to [−1, 1].

It must not be negative. Let a = K h_kᵀ w_k differ between the agents in a mode of which the
pipeline leaves p, and let y = u + a − v be the number that the agents push into it. With the
curvature h of the objective along that mode, and κ = K ∇²_k, an iteration moves them on average by

    a' = −μ h a − μ κ p y,      y' = −((1 − p) / N) y + a'

This is stable if and only if μ κ p + μ h + (1 − p) / N > 0: for every step size if p ≥ 0, but only
for step sizes of the order 1/N if p < 0. So an indefinite A (Metropolis weights on a ring) needs a
small step size with J = 1. T_J(x̂) / T_J(x̂(1)) itself is half as large as p, and diverges on
correlated columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from coterie.errors import InvalidProblem
from coterie.methods.method import Method, Rows
from coterie.methods.published.diffusion_rows import (
    by_rows,
    column_scale,
    gain,
    least_curvature,
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

DERIVATIVES: dict[type[Loss], int] = {Squared: 0, Huber: 1, SquaredHinge: 2, Logistic: 3}
"""The losses with a compiled derivative, and its number in `numerics/kernels/pipeline.py`."""


@dataclass(frozen=True, slots=True)
class State:
    """Where one agent stands between two rounds, with the contents of the pipeline."""

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


class _Shared(NamedTuple):
    """Facts about all samples that all agents know after the first messages."""

    labels: FloatArray
    weights: FloatArray
    """With mean 1."""
    squares: FloatArray
    """‖h_n‖², in the units of `scale`."""
    scale: FloatArray
    """c_j of the agent's own columns."""


@dataclass(frozen=True)
class _Family(Method[S, Rows]):
    """The common part of the family: its problems, the mixing matrix, and the first messages."""

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
    discloses_labels: ClassVar[bool] = True

    step: float | Literal["auto"] = "auto"
    """μ; "auto" is a safe step size, from the norms of the rows and of the blocks of columns."""
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
        """Return A as a `Mix` takes it: the same object each time."""
        if isinstance(self.mixing, str):
            return self.mixing
        return np.array(self.mixing, float)

    def check(self, problem: Problem, network: Network) -> None:
        able = [loss for loss in DERIVATIVES if loss.moves_with_labels or not problem.offset]
        if type(problem.loss) not in able:
            names = " or ".join(loss.name for loss in able)
            with_offset = " with an offset" * problem.offset
            raise InvalidProblem(
                f"{self.name} needs a {names} loss{with_offset}, whose derivative is compiled; "
                f"this problem has {problem.loss.name!r}. Use graph-cp, which takes every loss."
            )
        if not problem.penalty.quadratic:
            raise InvalidProblem(
                f"{self.name} needs an l2 penalty (quadratic, one strength for all columns); this "
                f"problem has {problem.penalty.name!r}. Use graph-cp, which takes every penalty, "
                "or penalty='l2'."
            )
        network.mixing(self.rule)

    def _share(self, agent: Agent) -> Protocol[_Shared]:
        """Send labels, weights and ‖h_n‖² of all samples to all agents."""
        measures = self.step == "auto"
        scale = column_scale(agent)
        own = np.zeros((3 + measures, agent.design.shape[0]), agent.design.dtype)
        if agent.data.y is not None:
            own[0] = agent.labels
            if agent.data.weights is None:
                own[1] = 1.0
            else:
                own[1] = agent.data.weights
        own[2] = row_squares(agent.design)
        if measures:
            own[3] = row_squares(agent.design, scale)
        received = yield Sum(own)
        labels = received[0]
        weights = received[1] * (len(received[1]) / agent.total)
        squares = received[2]
        if measures:
            scaled_squares = received[3]
            least = yield Sum(agent.one_hot(least_curvature(agent)))
            least_of_all = float(least[least > 0].min())
            if self._gains_by_scaling(agent, weights, squares, scaled_squares, least_of_all):
                return _Shared(labels, weights, scaled_squares, scale)
        return _Shared(labels, weights, squares, np.ones(len(scale)))

    def _gains_by_scaling(
        self,
        agent: Agent,
        weights: FloatArray,
        squares: FloatArray,
        scaled_squares: FloatArray,
        least: float,
    ) -> bool:
        """Return whether one unit for all columns promises fewer epochs. It shortens the step where
        some columns are mostly 0, and improves the condition number.
        """
        beta = agent.problem.loss.smoothness
        largest = float((weights * squares).max())
        largest_scaled = float((weights * scaled_squares).max())
        curvature = beta * largest + self._ridge(agent)
        return largest_scaled + 1.0 < gain() * curvature / least

    def _blocks(self, agent: Agent, weights: FloatArray, scale: FloatArray) -> Protocol[FloatArray]:
        """Return a bound on the curvature of the losses in the columns of each agent: λmax of
        β X_kᵀ diag(weights) X_k / N.
        """
        n = agent.design.shape[0]
        own = agent.design.squared_norm(weights.astype(float), columns=scale)
        squared_norms: FloatArray = yield Sum(agent.one_hot(own))
        return squared_norms * (agent.problem.loss.smoothness / n)

    def _ridge(self, agent: Agent) -> float:
        return agent.problem.penalty.strong_convexity


def _most_before(case: Case) -> Counts:
    """Return the largest counts before the first round: labels, weights and lengths of rows;
    curvatures; the network.
    """
    return 5, 4 * case.rows + 3 * case.parties + case.parties**2


@dataclass(frozen=True)
class _Stochastic(_Family[State]):
    """One sample (or batch) per iteration, the same at every agent."""

    remembers: ClassVar[bool] = True
    """Whether u, v and their average gradient correct the errors of one mixing and one sample."""

    batch: int = 1
    """Samples per iteration."""
    iterations_per_round: int | None = None
    """By default the number that makes one pass over the data."""

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number(f"{self.name}: batch", self.batch)
        if self.iterations_per_round is not None:
            whole_number(f"{self.name}: iterations_per_round", self.iterations_per_round)

    def _wishes(self) -> tuple[int | Literal["auto"], bool | Literal["auto"]]:
        """Return the length of the pipeline, and whether its filter is Chebyshev's."""
        return 1, False

    def start(self, agent: Agent) -> Protocol[State]:
        shared = yield from self._share(agent)
        labels = shared.labels
        scale = shared.scale
        length, chebyshev = self._wishes()
        spectrum: FloatArray = np.zeros(0)
        if "auto" in (self.step, length) or chebyshev:
            spectrum = yield from spectrum_of(agent, self.rule)
        filters, tau = mixing_filter(spectrum, length, chebyshev)
        J = filters.shape[1]
        if self.step == "auto":
            blocks = yield from self._blocks(agent, shared.weights, scale)
            least = 0.0
            if self.remembers:
                least = float(response(filters, tau, spectrum).min(initial=0.0))
            largest = float((shared.weights * shared.squares).max())
            row = agent.problem.loss.smoothness * largest + self._ridge(agent)
            step = safe_step(row, blocks, len(labels), self.batch, J, least)
        else:
            step = self.step

        n = len(labels)
        columns = agent.design.shape[1]
        dtype = agent.design.dtype
        memory = np.zeros((n, 4), dtype)
        memory[:, LABEL] = labels
        memory[:, WEIGHT] = shared.weights
        # avg_k starts at (1/N) Σ_n Q'(0; γ_n) h_{n,k}, because the memory holds u = 0
        gradients = shared.weights * agent.problem.loss.gradient(np.zeros(n, dtype), labels)
        if self.remembers:
            average = scale * agent.design.adjoint(gradients.astype(float)) / n
        else:
            average = np.zeros(columns)
        return State(
            w=np.zeros(columns, dtype),
            average=average,
            memory=memory,
            pipe=np.zeros((4, J * self.batch), dtype),
            sequence=np.full((J, self.batch), -1, np.intp),
            step=step,
            filters=filters,
            tau=tau,
            scale=scale,
        )

    def round(self, agent: Agent, state: State, t: int) -> Protocol[State]:
        n = len(state.memory)
        J, B = state.sequence.shape
        iterations = self.iterations_per_round or -(-n // B)
        constants = self._constants(agent, state)
        is_scaled = bool((state.scale != 1.0).any())
        rows = by_rows(agent, is_scaled)
        filters = state.filters
        ridge = self._ridge(agent) * state.scale**2
        shrink = 1.0 - state.step * ridge
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
            # w_k ← w_k − μ {[Q'(z⁽ᴶ⁾) − Q'(u_n')] h_{n',k} + avg_k + ρ w_k};  u_n' ← z⁽ᴶ⁾;
            # v_n' ← v⁽⁰⁾
            # (33)–(35)
            advance(reply, i, *rows, w, average, memory, pipe, sequence, filters, constants, shrink)
        slots = pipe.reshape(4, J, B)
        oldest_first = np.roll(slots, -(iterations % J), axis=1).reshape(4, J * B)
        in_flight = sequence[iterations:].copy()
        return replace(
            state, w=w, average=average, memory=memory, pipe=oldest_first, sequence=in_flight
        )

    def _constants(self, agent: Agent, state: State) -> FloatArray:
        """Return the constants of the compiled pipeline."""
        loss = agent.problem.loss
        threshold = 0.0
        if isinstance(loss, Huber):
            threshold = loss.threshold
        return numbers(
            DERIVATIVES[type(loss)],
            threshold,
            agent.count,
            state.step,
            state.tau,
            agent.design.intercept,
            self.remembers,
        )

    def point(self, agent: Agent, state: State) -> Point:
        model = state.scale * state.w
        return Point(model.astype(state.w.dtype, copy=False))


@dataclass(frozen=True)
class Diffusion(_Stochastic):
    """Algorithm 1, the naïve one: a score is mixed once and used. It is biased unless one mixing
    gives the average.
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
    """Algorithm 3, VRD² with a pipeline: every score is mixed J times before it is used, and agents
    do not wait for it.
    """

    name: ClassVar[str] = "pvrd2"
    disclosure: ClassVar[Disclosure] = replace(
        _Family.disclosure,
        most=None,
        unbounded="how often scores are mixed in a round depends on the network",
    )
    summary: ClassVar[str] = "pipelined VRD²: exact, scores are mixed J times on their way"

    pipeline: int | Literal["auto"] = "auto"
    """J; "auto" is the least J that leaves little of the disagreement, from the spectrum of A."""
    chebyshev: bool | Literal["auto"] = "auto"
    """Filter by a non-negative Chebyshev polynomial of A in place of A^J, with the same messages;
    "auto": if it is better.
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
    """The deterministic baseline, (18)–(19) for all samples at once: full gradients of tracked
    scores.
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
            curvature = agent.count * float(blocks.max()) + self._ridge(agent)
            step = 1.0 / curvature
        else:
            step = self.step
        dtype = agent.design.dtype
        zeros = np.zeros(len(labels), dtype)
        w = np.zeros(agent.design.shape[1], dtype)
        return FullState(w, zeros, zeros, labels, weights, step, scale.astype(dtype))

    def round(self, agent: Agent, state: FullState, t: int) -> Protocol[FullState]:
        # z_{n,k} ← Σ_ℓ a_ℓk (z_{n,ℓ} + K h_{n,ℓ}ᵀ w_ℓ − K h_{n,ℓ}ᵀ w_ℓ'), w' one iteration ago
        # (18), (19)
        scores = agent.count * agent.design.forward(state.w)
        z = yield Mix(state.z + scores - state.before, self.rule)
        # w_k ← w_k − μ c² {(1/N) Σ_n Q'(z_{n,k}) h_{n,k} + ρ w_k}
        gradients = state.weights * agent.problem.loss.gradient(z, state.labels)
        ridge = self._ridge(agent) * state.w
        if agent.design.intercept:
            ridge[-1] = 0.0
        gradient = agent.design.adjoint(gradients) / len(gradients) + ridge
        w = state.w - state.step * state.scale**2 * gradient
        return replace(state, w=w, z=z, before=scores)

    def point(self, agent: Agent, state: FullState) -> Point:
        return Point(state.w)
