"""Two-way tables: those of pandas on pooled rows, and what parties withhold of them."""

from __future__ import annotations

import functools
import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2_contingency

import coterie as co
from coterie.api.describe import RAW, raw_columns
from coterie.errors import CorruptFile, InvalidData, InvalidInput, PartyLost
from coterie.run.groups import small
from coterie.run.site import Rules, Site
from coterie.stats.two_way import two_way
from coterie.study.crosstab import crosstab_together
from coterie.study.disclosure import disclosure
from coterie.study.party import read_own
from coterie.study.study import load_party
from tests.harness.parties import ANYTHING, NAMES, together, write_study
from tests.harness.shell import shell
from tests.harness.wire import bytes_of

RNG = np.random.default_rng(4)
N = 600
FRAME = pd.DataFrame(
    {
        "city": RNG.choice(["Oslo", "Rome", "Bern", "Ulm"], N, p=[0.5, 0.3, 0.18, 0.02]),
        "stage": RNG.choice([1, 2, 10], N, p=[0.6, 0.3, 0.1]),
        "age": RNG.normal(50, 10, N),
        "ill": np.where(RNG.random(N) < 0.3, "yes", "no"),
    }
)
FRAME.loc[::17, "city"] = None
PARTS = [FRAME[:200], FRAME[200:420], FRAME[420:]]
BY = ("city", "stage")


def pooled_rows(frames=PARTS):
    frame = pd.concat(frames)
    return pd.crosstab(frame.city.fillna("(missing)"), frame.stage)


def as_frame(found, values):
    return pd.DataFrame(values, index=found.rows, columns=found.columns)


def test_the_counts_are_those_of_pooled_rows():
    found = co.crosstab(PARTS, *BY)
    expected = pooled_rows()
    assert found.columns == ("1", "2", "10")
    assert found.rows == ("Bern", "Oslo", "Rome", "Ulm", "(missing)")
    np.testing.assert_array_equal(found.counts, expected.loc[list(found.rows)])
    assert found.row_totals == tuple(expected.sum(axis=1)[list(found.rows)])
    assert found.column_totals == tuple(expected.sum(axis=0))
    assert found.bill.total.messages > 0
    test = found.chi_square()
    by_scipy = chi2_contingency(expected.drop(index="(missing)"), correction=False)
    assert test.statistic == pytest.approx(by_scipy.statistic)
    assert test.degrees_of_freedom == by_scipy.dof
    assert test.p_value == pytest.approx(by_scipy.pvalue)


def recoded(values, minimum):
    """A party's column with its rare values among the others, so that no number of rows is small;
    row by row.
    """
    values = values.fillna("(missing)").astype(str)
    rows = values.value_counts()
    rare = values.map(rows) < minimum
    while 0 < rare.sum() < minimum and not rare.all():
        largest = values[~rare].value_counts().sort_index().idxmax()
        rare[values[(values == largest) & ~rare].index[-1]] = True
    return values.where(~rare, "(other)")


@pytest.mark.parametrize("by", [BY, ("city", "ill"), ("ill", "stage")])
def test_small_cells_are_withheld_and_the_bounds_hold(by):
    found = co.crosstab(PARTS, *by, minimum=5)
    pooled = [pd.concat([recoded(part[name], 5) for part in PARTS]) for name in by]
    expected = pd.crosstab(*pooled).loc[list(found.rows), list(found.columns)].to_numpy()
    assert found.row_totals == tuple(expected.sum(axis=1))
    assert found.column_totals == tuple(expected.sum(axis=0))
    assert (found.low <= expected).all()
    assert (expected <= found.high).all()
    known = found.low == found.high
    assert known.any()
    assert not known.all()
    assert "lies between a and b" in str(found)
    assert found.chi_square() is None


def own_messages(part, by=BY, minimum=5):
    """What a party sends if it is alone, and what it comes to."""
    site = Site(0, 1, raw_columns(co.read(part, prepare=RAW), None, by))
    protocol, sent, reply = two_way(Rules(minimum), site), [], None
    while True:
        try:
            reply = protocol.send(reply).x
        except StopIteration as end:
            return sent, end.value
        sent.append(reply)


@pytest.mark.parametrize("part", PARTS, ids=["north", "south", "west"])
def test_a_party_sends_no_small_count_and_no_name_of_a_rare_value(part):
    sent, found = own_messages(part)
    rows = part.city.value_counts(dropna=False)
    assert rows["Ulm"] < 5
    assert "Ulm" not in found.rows.values
    cells = found.rows.size * found.columns.size
    assert sent[-1].shape == (2 * cells,)
    assert not small(sent[-1][:cells], 5).any()
    for margin in (found.rows, found.columns):
        assert not small([*margin.totals, margin.others], 5).any()
    assert not any(b"Ulm" in bytes_of(message) for message in sent)
    assert any(b"Ulm" in bytes_of(message) for message in own_messages(part, minimum=1)[0])


def test_a_party_with_few_rows_and_one_without_any():
    found = co.crosstab([*PARTS, FRAME[:3], FRAME[:0]], *BY, minimum=5)
    assert sum(found.row_totals) == N + 3
    assert found.rows[-1] == "(other)"
    alone = co.crosstab(FRAME[:3], *BY, minimum=5)
    assert (alone.rows, alone.row_totals) == (("(other)",), (3,))
    assert alone.chi_square() is None


def test_labels_and_columns_without_names():
    X, y = FRAME[["stage", "age"]].round(-1).to_numpy(), FRAME.ill
    assert co.crosstab((X, y), "x0", "label").column_totals == tuple(
        FRAME.ill.value_counts().sort_index()
    )


