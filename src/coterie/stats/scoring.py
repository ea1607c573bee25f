"""Evaluate the predictions of a model, from sums over the rows of all parties.

No party sends a row or a prediction.

    Sum  rows, weights, losses and errors of all rows
    Sum  for classes: counts of each in fixed bins of probability, and from these a confusion
         matrix
    Sum  for numbers: the null loss, which needs the mean label
    Sum  counts of the classes in parts of these bins (`curves` chooses them); for numbers, in
         tenths

Every group of rows in a message has at least a minimum number of rows of a party, or none
(`groups`). Parties pool bins, and scores that need smaller groups are NaN.

Deviance is 2 Σ s (ℓ(u; y) − min ℓ). As min ℓ = −ℓ*(0; y), each term is a Fenchel–Young term at 0,
so no terms cancel.
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
from coterie.problems.models import AnyModel, Model
from coterie.problems.problem import Problem
from coterie.run.collectives import Protocol
from coterie.run.groups import (
    Part,
    agree_on_edges,
    allowed,
    checked_counts,
    checked_weights,
    halving,
    released,
)
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
    """Refuse problems whose kind has no measures of rows."""
    if not problem.kind.stats.evaluates:
        raise InvalidProblem(
            f"evaluate is for models of rows, and a {problem.kind.called} is of another kind. "
            "Score the output of its `predict`."
        )


def measured(
    model: AnyModel,
    table: Table,
    scores: FloatArray,
    *,
    minimum: float = 1,
    allowance: float = math.inf,
) -> Protocol[Evaluation]:
    """Measures of a model; `table.y` has labels as the fit had them: −1 and +1, places of classes,
    or numbers.
    """
    assert table.y is not None
    limits = {"minimum": minimum, "allowance": allowance}
    stats = model.problem.kind.stats
    found: Evaluation = yield from stats.measured(model, table, scores, limits)
    return found


def labels_and_weights(table: Table) -> tuple[FloatArray, FloatArray]:
    """Labels and weights in double precision."""
    assert table.y is not None
    labels = table.y.astype(float)
    if table.weights is None:
        return labels, np.ones(table.n)
    return labels, table.weights.astype(float)


# -- two classes -----------------------------------------------------------------------------------


def of_two(
    model: Model[Problem[Loss]], table: Table, u: FloatArray, limits: dict[str, Any]
) -> Protocol[Evaluation]:
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
    own_loss = loss.value(u, y, s)
    own = np.array([float(len(y)), has_offset, float(s.sum()), own_loss, brier])
    total = yield released(limits["minimum"], len(y), Part(own, len(y)))
    checked_counts(total[:2], own[:2], "rows")
    rows, shifted, n, losses, squares = total.tolist()
    n = _some(n)
    classes = tuple(model.classes_.tolist())
    known = yield from _first_bins(u, yes, p, s, limits["minimum"])
    limits = _less(limits, len(own) + known.size)
    curve = _UNKNOWN
    if known.has_classes:
        (curve,) = yield from curves([u], [yes], s, start=[known.curve], **limits)
    found = {"mean_loss": losses / n}
    if likely:
        null = math.nan
        if not shifted:
            null = _null_deviance_of_two(known, n)
        found = deviances(2 * losses, null)
        found["log_loss"] = losses / n
        found["brier"] = squares / n
        found["calibration_error"] = _calibration_error(known.calibration)
    found |= _of_confusion(known.confusion, n, curve)
    scores = {name: found[name] for name in _ORDER if name in found}
    left_out = _left_out(known.has_classes, known.confusion is not None)
    points = {str(classes[1]): curve.points()}
    return Evaluation(
        "",
        int(rows),
        n,
        scores,
        curve.bound,
        classes,
        known.confusion,
        known.calibration,
        points,
        notes=notes_on(left_out),
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
"""The order of the scores of two classes."""
_UNKNOWN = Curve(np.array([-np.inf, np.inf]), np.zeros(1), np.zeros(1))
"""A curve without any counts."""


def _null_deviance_of_two(known: _Known, n: float) -> float:
    """The deviance of the share of positives, for all rows."""
    if not known.has_classes:
        return math.nan
    share = float(known.curve.positives.sum()) / n
    entropy = float(xlogy(share, share) + xlogy(1 - share, 1 - share))
    return -2 * n * entropy


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
    """The scores that a minimum of rows leaves out: all of classes, or the confusion matrix."""
    if not has_classes:
        return ["classes"]
    if not has_confusion:
        return ["confusion"]
    return []


@dataclass(frozen=True)
class _Known:
    """Counts of two classes in the first bins of their scores."""

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
    """Counts of both classes below and above the change of the prediction and, if there are
    probabilities, in tenths of them.
    """
    tenths = np.empty(0)
    if p is not None:
        tenths = logit(np.arange(1, BINS) / BINS)
    inner = np.sort(np.append(tenths, CHANGE))
    edges = np.concatenate([[-np.inf], inner, [np.inf]])
    last = len(edges) - 2
    first = int(np.searchsorted(edges, CHANGE)) - 1
    others = [k for k in halving(last) if k != first]
    order = [first, *others]
    classes = (yes, ~yes)
    by_class = [counts(u[rows], edges) for rows in classes]
    local = np.column_stack(by_class).astype(np.intp)
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
    own = [counts(u[rows], edges) for rows in classes]
    total = yield released(minimum, len(u), Part(np.concatenate(parts), own))
    total = checked_weights(total, "scores in bins")
    in_bins = total.reshape(len(parts), -1)
    positives, negatives = in_bins[:2]
    curve = Curve(edges, positives, negatives)
    calibration: tuple[Bin, ...] = ()
    if p is not None:
        calibration = _calibrated(edges, in_bins)
    confusion = _confusion_of_two(curve)
    return _Known(curve, True, confusion, calibration, size + total.size)


def _confusion_of_two(curve: Curve) -> FloatArray | None:
    """The confusion matrix, if the prediction changes at an edge of the bins."""
    if CHANGE not in curve.edges:
        return None
    above = curve.edges[:-1] >= CHANGE
    rows = []
    for weights in (curve.negatives, curve.positives):
        below = weights[~above].sum()
        rows.append([below, weights[above].sum()])
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
    model: AnyModel, table: Table, u: FloatArray, limits: dict[str, Any]
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
    found = deviances(2 * answers.losses, null)
    found["log_loss"] = answers.losses / n
    found["accuracy"] = answers.accuracy
    found["balanced_accuracy"] = _balanced_accuracy(answers.confusion)
    found["auc"] = float(areas.mean())
    found["brier"] = answers.squares / n
    found["calibration_error"] = _calibration_error(answers.calibration)
    points = {}
    for label, curve in zip(classes, known, strict=True):
        points[str(label)] = curve.points()
    bound = max(curve.bound for curve in known)
    left_out = _left_out(held is not None, answers.confusion is not None)
    return Evaluation(
        "",
        answers.rows,
        n,
        found,
        bound,
        classes,
        answers.confusion,
        answers.calibration,
        points,
        notes=notes_on(left_out),
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
    """Several classes: losses, and the accuracy of the most likely class."""

    rows: int
    n: float
    """Weights of all rows."""
    losses: float
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
    right = best == y
    chosen = p[local, best]
    ones = np.ones(len(y))
    cells = _confusion(y, best, ones, classes)
    bins = _fixed_edges()
    answers = np.column_stack(_by_answer(chosen, right, bins)).astype(np.intp)
    groupings = [cells, cells.sum(axis=1), answers.sum(axis=0)]
    has_cells, has_classes, has_answers = yield from allowed(groupings, minimum)
    message = [Part(_own_losses(logs, p, y, s), len(y))]
    if has_answers:
        (bins,) = yield from agree_on_edges([bins], [answers], minimum)
        own = _by_answer(chosen, right, bins)
        for part in (ones, chosen, right.astype(float)):
            message.append(Part(counts(chosen, bins, s * part), own))
    confused = _confusion(y, best, s, classes)
    if has_cells and has_classes:
        message.append(Part(confused, cells))
    elif has_classes:
        message.append(Part(confused.sum(axis=1), cells.sum(axis=1)))
    total = yield released(minimum, len(y), *message)
    checked_counts(total[:1], len(y), "rows")
    checked_weights(np.append(total[1], total[4:]), "answers")
    rows, n, losses, squares = total[:4].tolist()
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
    return _Answers(int(rows), n, losses, squares, accuracy, calibration, held, confusion, size)


def _own_losses(logs: FloatArray, p: FloatArray, y: Any, s: FloatArray) -> list[float]:
    """The agent's number of rows, their weight, their losses, and their squared errors."""
    local = np.arange(len(y))
    errors = p.copy()
    errors[local, y] -= 1
    losses = -float((s * logs[local, y]).sum())
    by_row = (errors**2).sum(axis=1)
    return [float(len(y)), float(s.sum()), losses, float((s * by_row).sum())]


