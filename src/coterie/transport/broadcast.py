"""Signed short texts that parties broadcast along a spanning tree, in addition to the numbers of
the method.

    introduction   a random number and the certificate, from every party
    session        SHA-256 of all broadcasts so far: the same at all parties, and different in every
                   session
    broadcast      body, and an ECDSA signature of (run, session, subject, sender, body)

Most broadcasts pass through other parties. These parties can neither change a broadcast nor replace
it by an old one. The key is the one in the sender's certificate. The session contains a random
number of the receiver, which checks that its own broadcasts come back unchanged. If a party sends
different broadcasts to two parties, their sessions differ, and the next broadcast reveals it.
Parties cannot sign sums that are added on the way. A party that passes on a wrong aggregate is
detected at the end, when all parties compare the aggregates (`session.check_totals`). A party on
the way can therefore do no more than any other party: send false data of its own.

The bill does not count these broadcasts, because it covers the numbers of the method. There are few
of them, before the first round and after the last, and `docs/disclosure.md` lists all of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from collections.abc import Callable
from typing import TypeVar

import msgspec

from coterie.errors import PartyLost, ProtocolError
from coterie.networks import Network
from coterie.transport.edge import printable
from coterie.transport.frames import MOST_BYTES
from coterie.transport.grpc_mesh import GrpcMesh, Restarted
from coterie.transport.keys import PublicKey, check_signature, known_key, signature
from coterie.transport.links import Tag
from coterie.transport.security import MutualTLS

T = TypeVar("T")

SIGNATURE_BYTES = 1024
"""Bytes by which a signature may lengthen a text."""


class SignedMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The broadcast of one party, with its signature."""

    body: bytes
    signature: bytes


