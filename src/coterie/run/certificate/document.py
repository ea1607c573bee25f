"""The document: what is proven, with all that is needed to check it again, as one JSON file."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from coterie.data.archives import read_bytes, readable, write_atomically
from coterie.errors import CorruptFile
from coterie.numerics.arrays import FloatArray, digest
from coterie.numerics.threads import spread
from coterie.run.agent import SummaryStatistics, numbers_held
from coterie.run.certificate.bound import Bound
from coterie.run.site import Site
from coterie.run.stages import counting

ROUNDING = 1e-14
"""A gap below this share of the objective says that both are known no better than that."""

KIND = 2
"""Of the file. Files of another kind are refused: who could claim an older one could leave out what
it lacks.
"""

VERSION = version("coterie")
"""Read once: the file with it is slow to parse."""


@dataclass(frozen=True)
class Participant:
    """Who took part, with how much, and the digest of what it held."""

    name: str
    rows: int
    columns: int
    digest: str


@dataclass(frozen=True)
class Certificate:
    """A proof of how far a model can be from the best one, with all that is needed to check it
    again.

    `witness` holds the dual vectors, one per participant: whoever has the data and the model
    recomputes the gap from them.
    """

    primal: float
    dual: float
    """The lower bound on every objective: primal less gap, and less what rounding can have moved
    the primal by.
    """
    gap: float
    relative_gap: float
    """The gap as a share of the unit."""
    tolerance: float
    radius: float | None
    """The claim is about models of at most this norm; None: about all."""
    unit: float
    """What the best constant loses (without an intercept: what a model of zeros loses) and perfect
    scores do not.
    """
    primal_at_zero: float
    participants: tuple[Participant, ...]
    settings: Mapping[str, Any]
    model_digest: str
    witness: tuple[FloatArray, ...] = field(repr=False)
    counts: tuple[float, ...] | None = None
    """The rows of each class; of survival times those without and with an event; with weights, the
    sums of these.
    """
    room: float | None = None
    """Beside an intercept: how far from this one the others may be that the claim is about."""
    signatures: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    """Between organisations, everybody's signature under the `statement`, and its TLS certificate,
    by name.
    """
    version: str = VERSION

    @staticmethod
    def of(
        bound: Bound,
        statistics: SummaryStatistics,
        *,
        tolerance: float,
        participants: tuple[Participant, ...],
        settings: Mapping[str, Any],
        model_digest: str,
        witness: tuple[FloatArray, ...],
    ) -> Certificate:
        """The document of what a run has proven."""
        return Certificate(
            primal=bound.primal,
            dual=bound.dual,
            gap=bound.gap,
            relative_gap=bound.gap / statistics.gap_unit,
            tolerance=tolerance,
            radius=bound.radius,
            unit=statistics.gap_unit,
            primal_at_zero=statistics.primal_at_zero,
            participants=participants,
            settings=settings,
            model_digest=model_digest,
            witness=witness,
            counts=statistics.counts,
            room=bound.room,
        )

    @property
    def proves(self) -> str:
        """What the numbers mean, in one sentence."""
        return sentence(self.primal, self.gap, self.relative_gap, self.radius, self.settings)

    @property
    def data_digest(self) -> str:
        """One digest over what all participants held."""
        return digest(*(participant.digest for participant in self.participants))

    def statement(self) -> bytes:
        """What parties sign: the numbers, of whom and of which run. Own parts and duals stay with
        each.
        """
        numbers = (
            "primal",
            "dual",
            "gap",
            "relative_gap",
            "tolerance",
            "radius",
            "room",
            "unit",
            "primal_at_zero",
        )
        said = {name: getattr(self, name) for name in (*numbers, "counts")}
        participants = [vars(participant) for participant in self.participants]
        return _canonical(
            {"certificate": KIND, **said, "participants": participants, "settings": self.settings}
        ).encode()

    @property
    def run(self) -> str:
        """The digest of what parties sign: equal at all parties of one run, another one for every
        other run.
        """
        return digest(self.statement().decode())

    def save(self, path: str | Path) -> Path:
        """Write the certificate as one JSON file, sealed by a digest of its content."""
        content = {
            "coterie_certificate": KIND,
            "version": self.version,
            "proves": self.proves,
            "primal": self.primal,
            "dual": self.dual,
            "gap": self.gap,
            "relative_gap": self.relative_gap,
            "tolerance": self.tolerance,
            "radius": self.radius,
            "room": self.room,
            "unit": self.unit,
            "primal_at_zero": self.primal_at_zero,
            "counts": self.counts,
            "participants": [vars(participant) for participant in self.participants],
            "settings": self.settings,
            "digests": {
                "data": self.data_digest,
                "model": self.model_digest,
                "settings": _seal(self.settings),
            },
            "witness": [_encode(v) for v in self.witness],
            "signatures": {name: dict(signed) for name, signed in self.signatures.items()},
        }
        text = json.dumps({**content, "seal": _seal(content)}, indent=1, allow_nan=False)
        return write_atomically(path, text.encode())

    @staticmethod
    def load(path: str | Path) -> Certificate:
        """Read a certificate; a file that was changed or truncated is refused."""
        text = read_bytes(path)
        with readable(path, "certificate.json"):
            content = json.loads(text)
            seal = content.pop("seal")
            if content["coterie_certificate"] != KIND:
                raise CorruptFile(
                    f"{path} has format {content['coterie_certificate']!r}, but this version "
                    f"reads format {KIND} only. "
                    "Fit again, or read it with the version that wrote it."
                )
            if seal != _seal(content):
                raise CorruptFile(
                    f"{path} was changed after it was written: its seal does not match its content."
                )
            content.pop("coterie_certificate")
            claimed, proves = content.pop("digests"), content.pop("proves")
            certificate = Certificate(
                **{
                    **content,
                    "participants": tuple(Participant(**p) for p in content["participants"]),
                    "witness": tuple(_decode(v) for v in content["witness"]),
                    "counts": None
                    if content["counts"] is None
                    else tuple(map(float, content["counts"])),
                },
                model_digest=claimed["model"],
            )
            written = {"data": certificate.data_digest, "settings": _seal(certificate.settings)}
            consistent = (
                certificate.proves == proves and {**written, "model": claimed["model"]} == claimed
            )
        if not consistent:
            raise CorruptFile(
                f"{path} contradicts itself: its digests do not belong to its content."
            )
        return certificate


def sentence(
    primal: float,
    gap: float,
    relative_gap: float,
    radius: float | None,
    settings: Mapping[str, Any],
) -> str:
    """What a gap means, in one sentence."""
    against = unit_of(settings)
    claim = (
        f"is within {gap:.3g} of the best possible objective ({relative_gap:.2g} of {against})"
        if gap > ROUNDING * abs(primal)
        else "is, up to rounding, the best possible one"
    )
    among = "" if radius is None else f" among all models of norm at most {radius:.3g}"
    if (stages := settings["problem"].get("loss", {}).get("stages", 1)) > 1:
        among = f" in the ball of the last of {stages} stages, which the matrix before it weighs"
    return f"This model {claim}{among}."


def unit_of(settings: Mapping[str, Any]) -> str:
    """What a relative gap is a share of: the best constant's loss, if there is an intercept."""
    return (
        "what the best constant loses"
        if settings["problem"].get("intercept")
        else "its value at w = 0"
    )


