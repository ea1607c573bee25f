"""Connect the driver of a run to its workers, for the tasks of Spark.

Workers connect to the process that started the run. Until the driver closes the connections, the
workers answer questions, take part in runs, and keep the data that they have read.

| driver sends        | worker sends                                          |
|---------------------|-------------------------------------------------------|
|                     | hello, once                                           |
| ask: questions      | answers                                               |
| run: specifications | address, kept, end or error: see `supervisor`         |
| meet: all addresses |                                                       |
| stop, leave         |                                                       |

Driver and workers belong to one owner. A process without the key cannot connect. Each message is
signed with the key.
"""

from __future__ import annotations

import contextlib
import os
import queue
import secrets
import socket
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from typing import Any, Literal, TypeVar

from coterie.data.remote_table import keeping
from coterie.engines.processes import ProcessSpec, RunSpec
from coterie.engines.sealed import order, pack, seal, unpack
from coterie.engines.supervisor import Event, report
from coterie.errors import CoterieError, InvalidInput

T = TypeVar("T")
News = Literal["hello", "answers", "gone", "address", "kept", "end", "error"]
"""Kinds of messages of a worker, and "gone" for a worker that was lost."""
Why = Callable[[int, Exception | None], Exception]
"""Function that makes the error for a lost worker. Its arguments are the number of the worker (−1
for all workers) and the cause, if it is known.
"""

QUEUE = 128
"""Least number of workers that can connect at the same time."""
PATIENCE = 60.0
"""Seconds that workers wait for the others to start."""


@dataclass(frozen=True)
class DriverAddress:
    """Address and key of the driver."""

    address: tuple[str, int]
    key: bytes = field(repr=False)


class WorkerConnections:
    """The driver's side of the connections to the workers of one job, see `Processes`."""

    def __init__(self, workers: int, host: str, dumps: Callable[[Any], bytes], why: Why):
        key = secrets.token_bytes(32)
        # The queue has space for all workers, because a worker would wait forever at a full queue.
        self._listener = Listener((host, 0), backlog=max(QUEUE, workers), authkey=key)
        address: Any = self._listener.address
        self.driver = DriverAddress(address, key)
        self.workers = workers
        self._dumps = dumps
        self._why = why
        self._over = threading.Event()
        self._chief = 0
        self._lines: dict[int, Connection] = {}
        self._seen: set[int] = set()
        self._left: set[int] = set()
        self._news: queue.SimpleQueue[tuple[int, News, Any]] = queue.SimpleQueue()
        self._acceptor = threading.Thread(
            target=self._accept, name="worker-connections", daemon=True
        )
        self._acceptor.start()

    def close(self) -> None:
        """Tell all workers to leave, and close the listener."""
        self._over.set()
        for process in self._lines:
            self._send(process, "leave")
        # A last connection ends the waiting thread: it would wait on after the listener is closed.
        with contextlib.suppress(OSError, EOFError, AuthenticationError):
            Client(self.driver.address, authkey=self.driver.key).close()
        self._acceptor.join(1.0)
        self._listener.close()

    @property
    def whole(self) -> bool:
        """Whether all workers that connected are still connected."""
        return not self._left

    def fail(self, error: Exception) -> None:
        """End all waiting with this error: no worker will connect or answer after it."""
        self._left.add(-1)
        self._news.put((-1, "gone", error))

    def gather(self) -> None:
        """Wait until all workers are connected.

        Raises an error if no worker connects for PATIENCE seconds after another one.
        """
        while len(self._lines) < self.workers:
            try:
                process, kind, thing = self._news.get(timeout=PATIENCE if self._lines else None)
            except queue.Empty:
                local = len(self._lines)
                raise InvalidInput(
                    f"{local} of {self.workers} tasks started within {PATIENCE:g} s, the others "
                    "wait for a free slot. "
                    f"Wait until other jobs are done, give workers={local}, or add executors."
                ) from None
            if kind != "hello":
                raise self._why(process, thing)
            self._lines[process] = thing

    def ask(self, questions: Mapping[int, Sequence[Callable[[], Any]]]) -> dict[int, list[Any]]:
        """Ask each worker its questions, and return the answers by worker."""
        for process, own in questions.items():
            self._send(process, "ask", own)
        answers: dict[int, list[Any]] = {}
        while len(answers) < len(questions):
            process, kind, thing = self._news.get()
            if kind == "gone":
                raise self._why(process, thing)
            if kind == "answers":
                answers[process] = thing
        return answers

    def begin(self, spec: RunSpec, specs: Sequence[ProcessSpec], **how: Any) -> None:
        """Begin a run; `listen` yields its events."""
        self._chief = spec.process_of[0]
        for own in specs:
            self._send(own.process, "run", (spec, own, how))

    def listen(self, running: Collection[int], seconds: float) -> Iterator[Event]:
        """See `Processes`."""
        with contextlib.suppress(queue.Empty):
            process, kind, thing = (
                self._news.get(timeout=seconds) if seconds else self._news.get_nowait()
            )
            while True:
                if kind == "gone" and (process in running or process < 0):
                    yield max(process, 0), "lost", self._why(process, thing)
                elif kind in ("address", "kept", "end", "error"):
                    yield process, kind, thing
                process, kind, thing = self._news.get_nowait()

    def introduce(self, addresses: Sequence[str]) -> None:
        """See `Processes`."""
        for process in range(len(addresses)):
            self._send(process, "meet", addresses)

    def stop(self) -> None:
        """See `Processes`."""
        self._send(self._chief, "stop")

    def _send(self, process: int, kind: str, thing: Any = None) -> None:
        # `_read` reports a worker that is gone.
        with contextlib.suppress(OSError):
            self._lines[process].send_bytes(seal(self._dumps((kind, thing)), self.driver.key))

    def _accept(self) -> None:
        while not self._over.is_set():
            # Accept further connections after one that ends early or has a wrong key.
            with contextlib.suppress(OSError, EOFError, AuthenticationError):
                threading.Thread(
                    target=self._read, args=(self._listener.accept(),), daemon=True
                ).start()

    def _read(self, line: Connection) -> None:
        process = -1
        error = None
        try:
            with line:
                while True:
                    kind, thing = unpack(line.recv_bytes(), self.driver.key)
                    if kind == "hello" and thing in self._seen:
                        # Spark started a second attempt of a task. If this attempt ended at once,
                        # Spark would end the first one.
                        self._over.wait()
                        return
                    if kind == "hello":
                        process = thing
                        self._seen.add(process)
                    self._news.put((process, kind, line if kind == "hello" else thing))
        except (EOFError, OSError):
            pass
        except CoterieError as refused:
            error = refused
        if process >= 0 and not self._over.is_set():
            self._left.add(process)
            self._news.put((process, "gone", error))


