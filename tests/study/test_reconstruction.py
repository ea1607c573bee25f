"""Rows of another party cannot be rebuilt from a study: what curious, lying and unlucky parties
tried before.
"""

from __future__ import annotations

import threading
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import coterie as co
from coterie.data.summary import TableSummary
from coterie.errors import InvalidData, InvalidInput, PartyLost, ProtocolError, Refused
from coterie.numerics.kernels import fixed_point
from coterie.run.groups import keepable, pooled, small, without_few
from coterie.study.description import describe_together
from coterie.study.party import fit_together
from coterie.study.policy import Account, Policy
from coterie.study.proof import verify_together
from coterie.study.scores import evaluate_together
from coterie.study.study import load_party
from coterie.transport import secure_sums
from coterie.transport.driver import Driver
from coterie.transport.links import Tag
from coterie.transport.point_to_point import PointToPoint
from tests.harness.parties import ANYTHING, NAMES, data, together, write_data, write_study
from tests.harness.wire import bytes_of

LOGISTIC = {"loss": "logistic", "penalty": "l2", "strength": 0.05, "intercept": True}
STUDY = {"problem": LOGISTIC, "split": "samples", "method": "newton", "tol": 1e-3}
MINIMUM = 5


@pytest.fixture
def wire(monkeypatch):
    """What every party says in sums, before masks: purpose, numbers."""
    said, lock, total = {name: [] for name in NAMES}, threading.Lock(), Driver._total

    def recorded(self, messages, purpose):
        with lock:
            said[self.names[self.local[0]]].append((purpose, np.array(messages[0]).ravel()))
        return total(self, messages, purpose)

    monkeypatch.setattr(Driver, "_total", recorded)
    return said


# -- groups of few rows ----------------------------------------------------------------------------


COUNTS = st.lists(st.integers(0, 12), min_size=1, max_size=20)


@given(COUNTS, COUNTS, st.integers(1, 6))
def test_bins_that_each_party_can_keep_are_small_at_none(one, other, minimum):
    length = min(len(one), len(other))
    parties = [np.array(counts[:length]) for counts in (one, other)]
    kept = np.logical_and.reduce([keepable(own, minimum, range(length - 1)) for own in parties])
    edges = np.concatenate([[0], np.flatnonzero(kept) + 1])
    for own in parties:
        told = np.add.reduceat(own, edges)
        assert not small(told, minimum).any() or small(own.sum(), minimum)


@given(COUNTS, st.integers(1, 6))
def test_categories_and_those_among_other_are_not_small(counts, minimum):
    rows, others = pooled(np.array(counts), minimum)
    assert rows.sum() + others == sum(counts)
    assert not small([*rows, others], minimum).any() or small(sum(counts), minimum)


@given(st.lists(st.booleans(), min_size=1, max_size=30), st.integers(1, 6))
def test_neither_values_nor_missing_ones_are_small(missing, minimum):
    gone = without_few(np.array(missing), minimum)
    assert gone[np.array(missing)].all()
    assert not small([gone.sum(), (~gone).sum()], minimum).any() or small(len(missing), minimum)


def clustered(folder, ids, policy=ANYTHING):
    """A study with clustered errors, and a table for each party with those clusters."""
    problem = {"loss": "logistic", "penalty": "none", "intercept": True}
    write_study(
        folder, problem=problem, split="samples", tol=1e-8, inference="clustered", policy=policy
    )
    for name in NAMES:
        file = folder / name / "party.toml"
        file.write_text('cluster = "patient"\n' + file.read_text())
    random = np.random.default_rng(3)
    n = len(ids[0])
    X = random.standard_normal((3 * n, 2))
    y = np.where(random.random(3 * n) < 1 / (1 + np.exp(-X[:, 0])), 1.0, -1.0)
    whole = co.read((X, y), columns=["a", "b"])
    return [
        replace(
            whole.take_rows(np.arange(k * n, (k + 1) * n)),
            name=name,
            ids=np.array(ids[k]),
            rows=None,
        )
        for k, name in enumerate(NAMES)
    ]


def test_a_cluster_with_few_rows_at_one_of_two_parties_is_not_told(tmp_path, wire):
    """Total less own would be the score of one row, and with it the row and its label."""
    own = [[f"{name} {k // 4}" for k in range(40)] for name in NAMES]
    own[0][:8], own[1][:8] = [["p1"] * 7 + ["p2"], ["p1"] + ["p2"] * 7]
    for end in together(tmp_path, clustered(tmp_path, own)):
        assert isinstance(end, InvalidData)
        assert "ada and bea would have to send a sum over fewer rows than minimum-count" in str(end)
        assert 'Use inference = "robust"' in str(end)
    # Hessian, slope, residual, scores of local clusters and of two shared ones: not said.
    assert not any(message.size > 6 + 3 + 1 for _, message in wire["bea"])
    assert (tmp_path / "bea" / "result" / "model.npz").is_file()


