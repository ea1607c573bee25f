"""The decoder of frames: whatever comes in, out comes a frame that says what it is, or a typed error, and no memory."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import tracemalloc

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from coterie.carriers.frames import Header, Kind, decode, encode
from coterie.errors import ProtocolError

pytestmark = pytest.mark.chaos

CAP = 4096
NO_SHRINKING = (Phase.explicit, Phase.generate)
WORD = st.integers(0, 2**32 - 1)
TEXT = st.text(max_size=90)
NUMBER = st.integers(-5, 2**63 - 1)


def genuine(kind=Kind.LETTER, size=5, dtype="<f8"):
    return encode(Header(kind, "run", 0, 1, 2, 3, "rounds", 4, "Sum", ""), np.ones(size, dtype))


@st.composite
def changed(draw):
    """A genuine frame after a few bytes were changed, cut out or put in."""
    frame = bytearray(
        genuine(draw(st.sampled_from(Kind)), draw(st.integers(0, 20)), draw(st.sampled_from(["<f8", "<f4", "|u1"])))
    )
    for _ in range(draw(st.integers(0, 4))):
        where = draw(st.integers(0, max(len(frame) - 1, 0)))
        change = draw(st.sampled_from(["flip", "cut", "insert", "truncate"]))
        if change == "flip" and frame:
            frame[where] ^= draw(st.integers(1, 255))
        elif change == "cut":
            del frame[where : where + draw(st.integers(1, 9))]
        elif change == "insert":
            frame[where:where] = draw(st.binary(max_size=9))
        else:
            del frame[where:]
    return bytes(frame)


@st.composite
def sealed_nonsense(draw):
    """A frame with the right magic, lengths and checksum around a header that somebody made up."""
    import zlib

    fields = [
        draw(st.one_of(NUMBER, TEXT)),
        draw(TEXT),
        *(draw(st.one_of(NUMBER, TEXT, st.none())) for _ in range(4)),
        draw(TEXT),
        draw(NUMBER),
        draw(TEXT),
        draw(TEXT),
        draw(st.sampled_from(["<f8", "<f4", "|u1", "|O", ">f8", "<U9", "<f16", ""])),
        draw(st.lists(st.one_of(NUMBER, st.sampled_from([0, 1, 2**40, 2**61])), max_size=5)),
        *draw(st.lists(TEXT, max_size=1)),
    ]
    header = draw(st.one_of(st.just(msgspec.msgpack.encode(fields)), st.binary(max_size=80)))
    payload = draw(st.binary(max_size=64))
    announced = draw(st.one_of(st.just(len(payload)), WORD))
    checksum = zlib.crc32(payload, zlib.crc32(header))
    prefix = struct.pack("<4sIII", b"COT1", draw(st.one_of(st.just(len(header)), WORD)), announced, checksum)
    body = prefix + header
    return body + bytes(-len(body) % 64) + payload


@st.composite
def headed(draw):
    """Any lengths behind the right magic."""
    return b"COT1" + struct.pack("<III", draw(WORD), draw(WORD), draw(WORD)) + draw(st.binary(max_size=200))


def check(frame):
    try:
        header, payload = decode(frame, CAP)
    except ProtocolError:
        return False
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
    @settings(max_examples=examples, suppress_health_check=list(HealthCheck), database=None, phases=NO_SHRINKING)
    @example(b"")
    @example(genuine())
    @given(st.one_of(st.binary(max_size=300), changed(), sealed_nonsense(), headed()))
    def run(frame):
        check(frame)

    run()


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
    header = msgspec.msgpack.encode(Header(Kind.LETTER, "run", 0, 1, 2, 3, dtype="<f8", shape=(announced // 8,)))
    frame = struct.pack("<4sIII", b"COT1", len(header), announced, 0) + header
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
        encode(Header(Kind.LETTER, "run", 0, 1, 2, 3), np.zeros(2, dtype))


ATHERIS = """
import sys, resource
import atheris
with atheris.instrument_imports(include=["coterie.carriers.frames"]):
    from coterie.carriers.frames import decode
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
    ran = subprocess.run(command, capture_output=True, text=True, timeout=280, cwd=tmp_path, env=dict(os.environ))
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert "Done 100000 runs" in ran.stderr
