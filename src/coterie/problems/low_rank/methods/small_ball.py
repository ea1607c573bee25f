"""The small problem of a subspace: the best matrix of a trace-norm ball, and an intercept outside
the ball, for a quadratic.

    min over ‖S‖_* ≤ μ and β of ⟨g, z − z₀⟩ + ½⟨z − z₀, B(z − z₀)⟩,     z = (S, β) as one vector

B is κM on the columns of S and ℓ on β. Updates make B s = y hold for each of the last steps s and
changes y of the gradient (BFGS):

    B ← B − (Bs)(Bs)ᵀ/sᵀBs + yyᵀ/sᵀy
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coterie.numerics.arrays import FloatArray
from coterie.numerics.penalties.l1ball import onto_l1_ball

FLAT = 1e-10
"""A pair counts if sᵀy is more than this share of ‖s‖‖y‖: less is rounding."""
CLOSE = 1e-6
"""Without a ball, conjugate gradients reduce the model's gradient to this share."""
POWER = 12
"""Power iterations that estimate the norm of B."""


class Quadratic:
    """B, from the oldest pair to the newest."""

    def __init__(
        self,
        M: FloatArray,
        columns: int,
        ell: float = 1.0,
        pairs: Sequence[tuple[FloatArray, FloatArray]] = (),
    ):
        self.M = M
        self.columns = columns
        self.ell = ell
        self.cells = len(M) * columns
        self.size = float(np.linalg.norm(M, 2))
        with_intercept = bool(pairs) and len(pairs[0][0]) > self.cells
        if with_intercept:
            self.size = max(self.size, ell)
        used = [(s, y) for s, y in pairs if _counts(s, y)]
        if used:
            length = len(used[0][0])
        else:
            length = 0
        self.changes: FloatArray = np.zeros((0, length))
        self.signs: FloatArray = np.zeros(0)
        for s, y in used:
            Bs = self.product(s)
            lowered = Bs / np.sqrt(s @ Bs)
            raised = y / np.sqrt(s @ y)
            self.changes = np.vstack([self.changes, lowered, raised])
            self.signs = np.append(self.signs, [-1.0, 1.0])
        if used:
            x: FloatArray = np.random.default_rng(0).standard_normal(length)
            for _ in range(POWER):
                x = self.product(x / np.linalg.norm(x))
            self.size = 1.1 * max(self.size, float(np.linalg.norm(x)))

    def product(self, z: FloatArray) -> FloatArray:
        """B z."""
        result = self.ell * z
        S = z[: self.cells].reshape(-1, self.columns)
        result[: self.cells] = (self.M @ S).ravel()
        if len(self.signs):
            along = self.signs * (self.changes @ z)
            result += along @ self.changes
        return result


def _counts(s: FloatArray, y: FloatArray) -> bool:
    """Whether the curvature along a step is more than rounding."""
    lengths = np.sqrt((s @ s) * (y @ y))
    return bool(s @ y > FLAT * lengths)


def best_in_ball(
    gradient: FloatArray,
    M: FloatArray,
    S0: FloatArray,
    mu: float,
    steps: int = 500,
    tolerance: float = 1e-5,
) -> FloatArray:
    """argmin over ‖S‖_* ≤ μ of ⟨G, S − S₀⟩ + ½⟨S − S₀, M (S − S₀)⟩, from S₀."""
    quadratic = Quadratic(M, S0.shape[1])
    best = least(gradient.ravel(), quadratic, S0.ravel(), mu, steps, tolerance)
    return best.reshape(S0.shape)


