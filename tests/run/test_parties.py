"""Every operation is the same wherever the data is: in this process, at workers, and between
organisations.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import coterie as co
from coterie.api.crosstab import CrossTabulate
from coterie.api.describe import RAW, Describe, raw_columns
from coterie.api.evaluate import Evaluate
from coterie.errors import InvalidData
from coterie.run.disclosure import discloses
from coterie.run.parties import Meeting, Operation, hosted
from coterie.run.site import Rules
from coterie.stats.describing import Wish
from coterie.stats.inferring import Infer
from coterie.stats.preparing import Prepare
from coterie.stats.standard_errors import Question
from tests.api.test_describe import PARTS
from tests.harness.organisations import among
from tests.harness.worker_cases import Case, N, same
from tests.harness.workers import Workers

RULES = Rules(5, per_party=True)
COLUMNS = ("age", "visits", "city", "dose")
RAWS = [co.read(part, name=f"party {k}", prepare=RAW) for k, part in enumerate(PARTS)]


def evaluation(case):
    """The operation, and rows for it."""
    model = case.fit("local", max_rounds=3).model
    return Evaluate(model, "samples"), case.tables(), model.preparation


OPERATIONS = {
    "describe": lambda: (Describe(Wish("ill")), RAWS, RAW),
    "crosstab": lambda: (CrossTabulate("city", "visits"), RAWS, RAW),
    **{
        f"evaluate {case.id}": partial(evaluation, case)
        for case in (
            Case("linear", "logistic", offset=True),
            Case("linear", "squared", weights=True, prepare=True),
            Case("multiclass", "multinomial"),
            Case("survival", "cox", intercept=False),
        )
    },
}


def of_single_parties(found):
    """The results of single parties, where the operation has some."""
    return {name: str(one) for name, one in getattr(found, "parties", {}).items()}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "secure"])
def test_results_and_bills_are_the_same_everywhere(name, secure):
    operation, tables, prepare = OPERATIONS[name]()
    meeting = Meeting(network="star", prepare=prepare, rules=RULES, secure_sums=secure)
    found = []
    for engine, data in (
        ("local", tables),
        (Workers(), [partial(same, table) for table in tables]),
    ):
        with hosted(operation, data, meeting, engine) as parties:
            found.append(operation.together(parties))
    found += among(operation, tables, rules=RULES, secure_sums=secure)
    assert name == "crosstab" or found[0].parties
    for one in found[1:]:
        assert str(one) == str(found[0])
        assert of_single_parties(one) == of_single_parties(found[0])
        assert one.bill == found[0].bill


@discloses("how many rows it has")
def rows_of(site):
    return site.data.n


class Wrong(Operation):
    """Asks for something where one party alone knows that it will."""

    name = "wrong"
    discloses = (rows_of,)

    def together(self, parties):
        if parties.look(rows_of)[0] is None:
            return parties.agree("a", "b")
        return parties.ask(rows_of, int)


def tables_of_two():
    return [co.Table(np.ones((n, 2)), np.ones(n), name=f"party {n}") for n in (3, 4)]


def test_an_operation_that_branches_on_what_one_party_knows_is_found_out():
    with hosted(Wrong(), tables_of_two(), Meeting()) as parties:
        assert Wrong().together(parties) == [3, 4]  # one process sees nothing wrong with it
    with pytest.raises(AssertionError, match="different steps"):
        among(Wrong(), tables_of_two())


def test_what_is_not_declared_is_refused():
    with hosted(Wrong(), tables_of_two(), Meeting()) as parties:
        with pytest.raises(AssertionError, match="not among what it discloses"):
            parties.ask(lambda site: site.data.n, int)
        with pytest.raises(AssertionError, match="not among what it discloses"):
            parties.run_protocol(len)


@pytest.mark.parametrize(
    "ask",
    [co.describe, lambda data: co.evaluate(Case("linear", "squared").fit("local").model, data)],
)
def test_a_list_without_parties_is_refused(ask):
    with pytest.raises(InvalidData, match="there are no parties"):
        ask([])


def unpenalised(loss):
    """A fit whose coefficients have standard errors, and the prepared tables of its parties."""
    problem = co.Problem(loss, "none", intercept=True)
    case = Case("linear", loss)
    shaken = np.random.default_rng(3).random(N) < 0.4
    labels = np.where(shaken, 1 - case.labels, case.labels) if loss == "logistic" else case.labels
    parts = co.data.split(replace(case.whole(), y=labels), "samples", 3)
    result = co.solve(
        problem, [replace(part, rows=None) for part in parts], tol=1e-9, progress=False
    )
    return result, [site.data for site in result.parties.sites]


INFERENCES = {
    "model": ("model", None),
    "robust": ("robust", None),
    "clusters within parties": (
        "clustered",
        [np.array([f"{k} {j % 6}" for j in range(N // 3)]) for k in range(3)],
    ),
    "clusters at several parties": ("clustered", [np.arange(N // 3) % 8 for _ in range(3)]),
}


@pytest.mark.parametrize("asked", INFERENCES)
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_standard_errors_and_their_bills_are_the_same_everywhere(loss, asked):
    kind, clusters = INFERENCES[asked]
    result, tables = unpenalised(loss)
    if clusters is not None:
        tables = [replace(table, ids=own) for table, own in zip(tables, clusters, strict=True)]
    operation = Infer(Question.of(kind), result.model, result.certificate.tolerance)
    found = []
    for engine, data in (
        ("local", tables),
        (Workers(), [partial(same, table) for table in tables]),
    ):
        with hosted(operation, data, Meeting(network="star"), engine) as parties:
            found.append(operation.together(parties))
    found += among(operation, tables)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        of_fit = result.inference(kind, clusters)
    for one in found[1:]:
        assert str(one) == str(found[0])
        np.testing.assert_array_equal(one.covariance, found[0].covariance)
        assert one.bill == found[0].bill
    np.testing.assert_allclose(of_fit.covariance, found[0].covariance, rtol=1e-12)
    assert of_fit.bill.total == found[0].bill.total


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "secure"])
def test_a_preparation_is_the_same_everywhere(secure):
    recipes = co.Preparation(
        "impute, standardise", text="one-hot(5)", columns={"age": "spline(3)", "visits": "min-max"}
    )
    operation = Prepare(recipes, "samples")
    tables = [replace(raw_columns(table, None, COLUMNS), y=np.ones(table.n)) for table in RAWS]
    meeting = Meeting(prepare=recipes, secure_sums=secure, network="star")
    found = []
    for engine, data in (
        ("local", tables),
        (Workers(), [partial(same, table) for table in tables]),
    ):
        with hosted(operation, data, meeting, engine) as parties:
            found.append(operation.together(parties))
    expected = [site.data for site in found[0].parties.sites]
    found += among(operation, tables, secure_sums=secure)
    for one in found[1:]:
        assert one.prepared == found[0].prepared
        assert one.sent == found[0].sent
    for one, table in zip(found[2:], expected, strict=True):
        np.testing.assert_array_equal(one.parties.site.data.X, table.X)