def serve(driver: DriverAddress, process: int) -> None:
    """Run a worker: answer questions and take part in runs until the driver disconnects."""
    try:
        line = Client(driver.address, authkey=driver.key)
    except OSError as error:
        host, port = driver.address
        raise InvalidInput(
            f"the driver cannot be reached at {host}:{port}. Set spark.driver.host to an address "
            "that executors see."
        ) from error
    orders: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
    addresses: queue.SimpleQueue[Sequence[str]] = queue.SimpleQueue()
    stop = threading.Event()
    sending = threading.Lock()

    def send(kind: str, thing: Any) -> None:
        with sending:
            line.send_bytes(pack((kind, thing), driver.key))

    def read_orders() -> None:
        last: tuple[str, Any] = ("leave", None)
        try:
            while True:
                kind, thing = order(line.recv_bytes(), driver.key)
                if kind == "leave":
                    break
                if kind == "stop":
                    stop.set()
                elif kind == "meet":
                    addresses.put(thing)
                else:
                    orders.put((kind, thing))
        except (EOFError, OSError):
            pass
        except (
            Exception
        ) as error:  # this worker cannot read the order: it may need a missing module
            last = "refused", error
        stop.set()
        addresses.put(())
        orders.put(last)

    # Other workers can reach this machine at the address that the driver's machine uses.
    with socket.socket(fileno=os.dup(line.fileno())) as seen:
        host = seen.getsockname()[0]
    with line, keeping():
        send("hello", process)
        threading.Thread(target=read_orders, daemon=True).start()
        while (received := orders.get())[0] != "leave":
            kind, thing = received
            if kind == "refused":
                raise thing
            if kind == "ask":
                send("answers", [answered(question) for question in thing])
                continue
            stop.clear()
            spec, own, how = thing
            report(send, addresses.get, spec, own, stop_wished=stop.is_set, host=host, **how)


def answered(question: Callable[[], T]) -> T | CoterieError:
    """Return the answer to a question, or the error that it raised."""
    try:
        return question()
    except CoterieError as error:
        return error
