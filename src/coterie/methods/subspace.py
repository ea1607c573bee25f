"""Subspace fully-corrective Frank-Wolfe for matrices of low rank: beyond the paper, and what `auto` takes.

W = U S Vᵀ with orthonormal U (d × p), V (m × q). A round adds to U and V what a (block) power iteration finds beside
them, and then takes the best W of trace norm at most μ that the grown spaces hold, where Frank-Wolfe takes one step:

    R = Σ_j ∇F_jᵀ U₀,   L = Σ_j ∇F_j orth(R)                                    m b and d b numbers: a power iteration
    U⁺ = [U  orth((I − UUᵀ) L)],   V⁺ = [V  orth((I − VVᵀ) R)]
    S⁺ = argmin over ‖S⁺‖_* ≤ μ of ⟨G, S⁺ − S⟩ + ½⟨S⁺ − S, M (S⁺ − S)⟩         a small problem, the same at every agent
    S⁺ = P diag(s) Qᵀ,   U = U⁺P,   V = V⁺Q                                      W's own directions first

| symbol | code    | meaning                                                                                          |
|--------|---------|--------------------------------------------------------------------------------------------------|
| U₀     | `block` | b random vectors, or, for a block, the L of the last round                                       |
| G      | `slope` | U⁺ᵀ∇F(W)V⁺: the old corner is known, the rest travels, p b + q a + a b numbers                   |
| M      | `M`     | Σ_j M_j, with F(U⁺S⁺V⁺ᵀ) at most the quadratic above (`tasks`): new columns travel, (p + a) a    |

with a and b new columns: about 3r numbers per new vector beside the power vectors, for a rank of r. For least squares
the quadratic is F itself, so one small problem a round is enough. For other tasks it is only above F: there κM, with
κ ≤ 1 as small as the last steps allow (Barzilai and Borwein), takes the place of M, and each of a few inner steps asks
for the slope once more, p q + 1 numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from coterie.agent import Agent
from coterie.arrays import FloatArray, shared_result, whole_number
from coterie.backends import backend
from coterie.certificate import Point
from coterie.errors import UnknownName
from coterie.factors import apart, decomposed, orthonormal, stacked, within
from coterie.methods.costs import Sizes
from coterie.methods.disclosure import TOTALS, Disclosure
from coterie.methods.frank_wolfe import Power, check_power, named, power_iterations, radius
from coterie.methods.method import Method
from coterie.networks import Network
from coterie.penalties.l1ball import onto_l1_ball
from coterie.problem import Problem
from coterie.tasks import Information
from coterie.tasks.task import INFORMATION
from coterie.words import Sum, Talk

BEGINNINGS = ("auto", "random", "previous")
NEGLIGIBLE = 1e-13
"""Singular values of S below this part of the largest are dropped."""


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


@dataclass(frozen=True)
class DfwSubspace(Method[State]):
    """Grow two spaces by power iterations, and take the best matrix that they hold."""

    name: ClassVar[str] = "dfw-subspace"
    split: ClassVar[str] = "samples"
    family: ClassVar[str] = "low-rank"
    summary: ClassVar[str] = (
        "fully corrective Frank-Wolfe for low rank: the best matrix in the space of all atoms so far"
    )
    disclosure: ClassVar[Disclosure] = Disclosure(
        sent="products of its own gradient with a few vectors, a number per column or class, added up",
        learned="a few combinations of weighted sums of rows in each round",
        secure=TOTALS,
    )
    tells_labels: ClassVar[bool] = False

    power: Power = 1
    """K(t), as for dfw-trace."""
    log_factor: float = 1.0
    """c of "log"."""
    block: int = 10
    """How many power vectors a round adds."""
    begin: str = "auto"
    """Where power iterations begin: at "random", from the "previous" block, or "auto": that, if it is a block."""
    space: int = 50
    """Up to how many columns U and V keep directions that W does not use now; beyond, they keep only W's own."""
    inner: int = 10
    """Steps inside the spaces a round, for tasks that are not quadratic."""
    information: str = "auto"
    """What agents keep: "dense" (d × m matrices), "implicit" (nothing larger than their data), or what costs less."""

    def __post_init__(self) -> None:
        check_power(self.name, self.power, self.log_factor)
        for name in ("block", "space", "inner"):
            whole_number(f"dfw-subspace: {name}", getattr(self, name))
        if self.information not in INFORMATION:
            raise UnknownName("information of dfw-subspace", self.information, INFORMATION)
        if self.begin not in BEGINNINGS:
            raise UnknownName("beginning of dfw-subspace", self.begin, BEGINNINGS)

    @classmethod
    def score(cls, problem: Problem, network: Network, sizes: Sizes | None = None) -> tuple[float, str]:
        return 1.0, "corrective steps reach small gaps in few rounds"

    def start(self, agent: Agent) -> Talk[State]:
        d, m = agent.problem.task.size(agent.data)
        dtype = self._information(agent).dtype
        yield from ()  # there is nothing to ask
        nothing = np.zeros((0, 0))
        return State(np.zeros((d, 0), dtype), np.zeros(0), np.zeros((m, 0), dtype), nothing, nothing, nothing, 1.0)

    def warm(self, agent: Agent, state: State, point: Point) -> Talk[State]:
        left, right = apart(point.w.astype(state.U.dtype), len(state.U))
        U, s, V = decomposed(left, right, NEGLIGIBLE)
        s = s.astype(float) * min(1.0, radius(agent) / s.sum()) if s.size else s.astype(float)
        information, image = self._at(agent, U, s, V)
        r = len(s)
        mine = [information.curvature(U, image, r), information.projected(U, image, V)]
        sums = yield Sum(np.concatenate([part.ravel().astype(float) for part in mine]))
        M, slope = sums[: r * r].reshape(r, r), sums[r * r :].reshape(r, r)
        return replace(state, U=U, s=s, V=V, M=_symmetric(M), slope=slope)

    @property
    def _goes_on(self) -> bool:
        """Whether a block begins where the last one ended."""
        return self.begin == "previous" or (self.begin == "auto" and self.block > 1)

    def round(self, agent: Agent, state: State, t: int) -> Talk[State]:
        task, mu = agent.problem.task, radius(agent)
        U, s, V = state.U, state.s, state.V
        information, image = self._at(agent, U, s, V)
        dtype, p, q = information.dtype, U.shape[1], V.shape[1]

        block = agent.common_random(t).standard_normal((len(U), self.block)).astype(dtype)
        if self._goes_on and state.block.size:
            block[:, : state.block.shape[1]] = state.block[:, : self.block]
        for _ in range(power_iterations(self.power, t - 1, self.log_factor)):
            right = yield Sum(information.times_transposed(block))
            left = yield Sum(information.times(shared_result(right, orthonormal, right)))
            block = shared_result(left, orthonormal, left)
        Qu = shared_result(left, lambda: orthonormal(left, U))
        Qv = shared_result(right, lambda: orthonormal(right, V))
        a, b = Qu.shape[1], Qv.shape[1]
        basis, right = np.hstack([U, Qu]), np.hstack([V, Qv])
        grown = backend(image).beside(image, information.image(Qu))

        projected = information.projected(basis, grown, right).astype(float)
        mine = [information.curvature(basis, grown, a), projected[:p, q:], projected[p:]]
        sums = yield Sum(np.concatenate([part.ravel().astype(float) for part in mine]))
        columns, corner, rows = np.split(sums, np.cumsum([(p + a) * a, p * b]))
        columns = columns.reshape(p + a, a)
        M = _symmetric(np.hstack([np.vstack([state.M.reshape(p, p), columns[:p].T]), columns]))
        slope = np.vstack([np.hstack([state.slope.reshape(p, q), corner.reshape(p, b)]), rows.reshape(a, q + b)])
        S = np.zeros((p + a, q + b))
        np.fill_diagonal(S[: len(s), : len(s)], s)
        kappa = state.kappa

        if task.exact:
            # F is its own quadratic model: one small problem, and the new slope follows without a word.
            best = shared_result(sums, best_in_ball, slope, M, S, mu)
            S, slope = best, slope + M @ (best - S)
        else:
            S, slope, kappa = yield from self._corrected(agent, information, basis, grown, right, S, slope, M, kappa)

        P, values, Qt = np.linalg.svd(S)
        values = values[values > NEGLIGIBLE * values[:1].sum()]
        P, Q = (side if side.shape[1] <= self.space else side[:, : len(values)] for side in (P, Qt.T))
        return State(
            (basis @ P).astype(dtype),
            values,
            (right @ Q).astype(dtype),
            P.T @ slope @ Q,
            _symmetric(P.T @ M @ P),
            block if self._goes_on else np.zeros((0, 0)),
            kappa,
        )

    def _corrected(
        self,
        agent: Agent,
        information: Information,
        basis: FloatArray,
        image: Any,
        right: FloatArray,
        S: FloatArray,
        slope: FloatArray,
        M: FloatArray,
        kappa: float,
    ) -> Talk[tuple[FloatArray, FloatArray, float]]:
        """A few steps S ← argmin of the model with κM around S, each accepted only if F falls as promised."""
        mu, here = radius(agent), backend(image).here

        def look(S: FloatArray) -> FloatArray:
            left = (basis @ S).astype(information.dtype)
            information.reset(left, right, image @ here(S))
            slopes = information.projected(basis, image, right)
            return np.append(slopes.ravel().astype(float), information.loss())

        sums = yield Sum(np.array([information.loss()]))
        loss = float(sums[0])
        for _ in range(self.inner):
            trial = shared_result(sums, best_in_ball, slope, kappa * M, S, mu, 100, 1e-2)
            way = trial - S
            promised = float(np.vdot(slope, way))
            if not promised < -1e-15 * abs(loss):
                break
            sums = yield Sum(look(trial))
            bent = float(np.vdot(way, M @ way))
            if sums[-1] > loss + promised + 0.5 * kappa * bent + 1e-12 * abs(loss) and kappa < 1.0:
                kappa = min(1.0, 4.0 * kappa)
                continue
            new_slope = sums[:-1].reshape(slope.shape)
            measured = float(np.vdot(way, new_slope - slope)) / bent if bent > 0 else 1.0
            S, slope, loss = trial, new_slope, float(sums[-1])
            kappa = min(1.0, max(measured, 1e-8))
        return S, slope, kappa

    def point(self, agent: Agent, state: State) -> Point:
        r = len(state.s)
        return Point(stacked(*within(state.U[:, :r] * state.s, state.V[:, :r], radius(agent))))

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "power": named(self.power)}

    def _information(self, agent: Agent) -> Information:
        if "information" not in agent.scratch:
            agent.scratch["information"] = agent.problem.task.stats(agent.data, self.information)
        kept: Information = agent.scratch["information"]
        return kept

    def _at(self, agent: Agent, U: FloatArray, s: FloatArray, V: FloatArray) -> tuple[Information, Any]:
        """The agent's information moved to U diag(s) Vᵀ, and the image of U."""
        information = self._information(agent)
        image, r = information.image(U), len(s)
        sizes = s.astype(information.dtype)
        information.reset(U[:, :r] * sizes, V[:, :r], image[:, :r] * backend(image).here(sizes))
        return information, image


