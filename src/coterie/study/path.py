"""A path of strengths between organisations: every fit as alone, folds kept back at the parties,
sums of losses told.

Folds come from the seed and the numbers of rows, which all know. Where labels are classes, the
parties add up whether they have enough rows of each class outside every fold, so that each leaves
rows of every class; split by features, the party with the labels says whether that is so.
"""

from __future__ import annotations

import numpy as np

from coterie.api.path import Path
from coterie.api.result import Result
from coterie.data.table import Indices
from coterie.errors import InvalidProblem
from coterie.problems import points_of
from coterie.problems.problem import Problem
from coterie.run.bill import Bill, Cost
from coterie.run.rounds import introduced
from coterie.stats.folds import (
    counts_by_fold,
    deal,
    first_usable,
    is_usable,
    leaves_enough,
    mean_loss,
    only,
    refuse_lonely,
    rows_outside_folds,
    without,
)
from coterie.stats.strengths import gradient_at_constant, grid, knob
from coterie.study.fits import Fits, whole


def path_together(fits: Fits) -> Path:
    """The path that the study asks for, with the scores of its folds."""
    study = fits.session.study
    asked = study.path
    assert asked is not None
    rows = (
        fits.parties.cards[0].rows
        if study.split == "features"
        else sum(part.rows for part in fits.parties.cards)
    )
    if asked.cv > rows:
        raise InvalidProblem(
            f"{asked.cv} folds need at least {asked.cv} rows, but there are {rows}."
        )
    folds, sent = _folds(fits)
    sent += _of_preparation(fits)
    strengths, cost = (asked.strengths, Cost()) if asked.strengths is not None else _grid(fits)
    sent += cost
    problems = [study.make_problem(strength) for strength in strengths]
    results: list[Result] = []
    for place, problem in enumerate(problems):
        called = knob(problem.penalty.settings())
        fits.say(f"{called} {place + 1} of {len(problems)}: {strengths[place]:.4g}")
        results.append(whole(fits.fit(problem, before=results[-1] if results else None)))
    methods = [str(result.certificate.settings["method"]["name"]) for result in results]
    scores = np.empty((asked.cv, len(problems)))
    for fold in range(asked.cv):
        fits.say(f"fold {fold + 1} of {asked.cv}")
        before = None
        for place, problem in enumerate(problems):
            fitted = fits.fit(
                problem,
                table=without(fits.table, folds, fold),
                method=methods[place],
                before=before,
                called=f"fold {fold} of {asked.cv}",
            )
            before = whole(fitted)
            scores[fold, place], cost = _score(fits, problem, before, folds, fold)
            sent += before.bill.total + cost
    return Path(strengths, tuple(results), scores, sent, asked.rule)


def _of_preparation(fits: Fits) -> Cost:
    bill = Bill(fits.session.network)
    if fits.ready.sent is not None:
        bill.restore(fits.ready.sent)
    return bill.total


def _folds(fits: Fits) -> tuple[Indices, Cost]:
    """The folds of this party's rows, and what it cost to agree on them."""
    study, me = fits.session.study, fits.session.me
    assert study.path is not None
    cv, rows = study.path.cv, [part.rows for part in fits.parties.cards]
    classes = fits.ready.classes
    if classes is None:
        return deal(rows, study.split, cv, study.seed)[me], Cost()
    problem = study.make_problem().with_classes(classes)
    labels = problem.kind.data.codes(classes)
    transport, y = fits.transport(), fits.table.y

    def usable(attempt: int) -> list[Indices] | None:
        folds = deal(rows, study.split, cv, study.seed, attempt)
        counts = (
            np.zeros((cv, len(labels))) if y is None else counts_by_fold(y, folds[me], cv, labels)
        )
        if study.split == "features":
            if y is not None:
                refuse_lonely(counts, classes)
            refused = y is not None and not is_usable(counts)
            return (
                None
                if transport.converse([rows_outside_folds(np.array([float(refused)]))], "setup")[0][
                    0
                ]
                else folds
            )
        mine = leaves_enough(counts, fits.session.own.policy.minimum_count)
        parties = transport.converse([rows_outside_folds(mine.ravel())], "setup")[0]
        filled = np.bincount(np.concatenate(folds), minlength=cv) > 0
        return folds if filled.all() and (parties > 0).all() else None

    return first_usable(usable, cv)[me], transport.bill.total


def _grid(fits: Fits) -> tuple[tuple[float, ...], Cost]:
    """The strengths that the data gives, and what it cost to find them."""
    study = fits.session.study
    assert study.path is not None
    transport = fits.transport()
    agents = introduced([fits.member(fits.table, study.make_problem())], transport, "setup")
    slope = transport.converse([gradient_at_constant(agents[0])], "setup")[0]
    return grid(agents[0], slope, study.path.count), transport.bill.total


def _score(
    fits: Fits, problem: Problem, result: Result, folds: Indices, fold: int
) -> tuple[float, Cost]:
    """The mean loss on the rows that were kept back, at all parties, and what it cost to know."""
    agent, transport = fits.member(only(fits.table, folds, fold), problem), fits.transport()
    protocol = mean_loss(agent, points_of(result.model, [agent])[0].w, result.model)
    return transport.converse([protocol], "proof")[0], transport.bill.total
