"""What parties tell each other beside the numbers of the method: short texts, up and down a spanning tree.

These are counted in bytes by nobody: the bill is about the method's numbers. They are few, before the first round and
after the last, and `docs/disclosure.md` lists every one.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from coterie.carriers.links import Tag
from coterie.carriers.streams import Streams
from coterie.errors import ProtocolError
from coterie.networks import Network

__all__ = ["Family", "told"]


class Family:
    """A party's place in the spanning tree: whom it reports to, and who reports to it."""

    def __init__(self, links: Streams, network: Network):
        self.links, self.count = links, network.agents
        parents = network.tree().parents
        parent = [int(p) for p in parents]
        if network.server:
            # Where there is a server, the process of agent 0 does its work.
            parent = [-1] + [0] * (self.count - 1)
        self.parent = parent[links.me] if parent[links.me] >= 0 else None
        self.children = [j for j, above in enumerate(parent) if above == links.me]
        self._parents = parent

    def branch(self, child: int) -> set[int]:
        """That child and everybody below it."""
        found = {child}
        for _ in range(self.count):
            found |= {j for j, above in enumerate(self._parents) if above in found}
        return found

    def gathered(self, mine: bytes, about: str, merge: Callable[[list[bytes]], bytes]) -> bytes:
        """What the root made of everybody's bytes: `merge` is handed one's own first, then the children's."""
        tag = Tag("study", 0, about)
        merged = merge([mine, *(self.links.receive_bytes(child, tag) for child in self.children)])
        if self.parent is not None:
            self.links.send_bytes(self.parent, merged, tag)
            merged = self.links.receive_bytes(self.parent, tag)
        for child in self.children:
            self.links.send_bytes(child, merged, tag)
        return merged


def told(family: Family, mine: bytes, about: str) -> list[bytes]:
    """Everybody's bytes, in the order of the agents.

    A party speaks for its own branch only, and finds its own words as it said them. What a party on the way makes of
    the others' words is not checked: they are not signed.
    """
    me = family.links.me

    def merge(parts: list[bytes]) -> bytes:
        everything: dict[int, bytes] = {me: parts[0]}
        for child, part in zip(family.children, parts[1:], strict=True):
            found = _unpacked(part)
            if found.keys() != family.branch(child):
                who = family.links.name(child)
                raise ProtocolError(f"{about}: {who} does not speak for its own branch, and for nobody else.")
            everything |= found
        return msgspec.msgpack.encode(everything)

    found = _unpacked(family.gathered(mine, about, merge))
    if sorted(found) != list(range(family.count)):
        raise ProtocolError(f"{about}: only {sorted(found)} of {family.count} parties were heard.")
    if found[me] != mine:
        raise ProtocolError(f"{about}: somebody changed what this party said.")
    return [found[j] for j in range(family.count)]


def _unpacked(part: bytes) -> dict[int, bytes]:
    try:
        return msgspec.msgpack.decode(part, type=dict[int, bytes])
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"a party sent something that is not a table of texts: {error}") from error
