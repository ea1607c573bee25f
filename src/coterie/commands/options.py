"""Options that several commands share."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

import coterie as co
from coterie.catalogue import names_in
from coterie.errors import UnknownName
from coterie.run.settings import Algorithm, Limits, Placement, Settings


def _from_toml(ctx: typer.Context, path: Path | None) -> Path | None:
    """Take the values of a TOML file as the defaults of this command's flags."""
    if path is None:
        return None
    try:
        values = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"cannot read {path}: {error}") from None
    flags = _parameters_by_name(ctx.command)
    defaults = dict(ctx.default_map or {})
    for name, value in values.items():
        parameter = flags.get(name.replace("-", "_"))
        if parameter is None or parameter.name is None:
            longest = {p.opts[0].lstrip("-") for p in ctx.command.params}
            unknown = UnknownName(f"setting of `coterie {ctx.info_name}`", name, longest)
            raise typer.BadParameter(str(unknown))
        defaults[parameter.name] = _as_flag(parameter, value)
    ctx.default_map = defaults
    return path


def _parameters_by_name(command: Any) -> dict[str, Any]:
    """Map the names and the flags of a command's parameters, with underscores, to these."""
    found = {}
    for parameter in command.params:
        for flag in (parameter.name or "", *parameter.opts):
            name = flag.lstrip("-").replace("-", "_")
            found[name] = parameter
    return found


def _as_flag(parameter: Any, value: Any) -> Any:
    """Convert a value of a TOML file to what that flag takes: tables to pairs, lists to text where
    a flag is given once.
    """
    if isinstance(value, dict):
        value = _lines(parameter.name, value)
    if getattr(parameter, "multiple", False) or parameter.nargs == -1:
        if isinstance(value, list):
            return value
        return [value]
    if isinstance(value, list):
        return ",".join(map(str, value))
    return value


def _lines(name: str, table: dict[str, Any]) -> list[str]:
    if name == "prepare":
        return list(co.Preparation.of(table).lines())
    return [f"{key}={part}" for key, part in table.items()]


def known(names: Iterable[str]) -> str:
    """The names of a catalogue, for a help text."""
    return ", ".join(names)


def _drawable(format: str | None) -> str | None:
    """Refuse an unknown figure format before a long fit."""
    if format is not None and format not in co.report.FORMATS:
        raise UnknownName("figure format", format, co.report.FORMATS)
    return format


