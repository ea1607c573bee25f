"""`coterie users`: a model for every user, and how good it is for each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table as RichTable

import coterie as co
from coterie.catalogue import names_in
from coterie.commands.files import by_user
from coterie.commands.options import (
    Columns,
    Config,
    Deadline,
    Json,
    Options,
    Target,
    among,
    in_panels,
    pairs,
)
from coterie.commands.output import console, print_json, show_model, summary
from coterie.errors import InvalidInput, InvalidProblem, UnknownName
from coterie.run.settings import Algorithm, Placement, Settings

if TYPE_CHECKING:
    from coterie.report.users import UserRow
    from coterie.stats.choosing import Trial

EXAMPLE = (
    "Examples: coterie users phones.csv --users phone --target likes --test new.csv --cv 3 · "
    "coterie users --model coterie-fit/model.npz --users phone --target likes --test new.csv -o "
    "users.csv"
)
AUTO = Algorithm.method
PATIENT = {"local_steps": 10, "alternations": 3, "begin": "global"}
"""Parameters of methods that suit a command; --option sets others. Only models of dada begin
somewhere.
"""
ENDS = 10
"""So many of the worst and of the best served users are shown."""
PANELS = {
    "Data": "target users columns test model",
    "Fitting": "cv beta mu lam tol max_rounds seed",
}


@in_panels(PANELS)
def users(
    data: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Training data: one file with a column of users, or one file per user."
        ),
    ] = None,
    target: Target = None,
    users: Annotated[str | None, typer.Option(help="Column with the user of each row.")] = None,
    columns: Columns = None,
    test: Annotated[
        list[Path] | None, typer.Option(help="Test data, in the same form as the training data.")
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="Saved model.npz to test. Nothing is fitted.")
    ] = None,
    cv: Annotated[
        int | None,
        typer.Option(
            help="Number of folds for choosing by cross-validation within each user's rows."
        ),
    ] = None,
    beta: Annotated[
        str | None,
        typer.Option(help="Maximum norm of a model. With --cv, a list such as 1,10,100."),
    ] = None,
    mu: Annotated[
        str | None,
        typer.Option(help="Weight of the agreement between neighbours. With --cv, also a list."),
    ] = None,
    lam: Annotated[
        str | None, typer.Option(help="Density of the learned graph. With --cv, also a list.")
    ] = None,
    method: Annotated[
        str,
        among(
            *names_in("problems/personal/methods", "dada"),
            *names_in("problems/personal/methods", "perso_linear"),
            *names_in("problems/personal/methods", "personal_baselines"),
            "shared",
            also=(
                ', or "auto": chosen by cross-validation, unless --beta, --mu or --lam say that '
                "it is dada"
            ),
        ),
    ] = AUTO,
    network: Annotated[
        str,
        among(
            "learned", *names_in("networks"), also=", or a file of edges: which users are similar"
        ),
    ] = "learned",
    engine: Annotated[str, among(*names_in("engines"))] = Placement.engine,
    deadline: Deadline = None,
    option: Options = None,
    tol: Annotated[float, typer.Option(help="Relative duality gap at which the run stops.")] = 1e-2,
    max_rounds: Annotated[int, typer.Option(help="Maximum number of rounds.")] = 500,
    seed: Annotated[int, typer.Option(help="Random seed.")] = Settings.seed,
    save: Annotated[
        Path | None,
        typer.Option(help="Output folder for model and certificate, as `coterie fit` writes them."),
    ] = None,
    unknown: Annotated[
        str,
        among(
            "error",
            "neighbours",
            "common",
            also=": what to do with test rows of a user without a model",
        ),
    ] = "error",
    everybody: Annotated[
        bool, typer.Option("--all", help="Show all users, not only the worst and the best.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Output file with all users, .csv or .parquet."),
    ] = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Fit a model for every user (or test a saved one), and report the accuracy for each user.

    The kind of model is chosen by cross-validation at the users: one for all, with or without
    deviations of every user, one for each, or boosted ones close to those of similar users.
    Accuracy is the share of correct predictions: on the training data (train) and on the test data
    (test).
    """
    numbers, options = _numbers({"beta": beta, "mu": mu, "lam": lam}, cv is not None), pairs(option)
    from coterie.report.users import FORMATS, accuracy_by_user, write_rows

    if output is not None and output.suffix not in FORMATS:
        raise UnknownName("kind of table", output.suffix, FORMATS)
    rows = Rows(data or [], test or [], target, users, columns)
    if model is not None:
        answer = _tested(model, rows)
    else:
        runner, progress = co.engines.engine(engine, deadline), False if as_json else None
        settings = Settings.of(
            split="users", network=network, method=method, engine=runner, seed=seed
        )
        settings = settings.but(tol=tol, max_rounds=max_rounds, progress=progress)
        answer = _fitted(Asked.of(settings, numbers, options, cv), rows)
        if not runner.speaks:
            raise typer.Exit(answer.exit_code)
        answer = answer.saved(save)
    found = accuracy_by_user(answer.model, answer.train, answer.test, unknown=unknown)
    if output is not None:
        write_rows(found, output)
    if as_json:
        _tell(found, answer, output)
    else:
        _show(found, answer, output, everybody)
    raise typer.Exit(answer.exit_code)


