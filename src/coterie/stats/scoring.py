"""How well a model predicts, from sums over the rows of all parties: no row and no prediction is
told.

    Sum  rows, weights, losses and errors of all rows
    Sum  of classes: counts of each in fixed bins of probability, of which a confusion matrix
         follows
    Sum  of numbers: what the best constant, which needs the mean label, leaves
    Sum  counts of the classes in parts of these bins, cut where it matters (`curves`); of numbers,
         in tenths

No group of rows that is told has fewer rows of a party than a minimum, unless it has none
(`groups`): bins are pooled, and scores that would need smaller groups are NaN.

Deviance is 2 Σ s (ℓ(u; y) − min ℓ), and min ℓ = −ℓ*(0; y), so each term is a Fenchel–Young term at
         0: none cancels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import expit, log_softmax, logit, xlogy

from coterie.api.evaluation import Bin, Evaluation
from coterie.data import Table
from coterie.errors import InvalidData, InvalidProblem
from coterie.numerics.arrays import FloatArray, product
from coterie.numerics.kernels.bins import counts, first_edges
from coterie.numerics.losses import Loss
from coterie.problems.problem import Problem
from coterie.run.collectives import Protocol, Sum
from coterie.run.groups import agree_on_edges, allowed, halving
from coterie.stats.curves import Curve, curves
from coterie.stats.quantiles import quantiles

BINS = 10
"""Fixed bins of probability; of numbers, tenths of the predictions."""


def raw_scores(model: Any, table: Table) -> FloatArray:
    """The scores of these rows, or this party's part of them, without the intercept."""
    scores = product(table.X, model.coef_.T).astype(float)
    if table.offset is not None:
        scores += table.offset if scores.ndim == 1 else table.offset[:, None]
    return scores


def check_problem(problem: Problem) -> None:
    """Refuse problems whose models are not evaluated here."""
    if not problem.kind.stats.evaluates:
        raise InvalidProblem(
            f"evaluate is for models of rows, and a {problem.kind.called} is of another kind. "
            "Score what its `predict` "
            "says."
        )


def measured(
    model: Any, table: Table, scores: FloatArray, *, minimum: float = 1, room: float = math.inf
) -> Protocol[Evaluation]:
    """The scores of a model: `table.y` has labels as the fit had them, −1 and +1, places of
    classes, or numbers.
    """
    assert table.y is not None
    limits = {"minimum": minimum, "room": room}
    found: Evaluation = yield from model.problem.kind.stats.measured(model, table, scores, limits)
    return found


def labels_and_weights(table: Table) -> tuple[FloatArray, FloatArray]:
    """Labels and weights in double precision."""
    assert table.y is not None
    weights = np.ones(table.n) if table.weights is None else table.weights.astype(float)
    return table.y.astype(float), weights


# -- two classes -----------------------------------------------------------------------------------


def of_two(model: Any, table: Table, u: FloatArray, limits: dict[str, Any]) -> Protocol[Evaluation]:
    """Scores for labels −1 and +1."""
    y, s = labels_and_weights(table)
    loss = model.problem.loss
    yes = y > 0
    likely = type(loss).probability is not Loss.probability
    p = loss.probability(u, 1.0) if likely else None
    distance = (0.0 if p is None else p) - yes
    brier = float((s * distance**2).sum())
    has_offset = float(table.offset is not None)
    mine = np.array([float(len(y)), has_offset, float(s.sum()), loss.value(u, y, s), brier])
    rows, shifted, n, lost, squares = (yield Sum(mine)).tolist()
    n = _some(n)
    classes = tuple(model.classes_.tolist())
    known = yield from _first_bins(u, yes, p, s, limits["minimum"])
    limits = _less(limits, len(mine) + known.size)
    found = {"mean_loss": lost / n}
    if likely:
        null = math.nan if shifted else _null_deviance_of_two(known, n)
        found = deviances(2 * lost, null) | {"log_loss": lost / n}
    curve = _UNKNOWN
    if known.classes_told:
        curve = (yield from curves([u], [yes], s, start=[known.curve], **limits))[0]
    found |= _of_confusion(known.confusion, n, curve)
    if likely:
        found |= {"brier": squares / n, "calibration_error": _calibration_error(known.calibration)}
    return Evaluation(
        "",
        int(rows),
        n,
        {name: found[name] for name in _ORDER if name in found},
        curve.bound,
        classes,
        known.confusion,
        known.calibration,
        {str(classes[1]): curve.points()},
        notes=notes_on(_left_out(known.classes_told, known.confusion is not None)),
    )


