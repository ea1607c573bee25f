"""Options that several commands share, and the question that they ask: a problem, its data, and how to solve it."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any

import typer

import coterie as co
from coterie.catalogue import names_in
from coterie.commands.files import by_user, columns_of_labels, entries, has_named_columns, label_roles, tables
from coterie.errors import InvalidData, InvalidInput, UnknownName
from coterie.problems import kinds


def _from_toml(ctx: typer.Context, path: Path | None) -> Path | None:
    """Take the values of a TOML file as the defaults of this command's flags."""
    if path is None:
        return None
    try:
        values = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"cannot read {path}: {error}") from None
    flags = {flag.lstrip("-").replace("-", "_"): p for p in ctx.command.params for flag in (p.name or "", *p.opts)}
    defaults = {}
    for name, value in values.items():
        parameter = flags.get(name.replace("-", "_"))
        if parameter is None or parameter.name is None:
            longest = {p.opts[0].lstrip("-") for p in ctx.command.params}
            raise typer.BadParameter(str(UnknownName(f"setting of `coterie {ctx.info_name}`", name, longest)))
        if isinstance(value, dict) and parameter.name == "prepare":
            value = co.Preparation.of(value).lines()
        elif isinstance(value, dict):
            value = [f"{key}={part}" for key, part in value.items()]
        several = getattr(parameter, "multiple", False) or parameter.nargs == -1
        if isinstance(value, list) and not several:
            value = ",".join(map(str, value))
        defaults[parameter.name] = [value] if several and not isinstance(value, list) else value
    ctx.default_map = {**(ctx.default_map or {}), **defaults}
    return path


def known(names: Iterable[str]) -> str:
    """The names of a catalogue, for a help text."""
    return ", ".join(names)


def _drawable(format: str | None) -> str | None:
    """Refused before a long fit rather than after it."""
    if format is not None and format not in co.report.FORMATS:
        raise UnknownName("figure format", format, co.report.FORMATS)
    return format


def among(*names: str, also: str = "") -> Any:
    """An option whose value is one of these names: they are in its help, and the shell completes them."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return typer.Option(help=known(names) + also, autocompletion=complete)


Raw = Annotated[bool, typer.Option("--raw", help="Write cells as they are, also those that a spreadsheet would run.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        callback=_from_toml,
        is_eager=True,
        help="TOML file with settings, one line per flag, e.g. loss = 'huber'. A flag overrides the file.",
    ),
]
Data = Annotated[
    list[Path],
    typer.Argument(
        help="Data: Parquet, Arrow, CSV or svmlight. One file is split here; of several files, each is one party."
    ),
]
Target = Annotated[str | None, typer.Option(help="Column with the labels (not needed for svmlight).")]
Weight = Annotated[str | None, typer.Option(help="Column with the sample weights.")]
Offset = Annotated[str | None, typer.Option(help="Column with the offsets: numbers added to the scores.")]
Exposure = Annotated[
    str | None, typer.Option(help="Column with the exposures, above 0: their logarithms are the offsets.")
]
Time = Annotated[str | None, typer.Option(help="Column with the times, for --loss cox.")]
Event = Annotated[str | None, typer.Option(help="Column that is 1 where a time is that of an event, 0 if censored.")]
Entry = Annotated[
    str | None, typer.Option(help="Column with the time after which a row is observed (left truncation).")
]
Strata = Annotated[
    str | None, typer.Option(help="Column with the stratum of each row. Of several files, each is a stratum anyway.")
]
Id = Annotated[
    str | None, typer.Option("--id", help="Column with the row ids, by which rows of several parties are matched.")
]
SameOrder = Annotated[
    bool,
    typer.Option(
        "--same-order", help="All files list the same rows in the same order: pair them by position, not by --id."
    ),
]
Columns = Annotated[str | None, typer.Option(help="Columns to learn from, separated by commas (default: all others).")]
OnDisk = Annotated[
    bool | None,
    typer.Option(
        "--on-disk/--in-memory",
        help="Keep the numbers of Parquet and Arrow files in a temporary file (default: if memory does not hold them).",
    ),
]
Options = Annotated[
    list[str] | None,
    typer.Option("--option", "-p", help="Parameter of the loss, penalty or method, e.g. rho=1.0. Can be repeated."),
]
Deadline = Annotated[
    float | None,
    typer.Option(help="Seconds without a message after which another process counts as lost (default 30)."),
]
SecureSums = Annotated[
    bool | None,
    typer.Option(help="Exact sums, masked between organisations. There the default, with 3 parties or more."),
]
Consent = Annotated[
    bool, typer.Option("--yes", help="Consent to what would be sent between organisations, without a question.")
]
OutputFile = Annotated[Path | None, typer.Option("--output", "-o", help="Output JSON file.")]
Checkpoint = Annotated[Path | None, typer.Option(help="Checkpoint folder. The same command continues a stopped run.")]
Figures = Annotated[
    str | None,
    typer.Option(
        callback=_drawable, help="File format in which the figures of the report are also written: svg, pdf or png."
    ),
]


BALLS = ("l1ball", "traceball")
"""Penalties that have a radius in place of a strength."""
Strengths = Annotated[
    str | None,
    typer.Option(
        help="Strengths to try, or radii of a ball, e.g. 1,0.1,0.01, or 1:0.001:10 for ten in equal ratios (default: "
        "20, from the data)."
    ),
]
Folds = Annotated[int | None, typer.Option(help="Number of folds for cross-validation, e.g. 5.")]
Rule = Annotated[str, among("best", "1se", also=": the strongest within one standard error of the best")]


@dataclass(frozen=True)
class Question:
    """What is asked: a problem, the data, and the settings of `solve` (its method excepted)."""

    problem: Any
    data: Any
    settings: dict[str, Any]
    options: dict[str, Any]
    """Parameters that are neither the loss's nor the penalty's: the method's."""
    clusters: list[Any] | None = None
    """The cluster of each row, an array per file."""
    read: Callable[[list[Path]], Any] | None = None
    """Reads more files as the data was read."""
    matrix: Any = None
    """The names of rows and columns of a matrix that is completed."""

    def named(self, result: co.Result) -> co.Result:
        """The result, with the names of rows and columns if there are some."""
        return result if self.matrix is None else self.matrix.named(result)

    @property
    def split(self) -> str:
        """How the data is partitioned."""
        return str(self.settings["split"])


