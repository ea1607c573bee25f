"""`coterie predict`: predictions of a fitted model for new rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

import coterie as co
from coterie.commands.agent import asking, saying
from coterie.commands.files import named_places, numbered, refuse_part
from coterie.commands.options import (
    Config,
    Consent,
    CsvOutput,
    Exposure,
    Json,
    Offset,
    Raw,
    Without,
    among,
)
from coterie.commands.output import console, print_json, show_written, text_or_none
from coterie.errors import InvalidInput

EXAMPLE = "Example: coterie predict coterie-fit/model.npz new-patients.csv -o predictions.csv"
FittedModel = Annotated[Path, typer.Argument(help="model.npz from `coterie fit`.")]
NewRows = Annotated[
    Path,
    typer.Argument(help="New data with the columns of the model: Parquet, Arrow, CSV or svmlight."),
]
UserColumn = Annotated[
    str | None, typer.Option(help="Column with the user of each row, for personal models.")
]
Unknown = Annotated[
    str,
    among("error", "neighbours", "common", also=": what to do with rows of a user without a model"),
]
Proba = Annotated[bool, typer.Option("--proba", help="Also write the probability of every class.")]
Score = Annotated[bool, typer.Option("--score", help="Also write the scores (decision function).")]
CopiedId = Annotated[
    str | None, typer.Option("--id", help="Column with the row ids, to copy to the output.")
]
Keep = Annotated[
    list[str] | None,
    typer.Option("--keep", help="Column to copy to the output. Can be repeated."),
]


def predict(
    model: FittedModel,
    data: NewRows,
    users: UserColumn = None,
    unknown: Unknown = "error",
    offset: Offset = None,
    exposure: Exposure = None,
    proba: Proba = False,
    score: Score = False,
    id: CopiedId = None,
    keep: Keep = None,
    output: CsvOutput = None,
    without: Without = None,
    raw: Raw = False,
    yes: Consent = False,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Predict with a fitted model. With a party.toml, predict together with the other parties."""
    copied = list(keep or ())
    if id is not None:
        copied.insert(0, id)
    wanted = Wanted(data, output, copied, proba, score, raw, as_json)
    rows = Rows(users, unknown, id, offset, exposure)
    if model.suffix == ".toml":
        _predict_of_party(model, rows, wanted, yes=yes, without=without or [])
        return
    if without:
        raise InvalidInput("--without is for a study: give your party.toml in place of the model.")
    _predict_alone(co.models.load_model(model), rows, wanted)


@dataclass(frozen=True)
class Rows:
    """The roles of columns of new rows."""

    users: str | None
    unknown: str
    id: str | None
    offset: str | None
    exposure: str | None

    @property
    def named_offset(self) -> str | None:
        """The column that becomes the offset, if there is one."""
        if self.offset is not None:
            return self.offset
        return self.exposure


@dataclass(frozen=True)
class Wanted:
    """Which file is predicted, which columns are written, and where."""

    data: Path
    output: Path | None
    keep: Sequence[str] = ()
    proba: bool = False
    score: bool = False
    raw: bool = False
    as_json: bool = False

    @property
    def place(self) -> str | None:
        """The file that is written, as text."""
        return text_or_none(self.output)


@dataclass
class Columns:
    """The columns of the output: copied ones, the predictions, probabilities and scores."""

    copied: dict[str, list[Any]]
    predictions: list[Any]
    more: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def together(self) -> dict[str, list[Any]]:
        """All columns, in the order of the output."""
        return {**self.copied, "prediction": self.predictions, **self.more}

    @property
    def others(self) -> dict[str, Any]:
        """All columns but the predictions, for JSON."""
        columns = self.together
        del columns["prediction"]
        if not columns:
            return {}
        return {"columns": columns}


