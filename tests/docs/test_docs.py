"""The documentation tells the truth: its Python and its commands run, its links lead on, its tables
are complete.

`tests/pages.py` says how a page is written, and writes what is printed anew (`make pages`).
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from functools import reduce
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import typer

import coterie as co
from coterie import cli
from coterie.engines import ENGINES
from coterie.methods import METHODS
from coterie.networks import MIXING_RULES, TOPOLOGIES
from coterie.numerics.losses import LOSSES
from coterie.numerics.penalties import PENALTIES
from coterie.run.bill import PURPOSES
from tests.pages import (
    DOCS,
    NUMBER,
    PAGES,
    ROOT,
    SECONDS,
    Block,
    blocks,
    changes_the_source,
    commands,
    is_slow,
    pictures,
    prints,
    prose,
    put_in_place,
    refreshed,
    run,
)

TEXTS = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
SEPARATOR = "\x1e"

by_page = pytest.mark.parametrize("page", TEXTS, ids=lambda page: str(page.relative_to(ROOT)))


def check_printed(page: Path, block: Block, printed: str, expected: str) -> None:
    where = f"{page.relative_to(ROOT)}, line {block.line}"
    assert prints(printed, expected, block.exempt), (
        f"{where} says\n\n{expected}\nbut this was printed:\n\n{printed}"
    )


# -- running a page --------------------------------------------------------------------------------


ALWAYS = {"README.md", "quick-start.md"}
"""What a newcomer runs first; of the other pages, each day runs some."""


def some_days(page: Path) -> Any:
    marks = [] if page.name in ALWAYS else [pytest.mark.rotates]
    return pytest.param(page, marks=[*marks, *[pytest.mark.slow] * is_slow(page)])


@pytest.mark.parametrize(
    "page",
    [some_days(p) for p in PAGES if not changes_the_source(p)],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_page_runs(page, tmp_path):
    for outcome in run(page, tmp_path):
        wrong = f"{page.name}: {outcome.command}\n{outcome.printed}"
        assert outcome.exit_code == outcome.block.exit_code, wrong
        if outcome.expected:
            check_printed(page, outcome.block, outcome.printed, outcome.expected)
    for name in pictures(page):
        assert (tmp_path / name).is_file()
        assert f"]({name})" in page.read_text(), f"{page.name} shows no {name}"
        assert (page.parent / name).is_file(), (
            f"{name} is not there: python -m tests.pages {page.relative_to(ROOT)}"
        )


@pytest.mark.rotates
@pytest.mark.parametrize("page", [*filter(changes_the_source, PAGES)], ids=lambda page: page.name)
def test_page_that_adds_files_runs_in_a_copy(page, tmp_path):
    for name in ("src", "papers", "tests", "benchmarks"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    program, expected, to_run = "", [], []
    for block in blocks(page):
        if not block.runs or put_in_place(block, tmp_path):
            continue
        if block.language == "python":
            program += (
                "\n" * (block.line - program.count("\n"))
                + block.text
                + f"print({SEPARATOR!r}, end='')\n"
            )
            expected.append((block, ""))
        elif block.language == "text" and block.follows:
            expected[-1] = block, block.text
        elif block.language in ("console", "bash"):
            to_run += [(block, *pair) for pair in commands(block) if pair[0].startswith("pytest ")]
    (tmp_path / page.stem).with_suffix(".py").write_text(program)
    out = run_python(["-W", "error", f"{page.stem}.py"], tmp_path)
    for (block, text), printed in zip(expected, out.split(SEPARATOR), strict=False):
        check_printed(page, block, printed, text)
    assert to_run, f"{page.name} shows no test of what it adds"
    for block, command, text in to_run:
        quiet = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
        out = run_python(["-m", *shlex.split(command), *quiet], tmp_path)
        check_printed(page, block, out.splitlines()[-1], text)


@pytest.mark.rotates
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_example_runs(example, tmp_path):
    assert len(run_python(["-W", "error", str(example)], tmp_path).splitlines()) >= 3
    assert not list(tmp_path.iterdir()), "an example leaves no files behind"


def run_python(arguments: list[str], folder: Path) -> str:
    """What Python prints in that folder, with the folder's src before the installed one."""
    sources = os.pathsep.join([str(folder / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": sources, "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        timeout=280,
    )
    assert done.returncode == 0, f"{' '.join(arguments)} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


# -- names and links -------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings: lower case, dashes for blanks, no punctuation."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }


@by_page
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), f"{page.name} links to {target}, which is not there"
        assert not anchor or anchor in anchors(path), (
            f"{page.name} links to {target}, but there is no such heading"
        )


def test_every_page_is_linked_from_the_index():
    index = (DOCS / "index.md").read_text()
    for page in DOCS.rglob("*.md"):
        name = str(page.relative_to(DOCS))
        assert name == "index.md" or f"({name})" in index, f"docs/index.md does not link to {name}"


@by_page
def test_public_names_exist(page):
    for dotted in re.findall(r"\bco\.([A-Za-z_][\w.]*\w)", page.read_text()):
        reduce(getattr, dotted.split("."), co)


@by_page
def test_commands_and_flags_exist(page):
    known = typer.main.get_command(cli.app).commands
    lines = [
        command
        for block in blocks(page)
        for command, _ in commands(block)
        if command.startswith("coterie ")
    ]
    for line in lines:
        name, *arguments = shlex.split(line)[1:]
        assert name in known, f"{page.name}: there is no command {name!r}"
        flags = {
            flag
            for parameter in known[name].params
            for flag in (*parameter.opts, *parameter.secondary_opts)
        }
        used = {
            argument.partition("=")[0]
            for argument in arguments
            if re.match(r"-+[a-zA-Z]", argument)
        }
        assert used <= flags | {"--help"}, f"{page.name}: {line}"


# -- tables ----------------------------------------------------------------------------------------

CATALOGUES = {
    "status": [status.value for status in co.Status],
    "loss": list(LOSSES),
    "penalty": list(PENALTIES),
    "method": list(METHODS),
    "engine": list(ENGINES),
    "network": list(TOPOLOGIES),
    "mixing rule": list(MIXING_RULES),
    "purpose": list(PURPOSES),
    "collective": ["Sum", "Sum(to=)", "Sum(of=)", "Mix", "Exchange", "Ask"],
}


def tables(page: Path) -> Iterator[list[dict[str, str]]]:
    """The tables of a page, each as rows of cells by the name of their column."""
    for text in re.findall(r"(?:^\|.*\|\n)+", prose(page), re.MULTILINE):
        header, _, *rows = [
            [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            for line in text.splitlines()
        ]
        yield [dict(zip(header, row, strict=True)) for row in rows]


def named(table: list[dict[str, str]]) -> tuple[str, list[str]]:
    """What a table is about (the head of its first column) and the names in that column."""
    kind = next(iter(table[0]))
    return kind, [re.sub(r"\([^=]*\)", "", row[kind]).strip("`") for row in table]


def of_concepts(kind: str) -> list[list[dict[str, str]]]:
    return [table for table in tables(DOCS / "concepts.md") if named(table)[0] == kind]


@by_page
def test_tables_name_only_what_exists(page):
    for table in tables(page):
        kind, names = named(table)
        unknown = set(names) - set(CATALOGUES.get(kind, names))
        assert not unknown, f"{page.name}: there is no {kind} called {', '.join(unknown)}"


def test_the_page_on_methods_names_what_an_agent_has():
    text = (DOCS / "add-a-method.md").read_text()
    names = set(re.findall(r"`agent\.(\w+)", text))
    named_fields = {field.name for field in fields(co.Agent)}
    assert {"design", "known", "total"} <= names
    assert not [name for name in names if name not in named_fields and not hasattr(co.Agent, name)]


@pytest.mark.parametrize("kind", CATALOGUES)
def test_concepts_names_everything_once(kind):
    assert of_concepts(kind), f"docs/concepts.md has no table whose first column is {kind!r}"
    for table in of_concepts(kind):
        names = named(table)[1]
        missing = [name for name in CATALOGUES[kind] if name not in names]
        assert not missing, (
            f"docs/concepts.md: add a row to the table with the column {kind!r} for {missing}"
        )
        assert len(names) == len(set(names))


def test_statuses_are_told_as_they_are():
    (table,) = of_concepts("status")
    told = [(row["status"].strip("`"), int(row["exit code"]), row["advice"]) for row in table]
    assert told == [(status.value, status.exit_code, status.advice) for status in co.Status]


@pytest.mark.parametrize(("kind", "catalogue"), [("loss", LOSSES), ("penalty", PENALTIES)])
def test_parameters_are_told_as_they_are(kind, catalogue):
    (table,) = of_concepts(kind)
    for row, name in zip(table, named(table)[1], strict=True):
        told = re.findall(r"`(\w+)`", row["parameters"])
        assert told == [field.name for field in fields(catalogue[name])], name
        assert "kind" not in row or row["kind"] == catalogue[name].kind


def test_every_error_has_its_cause_and_its_fix():
    page = DOCS / "errors.md"
    classes = {
        name: one
        for name, one in vars(co.errors).items()
        if isinstance(one, type) and issubclass(one, co.CoterieError)
    }
    (table,) = tables(page)
    assert [re.search(r"`(\w+)`", row["error"])[1] for row in table] == list(classes)
    sections = re.split(r"^## ", page.read_text(), flags=re.MULTILINE)[1:]
    assert [section.partition("\n")[0] for section in sections] == list(classes)
    for section in sections:
        assert "\n**Cause.** " in section
        assert "\n**Fix.** " in section
    for row, one in zip(table, classes.values(), strict=True):
        raised = mock.Mock(side_effect=one.__new__(one))
        assert cli._guarded(raised) == int(row["exit code"]), one


def test_titles_are_those_of_the_index():
    for text, name in re.findall(r"\[([^\]]+)\]\(([^)#]+\.md)\)", prose(DOCS / "index.md")):
        title = (DOCS / name).read_text().partition("\n")[0].removeprefix("# ")
        known = title.lower(), re.sub(r"^\d{4} ", "", title).lower()
        assert text.lower() in known, (
            f"docs/index.md calls {name} {text!r}, and its title is {title!r}"
        )


def test_the_reference_has_every_public_name():
    reference = (DOCS / "reference.md").read_text()
    for name in co.__all__:
        module = getattr(getattr(co, name), "__module__", None) or ""
        known = f"::: {module}.{name}\n" in reference or f"::: {module}\n" in reference
        assert known or not module.startswith("coterie."), (
            f"docs/reference.md has no place for co.{name}"
        )


def test_methods_are_told_as_they_are():
    (table,) = of_concepts("method")
    for row, name in zip(table, named(table)[1], strict=True):
        assert row["split"] == METHODS[name].split, name


# -- these tests can fail --------------------------------------------------------------------------


def test_words_and_numbers_are_compared():
    assert prints("optimal in 12 rounds, 3.4 MB\n", "optimal in 12 rounds,\n  3.4 MB")
    assert prints("a\nb 1e-07\nc\n", "a\n...\nc")
    assert prints("gap 4.371e-07, rounding 2e-16", "gap 4.37e-07, rounding 1e-15")
    assert prints("1,000 rows, 7 %", "999 rows, 8 %", exempt=NUMBER)
    assert prints("7 rounds, 1.5 s", "7 rounds, 2.5 s", exempt=NUMBER + SECONDS)
    assert not prints("8 rounds, 1.5 s", "7 rounds, 2.5 s", exempt=NUMBER + SECONDS)
    assert not prints("after 3.1 s", "after 0.2 s")
    assert not prints("stalled in 12 rounds", "optimal in 12 rounds")
    assert not prints("optimal in 12 rounds, late", "optimal in 12 rounds")
    assert not prints("optimal in 12 rounds", "optimal in 13 rounds")
    assert not prints("gap 4.39e-07", "gap 4.37e-07")


def test_a_stale_page_is_written_anew():
    assert (
        refreshed("12 rounds in 3 s\nmore\n", "146 rounds in 9 s\n...\n", NUMBER + SECONDS)
        == "12 rounds in 9 s\n...\n"
    )
    assert refreshed("other words\n", "146 rounds\n") == "other words\n"
    assert refreshed("other words\n", "146 rounds\n...\n") is None


def test_blocks_are_found_with_their_comments(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "a\n```python\nx\n```\n\n```text\n1\n```\n<!-- exits 3 -->\n```console\n$ coterie y  # "
        "z\no\n```\n"
    )
    python, text, console = blocks(page)
    assert (python.line, python.text, python.follows, text.follows) == (2, "x\n", False, True)
    assert (console.exit_code, list(commands(console))) == (3, [("coterie y", "o\n")])
