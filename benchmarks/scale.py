"""How far it goes: growth in rows, columns, agents and users, measured; and a thousand
organisations, simulated.

    python -m benchmarks.scale            prints the tables of docs/scale.md, in about twenty
                                          minutes
    python -m benchmarks.scale sums       one part: rows, columns, agents, users, wide, wakes, plans
                                          or sums

Seconds are processor time of one process. `sums` times a run's Sums on a tree of links with delays
of their own: a message takes a latency that is drawn anew (lognormal), is sent again after a
timeout if it is lost, and every party computes for a time that is drawn anew, too.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import coterie as co
from coterie.engines.local import Local
from coterie.networks import Network
from coterie.transport.gossip import Gossip

LOGISTIC = co.Problem("logistic", "l2", 1e-4, intercept=True)
Row = Sequence[Any]


def made(rows: int, columns: int, seed: int = 0) -> tuple[Any, Any]:
    """Gaussian rows with labels that follow a logistic model."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, columns))
    return X, np.where(
        X @ rng.standard_normal(columns) / columns**0.5 + rng.logistic(size=rows) > 0, 1.0, -1.0
    )


def fitted(data: Any, problem: Any = LOGISTIC, **how: Any) -> tuple[co.Result, float]:
    """The result, and the processor time that it took."""
    began = time.process_time()
    return co.solve(problem, data, progress=False, **how), time.process_time() - began


def rows() -> Iterator[Row]:
    """Rows of 30 columns, eight agents."""
    yield "rows", "method", "rounds", "s", "µs a row", "MB sent"
    fitted(made(1000, 30))
    for n in (10_000, 100_000, 1_000_000):
        result, seconds = fitted(made(n, 30))
        sent = result.bill.total.bits / 8e6
        yield (
            f"{n:,}",
            name(result),
            result.rounds,
            f"{seconds:.2f}",
            f"{1e6 * seconds / n:.1f}",
            f"{sent:.2f}",
        )


def columns() -> Iterator[Row]:
    """Columns of 20,000 rows, eight agents."""
    yield "columns", "method", "rounds", "s", "MB sent"
    fitted(made(1000, 30))
    for d in (30, 300, 1000):
        result, seconds = fitted(made(20_000, d))
        yield (
            f"{d:,}",
            name(result),
            result.rounds,
            f"{seconds:.2f}",
            f"{result.bill.total.bits / 8e6:.2f}",
        )


def agents() -> Iterator[Row]:
    """Agents of 10 rows and 10 columns: set-up and certificate, and what a round costs, for one
    agent.
    """
    yield "agents", "method", "set-up and certificate, µs an agent", "µs an agent and round"
    for method in ("newton", "lbfgs-rows"):
        for m in (100, 1000, 10_000):
            how = {"agents": m, "method": method, "tol": 1e-15, "check_every": 10**6}
            fitted(made(10 * m, 10), max_rounds=2, **how)
            few, begun = fitted(made(10 * m, 10), max_rounds=2, **how)
            many, ended = fitted(made(10 * m, 10), max_rounds=10, **how)
            a_round = (ended - begun) / (many.rounds - few.rounds) / m
            yield f"{m:,}", method, f"{1e6 * begun / m - 2e6 * a_round:.0f}", f"{1e6 * a_round:.0f}"


def users() -> Iterator[Row]:
    """Users with 20 rows each, who learn whom to learn from; messages may be lost or late."""
    yield (
        "users",
        "lost",
        "late by rounds",
        "gap after 100 rounds",
        "kB sent by a user",
        "µs a user and round",
    )
    for count, lost, late in ((100, 0.0, 0.0), (300, 0.0, 0.0), (100, 0.1, 0.0), (100, 0.1, 2.0)):
        X, y = made(20 * count, 2)
        data = (X, y, np.repeat(np.arange(count), 20))
        how = {"split": "users", "method": "dada", "tol": 1e-9, "engine": Local(Gossip(lost, late))}
        result, seconds = fitted(data, co.Personal(mu=1.0, beta=5.0), max_rounds=100, **how)
        sent, a_round = result.bill.total.bits / 8e3 / count, 1e6 * seconds / count / result.rounds
        yield (
            f"{count:,}",
            lost,
            late,
            f"{result.certificate.relative_gap:.2g}",
            f"{sent:.1f}",
            f"{a_round:.0f}",
        )


