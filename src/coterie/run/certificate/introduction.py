"""The first conversation about a linear model: how much data there is, where to start, and in which
unit gaps are told.

With an intercept, the unit is what the best constant loses and a model that knows every label does
not (of a likelihood, half the null deviance over n); without one, what a model of zeros loses.
Labels of a regression are lowered by that constant for the whole run: labels that are years then
cost neither rounds nor digits. With offsets, the best constant is the best one beside them, and a
loss that does not move with labels has it added to the offsets.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from coterie.errors import InvalidData
from coterie.numerics.arrays import FloatArray, shared_result
from coterie.run.agent import Agent, SummaryStatistics
from coterie.run.collectives import Protocol, Sum, alone
from coterie.run.disclosure import discloses

ROUNDING = 1e-10
"""Below this share of all squares, those about the mean are taken for rounding errors: the columns
are constant.
"""
SEARCHES, PLACES = 3, 9
"""How often, and at how many places at once, the best constant is looked for where no formula gives
it.
"""
SURE = 30.0
"""The largest constant that a search beside offsets begins at: classes are then as good as certain.
"""
CLOSE = 1e-4
"""Where a search beside offsets ends, as a share of the spread of the offsets: the rest is a
straight line.
"""
EXACT = 1e-7
"""The same where slopes jump, and no straight line is left."""
AROUND = 0.05
"""How close around the secant's root it looks next, as a share of what is left; the middle is
always looked at, too.
"""
STEEPEST = 1e25
"""Slopes that are larger are told as this: secure sums have no room for e to the offsets."""
SAME = 1e-14
"""Labels that differ by less than this share of themselves are one label."""
LARGEST, SMALLEST = 2.0**95, 2.0**-43
"""What secure sums can hold, over all parties together, and below what they lose digits."""
BY_ROWS = ("samples", "users")
FLOOR = 1e-3
"""Where all labels are one, the unit is what a constant loses that is off by this share of it."""


def introduce(agent: Agent) -> Protocol[SummaryStatistics]:
    """How much data there is, where methods start, the objective and its slope there, and the unit
    of gaps.
    """
    if agent.secure_sums:
        _refuse_misfits(agent)
    return (yield from (_by_features if agent.split == "features" else _by_samples)(agent))


def _refuse_misfits(agent: Agent) -> None:
    """Refuse what secure sums cannot hold, before anything is said."""
    largest, party = LARGEST / agent.count, agent.data.name
    with np.errstate(over="ignore"):
        squares, labels = agent.column_squares, agent.label_norm**2 if agent.moves_labels else 1.0
    if (bad := np.flatnonzero(~(squares < largest))).size:
        column = int(bad[0]) if agent.data.columns is None else agent.data.columns[bad[0]]
        raise InvalidData(
            f"party {party!r}: column {column!r} is too large for secure sums: its squares add up "
            f"to {largest:.0e} or "
            "more. Rescale it at all parties, e.g. to thousands or millions."
        )
    for what, size in (("labels", labels), ("weights", agent.weight)):
        if size and not SMALLEST <= size < largest:
            raise InvalidData(
                f"party {party!r}: the {what} are too {'small' if size < SMALLEST else 'large'} "
                "for secure sums, which "
                f"lose digits of sums below {SMALLEST:.0e} and hold none above {largest:.0e}. "
                "Rescale them."
            )


@discloses(
    (
        "the number of your rows, the sum of your labels and of their squares, and your losses at "
        "two "
        "constants"
    ),
    splits=BY_ROWS,
    most=lambda case: (1 + case.intercept, 8 + case.intercept),
)
@discloses(
    "how many of your rows each class has (with weights: the weight of each class)",
    splits=BY_ROWS,
    applies=lambda case: _of_classes(case.problem),
)
@discloses(
    "how many events you have: the sum of your labels (with weights)",
    splits=BY_ROWS,
    applies=lambda case: _of_counts(case.problem),
)
@discloses(
    "for each column: the sum of its squares, and its sum weighted by the gradient of the loss",
    "the means of your columns in each class, and the scale of each column",
    splits=BY_ROWS,
    most=lambda case: (0, 2 * case.columns),
)
@discloses(
    "for each column: its sum",
    "the mean of each of your columns",
    splits=BY_ROWS,
    applies=lambda case: case.intercept,
    most=lambda case: (0, case.columns),
)
def _by_samples(agent: Agent) -> Protocol[SummaryStatistics]:
    if not agent.problem.intercept:
        events = _sum_of_labels(agent) if _has_events(agent) else 0.0
        said = np.concatenate(
            [[agent.weight, events, 0.0, agent.conjugate_at_zero], agent.column_squares]
        )
        message = yield Sum(np.concatenate([said, _at_start(agent, 0.0, 0.0)]))
        sums, there = message[: len(said)], message[len(said) :]
        total, labels, conjugates = float(sums[0]), float(sums[1]), float(sums[3])
        constant, losses = 0.0, float(there[-3])
    else:
        ones = agent.weighted(np.ones(agent.data.n))
        said = np.array(
            [agent.weight, _sum_of_labels(agent), _at_zero(agent), agent.conjugate_at_zero]
        )
        sums = yield Sum(
            np.concatenate([said, agent.design.adjoint(ones)[:-1], agent.column_squares])
        )
        total, labels, losses, conjugates = map(float, sums[:4])
        constant = yield from best_constant(agent, total, labels / total)
        message = there = yield Sum(_at_start(agent, _start(agent, constant), constant))
    known = total, losses, conjugates, constant
    return shared_result(
        message, _from_rows, agent, sums[4:], there, known, _counts(agent, total, labels)
    )


def _has_events(agent: Agent) -> bool:
    """Whether labels tell events: -1 and +1, or counts."""
    return _of_classes(agent.problem) or _of_counts(agent.problem)


def _of_classes(problem: Any) -> bool:
    kind: str = problem.loss.kind
    return kind == "classification"


def _of_counts(problem: Any) -> bool:
    return bool(problem.loss.counts)


def _sum_of_labels(agent: Agent) -> float:
    """Σ s y of its own rows."""
    return float(agent.weighted(np.ones(agent.data.n)) @ agent.exact_labels)


def _counts(agent: Agent, total: float, labels: float) -> tuple[float, ...] | None:
    """The rows of both classes, or the events, from the sum of all weights and that of all
    labels.
    """
    if not _has_events(agent):
        return None
    if agent.problem.loss.counts:
        return (labels,)
    return (total - labels) / 2.0, (total + labels) / 2.0


def _at_start(agent: Agent, start: float, constant: float) -> FloatArray:
    """Sums over its own rows where methods start: of slopes, their squares, losses, losses of the
    best constant, and squares of labels about it.
    """
    here = agent.at_constant(start)
    gradients, at_constant = (
        here.gradients,
        here.losses if constant == start else _value(agent, constant),
    )
    about = [
        float(gradients @ agent.weighted(gradients)),
        here.losses,
        at_constant,
        _squares(agent, start),
    ]
    return np.concatenate([here.adjoint, about])


def _from_rows(
    agent: Agent,
    columns: FloatArray,
    there: FloatArray,
    known: tuple[float, float, float, float],
    counts: tuple[float, ...] | None,
) -> SummaryStatistics:
    """What follows from the sums over the rows: of columns and their squares, of slopes, and of
    four numbers.
    """
    total, losses, conjugates, constant = known
    slope, (squares, at_start, at_constant, labels) = there[:-4], map(float, there[-4:])
    lengths, centre, unit = columns[-agent.data.d :] if agent.data.d else np.empty(0), None, 1.0
    spread, about = float(lengths.sum()), lengths
    if agent.problem.intercept:
        # In the coordinates of `CentredDesign`: for constant columns the unit is that of their
        # values.
        centre = columns[: agent.data.d] / total
        left = spread - total * float(centre @ centre)
        spread = left if left > ROUNDING * spread else spread
        unit = math.sqrt(spread / (total * len(centre))) if len(centre) and spread else 1.0
        slope = np.append(slope[:-1] - slope[-1] * centre, unit * slope[-1])
        about = lengths - total * centre**2
        about = np.where(about > ROUNDING * lengths, about, 0.0)
    # A slope that vanishes by symmetry (centred columns) tells no length: at least a hundredth of
    # its bound.
    slope_squared = max(float(slope @ slope), 1e-4 * spread * squares)
    return replace(
        lengths_of_start(
            agent, total, at_start + conjugates, squares, slope_squared, sum_of_inverses(about)
        ),
        gap_unit=_unit(agent, at_constant / total, -conjugates / total, constant),
        primal_at_zero=(at_constant if _beside_offsets(agent) else losses) / total,
        centre=centre,
        unit=unit,
        **_constants(agent, constant),
        label_scale=_label_scale(agent, labels / total, constant),
        lengths=lengths,
        slope=slope,
        counts=counts,
    )


@discloses(
    (
        "from the label party: the number of rows, and sums of losses and of squares of labels at "
        "the "
        "best constant"
    ),
    splits=("features",),
    most=lambda case: (1, 8),
)
@discloses(
    (
        "the sum of the squares of all your numbers, and the sum of 1 / (sum of squares) over your "
        "columns"
    ),
    splits=("features",),
)
@discloses(
    "from the label party: how many rows each class has (with weights: the weight of each class)",
    splits=("features",),
    applies=lambda case: case.intercept and _of_classes(case.problem),
    most=lambda case: (0, 1),
)
@discloses(
    "from the label party: how many events there are, the sum of the labels (with weights)",
    splits=("features",),
    applies=lambda case: case.intercept and _of_counts(case.problem),
    most=lambda case: (0, 1),
)
def _by_features(agent: Agent) -> Protocol[SummaryStatistics]:
    # ∇ℓ would tell everybody the labels; ‖∇P‖ ≤ ‖X‖_F ‖∇ℓ‖ / n tells a length without them.
    lengths = agent.design.squared_lengths()[: agent.data.d]
    # Without an intercept nothing else that is told depends on how many rows each class has.
    counted = _has_events(agent) and agent.problem.intercept
    mine: FloatArray = np.zeros(6)
    own_labels, constant = 0.0, 0.0
    if agent.data.y is not None:
        mine, constant = _of_labels(agent)
        own_labels = _sum_of_labels(agent)
    labels = [own_labels] if counted else []
    sums = yield Sum(
        np.concatenate([mine, [lengths.sum(dtype=float), sum_of_inverses(lengths)], labels])
    )
    total, at_start, squares, gap_unit, at_zero, label_scale, spread, inverses = map(
        float, sums[:8]
    )
    return replace(
        lengths_of_start(agent, total, at_start, squares, squares * spread, inverses),
        gap_unit=gap_unit,
        primal_at_zero=at_zero,
        **_constants(agent, constant),
        label_scale=label_scale,
        counts=_counts(agent, total, float(sums[8])) if counted else None,
    )


def _of_labels(agent: Agent) -> tuple[FloatArray, float]:
    """What the agent with the labels says of them, and the best constant, which it keeps to
    itself.
    """
    y, ones = agent.exact_labels, agent.weighted(np.ones(agent.data.n))
    total = float(ones.sum())
    constant = 0.0
    if agent.problem.intercept:
        constant = alone(best_constant(agent, total, float(ones @ y) / total))
    start = _start(agent, constant)
    gradients = agent.loss.gradient(np.full(len(y), start), y)
    unit = _unit(agent, _value(agent, constant) / total, -agent.conjugate_at_zero / total, constant)
    scale = _label_scale(agent, _squares(agent, start) / total, constant)
    squares = float(gradients @ agent.weighted(gradients))
    at_zero = _value(agent, constant if _beside_offsets(agent) else 0.0) / total
    said = [total, _value(agent, start) + agent.conjugate_at_zero, squares, unit, at_zero, scale]
    return np.array(said), constant


@discloses(
    "the squares of your labels about their mean, and your losses at 27 constants near it",
    splits=BY_ROWS,
    applies=lambda case: (
        case.intercept and not _of_offsets(case.problem) and _is_searched(case.problem.loss)
    ),
    most=lambda case: (1 + SEARCHES, 1 + SEARCHES * PLACES),
)
def best_constant(agent: Agent, total: float, mean: float) -> Protocol[float]:
    """The constant score with the least loss, or near it: by a formula, or by looking closer and
    closer.
    """
    loss = agent.problem.loss
    known = loss.constant(mean)
    if _beside_offsets(agent):
        return (yield from _beside(agent, total, min(max(known or 0.0, -SURE), SURE)))
    if known is not None:
        return known
    deviations = agent.exact_labels - mean
    squares = yield Sum(np.array([float(deviations @ agent.weighted(deviations))]))
    # |quantile − mean| ≤ deviation · √odds; the slopes at the ends of the domain are the odds.
    # Where they say nothing, because the loss has no such slopes, √n deviations reach as far as the
    # labels do.
    lower, upper = sorted(abs(float(side[0])) for side in loss.domain(np.zeros(1)))
    odds = upper / lower if lower > 0 and math.isfinite(upper) else total
    width = 2.0 * math.sqrt(float(squares[0]) / total * odds)
    for _ in range(SEARCHES):
        places = np.linspace(mean - width, mean + width, PLACES)
        values = yield Sum(np.array([_value(agent, place) for place in places]))
        mean, width = float(places[np.argmin(values)]), width * 2.0 / (PLACES - 1)
    return mean


def _is_searched(loss: Any) -> bool:
    """Whether no formula gives the best constant."""
    return loss.constant(0.0) is None


@discloses(
    "the sum of your offsets and of their squares, and your gradients at up to 50 constants",
    splits=BY_ROWS,
    applies=lambda case: case.intercept and _of_offsets(case.problem),
    most=lambda case: (20, 52),
)
def _beside(agent: Agent, total: float, constant: float) -> Protocol[float]:
    """The root of Σ s ℓ'(c + o), which grows with c: between two places that come closer and
    closer.

    Where all offsets are their mean m, it is the constant less m; no offset is farther from m than
    √n deviations. Few places are looked at, because every slope that is told counts.
    """
    offset = np.empty(0) if agent.offset is None else agent.offset
    mean = float((yield Sum(np.array([float(agent.weighted(offset).sum())])))[0]) / total
    squares = float(
        (yield Sum(np.array([float((offset - mean) @ agent.weighted(offset - mean))])))[0]
    )
    scale, smooth = 1.0 + math.sqrt(squares / total), agent.problem.loss.smooth
    # The least and the largest place known to be left and right of the root, with the slopes there.
    low, high = (-math.inf, 0.0), (math.inf, 0.0)
    places = constant - mean + 2.0 * scale * np.array([-1.0, 0.0, 1.0])
    farthest = 4.0 * scale * math.sqrt(max(total, 1.0))
    while True:
        gradients = yield Sum(np.array([_slope(agent, place) for place in places]))
        for place, slope in zip(places.tolist(), gradients.tolist(), strict=True):
            low, high = ((place, slope), high) if slope <= 0.0 and place > low[0] else (low, high)
            high = (place, slope) if slope > 0.0 and place < high[0] else high
        width = high[0] - low[0]
        if math.isinf(width):
            # On one side of the root: go on to the other, farther each time.
            end, way = (low[0], 1.0) if math.isinf(high[0]) else (high[0], -1.0)
            reach = 8.0 * abs(end - (constant - mean))
            if reach > 8.0 * farthest:
                return end
            places = end + way * reach * np.array([0.25, 1.0])
            continue
        share = -low[1] / (high[1] - low[1])
        if width <= max((CLOSE if smooth else EXACT) * scale, SAME * abs(low[0])):
            return low[0] + share * width
        shares = np.array([0.25, 0.5, 0.75])
        if smooth:
            near = min(AROUND, AROUND * width / scale)
            shares = np.clip([share - near, share + near, 0.5], 0.0, 1.0)
        places = low[0] + shares * width


def _slope(agent: Agent, constant: float) -> float:
    """Σ s ℓ' of its own rows where every score is that constant."""
    y = agent.exact_labels
    gradients = agent.weighted(agent.loss.gradient(np.full(len(y), constant), y))
    return float(np.clip(gradients.sum(), -STEEPEST, STEEPEST))


