"""Match the rows of several parties by id, without a list of ids that outsiders could read.

    key     = SHA-256 of a random number from every party, new for every run
    h(id)   = HMAC-SHA-256(key, type and id), 16 bytes
    common  = the ids whose h is at every party: each adds its set to those of its branch of the
            spanning tree

By default a party shows its parent in the tree the h of what its branch has in common. Who knows
the key can try guesses, so a parent that suspects a certain id at its child can confirm it. With
`psi` it cannot: parent and child run a private set intersection (ECDH, the openmined-psi library),
in which the parent learns the common ids and the child learns how many the parent has.

In both cases each party learns in the end which of its own ids are common to all. Rows are then
sorted by id, and all compare a keyed digest of the order.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from coterie.data import Table, align
from coterie.data.summary import MOST_ROWS
from coterie.errors import InvalidData, MissingExtra, ProtocolError
from coterie.study.broadcasts import Broadcast
from coterie.transport.broadcast import SignedBroadcast
from coterie.transport.grpc_mesh import GrpcMesh
from coterie.transport.links import Tag

if TYPE_CHECKING:
    from coterie.study.study import Study

HASH_BYTES = 16
MATCHED = ("fit", "evaluate", "predict", "verify")
"""The operations that match rows."""


def _matches(study: Study) -> bool:
    return study.id is not None and study.split == "features"


def _by_hash(study: Study) -> bool:
    return _matches(study) and not study.psi


def _by_psi(study: Study) -> bool:
    return _matches(study) and study.psi


IDS = Broadcast(
    "ids",
    "how many ids you have, whether they are integers or text, and a random number, of which a key "
    "is made",
    MATCHED,
    _matches,
)
HASHES = Broadcast(
    "hashes",
    "keyed hashes of your ids that are also below you in the tree. Parties can test guesses, "
    "outsiders cannot. In the end all parties know the ids that all have",
    MATCHED,
    _by_hash,
    to="the parent in the tree; what all have in common: all",
)
ENCRYPTED = Broadcast(
    "psi response",
    "your ids, encrypted for a private set intersection. Parents learn the ids that they share "
    "with you, children how many ids you have. A parent can test a suspected id by adding it to "
    "its own. In the end all parties know the ids that all have",
    MATCHED,
    _by_psi,
    also=("psi request", "psi setup", "common"),
    to="the parent and the children in the tree; what all have in common: all",
)
ORDER = Broadcast("order", "a keyed digest of the order of your matched rows", MATCHED, _matches)
MATCHING = (IDS, HASHES, ENCRYPTED, ORDER)
"""The messages of matching, in their order."""


class Card(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The message of a party to all others before rows are matched."""

    kind: Literal["integers", "text"]
    rows: Annotated[int, msgspec.Meta(ge=0, le=MOST_ROWS)]
    nonce: Annotated[bytes, msgspec.Meta(max_length=64)]


def aligned(
    table: Table,
    names: Sequence[str],
    broadcast: SignedBroadcast,
    nonce: bytes,
    duplicates: Literal["error", "first"],
    psi: bool,
) -> Table:
    """The rows whose ids occur at every party, sorted by id. All parties compare the order before
    any continues.
    """
    table = align([table], duplicates=duplicates)[0][0]
    ids = table.ids
    assert ids is not None
    mine = Card("text" if ids.dtype.kind == "U" else "integers", len(ids), nonce)
    received = broadcast.all_gather(msgspec.msgpack.encode(mine), IDS.about)
    cards = broadcast.read_all(received, Card, IDS.about)
    counts = _counts(names, cards)
    key = _common_key(cards)
    hashes = _hashes(ids, key)
    if len({*_cut(hashes.tobytes())}) < len(hashes):
        raise InvalidData("two ids have the same keyed hash; start again.")
    if psi:
        local = _common_by_psi(ids, hashes, broadcast)
    else:
        local = _common_by_hash(hashes, broadcast)
    if not local.any():
        raise InvalidData(
            f"no id occurs at every party: {counts}. Check that all use the same column as id."
        )
    table = table.take_rows(np.flatnonzero(local))
    _compare_order(table, names, broadcast, key)
    return table


def _counts(names: Sequence[str], cards: Sequence[Card]) -> str:
    """The number and the type of the ids at each party, in words; refuses ids of two types."""
    counts = "; ".join(
        f"{name} has {card.rows} ({card.kind})" for name, card in zip(names, cards, strict=True)
    )
    if len({card.kind for card in cards}) > 1:
        raise InvalidData(
            f"ids are integers at some parties and text at others: {counts}. Convert them to one "
            "type."
        )
    return counts


def _common_key(cards: Sequence[Card]) -> bytes:
    """The key of the hashes, to which all parties contribute."""
    digests = b"".join(hashlib.sha256(card.nonce).digest() for card in cards)
    return hashlib.sha256(digests).digest()


def _compare_order(
    table: Table, names: Sequence[str], broadcast: SignedBroadcast, key: bytes
) -> None:
    """Compare the order of the rows with all parties."""
    order = hmac.digest(key, b"order" + _hashes(table.ids, key).tobytes(), "sha256")
    orders = broadcast.all_gather(order, ORDER.about)
    different = [name for name, theirs in zip(names, orders, strict=True) if theirs != orders[0]]
    if different:
        raise ProtocolError(
            f"the rows are in another order at {', '.join(different)} than at {names[0]}."
        )


