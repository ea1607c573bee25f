"""Point-to-point links between the processes of a run: all that the driver needs of a network.

Processes are numbered from 0; if each agent has its own process, they have the agents' numbers.
Messages between two processes arrive in the order in which they were sent, each exactly once. Each
carries a `Tag` that says what it is for, and the receiver states the tag that it expects. Two
processes at different steps therefore get an error with names.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import msgspec

from coterie.numerics.arrays import FloatArray


class Tag(msgspec.Struct, frozen=True, gc=False):
    """What a message is for: the purpose on the bill, the step of the conversation counted from 0,
    and the word.
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
    """A process's links to the processes it talks to."""

    stop: Stop
    """Goes out in the header of every message; where it says nothing, `receive` takes over that of
    the message.
    """

    def send(self, to: int, message: FloatArray, tag: Tag) -> None:
        """Post a message; returns before it has arrived, and the caller may change the array
        afterwards.
        """
        ...

    def receive(self, source: int, tag: Tag) -> FloatArray:
        """The next message of that process, read-only; waits for it.

        Raises `PartyLost`, naming the process, if it falls silent for longer than the deadline, and
        `ProtocolError`, naming both tags, if its message is for something else.
        """
        ...

    def publish(self, agent: int, message: FloatArray) -> None:
        """Put a message of one of this process's agents where others can `ask` for it."""
        ...

    def poll(self, source: int, tag: Tag) -> FloatArray | None:
        """The next message of that process, if it has arrived; like `receive`, but does not
        wait.
        """
        ...

    def ask(self, process: int, agent: int, patience: float | None = None) -> FloatArray | None:
        """What that agent, who lives in that process, last published; None if nothing yet.

        It is answered in the background: the agent may be busy, or done, as long as its process
        lives. With `patience`, it waits no longer than so many seconds, and not at all where the
        connection is broken: None then, too.
        """
        ...

    def close(self) -> None:
        """Leave: messages that were sent still arrive, then the connections end."""
        ...
