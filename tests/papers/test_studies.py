"""Every study runs in its quick size and stores what it found; its claims hold, but for those known not to."""

from __future__ import annotations

import json
import os
import re
import shutil
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

import coterie as co
import papers
from coterie.cli import app
from coterie.data import read, split
from coterie.errors import CorruptFile, MissingData, UnknownName
from coterie.networks import complete, lattice, star
from coterie.problem import Problem
from coterie.report.figures import INK
from coterie.solve import solve
from papers import STUDIES, Claim, Curve, Numbers, Study, chosen
from papers.p000 import LeastSquares, label_owner
from papers.p000_fig2 import operations
from papers.reproduce import reproduce, write_gallery_page

QUICK_SECONDS = 60
KNOWN_NOT_TO_HOLD = {
    "001 fig1": {"Dada-Learned ", "The learned graph", "In so few dimensions"},
    "001 fig4": {"Global clearly", "Dada-Learned achieves", "Perso-linear-Learned", "Dada obtains", "The gap is even"},
    "001 fig6": {
        "κ = 1 minimises the total communication (exact",
        "Moderate κ trade iterations against communication (exact",
    },
    "001 fig9": {"Dada-Learned has", "The learned graph", "The smaller λ", "As λ → 0"},
    "001 fig10": {"On Computer Buyers", "On School"},
    "000 fig1": {"The complete graph tends"},
    "000 fig2": {"Per operation"},
    "002 fig3": {"The computation of lin-consensus"},
    "002 fig4": {"All four ADMM", "With l1, lin-consensus"},
    "004 fig1": {"In the low dimension it is also", "SVA also performs well"},
    "004 fig2": {"DFW-2 and DFW-log", "For the most constrained"},
    "004 fig3": {"DFW-2 reduces", "DFW-log reduces", "All variants converge"},
    "004 fig4": {"The time per epoch", "More workers"},
    "ours methods": {"On the SVM, self-tuning", "On the SVM, acceleration"},
}
"""Beginnings of the claims that the quick sizes do not bear out; each study says why."""