class Introduction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first broadcast of a party."""

    nonce: bytes
    certificate: bytes


class SignedBroadcast:
    """A party in the spanning tree: its parent, its children, and the keys of all parties."""

    def __init__(self, links: GrpcMesh, network: Network):
        self.links = links
        self.count = network.agents
        parents = network.tree().parents
        parent = [int(p) for p in parents]
        if network.server:
            # The process of agent 0 does the work of the server.
            parent = [-1] + [0] * (self.count - 1)
        self.parent = parent[links.me] if parent[links.me] >= 0 else None
        self.children = [j for j, above in enumerate(parent) if above == links.me]
        self.parents = parent
        """The party above each party in the tree; −1 at the root."""
        self._keys: list[PublicKey] = []
        self._session = b""

    @property
    def root(self) -> int:
        """The party without a parent, where sums end."""
        return self.parents.index(-1)

    @property
    def first_child(self) -> int:
        """The first child of the root."""
        return self.parents.index(self.root)

    @property
    def name_above(self) -> str:
        """The name of the parent; that of this party at the root."""
        return self.links.name(self.links.me if self.parent is None else self.parent)

    def branch(self, child: int) -> set[int]:
        """Return the child and all parties below it."""
        found = {child}
        for _ in range(self.count):
            found |= {j for j, above in enumerate(self.parents) if above in found}
        return found

    @property
    def relayed(self) -> list[tuple[int, int]]:
        """For each party: the messages, and the parties' texts in them, that it sends in one
        broadcast of all.
        """
        found = []
        for party in range(self.count):
            below = self.parents.count(party)
            up = 0 if self.parents[party] < 0 else len(self.branch(party))
            found.append((bool(up) + below, up + below * self.count))
        return found

    def gathered(self, mine: bytes, about: str, merge: Callable[[list[bytes]], bytes]) -> bytes:
        """Merge the bytes of all parties up to the root, and return the result at every party.

        `merge` gets a party's own bytes first, then the bytes of its children.
        """
        tag = Tag("study", 0, about)
        merged = merge([mine, *(self.links.receive_bytes(child, tag) for child in self.children)])
        if self.parent is not None:
            self.links.send_bytes(self.parent, merged, tag)
            merged = self.links.receive_bytes(self.parent, tag)
        for child in self.children:
            self.links.send_bytes(child, merged, tag)
        return merged

    def all_gather(self, mine: bytes, about: str, most: int = MOST_BYTES) -> list[bytes]:
        """Return the broadcast of every party about a subject, in the order of the agents. The
        signatures have been checked. A text of more than `most` bytes is refused.
        """
        if not self._keys:
            self.introduce()
        return self._checked(self._passed_on(self._signed(mine, about), about, most), about)

    def read_all(self, parts: list[bytes], kind: type[T], about: str) -> list[T]:
        """Decode the broadcasts of all parties."""
        return [
            decoded(part, kind, self.links.name(sender), about) for sender, part in enumerate(parts)
        ]

    def collect(self, mine: bytes, about: str) -> tuple[dict[int, bytes], set[int]]:
        """Return the broadcasts of those parties that can be heard, and the neighbours that have
        left.

        A broadcast whose signature does not match is left out: this party's neighbour changed it.
        """
        tag = Tag("study", 0, about)
        lost: set[int] = set()
        known = {self.links.me: self._signed(mine, about)}
        for child in self.children:
            known |= self._heard(child, tag, self.branch(child), lost)
        if self.parent is not None:
            self.links.send_bytes(self.parent, msgspec.msgpack.encode(known), tag)
            others = {*range(self.count)} - known.keys()
            known |= self._heard(self.parent, tag, others, lost)
        for child in self.children:
            self.links.send_bytes(child, msgspec.msgpack.encode(known), tag)
        bodies = {}
        for sender, part in sorted(known.items()):
            with contextlib.suppress(ProtocolError):
                name = self.links.name(sender)
                self._refuse_long({sender: part}, name, about, MOST_BYTES)
                signed = decoded(part, SignedMessage, name, about)
                bodies[sender] = self._body(sender, signed, about)
        if len(bodies) == self.count:
            self._include([*bodies.values()])
        return bodies, lost

    def _heard(self, source: int, tag: Tag, parties: set[int], lost: set[int]) -> dict[int, bytes]:
        """Return what a neighbour passes on of these parties; note it in `lost` if it has left."""
        try:
            content = self.links.receive_bytes(source, tag)
            found = decoded(content, dict[int, bytes], self.links.name(source), tag.collective)
        except Restarted:
            raise
        except PartyLost:
            lost.add(source)
            return {}
        except ProtocolError:
            return {}
        return {party: found[party] for party in found.keys() & parties}

    def introduce(self) -> None:
        """Receive the keys of all parties, and agree on a session."""
        about = "introduction"
        security = self.links.security
        assert isinstance(security, MutualTLS), "parties have keys"
        mine = msgspec.msgpack.encode(Introduction(secrets.token_bytes(32), security.certificate))
        signed = self._passed_on(self._signed(mine, about), about)
        shown = self.read_all([one.body for one in signed], Introduction, about)
        names = [self.links.name(j) for j in range(self.count)]
        self._keys = [
            known_key(security, one.certificate, name)
            for one, name in zip(shown, names, strict=True)
        ]
        self._checked(signed, about)
        for error in self.links.strangers.values():
            raise error
        self.links.introduced = True
        self.links.meeting = self._session

    def _signed(self, body: bytes, about: str) -> bytes:
        security = self.links.security
        me = self.links.me
        assert isinstance(security, MutualTLS), "parties have keys"
        return msgspec.msgpack.encode(
            SignedMessage(body, signature(security, self._sentence(body, about, me)))
        )

    def _sentence(self, body: bytes, about: str, sender: int) -> bytes:
        """Return the bytes that a party signs: the body with its run, session, subject and
        sender.
        """
        return msgspec.msgpack.encode((self.links.run_id, self._session, about, sender, body))

    def _checked(self, signed: list[SignedMessage], about: str) -> list[bytes]:
        """Check the signatures, and return the broadcasts without them. The session then includes
        these broadcasts.
        """
        bodies = [self._body(sender, message, about) for sender, message in enumerate(signed)]
        self._include(bodies)
        return bodies

    def _body(self, sender: int, message: SignedMessage, about: str) -> bytes:
        """Return the broadcast of a party, if its signature matches."""
        sentence = self._sentence(message.body, about, sender)
        check_signature(
            self._keys[sender],
            sentence,
            message.signature,
            f"{self.links.name(sender)} ({about})",
        )
        return message.body

    def _include(self, bodies: list[bytes]) -> None:
        """Make the session depend on these broadcasts."""
        self._session = hashlib.sha256(msgspec.msgpack.encode((self._session, bodies))).digest()

    def _passed_on(self, mine: bytes, about: str, most: int = MOST_BYTES) -> list[SignedMessage]:
        """Return the broadcasts of all parties, one from each."""

        def merge(parts: list[bytes]) -> bytes:
            bodies: dict[int, bytes] = {self.links.me: parts[0]}
            for child, part in zip(self.children, parts[1:], strict=True):
                who = self.links.name(child)
                found = decoded(part, dict[int, bytes], who, about)
                if found.keys() != self.branch(child):
                    raise ProtocolError(
                        f"{about}: {who} sent messages of parties outside its branch of the tree, "
                        "or not for all in it."
                    )
                self._refuse_long(found, who, about, most)
                bodies |= found
            return msgspec.msgpack.encode(bodies)

        passed_on = self.gathered(mine, about, merge)
        found = decoded(passed_on, dict[int, bytes], self.name_above, about)
        if sorted(found) != list(range(self.count)):
            raise ProtocolError(
                f"{about}: only {sorted(found)} of {self.count} parties sent a message."
            )
        if found[self.links.me] != mine:
            # This check also prevents the replay of a recorded session: there, this party's own
            # broadcast was a different one.
            raise ProtocolError(
                f"{about}: what {self.links.name(self.links.me)} sent came back changed."
            )
        self._refuse_long(found, self.name_above, about, most)
        return self.read_all([found[j] for j in range(self.count)], SignedMessage, about)

    def _refuse_long(self, texts: dict[int, bytes], who: str, about: str, most: int) -> None:
        """Refuse texts that are too long, before they are passed on."""
        for sender, text in texts.items():
            if len(text) > most + SIGNATURE_BYTES:
                name = self.links.name(sender)
                by = "sent" if name == who else f"passed on from {name}"
                raise ProtocolError(
                    f"{about}: {who} {by} {len(text)} bytes; at most {most} are accepted."
                )


def decoded(part: bytes, kind: type[T], sender: str, about: str) -> T:
    """Decode the text of a party. An error names the party and the subject."""
    try:
        return msgspec.msgpack.decode(part, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        why = printable(str(error))[:200]
        raise ProtocolError(f"{about}: {sender} sent an unexpected payload ({why}).") from error