def test_what_shared_clusters_leave_is_not_told_either(tmp_path):
    """All rows of bea but three are in clusters that others have: the sum over all, less these, is
    about three.
    """
    own = [[f"{name} {k // 4}" for k in range(40)] for name in NAMES]
    own[1] = [f"ada {k % 4}" for k in range(37)] + ["b1", "b2", "b3"]
    own[0] = [f"ada {k % 4}" for k in range(40)]
    for end in together(tmp_path, clustered(tmp_path, own)):
        assert "bea would have to send a sum over fewer rows" in str(end)


def test_clusters_with_enough_rows_at_each_party_are_told(tmp_path):
    own = [[f"{name} {k // 5}" for k in range(40)] for name in NAMES]
    own[0][:5] = own[1][:5] = ["both"] * 5
    tables = clustered(tmp_path, own)
    assert all(result.status.success for result in together(tmp_path, tables))
    found = co.Inference.load(tmp_path / "ada" / "result" / "inference.json")
    problem = co.Problem("logistic", "none", intercept=True)
    local = co.solve(
        problem, [replace(table, ids=None) for table in tables], tol=1e-8, progress=False
    )
    with pytest.warns(UserWarning, match="only 23 clusters"):
        expected = local.inference("clustered", clusters=[np.array(ids) for ids in own])
    np.testing.assert_allclose(found.standard_errors, expected.standard_errors, rtol=1e-6)


@pytest.mark.parametrize("kind", ["logistic", "hinge", "multinomial", "squared", "poisson"])
def test_no_bin_of_an_evaluation_has_few_rows_of_a_party(tmp_path, wire, kind):
    classes = kind in ("logistic", "hinge")
    problem = {"loss": kind, "penalty": "l2", "strength": 0.05}
    problem |= {} if kind == "hinge" else {"intercept": True}
    settings = {**STUDY, "problem": problem, "tol": 1e-2, "method": "auto"}
    write_study(tmp_path, policy=ANYTHING, **settings)
    whole = data("samples", classification=classes, n=300, d=3)
    if kind == "multinomial":
        whole = [
            replace(table, y=np.digitize(table.y, [-1.0, 1.0]).astype(float)) for table in whole
        ]
    if kind == "poisson":
        whole = [replace(table, y=1.37 * np.abs(table.y)) for table in whole]
    write_data(tmp_path, whole)
    for name in NAMES:
        file = tmp_path / name / "party.toml"
        file.write_text("test = 0.4\n" + file.read_text())
    together(tmp_path)
    for said in wire.values():
        said.clear()
    found = together(tmp_path, work=evaluate_together)
    assert found[0].rows == 120
    for name in NAMES:
        # The first message has sums over all rows; what are counts of groups are whole numbers.
        for _, message in wire[name][1:]:
            counts = message[message == np.round(message)]
            assert not ((counts > 1) & (counts < MINIMUM)).any(), message
    model = co.models.load_model(tmp_path / "ada" / "result" / "model.npz")
    exact = co.evaluate(model, [hold_out(table, whole) for table in whole])
    for score, value in found[0].scores.items():
        if np.isfinite(value) and score not in ("auc", "calibration_error"):
            assert value == pytest.approx(exact.scores[score], rel=1e-9), score
    if classes:
        assert (
            abs(found[0].scores["auc"] - exact.scores["auc"])
            <= found[0].auc_bound + exact.auc_bound
        )
        filled = [one for one in found[0].calibration if one.weight]
        assert all(one.weight >= MINIMUM for one in filled)


def hold_out(table, whole):
    return co.data.hold_out([table], 0.4, by="samples", seed=0)[1][0]


def test_few_events_and_few_rows_of_a_class_are_left_out(tmp_path):
    write_study(tmp_path, policy=ANYTHING, **STUDY)
    whole = data("samples", classification=True, n=300, d=3)
    few = np.where(np.arange(100) < 3, 1.0, -1.0)
    write_data(tmp_path, [whole[0], replace(whole[1], y=few), whole[2]])
    together(tmp_path)
    for table in whole:
        file = tmp_path / table.name / "party.toml"
        file.write_text('test = "data.csv"\n' + file.read_text())
    found = together(tmp_path, work=evaluate_together)[0]
    assert found.confusion is None
    assert np.isnan(found.scores["auc"])
    assert found.scores["brier"] > 0
    assert "fewer rows of a class at a party than minimum-count" in str(found)


