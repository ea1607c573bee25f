"""The small problem of a subspace: the best matrix of a trace-norm ball, and numbers without one,
for a quadratic.

    min over ‖S‖_* ≤ μ and β of ⟨g, z − z₀⟩ + ½⟨z − z₀, B(z − z₀)⟩,     z = (S, β) as one vector

B is κM on the columns of S and ℓ on β, changed by what steps have shown, so that every B s = y of
the last ones holds
(BFGS):  B ← B − (Bs)(Bs)ᵀ/sᵀBs + yyᵀ/sᵀy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coterie.numerics.arrays import FloatArray
from coterie.numerics.penalties.l1ball import onto_l1_ball

FLAT = 1e-10
"""A pair counts if sᵀy is more than this share of ‖s‖‖y‖: less is rounding."""
CLOSE = 1e-6
"""Without a ball, the model's slope falls to this share."""
POWER = 12
"""Power iterations that say how large B is."""


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
        self.size = max(
            float(np.linalg.norm(M, 2)), ell if pairs and len(pairs[0][0]) > self.cells else 0.0
        )
        used = [(s, y) for s, y in pairs if s @ y > FLAT * np.sqrt((s @ s) * (y @ y))]
        self.changes: FloatArray = np.zeros((0, len(used[0][0]) if used else 0))
        self.signs: FloatArray = np.zeros(0)
        for s, y in used:
            Bs = self.bend(s)
            new = [Bs / np.sqrt(s @ Bs), y / np.sqrt(s @ y)]
            self.changes = np.vstack([self.changes, *new])
            self.signs = np.append(self.signs, [-1.0, 1.0])
        if used:
            x: FloatArray = np.random.default_rng(0).standard_normal(len(used[0][0]))
            for _ in range(POWER):
                x = self.bend(x / np.linalg.norm(x))
            self.size = 1.1 * max(self.size, float(np.linalg.norm(x)))

    def bend(self, z: FloatArray) -> FloatArray:
        """B z."""
        hessian_product = self.ell * z
        hessian_product[: self.cells] = (self.M @ z[: self.cells].reshape(-1, self.columns)).ravel()
        if len(self.signs):
            hessian_product += (self.signs * (self.changes @ z)) @ self.changes
        return hessian_product


def best_in_ball(
    slope: FloatArray,
    M: FloatArray,
    S0: FloatArray,
    mu: float,
    steps: int = 500,
    tolerance: float = 1e-5,
) -> FloatArray:
    """argmin over ‖S‖_* ≤ μ of ⟨G, S − S₀⟩ + ½⟨S − S₀, M (S − S₀)⟩, from S₀."""
    best = least(slope.ravel(), Quadratic(M, S0.shape[1]), S0.ravel(), mu, steps, tolerance)
    return best.reshape(S0.shape)


def least(
    g: FloatArray,
    B: Quadratic,
    z0: FloatArray,
    mu: float,
    steps: int = 500,
    tolerance: float = 1e-5,
) -> FloatArray:
    """The best (S, β), from z₀: inside the ball by conjugate gradients, else by accelerated
    projected gradients.

    Ends when the Frank-Wolfe gap of this small problem is `tolerance` of what it was.
    """
    L = B.size
    cells = B.cells
    if not L > 0:
        return z0
    free = z0 + _without_ball(g, B)
    if np.linalg.norm(free[:cells].reshape(-1, B.columns), "nuc") <= mu:
        return free

    def gap(at: FloatArray, z: FloatArray) -> tuple[float, float]:
        """⟨G, S⟩ + μ‖G‖₂ and what a step loses on β; and how large these terms are."""
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
        gradient = g + B.bend(ahead - z0)
        new = ahead - gradient / L
        new[:cells] = _onto_ball(new[:cells].reshape(-1, B.columns), mu).ravel()
        way = new - ahead
        if way @ B.bend(way) > L * (way @ way):
            L *= 2.0  # power iterations bound the size of B from below
            continue
        if way @ (new - z) < 0 and theta > 1.0:
            theta = 1.0
            ahead = z  # the momentum points uphill: start again
            continue
        grown = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * theta * theta))
        ahead = new + ((theta - 1.0) / grown) * (new - z)
        z = new
        theta = grown
        if step % 8 == 0 and gap(g + B.bend(z - z0), z)[0] <= goal:
            break
    return z


def _without_ball(g: FloatArray, B: Quadratic) -> FloatArray:
    """−B⁻¹g: B has few different eigenvalues, so that few products are enough."""
    x = np.zeros_like(g)
    left = -g
    p = left
    size = float(left @ left)
    goal = CLOSE * CLOSE * size
    for _ in range(2 * (len(B.M) + len(B.signs) + 1)):
        Bp = B.bend(p)
        along = float(p @ Bp)
        if not along > 0 or size <= goal:
            break
        x = x + (size / along) * p
        left = left - (size / along) * Bp
        before = size
        size = float(left @ left)
        p = left + (size / before) * p
    return x


def _onto_ball(S: FloatArray, mu: float) -> FloatArray:
    left, values, right = np.linalg.svd(S, full_matrices=False)
    if values.sum() <= mu:
        return S
    projected: FloatArray = (left * onto_l1_ball(values, mu)) @ right
    return projected


def grown_pairs(
    pairs: FloatArray, old: tuple[int, int], new: tuple[int, int], M: FloatArray
) -> FloatArray:
    """Pairs on larger spaces, where the steps did not go; the slope changed there as M says."""
    cells = old[0] * old[1]
    out = np.zeros((len(pairs), 2, new[0] * new[1] + pairs.shape[2] - cells))
    for before, after in zip(pairs, out, strict=True):
        for one, two in zip(before, after, strict=True):
            two[: new[0] * new[1]].reshape(new)[: old[0], : old[1]] = one[:cells].reshape(old)
            two[new[0] * new[1] :] = one[cells:]
        S = after[0, : new[0] * new[1]].reshape(new)
        after[1, : new[0] * new[1]].reshape(new)[old[0] :] = M[old[0] :] @ S
    return out


def turned(pairs: FloatArray, shape: tuple[int, int], P: FloatArray, Q: FloatArray) -> FloatArray:
    """Pairs in the coordinates of P and Q; none where these leave something out."""
    cells = shape[0] * shape[1]
    m = pairs.shape[2] - cells
    if P.shape[1] < shape[0] or Q.shape[1] < shape[1]:
        return np.zeros((0, 2, P.shape[1] * Q.shape[1] + m))
    turned = (P.T @ pairs[:, :, :cells].reshape(len(pairs), 2, *shape) @ Q).reshape(
        len(pairs), 2, cells
    )
    return np.concatenate([turned, pairs[:, :, cells:]], axis=2)
