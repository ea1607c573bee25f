"""Secure sums between organisations (secure aggregation): masks hide the numbers of each party and
cancel in the aggregate.

    v = (x, 0) as whole numbers (`sums.ExactSums`)
      + mask(seed, t, h) for every party with a larger number, − mask(seed, t, h) for every one with
      a smaller   modulo 2¹⁹²
    c = Σ_j k_j(t) v_j + pad(t, party)    one more number; all parties but the root, which adds
                                          last, have its key

Each pair of parties has a secret seed from X25519. The parties make its keys for one session and
sign them like all broadcasts (`broadcast`). The pair confirms the seed before the first sum. A mask
is AES-CTR under a key of its own, HMAC(seed, (t, h)): t is the step number of the collective, h a
digest of all aggregates that this party received. Each message, up a tree or to a server, is
therefore uniformly random to every party that lacks a seed of its senders. The sum over all parties
is exact. No mask is used twice: t only grows, and a restart begins a new session.

If two honest parties received different aggregates, their h differ and the masks between them do
not cancel. The next sum is then uniformly random, also for a party that passes on all messages and
knows its own seeds. So no party can read what others compute at a point that it gave to them alone.
The last number of x is 0 at every party: each of them sees at once whether the masks cancel.

The root adds last. It receives the aggregate first, and could pass on a different one. Therefore
the root sends its own masked message to another party, the helper. The helper adds this message;
the root adds nothing. The others receive the whole numbers of the aggregate and the sum of all c.
They compute the same sum from the aggregate, with the key and all pads. An aggregate that differs
by less than 2³² passes the check with probability 2⁻⁶⁴, and so do masks that do not cancel. In
every session, the helper draws the key and encrypts it for each of the others, but not for the
root.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from coterie.errors import ProtocolError
from coterie.numerics.arrays import FloatArray
from coterie.numerics.kernels import fixed_point
from coterie.transport.broadcast import SignedBroadcast
from coterie.transport.links import Tag
from coterie.transport.sums import ExactSums

SEED, CONFIRMATION = 16, 32
"""Bytes of a seed, and of the key with which a pair confirms it."""
CHUNK = 4096 * fixed_point.WORDS
"""Number of 64-bit integers masked at a time, so that they stay in the processor's cache."""
NOTHING = bytes(8 * CHUNK)
ONCE = bytes(12)
"""The nonce of a key that encrypts one message only."""


class MasksApart(ProtocolError):
    """Masks do not cancel: the parties received different aggregates, or masked with other seeds.
    All parties find it in the same aggregate.
    """


