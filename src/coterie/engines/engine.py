"""What every engine can do: take agents and a method, and bring back an outcome."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from coterie.agent import Agent
from coterie.certificate import Point
from coterie.checkpoint import Checkpoint
from coterie.networks import Network
from coterie.rounds import Limits, Outcome, Watch
from coterie.steps import Steps

__all__ = ["Engine"]


class Engine(ABC):
    """Places agents somewhere and runs the rounds there."""

    name: ClassVar[str]
    summary: ClassVar[str]
    """One line for tables and `--help`."""

    @abstractmethod
    def run(
        self,
        agents: Sequence[Agent],
        steps: Steps,
        network: Network,
        limits: Limits,
        checkpoint: Checkpoint | None,
        warm: Sequence[Point] | None,
        watch: Watch,
    ) -> Outcome:
        """Run until a limit is reached."""

    @classmethod
    def missing(cls) -> str | None:
        """What has to be installed before this engine works, or None."""
        return None