_ORDER = (
    "deviance",
    "null_deviance",
    "explained_deviance",
    "log_loss",
    "mean_loss",
    "accuracy",
    "balanced_accuracy",
    "auc",
    "brier",
    "calibration_error",
    "sensitivity",
    "specificity",
    "precision",
    "f1",
)
"""Of scores of two classes."""
_UNKNOWN = Curve(np.array([-np.inf, np.inf]), np.zeros(1), np.zeros(1))
"""A curve of which nothing is known."""


def _null_deviance_of_two(known: _Known, n: float) -> float:
    """The deviance of the share of positives, for all rows."""
    if not known.classes_told:
        return math.nan
    share = float(known.curve.positives.sum()) / n
    return -2 * n * float(xlogy(share, share) + xlogy(1 - share, 1 - share))


def _of_confusion(confusion: FloatArray | None, n: float, curve: Curve) -> dict[str, float]:
    """What follows from the counts of both classes and both predictions, and the area under the
    curve.
    """
    cells = np.full((2, 2), math.nan) if confusion is None else confusion
    (true_no, false_yes), (false_no, true_yes) = cells.tolist()
    sensitivity = ratio(true_yes, true_yes + false_no)
    specificity = ratio(true_no, true_no + false_yes)
    return {
        "accuracy": (true_no + true_yes) / n,
        "balanced_accuracy": (sensitivity + specificity) / 2,
        "auc": curve.auc,
        "sensitivity": sensitivity,
        "specificity": specificity,
        "precision": ratio(true_yes, true_yes + false_yes),
        "f1": ratio(2 * true_yes, 2 * true_yes + false_yes + false_no),
    }


def _left_out(classes_told: bool, cells_told: bool) -> list[str]:
    """What a minimum of rows leaves out: classes, or only how they are confused."""
    if not classes_told:
        return ["classes"]
    if not cells_told:
        return ["confusion"]
    return []


@dataclass(frozen=True)
class _Known:
    """Two classes in the first bins of their scores."""

    curve: Curve
    classes_told: bool
    confusion: FloatArray | None
    calibration: tuple[Bin, ...]
    size: int
    """How many numbers were told for it."""


def _first_bins(
    u: FloatArray, yes: Any, p: FloatArray | None, s: FloatArray, minimum: float
) -> Protocol[_Known]:
    """Counts of both classes where the prediction changes and, if there are probabilities, in
    tenths of these.
    """
    tenths = np.empty(0) if p is None else logit(np.arange(1, BINS) / BINS)
    edges = np.concatenate([[-np.inf], np.sort(np.append(tenths, CHANGE)), [np.inf]])
    last = len(edges) - 2
    first = int(np.searchsorted(edges, CHANGE)) - 1
    order = [first, *(k for k in halving(last) if k != first)]
    local = np.column_stack([counts(u[rows], edges) for rows in (yes, ~yes)]).astype(np.intp)
    (told_apart,) = yield from allowed([local.sum(axis=0)], minimum)
    size = (1 + last) * (minimum > 1)
    if not told_apart:
        return _Known(_UNKNOWN, False, None, (), size)
    (edges,) = yield from agree_on_edges([edges], [local], minimum, order)
    parts = [counts(u[rows], edges, s[rows]) for rows in (yes, ~yes)]
    if p is not None:
        parts.append(counts(u, edges, s * p))
    told = (yield Sum(np.concatenate(parts))).reshape(len(parts), -1)
    positives, negatives = told[:2]
    confusion = None
    if CHANGE in edges:
        above = edges[:-1] >= CHANGE
        confusion = np.array(
            [[one[~above].sum(), one[above].sum()] for one in (negatives, positives)]
        )
    calibration = () if p is None else _calibrated(edges, told)
    return _Known(
        Curve(edges, positives, negatives), True, confusion, calibration, size + told.size
    )


