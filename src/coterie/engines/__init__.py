"""Engines: who runs an agent where. One file each, found by name."""

from __future__ import annotations

from coterie.catalogue import Catalogue
from coterie.engines.engine import Engine

__all__ = ["ENGINES", "Engine", "engine"]

ENGINES: Catalogue[Engine] = Catalogue("engines", Engine, "engine")


def engine(name: str | Engine) -> Engine:
    """The engine of that name; an `Engine` is returned as it is."""
    return name if isinstance(name, Engine) else ENGINES[name]()
