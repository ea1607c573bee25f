"""How well a model predicts, from sums over the rows of all parties: no row and no prediction is told.

    Sum  rows, weights, losses, errors, counts of a confusion matrix and of fixed bins of probability
    Sum  of numbers: what the best constant, which needs the mean label, leaves
    Sum  counts of the classes on a grid of scores, cut where it matters (`curves`); of numbers, tenths of predictions

Deviance is 2 Σ s (ℓ(u; y) − min ℓ), and min ℓ = −ℓ*(0; y), so each term is a Fenchel–Young term at 0: none cancels.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from scipy.special import log_softmax, xlogy

from coterie.agent import Agent
from coterie.arrays import Design, FloatArray, product
from coterie.data import Table
from coterie.errors import InvalidData, InvalidProblem
from coterie.evaluation import Bin, Evaluation
from coterie.kernels.bins import counts, first_edges
from coterie.losses import Loss
from coterie.problem import Problem
from coterie.session.curves import Curve, curves
from coterie.session.quantiles import quantiles
from coterie.survival import CoxHere, RiskSets, concordance_counts
from coterie.words import Sum, Talk

T = TypeVar("T")
BINS = 10
"""Fixed bins of probability; of numbers, tenths of the predictions."""


def alone(talk: Talk[T]) -> T:
    """What an agent comes to that speaks with nobody: every sum is what it says itself."""
    reply: Any = None
    while True:
        try:
            word = talk.send(reply)
        except StopIteration as end:
            found: T = end.value
            return found
        assert isinstance(word, Sum)
        reply = word.x


def evaluated(
    model: Any, per_party: bool, minimum: float, room: float, agent: Agent
) -> Talk[tuple[Evaluation, Evaluation | None]]:
    """The scores over all agents, and this agent's; rows are split by samples."""
    table = agent.data
    assert table.y is not None
    scores = raw_scores(model, table) + model.intercept_
    own = alone(measured(model, table, scores)) if per_party and table.n else None
    found = yield from measured(model, table, scores, minimum=minimum, room=room)
    return found, own


def evaluated_by_columns(model: Any, blocks: list[Any], agent: Agent) -> Talk[tuple[Evaluation | None, None]]:
    """The same where agents have columns: all learn the scores, and who has the labels measures them."""
    own = replace(model, coef_=model.coef_[..., blocks[agent.index]])
    total = yield Sum(raw_scores(own, agent.data))
    if agent.data.y is None:
        return None, None
    return alone(measured(model, agent.data, total + model.intercept_)), None


def raw_scores(model: Any, table: Table) -> FloatArray:
    """The scores of these rows, or this party's part of them, without the intercept."""
    scores = product(table.X, model.coef_.T).astype(float)
    if table.offset is not None:
        scores += table.offset if scores.ndim == 1 else table.offset[:, None]
    return scores


def check_problem(problem: Problem) -> None:
    """Refuse problems whose models are not evaluated here."""
    if problem.family not in ("linear", "multiclass", "survival"):
        raise InvalidProblem(
            "evaluate is for linear models, multinomial and cox; this is a model of another kind. Score what its "
            "`predict` says."
        )


def measured(
    model: Any, table: Table, scores: FloatArray, *, minimum: float = 1, room: float = math.inf
) -> Talk[Evaluation]:
    """The scores of a model: `table.y` has labels as the fit had them, −1 and +1, places of classes, or numbers."""
    assert table.y is not None
    y = table.y.astype(float)
    s = np.ones(table.n) if table.weights is None else table.weights.astype(float)
    limits = {"minimum": minimum, "room": room}
    if model.problem.family == "survival":
        return (yield from _of_survival(scores, y, s))
    if scores.ndim == 2:
        return (yield from _of_classes(model, scores, y.astype(np.intp), s, limits))
    if model.problem.loss.kind == "classification":
        return (yield from _of_two(model, scores, y, s, limits, table.offset is not None))
    return (yield from _of_numbers(model.problem.loss, scores, y, s, limits, table.offset))


# -- survival ----------------------------------------------------------------------------------------------------------


def _of_survival(u: FloatArray, y: FloatArray, s: FloatArray) -> Talk[Evaluation]:
    """Every party's strata are its own, as in the fit: pairs and risk sets are of one party."""
    risk, design = RiskSets(y, s), Design(np.empty((len(u), 0)))
    losses = [CoxHere(np.empty(0), design, risk, part).losses - risk.saturated for part in (u, 0.0 * u)]
    told = yield Sum(np.concatenate([[len(u), s.sum(), risk.deaths.sum(), *losses], concordance_counts(y, u, s)]))
    rows, n, events, lost, null, lower, equal, every = told.tolist()
    found = {"concordance": _ratio(lower + 0.5 * equal, every), "events": events, **_deviances(2 * lost, 2 * null)}
    return Evaluation("", int(rows), n, found)


