"""Gossip in real time: nobody waits for anybody, what is proven holds, and the bill is counted as
ever.
"""

from __future__ import annotations

import time
from queue import Queue

import numpy as np
import pytest

import coterie as co
from coterie.engines.peers import Peers
from coterie.engines.ray import Ray
from coterie.errors import PartyLost
from coterie.run.collectives import Publication
from coterie.study.study import load_study
from coterie.transport.links import Stop, Tag
from coterie.transport.point_to_point import PointToPoint
from coterie.transport.real_time_gossip import RealTimeGossip
from tests.engines.test_gossip_clusters import NAMES, PROBLEM, TIES, alone, fit, parties, users
from tests.harness.clusters import needs
from tests.harness.parties import together, write_study
from tests.harness.places import Places, Queues
from tests.harness.watched import Watched

GIVEN = TIES + TIES.T
NEIGHBOURS = (GIVEN > 0).sum(axis=1)
Z = 64


def in_real_time(places=6, pace=0.004, stops=()):
    """Places as threads of this process, each with its agents' clocks."""
    return Places(places, stops=stops, pace=pace)


def wake_ups(folder):
    """When each agent's steps began and ended."""
    return [
        np.loadtxt(folder / str(k), ndmin=2) if (folder / str(k)).exists() else np.empty((0, 2))
        for k in range(6)
    ]


@pytest.fixture(scope="module")
def reference():
    return fit("given graph", "local", max_rounds=5000, tol=1e-6)


def assert_certified(result, reference):
    """f* is between the reference's bounds, and no further from this model than its gap."""
    certificate = result.certificate
    assert certificate.primal >= reference.certificate.dual
    assert certificate.primal - certificate.gap <= reference.certificate.primal
    assert certificate.primal - reference.certificate.primal <= certificate.gap


@pytest.mark.parametrize("places", [1, 2, 6])
def test_the_optimum_is_within_the_certified_gap(places, reference):
    result = fit("given graph", in_real_time(places), max_rounds=50_000, tol=1e-3)
    assert result.status == "optimal"
    assert_certified(result, reference)
    assert co.verify(result.certificate, result.model, users()).holds


def test_a_graph_is_learned_on_the_way():
    result = fit("learned graph", in_real_time(3), max_rounds=50_000, tol=1e-2)
    assert result.status == "optimal"
    assert result.model.weights.nnz > 0
    assert result.bill.per_word["Exchange"].messages > 0
    assert co.verify(result.certificate, result.model, users()).holds


def test_a_slow_agent_slows_nobody(tmp_path):
    """It waits for the others to wake up three times: in lockstep, these would wait for it."""
    how = {
        "check_every": 200,
        "max_rounds": 200,
        "method": Watched(log=str(tmp_path), slow=5, others=5),
    }
    fit("given graph", in_real_time(pace=0.01), **how)
    *others, slow = wake_ups(tmp_path)
    start, end = slow[0]
    assert all(((start < own[:, 0]) & (own[:, 1] < end)).sum() >= 3 for own in others)
    assert min(map(len, others)) >= 3 * (len(slow) - 1)


def test_the_bill_is_that_of_the_wake_ups(tmp_path):
    """(Z + log₂ n)·|N_k| bits for every published step, also across a restart from a snapshot."""
    (log := tmp_path / "log").mkdir()
    method = Watched(log=str(log), step="frank-wolfe")
    for rounds in (20, 40):
        settings = {
            "max_rounds": rounds,
            "check_every": 20,
            "checkpoint": tmp_path / "saved",
            "method": method,
        }
        problem, how = (
            co.Personal(count=16, beta=4.0, mu=0.5),
            {"split": "users", "network": GIVEN, "tol": 1e-12},
        )
        result = co.solve(
            problem, users(), engine=in_real_time(), progress=False, **how, **settings
        )
        counts = np.array([len(own) for own in wake_ups(log)])
        assert counts.sum() > 0
        assert result.bill.bits == (Z + 4) * (counts @ NEIGHBOURS)
        assert result.bill.messages == counts @ NEIGHBOURS
        assert result.rounds == rounds


