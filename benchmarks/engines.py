"""What a round costs on every engine: 8 agents on this machine, beside the bare primitives of each,
in one run.

    python benchmarks/engines.py              # all that are installed: about six minutes on two
                                              idle cores
    python benchmarks/engines.py mpi ray      # some
    python benchmarks/engines.py agents       # 10, 100 and 1,000 agents in this process
    python benchmarks/engines.py --write docs/engines/costs.md            # all, into that page

A round is one word. Engine and primitives take turns, in blocks of 150 rounds: of each block the
median of its rounds, or, where agent 0 is in another process, their mean, with a certificate among
them; medians of blocks are compared. What is "bare":

| engine | own primitive                                             | transport
|
|--------|-----------------------------------------------------------|----------------------------------------------|
| mpi    | `Allreduce`, `Neighbor_allgather` among 8 ranks: in a     |
         |
|        | loop in which nothing else is, and as the answers of an   |
|
|        | interpreter of generators that say `Sum` and `Mix`        |
|
| ray    | calls of actors, messages added by the driver, or passed  | streams between 8 processes,
         without words:  |
| spark  | one job a round: `treeReduce`; nothing for `Mix`          | nothing is added, checked or
         billed, and     |
| peers  |                                                           | nothing encrypted
         |

MPI runs three times: with a rank for every agent; so again, all at the same addresses (`setarch
-R`), where a core learns from one rank how the code of the next one branches; and with a rank for
every core, as one should where cores are fewer.

The last lines are what `coterie plan` reckons with: half a round of one `Sum` of 500 numbers, which
are two hops, and the seconds until a first tiny fit is done.
"""

from __future__ import annotations

import io
import itertools
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np

import coterie as co
from coterie.engines import ENGINES
from coterie.methods import Method
from coterie.run.certificate import Point
from coterie.run.collectives import Mix, Sum

AGENTS, ROUNDS, BLOCKS, REPEATS = 8, 150, 3, 3
CORES = min(AGENTS, os.cpu_count() or 1)
CASES = [(word, size) for word in ("Sum", "Mix") for size in (1, 500, 16_384)]
MARK = "<!-- measured -->\n"
SAME_ADDRESSES = ["setarch", "-R"]
"""Before a command of Linux: its memory is not laid out at random. Some containers forbid it."""
Bare: TypeAlias = Callable[[str, int], list[float]]
"""Seconds of a round of that word and size, for a block each."""
STAMPS: list[float] = []
"""When each round of agent 0 began, if it lives in this process."""


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
        if agent.index == 0:
            STAMPS.append(time.perf_counter())
        yield Sum(x) if self.word == "Sum" else Mix(x)
        return state

    def point(self, agent: Any, state: Any) -> Point:
        return Point(state.w)


@dataclass(frozen=True)
class EchoState:
    x: Any
    w: Any


def seconds_of_blocks(
    engine: Any, word: str, size: int, rounds: int = ROUNDS, blocks: int = BLOCKS
) -> list[float]:
    """Of a round, by the clock of agent 0: the median of each block; the mean, if agent 0 is in
    another process.
    """
    STAMPS.clear()
    X = np.random.default_rng(0).standard_normal((4 * AGENTS, 2))
    result = co.solve(
        co.Problem("squared", "l2", 1.0, intercept=False),
        (X, X.sum(axis=1)),
        agents=AGENTS,
        network="star" if word == "Sum" else "ring",
        method=Echo(word, size),
        engine=engine,
        acceleration="none",
        check_every=rounds,
        max_rounds=(blocks + 1) * rounds,
        tol=1e-15,
        progress=False,
    )
    if STAMPS:
        return medians(rounds)
    return [
        (b.seconds - a.seconds) / (b.round - a.round) for a, b in itertools.pairwise(result.history)
    ]


def medians(rounds: int) -> list[float]:
    """Of the seconds between two rounds, block by block."""
    seconds = np.diff(STAMPS)
    return [
        float(np.median(seconds[start : start + rounds]))
        for start in range(0, len(seconds), rounds)
    ]


