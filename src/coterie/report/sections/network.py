"""Who talked to whom, and what each link carried; for personal models, who learns from whom."""

from __future__ import annotations

from coterie.errors import count, shortened
from coterie.progress import format_bits
from coterie.report.figures import STRIP, network
from coterie.report.html import details, figure_block, paragraph, section, share, table
from coterie.report.words import plain, text
from coterie.result import Result

ORDER = 30
OPEN_AGENTS = 12
"""A table of more agents, or links, than this is folded away."""
MOST_LINKS = 1000


def render(result: Result) -> str:
    title = "Who talked to whom"
    personal = result.certificate.settings["split"] == "users" and result.network is not result.bill.network
    if personal and not result.network.server:
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
        busy = f"{which} carried {amount} each, both directions together."
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