CHANGE = float(np.nextafter(0.0, 1.0))
"""Scores above 0 are predicted as the second class."""


def _calibrated(edges: FloatArray, told: FloatArray) -> tuple[Bin, ...]:
    """Bins of probability, from positives, negatives and probabilities in bins of the score."""
    positives, negatives, predicted = told
    ends = np.array([k for k, edge in enumerate(edges) if edge != CHANGE])
    pooled = [
        np.add.reduceat(one, ends[:-1]) for one in (positives + negatives, predicted, positives)
    ]
    shown = np.concatenate([[0.0], np.round(expit(edges[ends[1:-1]]) * BINS) / BINS, [1.0]])
    return _bins(shown, np.concatenate(pooled))


# -- several classes -------------------------------------------------------------------------------


def of_classes(
    model: Any, table: Table, u: FloatArray, limits: dict[str, Any]
) -> Protocol[Evaluation]:
    """Scores for labels that are the places of classes."""
    labels, s = labels_and_weights(table)
    y = labels.astype(np.intp)
    classes = tuple(model.classes_.tolist())
    logs = log_softmax(u, axis=1)
    told = yield from _answers(logs, y, s, len(classes), limits["minimum"])
    n, held = told.n, told.held
    known = [_UNKNOWN] * len(classes)
    if held is not None:
        starts = [
            Curve(_UNKNOWN.edges, held[k : k + 1], n - held[k : k + 1]) for k in range(len(classes))
        ]
        among = [y == k for k in range(len(classes))]
        p = np.exp(logs)
        known = yield from curves(list(p.T), among, s, start=starts, **_less(limits, told.size))
    accuracy, recalls = told.accuracy, np.full(1, math.nan)
    if told.confusion is not None:
        rows_of_class = told.confusion.sum(axis=1)
        accuracy = float(told.confusion.trace()) / n
        recalls = told.confusion.diagonal()[rows_of_class > 0] / rows_of_class[rows_of_class > 0]
    null = math.nan if held is None else -2 * float(xlogy(held, held / n).sum())
    areas = np.array([curve.auc for curve in known])
    found = deviances(2 * told.lost, null) | {
        "log_loss": told.lost / n,
        "accuracy": accuracy,
        "balanced_accuracy": float(recalls.mean()),
        "auc": float(areas.mean()),
        "brier": told.squares / n,
        "calibration_error": _calibration_error(told.calibration),
    }
    return Evaluation(
        "",
        told.rows,
        n,
        found,
        max(curve.bound for curve in known),
        classes,
        told.confusion,
        told.calibration,
        {str(label): curve.points() for label, curve in zip(classes, known, strict=True)},
        notes=notes_on(_left_out(held is not None, told.confusion is not None)),
    )


@dataclass(frozen=True)
class _Answers:
    """Several classes: losses, and how often the most likely class is right."""

    rows: int
    n: float
    """Weights of all rows."""
    lost: float
    squares: float
    accuracy: float
    calibration: tuple[Bin, ...]
    held: FloatArray | None
    """The weights of each class."""
    confusion: FloatArray | None
    size: int
    """How many numbers were told for it."""


