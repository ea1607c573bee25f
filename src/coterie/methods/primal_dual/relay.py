"""Dual coordinate ascent in turns: one agent after the other moves the model.

    v_[k] ← a sweep over some rows of agent k, for the dual problem of all rows with all other v
            fixed
    w     ← w − X_[k](v_[k]⁺ − v_[k]) / (nλ)          so that always w = −Xv/(nλ) = ∇g*(−Xv/n)

In every round one agent sends the change of w to all others: one `Sum`. Rules in which all agents
work at once, such as `cocoa`, must shorten their steps by the number of agents (σ' = K). Here only
one agent moves at a time, so steps have full length and no parameter is needed. A lap, in which
every agent has swept all of its rows once, achieves as much as a pass over undivided data. A lap
takes K `parts` rounds. So the method is for agents with a fast link, where a round costs less than
a sweep, and for problems with too many columns for second-order methods.

Each lap draws a new order of agents, from the random stream that all agents share: a fixed order is
up to ten times slower. Every agent has `parts` turns in a lap, because mixed parts of blocks are
nearly as good as mixed rows.

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
    parts: int = tuned(2, "The number of turns of each agent in a lap.", costs=2.0)
    resting: int = tuned(16, "A row at a bound of its dual variable is visited once in these laps.")
    settled: int = tuned(4, "The number of laps that visit all rows.")
    expected_laps: int = tuned(40, 'Laps to a relative gap of 1e-6, that "auto" assumes.')
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
    one_sender: ClassVar[bool] = True
    disclosure: ClassVar[Disclosure] = Disclosure(
        sent=(
            "the change of the model by your rows, one number per column; it is not added to that "
            "of others"
        ),
        learned="a weighted sum of your rows alone, another one each round, at every party",
        secure=(
            "the same: where one party sends alone, the sum is its message; so `relay` is refused"
        ),
        most=a_number_per_column,
        before=a_number_per_column,
    )
    discloses_labels: ClassVar[bool] = False

    @classmethod
    def score(
        cls, problem: Problem, network: Network, sizes: Sizes | None = None
    ) -> tuple[float, str] | None:
        if sizes is None or _why_not(problem) or problem.loss.smooth:
            return None
        if sizes.columns <= TUNING.wide:
            return None
        rounds = TUNING.expected_laps * sizes.agents * TUNING.parts
        work = sizes.rows_work / TUNING.parts
        if sizes.link.latency > work / costs.TUNING.speed:
            return None  # agents would wait for messages most of the time
        outlook = Outlook(rounds, 1, sizes.columns, 0.0, "turns are fast on this network", work)
        return worth(problem, network, sizes, outlook)

    def check(self, problem: Problem, network: Network) -> None:
        if reason := _why_not(problem):
            raise InvalidProblem(reason)

    def start(self, agent: Agent) -> Protocol[State]:
        yield from ()  # sends nothing
        v = np.zeros(agent.design.shape[0])
        return State(agent.first_model().astype(float), v)

    def warm(self, agent: Agent, state: State, point: Point) -> Protocol[State]:
        if point.v is None:
            v = state.v
        else:
            v = point.v.astype(float)
        own = agent.design.adjoint(agent.weighted(v))
        total = yield Sum(own.astype(float))
        negative = agent.problem.negative_gradient(total, agent.total)
        return State(agent.problem.penalty.conjugate_gradient(negative), v)

    def round(self, agent: Agent, state: State, t: int) -> Protocol[State]:
        lap, turn = divmod(t - 1, agent.count * TUNING.parts)
        sender, part = _turns(agent, lap)[turn]
        v = state.v
        moved = _no_change(agent)
        if sender == agent.index and len(v):
            rows = _rows(agent, lap)[part :: TUNING.parts]
            if lap >= TUNING.settled:
                resting = at_rest(agent, v, lap, TUNING.resting)
                rows = rows[~resting[rows]]
            c = 1 / (agent.problem.penalty.strong_convexity * agent.total)
            v, moved, _ = improve(agent, v, state.w, c, rows, 1.0, 1)
        change = yield Sum(moved)
        w = shared_result(change, lambda: state.w + change)
        return State(w, v)

    def point(self, agent: Agent, state: State) -> Point:
        return Point(rounded(agent, state.w), state.v)


@remembered
def _turns(agent: Agent, lap: int) -> list[tuple[int, int]]:
    """Return the sender of each round of that lap, and which of its parts it sweeps."""
    parts = TUNING.parts
    order = agent.common_random(lap).permutation(agent.count * parts)
    return [divmod(int(number), parts) for number in order]


@remembered
def _rows(agent: Agent, lap: int) -> npt.NDArray[np.intp]:
    """Return the agent's own rows in the order of that lap."""
    return shuffled(agent.design.shape[0], agent.random(lap))


@remembered
def _no_change(agent: Agent) -> FloatArray:
    """Return the message of all agents but the sender."""
    return sealed(np.zeros(agent.design.shape[1]))


def _why_not(problem: Problem) -> str | None:
    """Return a requirement that the problem does not fulfil, and an alternative; None if all are
    fulfilled.
    """
    if not problem.penalty.quadratic:
        return (
            "relay needs an l2 penalty (quadratic, one strength for all columns), not "
            f"{problem.penalty.name!r}. Use penalty='l2' and intercept=False, or "
            "method='proximal-1'."
        )
    if problem.intercept:
        return f"relay {NO_INTERCEPT}"
    if not knows(problem.loss):
        return (
            "relay needs a loss that declares its conjugate for compiled sweeps "
            f"(conjugate_curvature or conjugate_entropy); {problem.loss.name!r} declares neither. "
            "Use method='proximal-1', which takes every loss."
        )
    return None
