"""Every study runs in its quick size and stores what it found; its claims hold, but for those known
not to.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import papers
from coterie.api.solve import solve
from coterie.data import read, split
from coterie.errors import CorruptFile, MissingData, UnknownName
from coterie.networks import complete, lattice, star
from coterie.problems.problem import Problem
from coterie.report.figures import INK
from papers import STUDIES, Claim, Curve, Numbers, Study, chosen, datasets, p001, p001_fig1
from papers.__main__ import app
from papers.p000 import LeastSquares, label_owner
from papers.p000_fig2 import operations
from papers.reproduce import reproduce, summary, write_gallery_page
from papers.study import CAUSES

QUICK_SECONDS, LONG_SECONDS = 60, 180
LONG = (
    "001 fig1",
    "001 fig4",
    "001 fig9",
    "001 fig10",
    "001 tuning",
    "002 fig3",
    "004 fig2",
    "004 fig3",
)
"""Also long in their quick sizes: they show on other data, or other users, what other figures of
the paper do.
"""


NAMES = re.compile(r"[A-Za-zκμλρp] = [\d.]+|DFW-\d|J > 1|epoch \d+|proximal-\d|Section [\d.]+")
"""Numbers in names of methods, settings and places, which decide nothing."""


def remembering(study):
    """That study, with the numbers of its last run in `ran`."""

    class Remembering(study):
        def run(self, settings):
            self.ran = super().run(settings)
            return self.ran

    return Remembering


def mutants(numbers):
    """The same curves with one of them, or one number beside them, changed for the worse or the
    better, or swapped.
    """

    def with_curve(place, curve):
        return Numbers([*numbers[:place], curve, *numbers[place + 1 :]], numbers.remarks)

    for i, curve in enumerate(numbers):
        for j in range(i + 1, len(numbers)):
            if numbers[j].panel == curve.panel and len(numbers[j].y) == len(curve.y):
                swapped = Numbers(numbers, numbers.remarks)[:]
                swapped = [*swapped[:i], replace(curve, y=numbers[j].y), *swapped[i + 1 :]]
                swapped[j] = replace(numbers[j], y=curve.y)
                yield Numbers(swapped, numbers.remarks)
        for y in (
            100 * curve.y,
            0.01 * curve.y,
            curve.y[::-1],
            np.full_like(curve.y, curve.y[0]),
            0 * curve.y,
        ):
            yield with_curve(i, replace(curve, y=y))
        for x in (100 * curve.x, 0.01 * curve.x):
            yield with_curve(i, replace(curve, x=x))
        for key, value in curve.chosen.items():
            for other in (100 * value, 0.01 * value, -value, 1.0):
                yield with_curve(i, replace(curve, chosen={**curve.chosen, key: other}))
        if curve.chosen:
            yield with_curve(i, replace(curve, chosen=dict.fromkeys(curve.chosen, 1.0)))
        for key, value in curve.spent.items():
            for other in (1000 * value, value // 1000):
                yield with_curve(i, replace(curve, spent={**curve.spent, key: other}))
    # All curves of one label, panel or method at once: claims about the worst of several places.
    for key in ("label", "panel", "method"):
        for name in dict.fromkeys(getattr(curve, key) for curve in numbers):
            for change in (
                lambda y: 100 * y,
                lambda y: 0.01 * y,
                lambda y: y[::-1],
                lambda y: np.full_like(y, y[0]),
            ):
                curves = [
                    replace(c, y=change(c.y)) if getattr(c, key) == name else c for c in numbers
                ]
                yield Numbers(curves, numbers.remarks)


def unmoved(study, numbers):
    """The claims whose mark no mutant of the numbers changes: empty ticks, and crosses that could
    not be ticks.
    """
    marks = {claim.text: claim.holds for claim in study.claims(numbers)}
    left = set(marks)
    for mutant in mutants(numbers):
        try:
            left -= {
                claim.text for claim in study.claims(mutant) if claim.holds != marks.get(claim.text)
            }
        except (ArithmeticError, ValueError, Warning, LookupError):
            continue
        if not left:
            break
    return left


@pytest.mark.rotates
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in STUDIES],
)
def test_quick_study(name, tmp_path):
    study = remembering(STUDIES[name])()
    began = time.process_time()
    try:
        record = reproduce(study, tmp_path, quick=True, gallery=tmp_path / "gallery")
    except MissingData as missing:
        pytest.skip(str(missing))
    assert time.process_time() - began < (LONG_SECONDS if name in LONG else QUICK_SECONDS)

    assert record["claims"]
    for claim in record["claims"]:
        assert claim["holds"] or (claim["reason"] and claim["cause"] in CAUSES), claim
        assert claim["evidence"]
        # A number that decides is the paper's or ours, and says so.
        assert not re.search(r"\d", NAMES.sub("", claim["fails_if"])) or re.search(
            "our|paper", claim["fails_if"]
        ), claim
    assert not unmoved(study, study.ran)

    place = tmp_path / name.replace(" ", "-")
    stored = json.loads((place / "study.json").read_text())
    assert stored == record
    assert {"seed", *study.quick} <= set(stored["settings"])
    assert stored["version"]
    assert stored["machine"]["cores"]
    table = pq.read_table(place / "numbers.parquet")
    assert table.column_names == ["panel", "label", "method", "x", "y"]
    assert table.num_rows > 20
    assert all(bill["scalars"] >= 0 and bill["rounds"] > 0 for bill in stored["bills"])
    assert (place / "figure.png").stat().st_size > 10_000

    drawing = (place / "figure.svg").read_text()
    ET.fromstring(drawing)
    assert INK not in drawing.replace(f"svg {{ color: {INK} }}", "")
    assert "prefers-color-scheme: dark" in drawing
    assert len(drawing) < 400_000
    page = (tmp_path / "gallery.md").read_text()
    assert f"### {name}: " in page
    assert f"(gallery/{place.name}.svg)" in page
    assert page.count("- ✓") == sum(claim["holds"] for claim in record["claims"])


@pytest.mark.slow
@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize("name", list(STUDIES))
def test_study_at_the_papers_size(name, tmp_path):
    try:
        record = reproduce(STUDIES[name](), tmp_path, quick=False)
    except MissingData as missing:
        pytest.skip(str(missing))
    assert record["size"] == "paper"
    assert all(claim["evidence"] for claim in record["claims"])


class Tiny(Study):
    """A study with one claim that holds and one that does not."""

    name = "999 fig1"
    paper, title, remark = "999: a paper", "a title", "A remark."
    quick, full = {"seed": 0, "points": 3}, {"seed": 0, "points": 9}
    cause = "data"

    def run(self, settings):
        x = np.arange(1.0, settings["points"] + 1)
        return Numbers(
            [Curve("panel", "line", "graph-cp", x, 1 / x, {"rounds": 3, "bits": 64})], ["made up"]
        )

    def claims(self, numbers):
        return [
            Claim(
                "It falls.", numbers[0].last < 1, f"{numbers[0].last:.2f}", fails_if="it does not."
            ),
            Claim(
                "It rises.",
                numbers[0].last > 1,
                "no",
                "It falls.",
                cause=self.cause,
                fails_if="it falls.",
            ),
            Claim("It is a curve.", True, "yes", fails_if="it is none."),
        ]

    def draw(self, numbers):
        from papers.drawing import panels

        return panels(numbers, ["panel"], ("x", "y"))


def test_sizes_remarks_and_claims_are_kept_and_shown(tmp_path):
    quick, full = (
        reproduce(Tiny(), tmp_path, quick=quick, gallery=tmp_path / "docs")
        for quick in (True, False)
    )
    assert (quick["size"], full["size"]) == ("quick", "paper")
    assert (quick["settings"]["points"], full["settings"]["points"]) == (3, 9)
    for folder, points in (("999-fig1", 3), ("999-fig1-paper", 9)):
        table = pq.read_table(tmp_path / folder / "numbers.parquet").to_pydict()
        assert table["y"] == [1 / x for x in range(1, points + 1)]
    page = (tmp_path / "docs.md").read_text()
    assert (
        "**Of 6 claims, 4 hold, 2 fail for a known reason (data 2), and none are in between.**"
        in page
    )
    shown = [
        "### 999 fig1: a title",
        "**Quick size** *(made up; ",
        "- ✓ It falls. (0.33) *Fails if it does not.*",
    ]
    shown += [
        "**The paper's size**",
        "- ✓ It falls. (0.11)",
        "- ✗ It rises. (no) **Data:** It falls. *Fails if it falls.*",
    ]
    places = [page.rindex(part) for part in shown]
    assert places == sorted(places)
    assert page.count("### ") == 1
    assert full["bills"] == [
        {"panel": "panel", "label": "line", "method": "graph-cp", "rounds": 3, "bits": 64}
    ]
    (tmp_path / "docs" / "broken.json").write_text("{}")
    with pytest.raises(CorruptFile, match="run the study again"):
        write_gallery_page(tmp_path / "docs")


def test_the_gallery_counts_figures_and_knows_when_the_quick_size_is_the_papers(tmp_path):
    class Tenth(Tiny):
        name, quick = "999 fig10", Tiny.full

    class Second(Tiny):
        name = "999 fig2"

    for study in (Tenth(), Second(), Tiny()):
        record = reproduce(study, tmp_path, quick=True, gallery=tmp_path / "docs")
        assert record["size"] == ("paper" if study.name == "999 fig10" else "quick")
    page = (tmp_path / "docs.md").read_text()
    assert re.findall(r"### (.*):", page) == ["999 fig1", "999 fig2", "999 fig10"]
    assert page.index("**The paper's size**") > page.index("999 fig10")


def test_size_is_no_reason_where_the_papers_size_fails_too(tmp_path):
    class Sized(Tiny):
        cause = "size"

    reproduce(Sized(), tmp_path, quick=True, gallery=tmp_path / "docs")
    assert "1 fail for a known reason (size 1), and none" in (tmp_path / "docs.md").read_text()
    reproduce(Sized(), tmp_path, quick=False, gallery=tmp_path / "docs")
    assert (
        "1 fail for a known reason (size 1), and 1 are in between"
        in (tmp_path / "docs.md").read_text()
    )
    larger = tmp_path / "docs" / "999-fig1-paper.json"
    larger.write_text(larger.read_text().replace('"holds": false', '"holds": true'))
    write_gallery_page(tmp_path / "docs")
    assert (
        "**Size:** It falls. It holds at the paper's size, below."
        in (tmp_path / "docs.md").read_text()
    )


def test_empty_ticks_are_found():
    study = Tiny()
    assert unmoved(study, study.run(study.quick)) == {"It is a curve."}


def test_claims_name_causes_and_what_falsifies_them():
    claim = Claim("It rises.", False, "no", fails_if="it falls.")
    assert claim.surprising
    assert not replace(claim, reason="It falls.", cause="size").surprising
    assert not replace(claim, holds=True).surprising
    with pytest.raises(TypeError, match="fails_if"):
        Claim("It rises.", False, "no")
    for bad in (
        {"reason": "It falls."},
        {"cause": "size"},
        {"reason": "It falls.", "cause": "luck"},
    ):
        with pytest.raises(ValueError, match="A reason has a cause"):
            replace(claim, **bad)


def test_the_gallery_has_no_claim_in_between():
    root = Path(papers.__file__).parents[1]
    page = (root / "docs" / "gallery.md").read_text()
    assert ", and none are in between.**" in page
    records = [
        json.loads(path.read_text()) for path in sorted((root / "docs" / "gallery").glob("*.json"))
    ]
    assert summary([claim for record in records for claim in record["claims"]]) in page
    assert all(claim["fails_if"] for record in records for claim in record["claims"])


def shown(claim, larger):
    """Whether a cross shows its cause: numbers of a run, or the same claim at the paper's size."""
    return bool(re.search(r"\d", claim["reason"])) or (
        claim["cause"] == "size" and larger.get(claim["text"], False)
    )


