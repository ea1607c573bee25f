"""`coterie verify`: does a certificate hold?"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

import coterie as co
from coterie.commands.agent import is_of_party, party_files, rehearsal, saying
from coterie.commands.exit_codes import VERIFICATION_FAILED
from coterie.commands.files import by_user, entries, label_roles, paired_by_position, tables
from coterie.commands.options import (
    Columns,
    Config,
    Entry,
    Event,
    Exposure,
    Id,
    Json,
    Offset,
    SameOrder,
    Strata,
    Target,
    Time,
    Weight,
)
from coterie.commands.output import console, print_json
from coterie.errors import InvalidInput
from coterie.run.settings import Placement

if TYPE_CHECKING:
    from coterie.api.comparison import Compared
    from coterie.api.verify import Verification

EXAMPLE = (
    "Examples: coterie verify coterie-fit/certificate.json coterie-fit/model.npz patients.csv "
    "--target ill · "
    "coterie verify party.toml (at every party)"
)
EXPECTED = (
    "certificate.json, model.npz and the data that was fitted, in this order; or, between "
    "organisations, each party's "
    "own party.toml alone"
)

FOREIGN = ("bill.json", "choice.json")
"""Files that studies between organisations have: `coterie verify party.toml` checks them."""


def verify(
    certificate: Annotated[
        Path,
        typer.Argument(
            help=(
                "certificate.json from `coterie fit`. Between organisations: only party.toml, at "
                "every party."
            )
        ),
    ],
    model: Annotated[Path | None, typer.Argument(help="model.npz from `coterie fit`.")] = None,
    data: Annotated[
        list[Path] | None,
        typer.Argument(help="Data that was fitted: Parquet, Arrow, CSV or svmlight."),
    ] = None,
    target: Target = None,
    id: Id = None,
    same_order: SameOrder = Placement.same_order,
    weight: Weight = None,
    offset: Offset = None,
    exposure: Exposure = None,
    time: Time = None,
    event: Event = None,
    entry: Entry = None,
    strata: Strata = None,
    columns: Columns = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            help="Column with the cluster of each row, if inference.json has clustered errors."
        ),
    ] = None,
    users: Annotated[
        str | None, typer.Option(help="Column with the user of each row, for personal models.")
    ] = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Recompute a certificate from model and data. With a party.toml, do it together with the other
    parties.

    All other files of the folder are compared, too: run.json, inference.json, evaluation.json and
    path/.
    """
    given = [certificate, *([] if model is None else [model]), *(data or [])]
    if all(map(is_of_party, given)):
        raise typer.Exit(_with_parties(party_files(given), as_json))
    if model is None or not data:
        raise typer.BadParameter(
            f"{len(given)} {'file was' if len(given) == 1 else 'files were'} given, but the "
            f"command takes {EXPECTED}."
        )
    document = co.Certificate.load(certificate)
    _refuse_part(document)
    split = document.settings["split"]
    paired_by_position(same_order, id, split)
    fitted: Any = co.models.load_model(model)
    roles: dict[str, Any] = {
        "target": target,
        "id": id,
        "weight": weight,
        "offset": offset,
        "exposure": exposure,
    }
    roles |= label_roles(fitted.problem, target, time=time, event=event, entry=entry, strata=strata)
    stored, folder = _stored(certificate, model), certificate.parent
    scores = _scores(certificate, model)
    held_out: Any = None
    if cluster is not None and id is not None:
        raise InvalidInput("--cluster is for rows that need no --id. Leave one of the two out.")
    if split == "users":
        parts: Any = by_user(data, target, users, columns)
    elif getattr(fitted, "row_ids", None) is not None:
        parts = _entries(fitted, data, columns, target, weight)
    else:
        roles["id"] = cluster or id
        parts = tables(data, split, columns, prepare=fitted.preparation, **roles)
        parts, stored["clusters"] = _without_clusters(parts, cluster)
        wanted = columns or _columns_of(fitted)
        read = partial(
            tables, split=split, columns=wanted, prepare=fitted.preparation, **{**roles, "id": id}
        )
        parts, held_out = _held_out(scores, document, parts, read)
    found = co.verify(document, fitted, parts, **stored)
    found = _with_other_files(
        found, folder if stored else None, Fitted(document, fitted, parts, held_out, scores)
    )
    raise typer.Exit(_shown(found, as_json))


def _refuse_part(document: co.Certificate) -> None:
    """Refuse a certificate of which other organisations hold parts."""
    if "parts" in document.settings:
        raise InvalidInput(
            "this certificate comes from a study between organisations, and each party holds a "
            "part of the proof: run "
            "`coterie verify party.toml` at every party."
        )


def _stored(certificate: Path, model: Path) -> dict[str, Any]:
    """What was read of the other files of a fit, where the certificate and the model lie in its
    folder.
    """
    folder, stored = certificate.parent, dict[str, Any]()
    if (certificate.name, model) != ("certificate.json", folder / "model.npz"):
        return stored
    if (folder / "run.json").is_file():
        stored["result"] = co.Result.load(folder)
    if (folder / "inference.json").is_file():
        stored["inference"] = co.Inference.load(folder / "inference.json")
    return stored


def _scores(certificate: Path, model: Path) -> co.Evaluation | None:
    """The scores in the folder of a fit, if there are some."""
    file = certificate.parent / "evaluation.json"
    in_folder = (certificate.name, model) == ("certificate.json", certificate.parent / "model.npz")
    return co.Evaluation.load(file) if in_folder and file.is_file() else None


