"""The question of a command: a problem, its data, and how to solve it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial, wraps
from pathlib import Path
from typing import Any

import typer

import coterie as co
from coterie.commands.files import (
    as_list,
    by_user,
    columns_of_labels,
    entries,
    has_named_columns,
    label_roles,
    one_or_list,
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
    """A problem, the data, and the settings of the run."""

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
        return as_list(self.data)

    @property
    def engine(self) -> co.Engine:
        """Where agents run."""
        engine: co.Engine = self.settings.placement.engine
        return engine

    def solve(self, **changes: Any) -> co.Result:
        """Fit the model, with other values for these keywords of `co.solve`."""
        from coterie.api.solve import fit

        settings = self.settings.but(**changes)
        return self._named(fit(self.problem, self.data, settings))

    def path(
        self, strengths: Sequence[float] | None, cv: int | None, rule: str, **changes: Any
    ) -> co.Path:
        """Fit a model for every strength."""
        from coterie.api.path import Search, path_of

        search = Search.of(strengths, cv=cv, rule=rule)
        settings = self.settings.but(**changes)
        found = path_of(self.problem, self.data, search, settings)
        results = tuple(self._named(result) for result in found.results)
        return replace(found, results=results)

    def _named(self, result: co.Result) -> co.Result:
        """Give the result the names of rows and columns of a matrix, if there is one."""
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
        groups = []
        for group in PANELS:
            values = {one.name: given.pop(one.name) for one in fields(group)}
            groups.append(group(**values))
        return Flags(given.pop("data"), *groups)

    @property
    def split(self) -> str:
        """How the data is partitioned."""
        if self.table.users is not None:
            return "users"
        return self.parties.split

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
        if self.problem.strength is not None:
            return "l2"
        return "none"


def taking_question(
    adjust: Callable[[dict[str, Any]], None] = lambda given: None, leave_out: str = ""
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a decorator that gives a command all options of a question before its own, and the
    question in place of them.

    @taking_question()
    def fit(question, method: str = "auto"): ...

    `adjust` may change the values of all options first. The command does not have the options that
    `leave_out` names; `adjust` sets them, or they keep their defaults.
    """
    shared: list[inspect.Parameter] = []
    for group in PANELS:
        shared += parameters_of(group)
    hidden = {one.name: one.default for one in shared if one.name in leave_out.split()}
    visible = [one for one in shared if one.name not in hidden]
    files = inspect.Parameter("data", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Data)

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]

        @wraps(command)
        def wrapped(**given: Any) -> None:
            given |= hidden
            adjust(given)
            flags = Flags.of(given)
            command(question_of(flags), **given)

        together = [files, *visible, *own]
        vars(wrapped)["__signature__"] = inspect.Signature(together)
        wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in together}
        del wrapped.__wrapped__
        return wrapped

    return decorate


def question_of(flags: Flags) -> Question:
    """Make the problem and read the data that these options describe."""
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
    """Parameters of the problem, its loss and its penalty; and the rest, for the method."""
    asked = flags.problem
    options = pairs(asked.option)
    given: dict[str, Any] = {
        "strength": asked.strength,
        "l1_ratio": asked.l1_ratio,
        "threshold": asked.threshold,
        "level": asked.level,
        "radius": asked.radius,
        "lower": asked.lower,
        "upper": asked.upper,
        "groups": _whole_numbers(asked.groups),
        "factors": _factors(asked.factors),
    }
    classes = _classes_of(flags.loss, flags.penalty)
    if flags.split == "users":
        classes += [co.Personal, co.Shared]
        given |= {"loss": asked.loss, "penalty": asked.penalty, "intercept": asked.intercept}
    parameters = {name: value for name, value in given.items() if value is not None}
    for one in classes:
        for name in {field.name for field in fields(one)} & options.keys():
            parameters[name] = options.pop(name)
    return parameters, options


def _classes_of(loss: str, penalty: str) -> list[Any]:
    """The classes of the loss and the penalty, whose fields are parameters."""
    found: list[Any] = []
    for kind in kinds():
        if loss in kind.losses:
            found.append(kind.losses[loss])
    if penalty in co.penalties.PENALTIES:
        found.append(co.penalties.PENALTIES[penalty])
    return found


