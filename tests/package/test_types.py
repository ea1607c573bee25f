"""What `mypy --strict` sees of Coterie in code like this: models and States have types, and need no
cast.

mypy checks this file with the sources; an ignored error that is none is an error.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, assert_type, get_overloads

import numpy as np
import pytest

import coterie as co
from coterie.data.remote_table import RemoteTable
from coterie.engines import Engine, Run
from coterie.networks import star
from coterie.numerics.arrays import FloatArray
from coterie.problems.linear.model import LinearModel
from coterie.problems.low_rank.model import LowRankModel
from coterie.problems.models import AnyModel
from coterie.problems.personal.model import PersonalModel
from coterie.problems.problem import AnyProblem
from coterie.run.agent import forms_of_agents, with_data
from coterie.run.collectives import Sum
from coterie.run.disclosure import WEIGHTED_ROWS, Disclosure
from coterie.run.parties import Hosted, Meeting, Operation, OperationOn, Parties, hosted
from coterie.run.rounds import Conversation
from coterie.run.settings import Limits
from coterie.run.setup import make_agent
from coterie.run.site import Site, site_of
from tests.harness.workers import Workers

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 3))
Y = np.where(X[:, 0] > 0, 1.0, -1.0)


def rows_of_all(site: Site) -> co.Protocol[FloatArray]:
    """The number of rows of all parties."""
    rows: FloatArray = yield Sum(np.array([float(site.data.n)]))
    return rows


def test_a_problem_gives_a_model_with_coefficients(tmp_path: Path) -> None:
    result = co.solve(
        co.Problem("logistic", "l2", 1e-2, intercept=True), (X, Y), agents=2, tol=1e-4
    )
    assert_type(result.model, LinearModel | LowRankModel)
    assert_type(result.model.intercept_, float | FloatArray)
    assert result.model.coef_.shape == (3,)
    assert set(result.model.predict(X)) <= {-1.0, 1.0}
    model = result.model
    assert isinstance(model, LinearModel)
    assert_type(model, LinearModel)
    loaded = co.Result.load(result.save(tmp_path / "run"))
    assert_type(loaded.model, AnyModel)
    assert loaded.model.digest() == model.digest()


def test_types_know_all_settings_of_solve() -> None:
    known, typed = inspect.signature(co.solve), inspect.signature(get_overloads(co.solve)[-1])
    assert list(typed.parameters) == list(known.parameters)


def test_a_number_of_a_table_at_a_worker_is_a_type_error() -> None:
    table = co.Table(X, Y)
    form = site_of(0, 1, RemoteTable.of(table, lambda: table))
    assert_type(form.data, co.Table | RemoteTable)
    assert (form.data.n, form.data.d) == X.shape
    with pytest.raises(AttributeError):
        form.data.X  # type: ignore[union-attr]  # noqa: B018
    with pytest.raises(AttributeError):
        form.data.y  # type: ignore[union-attr]  # noqa: B018
    assert_type(with_data(form).data, co.Table)
    assert with_data(form).data.X is X


def test_a_number_behind_the_agents_of_a_run_is_a_type_error() -> None:
    table = co.Table(X, Y)
    remote = RemoteTable.of(table, lambda: table)
    sites = [site_of(0, 2, remote), site_of(1, 2, table)]
    run = Run(sites, Conversation(rows_of_all), star(2), Limits())
    assert_type(run.agents[0].data, co.Table | RemoteTable)
    with pytest.raises(AttributeError):
        run.agents[0].data.X  # type: ignore[union-attr]  # noqa: B018
    with pytest.raises(AttributeError):
        run.agents[1].problem  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AssertionError, match="only agents take rounds"):
        forms_of_agents(run.agents)
    problem = co.Problem("squared")
    agent = make_agent(0, remote, np.arange(table.d), problem, "samples", star(1), 0)
    assert_type(agent.problem, co.Problem)
    (form,) = forms_of_agents([agent])
    assert_type(form.data, co.Table | RemoteTable)
    assert_type(form.problem, AnyProblem)


@dataclass(frozen=True)
class FirstRow(Operation[float]):
    """Read a number of the first party, where the operation is: a mistake."""

    name: ClassVar[str] = "first row"
    discloses: ClassVar = ()

    def together(self, parties: Parties) -> float:
        assert_type(parties.sites[0].data, co.Table | RemoteTable)
        first: float = parties.sites[0].data.X[0, 0]  # type: ignore[union-attr]
        return first


@dataclass(frozen=True)
class NamesHere(OperationOn[tuple[str, ...], Hosted]):
    """The names of parties that one process asks."""

    name: ClassVar[str] = "names"
    discloses: ClassVar = ()

    def together(self, parties: Hosted) -> tuple[str, ...]:
        assert_type(parties.engine, Engine)
        return parties.names


def test_a_number_of_a_remote_table_in_an_operation_is_a_type_error() -> None:
    table = co.Table(X, Y, name="ada")
    asked = FirstRow()
    with hosted(asked, [partial(co.Table, X, Y)], Meeting(), Workers()) as parties:
        with pytest.raises(AttributeError):
            asked.together(parties)
        with pytest.raises(AttributeError):
            parties.operation.together(parties)  # type: ignore[arg-type]
    with hosted(asked, [table], Meeting()) as parties:
        assert_type(asked.together(parties), float)
        assert asked.together(parties) == X[0, 0]
    names = NamesHere()
    with hosted(names, [table], Meeting()) as parties:
        assert_type(names.together(parties), tuple[str, ...])
        assert names.together(parties) == ("ada",)
        somewhere: Parties = parties
        names.together(somewhere)  # type: ignore[arg-type]


def test_a_personal_problem_gives_a_model_of_every_user() -> None:
    result = co.solve(co.Personal(count=4), (X, Y, np.arange(40) % 2), split="users", max_rounds=2)
    assert_type(result.model, PersonalModel)
    assert len(result.model.users) == 2
    with pytest.raises(AttributeError):
        result.model.intercept_  # type: ignore[attr-defined]  # noqa: B018


@dataclass(frozen=True, slots=True)
class Place:
    """Where an agent stands."""

    w: FloatArray


@dataclass(frozen=True)
class Typed(co.Method[Place]):
    """A gradient step with a fixed length."""

    name: ClassVar[str] = "typed"
    split: ClassVar[str] = "samples"
    summary: ClassVar[str] = "gradient steps"
    disclosure: ClassVar[Disclosure] = WEIGHTED_ROWS
    discloses_labels: ClassVar[bool] = False

    def start(self, agent: co.Agent) -> co.Protocol[Place]:
        yield from ()
        return Place(np.zeros(agent.design.shape[1]))

    def round(self, agent: co.Agent, state: Place, t: int) -> co.Protocol[Place]:
        gradients = agent.problem.loss.gradient(agent.design.forward(state.w), agent.labels)
        total = yield Sum(agent.design.adjoint(gradients))
        return Place(state.w - 0.1 / agent.total * total)

    def point(self, agent: co.Agent, state: Place) -> co.Point:
        return co.Point(state.w)


def test_a_method_names_its_state() -> None:
    assert Typed().states == (Place,)
    result = co.solve(
        co.Problem("squared", "none", intercept=False),
        (X, Y),
        agents=2,
        method=Typed(),
        max_rounds=200,
        tol=1e-4,
    )
    assert result.status.success
    with pytest.raises(AttributeError):
        Typed().point(agent=None, state=4)  # type: ignore[arg-type]
