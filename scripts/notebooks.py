"""The tutorials as Jupyter notebooks, made of the pages in docs/tutorials, which tests run.

    python scripts/notebooks.py FOLDER     writes a notebook for each page

Python becomes cells, commands become cells that begin with "!", and a file that a page shows
becomes a cell that writes it. What a page says is printed is the output of its cell, and so is a
picture below it. What tests do not run stays text.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

TUTORIALS = Path(__file__).parents[1] / "docs" / "tutorials"
FENCE = re.compile(
    r"(?:^<!-- (?P<note>.*?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
PICTURE = re.compile(r"\s*^!\[(?P<words>[^\]]*)\]\((?P<name>[^)/]+\.svg)\)\n", re.MULTILINE)
Cell = dict[str, Any]


def notebook(page: Path) -> str:
    """The page as the content of a notebook."""
    text, cells, place = page.read_text(), [], 0
    for match in FENCE.finditer(text):
        if match.start() < place:
            continue
        before, cell = text[place : match.start()], _cell(match)
        place = match.end() + 1
        if (
            match["language"] == "text"
            and not before.strip()
            and cells
            and cells[-1]["cell_type"] == "code"
        ):
            cells[-1]["outputs"].append(
                {"output_type": "stream", "name": "stdout", "text": _lines(match["text"])}
            )
        else:
            cells += [*_prose(before), cell]
        if cells[-1]["cell_type"] == "code" and (picture := PICTURE.match(text, place)):
            drawn = (page.parent / picture["name"]).read_text()
            data = {"image/svg+xml": _lines(drawn), "text/plain": [picture["words"]]}
            cells[-1]["outputs"].append(
                {"output_type": "display_data", "data": data, "metadata": {}}
            )
            place = picture.end()
    cells += _prose(text[place:])
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    for number, cell in enumerate(cells):
        cell["id"] = f"{page.stem}-{number}"[:64]
    made = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


def _cell(match: re.Match[str]) -> Cell:
    note, language, text = match["note"] or "", match["language"], match["text"]
    if note.startswith("file: "):
        return _code(f"%%writefile {note.removeprefix('file: ')}\n{text}")
    if note.startswith("not run"):
        return _markdown(f"```{language}\n{text}```")
    if language == "python":
        return _code(text)
    if language == "console":
        # A command goes on where its line ends in a backslash; what does not begin with "$" is what
        # it prints.
        commands = re.findall(r"^\$ ((?:.*\\\n)*.*)\n", text, re.MULTILINE)
        cell = _code("".join(f"!{command}\n" for command in commands))
        printed = re.sub(r"^\$ (?:.*\\\n)*.*\n", "", text, flags=re.MULTILINE)
        if printed:
            cell["outputs"].append(
                {"output_type": "stream", "name": "stdout", "text": _lines(printed)}
            )
        return cell
    return _markdown(f"```{language}\n{text}```")


def _prose(text: str) -> list[Cell]:
    """Text between blocks; links to other pages lead nowhere from a notebook, and become words."""
    words = re.sub(
        r"\[([^\]]*)\]\((?![a-z]+:)[^)]*\)",
        r"\1",
        re.sub(r"^<!--.*?-->\n", "", text, flags=re.MULTILINE),
    )
    return [_markdown(words)] if words.strip() else []


def _markdown(text: str) -> Cell:
    return {"cell_type": "markdown", "metadata": {}, "source": _lines(text.strip())}


def _code(text: str) -> Cell:
    source = _lines(text.rstrip("\n"))
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
        "source": source,
    }


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for page in sorted(TUTORIALS.glob("*.md")):
        (folder / page.with_suffix(".ipynb").name).write_text(notebook(page), encoding="utf-8")


if __name__ == "__main__":
    main()
