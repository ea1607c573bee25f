"""Choose the method of a fit: the one that the caller names, or the best for this problem and these
parties; and the method with which a run continues if it stalls.
"""

from __future__ import annotations

from collections.abc import Container, Hashable
from dataclasses import dataclass, fields, replace
from typing import Any, NoReturn

from coterie.errors import InvalidProblem, did_you_mean
from coterie.methods import METHODS, Method
from coterie.methods import method as find_method
from coterie.methods.auto.costs import Sizes
from coterie.networks import Network
from coterie.numerics.acceleration import accelerated
from coterie.problems.parts.data import Classes
from coterie.problems.problem import AnyProblem
from coterie.run.rescue import Rescuable
from coterie.run.settings import KEYWORDS, Algorithm
from coterie.run.steps import Steps

AUTO = Algorithm.method
Entries = dict[str, type[Method[Any, Any]]]
"""Methods by name."""
Liked = dict[str, tuple[float, str]]
"""The methods that "auto" may choose, the best first, each with its score and the reason."""
REMEMBERED = 256
"""The most problems whose methods are remembered."""
_remembered: dict[Hashable, Liked] = {}


@dataclass(frozen=True)
class Circumstances:
    """The parties and their data, as known before the method is chosen."""

    graph: Network
    sizes: Sizes
    classes: Classes = None
    secure_sums: bool = False
    partition: list[list[int]] | None = None
    """The rows or columns of the pooled data that each agent has; None: consecutive blocks."""
    allowed: Container[str] | None = None
    """The methods that "auto" may choose from; None: all."""
    allowed_later: Container[str] | None = None
    """The methods with which a stalled run may continue; None: all."""


@dataclass(frozen=True)
class Auto:
    """A run whose method "auto" chose, and the method with which it continues if it stalls."""

    running: Rescuable
    rescue: Method[Any, Any]
    asked: dict[str, Any]
    """The caller's settings of the method."""
    changed: dict[str, Any] | None = None
    """If the run was rescued: the method before, and the round of the rescue."""


