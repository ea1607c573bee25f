"""Pages that are run: what their blocks print must be what stands below them.

    python -m tests.pages                    runs every page, and writes what is printed now where
                                             numbers differ
    python -m tests.pages docs/inference.md  only that page

For whoever writes a page:

- ```python blocks of one page run in order, in one namespace and an empty folder. A ```text block
  right behind one is what it prints.
- In ```console and ```bash blocks, lines that start with "$ coterie" run in the same folder; the
  lines below are what is printed. Other commands are not run.
- Words must be the same, and whole numbers too; other numbers to the digits that are printed, one
  in the last place aside. "..." stands for anything. Numbers below 1e-12 are what rounding left,
  and may differ.
- A comment on the line before a block changes that: `<!-- not run: reason -->`; `<!-- exits 3 -->`
  for a command that ends so; `<!-- times differ -->` for measured seconds; `<!-- numbers differ:
  reason -->` for all numbers; `<!-- file: PATH -->` writes the block to that file; `<!-- insert
  into PATH before: TEXT -->` puts it there.
- A picture that a page saves is shown below its block: `figure.savefig("name.svg")`, then
  `![words](name.svg)`.
- `<!-- slow: reason -->` anywhere on a page: it runs in `make test-slow` only.
- A page that adds files to src/ runs in a copy of the repository, and there "$ pytest" lines run
  too.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from unittest import mock

from tests.harness.shell import shell_line

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("*/*.md"))]
NUMBER = r"(?<![\w.])[-−+]?\d[\d,_]*(?:\.\d+)?(?:e[-+]?\d+)?(?:(?!\w)|(?=m?s\b))(?!\.\d)"
SECONDS = r"(?= ?(?:s|ms|µs|min|h|seconds?|minutes?|hours?)\b)"
NOTHING = r"(?!)"
ROUNDING = 1e-12
"""Numbers below this are what rounding left."""


@dataclass(frozen=True)
class Block:
    """A fenced block: where it begins, its language, its text, and the comment on the line
    before.
    """

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
    def exempt(self) -> str:
        """A pattern of the numbers that may differ."""
        differ = {"numbers differ": NUMBER, "times differ": NUMBER + SECONDS}
        return next(
            (pattern for words, pattern in differ.items() if self.note.startswith(words)), NOTHING
        )

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


# -- comparing what is printed ---------------------------------------------------------------------


def plain(text: str) -> str:
    """The text without colours, and with one blank wherever there are blanks or line ends."""
    return " ".join(re.sub(r"\x1b\[[\d;]*m", "", text).split())


def match(printed: str, expected: str) -> re.Match[str] | None:
    """The printed text against the words of the expected one: "..." is anything, every number a
    group.
    """
    pattern = ""
    for part in re.split(rf"({NUMBER}|\.\.\.)", plain(expected)):
        if part == "...":
            pattern = pattern.rstrip(" \\") + ".*?" if pattern.endswith("\\ ") else pattern + ".*?"
        elif re.fullmatch(NUMBER, part):
            pattern += f"({NUMBER})"
        else:
            pattern += re.escape(part)
    return re.fullmatch(pattern.replace(".*?\\ ", ".*? ?"), plain(printed))


def same_number(printed: str, expected: str) -> bool:
    """Whole numbers exactly; others as far as both are printed, one in the last place aside."""
    value, told = (
        float(re.sub("[,_]", "", text.replace("−", "-"))) for text in (printed, expected)
    )
    if max(abs(value), abs(told)) < ROUNDING:
        return True
    digits = re.search(r"\.(\d+)", expected)
    exponent = re.search(r"e([-+]?\d+)", expected)
    if digits is None and exponent is None:
        return value == told
    last = 10.0 ** ((int(exponent[1]) if exponent else 0) - (len(digits[1]) if digits else 0))
    return abs(value - told) <= 1.001 * last


def prints(printed: str, expected: str, exempt: str = NOTHING) -> bool:
    """Whether that is what was expected, but for numbers of that pattern."""
    found = match(printed, expected)
    return found is not None and _numbers(found, expected, exempt) == re.findall(NUMBER, expected)


def refreshed(printed: str, expected: str, exempt: str = NOTHING) -> str | None:
    """The expected text with the numbers that were printed; None where the words differ around a
    "...".
    """
    found = match(printed, expected)
    if found is None:
        return None if "..." in expected else re.sub(r"\x1b\[[\d;]*m", "", printed).rstrip() + "\n"
    numbers = iter(_numbers(found, expected, exempt))
    return re.sub(NUMBER, lambda _: next(numbers), expected)


def _numbers(found: re.Match[str], expected: str, exempt: str) -> list[str]:
    """The numbers of a page as they should stand there: as they do where they may, otherwise as
    they were printed.
    """
    told = list(re.finditer(NUMBER, expected))
    pairs = zip(found.groups(), told, strict=True)
    return [
        old[0] if re.match(exempt, expected[old.start() :]) or same_number(new, old[0]) else new
        for new, old in pairs
    ]


# -- running a page --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What a command or the Python before a block printed, and what the page says."""

    block: Block
    command: str
    printed: str
    expected: str
    exit_code: int = 0

    @property
    def as_told(self) -> bool:
        right = self.exit_code == self.block.exit_code
        return right and (
            not self.expected or prints(self.printed, self.expected, self.block.exempt)
        )


