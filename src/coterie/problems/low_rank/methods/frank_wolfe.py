"""Distributed Frank-Wolfe for matrices of low rank (Zheng, Bellet, Gallinari 2018), samples split
around a server.

    minimise F(W) = Σ_j F_j(W)  over  ‖W‖_* ≤ μ,          W ← (1 − γ) W − γ μ u vᵀ
                                (2), (3)

| paper                  | code                      | meaning
                         |
|------------------------|---------------------------|-----------------------------------------------------------------|
| W^t ∈ R^{d×m}          | `left`, `right`, `u`, `v` | the iterate as factors, never multiplied out
                         |
| μ                      | `penalty.radius`          | the bound on the trace norm
                         |
| F_j, f_i               | `problem.loss`            | the loss of agent j, a sum over its samples
                         |
| sufficient information | `tasks.Information`       | what an agent keeps to multiply ∇F_j(W) by
vectors              |
| u_k, v_k               | `u`, `v`                  | power iterates: unit vectors of length d and
                         m                  |
| K(t)                   | `power`                   | power iterations in epoch t = 0, 1, ...;
                         round t is epoch t − 1 |
| γ^t                    | `step`                    | 2/(t + 2), or a line search
                         |

|             | how (u, v) is found                                                     | up, per
agent and epoch |
|-------------|-------------------------------------------------------------------------|-------------------------|
| `naive-dfw` | top singular vectors of Σ_j ∇F_j                                        | d m
numbers             |
| `sva`       | average of the agents' own top singular vectors                         | d + m
              |
| `dfw-trace` | K(t) distributed power iterations from a common random vector (alg. 2)  | K(t) (d +
m)            |

and as many down again; Table 1 counts both ways for DFW-TRACE, 2 N K (d + m). A line search adds
one `Sum` of two numbers, for multinomial one per Newton step.

The iterate is kept as the sum of few rank-one matrices and is compressed by a thin QR and a small
SVD every `compress` rounds. What an agent computes from its data beside it (scores, residuals,
gradients) follows each step and is never part of the State: where a run goes on from a checkpoint
it is computed again, by the same steps from the same factors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from scipy.sparse.linalg import LinearOperator

from coterie.errors import InvalidProblem, UnknownName
from coterie.methods.method import Method
from coterie.networks import Network
from coterie.numerics.arrays import FloatArray, as_number, shared_result
from coterie.numerics.backends import TorchBackend
from coterie.numerics.factors import decomposed, within
from coterie.numerics.penalties.ball import radius_of
from coterie.numerics.penalties.traceball import leading_pair
from coterie.numerics.tuning import Tuning, tuned
from coterie.problems.low_rank.tasks import Information, Task
from coterie.problems.low_rank.tasks.task import INFORMATION
from coterie.problems.problem import Problem
from coterie.run.agent import Agent
from coterie.run.certificate import Point
from coterie.run.certificate.intercepts import (
    adjusted,
    as_array,
    information_of,
    put_together,
    taken_apart,
)
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import TOTALS, Case, Counts, Disclosure

BEGINNINGS = ("random", "previous", "sva")


@dataclass(frozen=True)
class _Tuning(Tuning):
    compress: int = tuned(50, "After how many rounds the factors are compressed.")
    search: float = tuned(
        1e-4,
        "A line search stops at this share of the first slope.",
        "theorem: what is lost is its square",
        below=1,
    )
    newton_steps: int = tuned(
        30, "Newton steps of a line search at most.", "theorem: bisection alone is exact to 1e-9"
    )


TUNING = _Tuning()

Power = int | str | Callable[[int], int]
Pair = tuple[FloatArray, FloatArray]


@dataclass(frozen=True, slots=True)
class State:
    """Where one agent stands between two rounds: the same at all of them."""

    left: FloatArray
    right: FloatArray
    """W when it was last compressed, left rightᵀ."""
    u: FloatArray
    v: FloatArray
    """The unit vectors of the rounds since then, one column each."""
    steps: FloatArray
    """Their γ."""
    start: FloatArray
    """The last right power vector, from which a warm start begins."""
    beta: FloatArray
    """The intercept beside centred columns, if it follows W; else empty."""


@dataclass(frozen=True)
class FrankWolfe(Method[State, Problem[Task]]):
    """What the three share."""

    split: ClassVar[str] = "samples"
    family: ClassVar[str] = "low-rank"
    tells_labels: ClassVar[bool] = False

    step: str = "auto"
    """"classic" is 2/(t + 2), "search" an exact line search; "auto" is as published: "search"
    unless multinomial.
    """
    information: str = "auto"
    """What agents keep: "dense" (d × m matrices), "implicit" (nothing larger than their data), or
    what costs less.
    """

    def __post_init__(self) -> None:
        for name, known in (("step", ("auto", "classic", "search")), ("information", INFORMATION)):
            if getattr(self, name) not in known:
                raise UnknownName(f"{name} of {self.name}", getattr(self, name), known)

    def check(self, problem: Problem[Task], network: Network) -> None:
        if problem.loss.stages > 1:
            raise InvalidProblem(
                f"{self.name} has no stages. Use dfw-subspace, or leave stages out."
            )

    def start(self, agent: Agent[Problem[Task]]) -> Protocol[State]:
        d, m = agent.problem.loss.size(agent.data)
        information = information_of(agent, self.information)
        yield from ()  # there is nothing to ask
        nothing = np.zeros((d, 0), information.dtype), np.zeros((m, 0), information.dtype)
        state = State(
            *nothing, *nothing, np.zeros(0), np.zeros(m, information.dtype), as_array(information.b)
        )
        agent.scratch["followed"] = state, information
        return state

    def warmed(self, agent: Agent[Problem[Task]], state: State, point: Point) -> State:
        left, right, free = taken_apart(agent, point.w)
        U, s, V = decomposed(left.astype(state.left.dtype), right.astype(state.left.dtype))
        if s.sum() > radius(agent):
            room = radius(agent) / s.sum()
        else:
            room = 1.0
        return replace(
            state,
            left=U * (room * s),
            right=V,
            beta=as_array(free) if state.beta.size else state.beta,
        )

    def round(self, agent: Agent[Problem[Task]], state: State, t: int) -> Protocol[State]:
        information = self._followed(agent, state)
        u, v = yield from self.oracle(agent, information, state, t)
        # S = −μ u vᵀ minimises ⟨S, ∇F(W)⟩
        # (3)
        scale = -radius(agent)
        gamma = yield from self._step(agent, information, scale, u, v, t)
        # W^{t+1} = (1 − γ) W^t + γ S
        # algorithm 2, line 12
        information.move(gamma, scale, u, v)
        us = np.column_stack([state.u, u])
        vs = np.column_stack([state.v, v])
        state = replace(state, u=us, v=vs, steps=np.append(state.steps, gamma), start=v)
        if t % TUNING.compress == 0:
            left, s, right = decomposed(*self._factors(agent, state), 1e-15)
            us = us[:, :0]
            vs = vs[:, :0]
            steps = state.steps[:0]
            state = replace(state, left=left * s, right=right, u=us, v=vs, steps=steps)
            information.reset(state.left, state.right)
        if (beta := (yield from adjusted(agent, information))) is not None:
            state = replace(state, beta=beta)
        agent.scratch["followed"] = state, information
        return state

    def oracle(
        self, agent: Agent[Problem[Task]], information: Information, state: State, t: int
    ) -> Protocol[Pair]:
        """Unit vectors u, v with uᵀ∇F(W)v as large as the method makes it."""
        raise NotImplementedError

    def point(self, agent: Agent[Problem[Task]], state: State) -> Point:
        factors = within(*self._factors(agent, state), radius(agent))
        if state.beta.size:
            intercept = state.beta
        else:
            intercept = None
        return Point(put_together(agent, *factors, intercept))

    def _factors(self, agent: Agent[Problem[Task]], state: State) -> Pair:
        """W as left rightᵀ, each atom with what the later steps left of it."""
        left_of = np.cumprod(np.append(1.0, 1.0 - state.steps[::-1]))[::-1]
        weights = (-radius(agent) * state.steps * left_of[1:]).astype(state.u.dtype)
        left = np.hstack([state.left * state.left.dtype.type(left_of[0]), state.u * weights])
        return left, np.hstack([state.right, state.v])

    def _followed(self, agent: Agent[Problem[Task]], state: State) -> Information:
        """The information that belongs to that State, rebuilt step by step where it is not at
        hand.
        """
        kept = agent.scratch.get("followed")
        if kept is not None and kept[0] is state:
            known: Information = kept[1]
            return known
        information = information_of(agent, self.information)
        information.reset(state.left, state.right)
        for gamma, u, v in zip(state.steps, state.u.T, state.v.T, strict=True):
            information.move(
                float(gamma),
                -radius(agent),
                np.array(u, information.dtype),
                np.array(v, information.dtype),
            )
        if state.beta.size:
            information.put(state.beta)
        return information

    def _step(
        self,
        agent: Agent[Problem[Task]],
        information: Information,
        scale: float,
        u: FloatArray,
        v: FloatArray,
        t: int,
    ) -> Protocol[float]:
        task = agent.problem.loss
        if self.step == "classic" or (self.step == "auto" and not task.quadratic):
            return 2.0 / (t + 1.0)

        def gradients(gamma: float) -> Protocol[tuple[float, float]]:
            total = yield Sum(information.gradients(gamma, scale, u, v))
            return float(total[0]), float(total[1])

        slope, curvature = yield from gradients(0.0)
        if not (slope < 0 and curvature > 0):
            return 0.0
        gamma = min(-slope / curvature, 1.0)
        if task.quadratic:
            return gamma
        # Newton on φ' = 0, kept inside the interval in which it changes sign.
        low = 0.0
        high = 1.0
        first = -slope
        for _ in range(TUNING.newton_steps):
            slope, curvature = yield from gradients(gamma)
            if abs(slope) <= TUNING.search * first or (gamma == 1.0 and slope < 0):
                break
            if slope < 0:
                low = gamma
            else:
                high = gamma
            gamma = _inside(gamma, slope, curvature, low, high)
        return gamma


def _inside(gamma: float, slope: float, curvature: float, low: float, high: float) -> float:
    """Newton's next γ; the middle of the interval, or its end at 1, where that lies outside."""
    if curvature > 0:
        newton = gamma - slope / curvature
    else:
        newton = -1.0
    if low < newton < high:
        return newton
    if newton >= high == 1.0:
        return 1.0
    return 0.5 * (low + high)


