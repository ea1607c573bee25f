"""Write and read a certificate: the proven bound, with all numbers that are needed to check it
again, as one JSON file.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from coterie.data.archives import read_bytes, readable, write_atomically
from coterie.data.pending import PendingDigest, pending_digests
from coterie.errors import CorruptFile
from coterie.numerics.arrays import FloatArray, digest
from coterie.numerics.threads import spread
from coterie.run.agent import SummaryStatistics, numbers_held
from coterie.run.certificate.bound import Bound
from coterie.run.site import SiteForm
from coterie.run.stages import counting

ROUNDING = 1e-14
"""A gap below this share of the objective consists of rounding errors."""

KIND = 2
"""The format of the file. Other formats are refused: a forger could claim an older one, and leave
out the numbers that it lacks.
"""

VERSION = version("coterie")
"""It is read once, because its file is slow to parse."""


NUMBERS = (
    "primal",
    "dual",
    "gap",
    "relative_gap",
    "tolerance",
    "radius",
    "room",
    "unit",
    "primal_at_zero",
    "counts",
)
"""The numbers of a certificate, as files list them and parties sign them."""


class _Digest:
    """A field with the digest of a table, which may be computed when it is first read."""

    def __get__(self, participant: Participant | None, kind: type[Participant]) -> str:
        if participant is None:
            raise AttributeError("the digest has no default")
        known: str | PendingDigest = vars(participant)["_digest"]
        if not isinstance(known, str):
            known = vars(participant)["_digest"] = known.value()
        return known

    def __set__(self, participant: Participant, digest: str | PendingDigest) -> None:
        vars(participant)["_digest"] = digest


@dataclass(frozen=True)
class Participant:
    """A party, the size of its table, and the table's digest."""

    name: str
    rows: int
    columns: int
    digest: _Digest = _Digest()
    """SHA-256 of the table's numbers. Refused if a small table has changed since the fit."""

    def listed(self) -> dict[str, Any]:
        """The participant as files list it and parties sign it."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}

    def __reduce__(self) -> tuple[Any, ...]:
        return Participant, tuple(self.listed().values())


@dataclass(frozen=True)
class Certificate:
    """A proof of how far a model can be from the best one, with all numbers that are needed to
    check it again.

    `witness` has the dual variables, one vector per participant: with the data and the model, the
    gap follows from them.
    """

    primal: float
    dual: float
    """The lower bound on every objective: primal less gap, and less the rounding error of the
    primal.
    """
    gap: float
    relative_gap: float
    """The gap divided by `unit`."""
    tolerance: float
    radius: float | None
    """The norm bound: the claim is about models of at most this norm; None: about all."""
    unit: float
    """The null loss: the loss of the intercept-only model (without an intercept: of a model of
    zeros), less that of perfect scores.
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
    """The largest distance from this intercept to those that the claim is about."""
    signatures: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    """Between organisations, each party's signature under the `statement`, with its TLS
    certificate, by name.
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
        """The certificate of a run's bound."""
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
        """The meaning of the numbers, in one sentence."""
        return sentence(self.primal, self.gap, self.relative_gap, self.radius, self.settings)

    @property
    def data_digest(self) -> str:
        """One digest of the tables of all participants."""
        return digest(*(participant.digest for participant in self.participants))

    def statement(self) -> bytes:
        """The text that parties sign: the numbers, the participants and the settings of the run.
        Each party keeps its own part of the model and its dual variables.
        """
        content = {name: getattr(self, name) for name in NUMBERS}
        content["certificate"] = KIND
        content["participants"] = [participant.listed() for participant in self.participants]
        content["settings"] = self.settings
        return _canonical(content).encode()

    @property
    def run(self) -> str:
        """The digest of the text that parties sign: equal at all parties of one run, and different
        for every other run.
        """
        return digest(self.statement().decode())

    def save(self, path: str | Path) -> Path:
        """Write the certificate as one JSON file, sealed by a digest of its content."""
        content = {
            "coterie_certificate": KIND,
            "version": self.version,
            "proves": self.proves,
            **{name: getattr(self, name) for name in NUMBERS},
            "participants": [participant.listed() for participant in self.participants],
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
                    f"reads format {KIND} only. Fit again, or read it with the version that wrote "
                    "it."
                )
            if seal != _seal(content):
                raise CorruptFile(
                    f"{path} was changed after it was written: its seal does not match its content."
                )
            content.pop("coterie_certificate")
            claimed, proves = content.pop("digests"), content.pop("proves")
            content["participants"] = tuple(Participant(**one) for one in content["participants"])
            content["witness"] = tuple(_decode(v) for v in content["witness"])
            if content["counts"] is not None:
                content["counts"] = tuple(map(float, content["counts"]))
            certificate = Certificate(**content, model_digest=claimed["model"])
            computed = {
                "data": certificate.data_digest,
                "model": claimed["model"],
                "settings": _seal(certificate.settings),
            }
            consistent = certificate.proves == proves and computed == claimed
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
    """The meaning of a gap, in one sentence."""
    claim = "is, up to rounding, the best possible one"
    if gap > ROUNDING * abs(primal):
        claim = (
            f"is within {gap:.3g} of the best possible objective (relative gap {relative_gap:.2g})"
        )
    among = ""
    if radius is not None:
        among = f" among all models of norm at most {radius:.3g}"
    stages = settings["problem"].get("loss", {}).get("stages", 1)
    if stages > 1:
        among = f" in the ball of the last of {stages} stages, which the matrix before it weighs"
    return f"This model {claim}{among}."


def unit_of(settings: Mapping[str, Any]) -> str:
    """The number by which gaps are divided, in words."""
    if settings["problem"].get("intercept"):
        return "the loss of the intercept-only model"
    return "the objective at w = 0"


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


def participants(agents: Sequence[SiteForm]) -> tuple[Participant, ...]:
    """The parties with these tables, and the digests of the tables; those of small tables wait."""
    tables = [agent.data for agent in agents]
    digests: Sequence[str | PendingDigest] | None = pending_digests(tables)
    if digests is None:
        digests = _digests(agents)
    return tuple(
        Participant(table.name, table.n, table.d, own)
        for table, own in zip(tables, digests, strict=True)
    )


def _digests(agents: Sequence[SiteForm]) -> list[str]:
    rows = sum(agent.data.n for agent in agents)

    def hashed(agent: SiteForm) -> str:
        return agent.data.digest()

    return spread(counting(hashed, "hashing", len(agents), rows), agents, numbers_held(agents))