class MaskedSums(ExactSums):
    """The sums of one party. It masks the messages that it sends, and checks the aggregates that it
    receives.
    """

    def __init__(self, me: int, seeds: Mapping[int, bytes]):
        """Create the sums. `seeds` has the secret seed that this party shares with each other
        party.
        """
        super().__init__(len(seeds) + 1)
        self._seeds = [seeds[j] for j in sorted(seeds)]
        self._subtracted = sum(other < me for other in seeds)
        self._masks = np.empty((len(seeds), CHUNK), np.uint64)
        self._last = -1
        self._me = me
        self._others = sorted(seeds)
        self._check: Check | None = None

    def check_with(self, key: bytes | None, root: int, helper: int) -> None:
        """Check aggregates with this key, which the root does not have. `key` is None at the
        root.
        """
        self.root = root
        self.helper = helper
        self._check = (
            None if key is None else Check(key, [j for j in (self._me, *self._others) if j != root])
        )

    def encoded(self, message: FloatArray, tag: Tag, heard: bytes = b"") -> fixed_point.Integers:
        if tag.step <= self._last:
            raise ProtocolError(f"{tag}: a mask would be used twice.")
        self._last = tag.step
        integers = fixed_point.zeros(message.size + 2)
        numbers = integers[: -fixed_point.WORDS]
        check = integers[-fixed_point.WORDS :]
        fixed_point.accumulate(numbers[: -fixed_point.WORDS], message)
        masked = numbers
        if self.root is None:
            check[:] = fixed_point.sum_of(numbers)
            masked = integers
        ciphers = [mask_cipher(seed, tag.step, heard) for seed in self._seeds]
        for start in range(0, masked.size, CHUNK):
            chunk = masked[start : start + CHUNK]
            for cipher, mask in zip(ciphers, self._masks, strict=True):
                draw(cipher, mask[: chunk.size])
            fixed_point.mask(chunk, self._masks, self._subtracted)
        if self._check is not None:
            check[:] = self._check.of(numbers, tag.step)
            fixed_point.add(check, self._check.pad(tag.step, self._me))
        return integers

    def absorb(self, mine: fixed_point.Integers, root: npt.NDArray[Any]) -> None:
        """At the helper: add the masked message of the root to the helper's own, in place."""
        assert self._check is not None, "the helper has the key"
        fixed_point.add(mine, root)
        fixed_point.add(
            mine[-fixed_point.WORDS :], self._check.of(root[: -fixed_point.WORDS], self._last)
        )

    def _holds(self, numbers: npt.NDArray[Any], check: npt.NDArray[Any]) -> bool:
        """Return whether the check number of an aggregate is right, as far as this party can verify
        it.
        """
        if self.root is None:
            return np.array_equal(fixed_point.sum_of(numbers), check)
        return self._check is None or np.array_equal(
            self._check.of_total(numbers, self._last), check
        )

    def decoded(self, total: npt.NDArray[Any], dtype: Any) -> FloatArray:
        numbers = total[: -fixed_point.WORDS]
        check = total[-fixed_point.WORDS :]
        witness = numbers[-fixed_point.WORDS :]
        if not self._holds(numbers, check):
            raise ProtocolError(
                "masks do not cancel in a total: a party masked with other seeds, or changed what "
                "it passed on. No number can be read from it. Start again; if it stays, compare "
                "the versions of the program and the keys."
            )
        if witness.any():
            raise MasksApart(
                "masks do not cancel in a total: a party passed on different sums before, or "
                "masked with other seeds. No number can be read from it. Start again; if it "
                "stays, compare the versions of the program and the keys."
            )
        return super().decoded(numbers[: -fixed_point.WORDS], dtype)


