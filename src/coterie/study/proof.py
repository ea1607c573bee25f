"""Check a certificate together: every party brings its data, its part of the model and its copy of
the certificate.

    own files ─→ connect, match rows, compare summaries ─→ claims ─→ the sums of a proof ─→ one
    verdict for all

No party holds all columns, or all rows, so none can check a certificate alone. `VerifyOwn` is the
`Verify` of one party: its claim is about its own files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path as FilePath
from typing import Any

from coterie.api.comparison import (
    Compared,
    compare_classes,
    compare_columns,
    compare_how,
    compare_run,
    compare_table,
    contradictions,
    plain,
)
from coterie.api.evaluation import Evaluation
from coterie.api.inference import Inference
from coterie.api.result import Result
from coterie.api.stored import (
    compare_bill,
    compare_choice,
    compare_path,
    compare_unknown_rows,
    path_of,
    with_more,
)
from coterie.api.verify import (
    Brought,
    Claim,
    Numbers,
    Verification,
    Verify,
    places_of,
    proof_agent,
    shortened,
)
from coterie.data import Table
from coterie.errors import CorruptFile, CoterieError, InvalidInput
from coterie.methods import METHODS
from coterie.numerics.arrays import digest
from coterie.problems import answered_locally, own_numbers, points_of
from coterie.problems.models import load_model
from coterie.problems.parts.data import Classes
from coterie.problems.problem import AnyProblem
from coterie.run.agent import Agent, SummaryStatistics
from coterie.run.certificate import Certificate
from coterie.run.network import no_network
from coterie.run.setup import with_offset
from coterie.stats.fitting import with_columns
from coterie.stats.following import folder_of
from coterie.stats.rereading import ReadAgain, Reread
from coterie.stats.standard_errors import Received, questions_of
from coterie.stats.strengths import knob
from coterie.study.among import Among, Part
from coterie.study.answer import BILL, CHOICE, INFERENCE, PATH
from coterie.study.consent import Consent, require
from coterie.study.nonce import commitment
from coterie.study.party import read_own
from coterie.study.scores import EVALUATION
from coterie.study.session import Say, Session
from coterie.study.signatures import check_signatures
from coterie.study.study import PartyFile, Study


def verify_together(
    own: PartyFile,
    study: Study,
    *,
    table: Table | None = None,
    say: Say = lambda text: None,
    consent: Consent = None,
) -> Verification:
    """Check with the other parties whether the certificate in the party's output folder holds. All
    parties get the same verdict.

    A missing file is refused before this party connects; a changed one is an objection that all
    parties receive.

    consent   True, or a function that gets the page of messages and returns whether this party
              agrees. Not needed if the party agreed to a page of this version of the study before.
    """
    if study.split == "features" and not study.labels_shared:
        raise InvalidInput(
            "to verify together shows all parties the labels. The label party proved this "
            "certificate alone and signed it; if all agree to share the labels, write "
            "`labels-shared = true` into the study."
        )
    if table is None:
        table = read_own(own, study)
    files = _files(own.output, say)
    by_columns = study.split == "features"
    again = ReadAgain(study.make_problem(), files.model, study.split, has_part=by_columns)
    asked = VerifyOwn(again, files, own, study, say)
    part = Part(own, study, say)
    ready = asked.alone(table)
    require(own, study, asked.name, part.page(asked, ready, table), consent)
    return part.take(asked, ready)


@dataclass(frozen=True)
class Files:
    """This party's files of one result."""

    folder: FilePath
    certificate: Certificate | None
    model: Any
    """Its part of the model."""
    damage: list[str]
    """An objection for each file that cannot be trusted."""
    of_path: bool = False
    """Whether it is one result of a path, and not the chosen one."""


def _files(folder: FilePath, say: Say) -> Files:
    """The party's own certificate and part of the model. A missing file is refused."""
    found: list[Any] = []
    damage = []
    for name, load in (("certificate.json", Certificate.load), ("model.npz", load_model)):
        try:
            found.append(load(folder / name))
        except CorruptFile as error:
            say(str(error))
            found.append(None)
            damage.append(
                f"its {name} was changed after it was written, or is a file of another kind"
            )
    return Files(folder, found[0], found[1], damage)


def _files_of_path(folder: FilePath, say: Say) -> Files:
    """The files of one result of a path. A missing file is an objection."""
    try:
        return replace(_files(folder, say), of_path=True)
    except CoterieError as error:
        say(str(error))
        return Files(folder, None, None, [f"its path/{folder.name} is not there"], of_path=True)