def test_what_cannot_be_counted_is_refused():
    with pytest.raises(
        InvalidData, match=r"'age' has 600 different values, and a table at most 50\. Put them into"
    ):
        co.crosstab(FRAME, "city", "age")
    with pytest.raises(InvalidData, match="no column called 'town'"):
        co.crosstab(FRAME, "town", "stage")
    with pytest.raises(InvalidData, match="no column called 'stage'"):
        co.crosstab([FRAME, FRAME.drop(columns="stage")], *BY)
    with pytest.raises(InvalidInput, match="Name two columns"):
        co.crosstab(FRAME, "city", "city")


# -- engines ---------------------------------------------------------------------------------------


@pytest.mark.cluster
def test_on_a_cluster_the_same(on_ray):
    there = co.crosstab(
        [functools.partial(pd.DataFrame, part) for part in PARTS], *BY, minimum=5, engine=on_ray
    )
    here = co.crosstab(PARTS, *BY, minimum=5)
    assert str(there) == str(here)
    assert there.bill == here.bill


# -- doors -----------------------------------------------------------------------------------------


def test_the_command_and_the_file(tmp_path):
    for name, part in zip(NAMES, PARTS, strict=True):
        part.to_csv(tmp_path / f"{name}.csv", index=False)
    paths = [str(tmp_path / f"{name}.csv") for name in NAMES]
    options = ["--rows", "city", "--columns", "stage", "--minimum", "5"]
    file = tmp_path / "found.json"
    ran = shell("crosstab", *paths, *options, "--json", "-o", str(file))
    assert ran.exit_code == 0, ran.output
    expected = co.crosstab(PARTS, *BY, minimum=5)
    told = json.loads(ran.output)
    assert told["counts"] == [
        [None if np.isnan(x) else x for x in row] for row in expected.counts.tolist()
    ]
    assert str(co.Crosstab.load(file)) == str(expected)
    assert str(expected) in shell("crosstab", *paths, *options).output
    file.write_text("{}")
    with pytest.raises(CorruptFile):
        co.Crosstab.load(file)


# -- between organisations -------------------------------------------------------------------------


def write_parts(folder, **settings):
    problem = {"loss": "logistic", "penalty": "l2", "strength": 0.1, "intercept": False}
    write_study(folder, problem=problem, **{"split": "samples", **settings})
    for name, part in zip(NAMES, PARTS, strict=True):
        part.to_csv(folder / name / "data.csv", index=False)
        file = folder / name / "party.toml"
        file.write_text(file.read_text().replace('target = "y"', 'target = "ill"'))


def test_organisations_come_to_the_same(tmp_path):
    write_parts(tmp_path, policy="policy.minimum-count = 5")
    file = tmp_path / "cyd" / "party.toml"
    file.write_text(file.read_text().replace("minimum-count = 5", "minimum-count = 7"))
    found = together(tmp_path, work=crosstab_together, rows="city", columns="stage")
    here = co.crosstab(PARTS, *BY, minimum=7, secure_sums=True)
    for one in found:
        assert str(one) == str(here)
        assert one.bill == here.bill
    assert str(co.Crosstab.load(tmp_path / "ada" / "result" / "crosstab.json")) == str(here)
    # The budget is of all columns, and all tables count: in the end there is none left.
    file.write_text(file.read_text() + "policy.budget = 0.2\n")
    more = [
        together(tmp_path, work=crosstab_together, rows="ill", columns=other)
        for other in ("city", "stage")
    ]
    assert not isinstance(more[0][0], Exception)
    assert any(isinstance(one, PartyLost) for one in more[1])


def test_parties_that_name_other_columns_are_refused(tmp_path):
    write_parts(tmp_path, policy=ANYTHING)

    def crosstab_together_of_its_own(own, study, consent):
        columns = "stage" if own.party == "ada" else "ill"
        return crosstab_together(own, study, "city", columns, consent=consent)

    found = together(tmp_path, work=crosstab_together_of_its_own, consent=True)
    assert all(isinstance(one, InvalidData) for one in found), found


def test_the_page_says_what_a_table_sends(tmp_path):
    write_parts(tmp_path)
    FRAME[["age", "ill"]].to_csv(tmp_path / "ada" / "data.csv", index=False)
    own, study = load_party(tmp_path / "ada" / "party.toml")
    page = disclosure(study, "ada", read_own(own, study))
    sentence = two_way.disclosures[0].sent
    assert (
        sentence
        in page.partition("Sent to crosstab, by `coterie crosstab`:")[2].partition(
            "Sent to evaluate"
        )[0]
    )


def test_columns_at_several_parties_are_refused(tmp_path):
    write_parts(tmp_path, split="features")
    own, study = load_party(tmp_path / "ada" / "party.toml")
    with pytest.raises(
        InvalidInput, match=r"split by features\. Count the rows of one file: coterie crosstab"
    ):
        crosstab_together(own, study, *BY)
    page = disclosure(study, "ada", co.Table(np.ones((3, 1)), np.ones(3)))
    assert "coterie crosstab" not in page


@pytest.mark.rotates
def test_agents_of_a_study_count_over_tls(tmp_path):
    """A process for each party, started by one command, as in a rehearsal."""
    write_parts(tmp_path, policy=ANYTHING)
    command = [
        sys.executable,
        "-m",
        "coterie",
        "crosstab",
        str(tmp_path),
        "--rows",
        "city",
        "--columns",
        "stage",
    ]
    ran = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)["parties"]
    here = co.crosstab(PARTS, *BY, minimum=5, secure_sums=True)
    for name in NAMES:
        assert told[name]["low"] == here.low.tolist()
        assert told[name]["high"] == here.high.tolist()
        assert told[name]["output"].endswith("crosstab.json")