def test_the_first_place_ends_a_run_for_all():
    result = fit(
        "given graph",
        in_real_time(),
        max_rounds=100_000,
        max_seconds=2.0,
        check_every=50_000,
        tol=1e-14,
    )
    assert result.status == "time_limit"
    assert 0 < result.rounds < 50_000
    assert fit("given graph", in_real_time(stops=(0,)), max_rounds=100_000).status == "interrupted"
    assert fit("given graph", in_real_time(stops=(3,)), max_rounds=30).status == "iteration_limit"


@pytest.mark.parametrize(
    ("engine", "method", "match"),
    [
        (Peers(clock="sundial"), "dada", "no clock called 'sundial'"),
        (
            Ray(clock="real", pace=0.0),
            "dada",
            "pace is the mean time between two wake-ups in seconds",
        ),
        (Peers(clock="real"), "global", "wake up one by one, such as dada"),
    ],
)
def test_impossible_clocks_are_refused(engine, method, match):
    with pytest.raises(co.CoterieError, match=match):
        fit("given graph", engine, method=method)


@pytest.mark.parametrize(
    ("message", "match"),
    [
        ([0.0, 1.0, 1.0, 2.0, 1.0, 1.0, 0.0, 5.0], "in the name of others"),
        ([0.0, 2.0, 1.0, 2.0, 1.0, 1.0, 99.0, 5.0], "out of bounds"),
        (
            [0.0, 2.0, 1.0, 2.0, 1.0, 1.0, 3.0, np.nan],
            "agent 2 published numbers that are not finite",
        ),
        ([0.0, np.nan], "sent a malformed message"),
        ([1.0, 1.0, 0.0, 1.0, 0.5], "a note in the name of others"),
        ([1.0, 2.0, 1.0, 1.0, 0.5], "a note in the name of others, or to others"),
        ([1.0, 2.0, 0.0, 9e9, 0.5], "a note"),
        ([1.0, 2.0, 0.0, 1.0, np.inf], "agent 2 published numbers that are not finite"),
        ([7.0], "unknown message type"),
        ([], "unknown message type"),
    ],
)
def test_messages_that_cannot_be_are_refused(message, match):
    """Agent 0 hears agent 2's process, which speaks for agent 2 only."""
    network = co.networks.star(3, server=True)
    own = RealTimeGossip(PointToPoint(network, Queues(0, {}, {}, ()), range(3), 0), 0.01)
    own.publish(0, Publication(np.zeros(6), head=2))
    own._read_message(2, np.array([0.0, 2.0, 1.0, 2.0, 1.0, 1.0, 3.0, 5.0]))
    assert own._board[2].tolist() == [0, 0, 0, 5, 0, 0]
    with pytest.raises(co.CoterieError, match=match):
        own._read_message(2, np.array(message))


def test_only_the_process_of_agent_0_says_when_to_stop():
    network, lines = co.networks.star(3, server=True), {(0, 1): Queue(), (2, 1): Queue()}
    own = RealTimeGossip(PointToPoint(network, Queues(1, lines, {}, (0, 2)), range(3), 1), 0.01)
    own._span = 0, 10
    lines[2, 1].put((own._tag, np.array([1.0]), Stop(5, 2)))
    own._take_in()
    lines[0, 1].put((own._tag, np.array([2.0]), Stop(7, 0)))
    own._take_in()
    assert own._stop == Stop(7, 0)
    lines[0, 1].put((own._tag, np.array([2.0]), Stop(11, 1)))
    own._ended.clear()
    with pytest.raises(
        co.CoterieError, match=r"the stretch of rounds \(0, 10\) ended with Stop\(at=11, reason=1\)"
    ):
        own._take_in()


def polled(links, tag):
    while (message := links.poll(0, tag)) is None:
        time.sleep(0.001)
    return message


