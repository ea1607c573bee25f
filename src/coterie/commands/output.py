"""What commands print: text for people, one JSON object for programs."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

import coterie as co
from coterie.errors import count


def console(*, stderr: bool = False) -> Console:
    """Make a console for standard output or standard error, as they are at this moment."""
    return Console(stderr=stderr, highlight=False)


def print_json(content: dict[str, Any]) -> None:
    """Print one JSON object on one line; numbers that are not finite become null."""
    print(json.dumps(_finite(content), allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def text_or_none(value: object | None) -> str | None:
    """Write a path or an error as text, and None as None."""
    if value is None:
        return None
    return str(value)


def show_text(text: str) -> None:
    """Print lines as they are: no markup, and no wrapping at the width of the terminal."""
    console().print(text, markup=False, soft_wrap=True)


def show_value(label: str, value: str, style: str = "bold") -> None:
    """Print a line `label: value`."""
    console().print(Text(f"{label}:", style=style), Text(value), soft_wrap=True)


def show_written(content: str, file: object) -> None:
    """Print which file a command wrote, such as `20 predictions written to predictions.csv.`"""
    line = Text.assemble(f"{content} written to ", (str(file), "bold"), ".")
    console().print(line, soft_wrap=True)


def show_report(page: Path) -> None:
    """Print the address of a report."""
    show_value("Report", page.resolve().as_uri())


def summary(result: co.Result) -> dict[str, Any]:
    """Collect the numbers of a result under names that do not change."""
    certificate = result.certificate
    bill = result.bill
    return {
        "status": result.status,
        "exit_code": result.status.exit_code,
        "advice": result.status.advice,
        "problem": result.about,
        "intercept": result.has_intercept,
        "notes": result.notes(),
        "reason": result.reason,
        "error": text_or_none(result.error),
        "lost_party": result.lost_party,
        "method": certificate.settings["method"]["name"],
        "explanation": result.explanation,
        "warnings": list(result.warnings),
        "primal": certificate.primal,
        "dual": certificate.dual,
        "gap": certificate.gap,
        "relative_gap": certificate.relative_gap,
        "proves": certificate.proves,
        "rounds": bill.rounds,
        "seconds": result.seconds,
        "scalars": bill.scalars,
        "bits": bill.bits,
        "total": vars(bill.total),
        "bill": bill.table(),
    }


def chosen_in(path: co.Path) -> dict[str, Any]:
    """Collect which strength or radius a path chose, by which rule, and the table of the path."""
    return {path.knob: path.chosen_strength, "rule": path.rule, "path": path.table()}


@dataclass(frozen=True)
class Saved:
    """A saved fit: its result, the path and scores that belong to it, and their files."""

    result: co.Result
    output: Path
    report: Path
    inference: co.Inference | None = None
    path: co.Path | None = None
    evaluation: co.Evaluation | None = None

    def summary(self) -> dict[str, Any]:
        """Collect the numbers of the fit under names that do not change."""
        numbers = summary(self.result)
        if self.inference is not None:
            numbers |= self.inference.summary()
        if self.path is not None:
            numbers |= chosen_in(self.path)
        if self.evaluation is not None:
            numbers["evaluation"] = self.evaluation.summary()
        numbers["model"] = str(self.output / "model.npz")
        numbers["certificate"] = str(self.output / "certificate.json")
        numbers["report"] = str(self.report)
        return numbers


def show_result(saved: Saved, as_json: bool) -> None:
    """Print status, model, certificate, scores, bill and the address of the report."""
    if as_json:
        print_json(saved.summary())
        return
    result = saved.result
    if saved.path is not None:
        _show_choice(saved.path)
    show_status(result)
    if result.error is not None:
        show_text(result.reason)
    show_model(result)
    show_text(result.explanation)
    for warning in result.warnings:
        show_text(warning)
    show_certificate(result.certificate)
    if saved.inference is not None:
        _show_inference(saved.inference)
    if saved.evaluation is not None:
        console().print("[bold]Held out:[/bold] ", end="")
        show_evaluation(saved.evaluation)
    _show_bill(result.bill)
    show_report(saved.report)


def show_status(result: co.Result) -> None:
    """Print the status of a fit, and what to do next."""
    status = result.status
    style = "bold yellow"
    if status.success:
        style = "bold green"
    show_value("Status", f"{status}. {status.advice}", style)


def show_certificate(certificate: co.Certificate) -> None:
    """Print what a certificate proves, with the objective and its lower bound."""
    bound = f"{certificate.primal:.8g}, proven lower bound {certificate.dual:.8g}"
    show_value("Certificate", certificate.proves)
    show_value("Objective", bound)


def _show_choice(path: co.Path) -> None:
    """Print the table of a path, and which strength or radius was chosen."""
    show_text(str(path))
    sent = co.progress.format_bits(path.total.bits)
    tried = "strengths"
    if path.knob == "radius":
        tried = "radii"
    label = path.knob.capitalize()
    show_value(label, f"{path.chosen_strength:.5g}; all {tried} and folds sent {sent}")


def _show_inference(found: co.Inference) -> None:
    show_text(str(found))
    if found.bill is not None:
        sent = co.progress.format_bits(found.bill.total.bits)
        show_value("Standard errors", f"{count(found.bill.rounds, 'round')} more, {sent}")


def _show_bill(bill: co.Bill) -> None:
    rounds = count(bill.rounds, "round")
    sent = co.progress.format_bits(bill.total.bits)
    show_value("Bill", f"{rounds}, {sent} in total")
    headings = ("purpose", "collective", "messages", "numbers", "sent")
    table = RichTable(*headings, box=None, header_style="dim")
    for row in bill.table():
        messages = f"{row['messages']:,}"
        numbers = f"{row['scalars']:,}"
        bits = co.progress.format_bits(row["bits"])
        table.add_row(row["purpose"], row["word"], messages, numbers, bits)
    console().print(table)


def show_messages(label: str, bill: co.Bill | None) -> None:
    """Print how many messages an operation sent, and their size, if it sent any."""
    if bill is None or not bill.total.messages:
        return
    sent = co.progress.format_bits(bill.total.bits)
    show_value(label, f"{bill.total.messages} messages, {sent}")


def show_model(result: co.Result) -> None:
    """Print which model was fitted, and notes about it."""
    lines = [result.about, *result.notes()]
    show_value("Model", "\n  ".join(lines))


def show_evaluation(found: co.Evaluation) -> None:
    """Print the scores, and the messages that computed them."""
    show_text(str(found))
    show_messages("Evaluation", found.bill)
