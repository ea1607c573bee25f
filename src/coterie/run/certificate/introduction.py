"""Compute the summary statistics for a linear model: the first sums over all agents.

They give the amount of data, the model at which methods start, and the null loss. Relative gaps are
gaps divided by the null loss.

With an intercept, the null loss is the loss of the intercept-only model minus the loss of a
saturated model, which fits every label. For a likelihood it is half the null deviance over n.
Without an intercept, the model of zeros replaces the intercept-only model. For a regression, agents
subtract the null intercept from the labels for the whole run: labels that are years then cost
neither rounds nor digits. With offsets, the intercept-only model includes them. If a loss does not
move with labels, agents add the null intercept to the offsets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from coterie.errors import InvalidData, ProtocolError
from coterie.numerics.arrays import FloatArray, shared_result
from coterie.numerics.local_loss import side_by_side
from coterie.numerics.losses import Loss
from coterie.problems.problem import AnyProblem, Problem
from coterie.run.agent import Agent, SummaryStatistics
from coterie.run.collectives import Protocol, Sum, alone
from coterie.run.disclosure import discloses

ROUNDING = 1e-10
"""Share of the sum of squares of a column. If the squares about the mean add up to less than this
share, the column counts as constant, up to rounding.
"""
SEARCHES, PLACES = 3, 9
"""Number of searches for a null intercept without a formula, and of candidates in each search."""
SURE = 30.0
"""Largest score at which a search with offsets begins. Classes are almost certain at this score."""
CLOSE = 1e-4
"""Width of the bracket at which a search with offsets ends, as a share of the spread of the
offsets. The gradient of a smooth loss is almost linear over this width.
"""
EXACT = 1e-7
"""Width of the bracket at which a search with offsets ends for a non-smooth loss, as a share of the
spread of the offsets. The gradient of such a loss jumps.
"""
AROUND = 0.05
"""Distance of the next candidates from the root of the secant, as a share of the width of the
bracket. The middle of the bracket is always a candidate, too.
"""
STEEPEST = 1e25
"""Largest gradient that an agent sends: the exponential of an offset can exceed the range of secure
sums.
"""
SAME = 1e-14
"""Relative difference up to which two numbers count as equal: labels, losses, ends of a bracket."""
LARGEST, SMALLEST = 2.0**95, 2.0**-43
"""Range of secure sums: they hold aggregates below LARGEST, and lose digits below SMALLEST."""
BY_ROWS = ("samples", "users")
FLOOR = 1e-3
"""Relative error of an intercept whose loss replaces the null loss if all labels are equal."""


def introduce(agent: Agent) -> Protocol[SummaryStatistics]:
    """Compute the summary statistics with the other agents.

    They are the amount of data, the model at which methods start, objective and gradient at that
    model, and the null loss.
    """
    if agent.secure_sums:
        for member in agent.parts:
            _refuse_misfits(member)
    if agent.split == "features":
        return (yield from _by_features(agent))
    return (yield from _by_samples(agent))


def _refuse_misfits(agent: Agent) -> None:
    """Refuse numbers that secure sums cannot hold, before the agent sends a message."""
    largest = LARGEST / agent.count
    labels = 1.0
    with np.errstate(over="ignore"):
        squares = agent.column_squares
        if agent.moves_labels:
            labels = agent.label_norm**2
    bad = np.flatnonzero(~(squares < largest))
    if bad.size:
        names = agent.data.columns
        column = int(bad[0]) if names is None else names[bad[0]]
        raise InvalidData(
            f"party {agent.data.name!r}: column {column!r} is too large for secure sums: its "
            f"squares add up to {largest:.0e} or more. Rescale it at all parties, e.g. to "
            "thousands or millions."
        )
    for name, size in (("labels", labels), ("weights", agent.weight)):
        if size and not SMALLEST <= size < largest:
            extreme = "small" if size < SMALLEST else "large"
            raise InvalidData(
                f"party {agent.data.name!r}: the {name} are too {extreme} for secure sums, which "
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
        of_labels = _numbers(agent, agent.weight, events, 0.0, agent.conjugate_at_zero)
        own = np.concatenate([of_labels, agent.column_squares], axis=-1)
        message = yield Sum(np.concatenate([own, _at_start(agent, 0.0, 0.0)], axis=-1))
        width = own.shape[-1]
        sums, there = message[:width], message[width:]
        total, labels, conjugates = float(sums[0]), float(sums[1]), float(sums[3])
        constant, losses = 0.0, float(there[-3])
    else:
        ones = agent.weighted(np.ones(agent.exact_labels.shape))
        of_labels = _numbers(
            agent, agent.weight, _sum_of_labels(agent), _at_zero(agent), agent.conjugate_at_zero
        )
        column_sums = agent.design.adjoint(ones)[..., :-1]
        sums = yield Sum(np.concatenate([of_labels, column_sums, agent.column_squares], axis=-1))
        total, labels, losses, conjugates = map(float, sums[:4])
        constant = yield from best_constant(agent, total, labels / total)
        message = there = yield Sum(_at_start(agent, _start(agent, constant), constant))
    totals = _Totals(total, losses, conjugates, constant, _counts(agent, total, labels))
    return shared_result(message, _from_rows, agent, sums[4:], there, totals)


@dataclass(frozen=True)
class _Totals:
    """Aggregates over the rows of all agents, and numbers computed from them."""

    weight: float
    """Number of rows n or, with weights, the sum of the weights."""
    losses: float
    """Sum of the losses of a model of zeros."""
    conjugates: float
    """Σ s ℓ*(0), the sum of the weighted conjugates at zero."""
    constant: float
    """Null intercept."""
    counts: tuple[float, ...] | None


def _has_events(agent: Agent) -> bool:
    """Whether labels are events: -1 and +1, or counts."""
    return _of_classes(agent.problem) or _of_counts(agent.problem)


def _of_classes(problem: Problem) -> bool:
    kind: str = problem.loss.kind
    return kind == "classification"


def _of_counts(problem: Problem) -> bool:
    return bool(problem.loss.counts)


def _numbers(agent: Agent, *numbers: Any) -> FloatArray:
    """Return a message of these numbers; for a batch, one row for each agent."""
    return side_by_side(numbers, agent.exact_labels.ndim > 1)


def _sum_of_labels(agent: Agent) -> Any:
    """Return Σ s y over the agent's own rows."""
    ones = agent.weighted(np.ones(agent.exact_labels.shape))
    return np.vecdot(ones, agent.exact_labels)


