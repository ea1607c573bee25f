"""What a study is: settings of two sizes, a run that gives curves, claims about them, and a
picture.

    run(settings) → Numbers → claims → draw

A claim is a sentence of the paper, what would falsify it, and whether these numbers bear it out.
One that they do not stays in the list, with its numbers, the reason and what shows the reason; no
setting is chosen to make it true.
"""

from __future__ import annotations

import os
import platform
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from coterie.api.result import Result
from coterie.numerics.arrays import FloatArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure


CAUSES: Mapping[str, str] = {
    "size": "the quick size is too small for it",
    "settings": "the paper's settings, as printed, lead elsewhere, and a run shows where",
    "data": "the paper's data, or its machines, are not here",
    "unsaid": "nobody can reproduce it with what the paper says",
}
"""Why a claim may fail."""


@dataclass(frozen=True)
class Claim:
    """A sentence, whether the numbers bear it out, which numbers, and what would falsify it."""

    text: str
    holds: bool
    evidence: str
    reason: str = ""
    """Why it does not hold, with the numbers that show it; unused where it holds."""
    cause: str = field(default="", kw_only=True)
    """Which of the causes that is."""
    fails_if: str = field(kw_only=True)
    """What would falsify it: "they are more than 0.5 apart (our threshold)"."""

    def __post_init__(self) -> None:
        if bool(self.reason) != bool(self.cause) or (self.cause and self.cause not in CAUSES):
            raise ValueError(
                f"{self.text} A reason has a cause, one of {', '.join(CAUSES)}, not {self.cause!r}."
            )

    @property
    def surprising(self) -> bool:
        """Whether it does not hold and nobody has said why."""
        return not self.holds and not self.reason


@dataclass(frozen=True, eq=False)
class Curve:
    """One line of one panel, or one picture of pixels, and what its run sent."""

    panel: str
    label: str
    method: str
    x: FloatArray
    y: FloatArray
    spent: Mapping[str, int] = field(default_factory=dict)
    chosen: Mapping[str, float] = field(default_factory=dict)
    """Parameters that were chosen for this curve, such as the best step of a grid."""

    @property
    def last(self) -> float:
        """Where it ends."""
        return float(self.y[-1])

    @property
    def least(self) -> FloatArray:
        """The least value so far, at every x: a gap may rise, but the best model is kept."""
        kept: FloatArray = np.minimum.accumulate(np.where(np.isfinite(self.y), self.y, np.inf))
        return kept

    def first_below(self, level: float) -> float:
        """The first x at which the value is at most that; infinite if it never is."""
        below = np.flatnonzero(self.y <= level)
        return float(self.x[below[0]]) if below.size else np.inf


class Numbers(Sequence[Curve]):
    """The curves of a study, by panel and label, and remarks on where their data came from."""

    def __init__(self, curves: Sequence[Curve], remarks: Sequence[str] = ()):
        self._curves, self.remarks = tuple(curves), tuple(remarks)

    def __getitem__(self, index: Any) -> Any:
        return self._curves[index]

    def __len__(self) -> int:
        return len(self._curves)

    def __iter__(self) -> Iterator[Curve]:
        return iter(self._curves)

    @property
    def panels(self) -> list[str]:
        """The names of the panels in their order."""
        return list(dict.fromkeys(curve.panel for curve in self))

    def panel(self, name: str) -> dict[str, Curve]:
        """The curves of one panel by their labels."""
        return {curve.label: curve for curve in self if curve.panel == name}

    def columns(self) -> dict[str, list[Any]]:
        """One row per point, as columns: what is stored."""
        rows: dict[str, list[Any]] = {name: [] for name in ("panel", "label", "method", "x", "y")}
        for curve in self:
            for name in ("panel", "label", "method"):
                rows[name] += [getattr(curve, name)] * len(curve.x)
            rows["x"] += np.asarray(curve.x, float).tolist()
            rows["y"] += np.asarray(curve.y, float).tolist()
        return rows

    def bills(self) -> list[dict[str, Any]]:
        """What the run behind every curve sent."""
        return [
            {"panel": c.panel, "label": c.label, "method": c.method, **c.spent, **c.chosen}
            for c in self
            if c.spent
        ]


class Study(ABC):
    """One figure or table. Subclasses give it a `name`, which the catalogue finds."""

    name: ClassVar[str]
    """The paper and the figure: "000 fig1"."""
    paper: ClassVar[str]
    title: ClassVar[str]
    quick: ClassVar[Mapping[str, Any]]
    """Settings for seconds, the seed among them."""
    full: ClassVar[Mapping[str, Any]]
    """Settings as in the paper."""
    remark: ClassVar[str]
    """One sentence for the gallery: what agrees, what differs, and why."""

    @abstractmethod
    def run(self, settings: Mapping[str, Any]) -> Numbers:
        """The curves. Raises MissingData, which is a reason to skip, where a file is needed that is
        not here.
        """

    @abstractmethod
    def claims(self, numbers: Numbers) -> list[Claim]:
        """What the paper says in words about this figure, and whether these numbers say the
        same.
        """

    @abstractmethod
    def draw(self, numbers: Numbers) -> Figure:
        """The figure, in the paper's axes."""

    def record(
        self,
        numbers: Numbers,
        settings: Mapping[str, Any],
        size: str,
        seconds: float,
        processor_seconds: float,
    ) -> dict[str, Any]:
        """Everything but the curves, as plain values."""
        return {
            "study": self.name,
            "paper": self.paper,
            "title": self.title,
            "remark": self.remark,
            "size": size,
            "settings": dict(settings),
            "remarks": list(numbers.remarks),
            "claims": [asdict(claim) for claim in self.claims(numbers)],
            "bills": numbers.bills(),
            "seconds": round(seconds, 1),
            "processor_seconds": round(processor_seconds, 1),
            "version": version("coterie"),
            "machine": machine(),
        }


def spent(result: Result) -> dict[str, int]:
    """What a run sent, everything included, for the record."""
    total = result.bill.total
    return {
        "rounds": result.rounds,
        "messages": total.messages,
        "scalars": total.scalars,
        "bits": total.bits,
    }


def machine() -> dict[str, Any]:
    """What the numbers were computed on; names of hosts and people are left out."""
    return {
        "system": platform.system(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "scipy": version("scipy"),
    }
