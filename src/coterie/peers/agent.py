"""One party's side of a run: read, meet, match, learn, write.

    read the own file ─→ meet the neighbours ─→ match rows ─→ compare cards ─→ rounds ─→ own part, certificate, bill

Everything after the meeting may have to be done again: if a party is restarted, all begin again together, from the
newest snapshot that each of them has, and come to the same bits as if nothing had happened.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from coterie.acceleration import accelerated
from coterie.agent import Agent
from coterie.arrays import FloatArray, digest, is_sparse
from coterie.bill import Bill
from coterie.carriers.keys import load_keys
from coterie.carriers.linked import Linked, partners
from coterie.carriers.links import Tag
from coterie.carriers.streams import Restarted, Streams
from coterie.certificate import Certificate, Participant
from coterie.checkpoint import Checkpoint
from coterie.data import Table, read, validated
from coterie.engines.places import VERSIONS
from coterie.errors import CoterieError, InvalidData, InvalidInput, PartyLost, ProtocolError
from coterie.files import write_atomically
from coterie.kernels.boosting import log_sum
from coterie.methods.costs import Sizes
from coterie.models import LinearModel, PersonalModel, load_model
from coterie.networks import Network
from coterie.peers.align import aligned
from coterie.peers.chaos import Chaos
from coterie.peers.disclosure import check_labels
from coterie.peers.study import PartyFile, Study
from coterie.peers.tell import Family, told
from coterie.personal import Personal, margins
from coterie.problem import Problem
from coterie.result import History, Result
from coterie.rounds import Outcome, Watch, run
from coterie.solve import LEARNED, check_fit, choose_method, make_model, no_network, ties_of

__all__ = ["MET", "fit_together", "predict_together", "read_own"]

T = TypeVar("T")
Say = Callable[[str], None]

BILL = "bill.json"
MET = "all neighbours are here"
MOST_CLASSES = 10_000


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a party tells all others about its data, once the rows are matched."""

    rows: int
    columns: int
    nonzeros: int
    single: bool
    """Whether it is float32."""
    outputs: int
    """Labels per row; 0 if it has none."""
    classes: list[str | float]
    header: str
    """The digest of the column names, where they have to be the same."""


@dataclass(frozen=True)
class Meeting:
    """A party among the others."""

    own: PartyFile
    study: Study
    links: Streams
    network: Network
    family: Family

    @property
    def me(self) -> int:
        """Which agent this party is."""
        return self.links.me

    def told(self, mine: object, about: str, kind: type[T]) -> list[T]:
        """What everybody has to tell about something, in the order of the agents."""
        parts = told(self.family, msgspec.msgpack.encode(mine), about)
        try:
            return [msgspec.msgpack.decode(part, type=kind) for part in parts]
        except msgspec.MsgspecError as error:
            raise ProtocolError(f"{about}: a party sent something else ({error}).") from error


def read_own(own: PartyFile, study: Study, data: Path | None = None) -> Table:
    """The party's own file, checked as far as one can alone; nothing has been sent."""
    target = None if data is not None else own.target
    weight = None if data is not None else own.weight
    columns = own.columns
    if data is not None:
        model = load_model(own.output / "model.npz")
        columns = model.columns
    table = read(data or own.data, target=target, id=study.id, weight=weight, columns=columns, name=own.party)
    return validated(table, classification=_has_classes(study.make_problem()))


def _has_classes(problem: Problem) -> bool | None:
    """Whether labels are classes; None where they may be several numbers a row."""
    if problem.family == "low-rank":
        return True if problem.task.kind == "classes" else None
    return problem.loss.kind == "classification"


