"""Spark: agents live in the tasks of one barrier stage; words travel on streams between the tasks.

Spark starts all tasks together, next to their data, and tells each where the others are (`allGather`, once, because
each call sleeps a second). Where a task dies and there is a checkpoint, Spark itself starts the stage again, which goes
on from the newest snapshot that all processes have. For that, a shuffle stands behind the stage: a barrier stage whose
result is collected directly is never retried.

Where barrier stages are not to be had (dynamic allocation forbids them), `Spark(barrier=False)` makes every word a job
of its own, see `replayed`: slow, and as robust as Spark's own jobs.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from coterie.arrays import whole_number
from coterie.bill import Bill
from coterie.data import Table
from coterie.data.remote import RemoteTable, Rows, Source, table_of
from coterie.engines.engine import Engine, Run
from coterie.engines.local import ctrl_c
from coterie.engines.parcels import pack, unpack
from coterie.engines.processes import OutcomeStore, ProcessSpec, RunSpec, live, put_together, root_cause, unless_error
from coterie.engines.reception import Door, at_reception, reception
from coterie.engines.replayed import Replayed
from coterie.errors import CoterieError, InvalidData, InvalidInput, MissingExtra, NumericalError, PartyLost
from coterie.rounds import Outcome

T = TypeVar("T")

RESULT = "process int, thing binary"
"""The columns that a task on a DataFrame hands back."""
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Too few free slots are an error after seconds, not after minutes.
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "2s",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "3",
}
"""Of a session that this engine starts because there is none."""


@dataclass(frozen=True)
class Spark(Engine):
    """Agents in the tasks of a barrier stage, in the active Spark session or a new one on this machine."""

    name: ClassVar[str] = "spark"
    summary: ClassVar[str] = "in the tasks of a barrier stage of the active Spark session"
    turn_seconds: ClassVar[float] = 0.001
    start_seconds: ClassVar[float] = 14.0
    needs: ClassVar[tuple[str, ...]] = ("grpc", "pyspark")

    workers: int | None = None
    """How many tasks; by default one per agent, but no more than Spark runs at the same time."""
    deadline: float = 30.0
    """Seconds of silence after which a task is lost."""
    barrier: bool = True
    """Whether all tasks run at the same time and talk to each other; if not, every word is a job."""

    def __post_init__(self) -> None:
        if self.workers is not None:
            whole_number("workers", self.workers)

    @classmethod
    def missing(cls) -> str | None:
        no_java = "Spark needs Java 17 or newer (Debian: apt install default-jre-headless), or JAVA_HOME"
        return super().missing() or (None if _java() else no_java)

    _frame: Any = field(default=None, repr=False, compare=False)
    """A DataFrame whose partitions are the agents' data."""

    def hosting(self, data: Any, agents: Any) -> tuple[Engine, list[Source]] | None:
        if not isinstance(data, Rows):
            return super().hosting(data, agents)
        if not hasattr(data.frame, "mapInArrow"):
            raise InvalidData(f"engine 'spark' takes Rows of a Spark DataFrame, not of {type(data.frame).__name__}.")
        count = None if agents is None else whole_number("agents", agents)
        context = data.frame.sparkSession.sparkContext
        frame = _with_arrays(data.frame)
        parts = frame.rdd.getNumPartitions()
        slots = self.workers or context.defaultParallelism if self.barrier else max(parts, count or 0)
        if count is not None and count > slots:
            raise InvalidInput(
                f"agents={agents}: each partition is a task, and this Spark runs {slots} at the same time. "
                f"Give agents={slots} or fewer, or more executors."
            )
        frame = frame.repartition(count) if count is not None else frame.coalesce(min(parts, slots))
        described = replace(data, frame=None)
        return replace(self, _frame=frame), [_Partition(described, k) for k in range(frame.rdd.getNumPartitions())]

    def ask(self, questions: Sequence[Callable[[], T]]) -> list[T]:
        if self._frame is None:
            answers = _session().sparkContext.parallelize(list(enumerate(questions)), len(questions)).map(_answered)
            found = dict(answers.collect())
        else:
            key = secrets.token_bytes(32)
            found = _collected(self._frame.mapInArrow(_AnsweredThere(questions, key), RESULT), key)
        return [unless_error(found[agent]) for agent in range(len(questions))]

    def run(self, run: Run) -> Outcome:
        context = _session().sparkContext
        if not self.barrier:
            return self._run_jobs(run)
        slots = context.defaultParallelism if self._frame is None else len(run.agents)
        if self.workers is not None and not 1 <= self.workers <= slots:
            raise InvalidInput(
                f"workers={self.workers!r}, but this Spark runs {slots} tasks at the same time: give 1 to {slots}."
            )
        spec = RunSpec.of(run, self.workers or slots)
        specs = spec.shared_out(run)
        store = OutcomeStore(spec)
        host = context.getConf().get("spark.driver.host", "127.0.0.1")
        with ctrl_c() as pressed, reception(store, run.watch, pressed, host) as door:
            task = _Task(spec, uuid.uuid4().hex, self.deadline, door, context.master.startswith("local"))
            try:
                if self._frame is None:
                    stage = context.parallelize(specs, spec.processes).barrier().mapPartitions(task)
                    found = dict((stage if run.checkpoint is None else stage.repartition(1)).collect())
                else:
                    key = secrets.token_bytes(32)
                    there = self._frame.mapInArrow(_TaskThere(task, specs, key), RESULT, barrier=True)
                    found = _collected(there if run.checkpoint is None else there.repartition(1), key)
            except Exception as error:
                if not _is_sparks(error):
                    raise
                return store.ended(_lost(error, spec))
        troubles = [end.error if isinstance(end, Outcome) else end for end in found.values()]
        if errors := [trouble for trouble in troubles if trouble is not None]:
            cause = root_cause(errors)
            if isinstance(cause, NumericalError | PartyLost):
                return store.ended(cause)
            raise cause
        return put_together([found[process] for process in range(spec.processes)], spec)

    def _run_jobs(self, run: Run) -> Outcome:
        """The run at the driver, which visits agents by one job for each word."""
        spec = RunSpec.of(replace(run, checkpoint=None), len(run.agents))

        def visit(questions: Sequence[Callable[[], Any]]) -> list[Any]:
            try:
                return self.ask(questions)
            except Exception as error:
                raise _lost(error, spec) if _is_sparks(error) else error from None

        transport = Replayed(run.network, Bill(run.network), run.names, visit, run.secure_sums)
        there = [replace(agent, data=_left_there(agent.data), scratch={}) for agent in run.agents]
        with ctrl_c() as pressed:
            return replace(run, agents=there).on(transport, pressed.is_set)


