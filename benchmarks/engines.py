"""What a round costs on every engine: 8 agents on this machine, beside the bare primitive of each, in one run.

    python benchmarks/engines.py              # all that are installed
    python benchmarks/engines.py mpi ray      # some
    python benchmarks/engines.py agents       # 10, 100 and 1,000 agents in this process

A round is one word. "bare" is what the same letters take without Coterie: MPI's own Allreduce and Neighbor_allgather;
for Ray and Spark the streams between 8 processes without a carrier, and beside it what Ray and Spark themselves offer
(calls of actors gathered by the driver; one job a round).
"""

from __future__ import annotations

import io
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
import tracemalloc
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import coterie as co
from coterie.certificate import Point
from coterie.engines import ENGINES
from coterie.methods import Method
from coterie.words import Mix, Sum

AGENTS, ROUNDS = 8, 150
SIZES = (1, 500, 16_384)
WORDS = ("Sum", "Mix")


@dataclass(frozen=True)
class Echo(Method):
    """Says one word a round and learns nothing."""

    name: ClassVar[str] = "echo"
    split: ClassVar[str] = "samples"
    summary: ClassVar[str] = "for this benchmark"

    word: str = "Sum"
    size: int = 1

    @property
    def state(self) -> type:
        return EchoState

    def start(self, agent: Any) -> Any:
        return EchoState(np.ones(self.size), agent.first_model())
        yield

    def round(self, agent: Any, state: Any, t: int) -> Any:
        x = state.x
        yield Sum(x) if self.word == "Sum" else Mix(x)
        return state

    def point(self, agent: Any, state: Any) -> Point:
        return Point(state.w)


@dataclass(frozen=True)
class EchoState:
    x: Any
    w: Any


def seconds_a_round(engine: Any, word: str, size: int, rounds: int = ROUNDS) -> float:
    """By the clock of agent 0, between two certificates."""
    X = np.random.default_rng(0).standard_normal((4 * AGENTS, 2))
    result = co.solve(
        co.Problem("squared", "l2", 1.0),
        (X, X.sum(axis=1)),
        agents=AGENTS,
        network="star" if word == "Sum" else "ring",
        method=Echo(word, size),
        engine=engine,
        acceleration="none",
        check_every=rounds,
        max_rounds=2 * rounds,
        tol=1e-15,
        progress=False,
    )
    first, last = result.history[0], result.history[-1]
    return (last.seconds - first.seconds) / (last.round - first.round)


def table(engine: Any, local: dict[tuple[str, int], float], bare: dict[tuple[str, int], float]) -> None:
    name = engine if isinstance(engine, str) else engine.name
    for word in WORDS:
        for size in SIZES:
            found = seconds_a_round(engine, word, size)
            line = f"{name:6} {word:4} {size:6}  {found * 1e6:9.0f} µs   {found / local[word, size]:7.1f} × local"
            if (word, size) in bare:
                line += f"   {bare[word, size] * 1e6:8.0f} µs bare   {found / bare[word, size]:5.2f} × bare"
            print(line, flush=True)


def locally() -> dict[tuple[str, int], float]:
    return {(word, size): seconds_a_round("local", word, size, 1000) for word in WORDS for size in SIZES}


# -- bare primitives ---------------------------------------------------------------------------------------------------


def bare_mpi() -> dict[tuple[str, int], float]:
    from mpi4py import MPI

    world, found = MPI.COMM_WORLD, {}
    ring = sorted({(world.rank - 1) % world.size, (world.rank + 1) % world.size})
    graph = world.Create_dist_graph_adjacent(ring, ring)
    for size in SIZES:
        x, total, heard = np.ones(size), np.empty(size), np.empty((len(ring), size))
        for word, call in (
            ("Sum", lambda x=x, total=total: world.Allreduce(x, total)),
            ("Mix", lambda x=x, heard=heard: graph.Neighbor_allgather(x, heard)),
        ):
            world.Barrier()
            began = time.perf_counter()
            for _ in range(ROUNDS):
                call()
            found[word, size] = (time.perf_counter() - began) / ROUNDS
    return found


def _bare_place(place: int, inbox: Any, outbox: Any) -> None:
    from coterie.carriers.links import Tag
    from coterie.carriers.streams import Streams, TrustedCluster

    links = Streams(place, range(AGENTS), "bare", TrustedCluster(), 60.0)
    outbox.put((place, links.address))
    links.connect(inbox.get())
    links.wait()
    found = {}
    ring = sorted({(place - 1) % AGENTS, (place + 1) % AGENTS})
    step = 0
    for size in SIZES:
        x = np.ones(size)
        for word in WORDS:
            began = time.perf_counter()
            for _ in range(ROUNDS):
                step += 1
                tag = Tag("bare", step, word)
                if word == "Mix":
                    for other in ring:
                        links.send(other, x, tag)
                    for other in ring:
                        links.receive(other, tag)
                elif place == 0:
                    for other in range(1, AGENTS):
                        links.receive(other, tag)
                    for other in range(1, AGENTS):
                        links.send(other, x, tag)
                else:
                    links.send(0, x, tag)
                    links.receive(0, tag)
            found[word, size] = (time.perf_counter() - began) / ROUNDS
    outbox.put((place, found))
    links.close()


