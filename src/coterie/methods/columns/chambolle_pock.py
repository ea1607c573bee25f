"""Chambolle–Pock on data split by features: the common part of `graph-cp` and `tree`.

It moves a block of the model and the dual variables, balances the steps when Halpern's iteration
begins a new epoch, and finds the start. The table of `graph_cp.py` explains the symbols.

With the penalties none and l2, a block of nearly dependent columns is whitened: its metric N_j is
all of X_jᵀX_j in place of a number per column. Whitening needs no message. The step solves
equations that are factorised once:

    θ⁺ = argmin n r(θ) + ⟨Xᵀλ, θ⟩ + ½ (θ − θ_old)ᵀN(θ − θ_old) / a
    (N + n a ρ I) θ⁺ = N θ_old − a Xᵀλ
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from coterie.networks import Network
from coterie.numerics.arrays import FloatArray
from coterie.numerics.tuning import Tuning, tuned
from coterie.run.agent import Agent, remembered
from coterie.run.certificate import Point
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import Case, Counts
from coterie.stats.moments import second_moment, symmetric

CORRELATED = "measured: powers of one column, docs/benchmarks.md"


@dataclass(frozen=True)
class _Tuning(Tuning):
    least_share: float = tuned(0.02, "c and 1 − c never go below this.", below=0.5)
    lanczos_steps: int = tuned(
        100,
        "The largest number of steps in which agents estimate a norm.",
        "theorem: Lanczos is exact for m ≤ 100 agents",
    )
    norm_tolerance: float = tuned(1e-2, "The share by which agents enlarge that norm.", below=1)
    longer: float = tuned(
        1.4,
        "The rounds of graph-cp are this times √m those of tree.",
        "measured: benchmarks/graph_cp.py --ratio",
    )
    dependent: float = tuned(
        100.0,
        "The condition number, for columns of equal length, from which on a block is whitened.",
        CORRELATED,
    )
    share: float = tuned(
        2.0,
        "The largest whitened metric, as a multiple of n numbers.",
        "theorem: memory of a few n floats",
    )
    alike: float = tuned(
        0.5,
        "tree does not whiten where κ is above this share of m: blocks with the same directions.",
        CORRELATED,
        below=1,
    )
    floor: float = tuned(
        1e-9,
        "The share by which the diagonal of the metric is enlarged.",
        "rounding: Cholesky's of dependent columns",
    )


TUNING = _Tuning()


def block_step(agent: Agent, theta: FloatArray, lam: FloatArray, a: FloatArray) -> FloatArray:
    """Return prox_{n a r}(θ − a Xᵀλ), with a number a per column."""
    design = agent.design
    moved = theta - a * design.adjoint(lam)
    return agent.problem.prox(moved, agent.total * a, design.intercept)


@remembered
def products(agent: Agent) -> FloatArray | None:
    """Return X_jᵀX_j, a little enlarged; None if the block is not whitened."""
    pieces = agent.problem.penalty.pieces
    n, width = agent.design.shape
    if pieces is None or pieces.kinds or width < 2 or width**2 > TUNING.share * n:
        return None
    moment = symmetric(second_moment(agent.design, None))
    lengths = moment.diagonal().copy()
    lengths[lengths == 0] = lengths.max(initial=0.0) or 1.0
    unit = lengths**-0.5
    correlations = moment * unit * unit[:, None]
    least, most = np.linalg.eigvalsh(correlations)[[0, -1]]
    if most <= TUNING.dependent * max(least, 0.0):
        return None
    whole: FloatArray = moment + np.diag(TUNING.floor * lengths)
    return whole


def _metric(agent: Agent, whiten: bool) -> FloatArray | None:
    """Return the metric of a block that is whitened."""
    if whiten:
        return products(agent)
    return None


def own_norms(agent: Agent, whiten: bool = True) -> FloatArray:
    """Return `block_norms`; 1 for a block that is whitened, whose metric is `products`."""
    if _metric(agent, whiten) is None:
        return block_norms(agent)
    return np.ones(agent.design.shape[1], agent.design.dtype)


def own_step(
    agent: Agent, theta: FloatArray, lam: FloatArray, a: FloatArray, whiten: bool = True
) -> FloatArray:
    """Take a `block_step` in the metric of the block."""
    whole = _metric(agent, whiten)
    if whole is None:
        return block_step(agent, theta, lam, a)
    step = float(a[0])
    wanted = whole @ theta - step * agent.design.adjoint(lam)
    after: FloatArray = scipy.linalg.cho_solve(_factor(agent, step), wanted)
    return after.astype(theta.dtype, copy=False)


@remembered
def _factor(agent: Agent, step: float) -> tuple[FloatArray, bool]:
    whole = products(agent)
    assert whole is not None
    pieces = agent.problem.penalty.pieces
    assert pieces is not None
    ridge = np.zeros(len(whole))
    ridge[: len(whole) - agent.design.intercept] = agent.total * step * pieces.ridge
    factor: tuple[FloatArray, bool] = scipy.linalg.cho_factor(whole + np.diag(ridge))
    return factor


def own_weight(agent: Agent, norms: FloatArray, change: FloatArray, whiten: bool = True) -> float:
    """Return ‖N^½Δθ‖²."""
    whole = _metric(agent, whiten)
    if whole is None:
        return float(norms @ change**2)
    return float(norms[0]) * float(change @ whole @ change)


def dual_step(agent: Agent, q: FloatArray, s: float) -> FloatArray:
    """Return argmin over λ of s Σ_i weight_i ℓ_i*(λ_i / weight_i) + ½‖λ − q‖²."""
    loss = agent.loss
    weights = agent.data.weights
    if weights is None:
        return loss.dual_prox(q, agent.labels, s)
    lam: FloatArray = weights * loss.dual_prox(q / weights, agent.labels, s / weights)
    return lam.astype(q.dtype, copy=False)


def values_at(agent: Agent, point: Point) -> Protocol[tuple[FloatArray, FloatArray, FloatArray]]:
    """Return the agent's block of a point, at the label agent the scores of all agents, and the λ
    of the label agent: by default the gradient of the loss.
    """
    theta = point.w.astype(agent.design.dtype)
    dtype = agent.design.dtype
    own = agent.design.forward(theta)
    scores = yield Sum(own, to=agent.known.labels_at)
    lam = np.zeros_like(own)
    if agent.data.y is not None:
        if point.v is None:
            v = agent.loss.gradient(scores, agent.labels)
        else:
            v = point.v
        lam = agent.weighted(v).astype(dtype)
    lam = yield Sum(lam, of=agent.known.labels_at)
    return theta, scores, lam


def point_at(agent: Agent, w: FloatArray, lam: FloatArray) -> Point:
    """Return the block and, at the label agent, the dual variable v of each row."""
    if agent.data.y is None:
        return Point(w)
    if agent.data.weights is None:
        return Point(w, lam)
    return Point(w, lam / agent.data.weights)


def rebalanced(
    s: float, c: float, duals: float, blocks: float, edges: float
) -> tuple[float, float]:
    """Go half-way (in logarithms) to the s and c with the least
    duals/s + s(blocks/c + edges/(1 − c)).
    """
    primal = math.sqrt(max(blocks, 0.0)) + math.sqrt(max(edges, 0.0))
    if duals > 0 and primal > 0:
        s = math.sqrt(s * math.sqrt(duals) / primal)
    if blocks > 0 and edges > 0:
        odds = math.sqrt(c / (1.0 - c) * math.sqrt(blocks / edges))
        c = max(odds / (1.0 + odds), TUNING.least_share)
        c = min(c, 1.0 - TUNING.least_share)
    return s, c


def first_dual_step(agent: Agent) -> float:
    """Return the first s: the gradient at 0, divided by the scores that decrease the loss to 0
    along it. For the squared loss this is a constant.
    """
    assert agent.statistics is not None
    losses = agent.design.shape[0] * agent.statistics.primal_at_start
    step = agent.statistics.residual**2 / (losses or 1.0)
    if 0 < step < math.inf:
        return step
    return 1.0


def block_norms(agent: Agent) -> FloatArray:
    """Return one number per column with ‖X diag(norms)^{-1/2}‖ ≤ 1, proportional to its squared
    length.

    Columns of a group share the largest of their numbers; a column of zeros has no effect.
    """
    design = agent.design
    lengths = design.squared_lengths()
    lengths[lengths == 0] = lengths.max(initial=0) or 1.0
    norms = 1.0 / agent.problem.tied(1.0 / lengths, design.intercept)
    whole = design.squared_norm(columns=norms**-0.5) or 1.0
    return (norms * whole).astype(design.dtype)


def pooled_norm(agent: Agent, scale: FloatArray, whiten: bool = False) -> Protocol[float]:
    """Estimate ‖X diag(scale)‖² over the columns of all agents, rounded up a little.

    Each step of Lanczos's method is a `Sum` of n numbers. Blocks that are whitened have
    X_j N_j^{-½} in place of X_j, with Cholesky's factor as the root.
    """
    design = agent.design
    whole = _metric(agent, whiten)
    if whole is None:
        root = None
    else:
        root = scipy.linalg.cholesky(whole)

    def forward(vector: FloatArray) -> FloatArray:
        if root is not None:
            vector = scipy.linalg.solve_triangular(root, vector).astype(vector.dtype, copy=False)
        return design.forward(scale * vector)

    def adjoint(scores: FloatArray) -> FloatArray:
        product: FloatArray = scale * design.adjoint(scores)
        if root is not None:
            solution = scipy.linalg.solve_triangular(root, product, trans=1)
            product = solution.astype(product.dtype, copy=False)
        return product

    vector = agent.private_random(0).standard_normal(design.shape[1]).astype(design.dtype)
    previous = np.zeros_like(vector)
    beta = 0.0
    top = 0.0
    length = yield from _norm_of_all(vector)
    vector /= length or 1.0
    diagonal: list[float] = []
    off: list[float] = []
    for step in range(TUNING.lanczos_steps):
        scores = yield Sum(forward(vector))
        diagonal.append(float(scores @ scores))
        residual = adjoint(scores) - diagonal[-1] * vector - beta * previous
        lower = top
        top = extreme_eigenvalues(diagonal, off)[1]
        beta = yield from _norm_of_all(residual)
        has_settled = step >= 3 and top - lower <= 0.1 * TUNING.norm_tolerance * top
        if beta <= 1e-6 * top or has_settled:
            break
        off.append(beta)
        previous = vector
        vector = residual / beta
    return top * (1.0 + TUNING.norm_tolerance)


def _norm_of_all(vector: FloatArray) -> Protocol[float]:
    """Return the norm of a vector of which each agent has a part."""
    squares = yield Sum(np.array([float(vector @ vector)]))
    return math.sqrt(squares[0])


def most_of_pooled_norm(case: Case) -> Counts:
    """Return the largest counts of `pooled_norm`."""
    if case.all_columns is None:
        steps = TUNING.lanczos_steps
    else:
        steps = min(TUNING.lanczos_steps, case.all_columns)
    return 1 + 2 * steps, 1 + steps * (case.rows + 1)


def extreme_eigenvalues(diagonal: list[float], off: list[float]) -> tuple[float, float]:
    """Return the least and the largest eigenvalue of a symmetric tridiagonal matrix."""
    matrix = np.diag(diagonal) + np.diag(off, 1) + np.diag(off, -1)
    values = np.linalg.eigvalsh(matrix)
    return float(values[0]), float(values[-1])


def traffic(network: Network) -> tuple[float, float, str]:
    """Return the expected traffic of `graph-cp` and `tree`, as multiples of n times the rounds of
    `tree`, and a sentence about it.

    Measured on rings, stars, grids and complete graphs of 4 to 32 agents, `graph-cp` takes 1.5 to 3
    √m times the rounds of `tree`, and more on paths. `tree` has to estimate κ first, so 1.4 √m is
    assumed.
    """
    m = network.agents
    edges = network.n_edges
    longer = TUNING.longer * math.sqrt(network.agents)
    words = (
        f"graph-cp sends {2 * edges} numbers per sample and round, tree {2 * (m - 1)} "
        f"and is expected to take {longer:.2g} times fewer rounds"
    )
    return 2.0 * edges * longer, 2.0 * (m - 1), words