@dataclass(frozen=True)
class VerifyOwn(Verify[Among]):
    """Check one party's files of a result; with a path, of each of its results."""

    files: Files
    own: PartyFile
    study: Study
    say: Say

    def judged(self, ready: Reread[Among]) -> Verification:
        found = self._judged_one(ready)
        if self.study.path is None or not found.holds or self.files.of_path:
            return found
        more = Compared()
        for place in range(self.study.path.points):
            folder = folder_of(place)
            files = _files_of_path(self.own.output / PATH / folder, self.say)
            one = replace(self, files=files).judged(ready)
            more.objections += [f"{PATH}/{folder}: {text}" for text in one.objections]
        if not more.objections:
            count = self.study.path.points
            more.compared.append(f"the {count} certificates of the path, with all parties")
        return with_more(found, more)

    def _judged_one(self, ready: Reread[Among]) -> Verification:
        found = super().judged(ready)
        certificate = self.files.certificate
        if certificate is None:
            return found
        session = ready.parties.session
        signers, _ = check_signatures(session, certificate)
        others = tuple(name for name in session.study.names if name not in signers)
        return replace(found, signed_by=signers, unsigned_by=others)

    def claim(self, ready: Reread[Among], found: Compared) -> tuple[Claim, Brought | None]:
        certificate = self.files.certificate
        if certificate is None or self.files.model is None:
            return Claim(self.files.damage), None
        try:
            return self._claim(ready, found, certificate)
        except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
            why = f"its certificate lacks what a proof needs ({type(error).__name__})"
            return Claim([why]), None

    def _claim(
        self, ready: Reread[Among], found: Compared, certificate: Certificate
    ) -> tuple[Claim, Brought | None]:
        study, model, parties = self.study, self.files.model, ready.parties
        settings = certificate.settings
        graph = study.make_network()
        strength = None if study.path is None else _strength(certificate)
        problem = study.make_problem(strength).with_classes(ready.classes)
        problem = with_columns(
            with_offset(problem, parties.cards), parties, getattr(model, "preparation", None)
        )
        if problem.kind.problems.graph_is_data:
            # Its base predictors depend on messages between the parties in the fit.
            problem = model.problem
            if not METHODS[settings["method"]["name"]].uses_network:
                graph = no_network(len(parties.cards), "none")
        as_agent = partial(proof_agent, problem, study.split, places_of(parties), graph)
        agent = as_agent(parties.site)
        found.objections += _objections(parties.session, certificate, model, ready)
        found.objections += contradictions(certificate, problem)
        _compare(found, parties.session, self.files, agent, ready.classes)
        about = [settings, [vars(participant) for participant in certificate.participants]]
        session = parties.session
        unsigned = check_signatures(session, certificate)[1]
        if study.split == "features" and model.run != certificate.run:
            unsigned.append("its model is a part of another run than its certificate")
        claim = Claim(
            shortened(found.objections),
            digest(json.dumps(about, sort_keys=True)),
            Numbers.of(certificate),
            shortened(unsigned),
        )
        if found.objections:
            return claim, None
        own = certificate.witness[session.me]
        duals = [own] if agent.labelled or len(own) else None
        (point,) = points_of(model, [agent], duals)
        return claim, Brought(certificate, problem, as_agent, {session.me: point})

    def check_errors(
        self, ready: Reread[Among], statistics: SummaryStatistics, found: Compared
    ) -> list[str]:
        certificate = self.files.certificate
        assert certificate is not None, "there is a proof"
        return _check_table(self.files.folder, certificate, self.files.model, statistics, found)


def _strength(certificate: Certificate) -> float:
    """The strength or radius that the certificate is about."""
    penalty = certificate.settings["problem"]["penalty"]
    return float(penalty[knob(penalty)])


def _compare(
    found: Compared, session: Session, files: Files, agent: Agent[AnyProblem], classes: Classes
) -> None:
    """Compare this party's model and certificate with its own data and the study."""
    study, table, model, certificate = session.study, agent.data, files.model, files.certificate
    assert certificate is not None
    compare_classes(found, certificate.settings, model, classes)
    split = "samples" if study.split == "users" else study.split
    compare_columns(found, model, [replace(table, cols=None)], split)
    if study.split == "users" and tuple(model.users) != (session.own.party,):
        found.objections.append(f"its model is that of {', '.join(model.users)}")
    if plain(model.problem.settings()) != plain(agent.problem.settings()):
        found.objections.append("its model is of another problem than its certificate")
    if model.kind != agent.problem.kind.name:
        found.objections.append(
            f"its model is a {model.kind} one, of another kind than the study's problem"
        )
    if study.split == "features" and model.part != f"{session.own.party} of {study.name}":
        found.objections.append(f"its model is the part of {model.part}")
    found.objections += _unproven(model, agent)
    found.compared.append(
        f"the data of this party, {table.n} rows, and the statements of the certificate about "
        "every party"
    )
    compare_how(found, certificate)
    if found.objections:
        return  # A run of other files is not worth a second objection.
    try:
        result = Result.load(files.folder)
    except CoterieError:
        found.objections.append(
            "its run.json was changed after it was written, or is of another run"
        )
        return
    compare_run(found, result, certificate)
    if not files.of_path:
        _compare_others(found, study, files.folder, result)


