"""What the embedded engine adds to the arithmetic it stands for, as ratios measured in one run.

    make bench        (or: python benchmarks/engine_overhead.py)

Bare and engine take turns, and the best of many repetitions of each is compared: a busy machine
disturbs both alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from coterie.networks import complete, star
from coterie.run.bill import Bill
from coterie.run.collectives import Mix, Sum
from coterie.transport.in_process import InProcess


def best_of_each(
    first: Callable[[], object], second: Callable[[], object], repeat: int, number: int
) -> tuple[float, float]:
    """Processor seconds per call of both, taking turns."""
    best = [np.inf, np.inf]
    for _ in range(repeat):
        for index, function in enumerate((first, second)):
            began = time.process_time()
            for _ in range(number):
                function()
            best[index] = min(best[index], (time.process_time() - began) / number)
    return best[0], best[1]


def say(word):
    """A round of one word."""
    reply = yield word
    return reply


def sum_overhead(
    agents: int = 8, size: int = 500, repeat: int = 20, number: int = 500
) -> tuple[float, float]:
    """A round in which everybody says `Sum`, against numpy's sum of the same arrays."""
    messages = list(np.random.default_rng(0).standard_normal((agents, size)))
    network = star(agents, server=True)
    transport = InProcess(network, Bill(network))

    def engine() -> None:
        transport.converse([say(Sum(message)) for message in messages], "rounds")
        transport.bill.end_round()

    return best_of_each(engine, lambda: np.add.reduce(messages), repeat, number)


def mix_overhead(
    agents: int = 256, size: int = 16384, repeat: int = 8, number: int = 1
) -> tuple[float, float]:
    """A round in which everybody says `Mix` on a complete graph, against the bare matrix
    product.
    """
    messages = np.random.default_rng(0).standard_normal((agents, size))
    network = complete(agents)
    transport = InProcess(network, Bill(network))
    matrix = network.laplacian().toarray()

    def engine() -> None:
        transport.converse([say(Mix(message, "laplacian")) for message in messages], "rounds")
        transport.bill.end_round()

    return best_of_each(engine, lambda: matrix @ messages, repeat, number)


if __name__ == "__main__":
    for title, measure, limit in (
        ("Sum of 500 floats, 8 agents, server", sum_overhead, 10),
        ("Mix of 16384 floats, 256 agents, complete graph", mix_overhead, 2),
    ):
        engine, bare = measure()
        print(
            f"{title}: {engine * 1e6:,.1f} µs, bare {bare * 1e6:,.1f} µs, ratio "
            f"{engine / bare:.2f} (limit {limit})"
        )
