"""Limits on connections from strangers, so that a run keeps its file descriptors and its
neighbours.

gRPC takes every TCP connection in. A connection is a stranger's until a neighbour with a valid
certificate calls on it. Strangers are shut out after `PATIENCE` seconds, and the oldest of them as
soon as one address has more than `PER_ADDRESS` or there are more than `IN_ALL`: a genuine neighbour
takes milliseconds to show its certificate. gRPC itself takes no more than `MOST` connections, and
ends handshakes after `PATIENCE`.
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
"""Seconds to show a certificate, and to say what one wants."""
PER_ADDRESS, IN_ALL, MOST = 32, 128, 512
SWEEP_SECONDS = 0.25

Caller = tuple[str, int]
"""Host and port of the other end."""


class Gate:
    """The connections to one port of this process."""

    def __init__(self, port: int):
        self.port = port
        self.shut: Counter[str] = Counter()
        """How many were shut out, by address."""
        self._known: set[Caller] = set()
        self._since: dict[Caller, float] = {}

    def know(self, peer: str) -> None:
        """A neighbour calls from there: gRPC's name of the other end."""
        host, _, port = unquote(peer).rpartition(":")
        self._known.add((host.partition(":")[2].strip("[]"), int(port) if port.isdigit() else 0))

    def watch(self, closing: threading.Event) -> None:
        """Shut strangers out until the end."""
        while not closing.wait(SWEEP_SECONDS):
            with contextlib.suppress(OSError):  # without a free descriptor, the next time
                self.sweep()

    def sweep(self) -> None:
        """Shut strangers out that are too many or too slow."""
        found = self._connections()
        try:
            now = time.monotonic()
            self._known &= found.keys()
            self._since = {
                caller: self._since.get(caller, now)
                for caller in found
                if caller not in self._known
            }
            # The oldest are the last: they had the most time.
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
        """Every connection to the port, each by a descriptor of its own: gRPC keeps and closes its
        own.
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
    """The address of the other end, if this is a connection to that port."""
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
