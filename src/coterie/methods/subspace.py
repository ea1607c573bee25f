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
from coterie.certificate.intercepts import adjusted, as_array, information_of, put_together, taken_apart
from coterie.errors import UnknownName
from coterie.factors import decomposed, orthonormal, within
from coterie.methods.costs import Sizes
from coterie.methods.disclosure import TOTALS, Disclosure
from coterie.methods.frank_wolfe import Power, check_power, named, power_iterations, radius
from coterie.methods.method import Method
from coterie.methods.small_ball import Quadratic, best_in_ball, least
from coterie.networks import Network
from coterie.problem import Problem
from coterie.tasks import Information
from coterie.tasks.task import INFORMATION
from coterie.tuning import Tuning, tuned
from coterie.words import Sum, Talk

BEGINNINGS = ("auto", "random", "previous")
NEGLIGIBLE = 1e-13
"""Singular values of S below this part of the largest are dropped."""


@dataclass(frozen=True)
class _Tuning(Tuning):
    memory: int = tuned(20, "How many inner steps the model of F remembers.")


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
    """The last inner steps on U and V, and by how much they changed the slope: one pair of rows each."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the inner steps are."""

    S: FloatArray
    slope: FloatArray
    beta: FloatArray
    kappa: float
    pairs: FloatArray


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
        information = self._information(agent)
        yield from ()  # there is nothing to ask
        U, V, nothing = np.zeros((d, 0), information.dtype), np.zeros((m, 0), information.dtype), np.zeros((0, 0))
        beta = as_array(information.b)
        return State(U, np.zeros(0), V, nothing, nothing, nothing, 1.0, beta, np.zeros((0, 2, len(beta))))

    def warm(self, agent: Agent, state: State, point: Point) -> Talk[State]:
        left, right, free = taken_apart(agent, point.w)
        U, s, V = decomposed(left.astype(state.U.dtype), right.astype(state.U.dtype), NEGLIGIBLE)
        s = s.astype(float) * min(1.0, radius(agent) / s.sum()) if s.size else s.astype(float)
        beta = as_array(free) if state.beta.size else state.beta
        information, image = self._at(agent, replace(state, U=U, s=s, V=V, beta=beta))
        r = len(s)
        mine = [information.curvature(U, image, r), information.projected(U, image, V)]
        sums = yield Sum(np.concatenate([part.ravel().astype(float) for part in mine]))
        M, slope = sums[: r * r].reshape(r, r), sums[r * r :].reshape(r, r)
        pairs = np.zeros((0, 2, r * r + beta.size))
        return replace(state, U=U, s=s, V=V, M=_symmetric(M), slope=slope, beta=beta, pairs=pairs)

    @property
    def _goes_on(self) -> bool:
        """Whether a block begins where the last one ended."""
        return self.begin == "previous" or (self.begin == "auto" and self.block > 1)

    def round(self, agent: Agent, state: State, t: int) -> Talk[State]:
        task, mu = agent.problem.task, radius(agent)
        U, s, V = state.U, state.s, state.V
        information, image = self._at(agent, state)
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
        if state.beta.size:
            # The intercept has been moved since the old corner was known.
            mine.append(projected[:p, :q])
        sums = yield Sum(np.concatenate([part.ravel().astype(float) for part in mine]))
        columns, corner, rows, old = np.split(sums, np.cumsum([(p + a) * a, p * b, a * (q + b)]))
        columns = columns.reshape(p + a, a)
        M = _symmetric(np.hstack([np.vstack([state.M.reshape(p, p), columns[:p].T]), columns]))
        known = old.reshape(p, q) if state.beta.size else state.slope.reshape(p, q)
        slope = np.vstack([np.hstack([known, corner.reshape(p, b)]), rows.reshape(a, q + b)])
        S = np.zeros((p + a, q + b))
        np.fill_diagonal(S[: len(s), : len(s)], s)
        at = Place(S, slope, state.beta, state.kappa, _grown(state.pairs, (p, q), S.shape, state.kappa * M))

        if task.exact:
            # F is its own quadratic model: one small problem, and the new slope follows without a word.
            best = shared_result(sums, best_in_ball, slope, M, S, mu)
            at = replace(at, S=best, slope=slope + M @ (best - S))
        else:
            at = yield from self._corrected(agent, information, basis, grown, right, at, M)
        S, slope = at.S, at.slope

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
            at.kappa,
            at.beta,
            _turned(at.pairs, S.shape, P, Q),
        )

    def _corrected(
        self,
        agent: Agent,
        information: Information,
        basis: FloatArray,
        image: Any,
        right: FloatArray,
        at: Place,
        M: FloatArray,
    ) -> Talk[Place]:
        """A few steps to the minimum of a model of F around (S, β), each accepted only if F falls."""
        mu, here, cells, shape = radius(agent), backend(image).here, at.S.size, at.S.shape
        follows = at.beta.size > 0

        def move(z: FloatArray) -> None:
            S = z[:cells].reshape(shape)
            if follows:
                information.put(z[cells:] / unit)
            information.reset((basis @ S).astype(information.dtype), right, image @ here(S))

        def look() -> FloatArray:
            told = np.append(information.projected(basis, image, right).ravel().astype(float), information.loss())
            return np.append(told, information.slope_of_intercept()) if follows else told

        m = at.beta.size
        first = look()[cells:]
        sums = yield Sum(first)
        loss, (g, D) = float(sums[0]), np.split(sums[1:], 2)
        ell = float(np.linalg.norm(M, 2))
        # β in units in which its curvature, which is at most D, is at most that of S
        unit = np.sqrt(np.maximum(D, 1e-12 * agent.total) / ell) if ell > 0 else np.ones(m)
        z, slope = np.append(at.S.ravel(), at.beta * unit), np.append(at.slope.ravel(), g / unit)
        scale = np.append(np.ones(cells), unit)
        pairs = [(s * scale, y / scale) for s, y in at.pairs]
        kappa, here_now = at.kappa, True
        for _ in range(self.inner):
            trial = shared_result(sums, _step, slope, kappa * M, shape[1], ell, pairs, z, mu)
            way = trial - z
            promised = float(slope @ way)
            if not promised < -1e-22 * abs(loss):
                break
            move(trial)
            sums = yield Sum(look())
            new_slope = np.append(sums[:cells], sums[cells + 1 : cells + 1 + m] / unit)
            pairs = [*pairs, (way, new_slope - slope)][-TUNING.memory :]
            # Where F falls by less than its rounding, its slope along the way decides.
            lower = sums[cells] <= loss + 0.1 * promised
            flat = -promised <= 1e-10 * abs(loss) and float(new_slope @ way) <= -0.5 * promised
            here_now = bool(lower or flat)
            if not here_now:
                kappa = min(1.0, 4.0 * kappa)
                continue
            bent = float(np.vdot(way[:cells].reshape(shape), M @ way[:cells].reshape(shape)))
            measured = float(way[:cells] @ (new_slope - slope)[:cells]) / bent if bent > 0 else 1.0
            kappa = min(1.0, max(measured, 0.5 * kappa, 1e-8))
            z, slope, loss = trial, new_slope, float(sums[cells])
        beta = at.beta
        if follows:
            if not here_now:
                move(z)
            found = yield from adjusted(agent, information)
            beta = as_array(found)
        kept = np.array([(s / scale, y * scale) for s, y in pairs]).reshape(-1, 2, len(z))
        return Place(z[:cells].reshape(shape), slope[:cells].reshape(shape), beta, kappa, kept)

    def point(self, agent: Agent, state: State) -> Point:
        r = len(state.s)
        factors = within(state.U[:, :r] * state.s, state.V[:, :r], radius(agent))
        return Point(put_together(agent, *factors, state.beta if state.beta.size else None))

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "power": named(self.power)}

    def _information(self, agent: Agent) -> Information:
        if "information" not in agent.scratch:
            agent.scratch["information"] = information_of(agent, self.information)
        kept: Information = agent.scratch["information"]
        return kept

    def _at(self, agent: Agent, state: State) -> tuple[Information, Any]:
        """The agent's information moved to U diag(s) Vᵀ, and the image of U."""
        information, U, s, V = self._information(agent), state.U, state.s, state.V
        image, r = information.image(U), len(s)
        if state.beta.size:
            information.put(state.beta)
        sizes = s.astype(information.dtype)
        information.reset(U[:, :r] * sizes, V[:, :r], image[:, :r] * backend(image).here(sizes))
        return information, image


