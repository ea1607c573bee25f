"""Signed short texts that parties send each other in addition to the numbers of the method, along a
spanning tree.

    introduction   a random number and the certificate, from every party
    session        SHA-256 of all words so far: the same at all parties, and different in every
                   session
    word           body, and an ECDSA signature of (run, session, what it is about, speaker, body)

Other parties pass most words on. They can neither change a word nor replace it by an old one: the
key is that of the speaker's certificate, and the session contains a random number of the receiver,
which checks that its own words come back unchanged. If a party sends different words to two
parties, their sessions differ, and the next word shows it. Sums that are added on the way cannot be
signed. A party that passes on a wrong total is detected at the end, when all parties compare the
totals (`session.check_totals`). A party on the way can therefore do no more than any other: lie
about its own data.

The bill does not count these words, because it is about the numbers of the method. The words are
few, before the first round and after the last, and `docs/disclosure.md` lists all of them.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from typing import TypeVar

import msgspec

from coterie.errors import ProtocolError
from coterie.networks import Network
from coterie.transport.grpc_mesh import GrpcMesh
from coterie.transport.keys import PublicKey, check_signature, known_key, signature
from coterie.transport.links import Tag
from coterie.transport.security import MutualTLS

T = TypeVar("T")


class Collective(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a party says, with its signature."""

    body: bytes
    signature: bytes


class Introduction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first word of a party."""

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
        self._parents = parent
        self._keys: list[PublicKey] = []
        self._session = b""

    @property
    def root(self) -> int:
        """The party without a parent, where sums end."""
        return self._parents.index(-1)

    @property
    def first_child(self) -> int:
        """The first child of the root."""
        return self._parents.index(self.root)

    def branch(self, child: int) -> set[int]:
        """The child and all parties below it."""
        found = {child}
        for _ in range(self.count):
            found |= {j for j, above in enumerate(self._parents) if above in found}
        return found

    def gathered(self, mine: bytes, about: str, merge: Callable[[list[bytes]], bytes]) -> bytes:
        """The bytes of all parties, merged up to the root.

        `merge` gets a party's own bytes first, then its children's.
        """
        tag = Tag("study", 0, about)
        merged = merge([mine, *(self.links.receive_bytes(child, tag) for child in self.children)])
        if self.parent is not None:
            self.links.send_bytes(self.parent, merged, tag)
            merged = self.links.receive_bytes(self.parent, tag)
        for child in self.children:
            self.links.send_bytes(child, merged, tag)
        return merged

    def all_gather(self, mine: bytes, about: str) -> list[bytes]:
        """The word of every party about a subject, in the order of the agents, with checked
        signatures.
        """
        if not self._keys:
            self.introduce()
        return self._checked(self._passed_on(self._signed(mine, about), about), about)

    def introduce(self) -> None:
        """Learn the keys of all parties, and agree on a session."""
        about = "introduction"
        security = self.links.security
        assert isinstance(security, MutualTLS), "parties have keys"
        mine = msgspec.msgpack.encode(Introduction(secrets.token_bytes(32), security.certificate))
        collectives = self._passed_on(self._signed(mine, about), about)
        shown = [_decoded(collective.body, Introduction) for collective in collectives]
        names = [self.links.name(j) for j in range(self.count)]
        self._keys = [
            known_key(security, one.certificate, name)
            for one, name in zip(shown, names, strict=True)
        ]
        self._checked(collectives, about)
        for error in self.links.strangers.values():
            raise error
        self.links.introduced = True

    def _signed(self, body: bytes, about: str) -> bytes:
        security = self.links.security
        me = self.links.me
        assert isinstance(security, MutualTLS), "parties have keys"
        return msgspec.msgpack.encode(
            Collective(body, signature(security, self._sentence(body, about, me)))
        )

    def _sentence(self, body: bytes, about: str, speaker: int) -> bytes:
        """What is signed: a word in its place."""
        return msgspec.msgpack.encode((self.links.run_id, self._session, about, speaker, body))

    def _checked(self, collectives: list[Collective], about: str) -> list[bytes]:
        """The words without their signatures, which hold."""
        for speaker, (collective, key) in enumerate(zip(collectives, self._keys, strict=True)):
            sentence = self._sentence(collective.body, about, speaker)
            check_signature(
                key, sentence, collective.signature, f"{self.links.name(speaker)} ({about})"
            )
        bodies = [collective.body for collective in collectives]
        self._session = hashlib.sha256(msgspec.msgpack.encode((self._session, bodies))).digest()
        return bodies

    def _passed_on(self, mine: bytes, about: str) -> list[Collective]:
        """The words of all parties, one of each."""

        def merge(parts: list[bytes]) -> bytes:
            everything: dict[int, bytes] = {self.links.me: parts[0]}
            for child, part in zip(self.children, parts[1:], strict=True):
                found = _decoded(part, dict[int, bytes])
                if found.keys() != self.branch(child):
                    who = self.links.name(child)
                    raise ProtocolError(
                        f"{about}: {who} sent words for parties outside its branch of the tree, "
                        "or not for all in it."
                    )
                everything |= found
            return msgspec.msgpack.encode(everything)

        found = _decoded(self.gathered(mine, about, merge), dict[int, bytes])
        if sorted(found) != list(range(self.count)):
            raise ProtocolError(
                f"{about}: only {sorted(found)} of {self.count} parties were heard."
            )
        if found[self.links.me] != mine:
            # Also what keeps a recorded meeting from being played back: in that one, its own words
            # were others.
            raise ProtocolError(
                f"{about}: what {self.links.name(self.links.me)} sent came back changed."
            )
        return [_decoded(found[j], Collective) for j in range(self.count)]


def _decoded(part: bytes, kind: type[T]) -> T:
    try:
        return msgspec.msgpack.decode(part, type=kind)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"a party sent an unexpected payload: {error}") from error
