"""An agent: the data of one party, its neighbours, its random streams, and the summary statistics
that all agents computed together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, update_wrapper
from typing import Any, Generic, Self, TypeVar, TypeVarTuple, overload

import numpy as np

from coterie.data import Table
from coterie.data.remote_table import AnyTable, RemoteTable
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
from coterie.problems.problem import AnyProblem, P
from coterie.run.site import Site, SiteForm

S = TypeVar("S", bound=SiteForm)
T = TypeVar("T")
Ts = TypeVarTuple("Ts")
A = TypeVar("A", bound="Agent[AnyProblem]")
AT_ZERO = "at 0"
"""The name in an agent's scratch of its loss at a model of zeros."""


def remembered(function: Callable[[A, *Ts], T]) -> Callable[[A, *Ts], T]:
    """Keep the last result of this function in the agent's scratch, and return it if the arguments
    are the same.
    """
    name = f"{function.__module__}.{function.__qualname__}"

    def last(agent: A, *arguments: *Ts) -> T:
        known: tuple[Any, T] | None = agent.scratch.get(name)
        if known is None or known[0] != arguments:
            known = agent.scratch[name] = arguments, function(agent, *arguments)
        return known[1]

    return update_wrapper(last, function)


@overload
def with_data(site: AgentForm[P]) -> Agent[P]: ...
@overload
def with_data(site: SiteForm) -> Site: ...
def with_data(site: SiteForm) -> Site:
    """The site or agent with its table, which is read here if it lives here."""
    if isinstance(site, Site):
        return site
    data = site.data
    if isinstance(data, RemoteTable):
        data = data.read(site.index)
    if not isinstance(site, AgentForm):
        return _made(Site, site, data)
    if site.careful:
        data = _in_double_precision(data)
    return _made(Agent, site, data)


def forms_of_agents(sites: Sequence[SiteForm]) -> list[AgentForm[AnyProblem]]:
    """The same parties, for code that takes rounds: each of them is an agent."""
    found = []
    for site in sites:
        assert isinstance(site, AgentForm), "only agents take rounds; a site runs a Conversation"
        found.append(site)
    return found


def left_there(site: SiteForm, data: RemoteTable) -> SiteForm:
    """The site or agent as a driver knows it, whose table is at a worker."""
    if isinstance(site, AgentForm):
        return _made(AgentForm, site, data)
    return _made(SiteForm, site, data)


def _made(kind: type[S], site: SiteForm, data: AnyTable) -> S:
    """A site of that class, with the fields of this one and this table."""
    known = {entry.name: getattr(site, entry.name) for entry in fields(kind)}
    return kind(**{**known, "data": data, "scratch": {}})


def _in_double_precision(data: Table) -> Table:
    """The table with its columns in double precision; tensors stay as they are."""
    if is_tensor(data.X):
        return data
    return replace(data, X=data.X.astype(float, copy=False))


def numbers_held(agents: Sequence[SiteForm]) -> int:
    """The numbers that an agent holds, on average. They decide whether its work is worth a
    thread.
    """
    tables = [agent.data for agent in agents]
    matrices = [table.X for table in tables if isinstance(table, Table)]
    # One GPU gains nothing from a second thread; several GPUs compute at the same time.
    several = len({X.device for X in matrices if is_tensor(X)}) > 1
    held = sum(table.n * table.d for table in tables if isinstance(table, RemoteTable))
    for X in matrices:
        if is_tensor(X) and not several:
            continue
        held += X.nnz if is_sparse(X) else math.prod(X.shape)
    return int(held) // max(len(agents), 1)


NOWHERE: FloatArray = np.empty(0)
"""Stands for a model where only scores are known; `Agent.at` puts a model in its place."""


def form_batches(agents: Sequence[AgentForm[AnyProblem]]) -> None:
    """Let small agents of equal size compute their losses in one `Batch`: before they are
    introduced, and again afterwards, because labels may be lowered.
    """
    if len(agents) < LEAST:
        return
    alike: dict[Any, list[Agent[AnyProblem]]] = {}
    for agent in agents:
        agent.scratch.pop("batch", None)
        if isinstance(agent, Agent) and _may_join_a_batch(agent):
            alike.setdefault(agent.data.X.shape, []).append(agent)
    for members in alike.values():
        _form_batch(members)


