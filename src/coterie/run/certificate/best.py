"""Keep the best certificates of a run: the certified pair, and the lowest primal and the highest
dual on their own.

A lower primal is a better model, and a higher dual a better proof, whichever rounds they come from.
Duals are compared only if they make the same claim, about all models. A run returns a pair that was
certified together.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from coterie.numerics.arrays import FloatArray
from coterie.problems.problem import AnyProblem
from coterie.run.agent import Agent, AgentForm
from coterie.run.certificate.bound import Bound, Point


@dataclass
class Best:
    """The best certificates of a run."""

    bound: Bound | None = None
    points: list[Point] = field(default_factory=list)
    """The certified pair."""
    primal: float = float("inf")
    lowest: list[Point] = field(default_factory=list)
    """The points with the lowest primal among those with a claim about all models."""
    dual: float = float("-inf")
    highest: list[Point] = field(default_factory=list)
    """The points with the highest dual, where `dual` is without its rounding error."""

    def add(self, bound: Bound, points: list[Point], *, settled: bool = True) -> None:
        """Add a certificate. A certificate of a problem that still changes replaces all before
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
        numbers: dict[str, Any] = {"bound": []}
        if self.bound is not None:
            numbers["bound"] = list(vars(self.bound).values())
        if self.lowest and self.highest:
            numbers |= {"primal": self.primal, "dual": self.dual}
        return numbers, {"best": self.points, "lowest": self.lowest, "highest": self.highest}

    @staticmethod
    def restored(numbers: dict[str, Any], points: dict[str, list[Point]]) -> Best:
        """The inverse of `state`."""
        best = Best(None, points["best"])
        if numbers["bound"]:
            best.bound = Bound(*numbers["bound"])
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
    # A model that beats another by more than the other's gap lies outside of the norm bound of that
    # claim.
    worse = old if new.primal < old.primal else new
    if abs(new.primal - old.primal) > worse.gap:
        return new.primal < old.primal
    return new.gap <= old.gap


def is_as_people_know_it(agent: AgentForm[AnyProblem], point: Point) -> bool:
    """Whether `as_people_know_it` leaves the point as it is; this needs no data."""
    return agent.raised(point.w) is point.w and not agent.problem.kind.models.has_own_number(agent)


def as_people_know_it(agent: Agent[AnyProblem], point: Point) -> Point:
    """A point of a run with the intercept for labels as they were given, and with its `own_number`.

    Rounding that intercept changes the gradients: a dual that is not written down would not be the
    certified one.
    """
    w, models = agent.raised(point.w), agent.problem.kind.models
    if w is not point.w:
        point = replace(point, w=w, v=_dual(agent, point))
    if not models.has_own_number(agent):
        return point
    return replace(point, own=models.own_number(agent, w))


def with_dual(agent: Agent[AnyProblem], point: Point) -> Point:
    """A point with a dual, wherever it comes from."""
    return replace(point, v=_dual(agent, point))


def paired(agent: Agent[AnyProblem], low: Point, high: Point) -> Point:
    """The model of one point with the dual of another, to be certified together."""
    return Point(low.w, _dual(agent, high), low.kept)


def _dual(agent: Agent[AnyProblem], point: Point) -> FloatArray | None:
    """The dual of a point; the gradients at its model if it has no dual."""
    if point.v is not None:
        return point.v
    found: FloatArray | None = agent.problem.kind.proof.dual_at(agent, point.w)
    return found
