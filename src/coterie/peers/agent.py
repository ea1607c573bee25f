"""One party's side of a run: read, meet, match, learn, write.

    read its own file ─→ meet the neighbours ─→ match rows ─→ compare cards ─→ rounds ─→ own part, certificate, bill

Everything after the meeting may have to be done again: if a party is restarted, all begin again together, from the
newest snapshot that each of them has, and come to the same bits as if nothing had happened.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.arrays import FloatArray, product
from coterie.data import Table, read, validated
from coterie.data.summary import refuse_unequal_rows
from coterie.errors import CoterieError, InvalidData, InvalidInput, PartyLost, ProtocolError
from coterie.families import family_of
from coterie.models import LinearModel, load_model
from coterie.peers.answer import Answer
from coterie.peers.chaos import Chaos
from coterie.peers.disclosure import check_labels
from coterie.peers.fits import Fits
from coterie.peers.inference import infer_together
from coterie.peers.path import path_together
from coterie.peers.policy import agree_to_begin
from coterie.peers.session import (
    Say,
    Session,
    in_session,
    leave,
    matched,
)
from coterie.peers.study import PartyFile, Study
from coterie.result import Result
from coterie.rounds import Watch
from coterie.transport.grpc_mesh import Restarted
from coterie.transport.links import Tag

RETRY_SECONDS = 1.0
"""Between two attempts to write a result."""


def read_own(own: PartyFile, study: Study, data: Path | None = None) -> Table:
    """The party's own file, checked as far as one can alone; nothing has been sent."""
    roles, columns = own.roles(), own.columns
    if data is not None:
        columns = load_model(own.output / "model.npz").columns
        roles = {role: roles[role] for role in ("offset", "exposure")}
    id = study.id if data is not None else study.id or own.cluster
    table = read(data or own.data, id=id, columns=columns, name=own.party, **roles)
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
    unwritten: list[Answer] = []

    def work(session: Session) -> Answer:
        unwritten.clear()
        agree_to_begin(session, table.n)
        answer = _answer(Fits.begin(session, table, say, watch, stop_wished))
        result = answer.result
        if isinstance(result.error, Restarted | ProtocolError):
            raise result.error
        if result.error is None:
            answer = answer.signed(session)
        try:
            answer.write(own.output)
        except OSError as error:
            unwritten.append(answer)
            say(f"the result cannot be written to {own.output} ({error.strerror}): it is kept, and tried again")
        if result.error is None:
            # Nobody leaves before everybody has written: until here a restarted party finds all others. For one whose
            # disk is full nobody waits: the others have theirs.
            session.all_gather(not unwritten, "written", bool)
        else:
            leave(session.links, result.error)
        return answer

    try:
        answer = in_session(own, study, "fit", work, say, chaos)
    finally:
        for late in unwritten:
            _write_in_time(late, own, say)
    if answer.refusal is not None:
        raise InvalidData(f"the model is in {own.output}, without standard errors: {answer.refusal}")
    return answer.result


def _answer(fits: Fits) -> Answer:
    """What the study asks for: one fit or a path of them, and standard errors."""
    if fits.session.study.path is not None:
        path = path_together(fits)
        return Answer(path.chosen_result, path)
    result, agent = fits.fit(fits.session.study.make_problem())
    if fits.session.study.inference is None or result.error is not None:
        return Answer(result)
    try:
        return Answer(result, None, *infer_together(fits, result, agent))
    except InvalidData as refusal:
        return Answer(result, refusal=refusal)
    except PartyLost as lost:
        return Answer(replace(result, status=lost.status, error=lost))


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


def _write_in_time(answer: Answer, own: PartyFile, say: Say) -> None:
    """Write a result that could not be written, as soon as that is possible, within the party's patience."""
    until = time.monotonic() + own.patience
    while True:
        try:
            answer.write(own.output)
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
