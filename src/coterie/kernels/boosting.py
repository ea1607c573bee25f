"""One user's steps on its own block of the personal objective

    φ(α) = s log Σ_i exp(−[Aα]_i) + (q/2) ‖α‖² − ⟨pull, α⟩       over ‖α‖₁ ≤ β, or ‖α‖₂ ≤ β

with s = d_k c_k, q = μ d_k and pull = μ Σ_l w_kl α_l, and its weights in the collaboration graph, exactly.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

FAST = {"reassoc", "nsz"}
"""Sums in any order, so that they vectorise. No fused operations, and no loop that both stores and sums: of those the
compiler makes two versions, and where arrays happen to lie would decide about the last bit."""
HALVINGS = 60
NEWTONS = 30


@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath=FAST)
def _margins(A: Any, alpha: Any) -> Any:
    rows, columns = A.shape
    margins = np.empty(rows)
    for i in range(rows):
        total = 0.0
        for j in range(columns):
            total += A[i, j] * alpha[j]
        margins[i] = total
    return margins


@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath=FAST)
def _weigh(margins: Any, shares: Any) -> float:
    """η = exp(−margins) / Σ exp(−margins) into `shares`, and the logarithm of that sum."""
    least = np.inf
    for i in range(margins.size):
        least = min(least, margins[i])
    for i in range(margins.size):
        shares[i] = math.exp(least - margins[i])
    total = 0.0
    for i in range(margins.size):
        total += shares[i]
    for i in range(margins.size):
        shares[i] /= total
    return math.log(total) - least


@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath=FAST)
def log_sum(A: Any, alpha: Any) -> float:
    """log Σ_i exp(−[Aα]_i), the AdaBoost loss of (1); 0 for a user without rows."""
    if A.shape[0] == 0:
        return 0.0
    margins = _margins(A, alpha)
    return _weigh(margins, np.empty(margins.size))


@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath=FAST)
def slope(A: Any, alpha: Any, pull: Any, s: float, q: float, g: Any) -> float:
    """g ← −s ηᵀA + q α − pull, the partial gradient g_k, and the loss log Σ exp(−Aα)."""
    rows, columns = A.shape
    for j in range(columns):
        g[j] = q * alpha[j] - pull[j]
    if rows == 0:
        return 0.0
    margins = _margins(A, alpha)
    shares = np.empty(rows)
    loss = _weigh(margins, shares)
    for i in range(rows):
        weight = s * shares[i]
        for j in range(columns):
            g[j] -= weight * A[i, j]
    return loss


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _steepest(g: Any) -> int:
    best, size = 0, -1.0
    for j in range(g.size):
        if abs(g[j]) > size:
            best, size = j, abs(g[j])
    return best


@numba.njit(nogil=True, cache=True, error_model="numpy")
def frank_wolfe_step(A: Any, alpha: Any, pull: Any, s: float, q: float, beta: float, gamma: float) -> int:
    """α ← (1 − γ)α + γ β sign(−g_j) e_j in place, j = argmax |g_j|; returns j."""
    g = np.empty(alpha.size)
    slope(A, alpha, pull, s, q, g)
    j = _steepest(g)
    for i in range(alpha.size):
        alpha[i] *= 1.0 - gamma
    alpha[j] -= gamma * beta * np.sign(g[j])
    return j


@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath=FAST)
def pairwise_step(A: Any, alpha: Any, pull: Any, s: float, q: float, beta: float) -> int:
    """Move weight from the worst atom in use to the best one, by exact line search, in place.

    The atoms are ±β e_j and, while ‖α‖₁ < β, the origin. Returns how many coordinates changed.
    """
    rows, columns = A.shape
    g = np.empty(columns)
    slope(A, alpha, pull, s, q, g)
    best = _steepest(g)
    toward = -beta * np.sign(g[best])
    # The away atom maximises ⟨g, v⟩ over the atoms in use; the origin has ⟨g, 0⟩ = 0.
    norm = 0.0
    worst, height = -1, -np.inf
    for j in range(columns):
        if alpha[j] != 0.0:
            norm += abs(alpha[j])
            rise = beta * g[j] if alpha[j] > 0 else -beta * g[j]
            if rise > height:
                worst, height = j, rise
    if beta - norm > 1e-12 * beta and height < 0.0:
        worst, height = -1, 0.0
    if worst < 0:
        away, largest = 0.0, (beta - norm) / beta
    else:
        away, largest = (beta if alpha[worst] > 0 else -beta), abs(alpha[worst]) / beta
    descent = height + beta * abs(g[best])
    if not (descent > 0.0 and largest > 0.0):
        return 0
    # φ'(γ) along γ (toward·e_best − away·e_worst), and its root in [0, largest]
    square = (toward - away) ** 2 if worst == best else toward * toward + away * away
    change = np.empty(rows)
    for i in range(rows):
        change[i] = toward * A[i, best] - (away * A[i, worst] if worst >= 0 else 0.0)
    margins, shares = _margins(A, alpha), np.empty(rows)
    linear = toward * (q * alpha[best] - pull[best])
    if worst >= 0:
        linear -= away * (q * alpha[worst] - pull[worst])
    low, high, gamma = 0.0, largest, largest
    moved = np.empty(rows)
    for _ in range(NEWTONS):
        first, second = linear + gamma * q * square, q * square
        if rows:
            for i in range(rows):
                moved[i] = margins[i] + gamma * change[i]
            _weigh(moved, shares)
            mean, squares = 0.0, 0.0
            for i in range(rows):
                mean += shares[i] * change[i]
                squares += shares[i] * change[i] * change[i]
            first -= s * mean
            second += s * max(squares - mean * mean, 0.0)
        if first <= 0.0:
            low = gamma
            if gamma >= largest:
                break
        else:
            high = gamma
        if abs(first) <= 1e-10 * descent or high - low <= 1e-14 * largest:
            break
        gamma = gamma - first / second if second > 0.0 else 0.5 * (low + high)
        if not low < gamma < high:
            gamma = 0.5 * (low + high)
    if gamma <= 0.0:
        return 0
    alpha[best] += gamma * toward
    if worst >= 0:
        alpha[worst] = 0.0 if gamma >= largest and worst != best else alpha[worst] - gamma * away
    return 1 if worst < 0 or worst == best else 2


@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath=FAST)
def descent_step(A: Any, alpha: Any, pull: Any, s: float, q: float, beta: float, curvature: float, steps: int) -> float:
    """Accelerated projected gradient steps on ‖α‖₂ ≤ β in place; `curvature` bounds that of log Σ exp(−Aα).

    A user that has neither rows nor neighbours has nothing to learn from, and its model stays as it is.
    """
    if s * curvature + q <= 0.0:
        return 0.0
    g = np.empty(alpha.size)
    ahead, last = alpha.copy(), alpha.copy()
    step = 1.0 / (s * curvature + q)
    for t in range(steps):
        slope(A, ahead, pull, s, q, g)
        for j in range(alpha.size):
            alpha[j] = ahead[j] - step * g[j]
        square = 0.0
        for j in range(alpha.size):
            square += alpha[j] * alpha[j]
        scale = min(1.0, beta / math.sqrt(square)) if square > 0.0 else 1.0
        for j in range(alpha.size):
            alpha[j] *= scale
            ahead[j] = alpha[j] + t / (t + 3.0) * (alpha[j] - last[j])
            last[j] = alpha[j]
    return step


@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath=FAST)
def weighted_rows(board: Any, rows: Any, weights: Any) -> Any:
    """Σ_l weights_l board[rows_l]."""
    total = np.zeros(board.shape[1])
    for p in range(rows.size):
        row, weight = board[rows[p]], weights[p]
        for j in range(total.size):
            total[j] += weight * row[j]
    return total


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _weight(r: float, e: float, lam: float) -> float:
    """The w ≥ 0 with 2λw + r = 1/(e + w), or 0: the larger root of 2λw² + (2λe + r)w + re − 1."""
    if r * e >= 1.0:
        return 0.0
    b = 2.0 * lam * e + r
    root = math.sqrt(b * b + 8.0 * lam * (1.0 - r * e))
    return 2.0 * (1.0 - r * e) / (b + root) if b > 0.0 else (root - b) / (4.0 * lam)


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _graph_value(price: Any, others: Any, own: float, lam: float, w: Any) -> float:
    total, value = own, 0.0
    for p in range(price.size):
        total += w[p]
        value += price[p] * w[p] - math.log(others[p] + w[p]) + lam * w[p] * w[p]
    return value - math.log(total)


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _adaptive_step(price: Any, others: Any, own: float, lam: float, now: Any, g: Any, steepest: float) -> Any:
    """w ← max(0, w − g/L), with the curvature L at w, doubled up to `steepest` until h falls as L promises."""
    total, largest = own, 0.0
    for p in range(price.size):
        total += now[p]
        largest = max(largest, 1.0 / (others[p] + now[p]) ** 2)
    curvature = 2.0 * lam + price.size / (total * total) + largest
    before = _graph_value(price, others, own, lam, now)
    w = np.empty(price.size)
    while True:
        curvature = min(curvature, steepest)
        promised = before
        for p in range(price.size):
            w[p] = max(0.0, now[p] - g[p] / curvature)
            step = w[p] - now[p]
            promised += g[p] * step + 0.5 * curvature * step * step
        if curvature >= steepest or _graph_value(price, others, own, lam, w) <= promised:
            return w
        curvature *= 2.0


def graph_gradient_step(
    price: Any, others: Any, own: float, lam: float, now: Any, delta: float, factor: float | None
) -> Any:
    """w ← max(0, w − factor ∇h(w)/L_κ),   L_κ = 2((κ + 1)/δ² + λ), all divided by μ                        (4), (5)

    `own` and `others` are the degrees plus δ. Without a factor, the step suits the curvature where w is.
    """
    smoothness = 2 * ((price.size + 1) / delta**2 + lam)
    slope = price - (1 / own + 1 / others) + 2 * lam * now
    if factor is not None:
        return np.maximum(0.0, now - slope / (smoothness / factor))
    return _adaptive_step(price, others - now, own - now.sum(), lam, now, slope, smoothness)


@numba.njit(nogil=True, cache=True, error_model="numpy")
def graph_block(price: Any, others: Any, own: float, lam: float) -> Any:
    """argmin over w ≥ 0 of Σ_l price_l w_l − log(own + Σ_l w_l) − Σ_l log(others_l + w_l) + λ ‖w‖².

    `own` and `others` are the degrees without these weights, plus δ. With τ = 1/(own + Σ w) fixed every w_l has a
    closed form that grows with τ, so τ is the root of a monotone function of one variable.
    """
    w = np.zeros(price.size)
    low, high = 0.0, 1.0 / own
    tau = high
    for _ in range(HALVINGS):
        total = own
        for p in range(price.size):
            w[p] = _weight(price[p] - tau, others[p], lam)
            total += w[p]
        if tau * total > 1.0:
            high = tau
        else:
            low = tau
        if high - low <= 1e-16 * high or tau * total == 1.0:
            break
        tau = 0.5 * (low + high)
    return w


@numba.njit(nogil=True, cache=True)
def shares_wrong(scores: Any) -> Any:
    """How many of the scores in each row are below 0, as a share; those that are 0 count half, and so do no scores."""
    wrong, n = np.full(scores.shape[0], 0.5), scores.shape[1]
    for k in range(scores.shape[0] if n else 0):
        below = ties = 0
        for i in range(n):
            below += scores[k, i] < 0
            ties += scores[k, i] == 0
        wrong[k] = below / n + 0.5 * (ties / n)
    return wrong