def test_no_count_of_a_description_is_of_few_rows(tmp_path, wire):
    random = np.random.default_rng(1)
    write_study(tmp_path, policy=ANYTHING, **STUDY)
    for k, name in enumerate(NAMES):
        lines = ["age,city,hiv,y"]
        for i in range(60):
            age = "" if i < k + 1 else f"{random.normal(50, 10):.1f}"
            city = "Bern" if i < 2 else "Copenhagen" if i % 2 else "Stockholm"
            lines.append(f"{age},{city},{int(i < 3)},{'positive' if i % 2 else 'negative'}")
        (tmp_path / name / "data.csv").write_text("\n".join(lines))
    found = together(tmp_path, work=describe_together)[0]
    assert "Bern" not in found["city"].categories
    assert found["city"].categories["(other)"] >= 3 * MINIMUM
    assert found["age"].missing == 3 * MINIMUM
    for name in NAMES:
        counts = [message for _, message in wire[name] if (message == np.round(message)).all()]
        # After the numbers of values, and of categories.
        for message in counts[2:]:
            assert not ((message > 1) & (message < MINIMUM)).any(), message


def test_a_liar_does_not_hear_of_a_category_that_is_rare_at_a_party(tmp_path, wire, monkeypatch):
    """Whatever others claim to have, a party says nothing of a category with few rows of its
    own.
    """
    write_study(tmp_path, policy=ANYTHING, **STUDY)
    for name in NAMES:
        rare = "HIV" if name == "bea" else "flu"
        rows = [f"{i},{rare if i < 1 else 'flu'},{i % 2}" for i in range(40)]
        (tmp_path / name / "data.csv").write_text("\n".join(["age,code,y", *rows]))
    together(tmp_path, work=describe_together)
    said = b"".join(bytes_of(message) for _, message in wire["bea"])
    assert b"HIV" not in said
    assert b"flu" in said


# -- parties that hide nobody ----------------------------------------------------------------------


@pytest.mark.parametrize("rows", [0, 3, 19])
def test_an_ally_with_few_rows_does_not_make_three_parties_of_two(tmp_path, wire, rows):
    write_study(tmp_path, policy="", **STUDY)
    file = tmp_path / "cyd" / "party.toml"
    file.write_text(file.read_text() + "policy.minimum-rows = 0\npolicy.budget = inf\n")
    tables = data("samples", classification=True, n=3000, d=2)
    tables[2] = tables[2].take_rows(np.arange(rows))
    ends = together(tmp_path, tables)
    assert all(isinstance(end, Refused) for end in ends), ends
    assert "bea's policy: secure sums need 3 parties with at least minimum-rows = 20 rows" in str(
        ends[1]
    )
    assert "there are 2 (ada, bea)" in str(ends[1])
    assert not wire["bea"]
    # Without masks it is what two parties see of each other, if all agree to that.
    text = (tmp_path / "study.toml").read_text()
    (tmp_path / "study.toml").write_text("secure-sums = false\n" + text)
    assert [end.status for end in together(tmp_path, tables)] == ["optimal"] * 3


def test_evaluations_and_descriptions_count_parties_alike(tmp_path):
    write_study(tmp_path, policy="policy.budget = inf", **STUDY)
    tables = data("samples", classification=True, n=300, d=2)
    write_data(tmp_path, tables)
    assert [end.status for end in together(tmp_path, tables)] == ["optimal"] * 3
    for name in NAMES[:2]:
        file = tmp_path / name / "party.toml"
        file.write_text('test = "data.csv"\n' + file.read_text())
    ends = together(tmp_path, work=evaluate_together)
    assert all(isinstance(end, Refused) for end in ends)
    assert "there are 2 (ada, bea)" in str(ends[0])


def test_two_parties_have_no_secure_sums_where_one_requires_them():
    parts = [TableSummary(name, 100, 3, 300, False, []) for name in NAMES]

    class Masked:
        has_secure_sums = True

    required = Policy(secure_sums="required")
    assert required.exposes(Masked, parts, 0) is None
    assert "there are 2 (ada, bea)" in required.exposes(Masked, parts[:2], 0)
    assert Policy().exposes(Masked, parts[:2], 0) is None
    few = msgspec.structs.replace(parts[2], rows=19)
    assert "there are 2" in Policy().exposes(Masked, [*parts[:2], few], 0)
    assert Policy(minimum_rows=19).exposes(Masked, [*parts[:2], few], 0) is None
    assert "minimum-rows = 20 rows in each of 6 folds" in Policy().exposes(
        Masked, parts, 0, folds=6
    )
    assert Policy(minimum_rows=16).exposes(Masked, parts, 0, folds=6) is None


