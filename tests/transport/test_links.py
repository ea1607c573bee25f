"""Links between processes: messages arrive once and in order, whatever the network does, and
strangers stay outside.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import grpc
import msgspec
import numpy as np
import pytest
from cryptography import x509

from coterie.errors import CorruptFile, InvalidInput, PartyLost, ProtocolError
from coterie.networks import path
from coterie.transport.frames import MAGIC, PREFIX, Header, Kind, decode, encode
from coterie.transport.grpc_mesh import METHOD, GrpcMesh, Restarted
from coterie.transport.keys import load_keys, make_authority, make_request, provide_all, sign
from coterie.transport.links import Stop, Tag
from coterie.transport.point_to_point import PointToPoint
from coterie.transport.security import MutualTLS, TrustedCluster, server_name
from tests.harness.shaken import disconnect

pytestmark = pytest.mark.chaos

NAMES = ["ada", "bea", "cyd"]
PATH = {0: [1], 1: [0, 2], 2: [1]}
SUM = Tag("rounds", 0, "Sum")


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    made = provide_all(folder, "study", [*NAMES, "dan"])
    return {name: load_keys(path, name) for name, path in made.items()}


@pytest.fixture
def opened():
    """GrpcMesh that are closed when the test is over."""
    made: list[GrpcMesh] = []
    yield made
    for streams in made:
        streams.deadline = 0.2
        streams.close()


def places(opened, edges=PATH, security=None, deadline=5.0, connect=True, **more):
    made = [
        GrpcMesh(
            j,
            edges[j],
            "run",
            security[NAMES[j]] if security else TrustedCluster(),
            deadline,
            names=NAMES,
            **more,
        )
        for j in edges
    ]
    opened += made
    if connect:
        for streams in made:
            streams.connect([other.address for other in made])
    return made


# -- conversations ---------------------------------------------------------------------------------


@pytest.mark.parametrize("tls", [False, True])
def test_letters_arrive_once_in_order_and_read_only(opened, keys, tls):
    a, b, c = places(opened, security=keys if tls else None)
    messages = [
        np.arange(6.0).reshape(2, 3),
        np.ones(3, np.float32),
        np.empty(0),
        np.array(4.0),
        np.zeros(300_000),
    ]
    for step, message in enumerate(messages):
        for here, there in ((a, 1), (b, 0), (b, 2), (c, 1)):
            here.send(there, message, Tag("rounds", step, "Mix"))
    for step, message in enumerate(messages):
        for there, source in ((b, 0), (a, 1), (c, 1), (b, 2)):
            received = there.receive(source, Tag("rounds", step, "Mix"))
            assert received.dtype == message.dtype
            assert received.shape == message.shape
            assert (received == message).all()
            assert not received.flags.writeable
    assert not a.rejected + b.rejected + c.rejected


def test_a_letter_may_be_changed_after_it_was_sent(opened):
    a, b, _ = places(opened)
    x = np.ones(3)
    a.send(1, x, SUM)
    x[:] = 7
    assert b.receive(0, SUM).tolist() == [1, 1, 1]


def test_an_unexpected_letter_is_named_on_both_sides(opened):
    a, b, _ = places(opened)
    a.send(1, np.ones(1), Tag("rounds", 3, "Mix"))
    with pytest.raises(
        ProtocolError,
        match=r"ada sent Mix \(step 3, rounds\) where bea expects Sum \(step 3, proof\)",
    ):
        b.receive(0, Tag("proof", 3, "Sum"))


def test_published_letters_are_answered_without_the_agent(opened):
    a, b, _ = places(opened)
    assert b.ask(0, 0) is None
    a.publish(0, np.array([1.0, 2.0]))
    a.publish(7, np.array([5.0]))
    assert b.ask(0, 0).tolist() == [1, 2]
    assert b.ask(0, 7).tolist() == [5]
    with pytest.raises(InvalidInput, match="ada has no link to cyd"):
        a.ask(2, 2)


@pytest.mark.parametrize("tls", [False, True])
def test_dropped_connections_heal_without_loss(opened, keys, tls):
    a, b, _ = places(opened, security=keys if tls else None)
    rounds, total, cuts = 300, [0.0, 0.0], threading.Semaphore(0)

    def saw():
        """Cut while they talk: 12 times at each side."""
        for here, there in [(a, 1), (b, 0)] * 12:
            cuts.acquire()
            disconnect(here, there)

    def protocol(here, there, place):
        for t in range(rounds):
            here.send(there, np.array([t + place, 1.0]), Tag("rounds", t, "Sum"))
            total[place] += here.receive(there, Tag("rounds", t, "Sum"))[0]
            if t % 12 == place:
                cuts.release()

    with ThreadPoolExecutor() as pool:
        for done in [
            pool.submit(saw),
            pool.submit(protocol, a, 1, 0),
            pool.submit(protocol, b, 0, 1),
        ]:
            done.result()
    assert total == [sum(range(rounds)) + rounds, sum(range(rounds))]
    assert a.connections[1] > 3


# -- absence ---------------------------------------------------------------------------------------


def test_who_never_comes_is_named_and_everybody_is_told(opened):
    a, b = places(opened, {0: [1], 1: [0, 2]}, deadline=1.5)
    with pytest.raises(PartyLost, match=r"cyd sent no message for 1\.\d seconds") as direct:
        b.receive(2, SUM)
    b.close(str(direct.value), direct.value.party)
    with pytest.raises(PartyLost, match="cyd sent no message") as told:
        a.receive(1, SUM)
    assert direct.value.party == told.value.party == "cyd"


def test_a_busy_neighbour_is_not_lost(opened):
    a, b, _ = places(opened, deadline=0.4)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(a.receive, 1, SUM)
        time.sleep(1.0)
        b.send(0, np.ones(1), SUM)
        assert waiting.result() == [1]


def test_who_leaves_says_why(opened):
    a, b, _ = places(opened)
    b.close("its disk is full\x1b[2J")
    with pytest.raises(PartyLost, match=r"bea left the run: its disk is full\?\[2J$"):
        a.receive(1, SUM)


def test_letters_that_were_sent_arrive_before_the_end(opened):
    a, b, _ = places(opened)
    a.wait()
    for step in range(50):
        a.send(1, np.full(10_000, float(step)), Tag("rounds", step, "Sum"))
    a.close()
    assert [b.receive(0, Tag("rounds", step, "Sum"))[0] for step in range(50)] == list(range(50))


def test_after_a_restart_everybody_begins_again(opened):
    a, b, c = places(opened)
    for here, there in ((a, 1), (b, 0), (b, 2), (c, 1)):
        here.send(there, np.zeros(1), SUM)
    assert a.receive(1, SUM) == b.receive(2, SUM) == 0
    addresses = [a.address, b.address, c.address]
    disconnect(c, 1)
    c._closing.set()
    c._server.stop(0).wait()
    again = GrpcMesh(2, [1], "run", TrustedCluster(), 5.0, names=NAMES, listen=c.address)
    opened.append(again)
    again.connect(addresses)

    def rejoin(here, there):
        with pytest.raises(Restarted):
            [here.receive(there, SUM) for _ in range(9)]
        here.begin_again()
        here.send(there, np.full(1, 5.0 + here.me), SUM)
        return here.receive(there, SUM)[0]

    with ThreadPoolExecutor() as pool:
        ends = [pool.submit(rejoin, a, 1), pool.submit(rejoin, again, 1)]
        with pytest.raises(Restarted, match="cyd was started again"):
            b.receive(2, Tag("rounds", 1, "Sum"))
        b.begin_again()
        for place in (0, 2):
            b.send(place, np.full(1, 9.0), SUM)
        assert [b.receive(place, SUM)[0] for place in (0, 2)] == [5, 7]
        assert [end.result(10) for end in ends] == [9, 9]
    assert a.epoch == b.epoch == again.epoch == 1


# -- strangers -------------------------------------------------------------------------------------


def call(address, frames, security=None, name="ada"):
    """What a raw client hears in answer to those frames; `security` is a MutualTLS with None for
    what it lacks.
    """
    if security is None:
        channel = grpc.insecure_channel(address)
    else:
        tls = grpc.ssl_channel_credentials(security.authority, security.key, security.certificate)
        channel = grpc.secure_channel(
            address, tls, [("grpc.ssl_target_name_override", server_name(name))]
        )
    line = SimpleQueue()
    for frame in frames:
        line.put(frame)
    with channel:
        answers = []
        try:
            for answer in channel.stream_stream(METHOD)(iter(line.get, None), timeout=60):
                answers.append(answer)
        except grpc.RpcError as error:
            return answers, error.code()
        return answers, None


def hello(sender=1, run="run", **more):
    return encode(Header(Kind.HELLO, run, 0, sender, 0, 0, collective="rogue"), **more)


def stranger(kind, keys, tmp_path):
    if kind == "plaintext":
        return None
    if kind == "no certificate":
        return dataclasses.replace(keys["bea"], key=None, certificate=None)
    other = load_keys(provide_all(tmp_path, "other", NAMES)["bea"], "bea")
    return dataclasses.replace(other, authority=keys["bea"].authority)


@pytest.mark.parametrize("kind", ["plaintext", "no certificate", "other authority"])
def test_strangers_do_not_get_past_tls(opened, keys, tmp_path, kind):
    (a,) = places(opened, {0: [1]}, keys)
    answers, code = call(a.address, [hello()], stranger(kind, keys, tmp_path))
    assert answers == []
    assert code is grpc.StatusCode.UNAVAILABLE
    # No code of ours ran: nothing was even counted.
    assert not a.rejected
    assert not a.connections


def test_an_expired_certificate_is_refused_on_both_sides(opened, keys, tmp_path):
    folder = tmp_path / "keys"
    made = provide_all(folder, "study", NAMES)
    _, old = sign(
        folder / "coordinator", make_request(folder / "bea", "bea").read_bytes(), NAMES, days=-1
    )
    good = load_keys(made["ada"], "ada")
    (a,) = places(opened, {0: [1]}, {"ada": good})
    expired = MutualTLS((folder / "bea" / "key.pem").read_bytes(), old, good.authority)
    answers, code = call(a.address, [hello()], expired)
    assert (answers, code) == ([], grpc.StatusCode.UNAVAILABLE)
    assert not a.rejected
    # And as a server: the dialling side refuses it too, and never falls back to plaintext.
    server = GrpcMesh(0, [1], "run", expired, 1.0, names=["bea", "ada"])
    caller = GrpcMesh(1, [0], "run", good, 0.8, names=["bea", "ada"])
    opened += [server, caller]
    caller.connect([server.address, caller.address])
    with pytest.raises(ProtocolError, match="cannot prove that it is bea"):
        caller.wait()
    assert not server.connections
    assert not server.rejected


@pytest.mark.parametrize(
    ("certificate", "claims", "reason"),
    [
        ("cyd", 1, "wrong name"),
        ("dan", 3, "no neighbour"),
        ("bea", 0, "no neighbour"),
        ("bea", 99, "no neighbour"),
    ],
)
def test_a_party_cannot_speak_for_another(opened, keys, certificate, claims, reason):
    (a,) = places(opened, {0: [1, 2]}, keys)
    answers, code = call(a.address, [hello(claims)], keys[certificate])
    assert (answers, code) == ([], grpc.StatusCode.PERMISSION_DENIED)
    assert a.rejected == {reason: 1}
    assert not a.connections


def test_a_server_with_another_partys_certificate_is_not_talked_to(opened, keys):
    impostor = GrpcMesh(0, [1], "run", keys["cyd"], 1.0, names=NAMES)
    b = GrpcMesh(1, [0], "run", keys["bea"], 3600.0, names=NAMES)
    opened += [impostor, b]
    b.connect([impostor.address, b.address])
    with pytest.raises(ProtocolError, match="cannot prove that it is ada"):
        b.wait()
    assert not impostor.connections


def test_who_says_nothing_is_not_waited_for(opened, keys):
    (a,) = places(opened, {0: [1]}, keys, deadline=0.3)
    answers, code = call(a.address, [], keys["bea"])
    assert (answers, code) == ([], grpc.StatusCode.CANCELLED)


def test_who_is_no_neighbour_is_refused_before_it_says_anything(opened, keys):
    (a,) = places(opened, {0: [1]}, keys, deadline=60)
    answers, code = call(a.address, [], keys["cyd"])
    assert (answers, code) == ([], grpc.StatusCode.PERMISSION_DENIED)
    assert a.rejected == {"no neighbour": 1}


def message(sequence, epoch=0, run="run", sender=1, received=0, kind=Kind.MESSAGE, size=2):
    return encode(
        Header(kind, run, epoch, sender, sequence, received, "rounds", 0, "Sum"),
        np.full(size, 66.0),
    )


def flipped(frame):
    changed = bytearray(frame)
    changed[-3] ^= 4
    return bytes(changed)


ATTACKS = {
    "tampered": ([flipped(message(1))], "malformed"),
    "truncated": ([message(1)[:-1]], "malformed"),
    "nonsense": ([b"nonsense"], "malformed"),
    "too large": ([message(1, size=3000)], "malformed"),
    "early": ([message(2)], "out of order"),
    "heard the future": ([message(1, received=5)], "out of order"),
    "another run": ([message(1, run="old")], "stale"),
    "another epoch": ([message(1, epoch=3)], "stale"),
    "another sender": ([message(1, sender=2)], "stale"),
    "hello again": ([encode(Header(Kind.HELLO, "run", 0, 1, 1, 0))], "malformed"),
    "leave of another run": ([message(1, run="old", kind=Kind.LEAVE)], "stale"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_cannot_be_is_refused_counted_and_changes_nothing(opened, keys, attack):
    frames, reason = ATTACKS[attack]
    a, b, _ = places(opened, security=keys, connect=False, largest=20_000)
    call(a.address, [hello(), *frames], keys["bea"])
    assert a.rejected[reason] == 1
    assert a._edges[1].received == 0
    # The rogue used bea's own key, so ada takes the real bea for a restart; then all is as if
    # nothing had happened.
    for streams in (a, b):
        streams.connect([a.address, b.address, ""])
    with pytest.raises(Restarted):
        a.receive(1, SUM)
    a.begin_again()
    with pytest.raises(Restarted):
        b.receive(0, SUM)
    b.begin_again()
    b.send(0, np.ones(2), SUM)
    assert a.receive(1, SUM).tolist() == [1, 1]


def test_a_letter_that_comes_twice_counts_once(opened, keys):
    (a,) = places(opened, {0: [1]}, keys)
    call(a.address, [hello(), message(1), message(1), message(2), message(1)], keys["bea"])
    assert a.rejected == {"repeated": 2}
    assert a._edges[1].received == 2
    assert [a.receive(1, SUM)[0] for _ in range(2)] == [66, 66]
    assert a._edges[1]._inbox.empty()


def test_a_message_beyond_the_cap_ends_the_connection_before_it_is_read(opened, keys):
    (a,) = places(opened, {0: [1]}, keys, largest=20_000)
    _, code = call(a.address, [hello(), message(1, size=100_000)], keys["bea"])
    assert code in (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.UNKNOWN,
        None,
    )
    assert a._edges[1].received == 0
    with pytest.raises(InvalidInput, match="at most 20000"):
        a.send(1, np.zeros(3000), SUM)


def test_parties_that_mean_different_studies_see_the_difference(opened):
    texts = [
        "loss = squared\ntol = 1e-6\ncoterie = 0.1.0",
        "loss = squared\ntol = 1e-4\ncoterie = 0.2.0",
    ]
    made = [
        GrpcMesh(j, [1 - j], "run", TrustedCluster(), 3.0, names=NAMES[:2], agreement=text)
        for j, text in enumerate(texts)
    ]
    opened += made
    for streams in made:
        streams.connect([other.address for other in made])
    for streams, (mine, other) in zip(made, (("1e-6", "1e-4"), ("1e-4", "1e-6")), strict=True):
        with pytest.raises(ProtocolError, match="do not agree on the study") as refused:
            streams.receive(1 - streams.me, SUM)
        shown = str(refused.value).splitlines()
        assert f"-tol = {mine}" in shown
        assert f"+tol = {other}" in shown
        assert sum("coterie = 0." in line for line in shown) == 2
        assert not any("loss" in line for line in shown)


# -- keys ------------------------------------------------------------------------------------------


def test_certificates_suit_clocks_that_are_an_hour_apart(tmp_path):
    for name, folder in provide_all(tmp_path, "study", NAMES).items():
        certificate = x509.load_pem_x509_certificate((folder / "certificate.pem").read_bytes())
        early = dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)
        assert certificate.not_valid_before_utc <= early
        assert certificate.not_valid_after_utc >= early + dt.timedelta(days=300)
        assert server_name(name) == f"{name}.coterie"


def test_any_name_has_a_place_in_a_certificate():
    odd = ["Ada", "ada", "Jürgen & Töchter", "x" * 60, "party 1", "-a"]
    made = [server_name(name) for name in odd]
    assert len(set(made)) == len(odd)
    assert all(len(name) < 64 and name.isascii() and " " not in name for name in made)


def test_private_keys_stay_and_are_private(tmp_path):
    request = make_request(tmp_path / "bea", "bea")
    make_authority(tmp_path / "coordinator", "study")
    assert (tmp_path / "bea" / "key.pem").stat().st_mode & 0o077 == 0
    assert (tmp_path / "coordinator" / "authority-key.pem").stat().st_mode & 0o077 == 0
    assert b"PRIVATE" not in request.read_bytes()
    before = (tmp_path / "bea" / "key.pem").read_bytes()
    make_request(tmp_path / "bea", "bea")
    assert (tmp_path / "bea" / "key.pem").read_bytes() == before
    party, certificate = sign(tmp_path / "coordinator", request.read_bytes(), NAMES)
    assert party == "bea"
    assert b"PRIVATE" not in certificate


@pytest.mark.parametrize(
    ("spoil", "error", "message"),
    [
        (lambda f: (f / "bea" / "key.pem").unlink(), InvalidInput, "key.pem cannot be read"),
        (lambda f: (f / "bea" / "certificate.pem").unlink(), InvalidInput, ("certificate.pem cannot be "
            "read")),
        (lambda f: (f / "bea" / "key.pem").write_bytes(b"oops"), CorruptFile, "damaged"),
        (lambda f: (f / "ada" / "key.pem").replace(f / "bea" / "key.pem"), InvalidInput, "another key"),
        (lambda f: [(f / "ada" / n).replace(f / "bea" / n) for n in ("key.pem", "certificate.pem")], InvalidInput,
         "not that of 'bea'"),
        (lambda f: (make_authority(f / "x", "x"), (f / "x" / "authority.pem").replace(f / "bea" / "authority.pem")),
         InvalidInput, "not signed by the authority"),
        (lambda f: (f / "bea" / "certificate.pem").write_bytes(
            sign(f / "coordinator", (f / "bea" / "request.pem").read_bytes(), NAMES, days=-2)[1]),
         InvalidInput, "is valid from"),
    ],
)  # fmt: skip
def test_keys_that_cannot_serve_are_refused_at_once(tmp_path, spoil, error, message):
    provide_all(tmp_path, "study", NAMES)
    load_keys(tmp_path / "bea", "bea")
    spoil(tmp_path)
    with pytest.raises(error, match=message):
        load_keys(tmp_path / "bea", "bea")


def test_only_parties_of_the_study_are_signed_for(tmp_path):
    make_authority(tmp_path, "study")
    request = make_request(tmp_path / "dan", "dan").read_bytes()
    with pytest.raises(
        InvalidInput,
        match="'dan' asks for a TLS certificate, but the study's parties are ada, bea, cyd",
    ):
        sign(tmp_path, request, NAMES)
    with pytest.raises(CorruptFile, match="not a signing request"):
        sign(tmp_path, b"hello", NAMES)


def test_frames_survive_the_round_trip():
    header = Header(Kind.MESSAGE, "run", 1, 2, 3, 4, "rounds", 5, "Sum")
    x = np.arange(6.0).reshape(2, 3)
    frame = encode(header, x)
    assert (len(frame) - x.nbytes) % 64 == 0
    found, y = decode(frame)
    assert (x == y).all()
    assert (found.run, found.epoch, found.sender, found.sequence, found.received) == (
        "run",
        1,
        2,
        3,
        4,
    )
    assert (found.purpose, found.step, found.collective, found.dtype, found.shape) == (
        "rounds",
        5,
        "Sum",
        "<f8",
        (2, 3),
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("stop_at", -1),
        ("stop_at", 2**62),
        ("stop_at", 1.5),
        ("stop_at", math.nan),
        ("stop_reason", 3),
        ("stop_reason", -1),
        ("shape", (-1,)),
        ("shape", (math.inf,)),
        ("shape", (1.0,)),
        ("shape", (1, 1, 1, 0)),
        ("shape", (2**61, 0)),
        ("shape", (7,)),
    ],
)
def test_stops_and_shapes_that_cannot_be_are_refused(field, value):
    """Also with a checksum that is right: whoever is in the study can send what it likes."""
    fields = msgspec.structs.asdict(Header(Kind.MESSAGE, "run", 0, 1, 2, 3, dtype="<f8")) | {
        field: value
    }
    header = msgspec.msgpack.encode(list(fields.values()))
    frame = PREFIX.pack(MAGIC, len(header), 0, zlib.crc32(header)) + header
    with pytest.raises(ProtocolError):
        decode(frame + bytes(-len(frame) % 64))
    decode(
        encode(
            Header(Kind.MESSAGE, "run", 0, 1, 2, 3, stop_at=2**53 + 1, stop_reason=2),
            np.empty((2**24 + 1, 0)),
        )
    )


def test_the_stop_is_heard_with_the_next_letter(opened):
    a, b, c = places(opened)
    a.stop = Stop(2**53 + 1, 2)
    a.send(1, np.ones(3, np.float32), SUM)
    assert b.stop == Stop(0, 0)
    assert b.receive(0, SUM).tolist() == [1, 1, 1]
    assert b.stop == a.stop
    b.stop, a.stop = Stop(4, 1), Stop(9, 2)
    a.send(1, np.ones(3), SUM)
    b.receive(0, SUM)
    assert b.stop == Stop(4, 1), "the first one counts"
    assert c.stop.reason == 0


def test_a_message_that_is_not_numbers_is_refused(opened):
    a, b, _ = places(opened)
    collectives = PointToPoint(path(3), a, range(3), 0, NAMES)
    b.send(0, np.ones(3, np.uint8), SUM)
    with pytest.raises(ProtocolError, match="unexpected payload of type uint8"):
        collectives.receive(1, SUM)


def test_numbers_are_refused_where_packed_bits_are_expected(opened):
    a, b, _ = places(opened)
    collectives = PointToPoint(path(3), a, range(3), 0, NAMES)
    b.send(0, np.ones(3, np.uint8), SUM)
    assert collectives.receive_bytes(1, SUM).tolist() == [1, 1, 1]
    b.send(0, np.ones(3), SUM)
    with pytest.raises(ProtocolError, match="unexpected payload of type float64"):
        collectives.receive_bytes(1, SUM)


def test_certificates_end_with_their_authority(tmp_path):
    folder = tmp_path / "coordinator"
    authority = x509.load_pem_x509_certificate(make_authority(folder, "study", days=2).read_bytes())
    request = make_request(tmp_path / "ada", "ada").read_bytes()
    signed = x509.load_pem_x509_certificate(sign(folder, request, NAMES, days=365)[1])
    assert signed.not_valid_after_utc == authority.not_valid_after_utc
    made = provide_all(tmp_path, "study", NAMES[:1])["ada"]
    load_keys(made, "ada")
    # An authority of the same key that is out of date: the certificate is good, and still there is
    # no run.
    (folder / "authority.pem").unlink()
    old = make_authority(folder, "study", days=-1).read_bytes()
    (made / "authority.pem").write_bytes(old)
    with pytest.raises(InvalidInput, match=r"the authority in .* only; ask the coordinator"):
        load_keys(made, "ada")
    with pytest.raises(InvalidInput, match=r"the authority in .* move it away"):
        sign(folder, request, NAMES)
