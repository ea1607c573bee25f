"""Several parties on one machine: a real process for each, with real TLS between them."""

from __future__ import annotations

import contextlib
import json
import math
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from coterie.run.statuses import Status
from coterie.study.meeting import MET
from coterie.study.study import load_party

Say = Callable[[str, str], None]
LAST_WORDS = 3.0
"""Seconds for the others to end by themselves after one could not begin."""


def rehearse(
    files: Sequence[Path],
    command: str,
    say: Say,
    without: Sequence[str] = (),
    options: Sequence[str] = (),
) -> tuple[dict[str, dict[str, Any]], str | None]:
    """Start `coterie COMMAND FILE OPTIONS` for each file except those of parties that are left out,
    and wait for all.

    Returns the JSON that each party printed, with its `exit_code`, by party; and the party that
    failed first, if one did.
    """
    # The owner of the files of all parties here has agreed for all of them.
    words = ["--json", "--yes"]
    for name in without:
        words += ["--without", name]
    words += options
    loaded = [load_party(file) for file in files]
    running: list[_Process] = []
    deadline = 0.0
    try:
        for file, (own, study) in zip(files, loaded, strict=True):
            if own.party not in without:
                running.append(_Process(own.party, [command, str(file), *words], say))
                deadline = max(deadline, study.deadline)
        first = _wait_for_all(running, 2 * deadline)
        return _results(running, first), None if first is None else first.party
    finally:
        for process in running:
            process.end()


def _results(processes: list[_Process], first: _Process | None) -> dict[str, dict[str, Any]]:
    """The result of each process; of one that was stopped, that the first one failed."""
    found = {}
    for process in processes:
        if process.stopped and first is not None:
            found[process.party] = _in_vain(first.party, first.result())
        else:
            found[process.party] = process.result()
    return found


def _wait_for_all(processes: list[_Process], grace: float) -> _Process | None:
    """Wait until all have ended; return the first that failed.

    The others receive a failure from the failed party, and end by themselves within the grace. A
    party that failed before it connected can send nothing: those that would wait for it, with all
    their patience, are stopped.
    """
    first, until = None, math.inf
    while any(process.child.poll() is None for process in processes) and time.monotonic() < until:
        if first is None and (first := next((one for one in processes if one.child.poll()), None)):
            until = time.monotonic() + (grace if first.met.is_set() else LAST_WORDS)
        time.sleep(0.02)
    for process in processes:
        process.end()
    return first or next((one for one in processes if one.child.poll()), None)


def _in_vain(party: str, end: dict[str, Any]) -> dict[str, Any]:
    """How the rehearsal ended for who waited for a party that could not begin."""
    reason = end.get("error", f"exit code {end['exit_code']}")
    status = Status.PARTY_LOST
    told = {"error": f"{party} did not connect: {reason}", "lost_party": party}
    return {**told, "name": str(status), "exit_code": status.exit_code}


class _Process:
    """A party's agent, and its output as it comes."""

    def __init__(self, party: str, words: Sequence[str], say: Say):
        self.party, self._say, self.stopped = party, say, False
        self.met = threading.Event()
        command = [sys.executable, "-m", "coterie", *words]
        self.child = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._printed: list[str] = []
        assert self.child.stdout is not None
        assert self.child.stderr is not None
        self._readers = [
            threading.Thread(target=self._read, args=(self.child.stderr, None), daemon=True),
            threading.Thread(
                target=self._read, args=(self.child.stdout, self._printed), daemon=True
            ),
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
        """Stop it, if it still runs."""
        if self.child.poll() is None:
            self.stopped = True
            self.child.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.child.wait(LAST_WORDS)
            self.child.kill()
            self._wait()