# -- budgets ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("lie", [{}, {"nonzeros": 10**9}, {"rows": 10**9, "nonzeros": 10**10}])
def test_what_others_claim_does_not_raise_a_budget(tmp_path, lie):
    write_study(tmp_path, problem=LOGISTIC, split="samples", method="newton")
    study = load_party(tmp_path / "ada" / "party.toml")[1]
    mine = TableSummary("ada", 30, 30, 900, False, [])
    others = [msgspec.structs.replace(mine, name=name, **lie) for name in NAMES[1:]]
    assert study.has_secure_sums
    assert (
        "more than the 310 that its budget allows"
        in Policy().allows(study, [mine, *others], 0)["newton"]
    )


def test_a_budget_outlives_restarts_and_counts_what_is_said_again_once(tmp_path):
    file = tmp_path / "told" / "run"

    def said(answers, totals):
        account = Account("bea", 20, file)
        for message, total in zip(answers, totals, strict=True):
            account.count(np.full(4, message))
            account.receive(np.full(4, total))
        return account.sent

    assert said([1.0, 2.0], [5.0, 6.0]) == 8
    assert said([1.0, 2.0], [5.0, 6.0]) == 8, "the same run again, from the beginning"
    assert said([1.0, 2.0], [7.0, 6.0]) == 12, (
        "another total, so another question, and the same numbers in answer"
    )
    assert said([1.0, 3.0], [8.0, 6.0]) == 16
    with file.open("ab") as torn:
        torn.write(b"half a record")
    assert said([1.0, 4.0], [9.0, 6.0]) == 20
    with pytest.raises(PartyLost, match="keeps the count: remove it to begin again at 0"):
        said([1.0, 5.0], [10.0, 6.0])
    assert file.stat().st_mode & 0o077 == 0
    file.unlink()
    assert said([1.0, 5.0], [10.0, 6.0]) == 8


def test_a_party_that_comes_again_with_other_rows_does_not_reset_the_budgets_of_others(tmp_path):
    write_study(tmp_path, policy=ANYTHING, **{**STUDY, "tol": 1e-9})
    file = tmp_path / "bea" / "party.toml"
    file.write_text(file.read_text().replace("policy.budget = inf", "policy.budget = 1.5"))
    ends = []
    for seed in range(4):
        tables = data("samples", classification=True, n=150, d=3)
        tables[2] = data("samples", classification=True, n=150, d=3, seed=seed)[2]
        ends.append(together(tmp_path, tables)[1])
    # 50 rows of 4 numbers: about 120 numbers a run, of which 300 may be told in all.
    assert ends[0].status == "optimal"
    assert "more than the 300 that its budget allows" in str(
        getattr(ends[-1], "error", None) or ends[-1]
    )
    # With the rows of the first run nothing new is told.
    assert (
        together(tmp_path, data("samples", classification=True, n=150, d=3))[1].status == "optimal"
    )


def test_a_party_whose_own_rows_changed_keeps_its_count(tmp_path):
    write_study(tmp_path, policy=ANYTHING, **{**STUDY, "tol": 1e-9})
    file = tmp_path / "bea" / "party.toml"
    file.write_text(file.read_text().replace("policy.budget = inf", "policy.budget = 1.5"))
    ends = []
    for changed in range(4):
        tables = data("samples", classification=True, n=150, d=3)
        tables[1].X[changed] += 1.0
        ends.append(together(tmp_path, tables)[1])
    assert ends[0].status == "optimal"
    assert "more than the 300 that its budget allows" in str(
        getattr(ends[-1], "error", None) or ends[-1]
    )


