"""The settings of the run, and the call in Python that repeats it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from coterie.api.result import Result
from coterie.data.preparation.recipes import Preparation
from coterie.errors import count
from coterie.report.call import solve_call
from coterie.report.html import definitions, paragraph, section, short_digest
from coterie.report.words import text, written_value

ORDER = 90
MOST_COLUMNS = 5


def render(result: Result) -> str:
    certificate = result.certificate
    settings = certificate.settings
    limits = [
        f"{name} = {written_value(value)}"
        for name, value in settings["limits"].items()
        if value is not None
    ]
    known = problem_rows(result)
    if settings.get("prepare"):
        preparation = Preparation.from_settings(settings["prepare"])
        known.append(("Preparation", text(_recipes(preparation))))
    known += [
        ("Method", described(settings["method"])),
        ("Split by", text(settings["split"])),
        ("Network", text(settings["network"])),
        ("Seed", text(settings["seed"])),
        ("Limits", text(", ".join(limits))),
        ("Coterie", text(certificate.version)),
        ("Data digest", short_digest(certificate.data_digest)),
        ("Model digest", short_digest(certificate.model_digest)),
    ]
    return section(
        "Reproduce this run",
        paragraph(
            "The same data, settings and seed give the same model. Compare the digests to see "
            "whether data and model "
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
    """The recipes, each with its columns, or only their number if there are many."""
    alone = replace(preparation, columns={})
    columns: dict[str, list[str]] = {}
    for name, recipe in preparation.columns.items():
        columns.setdefault(str(recipe), []).append(name)
    written = list(alone.lines())
    for recipe, names in columns.items():
        listed = ", ".join(names)
        if len(names) > MOST_COLUMNS:
            listed = count(len(names), "column")
        written.append(f"{listed}: {recipe}")
    return "; ".join(written)


def problem_rows(result: Result) -> list[tuple[str, str]]:
    """The parts of the problem: headings and their contents."""
    family = result.model.problem.kind
    return [
        (name, described(part))
        for name, part in family.report.parts(result.certificate.settings["problem"])
    ]


def described(part: Mapping[str, Any]) -> str:
    """A name with its parameters: "l2 (strength = 0.01)"."""
    parameters = ", ".join(
        f"{name} = {written_value(value)}" for name, value in part.items() if name != "name"
    )
    if not parameters:
        return text(part["name"])
    return f'{text(part["name"])} <span class="muted">({text(parameters)})</span>'
