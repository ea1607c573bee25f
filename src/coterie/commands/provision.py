"""`coterie provision`: keys and TLS certificates for a study between organisations."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

import coterie as co
from coterie.commands.options import Config, Json
from coterie.commands.output import console, print_json
from coterie.errors import InvalidInput

EXAMPLE = "Example: coterie provision try-out/study.toml --example --all-local"


def provision(
    study: Annotated[
        Path, typer.Argument(help="study.toml with the parties, their addresses and the problem.")
    ],
    party: Annotated[
        str | None, typer.Option(help="Name of your party: make its key, and a request to sign it.")
    ] = None,
    sign: Annotated[
        list[Path] | None,
        typer.Option(help="Request to sign, at the coordinator. Can be repeated."),
    ] = None,
    all_local: Annotated[
        bool, typer.Option(help="Make everything for all parties on one machine, as a test.")
    ] = False,
    example: Annotated[
        bool, typer.Option(help="First write an example study with data for three parties.")
    ] = False,
    expiry: Annotated[
        bool,
        typer.Option(
            "--list", help="List the TLS certificates next to the study: party, key and last day."
        ),
    ] = False,
    renew: Annotated[
        list[str] | None,
        typer.Option(
            help="Party whose key to sign for longer, at the coordinator. Can be repeated."
        ),
    ] = None,
    remove: Annotated[
        str | None, typer.Option(help="Party to take out of the study, with its key.")
    ] = None,
    keys: Annotated[
        Path | None, typer.Option(help="Output folder for keys (default: next to the study).")
    ] = None,
    replace: Annotated[
        bool, typer.Option(help="Sign, with --sign, even if another key was signed for this name.")
    ] = False,
    days: Annotated[
        int, typer.Option(min=1, help="Number of days for which TLS certificates are valid.")
    ] = 365,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Make keys and TLS certificates. Private keys are never copied."""
    if party is None and not any((all_local, sign, expiry, renew, remove)):
        raise typer.BadParameter(
            "give one of --party, --sign, --list, --renew, --remove and --all-local"
        )
    from coterie.study.study import load_study

    if example:
        _write_example(study)
    known = load_study(study)
    office = Office(study, known.name, known.names, keys or study.parent, days)
    if all_local:
        done = _make_all(office)
    elif expiry:
        done = _last_days(office)
    elif remove:
        done = _remove(study, remove)
    elif party is not None:
        known.index(party)
        done = _request(office, keys, party)
    else:
        done = _sign(office, Requests(sign or [], renew or [], replace))
    if as_json:
        _tell(study, done)
    else:
        _show(study, done)


def _write_example(study: Path) -> None:
    from coterie.study.example import write_example

    if study.exists():
        raise InvalidInput(f"{study} exists already, and the example would overwrite it.")
    write_example(study)


@dataclass(frozen=True)
class Office:
    """Where keys of a study are made and signed, and for how long."""

    study: Path
    name: str
    parties: list[str]
    folder: Path
    days: int


@dataclass(frozen=True)
class Requests:
    """What is to be signed."""

    files: list[Path]
    renewed: list[str]
    """Parties whose keys were signed before."""
    replace: bool
    """Whether another key may have been signed for a name."""


@dataclass(frozen=True)
class Done:
    """What was done: a text that says what to do next, files, and fingerprints of keys."""

    text: str
    made: list[Path] = field(default_factory=list)
    keys_of: dict[str, str] = field(default_factory=dict)
    discloses: bool = True
    """Whether to say what the study discloses."""


def _make_all(office: Office) -> Done:
    """Make everything for all parties."""
    from coterie.study.pinning import pin
    from coterie.transport.keys import CERTIFICATE, fingerprint, provide_all

    folders = provide_all(office.folder, office.name, office.parties, office.days).values()
    made = [own / CERTIFICATE for own in folders]
    pin(office.study, {own.parent.name: fingerprint(own.read_bytes()) for own in made})
    text = (
        "Keys and TLS certificates for all parties, as a test. For real use, each party makes its "
        "own key."
    )
    return Done(text, made)


def _remove(study: Path, party: str) -> Done:
    """Take a party out of the study."""
    from coterie.study.pinning import remove

    remove(study, party)
    text = (
        f"{study} is without {party} now. Send it to all parties: whoever has it refuses {party}."
    )
    return Done(text, discloses=False)


def _request(office: Office, keys: Path | None, party: str) -> Done:
    """Make one party's key, and a request to sign it."""
    from coterie.transport.keys import fingerprint, make_request

    request = make_request(keys or office.folder / party, party)
    text = f"Send {request} to the coordinator. The key next to it stays here."
    return Done(text, [request], {party: fingerprint(request.read_bytes())})


def _sign(office: Office, requests: Requests) -> Done:
    """Sign requests, and keys that were signed before."""
    from coterie.study.pinning import pin
    from coterie.transport.keys import AUTHORITY, CERTIFICATE, fingerprint, make_authority, sign

    signed, coordinator = office.folder / "signed", office.folder / "coordinator"
    authority = make_authority(coordinator, office.name, office.days)
    done = Done(
        "Send each party its certificate.pem and authority.pem. The party puts them next to its "
        "key.\n"
        f"{office.study} holds these keys now: send it to all parties."
    )
    for request in [*requests.files, *(signed / name / CERTIFICATE for name in requests.renewed)]:
        name, certificate = sign(coordinator, request.read_bytes(), office.parties, office.days)
        key, place = fingerprint(certificate), signed / name / CERTIFICATE
        if not requests.replace and place.exists() and fingerprint(place.read_bytes()) != key:
            raise InvalidInput(
                f"{place} belongs to another key. Ask {name} which key is theirs; if it is "
                f"SHA-256 {key}, sign with "
                "--replace."
            )
        done.keys_of[name] = key
        done.made.append(co.files.write_atomically(place, certificate, public=True))
        co.files.write_atomically(signed / name / AUTHORITY, authority.read_bytes(), public=True)
    pin(office.study, done.keys_of)
    return done


def _tell(study: Path, done: Done) -> None:
    from coterie.study.study import load_study

    made = [str(path) for path in done.made]
    print_json(
        {
            "study": str(study),
            "run_id": load_study(study).run_id,
            "made": made,
            "keys": done.keys_of,
        }
    )


def _show(study: Path, done: Done) -> None:
    from coterie.study.disclosure import most_curious
    from coterie.study.study import load_study

    out = console()
    for path in done.made:
        out.print(str(path), markup=False, soft_wrap=True)
    for name, digits in done.keys_of.items():
        out.print(
            f"The key of {name} has SHA-256 {digits}", markup=False, highlight=False, soft_wrap=True
        )
    out.print(done.text)
    if done.discloses:
        short = (
            "In this study the most curious party could compute: "
            f"{most_curious(load_study(study))}."
        )
        out.print(f"{short} See `coterie agent --show`.", markup=False)


def _last_days(office: Office) -> Done:
    """The key of each party whose TLS certificate is here, and until when it is valid."""
    from coterie.transport.keys import CERTIFICATE, fingerprint, valid_until

    folder = office.folder
    places = [folder / name / CERTIFICATE for name in office.parties]
    places += sorted(folder.glob(f"signed/*/{CERTIFICATE}"))
    found = {place.parent.name: place.read_bytes() for place in places if place.exists()}
    keys = {
        name: f"{fingerprint(shown)}, valid until {valid_until(shown):%Y-%m-%d}"
        for name, shown in found.items()
    }
    text = "Sign for longer, at the coordinator: coterie provision study.toml --renew NAME"
    return Done(text, keys_of=keys, discloses=False)
