"""Agents that wake up one by one, in several processes: the models, the graph and the bill of the embedded clock."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import coterie as co
from coterie.engines import ENGINES
from coterie.engines.local import Local
from coterie.engines.ray import Ray

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("clusters"), pytest.mark.timeout(300)]
USERS = 6
TIES = np.roll(np.diag([0.4, 1.7, 0.9, 1.1, 0.6, 1.3]), 1, axis=1)
GIVEN, LEARNED = {"network": TIES + TIES.T}, {"network": "learned"}
CASES = {
    "given graph": GIVEN | {"max_rounds": 15},
    "learned graph": LEARNED | {"max_rounds": 45, "alternations": 2, "sample": 2},
    "as published": LEARNED
    | {"max_rounds": 50, "sample": 3, "step": "frank-wolfe", "graph_step": "gradient", "likeness": "models"}
    | {"schedule": "paper", "revisit": False, "cache": False},
    "perso-linear": GIVEN | {"method": "perso-linear", "max_rounds": 10},
    "local": {"method": "local", "max_rounds": 10},
}


def needs(engine):
    return pytest.mark.skipif(ENGINES[engine].missing() is not None, reason=str(ENGINES[engine].missing()))


@pytest.fixture(scope="module")
def ray():
    import ray

    with Ray(workers=2, deadline=20.0) as engine:
        yield engine
    ray.shutdown()


@pytest.fixture
def peers():
    return "peers"


def users():
    """Users in two camps, one of them without rows; the first column decides in the one camp, the second in the other."""
    rng = np.random.default_rng(3)
    tables = []
    for k in range(USERS):
        X = rng.uniform(-1, 1, (0 if k == 4 else 4 + k, 3))
        y = np.where(X[:, k % 2] + 0.2 * rng.standard_normal(len(X)) > 0, 1.0, -1.0)
        tables.append(co.Table(X, y, name=f"user-{k}"))
    return tables


def fit(case, engine, **settings):
    settings = {"split": "users", "tol": 1e-12, "progress": False, "seed": 5, **CASES[case], **settings}
    return co.solve(co.Personal(count=12, beta=4.0, mu=0.5), users(), engine=engine, **settings)


@functools.cache
def embedded(case):
    return fit(case, Local())


def assert_alike(found, expected):
    assert found.status == expected.status
    assert found.bill == expected.bill
    for mine, theirs in ((found.model.coef_, expected.model.coef_), (found.model.weights, expected.model.weights)):
        np.testing.assert_allclose(mine.toarray(), theirs.toarray(), rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.history.gap, expected.history.gap, rtol=0, atol=1e-10)


@pytest.mark.parametrize("engine", [pytest.param("peers", marks=needs("peers")), pytest.param("ray", marks=needs("ray"))])
@pytest.mark.parametrize("case", CASES)
def test_gossip_is_like_in_one_process(case, engine, request):
    expected = embedded(case)
    if expected.model.problem.learned:
        assert expected.model.weights.nnz > 0
        assert expected.bill.per_word["Exchange"].messages > 0
    assert_alike(fit(case, request.getfixturevalue(engine)), expected)
