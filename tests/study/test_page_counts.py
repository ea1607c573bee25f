"""No party sends more numbers than its page says: for every operation and kind, the messages of all
parties are recorded.
"""

from __future__ import annotations

import re
from collections import defaultdict

import numpy as np
import pytest

import coterie as co
from coterie.problems.low_rank import proof
from coterie.problems.personal.proof import PersonalProof
from coterie.run.collectives import observed
from coterie.run.disclosure import name_of
from coterie.study.description import describe_together
from coterie.study.disclosure import disclosure
from coterie.study.dry_run import FACTOR
from coterie.study.party import fit_together, read_own
from coterie.study.policy import FOLDER, RECORD
from coterie.study.scores import evaluate_together
from coterie.study.study import load_party, load_study
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
UNCOUNTED = ("personal", "inference by clustered")
"""A kind and an operation whose page cannot count a fit: how many messages go to neighbours depends
on which party wakes up when, and clusters at several parties are counted when these meet.
"""
REASON = "No total is stated: "


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
            assert {operation, kind} & {*UNCOUNTED}
            continue
        assert numbers <= allowed, (
            f"{party}, {what}: {numbers:g} numbers, the page says {allowed:g}"
        )
        if {operation, kind} & {*UNCOUNTED}:
            continue  # the page states the budget
        fits = what in ("fit", "verify")
        most = ROUNDS * 22 if fits else SPARED
        assert allowed <= most * max(numbers, 1), f"{what}: {allowed:g} for {numbers:g} numbers"


@pytest.mark.parametrize("method", ["naive-dfw", "sva", "dfw-trace"])
def test_the_search_for_intercepts_is_counted_for_every_method_of_matrices(method, tmp_path):
    wire, pages = Wire(), Pages()
    place = Among(tmp_path, pages)
    folder = place.study("low-rank", method=method)
    with wire.recorded():
        place.run(folder)
    for key, numbers in sent_by(wire).items():
        assert 0 < numbers <= pages.allowed[key]


def page_of(folder, party):
    """The page of a fit, without a budget."""
    own, study = load_party(folder / party / "party.toml")
    return disclosure(study, party, read_own(own, study), "fit")


def reasons(page):
    """The sentences that say why a page states no total."""
    assert AMOUNT.search(page) is None
    assert "In all to fit" not in page
    return [line.removeprefix(REASON) for line in page.splitlines() if line.startswith(REASON)]


def test_a_page_of_models_of_users_says_why_it_states_no_total(tmp_path):
    folder = Among(tmp_path).study("personal")
    (reason,) = reasons(page_of(folder, "ann"))
    assert reason == (
        "how often you wake up, and send your model, depends on the time that messages take."
    )


def test_a_page_of_auto_with_split_columns_says_why_it_states_no_total(tmp_path):
    folder = Among(tmp_path).study("columns")
    file = folder / "study.toml"
    chosen = file.read_text()
    assert AMOUNT.search(page_of(folder, "ann")), "lbfgs is counted"
    file.write_text(chosen.replace('method = "lbfgs"\n', ""))
    (reason,) = reasons(page_of(folder, "ann"))
    assert reason.startswith("`blocks` sends numbers for each column of all parties")


@pytest.mark.parametrize("kind", ["model", "robust", "clustered"])
def test_a_page_of_clustered_errors_says_why_it_states_no_total(kind, tmp_path):
    write_study(
        tmp_path, NAMES, {"loss": "squared", "penalty": "none"}, split="samples", inference=kind
    )
    study = load_study(tmp_path / "study.toml")
    page = disclosure(study, "ada", data("samples")[0], "fit")
    if kind != "clustered":
        assert AMOUNT.search(page)
        assert REASON not in page
        return
    (reason,) = reasons(page)
    assert reason.startswith("for each cluster at several parties you send one number per coef")


def test_a_certificate_of_models_of_users_sends_no_more_than_its_page_says(tmp_path):
    place, wire = Among(tmp_path), Wire()
    with wire.recorded():
        ask("fit", "personal", place)
    page = page_of(tmp_path / "study 0", "ann")
    section = page.partition("Sent for every certificate:")[2]
    found = re.search(r"At most: ([\d,]+) messages, ([\d,]+) numbers", section).groups()
    most = [int(number.replace(",", "")) for number in found]
    name = name_of(PersonalProof.certify)
    sent = [one.sent[name] for one in wire.conversations if name in one.sent]
    assert len(sent) > 3
    assert all(messages <= most[0] and numbers <= most[1] for messages, numbers in sent)


@pytest.mark.parametrize(("d", "m"), [(3, 7), (7, 3), (40, 30)])
def test_a_proof_in_blocks_sends_no_more_than_it_declares(d, m, monkeypatch):
    monkeypatch.setattr(proof, "EXACT_SIZE", 1)
    random = np.random.default_rng(1)
    table = co.Table(random.standard_normal((60, d)), random.standard_normal((60, m)))
    problem = co.Problem("squared", "traceball", radius=2.0 * d)
    sizes = []
    split = proof._in_blocks

    def counted(agent, at):
        return observed(split(agent, at), lambda message: sizes.append(message.x.size))

    monkeypatch.setattr(proof, "_in_blocks", counted)
    co.solve(problem, [table], max_rounds=4, progress=False)
    per_proof = [sum(sizes[k : k + 3]) for k in range(0, len(sizes), 3)]
    assert per_proof
    assert max(per_proof) <= proof._numbers_in_blocks(d, m)


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
