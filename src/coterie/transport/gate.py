"""Limits on connections from unknown callers, so that a run keeps its file descriptors and its
neighbours.

gRPC accepts every TCP connection. A connection counts as unknown until a neighbour with a valid
certificate uses it. The gate closes unknown connections after `PATIENCE` seconds. It also closes
the oldest of them if one address has more than `PER_ADDRESS`, or if there are more than `IN_ALL`. A
genuine neighbour needs milliseconds to show its certificate. gRPC itself accepts at most `MOST`
connections, and ends handshakes after `PATIENCE`.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections import Counter
from pathlib import Path
from urllib.parse import unquote

PATIENCE = 5.0
"""Seconds within which a caller must show its certificate and make its request."""
PER_ADDRESS, IN_ALL, MOST = 32, 128, 512
SWEEP_SECONDS = 0.25

Caller = tuple[str, int]
"""Host and port of the other end."""


class Gate:
    """The connections to one port of this process."""

    def __init__(self, port: int):
        self.port = port
        self.shut: Counter[str] = Counter()
        """Number of connections closed, by address."""
        self._known: set[Caller] = set()
        self._since: dict[Caller, float] = {}

    def know(self, peer: str) -> None:
        """Mark a connection as a neighbour's. `peer` is gRPC's name for the other end."""
        host, _, port = unquote(peer).rpartition(":")
        self._known.add((host.partition(":")[2].strip("[]"), int(port) if port.isdigit() else 0))

    def watch(self, closing: threading.Event) -> None:
        """Close unknown connections repeatedly, until `closing` is set."""
        while not closing.wait(SWEEP_SECONDS):
            with contextlib.suppress(
                OSError
            ):  # without a free descriptor, the next sweep tries again
                self.sweep()

    def sweep(self) -> None:
        """Close unknown connections that are too many or too slow."""
        found = self._connections()
        try:
            now = time.monotonic()
            self._known &= found.keys()
            self._since = {
                caller: self._since.get(caller, now)
                for caller in found
                if caller not in self._known
            }
            # The oldest are last in the list. They had the most time.
            strangers = sorted(self._since, key=self._since.__getitem__, reverse=True)
            count: Counter[str] = Counter()
            for place, caller in enumerate(strangers):
                count[caller[0]] += 1
                if (
                    place >= IN_ALL
                    or count[caller[0]] > PER_ADDRESS
                    or now - self._since[caller] > PATIENCE
                ):
                    self.shut[caller[0]] += 1
                    with contextlib.suppress(OSError):
                        found[caller].shutdown(socket.SHUT_RDWR)
        finally:
            for connection in found.values():
                connection.close()

    def _connections(self) -> dict[Caller, socket.socket]:
        """Return every connection to the port, each with a file descriptor of its own. gRPC keeps
        and closes its own descriptors.
        """
        found: dict[Caller, socket.socket] = {}
        for entry in Path("/proc/self/fd").iterdir() if Path("/proc/self/fd").exists() else ():
            with contextlib.suppress(OSError):
                if not str(entry.readlink()).startswith("socket:"):
                    continue
                connection = socket.socket(fileno=os.dup(int(entry.name)))
                caller = _other_end(connection, self.port)
                if caller is None or caller in found:
                    connection.close()
                else:
                    found[caller] = connection
        return found


def _other_end(connection: socket.socket, port: int) -> Caller | None:
    """Return the address of the other end, if this is a connection to that port."""
    try:
        if (
            connection.family not in (socket.AF_INET, socket.AF_INET6)
            or connection.getsockname()[1] != port
        ):
            return None
        host, number = connection.getpeername()[:2]
    except OSError:
        return None
    return host.removeprefix("::ffff:"), number