def compare(name: str, engine: Any, bare: dict[str, Bare], repeats: int = REPEATS) -> float:
    """Print a line per word and size; returns the seconds of a round of a `Sum` of 500 numbers."""
    for word, size in CASES:
        times: dict[str, list[float]] = {name: [], **{other: [] for other in bare}}
        for _ in range(repeats):
            times[name] += seconds_of_blocks(engine, word, size)
            for other, measure in bare.items():
                times[other] += measure(word, size)
        medians = {other: float(np.median(seconds)) for other, seconds in times.items() if seconds}
        found = medians.pop(name)
        ratios = "".join(
            f"   {found / s:7.2f} × {other} ({s * 1e6:.0f} µs)" for other, s in medians.items()
        )
        print(f"{name:5} {word} {size:6}  {found * 1e6:8.0f} µs{ratios}", flush=True)
        if (word, size) == ("Sum", 500):
            of_500 = found
    return of_500


# -- bare primitives -------------------------------------------------------------------------------


def timed(call: Callable[[], object], rounds: int = ROUNDS) -> float:
    began = time.perf_counter()
    for _ in range(rounds):
        call()
    return (time.perf_counter() - began) / rounds


def locally(word: str, size: int) -> list[float]:
    return seconds_of_blocks("local", word, size)


def mpi_primitives() -> dict[str, Bare]:
    """The same two collectives: answering agents that are generators, and in a loop with nothing
    else in it.
    """
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    ring = sorted({(world.rank - 1) % world.size, (world.rank + 1) % world.size})
    graph = world.Create_dist_graph_adjacent(ring, ring)

    def agent(word: str, x: Any) -> Any:
        while True:
            STAMPS.append(time.perf_counter())
            yield Sum(x) if word == "Sum" else Mix(x)

    def answer(said: Any) -> Any:
        if type(said) is Sum:
            total = np.empty_like(said.x)
            world.Allreduce(said.x, total)
            return total
        received = np.empty((len(ring), said.x.size))
        graph.Neighbor_allgather(said.x, received)
        mixed = said.x / 3
        for message in received:
            mixed += message / 3
        return mixed

    def interpreter(word: str, size: int) -> list[float]:
        STAMPS.clear()
        protocol, reply = agent(word, np.ones(size)), None
        world.Barrier()
        for _ in range(BLOCKS * ROUNDS + 1):
            reply = answer(protocol.send(reply))
        return medians(ROUNDS)

    def loop(word: str, size: int) -> list[float]:
        STAMPS.clear()
        x, total, received = np.ones(size), np.empty(size), np.empty((len(ring), size))
        world.Barrier()
        for _ in range(BLOCKS * ROUNDS + 1):
            STAMPS.append(time.perf_counter())
            if word == "Sum":
                world.Allreduce(x, total)
            else:
                graph.Neighbor_allgather(x, received)
        return medians(ROUNDS)

    return {"an interpreter": interpreter, "a loop": loop}


class BareStreams:
    """Eight processes with streams between all of them, which wait to be told what to send."""

    def __enter__(self) -> BareStreams:
        context = multiprocessing.get_context("spawn")
        self.outbox = context.Queue()
        self.inboxes = [context.Queue() for _ in range(AGENTS)]
        self.processes = [
            context.Process(target=_bare_place, args=(place, inbox, self.outbox))
            for place, inbox in enumerate(self.inboxes)
        ]
        for process in self.processes:
            process.start()
        addresses = dict(self.outbox.get() for _ in range(AGENTS))
        self.tell([addresses[place] for place in range(AGENTS)])
        return self

    def tell(self, thing: Any) -> None:
        for inbox in self.inboxes:
            inbox.put(thing)

    def __call__(self, word: str, size: int) -> list[float]:
        self.tell((word, size))
        return dict(self.outbox.get() for _ in range(AGENTS))[0]

    def __exit__(self, *_: object) -> None:
        self.tell(None)
        for process in self.processes:
            process.join()


def _bare_place(place: int, inbox: Any, outbox: Any) -> None:
    from coterie.transport.grpc_mesh import GrpcMesh
    from coterie.transport.links import Tag
    from coterie.transport.security import TrustedCluster

    links = GrpcMesh(place, range(AGENTS), "bare", TrustedCluster(), 60.0)
    outbox.put((place, links.address))
    links.connect(inbox.get())
    links.wait()
    ring = sorted({(place - 1) % AGENTS, (place + 1) % AGENTS})
    steps = itertools.count()
    while (asked := inbox.get()) is not None:
        word, size = asked
        x = np.ones(size)

        def exchange(word: str = word, x: Any = x) -> None:
            tag = Tag("bare", next(steps), word)
            first, second = (
                (ring, ring)
                if word == "Mix"
                else ([], range(1, AGENTS))
                if place == 0
                else ([0], [0])
            )
            for other in first:
                links.send(other, x, tag)
            for other in second:
                links.receive(other, tag)
            if word == "Sum" and place == 0:
                for other in second:
                    links.send(other, x, tag)

        outbox.put((place, [timed(exchange) for _ in range(BLOCKS)]))
    links.close()