def test_a_cross_shows_its_cause():
    gallery = Path(papers.__file__).parents[1] / "docs" / "gallery"
    for path in sorted(gallery.glob("*.json")):
        beside = path.with_name(f"{path.stem}-paper.json")
        larger = json.loads(beside.read_text())["claims"] if beside.is_file() else []
        holds = {claim["text"]: claim["holds"] for claim in larger}
        for claim in json.loads(path.read_text())["claims"]:
            assert claim["holds"] or shown(claim, holds), (path.name, claim["text"])


def test_every_study_was_run_at_the_papers_size():
    gallery = Path(papers.__file__).parents[1] / "docs" / "gallery"
    for name, study in STUDIES.items():
        stem = name.replace(" ", "-")
        assert (gallery / f"{stem}-paper.json").is_file() or study.quick == study.full, name


def test_a_cross_without_a_number_or_a_larger_run_shows_nothing():
    guess = {"text": "It rises.", "reason": "Perhaps the data.", "cause": "data"}
    assert not shown(guess, {"It rises.": True})
    assert shown({**guess, "reason": "With twice the rows it is 0.9."}, {})
    sized = {**guess, "cause": "size", "reason": "There are few rows."}
    assert not shown(sized, {})
    assert not shown(sized, {"It rises.": False})
    assert shown(sized, {"It rises.": True})


