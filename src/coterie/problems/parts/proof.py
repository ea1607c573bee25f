"""`kind.proof`: the first sums of a run, and the certificate of a point."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic

from coterie.numerics.arrays import FloatArray
from coterie.problems.problem import K
from coterie.run.agent import Agent, SummaryStatistics
from coterie.run.certificate.bound import ANY, Bound, Point
from coterie.run.collectives import Protocol
from coterie.run.disclosure import Protocols


class Proof(ABC, Generic[K]):
    """Introduces agents to each other and certifies points."""

    @property
    def introduces(self) -> Protocols:
        """The protocols of `introduce` that send something: each carries `@discloses`."""
        return ()

    @property
    def proves(self) -> Protocols:
        """The protocols of `certify` that send something: each carries `@discloses`."""
        return ()

    @abstractmethod
    def introduce(self, agent: Agent[K]) -> Protocol[SummaryStatistics]:
        """Compute the summary statistics: the number of rows, and the scale of the data."""

    @abstractmethod
    def certify(
        self, agent: Agent[K], point: Point, target: float = 0.0, radius: float | None = ANY
    ) -> Protocol[Bound]:
        """Compute the objective at that point, and a bound of its distance from the minimum."""

    def dual_at(self, agent: Agent[K], w: FloatArray) -> FloatArray | None:
        """The dual variables that a model implies where none are given; None where a proof needs
        none.
        """
        return None
