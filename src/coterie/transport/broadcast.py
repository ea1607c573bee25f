"""What parties tell each other beside the numbers of the method: short texts, up and down a spanning tree, signed.

    introduction   a random number and the certificate, from everybody
    session        SHA-256 of all that everybody has said so far: the same at all parties, and another in every meeting
    word           body, and an ECDSA signature of (run, session, what it is about, speaker, body)

Most of it is passed on by others. Who passes a word on can neither change it nor put an old one in its place: the key
is that of the speaker's certificate, and the session holds a random number of the listener, which sees to it that its
own words come back as it said them. Who says one thing to one party and another to the next is found out with the next
word, because their sessions differ. What parties add up on the way (`Sum`) cannot be signed; whoever hands on another
total than it heard is found out in the end, when all compare what they have heard (`session.check_totals`). So a party
on the way can do no more than one at the end: lie about what it holds itself.

These words are counted in bytes by nobody: the bill is about the method's numbers. They are few, before the first round
and after the last, and `docs/disclosure.md` lists every one.
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


class Word(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a party says, with its signature."""

    body: bytes
    signature: bytes


class Introduction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first word of a party."""

    nonce: bytes
    certificate: bytes


class SignedBroadcast:
    """A party's place in the spanning tree: whom it reports to, who reports to it, and whose words it knows."""

    def __init__(self, links: GrpcMesh, network: Network):
        self.links, self.count = links, network.agents
        parents = network.tree().parents
        parent = [int(p) for p in parents]
        if network.server:
            # Where there is a server, the process of agent 0 does its work.
            parent = [-1] + [0] * (self.count - 1)
        self.parent = parent[links.me] if parent[links.me] >= 0 else None
        self.children = [j for j, above in enumerate(parent) if above == links.me]
        self._parents = parent
        self._keys: list[PublicKey] = []
        self._session = b""

    @property
    def root(self) -> int:
        """Who has no parent: sums end there."""
        return self._parents.index(-1)

    @property
    def first_child(self) -> int:
        """The first of those who report to the root."""
        return self._parents.index(self.root)

    def branch(self, child: int) -> set[int]:
        """That child and everybody below it."""
        found = {child}
        for _ in range(self.count):
            found |= {j for j, above in enumerate(self._parents) if above in found}
        return found

    def gathered(self, mine: bytes, about: str, merge: Callable[[list[bytes]], bytes]) -> bytes:
        """What the root made of everybody's bytes: `merge` is handed its own first, then the children's."""
        tag = Tag("study", 0, about)
        merged = merge([mine, *(self.links.receive_bytes(child, tag) for child in self.children)])
        if self.parent is not None:
            self.links.send_bytes(self.parent, merged, tag)
            merged = self.links.receive_bytes(self.parent, tag)
        for child in self.children:
            self.links.send_bytes(child, merged, tag)
        return merged

    def all_gather(self, mine: bytes, about: str) -> list[bytes]:
        """What everybody has to say about something, in the order of the agents, each as its owner signed it."""
        if not self._keys:
            self.introduce()
        return self._checked(self._passed_on(self._signed(mine, about), about), about)

    def introduce(self) -> None:
        """Learn everybody's key, and agree on a session."""
        about, security = "introduction", self.links.security
        assert isinstance(security, MutualTLS), "parties have keys"
        mine = msgspec.msgpack.encode(Introduction(secrets.token_bytes(32), security.certificate))
        words = self._passed_on(self._signed(mine, about), about)
        shown = [_decoded(word.body, Introduction) for word in words]
        names = [self.links.name(j) for j in range(self.count)]
        self._keys = [known_key(security, one.certificate, name) for one, name in zip(shown, names, strict=True)]
        self._checked(words, about)
        for error in self.links.strangers.values():
            raise error
        self.links.introduced = True

    def _signed(self, body: bytes, about: str) -> bytes:
        security, me = self.links.security, self.links.me
        assert isinstance(security, MutualTLS), "parties have keys"
        return msgspec.msgpack.encode(Word(body, signature(security, self._sentence(body, about, me))))

    def _sentence(self, body: bytes, about: str, speaker: int) -> bytes:
        """What is signed: a word in its place."""
        return msgspec.msgpack.encode((self.links.run_id, self._session, about, speaker, body))

    def _checked(self, words: list[Word], about: str) -> list[bytes]:
        """The words without their signatures, which hold."""
        for speaker, (word, key) in enumerate(zip(words, self._keys, strict=True)):
            sentence = self._sentence(word.body, about, speaker)
            check_signature(key, sentence, word.signature, f"{self.links.name(speaker)} ({about})")
        bodies = [word.body for word in words]
        self._session = hashlib.sha256(msgspec.msgpack.encode((self._session, bodies))).digest()
        return bodies

    def _passed_on(self, mine: bytes, about: str) -> list[Word]:
        """Everybody's words as they arrive: of all parties, and of nobody twice."""

        def merge(parts: list[bytes]) -> bytes:
            everything: dict[int, bytes] = {self.links.me: parts[0]}
            for child, part in zip(self.children, parts[1:], strict=True):
                found = _decoded(part, dict[int, bytes])
                if found.keys() != self.branch(child):
                    who = self.links.name(child)
                    raise ProtocolError(
                        f"{about}: {who} sent words for parties outside its branch of the tree, or not for all in it."
                    )
                everything |= found
            return msgspec.msgpack.encode(everything)

        found = _decoded(self.gathered(mine, about, merge), dict[int, bytes])
        if sorted(found) != list(range(self.count)):
            raise ProtocolError(f"{about}: only {sorted(found)} of {self.count} parties were heard.")
        if found[self.links.me] != mine:
            # Also what keeps a recorded meeting from being played back: in that one, its own words were others.
            raise ProtocolError(f"{about}: what {self.links.name(self.links.me)} sent came back changed.")
        return [_decoded(found[j], Word) for j in range(self.count)]


def _decoded(part: bytes, kind: type[T]) -> T:
    try:
        return msgspec.msgpack.decode(part, type=kind)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"a party sent an unexpected payload: {error}") from error