def fit_together(
    own: PartyFile,
    study: Study,
    *,
    table: Table | None = None,
    chaos: Chaos | None = None,
    say: Say = lambda text: None,
    watch: Watch = lambda t, record: None,
    stop_wished: Callable[[], bool] = lambda: False,
) -> Result:
    """Fit the study's model together with the other parties; writes and returns this party's part of it."""
    table = read_own(own, study) if table is None else table

    def work(meeting: Meeting) -> Result:
        result = _fit(meeting, table, say, watch, stop_wished)
        if isinstance(result.error, Restarted):
            raise result.error
        if result.error is None:
            parts = meeting.told(result.model.digest(), "parts", str)
            result = replace(result, certificate=_with_parts(result.certificate, study, parts))
        result.save(own.output)
        content = {"rounds": result.bill.rounds, "total": vars(result.bill.total), "bill": result.bill.table()}
        write_atomically(own.output / BILL, json.dumps(content, indent=1).encode())
        if result.error is None:
            # Nobody leaves before everybody has written: until here a restarted party finds all others.
            meeting.told(True, "written", bool)
        else:
            lost = result.error.party if isinstance(result.error, PartyLost) else ""
            meeting.links.close(str(result.error), lost)
        return result

    return _met(own, study, "fit", work, say, chaos)


def predict_together(
    own: PartyFile, study: Study, data: Path, *, chaos: Chaos | None = None, say: Say = lambda text: None
) -> tuple[npt.NDArray[Any] | None, npt.NDArray[Any] | None]:
    """Scores of new rows, from everybody's part of the model: ids and predictions at the party with the labels.

    The others get (ids, None): partial scores travel towards that party only.
    """
    if study.split != "features":
        raise InvalidInput("where rows are apart, every party has the whole model: use `coterie predict model.npz`.")
    model = load_model(own.output / "model.npz")
    assert isinstance(model, LinearModel)
    table = read_own(own, study, data)
    if table.d != len(model.coef_):
        raise InvalidData(f"the model has {len(model.coef_)} columns here, but {data} has {table.d}.")

    def work(meeting: Meeting) -> tuple[npt.NDArray[Any] | None, npt.NDArray[Any] | None]:
        here = _matched(meeting, table)
        holders = meeting.told(own.target is not None, "labels", bool)
        if sum(holders) != 1:
            raise InvalidInput(f"{sum(holders)} parties name a target; exactly one has the labels and the predictions.")
        if holders[meeting.me] != (own.target is not None):
            raise ProtocolError("labels: somebody changed whether this party has them.")
        rows = meeting.told(here.n, "rows", int)
        if len(set(rows)) > 1:
            raise _unequal_rows(study, rows)
        scores = _summed(meeting, here.X @ model.coef_ + model.intercept_, holders.index(True))
        meeting.told(True, "written", bool)
        if scores is None:
            return here.ids, None
        return here.ids, scores if model.classes_ is None else model.classes_[(scores > 0).astype(int)]

    return _met(own, study, "predict", work, say, chaos)


# -- meeting -----------------------------------------------------------------------------------------------------------


def _met(own: PartyFile, study: Study, purpose: str, work: Callable[[Meeting], T], say: Say, chaos: Chaos | None) -> T:
    """Meet the others and do that work, as often as a party is restarted."""
    network, me = study.carrying(), study.index(own.party)
    everybody = range(network.agents)
    neighbours = [j for j in everybody if j != me] if study.split == "users" else partners(network, everybody, me)
    make = Streams if chaos is None else chaos.streams
    links = make(
        me,
        neighbours,
        study.run_id,
        load_keys(own.keys, own.party),
        study.deadline,
        names=study.names,
        listen=own.listen or study.party[me].address,
        agreement=f"{study.agreement}\npurpose = {purpose}",
        patience=own.patience,
    )
    with _left_properly(links):
        links.connect([party.address for party in study.party])
        waiting = [study.names[j] for j in neighbours]
        say(f"waiting for {', '.join(waiting)}")
        while True:
            try:
                links.wait()
                say(MET)
                return work(Meeting(own, study, links, network, Family(links, network)))
            except Restarted as restarted:
                say(str(restarted))
                links.begin_again()