def best_in_ball(
    slope: FloatArray, M: FloatArray, S0: FloatArray, mu: float, steps: int = 500, tolerance: float = 1e-5
) -> FloatArray:
    """argmin over ‖S‖_* ≤ μ of ⟨G, S − S₀⟩ + ½⟨S − S₀, M (S − S₀)⟩, from S₀, by accelerated projected gradients.

    Ends when the Frank-Wolfe gap of this small problem is `tolerance` of what it was.
    """
    L = float(np.linalg.norm(M, 2))
    if not L > 0:
        return S0
    S = Y = S0
    theta = 1.0
    along, size = float(np.vdot(slope, S0)), mu * float(np.linalg.norm(slope, 2))
    goal = max(tolerance * (along + size), 1e-14 * (abs(along) + size))
    for step in range(steps):
        gradient = slope + M @ (Y - S0)
        new = _onto_ball(Y - gradient / L, mu)
        if np.vdot(gradient, new - S) > 0 and theta > 1.0:
            theta, Y = 1.0, S  # the momentum points uphill: start again
            continue
        ahead = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * theta * theta))
        Y = new + ((theta - 1.0) / ahead) * (new - S)
        S, theta = new, ahead
        if step % 8 == 0:
            at = slope + M @ (S - S0)
            gap = float(np.vdot(at, S)) + mu * float(np.linalg.norm(at, 2))
            if gap <= goal:
                break
    return S


def _onto_ball(S: FloatArray, mu: float) -> FloatArray:
    left, values, right = np.linalg.svd(S, full_matrices=False)
    if values.sum() <= mu:
        return S
    projected: FloatArray = (left * onto_l1_ball(values, mu)) @ right
    return projected


def _symmetric(M: FloatArray) -> FloatArray:
    return 0.5 * (M + M.T)
