"""Sums between organisations in which nobody sees a party's numbers: masks that cancel in the total.

    x as whole numbers, and one more: their sum   (`sums.ExactSums`)
      + mask(seed, t) for every party with a larger number, − mask(seed, t) for every one with a smaller   modulo 2¹⁹²

Each pair of parties has a secret seed from X25519, with keys that are made for one meeting and signed like all words
(`broadcast`); the pair confirms it before the first sum. A mask is AES-CTR under the seed, started at the number t of
the word. So whatever travels, up a tree or to a server, is uniformly random to everybody who lacks a seed of those it
comes from, and the sum over all is exact. No mask is used twice: t only grows, and a restart meets again.

The last number of a message is the sum of the others, so masks that do not cancel are found in every total.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from coterie.arrays import FloatArray
from coterie.errors import ProtocolError
from coterie.kernels import fixed_point
from coterie.transport.broadcast import SignedBroadcast
from coterie.transport.links import Tag
from coterie.transport.sums import ExactSums

SEED, CONFIRMATION = 16, 32
"""Bytes of a seed, and of the key with which a pair confirms it."""
CHUNK = 4096 * fixed_point.WORDS
"""Words of 64 bits that are masked at a time, so that they stay in the processor's cache."""
NOTHING = bytes(8 * CHUNK)


class MaskedSums(ExactSums):
    """The sums of one party: its messages leave masked, and what comes back is checked."""

    def __init__(self, me: int, seeds: Mapping[int, bytes]):
        """`seeds`: what this party has in common with each of the others."""
        super().__init__(len(seeds) + 1)
        self._ciphers = [Cipher(algorithms.AES(seeds[j]), modes.CTR(bytes(16))).encryptor() for j in sorted(seeds)]
        self._subtracted = sum(other < me for other in seeds)
        self._masks = np.empty((len(seeds), CHUNK), np.uint64)
        self._last = -1

    def encoded(self, message: FloatArray, tag: Tag) -> fixed_point.Integers:
        if tag.step <= self._last:
            raise ProtocolError(f"{tag}: a mask would be used twice.")
        self._last = tag.step
        integers = fixed_point.zeros(message.size + 1)
        numbers = integers[: -fixed_point.WORDS]
        fixed_point.accumulate(numbers, message)
        integers[-fixed_point.WORDS :] = fixed_point.sum_of(numbers)
        for cipher in self._ciphers:
            cipher.reset_nonce(tag.step.to_bytes(8, "big") + bytes(8))
        for start in range(0, integers.size, CHUNK):
            chunk = integers[start : start + CHUNK]
            for cipher, mask in zip(self._ciphers, self._masks, strict=True):
                draw(cipher, mask[: chunk.size])
            fixed_point.mask(chunk, self._masks, self._subtracted)
        return integers

    def decoded(self, total: npt.NDArray[Any], dtype: Any) -> FloatArray:
        numbers, check = total[: -fixed_point.WORDS], total[-fixed_point.WORDS :]
        if not np.array_equal(fixed_point.sum_of(numbers), check):
            raise ProtocolError(
                "masks do not cancel in a total: a party masked with other seeds, or changed what it passed on. Nobody "
                "can say which. Start again; if it stays, compare the versions of the program and the keys."
            )
        return super().decoded(numbers, dtype)


def draw(cipher: Any, mask: fixed_point.Integers) -> None:
    """Fill in the next words of a mask."""
    cipher.update_into(NOTHING if mask.size == CHUNK else NOTHING[: 8 * mask.size], mask.view(np.uint8).data)


def meet(broadcast: SignedBroadcast) -> MaskedSums:
    """Agree on a new seed with each of the others, and confirm it; a pair whose seeds differ is named, everywhere."""
    links, me = broadcast.links, broadcast.links.me
    mine = X25519PrivateKey.generate()
    raw = serialization.Encoding.Raw, serialization.PublicFormat.Raw
    public = broadcast.all_gather(mine.public_key().public_bytes(*raw), "masks")
    seeds, confirmations = {}, {}
    for other in range(broadcast.count):
        if other != me:
            seeds[other], confirmations[other] = _shared(mine, public, me, other, links.name(other))
    told = broadcast.all_gather(msgspec.msgpack.encode(confirmations), "seeds")
    try:
        said = [msgspec.msgpack.decode(one, type=dict[int, bytes]) for one in told]
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"seeds: a party sent something else ({error}).") from error
    pairs = combinations(range(broadcast.count), 2)
    apart = [pair for pair in pairs if not _alike(said[pair[0]].get(pair[1]), said[pair[1]].get(pair[0]))]
    if apart:
        named = ", ".join(f"{links.name(one)} and {links.name(other)}" for one, other in apart)
        raise ProtocolError(f"the seeds of {named} differ, so their masks would not cancel. Start again.")
    return MaskedSums(me, seeds)


def _shared(mine: X25519PrivateKey, public: list[bytes], me: int, other: int, name: str) -> tuple[bytes, bytes]:
    """The seed that I have in common with another party, and what confirms it without telling it."""
    try:
        secret = mine.exchange(X25519PublicKey.from_public_bytes(public[other]))
    except ValueError as error:
        raise ProtocolError(f"masks: {name} sent a key that is none ({error}).") from error
    about = b"coterie secure sums" + public[min(me, other)] + public[max(me, other)]
    material = HKDF(hashes.SHA256(), SEED + CONFIRMATION, salt=None, info=about).derive(secret)
    return material[:SEED], hmac.digest(material[SEED:], b"".join(public), "sha256")


def _alike(one: bytes | None, other: bytes | None) -> bool:
    return one is not None and other is not None and hmac.compare_digest(one, other)
