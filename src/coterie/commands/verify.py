"""`coterie verify`: does a certificate hold?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from coterie.certificate import Certificate
from coterie.commands.options import Columns, Config, Data, Id, Json, Target, Weight, by_user, tables
from coterie.commands.output import console, print_json
from coterie.models import load_model
from coterie.verify import verify as verify_certificate

__all__ = ["register", "verify"]

EXAMPLE = "Example: coterie verify coterie-fit/certificate.json coterie-fit/model.npz patients.csv --target ill"


def verify(
    certificate: Annotated[Path, typer.Argument(help="certificate.json, as `coterie fit` wrote it.")],
    model: Annotated[Path, typer.Argument(help="model.npz, as `coterie fit` wrote it.")],
    data: Data,
    target: Target = None,
    id: Id = None,
    weight: Weight = None,
    columns: Columns = None,
    users: Annotated[
        str | None, typer.Option(help="The column that says whose row it is, for personal models.")
    ] = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Recompute a certificate from model and data; refuse it if anything was changed."""
    document = Certificate.load(certificate)
    split = document.settings["split"]
    personal = split == "users"
    parts = by_user(data, target, users, columns) if personal else tables(data, target, id, weight, split, columns)
    found = verify_certificate(document, load_model(model), parts)
    if as_json:
        numbers = {"primal": found.primal, "dual": found.dual, "gap": found.gap}
        print_json({"holds": found.holds, "objections": found.objections, "proves": document.proves, **numbers})
    elif found.holds:
        console().print(f"[green]The certificate holds.[/green] {document.proves}")
    else:
        objections = escape("; ".join(found.objections))
        console(stderr=True).print(f"[red]The certificate does not hold:[/red] {objections}.")
    raise typer.Exit(0 if found.holds else 4)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=EXAMPLE)(verify)