@dataclass(frozen=True)
class MethodChoice:
    """The choice of a method for this problem, split in this way, among these parties."""

    problem: AnyProblem
    split: str
    known: Circumstances
    algorithm: Algorithm

    def candidates(self) -> Liked:
        """The methods that "auto" may choose; none if the caller names the method."""
        if self.algorithm.method != AUTO:
            return {}
        key = self._key()
        if key is None:
            return self.liked()
        found = _remembered.get(key)
        if found is None:
            if len(_remembered) >= REMEMBERED:
                _remembered.clear()
            found = _remembered[key] = self.liked()
        return found

    def _key(self) -> Hashable | None:
        """What the methods that suit an ordinary problem follow from; None for any other problem.

        Small fits of one problem after the other need not compare the costs of all methods again.
        """
        known = self.known
        ordinary = known.graph.server and known.allowed is None and not known.sizes.on_gpu
        if not ordinary or self.algorithm != Algorithm():
            return None
        try:
            hash(self.problem)
        except TypeError:  # a penalty with an array
            return None
        return self.problem, self.split, known.sizes, known.secure_sums, len(METHODS)

    def liked(self) -> Liked:
        """The methods that suit the problem and the parties."""
        allowed = self._allowed()
        scores = self._scores(self._able(allowed))
        if self.known.sizes.on_gpu:
            scores = self._on_gpu(scores) or scores
        if not scores:
            self._refuse(allowed)
        return dict(sorted(scores.items(), key=lambda item: -item[1][0]))

    def _allowed(self) -> Entries:
        """The methods for this split and kind that all parties allow."""
        allowed = self.known.allowed
        fitting = self._fitting()
        if allowed is None:
            return fitting
        return {name: one for name, one in fitting.items() if name in allowed}

    def _able(self, allowed: Entries) -> Entries:
        """Of these methods, those that accept the caller's options, if any does, and secure
        sums.
        """
        able = {name: one for name, one in allowed.items() if self._accepts(one)} or allowed
        if not self.known.secure_sums:
            return able
        return {name: one for name, one in able.items() if not one.one_sender}

    def _scores(self, able: Entries) -> Liked:
        """The scores of the methods that suit the problem."""
        found: Liked = {}
        for name, one in able.items():
            score = one.score(self.problem, self.known.graph, self.known.sizes)
            if score is not None:
                found[name] = score
        return found

    def _on_gpu(self, scores: Liked) -> Liked:
        """Of these methods, those that compute on a GPU and can estimate their rounds."""
        return {
            name: score
            for name, score in scores.items()
            if METHODS[name].tensors and METHODS[name].outlook(self.problem, self.known.sizes)
        }

    def _refuse(self, allowed: Entries) -> NoReturn:
        """Refuse a problem that no method suits."""
        if self.known.allowed is not None:
            raise InvalidProblem(
                f"of the methods that all policies allow ({', '.join(allowed)}), none is for "
                "method = 'auto' on this problem. Name one, or change a policy."
            )
        personal = ""
        if self.split == "users":
            personal = " There it is a personal one: co.Personal(beta=10)."
        raise InvalidProblem(
            f"there is no method for this problem on data split by {self.split}.{personal}"
        )

    def choose(self, liked: Liked) -> tuple[Method[Any, Any], str]:
        """The method, for "auto" the first of these, and a sentence that explains the choice."""
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
        if not options:
            return
        parameters: list[str] = []
        if isinstance(name, str):
            parameters = [field.name for field in fields(METHODS[name])]
        for option in options.keys() - parameters:
            names = [*parameters, *KEYWORDS, "offset", "warm_start"]
            hint = did_you_mean(option, names) or f"It takes {', '.join(parameters) or 'none'}."
            raise InvalidProblem(
                f"{option} is neither a setting of solve nor a parameter of method {name!r}. {hint}"
            )

    def _check_fit(self, chosen: Method[Any, Any]) -> None:
        """Refuse a method for another split or another kind of model, and one that does not work
        with secure sums, if sums are secure.
        """
        problem, split = self.problem, self.split
        if chosen.split != split:
            raise InvalidProblem(
                f"method {chosen.name!r} needs data split by {chosen.split}, but it is split by "
                f"{split}. For {split}: {self._others()}."
            )
        if chosen.family != problem.kind.name:
            raise InvalidProblem(
                f"method {chosen.name!r} learns {chosen.family} models, but "
                f"{problem.kind.report.words(problem)} asks for a {problem.kind.name} one. For it: "
                f"{self._others()}."
            )
        if self.known.secure_sums and chosen.one_sender:
            raise InvalidProblem(
                f"in {chosen.name!r} one party sends at a time, so that a secure sum would be "
                "that party's message. Use another method, or leave secure sums out."
            )

    def _others(self) -> str:
        """The names of the methods that fit."""
        return ", ".join(self._fitting()) or "none yet"

    def rescue(self, chosen: Method[Any, Any], steps: Steps, liked: Liked) -> Auto | None:
        """The method with which a run that stalls continues, if "auto" chose and one fits."""
        if not liked or steps.asynchronous:
            return None
        method = self._rescue(chosen)
        if method is None:
            return None
        wanted = self.algorithm.acceleration if method.can_be_accelerated else "none"
        after = accelerated(method, wanted, method.accelerated(self.problem))
        return Auto(Rescuable(chosen.name, steps, method.name, after), method, self._asked())

    def _asked(self) -> dict[str, Any]:
        """The caller's settings of the method, as certificates list them."""
        link = self.known.sizes.link
        algorithm = self.algorithm
        return {
            "method": AUTO,
            **algorithm.options,
            "acceleration": algorithm.acceleration,
            "link": None if link.memory else [link.latency, link.bandwidth],
        }

    def _rescue(self, chosen: Method[Any, Any]) -> Method[Any, Any] | None:
        """The most exact method for this problem, with which a stalled run continues: another one,
        or the same with careful agents.
        """
        names = *self.problem.kind.exact_methods.get(chosen.split, ()), chosen.name
        any_acceleration = replace(self.algorithm, acceleration=Algorithm.acceleration)
        plain = replace(self, algorithm=any_acceleration)
        for name in names:
            if not self._allowed_later(name) or not plain._accepts(METHODS[name]):
                continue
            method = self._checked(name)
            if method is not None and method.rescues(self.problem, self.known.sizes):
                return method
        return None

    def _checked(self, name: str) -> Method[Any, Any] | None:
        """The method of that name, if it accepts this problem unchanged."""
        method, same = find_method(name, **self.algorithm.options).adapted(self.problem)
        try:
            method.check(self.problem, self.known.graph)
        except InvalidProblem:
            return None
        return method if same is self.problem else None

    def _fitting(self) -> Entries:
        """The methods for this split and this kind of problem."""
        wanted = self.split, self.problem.kind.name
        return {name: one for name, one in METHODS.items() if (one.split, one.family) == wanted}

    def _allowed_later(self, name: str) -> bool:
        allowed = self.known.allowed_later
        return allowed is None or name in allowed

    def _accepts(self, entry: type[Method[Any, Any]]) -> bool:
        """Whether the method has the caller's options as parameters, and can be accelerated as the
        caller asks.
        """
        algorithm = self.algorithm
        wants_acceleration = algorithm.acceleration not in ("auto", "none")
        if wants_acceleration and entry.coordinates is Method.coordinates:
            return False
        if not algorithm.options:
            return True
        return algorithm.options.keys() <= {field.name for field in fields(entry)}