def _answers(
    logs: FloatArray, y: Any, s: FloatArray, classes: int, minimum: float
) -> Protocol[_Answers]:
    """Sums of losses, and counts by class and by the probability of the most likely class, as far
    as allowed.
    """
    local = np.arange(len(y))
    p = np.exp(logs)
    best = p.argmax(axis=1) if len(y) else y
    errors = p.copy()
    errors[local, y] -= 1
    right = best == y
    chosen = p[local, best]
    cells = _confusion(y, best, np.ones(len(y)), classes)
    bins = _fixed_edges()
    answers = np.column_stack([counts(chosen[rows], bins) for rows in (right, ~right)]).astype(
        np.intp
    )
    groupings = [cells, cells.sum(axis=1), answers.sum(axis=0)]
    told_cells, told_classes, told_answers = yield from allowed(groupings, minimum)
    lost = -float((s * logs[local, y]).sum())
    squares = float((s * (errors**2).sum(axis=1)).sum())
    said = [np.array([float(len(y)), float(s.sum()), lost, squares])]
    if told_answers:
        (bins,) = yield from agree_on_edges([bins], [answers], minimum)
        said += [
            counts(chosen, bins, s * part)
            for part in (np.ones(len(y)), chosen, right.astype(float))
        ]
    if told_classes:
        whole = _confusion(y, best, s, classes)
        said.append(whole.ravel() if told_cells else whole.sum(axis=1))
    told = yield Sum(np.concatenate(said))
    rows, n, lost, squares = told[:4].tolist()
    n = _some(n)
    by_class = told[4:]
    calibration: tuple[Bin, ...] = ()
    accuracy = math.nan
    if told_answers:
        size = 3 * (len(bins) - 1)
        in_bins, by_class = np.split(by_class, [size])
        calibration = _bins(np.append(bins[:-1], 1.0), in_bins)
        accuracy = float(in_bins.reshape(3, -1)[2].sum()) / n
    held = by_class if told_classes else None
    confusion = by_class.reshape(classes, classes) if told_cells else None
    if confusion is not None:
        held = confusion.sum(axis=1)
    asked = 3 + len(answers) if minimum > 1 else 0
    return _Answers(
        int(rows), n, lost, squares, accuracy, calibration, held, confusion, told.size + asked
    )


# -- numbers ---------------------------------------------------------------------------------------


def of_numbers(
    model: Any, table: Table, u: FloatArray, limits: dict[str, Any]
) -> Protocol[Evaluation]:
    """Scores for labels that are numbers."""
    y, s = labels_and_weights(table)
    loss = model.problem.loss
    m = loss.response(u)
    offset = np.zeros(len(y)) if table.offset is None else table.offset
    likelihood = loss.dispersion is not None
    excess = loss.fenchel_young(u, np.zeros(len(u)), y, s) if likelihood else loss.value(u, y, s)
    sums = [
        s,
        s * y,
        s * m,
        s * (y - m) ** 2,
        s * np.abs(y - m),
        *_for_constant(loss, y, s, offset),
    ]
    told = yield Sum(np.array([float(len(y)), excess, *(float(part.sum()) for part in sums)]))
    rows, lost, n, labels, predicted, squares, errors, *mean = told.tolist()
    n = _some(n)
    constant = loss.constant(ratio(*mean)) if likelihood else None
    left = (
        0.0 if constant is None else loss.fenchel_young(offset + constant, np.zeros(len(y)), y, s)
    )
    nulls = yield Sum(np.array([left, float((s * (y - labels / n) ** 2).sum())]))
    found = deviances(2 * lost, 2 * float(nulls[0])) if likelihood else {"mean_loss": lost / n}
    found["r2"] = 1 - ratio(squares, float(nulls[1]))
    found["rmse"] = math.sqrt(squares / n)
    found["mae"] = errors / n
    found["mean_observed"] = labels / n
    found["mean_predicted"] = predicted / n
    if loss.counts:
        found["events"] = labels
    if loss.name == "quantile" and not likelihood:
        found["share_below"] = yield from _share_below(y <= m, s, n, limits["minimum"])
    limits = _less(limits, told.size + nulls.size + 3 * BINS + 2)
    if limits["room"] < len(first_edges()):
        return Evaluation("", int(rows), n, found)
    edges = yield from _tenths(m, limits)
    parts = [counts(m, edges, s * part) for part in (np.ones(len(m)), m, y)]
    in_bins = yield Sum(np.concatenate(parts))
    return Evaluation("", int(rows), n, found, calibration=_bins(edges, in_bins))


def _share_below(below: Any, s: FloatArray, n: float, minimum: float) -> Protocol[float]:
    """The share of labels up to their prediction; NaN if few rows of a party are on one side."""
    (told,) = yield from allowed([[below.sum(), (~below).sum()]], minimum)
    if not told:
        return math.nan
    weight = yield Sum(np.array([float((s * below).sum())]))
    return float(weight[0]) / n


