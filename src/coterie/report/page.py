"""The report of a run: one self-contained HTML file, for readers with and without knowledge of
optimisation.

The page has no script, loads no font and links to no other place. Every text that comes from data
passes through `words.text`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial

from coterie.api.evaluation import Evaluation
from coterie.api.progress import format_bits
from coterie.api.result import Result
from coterie.errors import count
from coterie.report.evaluation import render as render_evaluation
from coterie.report.html import cards_list, document, paragraph
from coterie.report.sections import Section, sections
from coterie.report.sections.certificate import ROUNDING
from coterie.report.words import duration, number, text
from coterie.run.statuses import Status

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
    result: Result,
    notes: Sequence[str] = (),
    more: Sequence[Section] = (),
    evaluation: Evaluation | None = None,
) -> str:
    """The whole page; `notes` are paragraphs for its head, `more` are sections before the
    settings.
    """
    scored: list[Section] = []
    if evaluation is not None:
        scored.append(partial(render_evaluation, evaluation))
    return document(
        title=f"{text(_headline(result))} · Coterie",
        header=_header(result, notes, evaluation),
        sections=[render(result) for render in sections([*scored, *more])],
        footer=foot(result),
    )


def foot(result: Result) -> str:
    """The last line of a page."""
    return (
        f"Written by Coterie {text(result.certificate.version)}. "
        "This page is complete in itself: it loads nothing and sends nothing. <code>coterie "
        "report FOLDER --figures "
        "pdf</code> writes its figures as PDF files."
    )


def _headline(result: Result) -> str:
    certificate = result.certificate
    among = of_norm = ""
    if certificate.radius is not None:
        among = f" of norm at most {number(certificate.radius)}"
        of_norm = f" of a model{among}"
    if not math.isfinite(certificate.relative_gap):
        return "Nothing is proven about this model yet"
    if certificate.relative_gap < ROUNDING:
        return f"No model{among} has a smaller objective, up to rounding"
    return (
        f"Objective within {certificate.relative_gap:.2g} (relative gap) of the smallest possible "
        f"one{of_norm}"
    )


def status_mark(status: Status) -> str:
    """A status in words, in the colour of good news or of a warning."""
    kind = "good" if status.success else "warn"
    return f'<span class="status {kind}">{STATUS_WORDS[status]}</span>'


def _header(result: Result, notes: Iterable[str], evaluation: Evaluation | None) -> str:
    status = result.status
    certificate = result.certificate
    bill = result.bill
    limits = certificate.settings["limits"]
    cards = [
        ("Rounds", f"{bill.rounds:,}", f"of at most {limits['max_rounds']:,}"),
        (
            "Relative gap",
            f"{certificate.relative_gap:.2g}",
            f"tolerance: {certificate.tolerance:g}",
        ),
        ("Data sent", format_bits(bill.total.bits), f"in {count(bill.total.messages, 'message')}"),
        ("Time", duration(result.seconds), "wall-clock time, in total"),
        ("Agents", f"{result.network.agents:,}", text(_shape(result))),
    ]
    if evaluation is not None and evaluation.headline():
        score, *others = evaluation.headline().split(", ")
        name, _, value = score.rpartition(" ")
        rest = "; ".join([count(evaluation.rows, "row"), *filter(None, [", ".join(others)])])
        cards.append((f"Held out: {text(name)}", text(value), text(rest)))
    why = advice = ""
    if result.error is not None:
        why = f'<p class="advice warn"><b>Why?</b>{text(result.reason)}</p>\n'
    if status is not Status.OPTIMAL:
        advice = f'<p class="advice warn"><b>What now?</b>{text(status.advice)}</p>'
    warned = "".join(
        f'<p class="advice warn"><b>Warning</b>{text(one)}</p>\n' for one in result.warnings
    )
    noted = "".join(paragraph(text(note)) for note in notes)
    return (
        f'<div class="brand"><b>Coterie</b>{status_mark(status)}<code>{text(status)}</code></div>\n'
        f"<h1>{text(_headline(result))}</h1>\n{noted}"
        f'<p class="lead">{text(certificate.proves)} <a href="#meaning">What does that '
        "mean?</a></p>\n"
        f"<p>{_story(result)}</p>\n{why}{advice}\n{warned}{cards_list(cards)}"
    )


def parties_of(result: Result) -> str:
    """The number of parties in words: "3 parties"."""
    number_of_parties = len(result.certificate.participants)
    if number_of_parties == 1:
        return "1 party"
    return count(number_of_parties, "partie")


def _shape(result: Result) -> str:
    if result.network.server:
        return "around a server"
    return f"network: {result.network.name}"


def _story(result: Result) -> str:
    """The parties, their data and the model, in one or two sentences."""
    participants = result.certificate.participants
    rows = [party.rows for party in participants]
    columns = [party.columns for party in participants]
    if result.certificate.settings["split"] == "features":
        held = (
            f"{count(max(rows), 'row')} of which each holds some of the "
            f"{count(sum(columns), 'column')}"
        )
    else:
        held = f"{count(sum(rows), 'row')} with {count(max(columns), 'column')}"
    if len(participants) == 1:
        parties = "One party has"
        together = "it"
    else:
        parties = f"{len(participants):,} parties together have"
        together = "all of the data, without pooling it"
    problem = result.model.problem
    return f"{parties} {held}. {text(problem.kind.report.fitted(problem, together))}"