@contextmanager
def _left_properly(links: Streams) -> Iterator[None]:
    """Leave the others with the reason, whatever it is."""
    try:
        yield
    except PartyLost as lost:
        links.close(str(lost), lost.party)
        raise
    except BaseException as error:
        by_hand = "it was stopped by hand" if isinstance(error, KeyboardInterrupt) else type(error).__name__
        links.close(str(error) if isinstance(error, CoterieError) else by_hand)
        raise
    finally:
        links.close()


# -- data --------------------------------------------------------------------------------------------------------------


def _matched(meeting: Meeting, table: Table) -> Table:
    study = meeting.study
    if study.id is None or study.split != "features":
        return table
    return aligned(table, study.names, meeting.family, secrets.token_bytes(32), study.duplicates, study.psi)


def _prepared(meeting: Meeting, table: Table, problem: Problem) -> tuple[Table, list[Part], npt.NDArray[Any] | None]:
    """The own table as the others need it, everybody's cards, and the classes."""
    study = meeting.study
    by_rows = study.split != "features"
    if by_rows and table.n == 0 and table.y is None:
        table = replace(table, y=np.empty(0, table.X.dtype))
    y = table.y
    mine = Part(
        rows=table.n,
        columns=table.d,
        nonzeros=int(table.X.nnz) if is_sparse(table.X) else int(table.X.size),
        single=table.X.dtype == np.float32,
        outputs=0 if y is None else 1 if y.ndim == 1 else y.shape[1],
        classes=[] if y is None or not _has_classes(problem) else np.unique(y).tolist(),
        header=digest(json.dumps(table.columns)) if by_rows and table.columns is not None else "",
    )
    if len(mine.classes) > MOST_CLASSES:
        raise InvalidData(f"party {table.name!r}: {len(mine.classes)} different labels are too many for classes.")
    parts = meeting.told(mine, "cards", Part)
    _check_cards(study, parts)
    if by_rows and is_sparse(table.X) and (widest := max(p.columns for p in parts)) > table.d:
        X = table.X
        table = replace(table, X=sp.csr_array((X.data, X.indices, X.indptr), shape=(table.n, widest)))
    classes = _classes(parts, problem)
    if problem.family == "low-rank":
        table = problem.task.knowing(classes).prepared([table])[0][0]
    elif classes is not None and y is not None:
        table = replace(table, y=np.where(y == classes[1], 1.0, -1.0))
    finest = np.float32 if all(part.single for part in parts) else np.float64
    X, y = table.X.astype(finest, copy=False), table.y
    if y is not None and y.dtype.kind == "f":
        y = y.astype(finest, copy=False)
    return replace(table, X=X, y=y), parts, classes


def _check_cards(study: Study, parts: Sequence[Part]) -> None:
    names = study.names
    if study.split == "features":
        rows = [part.rows for part in parts]
        if len(set(rows)) > 1:
            raise _unequal_rows(study, rows)
        holders = [name for name, part in zip(names, parts, strict=True) if part.outputs]
        if len(holders) != 1:
            where = f"at {len(holders)} parties: {', '.join(holders)}" if holders else "at no party"
            raise InvalidData(f"labels {where}. Split by features, exactly one party names a target.")
    else:
        unlabelled = [name for name, part in zip(names, parts, strict=True) if part.rows and not part.outputs]
        if unlabelled:
            raise InvalidData(f"there are no labels at {', '.join(unlabelled)}; name their column with target.")
        if len({part.outputs for part in parts if part.outputs}) > 1:
            told = ", ".join(f"{name} {part.outputs}" for name, part in zip(names, parts, strict=True))
            raise InvalidData(f"the numbers of labels per row differ: {told}. Give every party the same ones.")
        headers = {part.header for part in parts if part.header}
        if len(headers) > 1:
            told = ", ".join(f"{name} {part.columns}" for name, part in zip(names, parts, strict=True))
            raise InvalidData(
                f"the parties have different columns, or in another order ({told}). Give all the same with columns."
            )
    if not any(part.rows and part.columns for part in parts):
        raise InvalidData("no party has any data.")


