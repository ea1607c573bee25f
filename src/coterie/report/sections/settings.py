"""How to reproduce the run: its settings, and the call in Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from coterie.data.recipes import Preparation
from coterie.errors import count
from coterie.report.call import solve_call
from coterie.report.html import definitions, paragraph, section, short_digest
from coterie.report.words import text, written_value
from coterie.result import Result

ORDER = 90
MOST_COLUMNS = 5


def render(result: Result) -> str:
    certificate = result.certificate
    settings = certificate.settings
    limits = ", ".join(f"{k} = {written_value(v)}" for k, v in settings["limits"].items() if v is not None)
    recipes = settings.get("prepare")
    known = (
        *problem_facts(result),
        *([("Preparation", text(_recipes(Preparation.from_settings(recipes))))] if recipes else []),
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


def _recipes(preparation: Preparation) -> str:
    """The recipes, each with the columns that it is for; many columns are only counted."""
    alone = replace(preparation, columns={})
    columns: dict[str, list[str]] = {}
    for name, recipe in preparation.columns.items():
        columns.setdefault(str(recipe), []).append(name)
    told = (
        f"{', '.join(names) if len(names) <= MOST_COLUMNS else count(len(names), 'column')}: {recipe}"
        for recipe, names in columns.items()
    )
    return "; ".join([*alone.lines(), *told])


def problem_facts(result: Result) -> list[tuple[str, str]]:
    """What was minimised: headings and their contents."""
    family = result.model.problem.kind
    return [(name, described(part)) for name, part in family.parts(result.certificate.settings["problem"])]


def described(part: Mapping[str, Any]) -> str:
    """A name with its parameters: "l2 (strength = 0.01)"."""
    parameters = ", ".join(f"{name} = {written_value(value)}" for name, value in part.items() if name != "name")
    return text(part["name"]) + (f' <span class="muted">({text(parameters)})</span>' if parameters else "")
