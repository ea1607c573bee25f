"""Distributed Frank-Wolfe for matrices of low rank (Zheng, Bellet, Gallinari 2018), samples split
over agents around a server.

    minimise F(W) = Σ_j F_j(W)  over  ‖W‖_* ≤ μ,          W ← (1 − γ) W − γ μ u vᵀ
                                (2), (3)

| paper                  | code                      | meaning                                    |
|------------------------|---------------------------|--------------------------------------------|
| W^t ∈ R^{d×m}          | `left`, `right`, `u`, `v` | the iterate as factors, never multiplied   |
| μ                      | `penalty.radius`          | the bound on the trace norm                |
| F_j, f_i               | `problem.loss`            | the loss of agent j, a sum over its rows   |
| sufficient information | `tasks.Information`       | an agent multiplies ∇F_j(W) by vectors     |
| u_k, v_k               | `u`, `v`                  | power iterates: unit vectors (d) and (m)   |
| K(t)                   | `power`                   | power iterations in epoch t = 0, 1, ...;   |
|                        |                           | round t is epoch t − 1                     |
| γ^t                    | `step`                    | 2/(t + 2), or a line search                |

|             | computation of (u, v)                                    | up, per agent and epoch |
|-------------|----------------------------------------------------------|-------------------------|
| `naive-dfw` | top singular vectors of Σ_j ∇F_j                         | d m numbers             |
| `sva`       | average of the agents' own top singular vectors          | d + m                   |
| `dfw-trace` | K(t) distributed power iterations from a common random   | K(t) (d + m)            |
|             | vector (alg. 2)                                          |                         |

The server sends as many numbers down; Table 1 counts both ways for DFW-TRACE, 2 N K (d + m). A line
search adds one `Sum` of two numbers; for multinomial, one per Newton step.

The iterate is a sum of few rank-one matrices. Every `compress` rounds, a thin QR and a small SVD
compress it. Scores, residuals and gradients follow each step and are never part of the State: after
a checkpoint, an agent computes them again, by the same steps from the same factors.
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
    most_of_search,
    put_together,
    taken_apart,
)
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import NO_MESSAGES, TOTALS, Case, Counts, Disclosure, added

BEGINNINGS = ("random", "previous", "sva")


@dataclass(frozen=True)
class _Tuning(Tuning):
    compress: int = tuned(50, "Rounds after which the factors are compressed.")
    search: float = tuned(
        1e-4,
        "A line search stops at this share of the first derivative.",
        "theorem: the loss in progress is its square",
        below=1,
    )
    newton_steps: int = tuned(
        30, "The most Newton steps of a line search.", "theorem: bisection alone is exact to 1e-9"
    )


TUNING = _Tuning()

Power = int | str | Callable[[int], int]
Pair = tuple[FloatArray, FloatArray]


@dataclass(frozen=True, slots=True)
class State:
    """The state of the method between two rounds: the same at all agents."""

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
    """The intercept for centred columns, if it follows W; else empty."""


@dataclass(frozen=True)
class FrankWolfe(Method[State, Problem[Task]]):
    """The rounds that the three methods share."""

    split: ClassVar[str] = "samples"
    family: ClassVar[str] = "low-rank"
    discloses_labels: ClassVar[bool] = False

    step: str = "auto"
    """"classic" is 2/(t + 2), "search" an exact line search; "auto" is as published: "search"
    unless multinomial.
    """
    information: str = "auto"
    """The information that agents keep: "dense" (d × m matrices), "implicit" (nothing larger than
    their data), or "auto": the cheaper one.
    """

    def __post_init__(self) -> None:
        self._check_choice("step", ("auto", "classic", "search"))
        self._check_choice("information", INFORMATION)

    def _check_choice(self, name: str, known: tuple[str, ...]) -> None:
        given = getattr(self, name)
        if given not in known:
            raise UnknownName(f"{name} of {self.name}", given, known)

    def check(self, problem: Problem[Task], network: Network) -> None:
        if problem.loss.stages > 1:
            raise InvalidProblem(
                f"{self.name} has no stages. Use dfw-subspace, or leave stages out."
            )

    def start(self, agent: Agent[Problem[Task]]) -> Protocol[State]:
        d, m = agent.problem.loss.size(agent.data)
        information = information_of(agent, self.information)
        yield from ()  # no message is needed
        dtype = information.dtype
        no_left = np.zeros((d, 0), dtype)
        no_right = np.zeros((m, 0), dtype)
        state = State(
            left=no_left,
            right=no_right,
            u=no_left,
            v=no_right,
            steps=np.zeros(0),
            start=np.zeros(m, dtype),
            beta=as_array(information.b),
        )
        agent.scratch["followed"] = state, information
        return state

    def warmed(self, agent: Agent[Problem[Task]], state: State, point: Point) -> State:
        left, right, free = taken_apart(agent, point.w)
        dtype = state.left.dtype
        U, s, V = decomposed(left.astype(dtype), right.astype(dtype))
        trace_norm = s.sum()
        if trace_norm > radius(agent):
            factor = radius(agent) / trace_norm
        else:
            factor = 1.0
        beta = state.beta
        if beta.size:
            beta = as_array(free)
        return replace(state, left=U * (factor * s), right=V, beta=beta)

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
        steps = np.append(state.steps, gamma)
        state = replace(state, u=us, v=vs, steps=steps, start=v)
        if t % TUNING.compress == 0:
            factors = self._factors(agent, state)
            left, s, right = decomposed(*factors, 1e-15)
            us = us[:, :0]
            vs = vs[:, :0]
            steps = state.steps[:0]
            state = replace(state, left=left * s, right=right, u=us, v=vs, steps=steps)
            information.reset(state.left, state.right)
        beta = yield from adjusted(agent, information)
        if beta is not None:
            state = replace(state, beta=beta)
        agent.scratch["followed"] = state, information
        return state

    def oracle(
        self, agent: Agent[Problem[Task]], information: Information, state: State, t: int
    ) -> Protocol[Pair]:
        """Unit vectors u, v with uᵀ∇F(W)v as large as the method can make it."""
        raise NotImplementedError

    def point(self, agent: Agent[Problem[Task]], state: State) -> Point:
        left, right = self._factors(agent, state)
        factors = within(left, right, radius(agent))
        if state.beta.size:
            intercept = state.beta
        else:
            intercept = None
        return Point(put_together(agent, *factors, intercept))

    def _factors(self, agent: Agent[Problem[Task]], state: State) -> Pair:
        """W as left rightᵀ, each atom times the product of the later 1 − γ."""
        later_steps = np.append(1.0, 1.0 - state.steps[::-1])
        left_of = np.cumprod(later_steps)[::-1]
        scales = -radius(agent) * state.steps * left_of[1:]
        weights = scales.astype(state.u.dtype)
        old_weight = state.left.dtype.type(left_of[0])
        left = np.hstack([state.left * old_weight, state.u * weights])
        right = np.hstack([state.right, state.v])
        return left, right

    def _followed(self, agent: Agent[Problem[Task]], state: State) -> Information:
        """The information at that State, rebuilt step by step if the agent does not hold it."""
        kept = agent.scratch.get("followed")
        if kept is not None and kept[0] is state:
            known: Information = kept[1]
            return known
        information = information_of(agent, self.information)
        information.reset(state.left, state.right)
        scale = -radius(agent)
        for gamma, column_u, column_v in zip(state.steps, state.u.T, state.v.T, strict=True):
            u = np.array(column_u, information.dtype)
            v = np.array(column_v, information.dtype)
            information.move(float(gamma), scale, u, v)
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

        def derivatives(gamma: float) -> Protocol[tuple[float, float]]:
            sums = yield Sum(information.gradients(gamma, scale, u, v))
            return float(sums[0]), float(sums[1])

        first, second = yield from derivatives(0.0)
        if not (first < 0 and second > 0):
            return 0.0
        gamma = min(-first / second, 1.0)
        if task.quadratic:
            return gamma
        # Newton on φ' = 0, kept inside the interval in which it changes sign.
        low = 0.0
        high = 1.0
        enough = TUNING.search * -first
        for _ in range(TUNING.newton_steps):
            first, second = yield from derivatives(gamma)
            if abs(first) <= enough or (gamma == 1.0 and first < 0):
                break
            if first < 0:
                low = gamma
            else:
                high = gamma
            gamma = _inside(gamma, first, second, low, high)
        return gamma


def _inside(gamma: float, first: float, second: float, low: float, high: float) -> float:
    """Newton's next γ; the middle of the interval, or its end at 1, if Newton's is outside."""
    if second > 0:
        newton = gamma - first / second
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
        most=lambda case: _most(1, math.prod(case.matrix)),
        sometimes=lambda case: _search(case),
    )

    def oracle(
        self, agent: Agent[Problem[Task]], information: Information, state: State, t: int
    ) -> Protocol[Pair]:
        gradient = yield Sum(information.gradient())
        u, v = shared_result(gradient, leading_pair, gradient)
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
        most=lambda case: _most(1, sum(case.matrix)),
        sometimes=lambda case: _search(case),
    )

    def oracle(
        self, agent: Agent[Problem[Task]], information: Information, state: State, t: int
    ) -> Protocol[Pair]:
        u, v = local_pair(agent, information)
        weight = information.dtype.type(agent.data.n)
        sums = yield Sum(np.concatenate([u, v]) * weight)
        return _unit(sums[: len(u)]), _unit(sums[len(u) :])


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
    """K(t): power iterations per round; a number, "log" for ⌊1 + c log₁₀ t⌋, or a function of the
    epoch 0, 1, ...
    """
    log_factor: float = 1.0
    """c of "log"."""
    begin: str = "random"
    """Start of the power iterations: "random" (as published), "previous" (the last v), or "sva"."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_power(self.name, self.power, self.log_factor)
        if self.begin not in BEGINNINGS:
            raise UnknownName("beginning of dfw-trace", self.begin, BEGINNINGS)

    def oracle(
        self, agent: Agent[Problem[Task]], information: Information, state: State, t: int
    ) -> Protocol[Pair]:
        if self.begin == "sva":
            _, own_v = local_pair(agent, information)
            weight = information.dtype.type(agent.data.n)
            total = yield Sum(own_v * weight)
            v = _unit(total)
        elif self.begin == "previous" and state.start.any():
            v = state.start
        else:
            random = agent.common_random(t).standard_normal(len(state.right))
            v = _unit(random.astype(information.dtype))
        u = np.zeros(len(state.left), information.dtype)
        for _ in range(power_iterations(self.power, t - 1, self.log_factor)):
            # u_{k+1} = Σ_j ∇F_j v_k, v_{k+1} = Σ_j ∇F_jᵀ u_{k+1}, both normalised
            # algorithm 2, lines 6 to 9
            product = yield Sum(information.times(v))
            u = _unit(product)
            product = yield Sum(information.times_transposed(u))
            v = _unit(product)
        return u, v

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "power": named(self.power)}


