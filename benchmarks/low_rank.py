"""Low-rank models: what an epoch costs, and how far each method comes, on the paper's synthetic
problems.

    python benchmarks/low_rank.py                 both tables below: some minutes on one core
    python benchmarks/low_rank.py --epochs        CPU seconds an epoch at n = 20000, d = m = 300
    python benchmarks/low_rank.py --findings      objective after so many epochs, d = m = 300 and
                                                  1000, n = 20000
    python benchmarks/low_rank.py --findings --paper-size    the same with n = 100000: some minutes,
    4 GB
    python benchmarks/low_rank.py --spark         CPU seconds an epoch of a DataFrame on Spark,
                                                  local[2] (Linux)

Least squares: W of rank 10 and trace norm 1, X standard normal, Y = X W (section 5.1), line search.
Multinomial: the same W and X, the label is the largest score; step 2/(t + 2), implicit information.
CPU seconds are process time, the best of three runs of ten epochs, certificates and set-up not
counted. Set OMP_NUM_THREADS=1 to compare.

On Spark they are those of the driver, the JVM and the Python workers together: what 110 (least
squares: 1010) epochs take beyond 10; both with one certificate, the start and three readings of the
frame, Parquet with vectors for X and Y.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import coterie as co
from coterie.data import Table
from coterie.methods import method
from coterie.run.bill import Bill
from coterie.run.rounds import introduced
from coterie.run.setup import make_agents
from coterie.run.tables import prepare_tables
from coterie.transport.in_process import InProcess

Shards = list[tuple[Any, Any]]


def shards(
    task: str, n: int, d: int, agents: int, seed: int = 0, dtype: Any = np.float64
) -> Shards:
    """The paper's data, made agent by agent."""
    rng = np.random.default_rng(seed)
    left, right = (np.linalg.qr(rng.standard_normal((d, 10)))[0] for _ in range(2))
    sizes = rng.uniform(0.5, 1.0, 10)
    W = ((left * (sizes / sizes.sum())) @ right.T).astype(dtype)
    made = []
    for _ in range(agents):
        X = rng.standard_normal((n // agents, d), dtype=dtype)
        scores = X @ W
        made.append((X, scores if task == "squared" else scores.argmax(axis=1)))
    return made


def epoch_seconds(
    task: str, name: str, n: int, d: int, agents: int, epochs: int = 10, **options: Any
) -> float:
    """CPU seconds of one epoch in this process, all agents together."""
    problem = co.Problem(task, "traceball", radius=1.0 if task == "squared" else 10.0)
    tables = [
        Table(X=X, y=y, name=f"agent {k}") for k, (X, y) in enumerate(shards(task, n, d, agents))
    ]
    tables, classes = prepare_tables(tables, problem, "samples")
    network = co.networks.star(agents, server=True)
    transport, chosen = InProcess(network, Bill(network)), method(name, **options)
    members = introduced(
        make_agents(tables, problem.with_classes(classes), "samples", network, 0),
        transport,
        "setup",
    )
    states = transport.converse([chosen.start(agent) for agent in members], "setup")
    t, best = 0, np.inf
    for _ in range(3):
        began = time.process_time()
        for _ in range(epochs):
            t += 1
            protocols = [
                chosen.round(agent, state, t) for agent, state in zip(members, states, strict=True)
            ]
            states = transport.converse(protocols, "rounds")
        best = min(best, (time.process_time() - began) / epochs)
    return best


def reached(data: Shards, rounds: int, name: str, **options: Any) -> tuple[float, float, int]:
    """F/F(0) after so many epochs, the numbers that each agent sent up, and the rank."""
    result = co.solve(
        co.Problem("squared", "traceball", radius=1.0), data, method=name, max_rounds=rounds, check_every=rounds,
        tol=1e-15, progress=False, **options,
    )  # fmt: skip
    up = result.bill.scalars // (2 * len(data))
    return result.certificate.primal / result.certificate.primal_at_zero, up, result.model.rank_


def print_epochs(n: int, d: int, agents: int) -> None:
    """The table of CPU seconds."""
    print(f"CPU seconds an epoch, n = {n}, d = m = {d}, {agents} agents in one process")
    print(f"{'method':28s} {'least squares':>14s} {'multinomial':>12s}")
    for name, options in (
        ("dfw-trace", {"power": 1}),
        ("dfw-trace", {"power": 2}),
        ("naive-dfw", {}),
        ("dfw-subspace", {"block": 1}),
        ("dfw-subspace", {"block": 10}),
    ):
        label = name + "".join(f" {key}={value}" for key, value in options.items())
        seconds = [
            epoch_seconds(task, name, n, d, agents, **options)
            for task in ("squared", "multinomial")
        ]
        print(f"{label:28s} {seconds[0]:14.4f} {seconds[1]:12.4f}", flush=True)


def print_spark(n: int, d: int) -> None:
    """The table of CPU seconds on Spark."""
    from pyspark.sql import SparkSession

    from coterie.engines.spark_session import SETTINGS, prepare_environment

    prepare_environment()
    builder = SparkSession.builder.master("local[2]")
    for name, value in {**SETTINGS, "spark.driver.memory": "2g"}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    print(
        f"CPU seconds an epoch, n = {n}, d = m = {d}, Spark local[2], a DataFrame of 2 partitions"
    )
    print(f"{'method':28s} {'least squares':>14s} {'multinomial':>12s}")
    with tempfile.TemporaryDirectory() as folder:
        frames = {
            task: _frame(session, Path(folder) / task, task, n, d)
            for task in ("squared", "multinomial")
        }
        for power in (1, 2):
            seconds = [spark_epoch_seconds(frames[task], task, power) for task in frames]
            print(
                f"{f'dfw-trace power={power}':28s} {seconds[0]:14.4f} {seconds[1]:12.4f}",
                flush=True,
            )
    session.stop()


def _frame(session: Any, folder: Path, task: str, n: int, d: int) -> Any:
    """The paper's data as a DataFrame with a column of vectors, in two files."""
    folder.mkdir()
    for part, (X, y) in enumerate(shards(task, n, d, 2)):
        columns = {"x": list(X), "y": list(y) if task == "squared" else y}
        pq.write_table(pa.table(columns), folder / f"{part}.parquet")
    return session.read.parquet(str(folder))


def spark_epoch_seconds(frame: Any, task: str, power: int) -> float:
    """CPU seconds of one epoch, of all processes of Spark together."""
    epochs = 1000 if task == "squared" else 100
    problem = co.Problem(task, "traceball", radius=1.0 if task == "squared" else 10.0)
    spent = []
    for rounds in (10, 10, 10 + epochs):  # the first of them warms up
        began = _cpu_seconds(os.getpid())
        co.solve(
            problem, co.Rows(frame, target="y", columns="x"), engine="spark", method="dfw-trace", power=power,
            max_rounds=rounds, check_every=rounds, tol=1e-15, progress=False,
        )  # fmt: skip
        spent.append(_cpu_seconds(os.getpid()) - began)
    return (spent[2] - spent[1]) / epochs


def _cpu_seconds(pid: int) -> float:
    """What a process and all that it started have computed so far."""
    parents, seconds = {}, {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = entry.read_text().rpartition(")")[2].split()
            parents[int(entry.parent.name)] = int(fields[1])
            # utime, stime, and those of children that have ended
            seconds[int(entry.parent.name)] = sum(map(int, fields[11:15])) / os.sysconf(
                "SC_CLK_TCK"
            )

    def descends(process: int) -> bool:
        return process == pid or (process in parents and descends(parents[process]))

    return sum(spent for process, spent in seconds.items() if descends(process))


def print_findings(n: int, sizes: tuple[int, ...], agents: int) -> None:
    """The table of objectives."""
    for d in sizes:
        data = shards("squared", n, d, agents)
        print(
            f"least squares, n = {n}, d = m = {d}, {agents} agents: F/F(0), numbers up per agent, "
            "rank"
        )
        for rounds, name, options in (
            (8, "dfw-subspace", {"block": 10}),
            (40, "dfw-subspace", {"block": 1}),
            (100, "dfw-trace", {"power": 1}),
            (100, "dfw-trace", {"power": 2}),
            (100, "dfw-trace", {"power": "log"}),
            (100, "dfw-trace", {"power": 1, "begin": "previous"}),
            (100, "sva", {}),
            (100, "naive-dfw", {}),
        ):
            value, up, rank = reached(data, rounds, name, **options)
            label = name + "".join(f" {key}={value}" for key, value in options.items())
            print(f"  {label:34s} {rounds:4d} epochs  {value:10.2e} {up:12d} {rank:5d}", flush=True)


def main() -> None:
    """Print what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", action="store_true")
    parser.add_argument("--findings", action="store_true")
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--paper-size", action="store_true")
    parser.add_argument(
        "--dimension", type=int, nargs="+", default=[300, 1000], help="d = m of the findings"
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it run?")
    arguments = parser.parse_args()
    both = not (arguments.epochs or arguments.findings or arguments.spark)
    if both or arguments.epochs:
        print_epochs(*((2000, 40, 4) if arguments.quick else (20_000, 300, 8)))
    if arguments.spark:
        print_spark(*((2000, 40) if arguments.quick else (20_000, 300)))
    if both or arguments.findings:
        n = 2000 if arguments.quick else 100_000 if arguments.paper_size else 20_000
        print_findings(n, (40,) if arguments.quick else tuple(arguments.dimension), 20)


if __name__ == "__main__":
    main()
