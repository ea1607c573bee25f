"""An "auto" run compares its rounds with what was expected, and changes its method once if another
is clearly cheaper.

After a share of the rounds that were expected (or many times as many, if they were few), each
certificate says how fast the gap g falls, in logarithms a round, since the newest certificate of
the first half of all rounds (or since the beginning, where g is one unit), and so how many rounds
are left until the target ε. What a round costs is known, too: its bits and hops are on the bill.

    left = log(g/ε) · rounds since then / log(g then/g)
    cost = left · (expected work of a round + its share of what the bill takes on that link)

The run changes if that is more than twice what the other method is expected to cost from its
beginning, though it begins at the best model and dual so far; once the first method has had all the
rounds that were expected, if it is more
at all, because a gap that falls slower and slower promises too much. Only gaps, rounds and bits
enter, never a clock: all processes of a run decide alike, on every engine, and so does a run that
continues from a snapshot.

A run that stalls or diverges, or that has no end at its pace, is rescued once: from its best model
and dual, with the most exact method that fits, whose agents are `careful`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from coterie.numerics.tuning import Tuning, tuned
from coterie.run.bill import Bill
from coterie.run.steps import Steps
from coterie.run.stopping import Record, promised


@dataclass(frozen=True)
class _Tuning(Tuning):
    soonest: int = tuned(20, "Before this round nothing is changed, ...")
    share: float = tuned(
        0.25, "... nor before this share of the rounds that were expected, ...", below=1
    )
    patience: float = tuned(
        10.0,
        (
            "... nor, where less than `soonest` were, before so many times as many: such methods "
            "are "
            "fast in the end."
        ),
        "measured: hinge on w8a with bounds",
        above=1,
    )
    dear: float = tuned(
        10.0, "Methods of few rounds are preferred, up to this many times what the first one costs."
    )
    hopeless: int = tuned(
        300, "Before this round of a method nothing is rescued by another that still moves, ..."
    )
    hopeless_alone: int = tuned(1000, "... nor before this one by the same method, ...")
    endless: int = tuned(10_000, "... nor if fewer rounds are left at its pace.")
    clearly: float = tuned(
        2.0, "By what factor rounds left must cost more, until all expected ones are over.", above=1
    )


TUNING = _Tuning()


@dataclass(frozen=True)
class Candidate:
    """A method that may run, and what it was expected to take."""

    name: str
    steps: Steps
    rounds: float
    seconds: float
    """Those of all rounds, as `methods/auto/costs.py` estimates them, ..."""
    work: float
    """... and those of them in which agents compute."""

    def after(self, first: Candidate) -> tuple[bool, float]:
        """By what to choose a method that may follow that one: the smallest is the best."""
        few, dear = self.rounds < TUNING.soonest, self.seconds > TUNING.dear * first.seconds
        return not few or dear, self.seconds


@dataclass(frozen=True)
class Change:
    """That a run went on with another method."""

    name: str
    """The method now."""
    after: int
    """The rounds before it."""
    because: str
    """A sentence for people."""
    rescue: bool = False
    """Whether it had stalled, so that agents are careful now."""


@dataclass(frozen=True)
class Switching:
    """The methods of an "auto" run."""

    first: Candidate
    other: Candidate | None
    """What it may be changed to, if anything."""
    link: tuple[float, float]
    """Seconds per hop and bits per second."""
    rescue: Candidate | None = None
    """What a run that stalled goes on with, if anything."""
    asynchronous: ClassVar[bool] = False

    @property
    def states(self) -> dict[str, tuple[type, ...]]:
        """By name of the method, the classes of its State."""
        known = (self.first, self.other, self.rescue)
        return {one.name: one.steps.states for one in known if one is not None}

    @property
    def slower_rounds(self) -> bool:
        """Whether a method of few rounds would be changed to one of many: to be careful comes
        before that.
        """
        return self.other is not None and self.first.rounds < TUNING.soonest <= self.other.rounds

    def steps_after(self, change: Change) -> Steps:
        """What a run goes on with after that change."""
        chosen = self.rescue if change.rescue else self.other
        assert chosen is not None, "there is nothing to change to"
        return chosen.steps

    def written(self, change: Change | None) -> tuple[str, list[Any] | None]:
        """For a snapshot: which method it is, and the change that led to it."""
        return (
            (self.first.name, None)
            if change is None
            else (change.name, list(vars(change).values()))
        )

    def change(
        self, history: Sequence[Record], bill: Bill, unit: float, target: float
    ) -> Change | None:
        """The change that the history asks for, if it does."""
        first, other, t = self.first, self.other, history[-1].round
        if other is None:
            return None
        share = TUNING.patience if first.rounds < TUNING.soonest else TUNING.share
        if t < max(TUNING.soonest, share * first.rounds):
            return None
        left = _rounds_left(history, unit, target)
        seconds = left * (first.work / first.rounds + _sending(bill, self.link) / t)
        if not seconds > (TUNING.clearly if t < first.rounds else 1.0) * other.seconds:
            return None
        more = (
            f"about {left:.0f} more rounds, or {seconds:.2g} s"
            if left < math.inf
            else "no end of rounds"
        )
        return Change(
            other.name,
            t,
            f"After {t} rounds it was changed to {other.name}: at this pace {first.name} would "
            f"have needed {more}, and "
            f"{other.name} is expected to need {other.seconds:.2g} s.",
        )

    def rescued(
        self, history: Sequence[Record], unit: float, before: Change | None
    ) -> Change | None:
        """The change of a run that stalled; None if it was rescued before, or nothing can."""
        if self.rescue is None or (before is not None and before.rescue):
            return None
        t, gap = history[-1].round, min(record.gap for record in history)
        reason = (
            f"After {t} rounds the run stood still at a relative gap of {gap / unit:.2g}: it went "
            "on with "
        )
        reason += f"{self.rescue.name} in careful steps, in double precision."
        if before is not None:
            reason = f"{before.because} {reason}"
        return Change(self.rescue.name, t, reason, rescue=True)

    def hopeless(
        self, history: Sequence[Record], unit: float, target: float, change: Change | None
    ) -> bool:
        """Whether the method after that change, or the first one, has no end at its pace."""
        if self.rescue is None:
            return False
        name, after = (self.first.name, 0) if change is None else (change.name, change.after)
        patience = TUNING.hopeless_alone if name == self.rescue.name else TUNING.hopeless
        return (
            history[-1].round - after >= patience
            and _rounds_left(history, unit, target) > TUNING.endless
        )


def _sending(bill: Bill, link: tuple[float, float]) -> float:
    """Seconds on that link for all that was sent since the set-up."""
    before = sum(
        cost.bits
        for purpose, cost in bill.per_purpose.items()
        if purpose in ("preparation", "setup")
    )
    return bill.seconds(*link) * (1 - before / max(bill.total.bits, 1))


def _rounds_left(history: Sequence[Record], unit: float, target: float) -> float:
    """How many rounds are left at the pace of the second half of all so far."""
    now, gap = history[-1].round, promised(history)
    early = [place for place, record in enumerate(history, 1) if record.round <= now / 2]
    since, then = (
        (history[early[-1] - 1].round, promised(history[: early[-1]])) if early else (0, unit)
    )
    if not (math.isfinite(then) and 0 < gap < then and target > 0):
        return 0.0 if gap <= target else math.inf
    return max(math.log(gap / target), 0.0) * (now - since) / math.log(then / gap)