# -- two classes -------------------------------------------------------------------------------------------------------


def _of_two(
    model: Any, u: FloatArray, y: FloatArray, s: FloatArray, limits: dict[str, Any], offset: bool
) -> Talk[Evaluation]:
    loss, yes = model.problem.loss, y > 0
    likely = type(loss).probability is not Loss.probability
    p = loss.probability(u, 1.0) if likely else np.zeros(len(u))
    confusion = _confusion(yes.astype(np.intp), (u > 0).astype(np.intp), s, 2)
    bins = _binned(p, yes.astype(float), s) if likely else np.empty(0)
    losses = [float(len(y)), float(offset), loss.value(u, y, s), float((s * (p - yes) ** 2).sum())]
    told = yield Sum(np.concatenate([losses, confusion.ravel(), bins]))
    rows, shifted, lost, squares = told[:4].tolist()
    n = _some(told[4:8].sum())
    (true_no, false_yes), (false_no, true_yes) = told[4:8].reshape(2, 2).tolist()
    found: dict[str, float] = {}
    if likely:
        share = (false_no + true_yes) / n
        null = math.nan if shifted else -2 * n * float(xlogy(share, share) + xlogy(1 - share, 1 - share))
        found |= _deviances(2 * lost, null) | {"log_loss": lost / n}
    else:
        found |= {"mean_loss": lost / n}
    curve: Curve = (yield from curves([u], [yes], s, **_less(limits, told.size)))[0]
    sensitivity, specificity = _ratio(true_yes, true_yes + false_no), _ratio(true_no, true_no + false_yes)
    found |= {"accuracy": (true_no + true_yes) / n, "balanced_accuracy": (sensitivity + specificity) / 2}
    found |= {"auc": curve.auc}
    calibration = _calibration(told[8:]) if likely else ()
    if likely:
        found |= {"brier": squares / n, "calibration_error": _calibration_error(calibration)}
    found |= {"sensitivity": sensitivity, "specificity": specificity}
    found |= {"precision": _ratio(true_yes, true_yes + false_yes)}
    found |= {"f1": _ratio(2 * true_yes, 2 * true_yes + false_yes + false_no)}
    classes = tuple(model.classes_.tolist())
    return Evaluation(
        "", int(rows), n, found, curve.bound, classes, told[4:8].reshape(2, 2), calibration,
        {str(classes[1]): curve.points()},
    )  # fmt: skip


# -- several classes ---------------------------------------------------------------------------------------------------


def _of_classes(model: Any, u: FloatArray, y: Any, s: FloatArray, limits: dict[str, Any]) -> Talk[Evaluation]:
    classes = tuple(model.classes_.tolist())
    K, here = len(classes), np.arange(len(y))
    logs = log_softmax(u, axis=1)
    p = np.exp(logs)
    best = p.argmax(axis=1) if len(y) else y
    errors = p.copy()
    errors[here, y] -= 1
    losses = [float(len(y)), -float((s * logs[here, y]).sum()), float((s * (errors**2).sum(axis=1)).sum())]
    bins = _binned(p[here, best], (best == y).astype(float), s)
    told = yield Sum(np.concatenate([losses, bins, _confusion(y, best, s, K).ravel()]))
    rows, lost, squares = told[:3].tolist()
    calibration, confusion = _calibration(told[3 : 3 + 3 * BINS]), told[3 + 3 * BINS :].reshape(K, K)
    n = _some(confusion.sum())
    held = confusion.sum(axis=1)
    known: list[Curve] = yield from curves(list(p.T), [y == k for k in range(K)], s, **_less(limits, told.size))
    areas = np.array([curve.auc for curve in known])
    recalls = confusion.diagonal()[held > 0] / held[held > 0]
    null = -2 * float(xlogy(held, held / n).sum())
    found = _deviances(2 * lost, null) | {
        "log_loss": lost / n,
        "accuracy": float(confusion.trace()) / n,
        "balanced_accuracy": float(recalls.mean()),
        "auc": float(areas.mean()),
        "brier": squares / n,
        "calibration_error": _calibration_error(calibration),
    }
    bound = max(curve.bound for curve in known)
    roc = {str(label): curve.points() for label, curve in zip(classes, known, strict=True)}
    return Evaluation("", int(rows), n, found, bound, classes, confusion, calibration, roc)