def wide() -> Iterator[Row]:
    """10,000 and 100,000 users of 10 rows and 5 columns: a common model and deviations, to a gap of
    1e-6.
    """
    yield "users", "rounds", "s", "µs a user", "MB", "kB sent by a user"
    for count in (100, 10_000, 100_000):
        X, y = made(10 * count, 5)
        own = np.random.default_rng(1).standard_normal((count, 5))
        users = np.repeat(np.arange(count), 10)
        y = np.where(np.einsum("ij,ij->i", X, own[users]) > 1.0, 1.0, y)
        Path("/proc/self/clear_refs").write_text("5")
        before, problem = _memory("VmRSS"), co.Shared("logistic", "l2", 1e-3, mu=0.01)
        result, seconds = fitted((X, y, users), problem, split="users", method="shared")
        sent, held = result.bill.total.bits / 8e3 / count, _memory("VmHWM") - before
        if count == 100:  # what is compiled or imported once is not counted
            continue
        yield (
            f"{count:,}",
            result.rounds,
            f"{seconds:.1f}",
            f"{1e6 * seconds / count:.0f}",
            f"{held:.0f}",
            f"{sent:.1f}",
        )


class Timed(Gossip):
    """Gossip that notes the processor time of each round."""

    def run(self, *arguments: Any) -> list[Any]:
        began = time.process_time()
        states = super().run(*arguments)
        self.spent = [*getattr(self, "spent", ()), time.process_time() - began]
        return states


def wakes() -> Iterator[Row]:
    """Users with 20 rows of two columns who learn whom to learn from: what a wake-up takes where
    users are many.

    The first ten rounds are of models alone, and all others here are of the graph.
    """
    yield (
        "users",
        "rounds",
        "s",
        "µs of a wake-up, alone",
        "of one for the graph",
        "MB",
        "kB sent by a user",
    )
    for count, rounds in ((1000, 30), (10_000, 16), (100_000, 12)):
        X, y = made(20 * count, 2)
        data, gossip = (X, y, np.repeat(np.arange(count), 20)), Timed()
        Path("/proc/self/clear_refs").write_text("5")
        before, how = _memory("VmRSS"), {"split": "users", "method": "dada", "check_every": 10**6}
        result, seconds = fitted(
            data, co.Personal(mu=1.0, beta=5.0), max_rounds=rounds, engine=Local(gossip), **how
        )
        alone, graph = (
            1e6 * np.mean(spent) / count for spent in (gossip.spent[1:10], gossip.spent[10:])
        )
        sent, held = result.bill.total.bits / 8e3 / count, _memory("VmHWM") - before
        yield (
            f"{count:,}",
            rounds,
            f"{seconds:.0f}",
            f"{alone:.0f}",
            f"{graph:.0f}",
            f"{held:.0f}",
            f"{sent:.1f}",
        )


