"""Spark: agents run in the tasks of one job, which send messages on streams between the tasks.

The tasks read their rows once, close to where the rows are stored, and stay: they answer queries
and run, see `worker_connections`. If a task dies, the job ends; with a checkpoint, another job
continues from the newest snapshot that all processes have.

All tasks must run at the same time. Spark's barrier stages would ensure that, but they refuse every
frame that was made by `coalesce` or `union`, and more partitions than slots could not be put
together without a shuffle. So the driver starts no more tasks than there are slots, and waits until
all of them have connected.

If tasks cannot stay, or cannot reach each other, `Spark(barrier=False)` makes every collective a
job of its own, see `replayed`: slow, and as robust as Spark's own jobs.
"""

from __future__ import annotations

import re
import secrets
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

from coterie.data import Table
from coterie.data.remote import Rows, Source, listed, table_of
from coterie.data.remote_table import RemoteTable, keep, keeping
from coterie.engines.engine import Engine, Run
from coterie.engines.local import ctrl_c
from coterie.engines.processes import RunSpec, assigned, pace_of, unless_error
from coterie.engines.replayed import Replayed
from coterie.engines.sealed import pack, unpack
from coterie.engines.spark_session import java_home, session, this_interpreter
from coterie.engines.supervisor import Supervised, supervise
from coterie.engines.worker_connections import DriverAddress, WorkerConnections, answered, serve
from coterie.errors import CoterieError, InvalidData, InvalidInput, PartyLost
from coterie.numerics.arrays import whole_number
from coterie.run.agent import left_there
from coterie.run.bill import Bill
from coterie.run.rounds import Outcome
from coterie.run.site import SiteForm

T = TypeVar("T")

LEAVE_SECONDS = 3.0
"""The time that tasks have to leave before they are cancelled."""
WHY_SECONDS = 5.0
"""The time to wait for Spark's report on a lost task."""
RESULT = "process int, thing binary"
"""The columns that a task on a DataFrame returns."""


