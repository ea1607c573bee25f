"""Check a certificate again, from the model and the data, trusting none of its numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from coterie.agent import Facts, numbers_held
from coterie.arrays import digest
from coterie.bill import Bill
from coterie.certificate import Bound, Certificate, Participant, participants, sentence
from coterie.data.prepared import Prepared
from coterie.errors import (
    CorruptFile,
    CoterieError,
    InvalidData,
    InvalidInput,
    NotRegistered,
    NumericalError,
    UnknownName,
)
from coterie.families import family_of, points_of
from coterie.methods import METHODS
from coterie.models import AnyModel
from coterie.networks import star
from coterie.problem import Problem
from coterie.session.finish import proven_again
from coterie.session.preparing import follows_from
from coterie.session.setup import check_offset, make_agents
from coterie.session.tables import attach_offset, gather_prepared, prepare_tables
from coterie.threads import cores
from coterie.transport.in_process import InProcess

MACHINES = 1e-12
"""Which share of the unit another machine, or an older version, may round a dual into its domain by."""
AGREEMENT = 1e-9
"""How closely recomputed numbers must agree with the written ones, relative to themselves."""


@dataclass(frozen=True)
class Verification:
    """The outcome: `objections` is empty if everything holds. All numbers are those computed here."""

    objections: tuple[str, ...]
    primal: float = math.nan
    dual: float = math.nan
    gap: float = math.nan
    relative_gap: float = math.nan
    radius: float | None = None
    rounding: float = math.nan
    """How much of the gap only allows for rounding."""
    about: str = ""
    """Which problem it is that was computed: loss, penalty, intercept, and the size of the data."""
    proves: str = ""
    """What the numbers found here mean."""
    signed_by: tuple[str, ...] = ()
    """Between organisations: whose signatures under the certificate were checked."""

    @property
    def holds(self) -> bool:
        """Whether the certificate is right."""
        return not self.objections

    @staticmethod
    def of(objections: Sequence[str], certificate: Certificate, bound: Bound, facts: Facts, about: str) -> Verification:
        """What was found, and in words what it proves, if there are no objections."""
        relative = bound.gap / unit_of(certificate, facts)
        proves = sentence(bound.primal, bound.gap, relative, bound.radius, certificate.settings)
        return Verification(
            tuple(objections),
            bound.primal,
            bound.dual,
            bound.gap,
            relative,
            bound.radius,
            rounding_of(bound, facts),
            about,
            "" if objections else proves,
        )


def verify(certificate: Certificate, model: AnyModel, data: Any, *, offset: Any = None) -> Verification:
    """Recompute primal, dual and gap from `data`, and `offset` if it had one (in the form in which they were fitted),
    and compare everything.

    What is said of the run must agree with the model and with itself. That the stated method and seed were really used
    cannot be seen from data and model, and the proof does not rest on it.
    """
    try:
        prepared = getattr(model, "preparation", None)
        with cores(None):
            return _verify(certificate, model, attach_offset(data, offset, certificate.settings["split"], prepared))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError, NumericalError) as error:
        if isinstance(error, CoterieError) and not isinstance(error, NumericalError):
            raise
        raise CorruptFile(f"the certificate lacks what a proof needs ({type(error).__name__}: {error}).") from error


def _verify(certificate: Certificate, model: AnyModel, data: Any) -> Verification:
    settings = certificate.settings
    split = settings["split"]
    family = family_of(model.problem)
    problem = family.problem_of(model, settings["problem"])
    sizes = [p.columns if split == "features" else p.rows for p in certificate.participants]
    parts = None if isinstance(data, list) else settings["partition"] or sizes
    try:
        tables = gather_prepared(data, split, parts, getattr(model, "preparation", None))
    except InvalidInput:
        _refuse_other_size(data, split, sum(sizes), model)
        raise
    tables, _ = prepare_tables(tables, problem, split, tensors=True)
    check_offset(problem, any(table.offset is not None for table in tables))
    network = star(len(tables), server=True)
    graph = family.proof_network(model, network)
    secure = settings.get("secure_sums") is True
    agents = make_agents(tables, problem, split, graph, 0, secure)

    objections = []
    held = participants(agents)
    if digest(*(p.digest for p in held)) != certificate.data_digest:
        held = participants(agents, leaves=False)
    if digest(*(p.digest for p in held)) != certificate.data_digest:
        changed = [p.name for p, was in zip(held, certificate.participants, strict=False) if p.digest != was.digest]
        objections.append(
            f"the data is not the data that was certified (it differs at: {', '.join(changed) or 'number'})"
        )
    if model.digest() != certificate.model_digest:
        objections.append("the model is not the model that was certified")
    classes = getattr(model, "classes_", None)
    objections += contradictions(certificate, model.problem, None if classes is None else classes.tolist())
    objections += _wrong_preparation(settings.get("prepare"), getattr(model, "preparation", None), data, split)
    if objections:
        return Verification(tuple(objections))

    try:
        points = points_of(model, agents, certificate.witness)
    except InvalidInput as error:
        raise CorruptFile(f"the certificate proves nothing: {error}") from error
    transport = InProcess(network, Bill(network), secure_sums=secure, numbers=numbers_held(agents))
    bound, facts = proven_again(agents, points, transport, certificate.radius)
    objections = list(differences(certificate, bound, facts))
    return Verification.of(objections, certificate, bound, facts, described(problem, split, held))


def _refuse_other_size(data: Any, split: str, size: int, model: AnyModel) -> None:
    """Refuse data in one piece that has another number of rows, or of columns, than was certified."""
    if isinstance(data, list) or split == "users":
        return
    (whole,) = gather_prepared(data, split, 1, getattr(model, "preparation", None))
    noun, found = ("columns", whole.d) if split == "features" else ("rows", whole.n)
    if found != size:
        raise InvalidData(
            f"the certificate covers {size:,} {noun}, and this data has {found:,}. Give all data that was fitted, of "
            "every party."
        )


def _wrong_preparation(
    recipes: dict[str, Any] | None, prepared: Prepared | None, data: Any, split: str
) -> Iterator[str]:
    """Whether the model's preparation is what the recipes of the certificate give for the data."""
    if recipes is None or prepared is None:
        if recipes is not None or prepared is not None:
            yield "the certificate and the model disagree on whether columns were prepared"
    elif not recipes.get("numbers_given") and not follows_from(prepared, recipes, data, split):
        yield "the numbers of the preparation do not follow from the data"


