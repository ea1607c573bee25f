"""Subspace fully-corrective Frank-Wolfe for matrices of low rank: an extension of the paper, and
the choice of `auto`.

W = U S Vᵀ with orthonormal U (d × p), V (m × q). A round adds to U and V the new directions that a
(block) power iteration finds. It then takes the best W of trace norm at most μ in the larger
spaces, where Frank-Wolfe takes one step:

    R = Σ_j ∇F_jᵀ U₀,   L = Σ_j ∇F_j orth(R)                                    m b and d b numbers:
                        a power iteration
    U⁺ = [U  orth((I − UUᵀ) L)],   V⁺ = [V  orth((I − VVᵀ) R)]
    S⁺ = argmin over ‖S⁺‖_* ≤ μ of ⟨G, S⁺ − S⟩ + ½⟨S⁺ − S, M (S⁺ − S)⟩         a small problem, the
    same at every agent
    S⁺ = P diag(s) Qᵀ,   U = U⁺P,   V = V⁺Q                                      W's own directions
                         first

- U₀ (`block`): b random vectors, or, for a block, the L of the last round.
- G (`gradient`): U⁺ᵀ∇F(W)V⁺. All agents know the old corner; they send the rest, p b + q a + a b
  numbers.
- M (`M`): Σ_j M_j, with F(U⁺S⁺V⁺ᵀ) at most the quadratic above (`tasks`). Agents send the new
  columns, (p + a) a numbers.

a and b are the numbers of new columns. For rank r, that is about 3r numbers per new vector, without
the power vectors. For least squares the quadratic is F itself, so one small problem per round is
enough. For other tasks it is an upper bound of F. There κM takes the place of M, with κ ≤ 1 as
small as the last steps allow (Barzilai and Borwein), and each of a few inner steps needs the
gradient once more, p q + 1 numbers.

Where a matrix is completed in stages, all of this is about Z of W = A Z B (`tasks.weighted`). A new
stage takes W as the matrix that determines the weights, and needs M and G once more, 2r² numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from coterie.errors import UnknownName
from coterie.methods.auto.costs import Sizes
from coterie.methods.method import Method
from coterie.networks import Network
from coterie.numerics.arrays import FloatArray, shared_result, whole_number
from coterie.numerics.backends import backend
from coterie.numerics.factors import decomposed, orthonormal, within
from coterie.numerics.tuning import Tuning, tuned
from coterie.problems.low_rank.methods.frank_wolfe import (
    Power,
    check_power,
    named,
    power_iterations,
    radius,
)
from coterie.problems.low_rank.methods.inner_steps import Place, corrected
from coterie.problems.low_rank.methods.small_ball import best_in_ball, grown_pairs, turned
from coterie.problems.low_rank.tasks import Information, Task
from coterie.problems.low_rank.tasks.task import INFORMATION
from coterie.problems.low_rank.tasks.weighted import Weighted, Weights, weighing
from coterie.problems.problem import Problem
from coterie.run.agent import Agent, AgentForm
from coterie.run.certificate import Point
from coterie.run.certificate.intercepts import (
    as_array,
    information_of,
    intercepts_of,
    most_of_search,
    put_together,
    taken_apart,
)
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import TOTALS, Case, Counts, Disclosure

BEGINNINGS = ("auto", "random", "previous")
NEGLIGIBLE = 1e-13
"""Singular values of S below this share of the largest are dropped."""


@dataclass(frozen=True)
class _Tuning(Tuning):
    floor: float = tuned(
        0.1, "Weight of directions that W does not have, in the second stage.", below=1
    )
    fall: float = tuned(0.5, "Factor by which every later stage lowers that weight.", below=1)
    growth: float = tuned(
        1.25,
        "Radius of a stage's ball, divided by the norm of W of the stage before.",
        above=1,
        below=2,
        costs=2.0,
    )
    rounds_of_stage: int = tuned(
        4,
        "Rounds of every stage but the last; later stages correct the errors that these leave.",
        costs=2.5,
    )


TUNING = _Tuning()


@dataclass(frozen=True, slots=True)
class State:
    """The state of the method between two rounds: the same at all agents."""

    U: FloatArray
    s: FloatArray
    V: FloatArray
    gradient: FloatArray
    """Uᵀ ∇F(W) V."""
    M: FloatArray
    """The curvature of the model on U."""
    block: FloatArray
    """The left power vectors, orthonormal."""
    kappa: float
    """The share of M that the last inner step needed."""
    beta: FloatArray
    """The intercept for centred columns, if it follows W; else empty."""
    pairs: FloatArray
    """The last inner steps on U and V, and their changes of the gradient: one pair of rows each."""
    before: FloatArray
    """The matrix of the stage before, which determines the weights of the ball: U, s and V are then
    of Z (`tasks.weighted`).
    """
    stage: int


@dataclass(frozen=True)
class DfwSubspace(Method[State, Problem[Task]]):
    """Grow two spaces by power iterations, and take the best matrix in them."""

    name: ClassVar[str] = "dfw-subspace"
    split: ClassVar[str] = "samples"
    family: ClassVar[str] = "low-rank"
    summary: ClassVar[str] = (
        "fully corrective Frank-Wolfe for low rank: the best matrix in the space of all atoms so "
        "far"
    )
    disclosure: ClassVar[Disclosure] = Disclosure(
        sent=(
            "products of your gradient with a few vectors, one number per column or class, as "
            "part of a sum"
        ),
        learned="a few combinations of weighted sums of your rows in each round",
        secure=TOTALS,
        most=lambda case: _most(case),
        sometimes=lambda case: most_of_search(case),
    )
    discloses_labels: ClassVar[bool] = False

    power: Power = 1
    """K(t), as for dfw-trace."""
    log_factor: float = 1.0
    """c of "log"."""
    block: int = 10
    """Number of power vectors that a round adds."""
    begin: str = "auto"
    """Start of the power iterations: "random", the "previous" block, or "auto": the previous block
    if it has more than one vector.
    """
    space: int = 50
    """The most columns for which U and V keep directions that W does not use; beyond, they keep
    W's own only.
    """
    inner: int = 10
    """Steps inside the spaces in each round, for tasks that are not quadratic."""
    information: str = "auto"
    """The information that agents keep: "dense" (d × m matrices), "implicit" (nothing larger than
    their data), or "auto": the cheaper one.
    """
    stages: int = 1
    """Number of stages; the problem determines it."""

    @property
    def settles_after(self) -> int:
        if self.stages == 1:
            return 0
        return (self.stages - 1) * TUNING.rounds_of_stage + 1

    def adapted(self, problem: Problem[Task]) -> tuple[DfwSubspace, Problem[Task]]:
        return replace(self, stages=problem.loss.stages), problem

    def expected_gap(self, agent: AgentForm[Problem[Task]], state: State) -> float | None:
        if state.stage < self.stages:
            return math.inf
        return None

    def __post_init__(self) -> None:
        check_power(self.name, self.power, self.log_factor)
        for name in ("block", "space", "inner"):
            whole_number(f"dfw-subspace: {name}", getattr(self, name))
        if self.information not in INFORMATION:
            raise UnknownName("information of dfw-subspace", self.information, INFORMATION)
        if self.begin not in BEGINNINGS:
            raise UnknownName("beginning of dfw-subspace", self.begin, BEGINNINGS)

    @classmethod
    def score(
        cls, problem: Problem[Task], network: Network, sizes: Sizes | None = None
    ) -> tuple[float, str]:
        return 1.0, "corrective steps reach small gaps in few rounds"

    def start(self, agent: Agent[Problem[Task]]) -> Protocol[State]:
        d, m = agent.problem.loss.size(agent.data)
        information = self._information(agent, np.zeros(0))
        yield from ()  # no message is needed
        U = np.zeros((d, 0), information.dtype)
        V = np.zeros((m, 0), information.dtype)
        s = np.zeros(0)
        nothing = np.zeros((0, 0))
        beta = as_array(information.b)
        pairs = np.zeros((0, 2, len(beta)))
        return State(
            U=U,
            s=s,
            V=V,
            gradient=nothing,
            M=nothing,
            block=nothing,
            kappa=1.0,
            beta=beta,
            pairs=pairs,
            before=np.zeros(0),
            stage=1,
        )

    def warm(self, agent: Agent[Problem[Task]], state: State, point: Point) -> Protocol[State]:
        left, right, free = taken_apart(agent, point.w)
        if state.beta.size:
            state = replace(state, beta=as_array(free))
        if point.v is not None:
            state = replace(state, before=point.v, stage=self.stages)
        return (yield from self._placed(agent, state, left, right))

    def _placed(
        self, agent: Agent[Problem[Task]], state: State, left: FloatArray, right: FloatArray
    ) -> Protocol[State]:
        """The state moved to W = left rightᵀ, in the ball of its stage."""
        weights = self._weights(agent, state.before)
        if weights is not None:
            left = weights.left(left, -1.0)
            right = weights.right(right, -1.0)
        dtype = state.U.dtype
        U, s, V = decomposed(left.astype(dtype), right.astype(dtype), NEGLIGIBLE)
        factor = 1.0
        if s.size:
            factor = min(1.0, radius(agent) / s.sum())
        s = s.astype(float) * factor
        state = replace(state, U=U, s=s, V=V, kappa=1.0)
        information, scores = self._at(agent, state)
        r = len(s)
        own_curvature = information.curvature(U, scores, r)
        own_gradient = information.projected(U, scores, V)
        sums = yield Sum(_flat([own_curvature, own_gradient]))
        M = sums[: r * r].reshape(r, r)
        gradient = sums[r * r :].reshape(r, r)
        pairs = np.zeros((0, 2, r * r + state.beta.size))
        return replace(state, M=_symmetric(M), gradient=gradient, pairs=pairs)

    @property
    def _goes_on(self) -> bool:
        """Whether a block begins where the last one ended."""
        return self.begin == "previous" or (self.begin == "auto" and self.block > 1)

    def round(self, agent: Agent[Problem[Task]], state: State, t: int) -> Protocol[State]:
        state = yield from self._stage(agent, state, t)
        information, scores = self._at(agent, state)
        left, right, block = yield from self._powers(agent, information, state, t)
        Qu = shared_result(left, lambda: orthonormal(left, state.U))
        Qv = shared_result(right, lambda: orthonormal(right, state.V))
        basis = np.hstack([state.U, Qu])
        grown_right = np.hstack([state.V, Qv])
        grown = backend(scores).joined(scores, information.forward(Qu))
        sums, M, at = yield from _enlarged(information, state, basis, grown, grown_right)
        if agent.problem.loss.exact:
            # F is its own quadratic model: one small problem is enough, and the new gradient
            # follows without a message.
            best = shared_result(sums, best_in_ball, at.gradient, M, at.S, radius(agent))
            gradient = at.gradient + M @ (best - at.S)
            at = replace(at, S=best, gradient=gradient)
        else:
            at = yield from corrected(
                agent, information, basis, grown, grown_right, at, M, self.inner
            )
        if self._goes_on:
            kept = block
        else:
            kept = np.zeros((0, 0))
        state = replace(state, block=kept)
        return self._turned(state, information.dtype, basis, grown_right, at, M)

    def _stage(self, agent: Agent[Problem[Task]], state: State, t: int) -> Protocol[State]:
        """The state in this round's stage: a new stage takes its weights from the last W."""
        if state.stage >= self.stages or t <= state.stage * TUNING.rounds_of_stage:
            return state
        left, right = self._factors(agent, state)
        floor = TUNING.floor * TUNING.fall ** (state.stage - 1)
        before = weighing(left, right, radius(agent), floor, TUNING.growth)
        renewed = replace(state, before=before, stage=state.stage + 1)
        return (yield from self._placed(agent, renewed, left, right))

    def _powers(
        self, agent: Agent[Problem[Task]], information: Information, state: State, t: int
    ) -> Protocol[tuple[FloatArray, FloatArray, FloatArray]]:
        """Power iterations with a block of vectors: the last products from both sides, and the
        block.
        """
        random = agent.common_random(t)
        vectors = random.standard_normal((len(state.U), self.block))
        block = vectors.astype(information.dtype)
        if self._goes_on and state.block.size:
            block[:, : state.block.shape[1]] = state.block[:, : self.block]
        for _ in range(power_iterations(self.power, t - 1, self.log_factor)):
            right = yield Sum(information.times_transposed(block))
            directions = shared_result(right, orthonormal, right)
            left = yield Sum(information.times(directions))
            block = shared_result(left, orthonormal, left)
        return left, right, block

    def _turned(
        self,
        state: State,
        dtype: np.dtype[Any],
        basis: FloatArray,
        right: FloatArray,
        at: Place,
        M: FloatArray,
    ) -> State:
        """The state with the matrix at that place, in its singular vectors."""
        P, values, Qt = np.linalg.svd(at.S)
        Q = Qt.T
        values = values[values > NEGLIGIBLE * values[:1].sum()]
        r = len(values)
        if P.shape[1] > self.space:
            P = P[:, :r]
        if Q.shape[1] > self.space:
            Q = Q[:, :r]
        return replace(
            state,
            U=(basis @ P).astype(dtype),
            s=values,
            V=(right @ Q).astype(dtype),
            gradient=P.T @ at.gradient @ Q,
            M=_symmetric(P.T @ M @ P),
            kappa=at.kappa,
            beta=at.beta,
            pairs=turned(at.pairs, at.S.shape, P, Q),
        )

    def point(self, agent: Agent[Problem[Task]], state: State) -> Point:
        left, right = self._factors(agent, state)
        beta = None
        if state.beta.size:
            beta = state.beta
        before = None
        if state.before.size:
            before = state.before
        w = put_together(agent, left, right, beta)
        return Point(w, before)

    def _factors(self, agent: Agent[Problem[Task]], state: State) -> tuple[FloatArray, FloatArray]:
        """W as left rightᵀ, in float64."""
        r = len(state.s)
        scaled = state.U[:, :r] * state.s
        left, right = within(scaled, state.V[:, :r], radius(agent))
        weights = self._weights(agent, state.before)
        if weights is None:
            return left, right
        return weights.left(left), weights.right(right)

    def _weights(self, agent: Agent[Problem[Task]], before: FloatArray) -> Weights | None:
        return Weights.known(before, agent.problem.loss.size(agent.data))

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "power": named(self.power)}

    def _information(self, agent: Agent[Problem[Task]], before: FloatArray) -> Information:
        """The agent's information; of Z, where the ball has weights."""
        known: tuple[FloatArray, Information] | None = agent.scratch.get("information")
        if known is not None and np.array_equal(known[0], before):
            return known[1]
        information = information_of(agent, self.information)
        weights = self._weights(agent, before)
        if weights is not None:
            information = Weighted(information, weights)
        agent.scratch["information"] = (before, information)
        return information

    def _at(self, agent: Agent[Problem[Task]], state: State) -> tuple[Information, Any]:
        """The agent's information moved to U diag(s) Vᵀ, and the scores of U."""
        information = self._information(agent, state.before)
        U = state.U
        scores = information.forward(U)
        r = len(state.s)
        if state.beta.size:
            information.put(state.beta)
        sizes = state.s.astype(information.dtype)
        left = U[:, :r] * sizes
        right = state.V[:, :r]
        scores_of_left = scores[:, :r] * backend(scores).converted(sizes)
        information.reset(left, right, scores_of_left)
        return information, scores


