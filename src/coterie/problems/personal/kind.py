"""Personal models: a classifier for every user, and the graph of who is alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from coterie.data import Table
from coterie.errors import InvalidInput, InvalidProblem
from coterie.methods import METHODS
from coterie.networks import Network
from coterie.numerics.arrays import FloatArray
from coterie.problems.kind import SHOWN, Ask, Classes, Kind, Protocols, Shown, said_of_intercept, spelt
from coterie.problems.personal import proof
from coterie.problems.personal.methods import Dada, DadaLinear, Global, Local, PersoLinear
from coterie.problems.personal.model import PersonalModel
from coterie.problems.personal.problem import LEARNED, Personal, user_loss
from coterie.run.agent import Agent, Facts
from coterie.run.certificate import ANY, Bound, Participant, Point
from coterie.run.collectives import Talk
from coterie.run.rounds import Outcome

LOSSES = 1e-9
"""How closely the losses of users agree with those of their rows."""


class PersonalKind(Kind[Personal, PersonalModel]):
    """Log-sum losses of users, in a ball, and near those who are alike."""

    name = "personal"
    methods = (Dada, DadaLinear, Global, Local, PersoLinear)
    called = "model for each of them"
    labels_alone = False
    model_class = PersonalModel
    introduces: Protocols = (proof.introduce,)
    proves: Protocols = (proof.certify,)

    def introduce(self, agent: Agent[Personal]) -> Talk[Facts]:
        return proof.introduce(agent)

    def certify(
        self, agent: Agent[Personal], point: Point, target: float = 0.0, radius: float | None = ANY
    ) -> Talk[Bound]:
        return proof.certify(agent, point, target, radius)

    def dual_at(self, agent: Agent[Personal], w: FloatArray) -> FloatArray | None:
        return None

    def classification(self, problem: Personal) -> bool:
        return True

    def check_split(self, problem: Personal, split: str) -> None:
        if split != "users":
            raise InvalidProblem(
                f"a personal problem has a model for every user, but the data is split by {split}. Use split='users' "
                "with (X, y, users), or a list with one entry per user."
            )

    graph_is_data = True

    def wants_ranges(self, problem: Personal) -> bool:
        return problem.predictors == "stumps"

    def for_tables(self, problem: Personal, tables: Sequence[Table]) -> Personal:
        return problem.on(tables)

    def for_graph(self, problem: Personal, graph: Network) -> Personal:
        return problem.but(learned=graph.name == LEARNED)

    def words(self, problem: Personal) -> str:
        intercept = said_of_intercept(self.has_intercept(problem.settings()))
        return f"a model per user, {problem.norm} norm at most {problem.beta:g}, {intercept}"

    def has_intercept(self, settings: dict[str, Any]) -> bool:
        """Whether every user has one: linear predictors do, unless the loss is hinge; stumps on request."""
        own = settings["personal"]
        predictors = {"name": own["predictors"]} if isinstance(own["predictors"], str) else own["predictors"]
        if predictors["name"] == "linear":
            return bool(predictors.get("constant", not own.get("hinge", False)))
        return bool(own.get("constant", False))

    def fitted(self, problem: Personal, data: str) -> str:
        return "A model was fitted for each of them, close to the models of similar users."

    def call(self, problem: Personal) -> tuple[str, dict[str, Any]]:
        own = {name: value for name, value in problem.settings()["personal"].items() if value is not None}
        named = own["predictors"] if isinstance(own["predictors"], str) else own["predictors"]["name"]
        chosen = ("count", "beta", "mu", "lam", "delta", "norm", "constant", "hinge")
        return "Personal", {"predictors": named} | {name: own[name] for name in chosen if name in own}

    def described(self, settings: dict[str, Any]) -> str:
        (_, loss), (_, ball), (_, own), _ = self.parts(settings)
        intercept = said_of_intercept(self.has_intercept(settings))
        return f"a model per user, {loss['name']} loss, {spelt(ball)}, {spelt(own)}, {intercept}"

    def parts(self, settings: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        own = {name: value for name, value in settings["personal"].items() if value is not None}
        predictors, norm, beta = own.pop("predictors"), own.pop("norm"), own.pop("beta")
        named = predictors if isinstance(predictors, str) else predictors["name"]
        loss = {"name": "log-sum", "of a user": "log Σ exp(−margin)"}
        if own.pop("hinge", False):
            loss = {"name": "mean hinge", "of a user": "mean of max(0, 1 − margin)"}
        return [
            ("Loss", loss),
            ("Constraint", {"name": f"{norm} ball", "radius": beta}),
            ("Personal", {"name": f"{named} predictors", **own}),
            ("Intercept", {"name": "yes, one for every user" if self.has_intercept(settings) else "no"}),
        ]

    def shapes(self, model: Any, members: Sequence[Agent[Personal]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """One coefficient a base predictor."""
        problem = members[0].problem
        return (model.coef_.shape[1],), (problem.base.count,)

    def _points(
        self, model: Any, members: Sequence[Agent[Personal]], witness: Sequence[FloatArray] | None, ask: Ask
    ) -> list[Point]:
        if len(members) < members[0].count:
            # One user's part: its row of the graph is in its witness.
            return [Point(model.coef_[[0]].toarray()[0], None if witness is None else witness[0])]
        if len(model.users) != len(members):
            raise InvalidInput(f"the model is of {len(model.users)} users, but there are {len(members)} here.")
        points = []
        for index in range(len(members)):
            edges = slice(*model.weights.indptr[index : index + 2])
            row = np.concatenate([model.weights.indices[edges].astype(float), model.weights.data[edges]])
            points.append(Point(model.coef_[[index]].toarray()[0], row))
        return points

    def model(
        self, outcome: Outcome, members: Sequence[Agent[Personal]], problem: Personal, classes: Classes
    ) -> PersonalModel:
        """The models of these users, and the graph between them if they are all."""
        assert classes is not None
        coef = sp.csr_array(np.array([point.w for point in outcome.points]))
        confidence = np.array([agent.data.n / outcome.facts.largest for agent in members])
        losses = np.array([point.own for point in outcome.points], float)
        alone = len(members) < members[0].count
        weights = sp.csr_array((1, 1)) if alone else _graph([point.v for point in outcome.points])
        users, first = tuple(agent.data.name for agent in members), members[0].data
        return PersonalModel(coef, users, weights, confidence, losses, problem, classes, first.columns, first.d)

    def network(self, model: Any, graph: Network) -> Network:
        """The graph of who is alike, learned or given, where the model has all of it."""
        found: Network = model.network if len(model.users) == graph.agents else graph
        return found

    def shown(self, model: Any, people: Sequence[Participant]) -> Shown:
        """Every user and the share of its own rows that its model gets right, at least; the lowest first.

        A row that is wrong has a margin of at most 0, so the errors are at most Σ_i exp(−margin_i) = exp(L_k), and at
        most Σ_i max(0, 1 − margin_i).
        """
        rows = np.array([person.rows for person in people])
        bound = model.losses * rows if model.problem.hinge else np.exp(model.losses)
        errors = zip(people, bound, strict=True)
        least = [(person.name, max(1.0 - float(wrong) / person.rows, 0.0)) for person, wrong in errors if person.rows]
        which = f"The {SHOWN} users with the lowest" if len(least) > SHOWN else "For each user, the"
        explanation = (
            f"{which} share of its own rows that its model classifies rightly: at least so much, by a bound that the "
            "loss gives. It says nothing yet of new rows."
        )
        bars = sorted(least, key=lambda bar: bar[1])
        return Shown("accuracies", explanation, ("user", "right, at least"), bars, shares=True)

    def facts(self, model: Any, network: Network) -> dict[str, str]:
        intercept = "one for every user" if self.has_intercept(model.problem.settings()) else "none"
        return {
            "Intercept": intercept,
            "Shape": " × ".join(f"{length:,}" for length in model.coef_.shape),
            "Users": f"{len(model.users):,}",
            "Links between them": f"{network.n_edges:,}",
            "Base predictors used": f"{model.coef_.nnz / max(len(model.users), 1):.3g} per user",
        }

    def proof_network(self, model: Any, network: Network) -> Network:
        """The graph, if it was given; the witness has one that was learned."""
        return network if model.problem.learned else self.network(model, network)

    def unproven(self, model: Any, members: Sequence[Agent[Personal]]) -> Iterator[str]:
        """What was computed of each user's rows beside its model."""
        first = members[0].data
        if model.width not in (None, first.d):
            yield f"the model is of {model.width} columns, but the data has {first.d}"
        rows = np.array([agent.data.n for agent in members], float)
        everybody = len(members) == members[0].count
        if everybody and not np.array_equal(model.confidence, rows / max(rows.max(), 1.0)):
            yield "the model's shares of rows are not those of its users"
        losses = np.array([user_loss(agent, model.coef_[[k]].toarray()[0]) for k, agent in enumerate(members)])
        if not np.allclose(model.losses, losses, rtol=LOSSES, atol=LOSSES):
            yield "the model's losses are not those of its users"
        if (model.weights != model.weights.T).nnz:
            yield "the graph of who is alike is not symmetric"

    def proven_network(self, model: Any, settings: Mapping[str, Any], agents: int) -> Network:
        """What was given; of a graph that was learned, the settings know nothing but that."""
        unknown = model.problem.learned or not METHODS[settings["method"]["name"]].uses_network
        return super().proven_network(model, settings, agents) if unknown else self.network(model, model.network)

    def has_own_number(self, agent: Agent[Personal]) -> bool:
        return True

    def own_number(self, agent: Agent[Personal], w: FloatArray) -> float:
        """The loss of the user's own rows."""
        return user_loss(agent, w)

    def problem_of(self, model: Any, settings: dict[str, Any]) -> Personal:
        """That of the model: predictors that are functions are in no file."""
        found: Personal = model.problem
        return found


def _graph(rows: Sequence[FloatArray | None]) -> sp.csr_array:
    """An edge has the smaller of the two weights that its ends hold."""
    known = [np.empty(0) if row is None else row for row in rows]
    ends = np.concatenate([[0], np.cumsum([row.size // 2 for row in known])])
    peers, held = (np.concatenate([np.split(row, 2)[part] for row in known]) for part in (0, 1))
    directed = sp.csr_array((held, peers.astype(np.intp), ends), shape=(len(rows), len(rows)))
    weights = sp.csr_array(directed.minimum(directed.T))
    weights.eliminate_zeros()
    return weights