@dataclass(frozen=True)
class Spark(Supervised):
    """Agents in the tasks of one job, in the active Spark session or a new one on this machine."""

    name: ClassVar[str] = "spark"
    summary: ClassVar[str] = "in the tasks of one job of the active Spark session"
    turn_seconds: ClassVar[float] = 0.001
    start_seconds: ClassVar[float] = 14.0
    needs: ClassVar[tuple[str, ...]] = ("grpc", "pyspark")

    workers: int | None = None
    """The number of tasks; by default one per agent, but no more than Spark runs at the same time.
    """
    barrier: bool = True
    """Whether all tasks run at the same time and send messages to each other; if not, every
    collective is a job.
    """

    def __post_init__(self) -> None:
        if self.workers is not None:
            whole_number("workers", self.workers)
        super().__post_init__()

    @classmethod
    def missing(cls) -> str | None:
        missing = super().missing()
        if missing is None and not java_home():
            return (
                "Spark needs Java 17 or newer (Debian: apt install default-jre-headless), or "
                "JAVA_HOME"
            )
        return missing

    _stage: _Stage | None = field(default=None, repr=False, compare=False)
    """The tasks that read the data."""

    def hosting(self, data: Any, agents: Any) -> tuple[Engine, list[Source]] | None:
        if not isinstance(data, Rows):
            hosted = super().hosting(data, agents)
            if hosted is None or not self.barrier or self._stage is not None:
                return hosted
            _, sources = hosted
            tasks = self._tasks(session().sparkContext, len(sources))
            return replace(self, _stage=_Stage(tasks, len(sources))), sources
        return self._hosting_rows(data, agents)

    def _hosting_rows(self, data: Rows, agents: Any) -> tuple[Engine, list[Source]]:
        if not hasattr(data.frame, "mapInArrow"):
            raise InvalidData(
                "engine 'spark' takes Rows of a Spark DataFrame, not of "
                f"{type(data.frame).__name__}."
            )
        context = data.frame.sparkSession.sparkContext
        frame = _wanted(data)
        parts = frame.rdd.getNumPartitions()
        if not self.barrier:
            count = parts if agents is None else whole_number("agents", agents)
            tasks = count
            if parts != count:
                frame = frame.repartition(count)
        else:
            slots = self._tasks(context, None)
            count = min(parts, slots) if agents is None else whole_number("agents", agents)
            tasks = min(count, slots)
            # `coalesce` merges partitions without moving rows; `repartition` moves rows, if there
            # are too few partitions.
            if parts > tasks:
                frame = frame.coalesce(tasks)
            elif parts < tasks:
                frame = frame.repartition(tasks)
        described = replace(data, frame=None)
        homes = assigned(count, tasks)
        name = "partition" if count == parts else "part"
        sources: list[Source] = []
        for agent, home in enumerate(homes):
            shares = homes.count(home)
            sources.append(
                _Partition(described, f"{name} {agent}", agent - homes.index(home), shares)
            )
        return replace(self, _stage=_Stage(tasks, count, frame)), sources

    def _tasks(self, context: Any, agents: int | None) -> int:
        """The number of tasks to run at the same time: at most the number of agents, and `workers`
        if given.
        """
        java = context._jsc.sc()
        slots = max(
            1, java.maxNumConcurrentTasks(java.resourceProfileManager().defaultResourceProfile())
        )
        if self.workers is not None and not 1 <= self.workers <= slots:
            raise InvalidInput(
                f"workers={self.workers!r}, but this Spark runs {slots} tasks at the same time: "
                f"give 1 to {slots}."
            )
        return min(self.workers or slots, agents or slots)

    def held(self) -> AbstractContextManager[None]:
        if self._stage is None or not self.barrier:
            return nullcontext()
        return self._stage.held()

    def ask(self, questions: Sequence[Callable[[], T]]) -> list[T]:
        if self.barrier and self._stage is not None:
            with self.held():
                return [unless_error(answer) for answer in self._stage.ask(questions)]
        if self._stage is None:
            answers = (
                session()
                .sparkContext.parallelize(list(enumerate(questions)), len(questions))
                .map(_answered)
            )
            found = dict(answers.collect())
        else:
            key = secrets.token_bytes(32)
            there = self._stage.frame.mapInArrow(_AnsweredThere(questions, key), RESULT)
            found = {row.process: unpack(bytes(row.thing), key) for row in there.collect()}
        return [unless_error(found[agent]) for agent in range(len(questions))]

    def run(self, run: Run) -> Outcome:
        if not self.barrier:
            return self._run_jobs(run)
        pace = pace_of(self.clock, self.pace)
        count = len(run.agents)
        stage = self._stage or _Stage(self._tasks(session().sparkContext, count), count)
        spec = RunSpec.of(run, stage.tasks, pace)
        specs = spec.shared_out(run)
        stage.called = spec.called

        @contextmanager
        def start() -> Iterator[WorkerConnections]:
            try:
                connections = stage.begun()
                connections.begin(spec, specs, run_id=uuid.uuid4().hex, deadline=self.deadline)
                yield connections
            except BaseException:
                stage.close()
                raise

        with stage.held():
            return supervise(spec, run.watch, self.restarts, start)

    def _run_jobs(self, run: Run) -> Outcome:
        """Run at the driver, with one job for each collective."""
        count = len(run.agents)
        stage = _Stage(count, count)
        stage.called = RunSpec.of(replace(run, checkpoint=None), count).called

        def visit(questions: Sequence[Callable[[], Any]]) -> list[Any]:
            try:
                return self.ask(questions)
            except Exception as error:
                raise stage._why(-1, error) if _is_sparks(error) else error from None

        transport = Replayed(run.network, Bill(run.network), run.names, visit, run.secure_sums)
        there = [_left_there(agent) for agent in run.agents]
        with ctrl_c() as pressed:
            return replace(run, agents=there).on(transport, pressed.is_set)


