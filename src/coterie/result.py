"""What `solve` returns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from coterie.bill import Bill
from coterie.certificate import Certificate
from coterie.errors import UnknownName
from coterie.models import LinearModel
from coterie.networks import Network
from coterie.rounds import Record
from coterie.statuses import Status

__all__ = ["History", "Result"]


@dataclass(frozen=True)
class Result:
    """A model, how far it can be from the best one, what it cost, and how it went."""

    status: Status
    model: LinearModel
    certificate: Certificate
    bill: Bill
    history: History
    """One row per recorded round: round, seconds, bits (everything sent until then), primal, dual, gap."""
    network: Network
    explanation: str
    """Which method ran, and why."""
    error: Exception | None = None
    """What went wrong, if the run ended by an error and not by a limit."""

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
            f"{self.status}: {self.status.advice}{f' ({self.error})' if self.error else ''}",
            self.certificate.proves,
            f"{self.explanation}",
            f"{self.bill.rounds} rounds, {self.bill.total.bits / 8e6:.3g} MB in {self.bill.total.messages} messages.",
        ]
        return "\n".join(lines)


class History(Sequence[Record]):
    """One row per recorded round. `history[-1].gap` is a number, `history.gap` (or `history["gap"]`) a column."""

    columns = tuple(field.name for field in fields(Record))

    def __init__(self, records: Iterable[Record]):
        self._records = tuple(records)

    @overload
    def __getitem__(self, which: int) -> Record: ...
    @overload
    def __getitem__(self, which: slice) -> History: ...
    @overload
    def __getitem__(self, which: str) -> npt.NDArray[Any]: ...
    def __getitem__(self, which: int | slice | str) -> Record | History | npt.NDArray[Any]:
        if isinstance(which, str):
            if which not in self.columns:
                raise UnknownName("column of the history", which, self.columns)
            return np.array([getattr(record, which) for record in self._records])
        return History(self._records[which]) if isinstance(which, slice) else self._records[which]

    def __getattr__(self, name: str) -> npt.NDArray[Any]:
        if name not in self.columns:
            raise AttributeError(name)
        return self[name]

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        last = f", the last with gap {self[-1].gap:.3g} after {self[-1].round} rounds" if self else ""
        return f"History({len(self)} records{last})"
