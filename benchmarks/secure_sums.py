"""What secure sums cost: rounds of a `Sum` with masks against plain ones, over the same TLS links,
in one run.

    python benchmarks/secure_sums.py [--agents 8] [--sizes 500,250000] [--write
    docs/engines/costs.md]

Every process says both kinds of words in turns, so that a busy machine disturbs both alike. The
median of all rounds counts, in microseconds of the clock, and the processor time of all processes
together.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing as mp
import re
import tempfile
import time
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from coterie.networks import Network, from_edges, star
from coterie.run.bill import Bill
from coterie.run.collectives import Sum
from coterie.transport.broadcast import SignedBroadcast
from coterie.transport.driver import Driver
from coterie.transport.grpc_mesh import GrpcMesh
from coterie.transport.keys import load_keys, provide_all
from coterie.transport.layout import Layout
from coterie.transport.point_to_point import PointToPoint
from coterie.transport.secure_sums import meet

SECONDS = 8.0
"""About how long each size is measured."""


def say(word):
    """A round of one word."""
    return (yield word)


def network_of(agents: int, tree: bool) -> Network:
    """A server, or a binary tree."""
    return (
        from_edges([((j - 1) // 2, j) for j in range(1, agents)])
        if tree
        else star(agents, server=True)
    )


def party(pipe, me: int, names: list[str], keys, sizes: list[int], tree: bool) -> None:
    """One process: open the links, agree on masks, then measure."""
    network, everybody = network_of(len(names), tree), range(len(names))
    links = GrpcMesh(
        me, Layout(network, everybody, me).partners, "benchmark", keys, 60.0, names=names
    )
    pipe.send(links.address)
    links.connect(pipe.recv())
    links.wait()
    plain, secure = (
        Driver(Bill(network), PointToPoint(network, links, everybody, me, names)) for _ in range(2)
    )
    secure.collectives.sums = meet(SignedBroadcast(links, network))
    for driver in (plain, secure):
        driver.collectives.transcript = hashlib.sha256()  # as between organisations
    with threadpool_limits(1):
        for size in sizes:
            x = np.random.default_rng(me).standard_normal(size)
            rounds = pipe.recv()
            clock: list[list[float]] = [[], []]
            cpu = [0.0, 0.0]
            for block in range(9):
                for which, driver in enumerate((plain, secure)):
                    began_cpu = time.process_time()
                    for _ in range(rounds):
                        began = time.perf_counter()
                        driver.converse([say(Sum(x))], "rounds")
                        if block:
                            clock[which].append(time.perf_counter() - began)
                    cpu[which] += (time.process_time() - began_cpu) if block else 0.0
            pipe.send((clock, cpu))
    links.close()


def measure(
    agents: int, sizes: list[int], tree: bool = False
) -> dict[int, tuple[float, float, float]]:
    """By size: microseconds of a plain round and of a secure one, and the ratio of processor
    times.
    """
    names = [f"party-{j}" for j in range(agents)]
    with tempfile.TemporaryDirectory() as folder:
        keys = [
            load_keys(path, name)
            for name, path in provide_all(Path(folder), "benchmark", names).items()
        ]
    context = mp.get_context("spawn")
    pipes, processes = [], []
    for me in range(agents):
        local, there = context.Pipe()
        processes.append(
            context.Process(
                target=party, args=(there, me, names, keys[me], sizes, tree), daemon=True
            )
        )
        processes[-1].start()
        pipes.append(local)
    addresses = [pipe.recv() for pipe in pipes]
    for pipe in pipes:
        pipe.send(addresses)
    found = {}
    for size in sizes:
        for pipe in pipes:
            pipe.send(max(3, min(60, int(SECONDS / (8 * (0.006 + 8e-7 * size))))))
        received = [pipe.recv() for pipe in pipes]
        plain, secure = (
            1e6 * float(np.median([clock[which] for clock, _ in received])) for which in range(2)
        )
        cpu = [sum(used[which] for _, used in received) for which in range(2)]
        found[size] = plain, secure, cpu[1] / cpu[0]
    for process in processes:
        process.join()
    return found


def table(agents: int, sizes: list[int]) -> str:
    """One line per network and size."""
    lines = [
        f"Sum of {agents} parties, median of a round    plain    secure   ratio   processor time"
    ]
    for tree in (False, True):
        for size, (plain, secure, cpu) in measure(agents, sizes, tree).items():
            where = "tree" if tree else "server"
            lines.append(
                f"{where:<7}{size:>9,} numbers{plain / 1e3:>17.2f} ms{secure / 1e3:>7.2f} ms"
                f"{secure / plain:>8.2f}{cpu:>12.2f}"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agents", type=int, default=8)
    parser.add_argument("--sizes", default="500,250000")
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    found = table(given.agents, [int(size) for size in given.sizes.split(",")])
    print(found)
    if given.write is not None:
        page = given.write.read_text()
        fenced = f"<!-- secure sums -->\n```text\n{found}\n```"
        given.write.write_text(
            re.sub(r"<!-- secure sums -->\n```text\n.*?\n```", lambda _: fenced, page, flags=re.S)
        )


if __name__ == "__main__":
    main()
