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

from coterie.agent import Agent
from coterie.arrays import FloatArray, digest
from coterie.errors import CorruptFile
from coterie.files import read_bytes, write_atomically

__all__ = ["Certificate", "Participant", "participants"]

ROUNDING = 1e-14
"""A gap below this share of the objective says that both are known no better than that."""

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
    """A proof of how far a model can be from the best one, with all that is needed to check it again.

    `witness` holds the dual vectors, one per participant: whoever has the data and the model recomputes the gap from
    them.
    """

    primal: float
    dual: float
    gap: float
    relative_gap: float
    tolerance: float
    radius: float | None
    primal_at_zero: float
    participants: tuple[Participant, ...]
    settings: Mapping[str, Any]
    model_digest: str
    witness: tuple[FloatArray, ...] = field(repr=False)
    version: str = VERSION

    @property
    def proves(self) -> str:
        """What the numbers mean, in one sentence."""
        claim = (
            f"is within {self.gap:.3g} of the best possible objective ({self.relative_gap:.2g} of its value at w = 0)"
            if self.gap > ROUNDING * abs(self.primal)
            else "is, up to rounding, the best possible one"
        )
        if self.radius is None:
            return f"This model {claim}."
        return f"This model {claim} among all models of norm at most {self.radius:.3g}."

    @property
    def data_digest(self) -> str:
        """One digest over what all participants held."""
        return digest(*(participant.digest for participant in self.participants))

    def save(self, path: str | Path) -> Path:
        """Write the certificate as one JSON file, sealed by a digest of its content."""
        content = {
            "coterie_certificate": 1,
            "version": self.version,
            "proves": self.proves,
            "primal": self.primal,
            "dual": self.dual,
            "gap": self.gap,
            "relative_gap": self.relative_gap,
            "tolerance": self.tolerance,
            "radius": self.radius,
            "primal_at_zero": self.primal_at_zero,
            "participants": [vars(participant) for participant in self.participants],
            "settings": self.settings,
            "digests": {"data": self.data_digest, "model": self.model_digest, "settings": _seal(self.settings)},
            "witness": [_encode(v) for v in self.witness],
        }
        text = json.dumps({**content, "seal": _seal(content)}, indent=1, allow_nan=False)
        return write_atomically(path, text.encode())

    @staticmethod
    def load(path: str | Path) -> Certificate:
        """Read a certificate; a file that was changed or truncated is refused."""
        text = read_bytes(path)
        try:
            content = json.loads(text)
            seal = content.pop("seal")
            if content.pop("coterie_certificate") != 1:
                raise CorruptFile(f"{path} is a certificate of a newer kind; update coterie to read it.")
            if seal != _seal({"coterie_certificate": 1, **content}):
                raise CorruptFile(f"{path} was changed after it was written: its seal does not match its content.")
            claimed, proves = content.pop("digests"), content.pop("proves")
            certificate = Certificate(
                **{
                    **content,
                    "participants": tuple(Participant(**p) for p in content["participants"]),
                    "witness": tuple(_decode(v) for v in content["witness"]),
                },
                model_digest=claimed["model"],
            )
            consistent = (
                certificate.proves == proves
                and certificate.data_digest == claimed["data"]
                and _seal(certificate.settings) == claimed["settings"]
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptFile(
                f"{path} is not a readable certificate.json ({type(error).__name__}: {error})."
            ) from error
        if not consistent:
            raise CorruptFile(f"{path} contradicts itself: its digests do not belong to its content.")
        return certificate


def _seal(content: Mapping[str, Any]) -> str:
    return digest(json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False))


def _encode(v: FloatArray) -> dict[str, Any]:
    little = np.ascontiguousarray(v, v.dtype.newbyteorder("<"))
    return {"dtype": little.dtype.str, "size": v.size, "base64": base64.b64encode(little.tobytes()).decode()}


def _decode(coded: Mapping[str, Any]) -> FloatArray:
    if coded["dtype"] not in ("<f8", "<f4"):
        raise ValueError(f"a witness of type {coded['dtype']!r}")
    v: FloatArray = np.frombuffer(base64.b64decode(coded["base64"], validate=True), coded["dtype"])
    if v.size != coded["size"]:
        raise ValueError("a witness of the wrong length")
    return v


def participants(agents: Sequence[Agent]) -> tuple[Participant, ...]:
    """Who takes part, from the agents' data."""
    return tuple(Participant(a.data.name, a.data.n, a.data.d, a.data.digest()) for a in agents)