def _predict_of_party(
    file: Path, rows: Rows, wanted: Wanted, *, yes: bool, without: list[str]
) -> None:
    """Predict with the model of a study, alone where this party has the whole model."""
    from coterie.study.study import load_party

    own, study = load_party(file)
    if study.split == "features":
        if rows.named_offset is not None:
            raise InvalidInput(
                "with a party.toml, that file names the column: offset, or exposure."
            )
        predict_with_parties(file, wanted, yes=yes, without=without)
        return
    if without:
        raise InvalidInput(
            "split by samples, every party has the whole model; leave --without out."
        )
    if rows.named_offset is None:
        rows = replace(rows, offset=own.offset, exposure=own.exposure)
    _predict_alone(co.models.load_model(own.output / "model.npz"), rows, wanted)


def _predict_alone(fitted: Any, rows: Rows, wanted: Wanted) -> None:
    """Predict with a whole model."""
    _check_model(fitted, rows)
    table, known = _read(fitted, rows, wanted.data)
    copied = co.data.read_cells(wanted.data, wanted.keep)
    if "prediction" in copied:
        raise InvalidInput("a kept column is called 'prediction', as the output's own. Rename it.")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        predictions = fitted.predict(table, **known).tolist()
    found = Columns(copied, predictions)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        if wanted.proba:
            probabilities = getattr(fitted, "predict_proba", _no_probabilities)
            found.more |= _probabilities(fitted, partial(probabilities, table, **known))
        if wanted.score:
            found.more |= _scores(fitted, fitted.decision_function(table, **known))
    for warning in caught:
        text = escape(str(warning.message))
        console(stderr=True).print(f"[yellow]warning:[/yellow] {text}", soft_wrap=True)
    _write(found, wanted)


def _check_model(fitted: Any, rows: Rows) -> None:
    """Refuse parts of a model, and columns that are not for this model."""
    refuse_part(fitted, "predict")
    if rows.users is not None and not isinstance(fitted, co.models.UserModel):
        raise InvalidInput(
            "--users is for models of every user, and this file has one model for all; leave it "
            "out."
        )
    _check_offset(fitted, rows.named_offset)


def _check_offset(fitted: Any, column: str | None) -> None:
    if column is None and fitted.problem.offset:
        raise InvalidInput(
            "this model was fitted with an offset: name the column of the new rows with --offset "
            "or --exposure."
        )
    if column is not None and not fitted.problem.offset:
        raise InvalidInput(
            "this model was fitted without an offset; leave --offset and --exposure out."
        )


def _read(fitted: Any, rows: Rows, data: Path) -> tuple[Any, dict[str, Any]]:
    """Read the rows, and what the model's `predict` needs with them."""
    if getattr(fitted, "row_ids", None) is not None:
        return named_places(data, fitted.columns), {}
    names = _columns_of(fitted, data)
    id = rows.users
    if id is None and names is None:
        id = rows.id
    roles: dict[str, Any] = {"id": id, "offset": rows.offset, "exposure": rows.exposure}
    table = co.read(data, columns=names, prepare=fitted.preparation, **roles)
    if table.offset is not None:
        return replace(table, offset=None), {"offset": table.offset}
    if rows.users is None:
        return table, {}
    return table, {"users": table.ids, "unknown": rows.unknown}


def _columns_of(fitted: Any, data: Path) -> Sequence[str] | None:
    """The columns that the model needs; None: all that the file has."""
    if fitted.preparation is not None:
        raw: Sequence[str] = fitted.preparation.raw
        return raw
    if fitted.columns:
        names: Sequence[str] = fitted.columns
        return names
    if isinstance(fitted, co.models.UserModel):
        return None
    shape = fitted.coef_.shape
    if isinstance(fitted, co.MulticlassModel):
        return numbered(data, shape[1])
    return numbered(data, shape[0])


def _write(found: Columns, wanted: Wanted) -> None:
    """Write and print the columns of the output."""
    columns = found.together
    written = co.files.csv_text(list(columns), zip(*columns.values(), strict=True), raw=wanted.raw)
    if wanted.output is not None:
        co.files.write_atomically(wanted.output, written.encode())
    if wanted.as_json:
        answer = {"predictions": found.predictions, **found.others}
        print_json({**answer, "output": wanted.place})
    elif wanted.output is not None:
        show_written(f"{len(found.predictions)} predictions", wanted.output)
    elif len(columns) > 1:
        print(written, end="")
    else:
        _, _, without_heading = written.partition("\n")
        print(without_heading, end="")


