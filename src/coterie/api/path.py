"""A whole path of penalty strengths, each answer starting from the last; and cross-validation at
the parties.

Each party draws folds of its own rows (`stats.folds`), models are fitted to the rest, and only
sums of losses travel, so no row moves for a score either.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.api.result import Result
from coterie.api.solve import fit_together
from coterie.data.archives import read_bytes, readable, write_atomically
from coterie.errors import CorruptFile, InvalidProblem, UnknownName
from coterie.numerics.arrays import FloatArray, digest, whole_number
from coterie.numerics.losses import Fit
from coterie.problems.problem import Problem
from coterie.run.bill import Cost
from coterie.run.settings import Placement, Settings
from coterie.stats.following import Followed, FollowPath, folder_of
from coterie.stats.strengths import COUNT, check_folds, check_strength, check_strengths, knob

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

    @staticmethod
    def of(found: Followed, rule: str) -> Path:
        """What the operation came to, with the rule that chooses."""
        return Path(found.strengths, found.results, found.scores, found.validation, rule)

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
            used = {"rank": rank}
            if rank is None:
                used = {"nonzero": int(np.count_nonzero(result.model.coef_))}
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
        first = self.results[0]
        problem = first.model.problem
        lines = [f"Model: {problem.kind.report.words(problem)}."]
        lines += [f"  {note}" for note in first.notes()]
        lines += self._rows()
        for strength, result in zip(self.strengths, self.results, strict=True):
            if result.error is not None:
                lines.append(f"{self.knob} {strength:.5g}: {result.reason}")
        if self.scores is not None:
            lines += self._choice()
        return "\n".join(lines)

    def _rows(self) -> list[str]:
        """The table as lines."""
        used = "rank" if hasattr(self.results[0].model, "rank_") else "nonzero"
        widths = {self.knob: 12, "objective": 14, "relative gap": 14, used: 9, "rounds": 8}
        if self.scores is not None:
            widths |= {"cv loss": 12, "cv error": 12}
        lines = ["".join(f"{head:>{width}}" for head, width in widths.items())]
        for place, row in enumerate(self.table()):
            cells = [f"{_shown(row[head]):>{width}}" for head, width in widths.items()]
            lines.append("".join([*cells, *self._marks(place, row["status"])]))
        return lines

    def _marks(self, place: int, status: str) -> list[str]:
        """What is remarkable about a strength."""
        marks = []
        if status not in ("optimal", "optimal_within_radius"):
            marks.append(f"  {status}")
        if self.scores is not None:
            if place == self.best:
                marks.append("  best")
            if place == self.simplest:
                marks.append("  1se")
        return marks

    def _choice(self) -> list[str]:
        """Which strength is chosen, and whether others may do better."""
        lines = [
            f"chosen ({self.rule}): {self.knob} {self.chosen_strength:.5g}, from "
            f"{len(self._scores)} folds"
        ]
        ends = min(self.strengths), max(self.strengths)
        if len(self.strengths) > 1 and self.best_strength in ends:
            further = ("weaker", "stronger")
            if self.knob == "radius":
                further = ("smaller", "larger")
            lines.append(
                f"The best {self.knob} is the last one on its side: try "
                f"{further[ends.index(self.best_strength)]} ones, too."
            )
        return lines

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


def _shown(cell: Any) -> str:
    return f"{cell:.5g}" if isinstance(cell, float) else f"{cell}"


def _known_rule(rule: str) -> str:
    if rule not in RULES:
        raise UnknownName("rule", rule, RULES)
    return rule


def path(
    problem: Problem[Fit],
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
    """Fit a model for every strength of the penalty, each with a warm start from the one before.

    Parameters
    ----------
    problem : Problem
        The problem. Its own strength is not used.
    data : one party's data or a list
        The data, in the forms that `solve` takes.
    strengths : list of float, optional
        The strengths, in this order (strong to weak is fastest). For a ball (`l1ball`,
        `traceball`) they are its radii, and a small radius is a strong penalty. By default `count`
        of them, from one with which all coefficients are 0 down to a thousandth of it (for l2,
        with which they never are, further; radii from a quarter of what a perfect fit could need
        up to 64 times that). Required unless data is split by samples.
    cv : int, optional
        Number of folds of cross-validation, which scores every strength on rows that are held out
        at the parties. A preparation has its numbers from all rows.
    offset : array or list of arrays, optional
        A number per row that is added to its score, as in `solve`.
    rule : {"best", "1se"}, default="best"
        Which strength is chosen: the best, or the strongest within one standard error of it.
    count : int, default=20
        Number of strengths, if none are given.
    split : {"samples", "features"}, default="samples"
        Whether each party holds rows, or columns.
    agents : int or list, default=8
        Number of agents that data in one piece is divided between, as in `solve`.
    seed : int, default=0
        Random seed, also of the folds.
    **settings
        Other keywords of `solve`.

    Returns
    -------
    Path
        The results, and with `cv` the scores and the chosen strength.

    Raises
    ------
    InvalidProblem
        If the penalty has no strength, or the data needs strengths or has no folds.

    Examples
    --------
    >>> import coterie as co, numpy as np
    >>> X = np.random.default_rng(0).standard_normal((90, 4))
    >>> y = X[:, 0] + 0.1 * X[:, 1]
    >>> found = co.path(co.Problem("squared", "l1", 1.0), (X, y), [1.0, 0.1, 0.01], agents=3, cv=3)
    >>> len(found.results), found.chosen_strength
    (3, 0.01)
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
    problem: Problem[Fit], data: Any, search: Search, settings: Settings, offset: Any = None
) -> Path:
    """What `path` does, with settings that are made already."""
    split = settings.placement.split
    check_folds(split, search.cv)
    check_strength(problem)
    _check_split(search, split)
    operation = FollowPath(problem, settings, search.strengths, search.count, search.cv)
    found, parties = fit_together(operation, data, offset)
    results = tuple(replace(result, parties=parties) for result in found.results)
    return Path.of(replace(found, results=results), search.rule)


def _check_split(search: Search, split: str) -> None:
    if search.strengths is None and split != "samples":
        raise InvalidProblem(
            f"for data split by {split}, name the strengths, e.g. strengths=np.logspace(0, -3, 10)."
        )
