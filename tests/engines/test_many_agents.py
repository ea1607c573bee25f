"""Hundreds of agents in one process (a thousand in `make test-slow`): memory stays flat, and small for each."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import coterie as co


def peak_bytes(network, agents, rounds):
    X = np.random.default_rng(0).standard_normal((20, agents))
    settings = {"split": "features", "agents": agents, "network": co.networks.network(network, agents, seed=0)}
    settings |= {"method": "graph-cp", "acceleration": "none", "check_every": 10, "max_rounds": rounds, "tol": 1e-15}
    tracemalloc.start()
    try:
        result = co.solve(co.Problem("squared", "l2", 0.1), (X, X[:, 0]), progress=False, **settings)
        assert result.rounds == rounds
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("m", [400, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("network", ["ring", "expander"])
def test_memory_is_flat_over_rounds_and_small_for_an_agent(network, m):
    """Beside what agents hold, the set-up has m² numbers for m agents: eigenvalues, and a word from all to all."""
    peak_bytes(network, 50, 2)  # what is compiled or imported once is not counted
    peak = peak_bytes(network, m, 3)
    assert peak <= m * 20_000 + 2 * 8 * m**2
    assert peak_bytes(network, m, 12) <= 1.05 * peak
