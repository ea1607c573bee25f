"""The documentation as a website: it builds without a warning, has every page, and asks nothing of another place."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import coterie as co

pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install '.[docs]'")
pytest.importorskip("mkdocstrings", reason="mkdocstrings is not installed: pip install '.[docs]'")

ROOT = Path(__file__).parents[2]


def test_the_site_builds_strictly_and_stands_alone(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {str(page.relative_to(tmp_path)) for page in tmp_path.rglob("*.html")}
    written = {str(page.relative_to(ROOT / "docs").with_suffix(".html")) for page in (ROOT / "docs").rglob("*.md")}
    assert written | {"contributing.html", "changelog.html", "examples.html"} <= pages
    for page in pages:
        content = (tmp_path / page).read_text()
        loaded = re.findall(r'<(?:script|img|iframe)\b[^>]*\bsrc="([^"]*)"', content)
        loaded += re.findall(r'<link\b[^>]*\bhref="([^"]*)"', content)
        assert not [address for address in loaded if re.match(r"(https?:)?//", address)], page
    reference = (tmp_path / "reference.html").read_text()
    for name in (
        *(name for name in co.__all__ if not inspect.ismodule(getattr(co, name))),
        "write_report",
        "tensorboard",
    ):
        assert re.search(rf'<h\d id="coterie\.[\w.]*\b{name}"', reference), name
    home = (tmp_path / "index.html").read_text()
    assert home.count("md-nav__item--section") >= 5, "the pages are in sections"
