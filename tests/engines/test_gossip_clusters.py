"""Agents that wake up one by one, in several processes: the models, the graph and the bill of the
embedded clock.
"""

from __future__ import annotations

import functools
import time
from dataclasses import replace

import numpy as np
import pytest

import coterie as co
from coterie.engines.local import Local
from coterie.methods import METHODS
from coterie.problems.personal.methods.dada import Dada
from coterie.study.disclosure import disclosure
from coterie.study.study import load_study
from tests.harness.clusters import needs
from tests.harness.parties import (
    processes,
    together,
    without_digests,
    write_data,
    write_study,
)
from tests.harness.places import Places
from tests.harness.shaken import shaken

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("clusters"), pytest.mark.timeout(300)]
USERS = 6
TIES = np.roll(np.diag([0.4, 1.7, 0.9, 1.1, 0.6, 1.3]), 1, axis=1)
GIVEN, LEARNED = {"network": TIES + TIES.T}, {"network": "learned"}
CASES = {
    "given graph": GIVEN | {"max_rounds": 15},
    "learned graph": LEARNED | {"max_rounds": 45, "alternations": 2, "sample": 2},
    "as published": LEARNED
    | {
        "max_rounds": 50,
        "sample": 3,
        "step": "frank-wolfe",
        "graph_step": "gradient",
        "likeness": "models",
    }
    | {"graph_factor": 1.0}
    | {"schedule": "paper", "revisit": False, "cache": False},
    "learned graph, few known": LEARNED | {"max_rounds": 45, "sample": 2, "known": 3},
    "perso-linear": GIVEN | {"method": "perso-linear", "max_rounds": 10},
    "perso-linear learned": LEARNED
    | {
        "method": "perso-linear",
        "max_rounds": 50,
        "sample": 3,
        "schedule": "paper",
        "likeness": "models",
    },
    "dada-linear": GIVEN | {"method": "dada-linear", "max_rounds": 10},
    "local": {"method": "local", "max_rounds": 10},
}


def users():
    """Users in two camps, one of them without rows: the label is the sign of the first column, or
    of the second.
    """
    rng = np.random.default_rng(3)
    tables = []
    for k in range(USERS):
        X = rng.uniform(-1, 1, (0 if k == 4 else 4 + k, 3))
        y = np.where(X[:, k % 2] + 0.2 * rng.standard_normal(len(X)) > 0, 1.0, -1.0)
        tables.append(co.Table(X, y, name=f"user-{k}"))
    return tables


def fit(case, engine, **settings):
    settings = {
        "split": "users",
        "tol": 1e-12,
        "progress": False,
        "seed": 5,
        **CASES[case],
        **settings,
    }
    return co.solve(co.Personal(count=12, beta=4.0, mu=0.5), users(), engine=engine, **settings)


@functools.cache
def embedded(case):
    return fit(case, Local())


def assert_alike(found, expected):
    assert found.status == expected.status
    assert found.bill == expected.bill
    for mine, theirs in (
        (found.model.coef_, expected.model.coef_),
        (found.model.weights, expected.model.weights),
    ):
        np.testing.assert_allclose(mine.toarray(), theirs.toarray(), rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.history.gap, expected.history.gap, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("engine", "case"),
    [pytest.param("ray", case, marks=needs("ray")) for case in CASES]
    + [
        pytest.param(
            "peers", "learned graph", marks=[needs("peers"), pytest.mark.rotates]
        ),  # starts six processes
        pytest.param("peers", "given graph", marks=[needs("peers"), pytest.mark.rotates]),
    ],
)
def test_gossip_is_like_in_one_process(engine, case, request):
    expected = embedded(case)
    if expected.model.problem.learned:
        assert expected.model.weights.nnz > 0
        # Models are handed over to new neighbours; in pairs they are sent when two of them meet.
        assert ("Exchange" in expected.bill.per_word) == ("perso-linear" not in case)
    places = request.getfixturevalue("on_ray") if engine == "ray" else engine
    assert_alike(fit(case, places), expected)


# -- in threads: other layouts, and what goes wrong ------------------------------------------------


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    "engine", [Places(1), Places(2, dealt=True), Places(3), Places(6)], ids=str
)
def test_it_does_not_matter_who_lives_where(engine, case):
    assert_alike(fit(case, engine), embedded(case))


def test_a_warm_start_is_known_to_all():
    before = embedded("given graph")
    fits = [fit("given graph", engine, warm_start=before) for engine in (Local(), Places(3))]
    assert fits[0].certificate.primal < before.certificate.primal
    assert_alike(fits[1], fits[0])


def test_a_run_goes_on_from_its_snapshots(tmp_path):
    for engine, folder in ((Local(), "one"), (Places(3), "three")):
        for rounds in (20, 45):
            result = fit("learned graph", engine, checkpoint=tmp_path / folder, max_rounds=rounds)
        assert_alike(result, embedded("learned graph"))


def test_limits_are_those_of_all_places():
    fits = [fit("given graph", engine, max_bits=20_000) for engine in (Local(), Places(3))]
    assert fits[0].status == "communication_limit"
    assert_alike(fits[1], fits[0])
    stopped = fit("learned graph", Places(6, stops=(0,)))
    assert stopped.status == "interrupted"
    assert stopped.bill.rounds < 3
    assert_alike(fit("learned graph", Places(6, stops=(1, 2))), embedded("learned graph"))


