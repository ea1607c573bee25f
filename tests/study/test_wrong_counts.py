"""Counts, limits and names that no honest party sends: an error in plain words, no traceback."""

from __future__ import annotations

import math
from functools import partial

import msgspec
import numpy as np
import pytest

from coterie.data.values import has_control_characters
from coterie.errors import InvalidData, PartyLost, ProtocolError
from coterie.run.groups import agree_on_edges, allowed, checked_counts, checked_weights
from coterie.stats import categories
from coterie.stats.quantiles import quantiles
from coterie.study.crosstab import crosstab_together
from coterie.study.description import describe_together
from coterie.transport import secure_sums
from coterie.transport.broadcast import SignedBroadcast
from tests.harness import operations
from tests.harness.parties import together

NAMES = operations.NAMES
LIAR = NAMES[-1]
WRONG = r"the counts of .* do not add up: a party sent wrong numbers"
ESCAPE = "\x1b[2Jann cheated"
tabulated = partial(crosstab_together, rows="ward", columns="grade", consent=True)


def answered(protocol, change):
    """Run a protocol of one agent that receives changed sums."""
    total = None
    while True:
        total = change(protocol.send(total).x)


# -- counts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [-1.0, 0.5, 1.0, 2.0**54, math.nan, math.inf])
def test_a_count_is_whole_and_at_least_that_of_this_party(count):
    with pytest.raises(ProtocolError, match=WRONG):
        checked_counts(np.array([3.0, count]), [3, 2], "rows")
    assert checked_counts(np.array([3.0, 2.0]), [3, 2], "rows").tolist() == [3.0, 2.0]


def test_weights_are_not_negative():
    with pytest.raises(ProtocolError, match=WRONG):
        checked_weights(np.array([0.5, -1e-9]), "bins")
    assert checked_weights(np.array([0.5, 0.0]), "bins").tolist() == [0.5, 0.0]


def test_objections_of_this_party_cannot_be_cancelled():
    with pytest.raises(ProtocolError, match="counts of objections to small groups"):
        answered(allowed([[3, 60]], 5), np.zeros_like)
    edges, counts = np.array([0.0, 1.0, 2.0]), np.array([3, 60])
    with pytest.raises(ProtocolError, match="counts of objections to small groups"):
        answered(agree_on_edges([edges], [counts], 5), np.zeros_like)


@pytest.mark.parametrize("change", [lambda x: x - 50, lambda x: x + 0.5, lambda x: x + x.any()])
def test_parts_of_a_bin_have_its_values(change):
    column = np.random.default_rng(0).normal(size=60)
    with pytest.raises(ProtocolError, match="counts of values in bins"):
        answered(quantiles([column], (0.5,)), change)


def lying_sums(monkeypatch, step, change):
    """The last party changes its numbers before it masks them."""
    encoded = secure_sums.MaskedSums.encoded

    def lied(sums, message, tag, heard=b""):
        if sums._me == len(NAMES) - 1 and (tag.purpose, tag.step) == ("rounds", step):
            message = change(np.array(message, float))
        return encoded(sums, message, tag, heard)

    monkeypatch.setattr(secure_sums.MaskedSums, "encoded", lied)


LIES = {"negative": lambda x: x - 50, "huge": lambda x: 0 * x + 2.0**90, "parts": lambda x: x + 0.5}


def assert_plain(ends):
    """Every honest party ends with the plain error, or reports it of another party."""
    assert all(isinstance(end, (ProtocolError, PartyLost)) for end in ends), ends
    assert all("do not add up" in str(end) for end in ends), ends


@pytest.mark.parametrize("lie", LIES)
def test_wrong_cells_of_a_two_way_table_are_refused(tmp_path, monkeypatch, lie):
    folder = operations.Among(tmp_path).raw_study()
    lying_sums(monkeypatch, 4, LIES[lie])
    assert_plain(together(folder, names=NAMES, work=tabulated))
    assert not list(folder.glob("*/result/crosstab.json"))


