"""Ray: agents live in actors, which Ray starts and restarts; words travel on streams between the actors.

Ray carries nothing but the start, what each process has come to at every certificate, and the end. Where an actor dies
and there is a checkpoint, all actors are started anew and go on from the newest snapshot that all of them have.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

from coterie.agent import Agent
from coterie.certificate import Point
from coterie.checkpoint import Checkpoint
from coterie.data import Table
from coterie.data.distant import Rows, Source, table_of
from coterie.engines.engine import Engine
from coterie.engines.local import ctrl_c
from coterie.engines.processes import Desk, Job, Task, job_of, linked, pace_of, put_together, root_cause, tasks_of, work
from coterie.errors import CoterieError, InvalidData, InvalidInput, MissingExtra, NumericalError, PartyLost
from coterie.networks import Network
from coterie.rounds import Limits, Outcome, Watch
from coterie.steps import Steps

__all__ = ["Ray"]

T = TypeVar("T")

DEFAULT_PARTS = 8
"""Into how many agents a Dataset is split, if nobody says."""
QUIET = {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_USAGE_STATS_ENABLED": "0"}


@dataclass(frozen=True)
class Ray(Engine):
    """Agents in actors of a Ray cluster.

    Actors end with the run. To keep them for several runs: `with Ray() as engine: co.solve(..., engine=engine)`.
    """

    name: ClassVar[str] = "ray"
    summary: ClassVar[str] = "in actors of a Ray cluster, on this machine or an existing one"

    address: str | None = None
    """None: the cluster this process is connected to, or else a new one on this machine; "auto", or "ray://host:port"."""
    workers: int | None = None
    """How many actors; by default one per agent, but no more than the cluster has processors."""
    resources: Mapping[str, float] = field(default_factory=dict)
    """What an actor occupies, by Ray's names, e.g. {"CPU": 2, "hospital": 1}; by default one CPU, or its share."""
    deadline: float = 30.0
    """Seconds of silence after which an actor is lost."""
    restarts: int = 3
    """How often a run with a checkpoint begins again when an actor is lost."""
    clock: str = "virtual"
    """Methods whose agents wake up one by one: "virtual", as in one process, or "real": nobody waits for anybody."""
    pace: float = 0.01
    """Seconds between two wake-ups of an agent, on average, where the clock is real; a round lasts as long."""
    _actors: list[Any] | None = field(default=None, repr=False, compare=False)
    """Those that wait for the next run, where they are kept at all."""

    def __enter__(self) -> Ray:
        return replace(self, _actors=[])

    def __exit__(self, *_: object) -> None:
        """Nothing to do: the actors end with the last reference to them."""

    @classmethod
    def missing(cls) -> str | None:
        try:
            import grpc  # noqa: F401
            import ray  # noqa: F401
        except ImportError as error:
            return f"{error.name} is needed: pip install 'coterie[ray]'"
        return None

    def hosting(self, data: Any, agents: Any) -> tuple[Engine, list[Source]] | None:
        if not isinstance(data, Rows):
            return super().hosting(data, agents)
        if not hasattr(data.frame, "to_arrow_refs"):
            raise InvalidData(f"engine 'ray' takes Rows of a ray.data.Dataset, not of {type(data.frame).__name__}.")
        _connected(self.address)
        parts = data.frame.split(DEFAULT_PARTS if agents is None else int(agents))
        return self, [_Part(part.to_arrow_refs(), data) for part in parts]

    def ask(self, questions: Sequence[Callable[[], T]]) -> list[T]:
        ray = _connected(self.address)
        asked = ray.remote(_answered).options(num_cpus=0, scheduling_strategy="SPREAD")
        try:
            answers: list[T] = ray.get([asked.remote(question) for question in questions])
            return answers
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None

    def run(
        self,
        agents: Sequence[Agent],
        steps: Steps,
        network: Network,
        limits: Limits,
        checkpoint: Checkpoint | None,
        warm: Sequence[Point] | None,
        watch: Watch,
    ) -> Outcome:
        pace = pace_of(self.clock, self.pace)
        ray = _connected(self.address)
        processors = int(ray.cluster_resources().get("CPU", 1))
        workers = self.workers or max(1, processors)
        if workers < 1:
            raise InvalidInput(f"workers counts actors: at least 1, not {workers!r}.")
        job = job_of(agents, steps, network, limits, checkpoint, workers, pace)
        tasks = tasks_of(job, agents, warm)
        occupies = dict(self.resources) or {"CPU": min(1.0, processors / (job.processes + 1))}
        with ctrl_c() as pressed:
            for remaining in reversed(range(self.restarts + 1)):
                desk = Desk(job)
                try:
                    return self._attempt(ray, job, tasks, desk, occupies, watch, pressed)
                except PartyLost as lost:
                    if checkpoint is None or not remaining:
                        return desk.ended(lost)
                except NumericalError as error:
                    return desk.ended(error)
        raise AssertionError("every attempt ends in one way or another")

    def _attempt(
        self,
        ray: Any,
        job: Job,
        tasks: Sequence[Task],
        desk: Desk,
        occupies: Mapping[str, float],
        watch: Watch,
        pressed: threading.Event,
    ) -> Outcome:
        """One start of all actors, until they are done or one is lost."""
        nodes = {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
        host = "127.0.0.1" if len(nodes) == 1 else ""
        run_id = uuid.uuid4().hex
        waiting = self._actors if self._actors is not None else []
        workers = [waiting.pop() if waiting else _actor(ray, occupies) for _ in tasks]
        whole = False
        try:
            streams = [
                worker.work.remote(job, task, run_id, self.deadline, host)
                for worker, task in zip(workers, tasks, strict=True)
            ]
            outcome = _followed(ray, job, workers, streams, desk, watch, pressed)
            whole = True
            return outcome
        finally:
            if whole and self._actors is not None:
                self._actors.extend(workers)
            else:
                for worker in workers:
                    ray.kill(worker)


def _answered(question: Callable[[], T]) -> T:
    return question()


class _Part:
    """One agent's part of a Dataset: its blocks are fetched where the agent lives."""

    def __init__(self, blocks: Sequence[Any], rows: Rows):
        self.blocks, self.rows = list(blocks), replace(rows, frame=None)

    def __call__(self) -> Table:
        import pyarrow as pa
        import ray

        return table_of(pa.concat_tables(ray.get(self.blocks)), self.rows)


class _Worker:
    """One process, as an actor."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._addresses: queue.SimpleQueue[Sequence[str]] = queue.SimpleQueue()

    def pid(self) -> int:
        """The number of this process."""
        return os.getpid()

    def stop(self) -> None:
        """Wish that the run ends after the current round."""
        self._stop.set()

    def meet(self, addresses: Sequence[str]) -> None:
        """Tell this process where the others are."""
        self._addresses.put(addresses)

    def work(self, job: Job, task: Task, run_id: str, deadline: float, host: str) -> Iterator[Any]:
        """The run, as this process sees it: its address, then each outcome so far, and at last the end or an error."""
        self._stop.clear()
        host = host or _own_address()
        news: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def meet(address: str) -> Sequence[str]:
            news.put(("address", address))
            return self._addresses.get()

        def whole() -> None:
            try:
                with linked(job, task.process, run_id, deadline, host, meet) as carrier:
                    outcome = work(
                        job,
                        task,
                        carrier,
                        stop_wished=self._stop.is_set,
                        keep=lambda outcome: news.put(("kept", outcome)),
                    )
                news.put(("end", outcome))
            except Exception as error:
                news.put(("error", error))

        threading.Thread(target=whole, daemon=True).start()
        kind = ""
        while kind not in ("end", "error"):
            kind, thing = news.get()
            yield kind, thing


def _own_address() -> str:
    import ray

    address: Any = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    return str(address)


def _connected(address: str | None) -> Any:
    try:
        import ray
    except ImportError as missing:
        raise MissingExtra("the ray engine", "ray") from missing
    if not ray.is_initialized():
        os.environ.update({name: value for name, value in QUIET.items() if name not in os.environ})
        ray.init(address or "local", include_dashboard=False, log_to_driver=False, logging_level=logging.WARNING)
    return ray


def _actor(ray: Any, occupies: Mapping[str, float]) -> Any:
    others = {name: amount for name, amount in occupies.items() if name not in ("CPU", "GPU")}
    options = {"num_cpus": occupies.get("CPU", 0), "num_gpus": occupies.get("GPU", 0), "resources": others or None}
    return ray.remote(_Worker).options(**options, scheduling_strategy="SPREAD", max_concurrency=4).remote()


def _followed(
    ray: Any,
    job: Job,
    workers: Sequence[Any],
    streams: Sequence[Any],
    desk: Desk,
    watch: Watch,
    pressed: threading.Event,
) -> Outcome:
    """Hear what the processes say until all have come to an end."""
    addresses: dict[int, str] = {}
    ends: dict[int, Outcome] = {}
    errors: list[CoterieError] = []
    number_of = {stream: process for process, stream in enumerate(streams)}
    open_streams = list(streams)
    while open_streams:
        ready, _ = ray.wait(open_streams, timeout=0.2)
        if pressed.is_set():
            workers[job.process_of[0]].stop.remote()
        for stream in ready:
            process = number_of[stream]
            try:
                kind, thing = ray.get(next(stream))
            except StopIteration:
                open_streams.remove(stream)
                continue
            except ray.exceptions.RayActorError as error:
                lost = PartyLost(f"{job.called(process)} stopped answering: the actor died.")
                if job.pace is None or len(addresses) < job.processes:
                    raise lost from error
                # In real time the others go on, and find out by themselves.
                errors.append(lost)
                open_streams.remove(stream)
                continue
            match kind:
                case "address":
                    addresses[process] = thing
                    if len(addresses) == job.processes:
                        for worker in workers:
                            worker.meet.remote([addresses[other] for other in range(job.processes)])
                case "kept":
                    desk.keep(process, thing)
                    if process == job.process_of[0] and watch(thing.history[-1].round, thing.history[-1]) is True:
                        workers[process].stop.remote()
                case "end" if thing.error is None:
                    ends[process] = thing
                case "end":
                    errors.append(thing.error)
                case "error":
                    errors.append(thing)
    if errors:
        raise root_cause(errors)
    return put_together([ends[process] for process in range(job.processes)], job)
