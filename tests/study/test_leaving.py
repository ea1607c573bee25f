"""A party that leaves a fit, at whatever step, takes no result from the others.

Before the sums are compared there is no result, and an earlier one stays. Afterwards every other
party has the model with its certificate, and the result says which signatures are missing.
"""

from __future__ import annotations

import json
import signal
from unittest import mock

import msgspec
import numpy as np
import pytest

import coterie as co
from coterie.api.replacing import LAST
from coterie.errors import CoterieError, InvalidInput, PartyLost
from coterie.run.certificate import Certificate
from coterie.run.statuses import Status
from coterie.study.party import fit_together
from coterie.study.proof import verify_together
from coterie.study.scores import predict_together
from coterie.study.session import Session
from coterie.transport.broadcast import SignedBroadcast
from tests.harness.parties import NAMES, data, processes, together, write_data, write_study

LOGISTIC = {"loss": "logistic", "penalty": "l2", "strength": 0.05}
DEFAULT = ""
"""No [policy] in party.toml: the default one."""
WITHOUT_RESULT = (
    "introduction",
    "policies",
    "cards",
    "allowed",
    "digests",
    "checkpoints",
    "masks",
    "seeds",
    "check keys",
)
WITH_RESULT = ("parts", "signatures", "written")
OTHERS = ("ada", "cyd")


def study(folder, **more):
    settings = {"split": "samples", "tol": 1e-6, "deadline": 20.0} | more
    write_study(folder, problem=LOGISTIC, policy=DEFAULT, **settings)
    write_data(folder, data("samples", n=300, d=3, classification=True))
    return folder


def leaving(label, party="bea"):
    """Let that party leave when it is to send the message with that label."""
    sign = SignedBroadcast._signed

    def signed(broadcast, body, about):
        if broadcast.links.name(broadcast.links.me) == party and about == label:
            raise InvalidInput("a disk is full.")
        return sign(broadcast, body, about)

    return mock.patch.object(SignedBroadcast, "_signed", signed)


def left_at(folder, label, party="bea"):
    with leaving(label, party):
        return dict(zip(NAMES, together(folder), strict=True))


def signers(folder):
    return set(Certificate.load(folder / "certificate.json").signatures)


@pytest.mark.rotates
@pytest.mark.parametrize("label", WITHOUT_RESULT)
def test_who_leaves_before_the_sums_are_compared_is_named(tmp_path, label):
    found = left_at(study(tmp_path), label)
    for name in OTHERS:
        error = found[name]
        assert isinstance(error, PartyLost), error
        assert error.party == "bea"
        assert not (tmp_path / name / "result" / "model.npz").exists()


@pytest.mark.parametrize("label", WITH_RESULT)
def test_who_leaves_afterwards_takes_no_result_from_the_others(tmp_path, label):
    found = left_at(study(tmp_path), label)
    for name in OTHERS:
        result = found[name]
        assert isinstance(result, co.Result), result
        assert result.status is Status.OPTIMAL
        folder = tmp_path / name / "result"
        assert result.folder == folder
        saved = co.Result.load(folder)
        assert saved.certificate.gap == result.certificate.gap
        assert (saved.model.coef_ == result.model.coef_).all()
        if label in ("parts", "signatures"):
            (note,) = [one for one in saved.warnings if one.startswith("unsigned: ")]
            assert "bea" in note
            assert "bea" not in signers(folder)
            assert "bea" not in saved.certificate.signatures
        else:
            assert signers(folder) == set(NAMES)
            assert not any("unsigned" in one for one in saved.warnings)
    if label == "signatures":
        assert signers(tmp_path / "ada" / "result") == set(OTHERS)
        assert "bea left before signing" in " ".join(found["ada"].warnings)


