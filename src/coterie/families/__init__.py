"""Families: kinds of problems, one file each. All that depends on the kind, and is no method, is asked for here.

A new file is found by the `name` of its class. Its proofs are the module of the same name in `certificate`, its model
class is the one of that `kind` in `models`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from coterie.agent import Agent
from coterie.arrays import FloatArray
from coterie.catalogue import Catalogue
from coterie.certificate import Point
from coterie.families.family import SHOWN, Classes, Family, Shown
from coterie.problem import Problem

__all__ = ["FAMILIES", "SHOWN", "Classes", "Family", "Shown", "family_of", "points_of"]

FAMILIES: Catalogue[Family] = Catalogue("coterie.families", Family, "family of problems")


@cache
def _family(name: str) -> Family:
    return FAMILIES[name]()


def family_of(problem: Problem) -> Family:
    """What the problem's kind has of its own."""
    return _family(problem.family)


def points_of(model: Any, members: Sequence[Agent], witness: Sequence[FloatArray] | None = None) -> list[Point]:
    """What each agent would put on the table for that model and those dual vectors, which must be of these parties."""
    return family_of(members[0].problem).points(model, members, witness)
