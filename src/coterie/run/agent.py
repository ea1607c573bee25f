"""What one agent may see: its own data, its neighbours' numbers, its random streams, and what all
agreed on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, update_wrapper
from typing import Any, Generic, TypeVar, TypeVarTuple

import numpy as np

from coterie.data import Table
from coterie.data.remote import Elsewhere, RemoteTable
from coterie.numerics.arrays import (
    Design,
    FarDesign,
    FloatArray,
    is_sparse,
    is_tensor,
    precision_of,
)
from coterie.numerics.kernels.fixed_point import UNIT
from coterie.numerics.kernels.tensors import to_device_of
from coterie.numerics.local_loss import LEAST, Batch, LocalLoss, weighted_norm
from coterie.numerics.losses import Loss
from coterie.numerics.losses.shifted import Shifted
from coterie.problems.low_rank.tasks import Means
from coterie.problems.problem import P
from coterie.run.site import Site

S = TypeVar("S", bound=Site)
T = TypeVar("T")
Ts = TypeVarTuple("Ts")
A = TypeVar("A", bound="Agent[Any]")


def remembered(function: Callable[[A, *Ts], T]) -> Callable[[A, *Ts], T]:
    """The function of an agent, whose last result stays in that agent's scratch: asked again, it is
    not computed.
    """
    name = f"{function.__module__}.{function.__qualname__}"

    def last(agent: A, *arguments: *Ts) -> T:
        known: tuple[Any, T] | None = agent.scratch.get(name)
        if known is None or known[0] != arguments:
            known = agent.scratch[name] = arguments, function(agent, *arguments)
        return known[1]

    return update_wrapper(last, function)


def with_data(site: S) -> S:
    """The site or agent with its data, read here if it lives here."""
    if not isinstance(site.data, RemoteTable):
        return site
    data = site.data.read(site.index)
    careful = isinstance(site, Agent) and site.careful
    return replace(site, data=_in_double_precision(data) if careful else data, scratch={})


def _in_double_precision(data: Table) -> Table:
    """The table with its columns in double precision, wherever it is; tensors stay as they are."""
    if isinstance(data, RemoteTable):
        return replace(data, X=Elsewhere(data.X.shape))
    if is_tensor(data.X):
        return data
    return replace(data, X=data.X.astype(float, copy=False))


def numbers_held(agents: Sequence[Site]) -> int:
    """How many numbers an agent holds, on average: whether its work is worth a thread."""
    matrices = [agent.data.X for agent in agents]
    # One GPU gains nothing from a second thread; several work at the same time.
    busy = len({X.device for X in matrices if is_tensor(X)}) > 1
    held = (
        X.nnz if is_sparse(X) else math.prod(X.shape) for X in matrices if busy or not is_tensor(X)
    )
    return int(sum(held)) // max(len(agents), 1)


NOWHERE: FloatArray = np.empty(0)
"""No model: where there is nothing but scores; `Agent.at` puts one in its place."""


def form_batches(agents: Sequence[Agent[Any]]) -> None:
    """Let small agents that are alike look at their rows together, once introduced; see `Batch`."""
    alike: dict[Any, list[Agent[Any]]] = {}
    for agent in agents if len(agents) >= LEAST else ():
        table = agent.data
        if isinstance(table, RemoteTable):
            continue
        far = isinstance(agent.centred, FarDesign)
        batches = agent.problem.kind.local.batches
        if agent.split in batches and table.weights is None and agent.offset is None and not far:
            alike.setdefault(table.X.shape, []).append(agent)
    for members in alike.values():
        tables = [agent.data.X for agent in members]
        if Batch.fits(tables):
            batch = Batch(tables, [agent.exact_labels for agent in members], members[0].loss)
            for place, agent in enumerate(members):
                agent.scratch["batch"] = batch, place
                agent.scratch.pop("at 0", None)  # the cohort answers from now on


@dataclass(frozen=True)
class SummaryStatistics:
    """What all agents learned about the whole in their first conversation (see
    `certificate.introduce`).
    """

    total: float
    """n: the number of samples, or the sum of their weights."""
    primal_at_start: float
    """P at the model at which methods start, less the loss of a model that knows every label. It is
    a model of zeros; beside an intercept, labels have been lowered by `shift`, or the intercept is
    `start`.
    """
    reach: float
    """P / ‖∇P‖ there, or less: a length on the scale of the model."""
    residual: float
    """‖∇ℓ‖ over all samples there: a length on the scale of the dual."""
    gap_unit: float
    """What a relative gap is a share of: what the best constant loses (without an intercept: what 0
    loses) and a model that knows every label does not.
    """
    primal_at_zero: float
    """P(0), for labels as they were given."""
    largest: float = 0.0
    """max_l m_l: the most rows that one user has; for personal models only."""
    centre: FloatArray | None = None
    """Split by samples and with an intercept, the mean of every column."""
    unit: float = 1.0
    """How far, in the root of the mean of the squares, the columns are from it."""
    span: float = 0.0
    """At least `reach`, and for columns on scales of their own far more: the least radius of a
    bounded claim.
    """
    shift: float = 0.0
    """What this agent takes off its labels, and off the intercept: the best constant. Labels far
    from 0 then cost neither rounds nor digits. If a loss does not move with labels, it is added to
    the offsets instead. Split by features, only the agent with the labels has it.
    """
    start: float = 0.0
    """The intercept at which methods start, and a proof is tried first: the best constant of a
    steep loss.
    """
    label_scale: float = 1.0
    """How far labels are from the best constant, in the root of the mean of the squares; 1 for
    classes, or how far offsets are.
    """
    lengths: FloatArray | None = None
    """Split by samples, Σ s x² of every column as it is stored."""
    slope: FloatArray | None = None
    """Split by samples, X̃ᵀ(s∘ℓ') where methods start, in the coordinates of `Agent.centred`."""
    means: Means | None = None
    """For low-rank models with an intercept."""
    counts: tuple[float, ...] | None = None
    """The rows of each class, in the order of the classes; of survival times those without and with
    an event; of counts their sum alone. Where rows have weights, the sums of these. None: nothing
    is counted.
    """


def _never() -> bool:
    """No, whenever it is asked."""
    return False


@dataclass(frozen=True)
class Agent(Site, Generic[P]):
    """One holder of data, as a method sees it."""

    problem: P
    split: str
    neighbours: tuple[int, ...] = ()
    seed: int = 0
    statistics: SummaryStatistics | None = None
    ties: tuple[float, ...] = ()
    """The weight of each neighbour in the collaboration graph, split by users."""
    secret: bytes = field(default=b"", compare=False, repr=False)
    """Where `private_random` draws from, between organisations; without one, from the seed."""
    careful: bool = False
    """Whether the run stalled: methods take the steps that are most exact, whatever they cost; see
    `made_careful`.
    """
    should_stop: Callable[[], bool] = field(default=_never, compare=False, repr=False)
    """Whether the run ends after this round, so that long work inside it may end with what it has:
    time is up, or somebody pressed Ctrl-C. Clocks differ between processes, so it only says so
    where all agents live in one.
    """

    def made_careful(self) -> Agent[P]:
        """The same agent for a run that stalled: its numbers in double precision, also those of the
        model.

        Data in single precision stays what it is, but coefficients of that precision may not be
        close enough.
        """
        return replace(self, data=_in_double_precision(self.data), careful=True, scratch={})

    def release(self) -> None:
        """Forget what was computed from tensors: a result must not keep a GPU's memory."""
        if is_tensor(self.data.X):
            self.scratch.clear()

    @property
    def cut(self) -> float:
        """How much less than what was said a total may be: with secure sums, what everybody's
        rounding cut off.
        """
        return 0.5 * UNIT * self.count if self.secure_sums else 0.0

    @property
    def has_intercept(self) -> bool:
        """Whether its own part of the model ends with the intercept; split by features, the labels'
        holder has it.
        """
        return self.problem.intercept and (self.split != "features" or self.data.y is not None)

    @property
    def design(self) -> Design:
        """The data as a linear map, which stays the same when the agents have introduced
        themselves.

        A split by features gives the intercept's column to the agent with the labels, and lets each
        agent centre its own dense columns, because the intercept makes good for it.
        """
        known: Design | None = self.scratch.get(
            "design"
        )  # asked for so often that this is as short as can be
        if known is None:
            known = self.scratch["design"] = self.problem.kind.local.design(self)
        return known

    @cached_property
    def centred(self) -> Design:
        """The design in coordinates in which an intercept does not slow a first order method down,
        once introduced.
        """
        if self.statistics is None or self.statistics.centre is None:
            return self.design
        return self.problem.kind.local.centred(self)

    @property
    def proof_design(self) -> Design:
        """The design of scores in proofs: about the columns' means, where products with columns as
        they are round.
        """
        return self.centred if isinstance(self.centred, FarDesign) else self.design

    @property
    def labelled(self) -> int:
        """How many labels it has: one for each of its rows, or none."""
        return 0 if self.data.y is None else len(self.data.y)

    @cached_property
    def labels(self) -> FloatArray:
        """The `exact_labels` in the precision of X, in which some methods work: never part of a
        proof.
        """
        return self.exact_labels.astype(precision_of(self.data.X), copy=False)

    @cached_property
    def exact_labels(self) -> FloatArray:
        """Its labels, lowered by the shift once introduced; an empty array where it has none.

        They are in double precision. ℓ(u + o; y) = ℓ(u; y − o) where a loss moves with labels.
        """
        if self.data.y is None:
            return np.empty(0)
        exact = self.data.y.astype(float, copy=False)
        if self.moves_labels and self.data.offset is not None:
            exact = exact - self.data.offset
        return exact - self._shift if self._shift and self.moves_labels else exact

    @property
    def moves_labels(self) -> bool:
        """Whether the loss moves with labels: an offset, and the best constant, are then taken off
        them.
        """
        return self.problem.kind.local.moves_labels(self.problem)

    @cached_property
    def offset(self) -> FloatArray | None:
        """What is added to its own scores, in double precision; None if nothing is, or if it is
        taken off the labels.

        The best constant, once known, is part of it.
        """
        if self.data.offset is None or self.moves_labels:
            return None
        return self.data.offset + self._shift

    @cached_property
    def loss(self) -> Loss:
        """The loss of its own scores, to which offsets are added."""
        problem: Any = self.problem
        loss: Loss = problem.loss
        return loss if self.offset is None else Shifted(loss, self.offset)

    @property
    def _shift(self) -> float:
        return 0.0 if self.statistics is None else self.statistics.shift

    def lowered(self, w: FloatArray) -> FloatArray:
        """A model that people know, with the intercept that belongs to the lowered labels."""
        return self._moved(w, -self._shift)

    def raised(self, w: FloatArray) -> FloatArray:
        """The inverse of `lowered`: a model of this run as people know it."""
        return self._moved(w, self._shift)

    def _moved(self, w: FloatArray, by: float) -> FloatArray:
        if not by or not self.has_intercept:
            return w
        # In double precision: beside a large shift, an intercept of single precision would have no
        # digits left.
        moved = w.astype(float)
        moved[-1] += by
        return moved

    def at(self, w: FloatArray, design: Design | None = None) -> Any:
        """The loss at w, in the coordinates of that design.

        If w can no longer be changed it is remembered: a proof and the next round look at the same
        model.
        """
        design = design or self.design
        place = "here" if design is self.design else "here, centred"
        known: Any = self.scratch.get(place)
        if known is None or known.w is not w:
            lasting = w.flags.owndata and not w.flags.writeable
            origin = self.scratch.pop(
                "at 0", None
            )  # at whatever model the first look is, it is not kept for longer
            if origin is not None and design is self.design and not w.any():
                known, origin.w = origin, w
            elif lasting and (together := self.scratch.get("batch")) is not None:
                known = together[0].member(together[1], w, design)
            if known is not None and known.w is w:
                pass
            else:
                known = self.problem.kind.local.view(self, w, design)
            if lasting:
                self.scratch[place] = known
        return known

    def at_constant(self, constant: float) -> LocalLoss:
        """The loss where every score is that constant.

        Without an intercept it is remembered until somebody asks for the loss at a model: most
        methods start at 0.
        """
        y = self.exact_labels
        here = LocalLoss(
            NOWHERE, self.design, self.loss, y, self.data.weights, np.full(len(y), constant)
        )
        if constant == 0.0 and not self.problem.intercept and not is_tensor(self.data.X):
            self.scratch["at 0"] = here
        return here

    @property
    @remembered
    def beside_rows(self) -> tuple[Loss, Any, Any]:
        """The loss, labels and weights on the device of its own rows."""
        X, weights, loss = self.data.X, self.data.weights, self.loss
        if isinstance(loss, Shifted):
            loss = Shifted(loss.base, to_device_of(X, loss.offset))
        return (
            loss,
            to_device_of(X, self.exact_labels),
            None if weights is None else to_device_of(X, weights.astype(float)),
        )

    @cached_property
    def domain(self) -> tuple[FloatArray, FloatArray]:
        """The interval of every own dual."""
        problem: Any = self.problem
        interval: tuple[FloatArray, FloatArray] = problem.loss.domain(self.exact_labels)
        return interval

    @cached_property
    def domain_norm(self) -> Any:
        """√(Σ s b²) for the lengths b of these intervals."""
        lower, upper = self.domain
        return weighted_norm(upper - lower, self.data.weights)

    @property
    def conjugate_at_zero(self) -> Any:
        """Σ s ℓ*(0)."""
        return self._conjugate_at_zero(self._shift)

    @remembered
    def _conjugate_at_zero(
        self, shift: float
    ) -> Any:  # by the shift, which moves labels once they are introduced
        y = self.exact_labels
        return self.summed(self.loss.conjugate_each(np.zeros(y.shape), y))

    @property
    @remembered
    def column_squares(self) -> FloatArray:
        """Σ s x² of every own column as it is stored; split by features, without the weights."""
        squares: FloatArray = self.design.squares(
            None if self.split == "features" else self.data.weights
        )
        return squares.astype(float, copy=False)

    @cached_property
    def weight(self) -> float:
        """How much its own rows weigh: their number, or the sum of their weights."""
        return (
            float(self.data.n)
            if self.data.weights is None
            else float(self.data.weights.sum(dtype=float))
        )

    @cached_property
    def label_norm(self) -> Any:
        """√(Σ s y²) of its own labels."""
        return weighted_norm(self.exact_labels, self.data.weights)

    @cached_property
    def offset_norm(self) -> float:
        """√(Σ s o²) of its own offsets."""
        return (
            0.0
            if self.offset is None
            else math.sqrt(float(self.offset @ self.weighted(self.offset)))
        )

    @cached_property
    def column_norms(self) -> FloatArray:
        """The roots of `column_squares`."""
        return np.sqrt(self.column_squares)

    @cached_property
    def centred_norms(self) -> FloatArray:
        """√(Σ s x²) of its own columns about the means of all."""
        return np.sqrt(self.centred.squares(self.data.weights))

    @cached_property
    def squared_norm(self) -> float:
        """λmax of its own samples' Gram matrix, weighted; 1 for a block of zeros, so that it can be
        divided by.
        """
        return self.centred.squared_norm(self.data.weights) or 1.0

    def first_model(self) -> FloatArray:
        """0, or what the penalty allows nearest to it: where methods start."""
        problem: Any = self.problem
        first: FloatArray = np.zeros(self.design.shape[1], self.design.dtype)
        if self.design.intercept and self.statistics is not None:
            first[-1] = self.statistics.start
        allowed: FloatArray = problem.prox(first, 1.0, self.design.intercept)
        return allowed

    @property
    def total(self) -> float:
        """n, once introduced."""
        return self.known.total

    @property
    def known(self) -> SummaryStatistics:
        """What all agreed on, once introduced."""
        assert self.statistics is not None, "the agents have not introduced themselves yet"
        return self.statistics

    def weighted(self, v: FloatArray) -> FloatArray:
        """s∘v: one number per sample times its weight, in the precision of v."""
        return (
            v if self.data.weights is None else (v * self.data.weights).astype(v.dtype, copy=False)
        )

    def summed(self, values: FloatArray) -> Any:
        """Σ s v, of one number per sample, in double precision."""
        exact, weights = values.astype(float, copy=False), self.data.weights
        return float(exact.sum()) if weights is None else float(np.dot(exact, weights))

    def random(self, round: int) -> np.random.Generator:
        """This agent's own random stream for that round: a function of (seed, agent, round)
        alone.
        """
        return np.random.default_rng([self.seed, 1 + self.index, round])

    def private_random(self, round: int) -> np.random.Generator:
        """A stream that no other agent knows, if this one has a secret: for numbers that multiply
        private data.
        """
        if not self.secret:
            return self.random(round)
        return np.random.default_rng(
            [*np.frombuffer(self.secret, np.uint32).tolist(), 1 + self.index, round]
        )

    def common_random(self, round: int) -> np.random.Generator:
        """The random stream that all agents share in that round, without a message."""
        return np.random.default_rng([self.seed, 0, round])

    def one_hot(self, value: float) -> FloatArray:
        """A vector with one place per agent and `value` in mine: its `Sum` tells everybody
        everybody's value.
        """
        places = np.zeros(self.count)
        places[self.index] = value
        return places
