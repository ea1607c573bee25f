"""Families: kinds of problems, one file each. All that depends on the kind, and is no method, is asked for here.

The proofs of each family are in `certificate`, its model class is in `models`; the names are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coterie.agent import Agent
from coterie.arrays import FloatArray
from coterie.certificate import Point
from coterie.families.family import Classes, Family
from coterie.families.linear import LinearFamily
from coterie.families.low_rank import LowRankFamily
from coterie.families.multiclass import MulticlassFamily
from coterie.families.personal import PersonalFamily
from coterie.problem import Problem

__all__ = ["FAMILIES", "Classes", "Family", "family_of", "points_of"]

FAMILIES: dict[str, Family] = {
    family.name: family for family in (LinearFamily(), LowRankFamily(), MulticlassFamily(), PersonalFamily())
}


def family_of(problem: Problem) -> Family:
    """What the problem's kind has of its own."""
    return FAMILIES[problem.family]


def points_of(model: Any, members: Sequence[Agent], witness: Sequence[FloatArray] | None = None) -> list[Point]:
    """What each agent would put on the table for that model and those dual vectors, which must be of these parties."""
    return family_of(members[0].problem).points(model, members, witness)
