"""How to reproduce the run: its settings, and the call in Python."""

from __future__ import annotations

from coterie.report.call import solve_call
from coterie.report.html import definitions, paragraph, section, short_digest
from coterie.report.model import described, problem_facts, written_value
from coterie.report.words import text
from coterie.result import Result

__all__ = ["ORDER", "render"]

ORDER = 90


def render(result: Result) -> str:
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