@needs("peers")
def test_links_are_looked_at_without_waiting():
    from coterie.transport.grpc_mesh import GrpcMesh
    from coterie.transport.security import TrustedCluster

    ends = [GrpcMesh(place, range(2), "run", TrustedCluster(), 5.0) for place in range(2)]
    for end in ends:
        end.connect([other.address for other in ends])
    for end in ends:
        end.wait()
    a, b = ends
    tag = Tag("rounds", 0, "stretch")
    assert b.poll(0, tag) is None
    a.send(1, np.arange(3.0), tag)
    assert polled(b, tag).tolist() == [0.0, 1.0, 2.0]
    a.publish(7, np.ones(2))
    assert b.ask(0, 7, patience=5.0).tolist() == [1.0, 1.0]
    assert b.ask(0, 8, patience=5.0) is None
    a.send(1, np.zeros(1), Tag("proof", 1, "Sum"))
    with pytest.raises(
        co.CoterieError, match=r"sent Sum \(step 1, proof\) where agent 1 expects stretch"
    ):
        polled(b, tag)
    a.close("enough")
    with pytest.raises(PartyLost, match="left the run: enough"):
        polled(b, tag)
    while b._edge(0).linked:
        time.sleep(0.001)
    assert b.ask(0, 7, patience=3600.0) is None, "who is not there is not waited for"
    b.close()


# -- between organisations -------------------------------------------------------------------------


@needs("peers")
def test_parties_with_clocks_of_their_own(tmp_path):
    tables = parties()
    timing = {"clock": "real", "pace": 0.02, "check-every": 40, "max-rounds": 20_000}
    write_study(tmp_path, NAMES, PROBLEM, split="users", network="ring", tol=1e-2, **timing)
    results = together(tmp_path, tables, NAMES)
    best = alone(tables, network="ring", max_rounds=3000).certificate
    for result in results:
        assert result.status == "optimal"
        assert result.bill == results[0].bill
        assert best.dual <= result.certificate.primal <= best.primal + result.certificate.gap


def test_a_real_clock_is_for_users(tmp_path):
    write_study(tmp_path, NAMES, {"loss": "squared"}, split="samples")
    file = tmp_path / "study.toml"
    file.write_text('clock = "real"\n' + file.read_text())
    with pytest.raises(co.CoterieError, match="clock = 'real' needs split = 'users'"):
        load_study(file)


# -- with real processes ---------------------------------------------------------------------------

cluster = [pytest.mark.cluster, pytest.mark.xdist_group("clusters"), pytest.mark.timeout(300)]
ENGINES = [
    pytest.param(
        Ray(workers=3, clock="real", pace=0.02, deadline=10.0),
        marks=[*cluster, needs("ray")],
        id="ray",
    ),
    pytest.param(
        Peers(clock="real", pace=0.02, deadline=10.0),
        marks=[*cluster, needs("peers"), pytest.mark.slow],
        id="peers",
    ),
]


@pytest.mark.parametrize("engine", ENGINES)
def test_processes_with_clocks_of_their_own(engine, tmp_path, reference):
    """The optimum, in spite of an agent that wakes up a third as often as the others."""
    result = fit(
        "given graph",
        engine,
        max_rounds=10_000,
        tol=1e-3,
        method=Watched(log=str(tmp_path), slow=5, others=4),
    )
    assert result.status == "optimal", result.error
    assert_certified(result, reference)
    found = wake_ups(tmp_path)
    # On Ray, agent 4 lives in the same process.
    assert min(len(found[k]) for k in range(4)) >= 3 * (len(found[5]) - 1)


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.parametrize("engine", ENGINES)
def test_who_is_lost_does_not_stop_the_others(engine, tmp_path, reference):
    """They go on until the next certificate, which needs everybody: the run ends with the last one
    that there was.
    """
    how = {"max_rounds": 300, "check_every": 100, "method": Watched(log=str(tmp_path), doomed=5)}
    result = fit("given graph", engine, **how)
    assert result.status == "party_lost"
    assert "user-5" in str(result.error)
    assert result.history[-1].round == 100
    assert_certified(result, reference)
    found = wake_ups(tmp_path)
    loss = found[5][-1, 1]
    assert all((own[:, 0] > loss + 0.1).sum() >= 10 for own in found[:4])
