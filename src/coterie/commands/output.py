"""What commands print: text for people, one JSON object for programs."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Saved:
    """A result and what belongs to it, and where they are."""

    result: co.Result
    output: Path
    report: Path
    inference: co.Inference | None = None
    path: co.Path | None = None
    evaluation: co.Evaluation | None = None

    def summary(self) -> dict[str, Any]:
        """The same under names that do not change."""
        told = summary(self.result)
        if self.inference is not None:
            told |= self.inference.summary()
        if (path := self.path) is not None:
            told |= {path.knob: path.chosen_strength, "rule": path.rule, "path": path.table()}
        if self.evaluation is not None:
            told["evaluation"] = self.evaluation.summary()
        files = {"model": "model.npz", "certificate": "certificate.json"}
        return {
            **told,
            **{name: str(self.output / file) for name, file in files.items()},
            "report": str(self.report),
        }


def show_result(saved: Saved, as_json: bool) -> None:
    """Status, certificate, bill, and where everything was put."""
    if as_json:
        print_json(saved.summary())
        return
    result, certificate, out = saved.result, saved.result.certificate, console()
    if saved.path is not None:
        _show_choice(saved.path)
    colour = "green" if result.status.success else "yellow"
    out.print(f"[bold {colour}]{result.status}[/bold {colour}]  {result.status.advice}")
    if result.error is not None:
        out.print(result.reason, markup=False, soft_wrap=True)
    show_model(result)
    out.print("\n".join([result.explanation, *result.warnings]), markup=False)
    out.print(f"[bold]Certificate[/bold]  {certificate.proves}")
    out.print(
        f"             objective {certificate.primal:.8g}, proven lower bound "
        f"{certificate.dual:.8g}"
    )
    if saved.inference is not None:
        _show_inference(saved.inference)
    if saved.evaluation is not None:
        out.print("[bold]Held out[/bold]  ", end="")
        show_evaluation(saved.evaluation)
    _show_bill(result.bill)
    out.print(f"[bold]Report[/bold]  {saved.report.resolve().as_uri()}", soft_wrap=True)


def _show_choice(path: co.Path) -> None:
    """The table of a path, and what was chosen."""
    out = console()
    out.print(str(path), markup=False, soft_wrap=True)
    sent = co.progress.format_bits(path.total.bits)
    tried = "radii" if path.knob == "radius" else "strengths"
    out.print(
        f"[bold]{path.knob.capitalize()}[/bold]  {path.chosen_strength:.5g}; all {tried} and "
        f"folds sent {sent}"
    )


def _show_inference(found: co.Inference) -> None:
    out = console()
    out.print(str(found), markup=False, soft_wrap=True)
    if found.bill is not None:
        sent = co.progress.format_bits(found.bill.total.bits)
        out.print(f"[bold]Standard errors[/bold]  {found.bill.rounds} round more, {sent}")


def _show_bill(bill: co.Bill) -> None:
    table = RichTable(
        "purpose", "word", "messages", "numbers", "sent", box=None, header_style="dim"
    )
    for row in bill.table():
        numbers = (
            f"{row['messages']:,}",
            f"{row['scalars']:,}",
            co.progress.format_bits(row["bits"]),
        )
        table.add_row(row["purpose"], row["word"], *numbers)
    rounds, sent = count(bill.rounds, "round"), co.progress.format_bits(bill.total.bits)
    console().print(f"[bold]Bill[/bold]  {rounds}, {sent} in total")
    console().print(table)


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