def _by_answer(chosen: FloatArray, right: Any, bins: FloatArray) -> list[FloatArray]:
    """Counts of rows with a right and with a wrong answer, in bins of probability."""
    return [counts(chosen[rows], bins) for rows in (right, ~right)]


# -- numbers ---------------------------------------------------------------------------------------


def of_numbers(
    model: Model[Problem[Loss]], table: Table, u: FloatArray, limits: dict[str, Any]
) -> Protocol[Evaluation]:
    """Scores for labels that are numbers."""
    y, s = labels_and_weights(table)
    loss = model.problem.loss
    m = loss.response(u)
    zeros = np.zeros(len(y))
    offset = table.offset
    if offset is None:
        offset = zeros
    likelihood = loss.dispersion is not None
    if likelihood:
        excess = loss.fenchel_young(u, zeros, y, s)
    else:
        excess = loss.value(u, y, s)
    numerator, denominator = _for_constant(loss, y, s, offset)
    residuals = y - m
    by_row = [s, s * y, s * m, s * residuals**2, s * np.abs(residuals), numerator, denominator]
    sums = [float(part.sum()) for part in by_row]
    minimum = limits["minimum"]
    total = yield released(minimum, len(y), Part([float(len(y)), excess, *sums], len(y)))
    checked_counts(total[:1], len(y), "rows")
    rows, losses, n, labels, predicted, squares, errors, *mean = total.tolist()
    checked_weights(np.array([n, squares, errors]), "errors")
    n = _some(n)
    own_null = 0.0
    if likelihood:
        constant = loss.constant(ratio(*mean))
        if constant is not None:
            own_null = loss.fenchel_young(offset + constant, zeros, y, s)
    spread = float((s * (y - labels / n) ** 2).sum())
    nulls = yield released(minimum, len(y), Part([own_null, spread], len(y)))
    null, total_spread = nulls.tolist()
    if likelihood:
        found = deviances(2 * losses, 2 * null)
    else:
        found = {"mean_loss": losses / n}
    found["r2"] = 1 - ratio(squares, total_spread)
    found["rmse"] = math.sqrt(squares / n)
    found["mae"] = errors / n
    found["mean_observed"] = labels / n
    found["mean_predicted"] = predicted / n
    if loss.counts:
        found["events"] = labels
    if loss.name == "quantile" and not likelihood:
        found["share_below"] = yield from _share_below(y <= m, s, n, minimum)
    limits = _less(limits, total.size + nulls.size + 3 * BINS + 2)
    if limits["allowance"] < len(first_edges()):
        return Evaluation("", int(rows), n, found)
    edges = yield from _tenths(m, limits)
    ones = np.ones(len(m))
    parts = [counts(m, edges, s * part) for part in (ones, m, y)]
    in_bins = yield released(minimum, len(y), Part(np.concatenate(parts), counts(m, edges)))
    checked_weights(in_bins[: len(edges) - 1], "predictions in bins")
    calibration = _bins(edges, in_bins)
    return Evaluation("", int(rows), n, found, calibration=calibration)


