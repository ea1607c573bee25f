"""Which method fits a model: the one that is asked for, or the best for this problem and these
parties; and what a run may change to if its method is slower than expected, or stalls.
"""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import dataclass, fields, replace
from typing import Any

from coterie.errors import InvalidProblem, did_you_mean
from coterie.methods import METHODS, Method
from coterie.methods import method as find_method
from coterie.methods.auto.costs import Sizes, expected
from coterie.networks import Network
from coterie.numerics.acceleration import accelerated
from coterie.problems.parts.data import Classes
from coterie.problems.problem import AnyProblem
from coterie.run.settings import KEYWORDS, Algorithm
from coterie.run.steps import Steps
from coterie.run.switching import Candidate, Switching

AUTO = Algorithm.method
ROWS = ("samples", "linear", False)
"""Of methods that "auto" may change: split, family, and that no agent speaks alone."""
Liked = dict[str, tuple[float, str]]
"""Methods that "auto" may choose, the best first: how well each fits, and why."""


@dataclass(frozen=True)
class Circumstances:
    """What is known of the parties and their data before the method is chosen."""

    graph: Network
    sizes: Sizes
    classes: Classes = None
    secure_sums: bool = False
    partition: list[list[int]] | None = None
    """The rows or columns of the pooled data that each agent has; None: consecutive blocks."""
    allowed: Container[str] | None = None
    """The methods that "auto" may choose from; None: all."""
    allowed_later: Container[str] | None = None
    """The methods that "auto" may change to; None: all."""


@dataclass(frozen=True)
class Auto:
    """Where "auto" chose the method: what it may be changed to."""

    switching: Switching
    other: Method[Any, Any] | None
    """What it may be changed to, if anything, ..."""
    rescue: Method[Any, Any] | None
    """... and what it goes on with if it stalls, if anything."""
    asked: dict[str, Any]
    """What the caller said of the method."""
    changed: dict[str, Any] | None = None
    """If it was changed, from what, and when."""


