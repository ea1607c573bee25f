"""Links that fail: messages are late or lost, connections break. None of it may change a bit of a
result.
"""

from __future__ import annotations

import random
import time
from functools import partial

from coterie.transport.frames import Kind
from coterie.transport.grpc_mesh import GrpcMesh


def disconnect(mesh, neighbour):
    """Cut the connection to a neighbour, as a network might; it heals by itself."""
    mesh._edges[neighbour].detach()


class Shaken(GrpcMesh):
    """Links whose messages are up to `delay` seconds late; `drop` and `disconnect` are chances for
    each message.
    """

    def __init__(self, me, *given, delay=0.0, drop=0.0, disconnect=0.0, **more):
        super().__init__(me, *given, **more)
        self.delay, self.chance_of_loss, self.chance_of_a_cut = delay, drop, disconnect
        self.dice = random.Random(1009 + me)
        self.lost = self.cut = 0
        for edge in self._edges.values():
            edge.post = partial(self._post, edge, edge.post)

    def send(self, to, message, tag):
        time.sleep(self.dice.random() * self.delay)
        super().send(to, message, tag)
        if self.dice.random() < self.chance_of_a_cut:
            self.cut += 1
            disconnect(self, to)

    def _post(self, edge, post, kind, *message, **more):
        """Post a message that never reaches the wire, or one that does."""
        with edge._lock:
            line = edge._line
            if kind is Kind.MESSAGE and self.dice.random() < self.chance_of_loss:
                self.lost += line is not None
                edge._line = None
            post(kind, *message, **more)
            edge._line = line


def shaken(made, **how):
    """Links for `together(links=...)` that are shaken so; `made` gets those of each party."""

    def links(*given, **more):
        made.append(Shaken(*given, **how, **more))
        return made[-1]

    return links
