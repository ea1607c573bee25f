"""Compare a certificate and a model with the data: names, counts and orders, which no gap depends
on.

A proof is about numbers. Exchanging the names of two classes, columns or users changes the
predictions of a model, and leaves its gap as it is. So everything in either file is compared with
the data or computed again. `Compared` lists the comparisons, and the statements that do not follow
from the data, such as how the model was found.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from itertools import chain
from typing import Any

import numpy as np

from coterie.api.inference import Inference
from coterie.api.result import Result
from coterie.data.remote_table import AnyTable
from coterie.data.table import columns_of
from coterie.errors import CoterieError, InvalidData, InvalidProblem, NotRegistered, UnknownName
from coterie.methods import METHODS
from coterie.networks import Network
from coterie.networks import network as find_network
from coterie.problems import Answers, own_numbers
from coterie.problems.models import AnyModel
from coterie.problems.parts.data import Classes
from coterie.problems.problem import AnyProblem
from coterie.run.agent import AgentForm
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
"""Settings that describe how a model was found: no proof rests on them."""
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
"""Names that Coterie gives to data without a name."""
NUMBERED = re.compile(r"party \d+\Z")
"""Names that Coterie gives to users, in a list of data."""
FEW = 6
"""The maximum number of names in a message."""
AGREEMENT = 1e-9
"""How far a lower bound may be above an objective by rounding, relative to it."""
TABLE = 1e-6
"""How closely a table of standard errors agrees with a recomputed one, relative to each number."""
TINY = 1e-12
"""How closely the same tables agree, relative to the largest number."""
CLOSE_STEPS = 1e-2
"""How closely distances to the best model agree, in standard errors."""


@dataclass
class Compared:
    """Notes of a comparison with the data: contradictions, agreements, and unchecked statements."""

    objections: list[str] = field(default_factory=list)
    compared: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)

    def that(self, holds: bool, compared: str, objection: str) -> None:
        """Note one comparison: what was compared if it holds, else an objection."""
        if holds:
            self.compared.append(compared)
        else:
            self.objections.append(objection)


def compare(
    found: Compared,
    certificate: Certificate,
    model: AnyModel,
    tables: Sequence[AnyTable],
    classes: Classes,
    participants: Sequence[Participant],
    in_pieces: bool,
) -> None:
    """Compare a certificate and a model with the names and sizes of the tables.

    `participants` describes the parties that hold the tables.
    """
    settings = certificate.settings
    found.objections += contradictions(certificate, model.problem)
    _compare_participants(found, certificate, participants, in_pieces)
    compare_classes(found, settings, model, classes)
    compare_columns(found, model, tables, settings["split"])
    if settings["split"] == "users":
        _compare_users(found, certificate, model, [table.name for table in tables])
    compare_how(found, certificate)


def compare_model(
    found: Compared,
    certificate: Certificate,
    model: AnyModel,
    agents: Sequence[AgentForm[AnyProblem]],
    points: Sequence[Point],
    answers: Answers,
) -> None:
    """Compare the parts of a model that no proof uses, but that are shown or change predictions."""
    family = model.problem.kind
    own = _own_numbers(agents, points, answers)
    found.that(
        model.kind == family.name,
        f"the kind of the model, {model.kind}",
        f"a {model.kind} model is of another kind than its problem",
    )
    found.objections += family.models.unproven(model, agents, own)
    if family.problems.graph_is_data:
        _compare_network(found, certificate.settings, model, len(agents))


def _own_numbers(
    agents: Sequence[AgentForm[AnyProblem]], points: Sequence[Point], answers: Answers
) -> list[float]:
    """The numbers of agents that their points do not depend on, where the model has some."""
    models = agents[0].problem.kind.models
    if models.settles or not models.has_own_number(agents[0]):
        return []
    return own_numbers(agents, points, answers)


def contradictions(certificate: Certificate, problem: AnyProblem) -> Iterator[str]:
    """Settings of the certificate that are impossible, or contradict the problem of the model."""
    settings = certificate.settings
    unknown = sorted(settings.keys() - set(KNOWN))
    if unknown:
        yield f"the certificate has settings that this version does not know: {_few(unknown)}"
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
    found: Compared, settings: Mapping[str, Any], model: AnyModel, classes: Classes
) -> None:
    """Compare the classes, in the order in which the model has them."""
    local = _as_list(classes)
    held = _as_list(model.classes_)
    for owner, written in (("model", held), ("certificate", settings["classes"])):
        if not _alike(written, local):
            found.objections.append(_differ(f"the {owner} has the classes", written, local))
    if local is not None and _alike(held, local):
        found.compared.append(f"the classes {_few(local)}, in this order")


def _as_list(classes: Classes) -> list[Any] | None:
    if classes is None:
        return None
    return list(classes.tolist())


def compare_columns(
    found: Compared, model: AnyModel, tables: Sequence[AnyTable], split: str
) -> None:
    """Compare the names of the columns, in the order of the coefficients."""
    if model.columns is None:
        return
    known = []
    for table in tables:
        if table.d and table.columns is None:
            found.unchecked.append("names of columns, because the data has none")
            return
        if table.d:
            known.append(list(table.columns or ()))
    if split == "features":
        names = _dealt_names(known, tables)
        same = list(model.columns) == names
    else:
        names = next(iter(known), [])
        same = list(model.columns) == names and all(own == names for own in known)
    compared = f"the names of {len(names)} columns, in the order of the coefficients"
    found.that(same, compared, _differ("the model has the columns", model.columns, names))


def _dealt_names(known: Sequence[Sequence[str]], tables: Sequence[AnyTable]) -> list[str]:
    """The names of all columns in the order of the model, of parties that hold columns."""
    joined = list(chain.from_iterable(known))
    if not joined:
        return []
    places = np.argsort(np.concatenate(columns_of(tables)))
    return [joined[k] for k in places.tolist()]


def compare_how(found: Compared, certificate: Certificate) -> None:
    """Note the settings that are not compared, because they do not follow from any data."""
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
    """Compare `run.json` with the certificate; `result` was read from the file."""
    wrong = list(_wrong_status(result, certificate))
    wrong += _wrong_network(result, certificate)
    wrong += _wrong_history(result)
    if _has_one_objective(certificate, result) and _crosses(certificate, result):
        wrong.append("has a history that crosses the bounds of the certificate")
    found.objections += [f"run.json {text}" for text in wrong]
    if not wrong:
        found.compared.append(
            "run.json: the status, the method, the network and the model that it is about"
        )
    found.unchecked.append(
        "the bill, the history and the messages of run.json, which describe the run"
    )


def _wrong_status(result: Result, certificate: Certificate) -> Iterator[str]:
    """Contradictions between the status of the run and the certificate."""
    status = result.status
    proven = certificate.gap <= certificate.tolerance * certificate.unit
    failed = not status.success and result.error is None
    # A run that learns its graph goes on until the graph stays, also when the models are within the
    # tolerance.
    may_go_on = result.model.problem.kind.problems.graph_is_data
    if (proven and failed and not may_go_on) or (status.success and not proven):
        yield f"states the status {status}, which does not follow from the gap"
    bounded = status is Status.OPTIMAL_WITHIN_RADIUS
    if status.success and bounded != (certificate.radius is not None):
        yield f"states the status {status}, which does not follow from the radius"
    if status.success and result.error is not None:
        yield "names an error in a run that succeeded"
    if (result.lost_party is not None) != (status is Status.PARTY_LOST):
        yield "names a lost party, and its status does not, or the other way round"


def _wrong_network(result: Result, certificate: Certificate) -> Iterator[str]:
    """Contradictions between the network or method of the run and the certificate."""
    settings = certificate.settings
    if result.network.agents != len(certificate.participants):
        yield f"has a network of {result.network.agents} agents"
    if settings["split"] != "users" and result.network.digest != settings["network_digest"]:
        yield "has another network than the certificate"
    if not result.explanation.startswith(f"Method {settings['method']['name']} "):
        yield "explains another method than that of the certificate"


def _wrong_history(result: Result) -> Iterator[str]:
    """Contradictions between the history and the bill of the run."""
    rounds = [record.round for record in result.history]
    bits = [record.bits for record in result.history]
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
    low = certificate.dual - slack
    high = certificate.primal + slack
    return any(record.primal < low or record.dual > high for record in result.history)


def compare_inference(found: Compared, written: Inference, computed: Inference) -> None:
    """Compare a stored table of standard errors with the one that was computed again."""
    before = len(found.objections)
    for entry in fields(Inference):
        if entry.name not in ("bill", "distance", "sums"):
            _compare_entry(found, entry.name, written, computed)
    if not abs(written.distance - computed.distance) <= CLOSE_STEPS:
        found.objections.append("inference.json has another distance than the data gives")
    if len(found.objections) == before:
        found.compared.append(
            f"the {written.kind} standard errors of {len(written.names)} coefficients"
        )


def _compare_entry(found: Compared, name: str, written: Inference, computed: Inference) -> None:
    """Compare one field of a table of standard errors."""
    stored = getattr(written, name)
    local = getattr(computed, name)
    if _same_entry(stored, local):
        return
    objection = f"inference.json has other {name} than the data gives"
    if isinstance(local, str | float | int):
        objection = f"{objection}: {stored!r} is written, and {local!r} is computed"
    found.objections.append(objection)


@contextmanager
def refusing_other_errors(found: Compared) -> Iterator[None]:
    """Turn a refusal to compute standard errors into an objection."""
    try:
        yield
    except (InvalidData, InvalidProblem, UnknownName) as refusal:
        found.objections.append(
            f"inference.json has standard errors that the data does not give: {refusal}"
        )


def compare_table(
    found: Compared, written: Inference, model: AnyModel, tolerance: float, received: Received
) -> None:
    """Compare stored standard errors with those that follow from these sums, for any question that
    has these standard errors as its answer.
    """
    tried = Compared()
    for asked in questions_of(written):
        tried = Compared()
        with refusing_other_errors(tried):
            computed = summarised(model, tolerance, asked, received)
            if written.per_sd:
                computed = computed.with_per_sd()
            compare_inference(tried, written, computed)
        if not tried.objections:
            break
    found.objections += tried.objections
    found.compared += tried.compared


def _same_entry(written: Any, local: Any) -> bool:
    """Whether two fields of a table of standard errors agree, numbers up to `TABLE` and `TINY`."""
    if isinstance(local, np.ndarray):
        if not isinstance(written, np.ndarray) or written.shape != local.shape:
            return False
        known = local[np.isfinite(local)]
        tiny = TINY * float(np.abs(known).max(initial=0.0))
        return bool(np.allclose(written, local, rtol=TABLE, atol=tiny))
    if isinstance(local, float):
        return isinstance(written, float | int) and abs(written - local) <= TABLE * abs(local)
    return bool(written == local)


def plain(value: Any) -> str:
    """Write a value as the file of a certificate has it."""
    return json.dumps(value, sort_keys=True)


def _compare_participants(
    found: Compared, certificate: Certificate, participants: Sequence[Participant], in_pieces: bool
) -> None:
    """Compare the parties of a certificate, and the sizes of their data, with those of the data."""
    settings = certificate.settings
    by_columns = settings["split"] == "features"
    if len(certificate.participants) != len(participants):
        found.objections.append(
            f"the data is of {len(participants)} parties, but the certificate names "
            f"{len(certificate.participants)}"
        )
        return
    pairs = list(zip(certificate.participants, participants, strict=True))
    wrong = list(_other_data(pairs))
    wrong += _other_names(pairs)
    if any(written.name != held.name and NAMELESS.match(held.name) for written, held in pairs):
        found.unchecked.append("names of parties, because the data has none")
    if settings["partition"] is not None and in_pieces:
        dealt = [len(part) for part in settings["partition"]]
        if dealt != _sizes(participants, by_columns):
            wrong.append(
                "the certificate deals out other numbers of rows or columns than the parties have"
            )
    found.objections += wrong
    if not wrong:
        rows = rows_of(participants, settings["split"])
        found.compared.append(
            f"the data of {len(participants)} parties, {rows} rows, as the certificate describes it"
        )


def rows_of(participants: Sequence[Participant], split: str) -> int:
    """The number of different rows that the parties hold together."""
    if split == "features":
        return participants[0].rows
    return sum(participant.rows for participant in participants)


def _sizes(participants: Sequence[Participant], by_columns: bool) -> list[int]:
    if by_columns:
        return [participant.columns for participant in participants]
    return [participant.rows for participant in participants]


def _other_data(pairs: Sequence[tuple[Participant, Participant]]) -> Iterator[str]:
    """Differences between the data that a certificate describes and the data that is held."""
    changed = [held.name for written, held in pairs if written.digest != held.digest]
    if changed:
        yield f"the data is not the data that was certified (it differs at: {', '.join(changed)})"
    for written, held in pairs:
        if written.rows != held.rows:
            yield f"{held.name} has {held.rows} rows, but the certificate states {written.rows}"
        if written.columns != held.columns:
            yield (
                f"{held.name} has {held.columns} columns, but the certificate states "
                f"{written.columns}"
            )


def _other_names(pairs: Sequence[tuple[Participant, Participant]]) -> Iterator[str]:
    """Parties whose data has another name than the certificate says."""
    for written, held in pairs:
        if written.name != held.name and not NAMELESS.match(held.name):
            yield f"a party is called {held.name!r}, but the certificate states {written.name!r}"


def _compare_users(found: Compared, certificate: Certificate, model: Any, named: list[str]) -> None:
    """Compare the users of the model with those of the data, which may have no names in a list."""
    users = list(model.users)
    if users != named and all(NUMBERED.match(name) for name in named):
        named = [participant.name for participant in certificate.participants]
        found.unchecked.append("names of users, because the data has none")
    objection = _differ("the model is of the users", users, named)
    found.that(users == named, f"the {len(users)} users", objection)


def _compare_network(
    found: Compared, settings: Mapping[str, Any], model: AnyModel, agents: int
) -> None:
    """Compare the graph of similar users with the certificate's."""
    graph = model.problem.kind.models.proven_network(model, settings, agents)
    title = str(settings["network"])
    name = title.removeprefix("<Network ").split(":")[0]
    proven = repr(Network(graph.weights, name=name))
    same = settings["network_digest"] == graph.digest and title == proven
    known = _built_in(name, agents, settings["seed"])
    if known is not None and known != graph.digest:
        same = False
    objection = (
        f"the certificate says that the graph of similar users is {title}, but the model's is "
        "another"
    )
    found.that(same, "the graph of similar users", objection)


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
    return len(one) == len(other) and all(map(_same_label, one, other))


def _same_label(one: Any, other: Any) -> bool:
    return bool(one == other) and isinstance(one, str) == isinstance(other, str)


def _differ(statement: str, written: Sequence[Any] | None, local: Sequence[Any] | None) -> str:
    return f"{statement} {_few(written)}, but the data has {_few(local)}"


def _few(names: Sequence[Any] | None) -> str:
    if names is None:
        return "none"
    shown = ", ".join(map(str, names[:FEW]))
    if len(names) > FEW:
        return f"{shown}, … ({len(names)})"
    return shown