class _Actor:
    def reply(self, x: Any) -> Any:
        return x


def ray_primitives() -> Bare:
    import ray

    actors = [ray.remote(num_cpus=0)(_Actor).remote() for _ in range(AGENTS)]
    few = 20

    def measure(word: str, size: int) -> list[float]:
        x = np.ones(size)

        def call() -> None:
            messages = ray.get([actor.reply.remote(x) for actor in actors])
            if word == "Sum":
                replies = [sum(messages)] * AGENTS
            else:
                replies = [(messages[j - 1], messages[(j + 1) % AGENTS]) for j in range(AGENTS)]
            ray.get(
                [actor.reply.remote(reply) for actor, reply in zip(actors, replies, strict=True)]
            )

        call()
        return [timed(call, few)]

    return measure


def spark_primitives(context: Any) -> Bare:
    def measure(word: str, size: int) -> list[float]:
        if word == "Mix":
            return []
        messages = context.parallelize(range(AGENTS), AGENTS).map(lambda _: np.ones(size))
        return [timed(lambda: messages.treeReduce(lambda a, b: a + b), 3)]

    return measure


# -- engines ---------------------------------------------------------------------------------------


def seconds_until_done(engine: Any, began: float) -> float:
    seconds_of_blocks(engine, "Sum", 1, 1, 1)
    return time.perf_counter() - began


def on_mpi() -> tuple[float, float]:
    folder = Path(sys.executable).parent
    mpiexec = shutil.which("mpiexec", path=f"{folder}{os.pathsep}{os.environ['PATH']}")
    if mpiexec is None:
        raise SystemExit("mpi: there is no mpiexec")
    environment = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    environment["PRTE_MCA_rmaps_default_mapping_policy"] = ":oversubscribe"
    run = [mpiexec, "-n"]
    this = [sys.executable, __file__, "inside-mpi"]
    # In a process of its own, as ranks that wait take processor time.
    local = {f"{word} {size}": locally(word, size) for word, size in CASES}
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "seconds.json"
        began = time.perf_counter()
        subprocess.run(
            [*run, str(AGENTS), *this, "start"], env={**os.environ, **environment}, check=True
        )
        start = time.perf_counter() - began
        file.write_text(json.dumps({"local": local}))
        ways = [("mpi", AGENTS, []), (f"mpi/{CORES}", CORES, [])]
        if (
            shutil.which("setarch")
            and not subprocess.run([*SAME_ADDRESSES, "true"], capture_output=True).returncode
        ):
            ways.insert(1, ("mpi-R", AGENTS, SAME_ADDRESSES))
        for title, ranks, how in ways:
            command = [*run, str(ranks), *how, *this, str(file), title]
            subprocess.run(command, env={**os.environ, **environment}, check=True)
        return float(json.loads(file.read_text())["a round"]), start


def inside_mpi(file: str, title: str = "") -> None:
    from coterie.engines.mpi import prepare_environment

    prepare_environment()
    from mpi4py import MPI

    if file == "start":
        seconds_until_done("mpi", 0.0)
        return
    world, known = MPI.COMM_WORLD, json.loads(Path(file).read_text())
    world.Barrier()
    if world.rank:
        sys.stdout = io.StringIO()
    if world.size == AGENTS:
        bare: dict[str, Bare] = {"local": lambda word, size: known["local"][f"{word} {size}"]}
        for other, measure in mpi_primitives().items():
            kept = known.setdefault(other, {}) if title == "mpi" else {}

            def noted(
                word: str, size: int, kept: dict[str, Any] = kept, measure: Bare = measure
            ) -> list[float]:
                kept.setdefault(f"{word} {size}", []).extend(found := measure(word, size))
                return found

            bare[other] = noted
        of_500 = compare(title, "mpi", bare)
        known.setdefault("a round", of_500)
    else:
        # With one agent a rank, as before: what the same agents cost then.
        before = {
            other: lambda w, n, other=other: known[other][f"{w} {n}"]
            for other in list(known)
            if other != "a round"
        }
        compare(title, "mpi", before)
    if world.rank == 0:
        Path(file).write_text(json.dumps(known))


