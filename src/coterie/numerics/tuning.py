"""Constants that steer a method, with their origins: at most one frozen `Tuning` in each file.

    @dataclass(frozen=True)
    class _Tuning(Tuning):
        look_every: int = tuned(10, "Rounds from one residual to the next.", "measured: ...")

    TUNING = _Tuning()

Users do not set these constants, and no result contains them. `tests/numerics/test_tuning.py`
halves and doubles each of them on problems that did not serve its choice, and bounds the costs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple, Self, TypeVar

N = TypeVar("N", int, float)
SOURCES = ("theorem", "paper", "measured", "rounding")
"""The first word of an origin: a proof, a publication, a measurement, or the rounding of numbers.
"""

SWEPT = "measured: only by tests/numerics/test_tuning.py, which halves and doubles it"
"""The origin of a constant without any other record."""


class Origin(NamedTuple):
    """The meaning of a constant, its source and its limits."""

    meaning: str
    source: str
    above: float
    """The constant must stay above this, for example a factor of growth above 1."""
    below: float
    """The constant must stay below this, for example a share below 1."""
    costs: float
    """The factor by which halving or doubling it may raise the bits of a run, on problems that did
    not serve its choice.
    """


@dataclass(frozen=True)
class Tuning:
    """The constants of one file, each made by `tuned`."""

    @classmethod
    def origins(cls) -> dict[str, Origin]:
        """Return the origin of each constant, by name."""
        return {entry.name: entry.metadata["origin"] for entry in fields(cls)}

    def changed(self) -> Iterator[tuple[str, Self]]:
        """Yield each constant halved, then doubled; if that exceeds its limits, half-way to the
        limit.
        """
        for name, origin in self.origins().items():
            value = getattr(self, name)
            if isinstance(value, int):
                half = max(value // 2, 1)
            else:
                half = value / 2
            if not half > origin.above:
                half = (value + origin.above) / 2
            if 2 * value < origin.below:
                double = 2 * value
            else:
                double = (value + origin.below) / 2
            for change, new in (("halved", half), ("doubled", double)):
                if new != value:
                    yield f"{name} {change}", replace(self, **{name: new})


def tuned(
    value: N,
    meaning: str,
    source: str = SWEPT,
    *,
    above: float = 0.0,
    below: float = math.inf,
    costs: float = 1.5,
) -> N:
    """Return a field of a `Tuning`: a constant with its meaning and its source, see `SOURCES`."""
    origin = Origin(meaning, source, above, below, costs)
    constant: Any = field(default=value, metadata={"origin": origin})
    result: N = constant
    return result