def _hashes(ids: npt.NDArray[Any] | None, key: bytes) -> npt.NDArray[Any]:
    assert ids is not None
    made = b"".join(
        hmac.digest(key, element.encode(), "sha256")[:HASH_BYTES] for element in _elements(ids)
    )
    return np.frombuffer(made, f"V{HASH_BYTES}")


def _elements(ids: npt.NDArray[Any]) -> list[str]:
    """Ids as texts that keep numbers and texts apart."""
    kind = "t:" if ids.dtype.kind == "U" else "i:"
    return [kind + str(value) for value in ids.tolist()]


def _common_by_hash(hashes: npt.NDArray[Any], broadcast: SignedBroadcast) -> npt.NDArray[np.bool_]:
    def merge(parts: list[bytes]) -> bytes:
        common = {*_cut(parts[0])}
        for child, part in zip(broadcast.children, parts[1:], strict=True):
            common &= {*_received(part, broadcast.links.name(child))}
        # Sorted by hash: the order tells nothing about the rows.
        return b"".join(sorted(common))

    of_all = broadcast.gathered(hashes.tobytes(), HASHES.about, merge)
    common = {*_received(of_all, broadcast.name_above)}
    return np.array([one in common for one in _cut(hashes.tobytes())], bool)


def _received(joined: bytes, sender: str) -> list[bytes]:
    """The hashes that a neighbour sent."""
    if len(joined) % HASH_BYTES:
        raise ProtocolError(f"{sender} sent a truncated list of hashes.")
    return _cut(joined)


def _cut(joined: bytes) -> list[bytes]:
    return [joined[k : k + HASH_BYTES] for k in range(0, len(joined), HASH_BYTES)]


def _common_by_psi(
    ids: npt.NDArray[Any], hashes: npt.NDArray[Any], broadcast: SignedBroadcast
) -> npt.NDArray[np.bool_]:
    """Up the tree, each parent intersects with its children privately; down the tree, the root
    tells what is common.
    """
    elements, links = _elements(ids), broadcast.links
    mine = np.ones(len(ids), bool)
    for child in broadcast.children:
        known = np.flatnonzero(mine)
        common = _ask_psi(links, child, [elements[k] for k in known])
        mine[:] = False
        mine[known[common]] = True
    tag = Tag("study", 0, "common")
    if broadcast.parent is not None:
        _answer_psi(links, broadcast.parent, [elements[k] for k in np.flatnonzero(mine)])
        told_common = links.receive_bytes(broadcast.parent, tag)
    else:
        told_common = b"".join(sorted(_cut(hashes[mine].tobytes())))
    for child in broadcast.children:
        links.send_bytes(child, told_common, tag)
    common_hashes = {*_received(told_common, broadcast.name_above)}
    return np.array([one in common_hashes for one in _cut(hashes.tobytes())], bool)


def _ask_psi(links: GrpcMesh, child: int, elements: list[str]) -> npt.NDArray[np.intp]:
    """Which of these elements the child has too."""
    psi = _library()
    client = psi.client.CreateWithNewKey(True)
    links.send_bytes(
        child, client.CreateRequest(elements).SerializeToString(), Tag("study", 0, "psi request")
    )
    setup, response = psi.ServerSetup(), psi.Response()
    _parse(setup, links, child, "psi setup")
    _parse(response, links, child, "psi response")
    if not elements:
        return np.empty(0, np.intp)
    try:
        return np.array(sorted(client.GetIntersection(setup, response)), np.intp)
    except (RuntimeError, ValueError) as error:
        raise ProtocolError(
            f"the private set intersection with {links.name(child)} failed: {error}"
        ) from error


def _answer_psi(links: GrpcMesh, parent: int, elements: list[str]) -> None:
    psi = _library()
    server, request = psi.server.CreateWithNewKey(True), psi.Request()
    _parse(request, links, parent, "psi request")
    asked = len(request.encrypted_elements)
    # With the raw structure there are no false positives.
    setup = server.CreateSetupMessage(1e-9, max(asked, 1), elements, psi.DataStructure.RAW)
    links.send_bytes(parent, setup.SerializeToString(), Tag("study", 0, "psi setup"))
    response = server.ProcessRequest(request) if asked else psi.Response()
    links.send_bytes(parent, response.SerializeToString(), Tag("study", 0, "psi response"))


def _parse(message: Any, links: GrpcMesh, sender: int, about: str) -> None:
    """Receive a message of the private set intersection."""
    content = links.receive_bytes(sender, Tag("study", 0, about))
    try:
        message.ParseFromString(content)
    except Exception as error:  # protobuf's own class of errors
        raise ProtocolError(
            f"{about}: {links.name(sender)} sent an unexpected payload ({error})."
        ) from error


def _library() -> Any:
    try:
        import private_set_intersection.python as psi
    except ImportError as missing:
        raise MissingExtra("psi = true", "psi") from missing
    return psi
