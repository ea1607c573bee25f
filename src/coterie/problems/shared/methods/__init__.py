"""Methods for a common model with deviations of every user: L-BFGS and Newton's method."""

from __future__ import annotations

from coterie.problems.shared.methods.newton import SharedNewton
from coterie.problems.shared.methods.shared import SharedQuasiNewton

__all__ = ["SharedNewton", "SharedQuasiNewton"]
