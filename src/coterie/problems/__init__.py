"""Kinds of problems. Each has a folder, which holds everything that depends on the kind.

The catalogue finds a folder by its `kind.py`, which defines one `Kind`. `co.register(MyKind)` adds
a kind of another package, with its losses, its model and its methods. This module imports a kind by
name at its first use, because problems are a layer below kinds.
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
    from coterie.problems.problem import AnyProblem
    from coterie.run.agent import AgentForm
    from coterie.run.certificate import Point

FIRST = ("linear", "multiclass", "survival")
"""Kinds that `kinds` yields first, so that a usual loss does not import the others."""
FOLDERS = [path.parent.name for path in Path(__file__).parent.glob("*/kind.py")]
NAMES = tuple(sorted(folder.replace("_", "-") for folder in FOLDERS))
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
        """The kinds of this package."""
        return iter(self._own.values())

    def takes(self, thing: object) -> bool:
        if not inspect.isclass(thing):
            return False
        base: type = import_module("coterie.problems.kind").Kind
        return issubclass(thing, base)

    def is_entry(self, thing: Any) -> bool:
        return "name" in vars(thing)

    def name_of(self, entry: Any) -> object:
        return vars(entry).get("name")

    def lacks(self, entry: Any) -> Iterator[str]:
        missing = sorted(getattr(entry, "__abstractmethods__", ()))
        if missing:
            yield f"define {', '.join(missing)}"
        for attribute in ("name", "called", "model_class"):
            if getattr(entry, attribute, None) is None:
                yield f"state its {attribute}"
        proof = getattr(entry, "proof", None)
        for attribute, protocol in (("introduces", "introduce"), ("proves", "certify")):
            if getattr(proof, attribute, None) == ():
                yield (
                    f'write @discloses("your message") above {protocol}, and {attribute} = '
                    f"({protocol},) below it"
                )
        others = self._others(entry)
        losses_of_others = {loss for known in others for loss in known.losses}
        taken = [loss for loss in entry.losses if loss in losses_of_others]
        if taken:
            yield f"rename its loss {taken[0]!r}: another kind has a loss of that name"

    def _others(self, entry: Any) -> list[type[Kind[Any, Any]]]:
        known = [*self._own.values(), *self._added.values()]
        others = [other for other in known if other.name != entry.name]
        return [other for other in others if not other.for_matrices]

    def add(self, entry: type[Kind[Any, Any]]) -> None:
        super().add(entry)
        methods = import_module("coterie.methods").METHODS
        for method in entry.methods:
            methods.add(method)

    def remove(self, entry: type[Kind[Any, Any]]) -> None:
        super().remove(entry)
        methods = import_module("coterie.methods").METHODS
        for method in entry.methods:
            methods.remove(method)


@cache
def _class_of(name: str) -> type[Kind[Any, Any]]:
    """The kind of that name in this package: the `Kind` that its `kind.py` defines."""
    module = import_module(f"coterie.problems.{name.replace('-', '_')}.kind")
    for thing in vars(module).values():
        if KINDS.takes(thing) and thing.__module__ == module.__name__:
            found: type[Kind[Any, Any]] = thing
            return found
    raise LookupError(f"{module.__name__} defines no Kind")


KINDS = Kinds()


@cache
def _made(entry: type[Kind[Any, Any]]) -> Kind[Any, Any]:
    return entry()


def kind_named(name: str) -> Kind[Any, Any]:
    """The kind of that name."""
    return _made(KINDS[name])


def kinds() -> Iterator[Kind[Any, Any]]:
    """All known kinds, the most frequent ones first."""
    yield from map(kind_named, FIRST)
    yield from (kind_named(name) for name in KINDS if name not in FIRST)


Answers = Callable[[Sequence[Callable[[], float]]], list[float]]
"""The answers to one question for each agent, computed where its data is: `Parties.answers`."""


def answered_locally(questions: Sequence[Callable[[], float]]) -> list[float]:
    """The answers of agents whose data is in this process."""
    return [question() for question in questions]


def points_of(
    model: Any,
    members: Sequence[AgentForm[AnyProblem]],
    witness: Sequence[FloatArray] | None = None,
    answers: Answers = answered_locally,
) -> list[Point]:
    """The point of each agent for that model and these dual variables, which must belong to these
    agents.
    """
    models = members[0].problem.kind.models
    points = models.points(model, members, witness)
    if not (models.settles and models.has_own_number(members[0])):
        return points
    own = own_numbers(members, points, answers)
    return models.settled(model, members, points, own)


def own_numbers(
    members: Sequence[AgentForm[AnyProblem]], points: Sequence[Point], answers: Answers
) -> list[float]:
    """The number of each agent that the model needs in addition to the points."""
    questions = []
    for agent, point in zip(members, points, strict=True):
        questions.append(partial(_own_number, agent, point.w))
    return answers(questions)


def _own_number(agent: AgentForm[AnyProblem], w: FloatArray) -> float:
    known = import_module("coterie.run.agent").with_data(agent)
    return float(known.problem.kind.models.own_number(known, w))