@dataclass(frozen=True)
class Rows:
    """Files of rows, and what their columns mean."""

    data: list[Path]
    test: list[Path]
    target: str | None
    users: str | None
    columns: str | None

    def tables(self, files: list[Path], columns: Any) -> list[co.Table]:
        """A table for each user."""
        return by_user(files, self.target, self.users, columns) if files else []


@dataclass(frozen=True)
class Asked:
    """What is to be fitted, and how."""

    settings: Settings
    numbers: dict[str, tuple[float, ...]]
    """Values of beta, mu and lam; several where one is chosen."""
    personal: dict[str, Any]
    """Other parameters of boosted models."""
    cv: int | None

    @staticmethod
    def of(
        settings: Settings,
        numbers: dict[str, tuple[float, ...]],
        options: dict[str, Any],
        cv: int | None,
    ) -> Asked:
        """The same, from options that are parameters of boosted models or of the method."""
        names = {one.name for one in fields(co.Personal)} & options.keys()
        personal = {name: options[name] for name in names}
        left = {name: value for name, value in options.items() if name not in names}
        method = settings.algorithm.method
        if method == AUTO and numbers:
            method = "dada"
        if method in (AUTO, "shared"):
            if strange := sorted(left.keys() - {"local_steps", "alternations", "sample", "begin"}):
                raise InvalidInput(
                    f"--method {method} takes no {strange[0]!r}; name the method that does."
                )
            left = {**PATIENT, **left}
        algorithm = replace(settings.algorithm, method=method, options={**_suiting(method), **left})
        return Asked(replace(settings, algorithm=algorithm), numbers, personal, cv)

    def problem(self) -> co.Personal:
        """The boosted models that are asked for."""
        first = {name: values[0] for name, values in self.numbers.items()}
        return co.Personal(**{"constant": True, **self.personal, **first})


@dataclass(frozen=True)
class Answer:
    """A model for every user, and the rows that it is tested on."""

    model: co.models.UserModel
    train: list[co.Table]
    test: list[co.Table]
    result: co.Result | None = None
    trials: Sequence[Trial] = ()

    @property
    def exit_code(self) -> int:
        """How the command ends."""
        return 0 if self.result is None else self.result.status.exit_code

    def saved(self, folder: Path | None) -> Answer:
        """The same, once it is written to a folder, if there is one. A better result that is there
        stays.
        """
        if folder is None:
            return self
        from coterie.api.replacing import kept_note, place_for, why_kept

        result = self.result
        assert result is not None
        why = why_kept(folder, result)
        if why is not None:
            result = replace(result, warnings=(*result.warnings, kept_note(folder, why)))
        result.save(place_for(folder, why))
        return replace(self, result=result)


def _tested(model: Path, rows: Rows) -> Answer:
    """A saved model. Nothing is fitted."""
    if not (rows.data or rows.test):
        raise InvalidInput(
            "there are no rows to test the model on: give --test new.csv, or the training data."
        )
    fitted = _saved(model)
    columns = fitted.columns or rows.columns
    return Answer(fitted, rows.tables(rows.data, columns), rows.tables(rows.test, columns))


def _fitted(asked: Asked, rows: Rows) -> Answer:
    """The model that is asked for, or the best of several."""
    if not rows.data:
        raise InvalidInput(
            "there is nothing to fit: give a file of rows, or a saved model with --model and "
            "--test."
        )
    from coterie.api.solve import fit
    from coterie.estimators.personalized import GRIDS, check_graph, cross_validated

    train = rows.tables(rows.data, rows.columns)
    names = train[0].columns
    if rows.test and rows.users is None:
        kept = [co.read(path, target=rows.target, columns=names) for path in rows.test]
    else:
        kept = rows.tables(rows.test, names)
    problem, settings = asked.problem(), asked.settings
    trials: list[Trial] = []
    if settings.algorithm.method in (AUTO, "shared"):
        check_graph(settings.algorithm.method, settings.network)
        result, trials = _chosen_fit(problem, train, settings, asked.cv)
        return Answer(result.model, train, kept, result, trials)
    if asked.cv is not None:
        problem, trials = cross_validated(
            problem, train, {**GRIDS, **asked.numbers}, asked.cv, settings
        )
    result = fit(problem, train, settings)
    return Answer(result.model, train, kept, result, trials)


def _chosen_fit(
    problem: co.Personal, train: Sequence[co.Table], settings: Settings, cv: int | None
) -> tuple[co.Result, list[Trial]]:
    """The model that does best on rows kept back, of linear ones and, for auto, of boosted ones;
    and what was tried.
    """
    import numpy as np

    from coterie.estimators.choice import choose, chosen_fit
    from coterie.stats.choosing import BOOSTED, FOLDS, LINEAR

    classes = np.unique(np.concatenate([table.y for table in train if table.y is not None]))
    wanted = LINEAR if settings.algorithm.method == "shared" else (*LINEAR, *BOOSTED)
    chosen = choose(
        train, classes, folds=cv or FOLDS, personal=problem, wanted=wanted, settings=settings
    )
    return chosen_fit(chosen, train, settings), chosen.trials