def differences(certificate: Certificate, bound: Bound, facts: Facts) -> Iterator[str]:
    """Which of its numbers do not follow from the data.

    A gap may be larger than what is found here, never smaller by more than rounding explains; everything else is
    compared relative to itself.
    """
    said = certificate
    if not bound.gap - rounding_of(bound, facts) <= said.gap:
        yield _differs("gap", bound.gap, said.gap)
    unit = unit_of(said, facts)
    for name, written, found, rounding in (
        ("primal", said.primal, bound.primal, bound.primal_rounding),
        ("dual", said.dual, said.primal - said.gap, AGREEMENT * abs(said.primal)),
        ("unit", said.unit, unit, 0.0),
        ("primal_at_zero", said.primal_at_zero, facts.primal_at_zero, 0.0),
        ("relative_gap", said.relative_gap, said.gap / unit, 0.0),
    ):
        if not abs(written - found) <= AGREEMENT * abs(found) + rounding:
            yield _differs(name, found, written)
    limits = [("radius", said.radius, bound.radius)]
    if not _is_old(said):
        limits.append(("room", said.room, bound.room))
    for name, claimed, known in limits:
        if (claimed is None) != (known is None) or (
            claimed is not None and known is not None and not abs(claimed - known) <= AGREEMENT * known
        ):
            yield _differs(name, known, claimed)


def rounding_of(bound: Bound, facts: Facts) -> float:
    """What two honest computations of a gap can differ by: its bound on rounding, and what moves a feasible dual."""
    return bound.rounding + MACHINES * facts.gap_unit


def _differs(name: str, found: object, written: object) -> str:
    return f"{name} is {found!r} when computed from the data, but the certificate says {written!r}"


def unit_of(certificate: Certificate, facts: Facts) -> float:
    """What its relative gap is a share of."""
    return (facts.primal_at_zero or 1.0) if _is_old(certificate) else facts.gap_unit


def _is_old(certificate: Certificate) -> bool:
    return certificate.settings.get("unit") == "zeros"


def described(problem: Problem, split: str, people: Sequence[Participant]) -> str:
    """Which problem it is, on which data: what a certificate is about, in words."""
    rows = people[0].rows if split == "features" else sum(p.rows for p in people)
    columns = sum(p.columns for p in people) if split == "features" else people[0].columns
    where = f"{rows} rows, {columns} columns, {len(people)} parties, split by {split}"
    return f"{family_of(problem).described(problem.settings())}; {where}"


def contradictions(certificate: Certificate, problem: Problem, classes: list[Any] | None) -> Iterator[str]:
    """What the certificate says of the run that cannot be, or that the model says otherwise."""
    settings = certificate.settings
    if _plain(settings["problem"]) != _plain(problem.settings()):
        yield "the certificate is about another problem than the model's"
    if settings["limits"]["tol"] != certificate.tolerance:
        yield f"the tolerance is {certificate.tolerance!r}, but the run was asked for {settings['limits']['tol']!r}"
    if _plain(settings["classes"]) != _plain(classes):
        yield "the certificate names other classes than the model"
    try:
        method = METHODS[settings["method"]["name"]]
    except UnknownName as error:
        raise NotRegistered(error) from None
    if method.split != settings["split"]:
        yield f"there is no method {method.name!r} for data split by {settings['split']}"
    if not (isinstance(settings["seed"], int) and settings["seed"] >= 0):
        yield f"{settings['seed']!r} is not a seed"


def _plain(value: Any) -> str:
    """The value as a certificate's file has it."""
    return json.dumps(value, sort_keys=True)