def _share_below(below: Any, s: FloatArray, n: float, minimum: float) -> Protocol[float]:
    """The share of labels up to their prediction; NaN if few rows of a party are on one side."""
    sides = [below.sum(), (~below).sum()]
    (enough,) = yield from allowed([sides], minimum)
    if not enough:
        return math.nan
    own = float((s * below).sum())
    weight = yield released(minimum, len(below), Part([own], sides))
    return float(weight[0]) / n


def _tenths(m: FloatArray, limits: dict[str, Any]) -> Protocol[FloatArray]:
    """Edges between tenths of the predictions of all parties."""
    shares = [k / BINS for k in range(1, BINS)]
    tenths = yield from quantiles([m], shares, precision=1e-3, **limits)
    inner = tenths.values[0]
    if limits["minimum"] > 1:
        # Only edges of counted bins: otherwise a difference of counts would cover a part of a bin.
        counted = tenths.edges[0][1:-1]
        nearest = []
        if len(counted):
            nearest = [np.abs(counted - value).argmin() for value in inner]
        inner = counted[np.array(nearest, np.intp)]
    edges = np.concatenate([[-np.inf], inner, [np.inf]])
    return np.unique(edges)


def _for_constant(
    loss: Loss, y: FloatArray, s: FloatArray, offset: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Numerator and denominator of a mean that determines the constant of the null model, given the
    offset.
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
    """Return D² of scores u: the share of the null deviance that the model explains.

    The null deviance is that of the intercept-only model with the same offset.
    """
    at_zero = np.zeros(len(y))
    numerator, denominator = _for_constant(loss, y, s, offset)
    mean = ratio(float(numerator.sum()), float(denominator.sum()))
    constant = loss.constant(mean)
    if constant is None:
        return math.nan
    null = loss.fenchel_young(offset + constant, at_zero, y, s)
    deviance = loss.fenchel_young(u, at_zero, y, s)
    return 1 - ratio(deviance, null)


# -- pieces ----------------------------------------------------------------------------------------


_LEFT_OUT = {
    "events": "the number of events and the concordance: fewer rows with or without an event",
    "classes": "classes, calibration and AUC: fewer rows of a class",
    "confusion": "confusion and what follows from it: fewer rows of a class with one prediction",
}


def notes_on(left_out: Sequence[str]) -> tuple[str, ...]:
    """Why some scores are missing."""
    return tuple(f"Left out: {_LEFT_OUT[part]} at a party than minimum-count." for part in left_out)


def _some(n: float) -> float:
    if not n > 0:
        raise InvalidData("no party has a row to evaluate the model on. Give data with labels.")
    return float(n)


def _less(limits: dict[str, Any], sent: int) -> dict[str, Any]:
    return {**limits, "allowance": limits["allowance"] - sent}


def ratio(part: float, whole: float) -> float:
    """A share; NaN if the whole is 0."""
    if not whole:
        return math.nan
    return part / whole


def deviances(deviance: float, null: float) -> dict[str, float]:
    """The deviance and, where the null deviance is known, the explained share."""
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
    """Edges of probabilities; the last bin includes 1."""
    return np.append(np.arange(BINS) / BINS, np.inf)


def _bins(edges: FloatArray, in_bins: FloatArray) -> tuple[Bin, ...]:
    """Bins, from weights, predictions and labels in each."""
    sums = in_bins.reshape(3, -1).T.tolist()
    bins = []
    for (low, high), of_bin in zip(pairwise(edges.tolist()), sums, strict=True):
        weight, predicted, observed = of_bin
        mean = ratio(predicted, weight)
        share = ratio(observed, weight)
        bins.append(Bin(low, high, weight, mean, share))
    return tuple(bins)


def _calibration_error(bins: tuple[Bin, ...]) -> float:
    """The mean distance of predictions and observed shares, weighted by rows."""
    filled = [one for one in bins if one.weight]
    if not filled:
        return math.nan
    distance = sum(one.weight * abs(one.predicted - one.observed) for one in filled)
    weight = sum(one.weight for one in filled)
    return distance / weight
