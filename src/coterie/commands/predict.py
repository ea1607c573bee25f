"""`coterie predict`: what a fitted model says about new rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

import coterie as co
from coterie.commands.agent import saying
from coterie.commands.files import named_places, numbered
from coterie.commands.options import Config, Exposure, Json, Offset, Raw, Without, among
from coterie.commands.output import console, print_json
from coterie.errors import InvalidInput

EXAMPLE = "Example: coterie predict coterie-fit/model.npz new-patients.csv -o predictions.csv"


def predict(
    model: Annotated[Path, typer.Argument(help="model.npz from `coterie fit`.")],
    data: Annotated[
        Path,
        typer.Argument(
            help="New data with the columns of the model: Parquet, Arrow, CSV or svmlight."
        ),
    ],
    users: Annotated[
        str | None, typer.Option(help="Column with the user of each row, for personal models.")
    ] = None,
    unknown: Annotated[
        str,
        among(
            "error", "neighbours", "common", also=": what to do with rows of a user without a model"
        ),
    ] = "error",
    offset: Offset = None,
    exposure: Exposure = None,
    proba: Annotated[
        bool, typer.Option("--proba", help="Also write the probability of every class.")
    ] = False,
    score: Annotated[
        bool, typer.Option("--score", help="Also write the scores (decision function).")
    ] = False,
    id: Annotated[
        str | None, typer.Option("--id", help="Column with the row ids, to copy to the output.")
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option("--keep", help="Column to copy to the output. Can be repeated."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Output CSV file (default: print).")
    ] = None,
    without: Without = None,
    raw: Raw = False,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Predict with a fitted model. With a party.toml, do it together with the other parties."""
    kept = [*([] if id is None else [id]), *(keep or ())]
    wanted = Wanted(data, output, kept, proba, score, raw, as_json)
    rows = Rows(users, unknown, id, offset, exposure)
    if model.suffix == ".toml":
        from coterie.study.study import load_party

        own, study = load_party(model)
        if study.split == "features":
            if offset is not None or exposure is not None:
                raise InvalidInput(
                    "with a party.toml, that file names the column: offset, or exposure."
                )
            predict_with_parties(model, wanted, without=without or [])
            return
        if without:
            raise InvalidInput(
                "split by samples, every party has the whole model; leave --without out."
            )
        model = own.output / "model.npz"  # the whole model: no other party is needed
        if offset is None and exposure is None:
            rows = replace(rows, offset=own.offset, exposure=own.exposure)
    if without:
        raise InvalidInput("--without is for a study: give your party.toml in place of the model.")
    _predict_alone(co.models.load_model(model), rows, wanted)


@dataclass(frozen=True)
class Rows:
    """What columns of new rows mean."""

    users: str | None
    unknown: str
    id: str | None
    offset: str | None
    exposure: str | None


@dataclass(frozen=True)
class Wanted:
    """Which file is predicted, and what is written of it, and where."""

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
        return str(self.output) if self.output else None


def _predict_alone(fitted: Any, rows: Rows, wanted: Wanted) -> None:
    _check_model(fitted, rows)
    table, known = _read(fitted, rows, wanted.data)
    copied = co.data.read_cells(wanted.data, wanted.keep)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        predictions = fitted.predict(table, **known).tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        scores = partial(fitted.decision_function, table, **known) if wanted.score else None
        chances = (
            partial(getattr(fitted, "predict_proba", _no_chances), table, **known)
            if wanted.proba
            else None
        )
        found = {**copied, "prediction": predictions, **_more(fitted, chances, scores)}
    for warning in said:
        console(stderr=True).print(
            f"[yellow]warning:[/yellow] {escape(str(warning.message))}", soft_wrap=True
        )
    if len(found) < len(copied) + 1:
        raise InvalidInput("a kept column is called 'prediction', as the output's own. Rename it.")
    _write(found, wanted)


def _check_model(fitted: Any, rows: Rows) -> None:
    """Refuse parts of a model, and columns that are not for this model."""
    if part := getattr(fitted, "part", None):
        owner = part.partition(" of ")[0]
        raise InvalidInput(
            f"this is {owner}'s part of a model; use `coterie predict party.toml` at every party."
        )
    if rows.users is not None and not isinstance(fitted, co.models.UserModel):
        raise InvalidInput(
            "--users is for models of every user, and this file has one model for all; leave it "
            "out."
        )
    _check_offset(fitted, rows.offset or rows.exposure)


def _read(fitted: Any, rows: Rows, data: Path) -> tuple[Any, dict[str, Any]]:
    """The rows, and what else the model is told of them."""
    if getattr(fitted, "row_ids", None) is not None:
        return named_places(data, fitted.columns), {}
    names = _columns_of(fitted, data)
    id = rows.users or (rows.id if names is None else None)
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
    if fitted.columns or isinstance(fitted, co.models.UserModel):
        return fitted.columns or None
    several = isinstance(fitted, co.MulticlassModel)
    return numbered(data, fitted.coef_.shape[1 if several else 0])


