"""A whole path of penalty strengths, each answer starting from the last; and cross-validation at
the parties.

Each party draws folds from its own rows (`session.folds`), models are fitted to the rest, and only
sums of losses travel, so no row moves for a score either.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.api.result import Result
from coterie.api.solve import fit
from coterie.data import Table
from coterie.data.archives import read_bytes, readable, write_atomically
from coterie.data.preparation.prepared import Prepared
from coterie.data.preparation.recipes import Preparation
from coterie.data.remote import Rows, Source
from coterie.data.summary import TableSummary
from coterie.data.table import columns_of
from coterie.engines import engine as find_engine
from coterie.errors import CorruptFile, InvalidData, InvalidProblem, UnknownName
from coterie.networks import Network
from coterie.numerics.arrays import FloatArray, digest, whole_number
from coterie.problems import points_of
from coterie.problems.problem import Problem
from coterie.run.bill import Bill, Cost
from coterie.run.method_choice import AUTO
from coterie.run.network import make_network, wants_secure_sums
from coterie.run.remote import remote_tables
from coterie.run.rounds import introduced
from coterie.run.settings import Placement, Settings
from coterie.run.setup import make_agents, with_offset
from coterie.run.tables import attach_offset, count_rows, gather, prepare_tables
from coterie.stats.folds import deal_folds, mean_loss, only, without
from coterie.stats.preparing import Preparing, check_problem, prepare_here, prepare_remotely
from coterie.stats.remote_folds import Part, deal_there, grid_there, score_there
from coterie.stats.strengths import (
    COUNT,
    check_strength,
    check_strengths,
    gradient_at_constant,
    grid,
    knob,
    with_strength,
)
from coterie.transport.in_process import InProcess

RULES = ("best", "1se")
FILE = "path.json"


@dataclass(frozen=True)
class Path:
    """One certified result per strength and, with cross-validation, the mean loss of every fold."""

    strengths: tuple[float, ...]
    results: tuple[Result, ...]
    scores: npt.NDArray[np.float64] | None = None
    """Mean loss on the rows kept back, folds × strengths; smaller is better."""
    validation: Cost = field(default_factory=Cost)
    """What the folds' fits and scores sent, and a grid and a preparation of columns, if there were
    some.
    """
    rule: str = "best"
    """Which strength is chosen: "best", or "1se", the strongest that is within one standard error
    of it.
    """

    @property
    def total(self) -> Cost:
        """Everything that was sent: the fits of the path and the cross-validation."""
        return sum((result.bill.total for result in self.results), self.validation)

    @property
    def means(self) -> npt.NDArray[np.float64]:
        """The mean score of every strength over the folds."""
        found: npt.NDArray[np.float64] = self._scores.mean(axis=0)
        return found

    @property
    def errors(self) -> npt.NDArray[np.float64]:
        """The standard error of every mean: the deviation between folds over the root of their
        number.
        """
        found: npt.NDArray[np.float64] = self._scores.std(axis=0, ddof=1) / math.sqrt(
            len(self._scores)
        )
        return found

    @property
    def _scores(self) -> npt.NDArray[np.float64]:
        if self.scores is None:
            raise InvalidProblem("this path has no scores; call path(..., cv=5).")
        return self.scores

    @cached_property
    def best(self) -> int:
        """The place of the strength with the least mean score."""
        return int(self.means.argmin())

    @property
    def knob(self) -> str:
        """What the numbers in `strengths` are: "strength", or "radius" of a ball."""
        return knob(self.results[0].certificate.settings["problem"]["penalty"])

    @cached_property
    def simplest(self) -> int:
        """The place of the largest strength, or least radius, whose mean score is within one
        standard error.
        """
        near = np.flatnonzero(self.means <= self.means[self.best] + self.errors[self.best])
        sign = -1.0 if self.knob == "radius" else 1.0
        return int(max(near.tolist(), key=lambda place: sign * self.strengths[place]))

    @property
    def chosen(self) -> int:
        """The place of the strength that the rule chooses."""
        return self.best if self.rule == "best" else self.simplest

    @property
    def best_strength(self) -> float:
        """The strength with the least mean score."""
        return self.strengths[self.best]

    @property
    def best_result(self) -> Result:
        """The result on all rows at the best strength."""
        return self.results[self.best]

    @property
    def chosen_strength(self) -> float:
        """The strength that the rule chooses."""
        return self.strengths[self.chosen]

    @property
    def chosen_result(self) -> Result:
        """The result on all rows at that strength."""
        return self.results[self.chosen]

    @property
    def coefficients(self) -> FloatArray:
        """One row of coefficients per strength; of several classes, one such table for each
        strength.
        """
        return np.array([result.model.coef_ for result in self.results])

    def table(self) -> list[dict[str, Any]]:
        """A row per strength: what was fitted, and with cross-validation the mean score and its
        standard error.
        """
        rows = []
        for place, (strength, result) in enumerate(zip(self.strengths, self.results, strict=True)):
            rank = getattr(result.model, "rank_", None)
            used = (
                {"nonzero": int(np.count_nonzero(result.model.coef_))}
                if rank is None
                else {"rank": rank}
            )
            row = {
                self.knob: strength,
                "status": str(result.status),
                "reason": result.reason,
                "objective": result.certificate.primal,
                "relative gap": result.certificate.relative_gap,
                **used,
                "rounds": result.rounds,
            }
            if self.scores is not None:
                row |= {"cv loss": float(self.means[place]), "cv error": float(self.errors[place])}
            rows.append(row)
        return rows

    def __str__(self) -> str:
        used = "rank" if hasattr(self.results[0].model, "rank_") else "nonzero"
        heads = {self.knob: 12, "objective": 14, "relative gap": 14, used: 9, "rounds": 8}
        heads |= {} if self.scores is None else {"cv loss": 12, "cv error": 12}
        problem = self.results[0].model.problem
        lines = [
            f"Model: {problem.kind.report.words(problem)}.",
            *(f"  {note}" for note in self.results[0].notes()),
        ]
        lines += ["".join(f"{head:>{width}}" for head, width in heads.items())]
        for place, row in enumerate(self.table()):
            cells = [
                f"{row[head]:.5g}" if isinstance(row[head], float) else f"{row[head]}"
                for head in heads
            ]
            marks = (
                ""
                if row["status"] in ("optimal", "optimal_within_radius")
                else f"  {row['status']}"
            )
            if self.scores is not None:
                marks += "  best" * (place == self.best) + "  1se" * (place == self.simplest)
            lines.append(
                "".join(f"{c:>{width}}" for c, width in zip(cells, heads.values(), strict=True))
                + marks
            )
        for strength, result in zip(self.strengths, self.results, strict=True):
            if result.error is not None:
                lines.append(f"{self.knob} {strength:.5g}: {result.reason}")
        if self.scores is not None:
            lines.append(
                f"chosen ({self.rule}): {self.knob} {self.chosen_strength:.5g}, from "
                f"{len(self.scores)} folds"
            )
            if len(self.strengths) > 1 and self.best_strength in (
                min(self.strengths),
                max(self.strengths),
            ):
                ends = ("smaller", "larger") if self.knob == "radius" else ("weaker", "stronger")
                further = ends[self.best_strength != min(self.strengths)]
                lines.append(
                    f"The best {self.knob} is the last one on its side: try {further} ones, too."
                )
        return "\n".join(lines)

    # -- files -------------------------------------------------------------------------------------

    def save(self, folder: str | FilePath) -> FilePath:
        """Write `path.json` and one folder per strength, with model, certificate and run."""
        folder = FilePath(folder)
        for place, result in enumerate(self.results):
            result.save(folder / folder_of(place))
        content = {
            "coterie_path": 1,
            "strengths": list(self.strengths),
            "models": [result.certificate.model_digest for result in self.results],
            "scores": None if self.scores is None else self.scores.tolist(),
            "validation": vars(self.validation),
            "rule": self.rule,
        }
        sealed = {**content, "seal": digest(json.dumps(content))}
        write_atomically(folder / FILE, json.dumps(sealed, allow_nan=False).encode())
        return folder

    @staticmethod
    def load(folder: str | FilePath) -> Path:
        """Read what `save` wrote; files that were changed, or that are of different paths, are
        refused.
        """
        file = FilePath(folder) / FILE
        text = read_bytes(file)
        with readable(file, "path"):
            content = json.loads(text)
            if content.pop("seal") != digest(json.dumps(content)):
                raise CorruptFile(
                    f"{file} was changed after it was written: its seal does not match."
                )
            if content["coterie_path"] != 1:
                raise CorruptFile(
                    f"{file} was written by a newer version; update coterie to read it."
                )
            strengths, models = tuple(map(float, content["strengths"])), content["models"]
            scores = None if content["scores"] is None else np.array(content["scores"], float)
            validation, rule = Cost(**content["validation"]), _known_rule(content["rule"])
        results = tuple(
            Result.load(file.parent / folder_of(place)) for place in range(len(strengths))
        )
        if [result.certificate.model_digest for result in results] != models:
            raise CorruptFile(
                f"{file.parent} has the files of different paths: save one path into one folder."
            )
        return Path(strengths, results, scores, validation, rule)


def folder_of(place: int) -> str:
    """The name of the folder with the result at one strength."""
    return f"strength-{place:03d}"


def _known_rule(rule: str) -> str:
    if rule not in RULES:
        raise UnknownName("rule", rule, RULES)
    return rule


def path(
    problem: Problem[Any],
    data: Any,
    strengths: Sequence[float] | None = None,
    *,
    cv: int | None = None,
    offset: Any = None,
    rule: str = "best",
    count: int = COUNT,
    split: str = Placement.split,
    agents: int | Sequence[Any] | None = Placement.agents,
    seed: int = Settings.seed,
    **settings: Any,
) -> Path:
    """Solve for every strength in the given order (strong to weak is fastest), each from the last
    answer.

    For a ball (`l1ball`, `traceball`) the strengths are its radii, and a small radius is a strong
    penalty.

    strengths by default `count` of them, from one that gives a constant down to a thousandth of it
              (for l2, which never does, further; radii from a quarter of what a perfect fit could
              need up to 64 times that); for data split by samples
    cv        how many folds to score every strength with, on rows that were kept back at the
              parties; a preparation has its numbers from all rows
    rule      which strength is chosen: "best", or "1se", the strongest within one standard error of
              the best
    settings  what `solve` takes
    """
    search = Search.of(strengths, count, cv, rule)
    return path_of(
        problem,
        data,
        search,
        Settings.of(split=split, agents=agents, seed=seed, **settings),
        offset,
    )


@dataclass(frozen=True)
class Search:
    """Which strengths to try, and how to choose one."""

    strengths: tuple[float, ...] | None = None
    """None: as many as `count`, from the data."""
    count: int = COUNT
    cv: int | None = None
    rule: str = "best"

    @staticmethod
    def of(
        strengths: Sequence[float] | None = None,
        count: int = COUNT,
        cv: int | None = None,
        rule: str = "best",
    ) -> Search:
        """The same, if it makes sense."""
        cv = None if cv is None else whole_number("cv", cv, least=2)
        rule, count = _known_rule(rule), whole_number("count", count)
        return Search(None if strengths is None else check_strengths(strengths), count, cv, rule)


def path_of(
    problem: Problem, data: Any, search: Search, settings: Settings, offset: Any = None
) -> Path:
    """What `path` does, with settings that are made already."""
    check_strength(problem)
    settings = replace(settings, seed=whole_number("seed", settings.seed, least=0))
    placement, cv = settings.placement, search.cv
    split, recipes = placement.split, settings.prepare
    agents = problem.kind.data.agents(problem, data, placement.agents)
    settings = settings.but(agents=None)  # data of a path is in one piece for each agent
    if _is_remote(data, placement.engine):
        if cv is not None and split != "samples":
            raise InvalidData(
                f"folds of data split by {split} need it here, not at workers: leave cv out, or "
                "read it."
            )
        hosted = find_engine(placement.engine).hosting(attach_offset(data, offset, split), agents)
        assert hosted is not None
        engine, sources = hosted
        with engine.held():
            return _there(problem, sources, search, settings.but(engine=engine))
    if recipes is not None and not isinstance(recipes, Prepared):
        recipes = Preparation.of(recipes)
    given = attach_offset(data, offset, split)
    tables = gather(
        given, split, agents, settings.seed, problem.kind.data.pieces, recipes, placement.same_order
    )
    problem = with_offset(problem, [TableSummary.of(table) for table in tables])
    rows = count_rows(tables, split)
    if cv is not None and cv > rows:
        raise InvalidProblem(f"{cv} folds need at least {cv} rows, but there are {rows}.")
    sent, columns = Cost(), tables
    if recipes is not None:
        # Once, with the rows of all folds: its numbers know no labels.
        ready, sent = _prepared(tables, problem, settings.but(prepare=recipes))
        settings, columns = settings.but(prepare=ready.prepared), ready.held
    if cv is not None or search.strengths is None:
        everything, classes = prepare_tables(columns, problem, split)
    chosen = search.strengths
    if chosen is None:
        chosen, cost = _default(problem.with_classes(classes), everything, search.count, settings)
        sent += cost
    problems = [with_strength(problem, strength) for strength in chosen]
    if cv is None:
        return Path(chosen, tuple(_along(problems, tables, settings)), None, sent, search.rule)
    folds = deal_folds(everything, split, cv, settings.seed, classes)
    results = _along(problems, tables, settings)
    scores = np.empty((cv, len(problems)))
    for fold in range(cv):
        kept, back = (
            [take(table, own, fold) for table, own in zip(everything, folds, strict=True)]
            for take in (without, only)
        )
        alone = settings.but(checkpoint=None, prepare=None)
        for place, result in enumerate(_along(problems, kept, alone, results)):
            bill = Bill(result.network)
            scores[fold, place] = _score(problems[place], result, back, split, bill)
            sent += result.bill.total + bill.total
    return Path(chosen, tuple(results), scores, sent, search.rule)


def _there(problem: Problem, sources: Sequence[Source], search: Search, settings: Settings) -> Path:
    """The path of data that stays at the workers of a cluster."""
    engine, split, seed = settings.placement.engine, settings.placement.split, settings.seed
    strengths, cv = search.strengths, search.cv
    secure = wants_secure_sums(settings.secure_sums, split, len(sources), engine.apart)
    carrying, sent, ready = (
        make_network(settings.network, split, len(sources), seed),
        Cost(),
        sources,
    )
    if settings.prepare is not None:
        recipes = settings.prepare
        recipes = recipes if isinstance(recipes, Prepared) else Preparation.of(recipes)
        prepared = prepare_remotely(
            sources, settings.but(prepare=recipes, secure_sums=secure), engine
        )
        ready, sent = prepared.held, _spent(prepared, carrying)
        settings = settings.but(prepare=prepared.prepared)
    if strengths is None:
        _refuse_no_strengths(split)
        check = partial(prepare_tables, problem=problem, split=split)
        tables, classes = remote_tables(ready, engine, check, split, problem)
        whole = with_offset(
            problem.with_classes(classes), [TableSummary.of(table) for table in tables]
        )
        strengths, cost = grid_there(tables, engine, whole, carrying, search.count, seed, secure)
        sent += cost
    problems = [with_strength(problem, strength) for strength in strengths]
    results = _along(problems, list(sources), settings)
    if cv is None:
        return Path(strengths, tuple(results), None, sent, search.rule)
    rows = [participant.rows for participant in results[0].certificate.participants]
    folds = deal_there(ready, engine, rows, cv, seed, results[0].model.classes_)
    parts = [
        (source, index, own) for index, (source, own) in enumerate(zip(ready, folds, strict=True))
    ]
    scores = np.empty((cv, len(problems)))
    for fold in range(cv):
        kept = [Part(source, index, np.flatnonzero(own != fold)) for source, index, own in parts]
        back = [Part(source, index, np.flatnonzero(own == fold)) for source, index, own in parts]
        alone = settings.but(checkpoint=None, prepare=None)
        for place, result in enumerate(_along(problems, kept, alone, results)):
            scores[fold, place], cost = score_there(back, engine, result, secure)
            sent += result.bill.total + cost
    return Path(strengths, tuple(results), scores, sent, search.rule)


def _is_remote(data: Any, engine: Any) -> bool:
    """Whether the data lies at the workers of a cluster."""
    remote = isinstance(data, Rows) or (
        isinstance(data, list) and any(callable(part) for part in data)
    )
    return remote and find_engine(engine).name != "local"


def _prepared(
    tables: list[Table], problem: Problem, settings: Settings
) -> tuple[Preparing[Any], Cost]:
    """The tables with their columns prepared, and what that cost."""
    placement = settings.placement
    check_problem(problem, placement.split)
    ready = prepare_here(tables, problem, settings, find_engine(placement.engine))
    return ready, _spent(
        ready, make_network(settings.network, placement.split, len(tables), settings.seed)
    )


def _spent(ready: Preparing[Any], network: Network) -> Cost:
    """What a preparation cost."""
    bill = Bill(network)
    bill.restore(ready.sent)
    return bill.total


def _default(
    problem: Problem, tables: list[Table], count: int, settings: Settings
) -> tuple[tuple[float, ...], Cost]:
    """A grid of strengths for this data, and what it cost to find it."""
    split, seed = settings.placement.split, settings.seed
    _refuse_no_strengths(split)
    network = make_network(settings.network, split, len(tables), seed)
    apart = find_engine(settings.placement.engine).apart
    secure = wants_secure_sums(settings.secure_sums, split, len(tables), apart)
    transport = InProcess(network, Bill(network), secure_sums=secure)
    members = introduced(
        make_agents(tables, problem, split, network, seed, secure), transport, "setup"
    )
    gradients = transport.converse([gradient_at_constant(agent) for agent in members], "setup")
    return grid(members[0], gradients[0], count), transport.bill.total


def _refuse_no_strengths(split: str) -> None:
    if split != "samples":
        raise InvalidProblem(
            f"for data split by {split}, name the strengths, e.g. strengths=np.logspace(0, -3, 10)."
        )


def _along(
    problems: Sequence[Problem], data: Any, settings: Settings, like: Sequence[Result] = ()
) -> list[Result]:
    """A result per problem, each from the one before; for a fold, by the methods that were chosen
    for all rows.
    """
    results: list[Result] = []
    for place, problem in enumerate(problems):
        own = settings
        if own.checkpoint is not None:
            own = own.but(checkpoint=FilePath(own.checkpoint) / folder_of(place))
        if like and own.algorithm.method == AUTO:
            own = own.but(method=like[place].certificate.settings["method"]["name"])
        results.append(fit(problem, data, own, warm_start=results[-1] if results else None))
    return results


def _score(problem: Problem, result: Result, back: list[Table], split: str, bill: Bill) -> float:
    secure = bool(result.certificate.settings.get("secure_sums"))
    agents = make_agents(
        back, problem.with_classes(result.model.classes_), split, result.network, 0, secure
    )
    transport = InProcess(result.network, bill, secure_sums=secure)
    points, parts = points_of(result.model, agents), _parts(result.model, back, split)
    members = zip(agents, points, parts, strict=True)
    return transport.converse(
        [mean_loss(agent, point.w, part) for agent, point, part in members], "proof"
    )[0]


def _parts(model: Any, tables: Sequence[Table], split: str) -> list[Any]:
    """The model of each party: split by features, its coefficients, and the intercept where the
    labels are.
    """
    if split != "features":
        return [model] * len(tables)
    places = zip(columns_of(tables), tables, strict=True)
    return [
        replace(
            model,
            coef_=model.coef_[block],
            intercept_=model.intercept_ if table.y is not None else 0.0,
        )
        for block, table in places
    ]