def question(
    data: Data,
    target: Target = None,
    id: Id = None,
    same_order: SameOrder = False,
    weight: Weight = None,
    offset: Offset = None,
    exposure: Exposure = None,
    time: Time = None,
    event: Event = None,
    entry: Entry = None,
    strata: Strata = None,
    label: Annotated[
        list[str] | None,
        typer.Option(help="ROLE=COLUMN, where labels of a kind of problem have several. Can be repeated."),
    ] = None,
    columns: Columns = None,
    prepare: Annotated[
        list[str] | None,
        typer.Option(
            help="Preparation of columns: standardise, min-max, impute, one-hot, 'age: spline(5)', or a TOML file. "
            "Can be repeated."
        ),
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(help="Column with the cluster of each row, for `--inference clustered`.")
    ] = None,
    users: Annotated[str | None, typer.Option(help="Column with the user of each row: one model per user.")] = None,
    on_disk: OnDisk = None,
    loss: Annotated[
        str | None,
        among(
            *dict.fromkeys((*names_in("losses"), *names_in("tasks"), *names_in("problems/*", "loss"))),
            also=" (default squared)",
        ),
    ] = None,
    penalty: Annotated[
        str | None, among(*names_in("penalties"), also=" (default: l2 if --strength is given, else none)")
    ] = None,
    strength: Annotated[float | None, typer.Option(help="Strength of the penalty.")] = None,
    l1_ratio: Annotated[
        float | None, typer.Option(help="Share of the l1 part in the elastic net, from 0 to 1.")
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(help="Residual, in the unit of the target, from which the Huber loss is linear (default 1.35)."),
    ] = None,
    level: Annotated[
        float | None, typer.Option(help="Level of the quantile loss, between 0 and 1 (default 0.5).")
    ] = None,
    radius: Annotated[float | None, typer.Option(help="Radius of the l1ball or traceball.")] = None,
    lower: Annotated[float | None, typer.Option(help="Smallest coefficient that the box allows.")] = None,
    upper: Annotated[float | None, typer.Option(help="Largest coefficient that the box allows.")] = None,
    groups: Annotated[str | None, typer.Option(help="Group of each column, as whole numbers, e.g. 0,0,1,1.")] = None,
    intercept: Annotated[
        bool | None,
        typer.Option(
            help="Fit an intercept, which is never penalised (default: yes, except for cox, traceball and boosted "
            "models of users)."
        ),
    ] = None,
    option: Options = None,
    split: Annotated[
        str, among("samples", "features", "users", also=": how the data is partitioned; users fits one model per user")
    ] = "samples",
    agents: Annotated[
        int | None,
        typer.Option(help="Number of agents that one file is split into (default 8). Cox takes 1."),
    ] = None,
    network: Annotated[str | None, among(*names_in("networks"), also=", or an edge file")] = None,
    engine: Annotated[str, among(*names_in("engines"))] = "local",
    deadline: Deadline = None,
    threads: Annotated[
        int | None, typer.Option(help="Threads of engine local (default: one for each core). Results do not change.")
    ] = None,
    acceleration: Annotated[str, among(*sorted(("auto", "none", *names_in("acceleration"))))] = "auto",
    tol: Annotated[float, typer.Option(help="Relative duality gap at which the run stops.")] = 1e-6,
    max_rounds: Annotated[int, typer.Option(help="Maximum number of rounds.")] = 10_000,
    max_seconds: Annotated[float | None, typer.Option(help="Maximum number of seconds.")] = None,
    max_bits: Annotated[float | None, typer.Option(help="Maximum number of bits sent.")] = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    secure_sums: SecureSums = None,
) -> Question:
    """The problem and the data that these options describe."""
    given: dict[str, Any] = {"strength": strength, "l1_ratio": l1_ratio, "threshold": threshold, "level": level}
    given |= {"radius": radius, "lower": lower, "upper": upper}
    given |= {"groups": None if groups is None else _whole_numbers(groups)}
    parameters = {name: value for name, value in given.items() if value is not None}
    chosen = penalty or ("traceball" if loss == "completion" else "none" if strength is None else "l2")
    options = pairs(option)
    split = "users" if users is not None else split
    kinds: list[Any] = [c[n] for c, n in _parts(loss or "squared", chosen) if n in c]
    if split == "users":
        kinds += [co.Personal, co.Shared]
        named = {"loss": loss, "penalty": penalty, "intercept": intercept}
        parameters |= {name: value for name, value in named.items() if value is not None}
    for kind in kinds:
        for name in {field.name for field in fields(kind)} & options.keys():
            parameters[name] = options.pop(name)
    settings: dict[str, Any] = {"split": split, "agents": agents, "network": network}
    settings["engine"] = co.engines.engine(engine, deadline, threads)
    settings["acceleration"] = acceleration
    settings |= {"tol": tol, "max_rounds": max_rounds, "max_seconds": max_seconds, "max_bits": max_bits, "seed": seed}
    settings["secure_sums"] = secure_sums
    settings["same_order"] = paired_by_position(same_order, id, split)
    recipes = recipes_of(prepare)
    settings |= {} if recipes is None else {"prepare": recipes}
    if split == "users":
        if offset is not None or exposure is not None:
            raise InvalidData("models of every user take no offset. Leave --offset and --exposure out.")
        with co.progress.stage_watch(None):
            parts = by_user(data, target, users, columns)
        from coterie.problems.users import problem_of_users

        return Question(problem_of_users(**parameters), parts, {**settings, "agents": None}, options)
    matrix = None
    if loss == "completion" and "shape" not in parameters:
        matrix, named_entries = entries(data, columns, target, weight)
        parameters["shape"] = matrix.shape
    problem = co.Problem(loss := loss or "squared", chosen, intercept=intercept, **parameters)
    roles: dict[str, Any] = {"target": target, "weight": weight, "offset": offset, "exposure": exposure}
    roles |= label_roles(
        problem, target, time=time, event=event, entry=entry, strata=strata, **columns_of_labels(label)
    )
    one = "target" in problem.kind.labels.roles and not problem.kind.for_matrices
    if target is None and one and any(map(has_named_columns, data)):
        raise InvalidInput("--target is missing: it names the column with the labels.")
    roles |= {"prepare": recipes, "on_disk": on_disk}

    def more(files: list[Path], names: str | Sequence[str] | None = columns) -> Any:
        with co.progress.stage_watch(None):
            return tables(files, split, names, id=id, **roles)

    if matrix is not None:
        return Question(problem, named_entries, settings, options, read=more, matrix=matrix)
    if cluster is None:
        return Question(problem, more(data), settings, options, read=more)
    if id is not None or split != "samples":
        raise InvalidData("--cluster is for rows that need no --id, split by samples. Leave one of the two out.")
    with co.progress.stage_watch(None):
        given_tables = tables(data, split, columns, id=cluster, **roles)
    parts = given_tables if isinstance(given_tables, list) else [given_tables]
    bare = [replace(part, ids=None) for part in parts]
    read = partial(more, names=bare[0].columns)
    return Question(problem, bare if len(data) > 1 else bare[0], settings, options, [part.ids for part in parts], read)