def test_folds_of_users_hold_every_row_out_once_class_by_class():
    data = datasets.moons("paper", "zeros", seed=0)
    parts = p001.folds(data)
    assert sum(len(part.extras["user_test"]) for part in parts) == data.train.n
    for part in parts:
        assert set(part.extras["user_train"]) == set(part.extras["user_test"]) == set(range(100))
        assert part.train.n + part.test.n == data.train.n
    for user in range(100):
        wins = [int((part.test.y[part.extras["user_test"] == user] > 0).sum()) for part in parts]
        assert max(wins) - min(wins) <= 1


def test_a_graph_without_edges_and_one_that_did_not_move_are_no_evidence():
    """What once made two ticks of 001 fig1 empty now makes crosses."""
    study, rng = p001_fig1.Figure1(), np.random.default_rng(0)
    x, groups = np.array([2.0, 5.0, 20.0, 40.0]), np.arange(3.0, 15.0)
    level = {
        p001.FIXED: 0.9,
        p001.LEARNED: 0.92,
        p001.TUNED: 0.91,
        "local": 0.7,
        "global": 0.6,
        p001.LINEAR: 0.6,
    }

    def numbers(edges, inside):
        curves = []
        for label in p001_fig1.SHOWN:
            y = np.full(4, level.get(label, 0.9))
            for panel in (p001_fig1.TRAIN, p001_fig1.TEST, p001_fig1.BITS):
                curves.append(Curve(panel, label, "dada", x, y))
            if "learned" in label:
                curves.append(Curve(p001_fig1.NEAR, label, "dada", x, np.full(4, edges)))
            known = {"inside": 0.9, "truth": 29.0, "degree": -0.5, "λ = 1": 9.0, "λ = 10": 9.0}
            known |= {
                "inside with λ = 1": inside,
                "inside with λ = 10": inside,
                "wider": 70.0,
                "bits": 1e6,
            }
            curves.append(
                Curve(
                    p001_fig1.ROWS, label, "dada", groups, y[0] + 0.01 * rng.random(12), {}, known
                )
            )
        return Numbers(curves)

    def held(*mutant):
        claims = {claim.text: claim.holds for claim in study.claims(numbers(*mutant))}
        return (
            claims["Dada-Learned improves faster in earlier iterations."],
            claims["The learned graph is very stable with respect to λ."],
        )

    assert held(9.0, 0.95) == (True, True)
    assert held(0.0, 0.95) == (False, True)
    assert held(9.0, 0.30) == (True, False)


