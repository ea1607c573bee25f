"""Evaluate how well a model predicts, from sums over the rows of all parties.

No row and no prediction is sent.

    Sum  rows, weights, losses and errors of all rows
    Sum  of classes: counts of each in fixed bins of probability, of which a confusion matrix
         follows
    Sum  of numbers: the loss of the best constant, which needs the mean label
    Sum  counts of the classes in parts of these bins, cut where it matters (`curves`); of numbers,
         in tenths

Every group of rows that is sent has at least a minimum number of rows of a party, or none
(`groups`). Bins are pooled, and scores that would need smaller groups are NaN.

Deviance is 2 Σ s (ℓ(u; y) − min ℓ). As min ℓ = −ℓ*(0; y), each term is a Fenchel–Young term at 0,
and none cancels.
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
    offset = table.offset
    if offset is None:
        return scores
    if scores.ndim > 1:
        offset = offset[:, None]
    scores += offset
    return scores


def check_problem(problem: Problem) -> None:
    """Refuse problems whose models are not evaluated here."""
    if not problem.kind.stats.evaluates:
        raise InvalidProblem(
            f"evaluate is for models of rows, and a {problem.kind.called} is of another kind. "
            "Score the output of its `predict`."
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
    labels = table.y.astype(float)
    if table.weights is None:
        return labels, np.ones(table.n)
    return labels, table.weights.astype(float)


# -- two classes -----------------------------------------------------------------------------------


def of_two(model: Any, table: Table, u: FloatArray, limits: dict[str, Any]) -> Protocol[Evaluation]:
    """Scores for labels −1 and +1."""
    y, s = labels_and_weights(table)
    loss = model.problem.loss
    yes = y > 0
    likely = type(loss).probability is not Loss.probability
    p: FloatArray | None = None
    errors = 0.0 - yes
    if likely:
        p = loss.probability(u, 1.0)
        errors = p - yes
    brier = float((s * errors**2).sum())
    has_offset = float(table.offset is not None)
    mine = np.array([float(len(y)), has_offset, float(s.sum()), loss.value(u, y, s), brier])
    total = yield Sum(mine)
    rows, shifted, n, lost, squares = total.tolist()
    n = _some(n)
    classes = tuple(model.classes_.tolist())
    known = yield from _first_bins(u, yes, p, s, limits["minimum"])
    limits = _less(limits, len(mine) + known.size)
    curve = _UNKNOWN
    if known.has_classes:
        (curve,) = yield from curves([u], [yes], s, start=[known.curve], **limits)
    found = {"mean_loss": lost / n}
    if likely:
        null = math.nan
        if not shifted:
            null = _null_deviance_of_two(known, n)
        found = deviances(2 * lost, null)
        found["log_loss"] = lost / n
        found["brier"] = squares / n
        found["calibration_error"] = _calibration_error(known.calibration)
    found |= _of_confusion(known.confusion, n, curve)
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
        notes=notes_on(_left_out(known.has_classes, known.confusion is not None)),
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
    if not known.has_classes:
        return math.nan
    share = float(known.curve.positives.sum()) / n
    return -2 * n * float(xlogy(share, share) + xlogy(1 - share, 1 - share))


def _of_confusion(confusion: FloatArray | None, n: float, curve: Curve) -> dict[str, float]:
    """The scores that follow from a confusion matrix, and the area under the curve."""
    if confusion is None:
        confusion = np.full((2, 2), math.nan)
    (true_no, false_yes), (false_no, true_yes) = confusion.tolist()
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


def _left_out(has_classes: bool, has_confusion: bool) -> list[str]:
    """What a minimum of rows leaves out: classes, or only how they are confused."""
    if not has_classes:
        return ["classes"]
    if not has_confusion:
        return ["confusion"]
    return []


@dataclass(frozen=True)
class _Known:
    """Two classes in the first bins of their scores."""

    curve: Curve
    has_classes: bool
    """Whether the rows of each class may be sent."""
    confusion: FloatArray | None
    calibration: tuple[Bin, ...]
    size: int
    """The numbers that a party sent for it."""


def _first_bins(
    u: FloatArray, yes: Any, p: FloatArray | None, s: FloatArray, minimum: float
) -> Protocol[_Known]:
    """Counts of both classes where the prediction changes and, if there are probabilities, in
    tenths of these.
    """
    tenths = np.empty(0)
    if p is not None:
        tenths = logit(np.arange(1, BINS) / BINS)
    inner = np.sort(np.append(tenths, CHANGE))
    edges = np.concatenate([[-np.inf], inner, [np.inf]])
    last = len(edges) - 2
    first = int(np.searchsorted(edges, CHANGE)) - 1
    order = [first, *(k for k in halving(last) if k != first)]
    classes = (yes, ~yes)
    local = np.column_stack([counts(u[rows], edges) for rows in classes]).astype(np.intp)
    (has_classes,) = yield from allowed([local.sum(axis=0)], minimum)
    size = 0
    if minimum > 1:
        size = 1 + last
    if not has_classes:
        return _Known(_UNKNOWN, False, None, (), size)
    (edges,) = yield from agree_on_edges([edges], [local], minimum, order)
    parts = [counts(u[rows], edges, s[rows]) for rows in classes]
    if p is not None:
        parts.append(counts(u, edges, s * p))
    total = yield Sum(np.concatenate(parts))
    in_bins = total.reshape(len(parts), -1)
    positives, negatives = in_bins[:2]
    curve = Curve(edges, positives, negatives)
    calibration: tuple[Bin, ...] = ()
    if p is not None:
        calibration = _calibrated(edges, in_bins)
    return _Known(curve, True, _confusion_of_two(curve), calibration, size + total.size)


def _confusion_of_two(curve: Curve) -> FloatArray | None:
    """The confusion matrix, if an edge of the bins is where the prediction changes."""
    if CHANGE not in curve.edges:
        return None
    above = curve.edges[:-1] >= CHANGE
    rows = []
    for weights in (curve.negatives, curve.positives):
        rows.append([weights[~above].sum(), weights[above].sum()])
    return np.array(rows)


CHANGE = float(np.nextafter(0.0, 1.0))
"""Scores above 0 are predicted as the second class."""


def _calibrated(edges: FloatArray, in_bins: FloatArray) -> tuple[Bin, ...]:
    """Bins of probability, from positives, negatives and probabilities in bins of the score."""
    positives, negatives, predicted = in_bins
    ends = np.array([k for k, edge in enumerate(edges) if edge != CHANGE])
    weights = positives + negatives
    pooled = [np.add.reduceat(one, ends[:-1]) for one in (weights, predicted, positives)]
    tenths = np.round(expit(edges[ends[1:-1]]) * BINS) / BINS
    shown = np.concatenate([[0.0], tenths, [1.0]])
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
    answers = yield from _answers(logs, y, s, len(classes), limits["minimum"])
    n = answers.n
    held = answers.held
    known = [_UNKNOWN] * len(classes)
    null = math.nan
    if held is not None:
        null = -2 * float(xlogy(held, held / n).sum())
        limits = _less(limits, answers.size)
        known = yield from _curves_of_classes(np.exp(logs), y, s, held, n, limits)
    areas = np.array([curve.auc for curve in known])
    found = deviances(2 * answers.lost, null) | {
        "log_loss": answers.lost / n,
        "accuracy": answers.accuracy,
        "balanced_accuracy": _balanced_accuracy(answers.confusion),
        "auc": float(areas.mean()),
        "brier": answers.squares / n,
        "calibration_error": _calibration_error(answers.calibration),
    }
    points = {str(label): curve.points() for label, curve in zip(classes, known, strict=True)}
    return Evaluation(
        "",
        answers.rows,
        n,
        found,
        max(curve.bound for curve in known),
        classes,
        answers.confusion,
        answers.calibration,
        points,
        notes=notes_on(_left_out(held is not None, answers.confusion is not None)),
    )


def _curves_of_classes(
    p: FloatArray, y: Any, s: FloatArray, held: FloatArray, n: float, limits: dict[str, Any]
) -> Protocol[list[Curve]]:
    """The curve of each class against all others."""
    starts = []
    members = []
    for k in range(len(held)):
        in_class = held[k : k + 1]
        starts.append(Curve(_UNKNOWN.edges, in_class, n - in_class))
        members.append(y == k)
    found = yield from curves(list(p.T), members, s, start=starts, **limits)
    return found


def _balanced_accuracy(confusion: FloatArray | None) -> float:
    """The mean recall of the classes that have rows."""
    if confusion is None:
        return math.nan
    rows_of_class = confusion.sum(axis=1)
    filled = rows_of_class > 0
    recalls = confusion.diagonal()[filled] / rows_of_class[filled]
    return float(recalls.mean())


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
    """The numbers that a party sent for it."""


def _answers(
    logs: FloatArray, y: Any, s: FloatArray, classes: int, minimum: float
) -> Protocol[_Answers]:
    """Sums of losses, and counts by class and by the probability of the most likely class, as far
    as allowed.
    """
    local = np.arange(len(y))
    p = np.exp(logs)
    best = y
    if len(y):
        best = p.argmax(axis=1)
    errors = p.copy()
    errors[local, y] -= 1
    right = best == y
    chosen = p[local, best]
    ones = np.ones(len(y))
    cells = _confusion(y, best, ones, classes)
    bins = _fixed_edges()
    by_answer = np.column_stack([counts(chosen[rows], bins) for rows in (right, ~right)])
    answers = by_answer.astype(np.intp)
    groupings = [cells, cells.sum(axis=1), answers.sum(axis=0)]
    has_cells, has_classes, has_answers = yield from allowed(groupings, minimum)
    lost = -float((s * logs[local, y]).sum())
    squares = float((s * (errors**2).sum(axis=1)).sum())
    message = [np.array([float(len(y)), float(s.sum()), lost, squares])]
    if has_answers:
        (bins,) = yield from agree_on_edges([bins], [answers], minimum)
        for part in (ones, chosen, right.astype(float)):
            message.append(counts(chosen, bins, s * part))
    if has_cells and has_classes:
        message.append(_confusion(y, best, s, classes).ravel())
    elif has_classes:
        message.append(_confusion(y, best, s, classes).sum(axis=1))
    total = yield Sum(np.concatenate(message))
    rows, n, lost, squares = total[:4].tolist()
    n = _some(n)
    by_class = total[4:]
    calibration: tuple[Bin, ...] = ()
    accuracy = math.nan
    if has_answers:
        in_bins, by_class = np.split(by_class, [3 * (len(bins) - 1)])
        calibration = _bins(np.append(bins[:-1], 1.0), in_bins)
        accuracy = float(in_bins.reshape(3, -1)[2].sum()) / n
    held = None
    confusion = None
    if has_classes:
        held = by_class
    if has_cells:
        confusion = by_class.reshape(classes, classes)
        held = confusion.sum(axis=1)
        accuracy = float(confusion.trace()) / n
    asked = 0
    if minimum > 1:
        asked = 3 + len(answers)
    size = total.size + asked
    return _Answers(int(rows), n, lost, squares, accuracy, calibration, held, confusion, size)


# -- numbers ---------------------------------------------------------------------------------------


def of_numbers(
    model: Any, table: Table, u: FloatArray, limits: dict[str, Any]
) -> Protocol[Evaluation]:
    """Scores for labels that are numbers."""
    y, s = labels_and_weights(table)
    loss = model.problem.loss
    m = loss.response(u)
    zeros = np.zeros(len(y))
    offset = zeros if table.offset is None else table.offset
    likelihood = loss.dispersion is not None
    if likelihood:
        excess = loss.fenchel_young(u, zeros, y, s)
    else:
        excess = loss.value(u, y, s)
    numerator, denominator = _for_constant(loss, y, s, offset)
    by_row = [s, s * y, s * m, s * (y - m) ** 2, s * np.abs(y - m), numerator, denominator]
    sums = [float(part.sum()) for part in by_row]
    total = yield Sum(np.array([float(len(y)), excess, *sums]))
    rows, lost, n, labels, predicted, squares, errors, *mean = total.tolist()
    n = _some(n)
    left = 0.0
    if likelihood:
        constant = loss.constant(ratio(*mean))
        if constant is not None:
            left = loss.fenchel_young(offset + constant, zeros, y, s)
    spread = float((s * (y - labels / n) ** 2).sum())
    nulls = yield Sum(np.array([left, spread]))
    null, total_spread = nulls.tolist()
    if likelihood:
        found = deviances(2 * lost, 2 * null)
    else:
        found = {"mean_loss": lost / n}
    found["r2"] = 1 - ratio(squares, total_spread)
    found["rmse"] = math.sqrt(squares / n)
    found["mae"] = errors / n
    found["mean_observed"] = labels / n
    found["mean_predicted"] = predicted / n
    if loss.counts:
        found["events"] = labels
    if loss.name == "quantile" and not likelihood:
        found["share_below"] = yield from _share_below(y <= m, s, n, limits["minimum"])
    limits = _less(limits, total.size + nulls.size + 3 * BINS + 2)
    if limits["room"] < len(first_edges()):
        return Evaluation("", int(rows), n, found)
    edges = yield from _tenths(m, limits)
    parts = [counts(m, edges, s * part) for part in (np.ones(len(m)), m, y)]
    in_bins = yield Sum(np.concatenate(parts))
    return Evaluation("", int(rows), n, found, calibration=_bins(edges, in_bins))


def _share_below(below: Any, s: FloatArray, n: float, minimum: float) -> Protocol[float]:
    """The share of labels up to their prediction; NaN if few rows of a party are on one side."""
    (enough,) = yield from allowed([[below.sum(), (~below).sum()]], minimum)
    if not enough:
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
        nearest = []
        if len(counted):
            nearest = [np.abs(counted - value).argmin() for value in inner]
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
    """D² of scores u: the share of the null deviance that the model explains. The null deviance is
    that of the best constant with the same offset.
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
    """Why some scores are missing."""
    return tuple(f"Left out: {_LEFT_OUT[what]} at a party than minimum-count." for what in left_out)


