"""One round of `graph-cp` on arrays of a number per row, in one pass over each array.

The table of `methods/columns/graph_cp.py` explains the symbols.
"""

from __future__ import annotations

from typing import Any

from coterie.numerics.kernels.compiled import compiled


@compiled
def blend(out: Any, a: float, x: Any, b: float, y: Any, c: float, z: Any) -> None:
    """out = a x + b y + c z in one pass, also in the memory of x, y or z."""
    # numpy would need five passes and two temporary arrays. At 16384 × 2048 that takes a visible
    # share of the time of the matrix products.
    for i in range(out.size):
        out[i] = a * x[i] + b * y[i] + c * z[i]


@compiled
def advance(
    u_next: Any,
    lam_next: Any,
    u: Any,
    mixed: Any,
    lam: Any,
    u_0: Any,
    lam_0: Any,
    b: float,
    s: float,
    new: float,
    old: float,
) -> None:
    """Finish a round at an agent without labels in one pass. At the start u_next has 2X(θ⁺ − θ)."""
    for i in range(u.size):
        ahead = u_next[i] + u[i] + b * mixed[i]
        lam_next[i] = new * lam[i] + 2.0 * new * s * ahead + old * lam_0[i]
        u_next[i] = new * ahead + old * u_0[i]


@compiled
def moved(lam_after: Any, lam: Any, u_ahead: Any, u: Any) -> tuple[float, float]:
    """Return ‖λ⁺ − λ‖² and ⟨λ⁺ − λ, ũ − u⟩, without an array for the differences."""
    square = 0.0
    product = 0.0
    for i in range(lam.size):
        change = lam_after[i] - lam[i]
        square += change * change
        product += change * (u_ahead[i] - u[i])
    return square, product
