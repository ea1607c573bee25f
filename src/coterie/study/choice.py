"""Which linear model suits the parties of a study: each is one user, and all messages are sums."""

from __future__ import annotations

from dataclasses import replace

from coterie.api.result import Result
from coterie.errors import Refused
from coterie.problems.shared.methods import SharedQuasiNewton
from coterie.run.bill import Cost
from coterie.run.settings import Limits
from coterie.stats.choosing import Choice
from coterie.stats.trying import Choose
from coterie.study.fits import Fits


def choose_together(fits: Fits) -> tuple[Result, Choice, Cost]:
    """The result of the model that was chosen, fitted to all rows; the choice; and what that
    cost.
    """
    study = fits.session.study
    if fits.ready.allowed is not None and SharedQuasiNewton.name not in fits.ready.allowed:
        raise Refused(
            "the choice needs the method 'shared', which not all policies allow. Name mu in "
            "[problem]."
        )
    penalty = {"loss": "logistic", "penalty": "l2", **study.problem}
    loss = penalty.pop("loss")
    settings = replace(study.settings(), limits=Limits())
    operation = Choose(study.make_problem(), settings, loss, penalty, among=True)
    chosen, sent = operation.together(fits.ready_for(operation))
    fits.say(str(chosen))
    result = fits.fit(chosen.candidate.problem, method=chosen.candidate.how["method"])
    return replace(result, explanation=f"{result.explanation} {chosen}"), chosen, sent