def _some(n: float) -> float:
    if not n > 0:
        raise InvalidData("no party has a row to evaluate the model on. Give data with labels.")
    return float(n)


def _less(limits: dict[str, Any], sent: int) -> dict[str, Any]:
    return {**limits, "room": limits["room"] - sent}


def ratio(part: float, whole: float) -> float:
    """A share; NaN if the whole is 0."""
    if not whole:
        return math.nan
    return part / whole


def deviances(deviance: float, null: float) -> dict[str, float]:
    """The deviance and, where that of a constant is known, the share of it that is explained."""
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


def _bins(edges: FloatArray, in_bins: FloatArray) -> tuple[Bin, ...]:
    """Bins, from weights, predictions and labels in each."""
    sums = in_bins.reshape(3, -1).T.tolist()
    bins = []
    for (low, high), (weight, predicted, observed) in zip(
        pairwise(edges.tolist()), sums, strict=True
    ):
        bins.append(Bin(low, high, weight, ratio(predicted, weight), ratio(observed, weight)))
    return tuple(bins)


def _calibration_error(bins: tuple[Bin, ...]) -> float:
    """The mean distance of predictions and observed shares, weighted by rows."""
    filled = [one for one in bins if one.weight]
    if not filled:
        return math.nan
    distance = sum(one.weight * abs(one.predicted - one.observed) for one in filled)
    return distance / sum(one.weight for one in filled)
