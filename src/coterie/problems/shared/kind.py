"""A common linear model and deviations of every user from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from coterie.errors import InvalidInput, InvalidProblem
from coterie.networks import Network
from coterie.numerics.arrays import FloatArray
from coterie.problems.kind import SHOWN, Ask, Classes, Protocols, Shown
from coterie.problems.one_score import OneScoreKind
from coterie.problems.shared import proof
from coterie.problems.shared.methods import SharedModels, SharedNewton
from coterie.problems.shared.model import SharedModel
from coterie.problems.shared.problem import Shared
from coterie.run.agent import Agent, Facts
from coterie.run.certificate import ANY, Bound, Participant, Point, introduction
from coterie.run.collectives import Talk
from coterie.run.rounds import Outcome


class SharedKind(OneScoreKind[Shared, SharedModel]):
    """A linear model on the columns of all and on those of each user."""

    name = "shared"
    methods = (SharedModels, SharedNewton)
    called = "common model with deviations"
    graph_is_data = True
    only_sums = True
    cohorts = ("users",)
    model_class = SharedModel
    prepares = False
    introduces: Protocols = introduction.OF_ROWS
    proves: Protocols = proof.PROTOCOLS

    def introduce(self, agent: Agent[Shared]) -> Talk[Facts]:
        return proof.introduce(agent)

    def certify(
        self, agent: Agent[Shared], point: Point, target: float = 0.0, radius: float | None = ANY
    ) -> Talk[Bound]:
        return proof.certify(agent, point, target, radius)

    def dual_at(self, agent: Agent[Shared], w: FloatArray) -> FloatArray | None:
        return proof.dual_at(agent, w)

    def has_own_number(self, agent: Agent[Shared]) -> bool:
        return False

    def check_split(self, problem: Shared, split: str) -> None:
        if split != "users":
            raise InvalidProblem(
                f"a common model with deviations has users, but the data is split by {split}. Use split='users' with "
                "(X, y, users), or a list with one entry per user; or co.Problem for one model."
            )

    def check_network(self, network: Any) -> None:
        if network is not None:
            raise InvalidProblem(
                f"a common model with deviations has no graph of similar users, so network={network!r} does not apply. "
                "Leave network out."
            )

    def words(self, problem: Shared) -> str:
        return f"{super().words(problem)}, deviations of users at {problem.mu:g}, of intercepts at {problem.nu:g}"

    def fitted(self, problem: Shared, data: str) -> str:
        return f"A common model, and deviations of every user from it ({self.words(problem)}), were fitted to {data}."

    def described(self, settings: dict[str, Any]) -> str:
        own = settings["shared"]
        return f"{super().described(settings)}, users deviate at mu {own['mu']}, nu {own['nu']}"

    def call(self, problem: Shared) -> tuple[str, dict[str, Any]]:
        named = super().call(problem)[1]
        return "Shared", {**named, "mu": problem.mu, "nu": problem.nu}

    def parts(self, settings: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        return [*super().parts(settings), ("Deviations", {"name": "squared", **settings["shared"]})]

    def shapes(self, model: Any, members: Sequence[Agent[Shared]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """One coefficient a column."""
        return (len(model.coef_),), (members[0].data.d,)

    def _points(
        self, model: Any, members: Sequence[Agent[Shared]], witness: Sequence[FloatArray] | None, ask: Ask
    ) -> list[Point]:
        if len(model.users) != len(members):
            raise InvalidInput(f"the model is of {len(model.users)} users, but there are {len(members)} here.")
        sizes = [agent.labelled for agent in members]
        if witness is not None and (
            len(witness) != len(sizes) or any(len(v) not in (0, n) for v, n in zip(witness, sizes, strict=True))
        ):
            raise InvalidInput("the dual vectors do not belong to these users; use those of a run on the same data.")
        ends = ([model.intercept_], model.offsets) if members[0].has_intercept else ([], None)
        points = []
        for index in range(len(members)):
            own = np.append(model.deviations[index], [] if ends[1] is None else ends[1][index])
            w = np.concatenate([own, model.coef_, ends[0]])
            points.append(Point(w, None if witness is None or len(witness[index]) == 0 else witness[index]))
        return points

    def model(
        self, outcome: Outcome, members: Sequence[Agent[Shared]], problem: Shared, classes: Classes
    ) -> SharedModel:
        """The common model, and the deviations of these users."""
        d, first = members[0].data.d, members[0].data
        parts = np.array([np.split(point.w, 2) for point in outcome.points])
        own, common = parts[:, 0], parts[0, 1]
        intercept = float(common[d]) if problem.intercept else 0.0
        offsets = own[:, d].copy() if problem.intercept else np.zeros(len(members))
        users = tuple(agent.data.name for agent in members)
        deviations = np.ascontiguousarray(own[:, :d])
        return SharedModel(common[:d].copy(), intercept, deviations, offsets, users, problem, classes, first.columns)

    def unproven(self, model: Any, members: Sequence[Agent[Shared]]) -> Iterator[str]:
        """Also an intercept of a single user."""
        yield from super().unproven(model, members)
        if not model.problem.intercept and np.any(model.offsets):
            yield "users have intercepts of their own, but the problem has none"

    def shown(self, model: Any, people: Sequence[Participant]) -> Shown:
        """The users that deviate most."""
        sizes = np.sqrt(np.square(model.deviations).sum(axis=1) + np.square(model.offsets))
        order = np.argsort(-sizes, kind="stable")[:SHOWN]
        bars = [(model.users[k], float(sizes[k])) for k in order.tolist() if sizes[k] > 0]
        which = f"The {SHOWN} users that deviate most" if len(sizes) > SHOWN else "How far every user deviates"
        explanation = f"{which} from the common model: the length of what its coefficients and its intercept differ by."
        if not bars:
            explanation = "No user deviates: this is one model for all."
        return Shown("deviations", explanation, ("user", "length of its deviation"), bars)

    def facts(self, model: Any, network: Network) -> dict[str, str]:
        return {**super().facts(model, network), "Users": f"{len(model.users):,}"}

    def problem_of(self, model: Any, settings: dict[str, Any]) -> Shared:
        return Shared.from_settings(settings)
