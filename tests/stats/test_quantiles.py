"""Quantiles from counts in agreed bins: those of numpy on pooled rows, up to bins that are known to
hold them.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import coterie as co
from coterie.data import Table
from coterie.engines import Run
from coterie.engines import engine as find_engine
from coterie.networks import star
from coterie.numerics.kernels.bins import counts, cut, is_one_number, roundest
from coterie.run.bill import Bill
from coterie.run.collectives import Sum
from coterie.run.rounds import Conversation
from coterie.run.settings import Limits
from coterie.run.setup import make_agents
from coterie.stats.quantiles import quantiles
from coterie.transport.in_process import InProcess

RNG = np.random.default_rng(0)
N = 501
COLUMNS = {
    "normal": RNG.normal(size=N),
    "whole numbers": RNG.integers(0, 100, N).astype(float),
    "ten decades": RNG.lognormal(0, 5, N),
    "constant": np.full(N, 37.1),
    "far from zero": 1e12 + RNG.normal(size=N),
    "two values": (RNG.random(N) > 0.4).astype(float),
    "years": 2000.0 + RNG.integers(0, 20, N),
    "negative": -RNG.lognormal(size=N),
    "huge and tiny": np.where(RNG.random(N) > 0.5, 1e300, -1e-300),
}
PROBABILITIES = (0.0, 0.05, 0.25, 0.5, 0.8, 1.0)


def asked(parts, *args, **options):
    """What all agents come to, and the bill."""
    network = star(len(parts), server=True)
    transport = InProcess(network, Bill(network))
    found = transport.converse([quantiles(part, *args, **options) for part in parts], "rounds")
    for other in found[1:]:
        np.testing.assert_array_equal(other.values, found[0].values)
    return found[0], transport.bill


def test_they_are_those_of_the_pooled_rows():
    parts = [
        [column[rows] for column in COLUMNS.values()]
        for rows in np.array_split(np.arange(N), [0, 100])
    ]
    found, bill = asked(parts, PROBABILITIES)
    for k, (name, column) in enumerate(COLUMNS.items()):
        exact = np.quantile(column, PROBABILITIES)
        spread = np.ptp(np.quantile(column, (0.25, 0.75))) or 1.0
        assert (found.low[k] <= exact).all(), name
        assert (exact <= found.high[k]).all(), name
        assert (
            np.abs(found.values[k] - exact) <= 1e-4 * np.maximum(spread, np.abs(exact))
        ).all(), name
    assert bill.scalars < 200 * 3 * len(COLUMNS) * len(PROBABILITIES)


@pytest.mark.parametrize("name", ["whole numbers", "constant", "two values", "years"])
def test_numbers_of_few_digits_are_found_exactly(name):
    found, _ = asked([[COLUMNS[name][:200]], [COLUMNS[name][200:]]], PROBABILITIES)
    assert found.values[0] == pytest.approx(np.quantile(COLUMNS[name], PROBABILITIES), abs=1e-12)


def test_no_bin_has_few_rows_of_a_party():
    few, many = np.array([1.5, 2.5, 100.0, 3.5]), np.arange(1.0, 101.0)
    found, _ = asked([[few]], [0.5], minimum=5)
    assert (found.low[0, 0], found.high[0, 0]) == (-np.inf, np.inf)
    assert np.isnan(found.values[0, 0])
    found, _ = asked([[many], [np.append(many, few)]], PROBABILITIES, minimum=5)
    exact = np.quantile(np.concatenate([many, many, few]), PROBABILITIES)
    assert (found.low[0] <= exact).all()
    assert (exact <= found.high[0]).all()
    assert (found.high[0] - found.low[0] < 16).all()
    for own in (many, np.append(many, few)):
        told = np.histogram(own, np.clip(found.edges[0], -1e9, 1e9))[0]
        assert not ((told > 0) & (told < 5)).any()


def test_with_little_room_bins_stay_wide():
    found, bill = asked([[COLUMNS["normal"]]], [0.5], allowance=80)
    assert bill.scalars <= 2 * 80
    assert found.low[0, 0] <= np.median(COLUMNS["normal"]) <= found.high[0, 0]


def test_no_values_and_no_columns():
    found, _ = asked([[np.empty(0)], [np.empty(0)]], [0.5])
    assert np.isnan(found.values).all()
    found, _ = asked([[], []], [0.5])
    assert found.values.shape == (0, 1)


@settings(max_examples=15)
@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=30), st.floats(0, 1))
def test_any_numbers(values, probability):
    x = np.array(values)
    found, _ = asked([[x[: len(x) // 2]], [x[len(x) // 2 :]]], [probability])
    k = int(np.floor(probability * (len(x) - 1)))
    assert found.low[0, 0] <= np.sort(x)[min(k + 1, len(x) - 1)]
    assert found.high[0, 0] >= np.sort(x)[k]


@settings(max_examples=50)
@given(st.floats(-1e300, 1e300), st.floats(-1e300, 1e300))
@example(-5e-324, 0.0)
@example(-0.0, 5e-324)
def test_bins_are_cut_in_order_until_one_number_is_left(a, b):
    low, high = sorted([a, b])
    low, high = (low, high) if low < high else (low, np.nextafter(low, np.inf))
    edges = cut(low, high)
    assert edges[0] == low
    assert edges[-1] == high
    assert (edges[1:] > edges[:-1]).all()
    assert is_one_number(np.array(low), np.array(high)) == (len(edges) == 2)
    assert low <= roundest(low, high) < high


def test_counts_leave_out_what_is_outside():
    assert counts(np.array([-1.0, 0.0, 0.5, 1.0, 2.0]), np.array([0.0, 1.0, 2.0])).tolist() == [
        2.0,
        1.0,
    ]
    assert counts(
        np.array([0.5, 1.5, 9.0]), np.array([0.0, 1.0, 2.0]), np.array([2.0, 3.0, 1.0])
    ).tolist() == [2, 3]


def tally(factor, agent):
    total = yield Sum(factor * agent.data.X.sum(axis=0))
    return agent.index, total


@pytest.mark.parametrize("engine", ["local", pytest.param("peers", marks=pytest.mark.slow)])
def test_engines_carry_a_conversation(engine):
    """No introduction and no proof: the words of the talk, and nothing else, are on the bill."""
    if engine == "peers":
        pytest.importorskip("grpc")
    tables = [Table(np.full((2, 3), float(k)), name=f"p{k}") for k in range(3)]
    network = star(3, server=True)
    agents = make_agents(tables, co.Problem("squared", intercept=False), "samples", network, 0)
    run = Run(
        agents, Conversation(partial(tally, 10.0)), network, Limits(), secure_sums=engine == "peers"
    )
    outcome = find_engine(engine).run(run)
    assert [index for index, _ in outcome.answers] == [0, 1, 2]
    assert all(total.tolist() == [60.0] * 3 for _, total in outcome.answers)
    assert outcome.bill.rounds == 1
    assert outcome.bill.scalars == outcome.bill.total.scalars == 18
