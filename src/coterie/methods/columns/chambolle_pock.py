"""Chambolle–Pock on data split by features: what `graph-cp`, in both variants, and `tree` share.

How a block of the model and the dual move, how steps are balanced when Halpern's iteration begins a
new epoch, and where to start. The table of `graph_cp.py` says what the symbols mean.

A block whose columns are nearly dependent is whitened, beside none and l2: its metric N_j is all of
X_jᵀX_j, and not a
number per column. It needs no message, and the step is the solution of equations that are
factorised once:

    θ⁺ = argmin n r(θ) + ⟨Xᵀλ, θ⟩ + ½ (θ − θ_old)ᵀN(θ − θ_old) / a        (N + n a ρ I) θ⁺ = N θ_old
    − a Xᵀλ
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
        "How long the agents estimate a norm at most.",
        "theorem: Lanczos is exact for m ≤ 100 agents",
    )
    norm_tolerance: float = tuned(1e-2, "By how much they round it to the safe side.", below=1)
    longer: float = tuned(
        1.4,
        "graph-cp takes this times √m as many rounds as tree.",
        "measured: benchmarks/graph_cp.py --ratio",
    )
    dependent: float = tuned(
        100.0,
        "From this condition number on, in units of equal lengths, a block is whitened, ...",
        CORRELATED,
    )
    share: float = tuned(
        2.0, "... if it has at most so many times n numbers.", "theorem: memory of a few n floats"
    )
    alike: float = tuned(
        0.5, "Not in tree, if κ is this share of m: blocks that say the same.", CORRELATED, below=1
    )
    floor: float = tuned(
        1e-9, "By this share its diagonal is enlarged.", "rounding: Cholesky's of dependent columns"
    )


TUNING = _Tuning()


def block_step(agent: Agent, theta: FloatArray, lam: FloatArray, a: FloatArray) -> FloatArray:
    """prox_{n a r}(θ − a Xᵀλ), with a number a per column."""
    return agent.problem.prox(
        theta - a * agent.design.adjoint(lam), agent.total * a, agent.design.intercept
    )


@remembered
def products(agent: Agent) -> FloatArray | None:
    """X_jᵀX_j, a little enlarged, if this block is to be whitened."""
    pieces = agent.problem.penalty.pieces
    n, width = agent.design.shape
    if pieces is None or pieces.kinds or width < 2 or width**2 > TUNING.share * n:
        return None
    moment = symmetric(second_moment(agent.design, None))
    lengths = moment.diagonal().copy()
    lengths[lengths == 0] = lengths.max(initial=0.0) or 1.0
    unit = lengths**-0.5
    least, most = np.linalg.eigvalsh(moment * unit * unit[:, None])[[0, -1]]
    if most <= TUNING.dependent * max(least, 0.0):
        return None
    whole: FloatArray = moment + np.diag(TUNING.floor * lengths)
    return whole


def own_norms(agent: Agent, whiten: bool = True) -> FloatArray:
    """`block_norms`; 1 for a block that is whitened, whose metric is `products`."""
    if not whiten or products(agent) is None:
        return block_norms(agent)
    return np.ones(agent.design.shape[1], agent.design.dtype)


def own_step(
    agent: Agent, theta: FloatArray, lam: FloatArray, a: FloatArray, whiten: bool = True
) -> FloatArray:
    """`block_step`, in the metric of the block."""
    if whiten:
        whole = products(agent)
    else:
        whole = None
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
    ridge = np.full(len(whole), agent.total * step * agent.problem.penalty.strong_convexity)
    if agent.design.intercept:
        ridge[-1] = 0.0
    factor: tuple[FloatArray, bool] = scipy.linalg.cho_factor(whole + np.diag(ridge))
    return factor


def own_weight(agent: Agent, norms: FloatArray, change: FloatArray, whiten: bool = True) -> float:
    """‖N^½Δθ‖²."""
    if whiten:
        whole = products(agent)
    else:
        whole = None
    if whole is None:
        return float(norms @ change**2)
    return float(norms[0]) * float(change @ whole @ change)


def dual_step(agent: Agent, q: FloatArray, s: float) -> FloatArray:
    """argmin over λ of s Σ_i weight_i ℓ_i*(λ_i / weight_i) + ½‖λ − q‖²."""
    loss = agent.loss
    weights = agent.data.weights
    if weights is None:
        return loss.dual_prox(q, agent.labels, s)
    lam: FloatArray = weights * loss.dual_prox(q / weights, agent.labels, s / weights)
    return lam.astype(q.dtype, copy=False)


def told(agent: Agent, point: Point) -> Protocol[tuple[FloatArray, FloatArray, FloatArray]]:
    """Its own block of a point, everybody's scores, and the λ of the label agent: by default the
    slope of the loss.
    """
    theta = point.w.astype(agent.design.dtype)
    dtype = agent.design.dtype
    scores = yield Sum(agent.design.forward(theta))
    lam = np.zeros_like(scores)
    if agent.data.y is not None:
        if point.v is None:
            v = agent.loss.gradient(scores, agent.labels)
        else:
            v = point.v
        lam = agent.weighted(v).astype(dtype)
    return theta, scores, (yield Sum(lam))


def point_at(agent: Agent, w: FloatArray, lam: FloatArray) -> Point:
    """The block, and at the labels the dual v of one sample each."""
    if agent.data.y is None:
        return Point(w)
    return Point(w, lam if agent.data.weights is None else lam / agent.data.weights)


def rebalanced(
    s: float, c: float, duals: float, blocks: float, edges: float
) -> tuple[float, float]:
    """Half way (in logarithms) to the s and c that make duals/s + s(blocks/c + edges/(1 − c))
    least.
    """
    primal = math.sqrt(max(blocks, 0.0)) + math.sqrt(max(edges, 0.0))
    if duals > 0 and primal > 0:
        s = math.sqrt(s * math.sqrt(duals) / primal)
    if blocks > 0 and edges > 0:
        odds = math.sqrt(c / (1.0 - c) * math.sqrt(blocks / edges))
        c = min(max(odds / (1.0 + odds), TUNING.least_share), 1.0 - TUNING.least_share)
    return s, c


def first_dual_step(agent: Agent) -> float:
    """The slope at 0 over the scores that would bring the loss to 0 along it: for the squared loss
    a constant.
    """
    assert agent.statistics is not None
    step = agent.statistics.residual**2 / (
        agent.design.shape[0] * agent.statistics.primal_at_start or 1.0
    )
    if 0 < step < math.inf:
        return step
    return 1.0


def block_norms(agent: Agent) -> FloatArray:
    """One number per column with ‖X diag(norms)^{-1/2}‖ ≤ 1: proportional to its squared length.

    Columns that the penalty ties together share the largest; a column of zeros takes part nowhere.
    """
    design = agent.design
    lengths = design.squared_lengths()
    lengths[lengths == 0] = lengths.max(initial=0) or 1.0
    norms = 1.0 / agent.problem.tied(1.0 / lengths, design.intercept)
    return (norms * (design.squared_norm(columns=norms**-0.5) or 1.0)).astype(design.dtype)


def pooled_norm(agent: Agent, scale: FloatArray, whiten: bool = False) -> Protocol[float]:
    """‖X diag(scale)‖² over all agents' columns by Lanczos, rounded up a little: each step is a
    `Sum` of n numbers.

    Blocks that are whitened have X_j N_j^{-½}, if it is asked for, with Cholesky's factor as the
    root.
    """
    design = agent.design
    if whiten:
        whole = products(agent)
    else:
        whole = None
    if whole is None:
        root = None
    else:
        root = scipy.linalg.cholesky(whole)

    def forward(vector: FloatArray) -> FloatArray:
        if root is not None:
            vector = scipy.linalg.solve_triangular(root, vector).astype(vector.dtype, copy=False)
        return design.forward(scale * vector)

    def adjoint(scores: FloatArray) -> FloatArray:
        image: FloatArray = scale * design.adjoint(scores)
        if root is not None:
            image = scipy.linalg.solve_triangular(root, image, trans=1).astype(
                image.dtype, copy=False
            )
        return image

    vector = agent.private_random(0).standard_normal(design.shape[1]).astype(design.dtype)
    previous = np.zeros_like(vector)
    beta = 0.0
    top = 0.0
    length = math.sqrt((yield Sum(np.array([float(vector @ vector)])))[0])
    vector /= length or 1.0
    diagonal: list[float] = []
    off: list[float] = []
    for step in range(TUNING.lanczos_steps):
        scores = yield Sum(forward(vector))
        diagonal.append(float(scores @ scores))
        image = adjoint(scores) - diagonal[-1] * vector - beta * previous
        lower = top
        top = extreme_eigenvalues(diagonal, off)[1]
        beta = math.sqrt((yield Sum(np.array([float(image @ image)])))[0])
        if beta <= 1e-6 * top or (step >= 3 and top - lower <= 0.1 * TUNING.norm_tolerance * top):
            break
        off.append(beta)
        previous = vector
        vector = image / beta
    return top * (1.0 + TUNING.norm_tolerance)


def most_of_pooled_norm(case: Case) -> Counts:
    """The largest counts of `pooled_norm`."""
    if case.all_columns is None:
        steps = TUNING.lanczos_steps
    else:
        steps = min(TUNING.lanczos_steps, case.all_columns)
    return 1 + 2 * steps, 1 + steps * (case.rows + 1)


def extreme_eigenvalues(diagonal: list[float], off: list[float]) -> tuple[float, float]:
    """The least and the largest eigenvalue of a symmetric tridiagonal matrix."""
    values = np.linalg.eigvalsh(np.diag(diagonal) + np.diag(off, 1) + np.diag(off, -1))
    return float(values[0]), float(values[-1])


def traffic(network: Network) -> tuple[float, float, str]:
    """What `graph-cp` and `tree` are expected to send, as multiples of n times the rounds of
    `tree`, and that in words.

    Measured on rings, stars, grids and complete graphs of 4 to 32 agents: `graph-cp` takes 1.5 to 3
    √m times the rounds of `tree`, and more on paths. As `tree` has to estimate κ before, 1.4 √m is
    assumed.
    """
    m = network.agents
    edges = network.n_edges
    longer = TUNING.longer * math.sqrt(network.agents)
    words = (
        f"graph-cp sends {2 * edges} numbers per sample and round, tree {4 * (m - 1)} "
        f"and is expected to take {longer:.2g} times fewer rounds"
    )
    return 2.0 * edges * longer, 4.0 * (m - 1), words
