"""Run agents in actors of a Ray cluster; the actors exchange messages over their own streams.

Ray carries only the start of a run, the outcome of each process at every certificate, and the end.
If an actor dies and there is a checkpoint, the engine starts all actors again. They continue from
the newest checkpoint that all of them have.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

from coterie.data import Table
from coterie.data.remote import Rows, Source, table_of
from coterie.data.remote_table import keep, keeping
from coterie.engines.engine import Engine, Run
from coterie.engines.processes import ProcessSpec, RunSpec, assigned, pace_of
from coterie.engines.supervisor import Event, Supervised, report, supervise
from coterie.errors import InvalidData, MissingExtra, PartyLost
from coterie.numerics.arrays import whole_number
from coterie.run.rounds import Outcome

T = TypeVar("T")

DEFAULT_PARTS = 8
"""Default number of agents for a Dataset."""
QUIET = {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_USAGE_STATS_ENABLED": "0"}


@dataclass(frozen=True)
class Ray(Supervised):
    """Run agents in actors of a Ray cluster.

    Actors end with the run. To keep them for several runs, use the engine as a context manager:
    `with Ray() as engine: co.solve(..., engine=engine)`.
    """

    name: ClassVar[str] = "ray"
    summary: ClassVar[str] = "in actors of a Ray cluster, on this machine or an existing one"
    turn_seconds: ClassVar[float] = 0.002
    start_seconds: ClassVar[float] = 8.4
    needs: ClassVar[tuple[str, ...]] = ("grpc", "ray")

    address: str | None = None
    """Address of the cluster: "auto", "ray://host:port", or None. None means the cluster to which
    this process is connected, or else a new one on this machine.
    """
    workers: int | None = None
    """Largest number of actors, by default the number of the cluster's processors. There is at most
    one actor per agent.
    """
    resources: Mapping[str, float] = field(default_factory=dict)
    """Resources of each actor, by Ray's names, e.g. {"CPU": 2, "hospital": 1}. The default is one
    CPU, or a share of one if processors are few.
    """
    _actors: list[Any] | None = field(default=None, repr=False, compare=False)
    """Actors that wait for the next run, in the order of processes; None if no actor is kept."""
    _host: _Host | None = field(default=None, repr=False, compare=False)
    """Actors that keep the data they have read."""

    def __post_init__(self) -> None:
        if self.workers is not None:
            whole_number("workers", self.workers)
        super().__post_init__()

    def __enter__(self) -> Ray:
        return replace(self, _actors=[])

    def __exit__(self, *_: object) -> None:
        """Do nothing: the actors end with the last reference to them."""

    def hosting(self, data: Any, agents: Any) -> tuple[Engine, list[Source]] | None:
        if isinstance(data, Rows):
            if not hasattr(data.frame, "to_arrow_refs"):
                raise InvalidData(
                    "engine 'ray' takes Rows of a ray.data.Dataset, not of "
                    f"{type(data.frame).__name__}."
                )
            _connected(self.address)
            if self._actors and self._host is None:
                # Waiting actors occupy processors that Ray needs to read a Dataset.
                self._actors.clear()
            count = DEFAULT_PARTS if agents is None else whole_number("agents", agents)
            frame = data.frame.materialize()
            # A file may be read as one block, and a block is never split between agents.
            parts = (frame if frame.num_blocks() >= count else frame.repartition(count)).split(
                count
            )
            sources: list[Source] = [
                _Part(part.to_arrow_refs(), data, f"party {k}") for k, part in enumerate(parts)
            ]
        elif (hosted := super().hosting(data, agents)) is None:
            return None
        else:
            sources = hosted[1]
        if self._host is not None:
            return self, sources
        actors = [] if self._actors is None else self._actors
        return replace(
            self, _actors=actors, _host=_Host(actors, lasting=self._actors is not None)
        ), sources

    def held(self) -> AbstractContextManager[None]:
        if self._host is None:
            return nullcontext()
        return self._host.held()

    def ask(self, questions: Sequence[Callable[[], T]]) -> list[T]:
        ray = _connected(self.address)
        workers, occupies = self._places(ray, len(questions))
        with self.held():
            actors = [] if self._actors is None else self._actors
            actors += [_actor(ray, occupies) for _ in range(workers - len(actors))]
            homes = assigned(len(questions), workers)
            pairs = [
                (actors[home], question) for home, question in zip(homes, questions, strict=True)
            ]
            try:
                answers: list[T] = ray.get(
                    [actor.answer.remote(question) for actor, question in pairs]
                )
                return answers
            except ray.exceptions.RayTaskError as error:
                raise error.cause from None

    def run(self, run: Run) -> Outcome:
        pace = pace_of(self.clock, self.pace)
        ray = _connected(self.address)
        workers, occupies = self._places(ray, len(run.agents))
        spec = RunSpec.of(run, workers, pace)
        own = spec.shared_out(run)

        def start() -> _Actors:
            return _Actors(ray, spec, own, occupies, self.deadline, self._actors)

        with self.held():
            return supervise(spec, run.watch, self.restarts, start)

    def _places(self, ray: Any, agents: int) -> tuple[int, dict[str, float]]:
        """Return the number of actors for the agents, and the resources of each actor."""
        processors = int(ray.cluster_resources().get("CPU", 1))
        workers = min(agents, self.workers or max(1, processors))
        return workers, dict(self.resources) or {"CPU": min(1.0, processors / (workers + 1))}


@dataclass
class _Host:
    """Actors that have read data, and keep it while an operation holds them."""

    actors: list[Any]
    lasting: bool
    """Whether actors are kept after the operation, without the data."""
    holders: int = 0

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the actors: until the context ends, they read no data twice."""
        self.holders += 1
        try:
            yield
        finally:
            self.holders -= 1
            if not self.holders and self.lasting:
                for actor in self.actors:
                    actor.forget.remote()
            elif not self.holders:
                self.actors.clear()