def _seal(content: Mapping[str, Any]) -> str:
    return digest(_canonical(content))


def _canonical(content: Mapping[str, Any]) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _encode(v: FloatArray) -> dict[str, Any]:
    little = np.ascontiguousarray(v, v.dtype.newbyteorder("<"))
    return {
        "dtype": little.dtype.str,
        "size": v.size,
        "base64": base64.b64encode(little.tobytes()).decode(),
    }


def _decode(coded: Mapping[str, Any]) -> FloatArray:
    if coded["dtype"] not in ("<f8", "<f4"):
        raise ValueError(f"a witness of type {coded['dtype']!r}")
    v: FloatArray = np.frombuffer(base64.b64decode(coded["base64"], validate=True), coded["dtype"])
    if v.size != coded["size"]:
        raise ValueError("a witness of the wrong length")
    return v


def participants(agents: Sequence[Site]) -> tuple[Participant, ...]:
    """Who takes part, from the agents' data."""
    rows = sum(agent.data.n for agent in agents)

    def hashed(agent: Site) -> str:
        return agent.data.digest()

    digests = spread(counting(hashed, "hashing", len(agents), rows), agents, numbers_held(agents))
    return tuple(
        Participant(a.data.name, a.data.n, a.data.d, own)
        for a, own in zip(agents, digests, strict=True)
    )
