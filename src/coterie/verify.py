"""Check a certificate again, from the model and the data, trusting none of its numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from coterie.arrays import digest
from coterie.bill import Bill
from coterie.certificate import Bound, Certificate, certify, participants
from coterie.errors import CorruptFile, InvalidInput, NumericalError
from coterie.methods import METHODS
from coterie.models import LinearModel, LowRankModel, PersonalModel
from coterie.networks import star
from coterie.problem import Problem
from coterie.rounds import introduced
from coterie.solve import gather, make_agents, points_of, prepared
from coterie.transport.in_process import InProcess

__all__ = ["Verification", "contradictions", "differences", "verify"]

AGREEMENT = 1e-9
"""How closely recomputed numbers must agree with the written ones, relative to P(0)."""


@dataclass(frozen=True)
class Verification:
    """The outcome: `objections` is empty if everything holds."""

    objections: tuple[str, ...]
    primal: float
    dual: float
    gap: float

    @property
    def holds(self) -> bool:
        """Whether the certificate is right."""
        return not self.objections


def verify(certificate: Certificate, model: LinearModel | LowRankModel | PersonalModel, data: Any) -> Verification:
    """Recompute primal, dual and gap from `data` (in the form in which it was fitted) and compare everything.

    What is said of the run must agree with the model and with itself. That the stated method and seed were really used
    cannot be seen from data and model, and the proof does not rest on it.
    """
    try:
        return _verify(certificate, model, data)
    except (KeyError, IndexError, TypeError, NumericalError) as error:
        raise CorruptFile(f"the certificate lacks what a proof needs ({type(error).__name__}: {error}).") from error


def _verify(certificate: Certificate, model: LinearModel | LowRankModel | PersonalModel, data: Any) -> Verification:
    settings = certificate.settings
    split = settings["split"]
    problem = model.problem if isinstance(model, PersonalModel) else Problem.from_settings(settings["problem"])
    sizes = [p.columns if split == "features" else p.rows for p in certificate.participants]
    tables = gather(data, split, None if isinstance(data, list) else settings["partition"] or sizes)
    tables, _ = prepared(tables, problem, split)
    network = star(len(tables), server=True)
    graph = model.network if isinstance(model, PersonalModel) and not model.problem.learned else network
    agents = make_agents(tables, problem, split, graph, 0)

    objections = []
    held = participants(agents)
    if digest(*(p.digest for p in held)) != certificate.data_digest:
        changed = [p.name for p, was in zip(held, certificate.participants, strict=False) if p.digest != was.digest]
        objections.append(
            f"the data is not the data that was certified (it differs at: {', '.join(changed) or 'number'})"
        )
    if model.digest() != certificate.model_digest:
        objections.append("the model is not the model that was certified")
    classes = getattr(model, "classes_", None)
    objections += contradictions(certificate, model.problem, None if classes is None else classes.tolist())
    if objections:
        return Verification(tuple(objections), math.nan, math.nan, math.nan)

    carrier = InProcess(network, Bill(network))
    agents = introduced(agents, carrier, "proof")
    try:
        points = points_of(model, agents, certificate.witness)
    except InvalidInput as error:
        raise CorruptFile(f"the certificate proves nothing: {error}") from error
    bound = carrier.converse([certify(a, p) for a, p in zip(agents, points, strict=True)], "proof")[0]
    unit = agents[0].primal_at_zero
    return Verification(tuple(differences(certificate, bound, unit)), bound.primal, bound.dual, bound.gap)


def differences(certificate: Certificate, bound: Bound, unit: float) -> Iterator[str]:
    """Which of its numbers are others when they are computed from the data; `unit` is P(0)."""
    for name, written, found in (
        ("primal", certificate.primal, bound.primal),
        ("dual", certificate.dual, bound.dual),
        ("gap", certificate.gap, bound.gap),
        ("primal_at_zero", certificate.primal_at_zero, unit),
        ("relative_gap", certificate.relative_gap * (unit or 1.0), bound.gap),
        ("radius", certificate.radius or 0.0, bound.radius or 0.0),
    ):
        if not abs(written - found) <= AGREEMENT * max(unit, abs(found)):
            yield f"{name} is {found!r} when computed from the data, but the certificate says {written!r}"


def contradictions(certificate: Certificate, problem: Problem, classes: list[Any] | None) -> Iterator[str]:
    """What the certificate says of the run that cannot be, or that the model says otherwise."""
    settings = certificate.settings
    if _plain(settings["problem"]) != _plain(problem.settings()):
        yield "the certificate is about another problem than the model's"
    if settings["limits"]["tol"] != certificate.tolerance:
        yield f"the tolerance is {certificate.tolerance!r}, but the run was asked for {settings['limits']['tol']!r}"
    if _plain(settings["classes"]) != _plain(classes):
        yield "the certificate names other classes than the model"
    method = settings["method"]["name"]
    if method not in METHODS or METHODS[method].split != settings["split"]:
        yield f"there is no method {method!r} for data split by {settings['split']}"
    if not (isinstance(settings["seed"], int) and settings["seed"] >= 0):
        yield f"{settings['seed']!r} is no seed"


def _plain(value: Any) -> str:
    """The value as a certificate's file has it."""
    return json.dumps(value, sort_keys=True)
