"""`coterie predict`: what a fitted model says about new rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
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
        Path, typer.Argument(help="New data with the columns of the model: Parquet, Arrow, CSV or svmlight.")
    ],
    users: Annotated[str | None, typer.Option(help="Column with the user of each row, for personal models.")] = None,
    unknown: Annotated[
        str, among("error", "neighbours", "common", also=": what to do with rows of a user without a model")
    ] = "error",
    offset: Offset = None,
    exposure: Exposure = None,
    proba: Annotated[bool, typer.Option("--proba", help="Also write the probability of every class.")] = False,
    score: Annotated[bool, typer.Option("--score", help="Also write the scores (decision function).")] = False,
    id: Annotated[str | None, typer.Option("--id", help="Column with the row ids, to copy to the output.")] = None,
    keep: Annotated[
        list[str] | None, typer.Option("--keep", help="Column to copy to the output. Can be repeated.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Output CSV file (default: print).")] = None,
    without: Without = None,
    raw: Raw = False,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Predict with a fitted model. With a party.toml, do it together with the other parties."""
    if model.suffix == ".toml":
        from coterie.peers.study import load_party

        own, study = load_party(model)
        if study.split == "features":
            if offset is not None or exposure is not None:
                raise InvalidInput("with a party.toml, that file names the column: offset, or exposure.")
            kept = [*([] if id is None else [id]), *(keep or ())]
            beside: dict[str, Any] = {"proba": proba, "score": score, "keep": kept, "without": without or []}
            predict_with_parties(model, data, output, as_json, raw=raw, **beside)
            return
        if without:
            raise InvalidInput("split by samples, every party has the whole model; leave --without out.")
        model = own.output / "model.npz"  # the whole model: nobody else is needed
        if offset is None and exposure is None:
            offset, exposure = own.offset, own.exposure
    if without:
        raise InvalidInput("--without is for a study: give your party.toml in place of the model.")
    fitted: Any = co.models.load_model(model)
    if part := getattr(fitted, "part", None):
        owner = part.partition(" of ")[0]
        raise InvalidInput(f"this is {owner}'s part of a model; use `coterie predict party.toml` at every party.")
    personal = isinstance(fitted, co.models.UserModel)
    if users is not None and not personal:
        raise InvalidInput("--users is for models of every user, and this file has one model for all; leave it out.")
    several = isinstance(fitted, co.MulticlassModel)
    names = fitted.columns or (None if personal else numbered(data, fitted.coef_.shape[1 if several else 0]))
    if fitted.preparation is not None:
        names = fitted.preparation.raw
    roles: dict[str, Any] = {"id": users or (id if names is None else None), "offset": offset, "exposure": exposure}
    _check_offset(fitted, offset or exposure)
    table: Any
    if getattr(fitted, "row_ids", None) is not None:
        table, whose = named_places(data, fitted.columns), {}
    else:
        table = co.read(data, columns=names, prepare=fitted.preparation, **roles)
        whose = {"users": table.ids, "unknown": unknown} if personal and users is not None else {}
        if table.offset is not None:
            whose, table = {"offset": table.offset}, replace(table, offset=None)
    copied = co.data.read_cells(data, [*([] if id is None else [id]), *(keep or ())])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        predictions = fitted.predict(table, **whose).tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        scores = partial(fitted.decision_function, table, **whose) if score else None
        chances = partial(getattr(fitted, "predict_proba", _no_chances), table, **whose) if proba else None
        found = {**copied, "prediction": predictions, **_more(fitted, chances, scores)}
    for warning in said:
        console(stderr=True).print(f"[yellow]warning:[/yellow] {escape(str(warning.message))}", soft_wrap=True)
    if len(found) < len(copied) + 1:
        raise InvalidInput("a kept column is called 'prediction', as the output's own. Rename it.")
    written = co.files.csv_text(list(found), zip(*found.values(), strict=True), raw=raw)
    if output is not None:
        co.files.write_atomically(output, written.encode())
    if as_json:
        beside = {name: cells for name, cells in found.items() if name != "prediction"}
        told = {"columns": beside} if beside else {}
        print_json({"predictions": predictions, **told, "output": str(output) if output else None})
    elif output is None:
        print(written if len(found) > 1 else written.partition("\n")[2], end="")
    else:
        console().print(f"{len(predictions)} predictions written to [bold]{output}[/bold].")