def on_ray() -> tuple[float, float]:
    from coterie.engines.ray import Ray

    began = time.perf_counter()
    with Ray(workers=AGENTS) as engine:
        start = seconds_until_done(engine, began)
        with BareStreams() as streams:
            bare = {"local": locally, "streams": streams, "calls of actors": ray_primitives()}
            return compare("ray", engine, bare), start


def on_spark() -> tuple[float, float]:
    from pyspark.sql import SparkSession

    from coterie.engines.spark import Spark
    from coterie.engines.spark_session import SETTINGS, prepare_environment

    prepare_environment()
    began = time.perf_counter()
    builder = SparkSession.builder.master(f"local[{AGENTS}]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    start = seconds_until_done(Spark(), began)
    with BareStreams() as streams:
        bare = {
            "local": locally,
            "streams": streams,
            "jobs": spark_primitives(session.sparkContext),
        }
        found = compare("spark", Spark(), bare)
    session.stop()
    return found, start


def on_peers() -> tuple[float, float]:
    start = seconds_until_done("peers", time.perf_counter())
    with BareStreams() as streams:
        return compare("peers", "peers", {"local": locally, "streams": streams}, 1), start


def many_agents() -> None:
    """10, 100 and 1,000 agents with two columns each, in this process: processor time, and memory
    in another run.
    """
    for network in ("ring", "expander"):
        before = None
        for agents in (10, 100, 1000):
            X = np.random.default_rng(0).standard_normal((40, 2 * agents))

            def fit(
                rounds: int,
                read: Callable[[], float],
                agents: int = agents,
                X: Any = X,
                network: str = network,
            ) -> list[float]:
                readings: dict[int, float] = {}
                co.solve(
                    co.Problem("squared", "l2", 0.1, intercept=False),
                    (X, X[:, 0]),
                    split="features",
                    agents=agents,
                    network=co.networks.network(network, agents, seed=0),
                    method="graph-cp",
                    acceleration="none",
                    check_every=rounds,
                    max_rounds=4 * rounds,
                    tol=1e-15,
                    progress=False,
                    callback=lambda name, value, round: readings.setdefault(round, read()) and None,
                )
                return list(readings.values())

            seconds = min((b - a) / 100 for a, b in itertools.pairwise(fit(100, time.process_time)))
            tracemalloc.start()
            held = fit(5, lambda: tracemalloc.get_traced_memory()[0])[-1] / agents / 1e3
            most = tracemalloc.get_traced_memory()[1] / agents / 1e3
            tracemalloc.stop()
            line = f"{network:9} {agents:5} agents  {seconds * 1e3:8.2f} ms a round"
            line += "" if before is None else f", {seconds / before:5.1f} × the one before"
            print(f"{line}   {held:.1f} kB an agent, {most:.1f} kB while they start", flush=True)
            before = seconds


def write(page: Path) -> None:
    """Run everything, and put what it prints into the block below `MARK` in that page."""
    lines = []
    with subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines += [] if "(raylet)" in line else [line]
    if process.returncode:
        raise SystemExit(process.returncode)
    text, _, block = page.read_text().partition(MARK)
    rest = block.removeprefix("```text\n").partition("```\n")[2]
    page.write_text(f"{text}{MARK}```text\n{''.join(lines)}```\n{rest}")


ENGINES_HERE = {"mpi": on_mpi, "ray": on_ray, "spark": on_spark, "peers": on_peers}

if __name__ == "__main__":
    chosen = sys.argv[1:] or ["agents", *ENGINES_HERE]
    if chosen[0] == "--write":
        write(Path(chosen[1]))
        sys.exit()
    if chosen[0] == "inside-mpi":
        inside_mpi(*chosen[1:])
        sys.exit()
    if "agents" in chosen:
        many_agents()
    costs: dict[str, tuple[float, float]] = {}
    for name in chosen:
        if name in ENGINES_HERE:
            if (missing := ENGINES[name].missing()) is not None:
                print(f"{name}: {missing}")
            else:
                costs[name] = ENGINES_HERE[name]()
    if costs:
        print(
            "turn_seconds =",
            {name: float(f"{of_500 / 2:.1g}") for name, (of_500, _) in costs.items()},
        )
        print(
            "start_seconds =", {name: float(f"{start:.2g}") for name, (_, start) in costs.items()}
        )
