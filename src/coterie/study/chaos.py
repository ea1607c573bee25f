"""A rehearsal of failures: messages that are late or lost, connections that break, parties that are killed.

    delay=0.05,drop=0.02,disconnect=0.01,kill=2

`delay` is the longest delay in seconds, `drop` and `disconnect` are chances for each message, `kill` is how often a
party is killed and started again while the run lasts (by `coterie agent` with several files). None of it may change a
bit of the result.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, fields
from typing import Any

from coterie.errors import InvalidInput, UnknownName
from coterie.numerics.arrays import FloatArray
from coterie.transport.grpc_mesh import GrpcMesh
from coterie.transport.links import Tag


@dataclass(frozen=True)
class Chaos:
    """How bad it gets."""

    delay: float = 0.0
    drop: float = 0.0
    disconnect: float = 0.0
    kill: int = 0
    seed: int = 0

    @staticmethod
    def parse(text: str) -> Chaos:
        """From `name=value,...`; "on" is a little of everything but killing."""
        if text == "on":
            return Chaos(delay=0.01, drop=0.02, disconnect=0.02)
        known = {field.name for field in fields(Chaos)}
        given: dict[str, Any] = {}
        for pair in text.split(","):
            name, _, value = pair.partition("=")
            if name not in known:
                raise UnknownName("kind of chaos", name, known)
            try:
                given[name] = int(value) if name in ("kill", "seed") else float(value)
            except ValueError:
                raise InvalidInput(f"chaos: {pair!r} is not of the form name=number.") from None
        made = Chaos(**given)
        if not (0 <= made.drop < 1 and 0 <= made.disconnect < 1 and made.delay >= 0 and made.kill >= 0):
            raise InvalidInput(f"chaos: {text!r}: chances are from 0 to below 1, delay and kill not negative.")
        return made

    def streams(self, me: int, *given: Any, **more: Any) -> GrpcMesh:
        """Links that suffer from it."""
        return _Shaken(self, me, *given, **more)

    def __str__(self) -> str:
        return ",".join(f"{field.name}={getattr(self, field.name)}" for field in fields(self))


class _Shaken(GrpcMesh):
    def __init__(self, chaos: Chaos, me: int, *given: Any, **more: Any):
        super().__init__(me, *given, **more)
        self._chaos, self._dice = chaos, random.Random(chaos.seed * 1009 + me)

    def send(self, to: int, message: FloatArray, tag: Tag) -> None:
        """Send, unless chaos has other plans for this message; the reader will get it all the same."""
        chaos, dice = self._chaos, self._dice
        if chaos.delay:
            time.sleep(dice.random() * chaos.delay)
        self._edge(to).lose_next = dice.random() < chaos.drop
        super().send(to, message, tag)
        if dice.random() < chaos.disconnect:
            self.drop(to)
