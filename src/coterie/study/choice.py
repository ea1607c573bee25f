"""Which linear model suits the parties of a study: each is one user, and all messages are sums.

The same search as in one process (`coterie.stats.choosing`): a party deals its own rows into folds,
learns with the others from all but one, and tells how it did on that one, added to what the others
tell.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from coterie.api.result import Result
from coterie.errors import Refused
from coterie.numerics.arrays import FloatArray
from coterie.problems.shared.methods import SharedQuasiNewton
from coterie.run.bill import Cost
from coterie.run.settings import Limits
from coterie.stats.choosing import (
    FOLDS,
    LINEAR,
    QUICK,
    Candidate,
    Choice,
    Marks,
    Scale,
    choose,
    deal_by_class,
    marks_of,
    sums_of,
    sums_of_choice,
)
from coterie.stats.fitting import whole
from coterie.stats.folds import counts_by_fold, leaves_enough, only, without
from coterie.study.fits import Fits


class OneOfMany:
    """This party's rows, as those of one user among others."""

    folds = FOLDS

    def __init__(self, fits: Fits):
        study = fits.session.study
        self.fits, self.sent = fits, Cost()
        self._own = deal_by_class(
            fits.table, fits.session.me, FOLDS, study.seed, fits.ready.classes is not None
        )
        self._last: dict[int, Result] = {}

    def marks(self, candidate: Candidate, fold: int) -> Marks:
        fits = self.fits
        kept, held = (pick(fits.table, self._own, fold) for pick in (without, only))
        fitted = fits.fit(
            candidate.problem,
            table=kept,
            method=candidate.how["method"],
            before=self._last.get(fold),
            called=f"choice, fold {fold}",
            limits=Limits(**QUICK),
        )
        result = whole(fitted)
        self._last[fold] = result
        self.sent += result.bill.total
        found = marks_of(
            result.model,
            replace(held, name=fits.table.name),
            fits.ready.classes is not None,
        )
        right, losses, rows = (np.array([number]) for number in found)
        return Marks(right, losses, rows, result.bill.total.bits)

    def add(self, numbers: FloatArray) -> FloatArray:
        transport = self.fits.transport()
        total: FloatArray = transport.converse([sums_of_choice(numbers)], "proof")[0].astype(float)
        self.sent += transport.bill.total
        return total

    def usable(self) -> bool:
        """Whether every fold leaves rows, and of every class some, to learn from."""
        labels = np.zeros(1) if self.fits.ready.classes is None else np.array([-1.0, 1.0])
        y = None if self.fits.ready.classes is None else self.fits.table.y
        counts = counts_by_fold(y, self._own, self.folds, labels)
        mine = leaves_enough(counts, self.fits.session.own.policy.minimum_count)
        return bool((self.add(mine.ravel()) > 0).all())


def choose_together(fits: Fits) -> tuple[Result, Choice, Cost]:
    """The result of the model that was chosen, fitted to all rows; the choice; and what that
    cost.
    """
    study, holder = fits.session.study, OneOfMany(fits)
    if fits.ready.allowed is not None and SharedQuasiNewton.name not in fits.ready.allowed:
        raise Refused(
            "the choice needs the method 'shared', which not all policies allow. Name mu in "
            "[problem]."
        )
    named = {"loss": "logistic", "penalty": "l2", **study.problem}
    loss = named.pop("loss")
    scale = Scale.of(holder.add(sums_of([fits.table])))
    chosen = choose(holder, scale, holder.usable(), loss=loss, penalty=named, wanted=LINEAR)
    fits.say(str(chosen))
    result = fits.fit(chosen.candidate.problem, method=chosen.candidate.how["method"])
    return replace(result, explanation=f"{result.explanation} {chosen}"), chosen, holder.sent