@dataclass(frozen=True)
class MethodChoice:
    """A method to choose for this problem, split in this way, among these parties."""

    problem: AnyProblem
    split: str
    known: Circumstances
    algorithm: Algorithm

    def candidates(self) -> Liked:
        """The methods that "auto" may choose; none where the caller names the method."""
        return self.liked() if self.algorithm.method == AUTO else {}

    def liked(self) -> Liked:
        """The methods that suit the problem and the parties."""
        known, allowed = self.known, self.known.allowed
        open_to = {
            name: one for name, one in self._fitting().items() if allowed is None or name in allowed
        }
        able = {name: one for name, one in open_to.items() if self._accepts(one)} or open_to
        if known.secure_sums:
            able = {name: one for name, one in able.items() if not one.one_speaker}
        scores = {
            name: one.score(self.problem, known.graph, known.sizes) for name, one in able.items()
        }
        liked = {name: score for name, score in scores.items() if score is not None}
        if known.sizes.on_gpu:
            there = {
                name
                for name in liked
                if able[name].tensors and able[name].outlook(self.problem, known.sizes)
            }
            liked = {name: score for name, score in liked.items() if name in there} or liked
        if not liked and allowed is not None:
            raise InvalidProblem(
                f"of the methods that all policies allow ({', '.join(open_to)}), none is for "
                "method = 'auto' on this "
                "problem. Name one, or change a policy."
            )
        if not liked:
            personal = (
                " There it is a personal one: co.Personal(beta=10)."
                if self.split == "users"
                else ""
            )
            raise InvalidProblem(
                f"there is no method for this problem on data split by {self.split}.{personal}"
            )
        return dict(sorted(liked.items(), key=lambda item: -item[1][0]))

    def choose(self, liked: Liked) -> tuple[Method[Any, Any], str]:
        """The method, for "auto" the first of those, and a sentence that says which one and why."""
        name, explanation = self.algorithm.method, "as asked for"
        if name == AUTO:
            name = next(iter(liked))
            explanation = f"chosen because {liked[name][1]}"
        self._check_options(name)
        chosen = find_method(name, **self.algorithm.options)
        self._check_fit(chosen)
        return chosen, f"Method {chosen.name} ({chosen.summary}), {explanation}."

    def _check_options(self, name: str | Method[Any, Any]) -> None:
        options = self.algorithm.options
        if isinstance(name, Method) and options:
            raise InvalidProblem(
                f"{', '.join(options)}: give the parameters to the Method itself, e.g. "
                "replace(method, ...)."
            )
        parameters = (
            [field.name for field in fields(METHODS[name])] if isinstance(name, str) else []
        )
        for option in options.keys() - parameters:
            names = [*parameters, *KEYWORDS, "offset", "warm_start"]
            hint = did_you_mean(option, names) or f"It takes {', '.join(parameters) or 'none'}."
            raise InvalidProblem(
                f"{option} is neither a setting of solve nor a parameter of method {name!r}. {hint}"
            )

    def _check_fit(self, chosen: Method[Any, Any]) -> None:
        """Refuse a method for another split, another kind of model, or without the secure sums that
        are asked for.
        """
        problem, split = self.problem, self.split
        if chosen.split != split:
            raise InvalidProblem(
                f"method {chosen.name!r} needs data split by {chosen.split}, but it is split by "
                f"{split}. "
                f"For {split}: {', '.join(self._fitting()) or 'none yet'}."
            )
        if chosen.family != problem.kind.name:
            raise InvalidProblem(
                f"method {chosen.name!r} learns {chosen.family} models, but "
                f"{problem.kind.report.words(problem)} asks "
                f"for a {problem.kind.name} one. For it: "
                f"{', '.join(self._fitting()) or 'none yet'}."
            )
        if self.known.secure_sums and chosen.one_speaker:
            raise InvalidProblem(
                f"in {chosen.name!r} one party speaks at a time, so that a secure sum would be "
                "that party's message. "
                "Use another method, or leave secure sums out."
            )

    def changes(self, chosen: Method[Any, Any], steps: Steps, liked: Liked) -> Auto | None:
        """What "auto" may change to: a cheaper method, and one for a run that stalls."""
        if not liked or steps.asynchronous:
            return None
        found, rescue = self._cheaper(chosen, steps, liked), self._rescue(chosen)
        if found is None and rescue is None:
            return None
        first, later, other = (
            Candidate(chosen.name, steps, math.nan, math.nan, math.nan),
            None,
            None,
        )
        if found is not None:
            first, later, other = found
        link = self.known.sizes.link
        exact = None if rescue is None else self._steps_of_rescue(rescue)
        return Auto(
            Switching(first, later, (link.latency, link.bandwidth), exact),
            other,
            rescue,
            self._asked(),
        )

    def _steps_of_rescue(self, rescue: Method[Any, Any]) -> Candidate:
        wanted = self.algorithm.acceleration if rescue.can_be_accelerated else "none"
        exact = accelerated(rescue, wanted, rescue.accelerated(self.problem))
        return Candidate(rescue.name, exact, math.nan, math.nan, math.nan)

    def _asked(self) -> dict[str, Any]:
        """What the caller said of the method."""
        link = self.known.sizes.link
        told = None if link.memory else [link.latency, link.bandwidth]
        algorithm = self.algorithm
        return {
            "method": AUTO,
            **algorithm.options,
            "acceleration": algorithm.acceleration,
            "link": told,
        }

    def _rescue(self, chosen: Method[Any, Any]) -> Method[Any, Any] | None:
        """The most exact method for this problem, for a run that stalls: another, or the same with
        careful agents.
        """
        names = *self.problem.kind.exact_methods.get(chosen.split, ()), chosen.name
        plain = replace(
            self, algorithm=replace(self.algorithm, acceleration=Algorithm.acceleration)
        )
        for name in names:
            if not (self._allowed_later(name) and plain._accepts(METHODS[name])):
                continue
            method = self._checked(name)
            if method is not None and method.rescues(self.problem, self.known.sizes):
                return method
        return None

    def _cheaper(
        self, chosen: Method[Any, Any], steps: Steps, liked: Liked
    ) -> tuple[Candidate, Candidate, Method[Any, Any]] | None:
        """The chosen method and another one for rows that takes this problem as it is, if there is
        one.

        It is the cheapest, unless one of few rounds costs not much more than the first: where the
        first takes more rounds than expected, because columns are correlated, so do all that know
        slopes only.
        """

        def candidate(name: str) -> Candidate:
            # Another one gets its own steps once it is chosen.
            problem, sizes = self.problem, self.known.sizes
            outlook = METHODS[name].outlook(problem, sizes)
            return Candidate(
                name, steps, *expected(problem, self.known.graph, sizes, outlook, liked[name][0])
            )

        def suits(name: str) -> bool:
            # Turns of one agent after the other are no rounds as the costs count them.
            one = METHODS[name]
            fits = name != chosen.name and (one.split, one.family, one.one_speaker) == ROWS
            return fits and self._allowed_later(name) and self._accepts(one)

        if chosen.name not in liked or (chosen.split, chosen.family, chosen.one_speaker) != ROWS:
            return None
        first = candidate(chosen.name)
        for later in sorted(map(candidate, filter(suits, liked)), key=lambda one: one.after(first)):
            other = self._checked(later.name)
            if other is not None:
                own = accelerated(
                    other, self.algorithm.acceleration, other.accelerated(self.problem)
                )
                return first, replace(later, steps=own), other
        return None

    def _checked(self, name: str) -> Method[Any, Any] | None:
        """The method of that name, if it takes this problem as it is."""
        method, same = find_method(name, **self.algorithm.options).adapted(self.problem)
        try:
            method.check(self.problem, self.known.graph)
        except InvalidProblem:
            return None
        return method if same is self.problem else None

    def _fitting(self) -> dict[str, type[Method[Any, Any]]]:
        wanted = self.split, self.problem.kind.name
        return {name: one for name, one in METHODS.items() if (one.split, one.family) == wanted}

    def _allowed_later(self, name: str) -> bool:
        allowed = self.known.allowed_later
        return allowed is None or name in allowed

    def _accepts(self, entry: type[Method[Any, Any]]) -> bool:
        """Whether the options are that method's: who asks for rho, or to accelerate, asks for a
        method that can.
        """
        algorithm = self.algorithm
        able = (
            algorithm.acceleration in ("auto", "none")
            or entry.coordinates is not Method.coordinates
        )
        return able and algorithm.options.keys() <= {field.name for field in fields(entry)}
