"""The best that a run has seen: the pair that is certified, and the lowest primal and the highest
dual on their own.

A lower primal is a better model, and a higher dual a better proof, whichever rounds they come from.
Duals are compared only where they make the same claim, about all models; what a run hands over is a
pair that was certified together.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from coterie.numerics.arrays import FloatArray
from coterie.run.agent import Agent
from coterie.run.certificate.bound import Bound, Point


@dataclass
class Best:
    """What to keep of the certificates of a run."""

    bound: Bound | None = None
    points: list[Point] = field(default_factory=list)
    """The certified pair."""
    primal: float = float("inf")
    lowest: list[Point] = field(default_factory=list)
    """The points with the lowest primal of those with a claim about all models, and that primal."""
    dual: float = float("-inf")
    highest: list[Point] = field(default_factory=list)
    """The points with the highest dual, and that dual, without what rounding takes off it."""

    def add(self, bound: Bound, points: list[Point], *, settled: bool = True) -> None:
        """Look at one more certificate; one of a problem that still changes replaces all before
        it.
        """
        if self.bound is None or not settled or _better(bound, self.bound):
            self.bound, self.points = bound, points
        if bound.radius is None and bound.primal < self.primal:
            self.primal, self.lowest = bound.primal, points
        height = bound.primal - bound.gap
        if bound.radius is None and height > self.dual:
            self.dual, self.highest = height, points

    @property
    def promise(self) -> float:
        """The gap of the lowest primal and the highest dual, up to rounding."""
        return self.primal - self.dual

    def state(self) -> tuple[dict[str, Any], dict[str, list[Point]]]:
        """Numbers and points by name, as a snapshot keeps them."""
        numbers: dict[str, Any] = {"bound": list(vars(self.bound).values()) if self.bound else []}
        if self.lowest and self.highest:
            numbers |= {"primal": self.primal, "dual": self.dual}
        return numbers, {"best": self.points, "lowest": self.lowest, "highest": self.highest}

    @staticmethod
    def restored(numbers: dict[str, Any], points: dict[str, list[Point]]) -> Best:
        """What `state` described."""
        bound = Bound(*numbers["bound"]) if numbers["bound"] else None
        best = Best(bound, points["best"])
        if "primal" in numbers:
            best.primal, best.lowest = numbers["primal"], points["lowest"]
            best.dual, best.highest = numbers["dual"], points["highest"]
        return best


def _better(new: Bound, old: Bound) -> bool:
    """Whether a claim replaces another; one about models of bounded norm is smaller than one about
    all of them.
    """
    if new.radius is None and old.radius is None:
        return new.gap <= old.gap
    if new.radius is None or old.radius is None:
        return new.primal <= old.primal or (new.radius is None and new.gap <= old.gap)
    # A model that beats another by more than its gap lies outside of the norm which that claim was
    # about.
    if abs(new.primal - old.primal) > (old.gap if new.primal < old.primal else new.gap):
        return new.primal < old.primal
    return new.gap <= old.gap


def is_as_people_know_it(agent: Agent[Any], point: Point) -> bool:
    """Whether `as_people_know_it` leaves the point as it is; this needs no data."""
    return agent.raised(point.w) is point.w and not agent.problem.kind.models.has_own_number(agent)


def as_people_know_it(agent: Agent[Any], point: Point) -> Point:
    """A point of a run with the intercept for labels as they were given, and with its `own_number`.

    Rounding that intercept moves the slopes: a dual that is not written down would not be the one
    that was certified.
    """
    w, models = agent.raised(point.w), agent.problem.kind.models
    if w is not point.w:
        point = replace(point, w=w, v=_dual(agent, point))
    if not models.has_own_number(agent):
        return point
    return replace(point, own=models.own_number(agent, w))


def with_dual(agent: Agent, point: Point) -> Point:
    """A point with a dual, wherever it comes from."""
    return replace(point, v=_dual(agent, point))


def paired(agent: Agent, low: Point, high: Point) -> Point:
    """The model of one point with the dual of another, to be certified together."""
    return Point(low.w, _dual(agent, high), low.kept)


def _dual(agent: Agent, point: Point) -> FloatArray | None:
    """The dual of a point; the slopes at its model where it has none of its own."""
    if point.v is not None:
        return point.v
    found: FloatArray | None = agent.problem.kind.proof.dual_at(agent, point.w)
    return found
