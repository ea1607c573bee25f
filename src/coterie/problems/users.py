"""Choose the problem with one model per user that fits the given parameters."""

from __future__ import annotations

from typing import Any

from coterie.problems.personal.problem import Personal
from coterie.problems.shared.problem import Shared

OF_SHARED = {"loss", "penalty", "strength", "nu", "intercept"}
"""Parameters that only `Shared` has."""


def problem_of_users(**parameters: Any) -> Personal | Shared:
    """Return `Shared` (a common model and deviations) if a parameter in `OF_SHARED` is given, else
    `Personal`.
    """
    if parameters.keys() & OF_SHARED:
        return Shared(**parameters)
    return Personal(**parameters)
