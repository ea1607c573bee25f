"""Parties that are killed, frozen, cut off or shaken: the same bits in the end, or a named loss
within the deadline.
"""

from __future__ import annotations

import json
import random
import signal
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

import coterie as co
from coterie.api.result import Result
from coterie.errors import PartyLost
from coterie.run import rounds
from coterie.run.statuses import Status
from coterie.transport import edge, grpc_mesh
from tests.harness.parties import (
    NAMES,
    Network,
    data,
    processes,
    same_secrets,
    together,
    without_digests,
    write_data,
    write_study,
)
from tests.harness.shaken import shaken

pytestmark = pytest.mark.chaos

SLOW = {"loss": "logistic", "penalty": "l2", "strength": 1e-5, "intercept": False}
LONG = {
    "problem": SLOW,
    "method": "graph-cp",
    "network": "path",
    "tol": 1e-14,
    "max-rounds": 700,
    "check-every": 20,
}
"""A run that lasts some seconds and saves often."""


def undisturbed(tables, settings, **more):
    return co.solve(
        co.Problem(**settings["problem"]),
        tables,
        split="features",
        network=settings["network"],
        method=settings["method"],
        tol=settings["tol"],
        max_rounds=settings["max-rounds"],
        check_every=settings["check-every"],
        progress=False,
        **more,
    )


def assert_same_bits(results, local):
    coefficients = np.concatenate([result.model.coef_ for result in results])
    assert (coefficients == local.model.coef_).all()
    for result in results:
        assert result.status == local.status
        assert without_digests(result.bill) == local.bill
        assert (result.history.gap == local.history.gap).all()
        assert result.certificate.gap == local.certificate.gap


TO_END = 30.0
"""Seconds that processes may take on a busy machine to write what they have and to end."""
MOMENTS = ("any time", "in the rounds", "while saving")