def _unproven(model: Any, agent: Agent[AnyProblem]) -> list[str]:
    """Objections to parts of the model that no proof covers."""
    models, own = model.problem.kind.models, []
    if not models.settles and models.has_own_number(agent):
        own = own_numbers([agent], models.points(model, [agent]), answered_locally)
    return [*models.unproven(model, [agent], own)]


def _compare_others(found: Compared, study: Study, folder: FilePath, result: Result) -> None:
    """Compare the other files of this party's folder."""
    path = path_of(folder, found)
    if (study.path is None) != (path is None) and not found.objections:
        found.objections.append(
            "it has a path/ that the study does not ask for, or lacks the one that it asks for"
        )
    if path is not None:
        compare_path(found, path, result.certificate, None)
    if study.chooses != (folder / CHOICE).exists():
        found.objections.append("it has a choice.json that the study does not ask for, or lacks it")
    elif study.chooses:
        compare_choice(found, folder / CHOICE, result)
    compare_bill(found, folder / BILL, result, path)
    if (folder / EVALUATION).exists():
        _compare_scores(found, folder / EVALUATION, result)


def _compare_scores(found: Compared, file: FilePath, result: Result) -> None:
    try:
        written = Evaluation.load(file)
    except CoterieError:
        found.objections.append("its evaluation.json cannot be read")
        return
    why = (
        "its rows are not those of the fit: `coterie evaluate party.toml` at every party computes "
        "them again"
    )
    compare_unknown_rows(found, written, result.model, why)


def _objections(
    session: Session, certificate: Certificate, model: Any, ready: Reread[Among]
) -> list[str]:
    """Objections that a party can find alone: certificate, model or data do not belong together."""
    study, held = session.study, certificate.settings.get("parts")
    participants = [participant.name for participant in certificate.participants]
    if participants != study.names or certificate.settings["split"] != study.split:
        return ["its certificate is of another study"]
    if held is None:
        return [
            "its certificate names no parts of the model: the run that wrote it ended before "
            "all had theirs"
        ]
    objections = []
    if (study.prepare is None) != (model.preparation is None):
        objections.append("its model is not prepared as the study states")
    tried = None if study.path is None else study.path.strengths
    if tried is not None and _strength(certificate) not in tried:
        called = knob(certificate.settings["problem"]["penalty"])
        objections.append(f"its certificate is about a {called} that is not in [path]")
    objections += _other_data(session, certificate, ready)
    if not model.digest() == held[session.own.party] == certificate.model_digest:
        objections.append("its model.npz is not the one that was certified")
    if study.split == "samples" and len(set(held.values())) > 1:
        objections.append("its certificate states that the parties hold different models")
    return objections


def _other_data(session: Session, certificate: Certificate, ready: Reread[Among]) -> Iterator[str]:
    """Objections to the data: the certificate describes other data."""
    table = ready.parties.site.data
    # A plain digest, without the party's own secret, may be of the same data, too.
    known = (commitment(session.own, session.study, table), table.digest())
    if certificate.participants[session.me].digest not in known:
        yield "its data is not the data that was certified"
    for participant, part in zip(certificate.participants, ready.parties.cards, strict=True):
        if (participant.rows, participant.columns) != (part.rows, part.columns):
            counted = f"{participant.name} has {part.rows} rows and {part.columns} columns"
            yield (
                f"{counted}, but its certificate states {participant.rows} and "
                f"{participant.columns}"
            )


def _check_table(
    folder: FilePath,
    certificate: Certificate,
    model: Any,
    statistics: SummaryStatistics,
    found: Compared,
) -> list[str]:
    """Objections to this party's stored standard errors, which are computed again from the sums
    that all parties signed.
    """
    settings, file = certificate.settings.get("inference"), folder / INFERENCE
    if settings is None:
        if file.is_file():
            return ["it has an inference.json that its certificate does not name"]
        return []
    try:
        written = Inference.load(file)
    except CoterieError:
        return ["its inference.json is not there, or cannot be read"]
    if written.sums is None or digest(written.sums) != settings["sums"]:
        return ["its inference.json comes of other sums than its certificate names"]
    chosen = {"kind": written.kind, "weights": written.weights, "correction": written.correction}
    if chosen != {name: settings[name] for name in chosen}:
        return ["its inference.json has standard errors of another kind than its certificate"]
    asking = questions_of(written)[0].asking(model, tuple(range(settings["shared"])))
    received = Received(
        asking, written.sums, statistics, len(certificate.participants), settings["clusters"]
    )
    compared = Compared()
    compare_table(compared, written, model, certificate.tolerance, received)
    found.compared += compared.compared
    return [f"its {text}" for text in compared.objections]
