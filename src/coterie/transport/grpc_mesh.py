"""A mesh of gRPC streams: one connection per edge, frames both ways, and mutual TLS unless the
caller chooses `TrustedCluster`.

Of two neighbours, the process with the higher number dials and the other one listens, unless
`dials` states otherwise. A connection begins with a hello from both sides. Then each side resends
the messages that the other side has not confirmed. A dropped connection therefore costs only time.
The sender numbers messages and keeps each one until the receiver has confirmed it; the receiver
takes each exactly once. There is one deadline. A neighbour that sends nothing for `deadline`
seconds, no message and no heartbeat, is lost. The process that detects the loss reports it to its
neighbours before it leaves, so that all name the same party.

    incoming                                          reaction
    a TLS certificate of an unknown caller, of        refused by TLS; no code of this package runs
    another CA, or expired
    a hello of an unknown caller, of a process that   refused and counted
    is no neighbour, or of another run
    such a certificate from the process dialled       this side fails, and names the neighbour
    a study that differs                              both sides fail, with the lines that differ
    a message twice                                   dropped and counted
    a message too early, changed, too large, or of    refused and counted; the connection begins
    another epoch                                     again
    a connection without frames, before or after      given up within half a deadline, and dialled
    the hello                                         again
    more messages than are read                       left with the sender, until there is room
                                                      (`edge.WINDOW`)
    idle connections of unknown callers               closed (`gate`)
    a second process of this party                    refused, and both get the reason

A neighbour that restarted has lost the state of its protocols. Then `receive` raises `Restarted` in
every process, one after the other. After `begin_again` all processes use a new *epoch*: no message
of the old epoch counts.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from typing import Any

import numpy as np

from coterie.errors import InvalidInput, MissingExtra, PartyLost, ProtocolError
from coterie.numerics.arrays import FloatArray, sealed
from coterie.transport.edge import SETTLE_SECONDS, Edge, Line, Mesh, printable
from coterie.transport.farewell import LONGEST, Farewell, signed
from coterie.transport.frames import LARGEST, Header, Kind, decode, encode
from coterie.transport.gate import Gate
from coterie.transport.links import Stop, Tag
from coterie.transport.security import (
    BEATS_PER_DEADLINE,
    MutualTLS,
    TrustedCluster,
    difference,
    grpc_options,
    server_name,
    stranger,
)

try:
    import grpc
except ImportError as missing:
    raise MissingExtra("the transport between processes", "peers") from missing

METHOD = "/coterie.Links/Converse"
SUSPICIOUS_BEATS = 3
"""Number of missed heartbeats after which a connection is given up and dialled again."""
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.5
"""Seconds between two attempts to reach a neighbour: doubled from the first value up to the second.
"""
UNTRUSTED = ("handshake failed", "verification check failed")
"""Parts of gRPC's error details if the other side's certificate is not valid."""
LOGGER = logging.getLogger("coterie")
MOST_UNTRUSTED = 3
"""Number of successive attempts with such an error after which a neighbour that never connected is
given up.
"""


def _accept(tag: Tag) -> None:
    """Accept every message."""


class Restarted(PartyLost):
    """A neighbour restarted, or reports a restart. All processes continue from the last common
    state.
    """


class GrpcMesh(Mesh):
    """The links of this process. Create one, send its `address` to the others, then `connect` with
    the addresses of all processes.
    """

    def __init__(
        self,
        me: int,
        neighbours: Iterable[int],
        run_id: str,
        security: TrustedCluster | MutualTLS,
        deadline: float = 30.0,
        *,
        names: Sequence[str] | None = None,
        listen: str = "127.0.0.1:0",
        agreement: str = "",
        patience: float | None = None,
        largest: int = LARGEST,
        dials: Iterable[int] | None = None,
    ):
        """Begin to listen.

        run_id      the same in all processes, and different for each run
        deadline    seconds of silence after which a neighbour is lost
        names       names of the processes in errors, and in certificates with `MutualTLS`
        listen      host:port; with port 0 the system chooses a free port
        agreement   a text that must be the same in all processes; an error shows each line that
                    differs
        patience    seconds to wait for a neighbour's first connection, at least the
                    deadline; default: the deadline
        largest     bytes of the largest message
        dials       the neighbours that this process dials; without it, those with lower numbers
        """
        if isinstance(security, MutualTLS) and names is None:
            raise InvalidInput("mutual TLS knows processes by their names; give names=.")
        super().__init__(me, run_id, deadline, patience, largest, names)
        self.security = security
        self.agreement = agreement
        self.check: Callable[[Tag], None] = _accept
        """Called with the tag of each message before it is sent; raises if the message may not be
        sent.
        """
        self._wanted_epoch = 0
        self._incarnation = secrets.token_hex(8)
        self._lock = threading.RLock()
        self._closing = threading.Event()
        self._edges = {peer: Edge(self, peer) for peer in sorted(set(neighbours) - {me})}
        self._dials = (
            {peer for peer in self._edges if peer < me}
            if dials is None
            else set(dials) & self._edges.keys()
        )
        self._hello_seconds = max(self.deadline / 2, 1.0)
        self._threads: list[threading.Thread] = []
        self._pool = ThreadPoolExecutor(4 * len(self._edges) + 8, "coterie-links")
        self._server = grpc.server(self._pool, options=grpc_options(self.largest, self.deadline))
        _, service, call = METHOD.split("/")
        offered = {call: grpc.stream_stream_rpc_method_handler(self._accept)}
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service, offered),)
        )
        try:
            if isinstance(security, MutualTLS):
                pair = [(security.key, security.certificate)]
                port = self._server.add_secure_port(
                    listen,
                    grpc.ssl_server_credentials(pair, security.authority, require_client_auth=True),
                )
            else:
                port = self._server.add_insecure_port(listen)
        except RuntimeError as error:
            raise InvalidInput(
                f"cannot listen on {listen}: check that the port is free and that this machine "
                "has the address."
            ) from error
        if port == 0:
            raise InvalidInput(
                f"cannot listen on {listen}: check the address, the key and the TLS certificate."
            )
        self.address = f"{listen.rpartition(':')[0]}:{port}"
        self.gate = Gate(port)
        self._server.start()

    def connect(self, addresses: Sequence[str]) -> None:
        """Begin to dial neighbours in the background. `send` and `receive` need not wait for it."""
        address = addresses[self.me] if isinstance(self.security, MutualTLS) else ""
        if address not in ("", self.address) and self._is_oneself(address) is False:
            return
        for edge in self._edges.values():
            edge.last_received = time.monotonic()
            if edge.neighbour in self._dials:
                self._spawn(
                    partial(self._dial, edge, addresses[edge.neighbour]),
                    f"coterie-dial-{edge.neighbour}",
                )
        self._spawn(self._beat, "coterie-heartbeat")
        if isinstance(self.security, MutualTLS):
            self._spawn(partial(self.gate.watch, self._closing), "coterie-gate")

    def wait(self) -> None:
        """Wait for all neighbours. A neighbour that does not connect within `patience` is lost."""
        while not all(edge.connected() for edge in self._edges.values()):
            time.sleep(0.01)

    # -- Links -------------------------------------------------------------------------------------

    def send(self, to: int, message: FloatArray, tag: Tag) -> None:
        """Send a message."""
        self.check(tag)
        if message.nbytes > self.largest:
            raise InvalidInput(
                f"a message of {message.nbytes} bytes; at most {self.largest} are accepted: raise "
                "largest=."
            )
        (edge := self._edge(to)).wait_for_room()
        edge.post(Kind.MESSAGE, message, tag)

    def receive(self, source: int, tag: Tag) -> FloatArray:
        """Wait for the next message of that neighbour; see `Links`."""
        return self._expected(source, self._edge(source).next_message(), tag)

    def poll(self, source: int, tag: Tag) -> FloatArray | None:
        """Return the next message of that neighbour, if there is one; see `Links`."""
        found = self._edge(source).next_message(0.0)
        if found is None:
            return None
        return self._expected(source, found, tag)

    def _expected(self, source: int, found: tuple[Tag, FloatArray, Stop], tag: Tag) -> FloatArray:
        sent, message, stop = found
        if sent != tag:
            raise ProtocolError(
                f"{self.name(source)} sent {sent} where {self.name(self.me)} expects {tag}."
            )
        self.stop = self.stop if self.stop.reason else stop
        return message

    def publish(self, agent: int, message: FloatArray) -> None:
        """Store a message so that other processes can `ask` for it."""
        self.published[agent] = sealed(np.array(message))

    def ask(self, process: int, agent: int, patience: float | None = None) -> FloatArray | None:
        """Return the latest publication of that agent; see `Links`."""
        if process == self.me:
            return self.published.get(agent)
        return self._edge(process).ask(agent, patience)

    def close(
        self,
        reason: str = "",
        lost: str = "",
        status: str = "",
        linger: float = 0.0,
        farewell: bytes = b"",
    ) -> None:
        """Leave the run. Give a `reason` if it is not the end of the run; `lost` names the party
        that fell silent, if one did.

        With the `status` of a protocol error, all others end with that error, and not as if a party
        were lost. For `linger` seconds, a neighbour that has not connected yet may still connect
        and receive the reason.

        Between organisations the reason is signed. `farewell` is that of another party, which is
        passed on in its place.
        """
        if self._closing.is_set():
            return
        if isinstance(self.security, MutualTLS):
            signed = farewell or self._farewell(self.security, reason, lost, status)
            payload, tag, note = np.frombuffer(signed, np.uint8), Tag("", 0, ""), ""
        else:
            payload, tag, note = np.empty(0, np.uint8), Tag(status, 0, lost[:80]), reason[:LONGEST]
        for edge in self._edges.values():
            edge.post(Kind.LEAVE, payload, tag, note=note)
        for wait, seconds in ((Edge.linger, linger), (Edge.settle, SETTLE_SECONDS)):
            until = time.monotonic() + min(self.deadline, seconds)
            for edge in self._edges.values():
                wait(edge, until)
        self._closing.set()
        for edge in self._edges.values():
            edge.hang_up()
        for thread in self._threads:
            thread.join(1.0)
        self._server.stop(0.5).wait(1.0)
        for edge in self._edges.values():
            edge.detach()
        self._pool.shutdown(wait=False)

    def _farewell(self, security: MutualTLS, reason: str, lost: str, status: str) -> bytes:
        """Return this party's signed reason; nothing at the end of a run."""
        if not reason and not lost:
            return b""
        own = Farewell(
            self.run_id, self.meeting, self.name(self.me), lost[:80], status, reason[:LONGEST]
        )
        return signed(security, own)

    def __enter__(self) -> GrpcMesh:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close("" if error is None else str(error))

    # -- texts, and new epochs ---------------------------------------------------------------------

    def send_bytes(self, to: int, content: bytes, tag: Tag) -> None:
        """Send plain bytes, for content other than numbers."""
        self.send(to, np.frombuffer(content, np.uint8), tag)

    def receive_bytes(self, source: int, tag: Tag) -> bytes:
        """Wait for plain bytes of that neighbour."""
        return self.receive(source, tag).tobytes()

    def begin_again(self) -> None:
        """After `Restarted`: discard the state of all edges, and continue in the new epoch."""
        with self._lock:
            self.epoch = self._wanted_epoch
            self.meeting = b""
            self.published.clear()
        for edge in self._edges.values():
            edge.forget()

    # -- internal ----------------------------------------------------------------------------------

    def _edge(self, process: int) -> Edge:
        try:
            return self._edges[process]
        except KeyError:
            raise InvalidInput(
                f"{self.name(self.me)} has no link to {self.name(process)}."
            ) from None

    def _spawn(self, work: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _hello(self, received: int) -> bytes:
        """Return the hello of this process: its number, its epoch, the latest epoch that it knows
        of, and the number of the last message received.
        """
        who = (Kind.HELLO, self.run_id, self.epoch, self.me, 0, received)
        header = Header(*who, step=self._wanted_epoch, collective=self._incarnation)
        return encode(header, np.frombuffer(self.agreement.encode(), np.uint8))

    def _beat(self) -> None:
        pause = self.deadline / BEATS_PER_DEADLINE
        while not self._closing.wait(pause):
            for edge in self._edges.values():
                edge.beat()
                if edge.linked and edge.silence > SUSPICIOUS_BEATS * pause:
                    edge.detach()

    def _want_epoch(self, epoch: int, because: str) -> None:
        with self._lock:
            if epoch <= self._wanted_epoch:
                return
            self._wanted_epoch = epoch
        for edge in self._edges.values():
            edge.fail(Restarted(f"{because}; all parties continue from the last common state."))

    def _dial(self, edge: Edge, address: str) -> None:
        """Keep a connection to that neighbour until the end."""
        pause = FIRST_PAUSE
        untrusted = 0
        while not self._closing.is_set():
            line: Line = SimpleQueue()
            line.put(self._hello(edge.received))
            channel = self._channel(edge.neighbour, address)
            try:
                call = channel.stream_stream(METHOD)(iter(line.get, None))
                with contextlib.ExitStack() as stack:
                    stack.callback(call.cancel)
                    frames = iter(call)
                    with self._impatience(call.cancel):
                        first = next(frames)
                    self._check_hello(edge, first)
                    edge.attach(line, call.cancel)
                    pause = FIRST_PAUSE
                    edge.listen(frames, line)
            except StopIteration:
                pass
            except ProtocolError as error:
                edge.trouble = str(error)
            except grpc.RpcError as error:
                code = error.code()
                edge.trouble = str(error.details())
                untrusted = (
                    untrusted + 1 if any(sign in edge.trouble.lower() for sign in UNTRUSTED) else 0
                )
                if code is grpc.StatusCode.PERMISSION_DENIED:
                    edge.fail(
                        ProtocolError(
                            f"{self.name(edge.neighbour)} refused the connection: {edge.trouble}"
                        )
                    )
                elif untrusted >= MOST_UNTRUSTED and not self.connections[edge.neighbour]:
                    edge.fail(
                        ProtocolError(stranger(self.name(edge.neighbour), address, edge.trouble))
                    )
            finally:
                line.put(None)
                edge.detach(line)
                channel.close()
            self._closing.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    @contextlib.contextmanager
    def _impatience(self, cancel: Callable[[], object]) -> Iterator[None]:
        """Return a context that calls `cancel` if it takes longer than a hello may take."""
        timer = threading.Timer(self._hello_seconds, cancel)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _is_oneself(self, address: str) -> bool | None:
        """Return True if this process answers at the party's public address, and False if another
        process of the party does. That process keeps its place, and this one must not run. Return
        None if no process of the party answers.
        """
        with contextlib.closing(self._channel(self.me, address)) as channel:
            call = channel.stream_stream(METHOD)(iter([self._hello(0)]))
            try:
                with self._impatience(call.cancel):
                    next(iter(call), None)
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.ALREADY_EXISTS:
                    for edge in self._edges.values():
                        edge.fail(ProtocolError(str(error.details())))
                    return False
                if error.code() is grpc.StatusCode.ABORTED:
                    return True
                return None
        return None

    def _channel(self, peer: int, address: str) -> Any:
        if isinstance(self.security, TrustedCluster):
            return grpc.insecure_channel(address, grpc_options(self.largest, self.deadline))
        tls = grpc.ssl_channel_credentials(
            self.security.authority, self.security.key, self.security.certificate
        )
        expected = ("grpc.ssl_target_name_override", server_name(self.name(peer)))
        return grpc.secure_channel(
            address, tls, [*grpc_options(self.largest, self.deadline), expected]
        )

    def _accept(self, frames: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """Answer a neighbour that dialled. Check its identity first, then exchange messages."""
        if isinstance(self.security, MutualTLS):
            # Before any frame is taken: accept only neighbours that dial this process.
            dialling = {
                server_name(self.name(peer)).encode()
                for peer in {self.me, *self._edges} - self._dials
            }
            if dialling.isdisjoint(context.auth_context().get("x509_subject_alternative_name", [])):
                self.rejected["no neighbour"] += 1
                refusal = f"{self.name(self.me)} does not expect this caller's TLS certificate."
                context.abort(grpc.StatusCode.PERMISSION_DENIED, refusal)
            self.gate.know(context.peer())
        try:
            with self._impatience(context.cancel):
                first = next(frames)
        except Exception:  # bare, from gRPC: the connection broke before the first frame
            return
        try:
            edge = self._who(context, first)
        except ProtocolError as error:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
        with edge.answering_hello():
            try:
                self._check_hello(edge, first)
            except ProtocolError:
                # The other side gets this side's hello too, comes to the same conclusion and ends
                # the connection.
                yield self._hello(edge.received)
                with contextlib.suppress(Exception), self._impatience(context.cancel):
                    next(frames)
                return
        yield self._hello(edge.received)
        line: Line = SimpleQueue()
        edge.attach(line, context.cancel)
        self._pool.submit(self._read, edge, frames, line)
        yield from iter(line.get, None)

    def _read(self, edge: Edge, frames: Iterator[bytes], line: Line) -> None:
        try:
            edge.listen(frames, line)
        except ProtocolError as error:
            edge.trouble = str(error)
        except (
            Exception
        ) as error:  # the server side of gRPC ends its iterators with bare Exceptions
            edge.trouble = str(error) or "the connection broke"
        finally:
            edge.detach(line)

    def _who(self, context: Any, first: bytes) -> Edge:
        """Return the neighbour that this connection's certificate and hello both name."""
        try:
            header, _ = decode(first, self.largest)
        except ProtocolError:
            self.rejected["malformed"] += 1
            raise
        shown = context.auth_context().get("x509_subject_alternative_name", [])
        if header.sender == self.me and server_name(self.name(self.me)).encode() in shown:
            self._meet_oneself(context, header.collective)
        edge = self._edges.get(header.sender)
        if edge is None or header.kind is not Kind.HELLO or header.sender in self._dials:
            self.rejected["no neighbour"] += 1
            raise ProtocolError(
                f"{self.name(self.me)} does not expect this caller: only its neighbours may "
                "connect."
            )
        if (
            isinstance(self.security, MutualTLS)
            and server_name(self.name(header.sender)).encode() not in shown
        ):
            self.rejected["wrong name"] += 1
            raise ProtocolError(f"the TLS certificate is not that of {self.name(header.sender)}.")
        if header.collective in edge.outdated:
            self.rejected["twice"] += 1
            raise ProtocolError(
                f"{self.name(edge.neighbour)} was started a second time, and that process has "
                "its place."
            )
        if isinstance(self.security, MutualTLS):
            self.check_key(
                self.security, edge.neighbour, context.auth_context()["x509_pem_cert"][0]
            )
        return edge

    def _meet_oneself(self, context: Any, incarnation: str) -> None:
        """Refuse a call from a process with this party's own certificate."""
        if incarnation == self._incarnation:
            context.abort(grpc.StatusCode.ABORTED, "this is the same process")
        self.rejected["twice"] += 1
        name = self.name(self.me)
        LOGGER.warning(
            "%s was started a second time (%s): that process is refused", name, context.peer()
        )
        context.abort(
            grpc.StatusCode.ALREADY_EXISTS,
            f"{name} is already running, at its address in the study.",
        )

    def _check_hello(self, edge: Edge, frame: bytes) -> None:
        """Check that both sides are in the same run, study and epoch. Record the neighbour's
        process and last received message in the edge.
        """
        header, payload = decode(frame, self.largest)
        if header.kind is not Kind.HELLO or header.sender != edge.neighbour:
            self.rejected["no hello"] += 1
            raise ProtocolError(f"{self.name(edge.neighbour)} did not send a hello first.")
        theirs = printable(payload.tobytes().decode(errors="replace"))
        if theirs != self.agreement:
            self.rejected["other study"] += 1
            raise edge.fail(
                ProtocolError(
                    difference(
                        self.agreement, theirs, self.name(self.me), self.name(edge.neighbour)
                    )
                )
            )
        if header.run != self.run_id:
            self.rejected["other run"] += 1
            raise edge.fail(
                ProtocolError(
                    f"{self.name(edge.neighbour)} is in run {header.run}, not in {self.run_id}."
                )
            )
        edge.last_received = time.monotonic()
        edge.known_as(header.collective)
        if header.step > self._wanted_epoch:
            self._want_epoch(
                header.step, f"{self.name(edge.neighbour)} reports that a party was started again"
            )
        elif header.epoch == self.epoch and edge.incarnation not in ("", header.collective):
            self._want_epoch(self.epoch + 1, f"{self.name(edge.neighbour)} was started again")
        if not header.step == header.epoch == self.epoch == self._wanted_epoch:
            raise ProtocolError("one side has yet to begin again.")
        edge.greet(header)