@dataclass(frozen=True)
class _Task:
    """One process, as a task of the barrier stage."""

    spec: RunSpec
    run_id: str
    deadline: float
    door: Door
    one_machine: bool

    def __call__(self, specs: Iterable[ProcessSpec]) -> Iterator[tuple[int, Outcome | Exception]]:
        from pyspark import BarrierTaskContext

        context = BarrierTaskContext.get()
        (own,) = specs
        host = "127.0.0.1" if self.one_machine else context.getTaskInfos()[own.process].address.rpartition(":")[0]
        stop = threading.Event()
        try:
            with at_reception(self.door, own.process, stop) as keep:
                known: dict[str, Any] = {"run_id": self.run_id, "deadline": self.deadline, "host": host}
                end: Outcome | Exception = live(
                    self.spec, own, context.allGather, stop_wished=stop.is_set, keep=keep, **known
                )
        except CoterieError as error:
            end = error
        trouble = end.error if isinstance(end, Outcome) else end
        if isinstance(trouble, PartyLost) and self.spec.folder is not None:
            raise trouble  # Spark starts the stage again.
        yield own.process, end


# -- data of jobs that come again --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Broadcast:
    """A table that Spark keeps where it was needed once."""

    sent: Any

    def __call__(self) -> Table:
        table: Table = self.sent.value
        return table


def _left_there(table: Table) -> RemoteTable:
    """A stand-in for a table, which is sent at most once, and not with every job."""
    fetch = table.fetch if isinstance(table, RemoteTable) else _Broadcast(_session().sparkContext.broadcast(table))
    return RemoteTable(X=np.empty((0, table.d), table.X.dtype), name=table.name, fetch=fetch)


# -- data in the partitions of a DataFrame ----------------------------------------------------------------------------