class _Actors:
    """Actors of one run. After a run without errors, they go back to the list `keep`, if there is
    one.
    """

    def __init__(
        self,
        ray: Any,
        spec: RunSpec,
        specs: Sequence[ProcessSpec],
        occupies: Mapping[str, float],
        deadline: float,
        keep: list[Any] | None,
    ):
        self._ray = ray
        self._spec = spec
        self._keep = keep
        nodes = {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
        host = "127.0.0.1" if len(nodes) == 1 else ""
        run_id = uuid.uuid4().hex
        self._workers = (keep or [])[: len(specs)]
        if keep is not None:
            del keep[: len(specs)]
        self._workers += [_actor(ray, occupies) for _ in specs[len(self._workers) :]]
        pairs = zip(self._workers, specs, strict=True)
        self._streams = [
            worker.work.remote(spec, own, run_id, deadline, host) for worker, own in pairs
        ]

    def __enter__(self) -> _Actors:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None and self._keep is not None:
            self._keep[:0] = self._workers
        else:
            for worker in self._workers:
                self._ray.kill(worker)

    def listen(self, running: Collection[int], seconds: float) -> Iterator[Event]:
        by_stream = {self._streams[process]: process for process in running}
        ready, _ = self._ray.wait(list(by_stream), timeout=seconds)
        for stream in ready:
            process = by_stream[stream]
            try:
                yield (process, *self._ray.get(next(stream)))
            except self._ray.exceptions.RayActorError as error:
                name = self._spec.called(process)
                lost = PartyLost(f"{name} stopped answering: the actor died.", name)
                lost.__cause__ = error
                yield process, "lost", lost

    def introduce(self, addresses: Sequence[str]) -> None:
        for worker in self._workers:
            worker.meet.remote(addresses)

    def stop(self) -> None:
        self._workers[self._spec.process_of[0]].stop.remote()


class _Part:
    """One agent's part of a Dataset. The agent's process fetches the blocks."""

    def __init__(self, blocks: Sequence[Any], rows: Rows, name: str):
        self.blocks = list(blocks)
        self.rows = replace(rows, frame=None)
        self.name = name

    def __call__(self) -> Table:
        return keep(("table", self.name), None, self._read)

    def _read(self) -> Table:
        import pyarrow as pa
        import ray

        # A Dataset of few blocks leaves some agents without blocks.
        # A block of empty lists does not show the type of their elements.
        blocks = ray.get(self.blocks) or [pa.table({})]
        return table_of(
            pa.concat_tables(blocks, promote_options="permissive"), self.rows, self.name
        )


class _Worker:
    """One process of a run, in an actor."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._addresses: queue.SimpleQueue[Sequence[str]] = queue.SimpleQueue()
        self._kept = ExitStack()
        self._keeping = False
        self._reading = threading.Lock()

    def answer(self, question: Callable[[], T]) -> T:
        """Answer a question in the process that has the data, and keep the data that it reads."""
        with self._reading:
            if not self._keeping:
                self._keeping = True
                self._kept.enter_context(keeping())
        return question()

    def forget(self) -> None:
        """Release the data that this process has read."""
        with self._reading:
            self._keeping = False
            self._kept.close()

    def pid(self) -> int:
        """Return the identifier of this process."""
        return os.getpid()

    def stop(self) -> None:
        """End the run after the current round."""
        self._stop.set()

    def meet(self, addresses: Sequence[str]) -> None:
        """Pass the addresses of all processes to this process."""
        self._addresses.put(addresses)

    def work(
        self, spec: RunSpec, own: ProcessSpec, run_id: str, deadline: float, host: str
    ) -> Iterator[Any]:
        """Run this process, and yield its news: kind and value.

        It yields the address of the process first, then the outcome so far each time, and last the
        end or an error.
        """
        self._stop.clear()
        news: queue.SimpleQueue[Any] = queue.SimpleQueue()
        how = {
            "run_id": run_id,
            "deadline": deadline,
            "host": host or _own_address(),
            "stop_wished": self._stop.is_set,
        }
        given = (lambda *message: news.put(message), self._addresses.get, spec, own)
        threading.Thread(target=report, args=given, kwargs=how, daemon=True).start()
        kind = ""
        while kind not in ("end", "error"):
            kind, thing = news.get()
            yield kind, thing


def _own_address() -> str:
    import ray

    # This function of Ray has no type annotations.
    address: Any = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    return str(address)


def _connected(address: str | None) -> Any:
    try:
        import ray
    except ImportError as missing:
        raise MissingExtra("the ray engine", "ray") from missing
    if not ray.is_initialized():
        os.environ.update({name: value for name, value in QUIET.items() if name not in os.environ})
        ray.init(
            address or "local",
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.WARNING,
        )
    return ray


def _actor(ray: Any, occupies: Mapping[str, float]) -> Any:
    others = {name: amount for name, amount in occupies.items() if name not in ("CPU", "GPU")}
    options = {
        "num_cpus": occupies.get("CPU", 0),
        "num_gpus": occupies.get("GPU", 0),
        "resources": others or None,
    }
    return (
        ray.remote(_Worker)
        .options(**options, scheduling_strategy="SPREAD", max_concurrency=4)
        .remote()
    )
