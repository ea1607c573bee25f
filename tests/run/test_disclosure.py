"""Every collective that is sent is declared, and declarations count what is sent: introductions,
proofs, methods.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial

import numpy as np
import pytest

import coterie as co
from coterie.data.summary import TableSummary
from coterie.engines.local import Local
from coterie.methods import METHODS
from coterie.numerics.acceleration import ADVANCES
from coterie.problems.multiclass.proof import MulticlassProof
from coterie.run import rounds
from coterie.run.bill import Bill
from coterie.run.collectives import Sum
from coterie.run.disclosure import (
    METHOD,
    Case,
    Guard,
    OfMethod,
    Undeclared,
    declared_by,
    discloses,
    most_of,
    name_of,
)
from coterie.run.rounds import Conversation, introduced
from coterie.stats.folds import mean_loss
from coterie.stats.inferring import SUMS, Infer
from coterie.stats.standard_errors import Question
from coterie.stats.strengths import gradient_at_constant
from coterie.transport.in_process import InProcess
from tests.harness import organisations
from tests.harness.cluster_cases import (
    MORE,
    NUMBERS,
    PAIRS,
    PLACES,
    SIGNS,
    TIMES,
    WEIGHTS,
    X,
    case,
    names,
)

SMALL = {"agents": 3, "max_rounds": 2, "tol": 1e-13, "check_every": 1}
USERS = np.arange(48) % 3
ENTRIES = np.array([[k % 8, k % 6] for k in range(48)], float)
LOSSES = {
    "squared": NUMBERS, "huber": NUMBERS, "quantile": NUMBERS, "logistic": SIGNS, "hinge": SIGNS,
    "poisson": np.floor(np.exp(NUMBERS / 3)),
}  # fmt: skip
KINDS = {
    f"{loss}, {split}, {'with' if intercept else 'without'} intercept": (
        co.Problem(loss, "l2", 0.05, intercept=intercept),
        (X, labels),
        {"split": split},
    )
    for loss, labels in LOSSES.items()
    for split in ("samples", "features")
    for intercept in (False, True)
} | {
    "offsets": (
        co.Problem("poisson", "l2", 0.05, intercept=True),
        [
            (X[rows], LOSSES["poisson"][rows], None, SIGNS[rows])
            for rows in np.array_split(np.arange(48), 3)
        ],
        {"agents": None},
    ),
    "multiclass": (co.Problem("multinomial", "l2", 0.05, intercept=False), (X, PLACES), {}),
    "multiclass with intercepts": (
        co.Problem("multinomial", "l2", 0.05, intercept=True),
        (X, PLACES, WEIGHTS),
        {},
    ),
    "survival": (co.Problem("cox", "l2", 0.05, agent_strata=True), (X, TIMES), {}),
    "low rank": (co.Problem("squared", "traceball", radius=3.0), (X, PAIRS), {}),
    "low rank with intercepts": (
        co.Problem("squared", "traceball", radius=3.0, intercept=True),
        (X, PAIRS),
        {},
    ),
    "classes of low rank": (
        co.Problem("multinomial", "traceball", radius=3.0, intercept=True),
        (X, PLACES),
        {},
    ),
    "completion": (
        co.Problem("completion", "traceball", radius=6.0, intercept=True, shape=(8, 6)),
        (ENTRIES, NUMBERS),
        {},
    ),
    "shared": (
        co.Shared("logistic", "l2", 0.05, mu=0.1),
        (X, SIGNS, USERS),
        {"split": "users", "agents": None},
    ),
    "shared numbers": (
        co.Shared("squared", "l2", 0.05, mu=0.1),
        (X, NUMBERS, USERS),
        {"split": "users", "agents": None},
    ),
    "personal": (co.Personal(count=6), (X, SIGNS, USERS), {"split": "users", "agents": None}),
}


class Recording(InProcess):
    """Checks every collective, and keeps what each conversation sent: numbers of one agent by
    declared protocol.
    """

    def __init__(self, *given, new_guard, **named):
        super().__init__(*given, **named)
        self.new_guard, self.conversations = new_guard, []

    def converse(self, protocols, purpose):
        self.guard = self.new_guard()
        found = super().converse(protocols, purpose)
        agents = len(protocols)
        sent = {
            name: (many / agents, self.guard.numbers[name] / agents)
            for name, many in self.guard.sent.items()
        }
        self.conversations.append((purpose, sent))
        return found


class Recorder(Local):
    """The local engine, where every run is recorded."""

    def __init__(self, operation="fit"):
        super().__init__()
        self.operation, self.runs = operation, []

    def run(self, run):
        steps = run.steps
        if isinstance(steps, Conversation):
            return super().run(run)
        problem = run.agents[0].problem
        kind = problem.kind
        protocols = [*kind.proof.introduces, *kind.proof.proves, *ADVANCES]
        new_guard = partial(Guard, self.operation, protocols, METHODS.values())
        network = run.network
        driver = Recording(
            network, Bill(network), run.names, secure_sums=run.secure_sums, new_guard=new_guard
        )
        outcome = run.on(driver)
        self.runs.append((run.agents, driver.conversations))
        return outcome


@pytest.fixture
def apart(monkeypatch):
    """No agents are computed as one, so that a message is that of one agent."""
    monkeypatch.setattr(rounds, "batches_of", lambda agents, own: None)


def check_counts(agents, conversations, protocols):
    """What was sent in one conversation is at most what the declarations say; returns what was
    compared.
    """
    by_name = {name_of(one): one for one in protocols}
    cases = [Case.of(agent) for agent in agents]
    compared = defaultdict(list)
    for purpose, sent in conversations:
        for name, (many, numbers) in sent.items():
            if name not in by_name:
                continue
            known = [most_of(by_name[name], one) for one in cases]
            assert any(one.holds(cases[0]) for one in declared_by(by_name[name])), (
                f"{name} is not on the page"
            )
            if None in known:
                continue
            assert many <= known[0][0], (
                f"{name}: {many:g} collectives, but {known[0][0]} are declared"
            )
            most = sum(one for _, one in known) / len(known)
            assert numbers <= most, f"{name}: {numbers:g} numbers, but {most:g} are declared"
            compared[name].append((purpose, many, numbers, *known[0]))
    return compared


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("secure", [False, pytest.param(True, marks=pytest.mark.rotates)])
def test_introductions_and_proofs_send_what_they_declare(name, secure, apart):
    problem, data, how = KINDS[name]
    recorder = Recorder()
    settings = {name: value for name, value in {**SMALL, **how}.items() if value is not None}
    secure = secure and name != "personal"  # models of neighbours are no sums
    co.solve(problem, data, engine=recorder, progress=False, secure_sums=secure, **settings)
    (agents, conversations), *_ = recorder.runs
    kind = agents[0].problem.kind
    compared = check_counts(agents, conversations, [*kind.proof.introduces, *kind.proof.proves])
    assert compared
    # An introduction with a fixed length is exactly what is declared.
    first = next(sent for purpose, sent in conversations if purpose == "setup")
    for name, (many, _) in first.items():
        if name.startswith("run.certificate.introduction.") and "offsets" not in name:
            assert many == compared[name][0][3]


@pytest.mark.parametrize(
    "name", [name for name in KINDS if name != "personal" and "features" not in name]
)
def test_strengths_and_folds_send_what_they_declare(name):
    problem, data, how = KINDS[name]
    split, seen = how.get("split", "samples"), []

    class Stopped(Exception):
        pass

    class Catcher(Recorder):
        def run(self, run):
            seen.extend(run.agents)
            raise Stopped

    settings = {name: value for name, value in {**SMALL, **how}.items() if value is not None}
    with pytest.raises(Stopped):
        co.solve(problem, data, engine=Catcher(), progress=False, **settings)
    kind = seen[0].problem.kind
    protocols = [*kind.proof.introduces, *kind.local.finds_strengths, mean_loss]
    network = co.networks.star(len(seen), server=True)
    driver = Recording(network, Bill(network), new_guard=partial(Guard, "fit", protocols))
    agents = introduced(seen, driver, "setup")
    if split != "users":
        driver.converse([gradient_at_constant(agent) for agent in agents], "setup")
    if kind.name != "low-rank":
        w = np.zeros(agents[0].design.shape[1] * (2 if split == "users" else 1))
        models = {agent.index: w for agent in agents}
        labels_at = agents[0].known.labels_at if split == "features" else None
        asked = [mean_loss(agent.problem, split, models, labels_at, agent) for agent in agents]
        driver.converse(asked, "proof")
    compared = check_counts(agents, driver.conversations, protocols)
    assert split == "users" or len(compared) >= 2


@pytest.mark.rotates
@pytest.mark.parametrize("name", names())
def test_every_collective_of_every_method_is_declared(name, apart):
    problem, data, how = case(name)
    recorder = Recorder()
    limits = {"max_rounds": 4} if name not in MORE else {}
    co.solve(problem, data, engine=recorder, progress=False, **{**how, **limits})
    assert recorder.runs or any(callable(part) for part in data)
    for agents, conversations in recorder.runs:
        check_rounds(how.get("method", name), agents, conversations)


def check_rounds(method, agents, conversations):
    """No round sends more than the method says; returns the largest counts of a round that were
    found.
    """
    if method not in list(METHODS):
        return None  # "auto": the page has a line for each method that it may choose
    cases = [Case.of(agent) for agent in agents]
    known = [OfMethod.of(METHODS[method].disclosure, one) for one in cases]
    longest = (0, 0)
    for purpose, sent in conversations:
        many, numbers = sent.get(METHOD, (0, 0))
        counts = [one.before if purpose == "setup" else one.longest_round for one in known]
        if None in counts:
            continue
        assert many <= counts[0][0], (
            f"{method}, {purpose}: {many:g} collectives, but {counts[0][0]} are declared"
        )
        most = sum(one for _, one in counts) / len(counts)
        assert numbers <= most, (
            f"{method}, {purpose}: {numbers:g} numbers, but {most:g} are declared"
        )
        if purpose == "rounds":
            longest = max(longest[0], many), max(longest[1], numbers)
    return longest


EXACT = [
    "cocoa",
    "consensus",
    "gram",
    "newton",
    "naive-dfw",
    "tree",
    "softmax-newton",
    "cox-newton",
    "shared-newton",
]
"""Methods whose rounds always send the same."""
UNKNOWN = ["blocks", "pvrd2", "dada", "dada-linear", "perso-linear"]
"""Methods whose messages depend on what the parties send each other, or go to neighbours one by
one.
"""


@pytest.mark.parametrize("name", EXACT)
def test_pages_do_not_exaggerate_rounds(name, apart):
    problem, data, how = case(name)
    recorder = Recorder()
    co.solve(problem, data, engine=recorder, progress=False, **{**how, "max_rounds": 2})
    agents, conversations = recorder.runs[0]
    declared = OfMethod.of(METHODS[name].disclosure, Case.of(agents[0]))
    assert check_rounds(name, agents, conversations) == declared.round


def test_methods_count_their_rounds():
    for name, method in METHODS.items():
        assert (method.disclosure.most is None) == (name in UNKNOWN and name != "blocks"), name


# -- what is not declared --------------------------------------------------------------------------


@discloses("two numbers", most=lambda case: (1, 2))
def honest(agent):
    return (yield Sum(np.zeros(2)))


@discloses("two numbers", most=lambda case: (1, 2))
def curious(agent):
    yield Sum(np.zeros(2))
    return (yield Sum(np.zeros(3)))


def quiet(agent):
    return (yield Sum(np.zeros(2)))


def outer(agent):
    return (yield from honest(agent))


def spoken(protocol, declared, agents=2):
    network = co.networks.star(agents, server=True)
    driver = Recording(network, Bill(network), new_guard=partial(Guard, "fit", declared))
    driver.converse([protocol(None) for _ in range(agents)], "setup")
    return driver


def test_a_message_belongs_to_the_innermost_declared_generator():
    assert spoken(outer, [honest]).conversations == [("setup", {name_of(honest): (1.0, 2.0)})]


def test_a_collective_without_a_declaration_is_refused_before_it_is_sent():
    network = co.networks.star(2, server=True)
    driver = Recording(network, bill := Bill(network), new_guard=partial(Guard, "fit", [honest]))
    with pytest.raises(
        Undeclared, match=r"fit: quiet sends a Sum that no declaration is about. Write @discloses"
    ):
        driver.converse([quiet(None), quiet(None)], "setup")
    assert bill.total.messages == 0


def test_one_sum_more_than_is_declared_is_found_out():
    table = co.Table(np.ones((2, 1)))
    known = {"problem": None, "split": "samples", "data": table, "count": 2, "secure_sums": False}
    agents = [type("Agent", (), known)]
    check_counts(agents, spoken(honest, [honest]).conversations, [honest])
    with pytest.raises(AssertionError, match="curious: 2 collectives, but 1 are declared"):
        check_counts(agents, spoken(curious, [curious]).conversations, [curious])


def test_an_introduction_with_one_more_sum_is_found_out(monkeypatch, apart):
    """A mutant: the first sum of an introduction is said twice."""
    plain = MulticlassProof.introduce

    def mutant(self, agent):
        yield Sum(np.ones(3))
        return (yield from plain(self, agent))

    mutant.disclosures = plain.disclosures
    monkeypatch.setattr(MulticlassProof, "introduce", mutant)
    problem, data, how = KINDS["multiclass"]
    with pytest.raises(Undeclared, match="mutant sends a Sum"):
        co.solve(problem, data, engine=Recorder(), progress=False, **SMALL, **how)
    monkeypatch.setattr(MulticlassProof, "introduces", (mutant,))
    recorder = Recorder()
    co.solve(problem, data, engine=recorder, progress=False, **SMALL, **how)
    with pytest.raises(AssertionError, match=r"mutant: 2 collectives, but 1 are declared"):
        check_counts(*recorder.runs[0], [mutant])


# -- operations ------------------------------------------------------------------------------------


NOISE = np.random.default_rng(5)
ERRORS = {
    "squared": (co.Problem("squared", "none", intercept=True), NOISE.standard_normal(150)),
    "logistic": (co.Problem("logistic", "none", intercept=True), NOISE.choice([-1.0, 1.0], 150)),
    "several classes": (
        co.Problem("multinomial", "none", intercept=True),
        NOISE.integers(0, 3, 150).astype(float),
    ),
}


@pytest.mark.parametrize("kind", ["model", "robust"])
@pytest.mark.parametrize("name", ERRORS)
def test_standard_errors_send_what_they_declare(name, kind, monkeypatch):
    problem, labels = ERRORS[name]
    parts = np.array_split(np.arange(150), 3)
    columns = NOISE.standard_normal((150, 3))
    result = co.solve(problem, [(columns[rows], labels[rows]) for rows in parts], progress=False)
    tables = [
        co.read((columns[rows], labels[rows]), name=f"party {k}") for k, rows in enumerate(parts)
    ]
    guards = []
    monkeypatch.setattr(
        organisations, "Guard", lambda *given: guards.append(Guard(*given)) or guards[0]
    )
    organisations.among(
        Infer(Question.of(kind), result.model, result.certificate.tolerance), tables
    )
    sums = SUMS[kind]
    many, numbers = most_of(
        sums, Case(result.model.problem, "samples", TableSummary.of(tables[0]), 3)
    )
    assert guards[0].sent[name_of(sums)] == 3 * many
    # Numbers have no events to count.
    assert guards[0].numbers[name_of(sums)] == 3 * (numbers - (name == "squared"))
