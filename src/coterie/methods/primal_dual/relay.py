"""Dual coordinate ascent in turns: agents that hand the model on, instead of working side by side.

    v_[k] ← a sweep over some rows of agent k, for the dual problem of all rows with all other v
    fixed
    w     ← w − X_[k](v_[k]⁺ − v_[k]) / (nλ)                           so that w = −Xv/(nλ) =
    ∇g*(−Xv/n) all the time

In every round one agent speaks and everybody hears by how much it has moved w: one `Sum`. Rules
that let all agents work at once, such as `cocoa`, must shorten their steps by the number of agents
(σ' = K); an agent on its turn need not, so there is no parameter, and a lap, in which everybody has
swept all own rows once, does what a pass over undivided data does. Such a lap is K `parts` rounds:
the method is for agents near to each other, where a round costs nothing beside a sweep, and for
problems with so many columns that second-order methods are out of reach.

Who speaks is drawn again for each lap, from the random stream that all agents share, because always
in the same order is up to ten times slower; and an agent speaks `parts` times in it, because parts
of blocks, mixed, are nearly as good as rows, mixed.

For K = 1 it is the method of C.-J. Hsieh and others, "A dual coordinate descent method for
large-scale linear SVM" (2008), and of S. Shalev-Shwartz and T. Zhang, "Stochastic dual coordinate
ascent methods" (2013).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from coterie.errors import InvalidProblem
from coterie.methods.auto import costs
from coterie.methods.auto.costs import Outlook, Sizes, worth
from coterie.methods.method import NO_INTERCEPT, Method, Rows
from coterie.methods.primal_dual.dual_block import at_rest, improve, knows, shuffled
from coterie.methods.second_order.quadratic import rounded
from coterie.networks import Network
from coterie.numerics.arrays import FloatArray, sealed, shared_result
from coterie.numerics.tuning import Tuning, tuned
from coterie.problems.problem import Problem
from coterie.run.agent import Agent, remembered
from coterie.run.certificate import Point
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import Disclosure, a_number_per_column


@dataclass(frozen=True)
class _Tuning(Tuning):
    parts: int = tuned(2, "How often an agent speaks in a lap.", costs=2.0)
    resting: int = tuned(16, "Rows at a bound of their dual are looked at every so many laps.")
    settled: int = tuned(4, "Laps after which it makes sense to say that a row rests.")
    expected_laps: int = tuned(40, "Laps to a relative gap of 1e-6, for choosing.")
    wide: int = tuned(1500, 'Columns from which "auto" may choose it.')


TUNING = _Tuning()


@dataclass(frozen=True, slots=True)
class State:
    """Where one agent stands between two rounds."""

    w: FloatArray
    """The model, the same at every agent; in float64, as changes add up."""
    v: FloatArray


@dataclass(frozen=True)
class Relay(Method[State, Rows]):
    """Dual coordinate ascent, block after block in a random order."""

    name: ClassVar[str] = "relay"
    split: ClassVar[str] = "samples"
    summary: ClassVar[str] = (
        "dual coordinate ascent in turns: many rounds, little work; needs an l2 penalty, and no "
        "intercept"
    )
    first_look: ClassVar[int] = 192
    one_speaker: ClassVar[bool] = True
    disclosure: ClassVar[Disclosure] = Disclosure(
        sent=(
            "how much your rows move the model, one number per column; it is not added to that of "
            "others"
        ),
        learned="a weighted sum of your rows alone, another one each round, at every party",
        secure=(
            "the same: where one party sends alone, the sum is its message; so `relay` is refused"
        ),
        most=a_number_per_column,
        before=a_number_per_column,
    )
    tells_labels: ClassVar[bool] = False

    @classmethod
    def score(
        cls, problem: Problem, network: Network, sizes: Sizes | None = None
    ) -> tuple[float, str] | None:
        if (
            sizes is None
            or _why_not(problem)
            or problem.loss.smooth
            or sizes.columns <= TUNING.wide
        ):
            return None
        rounds = TUNING.expected_laps * sizes.agents * TUNING.parts
        work = sizes.rows_work / TUNING.parts
        if sizes.link.latency > work / costs.TUNING.speed:
            return None  # all would wait for messages most of the time
        return worth(
            problem,
            network,
            sizes,
            Outlook(rounds, 1, sizes.columns, 0.0, "turns are fast here", work),
        )

    def check(self, problem: Problem, network: Network) -> None:
        if reason := _why_not(problem):
            raise InvalidProblem(reason)

    def start(self, agent: Agent) -> Protocol[State]:
        yield from ()  # there is nothing to ask
        return State(agent.first_model().astype(float), np.zeros(agent.design.shape[0]))

    def warm(self, agent: Agent, state: State, point: Point) -> Protocol[State]:
        if point.v is None:
            v = state.v
        else:
            v = point.v.astype(float)
        total = yield Sum(agent.design.adjoint(agent.weighted(v)).astype(float))
        return State(
            agent.problem.penalty.conjugate_gradient(
                agent.problem.negative_gradient(total, agent.total)
            ),
            v,
        )

    def round(self, agent: Agent, state: State, t: int) -> Protocol[State]:
        lap, turn = divmod(t - 1, agent.count * TUNING.parts)
        speaker, part = _turns(agent, lap)[turn]
        v = state.v
        moved = _silence(agent)
        if speaker == agent.index and len(v):
            rows = _rows(agent, lap)[part :: TUNING.parts]
            if lap >= TUNING.settled:
                rows = rows[~at_rest(agent, v, lap, TUNING.resting)[rows]]
            c = 1 / (agent.problem.penalty.strong_convexity * agent.total)
            v, moved, _ = improve(agent, v, state.w, c, rows, 1.0, 1)
        said = yield Sum(moved)
        return State(shared_result(said, lambda: state.w + said), v)

    def point(self, agent: Agent, state: State) -> Point:
        return Point(rounded(agent, state.w), state.v)


@remembered
def _turns(agent: Agent, lap: int) -> list[tuple[int, int]]:
    """Who speaks in each round of that lap, and how many times it has spoken in this lap."""
    parts = TUNING.parts
    return [
        divmod(int(number), parts)
        for number in agent.common_random(lap).permutation(agent.count * parts)
    ]


@remembered
def _rows(agent: Agent, lap: int) -> npt.NDArray[np.intp]:
    """Its own rows in the order of that lap."""
    return shuffled(agent.design.shape[0], agent.random(lap))


@remembered
def _silence(agent: Agent) -> FloatArray:
    return sealed(np.zeros(agent.design.shape[1]))


def _why_not(problem: Problem) -> str | None:
    """What the method would need and the problem does not have, if anything, and what to do."""
    if not problem.penalty.quadratic:
        return (
            f"relay needs an l2 penalty (quadratic), not {problem.penalty.name!r}. Use "
            "penalty='l2' and "
            "intercept=False, or method='proximal-1'."
        )
    if problem.intercept:
        return f"relay {NO_INTERCEPT}"
    if not knows(problem.loss):
        return (
            "relay needs a loss whose conjugate its compiled sweeps know (conjugate_curvature or "
            "conjugate_entropy); "
            f"{problem.loss.name!r} says neither. Use method='proximal-1', which takes every loss."
        )
    return None
