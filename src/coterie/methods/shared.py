"""A common model and deviations of every user: each user eliminates its own part, and what is left is a problem of the
common model alone.

    F(w, b) = g(w) + Σ_u F_u(w, b),    F_u(w, b) = min over δ, β of  (1/N) Σ_i s_i ℓ(⟨x_i, w + δ⟩ + b + β)
                                                                     + (μ/2) ‖δ‖² + (ν/2) β²
    ∇F_u = (1/N) X̃ᵀ(s∘ℓ')   at the minimum,    ∇²F_u = the arrow's Schur complement (`deviations.py`)

`shared` takes the steps of `lbfgs-rows` on F: a `Sum` of d + 1 numbers, the gradient and the value, in most rounds.
`shared-newton` sends ∇²F_u, too, d × d numbers, and needs a handful of rounds. What a user with few rows sends in that
form tells them, so it is refused where a user has no more rows than columns, unless `few_rows` allows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from coterie.agent import Agent
from coterie.arrays import FloatArray, sealed, shared_result
from coterie.certificate import Point
from coterie.errors import InvalidProblem, NumericalError
from coterie.losses import Loss
from coterie.methods import lbfgs, searched_rows
from coterie.methods.costs import Sizes
from coterie.methods.deviations import Own, best_dual, columns_of, deviation, reduced
from coterie.methods.disclosure import TOTALS, WEIGHTED_ROWS, Disclosure
from coterie.methods.lbfgs import QuasiNewton
from coterie.methods.method import Method
from coterie.methods.moments import diagonal, packed, unpacked
from coterie.methods.quadratic import minimiser
from coterie.methods.quasi_newton import Memory
from coterie.networks import Network
from coterie.personal import Shared
from coterie.problem import Problem
from coterie.tuning import Tuning, tuned
from coterie.words import Sum, Talk


@dataclass(frozen=True)
class _Tuning(Tuning):
    enough: float = tuned(1e-4, "Share of the linear decrease that a step needs.", "paper: Armijo 1966")
    rounding: float = tuned(1e-13, "Values that differ by less, relatively, are equal.", "rounding: float64 sums")
    trials: int = tuned(10, "Steps that are tried together: ½, ¼, ...", "rounding: more are tried after them")


TUNING = _Tuning()


STEPS = searched_rows.TRIALS[2:13:2]
"""Steps at whose values to look: fewer than for rows alone, because a value here is a problem solved."""


@dataclass(frozen=True, slots=True)
class State:
    """Where one user stands between two rounds."""

    common: lbfgs.State
    """The common model and what all know of it, the same at every user."""
    own: FloatArray
    """Its deviation from it."""


@dataclass(frozen=True)
class SharedModels(QuasiNewton):
    """L-BFGS on the common model; every user answers with its own part at its best."""

    name: ClassVar[str] = "shared"
    state: ClassVar[type] = State
    split: ClassVar[str] = "users"
    family: ClassVar[str] = "shared"
    summary: ClassVar[str] = "a common linear model and deviations of every user: one number per column and round"
    instead: ClassVar[str] = "one of these"
    disclosure: ClassVar[Disclosure] = WEIGHTED_ROWS
    tells_labels: ClassVar[bool] = False
    uses_network: ClassVar[bool] = False

    @classmethod
    def score(cls, problem: Problem, network: Network, sizes: Sizes | None = None) -> tuple[float, str] | None:
        return 1.0, "its messages are one number per column"

    def check(self, problem: Problem, network: Network) -> None:
        _check(self.name, problem)
        super().check(problem, network)

    @property
    def states(self) -> tuple[type, ...]:
        return State, lbfgs.State, Memory

    def start(self, agent: Agent) -> Talk[State]:  # type: ignore[override]
        return (yield from self._started(agent, agent.first_model().astype(float)))

    def warm(self, agent: Agent, state: State, point: Point) -> Talk[State]:  # type: ignore[override]
        return (yield from self._started(agent, point.w.astype(float)))

    def _started(self, agent: Agent, plain: FloatArray) -> Talk[State]:
        width = agent.design.shape[1]
        common, own = (plain, None) if len(plain) == width else np.split(plain, 2)[::-1]
        w = sealed(agent.centred.inner(common))
        scores = agent.centred.forward(w)
        here = deviation(agent, scores, np.zeros((*scores.shape[:-1], width)) if own is None else own)
        # Of every column alone, h is left with h m / (h + m) where the user deviates at a price of m.
        bends = diagonal(
            agent.centred, searched_rows.bends_of(agent, agent.loss.curvature(here.scores, agent.exact_labels))
        )
        price = agent.total * _prices(agent)
        bends = np.where(np.isfinite(price), bends * (1.0 / (1.0 + bends / price)), bends)
        adjoint = agent.centred.adjoint(agent.weighted(best_dual(agent, here)))
        heard = yield Sum(np.concatenate([bends, adjoint, np.array([here.value]).T], axis=-1))
        return State(shared_result(heard, searched_rows.started, agent, w, heard), here.own)

    def round(self, agent: Agent, state: State, t: int) -> Talk[State]:  # type: ignore[override]
        seen: list[_Along] = []

        def look(p: FloatArray) -> _Along:
            seen.append(_Along(agent, state, p))
            return seen[0]

        common = yield from searched_rows.searched(self, agent, state.common, t, look, STEPS, boldly=True)
        return State(common, seen[0].own)

    def together(self, agent: Agent) -> tuple[str, ...] | None:
        return ("own",)

    def point(self, agent: Agent, state: State) -> Point:  # type: ignore[override]
        return _point(agent, state.common.w, state.own)


class _Along:
    """What a user sees along a way of the common model: its own part is at its best everywhere."""

    def __init__(self, agent: Agent, state: State, p: FloatArray):
        self.agent, self.before, self.own = agent, state.own, state.own
        self.scores, self.image = agent.centred.forward(state.common.w), agent.centred.forward(p)
        # What all scores of a user have in common, its deviation takes back: so it begins where its rows stand.
        common = self.image.sum(axis=-1) / max(self.image.shape[-1], 1)
        self.back = np.multiply.outer(common, _raised(agent)[0])

    def _at(self, step: float) -> Own | None:
        """Its own part at its best; None after a step so long that it cannot be found."""
        try:
            return deviation(self.agent, self.scores + step * self.image, self.before - step * self.back)
        except NumericalError:
            return None

    def at(self, step: float) -> FloatArray:
        here = self._at(step)
        if here is None:
            return np.full((*self.scores.shape[:-1], self.agent.design.shape[1] + 1), np.inf)
        adjoint = self.agent.centred.adjoint(self.agent.weighted(best_dual(self.agent, here)))
        seen = np.concatenate([adjoint, np.array([here.value]).T], axis=-1)
        if np.isfinite(seen).all():
            self.own = here.own
        return seen

    def values(self, steps: FloatArray) -> FloatArray:
        nothing = np.full(self.scores.shape[:-1], np.inf)
        return np.array([nothing if (here := self._at(step)) is None else here.value for step in steps]).T


@dataclass(frozen=True, slots=True)
class NewtonState:
    """Where one user stands between two rounds of `shared-newton`."""

    w: FloatArray
    """The common model, in centred coordinates."""
    own: FloatArray
    """Its deviation from it."""


@dataclass(frozen=True)
class SharedNewton(Method[NewtonState]):
    """Newton's method on the common model: every user eliminates its own block of the arrow."""

    name: ClassVar[str] = "shared-newton"
    split: ClassVar[str] = "users"
    family: ClassVar[str] = "shared"
    summary: ClassVar[str] = "a common linear model and deviations of every user: few rounds, a number per two columns"
    disclosure: ClassVar[Disclosure] = Disclosure(
        sent="the gradient of its own loss and a matrix of its curvature, a number per column and one per pair of "
        "columns, added up",
        learned="second moments of its own rows, with new weights in each round: a few rows come out themselves",
        secure=TOTALS,
    )
    tells_labels: ClassVar[bool] = False
    uses_network: ClassVar[bool] = False
    first_look: ClassVar[int] = 1

    few_rows: bool = False
    """Whether users with no more rows than columns take part."""

    def check(self, problem: Problem, network: Network) -> None:
        _check(self.name, problem)

    def start(self, agent: Agent) -> Talk[NewtonState]:
        if not self.few_rows:
            few = yield Sum(np.array([float(agent.data.n <= agent.data.d)]))
            if few[0] > 0:
                raise InvalidProblem(
                    f"{self.name}: {int(few[0])} of {agent.count} users have no more rows than columns, and their "
                    "matrices would tell these rows. Use method='shared', or few_rows=True if they may be told."
                )
        w = sealed(agent.centred.inner(agent.first_model().astype(float)))
        return NewtonState(w, np.zeros(len(w)))

    def warmed(self, agent: Agent, state: NewtonState, point: Point) -> NewtonState:
        own, common = np.split(point.w.astype(float), 2)
        return NewtonState(sealed(agent.centred.inner(common)), own)

    def round(self, agent: Agent, state: NewtonState, t: int) -> Talk[NewtonState]:
        w, scores = state.w, agent.centred.forward(state.w)
        here = deviation(agent, scores, state.own)
        bends = searched_rows.bends_of(agent, agent.loss.curvature(here.scores, agent.exact_labels))
        adjoint = agent.centred.adjoint(agent.weighted(best_dual(agent, here)))
        heard = yield Sum(packed(reduced(agent, bends), adjoint, np.array([here.value])))
        n, width = agent.total, len(w)

        def aimed() -> tuple[FloatArray, float, float]:
            slope, H = heard[-width - 1 : -1] / n, unpacked(heard, width) / n
            target = sealed(minimiser(agent, H, slope, w)[0])
            before, after = (_penalty(agent, x) for x in (w, target))
            return target, float(heard[-1]) / n + before, float(slope @ (target - w)) + after - before

        target, before, down = shared_result(heard, aimed)
        image, theta, own = agent.centred.forward(target) - scores, 0.0, here.own
        trials = np.ones(1)
        rounding = TUNING.rounding * abs(before)
        while theta == 0.0 and trials[0] * -down > rounding:
            found = [deviation(agent, scores + share * image, here.own) for share in trials]
            values = yield Sum(np.array([one.value for one in found]))
            after = [
                float(value) / n + _penalty(agent, w + share * (target - w))
                for value, share in zip(values, trials, strict=True)
            ]
            good = [k for k, share in enumerate(trials) if after[k] - before <= TUNING.enough * share * down + rounding]
            if good:
                theta, own = float(trials[good[0]]), found[good[0]].own
            trials = trials[-1] * 2.0 ** -np.arange(1.0, 1 + TUNING.trials)
        if theta == 0.0:
            # Below rounding a full step of Newton's does no harm, and may be the last digit.
            theta, own = 1.0, deviation(agent, scores + image, here.own).own
        return NewtonState(target if theta == 1.0 else sealed(w + theta * (target - w)), own)

    def point(self, agent: Agent, state: NewtonState) -> Point:
        return _point(agent, state.w, state.own)