def changes_the_source(page: Path) -> bool:
    return any(block.note.startswith("file: src/") for block in blocks(page))


def is_slow(page: Path) -> bool:
    return "<!-- slow: " in page.read_text()


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
        lines = [
            line for line in text.splitlines(keepends=True) if line.lstrip().startswith(match[2])
        ]
        assert len(lines) == 1, f"{match[1]} has {len(lines)} lines that begin with {match[2]}"
        path.write_text(text.replace(lines[0], block.text + lines[0]))
        return True
    return False


def run(page: Path, folder: Path) -> Iterator[Outcome]:
    """Run the blocks of a page in that folder, one after the other."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    printed = ""
    with contextlib.chdir(folder), mock.patch.dict(os.environ, COLUMNS="200"), pictures_closed():
        for block in blocks(page):
            if not block.runs or put_in_place(block, folder):
                continue
            if block.language == "python":
                with contextlib.redirect_stdout(io.StringIO()) as out:
                    # Empty lines in front make the line numbers of a traceback those of the page.
                    exec(compile("\n" * block.line + block.text, str(page), "exec"), namespace)
                printed = out.getvalue()
            elif block.language == "text" and block.follows:
                yield Outcome(block, "", printed, block.text)
            elif block.language in ("console", "bash"):
                for command, expected in commands(block):
                    if command.startswith("coterie"):
                        ended = shell_line(command)
                        yield Outcome(block, command, ended.output, expected, ended.exit_code)


@contextlib.contextmanager
def pictures_closed() -> Iterator[None]:
    """What a page draws with pyplot is not left open."""
    try:
        yield
    finally:
        if "matplotlib.pyplot" in sys.modules:
            sys.modules["matplotlib.pyplot"].close("all")


def pictures(page: Path) -> list[str]:
    """The names of the pictures that a page saves."""
    return re.findall(
        r'\.savefig\("([^"]+)"\)', "".join(block.text for block in blocks(page) if block.runs)
    )


def refresh(page: Path) -> list[str]:
    """Run a page and write what is printed now; what was changed, and what a person has to look
    at.
    """
    said = []
    with tempfile.TemporaryDirectory() as folder:
        for outcome in run(page, Path(folder)):
            where = (
                f"{page.relative_to(ROOT)}, line {outcome.block.line} {outcome.command}".rstrip()
            )
            if outcome.as_told:
                continue
            new = refreshed(outcome.printed, outcome.expected, outcome.block.exempt)
            text = page.read_text()
            if (
                new is None
                or outcome.exit_code != outcome.block.exit_code
                or text.count(outcome.expected) != 1
            ):
                said.append(f"{where}: look at it, this was printed:\n{outcome.printed}")
            else:
                page.write_text(text.replace(outcome.expected, new))
                said.append(f"{where}: written anew")
        for name in pictures(page):
            shutil.copy(Path(folder, name), page.parent)
    return said


def main() -> None:
    chosen = [Path(name).resolve() for name in sys.argv[1:]] or PAGES
    for page in chosen:
        if not changes_the_source(page):
            print(*refresh(page), sep="\n", end="\n", flush=True)


if __name__ == "__main__":
    main()
