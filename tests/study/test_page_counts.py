"""No party sends more numbers than its page says: for every operation and kind, the messages of all
parties are recorded.
"""

from __future__ import annotations

import re
from collections import defaultdict

import pytest

from coterie.study.description import describe_together
from coterie.study.dry_run import FACTOR
from coterie.study.party import fit_together
from coterie.study.policy import FOLDER, RECORD
from coterie.study.scores import evaluate_together
from coterie.study.study import load_party
from tests.harness.operations import CELLS, Among, ask
from tests.harness.parties import NAMES, data, together, write_data, write_study
from tests.harness.wire import Wire

HEADER = re.compile(r"what (\w+) sends for `coterie (\w+)`")
AMOUNT = re.compile(r"You send at most ([\d,]+) numbers")
SPARED = 60
"""How many times the numbers that are sent a page allows, at most, if no rounds are taken: four
times those of the dry run, and what it spares for values of other parties.
"""
ROUNDS = 12
"""The same of a fit, for each round that it may take and does not."""
UNCOUNTED = ("low-rank", "personal")
"""Kinds with a fit whose page cannot count it: the search for intercepts has no fixed length, and
messages to neighbours depend on which party wakes up when.
"""


COUNTED = "policy.minimum-rows = 0\npolicy.minimum-count = 1\npolicy.budget = 1e6"
"""A policy whose budget is never used up, but counted."""
GOVERNED = ("fit", "describe", "crosstab", "evaluate")
"""Operations that policies limit."""


class Pages:
    """Agrees to every page, and keeps the numbers that they allow."""

    def __init__(self):
        self.allowed = {}

    def __call__(self, page):
        party, command = HEADER.search(page).groups()
        amount = AMOUNT.search(page)
        number = None if amount is None else float(amount[1].replace(",", ""))
        self.allowed[party, command.replace("agent", "fit")] = number
        return True


def sent_by(wire):
    """By party and operation, the numbers in all sums and other collectives."""
    found = defaultdict(float)
    for one in wire.conversations:
        found[one.party, one.operation] += sum(numbers for _, numbers in one.sent.values())
    return found


def stored_budgets(folder):
    """By party and operation, the numbers that the parties' files count."""
    found = defaultdict(float)
    for file in folder.glob(f"*/*/{FOLDER}/*"):
        counts = [numbers for numbers, _ in RECORD.iter_unpack(file.read_bytes())]
        found[file.parent.parent.name, file.name.rpartition("-")[2]] += sum(counts)
    return found


@pytest.mark.rotates
@pytest.mark.parametrize("cell", CELLS, ids=" of ".join)
def test_no_party_sends_more_than_its_page_says(cell, tmp_path):
    operation, kind = cell
    wire, pages = Wire(), Pages()
    with wire.recorded():
        answer = ask(operation, kind, Among(tmp_path, pages, COUNTED))
    sent = sent_by(wire)
    governed = {key: numbers for key, numbers in sent.items() if numbers and key[1] in GOVERNED}
    stored = stored_budgets(tmp_path)
    if kind == "personal":
        # Messages to neighbours count, too, and are outside of conversations.
        assert all(stored[key] >= numbers for key, numbers in governed.items())
    else:
        assert stored == governed
    assert sent.keys() <= pages.allowed.keys()
    assert sent or "refused" in answer
    for (party, what), numbers in sent.items():
        allowed = pages.allowed[party, what]
        if allowed is None:
            assert kind in UNCOUNTED
            continue
        assert numbers <= allowed, (
            f"{party}, {what}: {numbers:g} numbers, the page says {allowed:g}"
        )
        if kind in UNCOUNTED:
            continue  # the page states the budget
        fits = what in ("fit", "verify")
        most = ROUNDS * 22 if fits else SPARED
        assert allowed <= most * max(numbers, 1), f"{what}: {allowed:g} for {numbers:g} numbers"


def test_a_page_states_the_counts_of_a_dry_run(tmp_path):
    """Alone, a party sends what the dry run counts."""
    write_study(tmp_path, split="samples", policy="policy.minimum-rows = 0\npolicy.budget = inf")
    write_data(tmp_path, data("samples", n=150, d=3))
    own, study = load_party(tmp_path / "ada" / "party.toml")
    pages = []
    with pytest.raises(Exception, match="does not agree"):
        describe_together(own, study, consent=lambda page: pages.append(page) and False)
    line = next(one for one in pages[0].splitlines() if "On your table alone" in one)
    sums, alone, most = (
        float(one.replace(",", "")) for one in re.findall(r"([\d,]+) (?:messages|numbers)", line)
    )
    assert sums > 3
    assert most >= FACTOR * alone
    wire = Wire()
    with wire.recorded():
        together(tmp_path, work=describe_together)
    numbers = sent_by(wire)["ada", "describe"]
    assert alone / 3 <= numbers <= most


def test_stored_budgets_are_those_of_the_wire(tmp_path):
    policy = "policy.minimum-rows = 0\npolicy.budget = 1e6"
    write_study(tmp_path, split="samples", tol=1e-4, policy=policy)
    write_data(tmp_path, data("samples"))
    wire = Wire()
    with wire.recorded():
        together(tmp_path, work=fit_together)
        together(tmp_path, work=describe_together)
        together(
            tmp_path,
            work=lambda own, study: evaluate_together(own, study, own.data, consent=True),
        )
    sent = sent_by(wire)
    assert {what for _, what in sent} == {"fit", "describe", "evaluate"}
    for name in NAMES:
        own, study = load_party(tmp_path / name / "party.toml")
        for what in ("fit", "describe", "evaluate"):
            content = (own.keys / FOLDER / f"{study.run_id}-{what}").read_bytes()
            stored = sum(numbers for numbers, _ in RECORD.iter_unpack(content))
            assert stored == sent[name, what], (name, what)
