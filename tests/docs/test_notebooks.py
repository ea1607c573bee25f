"""The tutorials as notebooks: the code of the pages that tests run, with what they print and
draw.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
from pathlib import Path

import pytest

from tests.harness.shell import shell_line
from tests.pages import ROOT, blocks, commands, pictures, pictures_closed

sys.path.append(str(ROOT / "scripts"))

from notebooks import TUTORIALS, notebook

PAGES = sorted(TUTORIALS.glob("*.md"))
LAST_IS_A_PICTURE = {
    "samples": "digits-at-four-hospitals",
    "features": "practice-and-laboratory",
    "users": "writers",
    "organisations": "three-hospitals",
}


def cells(page: Path, kind: str) -> list[str]:
    found = json.loads(notebook(page))["cells"]
    return ["".join(cell["source"]) for cell in found if cell["cell_type"] == kind]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_notebook_has_all_that_its_page_runs(page):
    code = iter(cells(page, "code"))
    for block in blocks(page):
        if block.note.startswith("file: "):
            assert next(
                code
            ) == f"%%writefile {block.note.removeprefix('file: ')}\n{block.text}".rstrip("\n")
        elif block.runs and block.language == "python":
            assert next(code) == block.text.rstrip("\n")
        elif block.runs and block.language == "console":
            typed = re.sub(r"\\\n\s*", "", next(code)).splitlines()
            assert [line.partition("  #")[0] for line in typed] == [
                f"!{command}" for command, _ in commands(block)
            ]
    assert next(code, None) is None
    whole = json.loads(notebook(page))
    assert len({cell["id"] for cell in whole["cells"]}) == len(whole["cells"])
    assert not any("```text" in text for text in cells(page, "markdown"))


@pytest.mark.parametrize("name", LAST_IS_A_PICTURE.values())
def test_every_split_has_a_notebook_that_ends_in_a_picture(name):
    page = TUTORIALS / f"{name}.md"
    last = json.loads(notebook(page))["cells"][-1]
    assert last["outputs"][-1]["output_type"] == "display_data"
    (drawn,) = pictures(page)
    assert "<svg" in "".join(last["outputs"][-1]["data"]["image/svg+xml"])
    assert f'savefig("{drawn}")' in "".join(last["source"])


@pytest.mark.slow
def test_a_notebook_runs(tmp_path, monkeypatch):
    """As Jupyter would run it: cells in order, "!" for the shell."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    with pictures_closed(), contextlib.redirect_stdout(io.StringIO()):
        for source in cells(TUTORIALS / "practice-and-laboratory.md", "code"):
            if source.startswith("!"):
                assert [shell_line(line[1:]).exit_code for line in source.splitlines()] == [
                    0
                ] * len(source.splitlines())
            else:
                exec(source, namespace)
    assert (tmp_path / "practice-and-laboratory.svg").is_file()
