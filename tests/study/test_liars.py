"""Parties that lie: what they send is refused where it arrives, and its sender is named."""

from __future__ import annotations

import re
import shutil

import msgspec
import numpy as np
import pytest

from coterie.numerics.kernels import fixed_point
from coterie.study.study import load_study
from coterie.transport import secure_sums
from coterie.transport.broadcast import SignedBroadcast
from coterie.transport.driver import Driver
from coterie.transport.grpc_mesh import GrpcMesh
from coterie.transport.point_to_point import PointToPoint
from tests.harness import liar
from tests.harness.parties import NAMES, data, processes, together, write_data, write_study

FOUR = ("ada", "bea", "cyd", "dan")
NEWTON = {
    "problem": {"loss": "logistic", "penalty": "l2", "strength": 0.01, "intercept": True},
    "split": "samples",
    "method": "newton",
    "tol": 1e-8,
}
FAR = 1e3
"""A change of a total that moves a party to where its curvature vanishes."""


# -- different totals for different parties --------------------------------------------------------


class DifferentTotals:
    """A party hands down another total to one party only, in one round, with the right check
    number.
    """

    def __init__(self, monkeypatch, liar, victim):
        self.liar, self.victim = liar, victim
        self.keys = {}
        self.lied_at = None
        """The step of the total that was changed."""
        self.said = []
        """What parties sent in sums since then: step, process and numbers."""
        self.seen = []
        """Totals since then, as the root sees them."""
        check_with = secure_sums.MaskedSums.check_with
        handed_down, decoded = PointToPoint._handed_down, secure_sums.MaskedSums.decoded
        send, check = PointToPoint.send, Driver._check
        lies = self

        def known(sums, key, root, helper):
            lies.keys[sums._me] = key
            check_with(sums, key, root, helper)

        def sent(collectives, process, message, tag):
            mine = collectives.process, process
            rounds = tag.purpose == "rounds" and tag.collective == "Sum"
            if mine == (lies.liar, lies.victim) and rounds and lies.handing_down is not None:
                if lies.lied_at is None and message.size > 6 * 5:
                    lies.lied_at = tag.step
                if lies.lied_at == tag.step:
                    message = lies.changed(message, tag, collectives)
            send(collectives, process, message, tag)

        def down(collectives, numbers, tag, *way):
            if collectives.process == lies.liar:
                lies.handing_down = tag
            try:
                return handed_down(collectives, numbers, tag, *way)
            finally:
                if collectives.process == lies.liar:
                    lies.handing_down = None

        def summed(driver, collective, messages):
            if lies.lied_at is not None:
                lies.said.append((driver.process, np.array(messages[0])))
            check(driver, collective, messages)

        def seen(sums, numbers, dtype):
            if lies.lied_at is not None and sums._last > lies.lied_at:
                lies.seen.append(np.array(numbers))
            return decoded(sums, numbers, dtype)

        self.handing_down = None
        monkeypatch.setattr(secure_sums.MaskedSums, "check_with", known)
        monkeypatch.setattr(secure_sums.MaskedSums, "decoded", seen)
        monkeypatch.setattr(PointToPoint, "_handed_down", down)
        monkeypatch.setattr(PointToPoint, "send", sent)
        monkeypatch.setattr(Driver, "_check", summed)

    def changed(self, message, tag, collectives):
        """The total with other numbers, and the check number that belongs to them."""
        if message.dtype.kind == "f":
            return message + FAR
        total = np.array(message)
        more = fixed_point.zeros(total.size // 3 - 1)
        fixed_point.accumulate(more[:-3], FAR * np.ones(total.size // 3 - 2))
        numbers = total[:-3]
        fixed_point.add(numbers, more)
        key = next(key for key in self.keys.values() if key is not None)
        check = secure_sums.Check(key, [j for j in range(4) if j != collectives.sums.root])
        total[-3:] = check.of_total(numbers, tag.step)
        return total


@pytest.mark.parametrize(
    ("network", "liar", "victim"), [("star", 0, 3), ("path", 2, 3)], ids=["star", "path"]
)
def test_after_different_totals_the_next_sum_is_noise(tmp_path, monkeypatch, network, liar, victim):
    """The first party, which knows the check key of a partner, or a party on the way."""
    study = write_study(tmp_path, names=FOUR, deadline=20.0, network=network, **NEWTON)
    tables = data("samples", classification=True, names=FOUR, n=120, d=3)
    lies = DifferentTotals(monkeypatch, liar, victim)
    ends = together(study, tables, names=FOUR)
    assert lies.lied_at is not None
    name, other = FOUR[liar], FOUR[victim]
    for end in ends:
        assert end.status == "protocol_error", end
        assert f"{name} changed what it passed on to {other}" in str(end)
    # Nothing was computed with the total that others had not received.
    assert lies.seen
    for total in lies.seen:
        numbers = np.abs(fixed_point.rounded(total[:-6], float))
        assert numbers.max() > 2.0**55, "all are below with a probability of 2^-40, or less"
    assert not list(tmp_path.glob("*/result/model.npz"))


TWO = ("ada", "bea")


@pytest.mark.parametrize(
    ("names", "settings"),
    [
        (TWO, NEWTON),
        (FOUR, {**NEWTON, "secure-sums": False, "network": "path"}),
        (FOUR, {"split": "features", "method": "tree", "network": "path"}),
        (FOUR, {"split": "features", "method": "lbfgs", "network": "star"}),
    ],
    ids=["two parties", "rows", "columns, tree", "columns, lbfgs"],
)
def test_without_masks_no_party_computes_with_a_total_that_others_did_not_receive(
    tmp_path, monkeypatch, names, settings
):
    study = write_study(tmp_path, names=names, deadline=20.0, **settings)
    classes = settings["split"] == "samples"
    tables = data(settings["split"], classification=classes, names=names, n=120, d=8)
    root = int(load_study(study / "study.toml").make_network().tree().order[0])
    victim = next(place for place in range(len(names)) if place != root)
    lies = DifferentTotals(monkeypatch, root, victim)
    ends = together(study, tables, names=names)
    assert lies.lied_at is not None
    for end in ends:
        assert end.status == "protocol_error", end
        assert f"{names[root]} changed what it passed on to {names[victim]}" in str(end)
    assert [process for process, _ in lies.said if process == victim] == []
    assert not list(tmp_path.glob("*/result/model.npz"))


def noisy(monkeypatch):
    """The party in the middle adds noise to all sums that it passes on."""
    random = np.random.default_rng(0)
    send = GrpcMesh.send

    def changed(mesh, to, message, tag):
        if mesh.name(mesh.me) == "bea" and tag.purpose == "rounds" and message.dtype.kind == "f":
            message = message + random.standard_normal(message.shape)
        send(mesh, to, message, tag)

    monkeypatch.setattr(GrpcMesh, "send", changed)


def test_noise_leaves_a_good_result_as_it_is_and_blames_the_party_that_made_it(
    tmp_path, monkeypatch
):
    study = write_study(tmp_path, split="features", network="path", method="tree", tol=1e-3)
    tables = data("features")
    assert [end.status for end in together(study, tables)] == ["optimal"] * 3
    kept = {
        file: file.read_bytes()
        for file in tmp_path.glob("*/result/*")
        if file.name in ("model.npz", "certificate.json", "run.json")
    }
    for folder in tmp_path.glob("*/checkpoint"):
        shutil.rmtree(folder)
    noisy(monkeypatch)
    for end in together(study, tables):
        assert end.status == "protocol_error", end
        assert end.status.exit_code == 19
        assert "bea changed what it passed on to cyd" in str(end)
        for innocent in ("ada", "cyd"):
            assert f"{innocent} changed" not in str(end)
    assert len(kept) == 9
    for file, content in kept.items():
        assert file.read_bytes() == content


# -- numbers and texts that no honest party sends --------------------------------------------------


LIAR = "cyd"
ROWS = {
    "problem": {"loss": "squared", "penalty": "l2", "strength": 0.1, "intercept": True},
    "split": "samples",
    "method": "gram",
    "deadline": 20.0,
}
COLUMNS = {"split": "features", "network": "path", "method": "tree", "deadline": 20.0}
PLAIN = {**ROWS, "secure-sums": False}


def lying_numbers(change):
    """The liar's messages in sums, changed after its own program has checked them."""

    def attack(monkeypatch):
        send = PointToPoint.send

        def changed(collectives, process, message, tag):
            name = collectives.names[collectives.local[0]]
            if name == LIAR and tag.collective == "Sum":
                message = change(np.array(message))
            send(collectives, process, message, tag)

        monkeypatch.setattr(PointToPoint, "send", changed)

    return attack


def lying_text(about, change):
    """The liar's text in a broadcast, changed before it signs it."""

    def attack(monkeypatch):
        sign = SignedBroadcast._signed

        def changed(broadcast, mine, subject):
            if broadcast.links.name(broadcast.links.me) == LIAR and subject == about:
                mine = change(mine)
            return sign(broadcast, mine, subject)

        monkeypatch.setattr(SignedBroadcast, "_signed", changed)

    return attack


def with_fields(**fields):
    """A change of some fields of a message that is a map."""

    def change(mine):
        return msgspec.msgpack.encode({**msgspec.msgpack.decode(mine), **fields})

    return change


def instead(value):
    """Another value, encoded."""
    return lambda mine: msgspec.msgpack.encode(value)


SCRIPT = "<script>alert(1)</script>"
NUMBERS = {
    "NaN": (np.nan, "that are not finite or too large"),
    "infinite": (np.inf, "that are not finite or too large"),
    "huge": (1e308, "that are not finite or too large"),
}
TEXTS = {
    "rows below 0": ("cards", with_fields(rows=-5), "unexpected payload"),
    "columns without end": ("cards", with_fields(columns=10**12), "unexpected payload"),
    "more non-zeros than numbers": ("cards", with_fields(nonzeros=10**12), "non-zeros in"),
    "a class that is NaN": ("cards", with_fields(classes=[float("nan")]), "not a finite number"),
    "labels without end": ("cards", with_fields(outputs=[10**9]), "unexpected payload"),
    "a class with an escape sequence": (
        "cards",
        with_fields(classes=["\x1b[2J"]),
        "control characters",
    ),
    "a long class": ("cards", with_fields(classes=[SCRIPT * 1000]), "unexpected payload"),
    "names of columns": ("cards", with_fields(names=["age"]), "names of columns"),
    "a card that is none": (
        "cards",
        lambda mine: b"\x91" * 100_000 + b"\xc0",
        "unexpected payload",
    ),
    "bytes that are no text": ("cards", with_fields(header=b"\xff\xfe"), "unexpected payload"),
    "megabytes": ("cards", instead("x" * 10_000_000), "bytes; at most"),
    "text for a digest of data": ("digests", instead(SCRIPT), "unexpected payload"),
    "text for a digest of a model": ("parts", instead(SCRIPT), "unexpected payload"),
    "digests of no round": ("checkpoints", instead({1: SCRIPT}), "unexpected payload"),
    "digests of sums": ("totals", instead(SCRIPT), "unexpected payload"),
    "a seed that is none": ("seeds", lambda mine: b"\xc1", "unexpected payload"),
}


SIGNATURES = {
    "bytes that are no text": with_fields(tls=b"\xff\xfe"),
    "half a certificate": with_fields(tls=b"-----BEGIN"),
    "a long signature": with_fields(signature=bytes(5000)),
    "another signature": with_fields(signature=b"\x30\x06"),
    "no map": instead(SCRIPT),
}


def ends_of(tmp_path, settings, attack, monkeypatch):
    tables = data(settings["split"])
    write_study(tmp_path, **settings)
    attack(monkeypatch)
    return together(tmp_path, tables)


def assert_named(ends, words):
    """Every honest party ends with an error that names the liar, and none with a traceback."""
    honest = [str(end) for name, end in zip(NAMES, ends, strict=True) if name != LIAR]
    assert any(LIAR in text and words in text for text in honest), honest
    for text in honest:
        assert LIAR in text, honest


@pytest.mark.parametrize("settings", [PLAIN, COLUMNS], ids=["rows", "columns"])
@pytest.mark.parametrize("lie", NUMBERS)
def test_numbers_that_are_none_are_refused_where_they_arrive(tmp_path, monkeypatch, lie, settings):
    value, words = NUMBERS[lie]
    attack = lying_numbers(lambda message: np.full_like(message, value))
    assert_named(ends_of(tmp_path, settings, attack, monkeypatch), words)
    assert not list(tmp_path.glob("*/result/model.npz"))


@pytest.mark.parametrize("lie", TEXTS)
def test_texts_are_decoded_before_use_and_their_sender_is_named(tmp_path, monkeypatch, lie):
    about, change, words = TEXTS[lie]
    ends = ends_of(tmp_path, ROWS, lying_text(about, change), monkeypatch)
    assert_named(ends, words)
    for file in tmp_path.glob("*/result/*"):
        assert SCRIPT.encode() not in file.read_bytes()


def test_megabytes_of_text_do_not_enter_a_certificate(tmp_path, monkeypatch):
    attack = lying_text("parts", instead(SCRIPT * 100_000))
    ends = ends_of(tmp_path, ROWS, attack, monkeypatch)
    assert re.search(r"parts: cyd sent 25\d{5} bytes; at most", str(ends[0]))
    for file in tmp_path.glob("*/result/*"):
        assert SCRIPT.encode() not in file.read_bytes()


@pytest.mark.parametrize("lie", SIGNATURES)
def test_a_signature_that_is_none_is_left_out_and_its_party_is_named(tmp_path, monkeypatch, lie):
    ends = ends_of(tmp_path, ROWS, lying_text("signatures", SIGNATURES[lie]), monkeypatch)
    for end in ends[:2]:
        assert end.status == "optimal", end
        assert LIAR not in end.certificate.signatures
        assert any("the signature of cyd" in text for text in end.warnings), end.warnings
    for file in tmp_path.glob("*/result/*"):
        assert SCRIPT.encode() not in file.read_bytes()


def test_text_around_a_certificate_stays_out_of_results(tmp_path, monkeypatch):
    """The authority signed the TLS certificate, and not what its file has around it."""

    def with_text(mine):
        signed = msgspec.msgpack.decode(mine)
        return msgspec.msgpack.encode({**signed, "tls": SCRIPT.encode() + b"\n" + signed["tls"]})

    ends = ends_of(tmp_path, ROWS, lying_text("signatures", with_text), monkeypatch)
    assert [end.status for end in ends[:2]] == ["optimal"] * 2
    assert set(ends[0].certificate.signatures) == set(NAMES)
    for name in NAMES[:2]:
        assert SCRIPT not in (tmp_path / name / "result" / "certificate.json").read_text()


# -- real processes --------------------------------------------------------------------------------


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("lie", "settings", "words"),
    [
        ("different_totals", {**COLUMNS, "tol": 1e-3}, "bea changed what it passed on to cyd"),
        pytest.param("huge_numbers", COLUMNS, "bea sent", marks=pytest.mark.rotates),
        pytest.param(
            "columns_without_end",
            ROWS,
            "cards: bea sent an unexpected payload",
            marks=pytest.mark.rotates,
        ),
    ],
)
def test_processes_name_the_liar_and_end_without_a_traceback(tmp_path, lie, settings, words):
    write_study(tmp_path, **settings)
    write_data(tmp_path, data(settings["split"]))
    program = f"runpy.run_path({liar.__file__!r}, run_name='__main__')"
    script = f"import runpy, sys; sys.argv.insert(1, {lie!r}); {program}"
    with processes(tmp_path, scripts={"bea": script}) as running:
        ends = {name: party.wait() for name, party in running.items()}
    for name in ("ada", "cyd"):
        code, printed = ends[name]
        log = (tmp_path / name / "log").read_text()
        assert code == 19, (printed, log)
        assert words in printed["error"], printed
        assert "Traceback" not in log
        assert not (tmp_path / name / "result" / "model.npz").exists()
