"""The tables of the five papers are complete: every row says where it is and names a test that
exists, or says why it is left out.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = {"000": 28, "001": 49, "002": 29, "003": 25, "004": 40}
"""Rows of each paper's table: what the paper describes, paragraph by paragraph."""
HEADING = "## Paragraph by paragraph"
HEAD = ["place", "what the paper says", "in Coterie", "as written?", "test"]
VERDICTS = ("works as written", "differs: ", "left out: ")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)(?:::(\w+))?`")

by_paper = pytest.mark.parametrize("paper", ROWS)


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


@cache
def table(paper: str) -> list[list[str]]:
    """Return the cells of all rows, the head and the line below it included."""
    page = (ROOT / "docs" / "papers" / f"{paper}.md").read_text(encoding="utf-8")
    section = page.split(f"\n{HEADING}\n")[1].split("\n## ")[0]
    return [cells(line) for line in section.splitlines() if line.startswith("|")]


def rows(paper: str) -> list[list[str]]:
    return table(paper)[2:]


@cache
def names_in(file: str) -> frozenset[tuple[str, ...]]:
    """Return the functions of a file and the methods of its classes, without importing it."""
    path = ROOT / file
    if not path.is_file():
        return frozenset()
    found: set[tuple[str, ...]] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            found.add((node.name,))
        if isinstance(node, ast.ClassDef):
            methods = [inner for inner in node.body if isinstance(inner, ast.FunctionDef)]
            found.update((node.name, method.name) for method in methods)
    return frozenset(found)


@by_paper
def test_a_table_has_all_rows_of_its_paper(paper):
    assert table(paper)[0] == HEAD
    assert len(rows(paper)) == ROWS[paper]


@by_paper
def test_every_row_is_complete(paper):
    for row in rows(paper):
        assert len(row) == len(HEAD), row
        assert all(row[:2]), row
        verdict = row[3]
        assert verdict.startswith(VERDICTS), row
        assert verdict not in {start.strip() for start in VERDICTS[1:]}, f"no reason: {row}"


@by_paper
def test_every_row_names_its_place_and_its_test_unless_it_is_left_out(paper):
    for row in rows(paper):
        if not row[3].startswith("left out"):
            assert row[2], row
            assert TEST.search(row[4]), row


@by_paper
def test_every_named_test_exists(paper):
    for row in rows(paper):
        named = [tuple(filter(None, match.groups())) for match in TEST.finditer(row[4])]
        assert len(named) == row[4].count("`") / 2, f"not path::name in code font: {row[4]}"
        for file, *names in named:
            assert tuple(names) in names_in(file), f"{row[0]}: {file}::{'::'.join(names)}"
            assert names[-1].startswith("test_"), row
