"""The `coterie` command."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from coterie import __version__
from coterie.acceleration import ACCELERATIONS
from coterie.certificate import Certificate
from coterie.data import Table, align, read
from coterie.demo import demo_problem
from coterie.doctor import diagnose
from coterie.engines import ENGINES
from coterie.errors import CorruptFile, CoterieError, InvalidData, InvalidInput, UnknownName
from coterie.losses import LOSSES
from coterie.methods import METHODS
from coterie.models import LinearModel
from coterie.networks import TOPOLOGIES
from coterie.penalties import PENALTIES
from coterie.problem import Problem
from coterie.progress import format_bits
from coterie.report import write_report
from coterie.result import Result
from coterie.solve import solve
from coterie.statuses import Status
from coterie.verify import verify as verify_certificate

__all__ = ["app", "main"]

EXIT_CODES = (
    "Exit codes: 0 the answer is within the tolerance; 1 a bug; 2 wrong usage; 3 input refused; "
    "4 a file was changed or a certificate does not hold; "
    + "; ".join(f"{s.exit_code} {s.value}" for s in Status if s.exit_code)
    + "."
)

app = typer.Typer(
    name="coterie",
    help="Learn certified convex models from data that stays where it is.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
out, err = Console(), Console(stderr=True)


def _from_toml(ctx: typer.Context, path: Path | None) -> Path | None:
    """Take the values of a TOML file as the defaults of this command's flags."""
    if path is None:
        return None
    try:
        values = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"cannot read {path}: {error}") from None
    known = {p.name for p in ctx.command.params}
    values = {name.replace("-", "_"): value for name, value in values.items()}
    for name in values:
        if name not in known:
            raise typer.BadParameter(str(UnknownName(f"setting of `coterie {ctx.info_name}`", name, map(str, known))))
    ctx.default_map = {**(ctx.default_map or {}), **values}
    return path


Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        callback=_from_toml,
        is_eager=True,
        help="A TOML file in place of flags: one line per flag, e.g. loss = 'huber'.",
    ),
]
Data = Annotated[
    list[Path],
    typer.Argument(help="Parquet, CSV or svmlight. One file is split here; several files are one party each."),
]
Target = Annotated[str | None, typer.Option(help="The column with the labels (not needed for svmlight).")]
Weight = Annotated[str | None, typer.Option(help="The column with the sample weights.")]
Id = Annotated[str | None, typer.Option("--id", help="The column by which the rows of several parties are matched.")]


def _known(names: Any) -> str:
    return ", ".join(names)


