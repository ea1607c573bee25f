"""Send the numbers of a run to a callback `(name, value, step)` and to the logger "coterie".

    co.solve(..., callback=print)
    co.solve(..., callback=sinks.mlflow())                 metrics of the active MLflow run
    co.solve(..., callback=sinks.tensorboard("runs/1"))    event files for TensorBoard
    logging.getLogger("coterie").setLevel(logging.DEBUG)   a line per certificate; INFO: where a run
    begins and ends

Each certificate on the way gives its `gap`, `primal`, `dual`, `bits` and `seconds`, and the step is
its round. A callback that returns True stops the run there, with the best model so far.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from coterie.api.progress import progress_watch
from coterie.errors import MissingExtra
from coterie.run.rounds import Watch
from coterie.run.stopping import Record

Sink = Callable[[str, float, int], object]
LOGGER = logging.getLogger("coterie")
LOGGER.addHandler(logging.NullHandler())
MEASURES = ("gap", "primal", "dual", "bits", "seconds")


def mlflow() -> Sink:
    """Log to the active MLflow run, or to a new one."""
    log_metric = _module("mlflow").log_metric
    return lambda name, value, step: log_metric(name, value, step=step)


def tensorboard(folder: str | Path) -> Sink:
    """Write event files into a folder that TensorBoard shows."""
    writer = _module("tensorboardX").SummaryWriter(str(folder))

    def sink(name: str, value: float, step: int) -> None:
        writer.add_scalar(name, value, step)
        writer.flush()

    return sink


@contextmanager
def live_line(progress: bool | None, callback: Sink | None, title: str) -> Iterator[Watch]:
    """Show a run on the terminal, with this title, and call the callback with its numbers."""
    with progress_watch(progress, title) as watch:
        yield with_callback(watch, callback)


def with_callback(watch: Watch, callback: Sink | None) -> Watch:
    """Make a watch that also logs every new certificate, and gives its numbers to the callback.

    The run stops if the callback returns True.
    """
    seen: Record | None = None

    def follow(t: int, record: Record | None) -> bool:
        nonlocal seen
        watch(t, record)
        if record is None or record is seen or record.round != t:
            return False
        seen = record
        LOGGER.debug(
            "round %d: gap %.3g, %d bits, %.3g s", t, record.gap, record.bits, record.seconds
        )
        if callback is None:
            return False
        answers = [callback(name, float(getattr(record, name)), t) for name in MEASURES]
        return any(answer is True for answer in answers)

    return follow


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise MissingExtra(f"the {name} sink", "tracking") from None