def test_curves_answer_questions():
    curve = Curve("p", "l", "tree", np.arange(4.0), np.array([1.0, np.inf, 0.5, 0.7]))
    np.testing.assert_array_equal(curve.least, [1.0, 1.0, 0.5, 0.5])
    assert curve.first_below(0.6) == 2
    assert curve.first_below(0.1) == np.inf
    numbers = Numbers([curve, replace(curve, label="m"), replace(curve, panel="q")])
    assert numbers.panels == ["p", "q"]
    assert list(numbers.panel("p")) == ["l", "m"]
    assert len(numbers.columns()["x"]) == 12


def test_pictures_can_be_read():
    from papers.drawing import DASHED, SOLID, ladder, panels

    assert all(
        len({ladder(step, steps) for step in range(steps)}) == steps for steps in (3, 5, 7, 8, 12)
    )
    x = np.arange(3.0, 13.0)
    level = Curve("p", "solid", "tree", x, np.full(10, 0.5))
    numbers = Numbers(
        [replace(level, label="dashed"), level, Curve("p", "falls", "tree", x, 10.0 ** -(2 * x))]
    )
    figure = panels(
        numbers,
        ["p"],
        ("rows", "error"),
        stroke=lambda c: DASHED if c.label == "dashed" else SOLID,
        floor=1e-10,
    )
    (ax,) = figure.axes
    above, below = (
        next(line for line in ax.lines if line.get_label() == label)
        for label in ("dashed", "solid")
    )
    assert above.get_zorder() > below.get_zorder(), (
        "a line that is drawn later must not hide the dashes"
    )
    assert all(float(tick).is_integer() for tick in ax.get_xticks()), "there are no halves of rows"
    assert [text.get_text() for text in ax.texts] == ["1e-24"], (
        "a curve below the frame says where it gets to"
    )
    hundreds = panels(
        Numbers([Curve("p", "l", "tree", x, np.linspace(1.0, 200.0, 10))]), ["p"], ("x", "y")
    ).axes[0]
    assert hundreds.yaxis.get_major_formatter()(100.0) == "100"
    few = panels(
        Numbers([Curve("p", "l", "tree", 1e7 * x, x)]), ["p"], ("x", "y"), log_x=True
    ).axes[0]
    assert few.xaxis.get_major_formatter()(3e7) == r"$3\cdot10^{7}$"