def _step(
    slope: FloatArray,
    M: FloatArray,
    columns: int,
    ell: float,
    pairs: list[tuple[FloatArray, FloatArray]],
    z: FloatArray,
    mu: float,
) -> FloatArray:
    return least(slope, Quadratic(M, columns, ell, pairs), z, mu, 100, 1e-2)


def _grown(pairs: FloatArray, old: tuple[int, int], new: tuple[int, int], M: FloatArray) -> FloatArray:
    """Pairs on larger spaces, where the steps did not go; the slope changed there as M says."""
    cells = old[0] * old[1]
    out = np.zeros((len(pairs), 2, new[0] * new[1] + pairs.shape[2] - cells))
    for before, after in zip(pairs, out, strict=True):
        for one, two in zip(before, after, strict=True):
            two[: new[0] * new[1]].reshape(new)[: old[0], : old[1]] = one[:cells].reshape(old)
            two[new[0] * new[1] :] = one[cells:]
        S = after[0, : new[0] * new[1]].reshape(new)
        after[1, : new[0] * new[1]].reshape(new)[old[0] :] = M[old[0] :] @ S
    return out


def _turned(pairs: FloatArray, shape: tuple[int, int], P: FloatArray, Q: FloatArray) -> FloatArray:
    """Pairs in the coordinates of P and Q; none where these leave something out."""
    cells = shape[0] * shape[1]
    m = pairs.shape[2] - cells
    if P.shape[1] < shape[0] or Q.shape[1] < shape[1]:
        return np.zeros((0, 2, P.shape[1] * Q.shape[1] + m))
    turned = (P.T @ pairs[:, :, :cells].reshape(len(pairs), 2, *shape) @ Q).reshape(len(pairs), 2, cells)
    return np.concatenate([turned, pairs[:, :, cells:]], axis=2)


def _symmetric(M: FloatArray) -> FloatArray:
    return 0.5 * (M + M.T)
