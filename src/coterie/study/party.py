"""Fit a study's model, at one party: read, agree, connect, match, fit, write.

    read its own file ─→ agree to the page ─→ connect to the neighbours ─→ match rows ─→ compare
    summaries ─→ rounds ─→ own part of the model, certificate, bill

All steps after the connection may be repeated: if a party restarts, all parties begin again
together, from the newest snapshot that each of them has, and compute the same bits.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from coterie.api.path import Path as ResultPath
from coterie.api.replacing import LAST, kept_note, place_for, why_kept
from coterie.api.result import Result
from coterie.data import Table, hold_out, read, validated
from coterie.data.check import valid_offset
from coterie.data.keys import noted
from coterie.data.places import naming_lines
from coterie.data.preparation.prepared import Prepared
from coterie.data.summary import TableSummary
from coterie.errors import InvalidData, InvalidInput, NumericalError, PartyLost, ProtocolError
from coterie.problems.models import AnyModel, load_model
from coterie.run.bill import Bill
from coterie.run.rounds import Watch, unwatched
from coterie.run.site import Rules
from coterie.run.statuses import Status
from coterie.stats.fitting import Fit
from coterie.stats.following import FollowPath
from coterie.stats.inferring import Infer
from coterie.stats.standard_errors import Question
from coterie.study.answer import Answer, is_of_one_run, is_signed_by_all, write_failure
from coterie.study.broadcasts import WRITTEN
from coterie.study.choice import choose_together
from coterie.study.consent import Consent, require
from coterie.study.disclosure import check_labels, disclosure
from coterie.study.fits import Fits, ready_to_fit
from coterie.study.folder import check_folder, claim
from coterie.study.meeting import end_together, in_session, leave
from coterie.study.policy import agree_to_begin
from coterie.study.preparing import check_raw
from coterie.study.rounds import Reports
from coterie.study.session import Say, Session
from coterie.study.study import PartyFile, Study
from coterie.transport.grpc_mesh import Restarted

RETRY_SECONDS = 1.0
"""The time between two attempts to write a result."""


def read_own(own: PartyFile, study: Study) -> Table:
    """The party's own file, without held-out rows, checked as far as the party can alone. Nothing
    is sent.
    """
    roles = {**own.roles(), "id": study.id or own.cluster}
    recipes = study.make_preparation()
    if recipes is None:
        table = _read(own, study, own.data, roles, own.columns)
    else:
        raw = noted(read(own.data, columns=own.columns, name=own.party, prepare=recipes, **roles))
        table = check_raw(raw, recipes, study.make_problem(), study.split)
    if isinstance(own.test, float):
        table, _ = _held_out(own, study, table)
    return table


def read_new(own: PartyFile, study: Study, data: Path, *, labelled: bool) -> Table:
    """Other rows for the party's part of the model, prepared and checked."""
    model = load_model(own.output / "model.npz")
    columns = model.columns if model.preparation is None else model.preparation.raw
    roles = own.roles()
    if not labelled:
        roles = {role: roles[role] for role in ("offset", "exposure")}
    table = _read(own, study, data, roles, columns, model.preparation)
    return replace(table, rows=np.arange(table.n))


def read_test(own: PartyFile, study: Study, data: Path | None, model: AnyModel) -> Table:
    """Rows with labels, as they are: of a file, or the held-out rows of the party."""
    rows: Callable[[Path], Table] = partial(
        read,
        columns=model.columns if model.preparation is None else model.preparation.raw,
        prepare=model.preparation,
        by_columns=study.split == "features",
        name=own.party,
        **{"id": study.id, **own.roles()},
    )
    if data is None and isinstance(own.test, str):
        data = Path(own.test)
    if data is not None:
        return rows(data)
    if isinstance(own.test, float):
        _, held = _held_out(own, study, rows(own.data))
        return held
    if study.split == "features":
        raise InvalidInput(
            "which rows? Name a file with `test` in party.toml, or give one to the command."
        )
    return rows(own.data).take_rows(np.empty(0, np.intp))


def _read(
    own: PartyFile,
    study: Study,
    data: Path,
    roles: dict[str, Any],
    columns: Sequence[str] | None,
    prepared: Prepared | None = None,
) -> Table:
    how: dict[str, Any] = {"prepare": prepared, "by_columns": study.split == "features"}
    table = noted(read(data, columns=columns, name=own.party, **how, **{"id": study.id, **roles}))
    if prepared is not None:
        table = prepared.apply(table)
    problem = study.make_problem()
    family = problem.kind
    classification = family.data.classification(problem)
    # New rows may have offsets without labels.
    offset = table.offset if table.y is None else None
    if offset is not None:
        table = replace(table, offset=None)
    with naming_lines(table):
        checked = validated(table, classification=classification)
        if offset is not None:
            checked = replace(checked, offset=valid_offset(offset, own.party, checked.n))
        family.data.check_fields(checked, problem)
        family.data.check_labels(checked, problem)
    return checked


