"""A common model and deviations of every user. Each user eliminates its own deviation. The
remaining problem is in the common model alone.

    F(w, b) = g(w) + Σ_u F_u(w, b),    F_u(w, b) = min over δ, β of  (1/N) Σ_i s_i ℓ(⟨x_i, w + δ⟩ +
                                                                     b + β) + (μ/2) ‖δ‖² + (ν/2) β²
    ∇F_u = (1/N) X̃ᵀ(s∘ℓ')   at the minimum,    ∇²F_u = the arrow's Schur complement
                             (`deviations.py`)

`shared` takes the steps of `lbfgs-rows` on F. In most rounds it needs a `Sum` of d + 1 numbers, the
gradient and the objective. `shared-newton` also sends ∇²F_u, with d × d entries, and needs few
rounds. The ∇²F_u of a user with few rows would disclose these rows. `shared-newton` therefore
refuses users with no more rows than columns, unless `few_rows` allows them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

import numpy as np

from coterie.errors import InvalidProblem, NumericalError
from coterie.methods.auto.costs import Sizes
from coterie.methods.quasi_newton import rounds, searched_rows
from coterie.methods.quasi_newton.rounds import Form, QuasiNewton
from coterie.methods.quasi_newton.searched_rows import Along, Searched
from coterie.networks import Network
from coterie.numerics.arrays import FloatArray, sealed
from coterie.numerics.losses import Loss
from coterie.problems.problem import Problem
from coterie.problems.shared.methods.deviations import Own, best_dual, columns_of, deviation
from coterie.problems.shared.problem import Shared
from coterie.run.agent import Agent
from coterie.run.certificate import Point
from coterie.run.collectives import Protocol
from coterie.run.disclosure import WEIGHTED_ROWS, Disclosure
from coterie.stats.moments import diagonal

STEPS = searched_rows.TRIALS[2:13:2]
"""Step sizes that a line search evaluates. They are fewer than for a linear model, because each
value of F_u is the solution of a problem.
"""


TINY = 1e-300
"""Replaces a weight of 0 as a divisor, for a user without rows."""


@dataclass(frozen=True, slots=True)
class State(rounds.State):
    """The state of one user between two rounds: the common model, and the user's deviation."""

    own: FloatArray = field(default_factory=rounds.nothing)


@dataclass(frozen=True)
class SharedQuasiNewton(QuasiNewton[State]):
    """L-BFGS on the common model. Every user minimises over its own deviation at each trial."""

    name: ClassVar[str] = "shared"
    split: ClassVar[str] = "users"
    family: ClassVar[str] = "shared"
    summary: ClassVar[str] = (
        "a common linear model and deviations of every user: one number per column and round"
    )
    instead: ClassVar[str] = "one of these"
    disclosure: ClassVar[Disclosure] = replace(
        WEIGHTED_ROWS,
        most=lambda case: (1, case.width + 1),
        sometimes=lambda case: searched_rows.most_of_searched_step(case.width, STEPS),
        before=lambda case: (1, 2 * case.width + 1),
    )
    discloses_labels: ClassVar[bool] = False
    uses_network: ClassVar[bool] = False

    @classmethod
    def score(
        cls, problem: Problem, network: Network, sizes: Sizes | None = None
    ) -> tuple[float, str] | None:
        return 1.0, "its messages are one number per column"

    def check(self, problem: Problem, network: Network) -> None:
        check_shared(self.name, problem)
        super().check(problem, network)

    def start(self, agent: Agent) -> Protocol[State]:
        return (yield from self._started(agent, agent.first_model().astype(float)))

    def warm(self, agent: Agent, state: State, point: Point) -> Protocol[State]:
        return (yield from self._started(agent, point.w.astype(float)))

    def _started(self, agent: Agent, plain: FloatArray) -> Protocol[State]:
        if plain.shape[-1] == agent.design.shape[1]:
            plain = np.concatenate([np.zeros_like(plain), plain])
        own, common = parts_of(agent, plain)
        w = sealed(agent.centred.inner(common))
        local = deviation(agent, agent.centred.forward(w), own)
        curvature = agent.loss.curvature(local.scores, agent.exact_labels)
        weighted = searched_rows.curvatures_of(agent, curvature)
        curvatures = diagonal(agent.centred, weighted)
        # For each column alone, eliminating a deviation with penalty m reduces the second
        # derivative h to h m / (h + m).
        price = agent.total * _prices(agent)
        reduced = curvatures * (1.0 / (1.0 + curvatures / price))
        curvatures = np.where(np.isfinite(price), reduced, curvatures)
        adjoint = agent.centred.adjoint(agent.weighted(best_dual(agent, local)))
        first = yield from searched_rows.started(agent, w, curvatures, adjoint, local.value)
        return State(w, first.gradient, first.memory, first.base, first.objective, own=local.own)

    def form(self, agent: Agent, state: State) -> Form:
        return Searched(partial(_User, agent, state), self.memory, STEPS, boldly=True)

    def together(self, agent: Agent) -> tuple[str, ...] | None:
        return ("own",)

    def point(self, agent: Agent, state: State) -> Point:
        return shared_point(agent, state.w, state.own)