def _form_batch(members: Sequence[Agent[AnyProblem]]) -> None:
    """Let these agents of equal size compute in one `Batch`, if it can hold them."""
    tables = [agent.data.X for agent in members]
    most = members[0].problem.kind.local.most_in_batch
    if not Batch.fits(tables, most) or isinstance(members[0].centred, FarDesign):
        return
    labels = [agent.exact_labels for agent in members]
    weights = None
    if members[0].even:
        weights = [agent.weighted(np.ones(agent.data.n)) for agent in members]
    batch = Batch(tables, labels, members[0].loss, weights)
    for place, agent in enumerate(members):
        agent.scratch["batch"] = batch, place
        agent.scratch.pop(AT_ZERO, None)  # the batch computes it from now on


def changes_rows(agent: Agent[AnyProblem]) -> bool:
    """Whether the introduction has lowered labels, or moved columns that are far from 0."""
    return agent.known.shift != 0.0 or isinstance(agent.centred, FarDesign)


def _may_join_a_batch(agent: Agent[AnyProblem]) -> bool:
    """Whether a batch can compute the loss of this agent."""
    table = agent.data
    if agent.problem.offset and not agent.moves_labels:
        return False
    if agent.split not in agent.problem.kind.local.batches:
        return False
    return table.weights is None or agent.even


@dataclass(frozen=True)
class SummaryStatistics:
    """The first sums of all agents, which every agent knows (see `certificate.introduce`)."""

    total: float
    """n: the number of samples, or the sum of their weights."""
    primal_at_start: float
    """P at the model at which methods start, less the loss of a model that knows every label. It is
    a model of zeros; with an intercept, labels have been lowered by `shift`, or the intercept is
    `start`.
    """
    reach: float
    """P / ‖∇P‖ there, or less: a length on the scale of the model."""
    residual: float
    """‖∇ℓ‖ over all samples there: a length on the scale of the dual."""
    gap_unit: float
    """The null loss, by which gaps are divided: the loss of the intercept-only model (without an
    intercept: of the model 0), less that of a model that knows every label.
    """
    primal_at_zero: float
    """P(0), for labels as they were given."""
    largest: float = 0.0
    """max_l m_l: the most rows that one user has; for personal models only."""
    centre: FloatArray | None = None
    """Split by samples and with an intercept, the mean of every column."""
    unit: float = 1.0
    """The root of the mean squared distance of the columns from `centre`."""
    span: float = 0.0
    """At least `reach`, and far more if columns have different scales: the least norm bound of a
    claim.
    """
    shift: float = 0.0
    """The intercept of the intercept-only model. This agent subtracts it from its labels, and from
    the intercept: labels far from 0 then cost neither rounds nor digits. If a loss does not move
    with labels, the agent adds it to the offsets instead. Split by features, only the agent with
    the labels has it.
    """
    start: float = 0.0
    """The intercept at which methods start, and a proof is tried first: that of the intercept-only
    model, if the loss is steep.
    """
    label_scale: float = 1.0
    """The root of the mean squared distance of labels from `shift`; for classes 1, or that of the
    offsets.
    """
    lengths: FloatArray | None = None
    """Split by samples, Σ s x² of every column as it is stored."""
    gradient_at_start: FloatArray | None = None
    """Split by samples, X̃ᵀ(s∘ℓ') where methods start, in the coordinates of `Agent.centred`."""
    labels_at: int = 0
    """Split by features, the agent with the labels."""
    means: Means | None = None
    """For low-rank models with an intercept."""
    counts: tuple[float, ...] | None = None
    """The rows of each class, in the order of the classes; of survival times those without and with
    an event; of counts their sum alone. If rows have weights, the sums of these. None: nothing is
    counted.
    """


def _never() -> bool:
    """Ask for no stop."""
    return False