def _memory(name: str) -> float:
    """Megabytes of this process, by the name that Linux gives them."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1e3 for line in lines if line.startswith(name))


NETWORKS = {
    "star": lambda m: co.networks.network("star", m),
    "expander": lambda m: co.networks.network("expander", m, seed=0),
    "lattice": lambda m: co.networks.network("lattice", m),
    "ring": lambda m: co.networks.network("ring", m),
}


def plans(parties: int = 1000) -> Iterator[Row]:
    """`co.plan` for a billion rows of 50 columns at 1,000 organisations, 20 ms and 100 Mbit/s."""
    yield (
        "network",
        "depth",
        "method",
        "rounds",
        "hops",
        "MB, busiest party",
        "GB, all",
        "s on the wire",
    )
    for place, make in NETWORKS.items():
        network = make(parties)
        for method in ("newton", "lbfgs-rows"):
            how: dict[str, Any] = {
                "agents": parties,
                "network": network,
                "method": method,
                "link": (0.02, 1e8),
            }
            found = co.plan(LOGISTIC, (10**9, 50), **how)
            busiest, everybody = max(found.bits_per_party) / 8e6, found.bits / 8e9
            yield (
                *(place, network.tree().depth, method, found.rounds, f"{found.turns:,}"),
                *(f"{busiest:.2f}", f"{everybody:.2f}", f"{found.wire_seconds:.1f}"),
            )


def sum_seconds(
    network: Network,
    sums: int,
    latency: float,
    *,
    tail: float = 0.0,
    lost: float = 0.0,
    retry: float = 1.0,
    work: float = 0.0,
    slow: float = 0.0,
    seed: int = 0,
) -> float:
    """How long so many Sums take, up the tree and down again, if everybody waits for everybody.

    tail, slow   the spread of a message's latency, and of a party's work: σ of a lognormal factor
    lost, retry  the share of messages that are lost, and the seconds after which one is sent again
    work         seconds that a party computes before each Sum
    """
    parents, rng = np.array(network.tree().parents), np.random.default_rng(seed)
    depth = np.zeros(len(parents), int)
    for _ in range(network.tree().depth):
        depth = np.where(parents < 0, 0, depth[parents] + 1)
    levels = [np.flatnonzero(depth == level) for level in range(1, depth.max() + 1)]
    total = 0.0
    for _ in range(sums):
        up, down = (
            latency * rng.lognormal(0.0, tail, len(parents))
            + retry * (rng.geometric(1.0 - lost, len(parents)) - 1)
            for _ in range(2)
        )
        ready = work * rng.lognormal(0.0, slow, len(parents))
        for level in reversed(levels):
            np.maximum.at(ready, parents[level], ready[level] + up[level])
        received = np.full(len(parents), ready[parents < 0].max())
        for level in levels:
            received[level] = received[parents[level]] + down[level]
        total += float(received.max())
    return total


WEATHER = {
    "all alike": {},
    "latencies spread": {"tail": 0.5},
    "1 % lost": {"tail": 0.5, "lost": 0.01},
    "stragglers": {"tail": 0.5, "lost": 0.01, "slow": 0.5},
    "worse stragglers": {"tail": 0.5, "lost": 0.01, "slow": 1.5},
}
"""What goes wrong on the way, beside 20 ms per hop and 10 s of work before each Sum: a pass over a
million rows.
"""


def sums(parties: int = 1000) -> Iterator[Row]:
    """Seconds of one Sum at 1,000 organisations, of which 10 are work, if everybody waits for
    everybody.
    """
    networks = {place: make(parties) for place, make in NETWORKS.items()}
    yield "what goes wrong", *networks
    for what, settings in WEATHER.items():
        took = [
            sum_seconds(network, 50, 0.02, work=10.0, **settings) / 50
            for network in networks.values()
        ]
        yield what, *(f"{seconds:.1f}" for seconds in took)


def name(result: co.Result) -> str:
    """The method that was chosen."""
    return str(result.certificate.settings["method"]["name"])


PARTS = {part.__name__: part for part in (rows, columns, agents, users, wide, wakes, plans, sums)}


def main() -> None:
    """Print the tables as Markdown."""
    for wanted in sys.argv[1:] or PARTS:
        print(f"\n{PARTS[wanted].__doc__}\n")
        for place, row in enumerate(PARTS[wanted]()):
            print("| " + " | ".join(map(str, row)) + " |", flush=True)
            if not place:
                print("|" + "---|" * len(row))


if __name__ == "__main__":
    main()
