"""The bill: messages by purpose and by agent, and their time and price on other links."""

from __future__ import annotations

from collections.abc import Mapping

from coterie.api.progress import format_bits
from coterie.api.result import Result
from coterie.errors import shortened
from coterie.report.html import details, paragraph, section, share, short_digest, table
from coterie.report.sections.network import OPEN_AGENTS
from coterie.report.words import duration, money, plain, text

ORDER = 40
PURPOSE_MEANINGS = {
    "preparation": "Preparation of the columns",
    "setup": "Setup: sizes and scales",
    "rounds": "The rounds of the method",
    "tuning": "Tuning: step sizes and acceleration",
    "proof": "Computing the certificate",
}
COLLECTIVE_MEANINGS = {
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
"""Where a run could take place: name, description, latency in seconds, bits per second, dollars per
gigabyte sent.
"""


def render(result: Result) -> str:
    bill = result.bill
    total = bill.total
    if not total.messages:
        nothing = paragraph("Nothing was sent: there is only one agent.")
        return section("The bill", nothing, _agents(result), id="bill")
    rows = []
    for row in bill.table():
        purpose = text(PURPOSE_MEANINGS.get(row["purpose"], row["purpose"]))
        collective = text(row["word"])
        meaning = text(COLLECTIVE_MEANINGS.get(row["word"], ""))
        cells = [
            f'{purpose}<span class="small">{text(row["purpose"])}</span>',
            f'{collective}<span class="small">{meaning}</span>',
            f"{row['messages']:,}",
            f"{row['scalars']:,}",
            format_bits(row["bits"]),
            share(row["bits"], total.bits),
        ]
        rows.append(cells)
    purposes = table(
        ("purpose", "collective", "messages", "numbers", "sent", ""),
        rows,
        numbers_from=2,
        total=(
            "Total",
            "",
            f"{total.messages:,}",
            f"{total.scalars:,}",
            format_bits(total.bits),
            "",
        ),
    )
    return section(
        "The bill",
        paragraph(
            "Everything that left an agent or the server, without the headers that a network adds."
        ),
        purposes,
        f"<h3>Messages by agent</h3>{_agents(result)}",
        f"<h3>Time and price on other links</h3>{elsewhere({'': result})}",
        id="bill",
    )


def _agents(result: Result) -> str:
    accounts = result.bill.per_agent
    participants = result.certificate.participants
    has_server = result.bill.network.server
    labels = []
    for party in participants:
        name = text(shortened(plain(party.name), 60))
        labels.append([name, f"{party.rows:,} × {party.columns:,}", short_digest(party.digest)])
    if has_server:
        labels.append(["server", "", ""])
    most = max(cost.bits for cost in accounts)
    rows = []
    for label, cost in zip(labels, accounts, strict=True):
        amounts = [f"{cost.messages:,}", f"{cost.scalars:,}", format_bits(cost.bits)]
        rows.append([*label, *amounts, share(cost.bits, most)])
    listed = table(
        ("agent", "holds", "digest", "messages", "numbers", "sent", ""), rows, numbers_from=3
    )
    if len(participants) <= OPEN_AGENTS:
        return listed
    sent = [cost.bits for cost in accounts[: len(participants)]]
    words = f"The agents sent between {format_bits(min(sent))} and {format_bits(max(sent))} each"
    if has_server:
        words += f", the server {format_bits(accounts[-1].bits)}"
    return paragraph(f"{words}.") + details(f"All {len(accounts):,} accounts", listed)


def elsewhere(results: Mapping[str, Result]) -> str:
    """Estimated time and price of the messages of each run on other links."""
    single = len(results) == 1
    heads = ["time", "price"] if single else list(map(text, results))
    rows = []
    for name, link, latency, bandwidth, price in ELSEWHERE:
        cells = [f'{name}<span class="small">{link}</span>']
        for result in results.values():
            time = duration(result.bill.seconds(latency=latency, bandwidth=bandwidth))
            cost = money(result.bill.money(per_gigabyte=price))
            if single:
                cells += [time, cost]
            else:
                cells.append(f'{time}<span class="small">{cost}</span>')
        rows.append(cells)
    note = (
        "An estimate of the messages alone: the delay of every turn and the bits of the busiest "
        "sender; for the price, "
        "every byte sent. The prices are assumptions: "
        "<code>result.bill.money(per_gigabyte=...)</code> takes yours."
    )
    listed = table(("if the agents were linked", *heads), rows, numbers_from=1)
    return listed + paragraph(note, "muted small")