def _check_offset(fitted: Any, column: str | None) -> None:
    if (column is None) == fitted.problem.offset:
        raise InvalidInput(
            "this model was fitted with an offset: name the column of the new rows with --offset or --exposure."
            if column is None
            else "this model was fitted without an offset; leave --offset and --exposure out."
        )


def _more(fitted: Any, chances: Callable[[], Any] | None, decision: Callable[[], Any] | None) -> dict[str, list[Any]]:
    """Probabilities and scores, where they are asked for, by the names of their columns."""
    found: dict[str, list[Any]] = {}
    classes = [] if fitted.classes_ is None else fitted.classes_.tolist()
    if chances is not None:
        columns = (chances if classes else _no_chances)().T.tolist()
        found |= {f"probability {label}": column for label, column in zip(classes, columns, strict=True)}
    if decision is not None:
        scores = decision()
        if scores.ndim == 1:
            return {**found, "score": scores.tolist()}
        labels = classes or range(scores.shape[1])
        found |= {f"score {label}": column for label, column in zip(labels, scores.T.tolist(), strict=True)}
    return found


def _no_chances(*rows: Any, **whose: Any) -> Any:
    raise InvalidInput("--proba is for models with probabilities of classes: logistic or multinomial.")


def predict_with_parties(
    file: Path,
    data: Path,
    output: Path | None,
    as_json: bool,
    chaos: Any = None,
    *,
    raw: bool = False,
    proba: bool = False,
    score: bool = False,
    keep: Sequence[str] = (),
    without: Sequence[str] = (),
) -> None:
    """Predict with all parties' parts of the model; the party with the labels gets the answer."""
    from coterie.peers.departure import predict_without
    from coterie.peers.scores import predict_together
    from coterie.peers.study import load_party

    own, study = load_party(file, without)
    copied = co.data.read_cells(data, [name for name in keep if name != study.id])
    cost = None
    if without:
        before, _ = load_party(file)
        told_by: dict[str, Any] = {"chaos": chaos, "say": saying(own.party), "consent": True}
        together, cost = predict_without(own, study, before, data, without, **told_by)
    else:
        together = predict_together(own, study, data, chaos=chaos, say=saying(own.party), consent=True)
    fitted, table, scores = together.model, together.table, together.scores
    ids = [None] * table.n if table.ids is None else table.ids.tolist()
    told: dict[str, Any] = {"party": own.party, "ids": ids if scores is not None or table.ids is not None else []}
    text = "The predictions are at the party with the labels."
    predictions = None
    if scores is not None:
        predictions = fitted.answers(scores).tolist()
        chances = partial(fitted.probabilities, scores) if proba else None
        more = _more(fitted, chances, (lambda: scores) if score else None)
        assert table.rows is not None
        found = {name: [cells[row] for row in table.rows] for name, cells in copied.items()}
        found |= {"prediction": predictions, **more}
        text = written = co.files.csv_text([study.id or "", *found], zip(ids, *found.values(), strict=True), raw=raw)
        if output is not None:
            co.files.write_atomically(output, written.encode())
            text = f"{len(predictions)} predictions written to {output}."
        if len(found) > 1:
            told["columns"] = {name: cells for name, cells in found.items() if name != "prediction"}
    if cost is not None:
        told["cost"] = cost
        console(stderr=True).print(cost, markup=False, soft_wrap=True)
    if as_json:
        print_json({**told, "predictions": predictions, "output": str(output) if output else None})
    else:
        print(text.rstrip("\n"))
