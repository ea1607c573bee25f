"""The page about a run: one HTML file with everything in it, for readers who never heard of ADMM and for those who did.

Nothing is loaded from anywhere and nothing runs: no script, no font, no link to another place. Every text that comes
from data passes through `words.text`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from string import Template
from typing import Any

import numpy as np

from coterie.progress import format_bits
from coterie.report.call import solve_call
from coterie.report.figures import SHOWN_COEFFICIENTS, STRIP, coefficients, colour, gap_against, largest, network
from coterie.report.inline import inline_svg
from coterie.report.words import duration, number, one_part_in, plain, shortened, text
from coterie.result import Result
from coterie.statuses import Status

__all__ = ["page"]

STATUS_WORDS = {
    Status.OPTIMAL: "Solved",
    Status.ITERATION_LIMIT: "Stopped: the rounds ran out",
    Status.TIME_LIMIT: "Stopped: the time ran out",
    Status.COMMUNICATION_LIMIT: "Stopped: the budget of bits ran out",
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
    "setup": "Getting acquainted: amounts and scales",
    "rounds": "Learning: the rounds themselves",
    "tuning": "Choosing step sizes on the way",
    "proof": "Computing the certificate",
}
WORD_WORDS = {
    "Sum": "everybody's, added up",
    "Mix": "the neighbours', weighted",
    "Exchange": "each neighbour's",
    "Ask": "some peers' latest",
}
LINKS = (
    ("inside one building", "LAN: 0.5 ms, 1 Gbit/s", 0.5e-3, 1e9),
    ("between two clouds", "40 ms, 100 Mbit/s", 40e-3, 100e6),
    ("over mobile links", "80 ms, 10 Mbit/s", 80e-3, 10e6),
)
OPEN_AGENTS = 12
"""A table of more agents than this is folded away."""
HISTORY_ROWS = 300
DIGEST_LETTERS = 12


def page(result: Result) -> str:
    """The whole page."""
    template = Template(files("coterie.report").joinpath("template.html").read_text(encoding="utf-8"))
    sections = (_progress, _meaning, _network, _bill, _model, _settings)
    return template.substitute(
        title=f"{text(_headline(result))} · Coterie",
        header=_header(result),
        sections="\n".join(section(result) for section in sections),
        footer=f"Written by Coterie {text(result.certificate.version)}. "
        "This page is complete in itself: it loads nothing and sends nothing.",
    )


# -- pieces of HTML --------------------------------------------------------------------------------------------------


def _section(title: str, *content: str, id: str) -> str:
    return f'<section id="{id}">\n<h2>{title}</h2>\n' + "\n".join(content) + "\n</section>"


def _paragraph(sentence: str, kind: str = "") -> str:
    return f'<p class="{kind}">{sentence}</p>' if kind else f"<p>{sentence}</p>"


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]], numbers_from: int, total: Sequence[str] = ()) -> str:
    """A table whose first column names the rows and whose columns from `numbers_from` on hold numbers."""

    def row(cells: Sequence[str], first: str, rest: str) -> str:
        tags = [first] + [rest] * (len(cells) - 1)
        kinds = [' class="number"' if k >= numbers_from and "share" not in cell else "" for k, cell in enumerate(cells)]
        return "<tr>" + "".join(f"<{t}{k}>{c}</{t}>" for t, k, c in zip(tags, kinds, cells, strict=True)) + "</tr>"

    head = f"<thead>{row(headings, 'th', 'th')}</thead>"
    body = "<tbody>" + "\n".join(row(cells, "th", "td") for cells in rows) + "</tbody>"
    foot = f"<tfoot>{row(total, 'td', 'td')}</tfoot>" if total else ""
    return f'<div class="scroll"><table>{head}\n{body}{foot}</table></div>'


def _share(part: float, whole: float) -> str:
    return f'<div class="share"><i style="width:{100 * part / whole if whole else 0:.1f}%"></i></div>'


def _details(summary: str, content: str) -> str:
    return f"<details><summary>{summary}</summary>\n{content}\n</details>"


def _definitions(pairs: Iterable[tuple[str, str]]) -> str:
    return '<dl class="settings">' + "".join(f"<dt>{term}</dt><dd>{meaning}</dd>" for term, meaning in pairs) + "</dl>"


def _digest(digest: str) -> str:
    return f'<code title="{text(digest)}">{text(digest[:DIGEST_LETTERS])}…</code>'


def _count(how_many: int, noun: str) -> str:
    return f"{how_many:,} {noun}{'' if how_many == 1 else 's'}"


# -- what is proven --------------------------------------------------------------------------------------------------


def _headline(result: Result) -> str:
    certificate = result.certificate
    among = "" if certificate.radius is None else f" of norm at most {number(certificate.radius)}"
    if not math.isfinite(certificate.relative_gap):
        return "Nothing is proven about this model yet"
    if certificate.relative_gap == 0:
        return f"No model{among} is better than this one, up to rounding"
    return f"Within {certificate.relative_gap:.2g} of the best possible model{among}"


def _header(result: Result) -> str:
    status, certificate, bill = result.status, result.certificate, result.bill
    kind = "good" if status is Status.OPTIMAL else "warn"
    limits = certificate.settings["limits"]
    cards = (
        ("Rounds", f"{bill.rounds:,}", f"of at most {limits['max_rounds']:,}"),
        ("Relative gap", f"{certificate.relative_gap:.2g}", f"asked for: {certificate.tolerance:g}"),
        ("Data sent", format_bits(bill.total.bits), f"in {_count(bill.total.messages, 'message')}"),
        ("Time", duration(float(result.history["seconds"][-1])), "on the clock, in all"),
        ("Agents", f"{result.network.agents:,}", text(_shape(result))),
    )
    advice = "" if status is Status.OPTIMAL else f'<p class="advice warn"><b>What now?</b>{text(status.advice)}</p>'
    return (
        f'<div class="brand"><b>Coterie</b><span class="status {kind}">{STATUS_WORDS[status]}</span>'
        f"<code>{text(status)}</code></div>\n<h1>{text(_headline(result))}</h1>\n"
        f'<p class="lead">{text(certificate.proves)} <a href="#meaning">What does that mean?</a></p>\n'
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
        f"{_count(max(rows), 'row')} of which each holds some of the {_count(sum(columns), 'column')}"
        if split == "features"
        else f"{_count(sum(rows), 'row')} with {_count(max(columns), 'column')}"
    )
    parties = "One party has" if len(people) == 1 else f"{len(people):,} parties together have"
    problem = result.model.problem
    fitted = f"{text(problem.loss.name)} loss" + (
        "" if problem.penalty.name == "none" else f" with {text(problem.penalty.name)} penalty"
    )
    together = "it" if len(people) == 1 else "all of it, without pooling it"
    return f"{parties} {held}. One linear model ({fitted}) was fitted to {together}."


def _meaning(result: Result) -> str:
    certificate = result.certificate
    among, aside = "", ""
    if certificate.radius is not None:
        among = f" of norm at most {number(certificate.radius)}"
        aside = (
            " (The penalty does not keep models from growing, so the floor holds only up to that norm; "
            f"this model's is {number(float(np.linalg.norm(result.model.coef_)))}.)"
        )
    share = one_part_in(certificate.relative_gap)
    zero = "the objective of a model whose coefficients are all zero"
    paragraphs = (
        "A model is judged by one number, its objective: how badly it fits the data on average, plus the penalty. "
        f"Smaller is better, and this model reaches <b>{number(certificate.primal, 8)}</b>. While the parties looked "
        f"for it, they also worked out a floor that <em>no</em> model{among} can get below: "
        f"<b>{number(certificate.dual, 8)}</b>.{aside} The best possible model lies between the two, so this one can "
        f"be worse by at most the difference, the <em>gap</em>: <b>{number(certificate.gap)}</b>. "
        + (f"That is {share} of {zero}." if share else f"The relative gap is the gap divided by {zero}."),
        "You need not trust the method that found the model. Both numbers were computed from the data and the final "
        "model, and whoever has the data can compute them again with <code>coterie verify</code>. The certificate does "
        "not say how well the model predicts new cases; it says how much better any other coefficients could do, at "
        "most, on this data and by this objective.",
    )
    content = "\n".join(map(_paragraph, paragraphs))
    return _section("What does the certificate mean?", f'<div class="meaning pair">{content}</div>', id="meaning")


# -- how it went -----------------------------------------------------------------------------------------------------


def _progress(result: Result) -> str:
    method = str(result.certificate.settings["method"]["name"])
    swatch = f'<span class="swatch" style="background:{colour(method)}"></span>'
    charts = "\n".join(
        inline_svg(gap_against(result, against), f"gap-{against}", f"Relative gap against {words}")
        for against, words in (("rounds", "rounds"), ("bytes", "data sent"), ("seconds", "seconds"))
    )
    return _section(
        "How it got there",
        _paragraph(
            "The gap says how far one can still be from the best possible model. It was computed now and then on the "
            "way; the large dot is the model of this report."
        ),
        _paragraph(f"{swatch}{text(result.explanation)}", "muted small"),
        f'<div class="charts">{charts}</div>',
        _history(result),
        id="progress",
    )


def _history(result: Result) -> str:
    history, unit = result.history, result.certificate.primal_at_zero or 1.0
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
    table = _table(
        ("round", "seconds", "sent", "objective", "proven floor", "gap", "relative gap"), rows, numbers_from=0
    )
    shown = "" if len(chosen) == len(history) else f", of which {len(chosen)} are shown"
    return _details(f"The {_count(len(history), 'record')} as a table{shown}", table)


# -- what it cost ----------------------------------------------------------------------------------------------------


def _network(result: Result) -> str:
    title = "Who talked to whom"
    if not result.network.server and not result.network.n_edges:
        return _section(title, _paragraph("A single agent has nobody to talk to."), id="network")
    carried = [bits for bits in result.bill.per_edge.values() if bits]
    count = result.network.agents if result.network.server else result.network.n_edges
    links = "Every agent talks to a server only." if result.network.server else "A line is a link between two agents."
    busy = "Nothing was sent."
    if carried:
        which = f"The {_count(count, 'link')}" if len(carried) == count else f"{len(carried):,} of {count:,} links"
        least, most = format_bits(min(carried)), format_bits(max(carried))
        amount = most if least == most else f"between {least} and {most}"
        busy = f"{which} carried {amount} each, both directions together (the picture counts bytes)."
    figure = network(result)
    width, height = figure.get_size_inches()
    drawing = inline_svg(figure, "network", f"The network: {result.certificate.settings['network']}")
    words = (
        _paragraph(f"{links} {busy}")
        + _paragraph(text(result.certificate.settings["network"]), "muted small")
        + _links(result)
    )
    layout = '<div class="wide">' if width >= STRIP * height else '<div class="pair">'
    return _section(title, layout, drawing, f"<div>{words}</div>", "</div>", id="network")


def _bill(result: Result) -> str:
    bill = result.bill
    total = bill.total
    if not total.messages:
        return _section(
            "The bill",
            _paragraph("Nothing was sent: a single agent has nobody to talk to."),
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
            _share(row["bits"], total.bits),
        )
        for row in bill.table()
    )
    table = _table(
        ("what for", "word", "messages", "numbers", "sent", ""),
        rows,
        numbers_from=2,
        total=("Total", "", f"{total.messages:,}", f"{total.scalars:,}", format_bits(total.bits), ""),
    )
    return _section(
        "The bill",
        _paragraph("Everything that left an agent or the server, without the headers that a network adds."),
        table,
        f"<h3>Who sent what</h3>{_agents(result)}",
        id="bill",
    )


def _agents(result: Result) -> str:
    accounts, people = result.bill.per_agent, result.certificate.participants
    names = [text(shortened(plain(p.name), 60)) for p in people] + ["server"] * result.network.server
    held = [f"{p.rows:,} × {p.columns:,}" for p in people] + [""] * result.network.server
    digests = [_digest(p.digest) for p in people] + [""] * result.network.server
    most = max(cost.bits for cost in accounts)
    rows = (
        (name, size, digest, f"{cost.messages:,}", f"{cost.scalars:,}", format_bits(cost.bits), _share(cost.bits, most))
        for name, size, digest, cost in zip(names, held, digests, accounts, strict=True)
    )
    table = _table(("agent", "holds", "digest", "messages", "numbers", "sent", ""), rows, numbers_from=3)
    if len(people) <= OPEN_AGENTS:
        return table
    sent = [cost.bits for cost in accounts[: len(people)]]
    between = f"between {format_bits(min(sent))} and {format_bits(max(sent))}"
    server = f", the server {format_bits(accounts[-1].bits)}" if result.network.server else ""
    return _paragraph(f"The agents sent {between} each{server}.") + _details(f"All {len(accounts):,} accounts", table)


def _links(result: Result) -> str:
    rows = (
        (f'{name}<span class="small">{link}</span>', duration(result.bill.seconds(latency=delay, bandwidth=speed)))
        for name, link, delay, speed in LINKS
    )
    return (
        "<h3>How long the messages would travel</h3>"
        + _table(("if the agents were linked", "time"), rows, numbers_from=1)
        + _paragraph("An estimate: the delay of every turn, and the bits of the busiest sender.", "muted small")
    )


# -- what came out ---------------------------------------------------------------------------------------------------


def _model(result: Result) -> str:
    model = result.model
    shown = largest(result)
    used = int(np.count_nonzero(model.coef_))
    facts = [
        ("Coefficients", f"{used:,} of {len(model.coef_):,} are not zero"),
        ("Intercept", number(model.intercept_, 6) if model.problem.intercept else "none"),
    ]
    if model.classes_ is not None:
        labels = [text(_value(label)) for label in model.classes_.tolist()]
        facts.append(("Classes", " and ".join(labels) + f": a positive score means {labels[-1]}"))
    described = _definitions(facts)
    if not shown:
        return _section(
            "The model",
            _paragraph("Every coefficient is zero: the model does not use any column."),
            described,
            id="model",
        )
    which = (
        f"The {len(shown)} largest coefficients" if used > SHOWN_COEFFICIENTS else "All coefficients that are not zero"
    )
    rows = ((text(name), number(value, 6)) for name, value in shown)
    table = _details("The same as a table", _table(("column", "coefficient"), rows, numbers_from=1))
    return _section(
        "The model",
        _paragraph(
            f"{which}, largest first. A positive one raises the prediction as its column grows, a negative one lowers "
            "it. Their sizes can only be compared if the columns are on the same scale."
        ),
        '<div class="pair">',
        inline_svg(coefficients(result), "coefficients", which),
        f"<div>{described}{table}</div>",
        "</div>",
        id="model",
    )


# -- how to repeat it ------------------------------------------------------------------------------------------------


def _settings(result: Result) -> str:
    certificate = result.certificate
    settings = certificate.settings
    known = (
        ("Loss", _described(settings["problem"]["loss"])),
        ("Penalty", _described(settings["problem"]["penalty"])),
        ("Intercept", "yes, without penalty" if settings["problem"]["intercept"] else "no"),
        ("Method", _described(settings["method"])),
        ("Split by", text(settings["split"])),
        ("Network", text(settings["network"])),
        ("Seed", text(settings["seed"])),
        ("Limits", text(", ".join(f"{k} = {_value(v)}" for k, v in settings["limits"].items() if v is not None))),
        ("Coterie", text(certificate.version)),
        ("Data digest", _digest(certificate.data_digest)),
        ("Model digest", _digest(certificate.model_digest)),
    )
    return _section(
        "Do it again",
        _paragraph(
            "The same data, settings and seed give the same model. The digests tell whether data and model are the "
            "same; point at one to see all of it."
        ),
        '<div class="pair">',
        _definitions(known),
        f"<pre><code>{_code(result)}</code></pre>",
        "</div>",
        id="settings",
    )


def _code(result: Result) -> str:
    return "\n".join(text(line) for line in solve_call(result).splitlines())


def _described(part: Mapping[str, Any]) -> str:
    """A name with its parameters: "l2 (strength = 0.01)"."""
    parameters = ", ".join(f"{name} = {_value(value)}" for name, value in part.items() if name != "name")
    return text(part["name"]) + (f' <span class="muted">({text(parameters)})</span>' if parameters else "")


def _value(value: object) -> str:
    return shortened(number(value, 12) if isinstance(value, float) else plain(value), 60)
