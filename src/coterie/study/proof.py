"""Check a certificate together: every party brings its data, its part of the model and its copy of
the certificate.

    own files ─→ meet, match rows, compare cards ─→ claims ─→ scores, slopes and sums as in a run ─→
    one verdict for all

Nobody holds the whole of a vertical model, or all rows of a horizontal study, so nobody can check a
certificate alone. Here the parties compute it again, by the conversations of `certificate/`, from
what each of them has now. A *claim* is what a party says before: the numbers of its certificate, a
digest of what all certificates have in common, and what it found wrong with its own files. All hear
all claims and the same sums, so all come to the same verdict.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import Annotated, Any

import msgspec
import numpy.typing as npt

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
from coterie.api.path import folder_of
from coterie.api.result import Result
from coterie.api.stored import (
    compare_bill,
    compare_choice,
    compare_path,
    compare_unknown_rows,
    path_of,
    with_more,
)
from coterie.api.verify import Verification, described, differences
from coterie.data import Table
from coterie.data.summary import TableSummary
from coterie.data.table import in_order
from coterie.errors import CorruptFile, CoterieError, InvalidInput, ProtocolError
from coterie.methods import METHODS
from coterie.numerics.arrays import FloatArray, digest
from coterie.problems import points_of
from coterie.problems.models import load_model
from coterie.run.agent import Agent, SummaryStatistics
from coterie.run.certificate import Bound, Certificate, Point
from coterie.run.finish import proven_again
from coterie.run.network import no_network
from coterie.run.setup import with_offset
from coterie.stats.standard_errors import Received, questions_of
from coterie.stats.strengths import knob
from coterie.study.answer import BILL, CHOICE, INFERENCE, PATH
from coterie.study.broadcasts import CLAIMS, DONE, STANDARD_ERRORS
from coterie.study.consent import Consent, require_for_study
from coterie.study.disclosure import disclosure
from coterie.study.meeting import in_session
from coterie.study.nonce import commitment
from coterie.study.party import read_own
from coterie.study.preparing import prepare_again
from coterie.study.scores import EVALUATION
from coterie.study.session import (
    Say,
    Session,
    check_totals,
    matched,
    member,
    transport_of,
)
from coterie.study.signatures import check_signatures
from coterie.study.study import PartyFile, Study
from coterie.transport.edge import printable

LONGEST = 300
"""The maximum number of characters in an objection."""


class Numbers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a certificate states, by the names of its fields."""

    primal: float
    dual: float
    gap: float
    relative_gap: float
    unit: float
    primal_at_zero: float
    radius: float | None
    room: float | None
    counts: tuple[float, ...] | None