def _unequal_rows(study: Study, rows: Sequence[int]) -> InvalidData:
    told = ", ".join(f"{name} has {count}" for name, count in zip(study.names, rows, strict=True))
    return InvalidData(f"the numbers of rows differ: {told}. Match them: name the id column with id in the study.")


def _classes(parts: Sequence[Part], problem: Problem) -> npt.NDArray[Any] | None:
    """The classes of all parties together, sorted; None where labels are numbers."""
    if not _has_classes(problem):
        return None
    found = {label for part in parts for label in part.classes}
    if len({isinstance(label, str) for label in found}) > 1:
        raise InvalidData("the labels are text at one party and numbers at another. Convert them to one type.")
    if problem.family != "low-rank" and len(found) != 2:
        shown = ", ".join(map(repr, sorted(found)[:10]))
        raise InvalidData(f"the labels have {len(found)} classes ({shown}); a classification loss needs two.")
    fixed = getattr(problem.loss, "classes", None)
    return np.unique(np.array(list(found))) if fixed is None else np.array(fixed)


# -- the run -----------------------------------------------------------------------------------------------------------


def _fit(meeting: Meeting, table: Table, say: Say, watch: Watch, stop_wished: Callable[[], bool]) -> Result:
    study, me, network = meeting.study, meeting.me, meeting.network
    problem = study.make_problem()
    limits = study.make_limits()
    table, parts, classes = _prepared(meeting, _matched(meeting, table), problem)
    say(f"{table.n} rows here, {sum(part.columns for part in parts)} columns at all parties")

    rows, columns = [part.rows for part in parts], [part.columns for part in parts]
    features = study.split == "features"
    whole = (rows[0], sum(columns)) if features else (sum(rows), max(columns))
    problem = problem.knowing(classes)
    check_fit(problem, whole[1])
    sizes = Sizes(*whole, sum(part.nonzeros for part in parts), len(parts))
    graph = study.make_network()
    if isinstance(problem, Personal):
        problem = problem.but(learned=graph.name == LEARNED)
    chosen, explanation = choose_method(
        study.method, study.options, problem, study.split, graph, sizes, study.acceleration
    )
    check_labels(chosen.name, study)
    chosen, problem = chosen.adapted(problem)
    if isinstance(problem, Personal):
        problem = _with_predictors(meeting, problem, table)
        graph = graph if chosen.uses_network else no_network(len(parts), "none")
    chosen.check(problem, graph)
    say(explanation)
    start = sum(columns[:me])
    restricted = problem.restrict(np.arange(start, start + columns[me])) if features else problem
    neighbours = () if graph.server else graph.neighbours(me)
    ties = ties_of(graph, me, study.split)
    agent = Agent(me, len(parts), table, restricted, study.split, neighbours, study.seed, ties=ties)
    steps = accelerated(chosen, study.acceleration, chosen.accelerated(problem))

    digests = meeting.told(table.digest(), "digests", str)
    people = tuple(map(Participant, study.names, rows, columns, digests))
    settings = {
        "problem": problem.settings(),
        "method": chosen.settings(),
        "acceleration": "none" if steps is chosen else type(steps).__name__.lower(),
        "split": study.split,
        "partition": None,
        "network": repr(graph) if study.split == "users" else graph.describe(),
        "network_digest": digest(graph.weights),
        "seed": study.seed,
        "limits": asdict(limits),
        "classes": None if classes is None else classes.tolist(),
    }
    identity = digest(json.dumps({**settings, "limits": None}, sort_keys=True), *digests, meeting.own.party)
    # A folder for each identity: a study that was changed begins anew, and one that is changed back continues.
    folder = meeting.own.checkpoint
    saved = None if folder is None else Checkpoint(folder / identity[:16], identity, VERSIONS)
    carrier = Linked(network, Bill(network), meeting.links, range(len(parts)), me, study.names)
    outcome = run([agent], steps, carrier, limits, checkpoint=saved, watch=watch, stop_wished=stop_wished)
    # Split by features, the coefficients of the own columns and what they add to the intercept.
    model: Any = (
        _own_model(outcome, agent, problem, classes, max(rows))
        if isinstance(problem, Personal)
        else make_model(outcome, [agent], agent.problem, classes)
    )
    if features:
        model = replace(model, part=f"{meeting.own.party} of {study.name}")
    certificate = _certificate(outcome, people, settings, model, me, study.tol)
    return Result(
        outcome.status, model, certificate, outcome.bill, History(outcome.history), graph, explanation, outcome.error
    )