class _Stage:
    """The tasks of one job: they read their rows once, and answer and run while an operation holds
    them.
    """

    def __init__(self, tasks: int, agents: int, frame: Any = None):
        self.tasks = tasks
        self.frame = frame
        self.called: Callable[[int], str] = "task {}".format
        self._homes = assigned(agents, tasks)
        self._connections: WorkerConnections | None = None
        self._holders = 0
        self._failure = list[Exception]()
        self._ended = threading.Event()
        self._group = ""

    @contextmanager
    def held(self) -> Iterator[None]:
        """Meanwhile, tasks that were begun stay."""
        self._holders += 1
        try:
            yield
        finally:
            self._holders -= 1
            if not self._holders:
                self.close()

    def ask(self, questions: Sequence[Callable[[], T]]) -> list[T | CoterieError]:
        """The answers to one question per agent."""
        by_task: dict[int, list[Any]] = {}
        for home, question in zip(self._homes, questions, strict=True):
            by_task.setdefault(home, []).append(question)
        try:
            answers = self.begun().ask(by_task)
        except BaseException:
            self.close()
            raise
        return [answer for task in sorted(answers) for answer in answers[task]]

    def begun(self) -> WorkerConnections:
        """The tasks, started if they are not there."""
        if self._connections is not None and not self._connections.whole:
            self.close()
        if self._connections is None:
            from pyspark import InheritableThread, cloudpickle

            context = session().sparkContext
            host = context.getConf().get("spark.driver.host", "127.0.0.1")
            self._connections = WorkerConnections(self.tasks, host, cloudpickle.dumps, self._why)
            self._failure = []
            self._ended = threading.Event()
            self._group = f"coterie-{uuid.uuid4().hex}"
            given = context, self._connections, self._failure, self._ended
            InheritableThread(target=self._work, args=given, daemon=True).start()
            self._connections.gather()
        return self._connections

    def close(self) -> None:
        """Send the tasks away."""
        connections = self._connections
        self._connections = None
        if connections is not None:
            connections.close()
            if not self._ended.wait(LEAVE_SECONDS):
                session().sparkContext.cancelJobGroup(self._group)
                self._ended.wait(LEAVE_SECONDS)

    def _work(
        self,
        context: Any,
        connections: WorkerConnections,
        failure: list[Exception],
        ended: threading.Event,
    ) -> None:
        try:
            context.setJobGroup(self._group, "Coterie: agents", interruptOnCancel=True)
            with this_interpreter(context):
                if self.frame is None:
                    numbers = context.parallelize(range(self.tasks), self.tasks)
                    job = numbers.mapPartitions(_Serve(connections.driver))
                    job._jrdd  # noqa: B018 - now, with this interpreter
                else:
                    job = self.frame.mapInArrow(_ServeRows(connections.driver), RESULT)
            job.collect()
        except Exception as error:
            failure.append(error)
            connections.fail(error)
        finally:
            ended.set()

    def _why(self, task: int, error: Exception | None) -> Exception:
        """What became of a task, or of all of them (−1)."""
        if error is None:
            self._ended.wait(WHY_SECONDS)
            error = next(iter(self._failure), None)
        text = str(error)
        if re.search(
            r"No module named '(coterie|pyspark|numpy|numba|scipy|msgspec|pyarrow)"
            r"|PYTHON_VERSION_MISMATCH",
            text,
        ):
            lost: CoterieError = InvalidInput(
                "Spark's tasks run a Python that cannot import coterie. Set PYSPARK_PYTHON or "
                "spark.pyspark.python to one that can, on every machine, before the session "
                "starts. On this machine, that is "
                f"{sys.executable}."
            )
        else:
            found = re.search(r"Task (\d+) in stage", text) or re.search(r"Lost task (\d+)\.", text)
            if error is not None and (found is None or "PYTHON_EXCEPTION" in text):
                return error
            reason = (
                "its Python process died" if "exited unexpectedly" in text else "its task failed"
            )
            name = self.called(task if found is None else int(found[1]))
            lost = PartyLost(f"{name} stopped answering: {reason}.", name)
        lost.__cause__ = error
        return lost