# -- numbers -----------------------------------------------------------------------------------------------------------


def _of_numbers(
    loss: Loss, u: FloatArray, y: FloatArray, s: FloatArray, limits: dict[str, Any], offset: FloatArray | None
) -> Talk[Evaluation]:
    m, likelihood = loss.response(u), loss.dispersion is not None
    o = np.zeros(len(y)) if offset is None else offset
    excess = loss.fenchel_young(u, np.zeros(len(u)), y, s) if likelihood else loss.value(u, y, s)
    sums = [s, s * y, s * m, s * (y - m) ** 2, s * np.abs(y - m), s * (y <= m), *_for_constant(loss, y, s, o)]
    told = yield Sum(np.array([float(len(y)), excess, *(float(part.sum()) for part in sums)]))
    rows, lost, n, labels, predicted, squares, errors, below, *mean = told.tolist()
    n = _some(n)
    constant = loss.constant(_ratio(*mean)) if likelihood else None
    left = 0.0 if constant is None else loss.fenchel_young(o + constant, np.zeros(len(y)), y, s)
    nulls = yield Sum(np.array([left, float((s * (y - labels / n) ** 2).sum())]))
    found = _deviances(2 * lost, 2 * float(nulls[0])) if likelihood else {"mean_loss": lost / n}
    found |= {"r2": 1 - _ratio(squares, float(nulls[1])), "rmse": math.sqrt(squares / n), "mae": errors / n}
    found |= {"mean_observed": labels / n, "mean_predicted": predicted / n}
    if not likelihood and loss.name == "quantile":
        found["share_below"] = below / n
    limits = _less(limits, told.size + nulls.size + 3 * BINS)
    if limits["room"] < len(first_edges()):
        return Evaluation("", int(rows), n, found)
    tenths = yield from quantiles([m], [k / BINS for k in range(1, BINS)], precision=1e-3, **limits)
    edges = np.unique(np.concatenate([[-np.inf], tenths.values[0], [np.inf]]))
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
    constant = loss.constant(_ratio(float(numerator.sum()), float(denominator.sum())))
    if constant is None:
        return math.nan
    null = loss.fenchel_young(offset + constant, at_zero, y, s)
    return 1 - _ratio(loss.fenchel_young(u, at_zero, y, s), null)


# -- pieces ------------------------------------------------------------------------------------------------------------


def _some(n: float) -> float:
    if not n > 0:
        raise InvalidData("no party has a row to evaluate the model on. Give data with labels.")
    return float(n)


def _less(limits: dict[str, Any], told: int) -> dict[str, Any]:
    return {**limits, "room": limits["room"] - told}


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


def _deviances(deviance: float, null: float) -> dict[str, float]:
    known = {"deviance": deviance, "null_deviance": null, "explained_deviance": 1 - _ratio(deviance, null)}
    return {name: value for name, value in known.items() if name == "deviance" or not math.isnan(null)}


def _confusion(true: Any, predicted: Any, s: FloatArray, classes: int) -> FloatArray:
    cells = np.bincount(true * classes + predicted, s, minlength=classes**2)
    return cells.astype(float).reshape(classes, classes)


def _fixed_edges() -> FloatArray:
    """Of probabilities; the last bin has 1, too."""
    return np.append(np.arange(BINS) / BINS, np.inf)


def _binned(p: FloatArray, came_true: FloatArray, s: FloatArray) -> FloatArray:
    """In each fixed bin the weights, the predictions, and what came true."""
    return np.concatenate([counts(p, _fixed_edges(), s * part) for part in (np.ones(len(p)), p, came_true)])


def _calibration(told: FloatArray) -> tuple[Bin, ...]:
    return _bins(np.append(np.arange(BINS) / BINS, 1.0), told)


def _bins(edges: FloatArray, told: FloatArray) -> tuple[Bin, ...]:
    weights, predicted, observed = told.reshape(3, -1).tolist()
    return tuple(
        Bin(low, high, weight, _ratio(p, weight), _ratio(o, weight))
        for low, high, weight, p, o in zip(
            edges[:-1].tolist(), edges[1:].tolist(), weights, predicted, observed, strict=True
        )
    )


def _calibration_error(bins: tuple[Bin, ...]) -> float:
    """How far predictions are from what came true, over the bins, in the mean."""
    filled = [one for one in bins if one.weight]
    return sum(one.weight * abs(one.predicted - one.observed) for one in filled) / sum(one.weight for one in filled)
