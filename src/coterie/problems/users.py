"""The problem with a model for every user that given parameters mean."""

from __future__ import annotations

from typing import Any

from coterie.problems.personal.problem import Personal
from coterie.problems.shared.problem import Shared

OF_SHARED = {"loss", "penalty", "strength", "nu", "intercept"}
"""Parameters that only `Shared` has."""


def problem_of_users(**parameters: Any) -> Personal | Shared:
    """`Shared`, a common model and deviations, if a loss, a penalty or ν is given; else
    `Personal`.
    """
    if parameters.keys() & OF_SHARED:
        return Shared(**parameters)
    return Personal(**parameters)