class _User(Along):
    """The loss of a user along a direction p of the common model, minimised over the user's
    deviation at each step size.
    """

    def __init__(self, agent: Agent, state: State, p: FloatArray):
        self.agent, self.before, self.own = agent, state.own, state.own
        self.scores = agent.centred.forward(state.w)
        self.score_change = agent.centred.forward(p)
        # The first deviation at each step size compensates for the mean change of the user's
        # scores.
        mean = agent.weighted(self.score_change).sum(axis=-1) / np.maximum(agent.weight, TINY)
        self.back = np.multiply.outer(mean, _raised(agent)[0])

    def _at(self, step: float) -> Own | None:
        """The user's best deviation at this step size. None if the step is so long that the
        computation fails.
        """
        try:
            return deviation(
                self.agent, self.scores + step * self.score_change, self.before - step * self.back
            )
        except NumericalError:
            return None

    def at(self, step: float) -> FloatArray:
        local = self._at(step)
        if local is None:
            return np.full((*self.scores.shape[:-1], self.agent.design.shape[1] + 1), np.inf)
        adjoint = self.agent.centred.adjoint(self.agent.weighted(best_dual(self.agent, local)))
        seen = np.concatenate([adjoint, np.array([local.value]).T], axis=-1)
        if np.isfinite(seen).all():
            self.own = local.own
        return seen

    def after(self, state: State) -> State:
        return replace(state, own=self.own)

    def values(self, steps: FloatArray) -> FloatArray:
        nothing = np.full(self.scores.shape[:-1], np.inf)
        return np.array(
            [nothing if (local := self._at(step)) is None else local.value for step in steps]
        ).T


def check_shared(name: str, problem: Problem) -> None:
    if not isinstance(problem, Shared):
        raise InvalidProblem(
            f"{name} needs a common model with deviations, e.g. co.Shared(loss='logistic', "
            "mu=0.01)."
        )
    if type(problem.loss).curvature is Loss.curvature:
        raise InvalidProblem(
            f"{name} needs a loss with a second derivative, and {problem.loss.name} has none. Use "
            "a smooth relative: "
            "huber for absolute, squared_hinge or logistic for hinge."
        )


def _prices(agent: Agent) -> FloatArray:
    """The penalty strength of a deviation in every column. That of the intercept is in its centred
    coordinate.
    """
    problem = agent.problem
    assert isinstance(problem, Shared)
    prices = np.full(agent.design.shape[1], problem.mu)
    if agent.design.intercept:
        prices[-1] = _raised(agent)[1] * agent.known.unit**2
    return prices


def _raised(agent: Agent) -> tuple[FloatArray, float]:
    """The deviation with the least penalty that raises scores by 1, and its penalty strength.

    If columns do not have large means, it is a deviation of the intercept, with ν. If they have
    large means c, it is also in the coefficients, and its strength is 1 / (1/ν + ‖c‖²/μ).
    """
    problem, centre = agent.problem, columns_of(agent).centre
    assert isinstance(problem, Shared)
    way = np.zeros(agent.design.shape[1])
    if centre is None:
        return way, problem.nu
    way[:-1], way[-1] = centre / problem.mu, 1.0 / problem.nu
    size = float(centre @ way[:-1]) + float(way[-1])
    return way / size, 1.0 / size


def parts_of(agent: Agent, plain: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The deviation of each user, and the common model, from the numbers of a point."""
    own, common = np.split(plain, 2, axis=-1)
    own = np.broadcast_to(own, (*agent.exact_labels.shape[:-1], own.shape[-1]))
    if common.ndim == 2:
        common = common[0]  # the same for all users
    return own.copy(), common


def shared_point(agent: Agent, w: FloatArray, own: FloatArray) -> Point:
    """The point of a user: its deviation, followed by the common model in the original coordinates.
    If columns have large means, scores have large rounding errors, and the point has a dual.
    """
    v = None
    if columns_of(agent).centre is not None:
        local = deviation(agent, agent.centred.forward(w), own)
        own, v = local.own, best_dual(agent, local)
    return Point(
        np.concatenate([own, np.broadcast_to(agent.centred.plain(w), own.shape)], axis=-1), v
    )
