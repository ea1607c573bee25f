"""Assemble personal models from the points of the users, and take the points from a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from coterie.errors import InvalidInput
from coterie.methods import METHODS
from coterie.networks import Network
from coterie.numerics.arrays import FloatArray
from coterie.problems.parts.data import Classes
from coterie.problems.parts.models import Models
from coterie.problems.personal.model import PersonalModel
from coterie.problems.personal.problem import Personal, user_loss
from coterie.run.agent import Agent, AgentForm
from coterie.run.certificate.bound import Point
from coterie.run.rounds import Outcome

LOSSES = 1e-9
"""Tolerance, relative and absolute, between stored losses and losses computed from the rows."""


class PersonalModels(Models[Personal, PersonalModel]):
    """Personal models and their points. The `w` of a point is one user's model; its `v` is the
    user's row of the graph.
    """

    def shapes(
        self, model: PersonalModel, members: Sequence[AgentForm[Personal]]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """One coefficient per base predictor."""
        problem = members[0].problem
        return (model.coef_.shape[1],), (problem.base.count,)

    def _points(
        self,
        model: PersonalModel,
        members: Sequence[AgentForm[Personal]],
        witness: Sequence[FloatArray] | None,
    ) -> list[Point]:
        if len(members) < members[0].count:
            # The model of one user only: its row of the graph is in its witness.
            if witness is None:
                row = None
            else:
                row = witness[0]
            return [Point(model.coef_[[0]].toarray()[0], row)]
        if len(model.users) != len(members):
            raise InvalidInput(
                f"the model is of {len(model.users)} users, but this data is of {len(members)}."
            )
        points = []
        for index in range(len(members)):
            edges = slice(*model.weights.indptr[index : index + 2])
            row = np.concatenate(
                [model.weights.indices[edges].astype(float), model.weights.data[edges]]
            )
            points.append(Point(model.coef_[[index]].toarray()[0], row))
        return points

    def assemble(
        self,
        outcome: Outcome,
        members: Sequence[AgentForm[Personal]],
        problem: Personal,
        classes: Classes,
    ) -> PersonalModel:
        """The models of these users, and the graph if `members` are all users."""
        assert classes is not None
        coef = sp.csr_array(np.array([point.w for point in outcome.points]))
        confidence = np.array([agent.data.n / outcome.statistics.largest for agent in members])
        losses = np.array([point.own for point in outcome.points], float)
        weights = sp.csr_array((1, 1))
        if len(members) == members[0].count:
            weights = _graph([point.v for point in outcome.points])
        users = tuple(agent.data.name for agent in members)
        data = members[0].data
        return PersonalModel(
            coef, users, weights, confidence, losses, problem, classes, data.columns, data.d
        )

    def has_own_number(self, agent: AgentForm[Personal]) -> bool:
        return True

    def own_number(self, agent: Agent[Personal], w: FloatArray) -> float:
        """The loss of the user's own rows."""
        return user_loss(agent, w)

    def network(self, model: PersonalModel, graph: Network) -> Network:
        """The graph of similar users in the model, learned or given. If the model does not have all
        users, `graph`.
        """
        if len(model.users) == graph.agents:
            return model.network
        return graph

    def proof_network(self, model: PersonalModel, network: Network) -> Network:
        """The graph of the model if it was given. A learned graph is in the witness, so that
        `network` is unchanged.
        """
        if model.problem.learned:
            return network
        return self.network(model, network)

    def proven_network(
        self, model: PersonalModel, settings: Mapping[str, Any], agents: int
    ) -> Network:
        """The given graph. Settings do not have a learned graph, and methods without a network
        have none.
        """
        unknown = model.problem.learned or not METHODS[settings["method"]["name"]].uses_network
        if unknown:
            return super().proven_network(model, settings, agents)
        return self.network(model, model.network)

    def problem_of(self, model: PersonalModel, settings: dict[str, Any]) -> Personal:
        """The problem of the model, because settings cannot restore predictors that are
        functions.
        """
        return model.problem

    def unproven(
        self, model: PersonalModel, members: Sequence[AgentForm[Personal]], own: Sequence[float]
    ) -> Iterator[str]:
        """Check the parts of the model that the certificate does not cover: number of columns,
        confidence, losses, and the symmetry of the graph.
        """
        first = members[0].data
        if model.width not in (None, first.d):
            yield f"the model is of {model.width} columns, but the data has {first.d}"
        rows = np.array([agent.data.n for agent in members], float)
        all_users = len(members) == members[0].count
        if all_users and not np.array_equal(model.confidence, rows / max(rows.max(), 1.0)):
            yield "the model's shares of rows are not those of its users"
        if not np.allclose(model.losses, own, rtol=LOSSES, atol=LOSSES):
            yield "the model's losses are not those of its users"
        if (model.weights != model.weights.T).nnz:
            yield "the graph of who is alike is not symmetric"


def _graph(rows: Sequence[FloatArray | None]) -> sp.csr_array:
    """The graph of these rows. An edge has the smaller of the two weights that its two users
    hold.
    """
    known = [np.empty(0) if row is None else row for row in rows]
    ends = np.concatenate([[0], np.cumsum([row.size // 2 for row in known])])
    peers, held = (np.concatenate([np.split(row, 2)[part] for row in known]) for part in (0, 1))
    directed = sp.csr_array((held, peers.astype(np.intp), ends), shape=(len(rows), len(rows)))
    weights = sp.csr_array(directed.minimum(directed.T))
    weights.eliminate_zeros()
    return weights
