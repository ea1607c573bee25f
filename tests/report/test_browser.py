"""The reports in a real browser: they render without a word on the console, offline, and their
controls work.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import coterie as co
from coterie.report import write_comparison, write_report
from tests.harness.browser import BROWSER, FLAGS
from tests.harness.parties import data, together, write_data, write_study
from tests.harness.shell import shell

playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install '.[dev]'"
)

pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="there is no Chromium; scripts/debian.sh installs one as root"
)

rng = np.random.default_rng(0)
X = rng.normal(size=(80, 12))
y = X @ rng.normal(size=12) + 0.1 * rng.normal(size=80)


@pytest.fixture(scope="module")
def reports(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    problem = co.Problem("squared", "l2", 0.1, intercept=False)
    runs = {
        name: co.solve(problem, (X, y), agents=4, method=name, tol=1e-4)
        for name in ("proximal-2", "consensus")
    }
    ring = co.solve(
        problem, (X, y), agents=5, split="features", network="ring", tol=1e-4, max_rounds=2000
    )
    path = co.path(
        co.Problem("squared", "l1", 1.0, intercept=False), (X, y), cv=3, agents=4, count=8
    )
    _, logistic, parties, check = co.demo.demo_problem()
    demo = co.solve(logistic, parties, tol=1e-9)
    classes = np.digitize(y, [-2, 2])
    softmax = co.Problem("multinomial", "l2", 0.1, intercept=True)
    classifier = co.solve(
        softmax, (X[:60], classes[:60]), agents=3, tol=1e-3, prepare="standardise"
    )
    scores = co.evaluate(classifier, (X[60:], classes[60:]), agents=3)
    return {
        "path": co.report.write_path(path, folder / "path.html"),
        "demo": write_report(demo, folder / "demo.html", notes=[check(demo)]),
        "evaluation": write_report(classifier, folder / "evaluation.html", evaluation=scores),
        "peers": between_organisations(folder / "study"),
        "run": write_report(
            runs["proximal-2"], folder / "run.html", notes=["Four shops & a <bank>."]
        ),
        "ring": write_report(ring, folder / "ring.html"),
        "comparison": write_comparison(runs, folder / "comparison.html"),
    }


def between_organisations(folder: Path) -> Path:
    """A study of three parties, in threads, and what `coterie report` makes of one party's
    answer.
    """
    write_study(folder, split="features", network="path", method="lbfgs", tol=1e-3)
    tables = data("features")
    write_data(folder, tables)
    assert [result.status for result in together(folder, tables)] == ["optimal"] * 3
    made = shell("report", str(folder / "ada" / "result"), "--json")
    assert made.exit_code == 0, made.output
    return folder / "ada" / "result" / "report.html"


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    with playwright.sync_playwright() as engine:
        running = engine.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield running
        running.close()


@pytest.fixture
def opened(browser, reports):
    """Opens a report; when the test is over, nothing may have been said on the console or asked of
    a network.
    """
    contexts, complaints = [], []

    def open_page(name: str, width: int = 1200, **settings):
        context = browser.new_context(viewport={"width": width, "height": 900}, **settings)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request",
            lambda request: (
                None
                if request.url.startswith(("file:", "data:"))
                else complaints.append(request.url)
            ),
        )
        page.goto(reports[name].as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not complaints


def ground(page) -> tuple[int, ...]:
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return tuple(int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(","))


@pytest.mark.parametrize("name", ["demo", "ring", "comparison", "path", "evaluation", "peers"])
def test_a_report_fits_its_window_and_draws_its_figures(opened, name):
    page = opened(name)
    for width, scheme in itertools.product((1200, 390), ("light", "dark")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert not page.evaluate(CUT_OFF), "this is wider than its place, and nothing scrolls"
        assert (sum(ground(page)) < 150) == (scheme == "dark")
        boxes = page.evaluate(FIGURES)
        assert len(boxes) >= (2 if name == "path" else 3)
        assert all(across > 200 and high > 60 for across, high in boxes)
        assert page.locator("h1").is_visible()


FIGURES = """[...document.querySelectorAll('svg.figure')].map(e => e.getBoundingClientRect())
    .filter(box => box.width).map(box => [box.width, box.height])"""
CUT_OFF = """[...document.querySelectorAll('main *, header *')]
    .filter(e => !(e instanceof SVGElement) && e.clientWidth && e.scrollWidth > e.clientWidth + 1)
    .filter(e => getComputedStyle(e).overflowX != 'auto' && getComputedStyle(e).display != 'inline')
    .map(e => e.className + ': ' + e.textContent.slice(0, 60))"""


def test_a_table_that_goes_on_has_a_shadow_there(opened):
    page = opened("comparison", 390)
    table = page.locator("#table .scroll")
    assert table.evaluate("e => e.scrollWidth > e.clientWidth")

    def shadow() -> tuple[bool, bool]:
        """Whether the edges left and right differ from the ground, between the lines of text."""
        picture = Image.open(io.BytesIO(table.screenshot())).convert("RGB")
        here = ground(page)
        edges = (
            ((0, row) for row in range(2, picture.height - 2)),
            ((-1, row) for row in range(2, picture.height - 2)),
        )
        return tuple(
            np.mean(
                [
                    np.abs(np.subtract(picture.getpixel((x % picture.width, y)), here)).sum() > 20
                    for x, y in edge
                ]
            )
            > 0.9
            for edge in edges
        )

    assert shadow() == (False, True)
    page.emulate_media(color_scheme="dark")
    assert shadow() == (False, True)
    table.evaluate("e => e.scrollTo(e.scrollWidth, 0)")
    assert not shadow()[1], "there is nothing more to the right"
    first = table.locator("tbody th").first.bounding_box()
    assert first["x"] == table.bounding_box()["x"], "the names of the rows stay"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_follows_the_reader_and_the_control(opened, scheme):
    page = opened("run", color_scheme=scheme)

    def is_dark() -> bool:
        return sum(ground(page)) < 150

    assert is_dark() == (scheme == "dark")
    ink = page.evaluate("getComputedStyle(document.querySelector('svg.figure text')).fill")
    assert ink == page.evaluate("getComputedStyle(document.body).color"), (
        "figures take the page's colour of text"
    )
    for choice in ("dark", "light"):
        page.locator("label", has=page.locator(f"#theme-{choice}")).click()
        assert is_dark() == (choice == "dark")
    page.locator("label", has=page.locator("#theme-auto")).click()
    assert is_dark() == (scheme == "dark")


def test_curves_give_way_to_a_table_and_axes_change(opened):
    page = opened("run")
    curves, records = page.locator(".curves"), page.locator(".records")

    def visible() -> tuple[bool, bool, bool]:
        return (
            page.locator(".curves.linear").is_visible(),
            page.locator(".curves.log").is_visible(),
            records.is_visible(),
        )

    assert curves.count() == 2
    assert sum(visible()) == 1
    page.locator("label", has=page.locator("#scale-log")).click()
    assert visible() == (False, True, False)
    page.locator("label", has=page.locator("#scale-linear")).click()
    assert visible() == (True, False, False)
    page.locator("label", has=page.locator("#view-table")).click()
    assert visible() == (False, False, True)
    assert not page.locator("fieldset.scale").is_visible()
    page.keyboard.press("ArrowLeft")
    assert visible() == (True, False, False), "the keyboard works like the mouse"


def test_what_is_folded_unfolds_and_links_lead_on(opened):
    page = opened("run")
    table = page.locator("#model details table")
    assert not table.is_visible()
    page.locator("#model details summary").click()
    assert table.is_visible()
    page.locator("a[href='#meaning']").click()
    assert page.evaluate("location.hash") == "#meaning"


def test_a_figure_can_be_saved(opened, tmp_path):
    page = opened("comparison")
    with page.expect_download() as download:
        page.locator("a[download='compare-rounds.svg']").click()
    download.value.save_as(tmp_path / "saved.svg")
    drawing = (tmp_path / "saved.svg").read_text()
    assert "<svg" in drawing
    assert "proximal-2" in drawing, "a saved comparison has its legend"


def test_names_are_text(opened):
    assert "Four shops & a <bank>." in opened("run").locator("header").inner_text()
