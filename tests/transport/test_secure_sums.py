"""Secure sums: the bits of the embedded engine between parties that see nothing, fresh masks, and
refusals in words.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import coterie as co
from coterie.errors import InvalidData, InvalidProblem, NumericalError, ProtocolError
from coterie.methods import METHODS
from coterie.networks import from_edges
from coterie.numerics.losses import LOSSES
from coterie.run import method_choice
from coterie.study.party import read_own
from coterie.study.proof import verify_together
from coterie.study.study import load_party
from coterie.transport import point_to_point, secure_sums
from coterie.transport.links import Tag
from coterie.transport.secure_sums import MaskedSums
from tests.harness.parties import (
    RIDGE,
    data,
    processes,
    same_secrets,
    together,
    without_digests,
    write_data,
    write_study,
)
from tests.harness.threads import Threads

LOGISTIC = {"loss": "logistic", "penalty": "l2", "strength": 0.01, "intercept": True}
NAMES = ("ada", "bea", "cyd", "dan", "eva", "fay", "gus", "hal")
TREE = [(0, 1), (0, 2), (1, 3), (1, 4), (2, 5), (2, 6), (3, 7)]


def network(kind, parties):
    return from_edges([(i, j) for i, j in TREE if j < parties]) if kind == "tree" else None


def assert_same(found, local):
    assert found.status == local.status
    assert (found.model.coef_ == local.model.coef_).all()
    assert found.model.intercept_ == local.model.intercept_
    assert found.bill == local.bill
    for name in ("primal", "dual", "gap", "radius", "room", "unit"):
        assert getattr(found.certificate, name) == getattr(local.certificate, name), name
    assert found.certificate.settings["secure_sums"] is True


FEW = [
    ("newton", "logistic", 3, "star"),
    ("newton", "logistic", 5, "tree"),
    ("proximal-1", "hinge", 3, "tree"),
    ("gram", "squared", 8, "star"),
]


def every_case():
    """Every method whose rows are apart with every loss it takes."""
    for name, entry in METHODS.items():
        if entry.split != "samples" or entry.family != "linear" or entry.one_sender:
            continue
        for loss in LOSSES:
            try:
                entry().check(
                    co.Problem(loss, "l2", 0.05, intercept=False), co.networks.star(3, server=True)
                )
            except co.CoterieError:
                continue
            for parties, kind in ((3, "star"), (5, "tree"), (8, "star")):
                if (name, loss, parties, kind) not in FEW:
                    often = pytest.mark.rotates if parties == 3 else pytest.mark.slow
                    yield pytest.param(name, loss, parties, kind, marks=often)


@pytest.mark.parametrize(("method", "loss", "parties", "kind"), [*FEW, *every_case()])
def test_between_parties_are_the_bits_of_the_embedded_engine(method, loss, parties, kind):
    problem = co.Problem(loss, "l2", 0.05, intercept=False)
    classes = bool(problem.kind.data.classification(problem))
    tables = data("samples", classes, names=NAMES[:parties], n=12 * parties, d=5)
    if loss in ("poisson", "gamma"):
        tables = [replace(table, y=1.0 + np.round(abs(table.y))) for table in tables]
    settings = {
        "method": method,
        "network": network(kind, parties),
        "tol": 1e-5,
        "max_rounds": 60,
        "progress": False,
    }
    local = co.solve(problem, tables, secure_sums=True, **settings)
    assert_same(co.solve(problem, tables, engine=Threads(), **settings), local)
    plain = co.solve(problem, tables, **settings)
    assert "secure_sums" not in plain.certificate.settings
    # Who needs the largest of everybody's numbers hears, in secure sums, how many lie on which of
    # 641 shelves. Rounding decides how many steps semismooth tries in a round.
    apart = ("lin-consensus", "proximal-2", "semismooth")
    if plain.rounds == local.rounds and method not in apart:
        assert local.bill.total.scalars == plain.bill.total.scalars
    assert local.bill.total.bits == 8 * 24 * local.bill.total.scalars, "24 bytes a number"


@pytest.mark.parametrize("kind", ["star", "tree"])
def test_float32_too(kind):
    tables = data("samples", dtype=np.float32, names=NAMES[:5], d=5)
    settings = {
        "method": "proximal-2",
        "network": network(kind, 5),
        "max_rounds": 20,
        "progress": False,
    }
    local = co.solve(co.Problem(**RIDGE), tables, secure_sums=True, **settings)
    found = co.solve(co.Problem(**RIDGE), tables, engine=Threads(), **settings)
    assert found.model.coef_.dtype == np.float32
    assert_same(found, local)


@pytest.mark.parametrize("kind", ["star", "tree"])
def test_long_messages_travel_in_pieces(monkeypatch, kind):
    monkeypatch.setattr(point_to_point, "PIECE", 240)
    tables = data("samples", classification=True, names=NAMES[:5], d=8)
    settings = {"method": "newton", "network": network(kind, 5), "progress": False}
    local = co.solve(co.Problem(**LOGISTIC), tables, secure_sums=True, **settings)
    assert_same(co.solve(co.Problem(**LOGISTIC), tables, engine=Threads(), **settings), local)


def test_columns_apart_when_asked_for(tmp_path):
    tables = data("features")
    settings = {"method": "tree", "network": "path", "tol": 1e-3}
    results = together(
        write_study(tmp_path, split="features", **settings, **{"secure-sums": True}), tables
    )
    given = settings | {"secure_sums": True, "engine": same_secrets(tmp_path), "progress": False}
    local = co.solve(co.Problem(**RIDGE), tables, split="features", **given)
    for result in results:
        assert result.bill == local.bill
        assert result.certificate.gap == pytest.approx(local.certificate.gap, rel=1e-6)


def test_a_study_of_three_is_masked_unless_it_says_otherwise(tmp_path):
    tables = data("samples", classification=True)
    # As they are read from files.
    tables = [replace(table, X=np.asfortranarray(table.X)) for table in tables]
    results = together(write_study(tmp_path, problem=LOGISTIC, split="samples"), tables)
    local = co.solve(co.Problem(**LOGISTIC), tables, secure_sums=True, progress=False)
    for result in results:
        assert_same(result, local)
    assert all(found.holds for found in together(tmp_path, tables, work=verify_together))
    study = write_study(
        tmp_path / "plain", problem=LOGISTIC, split="samples", **{"secure-sums": False}
    )
    other = together(study, tables)
    plain = co.solve(co.Problem(**LOGISTIC), tables, progress=False)
    assert without_digests(other[0].bill) == plain.bill
    assert "secure_sums" not in other[0].certificate.settings
    assert co.verify(local.certificate, local.model, tables).holds


@pytest.mark.chaos
@pytest.mark.parametrize("kind", ["star", pytest.param("path", marks=pytest.mark.slow)])
def test_after_a_kill_the_bits_are_the_same(tmp_path, kind):
    tables = data("samples", classification=True)
    settings = {
        "method": "proximal-2",
        "tol": 1e-14,
        "max-rounds": 60,
        "check-every": 5,
        "network": kind,
    }
    write_study(tmp_path, problem=LOGISTIC, split="samples", deadline=60.0, **settings)
    write_data(tmp_path, tables)
    with processes(tmp_path) as running:
        victim = running["bea"]
        while not victim.round() and not victim.ended:
            time.sleep(0.005)
        victim.kill()
        victim.start()
        for party in running.values():
            party.wait()
    tables = [read_own(*load_party(tmp_path / name / "party.toml")) for name in NAMES[:3]]
    # Threads must not compile a kernel at the same time.
    co.solve(co.Problem(**LOGISTIC), tables, method="proximal-2", max_rounds=5, progress=False)
    calm = together(
        write_study(tmp_path / "calm", problem=LOGISTIC, split="samples", **settings), tables
    )
    for name, undisturbed in zip(NAMES, calm, strict=False):
        assert_same(co.Result.load(tmp_path / name / "result"), undisturbed)
    assert "was started again" in (tmp_path / "ada" / "log").read_text()


# -- masks -----------------------------------------------------------------------------------------


@pytest.fixture
def masks(monkeypatch):
    """How often each mask was drawn, by what it is."""
    drawn, draw, lock = Counter(), secure_sums.draw, threading.Lock()

    def recorded(cipher, mask):
        draw(cipher, mask)
        with lock:
            drawn[hashlib.sha256(mask.tobytes()).digest()] += 1

    monkeypatch.setattr(secure_sums, "draw", recorded)
    return drawn


def test_no_mask_is_used_for_two_messages(masks, tmp_path):
    """Over runs, a path of strengths, folds, and a run gone on with: a mask is drawn by its pair,
    once each.
    """
    tables = data("samples", names=NAMES[:3], n=30, d=3)
    problem = co.Problem("squared", "l2", 0.1, intercept=False)
    settings = {"engine": Threads(), "method": "gram", "progress": False}
    for _ in range(2):
        co.solve(problem, tables, **settings)
    co.path(problem, tables, [0.1, 0.01], cv=2, **settings)
    for rounds in (3, 6):
        more = {
            "checkpoint": tmp_path / "go-on",
            "max_rounds": rounds,
            "tol": 1e-15,
            "method": "proximal-2",
        }
        co.solve(problem, tables, **settings | more)
    assert len(masks) > 150
    assert set(masks.values()) == {2}


def test_a_mask_is_refused_the_second_time():
    sums = MaskedSums(0, {1: bytes(16)})
    sums.encoded(np.ones(2), Tag("rounds", 3, "Sum"))
    for step in (3, 2):
        with pytest.raises(ProtocolError, match="a mask would be used twice"):
            sums.encoded(np.ones(2), Tag("rounds", step, "Sum"))


@pytest.mark.parametrize("size", [0, 1, 5, 2047, 2048, 5000])
def test_masks_cancel_and_hide(size):
    seeds = {(i, j): bytes([i, j] * 8) for i in range(4) for j in range(i)}
    parties = [
        MaskedSums(k, {o: seeds[max(k, o), min(k, o)] for o in range(4) if o != k})
        for k in range(4)
    ]
    x = np.random.default_rng(0).standard_normal((4, size))
    for step in (1, 2):
        said = [
            party.encoded(row, Tag("rounds", step, "Sum"))
            for party, row in zip(parties, x, strict=True)
        ]
        total = said[0].copy()
        for message in said[1:]:
            parties[0].add(total, message)
        assert (parties[0].decoded(total, float) == secure_sums.ExactSums(4).at_once(list(x))).all()
    total[-1] ^= np.uint64(1)
    with pytest.raises(ProtocolError, match="masks do not cancel"):
        parties[0].decoded(total, float)


# -- refusals --------------------------------------------------------------------------------------


def test_a_pair_whose_seeds_differ_is_named_at_the_meeting(tmp_path, monkeypatch):
    shared = secure_sums._shared

    def changed(mine, public, me, other, name):
        seed, confirmation = shared(mine, public, me, other, name)
        return (seed, bytes(32)) if (me, other) == (1, 2) else (seed, confirmation)

    monkeypatch.setattr(secure_sums, "_shared", changed)
    for error in together(write_study(tmp_path, split="samples"), data("samples")):
        assert isinstance(error, ProtocolError)
        assert "the seeds of bea and cyd differ" in str(error)


@pytest.mark.parametrize("kind", ["star", "path"])
def test_masks_that_do_not_cancel_end_the_run_in_words(tmp_path, monkeypatch, kind):
    encode = MaskedSums.encoded

    def wrong(self, message, tag, heard):
        integers = encode(self, message, tag, heard)
        if self._subtracted == 1 and tag.step > 6:
            integers[0] += np.uint64(1)
        return integers

    monkeypatch.setattr(MaskedSums, "encoded", wrong)
    study = write_study(
        tmp_path, split="samples", method="proximal-2", network=kind, **{"max-rounds": 20}
    )
    for error in together(study, data("samples")):
        assert "masks do not cancel" in str(error)


@pytest.mark.parametrize("kind", ["star", "path"])
@pytest.mark.parametrize(("value", "column"), [(1e300, 4), (1e16, 2)])
def test_a_number_out_of_range_is_refused_by_its_own_party_with_the_column(
    tmp_path, value, column, kind
):
    tables = data("samples")
    X = tables[1].X.copy()
    X[3, column] = value
    tables[1] = replace(tables[1], X=X)
    ada, bea, cyd = together(write_study(tmp_path, split="samples", network=kind), tables)
    assert isinstance(bea, InvalidData)
    assert f"column 'x{column}' is too large for secure sums" in str(bea)
    assert "Rescale it" in str(bea)
    assert "bea" in str(ada)
    assert "bea" in str(cyd)
    with pytest.raises(InvalidData, match=f"party 'bea': column 'x{column}' "):
        co.solve(co.Problem(**RIDGE), tables, secure_sums=True, progress=False)


@pytest.mark.parametrize(
    ("scale", "words"), [(1e-20, "labels are too small"), (1e20, "labels are too large")]
)
def test_labels_out_of_range_are_refused(scale, words):
    tables = [replace(table, y=scale * table.y) for table in data("samples")]
    with pytest.raises(InvalidData, match=words):
        co.solve(co.Problem(**RIDGE), tables, secure_sums=True, progress=False)


@pytest.mark.parametrize(
    ("value", "words"), [(np.nan, "not finite"), (1e29, "secure sums cannot hold")]
)
def test_what_cannot_be_said_is_refused_before_it_is_said(value, words):
    from coterie.run.bill import Bill
    from coterie.run.collectives import Sum
    from coterie.transport.in_process import InProcess

    def say(x):
        return (yield Sum(x))

    star = co.networks.star(2, server=True)
    carrier = InProcess(star, Bill(star), ["ada", "bea"], secure_sums=True)
    with pytest.raises(NumericalError, match=f"bea .*{words}"):
        carrier.converse([say(np.zeros(3)), say(np.array([0.0, value, 1.0]))], "rounds")
    assert carrier.bill.total.bits == 0


def test_relay_is_refused_and_auto_does_not_choose_it(monkeypatch):
    tables = data("samples", classification=True)
    problem = co.Problem("hinge", "l2", 0.1, intercept=False)
    with pytest.raises(InvalidProblem, match="one party sends at a time"):
        co.solve(problem, tables, method="relay", secure_sums=True)
    monkeypatch.setattr(method_choice, "_remembered", {})
    monkeypatch.setattr(
        METHODS["relay"], "score", classmethod(lambda cls, *given: (1e9, "loudness"))
    )
    chosen = [
        co.solve(
            problem, tables, secure_sums=secure, max_rounds=1, progress=False
        ).certificate.settings["method"]
        for secure in (False, True)
    ]
    assert chosen[0]["name"] == "relay"
    assert chosen[1]["name"] != "relay"


def test_two_parties_are_told_that_nothing_is_hidden():
    tables = data("samples", names=NAMES[:2])
    result = co.solve(co.Problem(**RIDGE), tables, secure_sums=True, progress=False)
    assert "each party can subtract its own message from the sum" in result.explanation
    assert (
        "secure_sums"
        not in co.solve(co.Problem(**RIDGE), tables, engine=Threads()).certificate.settings
    )


def test_users_have_none():
    with pytest.raises(InvalidProblem, match="secure sums are for one model"):
        co.solve(
            co.Personal(),
            [(np.ones((4, 2)), np.array([1, -1, 1, -1]))] * 3,
            split="users",
            secure_sums=True,
        )


def test_the_shell_and_estimators_have_them(tmp_path):
    (table,) = data("samples", names=NAMES[:1], d=3)
    write_study(tmp_path, names=NAMES[:2], split="samples")
    write_data(tmp_path, [table])
    command = (
        "fit ada/data.csv --target y --strength 0.1 --agents 3 --json -o fitted --secure-sums "
        "--no-intercept"
    )
    command = [sys.executable, "-m", "coterie", *command.split()]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    fitted = co.Result.load(tmp_path / "fitted")
    assert fitted.certificate.settings["secure_sums"] is True
    estimator = co.LinearRegressor(alpha=0.1, fit_intercept=False, agents=3, secure_sums=True).fit(
        table.X, table.y
    )
    assert estimator.certificate_.settings["secure_sums"] is True
    assert estimator.coef_ == pytest.approx(fitted.model.coef_, abs=1e-6)
