"""Split by features, only the agent with the labels receives scores: what a round costs, and to
which agents its sums go.
"""

from __future__ import annotations

import numpy as np
import pytest

import coterie as co
from coterie.networks import from_edges, path, star
from coterie.transport.driver import Driver
from tests.harness.threads import Threads

M, N, D = 4, 50, 8
LABELS_AT = 2
RANDOM = np.random.default_rng(5)
X = RANDOM.standard_normal((N, D))
Y = np.sign(X @ RANDOM.standard_normal(D) + RANDOM.standard_normal(N))
TREE = from_edges([(0, 1), (1, 2), (1, 3)])
NETWORKS = {"server": star(M, server=True), "path": path(M), "tree": TREE}
CASES = [(method, kind) for method in ("tree", "lbfgs", "blocks") for kind in NETWORKS]
CASES += [("graph-cp", "path"), ("graph-cp", "tree")]
PROBLEM = co.Problem("logistic", "l2", 0.05, intercept=True)


def tables(labels_at=LABELS_AT):
    columns = np.split(np.arange(D), M)
    return [
        (X[:, own], Y) if place == labels_at else X[:, own] for place, own in enumerate(columns)
    ]


def solved(method, network, labels_at=LABELS_AT, **more):
    given = {"split": "features", "method": method, "network": network, "progress": False}
    return co.solve(PROBLEM, tables(labels_at), **given, max_rounds=6, check_every=3, **more)


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "secure"])
@pytest.mark.parametrize(("method", "kind"), CASES)
def test_no_sum_of_all_rows_goes_to_an_agent_without_labels(monkeypatch, method, kind, secure):
    total, sizes = Driver._total, []

    def recorded(driver, messages, purpose):
        if purpose in ("rounds", "proof"):
            sizes.append(messages[0].size)
        return total(driver, messages, purpose)

    monkeypatch.setattr(Driver, "_total", recorded)
    result = solved(method, NETWORKS[kind], secure_sums=secure)
    assert result.history
    assert sizes
    assert max(sizes) < N


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("method", ["tree", "lbfgs"])
def test_a_round_sends_each_number_once_over_each_link(method, kind):
    """Before, a sum went up to the root and down to all: four numbers per row, not two."""
    result = solved(method, NETWORKS[kind])
    links = M if kind == "server" else M - 1
    of_rows = 2 * links * N
    few = 40 * 2 * M
    assert of_rows <= min(result.bill.per_round) <= of_rows + few
    assert result.bill.total.bits == sum(cost.bits for cost in result.bill.per_purpose.values())
    assert sum(cost.bits for cost in result.bill.per_agent) == result.bill.total.bits


@pytest.mark.parametrize("labels_at", [0, 3])
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "secure"])
@pytest.mark.parametrize(
    ("method", "kind"),
    [("tree", "path"), ("lbfgs", "tree"), ("lbfgs", "server"), ("blocks", "path")],
)
def test_links_and_one_process_come_to_the_same_bits(method, kind, secure, labels_at):
    here, apart = (
        solved(method, NETWORKS[kind], labels_at, secure_sums=secure, engine=engine)
        for engine in ("local", Threads())
    )
    assert here.bill == apart.bill
    np.testing.assert_array_equal(here.model.coef_, apart.model.coef_)
    assert here.certificate.gap == apart.certificate.gap
