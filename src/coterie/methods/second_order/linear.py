"""Newton's method for linear models with smooth losses: `newton`.

    F_k(w) = Σ_i s_i ℓ(x_iᵀw; y_i) over the agent's own rows,   ∇²F_k = Xᵀ diag(s ℓ'') X

| `hessian`  | for                              | an agent sends in a round                   |
|------------|----------------------------------|---------------------------------------------|
| `full`     | few columns                      | ∇f and the upper triangle of H,             |
|            |                                  | d (d + 3)/2 numbers                         |
| `products` | many columns, `l2`, `none`       | ∇f and diag H, and d numbers for each       |
|            |                                  | step of conjugate gradients                 |
| `active`   | many columns, `l1`, `elasticnet` | ∇f, and H on the active columns, see        |
|            |                                  | `working_set.py`                            |
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from coterie.errors import InvalidProblem
from coterie.methods.auto.costs import Outlook, Sizes, equations_work, products_work, root_condition
from coterie.methods.line_search import most_of_search
from coterie.methods.second_order import careful, working_set
from coterie.methods.second_order.newton import ProximalNewton, State, most_with_losses
from coterie.methods.second_order.oracle import NOTHING, Aim
from coterie.methods.second_order.quadratic import proven
from coterie.methods.second_order.quadratic_models import (
    from_hessian,
    from_products,
    most_from_hessian,
    most_from_products,
)
from coterie.methods.second_order.rows import Memory, RowsOracle, first_floor
from coterie.methods.second_order.sampled_rows import MNIST, by_pieces, first_sample
from coterie.networks import Network
from coterie.numerics.arrays import is_tensor, whole_number
from coterie.numerics.losses import Loss
from coterie.numerics.penalties import Penalty
from coterie.numerics.tuning import Tuning, tuned
from coterie.problems.problem import Problem
from coterie.run.agent import Agent
from coterie.run.certificate import Point
from coterie.run.collectives import Protocol
from coterie.run.disclosure import HESSIAN, Case, Counts, Disclosure

FULL = 1500
"""The largest number of columns for whole Hessians: with more, a message has more than 9 MB."""


@dataclass(frozen=True)
class _Tuning(Tuning):
    single_from: int = tuned(
        100, "Columns from which on dense Hessians are in single precision, while firm.", MNIST
    )
    sparse: int = tuned(
        200, "With l1: columns from which on only active ones are used.", "measured: a1a and w8a"
    )


TUNING = _Tuning()
EXPECTED_ROUNDS = {"constant": 2.0, "piecewise constant": 4.0, "any": 8.0}
"""The rounds that "auto" assumes, by ℓ''."""
EXPECTED_SPARSE_ROUNDS = 5
"""The rounds that "auto" assumes for sparse rows of many columns with `l1`."""
EXPECTED_SINGLE = 0.35
"""The time of products of wide dense rows in single precision, at first of a part of the rows, as a
share of that in double precision.
"""
EXPECTED_ACTIVE = 300
"""The largest number of active columns that "auto" assumes."""
EXPECTED_SHARE_ACTIVE = 0.25
"""The share of active columns that "auto" assumes."""
EXPECTED_LASSO_ROUNDS = 1.5
"""Rounds with `l1` where ℓ'' is constant."""
EXPECTED_LASSO_PASSES = 4.0
"""Passes over the rows in each of them."""
EXPECTED_PASSES = 6.0
"""Passes over the rows in any other round."""
WHY = "few rounds suffice"
PENALTIES_OF = {"products": ("l2", "none"), "active": ("l1", "elasticnet")}
"""The penalties of the forms of `hessian` that are for many columns."""
SUITING = {name: mode for mode, names in PENALTIES_OF.items() for name in names}


@dataclass(frozen=True)
class Newton(ProximalNewton):
    """Proximal Newton with a line search."""

    name: ClassVar[str] = "newton"
    summary: ClassVar[str] = "Newton's method for smooth losses: a handful of rounds"
    disclosure: ClassVar[Disclosure] = replace(
        HESSIAN, most=lambda case: _most(case), sometimes=lambda case: _sometimes(case)
    )
    tensors: ClassVar[bool] = True
    memory: ClassVar[type | None] = Memory

    hessian: Literal["auto", "full", "products", "active"] = "auto"
    """The part of the Hessian that agents add up; "auto" chooses by the number of columns and the
    penalty.
    """
    products: int = 50
    """The largest number of steps of conjugate gradients in one round."""

    def __post_init__(self) -> None:
        if self.hessian not in ("auto", "full", "products", "active"):
            raise InvalidProblem(
                f"newton: hessian is 'auto', 'full', 'products' or 'active', not {self.hessian!r}."
            )
        whole_number("newton: products", self.products)

    @classmethod
    def outlook(cls, problem: Problem, sizes: Sizes) -> Outlook | None:
        mode = _suiting(problem.penalty, sizes.width(problem))
        if mode is None or not _has_curvature(problem.loss):
            return None
        return OUTLOOKS[mode](problem, sizes)

    @classmethod
    def rescues(cls, problem: Problem, sizes: Sizes) -> bool:
        return sizes.width(problem) <= FULL

    def check(self, problem: Problem, network: Network) -> None:
        if not _has_curvature(problem.loss):
            raise InvalidProblem(
                "newton needs a loss with a second derivative (curvature), and "
                f"{problem.loss.name} has none. Use proximal-1, or a smooth relative: huber for "
                "absolute, squared_hinge for hinge."
            )
        fitting = PENALTIES_OF.get(self.hessian)
        if fitting is not None and _form_for(problem.penalty) != self.hessian:
            raise InvalidProblem(
                f"newton with hessian={self.hessian!r} is for {' and '.join(fitting)}; this "
                f"problem has {problem.penalty.name!r}. Use hessian='full'."
            )

    def start(self, agent: Agent) -> Protocol[State]:
        state = yield from super().start(agent)
        pieces = by_pieces(agent.problem.loss)
        single = len(state.w) >= TUNING.single_from and not pieces
        # A part of the rows has been measured to suffice for these penalties and losses only.
        is_measured = agent.problem.penalty.name in SUITING and not pieces
        every = first_sample(agent, is_measured and self._mode(agent) == "full")
        memory = Memory(first_floor(agent), single, every, NOTHING)
        return replace(state, memory=memory)

    def warmed(self, agent: Agent, state: State, point: Point) -> State:
        # Near the minimum, steps are short from the first one on and need all rows.
        memory = replace(state.memory, every=1)
        return super().warmed(agent, replace(state, memory=memory), point)

    def oracle(self, agent: Agent, state: State) -> RowsOracle:
        return RowsOracle(agent, state)

    def aim(self, agent: Agent, state: State, oracle: Any) -> Protocol[Aim]:
        if agent.careful and agent.design.shape[1] <= FULL and not is_tensor(agent.data.X):
            rows = careful.OneScore(agent, oracle.local, oracle.careful_curvature())
            return (yield from careful.target(agent, state.w, rows))
        mode = self._mode(agent)
        if mode == "active":
            return (yield from working_set.target(agent, oracle))
        if mode == "products":
            steepest = state.steepest
            return (yield from from_products(agent, oracle, steepest, self.products))
        return (yield from from_hessian(agent, oracle))

    def together(self, agent: Agent) -> tuple[str, ...] | None:
        if self._mode(agent) == "full" and not agent.careful:
            return ("own", "v")
        return None

    def point(self, agent: Agent, state: State) -> Point:
        """Return w. The gradients of the loss are the dual variables, unless the State has better
        ones.
        """
        w, v = proven(agent, state.w)
        if state.v is not None:
            v = state.v
        return Point(w, v)

    def _mode(self, agent: Agent) -> str:
        if self.hessian != "auto":
            return self.hessian
        mode = _suiting(agent.problem.penalty, agent.design.shape[1])
        if mode is None:
            raise InvalidProblem(
                f"newton adds up Hessians of at most {FULL} columns for the "
                f"{agent.problem.penalty.name} penalty; this problem has {agent.design.shape[1]}. "
                "Use proximal-1, or hessian='full' if agents may send such a matrix."
            )
        return mode


def _has_curvature(loss: Loss) -> bool:
    return type(loss).curvature is not Loss.curvature


def _form_for(penalty: Penalty) -> str | None:
    """Return the form of `hessian` for many columns with that penalty, if there is one."""
    pieces = penalty.pieces
    if pieces is None or not pieces.per_column:
        return SUITING.get(penalty.name)
    if not pieces.kinds:
        return "products"
    if pieces.kinds == ["l1"]:
        return "active"
    return None


def _suiting(penalty: Penalty, width: int) -> str | None:
    """Return the form of `hessian` for that penalty and number of columns, if there is one."""
    suiting = _form_for(penalty)
    if suiting == "active":
        widest = TUNING.sparse
    else:
        widest = FULL
    if width <= widest:
        return "full"
    return suiting


def _most(case: Case) -> Counts:
    """Return the largest counts of a round without a search."""
    mode = _suiting(case.problem.penalty, case.width)
    if mode == "active":
        aim = working_set.most_of_target(case.width)
    elif mode == "products":
        aim = most_from_products(case.width, Newton.products)
    else:
        aim = most_from_hessian(case.width)
    return most_with_losses(aim)


def _sometimes(case: Case) -> Counts:
    """Return the additional counts of a search, of many active columns, and of a careful agent."""
    collectives, numbers = most_of_search()
    if _suiting(case.problem.penalty, case.width) == "active":
        numbers += working_set.most_of_many(case.width)
    if case.columns < FULL:
        careful_collectives, careful_numbers = careful.most_of_target(case)
        usual_collectives, usual_numbers = _most(case)
        collectives += max(0, careful_collectives - usual_collectives)
        numbers += max(0, careful_numbers - usual_numbers)
    return collectives, numbers


def _full_outlook(problem: Problem, sizes: Sizes) -> Outlook:
    d = sizes.width(problem)
    return Outlook(
        rounds=_expected_rounds(problem.loss),
        sums=2.5,
        scalars=d * (d + 3) / 2,
        work=_moment_work(problem, sizes, d) + EXPECTED_PASSES * sizes.rows_work,
        what=WHY,
        shared=equations_work(d),
    )


def _active_outlook(problem: Problem, sizes: Sizes) -> Outlook:
    d = sizes.width(problem)
    active = min(EXPECTED_SHARE_ACTIVE * d, EXPECTED_ACTIVE)
    shared = equations_work(active)
    if sizes.nonzeros <= working_set.TUNING.sparse * sizes.rows * sizes.columns:
        # Many of the active columns are rare: a dozen short messages in place of a triangle.
        work = 15 * sizes.rows_work
        return Outlook(EXPECTED_SPARSE_ROUNDS, 15, 4 * d, work, WHY, shared)
    if problem.loss.quadratic:
        rounds = EXPECTED_LASSO_ROUNDS
        passes = EXPECTED_LASSO_PASSES
    else:
        rounds = _expected_rounds(problem.loss)
        passes = EXPECTED_PASSES
    scalars = active * (active + 3) / 2 + 2 * d
    work = _moment_work(problem, sizes, active) + passes * sizes.rows_work
    return Outlook(rounds, 5.0, scalars, work, WHY, shared)


def _products_outlook(problem: Problem, sizes: Sizes) -> Outlook:
    products = 2.0 * root_condition(problem, sizes)
    return Outlook(
        rounds=_expected_rounds(problem.loss),
        sums=products,
        scalars=products * sizes.width(problem),
        work=2 * products * sizes.rows_work,
        what=WHY,
        shared=equations_work(0),
    )


OUTLOOKS = {"full": _full_outlook, "active": _active_outlook, "products": _products_outlook}


def _expected_rounds(loss: Loss) -> float:
    if loss.quadratic:
        return EXPECTED_ROUNDS["constant"]
    if by_pieces(loss):
        return EXPECTED_ROUNDS["piecewise constant"]
    return EXPECTED_ROUNDS["any"]


def _moment_work(problem: Problem, sizes: Sizes, columns: float) -> float:
    """Return the work of adding up the Hessian of that number of columns."""
    work = products_work(sizes, columns)
    if sizes.dense and columns >= TUNING.single_from and not by_pieces(problem.loss):
        return work * EXPECTED_SINGLE
    return work
