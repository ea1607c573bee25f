"""The page about a run: one HTML file with everything in it, for readers who never heard of ADMM and for those who did.

Nothing is loaded from anywhere and nothing runs: no script, no font, no link to another place. Every text that comes
from data passes through `words.text`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from coterie.families import family_of
from coterie.progress import format_bits
from coterie.report.call import solve_call
from coterie.report.figures import STRIP, gap_against, network, straighter_in_log
from coterie.report.html import (
    choice,
    count,
    definitions,
    details,
    document,
    figure_block,
    paragraph,
    section,
    share,
    short_digest,
    swatch,
    table,
)
from coterie.report.model import described, model_section, problem_facts, written_value
from coterie.report.words import duration, money, number, one_part_in, plain, shortened, text
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
PURPOSE_WORDS = {
    "setup": "Setup: sizes and scales",
    "rounds": "The rounds of the method",
    "tuning": "Tuning: step sizes and acceleration",
    "proof": "Computing the certificate",
}
WORD_WORDS = {
    "Sum": "the sum over all agents",
    "Mix": "a weighted sum over the neighbours",
    "Exchange": "the value of each neighbour",
    "Ask": "the last published value of some agents",
}
ELSEWHERE = (
    ("inside one building", "LAN: 0.5 ms, 1 Gbit/s, free", 0.5e-3, 1e9, 0.0),
    ("between two clouds", "40 ms, 100 Mbit/s, $0.09 per GB", 40e-3, 100e6, 0.09),
    ("over mobile links", "80 ms, 10 Mbit/s, $2 per GB", 80e-3, 10e6, 2.0),
)
"""Where a run could take place: name, description, latency in seconds, bits per second, dollars per gigabyte sent."""
AXES = {"rounds": "rounds", "bytes": "data sent", "seconds": "seconds"}
OPEN_AGENTS = 12
"""A table of more agents, or links, than this is folded away."""
MOST_LINKS = 1000
HISTORY_ROWS = 300
ROUNDING = 1e-14
"""A relative gap below this is made of rounding errors."""


def page(result: Result, notes: Sequence[str] = ()) -> str:
    """The whole page; `notes` are paragraphs for its head, such as whose data this was."""
    sections = (_meaning, _progress, _network, _bill, model_section, _settings)
    return document(
        title=f"{text(_headline(result))} · Coterie",
        header=_header(result, notes),
        sections=[part(result) for part in sections],
        footer=foot(result),
    )


def foot(result: Result) -> str:
    """The last line."""
    return (
        f"Written by Coterie {text(result.certificate.version)}. "
        "This page is complete in itself: it loads nothing and sends nothing. <code>coterie report FOLDER --figures "
        "pdf</code> writes its figures as PDF files."
    )


# -- what is proven --------------------------------------------------------------------------------------------------


def _headline(result: Result) -> str:
    certificate = result.certificate
    among = "" if certificate.radius is None else f" of norm at most {number(certificate.radius)}"
    if not math.isfinite(certificate.relative_gap):
        return "Nothing is proven about this model yet"
    if certificate.relative_gap < ROUNDING:
        return f"No model{among} is better than this one, up to rounding"
    return f"Within {certificate.relative_gap:.2g} of the best possible model{among}"


def status_mark(status: Status) -> str:
    """A status in words, in the colour of good news or of a warning."""
    kind = "good" if status.success else "warn"
    return f'<span class="status {kind}">{STATUS_WORDS[status]}</span>'


def _header(result: Result, notes: Iterable[str]) -> str:
    status, certificate, bill = result.status, result.certificate, result.bill
    limits = certificate.settings["limits"]
    cards = (
        ("Rounds", f"{bill.rounds:,}", f"of at most {limits['max_rounds']:,}"),
        ("Relative gap", f"{certificate.relative_gap:.2g}", f"tolerance: {certificate.tolerance:g}"),
        ("Data sent", format_bits(bill.total.bits), f"in {count(bill.total.messages, 'message')}"),
        ("Time", duration(result.seconds), "wall-clock time, in total"),
        ("Agents", f"{result.network.agents:,}", text(_shape(result))),
    )
    advice = "" if status is Status.OPTIMAL else f'<p class="advice warn"><b>What now?</b>{text(status.advice)}</p>'
    return (
        f'<div class="brand"><b>Coterie</b>{status_mark(status)}'
        f"<code>{text(status)}</code></div>\n<h1>{text(_headline(result))}</h1>\n"
        + "".join(paragraph(text(note)) for note in notes)
        + f'<p class="lead">{text(certificate.proves)} <a href="#meaning">What does that mean?</a></p>\n'
        f"<p>{_story(result)}</p>\n{advice}\n"
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
    return f"{parties} {held}. {text(family_of(problem).fitted(problem, together))}"


def _meaning(result: Result) -> str:
    certificate = result.certificate
    among, aside = "", ""
    if certificate.radius is not None:
        among = f" of norm at most {number(certificate.radius)}"
        norm = float(np.linalg.norm(np.asarray(result.model.coef_, float)))
        aside = (
            " (The penalty does not keep models from growing, so the floor holds only up to that norm; "
            f"this model's is {number(norm)}.)"
        )
    zero = "the objective of a model whose coefficients are all zero"
    fraction = one_part_in(certificate.relative_gap)
    if certificate.relative_gap < ROUNDING:
        size = "That is no more than the rounding of the computer's numbers."
    else:
        size = f"That is {fraction} of {zero}." if fraction else f"The relative gap is the gap divided by {zero}."
    paragraphs = (
        "A model is judged by one number, its objective: how badly it fits the data on average, plus the penalty. "
        f"Smaller is better, and this model reaches <b>{number(certificate.primal, 8)}</b>. While the parties looked "
        f"for it, they also computed a lower bound that <em>no</em> model{among} can get below: "
        f"<b>{number(certificate.dual, 8)}</b>.{aside} The best possible model lies between the two, so this one can "
        f"be worse by at most the difference, the <em>gap</em>: <b>{number(certificate.gap)}</b>. {size}",
        "You need not trust the method that found the model. Both numbers were computed from the data and the final "
        "model, and whoever has the data can compute them again with <code>coterie verify</code>. The certificate does "
        "not say how well the model predicts new cases; it says how much better any other coefficients could do, at "
        "most, on this data and by this objective.",
    )
    content = "\n".join(map(paragraph, paragraphs))
    return section(
        "What does the certificate mean?",
        f'<div class="meaning">{_scale(result)}<div class="pair">{content}</div></div>',
        id="meaning",
    )


def _scale(result: Result) -> str:
    """Three bars: the objective of a model of zeros, of this model, and the floor below every model."""
    certificate = result.certificate
    heights = (
        ("A model of zeros", certificate.primal_at_zero, "quiet"),
        ("This model", certificate.primal, "ours"),
        ("No model can be lower", certificate.dual, "floor"),
    )
    if not all(math.isfinite(value) and value >= 0 for _, value, _ in heights) or not certificate.primal_at_zero:
        return ""
    most = max(value for _, value, _ in heights)
    rows = "".join(
        f'<div class="{kind}"><dt>{name}</dt><dd><i style="width:{100 * value / most:.2f}%"></i>'
        f"<span>{number(value, 6)}</span></dd></div>"
        for name, value, kind in heights
    )
    return f'<dl class="ladder">{rows}</dl>'


# -- how it went -----------------------------------------------------------------------------------------------------


def _progress(result: Result) -> str:
    method = str(result.certificate.settings["method"]["name"])
    known = np.isfinite(result.history["gap"])
    straighter = straighter_in_log(result.history["round"][known], result.history["gap"][known])
    charts = {
        scale: "\n".join(
            figure_block(
                gap_against(result, against, scale == "log"),
                f"gap-{against}" if scale == "linear" else f"gap-{against}-log",
                f"Relative gap against {words}",
            )
            for against, words in AXES.items()
        )
        for scale in ("linear", "log")
    }
    controls = choice("view", "Show", {"curves": "Curves", "table": "Table"}) + choice(
        "scale", "Horizontal axis", {"linear": "Linear", "log": "Logarithmic"}, "log" if straighter else "linear"
    )
    return section(
        "Progress",
        paragraph(
            "The gap bounds the distance to the best possible objective. It was computed in some of the rounds; the "
            "large dot is the model of this report."
        ),
        paragraph(f"{swatch(method)}{text(result.explanation)}", "muted small"),
        f'<div class="controls">{controls}</div>',
        *(f'<div class="charts curves {scale}">{drawn}</div>' for scale, drawn in charts.items()),
        f'<div class="records">{_history(result)}</div>',
        id="progress",
    )


def _history(result: Result) -> str:
    history, unit = result.history, result.certificate.unit
    chosen = np.unique(np.linspace(0, len(history) - 1, min(len(history), HISTORY_ROWS)).round().astype(int))
    rows = (
        (
            f"{row.round:,}",
            f"{row.seconds:.3f}",
            format_bits(row.bits),
            f"{row.primal + 0.0:.8g}",
            f"{row.dual + 0.0:.8g}",
            f"{row.gap + 0.0:.2e}",
            f"{row.gap / unit + 0.0:.2e}",
        )
        for row in (history[int(index)] for index in chosen)
    )
    records = table(
        ("round", "seconds", "sent", "objective", "lower bound", "gap", "relative gap"), rows, numbers_from=0
    )
    shown = "" if len(chosen) == len(history) else f", of which {len(chosen)} are shown"
    return paragraph(f"{count(len(history), 'record')}{shown}.", "muted small") + records


# -- what it cost ----------------------------------------------------------------------------------------------------


def _network(result: Result) -> str:
    title = "Who talked to whom"
    if result.network is not result.bill.network and not result.network.server:
        return _alike(result)
    if not result.network.server and not result.network.n_edges:
        return section(title, paragraph("A single agent sends no messages."), id="network")
    carried = [bits for bits in result.bill.per_edge.values() if bits]
    links = result.network.agents if result.network.server else result.network.n_edges
    what = "Every agent talks to a server only." if result.network.server else "A line is a link between two agents."
    busy = "Nothing was sent."
    if carried:
        which = f"The {count(links, 'link')}" if len(carried) == links else f"{len(carried):,} of {links:,} links"
        least, most = format_bits(min(carried)), format_bits(max(carried))
        amount = most if least == most else f"between {least} and {most}"
        busy = f"{which} carried {amount} each, both directions together (the picture counts bytes)."
    figure = network(result)
    width, height = figure.get_size_inches()
    drawing = figure_block(figure, "network", f"The network: {result.certificate.settings['network']}")
    words = (
        paragraph(f"{what} {busy}")
        + paragraph(text(result.certificate.settings["network"]), "muted small")
        + _directions(result)
    )
    layout = '<div class="wide">' if width >= STRIP * height else '<div class="pair">'
    return section(title, layout, drawing, f"<div>{words}</div>", "</div>", id="network")


def _alike(result: Result) -> str:
    """The graph of personal models, which says who is alike; messages travel on another one."""
    title = "Who learns from whom"
    if not result.network.n_edges:
        return section(
            title, paragraph("No two users are linked: each learns alone."), _directions(result), id="network"
        )
    drawing = figure_block(network(result), "network", "The collaboration graph")
    words = paragraph(
        f"A line joins two users whose models are kept similar: {count(result.network.n_edges, 'link')} between "
        f"{count(result.network.agents, 'user')}. A message goes to each user that asks for it."
    )
    return section(title, f'<div class="pair">{drawing}<div>{words}</div></div>', id="network")


def _directions(result: Result) -> str:
    """What each link carried, each way."""
    names = [text(shortened(plain(p.name), 30)) for p in result.certificate.participants] + ["server"]
    sent = result.bill.per_direction
    links = sorted(((bits, edge) for edge, bits in result.bill.per_edge.items() if bits), key=lambda link: -link[0])
    if not links:
        return ""
    rows = []
    for bits, (i, j) in links[:MOST_LINKS]:
        one, other = (j, i) if i < 0 else (i, j)
        there, back = sent.get((one, other), 0), sent.get((other, one), 0)
        ends = f"{names[one]} ⇄ {names[other]}"
        rows.append((ends, format_bits(there), format_bits(back), share(bits, links[0][0])))
    listed = table(("link", "there", "back", ""), rows, numbers_from=1)
    left_out = f" (the busiest {MOST_LINKS:,})" if len(links) > MOST_LINKS else ""
    return listed if len(links) <= OPEN_AGENTS else details(f"All {len(links):,} links{left_out}", listed)


def _bill(result: Result) -> str:
    bill = result.bill
    total = bill.total
    if not total.messages:
        return section(
            "The bill",
            paragraph("Nothing was sent: there is only one agent."),
            _agents(result),
            id="bill",
        )
    rows = (
        (
            text(PURPOSE_WORDS.get(row["purpose"], row["purpose"]))
            + f'<span class="small">{text(row["purpose"])}</span>',
            f'{text(row["word"])}<span class="small">{text(WORD_WORDS.get(row["word"], ""))}</span>',
            f"{row['messages']:,}",
            f"{row['scalars']:,}",
            format_bits(row["bits"]),
            share(row["bits"], total.bits),
        )
        for row in bill.table()
    )
    purposes = table(
        ("purpose", "word", "messages", "numbers", "sent", ""),
        rows,
        numbers_from=2,
        total=("Total", "", f"{total.messages:,}", f"{total.scalars:,}", format_bits(total.bits), ""),
    )
    return section(
        "The bill",
        paragraph("Everything that left an agent or the server, without the headers that a network adds."),
        purposes,
        f"<h3>Who sent what</h3>{_agents(result)}",
        f"<h3>Time and price on other links</h3>{elsewhere({'': result})}",
        id="bill",
    )


def _agents(result: Result) -> str:
    accounts, people = result.bill.per_agent, result.certificate.participants
    names = [text(shortened(plain(p.name), 60)) for p in people] + ["server"] * result.bill.network.server
    held = [f"{p.rows:,} × {p.columns:,}" for p in people] + [""] * result.bill.network.server
    digests = [short_digest(p.digest) for p in people] + [""] * result.bill.network.server
    most = max(cost.bits for cost in accounts)
    rows = (
        (name, size, digest, f"{cost.messages:,}", f"{cost.scalars:,}", format_bits(cost.bits), share(cost.bits, most))
        for name, size, digest, cost in zip(names, held, digests, accounts, strict=True)
    )
    listed = table(("agent", "holds", "digest", "messages", "numbers", "sent", ""), rows, numbers_from=3)
    if len(people) <= OPEN_AGENTS:
        return listed
    sent = [cost.bits for cost in accounts[: len(people)]]
    between = f"between {format_bits(min(sent))} and {format_bits(max(sent))}"
    server = f", the server {format_bits(accounts[-1].bits)}" if result.bill.network.server else ""
    return paragraph(f"The agents sent {between} each{server}.") + details(f"All {len(accounts):,} accounts", listed)


def elsewhere(results: Mapping[str, Result]) -> str:
    """How long the messages of each run would travel on other links, and what they would cost there."""

    bills = [result.bill for result in results.values()]
    rows = []
    for name, link, latency, bandwidth, price in ELSEWHERE:
        cells = [
            (duration(bill.seconds(latency=latency, bandwidth=bandwidth)), money(bill.money(per_gigabyte=price)))
            for bill in bills
        ]
        shown = cells[0] if len(bills) == 1 else [f'{time}<span class="small">{cost}</span>' for time, cost in cells]
        rows.append((f'{name}<span class="small">{link}</span>', *shown))
    heads = ("time", "price") if len(bills) == 1 else tuple(map(text, results))
    return table(("if the agents were linked", *heads), rows, numbers_from=1) + paragraph(
        "An estimate of the messages alone: the delay of every turn and the bits of the busiest sender; for the price, "
        "every byte sent. The prices are assumptions: <code>result.bill.money(per_gigabyte=...)</code> takes yours.",
        "muted small",
    )


# -- how to repeat it ------------------------------------------------------------------------------------------------


def _settings(result: Result) -> str:
    certificate = result.certificate
    settings = certificate.settings
    limits = ", ".join(f"{k} = {written_value(v)}" for k, v in settings["limits"].items() if v is not None)
    known = (
        *problem_facts(result),
        ("Method", described(settings["method"])),
        ("Split by", text(settings["split"])),
        ("Network", text(settings["network"])),
        ("Seed", text(settings["seed"])),
        ("Limits", text(limits)),
        ("Coterie", text(certificate.version)),
        ("Data digest", short_digest(certificate.data_digest)),
        ("Model digest", short_digest(certificate.model_digest)),
    )
    return section(
        "Reproduce this run",
        paragraph(
            "The same data, settings and seed give the same model. Compare the digests to see whether data and model "
            "are the same; hover over a digest to see all of it."
        ),
        '<div class="pair">',
        definitions(known),
        f"<pre><code>{_code(result)}</code></pre>",
        "</div>",
        id="settings",
    )


def _code(result: Result) -> str:
    return "\n".join(text(line) for line in solve_call(result).splitlines())
