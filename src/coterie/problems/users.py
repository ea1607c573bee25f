"""Which of the problems with a model for every user is meant."""

from __future__ import annotations

from typing import Any

from coterie.problems.personal.problem import Personal
from coterie.problems.shared.problem import Shared


def problem_of_users(**parameters: Any) -> Personal | Shared:
    """The problem that these names mean: whoever names a loss, a penalty or ν means a common model
    and deviations.
    """
    return (
        Shared
        if parameters.keys() & {"loss", "penalty", "strength", "nu", "intercept"}
        else Personal
    )(**parameters)
