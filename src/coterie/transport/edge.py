"""One edge of a mesh: unconfirmed messages, received messages, and the current connection.

The sender numbers its messages and keeps each one until the receiver has confirmed it. The receiver
takes each message exactly once. A connection may therefore break and begin again at any time. A
connection consists of a queue of outgoing frames and an iterator of incoming frames.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from coterie.errors import PartyLost, ProtocolError
from coterie.numerics.arrays import FloatArray
from coterie.run.statuses import Status
from coterie.transport import farewell
from coterie.transport.frames import Header, Kind, decode, encode
from coterie.transport.links import Stop, Tag
from coterie.transport.security import MutualTLS, TrustedCluster

ACKNOWLEDGE_BYTES = 2**20
WINDOW = 64 * 2**20
"""Bytes of messages that may wait to be read or confirmed, on each side of an edge. A single
message may be larger.
"""
OVERHEAD = 256
"""Number of bytes of a message in addition to its numbers."""
ROOM_SECONDS = 0.05
SETTLE_SECONDS = 5.0
"""Seconds that a neighbour has to confirm the reason why this process leaves, but at most the
deadline.
"""

Line: TypeAlias = "SimpleQueue[bytes | None]"
"""Queue of frames to send through a connection; None ends it."""


class Mesh:
    """State that all edges of one process share."""

    security: TrustedCluster | MutualTLS

    def __init__(
        self,
        me: int,
        run_id: str,
        deadline: float,
        patience: float | None,
        largest: int,
        names: Sequence[str] | None,
    ):
        self.me = me
        self.run_id = run_id
        self.deadline = float(deadline)
        self.largest = largest
        self.patience = self.deadline if patience is None else float(patience)
        self.epoch = 0
        self.stop = Stop()
        self.published: dict[int, npt.NDArray[Any]] = {}
        self.rejected: Counter[str] = Counter()
        """Number of refused frames and connections, by reason."""
        self.connections: Counter[int] = Counter()
        """Number of connections with each neighbour since the process started."""
        self._names = names
        self.strangers: dict[int, ProtocolError] = {}
        """Neighbours that showed a wrong key. All parties end with this error when they introduce
        themselves.
        """
        self.introduced = False
        self.meeting = b""
        """A digest of the introductions of all parties, which signed reasons name."""

    @property
    def names(self) -> Sequence[str]:
        """The names of all processes, if they have some."""
        return self._names or ()

    def check_key(self, security: MutualTLS, neighbour: int, certificate: bytes) -> None:
        """Refuse a neighbour whose key differs from the key in the study. Before the introduction
        of all parties, record the error for that introduction.
        """
        from coterie.transport.keys import check_pin

        try:
            check_pin(security, certificate, self.name(neighbour))
        except ProtocolError as error:
            self.rejected["wrong key"] += 1
            if self.introduced:
                raise
            self.strangers[neighbour] = error

    def name(self, process: int) -> str:
        """Return the name of that process."""
        if self._names:
            return self._names[process]
        return f"agent {process}"


class Edge:
    """One neighbour: messages that it has not confirmed, messages from it, and the current
    connection.
    """

    def __init__(self, mesh: Mesh, neighbour: int):
        self.mesh = mesh
        self.neighbour = neighbour
        self.last_received = time.monotonic()
        self.trouble = ""
        self._lock = threading.RLock()
        self._greeted = threading.Event()
        self._line: Line | None = None
        self._cut: Callable[[], object] = lambda: None
        self.incarnation = ""
        self.outdated: set[str] = set()
        """Incarnations of this party's earlier processes."""
        self._latest = ""
        self._hellos = 0
        self._room = threading.Condition()
        self.forget()

    def forget(self) -> None:
        """Return to the state before the first message."""
        with self._lock:
            self.detach()
            self.received = 0
            self._sent = 0
            self._unacknowledged = 0
            self._kept: list[tuple[int, bytes]] = []
            self._kept_bytes = 0
            self._unread = 0
            self._full = False
            self._inbox: SimpleQueue[tuple[Tag, Any, Stop] | Exception] = SimpleQueue()
            self._answers: SimpleQueue[Any] = SimpleQueue()
            self._failure: Exception | None = None
            self._questions, self._answered = 0, 0
            self.left = False
            self.incarnation = ""
            self._greeted.clear()

    @property
    def linked(self) -> bool:
        return self._line is not None

    @property
    def silence(self) -> float:
        """Seconds since the last message or heartbeat; 0 while this process does not read from the
        neighbour.
        """
        if self._full:
            return 0.0
        return time.monotonic() - self.last_received

    # -- sending -----------------------------------------------------------------------------------

    def post(self, kind: Kind, payload: npt.NDArray[Any], tag: Tag, note: str = "") -> None:
        with self._lock:
            self._sent += 1
            frame = self._frame(kind, self._sent, payload, tag, note)
            self._kept.append((self._sent, frame))
            self._kept_bytes += len(frame)
            self._unacknowledged = 0
            if self._line is not None:
                self._line.put(frame)

    def wait_for_room(self) -> None:
        """Wait until at most `WINDOW` bytes of messages are unconfirmed. The neighbour may be slow,
        but not silent.
        """
        while self._kept_bytes > WINDOW and self._failure is None:
            if self._time_left() <= 0:
                raise self._lost()
            time.sleep(0.002)

    def beat(self) -> None:
        with self._lock:
            if self._line is not None:
                self._unacknowledged = 0
                self._line.put(self._frame(Kind.BEAT, self._sent, np.empty(0), Tag("", 0, "")))

    def _frame(
        self, kind: Kind, sequence: int, payload: npt.NDArray[Any], tag: Tag, note: str = ""
    ) -> bytes:
        s = self.mesh
        identity = (kind, s.run_id, s.epoch, s.me, sequence, self.received)
        stop = s.stop
        header = Header(
            *identity,
            tag.purpose,
            tag.step,
            tag.collective,
            note,
            stop_at=stop.at,
            stop_reason=stop.reason,
        )
        return encode(header, payload)

    # -- the current connection --------------------------------------------------------------------

    def known_as(self, incarnation: str) -> None:
        """Record the current process of this party. Its earlier process becomes outdated."""
        with self._lock:
            if self._latest not in ("", incarnation):
                self.outdated.add(self._latest)
            self._latest = incarnation

    def greet(self, hello: Header) -> None:
        with self._lock:
            self.incarnation = hello.collective
            self._forget_up_to(hello.received)

    def attach(self, line: Line, cut: Callable[[], object]) -> None:
        """Send all unconfirmed messages into this connection, and every message from now on."""
        with self._lock:
            self.detach()
            for _, frame in self._kept:
                line.put(frame)
            self._line = line
            self._cut = cut
            self.mesh.connections[self.neighbour] += 1
            self._greeted.set()

    def detach(self, line: Line | None = None) -> None:
        """End the connection, if it is still this one."""
        with self._lock:
            if self._line is None or line not in (None, self._line):
                return
            self._line.put(None)
            self._line = None
            cut = self._cut
            self._cut = lambda: None
        with contextlib.suppress(Exception):
            cut()

    def hang_up(self) -> None:
        """Send no more frames after those in the queue. The other side then ends the connection."""
        with self._lock:
            if self._line is not None:
                self._line.put(None)

    # -- receiving ---------------------------------------------------------------------------------

    def listen(self, frames: Iterator[bytes], line: Line) -> None:
        """Process the frames of this connection, until it ends or a frame is invalid."""
        for frame in frames:
            self._wait_until_read(line)
            with self._lock:
                if self._line is not line:
                    return
                try:
                    self._take(frame)
                except ProtocolError as error:
                    self.trouble = str(error)
                    raise

    def _wait_until_read(self, line: Line) -> None:
        """Stop reading from the connection while more than `WINDOW` bytes wait for
        `next_message`.
        """
        with self._room:
            while self._unread > WINDOW and self._line is line:
                self._full = True
                self._room.wait(ROOM_SECONDS)
            if self._full:
                self._full = False
                self.last_received = time.monotonic()

    def _take(self, frame: bytes) -> None:
        s = self.mesh
        try:
            header, payload = decode(frame, s.largest)
        except ProtocolError:
            s.rejected["malformed"] += 1
            raise
        if (header.run, header.epoch, header.sender) != (s.run_id, s.epoch, self.neighbour):
            s.rejected["stale"] += 1
            raise ProtocolError("a frame of another run, epoch or sender.")
        due = self.received + (header.kind is not Kind.BEAT)
        if header.sequence > due or header.received > self._sent:
            s.rejected["out of order"] += 1
            raise ProtocolError(
                f"message {header.sequence} was sent, but message {self.received + 1} has not come."
            )
        if header.kind is Kind.HELLO:
            s.rejected["malformed"] += 1
            raise ProtocolError("a hello in the middle of a conversation.")
        if header.kind is not Kind.BEAT and header.sequence <= self.received:
            s.rejected["repeated"] += 1
            return
        self.last_received = time.monotonic()
        self._forget_up_to(header.received)
        if header.kind is Kind.BEAT:
            return
        self.received = header.sequence
        self._unacknowledged += len(frame)
        self._deliver(header, payload)
        if self._unacknowledged > ACKNOWLEDGE_BYTES or header.kind is Kind.LEAVE:
            self.beat()

    def _deliver(self, header: Header, payload: npt.NDArray[Any]) -> None:
        s = self.mesh
        tag = Tag(header.purpose, header.step, header.collective)
        if header.kind is Kind.MESSAGE:
            with self._room:
                self._unread += payload.nbytes + OVERHEAD
            self._inbox.put((tag, payload, Stop(header.stop_at, header.stop_reason)))
        elif header.kind is Kind.QUESTION:
            if self._kept_bytes > WINDOW:
                s.rejected["flood"] += 1
                raise ProtocolError("this neighbour asked more questions than it accepted answers.")
            message = s.published.get(header.step)
            collective = "message"
            if message is None:
                collective = "nothing"
                message = np.empty(0)
            self.post(Kind.ANSWER, message, Tag(header.purpose, header.step, collective))
        elif header.kind is Kind.ANSWER:
            self._answered += 1
            if self._answered > self._questions:
                s.rejected["flood"] += 1
                raise ProtocolError("an answer to no question.")
            self._answers.put((tag, payload))
        elif header.kind is Kind.LEAVE:
            self.left = True
            self.fail(self._farewell(header, payload))

    def _farewell(self, header: Header, payload: npt.NDArray[Any]) -> PartyLost:
        name = self.mesh.name(self.neighbour)
        if isinstance(self.mesh.security, MutualTLS):
            return self._signed_farewell(name, payload.tobytes(), self.mesh.security)
        lost = printable(header.collective)
        note = printable(header.note)
        if lost:
            return PartyLost(note or f"{lost} stopped answering.", lost)
        farewell = PartyLost(f"{name} left the run{f': {note}' if note else '.'}", name)
        if header.purpose == Status.PROTOCOL_ERROR:
            farewell.status = Status.PROTOCOL_ERROR
        return farewell

    def _signed_farewell(self, name: str, content: bytes, security: MutualTLS) -> PartyLost:
        """Return the error of a neighbour that left. A reason counts if it was signed in this
        meeting.
        """
        if not content:
            return PartyLost(f"{name} left the run.", name)
        mesh = self.mesh
        try:
            reason = farewell.read(security, content, mesh.names)
        except ProtocolError:
            return PartyLost(f"{name} left the run, with a reason that is not signed.", name)
        later = bool(mesh.meeting) and (bool(reason.meeting) or reason.party != name)
        if reason.run != mesh.run_id or (later and reason.meeting != mesh.meeting):
            return PartyLost(f"{name} left the run, with a reason of another run.", name)
        return farewell.error_of(reason, content)

    def _forget_up_to(self, received: int) -> None:
        known = next(
            (k for k, (number, _) in enumerate(self._kept) if number > received), len(self._kept)
        )
        self._kept_bytes -= sum(len(frame) for _, frame in self._kept[:known])
        del self._kept[:known]

    # -- waiting -----------------------------------------------------------------------------------

    def next_message(self, patience: float | None = None) -> Any:
        found = self._wait_for(self._inbox, patience)
        if found is not None:
            with self._room:
                self._unread -= found[1].nbytes + OVERHEAD
                self._room.notify_all()
        return found

    def ask(self, agent: int, patience: float | None = None) -> FloatArray | None:
        if patience is not None and not self.linked:
            return None
        self._questions += 1
        number = str(self._questions)
        self.post(Kind.QUESTION, np.empty(0), Tag(number, agent, ""))
        until = None if patience is None else time.monotonic() + patience
        while True:
            found = self._wait_for(
                self._answers, None if until is None else max(until - time.monotonic(), 0.0)
            )
            if found is None:
                return None
            tag, message = found
            if tag.purpose == number:
                return message if tag.collective == "message" else None

    def _wait_for(self, queue: SimpleQueue[Any], patience: float | None = None) -> Any:
        """Return the next item of a queue; None if no item comes within the patience."""
        while True:
            left = max(self._time_left(), 0.001)
            try:
                found = queue.get(timeout=left if patience is None else min(patience, left))
            except Empty:
                if self._time_left() <= 0:
                    raise self._lost() from None
                if patience is not None:
                    return None
                continue
            if isinstance(found, Exception):
                queue.put(found)
                raise found
            return found

    def connected(self) -> bool:
        """Return whether this neighbour has connected. Raises if it cannot connect, has left, or
        did not connect in time.
        """
        if self._failure is not None:
            raise self._failure
        if self._greeted.is_set():
            return True
        if self._time_left() <= 0:
            raise self._lost()
        return False

    def linger(self, until: float) -> None:
        """Wait until the neighbour has connected or failed, at most until `until`."""
        while not self._greeted.is_set() and self._failure is None and self._time_left() > 0:
            if time.monotonic() >= until:
                return
            time.sleep(0.002)

    def settle(self, until: float) -> None:
        """Wait until the neighbour has confirmed all messages or has left, at most until
        `until`.
        """

        def pending() -> bool:
            in_contact = (
                self._greeted.is_set() and not self.left and self.silence <= self.mesh.deadline
            )
            return self._hellos > 0 or (bool(self._kept) and in_contact)

        while pending() and time.monotonic() < until:
            time.sleep(0.002)

    @contextlib.contextmanager
    def answering_hello(self) -> Iterator[None]:
        """Count a hello that this process is answering. A process that leaves waits until the
        answer is sent.
        """
        with self._lock:
            self._hellos += 1
        try:
            yield
        finally:
            with self._lock:
                self._hellos -= 1

    def _time_left(self) -> float:
        s = self.mesh
        first = s.epoch == 0 and not self._greeted.is_set()
        return (max(s.patience, s.deadline) if first else s.deadline) - self.silence

    def _lost(self) -> PartyLost:
        s = self.mesh
        name = s.name(self.neighbour)
        since = self.silence
        trouble = f"; the last trouble: {self.trouble}" if self.trouble else ""
        return PartyLost(
            (
                f"{name} sent no message for {since:.1f} seconds (the deadline is "
                f"{s.deadline:g}){trouble}."
            ),
            name,
        )

    def fail(self, error: ProtocolError | PartyLost) -> Any:
        """Make every current and later wait for this neighbour raise this error."""
        self._failure = error
        self._inbox.put(error)
        self._answers.put(error)
        return error


def printable(text: str) -> str:
    """Return another party's text with unprintable characters replaced, so that a terminal can show
    it.
    """
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)