class Check:
    """The check numbers of all parties except the root, which does not have the key."""

    def __init__(self, key: bytes, parties: Sequence[int]):
        self._keys, self._pads = (
            Cipher(algorithms.AES(part), modes.CTR(bytes(16))).encryptor()
            for part in (key[:SEED], key[SEED:])
        )
        self._parties = parties

    def of(self, numbers: npt.NDArray[Any], step: int) -> fixed_point.Integers:
        """Return Σ k_j v_j, with the keys of that step."""
        self._keys.reset_nonce(step.to_bytes(8, "big") + bytes(8))
        keys = np.frombuffer(
            self._keys.update(bytes(8 * (numbers.size // fixed_point.WORDS))), np.uint64
        )
        found: fixed_point.Integers = fixed_point.keyed_sum_of(numbers, keys)
        return found

    def pad(self, step: int, party: int) -> fixed_point.Integers:
        """Return the pad that hides the check number of that party from the root."""
        self._pads.reset_nonce(step.to_bytes(8, "big") + party.to_bytes(4, "big") + bytes(4))
        return np.frombuffer(self._pads.update(bytes(8 * fixed_point.WORDS)), np.uint64)

    def of_total(self, numbers: npt.NDArray[Any], step: int) -> fixed_point.Integers:
        """Return the sum that all check numbers must have if `numbers` is the aggregate."""
        found = self.of(numbers, step)
        for party in self._parties:
            fixed_point.add(found, self.pad(step, party))
        return found


def mask_cipher(seed: bytes, step: int, heard: bytes) -> Any:
    """Return the stream of the mask of a pair at that step, after the aggregates with that
    digest.
    """
    key = hmac.digest(seed, step.to_bytes(8, "big") + heard, "sha256")[:SEED]
    return Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()


def draw(cipher: Any, mask: fixed_point.Integers) -> None:
    """Fill an array with the next integers of a mask."""
    cipher.update_into(
        NOTHING if mask.size == CHUNK else NOTHING[: 8 * mask.size], mask.view(np.uint8).data
    )


def meet(broadcast: SignedBroadcast) -> MaskedSums:
    """Agree on a new seed with each other party, and confirm it. If the seeds of a pair differ, the
    error names the pair at every party.
    """
    links = broadcast.links
    me = broadcast.links.me
    mine = X25519PrivateKey.generate()
    raw = serialization.Encoding.Raw, serialization.PublicFormat.Raw
    public = broadcast.all_gather(mine.public_key().public_bytes(*raw), "masks")
    seeds = {}
    confirmations = {}
    for other in range(broadcast.count):
        if other != me:
            seeds[other], confirmations[other] = _shared(mine, public, me, other, links.name(other))
    replies = broadcast.all_gather(msgspec.msgpack.encode(confirmations), "seeds")
    confirmed = broadcast.read_all(replies, dict[int, bytes], "seeds")
    pairs = combinations(range(broadcast.count), 2)
    apart = [
        pair
        for pair in pairs
        if not _alike(confirmed[pair[0]].get(pair[1]), confirmed[pair[1]].get(pair[0]))
    ]
    if apart:
        named = ", ".join(f"{links.name(one)} and {links.name(other)}" for one, other in apart)
        raise ProtocolError(
            f"the seeds of {named} differ, so their masks would not cancel. Start again."
        )
    sums = MaskedSums(me, seeds)
    sums.check_with(_check_key(broadcast, seeds), broadcast.root, broadcast.first_child)
    return sums


def _check_key(broadcast: SignedBroadcast, seeds: Mapping[int, bytes]) -> bytes | None:
    """Return the key for check numbers. The helper draws it, and all parties except the root
    receive it.
    """
    me = broadcast.links.me
    root = broadcast.root
    helper = broadcast.first_child
    mine = secrets.token_bytes(2 * SEED)
    sealed = {}
    if me == helper:
        sealed = {
            j: _sealing(seed).encrypt(ONCE, mine, None) for j, seed in seeds.items() if j != root
        }
    reply = broadcast.all_gather(msgspec.msgpack.encode(sealed), "check keys")[helper]
    if me in (root, helper):
        return mine if me == helper else None
    try:
        return _sealing(seeds[helper]).decrypt(
            ONCE, msgspec.msgpack.decode(reply, type=dict[int, bytes])[me], None
        )
    except (msgspec.MsgspecError, KeyError, ValueError, InvalidTag) as error:
        raise ProtocolError(
            f"check keys: {broadcast.links.name(helper)} sent no key for the check of sums that "
            f"{broadcast.links.name(me)} can read. Start again."
        ) from error


def _sealing(seed: bytes) -> AESGCM:
    """Return a cipher for one message between a pair of parties."""
    return AESGCM(hmac.digest(seed, b"coterie check key", "sha256")[:SEED])


def _shared(
    mine: X25519PrivateKey, public: list[bytes], me: int, other: int, name: str
) -> tuple[bytes, bytes]:
    """Return the seed that this party shares with another party, and a value that confirms the seed
    without revealing it.
    """
    try:
        secret = mine.exchange(X25519PublicKey.from_public_bytes(public[other]))
    except ValueError as error:
        raise ProtocolError(f"masks: {name} sent a key that is none ({error}).") from error
    about = b"coterie secure sums" + public[min(me, other)] + public[max(me, other)]
    material = HKDF(hashes.SHA256(), SEED + CONFIRMATION, salt=None, info=about).derive(secret)
    return material[:SEED], hmac.digest(material[SEED:], b"".join(public), "sha256")


def _alike(one: bytes | None, other: bytes | None) -> bool:
    return one is not None and other is not None and hmac.compare_digest(one, other)
