"""Fit a model when the tables of the parties are checked and prepared.

tables, classes ─→ set-up: problem, network, method ─→ agents ─→ rounds ─→ model, certificate
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from coterie.api.result import Result
from coterie.data import Table
from coterie.data.preparation.prepared import Prepared
from coterie.data.remote_table import AnyTable, RemoteTable
from coterie.data.table import Indices, columns_in_turn
from coterie.errors import InvalidInput, ProtocolError
from coterie.methods import METHODS, Method
from coterie.networks import Network
from coterie.numerics.arrays import is_sparse, is_tensor
from coterie.problems import points_of
from coterie.problems.column_penalties import ColumnsOfAll, Pending
from coterie.problems.parts.data import Classes, by_rows, on_the_host
from coterie.problems.problem import AnyProblem, K
from coterie.run.agent import AgentForm
from coterie.run.certificate import Certificate, Participant, Point
from coterie.run.disclosure import Case, discloses
from coterie.run.finish import finish
from coterie.run.method_choice import Circumstances
from coterie.run.parties import OperationOn, Parties, Rounds
from coterie.run.rounds import Outcome
from coterie.run.settings import Settings
from coterie.run.setup import Setup, make_agent, make_link, set_up, sizes_of, with_offset
from coterie.run.site import Site, SiteForm
from coterie.run.statuses import Status

T = TypeVar("T")
P = TypeVar("P", bound=Parties, covariant=True)


def _wants_ranges(case: Case) -> bool:
    problems = case.problem.kind.problems
    return bool(problems.wants_ranges(case.problem))


@discloses(
    "the least and the largest value of each column",
    "values of your rows; of one row, the row",
    applies=_wants_ranges,
)
def ranges_of(site: Site) -> list[list[float]]:
    """The ends of each column; nothing of a table without rows."""
    """The least and the largest values of all columns; empty without rows."""
    X = site.data.X
    if not site.data.n:
        return []
    if is_sparse(X):
        X = X.toarray()
    least = X.min(axis=0).tolist()
    largest = X.max(axis=0).tolist()
    return [least, largest]


@dataclass(frozen=True)
class Fitting(OperationOn[T, "Ready[Parties]"]):
    """An operation that fits models."""

    discloses: ClassVar[tuple[Callable[..., Any], ...]] = (ranges_of,)

    problem: AnyProblem
    settings: Settings


@dataclass(frozen=True)
class Fit(Fitting[Result[Any]]):
    """Fit one model."""

    name: ClassVar[str] = "fit"

    before: Result | None = None

    def together(self, ready: Ready[Parties]) -> Result[Any]:
        return fit(ready, self.problem, self.settings, before=self.before)


@dataclass(frozen=True)
class Ready(Generic[P]):
    """Parties whose tables agents can take, and what all parties know of the tables."""

    parties: P
    graph: Network
    """The edges along which agents send messages; split by users, edges between similar users."""
    classes: Classes
    participants: tuple[Participant, ...]
    """The parties, their numbers of rows, and the digests of their tables."""
    prepared: Prepared | None = None
    """The preparation of the columns, which models take along."""
    sent: dict[str, Any] | None = None
    """The state of a bill: the cost of the preparation."""
    allowed: Container[str] | None = None
    """The methods that "auto" may choose; None: all."""
    allowed_later: Container[str] | None = None
    """The methods that "auto" may change to; None: all."""
    part: str | None = None
    """The name of this party's part of the model, where no process has all parts."""

    def map(self, step: Callable[[Site], Table], part: str = "") -> Ready[P]:
        """The same parties with a part of their rows; `part`: see `Parties.map`."""
        return replace(self, parties=self.parties.map(step, part=part).seen())

    def known(self, problem: K) -> K:
        """The problem for this data: with the classes, with the factors of its columns, and with an
        offset if the data has one.
        """
        known = with_offset(problem.with_classes(self.classes), self.parties.cards)
        return with_columns(known, self.parties, self.prepared)


