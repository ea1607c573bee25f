"""Acceleration: wrappers around any method, because every method is a map State → State."""

from __future__ import annotations

from typing import Any

from coterie.acceleration.anderson import Anderson
from coterie.acceleration.relaxation import Relaxation
from coterie.errors import InvalidProblem, UnknownName
from coterie.steps import Steps

__all__ = ["ACCELERATIONS", "Anderson", "Relaxation", "accelerated"]

ACCELERATIONS = ("anderson", "auto", "none", "relaxation")


def accelerated(steps: Steps, name: str, suggestion: str, **parameters: Any) -> Steps:
    """`steps` with the acceleration of that name; "auto" takes the method's own suggestion."""
    if name not in ACCELERATIONS:
        raise UnknownName("acceleration", name, ACCELERATIONS)
    chosen = suggestion if name == "auto" else name
    if chosen == "none":
        return steps
    if not steps.can_be_accelerated:
        raise InvalidProblem(f"this method cannot be accelerated by {chosen!r}; use acceleration='auto' or 'none'.")
    return Anderson(steps, **parameters) if chosen == "anderson" else Relaxation(steps, **parameters)