@dataclass(frozen=True)
class AgentForm(SiteForm, Generic[P]):
    """An agent for a process that may not have its table; see `SiteForm`."""

    problem: P
    split: str
    neighbours: tuple[int, ...] = ()
    seed: int = 0
    statistics: SummaryStatistics | None = None
    ties: tuple[float, ...] = ()
    """The weight of each neighbour in the collaboration graph, split by users."""
    secret: bytes = field(default=b"", compare=False, repr=False)
    """The seed of `private_random` between organisations; without one, `seed` is used."""
    careful: bool = False
    """Whether the run stalled: methods then take their most exact steps, at any cost; see
    `made_careful`.
    """
    rows: int = -1
    """The number of its own rows, if rows of weight 0 follow these in `data`; else -1."""
    should_stop: Callable[[], bool] = field(default=_never, compare=False, repr=False)
    """Whether the run ends after this round, because time is up or the user pressed Ctrl-C: long
    work in the round may then end early. Clocks differ between processes, so it returns True only
    if all agents are in one process.
    """

    def made_careful(self) -> Self:
        """The same agent for a run that stalled: its model in double precision, and its data, if it
        is here.

        This does not make the data more exact, but coefficients in single precision may not be
        close enough.
        """
        return replace(self, careful=True, scratch={})

    @property
    def labelled(self) -> int:
        """The number of its labels: one for each of its rows, or none."""
        return 0 if self.data.outputs is None else self.data.n

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the batch, which has the rows of other agents in this process."""
        scratch = {name: known for name, known in self.scratch.items() if name != "batch"}
        return {**vars(self), "scratch": scratch}

    def release(self) -> None:
        """Forget what was computed from a table: nothing, if the table is at a worker."""

    @property
    def even(self) -> bool:
        """Whether rows of weight 0 follow its own rows; see `Local.evened`."""
        return self.rows >= 0

    @property
    def has_intercept(self) -> bool:
        """Whether its own part of the model ends with the intercept; split by features, only the
        agent with the labels has it.
        """
        return self.problem.intercept and (
            self.split != "features" or self.data.outputs is not None
        )

    @property
    def known(self) -> SummaryStatistics:
        """The summary statistics, once introduced."""
        assert self.statistics is not None, "the agents have not introduced themselves yet"
        return self.statistics

    @property
    def _shift(self) -> float:
        return 0.0 if self.statistics is None else self.statistics.shift

    def lowered(self, w: FloatArray) -> FloatArray:
        """A model for labels as they were given, with the intercept for lowered labels."""
        return self._moved(w, -self._shift)

    def raised(self, w: FloatArray) -> FloatArray:
        """The inverse of `lowered`: a model of this run, for labels as they were given."""
        return self._moved(w, self._shift)

    def _moved(self, w: FloatArray, by: float) -> FloatArray:
        if not by or not self.has_intercept:
            return w
        # In double precision: after a large shift, an intercept in single precision would have no
        # digits left.
        moved = w.astype(float)
        moved[-1] += by
        return moved


@dataclass(frozen=True)
class Agent(AgentForm[P], Site):
    """The process that computes for one party, as methods use it."""

    data: Table

    def made_careful(self) -> Self:
        data = _in_double_precision(self.data)
        return replace(super().made_careful(), data=data)

    @property
    def parts(self) -> Sequence[Agent[P]]:
        """The agents that this one computes for: itself, or the members of a batch."""
        return [self]

    @property
    def own_rows(self) -> Any:
        """The number of its own rows."""
        return self.rows if self.even else self.data.n

    def release(self) -> None:
        """Forget all that was computed from tensors: a result must not keep a GPU's memory."""
        if is_tensor(self.data.X):
            self.scratch.clear()

    @property
    def cut(self) -> float:
        """By how much rounding may lower an aggregate: secure sums cut off digits at every
        agent.
        """
        return 0.5 * UNIT * self.count if self.secure_sums else 0.0

    @property
    def design(self) -> Design:
        """The data as a linear map, before and after the introduction.

        Split by features, the agent with the labels has the column of the intercept, and each agent
        centres its own dense columns, because the intercept compensates for it.
        """
        # This property is read very often: it is as short as possible.
        known: Design | None = self.scratch.get("design")
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
        if not self.moves_labels:
            return exact
        if self.data.offset is not None:
            exact = exact - self.data.offset
        if self._shift:
            exact = exact - self._shift
        return exact

    @property
    def moves_labels(self) -> bool:
        """Whether the loss moves with labels: offset and shift are then subtracted from them."""
        return self.problem.kind.local.moves_labels(self.problem)

    @cached_property
    def offset(self) -> FloatArray | None:
        """The numbers added to its own scores, in double precision; None if there are none, or if
        they are subtracted from the labels.

        The shift, once known, is part of them.
        """
        if self.data.offset is None or self.moves_labels:
            return None
        return self.data.offset + self._shift

    @cached_property
    def loss(self) -> Loss:
        """The loss of its own scores, to which offsets are added."""
        problem: Any = self.problem
        loss: Loss = problem.loss
        if self.offset is None:
            return loss
        return Shifted(loss, self.offset)

    def at(self, w: FloatArray, design: Design | None = None) -> Any:
        """The loss at w, in the coordinates of that design.

        If w can no longer be changed, the loss is kept: a proof and the next round use it at the
        same model.
        """
        design = design or self.design
        place = "here" if design is self.design else "here, centred"
        known: Any = self.scratch.get(place)
        if known is not None and known.w is w:
            return known
        lasting = w.flags.owndata and not w.flags.writeable
        known = self._at_origin(w, design)
        batch = self.scratch.get("batch")
        if known is None and lasting and batch is not None:
            known = batch[0].member(batch[1], w, design)
        if known is None or known.w is not w:
            known = self.problem.kind.local.view(self, w, design)
        if lasting:
            self.scratch[place] = known
        return known

    def _at_origin(self, w: FloatArray, design: Design) -> LocalLoss | None:
        """The loss that `at_start` kept, if w is 0. It is kept until the first look at a model
        only, whatever that model is.
        """
        origin: LocalLoss | None = self.scratch.pop(AT_ZERO, None)
        if origin is None or design is not self.design or w.any():
            return None
        origin.w = w
        return origin

    def at_constant(self, constant: float) -> Any:
        """The loss where every score is that constant."""
        y = self.exact_labels
        scores = np.full(len(y), constant)
        return LocalLoss(NOWHERE, self.design, self.loss, y, self.data.weights, scores)

    def at_start(self, constant: float) -> Any:
        """The loss where every score is the constant at which methods start.

        Without an intercept it is kept until `at` computes the loss at a model: most methods start
        at 0.
        """
        local = self.at_constant(constant)
        if constant == 0.0 and not self.problem.intercept and not is_tensor(self.data.X):
            self.scratch[AT_ZERO] = local
        return local

    @property
    @remembered
    def on_device(self) -> tuple[Loss, Any, Any]:
        """The loss, labels and weights on the device of its own rows."""
        X, weights, loss = self.data.X, self.data.weights, self.loss
        if isinstance(loss, Shifted):
            loss = Shifted(loss.base, to_device_of(X, loss.offset))
        if weights is not None:
            weights = to_device_of(X, weights.astype(float))
        return loss, to_device_of(X, self.exact_labels), weights

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
    def _conjugate_at_zero(self, shift: float) -> Any:
        # The introduction changes the shift, and with it the labels.
        y = self.exact_labels
        return self.summed(self.loss.conjugate_each(np.zeros(y.shape), y))

    @property
    @remembered
    def column_squares(self) -> FloatArray:
        """Σ s x² of every own column as it is stored; split by features, without the weights."""
        weights = None if self.split == "features" else self.data.weights
        squares: FloatArray = self.design.squares(weights)
        return squares.astype(float, copy=False)

    @cached_property
    def weight(self) -> float:
        """The weight of its own rows: their number, or the sum of their weights."""
        if self.data.weights is None:
            return float(self.data.n)
        return float(self.data.weights.sum(dtype=float))

    @cached_property
    def label_norm(self) -> Any:
        """√(Σ s y²) of its own labels."""
        return weighted_norm(self.exact_labels, self.data.weights)

    @cached_property
    def offset_norm(self) -> float:
        """√(Σ s o²) of its own offsets."""
        if self.offset is None:
            return 0.0
        return math.sqrt(float(self.offset @ self.weighted(self.offset)))

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
        """The model at which methods start: 0, or the nearest one that the penalty allows."""
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

    def weighted(self, v: FloatArray) -> FloatArray:
        """s∘v: one number per sample times its weight, in the precision of v."""
        if self.data.weights is None:
            return v
        return (v * self.data.weights).astype(v.dtype, copy=False)

    def summed(self, values: FloatArray) -> Any:
        """Σ s v, of one number per sample, in double precision."""
        exact = values.astype(float, copy=False)
        if self.data.weights is None:
            return float(exact.sum())
        return float(np.dot(exact, self.data.weights))

    def random(self, round: int) -> np.random.Generator:
        """This agent's own random stream for that round: a function of (seed, agent, round)
        alone.
        """
        return self.random_of(self.index, round)

    def random_of(self, agent: int, round: int) -> np.random.Generator:
        """Another agent's stream for that round. All agents of a run know it."""
        return np.random.default_rng([self.seed, 1 + agent, round])

    def private_random(self, round: int) -> np.random.Generator:
        """A stream that no other agent knows, if this one has a secret: for numbers that multiply
        private data.
        """
        if not self.secret:
            return self.random(round)
        secret = np.frombuffer(self.secret, np.uint32).tolist()
        return np.random.default_rng([*secret, 1 + self.index, round])

    def common_random(self, round: int) -> np.random.Generator:
        """The random stream that all agents share in that round, without a message."""
        return np.random.default_rng([self.seed, 0, round])

    def one_hot(self, value: float) -> FloatArray:
        """A vector with one place per agent, and `value` in this agent's place: in its `Sum`, every
        agent receives the values of all.
        """
        places = np.zeros(self.count)
        places[self.index] = value
        return places
