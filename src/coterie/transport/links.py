"""Point-to-point links between the processes of a run. The driver needs nothing else of a network.

Processes are numbered from 0. If each agent has its own process, each process has its agent's
number. Messages between two processes arrive in the order in which they were sent, each exactly
once. Each message carries a `Tag` with its purpose, and the receiver states the tag that it
expects. Two processes at different steps therefore get an error that names them.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import msgspec

from coterie.numerics.arrays import FloatArray


class Tag(msgspec.Struct, frozen=True, gc=False):
    """Identifies a message: its purpose on the bill, its step number in the protocol, and the
    collective.
    """

    purpose: str
    step: int
    collective: str

    def __str__(self) -> str:
        return f"{self.collective} (step {self.step}, {self.purpose})"


class Stop(NamedTuple):
    """The round after which the run ends, and the reason: 1, time is up; 2, Ctrl-C or a callback;
    0, no stop.
    """

    at: int = 0
    reason: int = 0


class Links(Protocol):
    """The links of one process to the processes with which it exchanges messages."""

    stop: Stop
    """The sender puts it in the header of every message. If it has no reason, `receive` adopts the
    stop of the message received.
    """

    def send(self, to: int, message: FloatArray, tag: Tag) -> None:
        """Send a message. It returns before the message arrives, and the caller may change the
        array afterwards.
        """
        ...

    def receive(self, source: int, tag: Tag) -> FloatArray:
        """Wait for the next message of that process. The message is read-only.

        Raises `PartyLost`, naming the process, if the process sends nothing for longer than the
        deadline. Raises `ProtocolError`, naming both tags, if the message has another tag.
        """
        ...

    def publish(self, agent: int, message: FloatArray) -> None:
        """Store a message of one of this process's agents so that other processes can `ask` for
        it.
        """
        ...

    def poll(self, source: int, tag: Tag) -> FloatArray | None:
        """Return the next message of that process if it has arrived, otherwise None. It is like
        `receive`, but does not wait.
        """
        ...

    def ask(self, process: int, agent: int, patience: float | None = None) -> FloatArray | None:
        """Return the latest publication of that agent of that process; None if it has published
        nothing yet.

        The other process answers in the background. Its agent may be busy or done, as long as the
        process runs. With `patience`, the call returns None after that number of seconds. It then
        also returns None at once if the connection is broken.
        """
        ...

    def close(self) -> None:
        """Leave the run. Messages already sent still arrive, then the connections end."""
        ...
