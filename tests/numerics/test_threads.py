"""All cores, the same bits: the number of threads changes nothing but the time."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
import scipy.sparse as sp
from threadpoolctl import threadpool_info, threadpool_limits

import coterie as co
from coterie.errors import InvalidInput, InvalidProblem, ProtocolError
from coterie.numerics import threads
from coterie.numerics.arrays import PIECE, Design
from coterie.numerics.threads import WORTH, cores, one_blas_thread, spread
from coterie.stats.moments import second_moment

AGENTS = 4
ROWS, COLUMNS = AGENTS * WORTH // 64 + 100, 64


def blas_threads():
    return [
        library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"
    ]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((ROWS, COLUMNS)) * np.linspace(0.5, 2.0, COLUMNS)
    y = np.where(X @ rng.standard_normal(COLUMNS) + rng.logistic(size=ROWS) > 0, 1.0, -1.0)
    return X, y


@pytest.fixture(scope="module")
def sparse():
    rng = np.random.default_rng(6)
    X = sp.random_array(
        (40_000, 300), density=AGENTS * WORTH / (40_000 * 300) + 0.001, rng=rng, format="csr"
    )
    return X, np.where(X @ rng.standard_normal(300) + rng.logistic(size=40_000) > 0, 1.0, -1.0)


CASES = {
    "newton": (("logistic", "l2", 1e-4), {}),
    "newton, single precision": (("logistic", "l2", 1e-4), {"single": True}),
    "newton, intercept and l1": (("logistic", "l1", 1e-3), {"intercept": True}),
    "gram": (("squared", "l2", 1e-3), {"intercept": True}),
    "lbfgs": (("logistic", "l2", 1e-3), {"method": "lbfgs", "split": "features"}),
    "proximal-1": (("hinge", "l2", 1e-2), {"method": "proximal-1", "max_rounds": 1}),
    "proximal-2": (("huber", "l2", 1e-2), {"method": "proximal-2", "max_rounds": 6}),
    "graph-cp": (
        ("logistic", "l2", 1e-2),
        {"method": "graph-cp", "split": "features", "max_rounds": 6},
    ),
    "sparse newton": (("logistic", "l2", 1e-3), {"sparse": True}),
    "sparse proximal-1": (
        ("logistic", "l1", 1e-3),
        {"sparse": True, "method": "proximal-1", "max_rounds": 3},
    ),
    "secure sums": (("logistic", "l2", 1e-3), {"secure_sums": True}),
}


def fitted(data, case, count):
    (loss, penalty, strength), how = CASES[case]
    how = {"agents": AGENTS, "progress": False, **how}
    X, y = data
    if how.pop("single", False):
        X, y = X.astype(np.float32), y.astype(np.float32)
    how.pop("sparse", False)
    problem = co.Problem(loss, penalty, strength, intercept=how.pop("intercept", False))
    return co.solve(problem, (X, y), threads=count, **how)


@pytest.mark.parametrize("case", CASES)
def test_thread_counts_give_equal_bits(case, data, sparse):
    chosen = sparse if "sparse" in case else data
    first = fitted(chosen, case, 1)
    for count in (2, 4, 8):
        other = fitted(chosen, case, count)
        np.testing.assert_array_equal(other.model.coef_, first.model.coef_)
        assert other.model.intercept_ == first.model.intercept_
        assert other.certificate.gap == first.certificate.gap
        assert other.certificate.data_digest == first.certificate.data_digest
        np.testing.assert_array_equal(other.history.gap, first.history.gap)
        assert other.bill.total.bits == first.bill.total.bits


def test_bits_do_not_depend_on_the_threads_of_linear_algebra(data):
    results = []
    for limit in (1, 2):
        with threadpool_limits(limit):
            results.append(
                co.solve(
                    co.Problem("squared", "l2", 1e-3, intercept=False),
                    data,
                    agents=AGENTS,
                    threads=2,
                )
            )
    np.testing.assert_array_equal(results[0].model.coef_, results[1].model.coef_)


def helpers():
    return [thread for thread in threading.enumerate() if thread.name.startswith("coterie")]


def watched(monkeypatch):
    """How many pools are started from now on."""
    started = []
    start = threads.ThreadPoolExecutor

    def counted(*arguments):
        started.append(arguments[0])
        return start(*arguments)

    monkeypatch.setattr(threads, "ThreadPoolExecutor", counted)
    return started


def test_small_problems_start_no_pool(monkeypatch, data):
    started = watched(monkeypatch)
    X, y = data
    with threadpool_limits(2):
        co.solve(co.Problem("logistic", "l2", 1e-3, intercept=False), (X[:500], y[:500]), threads=4)
    assert not started
    co.solve(co.Problem("logistic", "l2", 1e-3, intercept=False), (X, y), agents=AGENTS, threads=1)
    assert not started
    co.solve(co.Problem("logistic", "l2", 1e-3, intercept=False), (X, y), agents=AGENTS, threads=3)
    assert started == [2]
    assert not helpers()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_agent_works_on_several_threads_too(dtype, monkeypatch):
    started, rng = watched(monkeypatch), np.random.default_rng(7)
    X = rng.standard_normal((3 * PIECE // 32 + 5, 32), dtype=dtype)
    y = np.where(
        X @ rng.standard_normal(32).astype(dtype) + rng.logistic(size=len(X)) > 0, 1.0, -1.0
    ).astype(dtype)
    one, two = (
        co.solve(co.Problem("logistic", "l2", 1e-3, intercept=False), [(X, y)], threads=count)
        for count in (1, 2)
    )
    assert started == [1]
    np.testing.assert_array_equal(one.model.coef_, two.model.coef_)
    assert one.certificate.gap == two.certificate.gap


def test_products_in_pieces_are_those_of_all_rows():
    rng = np.random.default_rng(8)
    for dtype in (np.float32, np.float64):
        X = rng.standard_normal((2 * PIECE // 20 + 7, 20)).astype(dtype)
        w, v = rng.standard_normal(21), rng.standard_normal(len(X))
        design = Design(X, intercept=True)
        np.testing.assert_allclose(
            design.forward(w), X.astype(float) @ w[:-1] + w[-1], rtol=1e-12, atol=1e-12
        )
        np.testing.assert_allclose(
            design.adjoint(v)[:-1], v @ X.astype(float), rtol=1e-10, atol=1e-9
        )
        assert design.adjoint(v)[-1] == pytest.approx(v.sum())
        np.testing.assert_allclose(
            design.squares(), np.square(X.astype(float)).sum(axis=0), rtol=1e-12
        )
        moment = X.astype(float).T @ (v[:, None] * X)
        np.testing.assert_allclose(
            np.triu(second_moment(Design(X), v)), np.triu(moment), rtol=1e-9, atol=1e-6
        )


def test_agents_are_at_work_at_the_same_time(data):
    met = threading.Barrier(2, timeout=200)

    class Meeting(co.losses.LOSSES["logistic"]):
        name = "meeting"

        def curvature(self, u, y):
            if u.size > 1:
                met.wait()
            return super().curvature(u, y)

    co.solve(
        co.Problem(Meeting(), "l2", 1e-2, intercept=False),
        data,
        agents=2,
        threads=2,
        method="newton",
        max_rounds=1,
    )
    assert not met.broken


@pytest.mark.parametrize("count", [0, -1, 2.5, True, "2"])
def test_bad_thread_counts_are_refused_by_name(count, data):
    with pytest.raises(InvalidProblem, match="threads must be a whole number from 1"):
        co.solve(co.Problem(intercept=False), (data[0][:20], data[1][:20]), threads=count)


def test_threads_are_for_the_engine_that_has_them(data):
    with pytest.raises(InvalidInput, match="engine 'peers' takes no threads"):
        co.solve(
            co.Problem(intercept=False), (data[0][:20], data[1][:20]), engine="peers", threads=2
        )


@pytest.mark.parametrize(
    ("count", "said"), [("2", ""), ("0", "threads must be a whole number"), ("2.5", "--threads")]
)
def test_threads_on_the_command_line(count, said, data, tmp_path, shell):
    np.savetxt(
        tmp_path / "a.csv",
        np.c_[data[0][:30, :3], data[1][:30]],
        delimiter=",",
        header="a,b,c,y",
        comments="",
    )
    code, _, err = shell(
        "fit", "a.csv", "--target", "y", "--strength", "0.1", "-o", "o", "--threads", count
    )
    assert bool(code) == bool(said)
    assert said in err


def test_verify_and_estimators_use_threads_too(monkeypatch, data):
    monkeypatch.setattr(threads, "all_cores", lambda: 2)
    started = watched(monkeypatch)
    model = co.LinearClassifier(alpha=1e-3, agents=AGENTS, threads=2).fit(*data)
    assert started == [1]
    assert co.verify(
        model.certificate_, model.result_.model, [(X, y) for X, y in parts(data, AGENTS)]
    )
    assert started == [1, 1]


def parts(data, agents):
    X, y = data
    return list(zip(np.array_split(X, agents), np.array_split(y, agents), strict=True))


# -- spread itself ---------------------------------------------------------------------------------


def test_spread_keeps_the_order_and_nests():
    def outer(k):
        time.sleep(0.001 * (7 - k))
        return spread(lambda j: (k, j), range(5), WORTH)

    with cores(3):
        assert spread(outer, range(8), WORTH) == [[(k, j) for j in range(5)] for k in range(8)]
    assert spread(outer, range(2), WORTH) == [[(k, j) for j in range(5)] for k in range(2)]


def test_of_several_failures_the_first_is_raised():
    def fail(k):
        time.sleep(0.01 * (3 - k) if k < 3 else 0)
        if k:
            raise ValueError(str(k))

    for count in (1, 2, 4):
        with cores(count), pytest.raises(ValueError, match="1"):
            spread(fail, range(20), WORTH)


def test_threads_work_in_the_context_of_who_asks():
    with cores(2), np.errstate(over="raise"):
        assert spread(lambda k: np.geterr()["over"], range(4), WORTH) == ["raise"] * 4


def test_linear_algebra_is_held_to_one_thread_until_the_last_is_done():
    with threadpool_limits(2):
        before = blas_threads()
        assert max(before) == 2
        with cores(2):
            spread(str, range(2), 1)
            assert blas_threads() == before
            with one_blas_thread():
                spread(str, range(2), WORTH)
                assert set(blas_threads()) == {1}
            assert set(blas_threads()) == {1}
        assert blas_threads() == before


def test_a_round_that_only_some_end_is_refused(data):
    """On threads as without: see test_local."""

    class Mute(co.methods.METHODS["gram"]):
        name = "mute"

        def round(self, agent, state, t):
            if agent.index == 2:
                return state
            return (yield from super().round(agent, state, t))

    with pytest.raises(ProtocolError, match="ended the round while"):
        co.solve(
            co.Problem("squared", "l2", 1e-2, intercept=False),
            data,
            method=Mute(),
            agents=AGENTS,
            threads=2,
        )
