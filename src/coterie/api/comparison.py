"""Compare what a certificate and a model say with the data: names, counts and orders, which no gap
depends on.

A proof is about numbers. Whoever swaps the names of two classes, columns or users changes what a
model predicts, and leaves its gap as it is. So everything in either file is compared with the data
or computed again; `Compared` says what was, and what nobody can see from the data: how the model
was found.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from coterie.api.inference import Inference
from coterie.api.result import Result
from coterie.data import Table
from coterie.data.table import columns_of
from coterie.errors import CoterieError, InvalidData, InvalidProblem, NotRegistered, UnknownName
from coterie.methods import METHODS
from coterie.networks import Network
from coterie.networks import network as find_network
from coterie.problems import Answers, own_numbers
from coterie.problems.parts.data import Classes
from coterie.problems.problem import AnyProblem
from coterie.run.agent import Agent
from coterie.run.certificate import Certificate, Participant, Point
from coterie.run.statuses import Status
from coterie.stats.standard_errors import Received, questions_of, summarised

HOW = (
    "method",
    "acceleration",
    "seed",
    "limits",
    "changed",
    "secure_sums",
    "proved_by",
    "inference",
)
"""Settings that say how a model was found: nothing that is proven rests on them."""
KNOWN = (
    *HOW,
    "problem",
    "split",
    "partition",
    "network",
    "network_digest",
    "classes",
    "prepare",
    "parts",
)
NAMELESS = re.compile(r"(data|(agent|party) \d+|.+/\d+)\Z")
"""Names that were given to data without one."""
NUMBERED = re.compile(r"party \d+\Z")
"""Those of users, in a list of data."""
FEW = 6
"""So many names are shown."""
AGREEMENT = 1e-9
"""How far a lower bound may be above an objective by rounding, relative to it."""
TABLE, TINY = 1e-6, 1e-12
"""How closely a table of standard errors agrees with one that is computed again, relative to each
number and to the largest one.
"""
CLOSE_STEPS = 1e-2
"""The same for the distance to the best model, in standard errors."""


@dataclass
class Compared:
    """What was compared with the data, what was found wrong, and what cannot be seen from it."""

    objections: list[str] = field(default_factory=list)
    compared: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)

    def that(self, holds: bool, what: str, objection: str) -> None:
        """Note one comparison."""
        if holds:
            self.compared.append(what)
        else:
            self.objections.append(objection)


def compare(
    found: Compared,
    certificate: Certificate,
    model: Any,
    tables: Sequence[Table],
    classes: Classes,
    participants: Sequence[Participant],
    in_pieces: bool,
) -> None:
    """Compare all that a certificate and a model say of the data with names and sizes of the
    tables; `participants` is who holds them.
    """
    settings = certificate.settings
    found.objections += contradictions(certificate, model.problem)
    _compare_people(found, certificate, participants, settings, in_pieces)
    compare_classes(found, settings, model, classes)
    compare_columns(found, model, tables, settings["split"])
    if settings["split"] == "users":
        _compare_users(found, certificate, model, [table.name for table in tables])
    compare_how(found, certificate)


def compare_model(
    found: Compared,
    certificate: Certificate,
    model: Any,
    agents: Sequence[Agent[Any]],
    points: Sequence[Point],
    answers: Answers,
) -> None:
    """Compare what of a model no proof looks at, and yet is shown, or changes predictions."""
    family = model.problem.kind
    found.that(
        model.kind == family.name,
        f"the kind of the model, {model.kind}",
        f"a {model.kind} model is of another kind than its problem",
    )
    found.objections += family.models.unproven(model, agents, _own_numbers(agents, points, answers))
    if family.problems.graph_is_data:
        _compare_network(found, certificate.settings, model, len(agents))


def _own_numbers(
    agents: Sequence[Agent[Any]], points: Sequence[Point], answers: Answers
) -> list[float]:
    """The numbers of agents that their points do not depend on, where the model has some."""
    models = agents[0].problem.kind.models
    if models.settles or not models.has_own_number(agents[0]):
        return []
    return own_numbers(agents, points, answers)


def contradictions(certificate: Certificate, problem: AnyProblem) -> Iterator[str]:
    """What the certificate says of the run that cannot be, or that the problem says otherwise."""
    settings = certificate.settings
    if unknown := sorted(settings.keys() - set(KNOWN)):
        yield f"the certificate says what this version does not know of a run: {_few(unknown)}"
    if plain(settings["problem"]) != plain(problem.settings()):
        yield "the certificate is about another problem than the model's"
    if settings["limits"]["tol"] != certificate.tolerance:
        yield (
            f"the tolerance is {certificate.tolerance!r}, but the run was asked for "
            f"{settings['limits']['tol']!r}"
        )
    try:
        method = METHODS[settings["method"]["name"]]
    except UnknownName as error:
        raise NotRegistered(error) from None
    if (method.split, method.family) != (settings["split"], problem.kind.name):
        yield (
            f"there is no method {method.name!r} for such models and data split by "
            f"{settings['split']}"
        )
    if not (isinstance(settings["seed"], int) and settings["seed"] >= 0):
        yield f"{settings['seed']!r} is not a seed"


def compare_classes(
    found: Compared, settings: Mapping[str, Any], model: Any, classes: Classes
) -> None:
    """The classes, in the order in which the model has them."""
    local = None if classes is None else classes.tolist()
    held = None if model.classes_ is None else model.classes_.tolist()
    for whose, said in (("model", held), ("certificate", settings["classes"])):
        if not _alike(said, local):
            found.objections.append(_says(f"the {whose} has the classes", said, local))
    if local is not None and _alike(held, local):
        found.compared.append(f"the classes {_few(local)}, in this order")


def compare_columns(found: Compared, model: Any, tables: Sequence[Table], split: str) -> None:
    """The names of the columns, in the order of the coefficients."""
    named = [table.columns for table in tables if table.d]
    known = [list(names) for names in named if names is not None]
    if model.columns is None or len(known) < len(named):
        if model.columns is not None:
            found.unchecked.append("names of columns, because the data has none")
        return
    names = known[0] if known else []
    if split == "features":
        places = np.argsort(np.concatenate(columns_of(tables)))
        joined = [name for own in known for name in own]
        names = [joined[k] for k in places.tolist()]
    same = list(model.columns) == names and (
        split == "features" or all(own == names for own in known)
    )
    objection = _says("the model has the columns", model.columns, names)
    found.that(
        same, f"the names of {len(names)} columns, in the order of the coefficients", objection
    )


def compare_how(found: Compared, certificate: Certificate) -> None:
    """Say what is not compared, because no data can tell."""
    settings = certificate.settings
    method = settings["method"]["name"]
    found.unchecked.append(
        f"how the model was found (method {method}, its seed and limits), which the proof does "
        "not rest on"
    )
    if settings["split"] != "users":
        found.unchecked.append("the network that messages travelled on")
    if (settings.get("prepare") or {}).get("numbers_given"):
        found.unchecked.append("the numbers of the preparation, which were given and not fitted")


def compare_run(found: Compared, result: Result, certificate: Certificate) -> None:
    """Compare what `run.json` says with the certificate; `result` is what was read from it."""
    wrong = [
        *_wrong_status(result, certificate),
        *_wrong_network(result, certificate),
        *_wrong_history(result),
    ]
    if _has_one_objective(certificate, result) and _crosses(certificate, result):
        wrong.append("has a history that crosses the bounds of the certificate")
    found.objections += [f"run.json {text}" for text in wrong]
    if not wrong:
        found.compared.append(
            "run.json: the status, the method, the network and the model that it is about"
        )
    found.unchecked.append(
        "the bill, the history and the messages of run.json, which say how the run went"
    )


def _wrong_status(result: Result, certificate: Certificate) -> Iterator[str]:
    """How the run cannot have ended with that certificate."""
    status, proven = result.status, certificate.gap <= certificate.tolerance * certificate.unit
    failed = not status.success and result.error is None
    # A run that learns its graph goes on until the graph stays, also when the models are within the
    # tolerance.
    may_go_on = result.model.problem.kind.problems.graph_is_data
    if (proven and failed and not may_go_on) or (status.success and not proven):
        yield f"says the status {status}, which does not follow from the gap"
    bounded = status is Status.OPTIMAL_WITHIN_RADIUS
    if status.success and bounded != (certificate.radius is not None):
        yield f"says the status {status}, which does not follow from the radius"
    if status.success and result.error is not None:
        yield "says what went wrong in a run that succeeded"
    if (result.lost_party is not None) != (status is Status.PARTY_LOST):
        yield "names a lost party, and its status does not, or the other way round"


def _wrong_network(result: Result, certificate: Certificate) -> Iterator[str]:
    """Another network, or another method."""
    settings = certificate.settings
    if result.network.agents != len(certificate.participants):
        yield f"has a network of {result.network.agents} agents"
    if settings["split"] != "users" and result.network.digest != settings["network_digest"]:
        yield "has another network than the certificate"
    if not result.explanation.startswith(f"Method {settings['method']['name']} "):
        yield "explains another method than that of the certificate"


def _wrong_history(result: Result) -> Iterator[str]:
    """Records that contradict the bill."""
    rounds, bits = (
        [record.round for record in result.history],
        [record.bits for record in result.history],
    )
    in_order = rounds == sorted(rounds) and bits == sorted(bits)
    if not in_order or max(rounds, default=0) > result.bill.rounds:
        yield "has a history that its bill contradicts"
    if max(bits, default=0) > result.bill.total.bits:
        yield "has a bill of fewer bits than its history"


def _has_one_objective(certificate: Certificate, result: Result) -> bool:
    """Whether all bounds of a history are about the objective of the certificate, and about all
    models.
    """
    loss = certificate.settings["problem"].get("loss", {})
    graph_changes = result.model.problem.kind.problems.graph_is_data
    return certificate.radius is None and loss.get("stages", 1) == 1 and not graph_changes


def _crosses(certificate: Certificate, result: Result) -> bool:
    """Whether some objective of the history is below the proven bound, or some bound above the
    proven objective.
    """
    slack = AGREEMENT * (abs(certificate.primal) + certificate.unit)
    low, high = certificate.dual - slack, certificate.primal + slack
    return any(record.primal < low or record.dual > high for record in result.history)


def compare_inference(found: Compared, written: Inference, computed: Inference) -> None:
    """Compare a stored table of standard errors with the one that was computed again."""
    before = len(found.objections)
    for entry in fields(Inference):
        name = entry.name
        if name in ("bill", "distance", "sums"):
            continue
        said, local = getattr(written, name), getattr(computed, name)
        if not _same_entry(said, local):
            shown = (
                f": {said!r} is written, and {local!r} is computed"
                if isinstance(local, str | float | int)
                else ""
            )
            found.objections.append(f"inference.json has other {name} than the data gives{shown}")
    if not abs(written.distance - computed.distance) <= CLOSE_STEPS:
        found.objections.append("inference.json has another distance than the data gives")
    if len(found.objections) == before:
        found.compared.append(
            f"the {written.kind} standard errors of {len(written.names)} coefficients"
        )


@contextmanager
def refusing_other_errors(found: Compared) -> Iterator[None]:
    """Note it as an objection if standard errors are refused."""
    try:
        yield
    except (InvalidData, InvalidProblem, UnknownName) as refusal:
        found.objections.append(
            f"inference.json has standard errors that the data does not give: {refusal}"
        )


def compare_table(
    found: Compared, written: Inference, model: Any, tolerance: float, received: Received
) -> None:
    """Compare stored standard errors with those that follow from these sums, whatever was asked to
    have them.
    """
    tried = Compared()
    for asked in questions_of(written):
        tried = Compared()
        with refusing_other_errors(tried):
            computed = summarised(model, tolerance, asked, received)
            compare_inference(
                tried, written, computed.with_per_sd() if written.per_sd else computed
            )
        if not tried.objections:
            break
    found.objections += tried.objections
    found.compared += tried.compared


def _same_entry(said: Any, local: Any) -> bool:
    """Whether two entries of a table of standard errors agree, numbers to `TABLE` of the largest
    beside them.
    """
    if isinstance(local, np.ndarray):
        if not isinstance(said, np.ndarray) or said.shape != local.shape:
            return False
        return bool(
            np.allclose(said, local, rtol=TABLE, atol=TINY * float(np.abs(local).max(initial=0.0)))
        )
    if isinstance(local, float):
        return isinstance(said, float | int) and abs(said - local) <= TABLE * abs(local)
    return bool(said == local)


def plain(value: Any) -> str:
    """The value as a certificate's file has it."""
    return json.dumps(value, sort_keys=True)