def _held_out(own: PartyFile, study: Study, table: Table) -> tuple[Table, Table]:
    """The rows to fit, and the held-out rows."""
    assert isinstance(own.test, float)
    kept, held = hold_out([table], own.test, by="samples", seed=study.seed)
    return kept[0], held[0]


def fit_together(
    own: PartyFile,
    study: Study,
    *,
    table: Table | None = None,
    say: Say = lambda text: None,
    watch: Watch = unwatched,
    stop_wished: Callable[[], bool] = lambda: False,
    consent: Consent = None,
) -> Result:
    """Fit the study's model together with the other parties; write and return this party's part of
    it.

    consent   True, or a function that gets the page of messages and returns whether this party
              agrees. Not needed if the party agreed to the same page before.
    """
    approved = approve(own, study, consent, table=table, say=say)
    return take_part(approved, Reports(say, watch, stop_wished))


@dataclass(frozen=True)
class Approved:
    """A study whose page this party agreed to, with the party's own table."""

    own: PartyFile
    study: Study
    table: Table


def approve(
    own: PartyFile,
    study: Study,
    consent: Consent,
    *,
    table: Table | None = None,
    say: Say = lambda text: None,
) -> Approved:
    """Read the party's own table, and ask for consent to the page of messages. Nothing is sent."""
    check_labels(study)
    check_folder(own)
    table = noted(read_own(own, study) if table is None else table)
    for note in table.notes or ():
        say(f"warning: {note}")
    allowance = own.policy.allowance(study, TableSummary.of(table, names=False))
    rules = Rules(own.policy.minimum_count, allowance)
    page = disclosure(study, own.party, table, Fit.name, rules=rules)
    require(own, study, Fit.name, page, consent)
    return Approved(own, study, table)


def take_part(approved: Approved, reports: Reports) -> Result:
    """Fit the model of an approved study; write and return this party's part of it."""
    own, study, table, say = approved.own, approved.study, approved.table, reports.say
    unwritten: list[Answer] = []

    def work(session: Session) -> Answer:
        unwritten.clear()
        agree_to_begin(session, table.n)
        answer = _answer(Fits(session, ready_to_fit(session, table, reports)))
        answer = _settled(session, answer, say)
        if not _is_written(answer, own, say):
            unwritten.append(answer)
        _end(session, answer, say, written=not unwritten)
        return answer

    try:
        answer = in_session(own, study, "fit", work, say)
    except (NumericalError, PartyLost, ProtocolError) as error:
        write_failure(own.output, error)
        raise
    finally:
        for late in unwritten:
            _write_in_time(late, own, say)
    if answer.refusal is not None:
        raise InvalidData(
            f"the model is in {answer.result.folder}, without standard errors: {answer.refusal}"
        )
    return answer.result


def _settled(session: Session, answer: Answer, say: Say) -> Answer:
    """The answer with signatures, and with the folder that it is written to. An error that makes
    the model worthless, such as other sums at a neighbour, is raised.
    """
    output, result = session.own.output, answer.result
    if result.error is not None:
        worthless = result.status is Status.PROTOCOL_ERROR
        if worthless or isinstance(result.error, Restarted | ProtocolError):
            raise result.error
        return _kept(answer, output, why_kept(output, result), say)
    # Its certificate holds: a party that leaves now takes it from nobody.
    kept, why = _before_signatures(answer, output)
    with contextlib.suppress(OSError):
        _write(_warned(kept, "unsigned: the other parties have not signed yet."), output)
    try:
        answer = answer.with_parts(session)
    except Restarted:
        raise
    except PartyLost as lost:
        leave(session.links, lost)
        return _unsigned(kept, f"{lost.party} left before signing", why, say)
    answer, reasons = answer.signed(session)
    if reasons:
        missing = "; ".join(reasons[name] for name in session.study.names if name in reasons)
        return _unsigned(_in(answer, kept.result.folder), missing, why, say)
    return _placed(answer, output, say)


def _before_signatures(answer: Answer, output: Path) -> tuple[Answer, str | None]:
    """The answer in a folder where it replaces no result that all parties signed; and why that
    stays, if there is one.
    """
    why = why_kept(output, answer.result)
    if why is None and is_signed_by_all(output):
        why = "all parties signed it"
    folder = output if why is None else output / LAST
    return _in(answer, folder), why


