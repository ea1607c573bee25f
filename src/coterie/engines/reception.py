"""A door at the process that started a run, where its processes hand in what they have come to: for Spark's tasks.

Both ends belong to one owner, and who does not know the key is not let in: what comes in is unpickled.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Iterator
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from typing import TypeAlias

from coterie.engines.processes import OutcomeStore
from coterie.rounds import Keep, Outcome, Watch

Door: TypeAlias = tuple[tuple[str, int], bytes]
"""Its address and its key."""
QUEUE = 128
"""How many processes may knock at the same time, at least."""


@contextlib.contextmanager
def reception(store: OutcomeStore, watch: Watch, pressed: threading.Event, host: str) -> Iterator[Door]:
    """Take what processes hand in, until the end; they are told whether to stop."""
    key = secrets.token_bytes(32)
    # A process that finds the queue full would wait for ever: there is room for all.
    listener = Listener((host, 0), backlog=max(QUEUE, store.spec.processes), authkey=key)
    chief, over = store.spec.process_of[0], threading.Event()

    def hear(connection: Connection) -> None:
        with contextlib.suppress(EOFError, OSError), connection:
            while True:
                process, outcome = connection.recv()
                store.keep(process, outcome)
                if process == chief and watch(outcome.history[-1].round, outcome.history[-1]) is True:
                    pressed.set()
                connection.send(pressed.is_set())

    def welcome() -> None:
        while not over.is_set():
            # Who leaves again, or does not know the key, is no reason to close the door.
            with contextlib.suppress(OSError, EOFError, AuthenticationError):
                threading.Thread(target=hear, args=(listener.accept(),), daemon=True).start()

    porter = threading.Thread(target=welcome, daemon=True)
    porter.start()
    try:
        yield listener.address, key
    finally:
        over.set()
        # A last visitor wakes the porter up: closing alone would leave it waiting.
        with contextlib.suppress(OSError, EOFError, AuthenticationError):
            Client(listener.address, authkey=key).close()
        porter.join(1.0)
        listener.close()


@contextlib.contextmanager
def at_reception(door: Door, process: int, stop: threading.Event) -> Iterator[Keep]:
    """How a process hands in what it has come to; nothing is kept where the door cannot be reached from here."""
    address, key = door
    try:
        connection = Client(address, authkey=key)
    except OSError:
        yield lambda outcome: None
        return
    with connection:

        def keep(outcome: Outcome) -> None:
            connection.send((process, outcome))
            if connection.recv():
                stop.set()

        yield keep
