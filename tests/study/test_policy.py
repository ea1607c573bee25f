"""A party's own policy: checked before anything is sent, named here, and only that it refused is
told to the others.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from coterie.api.result import Result
from coterie.data.summary import TableSummary
from coterie.errors import InvalidInput, PartyLost, Refused
from coterie.run import rescue
from coterie.study.disclosure import disclosure
from coterie.study.policy import Policy
from coterie.study.study import load_party, load_study
from coterie.transport.grpc_mesh import GrpcMesh
from tests.harness.parties import ANYTHING, NAMES, RIDGE, data, together, write_data, write_study

LOGISTIC = {"loss": "logistic", "penalty": "l2", "strength": 0.01, "intercept": False}
PLAIN = {"secure-sums": False}


class Recording(GrpcMesh):
    """Keeps what every message is about."""

    def __init__(self, tags, *given, **more):
        super().__init__(*given, **more)
        self.tags = tags

    def send(self, to, message, tag):
        self.tags.append(tag)
        super().send(to, message, tag)


def dotted(rules):
    return re.sub("^(?=[a-z])(?!policy)", "policy.", rules, flags=re.MULTILINE)


def policies(folder, **by_party):
    for name, rules in by_party.items():
        path = folder / name / "party.toml"
        path.write_text(path.read_text().replace(ANYTHING, dotted(rules)))


@pytest.mark.parametrize(
    ("rules", "settings", "words"),
    [
        ("", {}, "the table has 6 rows, fewer than minimum-rows = 20"),
        (
            'minimum-rows = 6\nmethods = ["cocoa"]',
            {"method": "newton"},
            "'newton' is not among methods = ['cocoa']",
        ),
        (
            'minimum-rows = 6\nsecure-sums = "required"',
            PLAIN,
            'secure-sums = "required", but the study has no secure sums',
        ),
    ],
    ids=["rows", "method", "secure sums"],
)
def test_a_policy_that_refuses_is_named_here_and_only_mentioned_there(
    tmp_path, rules, settings, words
):
    write_study(tmp_path, problem=LOGISTIC, split="samples", **settings)
    policies(tmp_path, bea=rules)
    sent = []
    tables = data("samples", classification=True, n=18, d=6)
    ends = together(tmp_path, tables, links=partial(Recording, sent))
    assert all(isinstance(end, Refused) for end in ends), ends
    assert f"bea's policy: {words}" in str(ends[1])
    assert [str(ends[0]), str(ends[2])] == ["refused by bea's policy"] * 2
    assert {tag.collective for tag in sent} == {"introduction", "policies"}
    assert not list(tmp_path.glob("*/result"))


@pytest.mark.rotates
def test_with_the_defaults_tiny_data_is_refused_in_real_processes(tmp_path):
    write_study(tmp_path, problem=LOGISTIC, split="samples", policy="")
    write_data(tmp_path, data("samples", classification=True, n=18, d=6))
    command = [sys.executable, "-m", "coterie", "agent", str(tmp_path), "--json"]
    found = json.loads(
        subprocess.run(command, capture_output=True, text=True, timeout=280, check=False).stdout
    )
    for name in NAMES:
        assert found["parties"][name]["exit_code"] == 3
        assert f"{name}'s policy: the table has 6 rows" in found["parties"][name]["error"]


def parts(rows, columns, parties=3):
    return [
        TableSummary(name, rows, columns, rows * columns, False, []) for name in NAMES[:parties]
    ]


def test_newton_tells_too_much_of_four_rows_a_column_and_gram_does_not(tmp_path):
    def refused(problem, rows, method):
        write_study(tmp_path, problem=problem, split="samples", method=method, **PLAIN)
        study = load_party(tmp_path / "ada" / "party.toml")[1]
        return Policy().allows(study, parts(rows, 30), 0)[method]

    # 8 rounds of 30 · 33 / 2 + 2 numbers against a third of 31 n.
    assert "newton would send about 3976 numbers in this run, more than the 1240" in refused(
        LOGISTIC, 120, "newton"
    )
    assert "newton" in refused(LOGISTIC, 384, "newton")
    assert refused(LOGISTIC, 385, "newton") == ""
    assert refused(RIDGE, 48, "gram") == ""
    assert "gram" in refused(RIDGE, 47, "gram")


def test_with_columns_apart_there_is_no_budget_unless_somebody_sets_one(tmp_path):
    write_study(tmp_path, method="tree", network="path")
    study = load_party(tmp_path / "ada" / "party.toml")[1]
    assert Policy().allows(study, parts(100, 10), 0)["tree"] == ""
    assert (
        "tree would send about 15992 numbers"
        in Policy(budget=1.0).allows(study, parts(100, 10), 0)["tree"]
    )


def test_what_follows_another_method_has_the_same_budget(tmp_path):
    write_study(tmp_path, problem=LOGISTIC, split="samples", **PLAIN)
    study = load_party(tmp_path / "ada" / "party.toml")[1]
    for rows, refused in ((385, True), (4000, False)):
        alone, after = (
            Policy().allows(study, parts(rows, 30), 0, later=later)["newton"]
            for later in (False, True)
        )
        assert alone == ""
        assert ("newton would send about" in after) == refused
    assert (
        "is not among methods"
        in Policy(methods=("gram",)).allows(study, parts(4000, 30), 0, later=True)["newton"]
    )


@pytest.mark.parametrize("names", [["proximal-1", "newton"], ["proximal-1"]])
def test_a_rescue_uses_what_all_policies_allow(tmp_path, monkeypatch, names):
    """A run that is rescued at the first certificate."""
    monkeypatch.setattr(
        rescue, "TUNING", replace(rescue.TUNING, patience=1, patience_alone=1, endless=-1)
    )
    write_study(tmp_path, problem=LOGISTIC, split="samples", **{"max-rounds": 60})
    page = disclosure(load_study(tmp_path / "study.toml"), "bea", data("samples")[1])
    assert (
        "chosen when the parties have met, and perhaps by another of them if the run stalls, one of:"
        in page
    )
    policies(
        tmp_path,
        ada="minimum-rows = 0\nbudget = inf",
        bea=f"minimum-rows = 0\nbudget = inf\nmethods = {names}",
    )
    results = together(tmp_path, data("samples", classification=True, n=120, d=4))
    for result in results:
        assert result.certificate.settings["method"]["name"] == names[-1]
        assert f"it went on with {names[-1]} in careful steps" in result.explanation


def test_auto_chooses_among_what_all_policies_allow(tmp_path):
    write_study(tmp_path, split="samples")
    tables = data("samples")
    assert {
        result.certificate.settings["method"]["name"] for result in together(tmp_path, tables)
    } == {"gram"}
    allowing = ANYTHING + "\nmethods = {}"
    policies(
        tmp_path,
        bea=allowing.format(["cocoa", "proximal-2", "newton"]),
        cyd=allowing.format(["proximal-2", "cocoa", "gram"]),
    )
    results = together(tmp_path, tables)
    assert {result.certificate.settings["method"]["name"] for result in results} == {
        "proximal-2"
    }, results


def test_policies_that_have_no_method_in_common_end_the_run_in_words(tmp_path):
    write_study(tmp_path, split="samples")
    policies(
        tmp_path, bea=f"{ANYTHING}\nmethods = ['newton']", cyd=f"{ANYTHING}\nmethods = ['gram']"
    )
    for end in together(tmp_path, data("samples")):
        assert isinstance(end, Refused)
        assert "no method is allowed by all policies: ada allows " in str(end)
        assert "bea allows newton; cyd allows gram" in str(end)


def test_a_run_ends_before_one_number_too_many_also_after_it_was_continued(tmp_path):
    def fit(rounds):
        text = (tmp_path / "study.toml").read_text()
        (tmp_path / "study.toml").write_text(
            text.replace("max-rounds = 100", f"max-rounds = {rounds}")
        )
        sent = []
        return together(tmp_path, tables, links=partial(Recording, sent)), sent

    settings = PLAIN | {"max-rounds": 100, "check-every": 10, "acceleration": "none"}
    slow = RIDGE | {"strength": 1e-2}
    write_study(
        tmp_path,
        problem=slow,
        split="samples",
        method="lin-consensus",
        network="path",
        tol=1e-13,
        **settings,
    )
    # 20 rows of 10 numbers: 2480 may be said, fewer are expected, and a round says 9 to 19.
    policies(tmp_path, bea="minimum-rows = 20\nbudget = 12.4")
    tables = [replace(table, X=table.X * np.logspace(0, 2, 9)) for table in data("samples")]
    ends, _ = fit(100)
    assert [end.status for end in ends] == ["iteration_limit"] * 3
    ends, _ = fit(1000)
    for end in ends:
        assert isinstance(end, Result)
        assert end.status == "party_lost"
        assert 100 < end.rounds < 270
    assert isinstance(ends[1].error, PartyLost)
    assert "bea's policy: with the next message it is 24" in str(ends[1].error)
    assert "more than the 2480 that its budget allows" in str(ends[1].error)
    told = 'bea left the run: "refused by bea\'s policy"'
    assert [str(ends[0].error), str(ends[2].error)] == [told] * 2


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ("minimum-rows = -1", "minimum-rows is a number of rows"),
        ("budget = 0.0", "budget is a number above 0"),
        ('methods = ["newtn"]', "Did you mean 'newton'"),
        ("minimal-rows = 3", "unknown field `minimal-rows`"),
        ('secure-sums = "yes"', "Invalid enum value 'yes'"),
    ],
)
def test_rules_that_make_no_sense_are_refused_with_the_place(tmp_path, rules, words):
    write_study(tmp_path, policy=dotted(rules))
    with pytest.raises(InvalidInput, match=words):
        load_party(tmp_path / "ada" / "party.toml")


@pytest.mark.parametrize(
    "penalty", [{"penalty": "l2", "strength": 0.01}, {"penalty": "traceball", "radius": 3.0}]
)
def test_the_budget_knows_several_classes(tmp_path, penalty):
    write_study(
        tmp_path,
        problem={"loss": "multinomial", "intercept": False} | penalty,
        split="samples",
        policy="",
    )
    ends = together(tmp_path, data("samples", classification=True, n=900, d=4))
    if penalty["penalty"] == "l2":
        assert [end.status for end in ends] == ["optimal"] * 3, ends
    else:
        assert "dfw-subspace would send about" in str(ends[0])
