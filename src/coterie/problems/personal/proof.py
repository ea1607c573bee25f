"""Proofs for personal models given the collaboration graph: the Frank-Wolfe gap of (1).

    f(α) − f* ≤ Σ_k max over ‖s‖ ≤ β of ⟨α_k − s, g_k⟩ = Σ_k ⟨α_k, g_k⟩ + β ‖g_k‖_*
    g_k = −d_k c_k η_kᵀA_k + μ (d_k α_k − Σ_l w_kl α_l),   η_k ∝ exp(−A_k α_k)

because f is convex. The mean hinge loss is (1/m) Σ_i max(0, 1 − [A_kα]_i) ≥ (1/m) Σ_i u_i (1 −
[A_kα]_i) for 0 ≤ u_i ≤ 1. If L_k is this loss, the multipliers u of `hinge_block` near α replace η:

    f(α) − f* ≤ Σ_k d_k c_k (L_k(α_k) − (1/m_k) Σ_i u_i (1 − [A_kα_k]_i)) + ⟨α_k, g_k⟩ + β ‖g_k‖₂
    g_k = −d_k c_k uᵀA_k/m_k + μ (d_k α_k − Σ_l w_kl α_l)

A user's point is its model and its row of the graph. The two users of an edge may hold different
weights for it, because a message was lost. The proof uses the smaller weight, so that the graph is
symmetric.

**Rounding.** The computed η (or u) is a feasible dual for any exact margins. The error of a margin
is at most h = k ε max_i Σ_j |A_ij α_j|. The error of a loss is at most h and the rounding error of
its sum. The error of g_k is at most k ε (d_k c_k max |A| + μ …) in the norm that the gap uses. This
error counts twice: once in the product with α and once in the product with s.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from coterie.errors import InvalidData, NumericalError
from coterie.numerics.arrays import FloatArray
from coterie.numerics.kernels.boosting import log_sum_gradient
from coterie.numerics.kernels.hinge_block import hinge_block, mean_hinge
from coterie.problems.parts.proof import Proof
from coterie.problems.personal.problem import (
    SHELVES,
    Personal,
    confidence,
    margins,
    pooled_gradient,
)
from coterie.problems.proof import EPSILON, FEW, SAFE
from coterie.run.agent import Agent, SummaryStatistics
from coterie.run.certificate.bound import Bound, Point
from coterie.run.collectives import Ask, Protocol, Sum
from coterie.run.disclosure import TOTALS, Protocols, discloses

BITS = 40
"""Binary digits of the largest number of rows of a user: fewer than 2⁴⁰."""
ROUNDING = 1e-9
SWEEPS = 2000
"""Largest number of passes over the rows in the search for multipliers."""


class PersonalProof(Proof[Personal]):
    """Introduces users and certifies their models by the Frank-Wolfe gap."""

    @discloses(
        (
            "how many binary digits the number of your rows has, that number, and the loss of a "
            "model "
            "of zeros"
        ),
        "how many rows you have, as far as a sum over all parties shows it",
        most=lambda case: (1, BITS + 2),
    )
    @discloses(
        "for each binary digit of the largest number of rows: whether you have at least as many",
        "whether you have the most rows of all parties",
        most=lambda case: (BITS - 1, BITS - 1),
    )
    def introduce(self, agent: Agent[Personal]) -> Protocol[SummaryStatistics]:
        """Compute the number of rows, the largest number of rows of a user, and the objective at
        α = 0.
        """
        rows = agent.data.n
        degree = sum(agent.ties) or 1.0
        lengths = np.zeros(BITS)
        lengths[rows.bit_length()] = 1.0
        if agent.problem.hinge:
            at_zero = 1.0
        else:
            if rows:
                at_zero = math.log(rows)
            else:
                at_zero = 0.0
        sums = yield Sum(np.append(lengths, [rows, degree * rows * at_zero if rows else 0.0]))
        if sums[-2] == 0:
            raise InvalidData("no user has any rows. Give at least one user data.")
        # The largest number of rows, bit by bit from the highest: each sum counts the users that
        # have at least the candidate number of rows.
        largest = 0
        top = int(np.flatnonzero(sums[:BITS])[-1]) - 1
        for bit in range(top, -1, -1):
            candidate = largest + (1 << bit)
            if bit == top or (yield Sum(np.array([float(rows >= candidate)])))[0] > 0:
                largest = candidate
        total = float(sums[-2])
        if agent.problem.pooled:
            unit = math.log(total)
        else:
            unit = float(sums[-1]) / largest
        # If every user has one row only, f(0) = 0, which is no scale for the gap.
        if not unit > 0:
            unit = 1.0
        return SummaryStatistics(
            total, unit, 0.0, 0.0, gap_unit=unit, primal_at_zero=unit, largest=float(largest)
        )

    @discloses(
        "your model and your weights in the graph, to each neighbour",
        "how your rows are labelled, about as accurately as your model predicts them",
        applies=lambda case: not case.problem.pooled,
        most=lambda case: (1, case.problem.predictor_count(case.columns) + 2 * case.parties),
    )
    @discloses(
        "your loss and your gap, as part of a sum",
        applies=lambda case: not case.problem.pooled,
        most=lambda case: (1, 4),
    )
    @discloses(
        "the gradient of your loss and its value, as part of a sum",
        "a weighted sum of the predictions for your rows",
        TOTALS,
        applies=lambda case: case.problem.pooled,
        most=lambda case: (3, SHELVES + case.problem.predictor_count(case.columns) + 3),
    )
    def certify(
        self, agent: Agent[Personal], point: Point, target: float = 0.0, radius: float | None = None
    ) -> Protocol[Bound]:
        """Compute f(α) and its Frank-Wolfe gap, with the bounds of their rounding errors."""
        problem = agent.problem
        alpha = point.w.astype(float)
        if float(np.linalg.norm(alpha, 1 if problem.norm == "l1" else 2)) > problem.beta * (
            1 + ROUNDING
        ):
            raise NumericalError(
                f"the model of {agent.data.name!r} is outside the ball of radius {problem.beta:g}."
            )
        if problem.pooled:
            value, g = yield from pooled_gradient(agent, alpha)
            # The shares of the users add up to 1. The sum of their errors is therefore at least
            # the error over all rows.
            lost = yield Sum(np.array(_lost(agent, alpha, 1.0, 0.0)))
            sizes = np.array([1.0 + abs(value), problem.beta * _steepest(problem, g)])
            off, off_gap = (SAFE * (lost + EPSILON * (agent.count + FEW) * sizes)).tolist()
            return Bound.of(value, _gap(problem, alpha, g) + off_gap, off_gap, primal_rounding=off)
        peers, weights = _row(agent, point.v)
        theirs = yield Ask(
            tuple(peers.tolist()), tell=np.concatenate([alpha, peers.astype(float), weights])
        )
        degree = 0.0
        apart = 0.0
        pull = np.zeros(alpha.size)
        for peer, mine in zip(peers.tolist(), weights.tolist(), strict=True):
            message = theirs[peer]
            own, their_peers, their_weights = _parts(message, alpha.size)
            held = their_weights[their_peers == agent.index]
            if held.size:
                weight = min(mine, float(held[0]))
            else:
                weight = 0.0
            degree += weight
            pull += weight * own
            apart += weight * float((alpha - own) @ (alpha - own))
        g = np.empty(alpha.size)
        mu = problem.mu
        s = (degree or 1.0) * confidence(agent)
        if problem.hinge:
            loss, gap = _hinge_gap(
                problem, margins(agent), alpha, mu * (degree * alpha - pull), s, mu * degree or 1.0
            )
        else:
            loss = log_sum_gradient(margins(agent), alpha, mu * pull, s, mu * degree, g)
            gap = _gap(problem, alpha, g)
        held = s * loss + 0.25 * mu * apart
        if problem.norm == "l1":
            size = 1.0
        else:
            size = math.sqrt(alpha.size)
        pulled = (
            size
            * mu
            * (
                degree * float(np.abs(alpha).max(initial=0.0))
                + float(np.abs(pull).max(initial=0.0))
            )
        )
        off, off_gap = _lost(agent, alpha, s, pulled + mu * degree * problem.beta)
        roundings = EPSILON * (alpha.size + agent.count + FEW)
        sums = yield Sum(
            np.array([held, gap, off + roundings * abs(held), off_gap + roundings * gap])
        )
        value, gap, off, off_gap = map(float, sums)
        return Bound.of(value, gap + SAFE * off_gap, SAFE * off_gap, primal_rounding=SAFE * off)

    introduces: Protocols = (introduce,)
    proves: Protocols = (certify,)


def _gap(problem: Personal, alpha: FloatArray, g: FloatArray) -> float:
    return max(float(alpha @ g) + problem.beta * _steepest(problem, g), 0.0)


def _steepest(problem: Personal, g: FloatArray) -> float:
    return float(np.linalg.norm(g, np.inf if problem.norm == "l1" else 2))


def _lost(
    agent: Agent[Personal], alpha: FloatArray, s: float, pulled: float
) -> tuple[float, float]:
    """Bound the rounding errors of s times the user's loss, and of its gap. `pulled` is the size
    of the terms of g_k that are not from the loss.
    """
    problem = agent.problem
    A = margins(agent)
    rows, columns = A.shape
    reach = largest = 0.0
    if rows:
        sizes = np.abs(A)
        reach = float((sizes @ np.abs(alpha)).max())
        if problem.norm == "l1":
            largest = float(sizes.max())
        else:
            largest = float(np.linalg.norm(sizes, axis=1).max())
    # The error of the exponentials of the margins, and of their sums.
    margin = EPSILON * ((columns + FEW) * reach + (rows + FEW) * (1.0 + reach))
    gradient_error = (
        EPSILON * (2 * rows + columns + len(agent.neighbours) + FEW) * (s * largest + pulled)
    )
    if problem.hinge:
        first_order = 2.0 * s * margin
    else:
        first_order = s * margin * margin
    return s * margin, 4.0 * problem.beta * gradient_error + first_order


def _hinge_gap(
    problem: Personal, A: FloatArray, alpha: FloatArray, pulled: FloatArray, s: float, q: float
) -> tuple[float, float]:
    """Compute L_k, and the gap at the multipliers of a step from α. If α is the minimiser, the
    step leaves it unchanged, and the gap is 0.
    """
    u = np.zeros(len(A))
    hinge_block(A, alpha - pulled / q, s, q, problem.beta, u, SWEEPS)
    margin = A @ alpha
    loss = mean_hinge(A, alpha)
    share = s / max(len(A), 1)
    short = s * loss - share * float(u @ (1.0 - margin))
    return loss, max(short, 0.0) + _gap(problem, alpha, pulled - share * (u @ A))


def _row(agent: Agent[Personal], row: FloatArray | None) -> tuple[npt.NDArray[np.intp], FloatArray]:
    """The user's neighbours and their weights: those of the point, else those of the given
    graph.
    """
    if row is None:
        return np.array(agent.neighbours, np.intp), np.array(agent.ties, float)
    return row[: row.size // 2].astype(np.intp), row[row.size // 2 :]


def _parts(message: FloatArray, length: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    edges = (message.size - length) // 2
    return message[:length], message[length : length + edges], message[length + edges :]
