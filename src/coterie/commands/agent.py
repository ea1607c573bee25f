"""`coterie agent`: one party's side of a study between organisations."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

import coterie as co
from coterie.commands.exit_codes import BUG
from coterie.commands.options import Config, Json, Raw, Without
from coterie.commands.output import console, print_json, show_model, summary
from coterie.errors import InvalidInput, count
from coterie.run.statuses import Status

EXAMPLE = "Example: coterie agent party.toml"


def agent(
    files: Annotated[
        list[Path],
        typer.Argument(
            help=(
                "Your party.toml. Several files, or a folder of them, start a rehearsal on this "
                "machine."
            )
        ),
    ],
    predict: Annotated[
        Path | None,
        typer.Option(
            help="Data to predict, with all parties' parts of the model. Nothing is fitted."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Output CSV file for --predict.")
    ] = None,
    raw: Raw = False,
    show: Annotated[
        bool, typer.Option("--show", help="Show what would be sent, and to whom, and exit.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Agree to what would be sent, without a question.")
    ] = False,
    without: Without = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Take part in a study with your data: connect to the other parties, fit, and write your part
    of the model.
    """
    found = party_files(files)
    if len(found) > 1 and predict is not None:
        raise InvalidInput(
            "predict with one party.toml at each party: `coterie agent party.toml --predict "
            "new.csv`."
        )
    if show:
        _show_pages(found, as_json, without or [])
        return
    if len(found) > 1:
        raise typer.Exit(rehearsal(found, as_json, without=without or []))
    if predict is not None:
        from coterie.commands.predict import Wanted, predict_with_parties

        wanted = Wanted(predict, output, raw=raw, as_json=as_json)
        predict_with_parties(found[0], wanted, without=without or [])
        return
    raise typer.Exit(_fit(found[0], as_json, yes, without or []))


def party_files(files: list[Path]) -> list[Path]:
    """These files, and for each folder the party.toml in its folders."""
    found = [
        party
        for file in files
        for party in (sorted(file.glob("*/party.toml")) if file.is_dir() else [file])
    ]
    if not found:
        raise InvalidInput(
            f"there is no */party.toml in {files[0]}; `coterie provision --example` makes some."
        )
    return found


def is_of_party(file: Path) -> bool:
    """Whether this is a party.toml, or a folder of them."""
    return file.suffix == ".toml" or file.is_dir()


def saying(party: str) -> Callable[[str], None]:
    """Prints what goes on at that party."""
    err = console(stderr=True)

    def say(text: str) -> None:
        err.print(f"[dim]{party}:[/dim] ", end="")
        err.print(text, markup=False, soft_wrap=True)

    return say


def _show_pages(files: list[Path], as_json: bool, without: list[str]) -> None:
    """What each of these parties would send; nothing is sent."""
    from coterie.study.disclosure import disclosure
    from coterie.study.party import read_own
    from coterie.study.study import load_party

    pages = []
    for file in files:
        own, study = load_party(file, without)
        page = disclosure(study, own.party, read_own(own, study))
        pages.append({"party": own.party, "run_id": study.run_id, "disclosure": page})
        if not as_json:
            console().print(page + "\n", markup=False)
    if as_json:
        print_json(pages[0] if len(pages) == 1 else {"parties": pages})


def _fit(file: Path, as_json: bool, yes: bool, without: list[str]) -> int:
    from coterie.study.party import fit_together
    from coterie.study.study import load_party

    own, study = load_party(file, without)
    table = ask_for_consent(file, own, study, yes, show=not as_json)
    stop_wished = _stop_wished(study, own.party)
    try:
        result = fit_together(
            own, study, table=table, say=saying(own.party), stop_wished=stop_wished
        )
    except KeyboardInterrupt:
        reason, code = (
            "stopped by hand; start again to continue from the newest checkpoint",
            Status.INTERRUPTED,
        )
        saying(own.party)(reason)
        if as_json:
            print_json(
                {
                    "error": reason,
                    "name": code.value,
                    "exit_code": code.exit_code,
                    "party": own.party,
                }
            )
        return code.exit_code
    cost = _cost(file, result, without)
    output = own.output if result.folder is None else result.folder
    path = None if study.path is None or result.error else co.Path.load(output / "path")
    saved = output / "inference.json"
    inference = (
        co.Inference.load(saved) if study.inference is not None and saved.is_file() else None
    )
    if as_json:
        told = {
            **summary(result),
            **_told(path, inference),
            **({} if cost is None else {"cost": cost}),
        }
        print_json({**told, "party": own.party, "output": str(output)})
        return result.status.exit_code
    for one in filter(None, (path, inference)):
        console().print(str(one), markup=False, soft_wrap=True)
    _show(result, output)
    if cost is not None:
        console().print(cost, markup=False, soft_wrap=True)
    return result.status.exit_code


def _told(path: co.Path | None, inference: co.Inference | None) -> dict[str, Any]:
    """What belongs to a fit, under names that do not change."""
    told: dict[str, Any] = {} if inference is None else inference.summary()
    if path is not None:
        told |= {path.knob: path.chosen_strength, "rule": path.rule, "path": path.table()}
        told["path_total"] = vars(path.total)
    return told