def among(*names: str, also: str = "") -> Any:
    """Make an option whose value is one of these names; its help lists them, and the shell
    completes them.
    """

    def complete(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return typer.Option(help=known(names) + also, autocompletion=complete)


LOSSES = dict.fromkeys(
    (
        *names_in("numerics/losses"),
        *names_in("problems/low_rank/tasks"),
        *names_in("problems/*", "loss"),
    )
)
"""The names of all losses, without loading any."""
ACCELERATIONS = sorted(("auto", "none", *names_in("numerics/acceleration")))

# -- output ----------------------------------------------------------------------------------------
Raw = Annotated[
    bool,
    typer.Option("--raw", help="Write cells as they are, also those that a spreadsheet would run."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
OutputFile = Annotated[Path | None, typer.Option("--output", "-o", help="Output JSON file.")]
CsvOutput = Annotated[
    Path | None, typer.Option("--output", "-o", help="Output CSV file (default: print).")
]
FitFolder = Annotated[
    Path,
    typer.Option("--output", "-o", help="Output folder for model, certificate and report."),
]
Figures = Annotated[
    str | None,
    typer.Option(
        callback=_drawable,
        help="Also write the figures of the report, in this file format: svg, pdf or png.",
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        callback=_from_toml,
        is_eager=True,
        help="TOML file with settings, one line per flag, e.g. loss = 'huber'. A flag overrides "
        "the file.",
    ),
]

# -- data ------------------------------------------------------------------------------------------
Data = Annotated[
    list[Path],
    typer.Argument(
        help="Data: Parquet, Arrow, CSV or svmlight. Coterie splits one file into parts; of "
        "several files, each is one party."
    ),
]
PartyData = Annotated[
    list[Path],
    typer.Argument(
        help="Data: Parquet, Arrow, CSV or svmlight; of several files, each is one party. "
        "Between organisations: party.toml, at every party."
    ),
]
Target = Annotated[
    str | None, typer.Option(help="Column with the labels (not needed for svmlight).")
]
Weight = Annotated[str | None, typer.Option(help="Column with the sample weights.")]
Offset = Annotated[
    str | None, typer.Option(help="Column with the offsets: numbers added to the scores.")
]
Exposure = Annotated[
    str | None,
    typer.Option(help="Column with the exposures, above 0: their logarithms are the offsets."),
]
Time = Annotated[str | None, typer.Option(help="Column with the times, for --loss cox.")]
Event = Annotated[
    str | None,
    typer.Option(help="Column that is 1 where a time is that of an event, 0 if censored."),
]
Entry = Annotated[
    str | None,
    typer.Option(help="Column with the time after which a row is observed (left truncation)."),
]
Strata = Annotated[
    str | None,
    typer.Option(
        help="Column with the stratum of each row. Of several files, each is a stratum anyway."
    ),
]
Labels = Annotated[
    list[str] | None,
    typer.Option(
        help="ROLE=COLUMN, for a kind of problem whose labels have several columns. Can be "
        "repeated."
    ),
]
Id = Annotated[
    str | None,
    typer.Option(
        "--id", help="Column with the row ids, by which rows of several parties are matched."
    ),
]
SameOrder = Annotated[
    bool,
    typer.Option(
        "--same-order",
        help="All files list the same rows in the same order: pair them by position, not by --id.",
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(help="Columns to learn from, separated by commas (default: all others)."),
]
Prepare = Annotated[
    list[str] | None,
    typer.Option(
        help="Preparation of columns: standardise, min-max, impute, one-hot, 'age: spline(5)', or "
        "a TOML file. Can be repeated."
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(help="Column with the cluster of each row, for `--inference clustered`."),
]
Users = Annotated[
    str | None, typer.Option(help="Column with the user of each row: one model per user.")
]
OnDisk = Annotated[
    bool | None,
    typer.Option(
        "--on-disk/--in-memory",
        help="Keep the numbers of Parquet and Arrow files in a temporary file (default: if memory "
        "does not hold them).",
    ),
]
PerParty = Annotated[
    bool, typer.Option("--per-party", help="Also show the numbers of every party.")
]
Minimum = Annotated[
    int,
    typer.Option(
        help="Smallest group that may be shown, in rows of each party that has rows in it."
    ),
]

# -- problem ---------------------------------------------------------------------------------------
Loss = Annotated[str | None, among(*LOSSES, also=" (default squared)")]
Penalty = Annotated[
    str | None,
    among(*names_in("numerics/penalties"), also=" (default: l2 if --strength is given, else none)"),
]
Strength = Annotated[float | None, typer.Option(help="Strength of the penalty.")]
L1Ratio = Annotated[
    float | None, typer.Option(help="Share of the l1 part in the elastic net, from 0 to 1.")
]
Threshold = Annotated[
    float | None,
    typer.Option(
        help="Residual, in the unit of the target, from which the Huber loss is linear "
        "(default 1.35)."
    ),
]
Level = Annotated[
    float | None,
    typer.Option(help="Level of the quantile loss, between 0 and 1 (default 0.5)."),
]
Radius = Annotated[float | None, typer.Option(help="Radius of the l1ball or traceball.")]
Lower = Annotated[float | None, typer.Option(help="Smallest coefficient that the box allows.")]
Upper = Annotated[float | None, typer.Option(help="Largest coefficient that the box allows.")]
Groups = Annotated[
    str | None, typer.Option(help="Group of each column, as whole numbers, e.g. 0,0,1,1.")
]
Factors = Annotated[
    str | None,
    typer.Option(
        help="Factors of the strength, for l1, l2 and elasticnet: one per column, e.g. 0,1,1, or "
        "by name, e.g. age=0,sex=0, and 1 for the other columns. 0: no penalty."
    ),
]
Intercept = Annotated[
    bool | None,
    typer.Option(
        help="Fit an intercept, which is never penalised (default: yes, except for cox, traceball "
        "and boosted models of users)."
    ),
]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-p",
        help="Parameter of the loss, penalty or method, e.g. rho=1.0. Can be repeated.",
    ),
]

# -- parties ---------------------------------------------------------------------------------------
Split = Annotated[
    str,
    among(
        "samples",
        "features",
        "users",
        also=": what the parties divide between them; users fits one model per user",
    ),
]
Agents = Annotated[
    int | None,
    typer.Option(help="Number of agents that one file is split into (default 8). Cox takes 1."),
]
Network = Annotated[str | None, among(*names_in("networks"), also=", or an edge file")]
Engine = Annotated[str, among(*names_in("engines"), also=": where the agents run")]
Deadline = Annotated[
    float | None,
    typer.Option(
        help="Seconds without a message after which another process counts as lost (default 30)."
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        help="Threads of engine local (default: one for each core). Results do not change."
    ),
]
SecureSums = Annotated[
    bool | None,
    typer.Option(
        help="Exact sums, masked between organisations (default there: with 3 parties or more)."
    ),
]
Consent = Annotated[
    bool,
    typer.Option(
        "--yes", help="Consent to what would be sent between organisations, without a question."
    ),
]
Without = Annotated[
    list[str] | None,
    typer.Option(
        "--without", help="Party that is gone for good: go on without its columns. Can be repeated."
    ),
]

# -- run -------------------------------------------------------------------------------------------
Method = Annotated[
    str,
    among("auto", *names_in("methods"), also=": auto chooses for the problem, data and network"),
]
Acceleration = Annotated[
    str, among(*ACCELERATIONS, also=": none runs the method as it was published")
]
Seed = Annotated[int, typer.Option(help="Random seed.")]
Checkpoint = Annotated[
    Path | None, typer.Option(help="Checkpoint folder. The same command continues a stopped run.")
]
Strengths = Annotated[
    str | None,
    typer.Option(
        help="Strengths to try, or radii of a ball, e.g. 1,0.1,0.01, or 1:0.001:10 for ten in "
        "equal ratios (default: 20, from the data)."
    ),
]
Folds = Annotated[int | None, typer.Option(help="Number of folds for cross-validation, e.g. 5.")]
Rule = Annotated[
    str, among("best", "1se", also=": the strongest within one standard error of the best")
]
Tolerance = Annotated[float, typer.Option(help="Relative duality gap at which the run stops.")]
MaxRounds = Annotated[int, typer.Option(help="Maximum number of rounds.")]
MaxSeconds = Annotated[float | None, typer.Option(help="Maximum number of seconds.")]
MaxBits = Annotated[float | None, typer.Option(help="Maximum number of bits sent.")]


@dataclass(frozen=True)
class DataOptions:
    """Which rows and columns are read."""

    target: Target = None
    id: Id = None
    same_order: SameOrder = Placement.same_order
    weight: Weight = None
    offset: Offset = None
    exposure: Exposure = None
    time: Time = None
    event: Event = None
    entry: Entry = None
    strata: Strata = None
    label: Labels = None
    columns: Columns = None
    prepare: Prepare = None
    cluster: Cluster = None
    users: Users = None
    on_disk: OnDisk = None


@dataclass(frozen=True)
class ProblemOptions:
    """The loss, the penalty and their parameters."""

    loss: Loss = None
    penalty: Penalty = None
    strength: Strength = None
    l1_ratio: L1Ratio = None
    threshold: Threshold = None
    level: Level = None
    radius: Radius = None
    lower: Lower = None
    upper: Upper = None
    groups: Groups = None
    factors: Factors = None
    intercept: Intercept = None
    option: Options = None


@dataclass(frozen=True)
class PartyOptions:
    """How data is split over agents, and where they run."""

    split: Split = Placement.split
    agents: Agents = Placement.agents
    network: Network = Settings.network
    engine: Engine = Placement.engine
    deadline: Deadline = None
    threads: Threads = Placement.threads
    secure_sums: SecureSums = Settings.secure_sums


@dataclass(frozen=True)
class RunOptions:
    """How the method runs."""

    acceleration: Acceleration = Algorithm.acceleration
    seed: Seed = Settings.seed


@dataclass(frozen=True)
class LimitOptions:
    """When a run ends."""

    tol: Tolerance = Limits.tol
    max_rounds: MaxRounds = Limits.max_rounds
    max_seconds: MaxSeconds = Limits.max_seconds
    max_bits: MaxBits = Limits.max_bits


PANELS: dict[type[Any], str] = {
    DataOptions: "Data",
    ProblemOptions: "Problem",
    PartyOptions: "Parties",
    RunOptions: "",
    LimitOptions: "When to stop",
}
"""Options that describe a problem, its data and how to solve it, with their heading in `--help`."""


def parameters_of(options: type[Any]) -> list[inspect.Parameter]:
    """Turn the options of such a class into parameters of a command."""
    hints = get_type_hints(options, include_extras=True)
    panel = PANELS[options]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    found = []
    for one in fields(options):
        annotation = hints[one.name]
        if panel:
            annotation.__metadata__[0].rich_help_panel = panel
        found.append(inspect.Parameter(one.name, kind, default=one.default, annotation=annotation))
    return found


def in_panels(panels: Mapping[str, str]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a decorator that puts options of a command under these headings of `--help`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        known = inspect.signature(command, eval_str=True).parameters
        for panel, names in panels.items():
            for name in names.split():
                known[name].annotation.__metadata__[0].rich_help_panel = panel
        command.__annotations__ = {
            parameter.name: parameter.annotation for parameter in known.values()
        }
        return command

    return decorate


def pairs(given: Iterable[str] | None) -> dict[str, Any]:
    """Read `["rho=1.0", "rule=a"]` as names and values.

    Values are numbers, true, false and lists as TOML writes them, and text otherwise.
    """
    found = {}
    for pair in given or ():
        name, equals, written = pair.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(
                f"{pair!r} is not a name and a value; write name=value, e.g. --option rho=1.0"
            )
        key = name.strip().replace("-", "_")
        found[key] = _toml_value(written.strip())
    return found


def _toml_value(written: str) -> Any:
    try:
        return tomllib.loads(f"value = {written}")["value"]
    except tomllib.TOMLDecodeError:
        return {"True": True, "False": False}.get(written, written)
