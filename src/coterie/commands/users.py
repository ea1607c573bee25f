"""`coterie users`: a model for every user, and its accuracy for each of them."""

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
    Engine,
    Json,
    MaxRounds,
    Options,
    Seed,
    Target,
    Tolerance,
    among,
    in_panels,
    pairs,
)
from coterie.commands.output import (
    console,
    print_json,
    show_model,
    show_status,
    show_text,
    show_value,
    show_written,
    summary,
    text_or_none,
)
from coterie.errors import InvalidInput, InvalidProblem, UnknownName, count
from coterie.run.settings import Algorithm, Placement, Settings

if TYPE_CHECKING:
    from coterie.report.users import UserRow
    from coterie.run.bill import Cost
    from coterie.stats.choosing import Trial

EXAMPLE = (
    "Examples: coterie users phones.csv --users phone --target likes --test new.csv --cv 3 · "
    "coterie users --model coterie-fit/model.npz --users phone --target likes --test new.csv -o "
    "users.csv"
)
AUTO = Algorithm.method
PATIENT = {"local_steps": 10, "alternations": 3, "begin": "global"}
"""Parameters of methods that suit a command; --option sets others. Only dada has `begin`."""
ENDS = 10
"""Number of users with the worst, and with the best, accuracy that are shown."""
PANELS = {
    "Data": "target users columns test model",
    "Fitting": "cv beta mu lam tol max_rounds seed",
}

Training = Annotated[
    list[Path] | None,
    typer.Argument(help="Training data: one file with a column of users, or one file per user."),
]
UserColumn = Annotated[str | None, typer.Option(help="Column with the user of each row.")]
Test = Annotated[
    list[Path] | None, typer.Option(help="Test data, in the same form as the training data.")
]
SavedModel = Annotated[
    Path | None, typer.Option(help="Saved model.npz to test. Nothing is fitted.")
]
Folds = Annotated[
    int | None,
    typer.Option(help="Number of folds for choosing by cross-validation within each user's rows."),
]
Beta = Annotated[
    str | None,
    typer.Option(help="Maximum norm of a model. With --cv, a list such as 1,10,100."),
]
Mu = Annotated[
    str | None,
    typer.Option(help="Weight of the agreement between neighbours. With --cv, also a list."),
]
Lam = Annotated[
    str | None, typer.Option(help="Density of the learned graph. With --cv, also a list.")
]
Method = Annotated[
    str,
    among(
        *names_in("problems/personal/methods", "dada"),
        *names_in("problems/personal/methods", "perso_linear"),
        *names_in("problems/personal/methods", "personal_baselines"),
        "shared",
        also=(', or "auto": chosen by cross-validation, or dada if --beta, --mu or --lam is given'),
    ),
]
Network = Annotated[
    str,
    among("learned", *names_in("networks"), also=", or a file of edges: which users are similar"),
]
Save = Annotated[
    Path | None,
    typer.Option(help="Output folder for model and certificate, as `coterie fit` writes them."),
]
Unknown = Annotated[
    str,
    among(
        "error",
        "neighbours",
        "common",
        also=": what to do with test rows of a user without a model",
    ),
]
All = Annotated[
    bool, typer.Option("--all", help="Show all users, not only the worst and the best.")
]
UserTable = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Output file with all users, .csv or .parquet."),
]