def fit(
    ready: Ready[Parties],
    problem: AnyProblem,
    settings: Settings,
    *,
    before: Result | None = None,
    called: str = "",
    title: str = "",
) -> Result[Any]:
    """Fit one model together.

    Parameters
    ----------
    ready : Ready
        The parties.
    problem : AnyProblem
        The problem to minimise.
    settings : Settings
        The limits, the method and the placement.
    before : Result, optional
        A result for the same parties. The fit starts from its model and dual variables.
    called : str, default=""
        Distinguishes this fit from others of the same problem, such as those without a fold.
    title : str, default=""
        The title that parties read at the beginning.
    """
    parties = ready.parties
    setup = _set_up(ready, problem, settings)
    places = _columns(parties)
    agents = [_agent(setup, places, site) for site in parties.sites]
    origin = None
    warm = None
    if before is not None:
        origin = before.certificate.model_digest
        warm = _points(before, ready, agents)
    rounds = Rounds(setup, ready.participants, origin, warm, ready.sent, called, title)
    outcome = parties.run_rounds(agents, rounds)
    model = _model(ready, setup, agents, outcome)
    for agent in agents:
        agent.release()
    return finish(setup, outcome, model, agents, ready.participants)


def whole(result: Result[Any]) -> Result[Any]:
    """The result of a fit that came to its end, for operations that need each of their fits."""
    if result.error is not None:
        raise result.error
    if result.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    return result


# -- before the rounds -----------------------------------------------------------------------------


def _set_up(ready: Ready[Parties], problem: AnyProblem, settings: Settings) -> Setup:
    """The problem for this data, the network, and the method."""
    parties = ready.parties
    tables = [site.data for site in parties.sites]
    link = make_link(settings.placement.link, parties.in_memory)
    sizes = sizes_of(parties.cards, parties.split, link, parties.apart)
    sizes = replace(sizes, on_gpu=_on_gpu(tables))
    known = Circumstances(
        ready.graph,
        sizes,
        ready.classes,
        parties.sites[0].secure_sums,
        partition=_partition(parties),
        allowed=ready.allowed,
        allowed_later=_on_tensors(tables) or ready.allowed_later,
    )
    problem = with_columns(with_offset(problem, parties.cards), parties, ready.prepared)
    return set_up(problem, settings, known, partial(_for_tables, parties))


def with_columns(problem: K, parties: Parties, prepared: Prepared | None) -> K:
    """The problem for the columns of these parties, if its penalty depends on them."""
    if not isinstance(getattr(problem, "penalty", None), Pending):
        return problem
    by_party = parties.split == "features"
    places = _columns(parties)
    known = [card.names for card in parties.cards]
    names: Sequence[str] | None = parties.sites[0].data.columns or known[0]
    if by_party:
        names = _names_in_order(known, places)
    raw: dict[str, str] = {}
    if prepared is not None:
        for column in prepared.columns:
            raw |= dict.fromkeys(column.names(), column.name)
    return problem.with_columns(ColumnsOfAll(places, names, raw, by_party))


def _names_in_order(
    known: Sequence[tuple[str, ...] | None], places: Sequence[Indices]
) -> list[str] | None:
    """The names of the pooled columns, if all parties' names are known."""
    names = [""] * sum(map(len, places))
    for own, columns in zip(known, places, strict=True):
        if own is None and len(columns):
            return None
        for name, place in zip(own or (), columns.tolist(), strict=True):
            names[place] = name
    return names


def _for_tables(parties: Parties, problem: AnyProblem) -> AnyProblem:
    """The problem for these tables: some problems need the ranges of all parties' columns."""
    family = problem.kind.problems
    tables: list[AnyTable] = [site.data for site in parties.sites]
    weighted = any("weights" in table.row_values for table in tables)
    if not weighted and family.wants_ranges(problem):
        ranges = parties.ask(ranges_of, list[list[float]])
        tables = []
        for card, ends in zip(parties.cards, ranges, strict=True):
            if any(len(row) != card.columns or not np.isfinite(row).all() for row in ends):
                raise ProtocolError(f"ranges: {card.name} sent others than those of its columns.")
            tables.append(Table(np.array(ends).reshape(-1, card.columns), name=card.name))
    # `for_tables` refuses weights that the problem cannot take.
    known: AnyProblem = family.for_tables(problem, tables)
    return known