def radius(agent: Agent[Problem[Task]]) -> float:
    """μ."""
    return radius_of(agent.problem.penalty)


def _most(collectives: int, numbers: int) -> Counts:
    """The largest counts of a round, given those of its oracle."""
    return collectives + 1, numbers + 2


def _search(case: Case) -> Counts | None:
    """The largest counts of a line search, for losses that are not quadratic, and of a search for
    the best intercepts.
    """
    line_search = NO_MESSAGES
    if not case.problem.loss.quadratic:
        line_search = TUNING.newton_steps, 2 * TUNING.newton_steps
    return added([line_search, most_of_search(case)])


def _most_of_products(case: Case) -> Counts | None:
    power = DfwTrace.power
    if not isinstance(power, int):
        return None
    return _most(2 * power, power * sum(case.matrix))


def power_iterations(power: Power, epoch: int, log_factor: float = 1.0) -> int:
    """K(t) in epoch t = 0, 1, ...: never 0. "log" is base 10: figure 1 breaks after ten epochs."""
    if power == "log":
        return 1 + int(log_factor * math.log10(epoch + 0.99))
    value: object = power
    if callable(power):
        value = power(epoch)
    count = as_number(value)
    if not math.isfinite(count):
        raise InvalidProblem(
            f"power={named(power)} gave no number in epoch {epoch}. Let it return one from 1."
        )
    return max(1, int(count))


