"""The threat model names every method once, and tests that exist for every lie."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from coterie.methods import METHODS
from tests.docs.test_docs import DOCS, ROOT, by_page, tables

PAGE = DOCS / "threat-model.md"
TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
LEARNED = ["a curious party learns", "a liar learns in addition", "two that cooperate learn"]
LIE = ["what the others see", "who is named", "how long it takes", "what is written"]


def with_head(head):
    return next(table for table in tables(PAGE) if next(iter(table[0])) == head)


def exists(file: Path, name: str | None) -> bool:
    """Whether there is a test of that name in that file."""
    if not file.is_file():
        return False
    return name is None or f"\ndef {name}(" in file.read_text()


@by_page
def test_tests_that_a_page_names_exist(page):
    missing = [
        match.group()
        for match in TEST.finditer(page.read_text())
        if not exists(ROOT / match[1], match[2])
    ]
    assert not missing, f"{page.name}: {', '.join(missing)}"


def test_every_lie_names_a_test_and_what_follows():
    rows = with_head("lie")
    assert len(rows) >= 20
    for row in rows:
        assert all(row[head] for head in LIE), row["lie"]
        named = TEST.findall(row["test"])
        assert named, f"{row['lie']}: no test"
        assert all(name for _, name in named)
        assert TEST.sub("", row["test"]).strip(" ,") == "", row["test"]


@pytest.mark.parametrize(
    "text", ["old frames", "NaN", "different totals", "false cards", "wrong sums"]
)
def test_the_lies_are_there(text):
    assert any(text in row["lie"] for row in with_head("lie"))


def test_every_method_has_its_worst_case():
    rows = with_head("who sends what")
    named = [name for row in rows for name in re.findall(r"`([\w-]+)`", row["who sends what"])]
    methods = [name for name in named if name in METHODS]
    assert sorted(methods) == sorted(METHODS)
    for row in rows:
        assert all(row[head] for head in (*LEARNED, "what limits it")), row


def test_missing_tests_are_found():
    assert exists(Path(__file__), "test_missing_tests_are_found")
    assert not exists(Path(__file__), "test_that_is_not_here")
    assert not exists(DOCS / "no.py", None)
