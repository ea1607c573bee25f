"""`coterie provision`: keys and TLS certificates for a study between organisations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import coterie as co
from coterie.commands.options import Config, Json
from coterie.commands.output import console, print_json
from coterie.errors import InvalidInput

EXAMPLE = "Example: coterie provision try-out/study.toml --example --all-local"


def provision(
    study: Annotated[Path, typer.Argument(help="study.toml with the parties, their addresses and the problem.")],
    party: Annotated[
        str | None, typer.Option(help="Name of your party: make its key, and a request to sign it.")
    ] = None,
    sign: Annotated[
        list[Path] | None, typer.Option(help="Request to sign, at the coordinator. Can be repeated.")
    ] = None,
    all_local: Annotated[bool, typer.Option(help="Make everything for all parties on one machine, as a test.")] = False,
    example: Annotated[bool, typer.Option(help="First write an example study with data for three parties.")] = False,
    expiry: Annotated[
        bool, typer.Option("--list", help="List the TLS certificates next to the study: party, key and last day.")
    ] = False,
    renew: Annotated[
        list[str] | None, typer.Option(help="Party whose key to sign for longer, at the coordinator. Can be repeated.")
    ] = None,
    remove: Annotated[str | None, typer.Option(help="Party to take out of the study, with its key.")] = None,
    keys: Annotated[Path | None, typer.Option(help="Output folder for keys (default: next to the study).")] = None,
    replace: Annotated[
        bool, typer.Option(help="Sign, with --sign, even if another key was signed for this name.")
    ] = False,
    days: Annotated[int, typer.Option(min=1, help="Number of days for which TLS certificates are valid.")] = 365,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Make keys and TLS certificates. Private keys are never copied."""
    if not (all_local or party is not None or sign or expiry or renew or remove):
        raise typer.BadParameter("give one of --party, --sign, --list, --renew, --remove and --all-local")
    from coterie.peers.disclosure import most_curious
    from coterie.peers.example import write_example
    from coterie.peers.pinning import pin
    from coterie.peers.pinning import remove as remove_party
    from coterie.peers.study import load_study
    from coterie.transport.keys import AUTHORITY, CERTIFICATE, fingerprint, make_authority, make_request, provide_all
    from coterie.transport.keys import sign as sign_request

    if example and study.exists():
        raise InvalidInput(f"{study} exists already, and the example would overwrite it.")
    if example:
        write_example(study)
    known = load_study(study)
    folder = keys or study.parent
    made: list[Path] = []
    keys_of: dict[str, str] = {}
    if all_local:
        made = [own / CERTIFICATE for own in provide_all(folder, known.name, known.names, days).values()]
        pin(study, {own.parent.name: fingerprint(own.read_bytes()) for own in made})
        text = "Keys and TLS certificates for all parties, as a test. For real use, each party makes its own key."
    elif expiry:
        keys_of = _last_days(folder, known.names)
        text = "Sign for longer, at the coordinator: coterie provision study.toml --renew NAME"
    elif remove:
        remove_party(study, remove)
        text = f"{study} is without {remove} now. Send it to all parties: whoever has it refuses {remove}."
    elif party is not None:
        known.index(party)
        made = [make_request(folder / party if keys is None else folder, party)]
        keys_of[party] = fingerprint(made[0].read_bytes())
        text = f"Send {made[0]} to the coordinator. The key next to it stays here."
    else:
        authority = make_authority(folder / "coordinator", known.name, days)
        for request in [*(sign or ()), *(folder / "signed" / name / CERTIFICATE for name in renew or ())]:
            name, certificate = sign_request(folder / "coordinator", request.read_bytes(), known.names, days)
            keys_of[name], place = fingerprint(certificate), folder / "signed" / name / CERTIFICATE
            if not replace and place.exists() and fingerprint(place.read_bytes()) != keys_of[name]:
                raise InvalidInput(
                    f"{place} belongs to another key. Ask {name} which key is theirs; if it is SHA-256 "
                    f"{keys_of[name]}, sign with --replace."
                )
            made.append(co.files.write_atomically(place, certificate, public=True))
            co.files.write_atomically(folder / "signed" / name / AUTHORITY, authority.read_bytes(), public=True)
        pin(study, keys_of)
        text = (
            "Send each party its certificate.pem and authority.pem. The party puts them next to its key.\n"
            f"{study} holds these keys now: send it to all parties."
        )
    if as_json:
        known = load_study(study)
        print_json({"study": str(study), "run_id": known.run_id, "made": [str(path) for path in made], "keys": keys_of})
        return
    out = console()
    for path in made:
        out.print(str(path), markup=False, soft_wrap=True)
    for name, digits in keys_of.items():
        out.print(f"The key of {name} has SHA-256 {digits}", markup=False, highlight=False, soft_wrap=True)
    out.print(text)
    if not (expiry or remove):
        short = f"In this study the most curious party could compute: {most_curious(known)}."
        out.print(f"{short} See `coterie agent --show`.", markup=False)


def _last_days(folder: Path, parties: list[str]) -> dict[str, str]:
    """The key of each party whose TLS certificate is here, and until when it is valid."""
    from coterie.transport.keys import CERTIFICATE, fingerprint, valid_until

    places = [*(folder / name / CERTIFICATE for name in parties), *sorted(folder.glob(f"signed/*/{CERTIFICATE}"))]
    found = {place.parent.name: place.read_bytes() for place in places if place.exists()}
    return {name: f"{fingerprint(shown)}, valid until {valid_until(shown):%Y-%m-%d}" for name, shown in found.items()}
