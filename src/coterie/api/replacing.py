"""Which result a folder keeps: a result gives way to a better one of the same question, never to a
failure.

    same question     the same problem, split, preparation, columns, classes and data: the smaller
                      gap stays
    other question    the new result takes the place, unless the run failed and the earlier one did
                      not

What may not take the place of a result is written into a folder of its own inside: nothing is lost.
"""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path as FilePath
from typing import Any

from coterie.api.path import Path
from coterie.api.result import Result
from coterie.errors import CoterieError
from coterie.run.statuses import Status

LAST = "last-run"
"""The folder of a run that did not replace an earlier result."""
FAILED = frozenset(
    {
        Status.DIVERGED,
        Status.NUMERICAL_ERROR,
        Status.UNBOUNDED,
        Status.INVALID_DATA,
        Status.PARTY_LOST,
        Status.PROTOCOL_ERROR,
        Status.INTERRUPTED,
    }
)
"""Endings after which a model is only the best so far."""


def has_failed(result: Result) -> bool:
    """Whether the run ended by an error or by hand, and not by its certificate or a limit."""
    return result.error is not None or result.status in FAILED


def why_kept(folder: FilePath, result: Result) -> str | None:
    """Why the result in that folder must stay; None if the new one takes its place."""
    old = _loaded(Result, folder)
    return None if old is None else _why([old], [result])


def why_path_kept(folder: FilePath, path: Path) -> str | None:
    """The same for the path in that folder: its worst result counts."""
    old = _loaded(Path, folder)
    if old is None:
        return None
    if old.strengths != path.strengths and not any(map(has_failed, path.results)):
        return None
    return _why(old.results, path.results)


def place_for(folder: FilePath, why: str | None) -> FilePath:
    """Where a new result is written: that folder, or one inside if the earlier result stays."""
    if why is None:
        shutil.rmtree(folder / LAST, ignore_errors=True)
        return folder
    return folder / LAST


def kept_note(folder: FilePath, why: str) -> str:
    """The sentences that say that an earlier result stays, and where the new one is."""
    return f"The earlier result in {folder} stays: {why}. This run is in {folder / LAST}."


def _why(old: Any, new: Any) -> str | None:
    failed = [result for result in new if has_failed(result)]
    if failed and not any(map(has_failed, old)):
        return f"this run ended with {failed[0].status} ({failed[0].reason.rstrip('.')})"
    if any(map(has_failed, old)) and not failed:
        return None
    if len(old) != len(new) or not all(map(same_question, old, new)):
        return None
    before, now = (max(map(_gap, results)) for results in (old, new))
    return f"its gap is {before:.3g}, and that of this run {now:.3g}" if before < now else None


def _gap(result: Result) -> float:
    gap = float(result.certificate.gap)
    return math.inf if math.isnan(gap) else gap


def same_question(old: Result, new: Result) -> bool:
    """Whether both results answer the same question about the same data, so that their gaps can be
    compared.
    """
    return _question(old) == _question(new)


def _question(result: Result) -> str:
    certificate, model = result.certificate, result.model
    settings = {
        name: certificate.settings.get(name) for name in ("problem", "split", "prepare", "classes")
    }
    participants = [
        [participant.name, participant.rows, participant.columns, participant.digest]
        for participant in certificate.participants
    ]
    columns = None if model.columns is None else list(model.columns)
    return json.dumps([settings, participants, columns], sort_keys=True, default=str)


def _loaded(kind: Any, folder: FilePath) -> Any:
    """The result or path in that folder, if there is one that can be read."""
    try:
        return kind.load(folder)
    except (CoterieError, OSError):
        return None