@dataclass(frozen=True)
class NaiveDfw(FrankWolfe):
    """Centralised Frank-Wolfe on the sum of all gradients (section 3.1)."""

    name: ClassVar[str] = "naive-dfw"
    summary: ClassVar[str] = (
        "Frank-Wolfe for low rank with whole gradients: exact steps, d·m numbers per round"
    )
    disclosure: ClassVar[Disclosure] = Disclosure(
        sent="your gradient, one number per column and class, as part of a sum",
        learned="for each class a weighted sum of your rows",
        secure=TOTALS,
        most=lambda case: _most(case, 1, math.prod(case.matrix)),
        sometimes=lambda case: _search(case),
    )

    def oracle(
        self, agent: Agent[Problem[Task]], information: Information, state: State, t: int
    ) -> Protocol[Pair]:
        total = yield Sum(information.gradient())
        u, v = shared_result(total, leading_pair, total)
        return np.array(u, information.dtype), np.array(v, information.dtype)


@dataclass(frozen=True)
class Sva(FrankWolfe):
    """Singular vector averaging (section 3.1): a heuristic, without a guarantee."""

    name: ClassVar[str] = "sva"
    summary: ClassVar[str] = (
        "Frank-Wolfe for low rank with averaged local singular vectors: d + m numbers per round"
    )
    disclosure: ClassVar[Disclosure] = Disclosure(
        sent="the leading singular vectors of your gradient, as part of a sum",
        learned="the direction in which your rows pull most",
        secure=TOTALS,
        most=lambda case: _most(case, 1, sum(case.matrix)),
        sometimes=lambda case: _search(case),
    )

    def oracle(
        self, agent: Agent[Problem[Task]], information: Information, state: State, t: int
    ) -> Protocol[Pair]:
        u, v = local_pair(agent, information)
        total = yield Sum(np.concatenate([u, v]) * information.dtype.type(agent.data.n))
        return _unit(total[: len(u)]), _unit(total[len(u) :])


