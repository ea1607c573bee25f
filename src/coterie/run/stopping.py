"""When a run stops: the limits, and what its history says: when a certificate is worth its messages
again, and whether this is the end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real

from coterie.errors import InvalidProblem
from coterie.numerics.arrays import whole_number
from coterie.numerics.tuning import Tuning, tuned
from coterie.run.bill import Bill
from coterie.run.certificate import Bound
from coterie.run.settings import Limits
from coterie.run.statuses import Status


@dataclass(frozen=True)
class _Tuning(Tuning):
    first_few: int = tuned(
        10,
        "Where the first certificate waits for more rounds than these, the next ones wait as long.",
        "measured: `relay` has many cheap rounds",
    )
    still: int = tuned(
        8, "So many certificates with the same primal and dual, and the run stands still, ..."
    )
    same: float = tuned(
        1e-14, "... the same up to this share of them.", "rounding: some units in the last place"
    )
    rest: float = tuned(
        1.0,
        (
            "Where rounding alone is more than the target, a run ends when the rest of the gap is "
            "this share of it."
        ),
    )
    falls: float = tuned(
        0.5, "A gap falls if the newest is at most this share of the least before.", below=1
    )
    share: float = tuned(
        0.05,
        "Certificates may cost this share of the traffic of the rounds, ...",
        "measured: the promise of docs/concepts.md",
        below=1,
    )
    free: int = tuned(8, "... after so many.")
    patience: int = tuned(2000, "Before this round nothing is a stall, ...")
    same_gap: float = tuned(
        0.99, "... and then a gap that is not below this share of an early one.", below=1
    )
    lost: float = tuned(
        1e6, "A run has diverged when its primal is this many units above the best."
    )
    unseen: int = tuned(
        20, "For so many rounds a method's own word that the gap is still too large is taken."
    )
    believed: int = tuned(
        6, "So many times its word that the gap is small enough is worth a certificate."
    )
    fairer: float = tuned(
        2.0,
        (
            "Of the factor by which a method's last word was too small, this much may be gone one "
            "round later."
        ),
        "measured: newton and interior-point",
        above=1,
    )


TUNING = _Tuning()


def checked_limits(limits: Limits) -> Limits:
    """When to stop, if these numbers make sense."""
    max_rounds = whole_number("max_rounds", limits.max_rounds, least=0)
    check_every = limits.check_every
    if check_every is not None:
        check_every = whole_number("check_every", check_every)
    numbers = {"tol": limits.tol, "max_seconds": limits.max_seconds, "max_bits": limits.max_bits}
    for name, value in numbers.items():
        optional = name != "tol"
        if not (isinstance(value, Real) or (optional and value is None)):
            raise InvalidProblem(
                f"{name} must be a number{' or None' if optional else ''}, not {value!r}."
            )
    tol = limits.tol
    if not 0 < tol < 1:
        raise InvalidProblem(
            f"tol is a relative duality gap between 0 and 1, not {tol!r}; 1e-6 is usual, 0 is "
            "never reached."
        )
    for name, value in numbers.items():
        if value is not None and not value >= 0:
            raise InvalidProblem(f"{name} must not be negative, not {value!r}.")
    seconds, bits = (
        None if value is None else float(value) for value in (limits.max_seconds, limits.max_bits)
    )
    return Limits(float(tol), max_rounds, seconds, bits, check_every)


@dataclass(frozen=True)
class Record:
    """One line of the history: what was proven after that round, and what had been spent until
    then.
    """

    round: int
    seconds: float
    bits: int
    primal: float
    dual: float
    gap: float


def verdict(history: Sequence[Record], best: Bound, unit: float, tol: float) -> Status | None:
    """What the history says, if it says that this is the end."""
    if best.gap <= tol * unit:
        return Status.OPTIMAL if best.radius is None else Status.OPTIMAL_WITHIN_RADIUS
    if not history:
        return None
    last = history[-1]
    falls = len(history) < 2 or last.gap < TUNING.falls * min(record.gap for record in history[:-1])
    if limited_by_rounding(best, tol * unit, falls) or _stands_still(history):
        return Status.STALLED
    # Not the gap: where a claim is about models of bounded norm, it grows with the norm of the
    # model.
    if not math.isfinite(last.gap) or last.primal - best.primal > TUNING.lost * max(unit, best.gap):
        return Status.DIVERGED
    if last.round >= TUNING.patience and best.gap > TUNING.same_gap * _least(
        history, 0, last.round / 10
    ):
        # A lucky early point is no standstill while the gaps of today still fall.
        before = _least(history, last.round / 10, last.round / 2)
        if _least(history, last.round / 2, last.round) > TUNING.same_gap * before:
            return Status.STALLED
    return None


def limited_by_rounding(best: Bound, target: float, falls: bool = False) -> bool:
    """Whether the target is out of reach because of rounding: no further round, and no other
    method, helps.

    Either the rest of the gap is small enough, or rounding alone is more than the target and most
    of the gap, and the gap no longer falls: where losses go to 0, so does their rounding.
    """
    if best.gap <= target:
        return False
    rest = best.gap - best.rounding
    return rest <= target / 2 or (
        not falls and best.rounding > target and rest <= TUNING.rest * best.rounding
    )


def _stands_still(history: Sequence[Record]) -> bool:
    """Whether neither primal nor dual has moved by more than rounding for some time."""
    recent = history[-TUNING.still :]
    if len(recent) < TUNING.still or not math.isfinite(recent[-1].gap):
        return False
    rounding = TUNING.same * max(abs(recent[-1].primal), abs(recent[-1].primal - recent[-1].gap))
    spreads = (
        [record.primal for record in recent],
        [(record.primal - record.gap) for record in recent],
    )
    return all(max(values) - min(values) <= rounding for values in spreads)


def _least(history: Sequence[Record], after: float, until: float) -> float:
    """The smallest gap of the rounds in between."""
    return min(
        (record.gap for record in history if after < record.round <= until), default=math.inf
    )


def promised(history: Sequence[Record]) -> float:
    """The gap of the lowest primal and the highest dual so far, where that is one."""
    if not history:
        return math.inf
    pair = min(record.primal for record in history) - max(
        (record.primal - record.gap) for record in history
    )
    return min(history[-1].gap, pair) if pair > 0 else history[-1].gap


def worth_a_look(
    late: int, expected: float | None, target: float, looks: int, too_small: float = 1.0
) -> bool:
    """Whether to look so many rounds after the schedule says, where the method expects that gap, if
    it knows any.

    `too_small`: by what factor its word was too small when the last gap was proven, if that was one
    round ago.
    """
    if expected is None:
        return late >= 0
    if expected * max(too_small / TUNING.fairer, 1.0) > target:
        return late >= TUNING.unseen
    return late >= 0 or looks < TUNING.believed


def next_certificate(
    history: Sequence[Record],
    bill: Bill,
    target: float,
    check_every: int | None,
    first: int,
    after: int = 0,
) -> int:
    """When to look again: where the trend says the target is reached, but neither too often nor too
    late.

    After a few free looks, all of them together may cost one twentieth of what the rounds cost. Of
    a method that others went before, `after` so many rounds, only its own rounds count.
    """
    if after and check_every is None:
        own = [
            replace(record, round=record.round - after)
            for record in history
            if record.round > after
        ]
        return after + next_certificate(own, bill, target, None, first)
    if not history:
        return first if check_every is None else check_every
    last = history[-1]
    gap, gap_before = promised(history), promised(history[:-1])
    if check_every is not None:
        return last.round + check_every - last.round % check_every
    soonest = last.round + max(1, min(last.round // 3, 10 + last.round // 50))
    latest = max(
        soonest, last.round + max(first if first > TUNING.first_few else 0, last.round // 5)
    )
    ahead = math.inf
    if len(history) > 1 and 0 < gap < gap_before and target > 0:
        rate = math.log(gap_before / gap) / (last.round - history[-2].round)
        ahead = max(math.log(gap / target) / rate, 0.0)
    proofs, rounds = bill.per_purpose.get("proof"), bill.bits
    if proofs is not None and rounds:
        spent, each = proofs.bits, proofs.bits / len(history)
        if each * bill.rounds <= TUNING.share * rounds:
            # Next to such rounds a certificate costs nothing to send, only some time: every other
            # round will do while the target is 2 + 4 rounds of today's speed away, for which even
            # doubling it twice would take two.
            return last.round + (2 if 6 <= ahead < math.inf else 1)
        affordable = (spent + each - TUNING.free * each) * bill.rounds / (TUNING.share * rounds)
        # Where a proof costs as much as many rounds, one each time their number has doubled is not
        # too many.
        soonest = max(soonest, min(math.ceil(affordable), 2 * last.round))
    return max(soonest, min(latest, last.round + math.ceil(min(ahead, 1e9))))
