"""What organisations send, recorded where it leaves them: messages by their labels, and the counts
of every conversation.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from contextlib import contextmanager
from dataclasses import dataclass
from unittest import mock

import numpy as np

from coterie.study import session
from coterie.transport.driver import Driver
from coterie.transport.grpc_mesh import GrpcMesh
from coterie.transport.mpi_collectives import MpiCollectives
from coterie.transport.point_to_point import PointToPoint

BESIDE_SUMS = ("study", "engine")
"""The purposes of messages that are not part of a collective."""


@dataclass(frozen=True)
class Message:
    """One party's part of one sum, before masks."""

    party: str
    operation: str
    numbers: np.ndarray
    purpose: str = ""


@dataclass(frozen=True)
class Conversation:
    """What one party sent in one conversation."""

    party: str
    operation: str
    purpose: str
    sent: dict
    """By the name of the declared protocol: collectives, and numbers in them."""


def bytes_of(message):
    """The whole numbers of a message as bytes, six each: text that was packed into numbers."""
    numbers = np.ravel(message)
    whole = numbers[(numbers == np.round(numbers)) & (numbers >= 0) & (numbers < 256**6)]
    return b"".join(int(number).to_bytes(6, "big") for number in whole)


@contextmanager
def payloads():
    """Count the single messages between the processes of runs, and the bytes of their arrays: by
    the collective, [messages, messages with an array that is not empty, bytes].
    """
    counts, lock = defaultdict(lambda: [0, 0, 0]), threading.Lock()

    def counting(send):
        def counted(collectives, process, message, tag):
            with lock:
                own = counts[tag.collective]
                own[:] = own[0] + 1, own[1] + (message.nbytes > 0), own[2] + message.nbytes
            send(collectives, process, message, tag)

        return counted

    with (
        mock.patch.object(PointToPoint, "send", counting(PointToPoint.send)),
        mock.patch.object(MpiCollectives, "send", counting(MpiCollectives.send)),
    ):
        yield counts


class Wire:
    """Records the messages of all parties, while `recorded` lasts."""

    def __init__(self):
        self.lock = threading.Lock()
        self.labels = defaultdict(Counter)
        """By operation: how many messages with each label left a party, besides collectives."""
        self.tags = []
        self.conversations = []
        self.messages = []
        """The parts of sums, in the order in which parties sent them."""

    @contextmanager
    def recorded(self):
        """Record what parties of this process send."""
        with (
            mock.patch.object(session, "Driver", self.driver()),
            mock.patch.object(GrpcMesh, "send", self.sender()),
        ):
            yield self

    def sender(self):
        wire, send = self, GrpcMesh.send

        def recorded(mesh, to, message, tag):
            send(mesh, to, message, tag)
            operation = mesh.agreement.rpartition("purpose = ")[2]
            with wire.lock:
                wire.tags.append(tag)
                if tag.purpose in BESIDE_SUMS or tag.collective in ("wake-up", "stretch"):
                    wire.labels[operation][tag.collective] += 1

        return recorded

    def driver(self):
        wire = self

        class Recording(Driver):
            purpose = ""

            def _fits(self, messages):
                super()._fits(messages)
                party = self.names[self.local[0]]
                numbers = np.array(messages[0]).ravel()
                with wire.lock:
                    wire.messages.append(
                        Message(party, self.guard.operation, numbers, self.purpose)
                    )

            def converse(self, protocols, purpose):
                guard, self.purpose = self.guard, purpose
                sent, numbers = Counter(guard.sent), Counter(guard.numbers)
                found = super().converse(protocols, purpose)
                new = {
                    name: (many, guard.numbers[name] - numbers[name])
                    for name, many in (guard.sent - sent).items()
                }
                with wire.lock:
                    wire.conversations.append(
                        Conversation(self.names[self.local[0]], guard.operation, purpose, new)
                    )
                return found

        return Recording