def _settings(flags: Flags, options: dict[str, Any]) -> Settings:
    parties = flags.parties
    table = flags.table
    agents = parties.agents
    if flags.split == "users":
        agents = None
    settings = Settings.of(
        split=flags.split,
        agents=agents,
        network=parties.network,
        engine=co.engines.engine(parties.engine, parties.deadline, parties.threads),
        secure_sums=parties.secure_sums,
        same_order=paired_by_position(table.same_order, table.id, flags.split),
        prepare=recipes_of(table.prepare),
        **vars(flags.run),
        **vars(flags.limits),
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
    """Ask for the completion of a matrix, from the names of rows and columns."""
    table = flags.table
    matrix, named_entries = entries(flags.data, table.columns, table.target, table.weight)
    parameters = {**parameters, "shape": matrix.shape}
    problem = co.Problem(flags.loss, flags.penalty, intercept=flags.problem.intercept, **parameters)
    read = _reader(flags, problem, settings)
    return Question(problem, named_entries, settings, read=read, matrix=matrix)


def _of_clusters(flags: Flags, problem: Any, settings: Settings, read: partial[Any]) -> Question:
    """Read the cluster of each row with the data."""
    table = flags.table
    if table.id is not None or flags.split != "samples":
        raise InvalidData(
            "--cluster is for rows that need no --id, split by samples. Leave one of the two out."
        )
    parts = as_list(read(flags.data, id=table.cluster))
    clusters = [part.ids for part in parts]
    bare = [replace(part, ids=None) for part in parts]
    read = partial(read, columns=bare[0].columns)
    return Question(problem, one_or_list(bare), settings, clusters=clusters, read=read)


def _reader(flags: Flags, problem: Any, settings: Settings) -> partial[Any]:
    """Make a function that reads files with these options."""
    table = flags.table
    labels = _labels_in(table, problem)
    _check_target(flags, problem)
    roles: dict[str, Any] = {
        "id": table.id,
        "target": table.target,
        "weight": table.weight,
        "offset": table.offset,
        "exposure": table.exposure,
        "prepare": settings.prepare,
        "on_disk": table.on_disk,
    }
    return partial(_read, split=flags.split, columns=table.columns, **roles, **labels)


def _labels_in(table: DataOptions, problem: Any) -> dict[str, Any]:
    """The columns of labels that take the place of a target, by role."""
    others = columns_of_labels(table.label)
    return label_roles(
        problem,
        table.target,
        time=table.time,
        event=table.event,
        entry=table.entry,
        strata=table.strata,
        **others,
    )


def _check_target(flags: Flags, problem: Any) -> None:
    """Refuse files with named columns, if none of them is named as the labels."""
    kind = problem.kind
    needs_target = "target" in kind.labels.roles and not kind.for_matrices
    if not needs_target or flags.table.target is not None:
        return
    if any(map(has_named_columns, flags.data)):
        raise InvalidInput("--target is missing: it names the column with the labels.")


def _read(
    files: list[Path], *, split: str, columns: str | Sequence[str] | None, **roles: Any
) -> Any:
    with co.progress.stage_watch(None):
        return tables(files, split, columns, **roles)


def recipes_of(given: Sequence[str] | None) -> co.Preparation | None:
    """Make the preparation that `--prepare` describes: recipes, or a file of them."""
    if not given:
        return None
    files = [one for one in given if one.endswith(".toml")]
    if files and len(given) > 1:
        raise typer.BadParameter(
            f"--prepare {files[0]} is a file with all recipes; leave the other ones out."
        )
    if files:
        return co.Preparation.load(files[0])
    return co.Preparation.of(given)


def strengths_of(written: str | None) -> list[float] | None:
    """Read `1,0.1,0.01` as numbers, and `1:0.001:10` as ten numbers in equal ratios.

    None stays None: the strengths then follow from the data.
    """
    if written is None:
        return None
    try:
        if ":" in written:
            return _in_equal_ratios(written)
        return [float(part) for part in written.split(",")]
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            "--strengths takes numbers, e.g. 1,0.1,0.01, or first:last:count, e.g. 1:0.001:10, "
            f"not {written!r}"
        ) from None


def _in_equal_ratios(written: str) -> list[float]:
    first, last, count = written.split(":")
    start = float(first)
    end = float(last)
    steps = int(count) - 1
    if min(start, end) <= 0 or steps < 1:
        raise ValueError
    return [start * (end / start) ** (place / steps) for place in range(steps + 1)]


def any_strength(given: dict[str, Any]) -> None:
    """Give the problem some strength, where the strength is chosen later."""
    if given["users"] is not None or given["split"] == "users":
        raise InvalidInput(
            "a path is about the strength of one model's penalty, and --users asks for one per "
            "user."
        )
    knob = knob_of(given)
    if knob == "radius" and given["radius"] is not None:
        raise InvalidInput(
            "the radius is to be chosen: leave --radius out, or name those to try with --strengths."
        )
    given[knob] = 1.0


def knob_of(given: dict[str, Any]) -> str:
    """Which parameter is chosen: the radius of a ball, or the strength of another penalty."""
    completes = given["loss"] == "completion" and given["penalty"] is None
    if completes or given["penalty"] in BALLS:
        return "radius"
    return "strength"


def _factors(written: str | None) -> list[float] | dict[str, float] | None:
    """The factors of all columns, or of columns by name."""
    if written is None:
        return None
    parts = [part.strip() for part in written.split(",")]
    try:
        if not any("=" in part for part in parts):
            return [float(part) for part in parts]
        # A name may contain "=", as the columns of categories do.
        pairs = [part.rpartition("=") for part in parts]
        return {name.strip(): float(factor) for name, _, factor in pairs}
    except ValueError:
        raise typer.BadParameter(
            "--factors needs one number per column, e.g. 0,1,1, or names and numbers, e.g. age=0, "
            f"not {written!r}"
        ) from None


def _whole_numbers(written: str | None) -> tuple[int, ...] | None:
    if written is None:
        return None
    try:
        return tuple(int(part) for part in written.split(","))
    except ValueError:
        raise typer.BadParameter(
            f"--groups needs one whole number per column, e.g. 0,0,1,1, not {written!r}"
        ) from None
