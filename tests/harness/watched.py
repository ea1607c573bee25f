"""Dada whose wake-ups are written down, for tests in other processes: they find this module by its
name.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from coterie.problems.personal.methods.dada import Dada


@dataclass(frozen=True)
class Watched(Dada):
    """Writes down when each agent's steps began and ended; one waits for the others, one falls
    over.
    """

    name = "watched"
    log: str = ""
    slow: int = -1
    """Its steps last until each of the first `others` agents woke up three times more, or for `nap`
    seconds.
    """
    others: int = 0
    nap: float = 2.0
    doomed: int = -1
    """Falls over at its tenth step after the first certificate."""

    def round(self, agent, state, t):
        began = time.monotonic()
        if agent.index == self.slow:
            self._wait(began + self.nap)
        if agent.index == self.doomed and "certified" in agent.scratch:
            agent.scratch["certified"] += 1
            if agent.scratch["certified"] == 10:
                os.kill(os.getpid(), signal.SIGKILL)
        state = yield from super().round(agent, state, t)
        with (Path(self.log) / str(agent.index)).open("a") as file:
            file.write(f"{began} {time.monotonic()}\n")
        return state

    def _wait(self, until):
        goal = [3 + self._steps(k) for k in range(self.others)]
        while time.monotonic() < until and any(
            self._steps(k) < goal[k] for k in range(self.others)
        ):
            time.sleep(0.01)

    def _steps(self, agent):
        file = Path(self.log) / str(agent)
        return len(file.read_text().splitlines()) if file.exists() else 0

    def point(self, agent, state):
        agent.scratch["certified"] = 0
        return super().point(agent, state)