def _beside_offsets(agent: Agent) -> bool:
    """Whether a constant has to be found beside offsets."""
    return agent.problem.intercept and _of_offsets(agent.problem)


def _of_offsets(problem: Any) -> bool:
    return bool(problem.offset) and not problem.kind.local.moves_labels(problem)


def _value(agent: Agent, constant: float) -> float:
    """Σ s ℓ of its own rows where every score is that constant."""
    y = agent.exact_labels
    return agent.loss.value(np.full(len(y), constant), y, agent.data.weights)


def _at_zero(agent: Agent) -> float:
    """Σ s ℓ of a model of zeros; beside offsets that may be more than a number holds, and the best
    constant is told.
    """
    return 0.0 if _beside_offsets(agent) else _value(agent, 0.0)


def _squares(agent: Agent, constant: float) -> float:
    """Σ s (y − constant)², or of offsets: Σ s (o + constant)²."""
    deviations = agent.exact_labels - constant if agent.offset is None else agent.offset + constant
    return float(deviations @ agent.weighted(deviations))


def _unit(agent: Agent, null: float, saturated: float, constant: float) -> float:
    """Of a likelihood, half the null deviance over n; with a floor where all labels are one and it
    is rounding.
    """
    unit, loss = null - saturated, agent.problem.loss
    if not agent.moves_labels:
        if unit > SAME * (abs(null) + abs(saturated)):
            return unit
        # A mean that is off by the share δ is a score that is off by δ, and loses ½ δ² ℓ''.
        score = np.array([constant])
        bend = loss.curvature(score, loss.response(score)) if loss.steep else np.zeros(1)
        return 0.5 * FLOOR**2 * float(bend[0]) or 1.0
    rounding, floor = (
        float(loss.each(np.array([share * abs(constant)]), np.zeros(1))[0])
        for share in (SAME, FLOOR)
    )
    return unit if unit > rounding else floor or 1.0