def _cost(file: Path, result: co.Result, without: list[str]) -> str | None:
    """What it costs that parties were left out."""
    if not without:
        return None
    from coterie.study.departure import cost_of_refit
    from coterie.study.study import load_party

    return cost_of_refit(load_party(file)[0].output, result, without)


def ask_for_consent(
    file: Path, own: Any, study: Any, yes: bool, *, show: bool, table: co.Table | None = None
) -> co.Table:
    """Go on if somebody here agreed to what is sent in this study, now or before; the party's
    data.
    """
    from coterie.study.consent import ask_once
    from coterie.study.disclosure import disclosure
    from coterie.study.party import read_own

    table = read_own(own, study) if table is None else table
    page = disclosure(study, own.party, table)
    if show:
        console().print(page + "\n", markup=False)
    ask_once(own, study, page, lambda: yes or _agrees(file))
    return table


def _agrees(file: Path) -> bool:
    if not sys.stdin.isatty():
        raise InvalidInput(
            "nobody has agreed yet to what is sent in this version of the study, and nobody is "
            "here to be asked. Read "
            f"the page with `coterie agent {file} --show`, then start with --yes."
        )
    return typer.confirm("Agree to send this?")


def rehearsal(
    files: list[Path],
    as_json: bool,
    command: str = "agent",
    without: Sequence[str] = (),
    options: Sequence[str] = (),
) -> int:
    """Run the command at all of these parties, in a process each on this machine; its exit code."""
    from coterie.study.rehearsal import rehearse

    err = console(stderr=True)

    def say(party: str, line: str) -> None:
        err.print(_line(party, line), markup=False, soft_wrap=True)

    found, cause = rehearse(files, command, say, without, options)
    code = 0 if cause is None else int(found[cause]["exit_code"])
    code = BUG if code < 0 else code  # killed by a signal
    if as_json:
        print_json({"parties": found, "exit_code": code})
        return code
    out = console()
    for party, one in found.items():
        out.print(f"[bold]{party}[/bold] ", end=" ")
        out.print(_end(one), markup=False, soft_wrap=True)
    return code


def _end(one: dict[str, Any]) -> str:
    """How a party's process ended, in a sentence or two."""
    if "holds" in one:
        signed = f" Signed by {', '.join(one['signed_by'])}." if one["signed_by"] else ""
        if not one["holds"]:
            return f"does not hold: {'; '.join(one['objections'])}."
        return f"holds: {one['proves']}{signed}\n  {one['about']}"
    if "probabilities" in one:
        return f"{one['about']}, {len(one['columns'])} columns, {_from_here(one['output'])}"
    if "row_totals" in one:
        return f"{one['about']}, {_from_here(one['output'])}"
    if "scores" in one:
        return one["headline"] or "The scores are at the party with the labels."
    if "proves" in one:
        size = co.progress.format_bits(one.get("path_total", one["total"])["bits"])
        knob = next((name for name in ("strength", "radius") if name in one), None)
        chosen = "" if knob is None else f"{knob} {one[knob]:.5g} chosen, "
        spent = (
            f"{chosen}{count(one['rounds'], 'round')}, {size} sent by all parties, "
            f"{_from_here(one['output'])}"
        )
        cost = f"\n  {one['cost']}" if "cost" in one else ""
        why = f" ({one['error']})" if one.get("error") else ""
        return f"{one['status']}{why}: {one['proves']}\n  {one['problem']}\n  {spent}{cost}"
    return f"exit code {one['exit_code']}: {one.get('error', 'see above')}"


def _line(party: str, line: str) -> str:
    return line if line.startswith(f"{party}:") else f"{party}: {line}"


def _from_here(path: str) -> str:
    """A path as one would type it: relative if it is below this folder."""
    place = Path(path).resolve()
    return str(place.relative_to(Path.cwd())) if place.is_relative_to(Path.cwd()) else path


def _show(result: co.Result, output: Path) -> None:
    out = console()
    colour = "green" if result.status.success else "yellow"
    out.print(f"[bold {colour}]{result.status}[/bold {colour}]  {result.status.advice}")
    if result.error is not None:
        out.print(str(result.error), markup=False)
    for warning in result.warnings:
        out.print(warning, markup=False)
    show_model(result)
    out.print(f"[bold]Certificate[/bold]  {result.certificate.proves}")
    sent = co.progress.format_bits(result.bill.total.bits)
    out.print(
        f"[bold]Bill[/bold]  {count(result.rounds, 'round')}, {sent} sent by all parties together"
    )
    out.print(
        f"[bold]Here[/bold]  {len(result.model.coef_)} coefficients in {output}", soft_wrap=True
    )


def _stop_wished(study: Any, party: str) -> Callable[[], bool]:
    """At the first party, Ctrl-C asks all to stop after a round with the best model so far;
    elsewhere it is leaving.
    """
    pressed = threading.Event()
    if study.index(party):
        return lambda: False

    def first(number: int, frame: object) -> None:
        pressed.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        print("stopping after this round; press Ctrl-C again to stop at once", file=sys.stderr)

    signal.signal(signal.SIGINT, first)
    return pressed.is_set