def _with_predictors(meeting: Meeting, problem: Personal, table: Table) -> Personal:
    """The problem with base predictors: for stumps, everybody tells the least and the largest value of each column."""
    if table.weights is not None or problem.predictors != "stumps":
        return problem.on([table])  # which refuses weights
    X = table.X.toarray() if is_sparse(table.X) else table.X
    mine = [X.min(axis=0).tolist(), X.max(axis=0).tolist()] if table.n else []
    ranges = meeting.told(mine, "ranges", list[list[float]])
    return problem.on([Table(np.array(part).reshape(len(part), table.d), name="range") for part in ranges])


def _own_model(
    outcome: Outcome, agent: Agent, problem: Personal, classes: npt.NDArray[Any] | None, largest: int
) -> PersonalModel:
    """This party's row of the models; its row of the graph is its witness in the certificate."""
    assert classes is not None
    w, data = outcome.points[0].w, agent.data
    confidence, loss = np.array([data.n / largest]), np.array([log_sum(margins(agent), w)])
    nobody = sp.csr_array((1, 1))
    return PersonalModel(
        sp.csr_array(w[None, :]), (data.name,), nobody, confidence, loss, problem, classes, data.columns
    )


def _certificate(
    outcome: Outcome,
    people: tuple[Participant, ...],
    settings: dict[str, Any],
    model: Any,
    me: int,
    tol: float,
) -> Certificate:
    bound, unit = outcome.bound, outcome.primal_at_zero
    own = outcome.points[0].v
    witness = [np.empty(0) if own is None or j != me else own for j in range(len(people))]
    return Certificate(
        primal=bound.primal,
        dual=bound.dual,
        gap=bound.gap,
        relative_gap=bound.gap / unit if unit else bound.gap,
        tolerance=tol,
        radius=bound.radius,
        primal_at_zero=unit,
        participants=people,
        settings=settings,
        model_digest=model.digest(),
        witness=tuple(witness),
        version=version("coterie"),
    )


def _with_parts(certificate: Certificate, study: Study, parts: Sequence[str]) -> Certificate:
    """The certificate, naming what every party holds of the model that it is about."""
    held = dict(zip(study.names, parts, strict=True))
    return replace(certificate, settings={**certificate.settings, "parts": held})


def _summed(meeting: Meeting, mine: FloatArray, holder: int) -> FloatArray | None:
    """The sum of everybody's numbers at one party, up the spanning tree that has its root there."""
    network, links, me = meeting.network, meeting.links, meeting.me
    tag = Tag("prediction", 0, "scores")
    if network.server:
        # All send to the process of agent 0, which may have to pass the sum on.
        if me == 0:
            total = mine + sum((links.receive(j, tag) for j in range(1, network.agents)), np.zeros_like(mine))
            if holder == 0:
                return total
            links.send(holder, total, tag)
            return None
        links.send(0, mine, tag)
        return links.receive(0, tag) if me == holder else None
    parents = network.tree(holder).parents.tolist()
    total = np.array(mine)
    for child in (j for j, parent in enumerate(parents) if parent == me):
        total = total + links.receive(child, tag)
    if me == holder:
        return total
    links.send(parents[me], total, tag)
    return None
