"""No message of a description, an evaluation or a two-way table is about a few rows of one party.

All messages of all parties are recorded before they are masked.
"""

from __future__ import annotations

import numpy as np
import pytest

from coterie.api.description import Description
from coterie.api.evaluation import Evaluation
from coterie.errors import CoterieError
from coterie.run import groups
from coterie.run.collectives import Sum
from coterie.run.disclosure import Guard, Undeclared, discloses
from coterie.run.groups import Part, SmallCell, released, small
from coterie.stats import categories, curves, describing, quantiles, scoring, two_way
from coterie.study.crosstab import crosstab_together
from coterie.study.description import describe_together
from coterie.study.party import fit_together
from coterie.study.scores import evaluate_together
from tests.harness.parties import NAMES, together, write_study
from tests.harness.wire import Wire

MINIMUM = 7
POLICY = f"policy.minimum-rows = 0\npolicy.budget = inf\npolicy.minimum-count = {MINIMUM}"
SHARED = {"penalty": "l2", "strength": 0.1}
KINDS = {
    "logistic": {"loss": "logistic", "intercept": True},
    "hinge": {"loss": "hinge", "intercept": True},
    "squared": {"loss": "squared", "intercept": True},
    "poisson": {"loss": "poisson", "intercept": True},
    "quantile": {"loss": "quantile", "intercept": True},
    "multinomial": {"loss": "multinomial", "intercept": True},
    "cox": {"loss": "cox"},
}
SURVIVAL = 'time = "time"\nevent = "event"\n'


def study(folder, loss="logistic", **more):
    """Three parties with 60 rows each; values and classes are skewed, so that many are rare."""
    settings = {"problem": KINDS[loss] | SHARED, "split": "samples", "tol": 1e-3}
    write_study(folder, policy=POLICY, **settings | more)
    for place, name in enumerate(NAMES):
        random = np.random.default_rng([place, len(loss)])
        lines = ["city,age,dose,time,event,y"]
        for row in range(60):
            city = "abcdefghijk"[min(int(random.exponential(2.0)), 10)]
            age = "" if row in (3, 17) else f"{random.normal(50 + 10 * place, 12):.4f}"
            dose = "" if random.random() < 0.3 else f"{random.exponential(3.0):.4f}"
            time = f"{random.exponential(5.0):.4f}"
            event = int(random.random() < 0.5)
            lines.append(f"{city},{age},{dose},{time},{event},{label(loss, random, row)}")
        (folder / name / "data.csv").write_text("\n".join(lines) + "\n")


def label(loss, random, row):
    """A label; of classes, one is rare."""
    if loss in ("logistic", "hinge"):
        return int(random.random() < 0.2)
    if loss == "multinomial":
        return "xyz"[min(int(random.exponential(0.8)), 2)] if row > 21 else "xyz"[row % 3]
    if loss == "poisson":
        return int(random.poisson(2.0))
    return f"{random.normal():.4f}"


def few_counts(messages):
    """Whole numbers from 2 up to the minimum: what a count of few rows would be."""
    found = []
    for message in messages:
        whole = message[message == np.round(message)]
        found += whole[(whole > 1) & (whole < MINIMUM)].tolist()
    return found


def is_sizes(message):
    """How long a party's names of categories are, one number for each column in its own place."""
    columns, rest = divmod(message.size, len(NAMES))
    return not rest and columns <= 2 and np.count_nonzero(message) == columns


def recorded(folder, work, operation):
    """What the parties come to, and the messages of that operation."""
    wire = Wire()
    with wire.recorded():
        found = together(folder, work=work)
    assert not any(isinstance(one, CoterieError) for one in found), found
    return found, [one.numbers for one in wire.messages if one.operation == operation]


def test_a_description_sends_no_small_cell(tmp_path):
    study(tmp_path)
    found, messages = recorded(tmp_path, describe_together, "describe")
    assert isinstance(found[0], Description)
    assert found[0]["city"].categories["(other)"] > 0
    # The first message of each party has numbers of different values, and flags of text.
    first = max(message.size for message in messages[: len(NAMES)])
    assert not few_counts([one for one in messages if one.size != first and not is_sizes(one)])


def test_a_two_way_table_sends_no_small_cell(tmp_path):
    study(tmp_path)

    def work(own, study):
        return crosstab_together(own, study, "city", "event", consent=True)

    found, messages = recorded(tmp_path, work, "crosstab")
    assert (found[0].low < found[0].high).any()
    assert not few_counts([one for one in messages if not is_sizes(one)])


@pytest.mark.parametrize("loss", KINDS)
def test_an_evaluation_sends_no_small_cell(tmp_path, loss):
    study(tmp_path, loss)
    for name in NAMES:
        file = tmp_path / name / "party.toml"
        labels = SURVIVAL if loss == "cox" else 'target = "y"\n'
        text = file.read_text().replace('target = "y"\n', labels)
        file.write_text('columns = ["age2", "dose2"]\n' + text)
        complete(tmp_path / name / "data.csv")
    fitted = together(tmp_path, work=fit_together)
    assert not any(isinstance(one, CoterieError) for one in fitted), fitted

    def work(own, study):
        return evaluate_together(own, study, own.data, consent=True)

    found, messages = recorded(tmp_path, work, "evaluate")
    assert isinstance(found[0], Evaluation)
    assert messages
    assert not few_counts(messages)