def test_operations_are_the_papers_count():
    """Δ(G) = m − 1 for complete graphs and stars: (n(4d/m + 2Δ + 7) + 5d/m) / (n(4d + 1) + 5d)."""
    n, d, m = 100, 32, 8
    expected = (n * (16 + 14 + 7) + 20) / (n * 129 + 160)
    assert operations(n, d, complete(m)) == operations(n, d, star(m)) == pytest.approx(expected)
    assert operations(n, d, complete(1)) == 1.0


def test_studies_are_chosen_by_words():
    assert chosen(["all"]) == list(STUDIES)
    assert chosen(["000"]) == ["000 bounds", "000 fig1", "000 fig2"]
    assert chosen(["000", "fig1"]) == ["000 fig1"]
    with pytest.raises(UnknownName, match="000 fig1"):
        chosen(["000", "fig9"])


@pytest.mark.rotates
def test_the_command(tmp_path):
    listed = CliRunner().invoke(app, ["--list"])
    assert all(name in listed.output for name in STUDIES)
    out = str(tmp_path / "out")
    run = CliRunner().invoke(app, ["000", "bounds", "--quick", "--json", "-o", out])
    assert run.exit_code == 0
    record = json.loads(run.output)["studies"][0]
    assert record["study"] == "000 bounds"
    assert (tmp_path / "out" / "000-bounds" / "figure.svg").is_file()
    text = CliRunner().invoke(app, ["000", "bounds", "--quick", "-o", out]).output
    assert len(re.findall("✓", text)) == len(record["claims"])
    unknown = subprocess.run(
        [sys.executable, "-m", "papers", "000", "fig9"], capture_output=True, text=True
    )
    assert unknown.returncode == 2
    assert "000 fig1" in unknown.stderr


def test_a_missing_file_is_a_reason_to_skip(monkeypatch, tmp_path):
    monkeypatch.delenv("COTERIE_DATA", raising=False)
    run = CliRunner().invoke(app, ["003", "fig3", "-o", str(tmp_path)])
    assert run.exit_code == 0
    assert "skipped" in run.output
    assert "COTERIE_DATA" in run.output.replace("\n", " ")


def test_least_squares_of_paper_000_is_not_changed_by_rotating_it():
    """d + 1 rows in the place of n, both forms of graph-cp: the same errors at the same rounds."""
    (n, d, seed), graph = (200, 24, 3), lattice(6)
    rotated, rng = LeastSquares(n, d, seed), np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    y = X @ rng.standard_normal(d) + rng.standard_normal(n)
    theta = np.linalg.lstsq(X, y, rcond=None)[0]
    best, zero = (0.5 * np.mean((X @ w - y) ** 2) for w in (theta, 0 * theta))
    parts = split(read((X, y)), "features", 6, labels_at=label_owner(graph))
    exact = {"R": np.linalg.norm(theta), "chi": np.linalg.norm(X, 2)}
    exact |= {"delta": 1 / graph.laplacian_pinv_norm(), "D": graph.laplacian_norm()}
    forms = {
        rotated.papers_form: {"variant": "paper", "iterate": "average", **exact},
        rotated.improved: {},
    }
    for form, options in forms.items():
        direct = solve(
            Problem("squared", intercept=False), parts, split="features",
            network=graph, method="graph-cp", max_rounds=60,
            check_every=20, tol=1e-14, **options,
        )  # fmt: skip
        errors = (np.asarray(direct.history.primal) - best) / (zero - best)
        assert errors[-1] < 0.5
        np.testing.assert_allclose(
            rotated.curve(form(graph, 60, 20), "", "").y[1:], errors, rtol=1e-9
        )