def _write(found: dict[str, Any], wanted: Wanted) -> None:
    """Write and print the columns of the output."""
    predictions = found["prediction"]
    written = co.files.csv_text(list(found), zip(*found.values(), strict=True), raw=wanted.raw)
    if wanted.output is not None:
        co.files.write_atomically(wanted.output, written.encode())
    if wanted.as_json:
        print_json({"predictions": predictions, **_beside(found), "output": wanted.place})
    elif wanted.output is None:
        print(written if len(found) > 1 else written.partition("\n")[2], end="")
    else:
        console().print(f"{len(predictions)} predictions written to [bold]{wanted.output}[/bold].")


def _beside(found: dict[str, Any]) -> dict[str, Any]:
    """All columns of the output but the predictions."""
    columns = {name: cells for name, cells in found.items() if name != "prediction"}
    return {"columns": columns} if columns else {}


def _check_offset(fitted: Any, column: str | None) -> None:
    if (column is None) == fitted.problem.offset:
        raise InvalidInput(
            (
                "this model was fitted with an offset: name the column of the new rows with "
                "--offset "
                "or --exposure."
            )
            if column is None
            else "this model was fitted without an offset; leave --offset and --exposure out."
        )


def _more(
    fitted: Any, chances: Callable[[], Any] | None, decision: Callable[[], Any] | None
) -> dict[str, list[Any]]:
    """Probabilities and scores, where they are asked for, by the names of their columns."""
    found: dict[str, list[Any]] = {}
    classes = [] if fitted.classes_ is None else fitted.classes_.tolist()
    if chances is not None:
        columns = (chances if classes else _no_chances)().T.tolist()
        found |= {
            f"probability {label}": column for label, column in zip(classes, columns, strict=True)
        }
    if decision is not None:
        scores = decision()
        if scores.ndim == 1:
            return {**found, "score": scores.tolist()}
        labels = classes or range(scores.shape[1])
        found |= {
            f"score {label}": column
            for label, column in zip(labels, scores.T.tolist(), strict=True)
        }
    return found


def _no_chances(*rows: Any, **whose: Any) -> Any:
    raise InvalidInput(
        "--proba is for models with probabilities of classes: logistic or multinomial."
    )


def predict_with_parties(file: Path, wanted: Wanted, *, without: Sequence[str] = ()) -> None:
    """Predict with all parties' parts of the model; the party with the labels gets the answer."""
    from coterie.study.departure import predict_without
    from coterie.study.scores import predict_together
    from coterie.study.study import load_party

    own, study = load_party(file, without)
    copied = co.data.read_cells(wanted.data, [name for name in wanted.keep if name != study.id])
    told_by: dict[str, Any] = {"say": saying(own.party), "consent": True}
    cost = None
    if without:
        before, _ = load_party(file)
        together, cost = predict_without(own, study, before, wanted.data, without, **told_by)
    else:
        together = predict_together(own, study, wanted.data, **told_by)
    ids = [] if together.table.ids is None else together.table.ids.tolist()
    told: dict[str, Any] = {"party": own.party, "ids": ids}
    text, predictions = "The predictions are at the party with the labels.", None
    if together.scores is not None:
        found = _found(together, copied, wanted)
        told["ids"] = ids or [None] * together.table.n
        text, predictions = (
            _written(found, told["ids"], study.id or "", wanted),
            found["prediction"],
        )
        told |= _beside(found)
    if cost is not None:
        told["cost"] = cost
        console(stderr=True).print(cost, markup=False, soft_wrap=True)
    if wanted.as_json:
        print_json({**told, "predictions": predictions, "output": wanted.place})
    else:
        print(text.rstrip("\n"))


def _found(together: Any, copied: dict[str, list[Any]], wanted: Wanted) -> dict[str, Any]:
    """The columns of the output, at the party with the labels."""
    fitted, scores = together.model, together.scores
    chances = partial(fitted.probabilities, scores) if wanted.proba else None
    more = _more(fitted, chances, (lambda: scores) if wanted.score else None)
    found = {name: [cells[row] for row in together.table.rows] for name, cells in copied.items()}
    return {**found, "prediction": fitted.answers(scores).tolist(), **more}


def _written(found: dict[str, Any], ids: list[Any], id: str, wanted: Wanted) -> str:
    """The output as text; or, where it is written to a file, how much was written."""
    written = co.files.csv_text(
        [id, *found], zip(ids, *found.values(), strict=True), raw=wanted.raw
    )
    if wanted.output is None:
        return written
    co.files.write_atomically(wanted.output, written.encode())
    return f"{len(found['prediction'])} predictions written to {wanted.output}."
