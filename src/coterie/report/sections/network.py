"""The network and the traffic of each link; for personal models, the collaboration graph."""

from __future__ import annotations

from coterie.api.progress import format_bits
from coterie.api.result import Result
from coterie.errors import count, shortened
from coterie.report.figures import STRIP, network
from coterie.report.html import details, figure_block, paragraph, section, share, table
from coterie.report.words import plain, text

ORDER = 30
OPEN_AGENTS = 12
"""Largest number of agents, or links, for which a table is unfolded."""
MOST_LINKS = 1000


def render(result: Result) -> str:
    title = "Messages between agents"
    settings = result.certificate.settings
    server = result.network.server
    if settings["split"] == "users" and result.network is not result.bill.network and not server:
        return _collaboration(result)
    if not server and not result.network.n_edges:
        return section(title, paragraph("A single agent sends no messages."), id="network")
    caption = "A line is a link between two agents."
    if server:
        caption = "Every agent sends to a server only."
    figure = network(result)
    width, height = figure.get_size_inches()
    drawing = figure_block(figure, "network", f"The network: {settings['network']}")
    name = paragraph(text(settings["network"]), "muted small")
    words = paragraph(f"{caption} {_traffic(result)}") + name + _directions(result)
    layout = '<div class="pair">'
    if width >= STRIP * height:
        layout = '<div class="wide">'
    return section(title, layout, drawing, f"<div>{words}</div>", "</div>", id="network")


def _traffic(result: Result) -> str:
    """The number of links that carried messages, and the range of their traffic."""
    carried = [bits for bits in result.bill.per_edge.values() if bits]
    if not carried:
        return "Nothing was sent."
    links = result.network.n_edges
    if result.network.server:
        links = result.network.agents
    which = f"{len(carried):,} of {links:,} links"
    if len(carried) == links:
        which = f"The {count(links, 'link')}"
    least = format_bits(min(carried))
    most = format_bits(max(carried))
    amount = f"between {least} and {most}"
    if least == most:
        amount = most
    return f"{which} carried {amount} each, both directions together."


def _collaboration(result: Result) -> str:
    """The graph between users with similar models; messages are sent on another network."""
    title = "Similar users"
    if not result.network.n_edges:
        alone = paragraph("No two users are linked: each learns alone.")
        return section(title, alone, _directions(result), id="network")
    drawing = figure_block(network(result), "network", "The collaboration graph")
    words = paragraph(
        "A line joins two users whose models are kept similar: "
        f"{count(result.network.n_edges, 'link')} between "
        f"{count(result.network.agents, 'user')}. A message goes to each user that asks for it."
    )
    return section(title, f'<div class="pair">{drawing}<div>{words}</div></div>', id="network")


def _directions(result: Result) -> str:
    """The traffic of each link, in each direction."""
    names = [text(shortened(plain(p.name), 30)) for p in result.certificate.participants] + [
        "server"
    ]
    sent = result.bill.per_direction
    links = [(bits, edge) for edge, bits in result.bill.per_edge.items() if bits]
    links.sort(key=lambda link: -link[0])
    if not links:
        return ""
    rows = []
    for bits, (one, other) in links[:MOST_LINKS]:
        if one < 0:
            one, other = other, one
        there = sent.get((one, other), 0)
        back = sent.get((other, one), 0)
        ends = f"{names[one]} ⇄ {names[other]}"
        rows.append((ends, format_bits(there), format_bits(back), share(bits, links[0][0])))
    listed = table(("link", "there", "back", ""), rows, numbers_from=1)
    if len(links) <= OPEN_AGENTS:
        return listed
    left_out = ""
    if len(links) > MOST_LINKS:
        left_out = f" (the busiest {MOST_LINKS:,})"
    return details(f"All {len(links):,} links{left_out}", listed)
