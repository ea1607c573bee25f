"""Dada whose wake-ups are written down, for tests in other processes: they find this module by its name."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from coterie.methods.dada import Dada


@dataclass(frozen=True)
class Watched(Dada):
    """Writes down when each agent's steps began and ended; one is slow, one falls over."""

    name = "watched"
    log: str = ""
    slow: int = -1
    nap: float = 0.1
    doomed: int = -1
    """Falls over at its tenth step after the first certificate."""

    def round(self, agent, state, t):
        began = time.monotonic()
        if agent.index == self.slow:
            time.sleep(self.nap)
        if agent.index == self.doomed and "certified" in agent.scratch:
            agent.scratch["certified"] += 1
            if agent.scratch["certified"] == 10:
                os.kill(os.getpid(), signal.SIGKILL)
        state = yield from super().round(agent, state, t)
        with (Path(self.log) / str(agent.index)).open("a") as file:
            file.write(f"{began} {time.monotonic()}\n")
        return state

    def point(self, agent, state):
        agent.scratch["certified"] = 0
        return super().point(agent, state)
