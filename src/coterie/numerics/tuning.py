"""Constants that steer a method: one frozen `Tuning` in each file that has some, and for each where
it comes from.

    @dataclass(frozen=True)
    class _Tuning(Tuning):
        look_every: int = tuned(10, "Rounds from one look at the residual to the next.", "measured:
        ...")

    TUNING = _Tuning()

They are no parameters: users do not set them, and no result names them.
`tests/numerics/test_tuning.py` halves and doubles each on problems that it was not chosen on, and
bounds what that costs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple, Self, TypeVar

N = TypeVar("N", int, float)
SOURCES = ("theorem", "paper", "measured", "rounding")
"""How the origin of a constant begins: what proves it, who published it, what was measured, or how
numbers round.
"""


SWEPT = "measured: only by tests/numerics/test_tuning.py, which halves and doubles it"
"""The origin of a constant of which nothing else is on record."""


class Origin(NamedTuple):
    """What is known of a constant beside its value."""

    meaning: str
    source: str
    above: float
    """A factor of growth must stay above 1, ..."""
    below: float
    """... and a share of something below it."""
    costs: float
    """By what factor halving or doubling it may raise the bits of a run, on problems that it was
    not chosen on.
    """


@dataclass(frozen=True)
class Tuning:
    """The constants of one file, each made by `tuned`."""

    @classmethod
    def origins(cls) -> dict[str, Origin]:
        """What is known of each constant, by name."""
        return {entry.name: entry.metadata["origin"] for entry in fields(cls)}

    def changed(self) -> Iterator[tuple[str, Self]]:
        """Each constant halved, then doubled; where that is too much, half of the way to what it
        must stay within.
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
            for word, new in (("halved", half), ("doubled", double)):
                if new != value:
                    yield f"{name} {word}", replace(self, **{name: new})


def tuned(
    value: N,
    meaning: str,
    source: str = SWEPT,
    *,
    above: float = 0.0,
    below: float = math.inf,
    costs: float = 1.5,
) -> N:
    """A constant with its meaning and where it comes from, see `SOURCES`; a field of a `Tuning`."""
    constant: Any = field(
        default=value, metadata={"origin": Origin(meaning, source, above, below, costs)}
    )
    result: N = constant
    return result
