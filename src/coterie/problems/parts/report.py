"""`kind.report`: describes problems and models in words, tables and pictures."""

from __future__ import annotations

import reprlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

from coterie.data import Table
from coterie.problems.parts.models import M
from coterie.problems.problem import K

if TYPE_CHECKING:
    from coterie.api.result import Result
    from coterie.networks import Network
    from coterie.run.certificate import Participant

SHOWN = 20
"""The most numbers of a model that a picture shows."""


@dataclass(frozen=True)
class Shown:
    """The numbers of a model that a picture shows, with its title."""

    picture: str
    explanation: str
    headings: tuple[str, str]
    bars: Sequence[tuple[str, float]]
    """The most important first."""
    shares: bool = False
    """Whether the numbers are shares of 1."""


class Report(ABC, Generic[K, M]):
    """Describes problems and models of a kind."""

    # -- problems ----------------------------------------------------------------------------------

    @abstractmethod
    def words(self, problem: K) -> str:
        """The problem in a few words."""

    @abstractmethod
    def described(self, settings: dict[str, Any]) -> str:
        """The problem of a proof in words, from its `settings()`."""

    @abstractmethod
    def call(self, problem: K) -> tuple[str, dict[str, Any]]:
        """The class of a problem in `co`, and the arguments that make the problem again."""

    @abstractmethod
    def parts(self, settings: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        """The parts of a problem, from its `settings()`: headings, each with a name and its
        parameters.
        """

    def has_intercept(self, settings: dict[str, Any]) -> bool:
        """Whether the model has an intercept, from the `settings()` of a problem."""
        return bool(settings["intercept"])

    def fitted(self, problem: K, data: str) -> str:
        """A sentence on the fit of this problem to that data."""
        return f"One {problem.kind.called} ({self.words(problem)}) was fitted to {data}."

    def note(self, problem: K, parties: int) -> str:
        """A sentence for every result, if the model depends on the number of parties."""
        return ""

    # -- models ------------------------------------------------------------------------------------

    @abstractmethod
    def shown(self, model: M, participants: Sequence[Participant]) -> Shown:
        """The numbers of a model that a report draws."""

    @abstractmethod
    def statistics(self, model: M, network: Network) -> dict[str, str]:
        """The properties of a model that a report lists."""

    def sections(self, tables: Callable[[], Sequence[Table]]) -> list[Callable[[Result], str]]:
        """Further sections of a report; `tables` reads the tables of all agents."""
        return []


def intercept_words(present: bool) -> str:
    """The words of every output for a problem with or without an intercept."""
    if present:
        return "with an intercept"
    return "without an intercept"


def penalty_words(spelt_out: str) -> str:
    """The words for a penalty of that name and parameters, or for none."""
    if spelt_out == "none":
        return "no penalty"
    return f"{spelt_out} penalty"


def spelt(settings: dict[str, Any]) -> str:
    """A name and its parameters; long lists are cut."""
    parameters = []
    for parameter, value in settings.items():
        if parameter != "name":
            parameters.append(f"{parameter} {reprlib.repr(value)}")
    name = settings.get("name", "")
    if name and parameters:
        return f"{name} ({', '.join(parameters)})"
    return name or ", ".join(parameters)
