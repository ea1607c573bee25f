"""Methods that others published, written from their papers for our words: honest baselines for
rounds and bits.

Each is a class with `start(agent)` and `round(agent, state, t)`, conversations as everywhere, and
`model(states)`. They are not in the catalogue: they bring no certificate. `run` counts their rounds
and bits.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

import coterie as co
from benchmarks.problems import Case
from coterie.data import Table, split
from coterie.networks import Network
from coterie.run.agent import Agent
from coterie.run.bill import Bill
from coterie.run.rounds import introduced
from coterie.run.setup import make_agents
from coterie.transport.in_process import InProcess

__all__ = ["local_slope", "local_smoothness", "run"]


def run(
    baseline: Any,
    case: Case,
    network: Network,
    best: float,
    targets: Sequence[float],
    max_rounds: int,
    max_seconds: float = np.inf,
    limit: dict[str, float] | None = None,
) -> list[tuple[float, float]]:
    """(rounds, megabytes) to each relative suboptimality of the mean model; infinite where it is
    not reached.

    Patience ends after `max_seconds` of CPU time, or up to four times as many until there were
    `limit["least"]` rounds; `limit["limit"]` is told how many there were.
    """
    began, least = time.process_time(), (limit or {}).get("least", 0.0)
    tables = split(Table(case.X, case.y), baseline.split, network.agents)
    if baseline.split == "features":  # CoLA lets everybody know the labels
        tables = [Table(t.X, case.y, cols=t.cols, name=t.name) for t in tables]
    problem = (
        case.problem
        if baseline.split == "samples"
        else co.Problem(case.problem.loss, case.problem.penalty, intercept=False)
    )
    transport = InProcess(network, Bill(network))
    members = make_agents(tables, problem, baseline.split, network, 0)
    if baseline.split == "samples":
        members = introduced(members, transport, "setup")
    states = transport.converse([baseline.start(agent) for agent in members], "setup")
    reached = [(np.inf, np.inf)] * len(targets)
    for t in range(1, max_rounds + 1):
        protocols = [
            baseline.round(agent, state, t) for agent, state in zip(members, states, strict=True)
        ]
        states = transport.converse(protocols, "rounds")
        transport.bill.end_round()
        if limit is not None:
            limit["limit"] = t
        value = case.objective(baseline.model(states))
        if not np.isfinite(value) or value > 1e6 * best:
            break
        for place, target in enumerate(targets):
            if value <= best * (1 + target) and np.isinf(reached[place][0]):
                reached[place] = (t, transport.bill.bits / 8e6)
        spent = time.process_time() - began
        if np.isfinite(reached[-1][0]) or spent > (max_seconds if t > least else 4 * max_seconds):
            break
    return reached


def local_slope(agent: Agent, w: np.ndarray) -> np.ndarray:
    """K ∇f_k, for P = (1/K) Σ_k K f_k: the agent's share of the loss, and the whole of a smooth
    penalty.
    """
    problem = agent.problem
    gradients = problem.loss.gradient(agent.design.forward(w), agent.labels)
    return (
        agent.count / agent.total * agent.design.adjoint(gradients)
        + problem.penalty.strong_convexity * w
    )


def local_smoothness(agent: Agent) -> float:
    """The Lipschitz constant of `local_slope`."""
    smoothness = agent.problem.loss.smoothness
    data = (
        agent.count
        / agent.total
        * agent.design.squared_norm()
        * (smoothness if np.isfinite(smoothness) else 1.0)
    )
    return float(data + agent.problem.penalty.strong_convexity)
