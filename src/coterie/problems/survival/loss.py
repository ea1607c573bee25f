"""Cox's partial likelihood, by name. Its formulas are in `likelihood.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from coterie.errors import InvalidProblem
from coterie.numerics.losses import Fit


@dataclass(frozen=True)
class Cox(Fit):
    """Proportional hazards: a loss of all rows of a stratum together."""

    agent_strata: bool = False
    """Whether data in one piece may be split over several agents; each agent is then a stratum."""

    name: ClassVar[str] = "cox"
    kind: ClassVar[str] = "survival"
    dispersion: ClassVar[bool | None] = False

    def __post_init__(self) -> None:
        if not isinstance(self.agent_strata, bool):
            raise InvalidProblem(f"agent_strata is True or False, not {self.agent_strata!r}.")

    def settings(self) -> dict[str, Any]:
        """The name, and whether agents are strata."""
        settings: dict[str, Any] = {"name": self.name}
        if self.agent_strata:
            settings["agent_strata"] = True
        return settings
