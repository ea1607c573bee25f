"""When a run ends, and when its next certificate is due: both follow from the limits and from the
history of certificates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from numbers import Real

import numpy as np

from coterie.errors import InvalidProblem
from coterie.numerics.arrays import FloatArray, whole_number
from coterie.numerics.tuning import Tuning, tuned
from coterie.run.bill import Bill
from coterie.run.certificate import Bound
from coterie.run.settings import Limits
from coterie.run.statuses import Status


@dataclass(frozen=True)
class _Tuning(Tuning):
    first_few: int = tuned(
        10,
        "If a method's first certificate is due after more rounds than these, so is each next one.",
        "measured: `relay` has many cheap rounds",
    )
    still: int = tuned(
        8, "A run stands still if this number of certificates have the same primal and dual."
    )
    same: float = tuned(
        1e-14,
        "Primals and duals are the same if they differ by at most this share.",
        "rounding: some units in the last place",
    )
    rest: float = tuned(
        1.0,
        (
            "If rounding alone exceeds the target, a run ends when the rest of the gap is this "
            "share of rounding."
        ),
    )
    falls: float = tuned(
        0.5, "A gap falls if the newest is at most this share of the least before.", below=1
    )
    share: float = tuned(
        0.05,
        "The share of the traffic of the rounds that certificates may cost.",
        "measured: the promise of docs/concepts.md",
        below=1,
    )
    free: int = tuned(8, "First certificates exempt from the traffic limit.")
    patience: int = tuned(2000, "Before this round a slow run is not called stalled.")
    same_gap: float = tuned(
        0.99,
        "From then on, a run stalls if its gap is not below this share of an early one.",
        below=1,
    )
    lost: float = tuned(
        1e6, "A run has diverged when its primal is this number of null losses above the best."
    )
    unseen: int = tuned(
        20,
        "Rounds without a certificate while the method expects a gap above the target.",
    )
    believed: int = tuned(
        6, "Certificates computed early because the method expects a gap below the target."
    )
    fairer: float = tuned(
        2.0,
        (
            "Of the factor by which a method's last expected gap was too small, this much may be "
            "gone one round later."
        ),
        "measured: newton and interior-point",
        above=1,
    )


TUNING = _Tuning()


def checked_limits(limits: Limits) -> Limits:
    """The limits, if their numbers are valid."""
    max_rounds = whole_number("max_rounds", limits.max_rounds, least=0)
    check_every = limits.check_every
    if check_every is not None:
        check_every = whole_number("check_every", check_every)
    tol = limits.tol
    if not _is_number(tol):
        raise InvalidProblem(f"tol must be a number, not {tol!r}.")
    for name, value in (("max_seconds", limits.max_seconds), ("max_bits", limits.max_bits)):
        if value is not None and not _is_number(value):
            raise InvalidProblem(f"{name} must be a number or None, not {value!r}.")
    if not 0 < tol < 1:
        raise InvalidProblem(
            f"tol is a relative duality gap between 0 and 1, not {tol!r}; 1e-6 is usual, 0 is "
            "never reached."
        )
    seconds = _at_least_zero("max_seconds", limits.max_seconds)
    bits = _at_least_zero("max_bits", limits.max_bits)
    return Limits(float(tol), max_rounds, seconds, bits, check_every)


def _is_number(value: object) -> bool:
    return isinstance(value, Real)


def _at_least_zero(name: str, value: float | None) -> float | None:
    if value is None:
        return None
    if not value >= 0:
        raise InvalidProblem(f"{name} must not be negative, not {value!r}.")
    return float(value)


@dataclass(frozen=True, slots=True)
class Record:
    """One line of the history: the certificate after a round, and the cost until then."""

    round: int
    seconds: float
    bits: int
    primal: float
    dual: float
    gap: float


def as_array(history: Sequence[Record]) -> FloatArray:
    """The history as one array, with a row for each record: a long run keeps it in every
    checkpoint.
    """
    names = [one.name for one in fields(Record)]
    rows = np.empty((len(history), len(names)))
    for place, name in enumerate(names):
        rows[:, place] = [getattr(record, name) for record in history]
    return rows


def of_array(rows: FloatArray) -> list[Record]:
    """The history that `as_array` wrote."""
    return [
        Record(int(round), seconds, int(bits), *numbers)
        for round, seconds, bits, *numbers in rows.tolist()
    ]


def of_later_rounds(history: Sequence[Record], after: int) -> list[Record]:
    """The records of the rounds after that one, counted from it."""
    return [
        replace(record, round=record.round - after) for record in history if record.round > after
    ]


def verdict(history: Sequence[Record], best: Bound, unit: float, tol: float) -> Status | None:
    """The status with which this history ends the run, if it does."""
    if best.gap <= tol * unit:
        return Status.OPTIMAL if best.radius is None else Status.OPTIMAL_WITHIN_RADIUS
    if not history:
        return None
    if limited_by_rounding(best, tol * unit, _falls(history)) or _stands_still(history):
        return Status.STALLED
    if _diverged(history[-1], best, unit):
        return Status.DIVERGED
    if _is_slow(history, best):
        return Status.STALLED
    return None


def _falls(history: Sequence[Record]) -> bool:
    """Whether the newest gap is clearly below all others."""
    if len(history) < 2:
        return True
    return history[-1].gap < TUNING.falls * min(record.gap for record in history[:-1])


def limited_by_rounding(best: Bound, target: float, falls: bool = False) -> bool:
    """Whether rounding keeps the gap above the target: no further round, and no other method,
    helps.

    Either the rest of the gap is small enough, or rounding alone exceeds the target and is most of
    the gap, and the gap no longer falls: where losses go to 0, so does their rounding.
    """
    if best.gap <= target:
        return False
    rest = best.gap - best.rounding
    if rest <= target / 2:
        return True
    return not falls and best.rounding > target and rest <= TUNING.rest * best.rounding


def _stands_still(history: Sequence[Record]) -> bool:
    """Whether neither primal nor dual has moved by more than rounding for some time."""
    recent = history[-TUNING.still :]
    if len(recent) < TUNING.still or not math.isfinite(recent[-1].gap):
        return False
    rounding = TUNING.same * max(abs(recent[-1].primal), abs(recent[-1].primal - recent[-1].gap))
    primals = [record.primal for record in recent]
    duals = [record.primal - record.gap for record in recent]
    return all(max(values) - min(values) <= rounding for values in (primals, duals))


def _diverged(last: Record, best: Bound, unit: float) -> bool:
    """Whether the newest model is far worse than the best one.

    The primal decides, not the gap: if a claim is about models of bounded norm, the gap grows with
    the norm of the model.
    """
    if not math.isfinite(last.gap):
        return True
    return last.primal - best.primal > TUNING.lost * max(unit, best.gap)


def _is_slow(history: Sequence[Record], best: Bound) -> bool:
    """Whether late gaps are no smaller than early ones, and no longer fall.

    After a lucky early point, a run is not stalled while its newest gaps still fall.
    """
    last = history[-1].round
    if last < TUNING.patience:
        return False
    if not best.gap > TUNING.same_gap * _least(history, 0, last / 10):
        return False
    before = _least(history, last / 10, last / 2)
    return _least(history, last / 2, last) > TUNING.same_gap * before


def _least(history: Sequence[Record], after: float, until: float) -> float:
    """The smallest gap of the rounds in between."""
    gaps = [record.gap for record in history if after < record.round <= until]
    return min(gaps, default=math.inf)


def promised(history: Sequence[Record]) -> float:
    """The gap between the lowest primal and the highest dual so far, if it is positive; else the
    newest gap.
    """
    if not history:
        return math.inf
    lowest = min(record.primal for record in history)
    highest = max(record.primal - record.gap for record in history)
    newest = history[-1].gap
    pair = lowest - highest
    return min(newest, pair) if pair > 0 else newest


def worth_a_look(
    late: int, expected: float | None, target: float, looks: int, too_small: float = 1.0
) -> bool:
    """Whether to compute a certificate `late` rounds after the scheduled one.

    expected   the gap that the method expects, if it knows one
    looks      the certificates so far
    too_small  the factor by which the expected gap was too small at a certificate one round ago
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
    """The round of the next certificate: when the trend reaches the target, but neither too often
    nor too late.

    After a few free ones, all certificates together may cost one twentieth of the traffic of the
    rounds.

    first  the round of a method's first certificate
    after  the rounds of the method before: only the rounds of the newest method count
    """
    if check_every is not None:
        last = history[-1].round if history else 0
        return last + check_every - last % check_every
    if after:
        own = of_later_rounds(history, after)
        return after + next_certificate(own, bill, target, None, first)
    if not history:
        return first
    last = history[-1].round
    ahead = _rounds_ahead(history, target)
    if _certificates_are_cheap(bill, len(history)):
        # Every other round suffices while the target is 2 + 4 rounds away at the present speed:
        # even if the speed doubled twice, it would take two.
        return last + (2 if 6 <= ahead < math.inf else 1)
    soonest = last + max(1, min(last // 3, 10 + last // 50))
    latest = last + max(first if first > TUNING.first_few else 0, last // 5)
    latest = max(soonest, latest)
    soonest = max(soonest, _affordable(bill, len(history), last))
    return max(soonest, min(latest, last + math.ceil(min(ahead, 1e9))))


def _rounds_ahead(history: Sequence[Record], target: float) -> float:
    """The rounds until the target is reached, at the speed since the certificate before."""
    gap, gap_before = promised(history), promised(history[:-1])
    if len(history) < 2 or not 0 < gap < gap_before or target <= 0:
        return math.inf
    rate = math.log(gap_before / gap) / (history[-1].round - history[-2].round)
    return max(math.log(gap / target) / rate, 0.0)


def _certificates_are_cheap(bill: Bill, looks: int) -> bool:
    """Whether a certificate after every round stays within its share of the traffic."""
    proofs = bill.per_purpose.get("proof")
    if proofs is None or not bill.bits:
        return False
    return proofs.bits / looks * bill.rounds <= TUNING.share * bill.bits


def _affordable(bill: Bill, looks: int, last: int) -> int:
    """The first round after which another certificate stays within the share of the traffic; at
    most twice the last round, if one proof costs as much as many rounds.
    """
    proofs = bill.per_purpose.get("proof")
    if proofs is None or not bill.bits:
        return 0
    each = proofs.bits / looks
    paid = proofs.bits + each - TUNING.free * each
    return min(math.ceil(paid * bill.rounds / (TUNING.share * bill.bits)), 2 * last)
