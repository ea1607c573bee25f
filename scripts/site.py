"""What mkdocs needs beyond the pages in docs/: their order, and the files of the repository that
they cite.

CONTRIBUTING.md and CHANGELOG.md become pages, and so does each program of examples/. Tutorials
become notebooks, too. A page that nobody put in order below still appears, under "More".
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.append(
    str(Path(__file__).parent)
)  # mkdocs reads this file as a hook, and not as part of a folder

from notebooks import TUTORIALS, notebook

ROOT = Path(__file__).parents[1]
ORDER = {
    "Start": ["index.md", "quick-start.md", "estimators.md", "which-method.md", "concepts.md"],
    "Coming from": ["from-scikit-learn.md", "from-spark.md", "from-datashield.md"],
    "Tutorials": "tutorials",
    "Data and models": [
        "description.md",
        "preparation.md",
        "strength.md",
        "evaluation.md",
        "inference.md",
        "survival.md",
        "personal.md",
    ],
    "Between organisations": ["peers.md", "firewalls.md", "disclosure.md", "threat-model.md"],
    "Engines": ["engines", "gpu.md"],
    "Papers": "papers",
    "Results": [
        "benchmarks.md",
        "scale.md",
        "cluster-benchmarks.md",
        "gallery.md",
        "second-order.md",
    ],
    "Extend": [
        "add-a-loss.md",
        "add-a-kind.md",
        "add-a-method.md",
        "add-an-engine.md",
        "add-an-operation.md",
        "add-a-report-section.md",
        "call-graphs.md",
        "contributing.md",
        "changelog.md",
    ],
    "Decisions": "decisions",
    "Reference": ["reference.md", "errors.md", "examples.md"],
}
CITED = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "examples": "examples.md",
}


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made here."""
    for source, page in CITED.items():
        content = _examples() if source == "examples" else (ROOT / source).read_text()
        files.append(File.generated(config, page, content=content))
    for tutorial in sorted(TUTORIALS.glob("*.md")):
        made = File.generated(
            config, f"tutorials/{tutorial.stem}.ipynb", content=notebook(tutorial)
        )
        files.append(made)
    known = sorted(file.src_uri for file in files.documentation_pages())
    config["nav"] = _nav(known)
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links to files of the repository lead to the pages made of them; those to code become
    plain text.
    """
    local = page.file.src_uri
    if local.startswith("tutorials/"):
        link = (
            f"[Download this page as a notebook]({posixpath.basename(local)[:-3]}.ipynb){{ "
            "download }"
        )
        markdown = markdown.replace("\n", f"\n\n{link}\n", 1)
    made_of = {made: source for source, made in CITED.items()}
    folder = posixpath.dirname(made_of.get(local, "docs/" + local))

    def lead(match: re.Match[str]) -> str:
        words, link = match.groups()
        name, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link) or not name:
            return match[0]
        target = posixpath.normpath(posixpath.join(folder, name))
        if target.startswith("examples"):
            target, anchor = (
                "examples.md",
                _anchor(posixpath.basename(target)) if target.endswith(".py") else "",
            )
        elif target in CITED:
            target = CITED[target]
        elif target.startswith("docs") and (ROOT / target).is_dir():
            target, anchor = "index.md", ""
        elif target.startswith("docs/"):
            target = target.removeprefix("docs/")
        else:
            return words
        relative = posixpath.relpath(target, posixpath.dirname(local) or ".")
        return f"[{words}]({relative}{'#' + anchor if anchor else ''})"

    return re.sub(r"\[([^\]]*)\]\(([^)\s]+)\)", lead, markdown)


def _nav(pages: list[str]) -> list[dict[str, Any]]:
    nav: list[dict[str, Any]] = []
    placed: set[str] = set()
    for title, entries in ORDER.items():
        wanted = [entries] if isinstance(entries, str) else entries
        chosen = [
            page
            for entry in wanted
            for page in pages
            if page == entry or page.startswith(f"{entry}/")
        ]
        placed |= set(chosen)
        if chosen:
            nav.append({title: chosen})
    rest = [page for page in pages if page not in placed]
    return [*nav, {"More": rest}] if rest else nav


def _examples() -> str:
    parts = ["# Examples\n\nSmall programs to run and change; they are in `examples/`.\n"]
    for path in sorted((ROOT / "examples").glob("*.py")):
        parts.append(
            f"## {path.name} {{ #{_anchor(path.name)} }}\n\n```python\n{path.read_text()}```\n"
        )
    return "\n".join(parts)


def _anchor(name: str) -> str:
    return re.sub(r"\W+", "-", name)
