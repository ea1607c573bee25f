"""One party's side of a run: read, meet, match, learn, write.

    read its own file ─→ meet the neighbours ─→ match rows ─→ compare cards ─→ rounds ─→ own part, certificate, bill

Everything after the meeting may have to be done again: if a party is restarted, all begin again together, from the
newest snapshot that each of them has, and come to the same bits as if nothing had happened.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.arrays import FloatArray, product
from coterie.certificate import Certificate, Participant
from coterie.checkpoint import Checkpoint
from coterie.data import Table, read, validated
from coterie.data.summary import refuse_unequal_rows
from coterie.engines.processes import VERSIONS
from coterie.errors import CoterieError, InvalidData, InvalidInput, PartyLost, ProtocolError
from coterie.families import family_of
from coterie.files import staged, write_atomically
from coterie.models import LinearModel, load_model
from coterie.peers.chaos import Chaos
from coterie.peers.disclosure import check_labels
from coterie.peers.nonce import commitment
from coterie.peers.policy import Account, agree_on_methods, agree_to_begin
from coterie.peers.session import (
    Say,
    Session,
    check_totals,
    in_session,
    leave,
    matched,
    member,
    prepare_table,
    transport_of,
    with_predictors,
)
from coterie.peers.signatures import signed_by_all
from coterie.peers.study import PartyFile, Study
from coterie.result import Result
from coterie.rounds import Outcome, Watch, run
from coterie.session.finish import finish
from coterie.session.setup import set_up, sizes_of
from coterie.transport.driver import Driver
from coterie.transport.grpc_mesh import Restarted
from coterie.transport.links import Tag

BILL = "bill.json"
RETRY_SECONDS = 1.0
"""Between two attempts to write a result."""


def read_own(own: PartyFile, study: Study, data: Path | None = None) -> Table:
    """The party's own file, checked as far as one can alone; nothing has been sent."""
    roles, columns = own.roles(), own.columns
    if data is not None:
        columns = load_model(own.output / "model.npz").columns
        roles = {role: roles[role] for role in ("offset", "exposure")}
    table = read(data or own.data, id=study.id, columns=columns, name=own.party, **roles)
    problem = study.make_problem()
    family = family_of(problem)
    checked = validated(table, classification=family.classification(problem))
    family.check_beside(checked)
    family.check_labels(checked, problem)
    return checked


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
    check_labels(study)
    table = read_own(own, study) if table is None else table
    unwritten: list[Result] = []

    def work(session: Session) -> Result:
        unwritten.clear()
        agree_to_begin(session, table.n)
        result = _fit(session, table, say, watch, stop_wished)
        if isinstance(result.error, Restarted | ProtocolError):
            raise result.error
        if result.error is None:
            parts = session.all_gather(result.model.digest(), "parts", str)
            certificate = _with_parts(result.certificate, study, parts)
            result = replace(result, certificate=signed_by_all(session, certificate))
        try:
            _write(result, own.output)
        except OSError as error:
            unwritten.append(result)
            say(f"the result cannot be written to {own.output} ({error.strerror}): it is kept, and tried again")
        if result.error is None:
            # Nobody leaves before everybody has written: until here a restarted party finds all others. For one whose
            # disk is full nobody waits: the others have theirs.
            session.all_gather(not unwritten, "written", bool)
        else:
            leave(session.links, result.error)
        return result

    try:
        return in_session(own, study, "fit", work, say, chaos)
    finally:
        for result in unwritten:
            _write_in_time(result, own, say)


def predict_together(
    own: PartyFile, study: Study, data: Path, *, chaos: Chaos | None = None, say: Say = lambda text: None
) -> tuple[npt.NDArray[Any] | None, npt.NDArray[Any] | None]:
    """Scores of new rows, from everybody's part of the model: ids and predictions at the party with the labels.

    The others get (ids, None): partial scores travel towards that party only.
    """
    if study.split != "features":
        raise InvalidInput("split by samples, every party has the whole model: use `coterie predict model.npz`.")
    model = load_model(own.output / "model.npz")
    assert isinstance(model, LinearModel)
    table = read_own(own, study, data)
    if table.d != len(model.coef_):
        raise InvalidData(f"the model has {len(model.coef_)} columns here, but {data} has {table.d}.")

    def work(session: Session) -> tuple[npt.NDArray[Any] | None, npt.NDArray[Any] | None]:
        here = matched(session, table)
        holders = session.all_gather(own.target is not None, "labels", bool)
        if sum(holders) != 1:
            raise InvalidInput(f"{sum(holders)} parties name a target; exactly one must: it gets the predictions.")
        if holders[session.me] != (own.target is not None):
            raise ProtocolError("the message about labels was changed on its way.")
        refuse_unequal_rows(study.names, session.all_gather(here.n, "rows", int))
        scores = _summed(session, product(here.X, model.coef_) + model.intercept_, holders.index(True))
        session.all_gather(True, "written", bool)
        if scores is None:
            return here.ids, None
        return here.ids, model.answers(scores)

    return in_session(own, study, "predict", work, say, chaos)


def _write(result: Result, folder: Path) -> None:
    """This party's part of the result: all files of it, or none."""
    content = {"rounds": result.bill.rounds, "total": vars(result.bill.total), "bill": result.bill.table()}
    with staged(folder) as new:
        result.save(new)
        write_atomically(new / BILL, json.dumps(content, indent=1).encode())


