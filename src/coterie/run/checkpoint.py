"""Write and read checkpoints: the States of all agents at the end of a round. A crash at any moment
leaves a whole one.

A checkpoint is one `.npz` file per round (plain arrays and a JSON header, never pickle) in a folder
that belongs to one run: the header has the digest of the problem, the method, the data and the
seed, and a run refuses the folder of another one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coterie.data.archives import read_archive, readable, write_archive
from coterie.errors import CorruptFile, InvalidInput
from coterie.numerics.arrays import FloatArray
from coterie.run.certificate import Point

MEMORY = "memory/"
HISTORY = "history"


@dataclass
class Snapshot:
    """The saved state of a run, from which it continues and computes the same bits."""

    round: int
    states: list[Any]
    bill: dict[str, Any] = field(default_factory=dict)
    history: FloatArray = field(default_factory=lambda: np.empty((0, 0)))
    """A row for each certificate."""
    best: dict[str, Any] = field(default_factory=dict)
    """The numbers of the best certificates so far."""
    points: dict[str, list[Point]] = field(default_factory=dict)
    """The points of these certificates, by name."""
    memory: dict[str, Any] = field(default_factory=dict)
    """Arrays of the transport, by name."""
    next_look: int | None = None
    """The round after which the next certificate was due."""
    expected_gap: float | None = None
    """The gap that the method expected at the last certificate."""
    method: str | None = None
    """The method of the States, if "auto" chose it."""
    rescue: list[Any] | None = None
    """The fields of the `Rescue` that led to this method, if it is not the first one."""


class Checkpoint:
    """A folder of snapshots of one run, the two newest kept."""

    def __init__(self, folder: str | Path, identity: str, keep: int = 2):
        self.folder = Path(folder)
        self.identity = identity
        self.keep = keep
        self._warnings: tuple[str, ...] = ()

    def save(self, snapshot: Snapshot) -> Path:
        """Write a snapshot atomically, then drop the ones that are too old."""
        header: dict[str, Any] = {
            "coterie_checkpoint": 1,
            "identity": self.identity,
            "round": snapshot.round,
            "bill": snapshot.bill,
            "best": snapshot.best,
            "next_look": snapshot.next_look,
            "said_gap": snapshot.expected_gap,
        }
        if snapshot.method is not None:
            header["method"] = snapshot.method
            header["rescue"] = snapshot.rescue
        header["states"] = []
        arrays: dict[str, Any] = {HISTORY: snapshot.history}
        for index, state in enumerate(snapshot.states):
            header["states"].append(_taken_apart(state, f"{index}", arrays))
        for name, points in snapshot.points.items():
            for index, point in enumerate(points):
                arrays[f"{index}/{name} w"] = point.w
                if point.v is not None:
                    arrays[f"{index}/{name} v"] = point.v
        arrays |= {f"{MEMORY}{name}": array for name, array in snapshot.memory.items()}
        path = write_archive(self.folder / f"round-{snapshot.round:010d}.npz", header, arrays)
        for old in self._files()[: -self.keep]:
            old.unlink(missing_ok=True)
        return path

    def attempt(self, snapshot: Snapshot) -> tuple[str, ...]:
        """Save a snapshot if the disk takes it; return a warning if it did not take this one or one
        before.
        """
        try:
            self.save(snapshot)
        except OSError as error:
            reason = error.strerror or error
            text = (
                f"the snapshot after round {snapshot.round} could not be written to {self.folder} "
                f"({reason})"
            )
            if not self._warnings:
                logging.getLogger("coterie").warning("%s; the run goes on without it", text)
            self._warnings = (
                f"{text}; a crash would have cost all rounds since the last one that was.",
            )
        return self._warnings

    def forget(self) -> None:
        """Remove all snapshots: the run must begin again."""
        for file in self._files():
            file.unlink(missing_ok=True)

    def newest(self) -> int:
        """The round of the newest whole snapshot, or −1 if there is none. A snapshot of another run
        is refused.
        """
        return next((header["round"] for header, _ in self._whole()), -1)

    def marks(self, name: str) -> dict[int, str]:
        """The transport's array of that name in each readable snapshot, as hex, by round."""
        found: dict[int, str] = {}
        for header, arrays in self._whole():
            mark = arrays.get(f"{MEMORY}{name}")
            found[header["round"]] = "" if mark is None else mark.tobytes().hex()
        return found

    def has(self, round: int) -> bool:
        """Whether there is a whole snapshot of that round."""
        return any(header["round"] == round for header, _ in self._whole())

    def load(self, classes: Sequence[type] | Mapping[str, Sequence[type]], round: int) -> Snapshot:
        """The snapshot of that round.

        `classes` are the classes that a State may have and those of the States inside it, from the
        outside in; if "auto" chooses the method, those of each method, by name.
        """
        for header, arrays in self._whole():
            if header["round"] == round:
                with readable(self.folder, "checkpoint", InvalidInput):
                    if not isinstance(classes, Sequence):
                        classes = classes[header.get("method") or next(iter(classes))]
                    return _rebuild(header, arrays, classes)
        raise CorruptFile(
            f"the checkpoint in {self.folder} lacks round {round}, which other parties have; "
            "remove the folder."
        )

    def _whole(self) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Header and arrays of the readable snapshots, the newest first. If there are only damaged
        ones, that is an error.
        """
        damage: Exception | None = None
        found = False
        for path in reversed(self._files()):
            try:
                header, arrays = read_archive(path, "checkpoint")
                if "seal" not in header or not isinstance(header.get("round"), int):
                    raise CorruptFile(
                        f"{path} has no digest, or no round: an older version of coterie wrote it."
                    )
            except (CorruptFile, InvalidInput) as error:
                damage = error
                continue
            if header.get("identity") != self.identity:
                raise InvalidInput(
                    f"the checkpoint in {self.folder} belongs to another run: other data, "
                    "problem, method or seed. Use an empty folder, or repeat the call that wrote "
                    "it."
                )
            found = True
            yield header, arrays
        if damage is not None and not found:
            raise CorruptFile(
                f"no readable checkpoint is left in {self.folder}; remove the folder to start "
                "again."
            ) from damage

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("round-*.npz"))


def _taken_apart(value: Any, path: str, arrays: dict[str, Any]) -> Any:
    """A State, with the States inside it, as plain values; its arrays are stored under their
    path.
    """
    if isinstance(value, np.ndarray):
        arrays[path] = value
        return {"array": path}
    if isinstance(value, tuple):
        parts = enumerate(value)
        return {"tuple": [_taken_apart(part, f"{path}/{index}", arrays) for index, part in parts]}
    if is_dataclass(value):
        state = {}
        for one in fields(value):
            part = getattr(value, one.name)
            state[one.name] = _taken_apart(part, f"{path}/{one.name}", arrays)
        return {"state": state}
    return {"value": value}


def _put_together(plain: dict[str, Any], arrays: dict[str, Any], classes: Sequence[type]) -> Any:
    """The inverse of `_taken_apart`; `classes` are the State's class and those of the States inside
    it.
    """
    if "array" in plain:
        return arrays[plain["array"]]
    if "tuple" in plain:
        return tuple(_put_together(part, arrays, classes) for part in plain["tuple"])
    if "value" in plain:
        return plain["value"]
    parts = plain["state"]
    for place, own in enumerate(classes):
        if {part.name for part in fields(own)} == set(parts):
            inner = classes[place + 1 :]
            values = {name: _put_together(part, arrays, inner) for name, part in parts.items()}
            return own(**values)
    raise InvalidInput(
        "the checkpoint was written by another version of coterie. Use an empty folder."
    )


def _rebuild(header: dict[str, Any], arrays: dict[str, Any], classes: Sequence[type]) -> Snapshot:
    history = arrays[HISTORY]
    if history.dtype != np.float64 or history.ndim != 2:
        raise ValueError("a history that is no table of numbers")
    states = [_put_together(plain, arrays, classes) for plain in header["states"]]
    memory = {}
    for name, array in arrays.items():
        if name.startswith(MEMORY):
            memory[name.removeprefix(MEMORY)] = array
    return Snapshot(
        header["round"],
        states,
        header["bill"],
        history,
        header["best"],
        {name: _points(name, arrays, len(states)) for name in ("best", "lowest", "highest")},
        memory,
        header.get("next_look"),
        header.get("said_gap"),
        header.get("method"),
        header.get("rescue"),
    )


def _points(name: str, arrays: dict[str, Any], count: int) -> list[Point]:
    """The points of that name of all agents, if there are any."""
    if f"0/{name} w" not in arrays:
        return []
    found = []
    for index in range(count):
        w, v = arrays[f"{index}/{name} w"], arrays.get(f"{index}/{name} v")
        found.append(Point(w, v))
    return found