def paired_by_position(same_order: bool, id: str | None, split: str) -> bool:
    """Whether rows are paired by position; refused where they are not paired, or paired by id."""
    if same_order and id is not None:
        raise InvalidInput("--id and --same-order both say which rows belong together. Give one.")
    if same_order and split != "features":
        raise InvalidInput("--same-order is for --split features, where files hold columns of the same rows.")
    return same_order


def _parts(loss: str, penalty: str) -> tuple[tuple[Mapping[str, Any], str], ...]:
    return *((kind.losses, loss) for kind in kinds()), (co.penalties.PENALTIES, penalty)


PANELS = {
    "Data": "target id same_order weight offset exposure time event entry strata label columns prepare cluster users "
    "on_disk",
    "Problem": "loss penalty strength l1_ratio threshold level radius lower upper groups intercept option",
    "Parties": "split agents network engine deadline threads secure_sums",
    "When to stop": "tol max_rounds max_seconds max_bits",
}
"""Under which heading of `--help` an option stands."""


def in_panels(panels: Mapping[str, str]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: the options of the command stand under these headings of `--help`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        known = inspect.signature(command, eval_str=True).parameters
        for panel, names in panels.items():
            for name in names.split():
                known[name].annotation.__metadata__[0].rich_help_panel = panel
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in known.values()}
        return command

    return decorate


