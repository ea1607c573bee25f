"""`coterie verify`: check a certificate with the model and the data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.markup import escape

import coterie as co
from coterie.commands.agent import asking, is_of_party, party_files, rehearsal, saying
from coterie.commands.exit_codes import VERIFICATION_FAILED
from coterie.commands.files import (
    as_list,
    by_user,
    entries,
    label_roles,
    model_columns,
    paired_by_position,
    tables,
)
from coterie.commands.options import (
    Columns,
    Config,
    Consent,
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
from coterie.commands.output import console, print_json, show_value
from coterie.errors import InvalidInput
from coterie.run.settings import Placement

if TYPE_CHECKING:
    from coterie.api.comparison import Compared
    from coterie.api.verify import Verification

EXAMPLE = (
    "Examples: coterie verify coterie-fit/certificate.json coterie-fit/model.npz patients.csv "
    "--target ill · coterie verify party.toml (at every party)"
)
EXPECTED = (
    "certificate.json, model.npz and the data that was fitted, in this order; or, between "
    "organisations, each party's own party.toml alone"
)
FOREIGN = ("bill.json", "choice.json")
"""Files that studies between organisations have: `coterie verify party.toml` checks them."""


CertificateFile = Annotated[
    Path,
    typer.Argument(
        help="certificate.json from `coterie fit`. Between organisations: only party.toml, at "
        "every party."
    ),
]
ModelFile = Annotated[Path | None, typer.Argument(help="model.npz from `coterie fit`.")]
FittedData = Annotated[
    list[Path] | None,
    typer.Argument(help="Data that was fitted: Parquet, Arrow, CSV or svmlight."),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        help="Column with the cluster of each row, if inference.json has clustered errors."
    ),
]
UserColumn = Annotated[
    str | None, typer.Option(help="Column with the user of each row, for personal models.")
]


def verify(
    certificate: CertificateFile,
    model: ModelFile = None,
    data: FittedData = None,
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
    cluster: Cluster = None,
    users: UserColumn = None,
    yes: Consent = False,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Recompute a certificate from model and data. With a party.toml, recompute it together with
    the other parties.

    All other files of the folder are compared, too: run.json, inference.json, evaluation.json and
    path/.
    """
    given = [file for file in (certificate, model, *(data or ())) if file is not None]
    if all(map(is_of_party, given)):
        raise typer.Exit(_with_parties(party_files(given), as_json, yes))
    if model is None or not data:
        _refuse_files(given)
    document = co.Certificate.load(certificate)
    _refuse_part(document)
    split = document.settings["split"]
    paired_by_position(same_order, id, split)
    fitted: Any = co.models.load_model(model)
    roles = {"target": target, "id": id, "weight": weight, "offset": offset, "exposure": exposure}
    roles |= label_roles(fitted.problem, target, time=time, event=event, entry=entry, strata=strata)
    saved = _saved(certificate, model)
    if cluster is not None and id is not None:
        raise InvalidInput("--cluster is for rows that need no --id. Leave one of the two out.")
    if split == "users":
        files = Fitted(document, fitted, by_user(data, target, users, columns))
    elif getattr(fitted, "row_ids", None) is not None:
        files = Fitted(document, fitted, _entries(fitted, data, columns, target, weight))
    else:
        files = _read(document, fitted, saved, data, Roles(roles, columns, cluster))
    found = co.verify(document, fitted, files.parts, **saved.for_verify(files.clusters))
    found = _with_other_files(found, saved, files)
    raise typer.Exit(_show(found, as_json))


@dataclass(frozen=True)
class Roles:
    """The roles of columns of the data."""

    named: dict[str, Any]
    columns: str | None
    cluster: str | None


@dataclass(frozen=True)
class Saved:
    """The other files of a fit."""

    folder: Path
    """The folder of the certificate."""
    result: co.Result | None = None
    inference: co.Inference | None = None
    scores: co.Evaluation | None = None

    def for_verify(self, clusters: Any) -> dict[str, Any]:
        """The parameters of `co.verify` that are files of the fit."""
        return {"result": self.result, "inference": self.inference, "clusters": clusters}