def _compare_people(
    found: Compared,
    certificate: Certificate,
    participants: Sequence[Participant],
    settings: Mapping[str, Any],
    in_pieces: bool,
) -> None:
    said = certificate.participants
    if len(said) != len(participants):
        found.objections.append(
            f"the data is of {len(participants)} parties, but the certificate names {len(said)}"
        )
        return
    wrong = [*_other_data(said, participants), *_other_names(said, participants)]
    if any(
        written.name != held.name and NAMELESS.match(held.name)
        for written, held in zip(said, participants, strict=True)
    ):
        found.unchecked.append("names of parties, because the data has none")
    by_columns = settings["split"] == "features"
    partition = settings["partition"]
    if partition is not None and in_pieces:
        sizes = [
            participant.columns if by_columns else participant.rows for participant in participants
        ]
        if [len(part) for part in partition] != sizes:
            wrong.append(
                "the certificate deals out other numbers of rows or columns than the parties have"
            )
    found.objections += wrong
    if not wrong:
        rows = (
            participants[0].rows
            if by_columns
            else sum(participant.rows for participant in participants)
        )
        found.compared.append(
            f"the data of {len(participants)} parties, {rows} rows, and what the certificate says "
            "of each"
        )


def _other_data(said: Sequence[Participant], participants: Sequence[Participant]) -> Iterator[str]:
    """Other data than the certificate names, or of another size."""
    changed = [
        held.name
        for written, held in zip(said, participants, strict=True)
        if written.digest != held.digest
    ]
    if changed:
        yield f"the data is not the data that was certified (it differs at: {', '.join(changed)})"
    for written, held in zip(said, participants, strict=True):
        if written.rows != held.rows:
            yield f"{held.name} has {held.rows} rows, but the certificate says {written.rows}"
        if written.columns != held.columns:
            yield (
                f"{held.name} has {held.columns} columns, but the certificate says "
                f"{written.columns}"
            )


