"""Labels of survival data: (time, event), and perhaps the entry and the stratum of a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from coterie.data.labels import Labels
from coterie.errors import InvalidData
from coterie.numerics.arrays import FloatArray

TIME, EVENT, ENTRY, STRATUM = range(4)
"""The columns of labels."""
ROLES = ("time", "event", "entry", "strata")
"""What they are called where columns of a file are named."""


class SurvivalLabels(Labels):
    """Columns of times and events, and perhaps of entries and strata."""

    roles: ClassVar[tuple[str, ...]] = ROLES
    needed: ClassVar[int] = 2

    def made(self, values: Mapping[str, npt.NDArray[Any]]) -> FloatArray:
        return survival_labels(**{role: values.get(role) for role in ROLES})

    def placeholder(self, y: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A time after its entry."""
        if y.ndim == 2 and y.dtype.kind == "f":
            y[:, TIME] += 1
        return y


def survival_labels(time: Any, event: Any, entry: Any = None, strata: Any = None) -> FloatArray:
    """Labels of survival data, a row for each row: what `solve` takes for y where the loss is
    "cox".

    time    when it ended, from 0
    event   whether that was an event (1 or True), or the end of what is known (0 or False)
    entry   after what time the row was under observation, if not from the beginning (left
            truncation)
    strata  rows of different strata have baseline hazards of their own: numbers or text
    """
    given = {"time": time, "event": event, "entry": entry, "strata": strata}
    columns = {name: np.asarray(values) for name, values in given.items() if values is not None}
    for name, values in columns.items():
        if values.ndim != 1 or len(values) != len(columns["time"]):
            raise InvalidData(
                f"{name} has shape {values.shape}; give one value for each of "
                f"{columns['time'].size} rows."
            )
        if name != "strata" and values.dtype.kind not in "biuf":
            raise InvalidData(f"{name} holds {values.dtype}, not numbers. {CONVERT}")
    if strata is not None:
        columns["strata"] = np.unique(columns["strata"], return_inverse=True)[1]
        columns.setdefault("entry", np.full(len(columns["time"]), BEFORE))
    return np.column_stack([columns[name].astype(float) for name in given if name in columns])


CONVERT = "Give times as numbers, e.g. of days, and events as 1 and 0."
BEFORE = -1.0
"""An entry before every time."""


def wrong_labels(labels: npt.NDArray[Any]) -> tuple[int, str, str] | None:
    """The first row whose label cannot be used, which of its values is wrong, and what is wrong
    with it.
    """
    time = labels[:, TIME]
    event = labels[:, EVENT]
    negative = "has the time {time:g}; times are not negative"
    checks = [("time", time < 0, negative), ("event", (event != 0) & (event != 1), EVENTS)]
    if labels.shape[1] > ENTRY:
        late = "enters at {entry:g} and leaves at {time:g}; it must enter before"
        checks.append(("entry", labels[:, ENTRY] >= time, late))
    for noun, wrong, words in checks:
        rows = np.flatnonzero(wrong)
        if rows.size:
            i = int(rows[0])
            if labels.shape[1] > ENTRY:
                entry = float(labels[i, ENTRY])
            else:
                entry = 0.0
            return i, noun, words.format(time=float(time[i]), event=float(event[i]), entry=entry)
    return None


EVENTS = "has the event {event:g}; give 1 for an event and 0 for none until then (censored)"