def _label_scale(agent: Agent, mean_square: float, constant: float) -> float:
    if agent.moves_labels:
        return math.sqrt(mean_square) or abs(constant) or 1.0
    return max(1.0, math.sqrt(mean_square)) if agent.problem.offset else 1.0


def _start(agent: Agent, constant: float) -> float:
    """The score at which methods start, beside an intercept."""
    starts = agent.moves_labels or agent.problem.loss.steep or agent.problem.offset
    return constant if starts else 0.0


def _constants(agent: Agent, constant: float) -> dict[str, Any]:
    """The best constant is taken off labels, or added to offsets; else, for a steep loss, it is
    where methods start.
    """
    if agent.moves_labels or agent.problem.offset:
        return {"shift": constant}
    return {"start": constant if agent.problem.loss.steep else 0.0}


def lengths_of_start(
    agent: Agent[Any],
    total: float,
    losses: float,
    squares: float,
    slope_squared: float,
    inverses: float,
) -> SummaryStatistics:
    """The lengths; what depends on labels alone is filled in by the caller."""
    steepness = math.sqrt(slope_squared) / total
    at_start = agent.problem.primal(losses, total, 0.0)
    reach = at_start / steepness if steepness > 0 else 0.0
    # A column alone may need a coefficient of 2 P n / (‖x_j‖ ‖∇ℓ‖): for the squared loss ‖y‖ /
    # ‖x_j‖.
    span = 2.0 * at_start * total * math.sqrt(inverses / squares) if squares > 0 else 0.0
    residual, span = math.sqrt(squares), max(reach, span)
    return SummaryStatistics(
        total, at_start, reach, residual, gap_unit=1.0, primal_at_zero=at_start, span=span
    )


def sum_of_inverses(lengths: FloatArray) -> float:
    """Σ_j 1 / ‖x_j‖² over the columns that are not zero, up to rounding."""
    kept = lengths[lengths > ROUNDING**2 * lengths.max(initial=0.0)].astype(float)
    return float((1.0 / kept).sum())


OF_CONSTANTS = (best_constant, _beside)
OF_ROWS = (_by_samples, *OF_CONSTANTS)
PROTOCOLS = (*OF_ROWS, _by_features)
"""All that sends something in an introduction."""
