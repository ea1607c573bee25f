"""Hundreds of agents in one process (a thousand in `make test-slow`): memory stays flat, and small
for each.
"""

from __future__ import annotations

import gc
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

import coterie as co
from coterie.engines.local import Local
from coterie.numerics import local_loss as here
from coterie.numerics.arrays import CentredDesign, Design
from coterie.numerics.kernels.boosting import shares_wrong
from coterie.numerics.kernels.rows import without_largest
from coterie.numerics.local_loss import Together
from coterie.problems.personal.methods import dada
from coterie.run import batch
from coterie.run.batch import Batches
from coterie.run.certificate import Point
from coterie.stats.moments import moment_message, second_moment, unpacked
from coterie.transport import driver
from coterie.transport.gossip import Gossip


def peak_bytes(network, agents, rounds):
    X = np.random.default_rng(0).standard_normal((20, agents))
    settings = {
        "split": "features",
        "agents": agents,
        "network": co.networks.network(network, agents, seed=0),
    }
    settings |= {
        "method": "graph-cp",
        "acceleration": "none",
        "check_every": 10,
        "max_rounds": rounds,
        "tol": 1e-15,
    }
    tracemalloc.start()
    try:
        result = co.solve(
            co.Problem("squared", "l2", 0.1, intercept=False),
            (X, X[:, 0]),
            progress=False,
            **settings,
        )
        assert result.rounds == rounds
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("m", [150, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("network", ["ring", "expander"])
def test_memory_is_flat_over_rounds_and_small_for_an_agent(network, m):
    """Beside what agents hold, the set-up has m² numbers for m agents: eigenvalues, and a word from
    all to all.
    """
    peak_bytes(network, 50, 2)  # what is compiled or imported once is not counted
    peak = peak_bytes(network, m, 12)  # with two certificates, the best points of which are kept
    assert peak <= m * 20_000 + 2 * 8 * m**2
    assert peak_bytes(network, m, 42) <= 1.05 * peak


def small(agents, rows=10, columns=6):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((agents * rows, columns)) + 1.0
    return X, np.where(X @ rng.standard_normal(columns) + rng.logistic(size=len(X)) > 0, 1.0, -1.0)


def crowds_met(monkeypatch):
    """The number of agents in each batch that takes rounds."""
    met, start = [], Batches.start

    def counted(self, *arguments):
        met.extend(len(places) for places in self.places if len(places) > 1)
        return start(self, *arguments)

    monkeypatch.setattr(Batches, "start", counted)
    return met


def same_alone(problem, data, met, monkeypatch, **run):
    """The result of agents that take rounds as one, after a check that it is that of agents that
    are alone.
    """
    together = co.solve(problem, data, progress=False, **run)
    with monkeypatch.context() as patch:
        patch.setattr(here, "LEAST", 10**9)
        batches = [*met]
        alone = co.solve(problem, data, progress=False, **run)
        assert met == batches
    np.testing.assert_array_equal(together.model.coef_, alone.model.coef_)
    if hasattr(together.model, "deviations"):
        np.testing.assert_array_equal(together.model.deviations, alone.model.deviations)
    np.testing.assert_array_equal(together.history.gap, alone.history.gap)
    assert together.certificate.gap == alone.certificate.gap
    duals = zip(together.certificate.witness, alone.certificate.witness, strict=True)
    for of_batch, of_agent in duals:
        np.testing.assert_array_equal(of_batch, of_agent)
    assert together.bill.total.bits == alone.bill.total.bits
    return together


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("method", ["newton", "lbfgs-rows"])
@pytest.mark.parametrize("loss", ["logistic", "huber", "poisson"])
def test_small_agents_that_take_rounds_as_one_see_the_same_bits(
    loss, method, intercept, monkeypatch
):
    met = crowds_met(monkeypatch)
    X, y = small(20)
    problem = co.Problem(loss, "l2", 1e-2, intercept=intercept)
    data = X, y + 1.0 if loss == "poisson" else y
    same_alone(problem, data, met, monkeypatch, agents=20, method=method, max_rounds=8)
    assert met == [20]


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(
    ("method", "loss"), [("gram", "squared"), ("newton", "logistic"), ("newton", "huber")]
)
@pytest.mark.parametrize(
    ("rows", "columns", "batches"), [(250, 10, [8]), (2375, 10, [8]), (4095, 1, [8]), (4096, 1, [])]
)
def test_eight_agents_with_many_rows_compute_the_same_bits_in_a_batch(
    rows, columns, batches, method, loss, intercept, monkeypatch
):
    """From 4,096 rows on, an agent adds rows up in blocks, and a batch does not."""
    met = crowds_met(monkeypatch)
    problem = co.Problem(loss, "l2", 1e-2, intercept=intercept)
    same_alone(
        problem, small(8, rows, columns), met, monkeypatch, agents=8, method=method, max_rounds=3
    )
    assert met == batches


@pytest.mark.parametrize("sizes", [[10] * 8, [10] * 6 + [7, 9]])
def test_a_warm_start_takes_the_sums_that_are_kept_into_a_batch(sizes, monkeypatch):
    """Least squares with another strength need no message, in a batch and next to it."""
    met = crowds_met(monkeypatch)
    X, y = small(1, sum(sizes))
    first, second = [co.Problem("squared", "l2", strength) for strength in (1e-1, 1e-2)]
    run = {"agents": sizes, "method": "gram"}
    before = co.solve(first, (X, y), progress=False, **run)
    again = same_alone(second, (X, y), met, monkeypatch, warm_start=before, **run)
    assert again.bill.scalars == 0
    assert met[-1] == sizes.count(10)


def test_the_duals_of_an_agent_without_rows_are_0_in_a_batch():
    w, v = np.ones(2), np.array([1.0, 2.0, 3.0])
    together = batch._one_of([Point(w, v), Point(w), Point(w, 2 * v)])
    np.testing.assert_array_equal(together.v, [v, 0 * v, 2 * v])
    assert batch._one_of([Point(w), Point(w)]).v is None


def test_consecutive_blocks_of_rows_are_stacked_without_a_copy():
    whole = np.arange(24.0).reshape(6, 4)
    together = here.stacked([whole[:2], whole[2:4], whole[4:]])
    np.testing.assert_array_equal(together, whole.reshape(3, 2, 4))
    assert np.shares_memory(together, whole)
    assert not together.flags.writeable
    for parts in (
        [whole[2:4], whole[:2]],
        [whole[:2], whole[1:3]],
        [whole[:3:2], whole[1:4:2]],
        [whole[:2, :2], whole[2:4, :2]],
        [whole[:2], whole[2:4].copy()],
    ):
        np.testing.assert_array_equal(here.stacked(parts), np.stack(parts))


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(("loss", "penalty"), [("hinge", "l2"), ("absolute", "elasticnet")])
@pytest.mark.parametrize(("agents", "rows", "columns"), [(20, 10, 6), (8, 2375, 10)])
def test_batches_with_non_smooth_losses_compute_the_same_bits(
    agents, rows, columns, loss, penalty, intercept, monkeypatch
):
    met = crowds_met(monkeypatch)
    problem = co.Problem(loss, penalty, 1e-2, intercept=intercept)
    data = small(agents, rows, columns)
    result = same_alone(
        problem, data, met, monkeypatch, agents=agents, method="semismooth", max_rounds=60
    )
    assert met == [agents]
    assert result.status.success


@pytest.mark.parametrize("method", ["newton", "lbfgs-rows"])
def test_crowds_and_agents_that_are_alone_speak_together(method, monkeypatch):
    """In a tree, agents of 5 and of 7 rows and two others; and with secure sums."""
    met = crowds_met(monkeypatch)
    X, y = small(30)
    sizes, problem = [5, 7] * 17 + [49, 47], co.Problem("logistic", "l2", 1e-2, intercept=True)
    tree = co.networks.network("ring", 36)
    for more in ({"network": tree}, {"secure_sums": True}):
        same_alone(
            problem, (X, y), met, monkeypatch, agents=sizes, method=method, max_rounds=6, **more
        )
        assert met == [17, 17]
        met.clear()


@pytest.mark.parametrize(
    ("problem", "columns"),
    [
        (co.Shared("logistic", "l2", 1e-3, mu=0.02), 3),
        (co.Shared("logistic", "l1", 1e-3, mu=0.02, nu=0.1), 9),
        (co.Shared("huber", "l2", 1e-3, mu=float("inf"), nu=0.01), 3),
        (co.Shared("squared", "elasticnet", 1e-3, mu=0.01, nu=float("inf"), intercept=True), 40),
        (co.Shared("poisson", "l2", 1e-2, mu=0.02), 3),
    ],
    ids=["few columns", "more than rows", "levels", "many columns", "steep"],
)
@pytest.mark.parametrize(
    "method", [{"method": "shared"}, {"method": "shared-newton", "few_rows": True}], ids=str
)
def test_users_that_are_alike_deviate_as_if_alone(problem, columns, method, monkeypatch):
    """Users of 1 to 8 rows are one batch; one of 45 is alone."""
    met = crowds_met(monkeypatch)
    sizes = [5, 8, 6, 1, 2, 3] * 9 + [45]
    X, y = small(1, sum(sizes), columns)
    y = y + 1.0 if problem.loss.name == "poisson" else y
    users = np.repeat(np.arange(len(sizes)), sizes)
    result = same_alone(
        problem, (X, y, users), met, monkeypatch, split="users", max_rounds=12, **method
    )
    assert met == [54]
    assert result.certificate.relative_gap < 1e-2


def test_offsets_keep_agents_alone_and_labels_that_move_do_not(monkeypatch):
    met = crowds_met(monkeypatch)
    X, y = small(20)
    table = co.Table(X, y, offset=X[:, 0])
    for loss, batches in (("logistic", []), ("huber", [20])):
        problem = co.Problem(loss, "l2", 1e-2, intercept=True, offset=True)
        same_alone(problem, table, met, monkeypatch, agents=20, method="newton", max_rounds=6)
        assert met == batches


def test_columns_by_the_hundred_are_multiplied_out_as_before(monkeypatch):
    met = crowds_met(monkeypatch)
    same_alone(
        co.Problem("logistic", "l2", 1e-2, intercept=False),
        small(16, 20, 60),
        met,
        monkeypatch,
        agents=16,
        method="newton",
    )
    assert met == [16]


def test_a_crowd_goes_on_from_a_checkpoint(monkeypatch, tmp_path):
    met = crowds_met(monkeypatch)
    data, problem = small(20), co.Problem("logistic", "l2", 1e-2, intercept=True)
    run = {"agents": 20, "method": "lbfgs-rows", "tol": 1e-12, "check_every": 1, "progress": False}
    whole = co.solve(problem, data, **run)
    co.solve(problem, data, **run, max_rounds=3, checkpoint=tmp_path)
    on = co.solve(problem, data, **run, checkpoint=tmp_path)
    assert met == [20] * 2  # the third run goes on without a start
    np.testing.assert_array_equal(on.model.coef_, whole.model.coef_)
    assert on.bill.total.bits == whole.bill.total.bits


def test_a_party_of_a_crowd_is_blamed_by_name(monkeypatch):
    """What a member says is its own, and an error names it."""
    data, problem = small(20), co.Problem("logistic", "l2", 1e-2, intercept=False)
    at = Together.losses_at
    monkeypatch.setattr(
        Together, "losses_at", lambda self, u: np.where(np.arange(20) == 7, np.nan, at(self, u))
    )
    with pytest.raises(co.errors.NumericalError, match="agent 7 sent Sum with 2 of 20"):
        co.solve(problem, data, agents=20, method="newton", progress=False)


def test_who_is_not_alike_looks_alone():
    X, y = small(20)
    for data, agents in (
        ((X, y), [9, 11] * 10),
        (co.Table(X, y, np.ones(200)), 20),
        ((X.astype(np.float32), y), 20),
    ):
        result = co.solve(co.Problem("logistic", "l2", 1e-2, intercept=False), data, agents=agents)
        assert result.status == "optimal"
        assert not any("batch" in agent.scratch for agent in result.parties.sites)


@pytest.mark.parametrize("thin", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_small_agents_send_the_moments_that_others_send(intercept, thin):
    rng = np.random.default_rng(2)
    rows = 2000 if thin else 9
    X, s = rng.standard_normal((rows, 5)) + 3.0, rng.standard_normal(rows)
    s[9:] = 0.0
    X[:, 2] = 3.0
    centred = CentredDesign(X, intercept, X.mean(axis=0), 2.0)
    for design in (Design(X, intercept), centred):
        whole = second_moment(design, s)
        message = moment_message(design, s, False, np.array([7.0]), thin=thin)
        assert message[-1] == 7.0
        np.testing.assert_allclose(
            message[:-1], whole[np.triu_indices(len(whole))], rtol=1e-12, atol=1e-12
        )
    column = [0, 1, 2, 3, 4, 5][: centred.shape[1]]
    assert not unpacked(message, len(column))[
        2, column[:5]
    ].any()  # a constant column is nothing beside its mean


def test_a_user_with_many_neighbours_asks_some_of_them_again(monkeypatch):
    """A wake-up costs no more where users are many: κ peers are asked, and so many neighbours at
    most.
    """
    monkeypatch.setattr(dada, "TUNING", replace(dada.TUNING, revisited=4))
    asked = []

    class Listening(Gossip):
        def _asked(self, who, collective, tick):
            asked.append(len(collective.peers))
            return super()._asked(who, collective, tick)

    X, y = small(1, 30 * 6, 2)
    run = {
        "split": "users",
        "method": "dada",
        "sample": 3,
        "max_rounds": 30,
        "engine": Local(Listening()),
    }
    result = co.solve(
        co.Personal(mu=1.0, beta=5.0), (X, y, np.repeat(np.arange(30), 6)), progress=False, **run
    )
    assert max(asked) == 7
    assert result.model.weights.nnz / 30 > 4


def test_what_a_user_remembers_and_how_models_do_in_trials_as_numpy_would_say():
    rng = np.random.default_rng(0)
    keys, values = np.arange(9) * 3, rng.integers(0, 4, 9) / 4
    kept = np.sort(np.argsort(values, kind="stable")[:8])
    for found, expected in zip(
        without_largest(keys, values), (keys[kept], values[kept]), strict=True
    ):
        np.testing.assert_array_equal(found, expected)
    scores = rng.integers(-2, 3, (5, 7)).astype(float)
    wrong = (scores < 0).mean(axis=1) + 0.5 * (scores == 0).mean(axis=1)
    np.testing.assert_array_equal(shares_wrong(scores), wrong)
    np.testing.assert_array_equal(shares_wrong(np.empty((2, 0))), [0.5, 0.5])


def test_no_garbage_is_collected_during_the_steps_of_many_agents(monkeypatch):
    monkeypatch.setattr(driver, "MANY", 4)
    seen = []
    newton = co.methods.METHODS["newton"]
    taken = newton.round

    def watched(*arguments):
        seen.append(gc.isenabled())
        return (yield from taken(*arguments))

    def broken(*arguments):
        yield from ()
        raise IndexError

    monkeypatch.setattr(newton, "round", watched)
    for agents, enabled in ((3, True), (4, False)):
        seen.clear()
        co.solve(
            co.Problem("logistic", "l2", 1e-2, intercept=False),
            small(agents),
            agents=agents,
            method="newton",
            progress=False,
        )
        assert {*seen} == {enabled}
        assert gc.isenabled()
    monkeypatch.setattr(newton, "round", broken)
    with pytest.raises(IndexError):
        co.solve(
            co.Problem("logistic", "l2", 1e-2, intercept=False),
            small(4),
            agents=4,
            method="newton",
            progress=False,
        )
    assert gc.isenabled()
