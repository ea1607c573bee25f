"""The question that commands ask: a problem, its data, and how to solve it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial, wraps
from pathlib import Path
from typing import Any

import typer

import coterie as co
from coterie.commands.files import (
    by_user,
    columns_of_labels,
    entries,
    has_named_columns,
    label_roles,
    paired_by_position,
    tables,
)
from coterie.commands.options import (
    PANELS,
    Data,
    DataOptions,
    LimitOptions,
    PartyOptions,
    ProblemOptions,
    RunOptions,
    pairs,
    parameters_of,
)
from coterie.errors import InvalidData, InvalidInput
from coterie.problems import kinds
from coterie.run.settings import Settings

BALLS = ("l1ball", "traceball")
"""Penalties that have a radius in place of a strength."""


@dataclass(frozen=True)
class Question:
    """What is asked: a problem, the data, and the settings of the run."""

    problem: Any
    data: Any
    settings: Settings
    clusters: list[Any] | None = None
    """The cluster of each row, an array per file."""
    read: Callable[[list[Path]], Any] | None = None
    """Reads more files as the data was read."""
    matrix: Any = None
    """The names of rows and columns of a matrix that is completed."""

    @property
    def split(self) -> str:
        """How the data is partitioned."""
        return str(self.settings.placement.split)

    @property
    def tables(self) -> list[co.Table]:
        """The tables of all parties."""
        return self.data if isinstance(self.data, list) else [self.data]

    @property
    def engine(self) -> co.Engine:
        """Where agents run."""
        engine: co.Engine = self.settings.placement.engine
        return engine

    def solve(self, **changes: Any) -> co.Result:
        """The answer, with other values for these keywords of `co.solve`."""
        from coterie.api.solve import fit

        return self._named(fit(self.problem, self.data, self.settings.but(**changes)))

    def path(
        self, strengths: Sequence[float] | None, cv: int | None, rule: str, **changes: Any
    ) -> co.Path:
        """An answer for every strength."""
        from coterie.api.path import Search, path_of

        search = Search.of(strengths, cv=cv, rule=rule)
        found = path_of(self.problem, self.data, search, self.settings.but(**changes))
        return replace(found, results=tuple(map(self._named, found.results)))

    def _named(self, result: co.Result) -> co.Result:
        """The result, with the names of rows and columns if there are some."""
        if self.matrix is None:
            return result
        named: co.Result = self.matrix.named(result)
        return named


@dataclass(frozen=True)
class Flags:
    """The values of all options that describe a question."""

    data: list[Path]
    table: DataOptions
    problem: ProblemOptions
    parties: PartyOptions
    run: RunOptions
    limits: LimitOptions

    @staticmethod
    def of(given: dict[str, Any]) -> Flags:
        """Take the values of these options out of those of a command."""
        groups = [
            group(**{one.name: given.pop(one.name) for one in fields(group)}) for group in PANELS
        ]
        return Flags(given.pop("data"), *groups)

    @property
    def split(self) -> str:
        """How the data is partitioned."""
        return self.parties.split if self.table.users is None else "users"

    @property
    def loss(self) -> str:
        """The name of the loss."""
        return self.problem.loss or "squared"

    @property
    def penalty(self) -> str:
        """The name of the penalty."""
        if self.problem.penalty is not None:
            return self.problem.penalty
        if self.problem.loss == "completion":
            return "traceball"
        return "none" if self.problem.strength is None else "l2"


def taking_question(
    adjust: Callable[[dict[str, Any]], None] = lambda given: None, leave_out: str = ""
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator: the command takes all options of a question before its own, and is handed the
    question.

    @taking_question()
    def fit(question, method: str = "auto"): ...

    `adjust` may change the values of all options before. The command does not have the options that
    are named in `leave_out`; their values are those of `adjust`, or the defaults.
    """
    shared = [parameter for group in PANELS for parameter in parameters_of(group)]
    hidden = {one.name: one.default for one in shared if one.name in leave_out.split()}
    files = inspect.Parameter("data", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Data)

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]

        @wraps(command)
        def wrapped(**given: Any) -> None:
            given |= hidden
            adjust(given)
            flags = Flags.of(given)
            command(question_of(flags), **given)

        together = [files, *(one for one in shared if one.name not in hidden), *own]
        vars(wrapped)["__signature__"] = inspect.Signature(together)
        wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in together}
        del wrapped.__wrapped__
        return wrapped

    return decorate


