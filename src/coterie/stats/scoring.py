"""How well a model predicts, from sums over the rows of all parties: no row and no prediction is told.

    Sum  rows, weights, losses and errors of all rows
    Sum  of classes: counts of each in fixed bins of probability, of which a confusion matrix follows
    Sum  of numbers: what the best constant, which needs the mean label, leaves
    Sum  counts of the classes in parts of these bins, cut where it matters (`curves`); of numbers, in tenths

No group of rows that is told has fewer rows of a party than a minimum, unless it has none (`groups`): bins are pooled,
and scores that would need smaller groups are NaN.

Deviance is 2 Σ s (ℓ(u; y) − min ℓ), and min ℓ = −ℓ*(0; y), so each term is a Fenchel–Young term at 0: none cancels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
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
from coterie.run.collectives import Sum, Talk
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
            f"evaluate is for models of rows, and a {problem.kind.called} is of another kind. Score what its `predict` "
            "says."
        )


def measured(
    model: Any, table: Table, scores: FloatArray, *, minimum: float = 1, room: float = math.inf
) -> Talk[Evaluation]:
    """The scores of a model: `table.y` has labels as the fit had them, −1 and +1, places of classes, or numbers."""
    assert table.y is not None
    limits = {"minimum": minimum, "room": room}
    found: Evaluation = yield from model.problem.kind.stats.measured(model, table, scores, limits)
    return found


def labels_and_weights(table: Table) -> tuple[FloatArray, FloatArray]:
    """Labels and weights in double precision."""
    assert table.y is not None
    weights = np.ones(table.n) if table.weights is None else table.weights.astype(float)
    return table.y.astype(float), weights


# -- two classes -------------------------------------------------------------------------------------------------------


def of_two(model: Any, table: Table, u: FloatArray, limits: dict[str, Any]) -> Talk[Evaluation]:
    """Scores for labels −1 and +1."""
    (y, s), offset = labels_and_weights(table), table.offset is not None
    loss, yes, minimum = model.problem.loss, y > 0, limits["minimum"]
    likely = type(loss).probability is not Loss.probability
    p = loss.probability(u, 1.0) if likely else np.zeros(len(u))
    mine = [float(len(y)), float(offset), float(s.sum()), loss.value(u, y, s), float((s * (p - yes) ** 2).sum())]
    rows, shifted, n, lost, squares = (yield Sum(np.array(mine))).tolist()
    n, classes = _some(n), tuple(model.classes_.tolist())
    known = yield from _first_bins(u, yes, p if likely else None, s, minimum)
    limits = _less(limits, len(mine) + known.size)
    held = known.curve.positives.sum(), known.curve.negatives.sum()
    found: dict[str, float] = {}
    if likely:
        share = float(held[0]) / n if known.classes_told else math.nan
        null = math.nan if shifted else -2 * n * float(xlogy(share, share) + xlogy(1 - share, 1 - share))
        found |= deviances(2 * lost, null) | {"log_loss": lost / n}
    else:
        found |= {"mean_loss": lost / n}
    curve = Curve(np.array([-np.inf, np.inf]), np.zeros(1), np.zeros(1))
    if known.classes_told:
        curve = (yield from curves([u], [yes], s, start=[known.curve], **limits))[0]
    confusion = known.confusion
    cells = np.full((2, 2), math.nan) if confusion is None else confusion
    (true_no, false_yes), (false_no, true_yes) = cells.tolist()
    sensitivity, specificity = ratio(true_yes, true_yes + false_no), ratio(true_no, true_no + false_yes)
    found |= {"accuracy": (true_no + true_yes) / n, "balanced_accuracy": (sensitivity + specificity) / 2}
    found |= {"auc": curve.auc}
    if likely:
        found |= {"brier": squares / n, "calibration_error": _calibration_error(known.calibration)}
    found |= {"sensitivity": sensitivity, "specificity": specificity}
    found |= {"precision": ratio(true_yes, true_yes + false_yes)}
    found |= {"f1": ratio(2 * true_yes, 2 * true_yes + false_yes + false_no)}
    left_out = [] if known.classes_told else ["classes"]
    left_out += [] if confusion is not None or left_out else ["confusion"]
    return Evaluation(
        "", int(rows), n, found, curve.bound, classes, confusion, known.calibration,
        {str(classes[1]): curve.points()}, notes=notes_on(left_out),
    )  # fmt: skip


@dataclass(frozen=True)
class _Known:
    """Two classes in the first bins of their scores."""

    curve: Curve
    classes_told: bool
    confusion: FloatArray | None
    calibration: tuple[Bin, ...]
    size: int
    """How many numbers were told for it."""


def _first_bins(u: FloatArray, yes: Any, p: FloatArray | None, s: FloatArray, minimum: float) -> Talk[_Known]:
    """Counts of both classes where the prediction changes and, if there are probabilities, in tenths of these."""
    change = np.nextafter(0.0, 1.0)  # scores above 0 are predicted as the second class
    tenths = logit(np.arange(1, BINS) / BINS) if p is not None else np.empty(0)
    edges = np.concatenate([[-np.inf], np.sort(np.append(tenths, change)), [np.inf]])
    last = len(edges) - 2
    first = int(np.searchsorted(edges, change)) - 1
    order = [first, *(k for k in halving(last) if k != first)]
    here = np.column_stack([counts(u[rows], edges) for rows in (yes, ~yes)]).astype(np.intp)
    (told_apart,) = yield from allowed([here.sum(axis=0)], minimum)
    size = (1 + last) * (minimum > 1)
    if not told_apart:
        nothing = Curve(np.array([-np.inf, np.inf]), np.zeros(1), np.zeros(1))
        return _Known(nothing, False, None, (), size)
    (edges,) = yield from agree_on_edges([edges], [here], minimum, order)
    parts = [counts(u[rows], edges, s[rows]) for rows in (yes, ~yes)]
    parts += [] if p is None else [counts(u, edges, s * p)]
    told = (yield Sum(np.concatenate(parts))).reshape(len(parts), -1)
    positives, negatives = told[:2]
    confusion = None
    if change in edges:
        above = edges[:-1] >= change
        confusion = np.array([[one[~above].sum(), one[above].sum()] for one in (negatives, positives)])
    calibration: tuple[Bin, ...] = ()
    if p is not None:
        ends = np.array([k for k, edge in enumerate(edges) if edge != change])
        pooled = [np.add.reduceat(one, ends[:-1]) for one in (positives + negatives, told[2], positives)]
        shown = np.concatenate([[0.0], np.round(expit(edges[ends[1:-1]]) * BINS) / BINS, [1.0]])
        calibration = _bins(shown, np.concatenate(pooled))
    return _Known(Curve(edges, positives, negatives), True, confusion, calibration, size + told.size)


# -- several classes ---------------------------------------------------------------------------------------------------


def of_classes(model: Any, table: Table, u: FloatArray, limits: dict[str, Any]) -> Talk[Evaluation]:
    """Scores for labels that are the places of classes."""
    labels, s = labels_and_weights(table)
    y = labels.astype(np.intp)
    classes = tuple(model.classes_.tolist())
    K, here = len(classes), np.arange(len(y))
    logs = log_softmax(u, axis=1)
    p = np.exp(logs)
    best = p.argmax(axis=1) if len(y) else y
    errors = p.copy()
    errors[here, y] -= 1
    minimum, right = limits["minimum"], best == y
    cells, bins = _confusion(y, best, np.ones(len(y)), K), _fixed_edges()
    answers = np.column_stack([counts(p[here, best][rows], bins) for rows in (right, ~right)]).astype(np.intp)
    groupings = [cells, cells.sum(axis=1), answers.sum(axis=0)]
    told_cells, told_classes, told_answers = yield from allowed(groupings, minimum)
    losses = [float(len(y)), float(s.sum())]
    losses += [-float((s * logs[here, y]).sum()), float((s * (errors**2).sum(axis=1)).sum())]
    said = [np.array(losses)]
    if told_answers:
        (bins,) = yield from agree_on_edges([bins], [answers], minimum)
        chosen = p[here, best]
        said += [counts(chosen, bins, s * part) for part in (np.ones(len(y)), chosen, right.astype(float))]
    if told_classes:
        whole = _confusion(y, best, s, K)
        said.append(whole.ravel() if told_cells else whole.sum(axis=1))
    told = yield Sum(np.concatenate(said))
    rows, n, lost, squares = told[:4].tolist()
    n, at = _some(n), 4
    calibration: tuple[Bin, ...] = ()
    accuracy, confusion, held = math.nan, None, np.full(K, math.nan)
    if told_answers:
        size = 3 * (len(bins) - 1)
        calibration = _bins(np.append(bins[:-1], 1.0), told[at : at + size])
        accuracy = float(told[at : at + size].reshape(3, -1)[2].sum()) / n
        at += size
    if told_classes:
        held = told[at:]
    if told_cells:
        confusion = told[at:].reshape(K, K)
        accuracy, held = float(confusion.trace()) / n, confusion.sum(axis=1)
    nothing = Curve(np.array([-np.inf, np.inf]), np.zeros(1), np.zeros(1))
    known = [nothing] * K
    if told_classes:
        starts = [Curve(nothing.edges, held[k : k + 1], n - held[k : k + 1]) for k in range(K)]
        among = [y == k for k in range(K)]
        asked = 3 + len(answers) if minimum > 1 else 0
        known = yield from curves(list(p.T), among, s, start=starts, **_less(limits, told.size + asked))
    areas = np.array([curve.auc for curve in known])
    recalls = np.full(1, math.nan) if confusion is None else confusion.diagonal()[held > 0] / held[held > 0]
    null = -2 * float(xlogy(held, held / n).sum())
    found = deviances(2 * lost, null) | {
        "log_loss": lost / n,
        "accuracy": accuracy,
        "balanced_accuracy": float(recalls.mean()),
        "auc": float(areas.mean()),
        "brier": squares / n,
        "calibration_error": _calibration_error(calibration),
    }
    bound = max(curve.bound for curve in known)
    roc = {str(label): curve.points() for label, curve in zip(classes, known, strict=True)}
    left_out = [] if told_classes else ["classes"]
    left_out += [] if told_cells or left_out else ["confusion"]
    return Evaluation("", int(rows), n, found, bound, classes, confusion, calibration, roc, notes=notes_on(left_out))


# -- numbers -----------------------------------------------------------------------------------------------------------


def of_numbers(model: Any, table: Table, u: FloatArray, limits: dict[str, Any]) -> Talk[Evaluation]:
    """Scores for labels that are numbers."""
    (y, s), offset, loss = labels_and_weights(table), table.offset, model.problem.loss
    m, likelihood = loss.response(u), loss.dispersion is not None
    o = np.zeros(len(y)) if offset is None else offset
    excess = loss.fenchel_young(u, np.zeros(len(u)), y, s) if likelihood else loss.value(u, y, s)
    sums = [s, s * y, s * m, s * (y - m) ** 2, s * np.abs(y - m), *_for_constant(loss, y, s, o)]
    told = yield Sum(np.array([float(len(y)), excess, *(float(part.sum()) for part in sums)]))
    rows, lost, n, labels, predicted, squares, errors, *mean = told.tolist()
    n = _some(n)
    constant = loss.constant(ratio(*mean)) if likelihood else None
    left = 0.0 if constant is None else loss.fenchel_young(o + constant, np.zeros(len(y)), y, s)
    nulls = yield Sum(np.array([left, float((s * (y - labels / n) ** 2).sum())]))
    found = deviances(2 * lost, 2 * float(nulls[0])) if likelihood else {"mean_loss": lost / n}
    found |= {"r2": 1 - ratio(squares, float(nulls[1])), "rmse": math.sqrt(squares / n), "mae": errors / n}
    found |= {"mean_observed": labels / n, "mean_predicted": predicted / n}
    if loss.counts:
        found["events"] = labels
    if not likelihood and loss.name == "quantile":
        (share_told,) = yield from allowed([[(y <= m).sum(), (y > m).sum()]], limits["minimum"])
        found["share_below"] = math.nan
        if share_told:
            found["share_below"] = float((yield Sum(np.array([float((s * (y <= m)).sum())])))[0]) / n
    limits = _less(limits, told.size + nulls.size + 3 * BINS + 2)
    if limits["room"] < len(first_edges()):
        return Evaluation("", int(rows), n, found)
    tenths = yield from quantiles([m], [k / BINS for k in range(1, BINS)], precision=1e-3, **limits)
    inner = tenths.values[0]
    if limits["minimum"] > 1:
        # Of the bins that were counted, so that no difference of counts is about a part of one.
        counted = tenths.edges[0][1:-1]
        inner = counted[[np.abs(counted - value).argmin() for value in inner]] if len(counted) else counted
    edges = np.unique(np.concatenate([[-np.inf], inner, [np.inf]]))
    parts = [counts(m, edges, s * part) for part in (np.ones(len(m)), m, y)]
    told = yield Sum(np.concatenate(parts))
    return Evaluation("", int(rows), n, found, calibration=_bins(edges, told))


def _for_constant(loss: Loss, y: FloatArray, s: FloatArray, offset: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Numerator and denominator of the mean from which the best constant beside the offset follows."""
    if not loss.steep:
        return s * (y - offset), s
    # Σ s (e^{o + c} − y) = 0 for counts, Σ s (1 − y e^{−o − c}) = 0 for amounts.
    return (s * y * np.exp(-offset), s) if loss.dispersion else (s * y, s * np.exp(offset))