# -- a total that was changed ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["star", "path"])
@pytest.mark.parametrize("change", ["total", "scaled", "own message"])
def test_who_adds_up_cannot_change_a_total(tmp_path, monkeypatch, kind, change):
    """The first party sees the total before all others: it changes numbers, and the check number as
    it did before.
    """
    handed_down = PointToPoint._handed_down

    def changed(self, total, tag, *way):
        if self.process == 0 and tag.purpose == "rounds" and self.layout.receives_from is None:
            numbers = fixed_point.rounded(total[:-3], float)
            if change == "scaled":
                total[:] = sum_of([total, total])
            else:
                more = fixed_point.zeros(total.size // 3 - 1)
                fixed_point.accumulate(more, 1e-6 * np.ones(numbers.size))
                total[:-3] = sum_of([total[:-3], more])
                total[-3:] = sum_of([total[-3:], fixed_point.sum_of(more)])
        return handed_down(self, total, tag, *way)

    if change == "own message":
        # What it says itself is on its way before it hears anything: a change afterwards is one of
        # the total.
        served = PointToPoint._served, PointToPoint._climbed

        def late(original):
            def added(self, messages, tag):
                found = original(self, messages, tag)
                if (
                    self.process == 0
                    and tag.purpose == "rounds"
                    and self.layout.receives_from is None
                ):
                    more = fixed_point.zeros(found.size // 3)
                    fixed_point.accumulate(more, np.eye(1, found.size // 3)[0])
                    found = sum_of([found, more])
                return found

            return added

        monkeypatch.setattr(PointToPoint, "_served", late(served[0]))
        monkeypatch.setattr(PointToPoint, "_climbed", late(served[1]))
    else:
        monkeypatch.setattr(PointToPoint, "_handed_down", changed)
    study = write_study(
        tmp_path, split="samples", method="proximal-2", network=kind, **{"max-rounds": 5}
    )
    for end in together(study, data("samples")):
        assert end.status == "protocol_error", end
        assert "masks do not cancel" in str(end)


def sum_of(parts):
    total = np.array(parts[0])
    for part in parts[1:]:
        fixed_point.add(total, np.array(part))
    return total


def test_the_root_does_not_learn_the_key(tmp_path, monkeypatch):
    keys, check_with = {}, secure_sums.MaskedSums.check_with

    def kept(self, key, root, helper):
        keys[self._me] = key
        check_with(self, key, root, helper)

    monkeypatch.setattr(secure_sums.MaskedSums, "check_with", kept)
    write_study(tmp_path, split="samples", method="gram")
    together(tmp_path, data("samples"))
    assert keys[0] is None
    assert keys[1] == keys[2] is not None


@given(
    st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=5), st.floats(1e-20, 1e9), st.integers(0, 4)
)
def test_a_check_finds_every_change(numbers, change, place):
    seeds = {(i, j): bytes([i, j] * 8) for i in range(3) for j in range(i)}
    parties = [
        secure_sums.MaskedSums(k, {o: seeds[max(k, o), min(k, o)] for o in range(3) if o != k})
        for k in range(3)
    ]
    for k, party in enumerate(parties):
        party.check_with(None if k == 0 else bytes(range(32)), 0, 1)
    said = [party.encoded(np.array(numbers), Tag("rounds", 1, "Sum")) for party in parties]
    parties[1].absorb(said[1], said[0])
    total = sum_of(said[1:])
    expected = secure_sums.ExactSums(3).at_once([np.array(numbers)] * 3)
    for party in parties:
        np.testing.assert_array_equal(party.decoded(total, float), expected)
    more = fixed_point.zeros(len(numbers) + 1)
    fixed_point.accumulate(more, change * np.eye(1, len(numbers) + 1, place % len(numbers))[0])
    total[:-3] = sum_of([total[:-3], more])
    for party in parties[1:]:
        with pytest.raises(ProtocolError, match="masks do not cancel"):
            party.decoded(total, float)


# -- consent ---------------------------------------------------------------------------------------


def test_nothing_is_sent_from_python_without_consent(tmp_path):
    write_study(tmp_path, **STUDY)
    tables = data("samples", classification=True, n=300, d=3)
    write_data(tmp_path, tables)
    own, study = load_party(tmp_path / "ada" / "party.toml")
    for work in (fit_together, describe_together):
        with pytest.raises(InvalidInput, match="Give consent=True, or consent= a function"):
            work(own, study)
        with pytest.raises(Refused, match="ada does not agree"):
            work(own, study, consent=lambda page: "what ada sends" not in page)
    assert not (tmp_path / "ada" / "consent.json").exists()
    assert [end.status for end in together(tmp_path)] == ["optimal"] * 3
    # Who agreed once is not asked again.
    assert [end.status for end in together(tmp_path, consent=None)] == ["optimal"] * 3
    (tmp_path / "ada" / "consent.json").unlink()
    for work in (evaluate_together, verify_together):
        with pytest.raises(InvalidInput, match="Give consent=True"):
            work(own, study)
    assert all(one.holds for one in together(tmp_path, work=verify_together))
    assert all(one.holds for one in together(tmp_path, work=verify_together, consent=None))