def _write_in_time(result: Result, own: PartyFile, say: Say) -> None:
    """Write a result that could not be written, as soon as that is possible, within the party's patience."""
    until = time.monotonic() + own.patience
    while True:
        try:
            _write(result, own.output)
        except OSError as error:
            if time.monotonic() >= until:
                raise InvalidInput(
                    f"the result could not be written to {own.output} for {own.patience:g} seconds ({error.strerror}). "
                    "The other parties have theirs. Make room, and run the command again at all parties."
                ) from error
            time.sleep(RETRY_SECONDS)
        else:
            say(f"the result is written to {own.output}")
            return


# -- the run -----------------------------------------------------------------------------------------------------------


def _fit(session: Session, table: Table, say: Say, watch: Watch, stop_wished: Callable[[], bool]) -> Result:
    study = session.study
    problem = study.make_problem()
    limits = study.make_limits()
    table, parts, classes = prepare_table(session, matched(session, table), problem)
    say(f"{table.n} rows here, {sum(part.columns for part in parts)} columns at all parties")

    setup = set_up(
        problem,
        study.make_network(),
        sizes_of(parts, study.split),
        lambda problem: with_predictors(session, problem, table),
        split=study.split,
        method=study.method,
        options=study.options,
        acceleration=study.acceleration,
        limits=limits,
        seed=study.seed,
        classes=classes,
        allowed=agree_on_methods(session, parts),
        secure_sums=study.has_secure_sums,
    )
    say(setup.explanation)
    agent = member(session, table, parts, setup.problem, setup.graph)
    digests = session.all_gather(commitment(session.own, study, table), "digests", str)
    people = tuple(
        Participant(part.name, part.rows, part.columns, held) for part, held in zip(parts, digests, strict=True)
    )
    identity = setup.identity(*digests, session.own.party)
    # A folder for each identity: a study that was changed begins again, and one that is changed back continues.
    folder = session.own.checkpoint
    saved = None if folder is None else Checkpoint(folder / identity[:16], identity, VERSIONS)
    transport = transport_of(session)
    transport.account = Account(session.own.party, session.own.policy.allowance(study, parts, session.me))
    outcome = run([agent], setup.steps, transport, limits, checkpoint=saved, watch=watch, stop_wished=stop_wished)
    if outcome.error is None:
        outcome = _compared(session, transport, outcome, saved)
    # Split by features, the coefficients of its own columns and what they add to the intercept.
    model = family_of(problem).model(outcome, [agent], agent.problem, classes)
    if study.split == "features":
        model = replace(model, part=f"{session.own.party} of {study.name}")
    return finish(setup, outcome, model, [agent], people)


def _compared(session: Session, transport: Driver, outcome: Outcome, saved: Checkpoint | None) -> Outcome:
    """The outcome, once all know that they heard the same; who is lost now does not cost the others theirs."""
    try:
        check_totals(session, transport)
    except Restarted:
        raise
    except ProtocolError:
        # Snapshots that came of changed sums are of no use to anybody.
        if saved is not None:
            saved.forget()
        raise
    except PartyLost as lost:
        return replace(outcome, status=lost.status, error=lost)
    return outcome


def _with_parts(certificate: Certificate, study: Study, parts: Sequence[str]) -> Certificate:
    """The certificate, naming what every party holds of the model that it is about."""
    held = dict(zip(study.names, parts, strict=True))
    return replace(certificate, settings={**certificate.settings, "parts": held})


def _summed(session: Session, mine: FloatArray, holder: int) -> FloatArray | None:
    """The sum of everybody's numbers at one party, up the spanning tree that has its root there."""
    network, links, me = session.network, session.links, session.me
    tag = Tag("prediction", 0, "scores")
    if network.server:
        # All send to the process of agent 0, which may have to pass the sum on.
        below, above = ([*range(1, network.agents)], holder) if me == 0 else ([], 0)
    else:
        parents = network.tree(holder).parents.tolist()
        below, above = [j for j, parent in enumerate(parents) if parent == me], parents[me]
    total = _finite(np.array(mine), f"party {session.own.party!r}", InvalidData)
    for child in below:
        total = _finite(total + _scores(session, child, tag, total.shape), session.study.names[child], ProtocolError)
    passed_on = me != holder or (network.server and me != 0)
    if passed_on:
        links.send(above, total, tag)
    if me != holder:
        return None
    return _scores(session, 0, tag, total.shape) if passed_on else total


def _scores(session: Session, source: int, tag: Tag, shape: tuple[int, ...]) -> FloatArray:
    """A neighbour's numbers: one for each row, all of them finite."""
    name, heard = session.study.names[source], session.links.receive(source, tag)
    if heard.shape != shape or heard.dtype.kind != "f":
        sent = f"{heard.dtype} of shape {heard.shape}"
        raise ProtocolError(f"{name} sent {sent}; numbers of shape {shape} are expected. Nothing is written.")
    return _finite(heard, name, ProtocolError)


def _finite(scores: FloatArray, who: str, error: type[CoterieError]) -> FloatArray:
    if wrong := int(np.count_nonzero(~np.isfinite(scores))):
        raise error(f"{who}: {wrong} of {scores.size} scores are not finite numbers. Nothing is written.")
    return scores