def check_power(method: str, power: Power, log_factor: float) -> None:
    """Refuse anything but a schedule of power iterations."""
    known = callable(power) or power == "log"
    if isinstance(power, int | np.integer) and not isinstance(power, bool):
        known = power >= 1
    if not known:
        raise InvalidProblem(
            f"{method}: power is a number from 1, 'log', or a function of the epoch, not {power!r}."
        )
    if not 0 < log_factor < math.inf:
        raise InvalidProblem(f"{method}: log_factor must be a positive number, not {log_factor!r}.")


def named(power: Power) -> int | str:
    """The schedule as a plain value."""
    if isinstance(power, partial):
        positional = [repr(value) for value in power.args]
        keywords = [f"{name}={value!r}" for name, value in power.keywords.items()]
        function = str(named(power.func))
        arguments = ", ".join([function, *positional, *keywords])
        return f"partial({arguments})"
    if callable(power):
        known: Any = power
        if not hasattr(power, "__qualname__"):
            known = type(power)
        return f"{known.__module__}.{known.__qualname__}"
    if isinstance(power, str):
        return power
    return int(power)


def local_pair(agent: Agent[Problem[Task]], information: Information) -> Pair:
    """The top singular vectors of the agent's own gradient. The sign makes the largest entry of u
    positive.
    """
    dtype = information.dtype
    device = getattr(information, "backend", None)
    if isinstance(device, TorchBackend) and device.fast:
        u, v = device.leading_pair(information.matrix())
    else:

        def product(x: Any) -> FloatArray:
            return information.times(np.asarray(x, dtype).ravel())

        def transposed_product(x: Any) -> FloatArray:
            return information.times_transposed(np.asarray(x, dtype).ravel())

        gradient = LinearOperator(
            agent.problem.loss.size(agent.data),
            matvec=product,
            rmatvec=transposed_product,
            matmat=information.times,
            rmatmat=information.times_transposed,
            dtype=dtype,
        )
        u, v = leading_pair(gradient)
    largest = np.abs(u).argmax()
    if u[largest] >= 0:
        sign = 1.0
    else:
        sign = -1.0
    return (sign * u).astype(dtype), (sign * v).astype(dtype)


def _unit(x: FloatArray) -> FloatArray:
    return x / (np.linalg.norm(x) or 1.0)
