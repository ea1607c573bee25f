"""Subspace fully-corrective Frank-Wolfe for matrices of low rank: beyond the paper, and what `auto`
takes.

W = U S Vᵀ with orthonormal U (d × p), V (m × q). A round adds to U and V what a (block) power
iteration finds beside them, and then takes the best W of trace norm at most μ that the grown spaces
hold, where Frank-Wolfe takes one step:

    R = Σ_j ∇F_jᵀ U₀,   L = Σ_j ∇F_j orth(R)                                    m b and d b numbers:
                        a power iteration
    U⁺ = [U  orth((I − UUᵀ) L)],   V⁺ = [V  orth((I − VVᵀ) R)]
    S⁺ = argmin over ‖S⁺‖_* ≤ μ of ⟨G, S⁺ − S⟩ + ½⟨S⁺ − S, M (S⁺ − S)⟩         a small problem, the
    same at every agent
    S⁺ = P diag(s) Qᵀ,   U = U⁺P,   V = V⁺Q                                      W's own directions
                         first

| symbol | code    | meaning
                   |
|--------|---------|--------------------------------------------------------------------------------------------------|
| U₀     | `block` | b random vectors, or, for a block, the L of the last round
         |
| G      | `slope` | U⁺ᵀ∇F(W)V⁺: the old corner is known, the rest travels, p b + q a + a b numbers
         |
| M      | `M`     | Σ_j M_j, with F(U⁺S⁺V⁺ᵀ) at most the quadratic above (`tasks`): new columns
         travel, (p + a) a    |

with a and b new columns: about 3r numbers per new vector beside the power vectors, for a rank of r.
For least squares the quadratic is F itself, so one small problem a round is enough. For other tasks
it is only above F: there κM, with κ ≤ 1 as small as the last steps allow (Barzilai and Borwein),
takes the place of M, and each of a few inner steps asks for the slope once more, p q + 1 numbers.

Where a matrix is completed in stages, all of this is about Z of W = A Z B (`tasks.weighted`). A new
stage takes W as the matrix that weighs, and asks for M and G once more, 2r² numbers.
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
from coterie.run.agent import Agent
from coterie.run.certificate import Point
from coterie.run.certificate.intercepts import as_array, information_of, put_together, taken_apart
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import TOTALS, Case, Counts, Disclosure

BEGINNINGS = ("auto", "random", "previous")
NEGLIGIBLE = 1e-13
"""Singular values of S below this part of the largest are dropped."""


@dataclass(frozen=True)
class _Tuning(Tuning):
    floor: float = tuned(
        0.1, "What the first weights give to directions that W does not have, ...", below=1
    )
    fall: float = tuned(0.5, "... and how much of that every later stage leaves of it.", below=1)
    growth: float = tuned(
        1.25,
        "How much larger a stage's ball is than W of the stage before, in its norm.",
        above=1,
        below=2,
        costs=2.0,
    )
    rounds_of_stage: int = tuned(
        4,
        "Rounds of every stage but the last: what they leave open, the next one mends.",
        costs=2.5,
    )


TUNING = _Tuning()


@dataclass(frozen=True, slots=True)
class State:
    """Where one agent stands between two rounds: the same at all of them."""

    U: FloatArray
    s: FloatArray
    V: FloatArray
    slope: FloatArray
    """Uᵀ ∇F(W) V."""
    M: FloatArray
    """The curvature of the model on U."""
    block: FloatArray
    """The left power vectors, orthonormal."""
    kappa: float
    """How much of M the last inner step needed."""
    beta: FloatArray
    """The intercept beside centred columns, if it follows W; else empty."""
    pairs: FloatArray
    """The last inner steps on U and V, and by how much they changed the slope: one pair of rows
    each.
    """
    before: FloatArray
    """The matrix of the stage before, which weighs the ball: U, s and V are then of Z
    (`tasks.weighted`).
    """
    stage: int


@dataclass(frozen=True)
class DfwSubspace(Method[State, Problem[Task]]):
    """Grow two spaces by power iterations, and take the best matrix that they hold."""

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
    )
    tells_labels: ClassVar[bool] = False

    power: Power = 1
    """K(t), as for dfw-trace."""
    log_factor: float = 1.0
    """c of "log"."""
    block: int = 10
    """How many power vectors a round adds."""
    begin: str = "auto"
    """Where power iterations begin: at "random", from the "previous" block, or "auto": that, if it
    is a block.
    """
    space: int = 50
    """Up to how many columns U and V keep directions that W does not use now; beyond, they keep
    only W's own.
    """
    inner: int = 10
    """Steps inside the spaces a round, for tasks that are not quadratic."""
    information: str = "auto"
    """What agents keep: "dense" (d × m matrices), "implicit" (nothing larger than their data), or
    what costs less.
    """
    stages: int = 1
    """As many as the problem says."""

    @property
    def settles_after(self) -> int:
        if self.stages == 1:
            return 0
        return (self.stages - 1) * TUNING.rounds_of_stage + 1

    def adapted(self, problem: Problem[Task]) -> tuple[DfwSubspace, Problem[Task]]:
        return replace(self, stages=problem.loss.stages), problem

    def expected_gap(self, agent: Agent[Problem[Task]], state: State) -> float | None:
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
        yield from ()  # there is nothing to ask
        U = np.zeros((d, 0), information.dtype)
        V = np.zeros((m, 0), information.dtype)
        nothing = np.zeros((0, 0))
        beta = as_array(information.b)
        pairs = np.zeros((0, 2, len(beta)))
        return State(U, np.zeros(0), V, nothing, nothing, nothing, 1.0, beta, pairs, np.zeros(0), 1)

    def warm(self, agent: Agent[Problem[Task]], state: State, point: Point) -> Protocol[State]:
        left, right, free = taken_apart(agent, point.w)
        state = replace(state, beta=as_array(free) if state.beta.size else state.beta)
        if point.v is not None:
            state = replace(state, before=point.v, stage=self.stages)
        return (yield from self._placed(agent, state, left, right))

    def _placed(
        self, agent: Agent[Problem[Task]], state: State, left: FloatArray, right: FloatArray
    ) -> Protocol[State]:
        """That State moved to W = left rightᵀ, in the ball of its stage."""
        if (weights := self._weights(agent, state.before)) is not None:
            left = weights.left(left, -1.0)
            right = weights.right(right, -1.0)
        U, s, V = decomposed(left.astype(state.U.dtype), right.astype(state.U.dtype), NEGLIGIBLE)
        if s.size:
            s = s.astype(float) * min(1.0, radius(agent) / s.sum())
        else:
            s = s.astype(float)
        state = replace(state, U=U, s=s, V=V, kappa=1.0)
        information, image = self._at(agent, state)
        r = len(s)
        mine = [information.curvature(U, image, r), information.projected(U, image, V)]
        sums = yield Sum(np.concatenate([part.ravel().astype(float) for part in mine]))
        M = sums[: r * r].reshape(r, r)
        slope = sums[r * r :].reshape(r, r)
        pairs = np.zeros((0, 2, r * r + state.beta.size))
        return replace(state, M=_symmetric(M), slope=slope, pairs=pairs)

    @property
    def _goes_on(self) -> bool:
        """Whether a block begins where the last one ended."""
        return self.begin == "previous" or (self.begin == "auto" and self.block > 1)

    def round(self, agent: Agent[Problem[Task]], state: State, t: int) -> Protocol[State]:
        state = yield from self._stage(agent, state, t)
        information, image = self._at(agent, state)
        left, right, block = yield from self._powers(agent, information, state, t)
        Qu = shared_result(left, lambda: orthonormal(left, state.U))
        Qv = shared_result(right, lambda: orthonormal(right, state.V))
        basis = np.hstack([state.U, Qu])
        grown_right = np.hstack([state.V, Qv])
        grown = backend(image).beside(image, information.image(Qu))
        sums, M, at = yield from _enlarged(information, state, basis, grown, grown_right)
        if agent.problem.loss.exact:
            # F is its own quadratic model: one small problem, and the new slope follows without a
            # message.
            best = shared_result(sums, best_in_ball, at.slope, M, at.S, radius(agent))
            at = replace(at, S=best, slope=at.slope + M @ (best - at.S))
        else:
            at = yield from corrected(
                agent, information, basis, grown, grown_right, at, M, self.inner
            )
        if self._goes_on:
            kept = block
        else:
            kept = np.zeros((0, 0))
        return self._turned(
            replace(state, block=kept), information.dtype, basis, grown_right, at, M
        )

    def _stage(self, agent: Agent[Problem[Task]], state: State, t: int) -> Protocol[State]:
        """The State of this round's stage: the next one weighs the ball by the matrix before."""
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
        block = (
            agent.common_random(t)
            .standard_normal((len(state.U), self.block))
            .astype(information.dtype)
        )
        if self._goes_on and state.block.size:
            block[:, : state.block.shape[1]] = state.block[:, : self.block]
        for _ in range(power_iterations(self.power, t - 1, self.log_factor)):
            right = yield Sum(information.times_transposed(block))
            left = yield Sum(information.times(shared_result(right, orthonormal, right)))
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
        """The State at that place, in the singular vectors of its matrix."""
        P, values, Qt = np.linalg.svd(at.S)
        values = values[values > NEGLIGIBLE * values[:1].sum()]
        P, Q = (
            side if side.shape[1] <= self.space else side[:, : len(values)] for side in (P, Qt.T)
        )
        return State(
            (basis @ P).astype(dtype),
            values,
            (right @ Q).astype(dtype),
            P.T @ at.slope @ Q,
            _symmetric(P.T @ M @ P),
            state.block,
            at.kappa,
            at.beta,
            turned(at.pairs, at.S.shape, P, Q),
            state.before,
            state.stage,
        )

    def point(self, agent: Agent[Problem[Task]], state: State) -> Point:
        w = put_together(
            agent, *self._factors(agent, state), state.beta if state.beta.size else None
        )
        return Point(w, state.before if state.before.size else None)

    def _factors(self, agent: Agent[Problem[Task]], state: State) -> tuple[FloatArray, FloatArray]:
        """W as left rightᵀ, in float64."""
        r = len(state.s)
        left, right = within(state.U[:, :r] * state.s, state.V[:, :r], radius(agent))
        weights = self._weights(agent, state.before)
        if weights is None:
            return (left, right)
        return (weights.left(left), weights.right(right))

    def _weights(self, agent: Agent[Problem[Task]], before: FloatArray) -> Weights | None:
        return Weights.known(before, agent.problem.loss.size(agent.data))

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "power": named(self.power)}

    def _information(self, agent: Agent[Problem[Task]], before: FloatArray) -> Information:
        """What the agent keeps; of Z, where a matrix before weighs the ball."""
        known: tuple[FloatArray, Information] | None = agent.scratch.get("information")
        if known is None or not np.array_equal(known[0], before):
            information = information_of(agent, self.information)
            weights = self._weights(agent, before)
            known = before, information if weights is None else Weighted(information, weights)
            agent.scratch["information"] = known
        return known[1]

    def _at(self, agent: Agent[Problem[Task]], state: State) -> tuple[Information, Any]:
        """The agent's information moved to U diag(s) Vᵀ, and the image of U."""
        information = self._information(agent, state.before)
        U = state.U
        s = state.s
        V = state.V
        image = information.image(U)
        r = len(s)
        if state.beta.size:
            information.put(state.beta)
        sizes = s.astype(information.dtype)
        information.reset(U[:, :r] * sizes, V[:, :r], image[:, :r] * backend(image).here(sizes))
        return information, image


