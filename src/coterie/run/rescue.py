"""Rescue an "auto" run that stalls or diverges, or would take too many rounds.

The run continues once, from its best model and dual so far, with the most exact method that fits,
whose agents are `careful`. Each certificate shows how fast the gap g falls, in logarithms per
round, since the newest certificate of the first half of all rounds (or since the beginning, where g
is the null loss). From this follow the rounds that are left until the target ε:

    left = log(g/ε) · rounds since then / log(g then/g)

The decision uses gaps and rounds, never a clock: all processes of a run decide alike, on every
engine, and so does a run that continues from a snapshot.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from coterie.numerics.tuning import Tuning, tuned
from coterie.run.steps import Steps
from coterie.run.stopping import Record, promised


@dataclass(frozen=True)
class _Tuning(Tuning):
    patience: int = tuned(
        300, "A method whose gap still falls may be rescued by another one after these rounds."
    )
    patience_alone: int = tuned(1000, "It may be rescued by careful agents after these rounds.")
    endless: int = tuned(
        10_000, "It is rescued only if more than these rounds are left at its speed."
    )


TUNING = _Tuning()


@dataclass(frozen=True)
class Rescue:
    """The change of the method of a run that stalled."""

    name: str
    """The method from then on."""
    after: int
    """The rounds before it."""
    because: str
    """The reason, as a sentence for the user."""


@dataclass(frozen=True)
class Rescuable:
    """The method of an "auto" run, and the one with which it continues if it stalls."""

    name: str
    steps: Steps
    name_after: str
    steps_after: Steps
    asynchronous: ClassVar[bool] = False

    @property
    def states(self) -> dict[str, tuple[type, ...]]:
        """The classes of each method's State."""
        return {self.name: self.steps.states, self.name_after: self.steps_after.states}

    def written(self, rescue: Rescue | None) -> tuple[str, list[Any] | None]:
        """The name of the current method, and the rescue that led to it, for a snapshot."""
        if rescue is None:
            return self.name, None
        return rescue.name, list(vars(rescue).values())

    def rescued(self, history: Sequence[Record], unit: float) -> Rescue:
        """The rescue after this history."""
        t, gap = history[-1].round, min(record.gap for record in history)
        reason = (
            f"After {t} rounds the run stood still at a relative gap of {gap / unit:.2g}: it went "
            f"on with {self.name_after} in careful steps, in double precision."
        )
        return Rescue(self.name_after, t, reason)

    def is_hopeless(self, history: Sequence[Record], unit: float, target: float) -> bool:
        """Whether the first method would take too many rounds."""
        patience = TUNING.patience
        if self.name == self.name_after:
            patience = TUNING.patience_alone
        if history[-1].round < patience:
            return False
        return _rounds_left(history, unit, target) > TUNING.endless


def _rounds_left(history: Sequence[Record], unit: float, target: float) -> float:
    """The rounds that are left at the speed of the second half of all rounds so far."""
    now, gap = history[-1].round, promised(history)
    early = [record for record in history if record.round <= now / 2]
    since, then = 0, unit
    if early:
        since, then = early[-1].round, promised(early)
    if not (math.isfinite(then) and 0 < gap < then and target > 0):
        return 0.0 if gap <= target else math.inf
    return max(math.log(gap / target), 0.0) * (now - since) / math.log(then / gap)