def _counts(agent: Agent, total: float, labels: float) -> tuple[float, ...] | None:
    """Return the number of rows of each class, or the number of events.

    total    sum of the weights of all rows
    labels   weighted sum of the labels of all rows
    """
    if not _has_events(agent):
        return None
    if agent.problem.loss.counts:
        return (labels,)
    return (total - labels) / 2.0, (total + labels) / 2.0


def _at_start(agent: Agent, start: float, constant: float) -> FloatArray:
    """Return sums over the agent's own rows at the score `start`, where methods start.

    They are the gradient, the squared derivatives of the loss in the scores, the losses, the losses
    of the intercept-only model, and `_squares` at `start`.
    """
    local = agent.at_start(start)
    gradients = local.gradients
    at_constant = local.losses
    if constant != start:
        at_constant = _value(agent, constant)
    squares = np.vecdot(gradients, agent.weighted(gradients))
    about = _numbers(agent, squares, local.losses, at_constant, _squares(agent, start))
    return np.concatenate([local.adjoint, about], axis=-1)


def _from_rows(
    agent: Agent, columns: FloatArray, there: FloatArray, totals: _Totals
) -> SummaryStatistics:
    """Return the summary statistics, from sums over the rows of all agents.

    columns  sums of the columns, if there is an intercept, then sums of their squares
    there    sums at the model at which methods start, from `_at_start`
    """
    total, constant = totals.weight, totals.constant
    gradient = there[:-4]
    squares, at_start, at_constant, labels = map(float, there[-4:])
    lengths = columns[-agent.data.d :] if agent.data.d else np.empty(0)
    centre, unit = None, 1.0
    spread, about = float(lengths.sum()), lengths
    if agent.problem.intercept:
        # These are the coordinates of `CentredDesign`. If all columns are constant, their values
        # set the unit.
        centre = columns[: agent.data.d] / total
        left = spread - total * float(centre @ centre)
        if left > ROUNDING * spread:
            spread = left
        if len(centre) and spread:
            unit = math.sqrt(spread / (total * len(centre)))
        gradient = np.append(gradient[:-1] - gradient[-1] * centre, unit * gradient[-1])
        about = lengths - total * centre**2
        about = np.where(about > ROUNDING * lengths, about, 0.0)
    # A gradient that vanishes by symmetry (centred columns) gives no length. The length used is at
    # least a hundredth of its bound.
    gradient_squared = max(float(gradient @ gradient), 1e-4 * spread * squares)
    losses = at_constant if _has_offsets(agent) else totals.losses
    return replace(
        lengths_of_start(
            agent,
            total,
            at_start + totals.conjugates,
            squares,
            gradient_squared,
            sum_of_inverses(about),
        ),
        gap_unit=_null_loss(agent, at_constant / total, -totals.conjugates / total, constant),
        primal_at_zero=losses / total,
        centre=centre,
        unit=unit,
        **_constants(agent, constant),
        label_scale=_label_scale(agent, labels / total, constant),
        lengths=lengths,
        gradient_at_start=gradient,
        counts=totals.counts,
    )