@dataclass(frozen=True)
class _Serve:
    driver: DriverAddress

    def __call__(self, numbers: Iterable[int]) -> Iterator[Any]:
        serve(self.driver, *numbers)
        return iter(())


@dataclass(frozen=True)
class _ServeRows:
    driver: DriverAddress

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        _Partition.unread = batches
        serve(self.driver, _task_number())
        _Partition.unread = ()
        return iter(())


# -- data of jobs that come again ------------------------------------------------------------------


@dataclass(frozen=True)
class _Broadcast:
    """A table that Spark keeps where it was needed once."""

    sent: Any

    def __call__(self) -> Table:
        table: Table = self.sent.value
        return table


def _left_there(site: SiteForm) -> SiteForm:
    """The site without its table, which is sent at most once, and not with every job."""
    table = site.data
    if isinstance(table, Table):
        table = RemoteTable.of(table, _Broadcast(session().sparkContext.broadcast(table)))
    return left_there(site, table)


# -- data in the partitions of a DataFrame ---------------------------------------------------------


class _Partition:
    """An agent's rows: those of the partition that this task works on, or an equal share of
    them.
    """

    unread: ClassVar[Iterable[Any]] = ()
    """Arrow batches that Spark has for this task."""

    def __init__(self, rows: Rows, name: str, place: int, shares: int):
        self.rows = rows
        self.name = name
        self.place = place
        self.shares = shares

    def __call__(self) -> Table:
        return keep(("table", self.name), None, self._read)

    def _read(self) -> Table:
        import pyarrow as pa

        if not isinstance(_Partition.unread, list):
            _Partition.unread = list(_Partition.unread)
        whole = pa.Table.from_batches(_Partition.unread) if _Partition.unread else pa.table({})
        first, end = (
            whole.num_rows * place // self.shares for place in (self.place, self.place + 1)
        )
        if self.place == self.shares - 1:
            _Partition.unread = []  # agents of a task are asked in their order
        return table_of(whole.slice(first, end - first), self.rows, self.name)


def _task_number() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return int(context.partitionId())


@dataclass(frozen=True)
class _AnsweredThere:
    questions: Sequence[Callable[[], Any]]
    key: bytes = field(repr=False)

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """The answer as an Arrow batch, which is all that such a task may return."""
        import pyarrow as pa

        _Partition.unread = batches
        task = _task_number()
        with keeping():
            thing = pack(answered(self.questions[task]), self.key)
        yield pa.record_batch(
            [pa.array([task], pa.int32()), pa.array([thing], pa.binary())], ["process", "thing"]
        )


def _answered(numbered: tuple[int, Callable[[], T]]) -> tuple[int, T | CoterieError]:
    agent, question = numbered
    return agent, answered(question)


def _wanted(rows: Rows) -> Any:
    """The columns of the frame that are asked for; where raw ones are prepared, vectors as plain
    arrays.
    """
    from pyspark.ml.functions import vector_to_array
    from pyspark.ml.linalg import VectorUDT

    frame = rows.frame
    if rows.columns is not None:
        named = [*listed(rows.columns), *listed(rows.target), *rows.row_values.values()]
        # A name that is not there is left to `table_of`, which says what is.
        if all(name in frame.columns for name in named):
            frame = frame.select(*(frame[f"`{name}`"] for name in dict.fromkeys(named)))
    for part in frame.schema.fields if rows.prepare is not None else ():
        if isinstance(part.dataType, VectorUDT):
            frame = frame.withColumn(part.name, vector_to_array(part.name))
    return frame


def _is_sparks(error: Exception) -> bool:
    return type(error).__name__ in ("Py4JJavaError", "PySparkException", "SparkRuntimeException")
