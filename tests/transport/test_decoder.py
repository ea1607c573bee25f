"""The decoder of frames: whatever comes in, out comes a frame that says what it is, or a typed
error, and no memory.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import tracemalloc
import zlib
from collections import Counter

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from coterie.errors import ProtocolError
from coterie.transport.frames import Header, Kind, decode, encode

pytestmark = pytest.mark.chaos

CAP = 4096
NO_SHRINKING = (Phase.explicit, Phase.generate)
TEXTS = ["", "run", "x" * 80, "x" * 81, "\ud7ff\0"]
NUMBERS = [-(2**63), -1, 0, 1, 4, 5, 6, 2**40, 2**61, 2**62, 2**63, 2**64 - 1]
ODD = [
    *TEXTS,
    *NUMBERS,
    None,
    True,
    0.5,
    b"<f8",
    [],
    [0],
    [2**40, 2**40],
    [1] * 4,
    {},
    "<f8",
    "<f4",
    "|u1",
    "|O",
    ">f8",
]
"""What may stand in a place of a header."""


def genuine(kind=Kind.MESSAGE, size=5, dtype="<f8"):
    return encode(Header(kind, "run", 0, 1, 2, 3, "rounds", 4, "Sum", ""), np.ones(size, dtype))


GENUINE = [
    genuine(kind, size, dtype)
    for kind in Kind
    for size in (0, 1, 5, 20)
    for dtype in ("<f8", "<f4", "|u1")
]
FIELDS = list(
    msgspec.structs.astuple(Header(Kind.MESSAGE, "run", 0, 1, 2, 3, "rounds", 4, "Sum", ""))
)


def changed(frame, script):
    """The frame after a few bytes were changed, cut out or put in, as four bytes a time say: what,
    where, with what.
    """
    frame = bytearray(frame)
    for k in range(0, len(script) - 3, 4):
        what, high, low, value = script[k : k + 4]
        where = (256 * high + low) % (len(frame) + 1)
        if what % 4 == 0:
            frame[where : where + 1] = bytes([value])
        elif what % 4 == 1:
            del frame[where : where + value % 9]
        elif what % 4 == 2:
            frame[where:where] = script[: value % 9]
        else:
            del frame[where:]
    return bytes(frame)


def sealed(header, payload):
    """A frame with the right magic, lengths and checksum around a header that is any bytes."""
    prefix = struct.pack(
        "<4sIII", b"COT2", len(header), len(payload), zlib.crc32(payload, zlib.crc32(header))
    )
    return prefix + header + bytes(-(len(prefix) + len(header)) % 64) + payload


def sealed_nonsense(changes, missing, payload):
    """The same around a header in which some places were filled with nonsense, and the last ones
    are missing.
    """
    fields = [*FIELDS[:-1], (len(payload),)]
    for place, value in changes:
        fields[place : place + 1] = [value]
    return sealed(msgspec.msgpack.encode(fields[: len(fields) - missing]), payload)


# Few draws for each example: a hundred thousand of them then take minutes.
CHANGES = st.lists(st.tuples(st.integers(0, len(FIELDS)), st.sampled_from(ODD)), max_size=3)
FRAMES = st.one_of(
    st.binary(max_size=300),
    st.binary(min_size=12, max_size=200).map(lambda rest: b"COT2" + rest),
    st.builds(changed, st.sampled_from(GENUINE), st.binary(max_size=16)),
    st.builds(sealed_nonsense, CHANGES, st.integers(0, 2), st.binary(max_size=64)),
    st.builds(sealed, st.binary(max_size=80), st.binary(max_size=64)),
)


def check(frame):
    """Whether it is taken in; it must be what it says, or refused without much memory."""
    tracemalloc.start()
    try:
        header, payload = decode(frame, CAP)
    except ProtocolError:
        return False
    finally:
        assert tracemalloc.get_traced_memory()[1] < CAP + 20_000
        tracemalloc.stop()
    assert payload.nbytes <= CAP
    assert payload.dtype.str in ("<f8", "<f4", "|u1")
    assert payload.shape == header.shape
    assert not payload.flags.writeable
    # What was taken in says the same when it is sent on.
    again, same = decode(encode(header, payload), CAP)
    assert again == header
    assert same.tobytes() == payload.tobytes()
    return True


def fuzz(examples):
    taken = Counter()

    @settings(
        max_examples=examples,
        suppress_health_check=list(HealthCheck),
        database=None,
        deadline=None,
        phases=NO_SHRINKING,
    )
    @example(b"")
    @example(genuine())
    @given(FRAMES)
    def run(frame):
        taken[check(frame)] += 1

    run()
    # Enough were tried, and of both kinds.
    assert taken.total() >= examples
    assert min(taken[True], taken[False]) > examples / 20, taken


def test_genuine_frames_pass():
    assert all(check(genuine(kind, size)) for kind in Kind for size in (0, 1, 100))


def test_nothing_that_comes_in_breaks_the_decoder():
    fuzz(2000)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_nothing_that_comes_in_breaks_the_decoder_for_long():
    fuzz(100_000)


def test_a_changed_bit_is_always_noticed():
    frame = genuine(size=3)
    for k in range(8 * len(frame)):
        flipped = bytearray(frame)
        flipped[k // 8] ^= 1 << (k % 8)
        with pytest.raises(ProtocolError):
            decode(bytes(flipped), CAP)


@pytest.mark.parametrize("announced", [CAP + 1, 2**31, 2**32 - 1])
def test_sizes_are_checked_before_memory_is_taken(announced):
    header = msgspec.msgpack.encode(
        Header(Kind.MESSAGE, "run", 0, 1, 2, 3, dtype="<f8", shape=(announced // 8,))
    )
    frame = struct.pack("<4sIII", b"COT2", len(header), announced, 0) + header
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="at most 4096 are accepted"):
            decode(frame, CAP)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("dtype", ["object", ">i8", "complex128", "U3", "float16", "bool"])
def test_only_floats_and_bytes_are_sent(dtype):
    with pytest.raises(ProtocolError, match="float64 or float32"):
        encode(Header(Kind.MESSAGE, "run", 0, 1, 2, 3), np.zeros(2, dtype))


ATHERIS = """
import sys, resource
import atheris
with atheris.instrument_imports(include=["coterie.transport.frames"]):
    from coterie.transport.frames import decode
from coterie.errors import ProtocolError
resource.setrlimit(resource.RLIMIT_DATA, (2**31, 2**31))

def one(data):
    try:
        decode(data, 4096)
    except ProtocolError:
        pass

atheris.Setup(sys.argv, one)
atheris.Fuzz()
"""


@pytest.mark.slow
def test_a_fuzzer_that_watches_the_branches_finds_nothing(tmp_path):
    pytest.importorskip("atheris", reason="atheris is not installed")
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for k, kind in enumerate(Kind):
        (corpus / str(k)).write_bytes(genuine(kind, k))
    (tmp_path / "fuzz.py").write_text(ATHERIS)
    command = [
        sys.executable,
        str(tmp_path / "fuzz.py"),
        "-runs=100000",
        "-max_len=600",
        "-rss_limit_mb=600",
        str(corpus),
    ]
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=280, cwd=tmp_path, env=dict(os.environ)
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert "Done 100000 runs" in ran.stderr