@dataclass(frozen=True)
class Fitted:
    """A certificate, its model, and the rows that were fitted."""

    certificate: co.Certificate
    model: Any
    parts: Any
    held_out: Any = None
    """The rows of the scores, if they are known."""
    clusters: Any = None


def _refuse_files(given: list[Path]) -> NoReturn:
    were = "files were"
    if len(given) == 1:
        were = "file was"
    raise typer.BadParameter(f"{len(given)} {were} given, but the command takes {EXPECTED}.")


def _refuse_part(document: co.Certificate) -> None:
    """Refuse a certificate of which other organisations hold parts."""
    if "parts" in document.settings:
        raise InvalidInput(
            "this certificate comes from a study between organisations, and each party holds a "
            "part of the proof: run `coterie verify party.toml` at every party."
        )


def _saved(certificate: Path, model: Path) -> Saved:
    """Load the other files of a fit, if the certificate and the model are in its folder."""
    folder = certificate.parent
    if certificate.name != "certificate.json" or model != folder / "model.npz":
        return Saved(folder)
    result = None
    if (folder / "run.json").is_file():
        result = co.Result.load(folder)
    inference = None
    if (folder / "inference.json").is_file():
        inference = co.Inference.load(folder / "inference.json")
    scores = None
    if (folder / "evaluation.json").is_file():
        scores = co.Evaluation.load(folder / "evaluation.json")
    return Saved(folder, result, inference, scores)


def _read(
    document: co.Certificate,
    fitted: Any,
    saved: Saved,
    data: list[Path],
    roles: Roles,
) -> Fitted:
    """Read the rows that were fitted, and those that were held out, without their clusters."""
    split = document.settings["split"]
    read = partial(tables, split=split, prepare=fitted.preparation)
    by_file = {**roles.named, "id": roles.cluster or roles.named["id"]}
    parts = read(data, columns=roles.columns, **by_file)
    clusters = None
    if roles.cluster is not None:
        parts, clusters = _without_clusters(parts)
    columns = roles.columns or model_columns(fitted)
    which = None
    if saved.scores is not None:
        which = saved.scores.held_out
    if which is None:
        held_out = None
    elif "files" in which:
        held_out = _from_files(which["files"], partial(read, columns=columns, **roles.named))
    else:
        parts, held_out = _from_share(which, document, parts)
    return Fitted(document, fitted, parts, held_out, clusters)


def _from_files(names: list[str], read: Callable[[list[Path]], Any]) -> Any:
    """Read the held-out rows from their files, if all of these are here."""
    files = [Path(name) for name in names]
    if not all(file.is_file() for file in files):
        return None
    return read(files)


def _from_share(which: dict[str, Any], document: co.Certificate, parts: Any) -> tuple[Any, Any]:
    """Hold out the same share of the rows again, if the certificate covers fewer rows than given.

    Returns the rows that were fitted and those that were held out.
    """
    split = document.settings["split"]
    given = as_list(parts)
    certified = [participant.rows for participant in document.participants]
    rows = [table.n for table in given]
    if split == "features":
        has_all_rows = certified[0] == rows[0]
    else:
        has_all_rows = sum(certified) == sum(rows)
    if has_all_rows:
        return parts, None
    kept, held = co.data.hold_out(given, which["share"], by=split, seed=which["seed"])
    if isinstance(parts, list):
        return kept, held
    return kept[0], held[0]