class Broken(Dada):
    """One agent's messages are not finite from some round on."""

    name = "broken"

    def publish(self, agent, state):
        message = super().publish(agent, state)
        if agent.index == 3 and np.count_nonzero(state.x[2:]) > 2:
            message.x[2] = np.nan
        return message


@pytest.mark.parametrize("engine", [Local(), Places(2), Places(6)], ids=["local", "two", "six"])
def test_what_is_not_finite_stops_all_with_the_best_so_far(engine):
    result = fit("given graph", engine, method=Broken(), check_every=1)
    assert result.status == "numerical_error"
    assert "agent 3 published numbers that are not finite" in str(result.error)
    assert 0 < result.certificate.gap < np.inf


# -- between organisations -------------------------------------------------------------------------

NAMES = ("ada", "bea", "cyd", "dan", "eve")
PROBLEM = {"count": 12, "beta": 4.0, "mu": 0.5}
LEARNING = {
    "split": "users",
    "tol": 1e-12,
    "max-rounds": 100,
    "check-every": 10,
    "options.sample": 2,
}
CHAIN = np.zeros((5, 5))
CHAIN[[0, 1, 2, 1], [1, 0, 1, 2]] = 1.0


def parties(names=NAMES):
    return [
        replace(t, name=n, columns=("a", "b", "c")) for t, n in zip(users(), names, strict=False)
    ]


def alone(tables, **settings):
    """The same in one process."""
    return co.solve(
        co.Personal(**PROBLEM), tables, split="users", tol=1e-12, progress=False, **settings
    )


@pytest.mark.parametrize(
    ("study", "settings"),
    [
        ({"network": [["ada", "bea"], ["bea", "cyd"]]}, {"network": CHAIN}),
        ({"max-rounds": 35, "options.sample": 2}, {"max_rounds": 35, "sample": 2}),
        (
            {"method": "perso-linear", "network": "ring"},
            {"method": "perso-linear", "network": "ring"},
        ),
        ({"method": "local"}, {"method": "local"}),
        ({"method": "global"}, {"method": "global"}),
    ],
    ids=["given graph", "learned graph", "perso-linear", "local", "global"],
)
def test_parties_come_to_the_models_of_one_process(tmp_path, study, settings):
    tables = parties()
    write_study(
        tmp_path, NAMES, PROBLEM, **{"split": "users", "max-rounds": 8, "tol": 1e-12} | study
    )
    local = alone(tables, **{"max_rounds": 8} | settings)
    results = together(tmp_path, tables, NAMES)
    for k, (name, result) in enumerate(zip(NAMES, results, strict=True)):
        assert result.status == local.status
        assert without_digests(result.bill) == local.bill
        np.testing.assert_allclose(
            result.model.coef_.toarray()[0], local.model.coefficients_of(name), atol=1e-10
        )
        np.testing.assert_allclose(
            result.certificate.witness[k], local.certificate.witness[k], atol=1e-10
        )
        assert result.certificate.gap == pytest.approx(local.certificate.gap, abs=1e-10)
        written = co.Result.load(tmp_path / name / "result")
        assert written.model.users == (name,)
        assert written.bill == result.bill
        assert [p.rows for p in written.certificate.participants] == [
            p.rows for p in local.certificate.participants
        ]
    assert {name for r in results for name in r.certificate.settings["parts"]} == set(NAMES)


def assert_same_bits(results, local, names):
    for name, result in zip(names, results, strict=True):
        assert (result.model.coef_.toarray()[0] == local.model.coefficients_of(name)).all()
        assert (result.history.gap == local.history.gap).all()


def test_the_page_before_the_run_says_that_others_see_the_model(tmp_path):
    write_study(tmp_path, NAMES, PROBLEM, split="users", method="dada")
    page = disclosure(load_study(tmp_path / "study.toml"), "bea", parties()[1])
    assert "To: ada, cyd, dan, eve" in page
    assert METHODS["dada"].disclosure.sent in page
    assert "the least and the largest value of each column" in page


def test_a_shaken_network_changes_no_bit(tmp_path):
    names, tables = NAMES[:3], parties(NAMES[:3])
    write_study(tmp_path, names, PROBLEM, deadline=4.0, **LEARNING | {"max-rounds": 15})
    made = []
    results = together(tmp_path, tables, names, links=shaken(made, drop=0.02))
    assert sum(one.lost for one in made)
    local = alone(tables, max_rounds=15, check_every=10, sample=2)
    assert_same_bits(results, local, names)
    assert all(without_digests(result.bill) == local.bill for result in results)


@pytest.mark.slow
@pytest.mark.chaos
def test_a_killed_party_comes_back_and_the_bits_are_the_same(tmp_path):
    names, tables = NAMES[:3], parties(NAMES[:3])
    write_study(tmp_path, names, PROBLEM, deadline=60.0, **LEARNING)
    for name in names[1:]:
        with (tmp_path / name / "party.toml").open("a") as file:
            file.write('target = "y"\n')
    write_data(tmp_path, tables)
    with processes(tmp_path, names) as running:
        victim = running["bea"]
        while victim.round() < 30 and not victim.ended:
            time.sleep(0.005)
        assert not victim.ended
        victim.kill()
        victim.start()
        ends = [party.wait() for party in running.values()]
    local = alone(tables, max_rounds=100, check_every=10, sample=2)
    assert {code for code, _ in ends} == {local.status.exit_code}, ends
    results = [co.Result.load(tmp_path / name / "result") for name in names]
    assert_same_bits(results, local, names)
    assert all(without_digests(result.bill) == local.bill for result in results)