def test_no_party_begins_another_step_after_one_left(tmp_path):
    """The party in the middle of a star loses bea. If it went on, it would wait for cyd without
    end.
    """
    study(tmp_path, network="star")
    sign, sent = SignedBroadcast._signed, {name: [] for name in NAMES}

    def signed(broadcast, body, about):
        name = broadcast.links.name(broadcast.links.me)
        steps = sent[name]
        if steps or about == "signatures":
            steps.append(about)
        if name == "bea" and len(steps) > 1:
            raise InvalidInput("a disk is full.")
        if len(steps) > 2:
            raise InvalidInput(f"begins {about} after a party left at {steps[1]}.")
        return sign(broadcast, body, about)

    with mock.patch.object(SignedBroadcast, "_signed", signed):
        found = dict(zip(NAMES, together(tmp_path), strict=True))
    for name in OTHERS:
        assert isinstance(found[name], co.Result), found[name]
        assert signers(tmp_path / name / "result") == set(NAMES)


def predicted(own, study, **more):
    return predict_together(own, study, own.data, consent=True, **more)


def saying_nonsense(label, party="bea"):
    """Let that party send a text in place of the message with that label."""
    sign = SignedBroadcast._signed

    def signed(broadcast, body, about):
        if broadcast.links.name(broadcast.links.me) == party and about == label:
            body = msgspec.msgpack.encode("x")
        return sign(broadcast, body, about)

    return mock.patch.object(SignedBroadcast, "_signed", signed)


@pytest.mark.parametrize("wrong", [leaving, saying_nonsense])
def test_a_finished_result_is_not_lost_at_the_end(tmp_path, wrong):
    write_study(tmp_path, policy=DEFAULT, deadline=20.0)
    write_data(tmp_path, data())
    together(tmp_path)
    said = []
    with wrong("done"):
        scores = together(tmp_path, work=predicted, say=said.append)[0].scores
        verified = dict(zip(NAMES, together(tmp_path, work=verify_together), strict=True))
    expected = together(tmp_path, work=predicted)[0].scores
    np.testing.assert_array_equal(scores, expected)
    warned = [one for one in said if one.startswith("warning: your result is complete")]
    assert len(warned) >= len(OTHERS)
    assert all("bea" in one for one in warned)
    for name in OTHERS:
        assert not verified[name].objections


def test_the_same_command_adds_the_signatures(tmp_path):
    before = left_at(study(tmp_path), "signatures")
    after = together(tmp_path)
    for name, result in zip(NAMES, after, strict=True):
        assert signers(tmp_path / name / "result") == set(NAMES)
        assert not result.warnings
        assert not (tmp_path / name / "result" / LAST).exists()
    assert (after[0].model.coef_ == before["ada"].model.coef_).all()


def test_an_unsigned_result_replaces_none_that_all_signed(tmp_path):
    study(tmp_path)
    together(tmp_path)
    kept = {name: (tmp_path / name / "result" / "run.json").read_bytes() for name in OTHERS}
    text = (tmp_path / "study.toml").read_text()
    (tmp_path / "study.toml").write_text(text.replace("strength = 0.05", "strength = 0.5"))
    for label in ("parts", "signatures"):
        found = left_at(tmp_path, label)
        for name in OTHERS:
            folder = tmp_path / name / "result"
            assert (folder / "run.json").read_bytes() == kept[name]
            assert signers(folder) == set(NAMES)
            assert found[name].folder == folder / LAST
            assert found[name].warnings[-1].startswith("unsigned: ")
            assert "bea" in found[name].warnings[-1].partition(".")[0]
            assert "The earlier result stays: all parties signed it." in found[name].warnings[-1]
            settings = Certificate.load(folder / LAST / "certificate.json").settings
            assert settings["problem"]["penalty"]["strength"] == 0.5


@pytest.mark.parametrize("split", ["samples", "features"])
def test_a_path_is_kept_too(tmp_path, split):
    problem = {"loss": "logistic", "penalty": "l2"}
    more = {"path.strengths": [0.1, 0.01], "path.cv": 2, "split": split, "tol": 1e-4}
    write_study(tmp_path, problem=problem, policy="policy.budget = inf", **more)
    write_data(tmp_path, data(split, n=300, d=3, classification=True))
    found = left_at(tmp_path, "signatures")
    for name in OTHERS:
        assert isinstance(found[name], co.Result), found[name]
        path = co.Path.load(tmp_path / name / "result" / "path")
        assert [one.status for one in path.results] == ["optimal"] * 2
        assert not any("bea" in one.certificate.signatures for one in path.results)