LONG = ("001 fig9", "001 fig10")
"""Also long in their quick sizes: they show on other data, or other users, what figure 6 does."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in STUDIES]
)
def test_quick_study(name, tmp_path):
    study = STUDIES[name]()
    began = time.process_time()
    try:
        record = reproduce(study, tmp_path, quick=True, gallery=tmp_path / "gallery")
    except MissingData as missing:
        pytest.skip(str(missing))
    assert time.process_time() - began < QUICK_SECONDS

    known = tuple(KNOWN_NOT_TO_HOLD.get(name, ()))
    assert record["claims"]
    for claim in record["claims"]:
        assert claim["holds"] or (known and claim["text"].startswith(known)), claim
        assert claim["holds"] or claim["reason"], claim
        assert claim["evidence"]

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

    def run(self, settings):
        x = np.arange(1.0, settings["points"] + 1)
        return Numbers([Curve("panel", "line", "graph-cp", x, 1 / x, {"rounds": 3, "bits": 64})], ["made up"])

    def claims(self, numbers):
        return [
            Claim("It falls.", numbers[0].last < 1, f"{numbers[0].last:.2f}"),
            Claim("It rises.", numbers[0].last > 1, "no", "It falls."),
        ]

    def draw(self, numbers):
        from papers.drawing import panels

        return panels(numbers, ["panel"], ("x", "y"))


def test_sizes_remarks_and_claims_are_kept_and_shown(tmp_path):
    quick, full = (reproduce(Tiny(), tmp_path, quick=quick, gallery=tmp_path / "docs") for quick in (True, False))
    assert (quick["size"], full["size"]) == ("quick", "paper")
    assert (quick["settings"]["points"], full["settings"]["points"]) == (3, 9)
    for folder, points in (("999-fig1", 3), ("999-fig1-paper", 9)):
        table = pq.read_table(tmp_path / folder / "numbers.parquet").to_pydict()
        assert table["y"] == [1 / x for x in range(1, points + 1)]
    page = (tmp_path / "docs.md").read_text()
    shown = ["### 999 fig1: a title", "**Quick size** *(made up; ", "- ✓ It falls. (0.33)", "**The paper's size**"]
    shown += ["- ✓ It falls. (0.11)", "- ✗ It rises. (no) It falls."]
    places = [page.rindex(part) for part in shown]
    assert places == sorted(places)
    assert page.count("### ") == 1
    assert full["bills"] == [{"panel": "panel", "label": "line", "method": "graph-cp", "rounds": 3, "bits": 64}]
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


def test_a_claim_that_fails_without_a_reason_is_surprising():
    claim = Claim("It rises.", False, "no")
    assert claim.surprising
    assert not replace(claim, reason="It falls.").surprising
    assert not replace(claim, holds=True).surprising


def test_curves_answer_questions():
    curve = Curve("p", "l", "tree", np.arange(4.0), np.array([1.0, np.inf, 0.5, 0.7]))
    np.testing.assert_array_equal(curve.least, [1.0, 1.0, 0.5, 0.5])
    assert curve.first_below(0.6) == 2
    assert curve.first_below(0.1) == np.inf
    numbers = Numbers([curve, replace(curve, label="m"), replace(curve, panel="q")])
    assert numbers.panels == ["p", "q"]
    assert list(numbers.panel("p")) == ["l", "m"]
    assert len(numbers.columns()["x"]) == 12


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


def test_the_command(tmp_path):
    listed = CliRunner().invoke(app, ["reproduce", "--list"])
    assert all(name in listed.output for name in STUDIES)
    out = str(tmp_path / "out")
    run = CliRunner().invoke(app, ["reproduce", "000", "bounds", "--quick", "--json", "-o", out])
    assert run.exit_code == 0
    record = json.loads(run.output)["studies"][0]
    assert record["study"] == "000 bounds"
    assert (tmp_path / "out" / "000-bounds" / "figure.svg").is_file()
    text = CliRunner().invoke(app, ["reproduce", "000", "bounds", "--quick", "-o", out]).output
    assert len(re.findall("✓", text)) == len(record["claims"])


def test_without_a_checkout_the_command_says_what_to_do(tmp_path):
    """The package as a wheel installs it, away from the repository."""
    root = Path(papers.__file__).parents[1]
    shutil.copytree(Path(co.__file__).parent, tmp_path / "site" / "coterie")
    (tmp_path / "elsewhere").mkdir()

    def listed(folder, *arguments):
        command = [sys.executable, "-m", "coterie", "reproduce", "--list", *arguments]
        path = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
        return subprocess.run(command, cwd=folder, env=path, capture_output=True, text=True)

    alone = listed(tmp_path / "elsewhere")
    assert alone.returncode == 3
    assert "clone the repository and run `coterie reproduce` there" in " ".join(alone.stderr.split())
    for told in (listed(tmp_path / "elsewhere", "--from", str(root)), listed(root)):
        assert told.returncode == 0, told.stderr
        assert all(name in told.stdout for name in STUDIES)


def test_a_missing_file_is_a_reason_to_skip(monkeypatch, tmp_path):
    monkeypatch.delenv("COTERIE_DATA", raising=False)
    run = CliRunner().invoke(app, ["reproduce", "003", "fig3", "-o", str(tmp_path)])
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
    forms = {rotated.papers_form: {"variant": "paper", "iterate": "average", **exact}, rotated.improved: {}}
    for form, options in forms.items():
        direct = solve(
            Problem("squared"), parts, split="features", network=graph, method="graph-cp", max_rounds=60,
            check_every=20, tol=1e-14, **options,
        )  # fmt: skip
        errors = (np.asarray(direct.history.primal) - best) / (zero - best)
        assert errors[-1] < 0.5
        np.testing.assert_allclose(rotated.curve(form(graph, 60, 20), "", "").y[1:], errors, rtol=1e-9)