def explained_deviance(loss: Loss, u: FloatArray, y: FloatArray, s: FloatArray, offset: FloatArray) -> float:
    """D² of scores u: the share of the null deviance, that of the best constant with the same offset, which is gone."""
    at_zero = np.zeros(len(y))
    numerator, denominator = _for_constant(loss, y, s, offset)
    constant = loss.constant(ratio(float(numerator.sum()), float(denominator.sum())))
    if constant is None:
        return math.nan
    null = loss.fenchel_young(offset + constant, at_zero, y, s)
    return 1 - ratio(loss.fenchel_young(u, at_zero, y, s), null)


# -- pieces ------------------------------------------------------------------------------------------------------------


_LEFT_OUT = {
    "events": "the number of events and the concordance: fewer rows with or without an event",
    "classes": "classes, calibration and AUC: fewer rows of a class",
    "confusion": "confusion and what follows from it: fewer rows of a class with one prediction",
}


def notes_on(left_out: Sequence[str]) -> tuple[str, ...]:
    """Why some scores are not there."""
    return tuple(f"Not told are {_LEFT_OUT[what]} at a party than minimum-count." for what in left_out)


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
    known = {"deviance": deviance, "null_deviance": null, "explained_deviance": 1 - ratio(deviance, null)}
    return {name: value for name, value in known.items() if name == "deviance" or not math.isnan(null)}


def _confusion(true: Any, predicted: Any, s: FloatArray, classes: int) -> FloatArray:
    cells = np.bincount(true * classes + predicted, s, minlength=classes**2)
    return cells.astype(float).reshape(classes, classes)


def _fixed_edges() -> FloatArray:
    """Of probabilities; the last bin has 1, too."""
    return np.append(np.arange(BINS) / BINS, np.inf)


def _bins(edges: FloatArray, told: FloatArray) -> tuple[Bin, ...]:
    weights, predicted, observed = told.reshape(3, -1).tolist()
    return tuple(
        Bin(low, high, weight, ratio(p, weight), ratio(o, weight))
        for low, high, weight, p, o in zip(
            edges[:-1].tolist(), edges[1:].tolist(), weights, predicted, observed, strict=True
        )
    )


def _calibration_error(bins: tuple[Bin, ...]) -> float:
    """How far predictions are from what came true, over the bins, in the mean."""
    filled = [one for one in bins if one.weight]
    if not filled:
        return math.nan
    return sum(one.weight * abs(one.predicted - one.observed) for one in filled) / sum(one.weight for one in filled)