def lying_signature(what):
    """A signature of bea that is wrong, and the warning of the others."""
    collect = Session.collect

    def wrong(session, mine, message, kind):
        if session.own.party == "bea" and message.about == "signatures":
            mine = what(mine)
        return collect(session, mine, message, kind)

    return mock.patch.object(Session, "collect", wrong)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (lambda mine: {"tls": b"\xff\xfe", "signature": mine.signature}, "does not hold"),
        (lambda mine: {"tls": mine.tls, "signature": b"0\x06\x02\x01\x01"}, "does not hold"),
        (lambda mine: {"tls": b"-----BEGIN", "signature": b""}, "does not hold"),
        (lambda mine: ["\x1b[31mnot a signature"], "cannot be read"),
    ],
    ids=["bytes", "signature", "certificate", "payload"],
)
def test_a_wrong_signature_is_named_and_costs_no_result(tmp_path, what, said):
    study(tmp_path)
    with lying_signature(what):
        found = dict(zip(NAMES, together(tmp_path), strict=True))
    for name in OTHERS:
        assert isinstance(found[name], co.Result), found[name]
        assert f"unsigned: the signature of bea {said}. " in found[name].warnings[-1]
        assert signers(tmp_path / name / "result") == set(OTHERS)


def test_verify_says_which_parties_signed(tmp_path):
    study(tmp_path)
    with lying_signature(lambda mine: {"tls": mine.tls, "signature": b""}):
        together(tmp_path)
    for verified in together(tmp_path, work=verify_together):
        assert verified.signed_by == OTHERS
        assert verified.unsigned_by == ("bea",)
        # The numbers hold nevertheless: no objection is about them.
        assert set(verified.objections) == {
            f"{name}: bea has not signed its certificate" for name in NAMES
        }


KILLED = """
import os, signal, sys
from coterie.transport.broadcast import SignedBroadcast
sign = SignedBroadcast._signed

def signed(broadcast, body, about):
    if about == os.environ["KILLED_AT"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return sign(broadcast, body, about)

SignedBroadcast._signed = signed
from coterie.cli import main
sys.exit(main())
"""


@pytest.mark.chaos
@pytest.mark.rotates
@pytest.mark.parametrize("label", [pytest.param("parts", marks=pytest.mark.slow), "signatures"])
def test_a_party_that_is_killed_before_signing_takes_no_result(tmp_path, label):
    """Processes with default policies; one ends itself with SIGKILL."""
    study(tmp_path, deadline=10.0)
    with processes(tmp_path, scripts={"bea": KILLED}, environment={"KILLED_AT": label}) as running:
        ends = {name: running[name].wait() for name in OTHERS}
        assert running["bea"].process.wait(60) == -signal.SIGKILL
    for name, (code, printed) in ends.items():
        assert code == 0, printed
        assert printed["status"] == "optimal"
        saved = co.Result.load(tmp_path / name / "result")
        assert saved.certificate.gap == printed["gap"]
        assert any("unsigned: " in one and "bea" in one for one in printed["warnings"])
        assert np.isfinite(saved.model.coef_).all()
        assert not json.loads((tmp_path / name / "result" / "run.json").read_text())["error"]
    # The killed party has its own result, which says that nobody has signed it.
    own = co.Result.load(tmp_path / "bea" / "result")
    assert not own.certificate.signatures
    assert own.warnings == ("unsigned: the other parties have not signed yet.",)


def test_fits_are_as_before_if_nobody_leaves(tmp_path):
    results = together(study(tmp_path), work=fit_together)
    assert not any(isinstance(one, CoterieError) for one in results)
    for name, result in zip(NAMES, results, strict=True):
        assert signers(tmp_path / name / "result") == set(NAMES)
        assert result.model.run == results[0].model.run
