"""Checkpoints: the States of all agents at the end of a round, written so that a crash at any
moment leaves a whole one.

A checkpoint is one `.npz` file per round (plain arrays and a JSON header, never pickle) in a folder
that belongs to one run: the header carries the digest of the problem, the method, the data and the
seed, and another run's folder is refused.
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
from coterie.run.certificate import Point

MEMORY = "memory/"


@dataclass
class Snapshot:
    """All that a run needs to go on as if nothing had happened."""

    round: int
    states: list[Any]
    bill: dict[str, Any] = field(default_factory=dict)
    history: list[list[Any]] = field(default_factory=list)
    best: dict[str, Any] = field(default_factory=dict)
    """The numbers of the best certificates so far,"""
    points: dict[str, list[Point]] = field(default_factory=dict)
    """and by name the points that they are about."""
    memory: dict[str, Any] = field(default_factory=dict)
    """Arrays of the transport, by name."""
    next_look: int | None = None
    """The round after which the next certificate was due."""
    expected_gap: float | None = None
    """The gap that the method expected at the last certificate."""
    method: str | None = None
    """The method of the States, where "auto" chose it, ..."""
    change: list[Any] | None = None
    """... and the numbers of a `Change`, if it was not the first one."""


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
            "history": snapshot.history,
            "best": snapshot.best,
            "next_look": snapshot.next_look,
            "said_gap": snapshot.expected_gap,
            **(
                {}
                if snapshot.method is None
                else {"method": snapshot.method, "change": snapshot.change}
            ),
            "states": [],
        }
        arrays: dict[str, Any] = {}
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
        """Save a snapshot if the disk takes it; what to warn of, if it did not take this one or one
        before.
        """
        try:
            self.save(snapshot)
        except OSError as error:
            why = error.strerror or error
            text = (
                f"the snapshot after round {snapshot.round} could not be written to {self.folder} "
                f"({why})"
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
        """The round of the newest whole snapshot, or −1 if there is none; one of another run is
        refused.
        """
        return next((header["round"] for header, _ in self._whole()), -1)

    def marks(self, name: str) -> dict[int, str]:
        """By their rounds, what the transport remembered under that name in the snapshots that can
        be read, as hex.
        """
        found = {header["round"]: arrays.get(f"{MEMORY}{name}") for header, arrays in self._whole()}
        return {
            round: "" if mark is None else mark.tobytes().hex() for round, mark in found.items()
        }

    def has(self, round: int) -> bool:
        """Whether there is a whole snapshot of that round."""
        return any(header["round"] == round for header, _ in self._whole())

    def load(self, classes: Sequence[type] | Mapping[str, Sequence[type]], round: int) -> Snapshot:
        """The snapshot of that round.

        `classes` are the classes that a State may have and those of the States inside it, from the
        outside in; where "auto" chooses the method, by its name.
        """
        for header, arrays in self._whole():
            if header["round"] == round:
                with readable(self.folder, "checkpoint", InvalidInput):
                    if isinstance(classes, Sequence):
                        return _rebuild(header, arrays, classes)
                    return _rebuild(
                        header, arrays, classes[header.get("method") or next(iter(classes))]
                    )
        raise CorruptFile(
            f"the checkpoint in {self.folder} lacks round {round}, which other parties have; "
            "remove the folder."
        )

    def _whole(self) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Header and arrays of the snapshots that can be read, the newest first; if there are none,
        but damaged ones, that is an error.
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
                    "problem, method or seed. "
                    "Use an empty folder, or repeat the call that wrote it."
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
    """A State as plain values; its arrays go under their path, and a State inside it is taken apart
    likewise.
    """
    if isinstance(value, np.ndarray):
        arrays[path] = value
        return {"array": path}
    if isinstance(value, tuple):
        return {
            "tuple": [
                _taken_apart(part, f"{path}/{index}", arrays) for index, part in enumerate(value)
            ]
        }
    if is_dataclass(value):
        names = [part.name for part in fields(value)]
        return {
            "state": {
                name: _taken_apart(getattr(value, name), f"{path}/{name}", arrays) for name in names
            }
        }
    return {"value": value}


def _put_together(plain: dict[str, Any], arrays: dict[str, Any], classes: Sequence[type]) -> Any:
    """What `_taken_apart` took apart; `classes` are the State's class and those of the States
    inside it.
    """
    if "array" in plain:
        return arrays[plain["array"]]
    if "tuple" in plain:
        return tuple(_put_together(part, arrays, classes) for part in plain["tuple"])
    if "value" in plain:
        return plain["value"]
    for place, own in enumerate(classes):
        if {part.name for part in fields(own)} == set(plain["state"]):
            inner = classes[place + 1 :]
            return own(
                **{
                    name: _put_together(part, arrays, inner)
                    for name, part in plain["state"].items()
                }
            )
    raise InvalidInput(
        "the checkpoint was written by another version of coterie. Use an empty folder."
    )


def _rebuild(header: dict[str, Any], arrays: dict[str, Any], classes: Sequence[type]) -> Snapshot:
    states = [_put_together(plain, arrays, classes) for plain in header["states"]]
    # Before there were pairs from different rounds, a snapshot held the bound of the best round
    # alone.
    best = header["best"] if "best" in header else {"bound": header["bound"]}
    points = {name: _points(name, arrays, len(states)) for name in ("best", "lowest", "highest")}
    memory = {
        name.removeprefix(MEMORY): array
        for name, array in arrays.items()
        if name.startswith(MEMORY)
    }
    kept = (
        header["bill"],
        header["history"],
        best,
        points,
        memory,
        header.get("next_look"),
        header.get("said_gap"),
    )
    return Snapshot(header["round"], states, *kept, header.get("method"), header.get("change"))


def _points(name: str, arrays: dict[str, Any], count: int) -> list[Point]:
    """Everybody's point of that name, if there is one."""
    if f"0/{name} w" not in arrays:
        return []
    return [
        Point(arrays[f"{index}/{name} w"], arrays.get(f"{index}/{name} v"))
        for index in range(count)
    ]