def taking(
    shared: Callable[..., Any], adjust: Callable[[dict[str, Any]], None] = lambda given: None, leave_out: str = ""
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator: the command takes the options of `shared` before its own, and is handed what `shared` made of them.

    @taking(question)
    def fit(question, method: str = "auto"): ...

    `adjust` may change the values of all options before `shared` sees them. The command does not have the options that
    are named in `leave_out`; their values are those of `adjust`, or the defaults.
    """
    theirs = inspect.signature(in_panels(PANELS)(shared)).parameters
    hidden = {name: theirs[name].default for name in leave_out.split()}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]

        @wraps(command)
        def wrapped(**given: Any) -> None:
            given |= hidden
            adjust(given)
            asked = shared(**{name: given.pop(name) for name in theirs})
            command(asked, **given)

        together = [*(one for name, one in theirs.items() if name not in hidden), *own]
        wrapped.__signature__ = inspect.Signature(together)  # type: ignore[attr-defined]
        wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in together}
        del wrapped.__wrapped__
        return wrapped

    return decorate


def recipes_of(given: Sequence[str] | None) -> co.Preparation | None:
    """The preparation that `--prepare` describes: recipes, or a file of them."""
    if not given:
        return None
    files = [one for one in given if one.endswith(".toml")]
    if files and len(given) > 1:
        raise typer.BadParameter(f"--prepare {files[0]} is a file with all recipes; leave the other ones out.")
    return co.Preparation.load(files[0]) if files else co.Preparation.of(given)


def pairs(given: Iterable[str] | None) -> dict[str, Any]:
    """`["rho=1.0", "rule=a"]` as names and values: numbers, true, false and lists as TOML writes them, else text."""
    found = {}
    for pair in given or ():
        name, equals, written = pair.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(f"{pair!r} is not a name and a value; write name=value, e.g. --option rho=1.0")
        try:
            value = tomllib.loads(f"value = {written.strip()}")["value"]
        except tomllib.TOMLDecodeError:
            value = {"True": True, "False": False}.get(written.strip(), written.strip())
        found[name.strip().replace("-", "_")] = value
    return found


def strengths_of(written: str | None) -> list[float] | None:
    """`1,0.1,0.01` as numbers, and `1:0.001:10` as ten of them in equal ratios; None: the data says which."""
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
            f"--strengths takes numbers, e.g. 1,0.1,0.01, or first:last:count, e.g. 1:0.001:10, not {written!r}"
        ) from None


def any_strength(given: dict[str, Any]) -> None:
    """Where the strength is still to be chosen, the problem has any until then."""
    if given["users"] is not None or given["split"] == "users":
        raise InvalidInput("a path is about the strength of one model's penalty, and --users asks for one per user.")
    if (knob := knob_of(given)) == "radius" and given["radius"] is not None:
        raise InvalidInput("the radius is to be chosen: leave --radius out, or name those to try with --strengths.")
    given[knob] = 1.0


def knob_of(given: dict[str, Any]) -> str:
    """What is to be chosen: the radius of a ball, or the strength of another penalty."""
    completes = given["loss"] == "completion" and given["penalty"] is None
    return "radius" if completes or given["penalty"] in BALLS else "strength"


def _whole_numbers(written: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in written.split(","))
    except ValueError:
        raise typer.BadParameter(f"--groups needs one whole number per column, e.g. 0,0,1,1, not {written!r}") from None


Without = Annotated[
    list[str] | None,
    typer.Option("--without", help="Party that is gone for good: go on without its columns. Can be repeated."),
]
