"""Steps of one user on its block of the personal objective

    φ(α) = s log Σ_i exp(−[Aα]_i) + (q/2) ‖α‖² − ⟨pull, α⟩       over ‖α‖₁ ≤ β, or ‖α‖₂ ≤ β

with s = d_k c_k, q = μ d_k and pull = μ Σ_l w_kl α_l, and steps on its weights in the collaboration
graph.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

from coterie.numerics.kernels.compiled import compiled, inlined

FAST = {"reassoc", "nsz"}
"""Sums may be taken in any order, so that they vectorise. Two things are left out, because the last
bit would depend on the address of an array: fused operations, and loops that both store and sum
(the compiler makes two versions of them).
"""
HALVINGS = 60
NEWTON_STEPS = 30

_vectorised = numba.njit(nogil=True, cache=True, error_model="numpy", fastmath=FAST)


@_vectorised
def _margins(A: Any, alpha: Any) -> Any:
    rows, columns = A.shape
    margins = np.empty(rows)
    for i in range(rows):
        total = 0.0
        for j in range(columns):
            total += A[i, j] * alpha[j]
        margins[i] = total
    return margins


@_vectorised
def _weigh(margins: Any, shares: Any) -> float:
    """Write η = exp(−margins) / Σ exp(−margins) to `shares`. Returns the logarithm of that sum."""
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


@_vectorised
def log_sum(A: Any, alpha: Any) -> float:
    """log Σ_i exp(−[Aα]_i), the AdaBoost loss of (1); 0 for a user without rows."""
    if A.shape[0] == 0:
        return 0.0
    margins = _margins(A, alpha)
    return _weigh(margins, np.empty(margins.size))


@_vectorised
def log_sum_gradient(A: Any, alpha: Any, pull: Any, s: float, q: float, g: Any) -> float:
    """Write the partial gradient −s ηᵀA + q α − pull to g. Returns the loss log Σ exp(−Aα)."""
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


@compiled
def _steepest(g: Any) -> int:
    best = 0
    size = -1.0
    for j in range(g.size):
        if abs(g[j]) > size:
            best = j
            size = abs(g[j])
    return best


@compiled
def frank_wolfe_step(
    A: Any, alpha: Any, pull: Any, s: float, q: float, beta: float, gamma: float
) -> int:
    """α ← (1 − γ)α + γ β sign(−g_j) e_j in place, j = argmax |g_j|; returns j."""
    g = np.empty(alpha.size)
    log_sum_gradient(A, alpha, pull, s, q, g)
    j = _steepest(g)
    for i in range(alpha.size):
        alpha[i] *= 1.0 - gamma
    alpha[j] -= gamma * beta * np.sign(g[j])
    return j


@_vectorised
def pairwise_step(A: Any, alpha: Any, pull: Any, s: float, q: float, beta: float) -> int:
    """Move weight in α from the worst atom in use to the best one, with an exact line search.

    The atoms are ±β e_j and, while ‖α‖₁ < β, the origin. Returns the number of coordinates that
    changed.
    """
    rows, columns = A.shape
    g = np.empty(columns)
    log_sum_gradient(A, alpha, pull, s, q, g)
    best = _steepest(g)
    toward = -beta * np.sign(g[best])
    worst, height, norm = _away_atom(g, alpha, beta)
    if worst < 0:
        away = 0.0
        largest = (beta - norm) / beta
    else:
        away = beta
        if alpha[worst] < 0:
            away = -beta
        largest = abs(alpha[worst]) / beta
    descent = height + beta * abs(g[best])
    if not (descent > 0.0 and largest > 0.0):
        return 0
    # φ along α + γ (toward·e_best − away·e_worst): the changes of the margins, and its parts
    # without the loss
    if worst == best:
        square = (toward - away) ** 2
    else:
        square = toward * toward + away * away
    change = np.empty(rows)
    for i in range(rows):
        leaving = 0.0
        if worst >= 0:
            leaving = away * A[i, worst]
        change[i] = toward * A[i, best] - leaving
    linear = toward * (q * alpha[best] - pull[best])
    if worst >= 0:
        linear -= away * (q * alpha[worst] - pull[worst])
    gamma = _line_search(_margins(A, alpha), change, linear, q, square, s, largest, descent)
    if gamma <= 0.0:
        return 0
    alpha[best] += gamma * toward
    if worst < 0:
        return 1
    if gamma >= largest and worst != best:
        alpha[worst] = 0.0
    else:
        alpha[worst] -= gamma * away
    if worst == best:
        return 1
    return 2


@inlined
def _away_atom(g: Any, alpha: Any, beta: float) -> Any:
    """The atom in use with the largest ⟨g, v⟩: its coordinate (−1 for the origin), its ⟨g, v⟩, and
    ‖α‖₁.
    """
    norm = 0.0
    worst = -1
    height = -np.inf
    for j in range(alpha.size):
        if alpha[j] != 0.0:
            norm += abs(alpha[j])
            rise = beta * g[j]
            if alpha[j] < 0:
                rise = -beta * g[j]
            if rise > height:
                worst = j
                height = rise
    origin_is_in_use = beta - norm > 1e-12 * beta
    if origin_is_in_use and height < 0.0:
        return -1, 0.0, norm
    return worst, height, norm


@inlined
def _line_search(
    margins: Any,
    change: Any,
    linear: float,
    q: float,
    square: float,
    s: float,
    largest: float,
    descent: float,
) -> float:
    """The root γ in [0, largest] of φ'(γ) = linear + γ q square − s ⟨η(γ), change⟩, by Newton steps
    and halvings.
    """
    rows = margins.size
    moved = np.empty(rows)
    shares = np.empty(rows)
    low, high, gamma = 0.0, largest, largest
    for _ in range(NEWTON_STEPS):
        first = linear + gamma * q * square
        second = q * square
        if rows:
            for i in range(rows):
                moved[i] = margins[i] + gamma * change[i]
            _weigh(moved, shares)
            mean = 0.0
            squares = 0.0
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
        if second > 0.0:
            gamma -= first / second
        else:
            gamma = 0.5 * (low + high)
        if not low < gamma < high:
            gamma = 0.5 * (low + high)
    return gamma


@_vectorised
def descent_step(
    A: Any, alpha: Any, pull: Any, s: float, q: float, beta: float, curvature: float, steps: int
) -> float:
    """Take accelerated projected gradient steps with α on ‖α‖₂ ≤ β; `curvature` bounds that of log
    Σ exp(−Aα).

    The model of a user with neither rows nor neighbours stays unchanged. Returns the step size.
    """
    if s * curvature + q <= 0.0:
        return 0.0
    g = np.empty(alpha.size)
    ahead = alpha.copy()
    last = alpha.copy()
    step = 1.0 / (s * curvature + q)
    for t in range(steps):
        log_sum_gradient(A, ahead, pull, s, q, g)
        for j in range(alpha.size):
            alpha[j] = ahead[j] - step * g[j]
        square = 0.0
        for j in range(alpha.size):
            square += alpha[j] * alpha[j]
        scale = 1.0
        if square > 0.0:
            scale = min(1.0, beta / math.sqrt(square))
        for j in range(alpha.size):
            alpha[j] *= scale
            ahead[j] = alpha[j] + t / (t + 3.0) * (alpha[j] - last[j])
            last[j] = alpha[j]
    return step


@_vectorised
def weighted_rows(board: Any, rows: Any, weights: Any) -> Any:
    """Σ_l weights_l board[rows_l]."""
    total = np.zeros(board.shape[1])
    for p in range(rows.size):
        row = board[rows[p]]
        weight = weights[p]
        for j in range(total.size):
            total[j] += weight * row[j]
    return total


@compiled
def _weight(r: float, e: float, lam: float) -> float:
    """The w ≥ 0 with 2λw + r = 1/(e + w), or 0: the larger root of 2λw² + (2λe + r)w + re − 1."""
    if r * e >= 1.0:
        return 0.0
    b = 2.0 * lam * e + r
    root = math.sqrt(b * b + 8.0 * lam * (1.0 - r * e))
    if b > 0.0:
        return 2.0 * (1.0 - r * e) / (b + root)
    return (root - b) / (4.0 * lam)


@compiled
def graph_value(price: Any, others: Any, own: float, lam: float, w: Any) -> float:
    """The part of h/μ that depends on these weights. The degrees `own` and `others`, plus δ, are
    without them.
    """
    total = own
    value = 0.0
    for p in range(price.size):
        total += w[p]
        value += price[p] * w[p] - math.log(others[p] + w[p]) + lam * w[p] * w[p]
    return value - math.log(total)


@compiled
def _adaptive_step(
    price: Any, others: Any, own: float, lam: float, now: Any, g: Any, steepest: float
) -> Any:
    """w ← max(0, w − g/L): L is the curvature at w, doubled (up to `steepest`) until h falls as L
    predicts.
    """
    total = own
    largest = 0.0
    for p in range(price.size):
        total += now[p]
        largest = max(largest, 1.0 / (others[p] + now[p]) ** 2)
    curvature = 2.0 * lam + price.size / (total * total) + largest
    before = graph_value(price, others, own, lam, now)
    w = np.empty(price.size)
    while True:
        curvature = min(curvature, steepest)
        predicted = before
        for p in range(price.size):
            w[p] = max(0.0, now[p] - g[p] / curvature)
            step = w[p] - now[p]
            predicted += g[p] * step + 0.5 * curvature * step * step
        if curvature >= steepest or graph_value(price, others, own, lam, w) <= predicted:
            return w
        curvature *= 2.0


def graph_gradient_step(
    price: Any, others: Any, own: float, lam: float, now: Any, delta: float, factor: float | None
) -> Any:
    """w ← max(0, w − factor ∇h(w)/L_κ),   L_κ = 2((κ + 1)/δ² + λ), all divided by μ
    (4), (5)

    `own` and `others` are the degrees plus δ. Without a factor, the step size depends on the
    curvature at w.
    """
    smoothness = 2 * ((price.size + 1) / delta**2 + lam)
    gradient = price - (1 / own + 1 / others) + 2 * lam * now
    if factor is not None:
        return np.maximum(0.0, now - gradient / (smoothness / factor))
    return _adaptive_step(price, others - now, own - now.sum(), lam, now, gradient, smoothness)


@compiled
def graph_block(price: Any, others: Any, own: float, lam: float) -> Any:
    """argmin over w ≥ 0 of Σ_l price_l w_l − log(own + Σ_l w_l) − Σ_l log(others_l + w_l) + λ ‖w‖².

    `own` and `others` are the degrees without these weights, plus δ. With τ = 1/(own + Σ w) fixed
    every w_l has a closed form that grows with τ, so τ is the root of a monotone function of one
    variable.
    """
    w = np.zeros(price.size)
    low = 0.0
    high = 1.0 / own
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
    """The share of scores below 0 in each row. A score of 0 counts half, and the share of no scores
    is one half.
    """
    users, n = scores.shape
    wrong = np.full(users, 0.5)
    if n == 0:
        return wrong
    for k in range(users):
        below = 0
        ties = 0
        for i in range(n):
            below += scores[k, i] < 0
            ties += scores[k, i] == 0
        wrong[k] = below / n + 0.5 * (ties / n)
    return wrong
