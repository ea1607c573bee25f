"""The page about a run: one HTML file with everything in it, for readers who never heard of ADMM and for those who did.

Nothing is loaded from anywhere and nothing runs: no script, no font, no link to another place. Every text that comes
from data passes through `words.text`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial

from coterie.errors import count
from coterie.evaluation import Evaluation
from coterie.progress import format_bits
from coterie.report.evaluation import render as render_evaluation
from coterie.report.html import document, paragraph
from coterie.report.sections import Section, sections
from coterie.report.sections.certificate import ROUNDING
from coterie.report.words import duration, number, text
from coterie.result import Result
from coterie.statuses import Status

STATUS_WORDS = {
    Status.OPTIMAL: "Solved",
    Status.OPTIMAL_WITHIN_RADIUS: "Solved among models of bounded norm",
    Status.ITERATION_LIMIT: "Stopped: round limit reached",
    Status.TIME_LIMIT: "Stopped: time limit reached",
    Status.COMMUNICATION_LIMIT: "Stopped: communication limit reached",
    Status.STALLED: "Stopped: no more progress",
    Status.DIVERGED: "Stopped: the numbers grew without bound",
    Status.NUMERICAL_ERROR: "Stopped: a number was not finite",
    Status.UNBOUNDED: "Stopped: there is no best model",
    Status.INVALID_DATA: "Refused: the data cannot be used",
    Status.PARTY_LOST: "Stopped: a party was lost",
    Status.PROTOCOL_ERROR: "Stopped: the parties were out of step",
    Status.INTERRUPTED: "Stopped by hand",
}


def page(
    result: Result, notes: Sequence[str] = (), more: Sequence[Section] = (), evaluation: Evaluation | None = None
) -> str:
    """The whole page; `notes` are paragraphs for its head, `more` stands before the settings."""
    scored: list[Section] = [] if evaluation is None else [partial(render_evaluation, evaluation)]
    return document(
        title=f"{text(_headline(result))} · Coterie",
        header=_header(result, notes, evaluation),
        sections=[render(result) for render in sections([*scored, *more])],
        footer=foot(result),
    )


def foot(result: Result) -> str:
    """The last line."""
    return (
        f"Written by Coterie {text(result.certificate.version)}. "
        "This page is complete in itself: it loads nothing and sends nothing. <code>coterie report FOLDER --figures "
        "pdf</code> writes its figures as PDF files."
    )


def _headline(result: Result) -> str:
    certificate = result.certificate
    among = "" if certificate.radius is None else f" of norm at most {number(certificate.radius)}"
    if not math.isfinite(certificate.relative_gap):
        return "Nothing is proven about this model yet"
    if certificate.relative_gap < ROUNDING:
        return f"No model{among} has a smaller objective, up to rounding"
    of_norm = "" if certificate.radius is None else f" of a model{among}"
    return f"Objective within {certificate.relative_gap:.2g} (relative gap) of the smallest possible one{of_norm}"


def status_mark(status: Status) -> str:
    """A status in words, in the colour of good news or of a warning."""
    kind = "good" if status.success else "warn"
    return f'<span class="status {kind}">{STATUS_WORDS[status]}</span>'


def _header(result: Result, notes: Iterable[str], evaluation: Evaluation | None) -> str:
    status, certificate, bill = result.status, result.certificate, result.bill
    limits = certificate.settings["limits"]
    cards = [
        ("Rounds", f"{bill.rounds:,}", f"of at most {limits['max_rounds']:,}"),
        ("Relative gap", f"{certificate.relative_gap:.2g}", f"tolerance: {certificate.tolerance:g}"),
        ("Data sent", format_bits(bill.total.bits), f"in {count(bill.total.messages, 'message')}"),
        ("Time", duration(result.seconds), "wall-clock time, in total"),
        ("Agents", f"{result.network.agents:,}", text(_shape(result))),
    ]
    if evaluation is not None and evaluation.headline():
        score, *others = evaluation.headline().split(", ")
        name, _, value = score.rpartition(" ")
        beside = f"; {', '.join(others)}" if others else ""
        cards.append((f"Held out: {text(name)}", text(value), text(f"{count(evaluation.rows, 'row')}{beside}")))
    why = "" if result.error is None else f'<p class="advice warn"><b>Why?</b>{text(result.reason)}</p>\n'
    warned = "".join(f'<p class="advice warn"><b>Warning</b>{text(one)}</p>\n' for one in result.warnings)
    advice = "" if status is Status.OPTIMAL else f'<p class="advice warn"><b>What now?</b>{text(status.advice)}</p>'
    return (
        f'<div class="brand"><b>Coterie</b>{status_mark(status)}'
        f"<code>{text(status)}</code></div>\n<h1>{text(_headline(result))}</h1>\n"
        + "".join(paragraph(text(note)) for note in notes)
        + f'<p class="lead">{text(certificate.proves)} <a href="#meaning">What does that mean?</a></p>\n'
        f"<p>{_story(result)}</p>\n{why}{advice}\n{warned}"
        '<dl class="cards">'
        + "".join(f'<div class="card"><dt>{a}</dt><dd>{b}</dd><dd>{c}</dd></div>' for a, b, c in cards)
        + "</dl>"
    )


def _shape(result: Result) -> str:
    return "around a server" if result.network.server else f"network: {result.network.name}"


def _story(result: Result) -> str:
    """Who held what, in one or two sentences."""
    people, split = result.certificate.participants, result.certificate.settings["split"]
    rows, columns = [p.rows for p in people], [p.columns for p in people]
    held = (
        f"{count(max(rows), 'row')} of which each holds some of the {count(sum(columns), 'column')}"
        if split == "features"
        else f"{count(sum(rows), 'row')} with {count(max(columns), 'column')}"
    )
    parties = "One party has" if len(people) == 1 else f"{len(people):,} parties together have"
    together = "it" if len(people) == 1 else "all of the data, without pooling it"
    problem = result.model.problem
    return f"{parties} {held}. {text(problem.kind.fitted(problem, together))}"
