"""A mesh of gRPC streams: one connection per edge, frames both ways, mutual TLS unless the code says "trusted cluster".

The process with the higher number dials, the other one listens. A connection begins with a hello from both sides; then
each side resends what the other has not heard, so a dropped connection costs nothing but time: messages are numbered,
kept until the other side has heard them, and taken exactly once. There is one deadline: a neighbour from whom nothing
is heard for so long, no message and no heartbeat, is lost, and whoever finds out tells its neighbours before it leaves,
so that all name the same party.

    what comes in                                             what happens
    a certificate of nobody, another CA, or out of date       refused by TLS; no code of ours runs
    a hello of a stranger, of no neighbour, of another run    refused and counted
    from the other end, such a certificate                    this side fails, and names the neighbour
    a study that differs                                      both sides fail, with the lines that differ
    a message twice                                           dropped and counted
    a message too early, changed, too large, of another epoch refused and counted; the connection begins again

A neighbour that was restarted has forgotten the conversation. Then `receive` raises `Restarted` in every process, one
after the other, and after `begin_again` all talk in a new *epoch*: no message of the old one counts.
"""

from __future__ import annotations

import contextlib
import difflib
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from typing import Any

import numpy as np

from coterie.arrays import FloatArray, digest, sealed
from coterie.errors import InvalidInput, MissingExtra, PartyLost, ProtocolError
from coterie.transport.edge import Edge, Line, Mesh, printable
from coterie.transport.frames import LARGEST, Header, Kind, decode, encode
from coterie.transport.links import Stop, Tag

try:
    import grpc
except ImportError as missing:
    raise MissingExtra("the transport between processes", "peers") from missing

METHOD = "/coterie.Links/Converse"
PLAIN_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
BEATS_PER_DEADLINE = 8
SUSPICIOUS_BEATS = 3
"""After so many missed heartbeats a connection is given up and dialled again."""
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.5
"""Seconds between two attempts to reach a neighbour: doubled from the one to the other."""
UNTRUSTED = ("handshake failed", "verification check failed")
"""What gRPC says, somewhere in its details, when the other side's certificate does not hold."""
MOST_UNTRUSTED = 3
"""After so many such attempts in a row a neighbour that has never been there is given up."""


class Restarted(PartyLost):
    """A neighbour was started again, or heard of one: everybody has to begin again from the last common state."""


@dataclass(frozen=True)
class TrustedCluster:
    """No encryption and no names: for processes of one owner on one machine or in one closed cluster."""


@dataclass(frozen=True)
class MutualTLS:
    """Both sides show a certificate of the same authority, and each is known by the name in it."""

    key: bytes = field(repr=False)
    certificate: bytes = field(repr=False)
    authority: bytes = field(repr=False)


def server_name(party: str) -> str:
    """The name in a party's certificate: its own, or a digest of it if TLS could not read it."""
    label = party if PLAIN_NAME.fullmatch(party) else f"x{digest(party)[:40]}"
    return f"{label}.coterie"


