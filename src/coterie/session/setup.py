"""The set-up of a run, the same wherever it runs: which problem exactly, which network, which method, which limits."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Container, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp

from coterie.acceleration import accelerated
from coterie.agent import Agent
from coterie.arrays import as_number, digest, whole_number
from coterie.data import Table
from coterie.data.summary import TableSummary
from coterie.data.table import Indices, columns_of
from coterie.errors import InvalidData, InvalidProblem, did_you_mean
from coterie.families import Classes, family_of
from coterie.methods import METHODS, Method
from coterie.methods import method as find_method
from coterie.methods.costs import LINK, MEMORY, Link, Sizes, expected
from coterie.networks import Network, star
from coterie.networks import network as find_network
from coterie.personal import LEARNED
from coterie.problem import Problem
from coterie.rounds import Limits
from coterie.steps import Steps
from coterie.switching import Candidate, Change, Switching

AUTO = "auto"
ROWS = ("samples", "linear", False)
"""Of methods that "auto" may change: split, family, and that no agent speaks alone."""


@dataclass(frozen=True)
class Auto:
    """Where "auto" chose the method: what it may be changed to."""

    switching: Switching
    other: Method | None
    """What it may be changed to, if anything, ..."""
    rescue: Method | None
    """... and what it goes on with if it stalls, if anything."""
    asked: dict[str, Any]
    """What the caller said of the method."""
    changed: dict[str, Any] | None = None
    """If it was changed, from what, and when."""


@dataclass(frozen=True)
class Setup:
    """All that is decided before the agents meet."""

    problem: Problem
    split: str
    graph: Network
    method: Method
    steps: Steps
    """The method in its acceleration."""
    limits: Limits
    seed: int
    classes: Classes
    partition: list[list[int]] | None
    explanation: str
    secure_sums: bool = False
    prepare: dict[str, Any] | None = None
    """The recipes of a preparation."""
    auto: Auto | None = None
    """If "auto" chose the method, and may change it."""

    @property
    def running(self) -> Steps | Switching:
        """What a run is told."""
        return self.steps if self.auto is None else self.auto.switching

    def changed(self, change: Change | None) -> Setup:
        """What became of it: the same with the method that it was changed to."""
        if self.auto is None or change is None:
            return self
        after = {"from": self.method.settings(), "after": change.after, "asked": self.auto.asked}
        explanation = f"{self.explanation} {change.because}"
        other, steps = self.auto.rescue if change.rescue else self.auto.other, self.auto.switching.steps_after(change)
        assert other is not None
        return replace(self, method=other, steps=steps, explanation=explanation, auto=replace(self.auto, changed=after))

    @property
    def carrying(self) -> Network:
        """What the messages travel on."""
        return _around_a_server(self.graph.agents) if family_of(self.problem).graph_is_data else self.graph

    @property
    def network(self) -> str:
        """The graph in words."""
        return repr(self.graph) if family_of(self.problem).graph_is_data else self.graph.describe()

    def settings(self) -> dict[str, Any]:
        """What certificates say of the run."""
        return {
            "problem": self.problem.settings(),
            "method": self.method.settings(),
            "acceleration": "none" if self.steps is self.method else type(self.steps).__name__.lower(),
            "split": self.split,
            "partition": self.partition,
            "network": self.network,
            "network_digest": self.graph.digest,
            "seed": self.seed,
            "limits": asdict(self.limits),
            "classes": None if self.classes is None else self.classes.tolist(),
            **({"proved_by": "the party with the labels, alone"} if self.method.moves_columns else {}),
            **({"secure_sums": True} if self.secure_sums else {}),
            **({"prepare": self.prepare} if self.prepare is not None else {}),
            **({"changed": self.auto.changed} if self.auto is not None and self.auto.changed is not None else {}),
        }

    def identity(self, *others: str | None) -> str:
        """What a checkpoint is known by: the settings without the limits, and digests of all else.

        The method is the one that was asked for: where "auto" may change it, all that it may become.
        """
        settings = {**self.settings(), "limits": None}
        if self.auto is not None and self.auto.other is not None:
            settings["method"] = {"name": AUTO, "candidates": [self.method.settings(), self.auto.other.settings()]}
        return digest(json.dumps(settings, sort_keys=True), *others)


def set_up(
    problem: Problem,
    graph: Network,
    sizes: Sizes,
    for_data: Callable[[Problem], Problem],
    *,
    split: str,
    method: str | Method,
    options: dict[str, Any],
    acceleration: str,
    limits: Limits,
    seed: int,
    classes: Classes,
    partition: list[list[int]] | None = None,
    allowed: Container[str] | None = None,
    allowed_later: Container[str] | None = None,
    known: Sequence[str] = (),
    secure_sums: bool = False,
    prepare: dict[str, Any] | None = None,
) -> Setup:
    """Choose and check the method, and fit problem and network to it and to the data.

    `for_data` makes of a problem one for this data (see `Family.for_tables`), `allowed` are the names of methods that
    "auto" may choose from, `allowed_later` of those that it may change to, and `known` are names of settings, for who
    mistypes one.
    """
    family = family_of(problem)
    problem = problem.with_classes(classes)
    family.check_columns(problem, sizes.columns)
    problem = family.for_graph(problem, graph)
    liked: dict[str, tuple[float, str]] = {}
    if method == AUTO:
        liked = liked_methods(options, problem, split, graph, sizes, acceleration, allowed, secure_sums)
    chosen, explanation = choose_method(method, options, problem, split, liked, known, secure_sums)
    chosen, problem = chosen.adapted(problem)
    problem = for_data(problem)
    if family.graph_is_data and not chosen.uses_network:
        graph = no_network(graph.agents, "none")
    chosen.check(problem, graph)
    steps = accelerated(chosen, acceleration, chosen.accelerated(problem))
    if secure_sums and graph.agents == 2:
        explanation += " With two parties, secure sums hide nothing: the total less its own message is the other's."
    if note := family.note(problem, graph.agents):
        explanation += f" {note}"
    auto = None
    if liked:
        auto = _later(chosen, steps, liked, options, problem, graph, sizes, acceleration, allowed_later)
    told = explanation, secure_sums, prepare, auto
    return Setup(problem, split, graph, chosen, steps, limits, seed, classes, partition, *told)


def with_offset(problem: Problem, parties: Sequence[TableSummary]) -> Problem:
    """The problem, saying whether there is an offset: that is, whether the data has one."""
    found = any("offset" in party.beside for party in parties)
    if problem.offset:
        check_offset(problem, found)
    return problem.changed(offset=True) if found and not problem.offset else problem


def check_offset(problem: Problem, found: bool) -> None:
    """Refuse data without an offset for a model that has one, and the other way round."""
    if problem.offset and not found:
        raise InvalidData("the model has an offset, but the data has none. Name its column, or give its numbers.")
    if found and not problem.offset:
        raise InvalidData("the data has an offset, but the model has none. Leave it out.")


def wants_secure_sums(asked: bool | None, split: str, parties: int, apart: bool, only_sums: bool = False) -> bool:
    """Whether sums are secure: as asked for, else between three or more organisations that hold rows.

    Split by users they can be if users say nothing but sums (`Family.only_sums`).
    """
    if asked is not None and not isinstance(asked, bool | np.bool_):
        raise InvalidProblem(f"secure_sums is True, False or None, not {asked!r}.")
    if asked and split == "users" and not only_sums:
        raise InvalidProblem("secure sums are for one model: users tell neighbours theirs. Leave secure_sums out.")
    return bool(asked) if asked is not None else apart and (split == "samples" or only_sums) and parties > 2


def sizes_of(parties: Sequence[TableSummary], split: str, link: Link = LINK, apart: bool = False) -> Sizes:
    """How large the data of all parties is together."""
    rows, columns = [party.rows for party in parties], [party.columns for party in parties]
    whole = (rows[0], sum(columns)) if split == "features" else (sum(rows), max(columns))
    told = [party.independence for party in parties if party.independence is not None]
    independence = sum(told) / len(told) if told else None
    return Sizes(*whole, sum(party.nonzeros for party in parties), len(parties), link, apart, independence=independence)


def make_link(link: tuple[float, float] | None, in_memory: bool = False) -> Link:
    """Seconds per hop and bits per second, if these numbers make sense; None: what suits the engine."""
    if link is None:
        return MEMORY if in_memory else LINK
    if not (len(link) == 2 and all(as_number(part) > 0 for part in link) and as_number(link[0]) < np.inf):
        raise InvalidProblem(f"link takes two positive numbers, (seconds per hop, bits per second), not {link!r}.")
    return Link(float(link[0]), float(link[1]))


def make_agents(
    tables: Sequence[Table], problem: Problem, split: str, graph: Network, seed: int, secure_sums: bool = False
) -> list[Agent]:
    """What each agent may see."""
    places = zip(tables, columns_of(tables), strict=True)
    return [
        make_agent(k, table, columns, problem, split, graph, seed, secure_sums)
        for k, (table, columns) in enumerate(places)
    ]


def make_agent(
    index: int,
    table: Table,
    columns: Indices,
    problem: Problem,
    split: str,
    graph: Network,
    seed: int,
    secure_sums: bool = False,
) -> Agent:
    """What one agent may see; split by features, with the part of the penalty that acts on its columns."""
    own = problem.restrict(columns) if split == "features" else problem.flattened(table.d)
    neighbours = () if graph.server else graph.neighbours(index)
    ties: tuple[float, ...] = ()
    if split == "users" and not graph.server:
        # The weights of its neighbours in the collaboration graph.
        ties = tuple(graph.weights.data[slice(*graph.weights.indptr[index : index + 2])].tolist())
    return Agent(index, graph.agents, table, own, split, neighbours, seed, ties=ties, secure_sums=secure_sums)


def make_limits(
    tol: float, max_rounds: int, max_seconds: float | None, max_bits: float | None, check_every: int | None
) -> Limits:
    """When to stop, if these numbers make sense."""
    max_rounds = whole_number("max_rounds", max_rounds, least=0)
    if check_every is not None:
        check_every = whole_number("check_every", check_every)
    numbers = {"tol": tol, "max_seconds": max_seconds, "max_bits": max_bits}
    for name, value in numbers.items():
        optional = name != "tol"
        if not (isinstance(value, Real) or (optional and value is None)):
            raise InvalidProblem(f"{name} must be a number{' or None' if optional else ''}, not {value!r}.")
    if not 0 < tol < 1:
        raise InvalidProblem(
            f"tol is a relative duality gap between 0 and 1, not {tol!r}; 1e-6 is usual, 0 is never reached."
        )
    for name, value in numbers.items():
        if value is not None and not value >= 0:
            raise InvalidProblem(f"{name} must not be negative, not {value!r}.")
    seconds, bits = (None if value is None else float(value) for value in (max_seconds, max_bits))
    return Limits(float(tol), max_rounds, seconds, bits, check_every)


def make_network(spec: Any, split: str, agents: int, seed: int) -> Network:
    """The network that is meant; where nothing is said, what suits the split."""
    if split == "users":
        if spec is None or (isinstance(spec, str) and spec == LEARNED):
            return no_network(agents, LEARNED)
        return find_network(spec, agents, seed=seed, connected=False)
    if spec is None:
        spec = "star" if split == "samples" else "complete"
    if split == "samples" and isinstance(spec, str) and spec == "star":
        return _around_a_server(agents)
    return find_network(spec, agents, seed=seed)


@cache
def _around_a_server(agents: int) -> Network:
    return star(agents, server=True)


def no_network(agents: int, name: str) -> Network:
    """Nobody knows of anybody, at first or at all."""
    return Network(sp.csr_array((agents, agents)), name=name)


def choose_method(
    name: str | Method,
    options: dict[str, Any],
    problem: Problem,
    split: str,
    liked: dict[str, tuple[float, str]],
    settings: Sequence[str] = (),
    secure_sums: bool = False,
) -> tuple[Method, str]:
    """The method, for "auto" the first of those `liked_methods`, and a sentence that says which one and why."""
    explanation = "as asked for"
    if name == AUTO:
        name = next(iter(liked))
        explanation = f"chosen because {liked[name][1]}"
    if isinstance(name, Method) and options:
        raise InvalidProblem(
            f"{', '.join(options)}: give the parameters to the Method itself, e.g. replace(method, ...)."
        )
    parameters = [field.name for field in fields(METHODS[name])] if isinstance(name, str) else []
    for option in options.keys() - parameters:
        hint = did_you_mean(option, [*parameters, *settings]) or f"It takes {', '.join(parameters) or 'none'}."
        raise InvalidProblem(f"{option} is neither a setting of solve nor a parameter of method {name!r}. {hint}")
    chosen = find_method(name, **options)
    if chosen.split != split:
        raise InvalidProblem(
            f"method {chosen.name!r} needs data split by {chosen.split}, but it is split by {split}. "
            f"For {split}: {', '.join(_fitting(problem, split)) or 'none yet'}."
        )
    if chosen.family != problem.family:
        raise InvalidProblem(
            f"method {chosen.name!r} learns {chosen.family} models, but {family_of(problem).words(problem)} asks for a "
            f"{problem.family} one. For it: {', '.join(_fitting(problem, split)) or 'none yet'}."
        )
    if secure_sums and chosen.one_speaker:
        raise InvalidProblem(
            f"in {chosen.name!r} one party speaks at a time, so that a secure sum would be that party's message. Use "
            "another method, or leave secure sums out."
        )
    return chosen, f"Method {chosen.name} ({chosen.summary}), {explanation}."


def liked_methods(
    options: dict[str, Any],
    problem: Problem,
    split: str,
    graph: Network,
    sizes: Sizes,
    acceleration: str = AUTO,
    allowed: Container[str] | None = None,
    secure_sums: bool = False,
) -> dict[str, tuple[float, str]]:
    """The methods that "auto" may choose, the best first: how well each fits, and why."""
    open_to = {name: one for name, one in _fitting(problem, split).items() if allowed is None or name in allowed}
    able = {name: one for name, one in open_to.items() if _accepts(one, options, acceleration)} or open_to
    if secure_sums:
        able = {name: one for name, one in able.items() if not one.one_speaker}
    scores = {name: one.score(problem, graph, sizes) for name, one in able.items()}
    liked = {name: score for name, score in scores.items() if score is not None}
    if sizes.on_gpu:
        there = {name for name in liked if able[name].tensors and able[name].outlook(problem, sizes)}
        liked = {name: score for name, score in liked.items() if name in there} or liked
    if not liked and allowed is not None:
        raise InvalidProblem(
            f"of the methods that all policies allow ({', '.join(open_to)}), none is for method = 'auto' on this "
            "problem. Name one, or change a policy."
        )
    if not liked:
        personal = " There it is a personal one: co.Personal(beta=10)." if split == "users" else ""
        raise InvalidProblem(f"there is no method for this problem on data split by {split}.{personal}")
    return dict(sorted(liked.items(), key=lambda item: -item[1][0]))


def _later(
    chosen: Method,
    steps: Steps,
    liked: dict[str, tuple[float, str]],
    options: dict[str, Any],
    problem: Problem,
    graph: Network,
    sizes: Sizes,
    acceleration: str,
    allowed: Container[str] | None,
) -> Auto | None:
    """What "auto" may change to: a cheaper method, and one for a run that stalls."""
    if steps.asynchronous:
        return None
    found = _another(chosen, steps, liked, options, problem, graph, sizes, acceleration, allowed)
    saviour = _saviour(chosen, options, problem, graph, sizes, allowed)
    if found is None and saviour is None:
        return None
    rescue = None
    if saviour is not None:
        wanted = acceleration if saviour.can_be_accelerated else "none"
        exact = accelerated(saviour, wanted, saviour.accelerated(problem))
        rescue = Candidate(saviour.name, exact, math.nan, math.nan, math.nan)
    if found is None:
        first = Candidate(chosen.name, steps, math.nan, math.nan, math.nan)
        known = sizes.link.latency, sizes.link.bandwidth
        return Auto(Switching(first, None, known, rescue), None, saviour, _asked(options, acceleration, sizes))
    return replace(found, switching=replace(found.switching, rescue=rescue), rescue=saviour)


def _asked(options: dict[str, Any], acceleration: str, sizes: Sizes) -> dict[str, Any]:
    """What the caller said of the method."""
    link = None if sizes.link.memory else [sizes.link.latency, sizes.link.bandwidth]
    return {"method": AUTO, **options, "acceleration": acceleration, "link": link}


def _saviour(
    chosen: Method,
    options: dict[str, Any],
    problem: Problem,
    graph: Network,
    sizes: Sizes,
    allowed: Container[str] | None,
) -> Method | None:
    """The most exact method for this problem, for a run that stalls: another one, or the same with careful agents."""
    names = [chosen.name]
    if problem.family == "linear":
        names = ["blocks"] if chosen.split == "features" else ["newton", "interior-point"]
        names.append(chosen.name)
    for name in names:
        if (allowed is not None and name not in allowed) or not _accepts(METHODS[name], options, "auto"):
            continue
        method, same = find_method(name, **options).adapted(problem)
        try:
            method.check(problem, graph)
        except InvalidProblem:
            continue
        if same is problem and method.rescues(problem, sizes):
            return method
    return None


def _another(
    chosen: Method,
    steps: Steps,
    liked: dict[str, tuple[float, str]],
    options: dict[str, Any],
    problem: Problem,
    graph: Network,
    sizes: Sizes,
    acceleration: str,
    allowed: Container[str] | None,
) -> Auto | None:
    """What "auto" may change to: another method for rows that takes this problem as it is, if there is one.

    It is the cheapest, unless one of few rounds costs not much more than the first: where the first takes more rounds
    than expected, because columns are correlated, so do all that know slopes only.
    """

    def candidate(name: str) -> Candidate:
        # Another one gets its own steps once it is chosen.
        outlook = METHODS[name].outlook(problem, sizes)
        return Candidate(name, steps, *expected(problem, graph, sizes, outlook, liked[name][0]))

    def suits(name: str) -> bool:
        # Turns of one agent after the other are no rounds as the costs count them.
        one = METHODS[name]
        fits = name != chosen.name and (one.split, one.family, one.one_speaker) == ROWS
        return fits and (allowed is None or name in allowed) and _accepts(one, options, acceleration)

    if chosen.name not in liked or (chosen.split, chosen.family, chosen.one_speaker) != ROWS:
        return None
    first = candidate(chosen.name)
    for later in sorted(map(candidate, filter(suits, liked)), key=lambda one: one.after(first)):
        other, same = find_method(later.name, **options).adapted(problem)
        try:
            other.check(problem, graph)
        except InvalidProblem:
            continue
        if same is problem:
            later = replace(later, steps=accelerated(other, acceleration, other.accelerated(problem)))
            known = sizes.link.latency, sizes.link.bandwidth
            return Auto(Switching(first, later, known), other, None, _asked(options, acceleration, sizes))
    return None


def _fitting(problem: Problem, split: str) -> dict[str, type[Method]]:
    return {name: one for name, one in METHODS.items() if (one.split, one.family) == (split, problem.family)}


def _accepts(entry: type[Method], options: dict[str, Any], acceleration: str) -> bool:
    """Whether those parameters are that method's: who asks for rho, or to accelerate, asks for a method that can."""
    able = acceleration in ("auto", "none") or entry.coordinates is not Method.coordinates
    return able and (not options or options.keys() <= {field.name for field in fields(entry)})