PREPARED = {
    "prepare.numbers": "impute, standardise",
    "prepare.text": f"one-hot({MINIMUM})",
}


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_a_preparation_sends_no_small_cell(tmp_path, loss):
    """Categories, missing values and their counts: 2 of 60 ages are missing at each party."""
    study(tmp_path, loss, **PREPARED)
    for name in NAMES:
        file = tmp_path / name / "party.toml"
        file.write_text('columns = ["city", "age", "dose"]\n' + file.read_text())
    wire = Wire()
    with wire.recorded():
        found = together(tmp_path, work=fit_together)
    assert not any(isinstance(one, CoterieError) for one in found), found
    messages = [one for one in wire.messages if one.purpose == "preparation"]
    sizes = [one for one in messages if begins_with_a_size(one)]
    assert sorted(one.party for one in sizes) == sorted(NAMES)
    numbers = [one.numbers for one in messages if not begins_with_a_size(one)]
    assert not few_counts([*numbers, *(one.numbers[len(NAMES) :] for one in sizes)])


def begins_with_a_size(message):
    """How many categories a party names, in its own place; then sums of squares."""
    own = np.zeros(len(NAMES), bool)
    own[NAMES.index(message.party)] = True
    return message.numbers.size == len(NAMES) + 2 and (own == (message.numbers[:3] != 0)).all()


@pytest.mark.parametrize("loss", ["logistic", "poisson"])
def test_standard_errors_send_no_small_cell(tmp_path, loss):
    unpenalised = {"problem": KINDS[loss] | {"penalty": "none"}, "inference": "robust"}
    study(tmp_path, loss, **unpenalised)
    for name in NAMES:
        file = tmp_path / name / "party.toml"
        file.write_text('columns = ["age2", "dose2"]\n' + file.read_text())
        complete(tmp_path / name / "data.csv")
    wire = Wire()
    with wire.recorded():
        found = together(tmp_path, work=fit_together)
    assert not any(isinstance(one, CoterieError) for one in found), found
    assert not few_counts([one.numbers for one in wire.messages])


def complete(file):
    """Two columns without missing values."""
    header, *lines = file.read_text().splitlines()
    random = np.random.default_rng(7)
    more = [f"{line},{random.normal():.4f},{random.normal():.4f}" for line in lines]
    file.write_text("\n".join([f"{header},age2,dose2", *more]) + "\n")


# -- the one function ------------------------------------------------------------------------------


def test_released_refuses_a_small_cell_and_not_the_whole_table():
    assert released(5, 60, Part([1.0, 2.0], [0, 60])).released
    assert released(5, 3, Part([1.0], 3)).released
    assert released(1, 60, Part([1.0], 1)).released
    with pytest.raises(SmallCell, match="about 4 rows of this party, fewer than the minimum of 5"):
        released(5, 60, Part([1.0], [5]), Part([1.0, 2.0], [56, 4]))


def everything(counts, minimum):
    """Rules that pool nothing."""
    return np.asarray(counts), 0


def all_edges(proposed, counts, minimum, order=None):
    """Rules that keep each edge."""
    yield from ()
    return list(proposed)


def as_they_are(missing, minimum):
    """Rules that leave no value out."""
    return missing


MUTANTS = {
    "categories": (categories, "pooled", everything),
    "edges of quantiles": (quantiles, "agree_on_edges", all_edges),
    "missing values": (describing, "without_few", as_they_are),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_without_a_rule_nothing_is_described(tmp_path, monkeypatch, name):
    monkeypatch.setattr(*MUTANTS[name])
    study(tmp_path)
    with pytest.raises(SmallCell):
        together(tmp_path, work=describe_together)


def test_without_withheld_cells_nothing_is_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(two_way, "withheld", lambda counts, minimum: np.zeros(counts.shape, bool))
    study(tmp_path)
    with pytest.raises(SmallCell):
        together(
            tmp_path,
            work=lambda own, study: crosstab_together(own, study, "city", "event", consent=True),
        )


@pytest.mark.parametrize("module", [curves, scoring])
def test_without_agreed_edges_nothing_is_evaluated(tmp_path, monkeypatch, module):
    study(tmp_path)
    for name in NAMES:
        file = tmp_path / name / "party.toml"
        file.write_text('columns = ["age2", "dose2"]\n' + file.read_text())
        complete(tmp_path / name / "data.csv")
    together(tmp_path, work=fit_together)
    for name in NAMES:  # a party may fail before another one has met it
        file = tmp_path / name / "party.toml"
        file.write_text(file.read_text().replace("patience = 60", "patience = 3"))
    monkeypatch.setattr(module, "agree_on_edges", all_edges)
    with pytest.raises(SmallCell):
        together(
            tmp_path,
            work=lambda own, study: evaluate_together(own, study, own.data, consent=True),
        )


@discloses("two numbers")
def curious(site):
    return (yield Sum(np.array([3.0, 2.0])))


def test_sums_around_the_function_are_refused():
    protocol = curious(None)
    guard = Guard("describe", [curious], tabulates=True)
    with pytest.raises(Undeclared, match=r"does not come from groups\.released"):
        guard.check(protocol, next(protocol))
    assert small([3, 2], MINIMUM).all()
    assert groups.objections([1.0]).released