@in_panels(PANELS)
def users(
    data: Training = None,
    target: Target = None,
    users: UserColumn = None,
    columns: Columns = None,
    test: Test = None,
    model: SavedModel = None,
    cv: Folds = None,
    beta: Beta = None,
    mu: Mu = None,
    lam: Lam = None,
    method: Method = AUTO,
    network: Network = "learned",
    engine: Engine = Placement.engine,
    deadline: Deadline = None,
    option: Options = None,
    tol: Tolerance = 1e-2,
    max_rounds: MaxRounds = 500,
    seed: Seed = Settings.seed,
    save: Save = None,
    unknown: Unknown = "error",
    show_all: All = False,
    output: UserTable = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Fit a model for every user (or test a saved one), and report the accuracy for each user.

    Cross-validation at the users chooses the kind of model: one for all, with or without
    deviations of every user, one for each, or boosted ones close to those of similar users.
    Accuracy is the share of correct predictions: on the training data (train) and on the test data
    (test).
    """
    numbers = _numbers({"beta": beta, "mu": mu, "lam": lam}, cv is not None)
    options = pairs(option)
    from coterie.report.users import FORMATS, accuracy_by_user, write_rows

    if output is not None and output.suffix not in FORMATS:
        raise UnknownName("kind of table", output.suffix, FORMATS)
    rows = Rows(data or [], test or [], target, users, columns)
    if model is not None:
        answer = _tested(model, rows)
    else:
        progress = None
        if as_json:
            progress = False
        runner = co.engines.engine(engine, deadline)
        settings = Settings.of(
            split="users", network=network, method=method, engine=runner, seed=seed
        )
        settings = settings.but(tol=tol, max_rounds=max_rounds, progress=progress)
        answer = _fitted(Asked.of(settings, numbers, options, cv), rows)
        if not runner.writes_output:
            raise typer.Exit(answer.exit_code)
        answer = answer.saved(save)
    found = accuracy_by_user(answer.model, answer.train, answer.test, unknown=unknown)
    if output is not None:
        write_rows(found, output)
    if as_json:
        _print_json(found, answer, output)
    else:
        _show(found, answer, output, show_all)
    raise typer.Exit(answer.exit_code)


@dataclass(frozen=True)
class Rows:
    """Files of rows, and the roles of their columns."""

    data: list[Path]
    test: list[Path]
    target: str | None
    users: str | None
    columns: str | None

    def tables(self, files: list[Path], columns: Any) -> list[co.Table]:
        """Read a table for each user."""
        if not files:
            return []
        return by_user(files, self.target, self.users, columns)


@dataclass(frozen=True)
class Asked:
    """The parameters and settings of a fit, of which cross-validation may choose some."""

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
        """Divide the options into parameters of boosted models and parameters of the method."""
        names = {one.name for one in fields(co.Personal)}
        personal = {name: value for name, value in options.items() if name in names}
        others = {name: value for name, value in options.items() if name not in names}
        method = settings.algorithm.method
        if method == AUTO and numbers:
            method = "dada"
        if method in (AUTO, "shared"):
            _refuse_unknown(method, others)
            suiting = PATIENT
        else:
            suiting = _suiting(method)
        algorithm = replace(settings.algorithm, method=method, options={**suiting, **others})
        return Asked(replace(settings, algorithm=algorithm), numbers, personal, cv)

    def problem(self) -> co.Personal:
        """The boosted models that are asked for, with the first of several values each."""
        first = {name: values[0] for name, values in self.numbers.items()}
        parameters = {"constant": True, **self.personal, **first}
        return co.Personal(**parameters)


def _refuse_unknown(method: str, options: dict[str, Any]) -> None:
    """Refuse options that no method takes from which `method` chooses."""
    known = {"local_steps", "alternations", "sample", "begin"}
    unknown = sorted(options.keys() - known)
    if unknown:
        raise InvalidInput(f"--method {method} takes no {unknown[0]!r}; name the method that does.")


@dataclass(frozen=True)
class Answer:
    """A model for every user, and the rows that it is tested on."""

    model: co.models.UserModel
    train: list[co.Table]
    test: list[co.Table]
    result: co.Result | None = None
    trials: Sequence[Trial] = ()
    trials_cost: Cost | None = None
    """The communication cost of a choice among models."""

    @property
    def exit_code(self) -> int:
        """The exit code of the command."""
        if self.result is None:
            return 0
        return self.result.status.exit_code

    def saved(self, folder: Path | None) -> Answer:
        """Write the answer to a folder, if there is one. A better result in the folder stays."""
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
    """Load a saved model, and the rows to test it on. Nothing is fitted."""
    if not (rows.data or rows.test):
        raise InvalidInput(
            "there are no rows to test the model on: give --test new.csv, or the training data."
        )
    fitted = _saved(model)
    columns = fitted.columns or rows.columns
    train = rows.tables(rows.data, columns)
    test = rows.tables(rows.test, columns)
    return Answer(fitted, train, test)


def _fitted(asked: Asked, rows: Rows) -> Answer:
    """Fit the model that is asked for, or the best of several."""
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
        result, trials, cost = _chosen_fit(problem, train, settings, asked.cv)
        return Answer(result.model, train, kept, result, trials, cost)
    if asked.cv is not None:
        grids = {**GRIDS, **asked.numbers}
        problem, trials = cross_validated(problem, train, grids, asked.cv, settings)
    result = fit(problem, train, settings)
    return Answer(result.model, train, kept, result, trials)


def _chosen_fit(
    problem: co.Personal, train: Sequence[co.Table], settings: Settings, cv: int | None
) -> tuple[co.Result, list[Trial], Cost]:
    """Fit the model that is best on held-out rows, of linear and, for auto, of boosted ones; and
    list the trials, with their communication cost.
    """
    from coterie.api.choose import choose_for, chosen_fit
    from coterie.stats.choosing import BOOSTED, FOLDS, LINEAR

    wanted: tuple[str, ...] = LINEAR
    if settings.algorithm.method != "shared":
        wanted = (*LINEAR, *BOOSTED)
    chosen, cost = choose_for(
        list(train),
        folds=cv or FOLDS,
        penalty={"penalty": "l2"},
        personal=problem,
        wanted=wanted,
        settings=settings,
    )
    return chosen_fit(chosen, list(train), settings), chosen.trials, cost


def _saved(path: Path) -> co.models.UserModel:
    found = co.models.load_model(path)
    if not isinstance(found, co.models.UserModel):
        raise InvalidInput(
            f"{path} holds one model for all users, not one per user; use coterie predict."
        )
    return found


def _suiting(method: str) -> dict[str, Any]:
    """The parameters of `PATIENT` that this method has."""
    if method not in co.methods.METHODS:
        return {}
    known = {one.name for one in fields(co.methods.METHODS[method])}
    if method != "dada":
        known.discard("begin")
    return {name: value for name, value in PATIENT.items() if name in known}


def _numbers(given: dict[str, str | None], several: bool) -> dict[str, tuple[float, ...]]:
    """Read options as numbers; `several`: cross-validation chooses between several values."""
    found = {}
    for name, written in given.items():
        if written is None:
            continue
        try:
            values = tuple(float(part) for part in written.split(","))
        except ValueError:
            raise typer.BadParameter(
                f"--{name} takes a number, or several separated by commas, not {written!r}"
            ) from None
        if len(values) > 1 and not several:
            raise InvalidProblem(
                f"--{name} {written} has several values: add --cv 3 to choose between them, or "
                "give one value."
            )
        found[name] = values
    return found


def _spreads(rows: Sequence[UserRow]) -> dict[str, dict[str, float] | None]:
    from coterie.report.users import spread

    return {name: spread(row[name] for row in rows) for name in ("train", "test")}


def _chosen(model: co.models.UserModel) -> dict[str, float]:
    """The values of the parameters that the command, or cross-validation, chose."""
    from coterie.estimators.personalized import GRIDS

    names = (*GRIDS, "nu")
    problem = model.problem
    return {name: getattr(problem, name) for name in names if hasattr(problem, name)}


def _print_json(rows: Sequence[UserRow], answer: Answer, output: Path | None) -> None:
    numbers: dict[str, Any] = {}
    if answer.result is not None:
        numbers |= summary(answer.result)
    numbers |= {
        "users": list(rows),
        "accuracy": _spreads(rows),
        "parameters": _plain(_chosen(answer.model)),
        "trials": [_plain(trial) for trial in answer.trials],
        "trials_cost": None if answer.trials_cost is None else vars(answer.trials_cost),
        "output": text_or_none(output),
    }
    print_json(numbers)


def _plain(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Write infinite numbers as text: JSON has no number for them."""
    found = dict(numbers)
    for name, value in numbers.items():
        if value == float("inf"):
            found[name] = str(value)
    return found


def _show(rows: Sequence[UserRow], answer: Answer, output: Path | None, show_all: bool) -> None:
    if answer.result is not None:
        _show_fit(answer.result)
    _show_parameters(answer)
    whole = show_all or len(rows) <= 2 * ENDS + 1
    if whole:
        _show_users(rows, None)
    else:
        _show_users(rows, ENDS)
    for name, found in _spreads(rows).items():
        if found is not None:
            parts = [f"{part.replace('_', ' ')} {value:.3f}" for part, value in found.items()]
            show_value(name, ", ".join(parts))
    if output is not None:
        show_written(f"{len(rows)} users", output)
    elif not whole:
        console().print("[dim]--all shows every user, -o users.csv writes them to a file.[/dim]")


def _show_fit(result: co.Result) -> None:
    show_model(result)
    show_text(result.explanation)
    show_status(result)
    show_value("Certificate", result.certificate.proves)
    if result.error is not None:
        show_text(result.reason)
    for warning in result.warnings:
        show_text(warning)


def _show_parameters(answer: Answer) -> None:
    values = ", ".join(f"{name} {value:g}" for name, value in _chosen(answer.model).items())
    if not values:
        return
    if answer.trials:
        values = f"{values} (the best of {count(len(answer.trials), 'trial')})"
    show_value("Parameters", values)


def _show_users(rows: Sequence[UserRow], cut: int | None) -> None:
    """Print a row for each user, the worst first; or only for `cut` of the worst and the best."""
    judged = "train"
    if any(row["test"] is not None for row in rows):
        judged = "test"
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
    cells = [escape(str(row["user"]))]
    for name, value in row.items():
        if name != "user":
            cells.append(_cell(value))
    return cells


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3f}"
    return str(value)
