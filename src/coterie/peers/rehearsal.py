"""Several parties on one machine: a real process for each, with real TLS between them, and failures if wanted."""

from __future__ import annotations

import json
import math
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from coterie.peers.agent import MET
from coterie.peers.chaos import Chaos
from coterie.peers.study import load_party

__all__ = ["rehearse"]

Say = Callable[[str, str], None]
LONGEST_LIFE = 2.0
"""Seconds between the moment when all have met and the death of one of them, where chaos kills."""


def rehearse(files: Sequence[Path], chaos: Chaos | None, arguments: Sequence[str], say: Say) -> dict[str, Any]:
    """Start one agent per file, and wait for all; what each printed as JSON, by party, with its `exit_code`."""
    loaded = {file: load_party(file) for file in files}
    parties = {own.party: file for file, (own, _) in loaded.items()}
    deadline = max(study.deadline for _, study in loaded.values())
    running = {party: _Process(party, file, chaos, arguments, say) for party, file in parties.items()}
    try:
        if chaos is not None and chaos.kill:
            _kill_some(running, chaos, say)
        _wait_for_all(list(running.values()), 2 * deadline)
        return {party: process.result() for party, process in running.items()}
    finally:
        for process in running.values():
            process.end()


def _wait_for_all(processes: list[_Process], grace: float) -> None:
    """Until all have ended; after one has failed, the others have a grace, and no longer wait for it to come."""
    until = math.inf
    while any(process.child.poll() is None for process in processes) and time.monotonic() < until:
        if until == math.inf and any(process.child.poll() for process in processes):
            until = time.monotonic() + grace
        time.sleep(0.02)
    for process in processes:
        process.end()


def _kill_some(running: dict[str, _Process], chaos: Chaos, say: Say) -> None:
    dice = random.Random(chaos.seed)
    for _ in range(chaos.kill):
        victim, life = running[dice.choice(sorted(running))], dice.uniform(0, LONGEST_LIFE)
        while not all(process.met.wait(0.05) for process in running.values()):
            if any(process.child.poll() is not None for process in running.values()):
                return
        time.sleep(life)
        if any(process.child.poll() is not None for process in running.values()):
            return
        say(victim.party, "is killed, and started again")
        victim.again()


class _Process:
    """A party's agent, and its output as it comes."""

    def __init__(self, party: str, file: Path, chaos: Chaos | None, arguments: Sequence[str], say: Say):
        self.party, self._say = party, say
        shaken = ["--chaos", str(chaos)] if chaos is not None else []
        self._command = [sys.executable, "-m", "coterie", "agent", str(file), "--json", *shaken, *arguments]
        self._start()

    def _start(self) -> None:
        self.met = threading.Event()
        self.child = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._printed: list[str] = []
        assert self.child.stdout is not None
        assert self.child.stderr is not None
        self._readers = [
            threading.Thread(target=self._read, args=(self.child.stderr, None), daemon=True),
            threading.Thread(target=self._read, args=(self.child.stdout, self._printed), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, pipe: IO[str], kept: list[str] | None) -> None:
        with pipe:
            for line in pipe:
                if kept is None:
                    if MET in line:
                        self.met.set()
                    self._say(self.party, line.rstrip())
                else:
                    kept.append(line)

    def again(self) -> None:
        self.child.kill()
        self._wait()
        self._start()

    def _wait(self) -> int:
        code = self.child.wait()
        for reader in self._readers:
            reader.join()
        return code

    def result(self) -> dict[str, Any]:
        code = self._wait()
        try:
            return {**json.loads("".join(self._printed)), "exit_code": code}
        except ValueError:
            return {"exit_code": code}

    def end(self) -> None:
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
            self._wait()