def _tenths(m: FloatArray, limits: dict[str, Any]) -> Protocol[FloatArray]:
    """Edges between tenths of the predictions of all parties."""
    tenths = yield from quantiles([m], [k / BINS for k in range(1, BINS)], precision=1e-3, **limits)
    inner = tenths.values[0]
    if limits["minimum"] > 1:
        # Of the bins that were counted, so that no difference of counts is about a part of one.
        counted = tenths.edges[0][1:-1]
        nearest = [np.abs(counted - value).argmin() for value in inner] if len(counted) else []
        inner = counted[np.array(nearest, np.intp)]
    return np.unique(np.concatenate([[-np.inf], inner, [np.inf]]))


def _for_constant(
    loss: Loss, y: FloatArray, s: FloatArray, offset: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Numerator and denominator of the mean from which the best constant, given the offset,
    follows.
    """
    if not loss.steep:
        return s * (y - offset), s
    if loss.dispersion:
        # Amounts: Σ s (1 − y e^{−o − c}) = 0.
        return s * y * np.exp(-offset), s
    # Counts: Σ s (e^{o + c} − y) = 0.
    return s * y, s * np.exp(offset)


def explained_deviance(
    loss: Loss, u: FloatArray, y: FloatArray, s: FloatArray, offset: FloatArray
) -> float:
    """D² of scores u: the share of the null deviance, that of the best constant with the same
    offset, which is gone.
    """
    at_zero = np.zeros(len(y))
    numerator, denominator = _for_constant(loss, y, s, offset)
    constant = loss.constant(ratio(float(numerator.sum()), float(denominator.sum())))
    if constant is None:
        return math.nan
    null = loss.fenchel_young(offset + constant, at_zero, y, s)
    return 1 - ratio(loss.fenchel_young(u, at_zero, y, s), null)


# -- pieces ----------------------------------------------------------------------------------------


_LEFT_OUT = {
    "events": "the number of events and the concordance: fewer rows with or without an event",
    "classes": "classes, calibration and AUC: fewer rows of a class",
    "confusion": "confusion and what follows from it: fewer rows of a class with one prediction",
}


def notes_on(left_out: Sequence[str]) -> tuple[str, ...]:
    """Why some scores are not there."""
    return tuple(
        f"Not told are {_LEFT_OUT[what]} at a party than minimum-count." for what in left_out
    )


def _some(n: float) -> float:
    if not n > 0:
        raise InvalidData("no party has a row to evaluate the model on. Give data with labels.")
    return float(n)


def _less(limits: dict[str, Any], told: int) -> dict[str, Any]:
    return {**limits, "room": limits["room"] - told}


def ratio(part: float, whole: float) -> float:
    """A share; NaN of nothing."""
    return part / whole if whole else math.nan


def deviances(deviance: float, null: float) -> dict[str, float]:
    """The deviance and, where that of a constant is known, the share of it that is gone."""
    if math.isnan(null):
        return {"deviance": deviance}
    return {
        "deviance": deviance,
        "null_deviance": null,
        "explained_deviance": 1 - ratio(deviance, null),
    }


def _confusion(true: Any, predicted: Any, s: FloatArray, classes: int) -> FloatArray:
    cells = np.bincount(true * classes + predicted, s, minlength=classes**2)
    return cells.astype(float).reshape(classes, classes)


def _fixed_edges() -> FloatArray:
    """Of probabilities; the last bin has 1, too."""
    return np.append(np.arange(BINS) / BINS, np.inf)


def _bins(edges: FloatArray, told: FloatArray) -> tuple[Bin, ...]:
    """Bins, from weights, predictions and labels in each."""
    bins = []
    for (low, high), (weight, predicted, observed) in zip(
        pairwise(edges.tolist()), told.reshape(3, -1).T.tolist(), strict=True
    ):
        bins.append(Bin(low, high, weight, ratio(predicted, weight), ratio(observed, weight)))
    return tuple(bins)


def _calibration_error(bins: tuple[Bin, ...]) -> float:
    """How far predictions are from what came true, over the bins, in the mean."""
    filled = [one for one in bins if one.weight]
    if not filled:
        return math.nan
    return sum(one.weight * abs(one.predicted - one.observed) for one in filled) / sum(
        one.weight for one in filled
    )
