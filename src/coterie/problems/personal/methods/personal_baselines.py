"""Baselines of `dada`: one model for all users, one model per user of its own rows only, and
personal linear models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from coterie.errors import InvalidProblem
from coterie.methods.method import Method
from coterie.networks import Network
from coterie.numerics.arrays import FloatArray
from coterie.numerics.tuning import Tuning, tuned
from coterie.problems.personal.methods.dada import Dada
from coterie.problems.personal.problem import SHELVES, Personal, pooled_step
from coterie.run.agent import Agent
from coterie.run.certificate import Point
from coterie.run.collectives import Protocol
from coterie.run.disclosure import LABELS_OF_MODEL, NO_SUMS, TOTALS, Case, Counts, Disclosure


@dataclass(frozen=True)
class _Tuning(Tuning):
    grid: int = tuned(24, "Lengths that a line search compares at once.")


TUNING = _Tuning()


@dataclass(frozen=True)
class DadaLinear(Dada):
    """Personal linear models on the same graph, with dense messages and no ℓ1 constraint."""

    name: ClassVar[str] = "dada-linear"
    summary: ClassVar[str] = "a linear model for every user, near those of similar users"
    disclosure: ClassVar[Disclosure] = Disclosure(
        sent=(
            "your model, one number per column, with your loss and degree, to each neighbour and "
            "to who asks"
        ),
        learned=LABELS_OF_MODEL,
        secure=NO_SUMS,
    )

    def adapted(self, problem: Personal) -> tuple[Method[Any, Personal], Personal]:
        if isinstance(problem, Personal):
            problem = problem.but(predictors="linear", norm="l2")
        return super().adapted(problem)


@dataclass(frozen=True)
class Local(Dada):
    """Every user learns alone: ℓ1-AdaBoost on its own rows, without messages."""

    name: ClassVar[str] = "local"
    summary: ClassVar[str] = "a boosted model for every user, of its own rows only"
    disclosure: ClassVar[Disclosure] = Disclosure(
        sent="nothing but when you woke up",
        learned="nothing",
        secure="the same",
        most=lambda case: (0, 0),
    )
    uses_network: ClassVar[bool] = False

    def adapted(self, problem: Personal) -> tuple[Method[Any, Personal], Personal]:
        return self, problem.but(learned=False)


def _numbers_of_global(case: Case) -> Counts:
    """The counts of collectives, and of numbers that one user sends, in a round."""
    gradient = case.problem.predictor_count(case.columns) + 1
    return 4, SHELVES + gradient + 2 * TUNING.grid


@dataclass(frozen=True, slots=True)
class GlobalState:
    """The state between two rounds: the common model."""

    alpha: FloatArray


@dataclass(frozen=True)
class Global(Method[GlobalState, Personal]):
    """One model for all users: ℓ1-AdaBoost on the rows of all users, by pairwise steps with sums
    through a server.
    """

    name: ClassVar[str] = "global"
    split: ClassVar[str] = "users"
    family: ClassVar[str] = "personal"
    summary: ClassVar[str] = "one boosted model for all users, of the rows of all users"
    disclosure: ClassVar[Disclosure] = Disclosure(
        sent=(
            "the gradient of your loss, one number per base predictor, and losses along a line, "
            "as parts of sums"
        ),
        learned="a weighted sum of the predictions for your rows, another one each round",
        secure=TOTALS,
        most=_numbers_of_global,
    )
    discloses_labels: ClassVar[bool] = False
    uses_network: ClassVar[bool] = False

    def check(self, problem: Personal, network: Network) -> None:
        if problem.norm != "l1":
            raise InvalidProblem(
                "global needs a personal problem with norm='l1', e.g. co.Personal(beta=10)."
            )

    def adapted(self, problem: Personal) -> tuple[Method[Any, Personal], Personal]:
        return self, problem.but(pooled=True, learned=False)

    def start(self, agent: Agent[Personal]) -> Protocol[GlobalState]:
        yield from ()
        return GlobalState(np.zeros(agent.problem.base.count))

    def warmed(self, agent: Agent[Personal], state: GlobalState, point: Point) -> GlobalState:
        return GlobalState(point.w.astype(float))

    def round(self, agent: Agent[Personal], state: GlobalState, t: int) -> Protocol[GlobalState]:
        return GlobalState((yield from pooled_step(agent, state.alpha, TUNING.grid)))

    def point(self, agent: Agent[Personal], state: GlobalState) -> Point:
        return Point(state.alpha)
