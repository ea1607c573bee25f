"""What commands print: text for people, one JSON object for programs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable

import coterie as co
from coterie.errors import count


def console(*, stderr: bool = False) -> Console:
    """Where text goes, made when it is needed, so that it is the stream of that moment."""
    return Console(stderr=stderr, highlight=False)


def print_json(content: dict[str, Any]) -> None:
    """One JSON object on one line; what is not a finite number is null."""
    print(json.dumps(_finite(content), allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def summary(result: co.Result) -> dict[str, Any]:
    """The numbers of a result under names that do not change."""
    certificate, bill = result.certificate, result.bill
    return {
        "status": result.status,
        "exit_code": result.status.exit_code,
        "advice": result.status.advice,
        "problem": result.about,
        "intercept": result.has_intercept,
        "notes": result.notes(),
        "reason": result.reason,
        "error": None if result.error is None else str(result.error),
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


def show_result(
    result: co.Result,
    output: Path,
    report: Path,
    as_json: bool,
    inference: co.Inference | None = None,
    path: co.Path | None = None,
    evaluation: co.Evaluation | None = None,
) -> None:
    """Status, certificate, bill, and where everything was put."""
    certificate, bill = result.certificate, result.bill
    if as_json:
        files = {"model": output / "model.npz", "certificate": output / "certificate.json", "report": report}
        told: dict[str, Any] = {} if inference is None else inference.summary()
        if path is not None:
            told |= {path.knob: path.chosen_strength, "rule": path.rule, "path": path.table()}
        told |= {} if evaluation is None else {"evaluation": evaluation.summary()}
        print_json({**summary(result), **told, **{name: str(path) for name, path in files.items()}})
        return
    out = console()
    if path is not None:
        out.print(str(path), markup=False, soft_wrap=True)
        sent = co.progress.format_bits(path.total.bits)
        name = path.knob.capitalize()
        tried = "radii" if path.knob == "radius" else "strengths"
        out.print(f"[bold]{name}[/bold]  {path.chosen_strength:.5g}; all {tried} and folds sent {sent}")
    colour = "green" if result.status.success else "yellow"
    out.print(f"[bold {colour}]{result.status}[/bold {colour}]  {result.status.advice}")
    if result.error is not None:
        out.print(result.reason, markup=False, soft_wrap=True)
    show_model(result)
    out.print("\n".join([result.explanation, *result.warnings]), markup=False)
    out.print(f"[bold]Certificate[/bold]  {certificate.proves}")
    out.print(f"             objective {certificate.primal:.8g}, proven lower bound {certificate.dual:.8g}")
    if inference is not None:
        out.print(str(inference), markup=False, soft_wrap=True)
        if inference.bill is not None:
            sent = co.progress.format_bits(inference.bill.total.bits)
            out.print(f"[bold]Standard errors[/bold]  {inference.bill.rounds} round more, {sent}")
    if evaluation is not None:
        out.print("[bold]Held out[/bold]  ", end="")
        show_evaluation(evaluation)
    table = RichTable("purpose", "word", "messages", "numbers", "sent", box=None, header_style="dim")
    for row in bill.table():
        numbers = f"{row['messages']:,}", f"{row['scalars']:,}", co.progress.format_bits(row["bits"])
        table.add_row(row["purpose"], row["word"], *numbers)
    rounds, sent = count(bill.rounds, "round"), co.progress.format_bits(bill.total.bits)
    out.print(f"[bold]Bill[/bold]  {rounds}, {sent} in total")
    out.print(table)
    out.print(f"[bold]Report[/bold]  {report.resolve().as_uri()}", soft_wrap=True)


def show_model(result: co.Result) -> None:
    """Which model was fitted, and whether it has an intercept."""
    console().print("[bold]Model[/bold]  ", end="")
    console().print("\n  ".join([result.about, *result.notes()]), markup=False)


def show_evaluation(found: co.Evaluation) -> None:
    """The scores as text, and what it cost to ask for them."""
    console().print(str(found), markup=False, soft_wrap=True)
    if found.bill is not None and found.bill.total.messages:
        sent = co.progress.format_bits(found.bill.total.bits)
        console().print(f"[bold]Evaluation[/bold]  {found.bill.total.messages} messages, {sent}")