@app.command(
    epilog="Example: coterie fit patients.csv --target ill --loss logistic --penalty l1 --strength 0.01 --agents 4"
)
def fit(
    data: Data,
    target: Target = None,
    id: Id = None,
    weight: Weight = None,
    loss: Annotated[str, typer.Option(help=_known(LOSSES))] = "squared",
    penalty: Annotated[
        str | None, typer.Option(help=f"{_known(PENALTIES)} ; if not given, l2 with a strength, else none")
    ] = None,
    strength: Annotated[float | None, typer.Option(help="How strong the penalty is.")] = None,
    l1_ratio: Annotated[float | None, typer.Option(help="Elastic net: the share of the l1 part.")] = None,
    threshold: Annotated[float | None, typer.Option(help="Huber: where the loss turns linear.")] = None,
    level: Annotated[float | None, typer.Option(help="Quantile: which one, between 0 and 1.")] = None,
    radius: Annotated[float | None, typer.Option(help="Balls: their radius.")] = None,
    lower: Annotated[float | None, typer.Option(help="Box: the least coefficient.")] = None,
    upper: Annotated[float | None, typer.Option(help="Box: the largest coefficient.")] = None,
    intercept: Annotated[bool, typer.Option(help="Fit an intercept, never penalised.")] = False,
    split: Annotated[str, typer.Option(help="samples or features: what is apart.")] = "samples",
    agents: Annotated[int | None, typer.Option(help="Into how many to split one file; 8 if not given.")] = None,
    network: Annotated[str | None, typer.Option(help=f"{_known(TOPOLOGIES)}, or an edge file.")] = None,
    method: Annotated[str, typer.Option(help=f"auto, {_known(METHODS)}")] = "auto",
    engine: Annotated[str, typer.Option(help=_known(ENGINES))] = "local",
    acceleration: Annotated[str, typer.Option(help=_known(ACCELERATIONS))] = "auto",
    tol: Annotated[float, typer.Option(help="Relative duality gap to reach.")] = 1e-6,
    max_rounds: Annotated[int, typer.Option(help="Rounds at most.")] = 10_000,
    max_seconds: Annotated[float | None, typer.Option(help="Seconds at most.")] = None,
    max_bits: Annotated[float | None, typer.Option(help="Bits sent at most.")] = None,
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
    checkpoint: Annotated[Path | None, typer.Option(help="A folder: the same command continues a stopped run.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where model, certificate and report go.")] = Path(
        "coterie-fit"
    ),
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Fit a model to data that is apart; write model, certificate and report."""
    given = {"strength": strength, "l1_ratio": l1_ratio, "threshold": threshold, "level": level, "radius": radius}
    given |= {"lower": lower, "upper": upper}
    parameters = {name: value for name, value in given.items() if value is not None}
    problem = Problem(loss, penalty or ("none" if strength is None else "l2"), intercept=intercept, **parameters)
    result = solve(
        problem,
        _tables(data, target, id, weight, split),
        split=split,
        agents=agents,
        network=network,
        method=method,
        engine=engine,
        acceleration=acceleration,
        tol=tol,
        max_rounds=max_rounds,
        max_seconds=max_seconds,
        max_bits=max_bits,
        seed=seed,
        checkpoint=checkpoint,
        progress=False if as_json else None,
    )
    result.save(output)
    report = write_report(result, output / "report.html")
    _show(result, output, report, as_json)
    raise typer.Exit(result.status.exit_code)


@app.command(epilog="Example: coterie predict coterie-fit/model.npz new-patients.csv -o predictions.csv")
def predict(
    model: Annotated[Path, typer.Argument(help="model.npz, as `coterie fit` wrote it.")],
    data: Annotated[Path, typer.Argument(help="Parquet, CSV or svmlight with the model's columns.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A CSV file; without it, print.")] = None,
    as_json: Json = False,
) -> None:
    """Predict with a fitted model."""
    fitted = LinearModel.load(model)
    table = read(data, columns=fitted.columns or _numbered(data, len(fitted.coef_)))
    predictions = fitted.predict(table.X).tolist()
    if output is not None:
        output.write_text("prediction\n" + "\n".join(map(str, predictions)) + "\n")
    if as_json:
        print(json.dumps({"predictions": predictions, "output": str(output) if output else None}))
    elif output is None:
        print("\n".join(map(str, predictions)))
    else:
        out.print(f"{len(predictions)} predictions written to [bold]{output}[/bold].")


@app.command(
    epilog="Example: coterie verify coterie-fit/certificate.json coterie-fit/model.npz patients.csv --target ill"
)
def verify(
    certificate: Annotated[Path, typer.Argument(help="certificate.json, as `coterie fit` wrote it.")],
    model: Annotated[Path, typer.Argument(help="model.npz, as `coterie fit` wrote it.")],
    data: Data,
    target: Target = None,
    id: Id = None,
    weight: Weight = None,
    as_json: Json = False,
) -> None:
    """Recompute a certificate from model and data; refuse it if anything was changed."""
    document = Certificate.load(certificate)
    tables = _tables(data, target, id, weight, document.settings["split"])
    found = verify_certificate(document, LinearModel.load(model), tables)
    if as_json:
        numbers = {"primal": found.primal, "dual": found.dual, "gap": found.gap} if found.holds else {}
        print(json.dumps({"holds": found.holds, "objections": found.objections, "proves": document.proves, **numbers}))
    elif found.holds:
        out.print(f"[green]The certificate holds.[/green] {document.proves}")
    else:
        err.print("[red]The certificate does not hold:[/red] " + "; ".join(found.objections) + ".", highlight=False)
    raise typer.Exit(0 if found.holds else 4)


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Where model, certificate and report go.")] = Path(
        "coterie-demo"
    ),
    as_json: Json = False,
) -> None:
    """Eight hospitals fit one model together without pooling their patients; see certificate, bill and picture."""
    story, problem, parties, check = demo_problem()
    if not as_json:
        out.print(story)
    result = solve(problem, parties, progress=False if as_json else None)
    result.save(output)
    report = write_report(result, output / "report.html")
    _show(result, output, report, as_json)
    if not as_json:
        out.print(check(result))
    raise typer.Exit(result.status.exit_code)


@app.command()
def doctor(as_json: Json = False) -> None:
    """Tell what is installed and working."""
    findings = diagnose()
    if as_json:
        print(json.dumps([vars(finding) for finding in findings]))
    else:
        table = RichTable("", "what", "found", box=None, header_style="dim")
        for finding in findings:
            mark = "[green]✓[/green]" if finding.works else ("[red]✗[/red]" if finding.needed else "[dim]–[/dim]")
            table.add_row(mark, finding.what, escape(finding.detail))
        out.print(table)
    raise typer.Exit(0 if all(finding.works for finding in findings if finding.needed) else 1)


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        print(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command line; errors that name their fix are printed without a traceback."""
    sys.exit(_guarded(app))


def _guarded(command: Callable[[], Any]) -> Any:
    try:
        return command()
    except CorruptFile as error:
        return _complain(error, 4)
    except InvalidInput as error:
        return _complain(error, 3)
    except CoterieError as error:
        return _complain(error, error.status.exit_code)
    except OSError as error:
        return _complain(f"{error}. Choose another place with -o or --checkpoint", 3)
    except KeyboardInterrupt:
        return _complain("stopped before the first round was over", Status.INTERRUPTED.exit_code)


def _complain(error: object, code: int) -> int:
    err.print("[red]error:[/red]", escape(str(error)), highlight=False)
    return code


def _numbered(path: Path, columns: int) -> tuple[str, ...] | None:
    """Names that tell an svmlight file, which says nothing of columns it does not use, how many there are."""
    nameless = {".svm", ".svmlight", ".libsvm"} & set(path.suffixes)
    return tuple(map(str, range(columns))) if nameless else None


def _tables(
    paths: list[Path], target: str | None, id: str | None, weight: str | None, split: str
) -> Table | list[Table]:
    """One party's file as it is, several as a list. Split by features, one of the files has labels and weights."""
    if len(paths) == 1:
        return read(paths[0], target=target, id=id, weight=weight)
    if split != "features" or target is None:
        tables = [read(path, target=target, id=id, weight=weight) for path in paths]
        widest = max(table.d for table in tables)
        names = [_numbered(path, widest) if split != "features" else None for path in paths]
        return [
            table if own is None else read(path, columns=own)
            for path, table, own in zip(paths, tables, names, strict=True)
        ]
    tables = []
    refusals: list[InvalidData] = []
    for path in paths:
        try:
            tables.append(read(path, target=target, id=id, weight=weight))
        except InvalidData as refusal:
            refusals.append(refusal)
            tables.append(read(path, id=id))
    if len(refusals) == len(paths):
        raise refusals[0]
    return tables if id is None else align(tables)[0]


def _show(result: Result, output: Path, report: Path, as_json: bool) -> None:
    certificate, bill = result.certificate, result.bill
    if as_json:
        summary = {
            "status": result.status,
            "advice": result.status.advice,
            "explanation": result.explanation,
            "primal": certificate.primal,
            "dual": certificate.dual,
            "gap": certificate.gap,
            "relative_gap": certificate.relative_gap,
            "proves": certificate.proves,
            "rounds": bill.rounds,
            "scalars": bill.scalars,
            "bits": bill.bits,
            "total": vars(bill.total),
            "bill": bill.table(),
            "model": str(output / "model.npz"),
            "certificate": str(output / "certificate.json"),
            "report": str(report),
        }
        print(json.dumps(summary))
        return
    colour = "green" if result.status is Status.OPTIMAL else "yellow"
    out.print(f"[bold {colour}]{result.status}[/bold {colour}]  {result.status.advice}")
    out.print(f"{result.explanation}", highlight=False)
    out.print(f"[bold]Certificate[/bold]  {certificate.proves}", highlight=False)
    out.print(
        f"             objective {certificate.primal:.8g}, proven lower bound {certificate.dual:.8g}", highlight=False
    )
    table = RichTable(
        "purpose", "word", "messages", "numbers", "sent", box=None, header_style="dim", title_justify="left"
    )
    for row in bill.table():
        table.add_row(
            row["purpose"], row["word"], f"{row['messages']:,}", f"{row['scalars']:,}", format_bits(row["bits"])
        )
    out.print(f"[bold]Bill[/bold]  {bill.rounds} rounds, {format_bits(bill.total.bits)} in all", highlight=False)
    out.print(table)
    out.print(f"[bold]Report[/bold]  {report.resolve().as_uri()}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
