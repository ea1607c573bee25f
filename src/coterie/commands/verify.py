"""`coterie verify`: does a certificate hold?"""

from __future__ import annotations

from dataclasses import asdict, replace
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
    from coterie.api.verify import Verification

EXAMPLE = (
    "Examples: coterie verify coterie-fit/certificate.json coterie-fit/model.npz patients.csv --target ill · "
    "coterie verify party.toml (at every party)"
)
EXPECTED = (
    "certificate.json, model.npz and the data that was fitted, in this order; or, between organisations, each party's "
    "own party.toml alone"
)

OTHER_FILES = {
    "bill.json": "which says what was sent",
    "choice.json": "which says what was tried",
    "evaluation.json": "which `coterie evaluate` computes again from the held-out rows",
    "path/": "in which every strength has a certificate of its own",
}
"""Files of a fit that the command does not check, and why."""


def verify(
    certificate: Annotated[
        Path,
        typer.Argument(
            help="certificate.json from `coterie fit`. Between organisations: only party.toml, at every party."
        ),
    ],
    model: Annotated[Path | None, typer.Argument(help="model.npz from `coterie fit`.")] = None,
    data: Annotated[
        list[Path] | None, typer.Argument(help="Data that was fitted: Parquet, Arrow, CSV or svmlight.")
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
        str | None, typer.Option(help="Column with the cluster of each row, if inference.json has clustered errors.")
    ] = None,
    users: Annotated[str | None, typer.Option(help="Column with the user of each row, for personal models.")] = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Recompute a certificate from model and data. With a party.toml, do it together with the other parties.

    run.json and inference.json next to the certificate are compared, too.
    """
    given = [certificate, *([] if model is None else [model]), *(data or [])]
    if all(map(is_of_party, given)):
        raise typer.Exit(_with_parties(party_files(given), as_json))
    if model is None or not data:
        raise typer.BadParameter(
            f"{len(given)} {'file was' if len(given) == 1 else 'files were'} given, but the command takes {EXPECTED}."
        )
    document = co.Certificate.load(certificate)
    _refuse_part(document)
    split = document.settings["split"]
    paired_by_position(same_order, id, split)
    fitted: Any = co.models.load_model(model)
    roles: dict[str, Any] = {"target": target, "id": id, "weight": weight, "offset": offset, "exposure": exposure}
    roles |= label_roles(fitted.problem, target, time=time, event=event, entry=entry, strata=strata)
    stored = _stored(certificate, model)
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
    found = co.verify(document, fitted, parts, **stored)
    raise typer.Exit(_shown(replace(found, unchecked=(*found.unchecked, *_other_files(certificate))), as_json))


def _refuse_part(document: co.Certificate) -> None:
    """Refuse a certificate of which other organisations hold parts."""
    if "parts" in document.settings:
        raise InvalidInput(
            "this certificate comes from a study between organisations, and each party holds a part of the proof: run "
            "`coterie verify party.toml` at every party."
        )


def _stored(certificate: Path, model: Path) -> dict[str, Any]:
    """What was read of the other files of a fit, where the certificate and the model lie in its folder."""
    folder, stored = certificate.parent, dict[str, Any]()
    if (certificate.name, model) != ("certificate.json", folder / "model.npz"):
        return stored
    if (folder / "run.json").is_file():
        stored["result"] = co.Result.load(folder)
    if (folder / "inference.json").is_file():
        stored["inference"] = co.Inference.load(folder / "inference.json")
    return stored


def _other_files(certificate: Path) -> list[str]:
    """What else of a fit lies there, and is not checked here."""
    return [f"not checked: {name}, {why}" for name, why in OTHER_FILES.items() if (certificate.parent / name).exists()]


def _without_clusters(parts: co.Table | list[co.Table], column: str | None) -> tuple[co.Table | list[co.Table], Any]:
    """The tables without the column of clusters, and that column, if there is one."""
    if column is None:
        return parts, None
    several = parts if isinstance(parts, list) else [parts]
    clusters = [part.ids for part in several]
    bare = [replace(part, ids=None) for part in several]
    return (bare, clusters) if isinstance(parts, list) else (bare[0], clusters[0])


def _entries(fitted: Any, data: list[Path], columns: str | None, target: str | None, weight: str | None) -> Any:
    """Entries of a matrix by the names that the model knows."""
    from coterie.api.entries import NamedMatrix

    names = NamedMatrix(fitted.row_ids, fitted.column_ids)
    return entries(data, columns or fitted.columns, target, weight, names)[1]


def _with_parties(files: list[Path], as_json: bool) -> int:
    """Check the certificate together with the other parties; with several files, all of them on this machine."""
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
        limits = "" if found.radius is None else f", among models of norm at most {found.radius:.3g}"
        console().print(
            f"  Computed   objective {found.primal:.8g}, gap {found.gap:.3g} (rounding {found.rounding:.1g}){limits}"
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