class Claim(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a party says of its files before anything is computed."""

    objections: list[Annotated[str, msgspec.Meta(max_length=LONGEST)]]
    """What it found wrong with them alone."""
    about: str = ""
    """The digest of what the parties' certificates must have in common: participants, settings,
    everybody's parts.
    """
    numbers: Numbers | None = None
    unsigned: list[Annotated[str, msgspec.Meta(max_length=LONGEST)]] = []
    """Whose signatures are missing or do not hold; the numbers are computed all the same."""


def verify_together(
    own: PartyFile,
    study: Study,
    *,
    table: Table | None = None,
    say: Say = lambda text: None,
    consent: Consent = None,
) -> Verification:
    """Whether the certificate in the party's output folder holds, found out with the others; the
    same at all of them.

    A file that is not there is refused before anybody is called; one that was changed is an
    objection that all hear.

    consent   True, or a function that is handed the page that says what is sent and returns whether
              this party agrees. Not needed where the party agreed to a page of this version of the
              study before.
    """
    if study.split == "features" and not study.labels_shared:
        raise InvalidInput(
            "to verify together tells all parties the labels. The label party proved this "
            "certificate alone and signed "
            "it; if all agree to share the labels, write `labels-shared = true` into the study."
        )
    table = read_own(own, study) if table is None else table
    files = _files(own.output, say)
    require_for_study(own, study, lambda: disclosure(study, own.party, table), consent)

    def work(session: Session) -> Verification:
        found = _verify(session, table, files, say)
        session.all_gather(True, DONE, bool)
        return found

    return in_session(own, study, "verify", work, say)


@dataclass(frozen=True)
class Files:
    """What this party has of one result."""

    folder: FilePath
    certificate: Certificate | None
    model: Any
    """Its part of the model."""
    damage: list[str]
    """An objection for each file that cannot be trusted."""
    of_path: bool = False
    """Whether it is one result of a path, and not the one that was chosen."""


@dataclass(frozen=True)
class Ready:
    """This party's rows, prepared as for the fit, and what all parties told of theirs."""

    table: Table
    parts: Sequence[TableSummary]
    classes: npt.NDArray[Any] | None


def _files(folder: FilePath, say: Say) -> Files:
    """The party's own certificate and part; a file that is not there is refused."""
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
    """The same of one result of a path; a file that is not there is an objection."""
    try:
        return replace(_files(folder, say), of_path=True)
    except CoterieError as error:
        say(str(error))
        return Files(folder, None, None, [f"its path/{folder.name} is not there"], of_path=True)


def _verify(session: Session, table: Table, files: Files, say: Say) -> Verification:
    """Whether the result holds; with a path, whether each of its results does."""
    study, model = session.study, files.model
    prepared = getattr(model, "preparation", None)
    table = matched(session, table)
    if model is not None and prepared is None:
        table = in_order(table, model.columns, "samples")
    ready = Ready(*prepare_again(session, table, study.make_problem(), prepared))
    found = _verify_one(session, ready, files)
    if study.path is None or not found.holds:
        return found
    more = Compared()
    for place in range(study.path.points):
        own = _files_of_path(session.own.output / PATH / folder_of(place), say)
        one = _verify_one(session, ready, own)
        more.objections += [f"{PATH}/{folder_of(place)}: {text}" for text in one.objections]
    if not more.objections:
        more.compared.append(f"the {study.path.points} certificates of the path, with all parties")
    return with_more(found, more)


def _verify_one(session: Session, ready: Ready, files: Files) -> Verification:
    """Whether one result holds."""
    names, certificate = session.study.names, files.certificate
    claim, brought, compared = Claim(files.damage), None, Compared()
    if certificate is not None and files.model is not None:
        try:
            claim, brought = _brought(session, ready, files, compared)
        except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
            claim = Claim([f"its certificate lacks what a proof needs ({type(error).__name__})"])
    claims = session.all_gather(claim, CLAIMS, Claim)
    objections = [*_by_name(names, [one.objections for one in claims]), *_apart(names, claims)]
    if objections or certificate is None or brought is None:
        return Verification(tuple(objections))
    bound, statistics = _computed(session, *brought, certificate.radius)
    for name, one in zip(names, claims, strict=True):
        if one.numbers is None:
            raise ProtocolError(f"{name} sent neither a claim nor an objection.")
        stated = replace(certificate, **msgspec.structs.asdict(one.numbers))
        objections += [f"{name}: {text}" for text in differences(stated, bound, statistics)]
    objections += _by_name(names, [one.unsigned for one in claims])
    late = _check_table(files.folder, certificate, files.model, statistics, compared)
    of_all = session.all_gather([text[:LONGEST] for text in late], STANDARD_ERRORS, list[str])
    objections += _by_name(names, of_all)
    about = described(brought[0].problem, brought[0].split, certificate.participants)
    found = Verification.of(objections, certificate, bound, statistics, about)
    signers = check_signatures(session, certificate)[0]
    return replace(
        found,
        signed_by=signers,
        compared=tuple(compared.compared),
        unchecked=tuple(compared.unchecked),
    )


def _by_name(names: Sequence[str], told: Sequence[Sequence[str]]) -> list[str]:
    """What each party told, with its name."""
    return [
        f"{name}: {printable(text)}"
        for name, texts in zip(names, told, strict=True)
        for text in texts
    ]


def _brought(
    session: Session, ready: Ready, files: Files, found: Compared
) -> tuple[Claim, tuple[Agent, Point] | None]:
    """What this party claims, and what it puts on the table for it; what it compared is noted."""
    study, certificate, model, parts = session.study, files.certificate, files.model, ready.parts
    assert certificate is not None
    settings = certificate.settings
    graph = study.make_network()
    strength = None if study.path is None else _strength(certificate)
    problem = with_offset(study.make_problem(strength).with_classes(ready.classes), parts)
    if problem.kind.problems.graph_is_data:
        # Its base predictors were made of what the parties told each other when they were fitted.
        problem = model.problem
        graph = (
            graph
            if METHODS[settings["method"]["name"]].uses_network
            else no_network(len(parts), "none")
        )
    agent = member(session, ready.table, parts, problem, graph)
    found.objections += _objections(session, certificate, model, ready)
    found.objections += contradictions(certificate, problem)
    _compare(found, session, files, agent, ready.classes)
    objections = [text[:LONGEST] for text in found.objections]
    about = digest(
        json.dumps(
            [settings, [vars(participant) for participant in certificate.participants]],
            sort_keys=True,
        )
    )
    numbers = Numbers(**{name: getattr(certificate, name) for name in Numbers.__struct_fields__})
    unsigned = check_signatures(session, certificate)[1]
    if study.split == "features" and model.run != certificate.run:
        unsigned.append("its model is a part of another run than its certificate")
    claim = Claim(objections, about, numbers, [text[:LONGEST] for text in unsigned])
    return claim, None if objections else (
        agent,
        _point(agent, model, certificate.witness[session.me]),
    )


def _strength(certificate: Certificate) -> float:
    """The strength or radius that the certificate is about."""
    penalty = certificate.settings["problem"]["penalty"]
    return float(penalty[knob(penalty)])


def _compare(found: Compared, session: Session, files: Files, agent: Agent, classes: Any) -> None:
    """Compare what this party's model and certificate say with its own data and the study."""
    study, table, model, certificate = session.study, agent.data, files.model, files.certificate
    assert certificate is not None
    compare_classes(found, certificate.settings, model, classes)
    compare_columns(
        found,
        model,
        [replace(table, cols=None)],
        "samples" if study.split == "users" else study.split,
    )
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
    found.objections += model.problem.kind.models.unproven(model, [agent])
    found.compared.append(
        f"the data of this party, {table.n} rows, and what the certificate says of every party"
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


def _objections(session: Session, certificate: Certificate, model: Any, ready: Ready) -> list[str]:
    """What a party can see alone: whether certificate, model and data belong together."""
    study, held = session.study, certificate.settings.get("parts")
    participants = [participant.name for participant in certificate.participants]
    if participants != study.names or certificate.settings["split"] != study.split:
        return ["its certificate is of another study"]
    if held is None:
        return [
            (
                "its certificate names no parts of the model: the run that wrote it ended before "
                "all "
                "had theirs"
            )
        ]
    objections = []
    if (study.prepare is None) != (model.preparation is None):
        objections.append("its model is prepared otherwise than the study says")
    tried = None if study.path is None else study.path.strengths
    if tried is not None and _strength(certificate) not in tried:
        called = knob(certificate.settings["problem"]["penalty"])
        objections.append(f"its certificate is about a {called} that is not in [path]")
    objections += _other_data(session, certificate, ready)
    if not model.digest() == held[session.own.party] == certificate.model_digest:
        objections.append("its model.npz is not the one that was certified")
    if study.split == "samples" and len(set(held.values())) > 1:
        objections.append("its certificate says that the parties hold different models")
    return objections


def _other_data(session: Session, certificate: Certificate, ready: Ready) -> Iterator[str]:
    """What the certificate says of the data that is not so."""
    table = ready.table
    # A plain digest, without a secret of the party's own, is of the same data.
    known = (commitment(session.own, session.study, table), table.digest())
    if certificate.participants[session.me].digest not in known:
        yield "its data is not the data that was certified"
    for participant, part in zip(certificate.participants, ready.parts, strict=True):
        if (participant.rows, participant.columns) != (part.rows, part.columns):
            counted = f"{participant.name} has {part.rows} rows and {part.columns} columns"
            yield (
                f"{counted}, but its certificate says {participant.rows} and {participant.columns}"
            )


def _apart(names: Sequence[str], claims: Sequence[Claim]) -> Iterator[str]:
    """Whether the parties' certificates are copies of one."""
    groups: dict[str, list[str]] = {}
    for name, claim in zip(names, claims, strict=True):
        if claim.numbers is not None:
            groups.setdefault(claim.about, []).append(name)
    if len(groups) > 1:
        told = " differs from that of ".join(", ".join(group) for group in groups.values())
        yield f"the certificate of {told} in what it says of the run"
    radii = {claim.numbers.radius for claim in claims if claim.numbers is not None}
    if len(radii) > 1:
        yield (
            "the certificates speak of models of different norms: "
            f"{', '.join(sorted(map(str, radii)))}"
        )


def _check_table(
    folder: FilePath,
    certificate: Certificate,
    model: Any,
    statistics: SummaryStatistics,
    found: Compared,
) -> list[str]:
    """What is wrong with this party's stored standard errors, computed again from the sums that all
    parties signed.
    """
    settings, file = certificate.settings.get("inference"), folder / INFERENCE
    if settings is None:
        return (
            ["it has an inference.json that its certificate does not name"]
            if file.is_file()
            else []
        )
    try:
        written = Inference.load(file)
    except CoterieError:
        return ["its inference.json is not there, or cannot be read"]
    if written.sums is None or digest(written.sums) != settings["sums"]:
        return ["its inference.json comes of other sums than its certificate names"]
    said = {"kind": written.kind, "weights": written.weights, "correction": written.correction}
    if said != {name: settings[name] for name in said}:
        return ["its inference.json has standard errors of another kind than its certificate"]
    asking = questions_of(written)[0].asking(model, tuple(range(settings["shared"])))
    received = Received(
        asking, written.sums, statistics, len(certificate.participants), settings["clusters"]
    )
    compared = Compared()
    compare_table(compared, written, model, certificate.tolerance, received)
    found.compared += compared.compared
    return [f"its {text}" for text in compared.objections]


def _point(agent: Agent, model: Any, witness: FloatArray) -> Point:
    """Its own model, or part of it, and its own dual vector."""
    return points_of(model, [agent], [witness] if agent.labelled or len(witness) else None)[0]


def _computed(
    session: Session, agent: Agent, point: Point, radius: float | None
) -> tuple[Bound, SummaryStatistics]:
    """The bound and the facts, from everybody's data and points: two conversations, as in a run."""
    transport = transport_of(session)
    found = proven_again([agent], [point], transport, radius)
    check_totals(session, transport)
    return found