@dataclass(frozen=True)
class DfwTrace(FrankWolfe):
    """DFW-TRACE, algorithm 2."""

    name: ClassVar[str] = "dfw-trace"
    summary: ClassVar[str] = (
        "Frank-Wolfe for low rank by distributed power iterations: K(d + m) numbers per round"
    )
    disclosure: ClassVar[Disclosure] = Disclosure(
        sent=(
            "products of your gradient with one vector, one number per column or class, as part "
            "of a sum"
        ),
        learned="one combination of weighted sums of your rows in each product",
        secure=TOTALS,
        most=lambda case: _most_of_products(case),
        sometimes=lambda case: _search(case),
    )

    power: Power = 2
    """K(t): power iterations a round; a number, "log" for ⌊1 + c log₁₀ t⌋, or a function of the
    epoch 0, 1, ...
    """
    log_factor: float = 1.0
    """c of "log"."""
    begin: str = "random"
    """Where power iterations begin: "random" (as published), "previous" (the last v), or "sva"."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_power(self.name, self.power, self.log_factor)
        if self.begin not in BEGINNINGS:
            raise UnknownName("beginning of dfw-trace", self.begin, BEGINNINGS)

    def oracle(
        self, agent: Agent[Problem[Task]], information: Information, state: State, t: int
    ) -> Protocol[Pair]:
        if self.begin == "sva":
            v = _unit(
                (
                    yield Sum(
                        local_pair(agent, information)[1] * information.dtype.type(agent.data.n)
                    )
                )
            )
        elif self.begin == "previous" and state.start.any():
            v = state.start
        else:
            v = _unit(
                agent.common_random(t).standard_normal(len(state.right)).astype(information.dtype)
            )
        u = np.zeros(len(state.left), information.dtype)
        for _ in range(power_iterations(self.power, t - 1, self.log_factor)):
            # u_{k+1} = Σ_j ∇F_j v_k, v_{k+1} = Σ_j ∇F_jᵀ u_{k+1}, both normalised
            # algorithm 2, lines 6 to 9
            u = _unit((yield Sum(information.times(v))))
            v = _unit((yield Sum(information.times_transposed(u))))
        return u, v

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "power": named(self.power)}


def radius(agent: Agent[Problem[Task]]) -> float:
    """μ."""
    return radius_of(agent.problem.penalty)


def _most(case: Case, collectives: int, numbers: int) -> Counts | None:
    """The largest counts of a round whose oracle sends that many; None: an intercept takes more, as
    it is found.
    """
    if case.intercept and case.problem.loss.kind != "numbers":
        return None
    return collectives + 1, numbers + 2


def _search(case: Case) -> Counts:
    """The largest counts of a search for the step size, with losses that are not quadratic."""
    if case.problem.loss.quadratic:
        return (0, 0)
    return (TUNING.newton_steps, 2 * TUNING.newton_steps)


def _most_of_products(case: Case) -> Counts | None:
    power = DfwTrace.power
    if not isinstance(power, int):
        return None
    return _most(case, 2 * power, power * sum(case.matrix))


def power_iterations(power: Power, epoch: int, log_factor: float = 1.0) -> int:
    """K(t) in epoch t = 0, 1, ...: never 0. "log" is base 10, as the break after ten epochs in
    figure 1 says.
    """
    if power == "log":
        return 1 + int(log_factor * math.log10(epoch + 0.99))
    count = as_number(power(epoch) if callable(power) else power)
    if not math.isfinite(count):
        raise InvalidProblem(
            f"power={named(power)} gave no number in epoch {epoch}. Let it return one from 1."
        )
    return max(1, int(count))


def check_power(method: str, power: Power, log_factor: float) -> None:
    """Refuse what is no schedule."""
    whole = isinstance(power, int | np.integer) and not isinstance(power, bool) and power >= 1
    if not (whole or callable(power) or power == "log"):
        raise InvalidProblem(
            f"{method}: power is a number from 1, 'log', or a function of the epoch, not {power!r}."
        )
    if not 0 < log_factor < math.inf:
        raise InvalidProblem(f"{method}: log_factor must be a positive number, not {log_factor!r}.")


def named(power: Power) -> int | str:
    """The schedule as a plain value."""
    if isinstance(power, partial):
        given = [
            *map(repr, power.args),
            *(f"{name}={value!r}" for name, value in power.keywords.items()),
        ]
        return f"partial({', '.join([str(named(power.func)), *given])})"
    if callable(power):
        known: Any = power
        if not hasattr(power, "__qualname__"):
            known = type(power)
        return f"{known.__module__}.{known.__qualname__}"
    if isinstance(power, str):
        return power
    return int(power)


def local_pair(agent: Agent[Problem[Task]], information: Information) -> Pair:
    """The top singular vectors of its own gradient; the largest entry of u is positive, and v
    follows.
    """
    there = getattr(information, "backend", None)
    if isinstance(there, TorchBackend) and there.fast:
        u, v = there.leading_pair(information.matrix())
    else:
        u, v = leading_pair(
            LinearOperator(
                agent.problem.loss.size(agent.data),
                matvec=lambda x: information.times(np.asarray(x, information.dtype).ravel()),
                rmatvec=lambda x: information.times_transposed(
                    np.asarray(x, information.dtype).ravel()
                ),
                matmat=information.times,
                rmatmat=information.times_transposed,
                dtype=information.dtype,
            )
        )
    if u[np.abs(u).argmax()] >= 0:
        sign = 1.0
    else:
        sign = -1.0
    return (sign * u).astype(information.dtype), (sign * v).astype(information.dtype)


def _unit(x: FloatArray) -> FloatArray:
    return x / (np.linalg.norm(x) or 1.0)