def _in(answer: Answer, folder: Path | None) -> Answer:
    """The answer, to be written into that folder."""
    return replace(answer, result=replace(answer.result, folder=folder))


def _unsigned(answer: Answer, missing: str, why: str | None, say: Say) -> Answer:
    """The answer without the signatures of all parties, with a warning; `why`: the reason for which
    an earlier result stays.
    """
    note = f"unsigned: {missing}. The same command at all parties adds the signatures."
    if why is not None:
        note = f"{note} The earlier result stays: {why}. This run is in {answer.result.folder}."
    say(note)
    return _warned(answer, note)


def _warned(answer: Answer, note: str) -> Answer:
    """The answer with another warning."""
    result = replace(answer.result, warnings=(*answer.result.warnings, note))
    return replace(answer, result=result)


def _write(answer: Answer, output: Path) -> None:
    """Write the answer into the party's folder of results."""
    claim(output)
    answer.write()


def _is_written(answer: Answer, own: PartyFile, say: Say) -> bool:
    """Write the answer, and return whether the disk took it."""
    try:
        _write(answer, own.output)
    except OSError as error:
        say(
            f"the result cannot be written to {own.output} ({error.strerror}): it is kept, "
            "and tried again"
        )
        return False
    return True


def _end(session: Session, answer: Answer, say: Say, *, written: bool) -> None:
    """Leave the other parties after all have tried to write. They do not wait for a party whose
    disk is full: they have their results.
    """
    error = answer.result.error
    if error is not None:
        leave(session.links, error)
        return
    if not answer.result.certificate.signatures.keys() >= {*session.study.names}:
        session.links.close("not all parties have signed")
        return
    end_together(session, written, WRITTEN, say)


def _placed(answer: Answer, output: Path, say: Say) -> Answer:
    """The answer, with the folder that it is written to if all parties signed it.

    Only this party's folder decides: no claim of another party replaces a better result. An
    earlier result whose parts were never compared fits to no other part, and does not stay.
    """
    why = why_kept(output, answer.result) if is_of_one_run(output) else None
    return _kept(answer, output, why, say)


def _kept(answer: Answer, output: Path, why: str | None, say: Say) -> Answer:
    """The answer with the folder that it is written to; `why`: the reason for which an earlier
    result stays.
    """
    result = answer.result
    if why is not None:
        note = kept_note(output, why)
        say(note)
        result = replace(result, warnings=(*result.warnings, note))
    return replace(answer, result=replace(result, folder=place_for(output, why)))


def _answer(fits: Fits) -> Answer:
    """Compute what the study asks for: one fit, a path of fits or a choice among models, and
    standard errors.
    """
    if fits.session.study.path is not None:
        path = _path(fits)
        return Answer(path.chosen_result, path)
    if fits.session.study.chooses:
        result, chosen, sent = choose_together(fits)
        return Answer(result, choice=chosen, choosing=sent)
    study = fits.session.study
    result = fits.fit(study.make_problem())
    if study.inference is None or result.error is not None:
        return Answer(result)
    asked = Question.of(study.inference, study.weights, study.correction)
    operation = Infer(asked, result.model, result.certificate.tolerance, among=True)
    parties = replace(fits.parties, operation=operation, bill=Bill(fits.session.network))
    try:
        return Answer(result, inference=operation.together(parties))
    except InvalidData as refusal:
        return Answer(result, refusal=refusal)
    except PartyLost as lost:
        return Answer(replace(result, status=lost.status, error=lost))


def _path(fits: Fits) -> ResultPath:
    study = fits.session.study
    asked = study.path
    assert asked is not None
    operation = FollowPath(
        study.make_problem(), study.settings(), asked.strengths, asked.count, asked.cv, among=True
    )
    return ResultPath.of(operation.together(fits.ready_for(operation)), asked.rule)


def _write_in_time(answer: Answer, own: PartyFile, say: Say) -> None:
    """Write a result that the disk did not take, as soon as it does, within the party's
    patience.
    """
    until = time.monotonic() + own.patience
    while True:
        try:
            _write(answer, own.output)
        except OSError as error:
            if time.monotonic() >= until:
                raise InvalidInput(
                    f"the result could not be written to {own.output} for {own.patience:g} seconds "
                    f"({error.strerror}). The other parties have theirs. Make room, and run the "
                    "command again at all parties."
                ) from error
            time.sleep(RETRY_SECONDS)
        else:
            say(f"the result is written to {answer.result.folder}")
            return
