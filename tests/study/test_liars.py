"""Parties that lie: what they send is refused where it arrives, and its sender is named."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from coterie.numerics.kernels import fixed_point
from coterie.study.study import load_study
from coterie.transport import secure_sums
from coterie.transport.driver import Driver
from coterie.transport.grpc_mesh import GrpcMesh
from coterie.transport.point_to_point import PointToPoint
from tests.harness.parties import data, together, write_study

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
        send, total = PointToPoint.send, Driver._total
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

        def down(collectives, numbers, tag):
            if collectives.process == lies.liar:
                lies.handing_down = tag
            try:
                return handed_down(collectives, numbers, tag)
            finally:
                if collectives.process == lies.liar:
                    lies.handing_down = None

        def summed(driver, messages, purpose):
            if lies.lied_at is not None:
                lies.said.append((driver.process, np.array(messages[0])))
            return total(driver, messages, purpose)

        def seen(sums, numbers, dtype):
            if lies.lied_at is not None and sums._last > lies.lied_at:
                lies.seen.append(np.array(numbers))
            return decoded(sums, numbers, dtype)

        self.handing_down = None
        monkeypatch.setattr(secure_sums.MaskedSums, "check_with", known)
        monkeypatch.setattr(secure_sums.MaskedSums, "decoded", seen)
        monkeypatch.setattr(PointToPoint, "_handed_down", down)
        monkeypatch.setattr(PointToPoint, "send", sent)
        monkeypatch.setattr(Driver, "_total", summed)

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
