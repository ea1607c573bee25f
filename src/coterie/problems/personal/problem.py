"""One model per user: the problem of "Communication-Efficient and Decentralized Multi-Task
Boosting while Learning the Collaboration Graph" (Zantedeschi, Bellet, Tommasi).

    f(α) = Σ_k d_k c_k L_k(α_k) + (μ/2) Σ_{k<l} w_kl ‖α_k − α_l‖²,   ‖α_k‖₁ ≤ β
    (1)
    L_k(α) = log Σ_i exp(−[A_k α]_i),   [A_k]_ij = y_i h_j(x_i),   c_k = m_k / max_l m_l,   d_k =
                                        Σ_l w_kl

A user without neighbours has d_k = 1, so that it learns alone. A user without rows has c_k = 0, so
that only its neighbours determine its model. With `pooled`, all users have one model, which
minimises log Σ_k exp(L_k(α)). This is ℓ1-AdaBoost on the rows of all users.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from coterie.data import Table
from coterie.data.remote_table import AnyTable
from coterie.errors import InvalidData, InvalidProblem, NumericalError, UnknownName
from coterie.numerics.arrays import FloatArray, as_number, whole_number
from coterie.numerics.kernels.boosting import log_sum, log_sum_gradient
from coterie.numerics.kernels.hinge_block import mean_hinge
from coterie.problems import kind_named
from coterie.problems.personal.predictors import Given, Linear, Predictors, Stumps
from coterie.problems.problem import AnyProblem
from coterie.run.agent import Agent, remembered
from coterie.run.collectives import Protocol, Sum

if TYPE_CHECKING:
    from coterie.problems.kind import Kind

LEARNED = "learned"
"""The name of a collaboration graph that is learned from the data."""
NAMES = ("linear", "stumps")
SHELF = 500.0
SHELVES = 200


@dataclass(frozen=True, init=False)
class Personal(AnyProblem):
    """One classifier per user, boosted from shared base predictors, near those of similar users.

    predictors  "stumps" (spread over the columns' value ranges), "linear", `Predictors`, or a list
                of fitted classifiers and functions
    count       number of stumps; default: 10 per column
    constant    whether each user also has an intercept with stumps; with linear predictors, each
                user always has one, except with `hinge`
    beta        β: the largest norm of a model
    mu          μ: strength of the penalty on differences between neighbours' models
    lam         λ: density of a learned graph; a smaller λ gives a sparser graph
    delta       δ: keeps the logarithm of a degree finite
    norm        "l1" (sparse models), or "l2"

    `solve` sets three parameters as the method needs them: `pooled` (one model for all users),
    `learned` (the graph is learned), and `hinge` (L_k is the mean hinge loss in place of the
    log-sum).
    """

    intercept: bool
    offset: bool = field(repr=False)
    predictors: Predictors | str
    count: int | None
    beta: float
    mu: float
    lam: float
    delta: float
    norm: str
    pooled: bool
    learned: bool
    constant: bool
    hinge: bool

    def __init__(
        self,
        predictors: Predictors | str | Sequence[Any] = "stumps",
        *,
        count: int | None = None,
        beta: float = 10.0,
        mu: float = 1.0,
        lam: float = 10.0,
        delta: float = 0.1,
        norm: Literal["l1", "l2"] = "l1",
        pooled: bool = False,
        learned: bool = False,
        constant: bool = False,
        hinge: bool = False,
    ):
        if isinstance(predictors, str) and predictors not in NAMES:
            raise UnknownName("set of base predictors", predictors, NAMES)
        if norm not in ("l1", "l2"):
            raise UnknownName("norm", norm, ("l1", "l2"))
        for name, value in {"beta": beta, "lam": lam, "delta": delta}.items():
            if not 0 < as_number(value) < math.inf:
                raise InvalidProblem(f"{name} must be a positive number, not {value!r}.")
        if not 0 <= as_number(mu) < math.inf:
            raise InvalidProblem(
                f"mu must be a number from 0, not {mu!r}. With 0, each user learns alone."
            )
        if count is not None:
            count = whole_number("count", count)
        if isinstance(predictors, str | Predictors):
            chosen = predictors
        else:
            chosen = Given(tuple(predictors))
        fields = {
            "intercept": False,
            "offset": False,
            "predictors": chosen,
            "count": count,
            "beta": float(beta),
            "mu": float(mu),
            "lam": float(lam),
            "delta": float(delta),
            "norm": norm,
            "pooled": bool(pooled),
            "learned": bool(learned),
            "constant": bool(constant),
            "hinge": bool(hinge),
        }
        for name, entry in fields.items():
            object.__setattr__(self, name, entry)

    @property
    def kind(self) -> Kind[Any, Any]:
        """The kind of personal problems."""
        return kind_named("personal")

    @property
    def base(self) -> Predictors:
        """The base predictors, after `on` has adapted them to the columns."""
        assert isinstance(self.predictors, Predictors), (
            "the stumps have not been spread yet; see `on`"
        )
        return self.predictors

    def predictor_count(self, columns: int) -> int:
        """The number of base predictors for this number of columns, also before `on` spreads the
        stumps over them.
        """
        if isinstance(self.predictors, Predictors):
            return self.predictors.count
        if self.predictors == "linear":
            return Linear(columns, not self.hinge).count
        return Stumps.number(columns, self.count, self.constant)

    def but(self, **changes: Any) -> Personal:
        """The same problem with some parameters changed."""
        own = (
            "predictors",
            "count",
            "beta",
            "mu",
            "lam",
            "delta",
            "norm",
            "pooled",
            "learned",
            "constant",
            "hinge",
        )
        return Personal(**{**{name: getattr(self, name) for name in own}, **changes})

    def on(self, tables: Sequence[AnyTable]) -> Personal:
        """The same problem with predictors for the columns of these tables. Stumps use the value
        ranges over the rows of all users.
        """
        weighted = [table.name for table in tables if "weights" in table.row_values]
        if weighted:
            raise InvalidData(
                f"personal models take no sample weights, but {weighted[0]!r} has some. Leave "
                "them out."
            )
        if isinstance(self.predictors, Predictors):
            return self
        if self.predictors == "linear":
            return self.but(predictors=Linear(tables[0].d, not self.hinge))
        here = [table for table in tables if isinstance(table, Table)]
        assert len(here) == len(tables), "`ranges_of` has the ranges of tables at workers"
        ranges = [_ranges(table) for table in here if table.n]
        lower, upper = (
            pick([r[side] for r in ranges], axis=0) for side, pick in ((0, np.min), (1, np.max))
        )
        return self.but(predictors=Stumps.spread(lower, upper, self.count, self.constant))

    def settings(self) -> dict[str, Any]:
        """Everything that defines the problem, as plain values."""
        names = ("count", "beta", "mu", "lam", "delta", "norm", "pooled", "learned")
        own = {name: getattr(self, name) for name in names}
        own |= {name: True for name in ("constant", "hinge") if getattr(self, name)}
        if isinstance(self.predictors, str):
            own["predictors"] = self.predictors
        else:
            own["predictors"] = self.predictors.settings()
        return {"intercept": False, "personal": own}

    @staticmethod
    def from_settings(settings: dict[str, Any]) -> Personal:
        """The problem that `settings()` described. Functions and classifiers cannot be restored
        from settings.
        """
        own = dict(settings["personal"])
        named = own.pop("predictors")
        if isinstance(named, dict):
            parts = dict(named)
            match parts.pop("name"):
                case "stumps":
                    named = Stumps(tuple(parts["columns"]), tuple(parts["thresholds"]))
                case "linear":
                    named = Linear(parts["columns"], parts["constant"])
                case other:
                    raise InvalidProblem(
                        f"base predictors of the kind {other!r} are not kept in files; give them "
                        "again."
                    )
        return Personal(named, **own)


def _ranges(table: Table) -> tuple[FloatArray, FloatArray]:
    if hasattr(table.X, "toarray"):
        X = table.X.toarray()
    else:
        X = table.X
    return X.min(axis=0), X.max(axis=0)


@remembered
def margins(agent: Agent[Personal]) -> FloatArray:
    """The matrix A_k, with [A_k]_ij = y_i h_j(x_i)."""
    return np.ascontiguousarray(
        agent.exact_labels[:, None] * agent.problem.base.values(agent.data.X)
    )


@remembered
def curvature(agent: Agent[Personal]) -> float:
    """A bound on the curvature of log Σ exp(−Aα): the largest squared norm of a row of A."""
    A = margins(agent)
    if len(A):
        return float(np.einsum("ij,ij->i", A, A).max())
    return 1.0


def user_loss(agent: Agent[Personal], alpha: FloatArray) -> float:
    """L_k(α): the log-sum loss, or the mean hinge loss, of the user's own rows."""
    return (mean_hinge if agent.problem.hinge else log_sum)(margins(agent), alpha)


def confidence(agent: Agent[Personal]) -> float:
    """The confidence c_k = m_k / max_l m_l."""
    assert agent.statistics is not None
    return agent.data.n / agent.statistics.largest


def pooled_gradient(
    agent: Agent[Personal], alpha: FloatArray
) -> Protocol[tuple[float, FloatArray]]:
    """The loss log Σ_k exp(L_k(α)) on the rows of all users, and its gradient."""
    gradient = np.empty(alpha.size)
    loss = log_sum_gradient(margins(agent), alpha, np.zeros(alpha.size), 1.0, 0.0, gradient)
    # A common shift, so that no exponential overflows: the upper end of the highest interval
    # ("shelf") that contains the loss of a user.
    shelf = min(max(int(loss // SHELF) + SHELVES // 2, 0), SHELVES - 1)
    taken = np.zeros(SHELVES)
    taken[shelf] = agent.data.n > 0
    shift = (float(np.flatnonzero((yield Sum(taken)))[-1]) - SHELVES // 2 + 1) * SHELF
    if agent.data.n:
        scale = math.exp(loss - shift)
    else:
        scale = 0.0
    sums = yield Sum(np.append(scale * gradient, scale))
    if not 0.0 < float(sums[-1]) < math.inf:
        raise NumericalError(
            "the margins are too large for the pooled loss. Lower beta, or scale the predictors."
        )
    return shift + math.log(sums[-1]), sums[:-1] / sums[-1]


def pooled_step(agent: Agent[Personal], alpha: FloatArray, grid: int = 24) -> Protocol[FloatArray]:
    """Take a pairwise step on the rows of all users: move weight from the worst base predictor in
    use to the best. A search on a grid finds the step size.
    """
    beta = agent.problem.beta
    value, g = yield from pooled_gradient(agent, alpha)
    toward = np.zeros(alpha.size)
    best = int(np.argmax(np.abs(g)))
    toward[best] = -beta * np.sign(g[best])
    heights = np.where(alpha != 0, beta * np.sign(alpha) * g, -np.inf)
    worst = int(np.argmax(heights))
    slack = 1 - float(np.abs(alpha).sum()) / beta
    away = np.zeros(alpha.size)
    largest = slack
    if heights[worst] > 0 or slack <= 1e-12:
        away[worst] = beta * np.sign(alpha[worst])
        largest = abs(alpha[worst]) / beta
    A = margins(agent)
    margin = A @ alpha
    change = A @ (toward - away)
    low = largest * 2.0 ** (1 - grid)
    high = largest
    for _ in range(2):
        steps = np.geomspace(low, high, grid)
        # exp(−margins) relative to the pooled loss at γ = 0, which all users know
        exponents = np.minimum(-(margin[:, None] + change[:, None] * steps) - value, 700.0)
        sums = yield Sum(np.exp(exponents).sum(axis=0))
        place = int(np.argmin(sums))
        low = steps[max(place - 1, 0)]
        high = steps[min(place + 1, grid - 1)]
    if sums[place] < 1.0:
        step = float(steps[place])
    else:
        step = 0.0
    moved = alpha + step * (toward - away)
    if step == largest and away.any() and worst != best:
        moved[worst] = 0.0
    return moved