def _saved(path: Path) -> co.models.UserModel:
    found = co.models.load_model(path)
    if not isinstance(found, co.models.UserModel):
        raise InvalidInput(
            f"{path} holds one model for all users, not one per user; use coterie predict."
        )
    return found


def _suiting(method: str) -> dict[str, Any]:
    methods = co.methods.METHODS
    known = {field.name for field in fields(methods[method])} if method in methods else set()
    known -= set() if method == "dada" else {"begin"}
    return {name: value for name, value in PATIENT.items() if name in known}


def _numbers(given: dict[str, str | None], several: bool) -> dict[str, tuple[float, ...]]:
    """What was given, as numbers; more than one each only if there is a choice between them."""
    found = {}
    for name, written in given.items():
        if written is None:
            continue
        try:
            found[name] = tuple(float(part) for part in written.split(","))
        except ValueError:
            raise typer.BadParameter(
                f"--{name} takes a number, or several separated by commas, not {written!r}"
            ) from None
        if len(found[name]) > 1 and not several:
            raise InvalidProblem(
                f"--{name} {written} has several values: add --cv 3 to choose between them, or "
                "give one value."
            )
    return found


def _spreads(rows: Sequence[UserRow]) -> dict[str, dict[str, float] | None]:
    from coterie.report.users import spread

    return {name: spread(row[name] for row in rows) for name in ("train", "test")}


def _chosen(model: co.models.UserModel) -> dict[str, float]:
    from coterie.estimators.personalized import GRIDS

    return {
        name: getattr(model.problem, name)
        for name in (*GRIDS, "nu")
        if hasattr(model.problem, name)
    }


def _tell(rows: Sequence[UserRow], answer: Answer, output: Path | None) -> None:
    """Print everything as JSON."""
    told: dict[str, Any] = {} if answer.result is None else summary(answer.result)
    told |= {
        "users": list(rows),
        "accuracy": _spreads(rows),
        "parameters": _plain(_chosen(answer.model)),
        "trials": [_plain(trial) for trial in answer.trials],
        "output": str(output) if output else None,
    }
    print_json(told)


def _plain(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Infinite numbers as text, which JSON has no number for."""
    return {name: str(x) if x == float("inf") else x for name, x in numbers.items()}


def _show(rows: Sequence[UserRow], answer: Answer, output: Path | None, everybody: bool) -> None:
    out = console()
    if answer.result is not None:
        _show_fit(answer.result)
    trials = answer.trials
    tried = f", the best of {len(trials)} that were tried" if trials else ""
    out.print(
        "  ".join(f"{name} {value:g}" for name, value in _chosen(answer.model).items()) + tried
    )
    whole = everybody or len(rows) <= 2 * ENDS + 1
    _show_users(rows, None if whole else ENDS)
    for name, found in _spreads(rows).items():
        if found is not None:
            told = ", ".join(
                f"{part.replace('_', ' ')} {value:.3f}" for part, value in found.items()
            )
            out.print(f"[bold]{name}[/bold]  {told}")
    if output is not None:
        out.print(
            f"{len(rows)} users written to [bold]{escape(str(output))}[/bold].", soft_wrap=True
        )
    elif not whole:
        out.print("[dim]--all shows every user, -o users.csv writes them to a file.[/dim]")


def _show_fit(result: co.Result) -> None:
    out = console()
    show_model(result)
    out.print(result.explanation, markup=False)
    advice = "" if result.status.success else f"  {result.status.advice}"
    out.print(f"[bold]{result.status}[/bold]  {result.certificate.proves}{advice}")
    reasons = [] if result.error is None else [result.reason]
    for line in [*reasons, *result.warnings]:
        out.print(line, markup=False, soft_wrap=True)


def _show_users(rows: Sequence[UserRow], cut: int | None) -> None:
    """A row for each user, the worst first; or only for as many of the worst and of the best."""
    judged = "test" if any(row["test"] is not None for row in rows) else "train"
    ordered = sorted(rows, key=lambda row: (row[judged] is None, row[judged] or 0.0))
    table = RichTable("user", box=None, header_style="dim")
    for heading in ("rows", "train", "test rows", "test", "neighbours", "confidence"):
        table.add_column(heading, justify="right")
    for row in ordered[:cut]:
        table.add_row(*_cells(row))
    if cut is not None:
        table.add_row(f"[dim]… {len(ordered) - 2 * cut} more[/dim]")
        for row in ordered[-cut:]:
            table.add_row(*_cells(row))
    console().print(table)


def _cells(row: UserRow) -> list[str]:
    def written(value: Any) -> str:
        return "" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)

    return [
        escape(str(row["user"])),
        *(written(value) for name, value in row.items() if name != "user"),
    ]
