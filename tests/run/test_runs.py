"""Runs: limits, statuses, Ctrl-C, checkpoints, and that the same seed gives the same iterates."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import coterie as co
from coterie.data.archives import read_archive
from coterie.engines.local import Local
from coterie.errors import CorruptFile, InvalidInput
from coterie.methods import Method
from coterie.networks import path
from coterie.run.bill import Bill
from coterie.run.certificate import Bound, Point
from coterie.run.checkpoint import Checkpoint
from coterie.run.collectives import Ask
from coterie.run.stopping import Record, verdict, worth_a_look
from coterie.transport.in_process import InProcess

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 6))
Y = X @ RNG.standard_normal(6) + 0.3 * RNG.standard_normal(60)
PROBLEM = co.Problem("absolute", "l1", 0.01, intercept=False)


def fit(**settings):
    return co.solve(
        PROBLEM,
        (X, Y),
        **{"agents": 4, "method": "proximal-1", "tol": 1e-9, "max_rounds": 60, **settings},
    )


def test_limits_end_with_their_status_and_a_valid_gap():
    for settings, status in (
        ({"max_rounds": 7}, "iteration_limit"),
        ({"max_rounds": 0}, "iteration_limit"),
        ({"max_bits": 1e5}, "communication_limit"),
        ({"max_seconds": 0.0}, "time_limit"),
        ({"tol": 0.5}, "optimal"),
    ):
        result = fit(**settings)
        assert result.status == status
        assert result.status.advice
        assert np.isfinite(result.certificate.gap)
        assert result.certificate.gap == result.history.gap.min()
        assert co.verify(result.certificate, result.model, (X, Y)).holds


WALK = np.cumsum(RNG.standard_normal((300, 1500)), axis=1) / 30
"""Columns that are nearly sums of others: on its Gram matrix inner loops take a minute for one
round.
"""
STEPS = WALK[:, ::100].sum(axis=1) + RNG.standard_normal(300)


def l1ball(method, **settings):
    ball = co.Problem("squared", "l1ball", radius=5.0, intercept=False)
    return co.solve(ball, (WALK, STEPS), agents=3, method=method, tol=1e-12, **settings)


def weak_lasso(**settings):
    lasso = co.Problem("squared", "l1", 1e-6, intercept=False)
    return co.solve(lasso, (WALK, STEPS), agents=3, method="gram", tol=1e-12, **settings)


@pytest.mark.parametrize("method", ["gram", "newton"])
def test_a_round_that_would_take_minutes_ends_with_the_time(method):
    began = time.process_time()
    result = l1ball(method, max_seconds=0.5)
    assert time.process_time() - began < 30
    assert result.status == "time_limit"
    assert result.rounds == 1
    assert result.certificate.primal < result.certificate.primal_at_zero
    assert co.verify(result.certificate, result.model, (WALK, STEPS)).holds


def test_coordinates_with_free_ones_end_with_the_time_too():
    began = time.process_time()
    result = weak_lasso(max_seconds=0.5)
    assert time.process_time() - began < 30
    assert result.status == "time_limit"
    assert co.verify(result.certificate, result.model, (WALK, STEPS)).holds


def test_ctrl_c_ends_a_round_that_would_take_minutes():
    began = time.process_time()
    threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    result = weak_lasso()
    assert time.process_time() - began < 30
    assert result.status == "interrupted"
    assert co.verify(result.certificate, result.model, (WALK, STEPS)).holds


def test_an_answer_that_was_cut_short_is_not_kept_for_the_next_run(tmp_path):
    short = l1ball("gram", max_seconds=0.0, checkpoint=tmp_path)
    first = l1ball("gram", max_seconds=0.3, checkpoint=tmp_path)
    longer = l1ball("gram", max_seconds=3.0, warm_start=first)
    resumed = l1ball("gram", max_seconds=first.history.seconds[-1] + 0.5, checkpoint=tmp_path)
    primals = [result.certificate.primal for result in (short, first, longer)]
    assert primals == sorted(primals, reverse=True)
    assert primals[2] < primals[1]
    assert resumed.certificate.primal <= first.certificate.primal


class Impatient(Local):
    """Somebody wishes to stop from the so-manieth time on that anybody asks."""

    def __init__(self, patience):
        super().__init__()
        self.patience = patience

    def run(self, run):
        questions = itertools.count()
        transport = InProcess(run.network, Bill(run.network), run.names)
        return run.on(transport, lambda: next(questions) >= self.patience)


@pytest.mark.parametrize("patience", [1, 2, 3, 5, 8, 13, 21])
@pytest.mark.parametrize(
    ("loss", "penalty", "method", "options"),
    [
        ("squared", {"penalty": "l1ball", "radius": 0.5}, "gram", {}),
        ("squared", {"penalty": "l1", "strength": 0.01}, "gram", {}),
        ("huber", {"penalty": "l1ball", "radius": 0.5}, "newton", {}),
        ("huber", {"penalty": "l2", "strength": 1e-3}, "newton", {"hessian": "products"}),
        ("huber", {"penalty": "l1", "strength": 0.01}, "newton", {"hessian": "active"}),
        ("huber", {"penalty": "l2", "strength": 1e-3}, "proximal-1", {"inner_tolerance": 1e-9}),
        ("absolute", {"penalty": "l2", "strength": 1e-3}, "interior-point", {}),
        ("absolute", {"penalty": "l2", "strength": 1e-3}, "semismooth", {}),
    ],
)
def test_agents_that_stop_in_the_middle_of_a_round_still_say_the_same(
    loss, penalty, method, options, patience
):
    problem = co.Problem(loss, intercept=False, **penalty)
    run = {"method": method, "engine": Impatient(patience), "tol": 1e-13, "agents": 3, **options}
    result = co.solve(problem, (X, Y), **run)
    assert result.status in ("interrupted", "optimal")
    assert co.verify(result.certificate, result.model, (X, Y)).holds


def test_the_budget_of_bits_is_kept():
    for budget in (5e4, 1e5, 3e5):
        result = fit(max_bits=budget, max_rounds=10_000)
        assert result.status == "communication_limit"
        assert 0.5 * budget < result.bill.total.bits <= budget


def test_a_wrong_step_diverges_with_a_status_and_the_best_model():
    run = {"agents": 4, "rho": 1.0, "eta": 1.0, "max_rounds": 5000, "acceleration": "none"}
    result = co.solve(co.Problem("squared", "l2", 1e-3, intercept=False), (X, Y), **run)
    assert result.status in ("diverged", "numerical_error")
    assert np.isfinite(result.model.coef_).all()
    assert result.certificate.gap == result.history.gap[np.isfinite(result.history.gap)].min()


def test_huge_scales_and_constant_columns_do_not_overflow():
    wide = X * np.logspace(-6, 6, 6)
    wide[:, 0] = 3.0
    result = co.solve(
        co.Problem("squared", "l2", 1e-3, intercept=False),
        (wide, 1e6 * Y),
        agents=4,
        max_rounds=300,
    )
    assert result.status in ("optimal", "iteration_limit")
    assert np.isfinite(result.model.coef_).all()


def test_the_tolerance_that_is_printed_was_tested():
    result = fit(tol=1e-3, max_rounds=10_000)
    assert result.status == "optimal"
    assert result.certificate.tolerance == 1e-3
    assert result.certificate.gap <= 1e-3 * result.certificate.primal_at_zero


def test_the_same_seed_gives_the_same_iterates_and_bill():
    first, second = fit(), fit()
    np.testing.assert_array_equal(first.model.coef_, second.model.coef_)
    assert first.bill == second.bill


def test_history_has_rows_and_columns():
    history = fit().history
    assert history["gap"][-1] == history[-1].gap == history.gap[-1]
    assert (np.diff(history["round"]) > 0).all()
    assert (np.diff(history.bits) > 0).all()
    np.testing.assert_allclose(history.gap, history.primal - history.dual)


def test_looking_costs_little_in_a_long_run():
    result = fit(max_rounds=3000, tol=1e-12)
    proofs = result.bill.per_purpose["proof"].bits
    assert proofs <= 0.05 * result.bill.bits + 8 * proofs / len(result.history)


# -- checkpoints -----------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", range(0, 25, 3))
def test_a_run_stopped_at_any_round_continues_bit_by_bit(tmp_path, stop):
    whole = fit(max_rounds=25)
    fit(max_rounds=stop, checkpoint=tmp_path)
    resumed = fit(max_rounds=25, checkpoint=tmp_path)
    np.testing.assert_array_equal(resumed.model.coef_, whole.model.coef_)
    for own, other in zip(resumed.certificate.witness, whole.certificate.witness, strict=True):
        np.testing.assert_array_equal(own, other)
    assert resumed.bill.scalars == whole.bill.scalars
    assert resumed.rounds == 25


def test_a_finished_run_is_not_run_again(tmp_path):
    first = fit(tol=1e-2, max_rounds=2000, checkpoint=tmp_path)
    again = fit(tol=1e-2, max_rounds=2000, checkpoint=tmp_path)
    assert first.status == again.status == "optimal"
    assert first.bill == again.bill


def test_two_checkpoints_are_kept_and_a_damaged_one_is_passed_over(tmp_path):
    whole = fit(max_rounds=40)
    fit(max_rounds=20, checkpoint=tmp_path)
    _, newest = sorted(tmp_path.glob("round-*.npz"))
    newest.write_bytes(newest.read_bytes()[:100])
    resumed = fit(max_rounds=40, checkpoint=tmp_path)
    np.testing.assert_array_equal(resumed.model.coef_, whole.model.coef_)
    for file in tmp_path.glob("round-*.npz"):
        file.write_bytes(b"not an archive")
    with pytest.raises(CorruptFile, match="no readable checkpoint"):
        fit(checkpoint=tmp_path)


def test_another_runs_checkpoint_is_refused(tmp_path):
    fit(max_rounds=5, checkpoint=tmp_path)
    for other in ({"seed": 1}, {"rho": 3.0}, {"agents": 3}):
        with pytest.raises(InvalidInput, match="another run"):
            fit(checkpoint=tmp_path, **other)
    with pytest.raises(InvalidInput, match="another run"):
        co.solve(PROBLEM, (X, Y + 1e-9), agents=4, checkpoint=tmp_path)


def test_a_checkpoint_with_other_fields_is_refused(tmp_path):
    fit(max_rounds=5, checkpoint=tmp_path)
    files = Checkpoint(tmp_path, "")._files()
    header, _ = read_archive(files[-1], "checkpoint")

    @dataclass(frozen=True)
    class Renamed:
        w: object
        x: object

    with pytest.raises(InvalidInput, match="another version"):
        Checkpoint(tmp_path, header["identity"]).load((Renamed, Renamed), header["round"])


def test_a_half_written_checkpoint_is_never_seen(tmp_path, monkeypatch):
    fit(max_rounds=10, checkpoint=tmp_path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}

    def crash(*_):
        raise OSError("the disk is gone")

    monkeypatch.setattr(os, "fsync", crash)
    ended = fit(max_rounds=20, checkpoint=tmp_path)
    assert ended.rounds == 20
    assert "could not be written" in ended.warnings[0]
    assert "disk is gone" in ended.warnings[0]
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


SCRIPT = """
import sys, numpy as np, coterie as co
rng = np.random.default_rng(0)
X = rng.standard_normal((400, 30)); y = np.sign(X @ rng.standard_normal(30) + rng.standard_normal(400))
problem = co.Problem("hinge", "l1", 1e-3, intercept=False)
result = co.solve(problem, (X, y), tol=1e-14, max_rounds=int(sys.argv[2]), checkpoint=sys.argv[1])
np.save(sys.argv[1] + "/answer.npy", result.model.coef_)
print(result.status, result.rounds, result.certificate.gap)
"""


def launch(folder, rounds):
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(folder), str(rounds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_checkpoint(folder: Path, deadline: float = 280.0) -> None:
    until = time.monotonic() + deadline
    while not list(folder.glob("round-*.npz")):
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.chaos
def test_kill_dash_nine_then_resume_is_bit_identical(tmp_path):
    (tmp_path / "killed").mkdir()
    (tmp_path / "whole").mkdir()
    undisturbed = launch(tmp_path / "whole", 4000)
    for pause in (0.0, 0.02, 0.05):
        victim = launch(tmp_path / "killed", 4000)
        wait_for_checkpoint(tmp_path / "killed")
        time.sleep(pause)
        victim.kill()
        victim.communicate()
    survivor = launch(tmp_path / "killed", 4000)
    for process in (survivor, undisturbed):
        _, errors = process.communicate(timeout=280)
        assert process.returncode == 0, errors
    np.testing.assert_array_equal(
        np.load(tmp_path / "killed" / "answer.npy"), np.load(tmp_path / "whole" / "answer.npy")
    )


@pytest.mark.chaos
def test_ctrl_c_ends_with_the_best_model_so_far(tmp_path):
    process = launch(tmp_path, 10_000_000)
    wait_for_checkpoint(tmp_path)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=280)
    assert process.returncode == 0, errors
    assert output.startswith("interrupted")
    assert np.isfinite(float(output.split()[-1]))


def test_a_run_in_another_thread_leaves_signals_alone():
    before = signal.getsignal(signal.SIGINT)
    results = []
    thread = threading.Thread(target=lambda: results.append(fit()))
    thread.start()
    thread.join()
    assert results[0].status == "iteration_limit"
    assert signal.getsignal(signal.SIGINT) is before


def test_states_survive_the_archive_exactly(tmp_path):
    fit(max_rounds=9, checkpoint=tmp_path, method="proximal-2", acceleration="none")
    file = sorted(tmp_path.glob("*.npz"))[-1]
    from coterie.data.archives import read_archive
    from coterie.methods import method

    header, _ = read_archive(file, "checkpoint")
    State = method("proximal-2").state
    classes = (State,)
    snapshot = Checkpoint(tmp_path, header["identity"]).load(classes, 9)
    assert snapshot.round == 9
    assert all(isinstance(state, State) and state.w.dtype == float for state in snapshot.states)


@dataclass(frozen=True)
class Gossip(Method):
    """Each agent asks its left neighbour for what it published last, and publishes the round it is
    in.
    """

    name = "gossip"
    split = "samples"
    summary = "for this test only"

    @property
    def state(self):
        return GossipState

    def start(self, agent):
        yield from ()
        return GossipState(np.zeros(agent.design.shape[1]), 0.0, -1.0)

    def round(self, agent, state, t):
        peer = (agent.index - 1) % agent.count
        received = yield Ask((peer,))
        return GossipState(state.w, float(10 * agent.index + t), float(received[peer][0]))

    def publish(self, agent, state):
        return np.array([state.said])

    def point(self, agent, state):
        HEARD[agent.index] = state.received
        return Point(state.w)


@dataclass(frozen=True)
class GossipState:
    w: np.ndarray
    said: float
    received: float


HEARD: dict[int, float] = {}


def test_what_was_published_last_round_is_heard_this_round(tmp_path):
    for folder, stop in ((None, 5), (tmp_path, 3), (tmp_path, 5)):
        result = co.solve(
            PROBLEM,
            (X, Y),
            agents=3,
            method=Gossip(),
            max_rounds=stop,
            check_every=stop,
            checkpoint=folder,
        )
    assert HEARD == {0: 24.0, 1: 4.0, 2: 14.0}, "agent j published 10 j + t after round t = 4"
    assert result.bill.per_word["Ask"].scalars == 3 * 5


@pytest.mark.parametrize(
    ("gap", "expected"),
    [
        (lambda t: 1e-3, co.Status.STALLED),
        (lambda t: 1e-3 if t <= 100 else 1e-3 + 1.0 / t, None),  # a lucky start, and falling since
        (lambda t: t**-0.05, None),  # slowly, but it falls
        (lambda t: 1e-3 if t <= 100 else 2e-3, co.Status.STALLED),
    ],
)
def test_only_what_no_longer_falls_has_stalled(gap, expected):
    history = [Record(t, 0.0, t, 1.0, 1.0 - gap(t), gap(t)) for t in range(10, 3001, 10)]
    least = min(record.gap for record in history)
    assert verdict(history, Bound(1.0, 1.0 - least), 1.0, 1e-9) is expected


def test_a_bill_does_not_grow_with_the_rounds():
    def counted(rounds):
        bill = Bill(path(3))
        for t in range(rounds):
            bill.say("rounds", "Mix", 5 if t < 7 else 6, 8)
            bill.end_round()
        return bill

    few, many = counted(20), counted(20_000)
    assert len(json.dumps(many.state())) < len(json.dumps(few.state())) + 40
    assert many.rounds == 20_000
    assert many.per_round[:8] == [20] * 7 + [24]
    again = Bill(path(3))
    again.restore(json.loads(json.dumps(many.state())))
    assert again == many
    again.restore(few.state())
    again.say("rounds", "Mix", 6, 8)
    again.end_round()
    assert again.per_round == [*few.per_round, 24]


@pytest.mark.parametrize(
    ("late", "expected", "looks", "too_small", "worth"),
    [
        (0, None, 0, 1.0, True),  # by the schedule alone
        (-1, None, 0, 1.0, False),
        (-5, 0.5, 0, 1.0, True),  # sooner, if the method says that it is done
        (-5, 0.5, 6, 1.0, False),  # which it has said too often
        (5, 2.0, 0, 1.0, False),  # later, if it says that it is not
        (20, 2.0, 0, 1.0, True),  # but not much later
        (
            -5,
            0.5,
            1,
            2.0,
            True,
        ),  # its word was too small by a factor of two at most: it may be right now
        (-5, 0.5, 1, 8.0, False),  # by more
    ],
)
def test_a_methods_own_word_says_when_to_look(late, expected, looks, too_small, worth):
    assert worth_a_look(late, expected, 1.0, looks, too_small) is worth