def _most(case: Case) -> Counts | None:
    """The largest counts of a round, with U and V as wide as they can be."""
    task = case.problem.loss
    power = DfwSubspace.power
    block = DfwSubspace.block
    if not isinstance(power, int):
        return None
    d, m = case.matrix
    widest = max(DfwSubspace.space, min(d, m))
    p = min(d, widest)
    q = min(m, widest)
    a = min(block, d)
    b = min(block, m)
    if task.stages == 1:
        placed = 0
    else:
        placed = p**2 + p * q
    if task.exact:
        inner_messages = 0
    else:
        inner_messages = 1 + DfwSubspace.inner
    powers = power * block * (d + m)
    enlarged = (p + a) * a + p * b + a * (q + b) + p * q
    inside = inner_messages * ((p + a) * (q + b) + 1 + 2 * intercepts_of(case))
    messages = 2 + 2 * power + inner_messages
    return messages, placed + powers + enlarged + inside


def _enlarged(
    information: Information, state: State, basis: FloatArray, scores: Any, right: FloatArray
) -> Protocol[tuple[FloatArray, FloatArray, Place]]:
    """The sums for the larger spaces; with them the curvature in the spaces, and W's place."""
    s = state.s
    p = state.U.shape[1]
    q = state.V.shape[1]
    a = basis.shape[1] - p
    b = right.shape[1] - q
    own_columns = information.curvature(basis, scores, a)
    projected = information.projected(basis, scores, right).astype(float)
    own = [own_columns, projected[:p, q:], projected[p:]]
    if state.beta.size:
        # The intercept has changed since the old corner was computed.
        own.append(projected[:p, :q])
    sums = yield Sum(_flat(own))
    sizes = [(p + a) * a, p * b, a * (q + b)]
    ends = np.cumsum(sizes)
    columns, corner, rows, old = np.split(sums, ends)
    columns = columns.reshape(p + a, a)
    old_columns = np.vstack([state.M.reshape(p, p), columns[:p].T])
    M = _symmetric(np.hstack([old_columns, columns]))
    if state.beta.size:
        known = old.reshape(p, q)
    else:
        known = state.gradient.reshape(p, q)
    upper = np.hstack([known, corner.reshape(p, b)])
    lower = rows.reshape(a, q + b)
    gradient = np.vstack([upper, lower])
    S = np.zeros((p + a, q + b))
    np.fill_diagonal(S[: len(s), : len(s)], s)
    pairs = grown_pairs(state.pairs, (p, q), S.shape, state.kappa * M)
    return sums, M, Place(S, gradient, state.beta, state.kappa, pairs)


def _flat(parts: list[FloatArray]) -> FloatArray:
    """The parts in one vector, in float64."""
    return np.concatenate([part.ravel().astype(float) for part in parts])


def _symmetric(M: FloatArray) -> FloatArray:
    return 0.5 * (M + M.T)