def _check(name: str, problem: Problem) -> None:
    if not isinstance(problem, Shared):
        raise InvalidProblem(f"{name} needs a common model with deviations, e.g. co.Shared(loss='logistic', mu=0.01).")
    if type(problem.loss).curvature is Loss.curvature:
        raise InvalidProblem(
            f"{name} needs a loss with a second derivative, and {problem.loss.name} has none. Use a smooth relative: "
            "huber for absolute, squared_hinge or logistic for hinge."
        )


def _prices(agent: Agent) -> FloatArray:
    """What a deviation costs in every column; the intercept's in its centred coordinate."""
    problem = agent.problem
    assert isinstance(problem, Shared)
    prices = np.full(agent.design.shape[1], problem.mu)
    if agent.design.intercept:
        prices[-1] = _raised(agent)[1] * agent.known.unit**2
    return prices


def _raised(agent: Agent) -> tuple[FloatArray, float]:
    """The cheapest deviation that raises scores by 1, and its price; where columns have large means c, it is in them.

    Its price is then 1 / (1/ν + ‖c‖²/μ).
    """
    problem, centre = agent.problem, columns_of(agent).centre
    assert isinstance(problem, Shared)
    way = np.zeros(agent.design.shape[1])
    if centre is None:
        return way, problem.nu
    way[:-1], way[-1] = centre / problem.mu, 1.0 / problem.nu
    size = float(centre @ way[:-1]) + float(way[-1])
    return way / size, 1.0 / size


def _penalty(agent: Agent, w: FloatArray) -> float:
    return agent.problem.penalty.value(agent.problem.coefficients(w))


def _point(agent: Agent, w: FloatArray, own: FloatArray) -> Point:
    """The user's deviation, and then the common model as people know it; with a dual, where scores round too much."""
    v = None
    if columns_of(agent).centre is not None:
        here = deviation(agent, agent.centred.forward(w), own)
        own, v = here.own, best_dual(agent, here)
    return Point(np.concatenate([own, np.broadcast_to(agent.centred.plain(w), own.shape)], axis=-1), v)