def _partition(parties: Parties) -> list[list[int]] | None:
    """The rows or columns of the pooled data that each agent has; None if they are consecutive
    blocks, or not known.
    """
    if parties.split == "features":
        held = [site.data.cols for site in parties.sites]
    else:
        held = [site.data.rows for site in parties.sites]
    known = [part for part in held if part is not None]
    if len(known) < len(parties.cards):
        return None
    places = np.concatenate(known)
    if np.array_equal(places, np.arange(len(places))):
        return None
    return [part.tolist() for part in known]


def _on_gpu(tables: Sequence[AnyTable]) -> bool:
    """Whether all rows are tensors on a GPU."""
    return all(
        isinstance(table, Table) and is_tensor(table.X) and table.X.is_cuda for table in tables
    )


def is_on_tensors(table: AnyTable) -> bool:
    """Whether the rows are tensors, as far as this process knows: of workers it does not."""
    return isinstance(table, Table) and is_tensor(table.X)


def _on_tensors(tables: Sequence[AnyTable]) -> set[str] | None:
    """The methods that take tensors as they are, if some rows are tensors."""
    if not any(is_on_tensors(table) for table in tables):
        return None
    return {name for name, method in METHODS.items() if method.tensors}


def _columns(parties: Parties) -> list[Indices]:
    """The pooled column numbers of each party."""
    dealt: dict[int, Indices | None] = {site.index: site.data.cols for site in parties.sites}
    widths = [card.columns for card in parties.cards]
    in_order = [dealt.get(index) for index in range(len(widths))]
    return columns_in_turn(widths, in_order)


def _agent(setup: Setup, places: Sequence[Indices], site: SiteForm) -> AgentForm[AnyProblem]:
    """The party as an agent of the problem."""
    method: Method[Any, Any] = setup.method
    table = _within_reach(site.data, method, setup.problem)
    wanted = setup.wanted
    return make_agent(
        site.index,
        table,
        places[site.index],
        setup.problem,
        wanted.placement.split,
        setup.graph,
        wanted.seed,
        site.secure_sums,
    )


def _within_reach(table: AnyTable, method: Method, problem: AnyProblem) -> AnyTable:
    """The table where that method can compute with it: on the host, unless it takes tensors as they
    are.
    """
    as_it_is = method.tensors or problem.kind.for_matrices
    if as_it_is or isinstance(table, RemoteTable) or not is_tensor(table.X):
        return table
    (on_host,) = on_the_host([table])
    return by_rows(on_host)


def _points(
    before: Result, ready: Ready[Parties], agents: Sequence[AgentForm[AnyProblem]]
) -> list[Point]:
    """The points at which agents start: the model and dual variables of an earlier result."""
    witness = before.certificate.witness
    if len(witness) != len(ready.parties.cards):
        raise InvalidInput(
            "the dual vectors do not belong to these parties; use those of a run on the same data."
        )
    duals = [witness[agent.index] for agent in agents]
    problem = agents[0].problem
    points = points_of(before.model, agents, duals, ready.parties.answers)
    if _same_data(before.certificate, ready.participants, problem):
        points = [replace(point, kept=before.kept) for point in points]
    return list(points)


def _same_data(
    before: Certificate, participants: Sequence[Participant], problem: AnyProblem
) -> bool:
    """Whether the certificate covers the same rows, with the same loss and intercept."""
    then = before.settings["problem"]
    now = problem.settings()
    same_loss = then.get("loss") == now.get("loss")
    if not same_loss or then["intercept"] != now["intercept"]:
        return False
    if before.participants is participants:
        return True
    digests_then = [participant.digest for participant in before.participants]
    digests_now = [participant.digest for participant in participants]
    return digests_then == digests_now


# -- after the rounds ------------------------------------------------------------------------------


def _model(
    ready: Ready[Parties], setup: Setup, agents: Sequence[AgentForm[AnyProblem]], outcome: Outcome
) -> Any:
    """The model, or this party's part of it."""
    problem = setup.problem
    if ready.part is not None:
        problem = agents[0].problem
    # Between organisations and split by features: the coefficients of the party's own columns, and
    # their part of the intercept.
    model = problem.kind.models.assemble(outcome, agents, problem, ready.classes)
    if ready.part is not None:
        model = replace(model, part=ready.part)
    if ready.prepared is not None:
        model = replace(model, preparation=ready.prepared)
    return model