class GrpcMesh(Mesh):
    """This process's links. Make one, tell the others its `address`, then `connect` with everybody's."""

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
    ):
        """Begin to listen.

        run_id      the same in all processes, another one for another run
        deadline    seconds of silence after which a neighbour is lost
        names       what processes are called in errors, and in certificates with `MutualTLS`
        listen      host:port; port 0 takes a free one
        agreement   a text that must be the same in all processes; a difference is shown line by line
        patience    seconds to wait for a neighbour's first sign of life; the deadline if not given
        largest     bytes of the largest message
        """
        if isinstance(security, MutualTLS) and names is None:
            raise InvalidInput("mutual TLS knows processes by their names; give names=.")
        super().__init__(me, run_id, deadline, patience, largest, names)
        self.security, self.agreement = security, agreement
        self._wanted_epoch = 0
        self._incarnation = secrets.token_hex(8)
        self._lock = threading.RLock()
        self._closing = threading.Event()
        self._edges = {peer: Edge(self, peer) for peer in sorted(set(neighbours) - {me})}
        self._threads: list[threading.Thread] = []
        self._pool = ThreadPoolExecutor(4 * len(self._edges) + 8, "coterie-links")
        self._server = grpc.server(self._pool, options=self._options())
        _, service, call = METHOD.split("/")
        offered = {call: grpc.stream_stream_rpc_method_handler(self._accept)}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, offered),))
        try:
            if isinstance(security, MutualTLS):
                pair = [(security.key, security.certificate)]
                port = self._server.add_secure_port(
                    listen, grpc.ssl_server_credentials(pair, security.authority, require_client_auth=True)
                )
            else:
                port = self._server.add_insecure_port(listen)
        except RuntimeError as error:
            raise InvalidInput(
                f"cannot listen on {listen}: check that the port is free and that this machine has the address."
            ) from error
        if port == 0:
            raise InvalidInput(f"cannot listen on {listen}: check the address, the key and the TLS certificate.")
        self.address = f"{listen.rpartition(':')[0]}:{port}"
        self._server.start()

    def connect(self, addresses: Sequence[str]) -> None:
        """Begin to dial the neighbours with lower numbers, in the background; `send` and `receive` need not wait."""
        for edge in self._edges.values():
            edge.last_heard = time.monotonic()
            if edge.peer < self.me:
                self._spawn(partial(self._dial, edge, addresses[edge.peer]), f"coterie-dial-{edge.peer}")
        self._spawn(self._beat, "coterie-heartbeat")

    def wait(self) -> None:
        """Until all neighbours are there; whoever does not come within the patience is lost."""
        while not all(edge.here() for edge in self._edges.values()):
            time.sleep(0.01)

    # -- Links ---------------------------------------------------------------------------------------------------------

    def send(self, to: int, message: FloatArray, tag: Tag) -> None:
        """Post a message."""
        if message.nbytes > self.largest:
            raise InvalidInput(
                f"a message of {message.nbytes} bytes; at most {self.largest} are accepted: raise largest=."
            )
        self._edge(to).post(Kind.MESSAGE, message, tag)

    def receive(self, source: int, tag: Tag) -> FloatArray:
        """The next message of that neighbour; see `Links`."""
        return self._expected(source, self._edge(source).next_message(), tag)

    def poll(self, source: int, tag: Tag) -> FloatArray | None:
        """The next message of that neighbour, if there is one; see `Links`."""
        found = self._edge(source).next_message(0.0)
        return None if found is None else self._expected(source, found, tag)

    def _expected(self, source: int, found: tuple[Tag, FloatArray, Stop], tag: Tag) -> FloatArray:
        sent, message, stop = found
        if sent != tag:
            raise ProtocolError(f"{self.name(source)} sent {sent} where {self.name(self.me)} expects {tag}.")
        self.stop = self.stop if self.stop.reason else stop
        return message

    def publish(self, agent: int, message: FloatArray) -> None:
        """Put a message where others can `ask` for it."""
        self.published[agent] = sealed(np.array(message))

    def ask(self, process: int, agent: int, patience: float | None = None) -> FloatArray | None:
        """What that agent last published."""
        if process == self.me:
            return self.published.get(agent)
        return self._edge(process).ask(agent, patience)

    def close(self, reason: str = "", lost: str = "", status: str = "") -> None:
        """Leave, with a reason if it is not the end of the run; `lost` is the party that fell silent, if one did.

        With the `status` of a protocol error all others end with that one, and not as if a party were lost.
        """
        if self._closing.is_set():
            return
        tag = Tag(status, 0, lost[:80])
        for edge in self._edges.values():
            edge.post(Kind.LEAVE, np.empty(0), tag, note=reason[:1000])
        until = time.monotonic() + min(self.deadline, 5.0)
        for edge in self._edges.values():
            edge.settle(until)
        self._closing.set()
        for edge in self._edges.values():
            edge.hang_up()
        for thread in self._threads:
            thread.join(1.0)
        self._server.stop(0.5).wait(1.0)
        for edge in self._edges.values():
            edge.detach()
        self._pool.shutdown(wait=False)

    def __enter__(self) -> GrpcMesh:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close("" if error is None else str(error))

    # -- texts, and new epochs -----------------------------------------------------------------------------------------

    def send_bytes(self, to: int, content: bytes, tag: Tag) -> None:
        """Post plain bytes, for what is not numbers."""
        self.send(to, np.frombuffer(content, np.uint8), tag)

    def receive_bytes(self, source: int, tag: Tag) -> bytes:
        """Plain bytes of that neighbour."""
        return self.receive(source, tag).tobytes()

    def begin_again(self) -> None:
        """After `Restarted`: forget the conversation, and speak in the new epoch."""
        with self._lock:
            self.epoch = self._wanted_epoch
            self.published.clear()
        for edge in self._edges.values():
            edge.forget()

    def drop(self, peer: int) -> None:
        """Cut the connection to a neighbour, as a network might; it heals by itself."""
        self._edge(peer).detach()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _edge(self, process: int) -> Edge:
        try:
            return self._edges[process]
        except KeyError:
            raise InvalidInput(f"{self.name(self.me)} has no link to {self.name(process)}.") from None

    def _spawn(self, work: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _options(self) -> list[tuple[str, Any]]:
        limit = self.largest + 2**16
        return [
            ("grpc.max_send_message_length", limit),
            ("grpc.max_receive_message_length", limit),
            ("grpc.so_reuseport", 0),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 1000),
            ("grpc.max_reconnect_backoff_ms", 1000),
            ("grpc.enable_http_proxy", 0),
        ]

    def _hello(self, edge: Edge) -> bytes:
        """Who speaks, in which epoch, which one it knows to be next, and what it has heard."""
        header = Header(
            Kind.HELLO, self.run_id, self.epoch, self.me, 0, edge.heard, step=self._wanted_epoch, word=self._incarnation
        )
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
            edge.fail(Restarted(f"{because}; everybody continues from the last common state."))

    def _dial(self, edge: Edge, address: str) -> None:
        """Keep a connection to that neighbour, until the end."""
        pause, untrusted = FIRST_PAUSE, 0
        while not self._closing.is_set():
            line: Line = SimpleQueue()
            line.put(self._hello(edge))
            channel = self._channel(edge, address)
            try:
                call = channel.stream_stream(METHOD)(iter(line.get, None))
                with contextlib.ExitStack() as stack:
                    stack.callback(call.cancel)
                    frames = iter(call)
                    self._check_hello(edge, next(frames))
                    edge.attach(line, call.cancel)
                    pause = FIRST_PAUSE
                    edge.listen(frames, line)
            except StopIteration:
                pass
            except ProtocolError as error:
                edge.trouble = str(error)
            except grpc.RpcError as error:
                code, edge.trouble = error.code(), str(error.details())
                untrusted = untrusted + 1 if any(sign in edge.trouble.lower() for sign in UNTRUSTED) else 0
                if code is grpc.StatusCode.PERMISSION_DENIED:
                    edge.fail(ProtocolError(f"{self.name(edge.peer)} refused the connection: {edge.trouble}"))
                elif untrusted >= MOST_UNTRUSTED and not self.connections[edge.peer]:
                    edge.fail(ProtocolError(_stranger(self.name(edge.peer), address, edge.trouble)))
            finally:
                line.put(None)
                edge.detach(line)
                channel.close()
            self._closing.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _channel(self, edge: Edge, address: str) -> Any:
        if isinstance(self.security, TrustedCluster):
            return grpc.insecure_channel(address, self._options())
        tls = grpc.ssl_channel_credentials(self.security.authority, self.security.key, self.security.certificate)
        expected = ("grpc.ssl_target_name_override", server_name(self.name(edge.peer)))
        return grpc.secure_channel(address, tls, [*self._options(), expected])

    def _accept(self, frames: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """A neighbour dialled: check who it is before anything else, then talk."""
        if isinstance(self.security, MutualTLS):
            # Before a single frame is taken: only neighbours that dial are listened to.
            dialling = {server_name(self.name(peer)).encode() for peer in self._edges if peer > self.me}
            if dialling.isdisjoint(context.auth_context().get("x509_subject_alternative_name", [])):
                self.rejected["no neighbour"] += 1
                refusal = f"{self.name(self.me)} does not expect this caller's TLS certificate."
                context.abort(grpc.StatusCode.PERMISSION_DENIED, refusal)
        impatience = threading.Timer(self.deadline, context.cancel)
        impatience.start()
        try:
            edge = self._who(context, first := next(frames))
        except (ProtocolError, StopIteration) as error:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
        except Exception:  # gRPC's own, bare: the connection broke before anything was said
            return
        finally:
            impatience.cancel()
        line: Line = SimpleQueue()
        try:
            self._check_hello(edge, first)
        except ProtocolError:
            # The other side gets this side's hello too, and so comes to the same conclusion.
            yield self._hello(edge)
            return
        yield self._hello(edge)
        edge.attach(line, context.cancel)
        self._pool.submit(self._read, edge, frames, line)
        yield from iter(line.get, None)

    def _read(self, edge: Edge, frames: Iterator[bytes], line: Line) -> None:
        try:
            edge.listen(frames, line)
        except ProtocolError as error:
            edge.trouble = str(error)
        except Exception as error:  # the server side of gRPC ends its iterators with bare Exceptions
            edge.trouble = str(error) or "the connection broke"
        finally:
            edge.detach(line)

    def _who(self, context: Any, first: bytes) -> Edge:
        """The neighbour that this connection's certificate and hello both name."""
        try:
            header, _ = decode(first, self.largest)
        except ProtocolError:
            self.rejected["malformed"] += 1
            raise
        edge = self._edges.get(header.sender)
        if edge is None or header.kind is not Kind.HELLO or header.sender < self.me:
            self.rejected["no neighbour"] += 1
            raise ProtocolError(f"{self.name(self.me)} does not expect this caller: only neighbours connect here.")
        if isinstance(self.security, MutualTLS):
            shown = context.auth_context().get("x509_subject_alternative_name", [])
            if server_name(self.name(header.sender)).encode() not in shown:
                self.rejected["wrong name"] += 1
                raise ProtocolError(f"the TLS certificate is not that of {self.name(header.sender)}.")
        return edge

    def _check_hello(self, edge: Edge, frame: bytes) -> None:
        """Whether both sides are in the same run, study and epoch; where they stand is noted in the edge."""
        header, payload = decode(frame, self.largest)
        if header.kind is not Kind.HELLO or header.sender != edge.peer:
            self.rejected["no hello"] += 1
            raise ProtocolError(f"{self.name(edge.peer)} did not say hello.")
        theirs = printable(payload.tobytes().decode(errors="replace"))
        if theirs != self.agreement:
            self.rejected["other study"] += 1
            raise edge.fail(
                ProtocolError(_difference(self.agreement, theirs, self.name(self.me), self.name(edge.peer)))
            )
        if header.run != self.run_id:
            self.rejected["other run"] += 1
            raise edge.fail(ProtocolError(f"{self.name(edge.peer)} is in run {header.run}, not in {self.run_id}."))
        edge.last_heard = time.monotonic()
        if header.step > self._wanted_epoch:
            self._want_epoch(header.step, f"{self.name(edge.peer)} says that a party was started again")
        elif header.epoch == self.epoch and edge.incarnation not in ("", header.word):
            self._want_epoch(self.epoch + 1, f"{self.name(edge.peer)} was started again")
        if not header.step == header.epoch == self.epoch == self._wanted_epoch:
            raise ProtocolError("one side has yet to begin again.")
        edge.greet(header)


def _stranger(name: str, address: str, details: str) -> str:
    return (
        f"the party at {address} cannot prove that it is {name}: its TLS certificate is refused. Compare "
        f"authority.pem and the certificates' dates at both parties ({details})."
    )


def _difference(ours: str, theirs: str, us: str, them: str) -> str:
    lines = difflib.unified_diff(ours.splitlines(), theirs.splitlines(), us, them, lineterm="", n=0)
    shown = [line for line in lines if not line.startswith("@@")]
    return "\n".join([f"{us} and {them} do not agree on the study:", *shown[:60]])
