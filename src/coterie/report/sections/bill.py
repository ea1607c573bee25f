"""What was sent, what for and by whom, and what it would cost on other links."""

from __future__ import annotations

from collections.abc import Mapping

from coterie.errors import shortened
from coterie.progress import format_bits
from coterie.report.html import details, paragraph, section, share, short_digest, table
from coterie.report.sections.network import OPEN_AGENTS
from coterie.report.words import duration, money, plain, text
from coterie.result import Result

ORDER = 40
PURPOSE_WORDS = {
    "preparation": "Preparation of the columns",
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


def render(result: Result) -> str:
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