def _with_other_files(found: Verification, saved: Saved, fitted: Fitted) -> Verification:
    """Add the comparison of the scores and the path in the folder of the fit."""
    from coterie.api.comparison import Compared
    from coterie.api.stored import compare_path, path_of, with_more

    more = Compared()
    if saved.scores is not None:
        _check_scores(more, saved.scores, fitted)
    path = path_of(saved.folder, more)
    if path is not None:
        compare_path(more, path, fitted.certificate, partial(_verified, fitted.parts))
    for name in FOREIGN:
        if (saved.folder / name).exists():
            more.unchecked.append(f"{name}, which `coterie fit` does not write")
    return with_more(found, more)


def _verified(parts: Any, result: co.Result) -> Verification:
    return co.verify(result.certificate, result.model, parts, result=result)


def _check_scores(found: Compared, scores: co.Evaluation, fitted: Fitted) -> None:
    """Compute stored scores again from the held-out rows, or note why that is impossible."""
    from coterie.api.stored import compare_evaluation, compare_unknown_rows

    held_out = fitted.held_out
    if held_out is None:
        why = "it does not name the held-out rows"
        if scores.held_out is not None:
            why = (
                "its held-out rows are missing: give the files of the fit whole, from the same "
                "folder"
            )
        compare_unknown_rows(found, scores, fitted.model, why)
        return
    agents = None
    if not isinstance(held_out, list):
        agents = len(fitted.certificate.participants)
    settings = fitted.certificate.settings
    computed = co.evaluate(
        fitted.model,
        held_out,
        agents=agents,
        split=settings["split"],
        secure_sums=settings.get("secure_sums") is True,
        same_order=True,
    )
    compare_evaluation(found, scores, computed)


def _without_clusters(parts: co.Table | list[co.Table]) -> tuple[Any, Any]:
    """Take the clusters, which were read as ids, out of the tables."""
    if isinstance(parts, list):
        return [replace(part, ids=None) for part in parts], [part.ids for part in parts]
    return replace(parts, ids=None), parts.ids


def _entries(
    fitted: Any, data: list[Path], columns: str | None, target: str | None, weight: str | None
) -> Any:
    """Read entries of a matrix by the names that the model knows."""
    from coterie.api.entries import NamedMatrix

    names = NamedMatrix(fitted.row_ids, fitted.column_ids)
    _, found = entries(data, columns or fitted.columns, target, weight, names)
    return found


def _with_parties(files: list[Path], as_json: bool, yes: bool) -> int:
    """Check the certificate together with the other parties; with several files, all of them on
    this machine.
    """
    if len(files) > 1:
        return rehearsal(files, as_json, "verify")
    from coterie.study.proof import verify_together
    from coterie.study.study import load_party

    own, study = load_party(files[0])
    consent = asking(files, "verify", yes=yes, as_json=as_json)
    found = verify_together(own, study, say=saying(own.party), consent=consent)
    return _show(found, as_json)


def _show(found: Verification, as_json: bool) -> int:
    """Print what was computed here, never a number or a sentence of the file; the exit code."""
    if as_json:
        print_json({"holds": found.holds, **asdict(found)})
    elif found.holds:
        _show_proof(found)
    else:
        objections = escape("; ".join(found.objections))
        console(stderr=True).print(f"[red]The certificate does not hold:[/red] {objections}.")
        _show_signers(found)
    if found.holds:
        return 0
    return VERIFICATION_FAILED


def _show_proof(found: Verification) -> None:
    console().print(f"[green]The certificate holds.[/green] {found.proves}")
    computed = f"objective {found.primal:.8g}, gap {found.gap:.3g} (rounding {found.rounding:.1g})"
    if found.radius is not None:
        computed += f", among models of norm at most {found.radius:.3g}"
    show_value("Problem", found.about)
    show_value("Computed", computed)
    show_value("Compared", "; ".join(found.compared))
    if found.unchecked:
        show_value("Unchecked", "; ".join(found.unchecked))
    _show_signers(found)


def _show_signers(found: Verification) -> None:
    if found.signed_by:
        show_value("Signed by", ", ".join(found.signed_by))
    if found.unsigned_by:
        show_value("Not signed by", ", ".join(found.unsigned_by))