@discloses(
    (
        "from the label party: the number of rows, and sums of losses and of squares of labels at "
        "the "
        "best constant; and which party it is"
    ),
    splits=("features",),
    most=lambda case: (1, 9),
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
    # ∇ℓ would disclose the labels to all parties. The bound ‖∇P‖ ≤ ‖X‖_F ‖∇ℓ‖ / n gives a length
    # without disclosing them.
    lengths = agent.design.squared_lengths()[: agent.data.d]
    # Without an intercept, no other message depends on the number of rows of each class.
    counted = _has_events(agent) and agent.problem.intercept
    mine: FloatArray = np.zeros(6)
    own_labels, constant, labels_at = 0.0, 0.0, 0
    if agent.data.y is not None:
        mine, constant = _of_labels(agent)
        own_labels = _sum_of_labels(agent)
        labels_at = agent.index
    labels = [own_labels] if counted else []
    of_columns = [lengths.sum(dtype=float), sum_of_inverses(lengths), labels_at]
    sums = yield Sum(np.concatenate([mine, of_columns, labels]))
    total, at_start, squares, gap_unit, at_zero, label_scale = map(float, sums[:6])
    spread, inverses = map(float, sums[6:8])
    counts = None
    if counted:
        counts = _counts(agent, total, float(sums[9]))
    return replace(
        lengths_of_start(agent, total, at_start, squares, squares * spread, inverses),
        gap_unit=gap_unit,
        primal_at_zero=at_zero,
        **_constants(agent, constant),
        label_scale=label_scale,
        labels_at=_valid_index(agent, float(sums[8])),
        counts=counts,
    )


def _valid_index(agent: Agent, place: float) -> int:
    """The index of an agent, from a sum of numbers of all agents."""
    if place not in range(agent.count):
        raise ProtocolError("introduction: the sum for the index of the label party is no index.")
    return int(place)


def _of_labels(agent: Agent) -> tuple[FloatArray, float]:
    """Return the numbers about the labels that the label party sends, and the null intercept.

    The label party does not send the null intercept.
    """
    y, ones = agent.exact_labels, agent.weighted(np.ones(agent.data.n))
    total = float(ones.sum())
    constant = 0.0
    if agent.problem.intercept:
        constant = alone(best_constant(agent, total, float(ones @ y) / total))
    start = _start(agent, constant)
    gradients = agent.loss.gradient(np.full(len(y), start), y)
    null, saturated = _value(agent, constant) / total, -agent.conjugate_at_zero / total
    unit = _null_loss(agent, null, saturated, constant)
    scale = _label_scale(agent, _squares(agent, start) / total, constant)
    squares = float(gradients @ agent.weighted(gradients))
    at_start = _value(agent, start) + agent.conjugate_at_zero
    at_zero = _value(agent, constant if _has_offsets(agent) else 0.0) / total
    return np.array([total, at_start, squares, unit, at_zero, scale]), constant


@discloses(
    "the squares of your labels about their mean, and your losses at 27 constants near it",
    splits=BY_ROWS,
    applies=lambda case: (
        case.intercept and not _of_offsets(case.problem) and _is_searched(case.problem.loss)
    ),
    most=lambda case: (1 + SEARCHES, 1 + SEARCHES * PLACES),
)
def best_constant(agent: Agent, total: float, mean: float) -> Protocol[float]:
    """Compute the null intercept, by a formula or by a search.

    The null intercept is the constant score with the least loss. A search gives a score near it.
    """
    loss = agent.problem.loss
    known = loss.constant(mean)
    if _has_offsets(agent):
        first = min(max(known or 0.0, -SURE), SURE)
        return (yield from _with_offsets(agent, total, first))
    if known is not None:
        return known
    deviations = agent.exact_labels - mean
    squares = yield Sum(_numbers(agent, np.vecdot(deviations, agent.weighted(deviations))))
    # |quantile − mean| ≤ deviation · √odds. The odds are the ratio of the gradients at the ends of
    # the domain. If the loss has no such gradients, √n deviations cover all labels.
    lower, upper = sorted(abs(float(side[0])) for side in loss.domain(np.zeros(1)))
    odds = upper / lower if lower > 0 and math.isfinite(upper) else total
    width = 2.0 * math.sqrt(float(squares[0]) / total * odds)
    for _ in range(SEARCHES):
        places = np.linspace(mean - width, mean + width, PLACES)
        values = yield Sum(_numbers(agent, *[_value(agent, place) for place in places]))
        mean, width = float(places[np.argmin(values)]), width * 2.0 / (PLACES - 1)
    return mean


def _is_searched(loss: Loss) -> bool:
    """Whether no formula gives the null intercept."""
    return loss.constant(0.0) is None


@discloses(
    "the sum of your offsets and of their squares, and your gradients at up to 50 constants",
    splits=BY_ROWS,
    applies=lambda case: case.intercept and _of_offsets(case.problem),
    most=lambda case: (20, 52),
)
def _with_offsets(agent: Agent, total: float, constant: float) -> Protocol[float]:
    """Compute the root c of Σ s ℓ'(c + o), which increases with c, by narrowing a bracket.

    If all offsets equal their mean m, the root is the constant minus m. No offset is farther from m
    than √n deviations. The search tries few points, because each gradient that an agent sends
    discloses information.
    """
    offset = np.empty(0) if agent.offset is None else agent.offset
    sums = yield Sum(np.array([float(agent.weighted(offset).sum())]))
    mean = float(sums[0]) / total
    deviations = offset - mean
    sums = yield Sum(np.array([float(deviations @ agent.weighted(deviations))]))
    scale = 1.0 + math.sqrt(float(sums[0]) / total)
    smooth = agent.problem.loss.smooth
    bracket = _Bracket(constant - mean)
    places = bracket.first + 2.0 * scale * np.array([-1.0, 0.0, 1.0])
    farthest = 4.0 * scale * math.sqrt(max(total, 1.0))
    while True:
        gradients = yield Sum(np.array([_gradient(agent, place) for place in places]))
        bracket = bracket.narrowed(places, gradients)
        if math.isinf(bracket.width):
            if bracket.reach > 8.0 * farthest:
                return bracket.end
            places = bracket.farther()
            continue
        close = (CLOSE if smooth else EXACT) * scale
        if bracket.width <= max(close, SAME * abs(bracket.low)):
            return bracket.low + bracket.share * bracket.width
        places = bracket.between(scale, smooth)


@dataclass(frozen=True)
class _Bracket:
    """A bracket of a root, with the gradients at its ends.

    `low` is the largest point known to be left of the root, `high` the least point right of it.
    """

    first: float
    """Point at which the search began."""
    low: float = -math.inf
    below: float = 0.0
    """Gradient at `low`."""
    high: float = math.inf
    above: float = 0.0
    """Gradient at `high`."""

    def narrowed(self, places: Any, gradients: FloatArray) -> _Bracket:
        """Return the bracket, narrowed by these gradients at these points."""
        found = self
        for place, gradient in zip(places.tolist(), gradients.tolist(), strict=True):
            if gradient <= 0.0 and place > found.low:
                found = replace(found, low=place, below=gradient)
            if gradient > 0.0 and place < found.high:
                found = replace(found, high=place, above=gradient)
        return found

    @property
    def width(self) -> float:
        """Distance between both ends."""
        return self.high - self.low

    @property
    def end(self) -> float:
        """Known end of the bracket, while the other end is infinite."""
        return self.low if math.isinf(self.high) else self.high

    @property
    def reach(self) -> float:
        """Distance from `end` to the farthest next point. It grows with each step."""
        return 8.0 * abs(self.end - self.first)

    def farther(self) -> Any:
        """Return the next points to try, in the direction of the infinite end."""
        way = 1.0 if math.isinf(self.high) else -1.0
        return self.end + way * self.reach * np.array([0.25, 1.0])

    @property
    def share(self) -> float:
        """Distance of the secant's root from `low`, as a share of the width."""
        return -self.below / (self.above - self.below)

    def between(self, scale: float, smooth: bool) -> Any:
        """Return the next points to try inside the bracket.

        For a smooth loss, they are near the root of the secant, and in the middle.
        """
        shares = np.array([0.25, 0.5, 0.75])
        if smooth:
            near = min(AROUND, AROUND * self.width / scale)
            shares = np.clip([self.share - near, self.share + near, 0.5], 0.0, 1.0)
        return self.low + shares * self.width


def _gradient(agent: Agent, constant: float) -> float:
    """Return Σ s ℓ' over the agent's own rows where every score is `constant`.

    The value is clipped to ±STEEPEST.
    """
    y = agent.exact_labels
    gradients = agent.weighted(agent.loss.gradient(np.full(len(y), constant), y))
    return float(np.clip(gradients.sum(), -STEEPEST, STEEPEST))


def _has_offsets(agent: Agent) -> bool:
    """Whether the null intercept needs a search with offsets."""
    return agent.problem.intercept and _of_offsets(agent.problem)


def _of_offsets(problem: Problem) -> bool:
    return bool(problem.offset) and not problem.kind.local.moves_labels(problem)


def _value(agent: Agent, constant: float) -> Any:
    """Return Σ s ℓ over the agent's own rows where every score is `constant`."""
    return agent.at_constant(constant).losses


def _at_zero(agent: Agent) -> Any:
    """Return Σ s ℓ of a model of zeros over the agent's own rows; 0 with offsets.

    With offsets, the sum can exceed the range of numbers. The agent then sends 0, and later the
    loss of the intercept-only model.
    """
    return 0.0 if _has_offsets(agent) else _value(agent, 0.0)


def _squares(agent: Agent, constant: float) -> Any:
    """Return Σ s (y − constant)² or, with offsets, Σ s (o + constant)²."""
    if agent.offset is None:
        deviations = agent.exact_labels - constant
    else:
        deviations = agent.offset + constant
    return np.vecdot(deviations, agent.weighted(deviations))


def _null_loss(agent: Agent, null: float, saturated: float, constant: float) -> float:
    """Return the null loss, from the mean losses of the null and the saturated model.

    For a likelihood it is half the null deviance over n. If all labels are equal, the difference of
    the losses is a rounding error, and a small loss replaces it.
    """
    loss = agent.problem.loss
    difference = null - saturated
    if agent.moves_labels:
        if difference > _loss_off_by(agent, SAME * abs(constant)):
            return difference
        return _loss_off_by(agent, FLOOR * abs(constant)) or 1.0
    if difference > SAME * (abs(null) + abs(saturated)):
        return difference
    if not loss.steep:
        return 1.0
    # A relative error δ of the mean is an error δ of the score. It increases the loss by ½ δ² ℓ''.
    score = np.array([constant])
    hessian = loss.curvature(score, loss.response(score))
    return 0.5 * FLOOR**2 * float(hessian[0]) or 1.0


def _loss_off_by(agent: Agent, distance: float) -> float:
    """Return the loss of a score at this distance from its label."""
    return float(agent.problem.loss.each(np.array([distance]), np.zeros(1))[0])


def _label_scale(agent: Agent, mean_square: float, constant: float) -> float:
    """Return the scale of labels or offsets.

    `mean_square` is the mean of the squares in `_squares`.

    If a loss moves with labels, the scale is the root of the mean squared distance of labels from
    the null intercept (if that is 0, the size of the null intercept, or else 1). For other losses
    with offsets, the scale is the root of `mean_square`, but at least 1. Otherwise it is 1.
    """
    if agent.moves_labels:
        return math.sqrt(mean_square) or abs(constant) or 1.0
    if agent.problem.offset:
        return max(1.0, math.sqrt(mean_square))
    return 1.0


def _start(agent: Agent, constant: float) -> float:
    """Return the score at which methods start, if there is an intercept."""
    starts = agent.moves_labels or agent.problem.loss.steep or agent.problem.offset
    return constant if starts else 0.0


def _constants(agent: Agent, constant: float) -> dict[str, Any]:
    """Return the fields of the summary statistics that hold the null intercept.

    `shift` is subtracted from labels, or added to offsets. For other steep losses, methods start at
    `start`.
    """
    if agent.moves_labels or agent.problem.offset:
        return {"shift": constant}
    return {"start": constant if agent.problem.loss.steep else 0.0}


def lengths_of_start(
    agent: Agent[AnyProblem],
    total: float,
    losses: float,
    squares: float,
    gradient_squared: float,
    inverses: float,
) -> SummaryStatistics:
    """Return summary statistics with the lengths; the caller adds numbers about labels alone."""
    steepness = math.sqrt(gradient_squared) / total
    at_start = agent.problem.primal(losses, total, 0.0)
    reach = at_start / steepness if steepness > 0 else 0.0
    # A model of one column may need a coefficient of 2 P n / (‖x_j‖ ‖∇ℓ‖); for the squared loss,
    # this is ‖y‖ / ‖x_j‖.
    span = 2.0 * at_start * total * math.sqrt(inverses / squares) if squares > 0 else 0.0
    residual, span = math.sqrt(squares), max(reach, span)
    return SummaryStatistics(
        total, at_start, reach, residual, gap_unit=1.0, primal_at_zero=at_start, span=span
    )


def sum_of_inverses(lengths: FloatArray) -> float:
    """Return Σ_j 1 / ‖x_j‖² over the columns that are not zero, up to rounding."""
    kept = lengths[lengths > ROUNDING**2 * lengths.max(initial=0.0)].astype(float)
    return float((1.0 / kept).sum())


OF_CONSTANTS = (best_constant, _with_offsets)
OF_ROWS = (_by_samples, *OF_CONSTANTS)
PROTOCOLS = (*OF_ROWS, _by_features)
"""Protocols that compute the summary statistics."""
