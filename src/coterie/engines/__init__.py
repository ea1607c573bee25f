"""Engines: each runs agents in its own kind of process. One file each, found by name."""

from __future__ import annotations

import math
from copy import copy
from dataclasses import replace
from typing import Any, cast

from coterie.catalogue import Catalogue
from coterie.engines.engine import Engine, Run
from coterie.errors import InvalidInput
from coterie.numerics.arrays import whole_number

__all__ = ["ENGINES", "Engine", "Run", "engine"]

ENGINES: Catalogue[Engine] = Catalogue("coterie.engines", Engine, "engine")


def engine(name: str | Engine, deadline: float | None = None, threads: int | None = None) -> Engine:
    """The engine of that name, or that `Engine`; `deadline`: seconds without a message before a
    party counts as lost.

    `threads`: how many the engine may use in this process, if it runs agents here.
    """
    chosen: Any = name if isinstance(name, Engine) else ENGINES[name]()
    if threads is not None:
        threads = whole_number("threads", threads)
        if not hasattr(chosen, "threads"):
            raise InvalidInput(
                f"engine {chosen.name!r} takes no threads: they are for engine 'local'. Leave "
                "them out."
            )
        chosen = copy(chosen)
        chosen.threads = threads
    if deadline is None:
        return cast(Engine, chosen)
    if not hasattr(chosen, "deadline"):
        raise InvalidInput(f"engine {chosen.name!r} takes no deadline.")
    if not 0 < deadline < math.inf:
        raise InvalidInput(f"the deadline is a number of seconds above 0, not {deadline:g}.")
    return cast(Engine, replace(chosen, deadline=deadline))