class _Partition:
    """The rows of the partition that this task works on."""

    at_hand: ClassVar[Any] = None
    """As an Arrow table."""

    def __init__(self, rows: Rows, number: int):
        self.rows, self.name = rows, f"partition {number}"

    def __call__(self) -> Table:
        return table_of(_Partition.at_hand, self.rows, self.name)


def _taken(batches: Iterable[Any]) -> int:
    """Put the rows of this task's partition at hand; the number of the partition."""
    import pyarrow as pa
    from pyspark import TaskContext

    held = list(batches)
    _Partition.at_hand = pa.Table.from_batches(held) if held else pa.table({})
    context = TaskContext.get()
    assert context is not None
    return int(context.partitionId())


def _sent(pairs: Iterable[tuple[int, Any]], key: bytes) -> Iterator[Any]:
    """Numbered things as Arrow batches, which are all that such a task may return."""
    import pyarrow as pa

    for process, thing in pairs:
        columns = [pa.array([process], pa.int32()), pa.array([pack(thing, key)], pa.binary())]
        yield pa.record_batch(columns, ["process", "thing"])
    _Partition.at_hand = None


def _collected(frame: Any, key: bytes) -> dict[int, Any]:
    return {row.process: unpack(bytes(row.thing), key) for row in frame.collect()}


@dataclass(frozen=True)
class _AnsweredThere:
    questions: Sequence[Callable[[], Any]]
    key: bytes = field(repr=False)

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        process = _taken(batches)
        return _sent([_answered((process, self.questions[process]))], self.key)


@dataclass(frozen=True)
class _TaskThere:
    task: _Task
    specs: Sequence[ProcessSpec]
    key: bytes = field(repr=False)

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        number = _taken(batches)
        return _sent(self.task([self.specs[number]]), self.key)


def _answered(numbered: tuple[int, Callable[[], T]]) -> tuple[int, T | CoterieError]:
    agent, question = numbered
    try:
        return agent, question()
    except CoterieError as error:
        return agent, error


def _with_arrays(frame: Any) -> Any:
    """The frame with the vectors of Spark's machine learning library as plain arrays."""
    from pyspark.ml.functions import vector_to_array
    from pyspark.ml.linalg import VectorUDT

    for part in frame.schema.fields:
        if isinstance(part.dataType, VectorUDT):
            frame = frame.withColumn(part.name, vector_to_array(part.name))
    return frame


def _is_sparks(error: Exception) -> bool:
    return type(error).__name__ in ("Py4JJavaError", "PySparkException", "SparkRuntimeException")


def _lost(error: Exception, spec: RunSpec) -> PartyLost:
    """Spark's report of a task that died, as the party that was lost."""
    found = re.search(r"barrier task (?:Result|ShuffleMap)Task\(\d+, (\d+)\)", str(error))
    found = found or re.search(r"Task (\d+) in stage", str(error)) or re.search(r"Lost task (\d+)\.", str(error))
    if found is None or "PYTHON_EXCEPTION" in str(error):
        raise error
    reason = "its Python process died" if "exited unexpectedly" in str(error) else "its task failed"
    lost = PartyLost(f"{spec.called(int(found[1]))} stopped answering: {reason}.")
    lost.__cause__ = error
    return lost


# -- Spark itself ------------------------------------------------------------------------------------------------------


def _session() -> Any:
    try:
        from pyspark.sql import SparkSession
    except ImportError as missing:
        raise MissingExtra("the spark engine", "spark") from missing
    if (active := SparkSession.getActiveSession()) is not None:
        return active
    prepare_environment()
    builder = SparkSession.builder.master(f"local[{max(2, os.cpu_count() or 2)}]").appName("coterie")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def prepare_environment() -> None:
    """Tell Spark where Java and Python are, unless somebody has, and to stay on this machine."""
    java = _java()
    if java is None:
        raise InvalidInput(
            "Spark needs Java 17 or newer: install it (Debian: apt install default-jre-headless) or set JAVA_HOME."
        )
    os.environ.setdefault("JAVA_HOME", str(java))
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _java() -> Path | None:
    """Where Java is: JAVA_HOME, or on the path."""
    if home := os.environ.get("JAVA_HOME"):
        return Path(home)
    if java := shutil.which("java"):
        return Path(java).resolve().parents[1]
    return None
