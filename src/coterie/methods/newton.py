"""Newton's method on data that stays where it is: smooth losses, every penalty with a prox.

    f(w) = (1/n) Σ_i s_i ℓ(x_iᵀw; y_i),   P = f + g
    z    = argmin ⟨∇f(w), z − w⟩ + ½ (z − w)ᵀ H (z − w) + g(z)          H = ∇²f(w), see `hessian`
    w⁺   = w + θ (z − w)                                              θ = 1, or the best of a few trial steps

∇f, H and the trial values are sums over samples, so they travel as words; all else is computed by every agent alike.

| `hessian`  | for                              | what a round says                                                  |
|------------|----------------------------------|--------------------------------------------------------------------|
| `full`     | few columns                      | a `Sum` of ∇f and the upper triangle of H, d (d + 3)/2 numbers     |
| `products` | many columns, `l2`, `none`       | one of ∇f and diag H, and one of d for every conjugate gradient    |
| `active`   | many columns, `l1`, `elasticnet` | one of ∇f, and what `working_set.py` needs of H on those in play   |

and then, in each case, a `Sum` of f(z). Unless P falls by a quarter of ⟨∇f(w), z − w⟩ + g(z) − g(w), a half of which is
what the quadratic model promises near the minimum, another one says f at seven shorter steps, and the best is taken; if
none is better than to stay, seven that are 1024 times as short follow, until rounding hides what they could gain.

Losses may be flat far from the minimum (`huber`, `squared_hinge`): where most of an agent's rows are there, their ℓ''
is raised to a floor, which falls tenfold with every full step, so that the last steps are Newton's. Their ℓ'' is
constant by pieces, so that after the first round an agent only multiplies out the rows whose ℓ'' has changed, and says
by how much H has. Of other losses, where dense rows are many, a part of them is enough for H while steps are long.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from coterie.agent import Agent
from coterie.arrays import FloatArray, is_tensor, sealed, shared_result, whole_number
from coterie.certificate import Point
from coterie.errors import InvalidProblem
from coterie.here import Here
from coterie.losses import Loss
from coterie.methods import careful, conjugate_gradients, working_set
from coterie.methods.costs import Outlook, Sizes, equations_work, products_work, root_condition
from coterie.methods.disclosure import TOTALS, Disclosure
from coterie.methods.method import Method
from coterie.methods.moments import moment_message, unpacked
from coterie.methods.quadratic import minimiser, proven
from coterie.methods.sampled_rows import MNIST, by_pieces, first_sample, next_sample, raised, thinned
from coterie.networks import Network
from coterie.problem import Problem
from coterie.tuning import Tuning, tuned
from coterie.words import Sum, Talk

TRIALS = np.array([1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 64, 1 / 256, 1 / 1024])
FULL = 1500
"""Columns up to which "auto" adds up whole Hessians: beyond, a message has more than 9 MB."""


@dataclass(frozen=True)
class _Tuning(Tuning):
    enough: float = tuned(0.25, "Share of the linear decrease at which a full step is taken.", "paper: Armijo 1966")
    rounding: float = tuned(1e-13, "Values of P that differ by less, relatively, are equal.", "rounding: float64 sums")
    floor: float = tuned(
        1e-3, "The first floor under ℓ'', in units of its largest value.", "measured: Huber with one row × 300"
    )
    single_from: int = tuned(100, "Columns from which on dense H are in single precision, while firm.", MNIST)
    doubt: float = tuned(1.2, "By how much the gap that a step leaves may be less than how P fell tells.", above=1)
    sparse: int = tuned(200, "Columns from which on those in play count alone, beside l1.", "measured: a1a and w8a")


TUNING = _Tuning()
EXPECTED_ROUNDS = {"constant": 2.0, "constant by pieces": 4.0, "any": 8.0}
"""What "auto" assumes, by ℓ''."""
EXPECTED_SPARSE_ROUNDS = 5
"""The same for sparse rows of many columns beside `l1`."""
EXPECTED_SINGLE = 0.35
"""The share of their time that products of wide dense rows take in single precision, at first of a part of them."""
EXPECTED_IN_PLAY, EXPECTED_SHARE_IN_PLAY = 300, 0.25
"""How many columns in play at most, and which share of all."""
EXPECTED_LASSO = 1.5, 4.0
"""Rounds beside `l1` where ℓ'' is constant, and passes over the rows in each."""


@dataclass(frozen=True, slots=True)
class State:
    """Where one agent stands between two rounds; all but what is said of its own rows is the same at every agent."""

    w: FloatArray
    floor: float
    """ℓ'' is raised to this share of its largest value."""
    steepest: float
    """‖∇P‖ in the first round, from which conjugate gradients know how exact to be; 0 before."""
    letter: FloatArray
    """The upper triangle of n H as it was last, if it is kept."""
    curvature: FloatArray
    """The ℓ'' of its own rows that are in it."""
    single: bool
    """Whether single precision is enough for H; it is not where H is kept."""
    every: int
    """One of so many of its own rows is in H."""
    v: FloatArray | None = None
    """A dual of its own rows that is better than the slopes at w."""
    left: float = 0.0
    """The gap that the last step left at least, as far as can be told from how P fell."""


class Aim(NamedTuple):
    """What the agents found out together about where to go."""

    target: FloatArray
    slope: FloatArray
    """∇f(w)."""
    losses: float
    """Σ s ℓ at w."""
    steepest: float
    """‖∇P‖, or ‖∇f‖."""
    letter: FloatArray
    """The upper triangle of n H, if it is to be kept."""
    single: bool = False
    """Whether single precision was enough for H."""
    v: FloatArray | None = None
    """A dual of its own rows that is better than the slopes at the target."""
    foreseen: float = 0.0
    """By how much P falls if it is what the quadratic model says, where that is known."""


class Reached(NamedTuple):
    """How good the target is."""

    before: float
    """P(w)."""
    full: float
    """P at the target."""
    enough: bool
    """Whether the full step is taken without looking at shorter ones."""
    shortest: float
    """Of a shorter step the decrease of P would be lost in rounding."""
    left: float
    """How far P is from its minimum afterwards, at least, if the full step is taken."""


NOTHING = np.empty(0)


@dataclass(frozen=True)
class Newton(Method[State]):
    """Proximal Newton with a line search."""

    name: ClassVar[str] = "newton"
    split: ClassVar[str] = "samples"
    summary: ClassVar[str] = "Newton's method for smooth losses: a handful of rounds"
    disclosure: ClassVar[Disclosure] = Disclosure(
        sent="the gradient and the curvature XᵀDX of its own rows, a number per column and one per pair of "
        "columns, added up",
        learned="all second moments, with new weights in each round. That is more than `gram` tells: few rows come out "
        "themselves, with their labels (six people of six columns after three rounds, to 5e-12)",
        secure=TOTALS,
    )
    tells_labels: ClassVar[bool] = False
    tensors: ClassVar[bool] = True
    first_look: ClassVar[int] = 1

    hessian: Literal["auto", "full", "products", "active"] = "auto"
    """What to learn of the Hessian; "auto" goes by the number of columns and the penalty."""
    products: int = 50
    """Steps of conjugate gradients in one round at most."""

    def __post_init__(self) -> None:
        if self.hessian not in ("auto", "full", "products", "active"):
            raise InvalidProblem(f"newton: hessian is 'auto', 'full', 'products' or 'active', not {self.hessian!r}.")
        whole_number("newton: products", self.products)

    @classmethod
    def outlook(cls, problem: Problem, sizes: Sizes) -> Outlook | None:
        if not _has_curvature(problem.loss):
            return None
        d = sizes.width(problem)
        mode = _suiting(problem.penalty.name, d)
        if mode is None:
            return None
        in_play = min(EXPECTED_SHARE_IN_PLAY * d, EXPECTED_IN_PLAY)
        m = {"full": d, "active": in_play, "products": 0}[mode]
        single = sizes.dense and m >= TUNING.single_from and not by_pieces(problem.loss)
        products = products_work(sizes, m) * (EXPECTED_SINGLE if single else 1.0)
        pieces = "constant by pieces" if by_pieces(problem.loss) else "any"
        rounds, passes = EXPECTED_ROUNDS["constant" if problem.loss.quadratic else pieces], 6.0
        if mode == "active" and problem.loss.quadratic:
            rounds, passes = EXPECTED_LASSO
        triangle, work = m * (m + 3) / 2, products + passes * sizes.rows_work
        steps = 2.0 * root_condition(problem, sizes)  # of conjugate gradients
        work = 2 * steps * sizes.rows_work if mode == "products" else work
        both = {"full": (2.5, triangle), "active": (5.0, triangle + 2 * d), "products": (steps, steps * d)}
        sums, scalars = both[mode]
        if mode == "active" and sizes.nonzeros <= working_set.TUNING.sparse * sizes.rows * sizes.columns:
            # Many of the columns in play are rare: a dozen short messages in place of a triangle.
            rounds, sums, scalars, work = EXPECTED_SPARSE_ROUNDS, 15, 4 * d, 15 * sizes.rows_work
        return Outlook(rounds, sums, scalars, work, "few rounds suffice", equations_work(m))

    @classmethod
    def rescues(cls, problem: Problem, sizes: Sizes) -> bool:
        return sizes.width(problem) <= FULL

    def check(self, problem: Problem, network: Network) -> None:
        if not _has_curvature(problem.loss):
            raise InvalidProblem(
                f"newton needs a loss with a second derivative (curvature), and {problem.loss.name} has none. "
                "Use proximal-1, or a smooth relative: huber for absolute, squared_hinge for hinge."
            )
        fitting = PENALTIES_OF.get(self.hessian)
        if fitting is not None and problem.penalty.name not in fitting:
            raise InvalidProblem(
                f"newton with hessian={self.hessian!r} is for {' and '.join(fitting)}; this problem has "
                f"{problem.penalty.name!r}. Use hessian='full'."
            )

    def start(self, agent: Agent) -> Talk[State]:
        yield from ()  # there is nothing to ask
        w = sealed(agent.centred.inner(agent.first_model().astype(float)))
        single = len(w) >= TUNING.single_from and not by_pieces(agent.problem.loss)
        floor = 1.0 if agent.problem.loss.steep else TUNING.floor
        return State(w, floor, 0.0, NOTHING, NOTHING, single, self._first_sample(agent))

    def _first_sample(self, agent: Agent) -> int:
        """How many rows one stands for in the first H; other penalties have not been measured."""
        suits = agent.problem.penalty.name in ("l2", "none", "l1", "elasticnet") and not by_pieces(agent.problem.loss)
        return first_sample(agent, suits and self._mode(agent) == "full")

    def warmed(self, agent: Agent, state: State, point: Point) -> State:
        # Near the minimum steps are short from the first one on.
        return replace(state, w=sealed(agent.centred.inner(point.w.astype(float))), every=1)

    def round(self, agent: Agent, state: State, t: int) -> Talk[State]:
        loss, w, here = agent.loss, state.w, agent.at(state.w, agent.centred)
        floor = state.floor * here.curvature_scale
        bend = raised(loss, here.curvature, floor)
        curvature = agent.weighted(bend)
        if state.every > 1:
            curvature = thinned(curvature, state.every)
        if self._is_careful(agent):
            aim = yield from self._careful(agent, state, here, bend)
        else:
            find = {"full": self._full, "products": self._products, "active": self._active}[self._mode(agent)]
            aim = yield from find(agent, state, here, curvature)
        there = agent.at(aim.target, agent.centred)
        losses = yield Sum(np.array([there.losses]).T)
        reached = shared_result(losses, _reached, agent, w, aim, float(losses[0]))
        theta, shares = 1.0 if reached.enough else 0.0, TRIALS
        while theta == 0.0 and shares[0] > reached.shortest:
            losses = yield Sum(here.losses_along(there.scores - here.scores, shares))
            theta = shared_result(losses, _best_share, agent, w, aim, reached, shares, losses)
            shares = shares * TRIALS[-1]
        floor = state.floor / 10 if theta == 1.0 else state.floor
        if theta <= 1 / 8:
            floor = min(1.0, 10 * max(floor, 1e-6))
        kept = curvature if aim.letter.size else NOTHING
        w = aim.target if theta == 1.0 else shared_result(losses, lambda: sealed(w + theta * (aim.target - w)))
        every = next_sample(agent, state.every, reached.before, reached.full, aim.foreseen)
        steepest, left = state.steepest or aim.steepest, reached.left if theta == 1.0 else 0.0
        return State(w, floor, steepest, aim.letter, kept, aim.single, every, aim.v, left)

    def together(self, agent: Agent) -> tuple[str, ...] | None:
        together = self._mode(agent) == "full" and not agent.careful
        return ("curvature", "v") if together else None

    def expected_gap(self, agent: Agent, state: State) -> float | None:
        return state.left / TUNING.doubt if state.left else None

    def point(self, agent: Agent, state: State) -> Point:
        """The slope of the loss at w is the dual, unless there is a better one: at the minimum it is the best."""
        w, v = proven(agent, state.w)
        return Point(w, v if state.v is None else state.v)

    # -- three ways to the next target ---------------------------------------------------------------------------------

    def _full(self, agent: Agent, state: State, here: Here, curvature: FloatArray) -> Talk[Aim]:
        change = curvature - state.curvature if state.letter.size else curvature
        # The message has no name here: it would be kept until the others have answered.
        losses = np.array([here.losses]).T
        total = yield Sum(moment_message(agent.centred, change, state.single, here.adjoint, losses))
        w, n, width = state.w, agent.total, len(state.w)

        def aimed() -> Aim:
            slope, triangle, message = total[-width - 1 : -1] / n, total[: -width - 1], NOTHING
            if by_pieces(agent.problem.loss):
                message = triangle + state.letter if state.letter.size else triangle.copy()
            H = unpacked(message if message.size else triangle, width)
            H /= n
            target, firm = minimiser(agent, H, slope, w)
            step = target - w
            falls = _penalty(agent, w) - _penalty(agent, target) - float(slope @ step + 0.5 * step @ (H @ step))
            return _aim(target, slope, total, message, state.single and firm)._replace(foreseen=falls)

        return shared_result(total, aimed)

    def _careful(self, agent: Agent, state: State, here: Here, bend: FloatArray) -> Talk[Aim]:
        if by_pieces(agent.problem.loss):
            # Rows without curvature may be all that a direction has: where they are, the loss is a parabola at first.
            share = min(1.0, state.floor / TUNING.floor)
            bend = np.maximum(here.curvature, share * careful.secant(agent.loss, here.scores, here.slopes, here.y))
        found = yield from careful.target(agent, state.w, here, bend)
        steepest = float(np.linalg.norm(found.slope))
        return Aim(found.target, found.slope, found.losses, steepest, NOTHING, v=found.v, foreseen=found.foreseen)

    def _active(self, agent: Agent, state: State, here: Here, curvature: FloatArray) -> Talk[Aim]:
        found = yield from working_set.target(agent, state.w, here, curvature)
        return Aim(found.w, found.slope, found.losses, float(np.linalg.norm(found.slope)), NOTHING, v=found.v)

    def _products(self, agent: Agent, state: State, here: Here, curvature: FloatArray) -> Talk[Aim]:
        found = yield from conjugate_gradients.target(agent, state.w, here, curvature, state.steepest, self.products)
        return Aim(found.w, found.slope, found.losses, found.steepness, NOTHING)

    def _is_careful(self, agent: Agent) -> bool:
        return agent.careful and agent.design.shape[1] <= FULL and not is_tensor(agent.data.X)

    def _mode(self, agent: Agent) -> str:
        if self.hessian != "auto":
            return self.hessian
        mode = _suiting(agent.problem.penalty.name, agent.design.shape[1])
        if mode is None:
            raise InvalidProblem(
                f"newton adds up Hessians of at most {FULL} columns for the {agent.problem.penalty.name} penalty; this "
                f"problem has {agent.design.shape[1]}. Use proximal-1, or hessian='full' if such a matrix may travel."
            )
        return mode


PENALTIES_OF = {"products": ("l2", "none"), "active": ("l1", "elasticnet")}
"""Which penalties the ways for many columns are for."""
SUITING = {name: mode for mode, names in PENALTIES_OF.items() for name in names}


def _aim(
    target: FloatArray, slope: FloatArray, total: FloatArray, message: FloatArray = NOTHING, single: bool = False
) -> Aim:
    return Aim(sealed(target), slope, float(total[-1]), float(np.linalg.norm(slope)), message, single)


def _penalty(agent: Agent, w: FloatArray) -> float:
    return agent.problem.penalty.value(agent.problem.coefficients(w))


def _reached(agent: Agent, w: FloatArray, aim: Aim, losses: float) -> Reached:
    """How the target compares with w, from Σ s ℓ there."""
    penalty, penalty_there = _penalty(agent, w), _penalty(agent, aim.target)
    before = agent.problem.primal(aim.losses, agent.total, penalty)
    full = agent.problem.primal(losses, agent.total, penalty_there)
    promised = float(aim.slope @ (aim.target - w)) + penalty_there - penalty
    rounding = TUNING.rounding * abs(before)
    shortest = rounding / -promised if promised < 0 else 1.0
    # What the model misses along the step p, E = gain − foreseen, leaves a slope of 3E there if ∇³P is behind it, or of
    # 2E if H lacks rows. With ⟨p, ∇²P p⟩ ≈ 2 gain, P can fall by another E² / gain or more.
    gain = before - full
    left = (gain - aim.foreseen) ** 2 / gain if aim.foreseen > 0 and gain > rounding else 0.0
    return Reached(before, full, -gain <= TUNING.enough * promised + rounding, shortest, left)


def _best_share(
    agent: Agent, w: FloatArray, aim: Aim, reached: Reached, shares: FloatArray, losses: FloatArray
) -> float:
    """The longest of the steps that are best, up to rounding; 0 if none is better than to stay."""
    before, way = reached.before, aim.target - w
    pairs = zip(losses, (_penalty(agent, w + share * way) for share in shares), strict=True)
    after = np.array([reached.full, *(agent.problem.primal(float(f), agent.total, g) for f, g in pairs)])
    good = np.flatnonzero(after <= min(before, after.min()) + TUNING.rounding * abs(before))
    return float([1.0, *shares][good[0]]) if good.size else 0.0


def _has_curvature(loss: Loss) -> bool:
    return type(loss).curvature is not Loss.curvature


def _suiting(penalty: str, width: int) -> str | None:
    """What suits that penalty and that many columns, if anything."""
    suiting = SUITING.get(penalty)
    return "full" if width <= (TUNING.sparse if suiting == "active" else FULL) else suiting
