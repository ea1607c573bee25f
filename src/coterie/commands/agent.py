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
from coterie.commands.output import (
    chosen_in,
    console,
    print_json,
    show_model,
    show_status,
    show_text,
    show_value,
    summary,
)
from coterie.errors import InvalidInput, count
from coterie.run.statuses import Status

EXAMPLE = "Example: coterie agent party.toml"
STOPPED = "stopped by hand; start again to continue from the newest checkpoint"

Files = Annotated[
    list[Path],
    typer.Argument(
        help="Your party.toml. Several files, or a folder of them, start a rehearsal on this "
        "machine."
    ),
]
NewRows = Annotated[
    Path | None,
    typer.Option(help="Data to predict, with all parties' parts of the model. Nothing is fitted."),
]
Predictions = Annotated[
    Path | None, typer.Option("--output", "-o", help="Output CSV file for --predict.")
]
Show = Annotated[
    bool,
    typer.Option("--show", help="Show what your party would send, and to which party, and exit."),
]
Yes = Annotated[
    bool, typer.Option("--yes", help="Agree to what your party would send, without a question.")
]


def agent(
    files: Files,
    predict: NewRows = None,
    output: Predictions = None,
    raw: Raw = False,
    show: Show = False,
    yes: Yes = False,
    without: Without = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Take part in a study with your data: connect to the other parties, fit, and write your part
    of the model.
    """
    found = party_files(files)
    gone = without or []
    rehearses = len(found) > 1
    if rehearses and predict is not None:
        raise InvalidInput(
            "predict with one party.toml at each party: `coterie agent party.toml --predict "
            "new.csv`."
        )
    if show:
        _show_pages(found, as_json, gone)
    elif rehearses:
        raise typer.Exit(rehearsal(found, as_json, without=gone))
    elif predict is not None:
        from coterie.commands.predict import Wanted, predict_with_parties

        wanted = Wanted(predict, output, raw=raw, as_json=as_json)
        predict_with_parties(found[0], wanted, yes=yes, without=gone)
    else:
        raise typer.Exit(_fit(found[0], as_json, yes, gone))


def party_files(files: list[Path]) -> list[Path]:
    """List these files, and for each folder the party.toml in its folders."""
    found: list[Path] = []
    for file in files:
        if file.is_dir():
            found += sorted(file.glob("*/party.toml"))
        else:
            found.append(file)
    if not found:
        raise InvalidInput(
            f"there is no */party.toml in {files[0]}; `coterie provision --example` makes some."
        )
    return found


def is_of_party(file: Path) -> bool:
    """Whether this is a party.toml, or a folder of them."""
    return file.suffix == ".toml" or file.is_dir()


def saying(party: str) -> Callable[[str], None]:
    """Make a function that prints the progress of this party on standard error."""
    err = console(stderr=True)

    def say(text: str) -> None:
        err.print(f"[dim]{party}:[/dim] ", end="")
        err.print(text, markup=False, soft_wrap=True)

    return say


def _show_pages(files: list[Path], as_json: bool, without: list[str]) -> None:
    """Show what each of these parties would send; nothing is sent."""
    from coterie.study.disclosure import disclosure
    from coterie.study.party import read_own
    from coterie.study.study import load_party

    pages = []
    for file in files:
        own, study = load_party(file, without)
        page = disclosure(study, own.party, read_own(own, study))
        pages.append({"party": own.party, "run_id": study.run_id, "disclosure": page})
        if not as_json:
            _show_page(page)
    if not as_json:
        return
    if len(pages) == 1:
        print_json(pages[0])
    else:
        print_json({"parties": pages})


def _fit(file: Path, as_json: bool, yes: bool, without: list[str]) -> int:
    """Fit together with the other parties, print what came of it, and return the exit code."""
    from coterie.study.party import approve, take_part
    from coterie.study.rounds import Reports
    from coterie.study.study import load_party

    own, study = load_party(file, without)
    say = saying(own.party)
    consent = asking([file], "agent", yes=yes, as_json=as_json)
    approved = approve(own, study, consent, say=say)
    reports = Reports(say, stop_wished=_stop_wished(study, own.party))
    try:
        result = take_part(approved, reports)
    except KeyboardInterrupt:
        say(STOPPED)
        return _interrupted(own.party, as_json)
    cost = _cost(file, result, without)
    output = result.folder or own.output
    path = _path_in(output, study, result)
    inference = _inference_in(output, study)
    if as_json:
        numbers = {**summary(result), **_more_numbers(path, inference)}
        if cost is not None:
            numbers["cost"] = cost
        print_json({**numbers, "party": own.party, "output": str(output)})
        return result.status.exit_code
    if path is not None:
        show_text(str(path))
    if inference is not None:
        show_text(str(inference))
    _show(result, output)
    if cost is not None:
        show_text(cost)
    return result.status.exit_code


def _interrupted(party: str, as_json: bool) -> int:
    """Print that Ctrl-C ended the run of this party, and return the exit code."""
    status = Status.INTERRUPTED
    if as_json:
        answer = {"error": STOPPED, "name": status.value, "exit_code": status.exit_code}
        print_json({**answer, "party": party})
    return status.exit_code


def _path_in(output: Path, study: Any, result: co.Result) -> co.Path | None:
    """Load the path that the study fitted, if it asks for one."""
    if study.path is None or result.error is not None:
        return None
    return co.Path.load(output / "path")


def _inference_in(output: Path, study: Any) -> co.Inference | None:
    """Load the standard errors that the study computed, if it asks for some."""
    saved = output / "inference.json"
    if study.inference is None or not saved.is_file():
        return None
    return co.Inference.load(saved)


def _more_numbers(path: co.Path | None, inference: co.Inference | None) -> dict[str, Any]:
    """Collect the numbers of a path and of standard errors under names that do not change."""
    numbers: dict[str, Any] = {}
    if inference is not None:
        numbers |= inference.summary()
    if path is not None:
        numbers |= chosen_in(path)
        numbers["path_total"] = vars(path.total)
    return numbers


def _cost(file: Path, result: co.Result, without: list[str]) -> str | None:
    """Describe how much worse the model is without the parties that were left out."""
    if not without:
        return None
    from coterie.study.departure import cost_of_refit
    from coterie.study.study import load_party

    own, _ = load_party(file)
    return cost_of_refit(own.output, result, without)


def _show_page(page: str) -> None:
    """Print the page of messages."""
    console().print(page + "\n", markup=False, soft_wrap=True)


def asking(
    files: Sequence[Path], command: str, *, yes: bool, as_json: bool
) -> Callable[[str], bool]:
    """Show the page of what is sent, and ask whether this party agrees."""

    def agrees(page: str) -> bool:
        console(stderr=as_json).print(page + "\n", markup=False, soft_wrap=True)
        if yes:
            return True
        if not sys.stdin.isatty():
            given = " ".join(map(str, files))
            raise InvalidInput(
                "you have not approved this page, and there is no terminal to ask on. "
                f"`coterie agent {files[0]} --show` shows all pages of the study. Read them, then "
                f"start `coterie {command} {given}` with --yes."
            )
        return typer.confirm("Agree to send this?")

    return agrees


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
    code = 0
    if cause is not None:
        code = int(found[cause]["exit_code"])
    if code < 0:  # a signal killed the process
        code = BUG
    if as_json:
        print_json({"parties": found, "exit_code": code})
        return code
    for party, answer in found.items():
        show_value(party, _end(answer))
    return code


def _end(answer: dict[str, Any]) -> str:
    """Describe how a party's process ended, from the JSON object that it printed."""
    if "holds" in answer:
        return _end_of_verify(answer)
    if "probabilities" in answer:
        columns = count(len(answer["columns"]), "column")
        return f"{answer['about']}, {columns}, {_relative(answer['output'])}"
    if "row_totals" in answer:
        return f"{answer['about']}, {_relative(answer['output'])}"
    if "scores" in answer:
        return answer["headline"] or "The scores are at the party with the labels."
    if "proves" in answer:
        return _end_of_fit(answer)
    return f"exit code {answer['exit_code']}: {answer.get('error', 'see above')}"


def _end_of_verify(answer: dict[str, Any]) -> str:
    signed = ""
    if answer["signed_by"]:
        signed = f" Signed by {', '.join(answer['signed_by'])}."
    if answer["unsigned_by"]:
        signed = f"{signed} Not signed by {', '.join(answer['unsigned_by'])}."
    if not answer["holds"]:
        return f"does not hold: {'; '.join(answer['objections'])}.{signed}"
    return f"holds. {answer['proves']}{signed}\n  {answer['about']}"


def _end_of_fit(answer: dict[str, Any]) -> str:
    status = answer["status"]
    if answer.get("error"):
        status = f"{status} ({answer['error']})"
    total = answer.get("path_total", answer["total"])
    sent = f"{co.progress.format_bits(total['bits'])} sent by all parties"
    spent = [count(answer["rounds"], "round"), sent, _relative(answer["output"])]
    for knob in ("strength", "radius"):
        if knob in answer:
            spent.insert(0, f"{knob} {answer[knob]:.5g} chosen")
    lines = [f"{status}. {answer['proves']}", answer["problem"], ", ".join(spent)]
    if "cost" in answer:
        lines.append(answer["cost"])
    return "\n  ".join(lines)


def _line(party: str, line: str) -> str:
    if line.startswith(f"{party}:"):
        return line
    return f"{party}: {line}"


def _relative(path: str) -> str:
    """Write a path relative to this folder, if it is below this folder."""
    place = Path(path).resolve()
    if place.is_relative_to(Path.cwd()):
        return str(place.relative_to(Path.cwd()))
    return path


def _show(result: co.Result, output: Path) -> None:
    show_status(result)
    if result.error is not None:
        show_text(str(result.error))
    for warning in result.warnings:
        show_text(warning)
    show_model(result)
    show_value("Certificate", result.certificate.proves)
    sent = co.progress.format_bits(result.bill.total.bits)
    show_value("Bill", f"{count(result.rounds, 'round')}, {sent} sent by all parties together")
    show_value("Written", f"{count(len(result.model.coef_), 'coefficient')} in {output}")


def _stop_wished(study: Any, party: str) -> Callable[[], bool]:
    """Let Ctrl-C at the first party stop all parties after a round, with the best model so far.

    At every other party, Ctrl-C ends the process, and the others lose that party.
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
