"""A job for every word: what was said is replayed from the State and the replies, and ends like a
conversation.
"""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from coterie.data import Table
from coterie.engines.local import Local
from coterie.engines.replayed import Replayed
from coterie.errors import InvalidProblem, ProtocolError
from coterie.methods import METHODS
from coterie.networks import ring
from coterie.numerics.threads import one_blas_thread
from coterie.run.agent import Agent
from coterie.run.bill import Bill
from coterie.run.collectives import Mix, Sum
from tests.harness.cluster_cases import LINEAR, fit, names, summary

LONG = {
    "vrd2",
    "diffusion",
    "pvrd2",
    "dynamic-diffusion",
    "global",
    "until it is optimal",
    "rare columns beside l1",
}
SYNCHRONOUS = [name for name in names() if name not in METHODS or not METHODS[name]().asynchronous]


def visited(questions):
    """Everybody's answer by somebody who has never heard of them: what is not in the question is
    not there.
    """
    return [pickle.loads(pickle.dumps(question))() for question in questions]


class Visits(Local):
    """The embedded engine, visiting agents word by word."""

    def run(self, run):
        return run.on(Replayed(run.network, Bill(run.network), run.names, visited, run.secure_sums))


@pytest.mark.rotates
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in SYNCHRONOUS],
)
def test_a_replayed_run_is_the_run(name):
    with one_blas_thread():
        found, expected = summary(fit(name, Visits())), summary(fit(name, "local"))
    assert found["bill"] == expected["bill"]
    assert found["status"] == expected["status"]
    np.testing.assert_allclose(found["coefficients"], expected["coefficients"], rtol=0, atol=1e-12)


def test_who_wakes_up_alone_cannot_be_replayed():
    with pytest.raises(InvalidProblem, match="cannot be replayed"):
        fit("dada", Visits())


def say(agent):
    yield Sum(np.ones(2))
    if agent.index == 1:
        yield Mix(np.ones(2))
    else:
        yield Sum(np.ones(2))


def stop_early(agent):
    if agent.index != 1:
        yield Sum(np.ones(2))


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (say, "yielded Sum and agent 1 yielded Mix"),
        (stop_early, "agent 1 ended the round while agent 0"),
    ],
)
def test_agents_that_disagree_are_named(step, told):
    network = ring(3)
    transport = Replayed(network, Bill(network), [f"agent {j}" for j in range(3)], visited)
    with pytest.raises(ProtocolError, match=told):
        transport.take(
            step,
            [(Agent(j, 3, Table(np.ones((1, 1))), LINEAR, "samples"),) for j in range(3)],
            "rounds",
        )