def until(holds, seconds=150, pause=0.002):
    """Wait for something that has to come."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come"
        time.sleep(pause)


def freeze_while_saving(victim):
    """Stop the party in the middle of writing a snapshot; what it has written of it."""
    while not victim.ended:
        if victim.is_saving():
            victim.signal(signal.SIGSTOP)
            until(victim.is_frozen)
            if half := victim.is_saving():
                return half
            victim.signal(signal.SIGCONT)
    return []


def killing(folder, settings, kills, seed):
    """Run to the end in real processes, killing and restarting parties on the way; what they
    wrote.
    """
    dice = random.Random(seed)
    with processes(folder) as running:
        for kill in range(kills):
            victim = running[dice.choice(NAMES)]
            moment = MOMENTS[kill % len(MOMENTS)]
            goal = dice.uniform(0.2, 0.8) * settings["max-rounds"] * (kill + 1) / kills
            half = []
            if moment == "any time":
                time.sleep(dice.uniform(0, 3))
            else:
                until(lambda: victim.round() >= goal or victim.ended)  # noqa: B023
                if moment == "while saving":
                    half = freeze_while_saving(victim)
                else:
                    time.sleep(dice.uniform(0, 0.02))
            # Every kill counts: nobody was done before, and who was to be hit while it saves left
            # half a file behind.
            assert not any(party.ended for party in running.values())
            victim.kill()
            assert bool(half) == (moment == "while saving")
            assert all(file.exists() for file in half)
            victim.start()
        ends = {name: party.wait() for name, party in running.items()}
    assert {code for code, _ in ends.values()} == {Status.ITERATION_LIMIT.exit_code}, ends
    print(f"{kills} kills, seed {seed}")
    return [Result.load(folder / name / "result") for name in NAMES]


def run_with_kills(tmp_path, kills, seed):
    tables = data(seed=seed, classification=True)
    write_study(tmp_path, deadline=60.0, **LONG)
    write_data(tmp_path, tables)
    results = killing(tmp_path, LONG, kills, seed)
    assert_same_bits(results, undisturbed(tables, LONG))


@pytest.mark.rotates
def test_killed_parties_come_back_and_the_bits_are_the_same(tmp_path):
    run_with_kills(tmp_path, 3, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 6))
def test_kills_at_many_points(tmp_path, seed):
    run_with_kills(tmp_path, 5, seed)


@pytest.mark.slow
def test_private_randomness_survives_kills(tmp_path):
    """What tree multiplies columns by in its set-up is drawn from a nonce that only the party
    has.
    """
    tables, settings = data(seed=3, classification=True), LONG | {"method": "tree"}
    write_study(tmp_path, deadline=60.0, **settings)
    write_data(tmp_path, tables)
    results = killing(tmp_path, settings, 2, seed=3)
    assert_same_bits(results, undisturbed(tables, settings, engine=same_secrets(tmp_path)))


@pytest.mark.slow
def test_all_parties_killed_and_started_later_continue_from_the_snapshots(tmp_path):
    tables = data(classification=True)
    write_study(tmp_path, deadline=30.0, **LONG)
    write_data(tmp_path, tables)
    with processes(tmp_path) as running:
        until(lambda: running["cyd"].round() >= 100)
        reached = running["cyd"].round()
        assert 100 <= reached < 700
        for party in running.values():
            party.kill()
        for party in running.values():
            party.start()
        codes = [party.wait()[0] for party in running.values()]
    assert codes == [Status.ITERATION_LIMIT.exit_code] * 3
    assert_same_bits(
        [Result.load(tmp_path / name / "result") for name in NAMES], undisturbed(tables, LONG)
    )


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("fate", "deadline"),
    [(signal.SIGKILL, 10.0), pytest.param(signal.SIGSTOP, 15.0, marks=pytest.mark.slow)],
)
def test_who_does_not_come_back_is_named_by_every_survivor_in_time(tmp_path, fate, deadline):
    write_study(tmp_path, deadline=deadline, **LONG | {"max-rounds": 10_000_000})
    write_data(tmp_path, data(classification=True))
    with processes(tmp_path) as running:
        until(lambda: running["ada"].round() >= 60)
        running["cyd"].signal(fate)
        began = time.monotonic()
        ends = {name: running[name].wait() for name in ("ada", "bea")}
        took = time.monotonic() - began
    for code, printed in ends.values():
        assert code == Status.PARTY_LOST.exit_code
        assert printed["status"] == "party_lost"
        assert printed["gap"] > 0
    for name in ("ada", "bea"):
        # The last valid model and its gap are there, and the reason names the party that is gone,
        # not the messenger.
        saved = Result.load(tmp_path / name / "result")
        assert saved.status is Status.PARTY_LOST
        assert "cyd" in str(saved.error)
        assert saved.certificate.gap == ends[name][1]["gap"]
    assert deadline - 0.5 <= took <= 2 * deadline + TO_END


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("pressed", "codes"),
    [("ada", [20, 20]), pytest.param("bea", [18, 20], marks=pytest.mark.slow)],
)
def test_ctrl_c_ends_the_run_with_the_best_model_so_far(tmp_path, pressed, codes):
    names = NAMES[:2]
    write_study(tmp_path, names=names, deadline=60.0, **LONG | {"max-rounds": 10_000_000})
    write_data(tmp_path, data(classification=True, names=names))
    with processes(tmp_path, names) as running:
        until(lambda: running["ada"].round() >= 40 and running["bea"].round() >= 40)
        running[pressed].signal(signal.SIGINT)
        ends = [party.wait() for party in running.values()]
    assert [code for code, _ in ends] == codes, ends
    if pressed == "ada":
        # The first party speaks for all: they stop after the same round, and none is missed.
        assert {printed["status"] for _, printed in ends} == {"interrupted"}
        assert ends[0][1]["rounds"] == ends[1][1]["rounds"] >= 40
        assert ends[0][1]["gap"] == ends[1][1]["gap"] > 0
    else:
        saved = Result.load(tmp_path / "ada" / "result")
        assert 'bea left the run: "it was stopped by hand"' in str(saved.error)
        assert saved.certificate.gap > 0


def test_clocks_that_jump_by_hours_change_nothing(tmp_path, monkeypatch):
    tables, settings = data(classification=True), LONG | {"max-rounds": 40}
    local = undisturbed(tables, settings)
    dice = random.Random(0)
    # Our clocks only: gRPC would not bear a clock in Python that is another than the one in C.
    jumping = SimpleNamespace(
        time=lambda: time.time() + dice.choice([-3600, 0, 3600]),
        monotonic=time.monotonic,
        sleep=time.sleep,
    )
    for module in (edge, grpc_mesh, rounds):
        monkeypatch.setattr(module, "time", jumping)
    write_study(tmp_path, deadline=20.0, **settings)
    assert_same_bits(together(tmp_path, tables), local)


# -- partitions ------------------------------------------------------------------------------------


def after(round, action):
    """A watch that does something once, when that round is over."""
    done = threading.Event()

    def watch(t, record):
        if t >= round and not done.is_set():
            done.set()
            threading.Thread(target=action, daemon=True).start()

    return watch


def test_a_partition_that_heals_costs_time_and_nothing_else(tmp_path):
    tables = data(classification=True)
    with Network() as network:
        write_study(tmp_path, deadline=15.0, through=network, **LONG)

        def partition():
            network.hold("bea", "ada")
            time.sleep(2.0)
            network.heal()
            network.cut("ada")

        began = time.monotonic()
        results = together(tmp_path, tables, watch=after(50, partition))
        assert time.monotonic() - began > 2.0
    assert_same_bits(results, undisturbed(tables, LONG))


def test_a_partition_that_does_not_heal_is_a_loss_on_both_sides(tmp_path):
    deadline = 4.0
    with Network() as network:
        write_study(
            tmp_path, deadline=deadline, through=network, **LONG | {"max-rounds": 10_000_000}
        )
        began = []

        def partition():
            began.append(time.monotonic())
            # cyd dials bea: what is held at bea's door is the link between the two.
            network.hold("bea")

        results = together(tmp_path, data(classification=True), watch=after(50, partition))
        took = time.monotonic() - began[0]
    assert [result.status for result in results] == [Status.PARTY_LOST] * 3
    assert [result.error.party for result in results] == ["cyd", "cyd", "bea"]
    assert took <= 2 * deadline + TO_END


def test_who_never_comes_is_named(tmp_path):
    write_study(tmp_path, deadline=2.0, **LONG)
    for name in NAMES:
        file = tmp_path / name / "party.toml"
        file.write_text(file.read_text().replace("patience = 60", "patience = 2"))
    began = time.monotonic()
    errors = together(tmp_path, data(classification=True)[:2], names=NAMES[:2])
    assert all(isinstance(error, PartyLost) and error.party == "cyd" for error in errors), errors
    assert time.monotonic() - began < TO_END


# -- shaken links ----------------------------------------------------------------------------------

LITTLE_OF_ALL = {"delay": 0.01, "drop": 0.02, "disconnect": 0.02}


@pytest.mark.parametrize(
    "how", [{"delay": 0.01}, {"drop": 0.05}, {"disconnect": 0.05}, LITTLE_OF_ALL], ids=" ".join
)
def test_a_shaken_network_changes_no_bit(tmp_path, how):
    tables = data(classification=True)
    settings = LONG | {"max-rounds": 60}
    # A lost message is found out by the next heartbeat, an eighth of the deadline later.
    write_study(tmp_path, deadline=4.0, **settings)
    made = []
    results = together(tmp_path, tables, links=shaken(made, **how))
    assert_same_bits(results, undisturbed(tables, settings))
    assert bool(sum(one.lost for one in made)) == ("drop" in how)
    assert bool(sum(one.cut for one in made)) == ("disconnect" in how)


# -- long runs -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ten_thousand_rounds_leave_nothing_behind(tmp_path):
    names = ("ada", "bea", "cyd", "dan")
    tables = data(names=names, d=8, classification=True)
    settings = {"method": "graph-cp", "network": "ring", "tol": 1e-16, "max-rounds": 10_000}
    # The paper's own steps are slow enough to go on for so long.
    settings |= {"check-every": 500, "problem": SLOW, "options.variant": "paper"}
    write_study(tmp_path, names=names, deadline=60.0, **settings)
    write_data(tmp_path, tables)
    seen = {name: [] for name in names}
    with processes(tmp_path, names) as running:
        while all(party.process.poll() is None for party in running.values()):
            for name, party in running.items():
                if party.round() >= 1000:
                    seen[name].append((party.round(), *footprint(party.process.pid)))
            time.sleep(0.2)
        codes = {party.wait()[0] for party in running.values()}
    assert codes <= {Status.ITERATION_LIMIT.exit_code, Status.STALLED.exit_code}
    for name in names:
        steady = [one for one in seen[name] if 1000 <= one[0] <= 9500]
        early, late = steady[0], steady[-1]
        print(json.dumps({"party": name, "early": early, "late": late}))
        assert late[0] - early[0] >= 5000
        assert late[1] <= 1.05 * early[1] + 2_000_000
        assert late[2] <= early[2] + 2
        assert late[3] <= early[3] + 2


def footprint(pid):
    """Resident bytes, open files and sockets, threads."""
    from pathlib import Path

    proc = Path(f"/proc/{pid}")
    try:
        status = dict(
            line.split(":", 1) for line in (proc / "status").read_text().splitlines() if ":" in line
        )
        return (
            int(status["VmRSS"].split()[0]) * 1024,
            len(list((proc / "fd").iterdir())),
            int(status["Threads"]),
        )
    except (OSError, KeyError):
        return 0, 0, 0
