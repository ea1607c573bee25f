"""The documentation as a website: it builds without a warning, has every page, asks nothing of
another place, and its search works from a folder. It builds from the source distribution, too.
"""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import coterie as co
from tests.harness.browser import BROWSER, FLAGS

pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install '.[docs]'")
pytest.importorskip("mkdocstrings", reason="mkdocstrings is not installed: pip install '.[docs]'")

ROOT = Path(__file__).parents[2]


def environment(root: Path) -> dict[str, str]:
    """Python finds the package of that folder first."""
    places = os.pathsep.join([str(root / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": places, "NO_MKDOCS_2_WARNING": "1"}


def build(root: Path, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=root,
        env=environment(root),
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build(ROOT, folder)
    return folder


@pytest.mark.rotates
def test_the_site_has_every_page_and_stands_alone(site):
    pages = {str(page.relative_to(site)) for page in site.rglob("*.html")}
    written = {
        str(page.relative_to(ROOT / "docs").with_suffix(".html"))
        for page in (ROOT / "docs").rglob("*.md")
    }
    assert written | {"contributing.html", "changelog.html", "examples.html"} <= pages
    for page in pages:
        content = (site / page).read_text()
        loaded = re.findall(r'<(?:script|img|iframe)\b[^>]*\bsrc="([^"]*)"', content)
        loaded += re.findall(r'<link\b[^>]*\bhref="([^"]*)"', content)
        assert not [address for address in loaded if re.match(r"(https?:)?//", address)], page
    reference = (site / "reference.html").read_text()
    for name in (
        *(name for name in co.__all__ if not inspect.ismodule(getattr(co, name))),
        "write_report",
        "tensorboard",
    ):
        assert re.search(rf'<h\d id="coterie\.[\w.]*\b{name}"', reference), name
    home = (site / "index.html").read_text()
    assert home.count("md-nav__item--section") >= 5, "the pages are in sections"


@pytest.mark.rotates
@pytest.mark.skipif(
    BROWSER is None, reason="there is no Chromium; scripts/debian.sh installs one as root"
)
def test_search_works_from_a_folder(site):
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install '.[dev]'"
    )
    said = []
    with (
        playwright.sync_playwright() as engine,
        engine.chromium.launch(executable_path=BROWSER, args=FLAGS) as browser,
    ):
        page = browser.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on(
            "request",
            lambda one: None if one.url.startswith(("file:", "data:")) else said.append(one.url),
        )
        page.goto((site / "tutorials" / "phones.html").as_uri())
        page.fill("input.md-search__input", "InvalidNetwork")
        page.locator(".md-search-result__link[href*='errors.html']").first.click()
        page.wait_for_url("**/errors.html*")
        assert page.locator("h1").inner_text().startswith("Errors")
    assert not said


@pytest.mark.slow
def test_the_source_distribution_has_what_its_pages_and_tests_need(tmp_path):
    pytest.importorskip("hatchling", reason="hatchling is not installed: pip install '.[dev]'")
    subprocess.run(
        [
            sys.executable,
            "-m",
            "hatchling",
            "build",
            "--target",
            "sdist",
            "--directory",
            str(tmp_path),
        ],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    unpacked = tmp_path / archive.name.removesuffix(".tar.gz")
    build(unpacked, tmp_path / "site")
    assert (tmp_path / "site" / "errors.html").is_file()
    # Every test can be imported, and those of the pages pass.
    for chosen in (
        ["--collect-only"],
        ["tests/docs/test_docs.py", "-k", "not runs"],
        ["tests/repository/test_shipped.py"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen],
            cwd=unpacked,
            env=environment(unpacked),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
