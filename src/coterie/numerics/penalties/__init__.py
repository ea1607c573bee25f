"""Penalties: one file each.

    from coterie.numerics.penalties import penalty
    penalty("elasticnet", strength=0.1, l1_ratio=0.5)

A new file is found by its `name`.
"""

from __future__ import annotations

from typing import Any

from coterie.catalogue import Catalogue
from coterie.numerics.penalties.penalty import Penalty, Step

__all__ = ["PENALTIES", "Penalty", "Step", "penalty"]

PENALTIES: Catalogue[Penalty] = Catalogue("coterie.numerics.penalties", Penalty, "penalty")


def penalty(name: str | Penalty, **parameters: Any) -> Penalty:
    """Return the penalty of that name with these parameters; a `Penalty` is returned unchanged."""
    if isinstance(name, Penalty):
        return name
    return PENALTIES[name](**parameters)
