"""Kinds of problems. Each has a folder, which holds everything that depends on the kind.

The catalogue finds a folder by its `kind.py`, which defines one `Kind`. `co.register(MyKind)` adds
a kind of another package, with its losses, its model and its methods. This module imports kinds by
name when they are asked for: a problem is below its kind.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coterie.catalogue import Entries

if TYPE_CHECKING:
    from coterie.numerics.arrays import FloatArray
    from coterie.problems.kind import Kind
    from coterie.run.agent import Agent
    from coterie.run.certificate import Point

FIRST = ("linear", "multiclass", "survival")
"""Kinds that are asked first whether a loss is theirs: the others are imported only if it is not.
"""
NAMES = tuple(
    sorted(path.parent.name.replace("_", "-") for path in Path(__file__).parent.glob("*/kind.py"))
)
"""The kinds of this package."""


class Kinds(Entries["type[Kind[Any, Any]]"]):
    """The classes of kinds by name."""

    def __init__(self) -> None:
        super().__init__("coterie.problems", "kind of problem")

    @cached_property
    def _own(self) -> dict[str, type[Kind[Any, Any]]]:
        return {name: _class_of(name) for name in NAMES}

    def __getitem__(self, name: str) -> type[Kind[Any, Any]]:
        # One folder is imported, not all of them.
        if name in NAMES:
            return _class_of(name)
        return super().__getitem__(name)

    def built_in(self) -> Iterator[type[Kind[Any, Any]]]:
        """Those of this package."""
        return iter(self._own.values())

    def takes(self, thing: object) -> bool:
        return inspect.isclass(thing) and issubclass(
            thing, import_module("coterie.problems.kind").Kind
        )

    def is_entry(self, thing: Any) -> bool:
        return "name" in vars(thing)

    def name_of(self, entry: Any) -> object:
        return vars(entry).get("name")

    def lacks(self, entry: Any) -> Iterator[str]:
        if missing := sorted(getattr(entry, "__abstractmethods__", ())):
            yield f"define {', '.join(missing)}"
        for fact in ("name", "called", "model_class"):
            if getattr(entry, fact, None) is None:
                yield f"state its {fact}"
        proof = getattr(entry, "proof", None)
        for fact, protocol in (("introduces", "introduce"), ("proves", "certify")):
            if getattr(proof, fact, None) == ():
                yield (
                    f'write @discloses("what you send") above {protocol}, and {fact} = '
                    f"({protocol},) below it"
                )
        taken = [
            name
            for name in entry.losses
            if any(name in known.losses for known in self._others(entry))
        ]
        if taken:
            yield f"give its loss {taken[0]!r} another name, which is that of another kind"

    def _others(self, entry: Any) -> list[type[Kind[Any, Any]]]:
        known = [*self._own.values(), *self._added.values()]
        return [one for one in known if one.name != entry.name and not one.for_matrices]

    def add(self, entry: type[Kind[Any, Any]]) -> None:
        super().add(entry)
        for method in entry.methods:
            import_module("coterie.methods").METHODS.add(method)

    def remove(self, entry: type[Kind[Any, Any]]) -> None:
        super().remove(entry)
        for method in entry.methods:
            import_module("coterie.methods").METHODS.remove(method)


@cache
def _class_of(name: str) -> type[Kind[Any, Any]]:
    """The kind of that name in this package: the `Kind` that its `kind.py` defines."""
    module = import_module(f"coterie.problems.{name.replace('-', '_')}.kind")
    found: list[type[Kind[Any, Any]]] = [
        thing
        for thing in vars(module).values()
        if KINDS.takes(thing) and thing.__module__ == module.__name__
    ]
    return found[0]


KINDS = Kinds()


@cache
def _made(entry: type[Kind[Any, Any]]) -> Kind[Any, Any]:
    return entry()


def kind_named(name: str) -> Kind[Any, Any]:
    """The kind of that name."""
    return _made(KINDS[name])


def kinds() -> Iterator[Kind[Any, Any]]:
    """All kinds that are known, those of most problems first."""
    yield from map(kind_named, FIRST)
    yield from (kind_named(name) for name in KINDS if name not in FIRST)


Answers = Callable[[Sequence[Callable[[], float]]], list[float]]
"""The answers to one question for each agent, computed where its data is: `Parties.answers`."""


def answered_here(questions: Sequence[Callable[[], float]]) -> list[float]:
    """The answers of agents whose data is in this process."""
    return [question() for question in questions]


def points_of(
    model: Any,
    members: Sequence[Agent],
    witness: Sequence[FloatArray] | None = None,
    answers: Answers = answered_here,
) -> list[Point]:
    """The point of each agent for that model and these dual vectors, which must be those of these
    agents.
    """
    models = members[0].problem.kind.models
    points = models.points(model, members, witness)
    if not (models.settles and models.has_own_number(members[0])):
        return points
    return models.settled(model, members, points, own_numbers(members, points, answers))


def own_numbers(members: Sequence[Agent], points: Sequence[Point], answers: Answers) -> list[float]:
    """The number of each agent that the model needs besides the points."""
    return answers(
        [partial(_own_number, agent, point.w) for agent, point in zip(members, points, strict=True)]
    )


def _own_number(agent: Agent[Any], w: FloatArray) -> float:
    known = import_module("coterie.run.agent").with_data(agent)
    return float(known.problem.kind.models.own_number(known, w))
