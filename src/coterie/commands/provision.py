"""`coterie provision`: keys and TLS certificates for a study between organisations."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

import coterie as co
from coterie.commands.options import Config, Json
from coterie.commands.output import console, print_json, show_text, show_value
from coterie.errors import InvalidInput

EXAMPLE = "Example: coterie provision try-out/study.toml --example --all-local"


StudyFile = Annotated[
    Path, typer.Argument(help="study.toml with the parties, their addresses and the problem.")
]
Party = Annotated[
    str | None,
    typer.Option(help="Name of your party: make its key, and a request to sign the key."),
]
Sign = Annotated[
    list[Path] | None,
    typer.Option(help="Request to sign, at the coordinator. Can be repeated."),
]
AllLocal = Annotated[
    bool, typer.Option(help="Make the keys of all parties on one machine, as a test.")
]
Example = Annotated[
    bool, typer.Option(help="First write an example study with data for three parties.")
]
Expiry = Annotated[
    bool,
    typer.Option(
        "--list", help="List the TLS certificates next to the study: party, key and last day."
    ),
]
Renew = Annotated[
    list[str] | None,
    typer.Option(
        help="Party whose key to sign for a longer time, at the coordinator. Can be repeated."
    ),
]
Remove = Annotated[str | None, typer.Option(help="Party to take out of the study, with its key.")]
Keys = Annotated[
    Path | None, typer.Option(help="Output folder for keys (default: next to the study).")
]
Replace = Annotated[
    bool, typer.Option(help="Sign, with --sign, even if another key was signed for this name.")
]
Days = Annotated[
    int, typer.Option(min=1, help="Number of days for which TLS certificates are valid.")
]


def provision(
    study: StudyFile,
    party: Party = None,
    sign: Sign = None,
    all_local: AllLocal = False,
    example: Example = False,
    expiry: Expiry = False,
    renew: Renew = None,
    remove: Remove = None,
    keys: Keys = None,
    replace: Replace = False,
    days: Days = 365,
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
        _print_json(study, done)
    else:
        _show(study, done)


def _write_example(study: Path) -> None:
    from coterie.study.example import write_example

    if study.exists():
        raise InvalidInput(f"{study} exists already, and the example would overwrite it.")
    write_example(study)


@dataclass(frozen=True)
class Office:
    """Where the coordinator makes and signs keys of a study, and for how long."""

    study: Path
    name: str
    parties: list[str]
    folder: Path
    days: int


@dataclass(frozen=True)
class Requests:
    """The keys that the coordinator is asked to sign."""

    files: list[Path]
    renewed: list[str]
    """Parties whose keys were signed before."""
    replace: bool
    """Whether another key may have been signed for a name."""


@dataclass(frozen=True)
class Done:
    """The outcome: a text with the next step, the files, and fingerprints of keys."""

    text: str
    made: list[Path] = field(default_factory=list)
    keys_of: dict[str, str] = field(default_factory=dict)
    discloses: bool = True
    """Whether to print what the study discloses."""


def _make_all(office: Office) -> Done:
    """Make everything for all parties."""
    from coterie.study.pinning import pin
    from coterie.transport.keys import CERTIFICATE, fingerprint, provide_all

    folders = provide_all(office.folder, office.name, office.parties, office.days)
    made = []
    keys_of = {}
    for folder in folders.values():
        certificate = folder / CERTIFICATE
        made.append(certificate)
        keys_of[folder.name] = fingerprint(certificate.read_bytes())
    pin(office.study, keys_of)
    text = (
        "Keys and TLS certificates for all parties, as a test. For real use, each party makes its "
        "own key."
    )
    return Done(text, made)


def _remove(study: Path, party: str) -> Done:
    """Take a party out of the study."""
    from coterie.study.pinning import remove

    remove(study, party)
    text = f"{study} is without {party} now. Send it to all parties: they then refuse {party}."
    return Done(text, discloses=False)


def _request(office: Office, keys: Path | None, party: str) -> Done:
    """Make one party's key, and a request to sign it."""
    from coterie.transport.keys import fingerprint, make_request

    request = make_request(keys or office.folder / party, party)
    text = f"Send {request} to the coordinator. Keep the key next to it on this machine."
    return Done(text, [request], {party: fingerprint(request.read_bytes())})


def _sign(office: Office, requests: Requests) -> Done:
    """Sign requests, and keys that were signed before."""
    from coterie.study.pinning import pin
    from coterie.transport.keys import AUTHORITY, CERTIFICATE, fingerprint, make_authority, sign

    signed = office.folder / "signed"
    coordinator = office.folder / "coordinator"
    authority = make_authority(coordinator, office.name, office.days)
    done = Done(
        "Send each party its certificate.pem and authority.pem. The party puts them next to its "
        "key.\n"
        f"{office.study} holds these keys now: send it to all parties."
    )
    renewed = [signed / name / CERTIFICATE for name in requests.renewed]
    for request in [*requests.files, *renewed]:
        name, certificate = sign(coordinator, request.read_bytes(), office.parties, office.days)
        key = fingerprint(certificate)
        place = signed / name / CERTIFICATE
        if not requests.replace and place.exists() and fingerprint(place.read_bytes()) != key:
            raise InvalidInput(
                f"{place} belongs to another key. Ask {name} which key is theirs; if it is "
                f"SHA-256 {key}, sign with --replace."
            )
        done.keys_of[name] = key
        done.made.append(co.files.write_atomically(place, certificate, public=True))
        co.files.write_atomically(signed / name / AUTHORITY, authority.read_bytes(), public=True)
    pin(office.study, done.keys_of)
    return done


def _print_json(study: Path, done: Done) -> None:
    from coterie.study.study import load_study

    answer = {"study": str(study), "run_id": load_study(study).run_id}
    made = [str(path) for path in done.made]
    print_json({**answer, "made": made, "keys": done.keys_of})


def _show(study: Path, done: Done) -> None:
    from coterie.study.disclosure import most_curious
    from coterie.study.study import load_study

    for path in done.made:
        show_text(str(path))
    for name, digits in done.keys_of.items():
        show_value(f"Key of {name}", f"SHA-256 {digits}")
    out = console()
    out.print(done.text)
    if done.discloses:
        most = most_curious(load_study(study))
        out.print(
            f"In this study the most curious party could compute: {most}. "
            "See `coterie agent --show`.",
            markup=False,
        )


def _last_days(office: Office) -> Done:
    """List the key of each party whose TLS certificate is here, and the certificate's last day."""
    from coterie.transport.keys import CERTIFICATE, fingerprint, valid_until

    folder = office.folder
    places = [folder / name / CERTIFICATE for name in office.parties]
    places += sorted(folder.glob(f"signed/*/{CERTIFICATE}"))
    keys_of = {}
    for place in places:
        if place.exists():
            certificate = place.read_bytes()
            last_day = f"{valid_until(certificate):%Y-%m-%d}"
            keys_of[place.parent.name] = f"{fingerprint(certificate)}, valid until {last_day}"
    text = "To renew, at the coordinator: coterie provision study.toml --renew NAME"
    return Done(text, keys_of=keys_of, discloses=False)