def test_negative_bins_of_a_description_are_refused(tmp_path, monkeypatch):
    policy = f"{operations.ANYTHING}\npolicy.minimum-count = 5"
    folder = operations.Among(tmp_path, policy=policy).raw_study()
    lying_sums(monkeypatch, 8, LIES["negative"])
    assert_plain(together(folder, names=NAMES, work=describe_together))
    assert not list(folder.glob("*/result/description.json"))


# -- limits ----------------------------------------------------------------------------------------


LIMITS = {
    "minimum below 0": [True, -5, math.inf, 1e6],
    "minimum without end": [True, 2**64 - 1, math.inf, 1e6],
    "page below 0": [True, 1, math.inf, -1e9],
    "budget below 0": [True, 1, -1.0, 1e6],
}


def lying_text(monkeypatch, about, value):
    """The last party sends this value in a message."""
    sign = SignedBroadcast._signed

    def changed(broadcast, mine, subject):
        if broadcast.links.name(broadcast.links.me) == LIAR and subject == about:
            mine = msgspec.msgpack.encode(value)
        return sign(broadcast, mine, subject)

    monkeypatch.setattr(SignedBroadcast, "_signed", changed)


@pytest.mark.parametrize("lie", LIMITS)
def test_impossible_limits_are_refused_and_their_sender_is_named(tmp_path, monkeypatch, lie):
    folder = operations.Among(tmp_path).raw_study()
    lying_text(monkeypatch, "limits", LIMITS[lie])
    for end in together(folder, names=NAMES, work=tabulated):
        assert f"limits: {LIAR} sent an unexpected payload" in str(end)


@pytest.mark.parametrize("value", [[2**63 - 1, 1e6], [-5, 1e6], [5, -1.0]])
def test_impossible_limits_of_a_preparation_are_refused(tmp_path, monkeypatch, value):
    problem = {"loss": "squared", "penalty": "l2", "strength": 0.1}
    folder = operations.Among(tmp_path).study("linear", problem, prepare="standardise")
    lying_text(monkeypatch, "least rows of a group", value)
    for end in together(folder, names=NAMES):
        assert f"least rows of a group: {LIAR} sent an unexpected payload" in str(end)


# -- names -----------------------------------------------------------------------------------------


def test_text_that_moves_a_cursor_has_control_characters():
    assert all(map(has_control_characters, [ESCAPE, "a\nb", "a\tb", "a\u202eb", "a\x85", "\u2028"]))
    assert not any(
        map(has_control_characters, ["Zürich", "5\u00a0mg", "病棟", "نیم\u200cفاصله", ""])
    )


def test_a_category_with_an_escape_sequence_is_refused_where_it_arrives():
    with pytest.raises(ProtocolError, match="a party sent a category with control") as refused:
        categories._read(b"t" + ESCAPE.encode(), True)
    assert ESCAPE not in str(refused.value)


@pytest.mark.parametrize("work", [describe_together, tabulated])
def test_an_own_category_with_an_escape_sequence_never_leaves(tmp_path, work):
    folder = operations.Among(tmp_path).raw_study()
    file = folder / LIAR / "data.csv"
    file.write_text(file.read_text().replace("\nc,", f"\n{ESCAPE},"))
    ends = together(folder, names=NAMES, work=work)
    assert isinstance(ends[-1], InvalidData), ends
    assert "column 'ward' has the category" in str(ends[-1])
    for end in ends:
        assert isinstance(end, (InvalidData, PartyLost))
        assert "control characters" in str(end)
        assert "\x1b" not in str(end)


def test_an_own_class_with_an_escape_sequence_never_leaves(tmp_path):
    folder = operations.Among(tmp_path).study("multiclass")
    for name in NAMES:
        file = folder / name / "data.csv"
        head, *rows = file.read_text().splitlines()
        named = [row[: row.rindex(",") + 1] + "c" + row[row.rindex(",") + 1 :] for row in rows]
        file.write_text("\n".join([head, *named]) + "\n")
    file.write_text(file.read_text().replace(",c0", f",{ESCAPE}"))
    ends = together(folder, names=NAMES)
    assert isinstance(ends[-1], InvalidData), ends
    assert "has control characters" in str(ends[-1])
    assert not any("\x1b" in str(end) for end in ends)
    assert not list(folder.glob("*/result/model.npz"))