def _columns_of(fitted: Any) -> Any:
    """The columns that the model takes, as files have them."""
    return fitted.columns if fitted.preparation is None else fitted.preparation.raw


def _held_out(
    scores: co.Evaluation | None, document: co.Certificate, parts: Any, read: Any
) -> tuple[Any, Any]:
    """The rows that were fitted, and those that were held out, where the scores say which these
    are.
    """
    which = None if scores is None else scores.held_out
    if which is None:
        return parts, None
    if "files" in which:
        files = [Path(file) for file in which["files"]]
        return parts, read(files) if all(file.is_file() for file in files) else None
    several = isinstance(parts, list)
    split, given = document.settings["split"], parts if several else [parts]
    rows = [participant.rows for participant in document.participants]
    certified = rows[0] if split == "features" else sum(rows)
    if certified == (given[0].n if split == "features" else sum(table.n for table in given)):
        return parts, None
    kept, held = co.data.hold_out(given, which["share"], by=split, seed=which["seed"])
    return (kept, held) if several else (kept[0], held[0])


@dataclass(frozen=True)
class Fitted:
    """A fit, and the rows that it is about."""

    certificate: co.Certificate
    model: Any
    parts: Any
    held_out: Any
    """The rows of the scores, if they are known."""
    scores: co.Evaluation | None


def _with_other_files(found: Verification, folder: Path | None, fitted: Fitted) -> Verification:
    """The verdict with that on the scores and the path in the folder of the fit."""
    from coterie.api.comparison import Compared
    from coterie.api.stored import compare_path, path_of, with_more

    more = Compared()
    if fitted.scores is not None:
        _check_scores(more, fitted.scores, fitted)
    if folder is not None:
        path = path_of(folder, more)
        if path is not None:
            compare_path(more, path, fitted.certificate, partial(_verified, fitted.parts))
        foreign = [name for name in FOREIGN if (folder / name).exists()]
        more.unchecked += [f"{name}, which `coterie fit` does not write" for name in foreign]
    return with_more(found, more)


def _verified(parts: Any, result: co.Result) -> Verification:
    return co.verify(result.certificate, result.model, parts, result=result)


def _check_scores(found: Compared, scores: co.Evaluation, fitted: Fitted) -> None:
    """Compute stored scores again from the held-out rows, or say why not."""
    from coterie.api.stored import compare_evaluation, compare_unknown_rows

    held_out, document = fitted.held_out, fitted.certificate
    if held_out is None:
        why = "it does not say which rows were held out"
        if scores.held_out is not None:
            why = (
                "its held-out rows are not here: give the files of the fit whole, from the same "
                "folder"
            )
        compare_unknown_rows(found, scores, fitted.model, why)
        return
    settings = document.settings
    computed = co.evaluate(
        fitted.model,
        held_out,
        agents=None if isinstance(held_out, list) else len(document.participants),
        split=settings["split"],
        secure_sums=settings.get("secure_sums") is True,
        same_order=True,
    )
    compare_evaluation(found, scores, computed)


def _without_clusters(
    parts: co.Table | list[co.Table], column: str | None
) -> tuple[co.Table | list[co.Table], Any]:
    """The tables without the column of clusters, and that column, if there is one."""
    if column is None:
        return parts, None
    several = parts if isinstance(parts, list) else [parts]
    clusters = [part.ids for part in several]
    bare = [replace(part, ids=None) for part in several]
    return (bare, clusters) if isinstance(parts, list) else (bare[0], clusters[0])


def _entries(
    fitted: Any, data: list[Path], columns: str | None, target: str | None, weight: str | None
) -> Any:
    """Entries of a matrix by the names that the model knows."""
    from coterie.api.entries import NamedMatrix

    names = NamedMatrix(fitted.row_ids, fitted.column_ids)
    return entries(data, columns or fitted.columns, target, weight, names)[1]


def _with_parties(files: list[Path], as_json: bool) -> int:
    """Check the certificate together with the other parties; with several files, all of them on
    this machine.
    """
    if len(files) > 1:
        return rehearsal(files, as_json, "verify")
    from coterie.study.proof import verify_together
    from coterie.study.study import load_party

    own, study = load_party(files[0])
    found = verify_together(own, study, say=saying(own.party), consent=True)
    return _shown(found, as_json)


def _shown(found: Verification, as_json: bool) -> int:
    """Tell what was computed here: never a number, or a sentence, of the file."""
    if as_json:
        print_json({"holds": found.holds, **asdict(found)})
    elif found.holds:
        console().print(f"[green]The certificate holds.[/green] {found.proves}")
        console().print(f"  Problem    {escape(found.about)}")
        limits = (
            "" if found.radius is None else f", among models of norm at most {found.radius:.3g}"
        )
        console().print(
            f"  Computed   objective {found.primal:.8g}, gap {found.gap:.3g} (rounding "
            f"{found.rounding:.1g}){limits}"
        )
        console().print(f"  Compared   {escape('; '.join(found.compared))}")
        if found.unchecked:
            console().print(f"  Unchecked  {escape('; '.join(found.unchecked))}")
        if found.signed_by:
            console().print(f"  Signed by  {escape(', '.join(found.signed_by))}")
    else:
        objections = escape("; ".join(found.objections))
        console(stderr=True).print(f"[red]The certificate does not hold:[/red] {objections}.")
    return 0 if found.holds else VERIFICATION_FAILED
