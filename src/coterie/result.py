"""What `solve` returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coterie.bill import Bill
from coterie.certificate import Certificate
from coterie.model import LinearModel
from coterie.networks import Network
from coterie.rounds import Record
from coterie.statuses import Status

__all__ = ["Result", "as_history"]


@dataclass(frozen=True)
class Result:
    """A model, how far it can be from the best one, what it cost, and how it went."""

    status: Status
    model: LinearModel
    certificate: Certificate
    bill: Bill
    history: np.recarray[Any, Any]
    """One row per recorded round: round, seconds, bits (everything sent until then), primal, dual, gap."""
    network: Network
    explanation: str
    """Which method ran, and why."""

    @property
    def rounds(self) -> int:
        """How many rounds were run."""
        return self.bill.rounds

    def save(self, folder: str | Path) -> Path:
        """Write `model.npz` and `certificate.json` into a folder."""
        folder = Path(folder)
        self.model.save(folder / "model.npz")
        self.certificate.save(folder / "certificate.json")
        return folder

    def __str__(self) -> str:
        lines = [
            f"{self.status}: {self.status.advice}",
            self.certificate.proves,
            f"{self.explanation}",
            f"{self.bill.rounds} rounds, {self.bill.total.bits / 8e6:.3g} MB in {self.bill.total.messages} messages.",
        ]
        return "\n".join(lines)


def as_history(records: Sequence[Record]) -> np.recarray[Any, Any]:
    """The records as one record array: `history.gap`, `history["gap"]` and `history[-1].gap` all work."""
    types = [("round", "i8"), ("seconds", "f8"), ("bits", "i8"), ("primal", "f8"), ("dual", "f8"), ("gap", "f8")]
    return np.array([tuple(vars(record).values()) for record in records], dtype=types).view(np.recarray)