def _probabilities(fitted: Any, compute: Callable[[], Any]) -> dict[str, list[Any]]:
    """Compute the probabilities of classes, by the names of their columns."""
    if fitted.classes_ is None:
        _no_probabilities()
    columns = compute().T.tolist()
    labels = fitted.classes_.tolist()
    return {f"probability {label}": column for label, column in zip(labels, columns, strict=True)}


def _scores(fitted: Any, scores: Any) -> dict[str, list[Any]]:
    """Name the columns of scores: one, or one for each class."""
    if scores.ndim == 1:
        return {"score": scores.tolist()}
    labels: Sequence[Any] = range(scores.shape[1])
    if fitted.classes_ is not None:
        labels = fitted.classes_.tolist()
    columns = scores.T.tolist()
    return {f"score {label}": column for label, column in zip(labels, columns, strict=True)}


def _no_probabilities(*rows: Any, **roles: Any) -> Any:
    raise InvalidInput(
        "--proba is for models with probabilities of classes: logistic or multinomial."
    )


def predict_with_parties(
    file: Path, wanted: Wanted, *, yes: bool, without: Sequence[str] = ()
) -> None:
    """Predict with all parties' parts of the model; the party with the labels gets the answer."""
    from coterie.study.departure import predict_without
    from coterie.study.scores import predict_together
    from coterie.study.study import load_party

    own, study = load_party(file, without)
    kept = [name for name in wanted.keep if name != study.id]
    copied = co.data.read_cells(wanted.data, kept)
    # Predictions are printed, so the page goes to standard error.
    consent = asking([file, wanted.data], "predict", yes=yes, as_json=True)
    how: dict[str, Any] = {"say": saying(own.party), "consent": consent}
    cost = None
    if without:
        before, _ = load_party(file)
        together, cost = predict_without(own, study, before, wanted.data, without, **how)
    else:
        together = predict_together(own, study, wanted.data, **how)
    ids: list[Any] = []
    if together.table.ids is not None:
        ids = together.table.ids.tolist()
    answer: dict[str, Any] = {"party": own.party, "ids": ids}
    text = "The predictions are at the party with the labels."
    predictions = None
    if together.scores is not None:
        ids = ids or [None] * together.table.n
        found = _found(together, copied, wanted)
        predictions = found.predictions
        text = _written(found, ids, study.id or "", wanted)
        answer |= {"ids": ids, **found.others}
    if cost is not None:
        answer["cost"] = cost
        console(stderr=True).print(cost, markup=False, soft_wrap=True)
    if wanted.as_json:
        print_json({**answer, "predictions": predictions, "output": wanted.place})
    else:
        print(text.rstrip("\n"))


def _found(together: Any, copied: dict[str, list[Any]], wanted: Wanted) -> Columns:
    """Collect the columns of the output, at the party with the labels."""
    fitted = together.model
    scores = together.scores
    kept = {name: [cells[row] for row in together.table.rows] for name, cells in copied.items()}
    found = Columns(kept, fitted.answers(scores).tolist())
    if wanted.proba:
        found.more |= _probabilities(fitted, partial(fitted.probabilities, scores))
    if wanted.score:
        found.more |= _scores(fitted, scores)
    return found


def _written(found: Columns, ids: list[Any], id: str, wanted: Wanted) -> str:
    """Write the output as text; or, where it goes to a file, say how much was written."""
    columns = found.together
    rows = zip(ids, *columns.values(), strict=True)
    text = co.files.csv_text([id, *columns], rows, raw=wanted.raw)
    if wanted.output is None:
        return text
    co.files.write_atomically(wanted.output, text.encode())
    return f"{len(found.predictions)} predictions written to {wanted.output}."
