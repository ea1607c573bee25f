"""Choose the problem with one model per user that fits the given parameters."""

from __future__ import annotations

import inspect
from typing import Any

from coterie.errors import InvalidProblem, did_you_mean
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
    known = sorted(inspect.signature(Personal).parameters)
    unknown = [name for name in parameters if name not in known]
    if unknown:
        message = (
            f"a problem with one model per user does not take {', '.join(unknown)}; it takes "
            f"{', '.join(known)}. {did_you_mean(unknown[0], known)}"
        )
        raise InvalidProblem(message.rstrip())
    return Personal(**parameters)