def _other_names(said: Sequence[Participant], participants: Sequence[Participant]) -> Iterator[str]:
    """Parties whose data has another name than the certificate says."""
    for written, held in zip(said, participants, strict=True):
        if written.name != held.name and not NAMELESS.match(held.name):
            yield f"a party is called {held.name!r}, but the certificate says {written.name!r}"


def _compare_users(found: Compared, certificate: Certificate, model: Any, named: list[str]) -> None:
    """Whether the users of the model are those of the data; a list of data may have no names for
    them.
    """
    users = list(model.users)
    if users != named and all(NUMBERED.match(name) for name in named):
        named = [participant.name for participant in certificate.participants]
        found.unchecked.append("names of users, because the data has none")
    found.that(
        users == named, f"the {len(users)} users", _says("the model is of the users", users, named)
    )


def _compare_network(found: Compared, settings: Mapping[str, Any], model: Any, agents: int) -> None:
    """Whether the graph of who is alike is what the certificate says it is."""
    graph = model.problem.kind.models.proven_network(model, settings, agents)
    title = str(settings["network"])
    name = title.removeprefix("<Network ").split(":")[0]
    same = settings["network_digest"] == graph.digest and title == repr(
        Network(graph.weights, name=name)
    )
    known = _built_in(name, agents, settings["seed"])
    if known is not None and known != graph.digest:
        same = False
    objection = (
        f"the certificate says that the graph of who is alike is {title}, but the model's is "
        "another"
    )
    found.that(same, "the graph of who is alike", objection)


def _built_in(name: str, agents: int, seed: int) -> str | None:
    """The digest of the graph of that name, if it is one that can be made again."""
    try:
        return find_network(name, agents, seed=seed, connected=False).digest
    except (CoterieError, TypeError, OSError):
        return None


def _alike(one: Sequence[Any] | None, other: Sequence[Any] | None) -> bool:
    """Whether labels are the same; 1 and 1.0 are."""
    if one is None or other is None:
        return one is None and other is None
    pairs = list(zip(one, other, strict=False))
    return len(one) == len(other) and all(
        a == b and isinstance(a, str) == isinstance(b, str) for a, b in pairs
    )


def _says(what: str, said: Sequence[Any] | None, local: Sequence[Any] | None) -> str:
    return f"{what} {_few(said)}, but the data has {_few(local)}"


def _few(names: Sequence[Any] | None) -> str:
    if names is None:
        return "none"
    shown = ", ".join(map(str, names[:FEW]))
    return f"{shown}, … ({len(names)})" if len(names) > FEW else shown
