"""The documentation tells the truth: its Python and its commands run, its links lead on, its tables are complete.

For whoever writes a page:

- ```python blocks of one page run in order, in one namespace and an empty folder. A ```text block right behind one is
  what it prints.
- In ```console and ```bash blocks, lines that start with "$ coterie" run in the same folder; the lines below are what
  is printed. Other commands are not run.
- Printed numbers may differ, because machines round differently; words may not; "..." stands for anything.
- A comment on the line before a block changes that: `<!-- not run: reason -->`; `<!-- exits 3 -->` for a command that
  ends so; `<!-- file: PATH -->` writes the block to that file; `<!-- insert into PATH before: TEXT -->` puts it there.
- A page that adds files to src/ runs in a copy of the repository, and there "$ pytest" lines run too.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache, reduce
from pathlib import Path

import pytest
import typer

import coterie as co
from coterie import cli
from coterie.bill import PURPOSES
from coterie.engines import ENGINES
from coterie.losses import LOSSES
from coterie.methods import METHODS
from coterie.networks import MIXING_RULES, TOPOLOGIES
from coterie.penalties import PENALTIES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("*/*.md"))]
TEXTS = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
SEPARATOR = "\x1e"

by_page = pytest.mark.parametrize("page", TEXTS, ids=lambda page: str(page.relative_to(ROOT)))


# -- reading a page ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """A fenced block: where it begins, its language, its text, and the comment on the line before."""

    line: int
    language: str
    text: str
    note: str
    follows: bool
    """Whether only blank lines are between this block and the one before."""

    @property
    def runs(self) -> bool:
        return not self.note.startswith("not run")

    @property
    def exit_code(self) -> int:
        return int(self.note.removeprefix("exits")) if self.note.startswith("exits") else 0


@cache
def blocks(page: Path) -> list[Block]:
    found, fence, before = [], None, ""
    for number, line in enumerate(page.read_text().splitlines(), start=1):
        if fence is None and line.startswith("```"):
            note = re.fullmatch(r"<!-- (.*) -->", before)
            fence = number, line[3:].strip(), note[1] if note else "", before == "```"
            body: list[str] = []
        elif fence is not None and line == "```":
            start, language, note, follows = fence
            found.append(Block(start, language, "\n".join(body) + "\n", note, follows))
            fence, before = None, line
        elif fence is not None:
            body.append(line)
        elif line.strip():
            before = line
    assert fence is None, f"{page.name}: the block at line {fence[0]} has no end"
    return found


def prose(page: Path) -> str:
    """The page without its blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def commands(block: Block) -> Iterator[tuple[str, str]]:
    """The commands of a console block, each with what is printed below it."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, printed = re.sub(r"\\\n\s*", "", part).partition("\n")
        yield command.partition("  #")[0].strip(), printed


def prints(printed: str, expected: str) -> bool:
    """Whether the words are the expected ones; every number is as good as another, and "..." is anything."""

    def words(text: str) -> str:
        text = re.sub(r"\x1b\[[\d;]*m", "", text)
        text = re.sub(r"[-−+]?\d[\d,_]*(\.\d*)?(e[-+]?\d+)?( [kMG]?B\b)?", "#", text)
        return " ".join(text.split())

    pattern = ".*".join(re.escape(part.strip()) for part in words(expected).split("..."))
    return re.fullmatch(pattern, words(printed)) is not None


def check_printed(page: Path, block: Block, printed: str, expected: str) -> None:
    where = f"{page.relative_to(ROOT)}, line {block.line}"
    assert prints(printed, expected), f"{where} says\n\n{expected}\nbut this was printed:\n\n{printed}"


# -- running a page ----------------------------------------------------------------------------------------------------


def changes_the_source(page: Path) -> bool:
    return any(block.note.startswith("file: src/") for block in blocks(page))


def put_in_place(block: Block, folder: Path) -> bool:
    """Write a block that is a file, or part of one, and say whether it was."""
    if block.note.startswith("file: "):
        path = folder / block.note.removeprefix("file: ")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text)
        return True
    if match := re.fullmatch(r"insert into (\S+) before: (.*)", block.note):
        path = folder / match[1]
        text = path.read_text()
        lines = [line for line in text.splitlines(keepends=True) if line.lstrip().startswith(match[2])]
        assert len(lines) == 1, f"{match[1]} has {len(lines)} lines that begin with {match[2]}"
        path.write_text(text.replace(lines[0], block.text + lines[0]))
        return True
    return False


@pytest.mark.parametrize(
    "page", [p for p in PAGES if not changes_the_source(p)], ids=lambda page: str(page.relative_to(ROOT))
)
def test_page_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    namespace: dict[str, object] = {"__name__": "__main__"}
    printed = ""
    for block in blocks(page):
        if not block.runs or put_in_place(block, tmp_path):
            continue
        if block.language == "python":
            # Empty lines in front make the line numbers of a traceback those of the page.
            exec(compile("\n" * block.line + block.text, str(page), "exec"), namespace)
            printed = capsys.readouterr().out
        elif block.language == "text" and block.follows:
            check_printed(page, block, printed, block.text)
        elif block.language in ("console", "bash"):
            for command, expected in commands(block):
                name, *arguments = shlex.split(command)
                if name != "coterie":
                    continue
                monkeypatch.setattr(sys, "argv", [name, *arguments])
                with pytest.raises(SystemExit) as ended:
                    cli.main()
                out, err = capsys.readouterr()
                assert (ended.value.code or 0) == block.exit_code, f"{page.name}: {command}\n{out}{err}"
                if expected:
                    check_printed(page, block, out + err, expected)


@pytest.mark.parametrize("page", [p for p in PAGES if changes_the_source(p)], ids=lambda page: page.name)
def test_page_that_adds_files_runs_in_a_copy(page, tmp_path):
    for name in ("src", "papers", "tests", "benchmarks"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    program, expected, to_run = "", [], []
    for block in blocks(page):
        if not block.runs or put_in_place(block, tmp_path):
            continue
        if block.language == "python":
            program += "\n" * (block.line - program.count("\n")) + block.text + f"print({SEPARATOR!r}, end='')\n"
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


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_example_runs(example, tmp_path):
    assert len(run_python(["-W", "error", str(example)], tmp_path).splitlines()) >= 3
    assert not list(tmp_path.iterdir()), "an example leaves no files behind"


def run_python(arguments: list[str], folder: Path) -> str:
    """What Python prints in that folder, with the folder's src before the installed one."""
    sources = os.pathsep.join([str(folder / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": sources, "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, encoding="utf-8", timeout=120
    )
    assert done.returncode == 0, f"{' '.join(arguments)} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


# -- names and links ---------------------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings: lower case, dashes for blanks, no punctuation."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@by_page
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), f"{page.name} links to {target}, which is not there"
        assert not anchor or anchor in anchors(path), f"{page.name} links to {target}, but there is no such heading"


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
    lines = [command for block in blocks(page) for command, _ in commands(block) if command.startswith("coterie ")]
    for line in lines:
        name, *arguments = shlex.split(line)[1:]
        assert name in known, f"{page.name}: there is no command {name!r}"
        flags = {flag for parameter in known[name].params for flag in (*parameter.opts, *parameter.secondary_opts)}
        used = {argument.partition("=")[0] for argument in arguments if re.match(r"-+[a-zA-Z]", argument)}
        assert used <= flags | {"--help"}, f"{page.name}: {line}"


# -- tables ------------------------------------------------------------------------------------------------------------

CATALOGUES = {
    "status": [status.value for status in co.Status],
    "loss": list(LOSSES),
    "penalty": list(PENALTIES),
    "method": list(METHODS),
    "engine": list(ENGINES),
    "network": list(TOPOLOGIES),
    "mixing rule": list(MIXING_RULES),
    "purpose": list(PURPOSES),
    "word": ["Sum", "Mix", "Exchange", "Ask"],
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
    return kind, [re.sub(r"\(.*\)", "", row[kind]).strip("`") for row in table]


def of_concepts(kind: str) -> list[list[dict[str, str]]]:
    return [table for table in tables(DOCS / "concepts.md") if named(table)[0] == kind]


@by_page
def test_tables_name_only_what_exists(page):
    for table in tables(page):
        kind, names = named(table)
        unknown = set(names) - set(CATALOGUES.get(kind, names))
        assert not unknown, f"{page.name}: there is no {kind} called {', '.join(unknown)}"


@pytest.mark.parametrize("kind", CATALOGUES)
def test_concepts_names_everything_once(kind):
    assert of_concepts(kind), f"docs/concepts.md has no table whose first column is {kind!r}"
    for table in of_concepts(kind):
        names = named(table)[1]
        missing = [name for name in CATALOGUES[kind] if name not in names]
        assert not missing, f"docs/concepts.md: add a row to the table with the column {kind!r} for {missing}"
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


def test_methods_are_told_as_they_are():
    (table,) = of_concepts("method")
    for row, name in zip(table, named(table)[1], strict=True):
        assert row["split"] == METHODS[name].split, name


# -- these tests can fail ----------------------------------------------------------------------------------------------


def test_words_are_compared_and_numbers_are_not():
    assert prints("optimal in 12 rounds, 3.4 MB\n", "optimal in 9 rounds,\n  727 kB")
    assert prints("a\nb 1e-07\nc\n", "a\n...\nc")
    assert not prints("stalled in 12 rounds", "optimal in 12 rounds")
    assert not prints("optimal in 12 rounds, late", "optimal in 12 rounds")


def test_blocks_are_found_with_their_comments(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("a\n```python\nx\n```\n\n```text\n1\n```\n<!-- exits 3 -->\n```console\n$ coterie y  # z\no\n```\n")
    python, text, console = blocks(page)
    assert (python.line, python.text, python.follows, text.follows) == (2, "x\n", False, True)
    assert (console.exit_code, list(commands(console))) == (3, [("coterie y", "o\n")])