def least(
    g: FloatArray,
    B: Quadratic,
    z0: FloatArray,
    mu: float,
    steps: int = 500,
    tolerance: float = 1e-5,
) -> FloatArray:
    """The best (S, β), from z₀: by conjugate gradients if it is inside the ball, else by
    accelerated projected gradients.

    Ends when the Frank-Wolfe gap of this small problem is at most `tolerance` times its first
    value.
    """
    L = B.size
    cells = B.cells
    if not L > 0:
        return z0
    free = z0 + _without_ball(g, B)
    free_matrix = free[:cells].reshape(-1, B.columns)
    if np.linalg.norm(free_matrix, "nuc") <= mu:
        return free

    def gap(at: FloatArray, z: FloatArray) -> tuple[float, float]:
        """⟨G, S⟩ + μ‖G‖₂ plus the gap in β, and the size of these terms."""
        G = at[:cells].reshape(-1, B.columns)
        along = float(at[:cells] @ z[:cells])
        size = mu * float(np.linalg.norm(G, 2))
        rest = float(at[cells:] @ at[cells:]) / B.ell
        return along + size + rest, abs(along) + size

    z = ahead = z0
    theta = 1.0
    first, terms = gap(g, z0)
    goal = max(tolerance * first, 1e-14 * terms)
    for step in range(steps):
        gradient = g + B.product(ahead - z0)
        new = ahead - gradient / L
        stepped = new[:cells].reshape(-1, B.columns)
        new[:cells] = _onto_ball(stepped, mu).ravel()
        way = new - ahead
        if way @ B.product(way) > L * (way @ way):
            L *= 2.0  # power iterations bound the norm of B from below
            continue
        if way @ (new - z) < 0 and theta > 1.0:
            theta = 1.0
            ahead = z  # the momentum points uphill: restart
            continue
        grown = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * theta * theta))
        ahead = new + ((theta - 1.0) / grown) * (new - z)
        z = new
        theta = grown
        if step % 8 == 0:
            present_gap, _ = gap(g + B.product(z - z0), z)
            if present_gap <= goal:
                break
    return z


def _without_ball(g: FloatArray, B: Quadratic) -> FloatArray:
    """−B⁻¹g by conjugate gradients: B has few different eigenvalues, so few products are enough."""
    x = np.zeros_like(g)
    left = -g
    p = left
    size = float(left @ left)
    goal = CLOSE * CLOSE * size
    for _ in range(2 * (len(B.M) + len(B.signs) + 1)):
        Bp = B.product(p)
        along = float(p @ Bp)
        if not along > 0 or size <= goal:
            break
        step = size / along
        x = x + step * p
        left = left - step * Bp
        before = size
        size = float(left @ left)
        p = left + (size / before) * p
    return x


def _onto_ball(S: FloatArray, mu: float) -> FloatArray:
    left, values, right = np.linalg.svd(S, full_matrices=False)
    if values.sum() <= mu:
        return S
    shrunk = onto_l1_ball(values, mu)
    projected: FloatArray = (left * shrunk) @ right
    return projected


def grown_pairs(
    pairs: FloatArray, old: tuple[int, int], new: tuple[int, int], M: FloatArray
) -> FloatArray:
    """Pairs on larger spaces: steps are 0 in the new directions, where M gives the change of the
    gradient.
    """
    old_rows, old_columns = old
    old_cells = old_rows * old_columns
    new_cells = new[0] * new[1]
    others = pairs.shape[2] - old_cells
    out = np.zeros((len(pairs), 2, new_cells + others))
    for before, after in zip(pairs, out, strict=True):
        for one, two in zip(before, after, strict=True):
            grown = two[:new_cells].reshape(new)
            grown[:old_rows, :old_columns] = one[:old_cells].reshape(old)
            two[new_cells:] = one[old_cells:]
        S = after[0, :new_cells].reshape(new)
        change = after[1, :new_cells].reshape(new)
        change[old_rows:] = M[old_rows:] @ S
    return out


def turned(pairs: FloatArray, shape: tuple[int, int], P: FloatArray, Q: FloatArray) -> FloatArray:
    """Pairs in the coordinates of P and Q; none if P or Q omits a direction."""
    rows, columns = shape
    cells = rows * columns
    others = pairs.shape[2] - cells
    if P.shape[1] < rows or Q.shape[1] < columns:
        return np.zeros((0, 2, P.shape[1] * Q.shape[1] + others))
    count = len(pairs)
    matrices = pairs[:, :, :cells].reshape(count, 2, *shape)
    turned = (P.T @ matrices @ Q).reshape(count, 2, cells)
    return np.concatenate([turned, pairs[:, :, cells:]], axis=2)
