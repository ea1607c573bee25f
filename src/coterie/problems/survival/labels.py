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
"""The names of these columns, where a user names columns of a file."""


class SurvivalLabels(Labels):
    """Columns of times and events, and perhaps of entries and strata."""

    roles: ClassVar[tuple[str, ...]] = ROLES
    needed: ClassVar[int] = 2

    def made(self, values: Mapping[str, npt.NDArray[Any]]) -> FloatArray:
        return survival_labels(**{role: values.get(role) for role in ROLES})


def survival_labels(time: Any, event: Any, entry: Any = None, strata: Any = None) -> FloatArray:
    """Labels of survival data, one row per row: the y of `solve` with the loss "cox".

    time    the end of the observation, from 0
    event   whether the observation ended with an event (1 or True), or was censored (0 or False)
    entry   the time after which the row was observed, if not from the beginning (left truncation)
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
    in_order = [columns[name].astype(float) for name in given if name in columns]
    return np.column_stack(in_order)


CONVERT = "Give times as numbers, e.g. of days, and events as 1 and 0."
BEFORE = -1.0
"""An entry before every time."""


def wrong_labels(labels: npt.NDArray[Any]) -> tuple[int, str, str] | None:
    """The first row whose label cannot be used, the name of the wrong value, and the problem."""
    time = labels[:, TIME]
    event = labels[:, EVENT]
    negative = "has the time {time:g}; times are not negative"
    not_binary = (event != 0) & (event != 1)
    checks = [("time", time < 0, negative), ("event", not_binary, EVENTS)]
    if labels.shape[1] > ENTRY:
        late = "enters at {entry:g} and leaves at {time:g}; it must enter before"
        checks.append(("entry", labels[:, ENTRY] >= time, late))
    for noun, wrong, words in checks:
        rows = np.flatnonzero(wrong)
        if rows.size:
            row = int(rows[0])
            entry = 0.0
            if labels.shape[1] > ENTRY:
                entry = float(labels[row, ENTRY])
            text = words.format(time=float(time[row]), event=float(event[row]), entry=entry)
            return row, noun, text
    return None


EVENTS = "has the event {event:g}; give 1 for an event and 0 for none until then (censored)"
