"""Change the method of an "auto" run once, if its rounds take clearly longer than another method is
expected to take.

After a share of the expected rounds (or a multiple, if they were few), each certificate shows how
fast the gap g falls, in logarithms per round, since the newest certificate of the first half of all
rounds (or since the beginning, where g is the null loss). From this follow the rounds that are left
until the target ε. The bill gives the cost of a round: its bits and hops.

    left = log(g/ε) · rounds since then / log(g then/g)
    cost = left · (expected work of a round + its share of what the bill takes on that link)

The run changes if this cost is more than twice the expected cost of the other method from its
beginning, although that starts at the best model and dual so far. After all expected rounds of the
first method, it changes if the cost is greater at all, because a gap that falls ever more slowly
promises too much. The decision uses gaps, rounds and bits, never a clock: all processes of a run
decide alike, on every engine, and so does a run that continues from a snapshot.

A run that stalls or diverges, or would take too many rounds, is rescued once: it continues from its
best model and dual, with the most exact method that fits, whose agents are `careful`.
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
    soonest: int = tuned(20, "The first round after which the method may change.")
    share: float = tuned(
        0.25, "The method may change after this share of its expected rounds.", below=1
    )
    patience: float = tuned(
        10.0,
        (
            "A method with fewer expected rounds than `soonest` may change after this multiple of "
            "them: such methods converge fast in the end."
        ),
        "measured: hinge on w8a with bounds",
        above=1,
    )
    dear: float = tuned(
        10.0, "Methods of few rounds are preferred, up to this multiple of the first one's cost."
    )
    hopeless: int = tuned(
        300, "A method whose gap still falls may be rescued by another one after these rounds."
    )
    hopeless_alone: int = tuned(1000, "It may be rescued by careful agents after these rounds.")
    endless: int = tuned(
        10_000, "It is rescued only if more than these rounds are left at its speed."
    )
    clearly: float = tuned(
        2.0,
        "The factor by which the rounds left must cost more, before all expected ones are over.",
        above=1,
    )


TUNING = _Tuning()


@dataclass(frozen=True)
class Candidate:
    """A method that may run, and its expected cost."""

    name: str
    steps: Steps
    rounds: float
    seconds: float
    """The seconds of all rounds, as `methods/auto/costs.py` estimates them."""
    work: float
    """The part of `seconds` in which agents compute."""

    def after(self, first: Candidate) -> tuple[bool, float]:
        """The key by which the method to follow that one is chosen: the smallest is the best."""
        few = self.rounds < TUNING.soonest
        dear = self.seconds > TUNING.dear * first.seconds
        return not few or dear, self.seconds


@dataclass(frozen=True)
class Change:
    """A change of the method during a run."""

    name: str
    """The method from then on."""
    after: int
    """The rounds before it."""
    because: str
    """The reason, as a sentence for the user."""
    rescue: bool = False
    """Whether the run had stalled, so that agents are careful from then on."""


@dataclass(frozen=True)
class Switching:
    """The methods of an "auto" run."""

    first: Candidate
    other: Candidate | None
    """A cheaper method, if there is one."""
    link: tuple[float, float]
    """Seconds per hop and bits per second."""
    rescue: Candidate | None = None
    """The method with which a stalled run continues, if there is one."""
    asynchronous: ClassVar[bool] = False

    @property
    def states(self) -> dict[str, tuple[type, ...]]:
        """The classes of each method's State."""
        known = (self.first, self.other, self.rescue)
        return {one.name: one.steps.states for one in known if one is not None}

    @property
    def slower_rounds(self) -> bool:
        """Whether a method of few rounds would change to one of many. Careful agents are tried
        before that.
        """
        return self.other is not None and self.first.rounds < TUNING.soonest <= self.other.rounds

    def steps_after(self, change: Change) -> Steps:
        """The method with which a run continues after that change."""
        chosen = self.rescue if change.rescue else self.other
        assert chosen is not None, "there is no method to change to"
        return chosen.steps

    def written(self, change: Change | None) -> tuple[str, list[Any] | None]:
        """The name of the current method, and the change that led to it, for a snapshot."""
        if change is None:
            return self.first.name, None
        return change.name, list(vars(change).values())

    def change(
        self, history: Sequence[Record], bill: Bill, unit: float, target: float
    ) -> Change | None:
        """The change to the other method, if it is cheaper now."""
        first, other, t = self.first, self.other, history[-1].round
        if other is None:
            return None
        share = TUNING.patience if first.rounds < TUNING.soonest else TUNING.share
        if t < max(TUNING.soonest, share * first.rounds):
            return None
        left = _rounds_left(history, unit, target)
        seconds = left * (first.work / first.rounds + _sending(bill, self.link) / t)
        factor = TUNING.clearly if t < first.rounds else 1.0
        if not seconds > factor * other.seconds:
            return None
        more = "no end of rounds"
        if left < math.inf:
            more = f"about {left:.0f} more rounds, or {seconds:.2g} s"
        reason = (
            f"After {t} rounds it was changed to {other.name}: at this rate {first.name} would "
            f"have needed {more}, and {other.name} is expected to need {other.seconds:.2g} s."
        )
        return Change(other.name, t, reason)

    def rescued(
        self, history: Sequence[Record], unit: float, before: Change | None
    ) -> Change | None:
        """The change of a run that stalled; None if it was rescued before, or no method can rescue
        it.
        """
        if self.rescue is None or (before is not None and before.rescue):
            return None
        t, gap = history[-1].round, min(record.gap for record in history)
        reason = (
            f"After {t} rounds the run stood still at a relative gap of {gap / unit:.2g}: it went "
            f"on with {self.rescue.name} in careful steps, in double precision."
        )
        if before is not None:
            reason = f"{before.because} {reason}"
        return Change(self.rescue.name, t, reason, rescue=True)

    def hopeless(
        self, history: Sequence[Record], unit: float, target: float, change: Change | None
    ) -> bool:
        """Whether the method after that change, or the first one, would take too many rounds."""
        if self.rescue is None:
            return False
        name, after = self.first.name, 0
        if change is not None:
            name, after = change.name, change.after
        patience = TUNING.hopeless_alone if name == self.rescue.name else TUNING.hopeless
        if history[-1].round - after < patience:
            return False
        return _rounds_left(history, unit, target) > TUNING.endless


def _sending(bill: Bill, link: tuple[float, float]) -> float:
    """Seconds on that link for all messages since the set-up."""
    before = 0
    for purpose, cost in bill.per_purpose.items():
        if purpose in ("preparation", "setup"):
            before += cost.bits
    return bill.seconds(*link) * (1 - before / max(bill.total.bits, 1))


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
