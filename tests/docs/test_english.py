"""Plain English: what users read, in the program, on the pages and in `--help`, has no phrase that
we unlearned.

A colleague who reads English as a second language should understand every sentence at once.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import coterie as co
from coterie import cli

ROOT = Path(__file__).parents[2]
SOURCES = [
    *(ROOT / "src").rglob("*.py"),
    *(ROOT / "src").rglob("*.html"),
    *(ROOT / "examples").glob("*.py"),
]
GENERATED = {"benchmarks.md", "gallery.md"}
PAGES = [
    *ROOT.glob("*.md"),
    *(page for page in (ROOT / "docs").rglob("*.md") if page.name not in GENERATED),
]
INSTEAD = {
    r"(rows|columns|users|data|parties) ((that )?(is|are) )?(already )?apart": (
        "split by samples, held by several ..."
    ),
    r"what is apart": "how the data is partitioned",
    r"(the|one's) own\b": "its, your",
    r"(rounds|seconds|bits sent|sweeps) at most\b": "maximum number of ...",
    r"of everything random": "random seed",
    r"into how many": "number of ...",
    r"\buntrue\b": "verification_failed",
    r"of no kind|none of ours|no word of ours|(header|message) that is none": (
        "unknown type, unexpected payload"
    ),
    r"\bsaid \w+ and \w+ not\b": "A sent X, but B did not",
    r"nobody falls silent": "takes no deadline",
    r"chosen for its": "chosen because ...",
    r"methods? of (first|second) order": "first-order method",
    r"getting acquainted": "setup",
    r"do it again": "reproduce this run",
    r"how-manieth": "how many times",
    r"\bdear(er|est)\b": "more expensive",
    r"\breckon(s|ed)? with": "assumes",
    r"\b(anew|afresh)\b": "again",
    r"\b(seconds|ms) a hop\b|\bbits a second\b": "per hop, per second",
    r"(?<!coterie\.)\bcarriers?\b": "transport",
    r"(?<!small )(?<!from a )(?<!words\.)\bletters?\b(?!-spacing|, digits)": "message",
}
"""What is not said any more, and what is said instead."""
DIALECT = re.compile("|".join(f"(?:{phrase})" for phrase in INSTEAD), re.IGNORECASE)
UNLEARNED = (
    "Rounds at most.",
    "Of everything random.",
    "Into how many to split one file; 8 if not given.",
    "users: what is apart; by users, a model for each",
    "Fit a model to data that is apart.",
    "Take part in a study with the own data.",
    "4 untrue",
    "a frame with a header that is none",
    "a message of no kind",
    "is none of ours",
    "bea said Sum and cyd not",
    "where nobody falls silent: leave the deadline out",
    "chosen for its one letter",
    "against 4.8 s of a method of first order",
    "Getting acquainted: amounts and scales",
    "Do it again",
    "for the how-manieth time",
    "more than the dearest so far",
)
"""The sentences of old with which the list began."""
NOT_NOUNS = {
    "the",
    "a",
    "an",
    "of",
    "how",
    "where",
    "which",
    "what",
    "into",
    "with",
    "whether",
    "at",
}
"""Words with which the help of an option does not begin: it begins with the thing itself, "Random
seed.".
"""


def found(text: str) -> list[str]:
    """Every phrase of the list, with what surrounds it; line breaks and markup do not hide one."""
    flat = " ".join(text.replace("**", "").split())
    return [
        f"... {flat[max(0, hit.start() - 40) : hit.end() + 30]} ..."
        for hit in DIALECT.finditer(flat)
    ]


def written(source: Path) -> str:
    """The strings and docstrings of a program, f-strings without their expressions; other files as
    they are.
    """
    content = source.read_text(encoding="utf-8")
    if source.suffix != ".py":
        return content
    texts = [
        node
        for node in ast.walk(ast.parse(content))
        if isinstance(node, ast.Constant | ast.JoinedStr)
    ]
    parts = {id(part) for text in texts if isinstance(text, ast.JoinedStr) for part in text.values}
    return "\n".join(_text(node) for node in texts if id(node) not in parts)


def _text(node: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(
            _text(part) if isinstance(part, ast.Constant) else "X" for part in node.values
        )
    return node.value if isinstance(node.value, str) else ""


def test_the_list_knows_the_sentences_of_old():
    assert [sentence for sentence in UNLEARNED if not found(sentence)] == []


def test_what_the_program_and_the_pages_say():
    texts = {source: written(source) for source in SOURCES}
    texts |= {page: page.read_text(encoding="utf-8") for page in PAGES}
    phrases = {str(path.relative_to(ROOT)): found(text) for path, text in texts.items()}
    assert {path: phrase for path, phrase in phrases.items() if phrase} == {}


@pytest.mark.parametrize("name", sorted(typer.main.get_command(cli.app).commands))
def test_the_help_of_an_option_is_a_noun(name):
    command = typer.main.get_command(cli.app).commands[name]
    for parameter in command.params:
        words = getattr(parameter, "help", None) or ""
        assert words, f"{name} {parameter.name} has no help"
        assert found(words) == []
        assert words.split()[0].lower().strip(":") not in NOT_NOUNS, (
            f"coterie {name} {parameter.name}: {words}"
        )


def test_every_status_has_advice_in_plain_english():
    for status in co.Status:
        assert found(status.advice) == []


def test_no_word_is_misspelt():
    files = [*PAGES, *SOURCES, *(ROOT / "papers").rglob("*.py")]
    names = ["--ignore-words-list", "categor,coo"]
    found = subprocess.run(
        [sys.executable, "-m", "codespell_lib", *names, *files], capture_output=True, text=True
    )
    assert found.returncode == 0, found.stdout + found.stderr