def bare_streams() -> dict[tuple[str, int], float]:
    context = multiprocessing.get_context("spawn")
    outbox = context.Queue()
    inboxes = [context.Queue() for _ in range(AGENTS)]
    processes = [
        context.Process(target=_bare_place, args=(place, inbox, outbox)) for place, inbox in enumerate(inboxes)
    ]
    for process in processes:
        process.start()
    addresses = dict(outbox.get() for _ in range(AGENTS))
    for inbox in inboxes:
        inbox.put([addresses[place] for place in range(AGENTS)])
    found = dict(outbox.get() for _ in range(AGENTS))
    for process in processes:
        process.join()
    return dict(found[0])


class _Adder:
    def reply(self, x: Any) -> Any:
        return x


def ray_calls() -> None:
    import ray

    actors = [ray.remote(num_cpus=0)(_Adder).remote() for _ in range(AGENTS)]
    for size in SIZES:
        x = np.ones(size)
        ray.get([actor.reply.remote(x) for actor in actors])
        began = time.perf_counter()
        for _ in range(20):
            sum(ray.get([actor.reply.remote(x) for actor in actors]))
        seconds = (time.perf_counter() - began) / 20
        print(f"ray    calls of actors, gathered by the driver {size:6}  {seconds * 1e6:.0f} µs")


def spark_jobs(context: Any) -> None:
    for size in SIZES:
        rows = context.parallelize(range(AGENTS), AGENTS).map(lambda _, size=size: np.ones(size))
        began = time.perf_counter()
        for _ in range(3):
            rows.treeReduce(lambda a, b: a + b)
        print(
            f"spark  one job a round, treeReduce             {size:6}  {(time.perf_counter() - began) / 3 * 1e6:.0f} µs"
        )


# -- engines -----------------------------------------------------------------------------------------------------------


def on_mpi(local: dict[tuple[str, int], float]) -> None:
    folder = Path(sys.executable).parent
    mpiexec = shutil.which("mpiexec", path=f"{folder}{os.pathsep}{os.environ['PATH']}")
    if mpiexec is None:
        print("mpi: there is no mpiexec")
        return
    environment = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    environment["PRTE_MCA_rmaps_default_mapping_policy"] = ":oversubscribe"
    numbers = " ".join(str(local[word, size]) for word in WORDS for size in SIZES)
    command = [mpiexec, "-n", str(AGENTS), sys.executable, __file__, "inside-mpi", numbers]
    subprocess.run(command, env={**os.environ, **environment}, check=True)


def inside_mpi(numbers: str) -> None:
    from mpi4py import MPI

    keys = [(word, size) for word in WORDS for size in SIZES]
    local = dict(zip(keys, map(float, numbers.split()), strict=True))
    bare = bare_mpi()
    if MPI.COMM_WORLD.rank:
        sys.stdout = io.StringIO()
    table("mpi", local, bare)


def on_ray(local: dict[tuple[str, int], float], bare: dict[tuple[str, int], float]) -> None:
    from coterie.engines.ray import Ray

    began = time.perf_counter()
    with Ray(workers=AGENTS) as engine:
        seconds_a_round(engine, "Sum", 1, 1)
        print(f"ray    start {time.perf_counter() - began:.1f} s")
        table(engine, local, bare)
    ray_calls()


def on_spark(local: dict[tuple[str, int], float], bare: dict[tuple[str, int], float]) -> None:
    from pyspark.sql import SparkSession

    from coterie.engines.spark import SETTINGS, Spark, prepare_environment

    prepare_environment()
    began = time.perf_counter()
    builder = SparkSession.builder.master(f"local[{AGENTS}]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    seconds_a_round(Spark(), "Sum", 1, 1)
    print(f"spark  start {time.perf_counter() - began:.1f} s")
    table(Spark(), local, bare)
    spark_jobs(session.sparkContext)
    session.stop()


def many_agents() -> None:
    """10, 100 and 1,000 agents with two columns each, in this process."""
    for network in ("ring", "expander"):
        before = None
        for agents in (10, 100, 1000):
            X = np.random.default_rng(0).standard_normal((40, 2 * agents))
            tracemalloc.start()
            result = co.solve(
                co.Problem("squared", "l2", 0.1),
                (X, X[:, 0]),
                split="features",
                agents=agents,
                network=co.networks.network(network, agents, seed=0),
                method="graph-cp",
                acceleration="none",
                check_every=40,
                max_rounds=80,
                tol=1e-15,
                progress=False,
            )
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            first, last = result.history[0], result.history[-1]
            seconds = (last.seconds - first.seconds) / (last.round - first.round)
            growth = "" if before is None else f"   {seconds / before:5.1f} × the one before"
            memory = peak / agents / 1e3
            print(f"{network:9} {agents:5} agents  {seconds * 1e3:8.2f} ms a round  {memory:6.1f} kB an agent{growth}")
            before = seconds


if __name__ == "__main__":
    chosen = sys.argv[1:] or ["agents", "mpi", "ray", "spark"]
    if chosen[0] == "inside-mpi":
        inside_mpi(chosen[1])
        sys.exit()
    if "agents" in chosen:
        many_agents()
    wanted = [name for name in ("mpi", "ray", "spark") if name in chosen]
    if wanted:
        embedded = locally()
        streams = bare_streams() if {"ray", "spark"} & set(wanted) else {}
        for name in wanted:
            if (missing := ENGINES[name].missing()) is not None:
                print(f"{name}: {missing}")
            elif name == "mpi":
                on_mpi(embedded)
            else:
                {"ray": on_ray, "spark": on_spark}[name](embedded, streams)
