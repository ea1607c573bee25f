"""Newton's method for linear models with smooth losses: `newton`.

    F_k(w) = Σ_i s_i ℓ(x_iᵀw; y_i) over the agent's own rows,   ∇²F_k = Xᵀ diag(s ℓ'') X

| `hessian`  | for                              | what an agent sends in a round
             |
|------------|----------------------------------|--------------------------------------------------------------------|
| `full`     | few columns                      | ∇f and the upper triangle of H, d (d + 3)/2
             numbers                |
| `products` | many columns, `l2`, `none`       | ∇f and diag H, and d numbers for each conjugate
                                                gradient           |
| `active`   | many columns, `l1`, `elasticnet` | ∇f, and what `working_set.py` needs of H on the
             columns in play    |
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from coterie.errors import InvalidProblem
from coterie.methods.auto.costs import Outlook, Sizes, equations_work, products_work, root_condition
from coterie.methods.line_search import most_of_search
from coterie.methods.second_order import careful, quadratic_models, working_set
from coterie.methods.second_order.newton import ProximalNewton, State, most_with_losses
from coterie.methods.second_order.oracle import NOTHING, Aim
from coterie.methods.second_order.quadratic import proven
from coterie.methods.second_order.rows import Memory, RowsOracle, first_floor
from coterie.methods.second_order.sampled_rows import MNIST, by_pieces, first_sample
from coterie.networks import Network
from coterie.numerics.arrays import is_tensor, whole_number
from coterie.numerics.losses import Loss
from coterie.numerics.tuning import Tuning, tuned
from coterie.problems.problem import Problem
from coterie.run.agent import Agent
from coterie.run.certificate import Point
from coterie.run.collectives import Protocol
from coterie.run.disclosure import HESSIAN, Case, Counts, Disclosure

FULL = 1500
"""Columns up to which "auto" adds up whole Hessians: beyond, a message has more than 9 MB."""


@dataclass(frozen=True)
class _Tuning(Tuning):
    single_from: int = tuned(
        100, "Columns from which on dense H are in single precision, while firm.", MNIST
    )
    sparse: int = tuned(
        200, "Columns from which on those in play count alone, beside l1.", "measured: a1a and w8a"
    )


TUNING = _Tuning()
EXPECTED_ROUNDS = {"constant": 2.0, "constant by pieces": 4.0, "any": 8.0}
"""What "auto" assumes, by ℓ''."""
EXPECTED_SPARSE_ROUNDS = 5
"""The same for sparse rows of many columns beside `l1`."""
EXPECTED_SINGLE = 0.35
"""The share of their time that products of wide dense rows take in single precision, at first of a
part of them.
"""
EXPECTED_IN_PLAY, EXPECTED_SHARE_IN_PLAY = 300, 0.25
"""How many columns in play at most, and which share of all."""
EXPECTED_LASSO = 1.5, 4.0
"""Rounds beside `l1` where ℓ'' is constant, and passes over the rows in each."""


EXPECTED_PASSES = 6.0
"""Passes over the rows in a round."""
WHY = "few rounds suffice"
PENALTIES_OF = {"products": ("l2", "none"), "active": ("l1", "elasticnet")}
"""Which penalties the ways for many columns are for."""
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
    """What to learn of the Hessian; "auto" goes by the number of columns and the penalty."""
    products: int = 50
    """Steps of conjugate gradients in one round at most."""

    def __post_init__(self) -> None:
        if self.hessian not in ("auto", "full", "products", "active"):
            raise InvalidProblem(
                f"newton: hessian is 'auto', 'full', 'products' or 'active', not {self.hessian!r}."
            )
        whole_number("newton: products", self.products)

    @classmethod
    def outlook(cls, problem: Problem, sizes: Sizes) -> Outlook | None:
        mode = _suiting(problem.penalty.name, sizes.width(problem))
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
                f"{problem.loss.name} has none. "
                "Use proximal-1, or a smooth relative: huber for absolute, squared_hinge for hinge."
            )
        fitting = PENALTIES_OF.get(self.hessian)
        if fitting is not None and problem.penalty.name not in fitting:
            raise InvalidProblem(
                f"newton with hessian={self.hessian!r} is for {' and '.join(fitting)}; this "
                "problem has "
                f"{problem.penalty.name!r}. Use hessian='full'."
            )

    def start(self, agent: Agent) -> Protocol[State]:
        state = yield from super().start(agent)
        pieces = by_pieces(agent.problem.loss)
        single = len(state.w) >= TUNING.single_from and not pieces
        # Of other penalties and losses it has not been measured how few rows suffice.
        suits = agent.problem.penalty.name in SUITING and not pieces and self._mode(agent) == "full"
        return replace(
            state, memory=Memory(first_floor(agent), single, first_sample(agent, suits), NOTHING)
        )

    def warmed(self, agent: Agent, state: State, point: Point) -> State:
        # Near the minimum steps are short from the first one on.
        return super().warmed(agent, replace(state, memory=replace(state.memory, every=1)), point)

    def oracle(self, agent: Agent, state: State) -> RowsOracle:
        return RowsOracle(agent, state)

    def aim(self, agent: Agent, state: State, oracle: Any) -> Protocol[Aim]:
        if agent.careful and agent.design.shape[1] <= FULL and not is_tensor(agent.data.X):
            return (
                yield from careful.target(agent, state.w, oracle.here, oracle.careful_curvature())
            )
        mode = self._mode(agent)
        if mode == "active":
            return (yield from working_set.target(agent, oracle))
        if mode == "products":
            return (
                yield from quadratic_models.from_products(
                    agent, oracle, state.steepest, self.products
                )
            )
        return (yield from quadratic_models.from_hessian(agent, oracle))

    def together(self, agent: Agent) -> tuple[str, ...] | None:
        together = self._mode(agent) == "full" and not agent.careful
        return ("own", "v") if together else None

    def point(self, agent: Agent, state: State) -> Point:
        """The gradient of the loss at w is the dual point, unless there is a better one."""
        w, v = proven(agent, state.w)
        return Point(w, v if state.v is None else state.v)

    def _mode(self, agent: Agent) -> str:
        if self.hessian != "auto":
            return self.hessian
        mode = _suiting(agent.problem.penalty.name, agent.design.shape[1])
        if mode is None:
            raise InvalidProblem(
                f"newton adds up Hessians of at most {FULL} columns for the "
                f"{agent.problem.penalty.name} penalty; this "
                f"problem has {agent.design.shape[1]}. Use proximal-1, or hessian='full' if such "
                "a matrix may travel."
            )
        return mode


def _has_curvature(loss: Loss) -> bool:
    return type(loss).curvature is not Loss.curvature


def _suiting(penalty: str, width: int) -> str | None:
    """What suits that penalty and that many columns, if anything."""
    suiting = SUITING.get(penalty)
    if width <= (TUNING.sparse if suiting == "active" else FULL):
        return "full"
    return suiting


def _most(case: Case) -> Counts:
    """The largest counts of a round without a search."""
    mode = _suiting(case.problem.penalty.name, case.width)
    if mode == "active":
        aim = working_set.most_of_target(case.width)
    elif mode == "products":
        aim = quadratic_models.most_from_products(case.width, Newton.products)
    else:
        aim = quadratic_models.most_from_hessian(case.width)
    return most_with_losses(aim)


def _sometimes(case: Case) -> Counts:
    """What a search adds to a round, many columns in play, and how much more a careful agent
    sends.
    """
    collectives, numbers = most_of_search()
    if _suiting(case.problem.penalty.name, case.width) == "active":
        numbers += working_set.most_of_many(case.width)
    if case.columns < FULL:
        carefully, usual = careful.most_of_target(case), _most(case)
        collectives += max(0, carefully[0] - usual[0])
        numbers += max(0, carefully[1] - usual[1])
    return collectives, numbers


def _full_outlook(problem: Problem, sizes: Sizes) -> Outlook:
    d = sizes.width(problem)
    work = _moment_work(problem, sizes, d) + EXPECTED_PASSES * sizes.rows_work
    return Outlook(
        _expected_rounds(problem.loss), 2.5, d * (d + 3) / 2, work, WHY, equations_work(d)
    )


def _active_outlook(problem: Problem, sizes: Sizes) -> Outlook:
    d = sizes.width(problem)
    in_play = min(EXPECTED_SHARE_IN_PLAY * d, EXPECTED_IN_PLAY)
    alone = equations_work(in_play)
    if sizes.nonzeros <= working_set.TUNING.sparse * sizes.rows * sizes.columns:
        # Many of the columns in play are rare: a dozen short messages in place of a triangle.
        return Outlook(EXPECTED_SPARSE_ROUNDS, 15, 4 * d, 15 * sizes.rows_work, WHY, alone)
    rounds = _expected_rounds(problem.loss)
    passes = EXPECTED_PASSES
    if problem.loss.quadratic:
        rounds, passes = EXPECTED_LASSO
    work = _moment_work(problem, sizes, in_play) + passes * sizes.rows_work
    return Outlook(rounds, 5.0, in_play * (in_play + 3) / 2 + 2 * d, work, WHY, alone)


def _products_outlook(problem: Problem, sizes: Sizes) -> Outlook:
    products = 2.0 * root_condition(problem, sizes)
    scalars = products * sizes.width(problem)
    work = 2 * products * sizes.rows_work
    return Outlook(_expected_rounds(problem.loss), products, scalars, work, WHY, equations_work(0))


OUTLOOKS = {"full": _full_outlook, "active": _active_outlook, "products": _products_outlook}


def _expected_rounds(loss: Loss) -> float:
    if loss.quadratic:
        return EXPECTED_ROUNDS["constant"]
    return EXPECTED_ROUNDS["constant by pieces" if by_pieces(loss) else "any"]


def _moment_work(problem: Problem, sizes: Sizes, columns: float) -> float:
    """What it takes to add up the Hessian of so many columns."""
    work = products_work(sizes, columns)
    if sizes.dense and columns >= TUNING.single_from and not by_pieces(problem.loss):
        return work * EXPECTED_SINGLE
    return work
