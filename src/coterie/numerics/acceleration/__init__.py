"""Acceleration: wrappers around any method, because every method is a map State → State."""

from __future__ import annotations

from collections.abc import Callable

from coterie.errors import InvalidProblem, UnknownName
from coterie.numerics.acceleration.anderson import Anderson
from coterie.numerics.acceleration.halpern import Halpern
from coterie.numerics.acceleration.relaxation import Relaxation
from coterie.run.steps import Steps

__all__ = ["ACCELERATIONS", "ADVANCES", "Anderson", "Halpern", "Relaxation", "accelerated"]

WRAPPERS: dict[str, Callable[[Steps], Steps]] = {
    "anderson": Anderson,
    "halpern": Halpern,
    "relaxation": Relaxation,
}
ADVANCES = (Anderson.advance, Halpern.advance, Relaxation.advance)
"""The protocols of accelerations."""
ACCELERATIONS = tuple(sorted(["auto", "none", *WRAPPERS]))


def accelerated(steps: Steps, name: str, suggestion: Steps) -> Steps:
    """Return `steps` with the acceleration of that name; "auto" takes the method's suggestion."""
    if name not in ACCELERATIONS:
        raise UnknownName("acceleration", name, ACCELERATIONS)
    if name == "auto" or name == type(suggestion).__name__.lower():
        return suggestion
    if name == "none":
        return steps
    if not steps.can_be_accelerated:
        raise InvalidProblem(
            f"this method cannot be accelerated by {name!r}; use acceleration='auto' or 'none'."
        )
    return WRAPPERS[name](steps)
