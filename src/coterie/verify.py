"""Check a certificate again, from the model and the data, trusting none of its numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from coterie.arrays import digest
from coterie.bill import Bill
from coterie.carriers.in_process import InProcess
from coterie.certificate import Certificate, certify, participants
from coterie.errors import CorruptFile, InvalidInput, NumericalError
from coterie.models import LinearModel
from coterie.networks import star
from coterie.problem import Problem
from coterie.rounds import introduced
from coterie.solve import gather, make_agents, points_of, prepared

__all__ = ["Verification", "verify"]

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


def verify(certificate: Certificate, model: LinearModel, data: Any) -> Verification:
    """Recompute primal, dual and gap from `data` (in the form in which it was fitted) and compare everything."""
    try:
        return _verify(certificate, model, data)
    except (KeyError, IndexError, TypeError, NumericalError) as error:
        raise CorruptFile(f"the certificate lacks what a proof needs ({type(error).__name__}: {error}).") from error


def _verify(certificate: Certificate, model: LinearModel, data: Any) -> Verification:
    settings = certificate.settings
    split, problem = settings["split"], Problem.from_settings(settings["problem"])
    sizes = [p.columns if split == "features" else p.rows for p in certificate.participants]
    tables = gather(data, split, None if isinstance(data, list) else settings["partition"] or sizes)
    tables, _ = prepared(tables, problem, split)
    network = star(len(tables), server=True)
    agents = make_agents(tables, problem, split, network, 0)

    objections = []
    held = participants(agents)
    if digest(*(p.digest for p in held)) != certificate.data_digest:
        changed = [p.name for p, was in zip(held, certificate.participants, strict=False) if p.digest != was.digest]
        objections.append(
            f"the data is not the data that was certified (it differs at: {', '.join(changed) or 'number'})"
        )
    if model.digest() != certificate.model_digest:
        objections.append("the model is not the model that was certified")
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
    for name, written, found in (
        ("primal", certificate.primal, bound.primal),
        ("dual", certificate.dual, bound.dual),
        ("gap", certificate.gap, bound.gap),
        ("primal_at_zero", certificate.primal_at_zero, unit),
        ("relative_gap", certificate.relative_gap * (unit or 1.0), bound.gap),
        ("radius", certificate.radius or 0.0, bound.radius or 0.0),
    ):
        if not abs(written - found) <= AGREEMENT * max(unit, abs(found)):
            objections.append(f"{name} is {found!r} when computed from the data, but the certificate says {written!r}")
    return Verification(tuple(objections), bound.primal, bound.dual, bound.gap)