def question_of(flags: Flags) -> Question:
    """The problem and the data that these options describe."""
    parameters, options = _parameters(flags)
    settings = _settings(flags, options)
    if flags.split == "users":
        return _of_users(flags, parameters, settings)
    if flags.problem.loss == "completion" and "shape" not in parameters:
        return _of_entries(flags, parameters, settings)
    problem = co.Problem(flags.loss, flags.penalty, intercept=flags.problem.intercept, **parameters)
    read = _reader(flags, problem, settings)
    if flags.table.cluster is not None:
        return _of_clusters(flags, problem, settings, read)
    return Question(problem, read(flags.data), settings, read=read)


def _parameters(flags: Flags) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parameters of the problem, its loss and its penalty; and those that are left for the
    method.
    """
    asked, options = flags.problem, pairs(flags.problem.option)
    given = {
        name: getattr(asked, name)
        for name in ("strength", "l1_ratio", "threshold", "level", "radius")
    }
    given |= {"lower": asked.lower, "upper": asked.upper, "groups": _whole_numbers(asked.groups)}
    kinds = [
        catalogue[name]
        for catalogue, name in _parts(flags.loss, flags.penalty)
        if name in catalogue
    ]
    if flags.split == "users":
        kinds += [co.Personal, co.Shared]
        given |= {"loss": asked.loss, "penalty": asked.penalty, "intercept": asked.intercept}
    parameters = {name: value for name, value in given.items() if value is not None}
    for kind in kinds:
        for name in {field.name for field in fields(kind)} & options.keys():
            parameters[name] = options.pop(name)
    return parameters, options


def _parts(loss: str, penalty: str) -> tuple[tuple[Mapping[str, Any], str], ...]:
    return *((kind.losses, loss) for kind in kinds()), (co.penalties.PENALTIES, penalty)


def _settings(flags: Flags, options: dict[str, Any]) -> Settings:
    parties, table, run, limits = flags.parties, flags.table, flags.run, flags.limits
    settings = Settings.of(
        split=flags.split,
        agents=None if flags.split == "users" else parties.agents,
        network=parties.network,
        engine=co.engines.engine(parties.engine, parties.deadline, parties.threads),
        secure_sums=parties.secure_sums,
        same_order=paired_by_position(table.same_order, table.id, flags.split),
        prepare=recipes_of(table.prepare),
        **vars(run),
        **vars(limits),
    )
    return replace(settings, algorithm=replace(settings.algorithm, options=options))


def _of_users(flags: Flags, parameters: dict[str, Any], settings: Settings) -> Question:
    table = flags.table
    if table.offset is not None or table.exposure is not None:
        raise InvalidData("models of every user take no offset. Leave --offset and --exposure out.")
    with co.progress.stage_watch(None):
        parts = by_user(flags.data, table.target, table.users, table.columns)
    from coterie.problems.users import problem_of_users

    return Question(problem_of_users(**parameters), parts, settings)


def _of_entries(flags: Flags, parameters: dict[str, Any], settings: Settings) -> Question:
    """Of a matrix that is completed, from the names of rows and columns."""
    table = flags.table
    matrix, named_entries = entries(flags.data, table.columns, table.target, table.weight)
    parameters = {**parameters, "shape": matrix.shape}
    problem = co.Problem(flags.loss, flags.penalty, intercept=flags.problem.intercept, **parameters)
    return Question(
        problem, named_entries, settings, read=_reader(flags, problem, settings), matrix=matrix
    )


def _of_clusters(flags: Flags, problem: Any, settings: Settings, read: partial[Any]) -> Question:
    """With a cluster for each row."""
    table = flags.table
    if table.id is not None or flags.split != "samples":
        raise InvalidData(
            "--cluster is for rows that need no --id, split by samples. Leave one of the two out."
        )
    found = read(flags.data, id=table.cluster)
    parts = found if isinstance(found, list) else [found]
    bare = [replace(part, ids=None) for part in parts]
    return Question(
        problem,
        bare if len(flags.data) > 1 else bare[0],
        settings,
        clusters=[part.ids for part in parts],
        read=partial(read, columns=bare[0].columns),
    )


def _reader(flags: Flags, problem: Any, settings: Settings) -> partial[Any]:
    """Reads files as these options say."""
    table, kind = flags.table, problem.kind
    roles: dict[str, Any] = {
        name: getattr(table, name) for name in ("target", "weight", "offset", "exposure")
    }
    columns = {name: getattr(table, name) for name in ("time", "event", "entry", "strata")}
    roles |= label_roles(problem, table.target, **columns, **columns_of_labels(table.label))
    named = "target" not in kind.labels.roles or kind.for_matrices or table.target is not None
    if not named and any(map(has_named_columns, flags.data)):
        raise InvalidInput("--target is missing: it names the column with the labels.")
    roles |= {"prepare": settings.prepare, "on_disk": table.on_disk, "id": table.id}
    return partial(_read, split=flags.split, columns=table.columns, **roles)


def _read(
    files: list[Path], *, split: str, columns: str | Sequence[str] | None, **roles: Any
) -> Any:
    with co.progress.stage_watch(None):
        return tables(files, split, columns, **roles)


def recipes_of(given: Sequence[str] | None) -> co.Preparation | None:
    """The preparation that `--prepare` describes: recipes, or a file of them."""
    if not given:
        return None
    files = [one for one in given if one.endswith(".toml")]
    if files and len(given) > 1:
        raise typer.BadParameter(
            f"--prepare {files[0]} is a file with all recipes; leave the other ones out."
        )
    return co.Preparation.load(files[0]) if files else co.Preparation.of(given)


def strengths_of(written: str | None) -> list[float] | None:
    """`1,0.1,0.01` as numbers, and `1:0.001:10` as ten of them in equal ratios; None: the data says
    which.
    """
    if written is None:
        return None
    try:
        if ":" not in written:
            return [float(part) for part in written.split(",")]
        first, last, count = written.split(":")
        ends, steps = (float(first), float(last)), int(count) - 1
        if min(ends) <= 0 or steps < 1:
            raise ValueError
        return [ends[0] * (ends[1] / ends[0]) ** (place / steps) for place in range(steps + 1)]
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            "--strengths takes numbers, e.g. 1,0.1,0.01, or first:last:count, e.g. 1:0.001:10, "
            f"not {written!r}"
        ) from None


def any_strength(given: dict[str, Any]) -> None:
    """Where the strength is still to be chosen, the problem has any until then."""
    if given["users"] is not None or given["split"] == "users":
        raise InvalidInput(
            "a path is about the strength of one model's penalty, and --users asks for one per "
            "user."
        )
    if (knob := knob_of(given)) == "radius" and given["radius"] is not None:
        raise InvalidInput(
            "the radius is to be chosen: leave --radius out, or name those to try with --strengths."
        )
    given[knob] = 1.0


def knob_of(given: dict[str, Any]) -> str:
    """What is to be chosen: the radius of a ball, or the strength of another penalty."""
    completes = given["loss"] == "completion" and given["penalty"] is None
    return "radius" if completes or given["penalty"] in BALLS else "strength"


def _whole_numbers(written: str | None) -> tuple[int, ...] | None:
    if written is None:
        return None
    try:
        return tuple(int(part) for part in written.split(","))
    except ValueError:
        raise typer.BadParameter(
            f"--groups needs one whole number per column, e.g. 0,0,1,1, not {written!r}"
        ) from None