def _most(case: Case) -> Counts | None:
    """The largest counts of a round, with U and V as wide as they can be.

    None: an intercept takes more, as it is found.
    """
    task = case.problem.loss
    power = DfwSubspace.power
    block = DfwSubspace.block
    if not isinstance(power, int) or (case.intercept and task.kind != "numbers"):
        return None
    d, m = case.matrix
    widest = max(DfwSubspace.space, min(d, m))
    p, q = (min(size, widest) for size in (d, m))
    a = min(block, d)
    b = min(block, m)
    if task.stages == 1:
        placed = 0
    else:
        placed = p**2 + p * q
    powers = power * block * (d + m)
    enlarged = (p + a) * a + p * b + a * (q + b) + p * q
    if task.exact:
        inside = 0
    else:
        inside = (1 + DfwSubspace.inner) * ((p + a) * (q + b) + 1)
    return 2 + 2 * power + (
        0 if task.exact else 1 + DfwSubspace.inner
    ), placed + powers + enlarged + inside


def _enlarged(
    information: Information, state: State, basis: FloatArray, image: Any, right: FloatArray
) -> Protocol[tuple[FloatArray, FloatArray, Place]]:
    """The totals that a larger space asks for; with them the curvature in it, and W's place."""
    s = state.s
    p = state.U.shape[1]
    q = state.V.shape[1]
    a = basis.shape[1] - p
    b = right.shape[1] - q
    projected = information.projected(basis, image, right).astype(float)
    mine = [information.curvature(basis, image, a), projected[:p, q:], projected[p:]]
    if state.beta.size:
        # The intercept has been moved since the old corner was known.
        mine.append(projected[:p, :q])
    sums = yield Sum(np.concatenate([part.ravel().astype(float) for part in mine]))
    columns, corner, rows, old = np.split(sums, np.cumsum([(p + a) * a, p * b, a * (q + b)]))
    columns = columns.reshape(p + a, a)
    M = _symmetric(np.hstack([np.vstack([state.M.reshape(p, p), columns[:p].T]), columns]))
    if state.beta.size:
        known = old.reshape(p, q)
    else:
        known = state.slope.reshape(p, q)
    slope = np.vstack([np.hstack([known, corner.reshape(p, b)]), rows.reshape(a, q + b)])
    S = np.zeros((p + a, q + b))
    np.fill_diagonal(S[: len(s), : len(s)], s)
    pairs = grown_pairs(state.pairs, (p, q), S.shape, state.kappa * M)
    return sums, M, Place(S, slope, state.beta, state.kappa, pairs)


def _symmetric(M: FloatArray) -> FloatArray:
    return 0.5 * (M + M.T)
