"""Decide which result a folder keeps: a better result of the same question replaces one, a failed
run never does.

    same question     the same problem, split, preparation, columns, classes and data: the smaller
                      gap stays
    other question    the new result takes the place, unless the run failed and the earlier one did
                      not

A result that may not replace the earlier one is written into a folder inside: nothing is lost.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import Any

from coterie.api.path import Path
from coterie.api.result import Result
from coterie.errors import CoterieError
from coterie.run.statuses import Status

LAST = "last-run"
"""The folder of a run that did not replace an earlier result."""
FILES = (
    "model.npz",
    "certificate.json",
    "run.json",
    "report.html",
    "bill.json",
    "choice.json",
    "inference.json",
    "last-failure.json",
)
"""The files of a result, with those that commands and studies between organisations add."""
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
    if old is None:
        return None
    return _why([old], [result])


def why_path_kept(folder: FilePath, path: Path) -> str | None:
    """Why the path in that folder must stay; None if the new one takes its place. The worst result
    of a path counts.
    """
    old = _loaded(Path, folder)
    if old is None:
        return None
    if old.strengths != path.strengths and not any(map(has_failed, path.results)):
        return None
    return _why(old.results, path.results)


def place_for(folder: FilePath, why: str | None) -> FilePath:
    """Where a new result is written: that folder, or one inside if the earlier result stays."""
    if why is None:
        remove_result(folder / LAST)
        return folder
    return folder / LAST


def remove_result(folder: FilePath) -> None:
    """Remove the files of a result, and the folder if nothing else is in it."""
    if _is_own(folder):
        remove_path(folder / "path")
        _remove(folder, FILES)


def remove_path(folder: FilePath) -> None:
    """Remove the files of a path of results, and the folder if nothing else is in it."""
    if _is_own(folder):
        for one in folder.glob("strength-[0-9][0-9][0-9]"):
            _remove(one, FILES)
        _remove(folder, ("path.json",))


def _is_own(folder: FilePath) -> bool:
    """Whether this is a folder, and no link to one; not if it cannot be read."""
    try:
        return folder.is_dir() and not folder.is_symlink()
    except OSError:
        return False


def _remove(folder: FilePath, names: Sequence[str]) -> None:
    with contextlib.suppress(OSError):
        for name in names:
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()


def kept_note(folder: FilePath, why: str) -> str:
    """Write that an earlier result stays, why, and where the new one is."""
    return f"The earlier result in {folder} stays: {why}. This run is in {folder / LAST}."


def _why(old: Any, new: Any) -> str | None:
    failed = [result for result in new if has_failed(result)]
    failed_before = any(map(has_failed, old))
    if failed and not failed_before:
        reason = failed[0].reason.rstrip(".")
        return f"this run ended with {failed[0].status} ({reason})"
    if failed_before and not failed:
        return None
    if len(old) != len(new) or not all(map(same_question, old, new)):
        return None
    before = max(map(_gap, old))
    now = max(map(_gap, new))
    if now <= before:
        return None
    return f"its gap is {before:.3g}, and that of this run {now:.3g}"


def _gap(result: Result) -> float:
    gap = float(result.certificate.gap)
    if math.isnan(gap):
        return math.inf
    return gap


def same_question(old: Result, new: Result) -> bool:
    """Whether both results answer the same question about the same data, so that their gaps can be
    compared.
    """
    return _question(old) == _question(new)


def _question(result: Result) -> str:
    """The question that a result answers, as text."""
    certificate = result.certificate
    names = ("problem", "split", "prepare", "classes")
    settings = {name: certificate.settings.get(name) for name in names}
    participants = [
        [participant.name, participant.rows, participant.columns, participant.digest]
        for participant in certificate.participants
    ]
    question = [settings, participants, result.model.columns]
    return json.dumps(question, sort_keys=True, default=str)


def _loaded(kind: Any, folder: FilePath) -> Any:
    """Load the result or path in that folder, if there is one that can be read."""
    try:
        return kind.load(folder)
    except (CoterieError, OSError):
        return None
