"""The report: well-formed, self-contained, true to the result, safe with any name, and the same
every time.
"""

from __future__ import annotations

import html
import itertools
import math
import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_rgb
from matplotlib.image import imread

import coterie as co
from coterie.api.progress import format_bits
from coterie.api.result import History, Result
from coterie.errors import CorruptFile, UnknownName
from coterie.methods import METHODS
from coterie.networks import erdos_renyi, star
from coterie.report import (
    FORMATS,
    save_comparison_figures,
    save_figures,
    write_comparison,
    write_report,
)
from coterie.report.call import solve_call
from coterie.report.compare import _headline, comparison_page
from coterie.report.figures import INK, colour, figures, gap_against, marker, network, shown_of
from coterie.report.page import STATUS_WORDS, page
from coterie.report.sections.bill import ELSEWHERE
from coterie.report.winners import winners
from coterie.report.words import duration, money, number, one_part_in, plain, text
from coterie.run.stopping import Record

HOSTILE = (
    '<script>alert("x")</script>&amp; $\\frac{1}{$ \' url(#a) 患者\u202e\x00\n--> xlink:href="#b"'
)
LIKE_A_TAG = f'url(#a) id="x" {INK}'
VOID = {"meta", "link", "br", "img", "hr", "input"}

rng = np.random.default_rng(0)
X = rng.normal(size=(90, 25))
y = X @ rng.normal(size=25) + 0.1 * rng.normal(size=90)


def parties(
    names: list[str], columns: tuple[str, ...] | None = None, width: int = 6
) -> list[co.Table]:
    return [
        co.Table(X[k :: len(names), :width], y[k :: len(names)], columns=columns, name=n)
        for k, n in enumerate(names)
    ]


def with_history(result: Result, rows: list[tuple[float, ...]]) -> Result:
    return replace(result, history=History([Record(*row) for row in rows]))


@cache
def single_row() -> Result:
    return co.solve(
        co.Problem("squared", "l1", 0.1, intercept=False), (X, y), agents=3, max_rounds=0
    )


@cache
def zero_gap() -> Result:
    return co.solve(co.Problem("squared", "l1", 1.0, intercept=False), (X, 0 * y), agents=3)


@cache
def falls_to_zero() -> Result:
    return with_history(
        plain_run(),
        [(1, 0.1, 80, 2.0, 1.0, 1.0), (2, 0.2, 160, 1.5, 1.4, 0.1), (3, 0.3, 240, 1.4, 1.4, 0.0)],
    )


@cache
def not_finite() -> Result:
    bad = [
        (t, t / 10, 80 * t, 2.0, 1.0, gap)
        for t, gap in enumerate((math.inf, math.nan, 1e250, 1e-250), 1)
    ]
    run = with_history(plain_run(), bad)
    return replace(run, certificate=replace(run.certificate, gap=math.inf, relative_gap=math.inf))


@cache
def nothing_finite() -> Result:
    return with_history(plain_run(), [(1, 0.1, 80, 2.0, 1.0, math.inf)])


@cache
def one_agent() -> Result:
    return co.solve(co.Problem("squared", "l2", 0.1, intercept=False), (X, y), agents=1)


@cache
def alone() -> Result:
    return co.solve(
        co.Problem("squared", "l2", 0.1, intercept=False), (X, y), agents=1, network="ring"
    )


@cache
def crowd() -> Result:
    return co.solve(
        co.Problem("squared", "l2", 0.1, intercept=False),
        (np.tile(X, (3, 1)), np.tile(y, 3)),
        agents=200,
        max_rounds=20,
    )


@cache
def no_coefficients() -> Result:
    return co.solve(co.Problem("squared", "l1", 1e4, intercept=False), (X, y), agents=3)


@cache
def bounded() -> Result:
    run = plain_run()
    return replace(run, certificate=replace(run.certificate, radius=12.5))


@cache
def hostile() -> Result:
    names = [HOSTILE, "b" * 300, "c"]
    return co.solve(
        co.Problem("squared", "l2", 0.1, intercept=False),
        parties(names, (HOSTILE, "$", "$$", "", "e" * 99, LIKE_A_TAG)),
        network="path",
    )


@cache
def two_classes() -> Result:
    labels = np.where(y > 0, HOSTILE[:30], "well")
    return co.solve(co.Problem("logistic", "l2", 0.1, intercept=True), (X, labels), agents=2)


@cache
def plain_run() -> Result:
    return co.solve(
        co.Problem("squared", "l1", 0.01, intercept=False),
        (X, y),
        agents=4,
        network="ring",
        method="proximal-2",
    )


@cache
def document(make: Callable[[], Result]) -> str:
    return page(make())


EDGES = (
    plain_run, single_row, zero_gap, falls_to_zero, not_finite, nothing_finite, one_agent, alone, crowd,
    no_coefficients, bounded, hostile, two_classes,
)  # fmt: skip


class Reader(HTMLParser):
    """Reads a page strictly: every tag is closed in order; collects ids, links and text."""

    def __init__(self, document: str):
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: Counter[str] = Counter()
        self.words: list[str] = []
        self.feed(document)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            assert not name.startswith("on"), name
            if name == "id":
                self.ids.append(value or "")
            if name.endswith("href") or name == "src":
                self.links.append(value or "")
            if name in ("style", "clip-path"):
                self.links += re.findall(r"url\(([^)]*)\)", value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.mark.rotates
@pytest.mark.parametrize("make", EDGES, ids=lambda make: make.__name__)
def test_pages_are_well_formed_and_self_contained(make) -> None:
    written = document(make)
    reader = Reader(written)
    assert not [
        collective
        for collective in ("http:", "https:", "//cdn", "@import", "javascript:")
        if collective in written
    ]
    assert max(Counter(reader.ids).values()) == 1
    for link in reader.links:
        assert link.startswith("data:image/") or link[1:] in reader.ids, link
    assert reader.tags["script"] == 0
    assert reader.tags["svg"] >= 3
    assert "nan" not in re.sub(
        r"<(style|code|table)\b.*?</\1>|\b(d|href)=\"[^\"]*\"", "", written, flags=re.S
    )


def test_the_file_is_the_page(tmp_path: Path) -> None:
    path = write_report(plain_run(), tmp_path / "a" / "report.html")
    assert path.read_text(encoding="utf-8") == document(plain_run)


def test_notes_stand_at_the_head_as_text() -> None:
    words = Reader(page(plain_run(), ["Two shops & <one> bank."])).text
    assert words.index("Two shops & <one> bank.") < words.index("What does that mean?")


def test_money_and_directions_are_told() -> None:
    result = plain_run()
    words = Reader(document(plain_run)).text
    for *_, price in ELSEWHERE:
        assert money(result.bill.money(per_gigabyte=price)) in words
    there = result.bill.per_direction
    assert len([edge for edge, bits in result.bill.per_edge.items() if bits]) == 3, (
        "a tree of the ring carries sums"
    )
    for i, j in (edge for edge, bits in result.bill.per_edge.items() if bits):
        assert (
            f"agent {i} ⇄ agent {j} {format_bits(there[i, j])} {format_bits(there[j, i])}" in words
        )


def test_the_page_has_the_numbers() -> None:
    result = plain_run()
    words = Reader(document(plain_run)).text
    certificate, total = result.certificate, result.bill.total
    assert (
        f"Objective within {certificate.relative_gap:.2g} (relative gap) of the smallest possible "
        "one"
    ) in words
    assert certificate.proves in words
    assert STATUS_WORDS[result.status] in words
    assert f"Rounds {result.rounds:,}" in words
    assert f"Data sent {format_bits(total.bits)} in {total.messages:,} messages" in words
    assert f"Total {total.messages:,} {total.scalars:,} {format_bits(total.bits)}" in words
    for cost, participant in zip(result.bill.per_agent, certificate.participants, strict=True):
        sent = f"{cost.messages:,} {cost.scalars:,} {format_bits(cost.bits)}"
        assert (
            f"{participant.name} {participant.rows} × {participant.columns} "
            f"{participant.digest[:12]}… {sent}"
        ) in words
    for latency, bandwidth in ((0.5e-3, 1e9), (40e-3, 1e8), (80e-3, 1e7)):
        assert duration(result.bill.seconds(latency=latency, bandwidth=bandwidth)) in words
    for row in result.history:
        assert (
            f"{row.primal:.8g} {row.dual + 0.0:.8g} {row.gap:.2e} "
            f"{row.gap / certificate.primal_at_zero:.2e}"
        ) in words
    used = np.count_nonzero(result.model.coef_)
    assert f"{used} of 25 are not zero" in words
    assert f'title="{certificate.data_digest}"' in document(plain_run)
    assert f'title="{certificate.model_digest}"' in document(plain_run)
    assert result.explanation in words


def test_a_server_has_the_last_account() -> None:
    result = one_agent()
    cost = result.bill.per_agent[-1]
    assert (
        f"server {cost.messages:,} {cost.scalars:,} {format_bits(cost.bits)}"
        in Reader(document(one_agent)).text
    )


def test_every_status_has_words() -> None:
    assert len(set(STATUS_WORDS.values())) == len(co.Status)


@pytest.mark.parametrize("status", [co.Status.OPTIMAL, co.Status.STALLED, co.Status.PARTY_LOST])
def test_a_status_is_said_in_words_and_with_its_advice(status: co.Status) -> None:
    words = Reader(page(replace(plain_run(), status=status))).text
    assert STATUS_WORDS[status] in words
    assert (status.advice in words) == (status is not co.Status.OPTIMAL)


def test_a_bound_for_some_models_only_says_so() -> None:
    words = Reader(document(bounded)).text
    assert "of the smallest possible one of a model of norm at most 12.5" in words
    assert "no model of norm at most 12.5 can get below" in words
    assert "norm at most" not in Reader(document(plain_run)).text


def test_a_gap_of_zero_and_no_gap_have_their_own_headline() -> None:
    assert "No model has a smaller objective, up to rounding" in Reader(document(zero_gap)).text
    assert "Nothing is proven about this model yet" in Reader(document(not_finite)).text


def test_a_crowd_is_folded_away() -> None:
    def folded(written: str) -> bool:
        return written.rfind("<details", 0, written.index(">agent 0<")) > written.index('id="bill"')

    assert folded(document(crowd))
    assert not folded(document(plain_run))


def test_long_histories_are_thinned_but_keep_their_ends() -> None:
    rows = [(t, t / 1000, 80 * t, 2.0, 1.0, 1 / t) for t in range(1, 5001)]
    written = page(with_history(plain_run(), rows))
    assert "5,000 records, of which 300 are shown" in written
    assert '<th class="number">1</th>' in written
    assert '<th class="number">5,000</th>' in written


def test_hostile_names_are_only_text() -> None:
    written = document(hostile)
    assert "<script" not in written
    assert html.escape(plain(HOSTILE)[:50]) in written
    assert f">{LIKE_A_TAG}</text>" in written
    assert not [c for c in "\u202e\x00" if c in written]


def test_no_coefficient_and_no_message_are_said() -> None:
    assert "Every coefficient is zero" in document(no_coefficients)
    assert "Nothing was sent" in document(alone)


def test_the_page_is_the_same_every_time_whatever_matplotlib_is_set_to() -> None:
    first = document(hostile)
    with matplotlib.rc_context(
        {"font.size": 30, "svg.fonttype": "path", "axes.facecolor": "red", "text.color": "red"}
    ):
        before = dict(matplotlib.rcParams)
        assert page(hostile()) == first
        assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize(
    ("problem", "options"),
    [
        (
            co.Problem("huber", "elasticnet", 0.01, l1_ratio=0.3, threshold=1.5, intercept=False),
            {"network": "path"},
        ),
        (
            co.Problem("squared", "nonnegative", intercept=False),
            {"max_rounds": 30, "method": "proximal-2", "rho": 2.0},
        ),
        (
            co.Problem("squared", "box", lower=-1.0, upper=math.inf, intercept=True),
            {"max_rounds": 30, "max_bits": 1e9},
        ),
        (co.Problem("squared", "l2", 0.1, intercept=False), {"network": star(3), "seed": 5}),
        (co.Problem("squared", "l2", 0.1, intercept=False), {"network": "erdos-renyi", "seed": 7}),
    ],
)
def test_the_code_repeats_the_run(problem: co.Problem, options: dict[str, object]) -> None:
    data = parties(["a", "b\nimport os", "c"])
    result = co.solve(problem, data, **options)
    space: dict[str, object] = {"data": data}
    exec(solve_call(result), space)
    again = space["result"]
    assert isinstance(again, Result)
    assert again.certificate.settings == result.certificate.settings
    assert again.model.digest() == result.model.digest()


def test_the_code_names_what_it_cannot_write_out() -> None:
    graph = erdos_renyi(3, 0.9, seed=99)
    weighted = replace(graph, weights=2.0 * graph.weights)
    problem = co.Problem("squared", "group", strength=0.1, groups=tuple(range(25)), intercept=False)
    code = solve_call(co.solve(problem, (X, y), agents=3, network=weighted, max_rounds=5))
    assert "groups=groups,  # 25 values" in code
    assert "network=graph," in code


# -- figures ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
def test_figures_are_readable_files(format: str, tmp_path: Path) -> None:
    result = hostile()
    paths = save_figures(result, tmp_path / "here", format)
    names = ["gap-rounds", "gap-bytes", "gap-seconds", "network", "coefficients"]
    assert paths == [tmp_path / "here" / f"{name}.{format}" for name in names]
    for path, again in zip(paths, save_figures(result, tmp_path / "there", format), strict=True):
        content = path.read_bytes()
        assert content == again.read_bytes()
        if format == "svg":
            assert ET.fromstring(content).tag.endswith("svg")
        elif format == "pdf":
            assert content.startswith(b"%PDF-")
            assert content.rstrip().endswith(b"%%EOF")
        else:
            assert len(np.unique(imread(path))) > 10


def test_there_is_no_picture_of_no_coefficients(tmp_path: Path) -> None:
    assert "coefficients" not in {path.stem for path in save_figures(no_coefficients(), tmp_path)}


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match=r"gif.*pdf, png, svg"):
        save_figures(plain_run(), tmp_path, "gif")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("against", "column", "unit"),
    [("rounds", "round", 1), ("bytes", "bits", 8), ("seconds", "seconds", 1)],
)
def test_gap_charts_show_the_history(against: str, column: str, unit: float) -> None:
    result = plain_run()
    (ax,) = gap_against(result, against).axes
    tolerance, curve, best = ax.get_lines()
    relative = result.history["gap"] / result.certificate.primal_at_zero
    np.testing.assert_allclose(curve.get_xdata(), result.history[column] / unit)
    np.testing.assert_allclose(curve.get_ydata(), relative)
    np.testing.assert_allclose(best.get_ydata(), [relative.min()])
    assert set(tolerance.get_ydata()) == {result.certificate.tolerance}
    assert curve.get_color() == colour(result.certificate.settings["method"]["name"])
    assert ax.get_yscale() == "log"


@pytest.mark.parametrize("make", [zero_gap, falls_to_zero, not_finite])
def test_gaps_that_have_no_logarithm_stay_inside_the_axes(make) -> None:
    result = make()
    (ax,) = gap_against(result, "rounds").axes
    _, curve, best = ax.get_lines()
    bottom, top = ax.get_ylim()
    assert bottom < min(curve.get_ydata())
    assert max(curve.get_ydata()) <= top
    assert len(curve.get_ydata()) == np.isfinite(result.history["gap"]).sum()
    assert (best.get_marker() == "v") == (0 in result.history["gap"])


@pytest.mark.parametrize(
    ("falls", "scale"), [(lambda t: math.exp(-t / 9), "linear"), (lambda t: t**-2.0, "log")]
)
def test_the_axis_that_makes_the_curve_straight_is_chosen(falls, scale: str) -> None:
    rows = [(t, t / 10, 80 * t, 2.0, 1.0, falls(t)) for t in range(1, 90)]
    for against in ("rounds", "bytes", "seconds"):
        (ax,) = gap_against(with_history(plain_run(), rows), against).axes
        assert ax.get_xscale() == scale


def test_bars_are_the_largest_coefficients() -> None:
    result = co.solve(co.Problem("squared", "l2", 0.1, intercept=False), (X, y), agents=3)
    (ax,) = figures(result)["coefficients"].axes
    coef = result.model.coef_
    order = np.argsort(-np.abs(coef))[:20]
    np.testing.assert_array_equal([bar.get_width() for bar in ax.patches], coef[order])
    assert [label.get_text() for label in ax.get_yticklabels()] == [f"column {j}" for j in order]


def test_parties_are_named_where_there_are_few() -> None:
    names = ["north", "east", "south"]
    few = co.solve(co.Problem("squared", "l2", 0.1, intercept=False), parties(names), max_rounds=3)
    many = co.solve(
        co.Problem("squared", "l2", 0.1, intercept=False),
        parties([f"clinic {k}" for k in range(30)]),
        max_rounds=3,
    )
    assert set(names) <= {label.get_text() for label in network(few).axes[0].texts}
    assert not any("clinic" in label.get_text() for label in network(many).axes[0].texts)


def test_figures_belong_to_no_global_list() -> None:
    from matplotlib import _pylab_helpers

    figures(plain_run())
    assert not _pylab_helpers.Gcf.figs


def luminance(colour: str) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


@pytest.mark.parametrize("method", [*METHODS, "a method of yours"])
def test_colours_read_on_light_and_dark_ground(method: str) -> None:
    assert colour(method) == colour(method) != INK
    for ground in ("#ffffff", "#12161c"):
        low, high = sorted((luminance(colour(method)), luminance(ground)))
        assert (high + 0.05) / (low + 0.05) >= 2.9


@pytest.mark.parametrize(
    "rivals",
    [
        (
            "consensus",
            "lin-consensus",
            "proximal-1",
            "proximal-2",
            "cocoa",
            "relay",
            "gram",
            "newton",
        ),
        (
            "consensus",
            "lin-consensus",
            "proximal-1",
            "proximal-2",
            "cocoa",
            "relay",
            "interior-point",
        ),
        ("graph-cp", "tree", "diffusion", "vrd2", "pvrd2", "dynamic-diffusion"),
        ("naive-dfw", "sva", "dfw-trace", "dfw-subspace"),
        ("dada", "dada-linear", "perso-linear", "local", "global"),
        ("shared", "shared-newton"),
    ],
)
def test_methods_that_can_be_compared_differ_in_colour(rivals: tuple[str, ...]) -> None:
    assert len({colour(name) for name in rivals}) == len(rivals)
    for one, other in itertools.combinations(rivals, 2):
        alike = (
            min(colour_distance(colour(one), colour(other), sight) for sight in COLOUR_BLIND) < 10
        )
        assert not alike or marker(one) != marker(other), (
            f"{one} and {other} look the same to some people"
        )


COLOUR_BLIND = {
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}
"""What is left of linear red, green and blue (Machado, Oliveira and Fernandes 2009)."""


def colour_distance(one: str, other: str, sight: str) -> float:
    """How far apart two colours are in CIELAB for people who see so; about 2 can just be told apart
    side by side.
    """
    to_xyz = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )

    def lab(colour: str) -> np.ndarray:
        channels = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
        linear = np.where(
            channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4
        )
        seen = np.clip(np.array(COLOUR_BLIND[sight]) @ linear, 0, 1)
        x, y, z = np.cbrt(to_xyz @ seen / [0.9505, 1.0, 1.089])
        return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])

    return float(np.linalg.norm(lab(one) - lab(other)))


def test_newton_is_not_grey_and_the_proximal_methods_are_two_colours() -> None:
    red, green, blue = (int(colour("newton")[place : place + 2], 16) for place in (1, 3, 5))
    assert max(red, green, blue) - min(red, green, blue) > 60
    assert (
        min(
            colour_distance(colour("proximal-1"), colour("proximal-2"), sight)
            for sight in COLOUR_BLIND
        )
        > 5
    )


# -- names and numbers -----------------------------------------------------------------------------


@given(st.text())
def test_text_is_one_safe_line(name: str) -> None:
    written = text(name)
    assert not set(written) & set("<>\"'")
    assert html.unescape(written) == plain(name)
    assert plain(name).isprintable()
    assert len(plain(name)) == len(name)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_read_back(value: float) -> None:
    written = number(value, 17)
    assert float(written.replace("−", "-")) == value
    assert not (value == 0 and "−" in written)


@settings(deadline=None)
@given(st.floats(1e-15, 0.5))
def test_one_part_in_never_promises_too_much(share: float) -> None:
    words = one_part_in(share).removeprefix("one part in ").split()
    scale = {"thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}
    parts = float(words[0]) * (scale[words[1]] if len(words) > 1 else 1)
    assert 0.5 / share < parts <= 1.0000001 / share


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 ms"),
        (0.0123, "12.3 ms"),
        (1.5, "1.5 s"),
        (59.96, "1 min 0 s"),
        (61, "1 min 1 s"),
        (3599.9, "1 h 0 min"),
        (7265, "2 h 1 min"),
        (200_000, "2 days 7 h"),
    ],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("dollars", "words"),
    [(0, "free"), (1e-6, "< $0.0001"), (0.0012, "$0.001"), (0.5, "$0.50"), (1234.5, "$1,234.50")],
)
def test_prices(dollars: float, words: str) -> None:
    assert money(dollars) == words


# -- saved and read again --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make", [plain_run, one_agent, nothing_finite, two_classes, hostile], ids=lambda m: m.__name__
)
def test_a_result_is_read_as_it_was_written(make, tmp_path: Path) -> None:
    result = make()
    again = Result.load(result.save(tmp_path))
    assert (again.status, again.explanation, again.bill) == (
        result.status,
        result.explanation,
        result.bill,
    )
    assert (again.network.name, again.network.server) == (
        result.network.name,
        result.network.server,
    )
    assert (again.network.weights != result.network.weights).nnz == 0
    for column in History.columns:
        np.testing.assert_array_equal(again.history[column], result.history[column])
    assert page(again) == document(make)


def test_a_run_that_was_changed_is_refused(tmp_path: Path) -> None:
    file = plain_run().save(tmp_path) / "run.json"
    content = file.read_text()
    for wrong in (content.replace('"optimal"', '"stalled"'), content[:-20], "{}", "[]"):
        file.write_text(wrong)
        with pytest.raises(CorruptFile, match=r"run\.json"):
            Result.load(tmp_path)


# -- other kinds of models -------------------------------------------------------------------------


@dataclass(frozen=True)
class Unknown:
    """A model of a kind that the report has never seen."""

    problem: co.Problem
    tree: np.ndarray


def test_a_low_rank_model_shows_its_singular_values() -> None:
    rows = X[:, :4]
    problem = co.Problem("squared", "traceball", radius=3.0)
    result = co.solve(problem, (rows, rows @ rng.normal(size=(4, 3))), agents=3, tol=1e-2)
    words = Reader(page(result)).text
    assert f"Rank {result.model.rank_}" in words
    assert f"pattern singular value 1 {number(result.model.singular_values_[0], 6)}" in words
    assert "One low-rank model" in words
    (ax,) = figures(result)["singular-values"].axes
    np.testing.assert_allclose(
        [bar.get_width() for bar in ax.patches], result.model.singular_values_
    )


@cache
def personal() -> Result:
    users = np.repeat(["ada", "bob", "cyd"], 30)
    likes = np.where(X[:, 0] * np.where(users == "cyd", -1, 1) > 0, "y", "n")
    settings = {"split": "users", "network": "learned", "tol": 0.05, "max_rounds": 60}
    return co.solve(co.Personal(mu=0.5, count=20), (X[:, :3], likes, users), **settings)


def test_personal_models_show_what_each_user_gets(tmp_path: Path) -> None:
    result = personal()
    words = Reader(page(result)).text
    assert "A model was fitted for each of them" in words
    assert "Similar users" in words
    users = np.repeat(["ada", "bob", "cyd"], 30)
    likes = np.where(X[:, 0] * np.where(users == "cyd", -1, 1) > 0, "y", "n")
    right = result.model.score_per_user(X[:, :3], likes, users)
    for name, least in shown_of(result).bars:
        assert 0.4 < least <= right[name], "a bound from below that says something"
        assert f"{name} {least:.1%}" in words
    again = Result.load(result.save(tmp_path))
    assert again.bill == result.bill
    assert page(again) == page(result)


def test_an_unknown_model_is_described_by_what_it_has() -> None:
    run = plain_run()
    result = replace(run, model=Unknown(run.model.problem, np.zeros((7, 2))))  # type: ignore[arg-type]
    words = Reader(page(result)).text
    assert "Kind Unknown tree 7 × 2" in words
    assert "coefficients" not in figures(result)


# -- comparisons -----------------------------------------------------------------------------------


@cache
def rivals() -> dict[str, Result]:
    problem = co.Problem("squared", "l2", 0.1, intercept=False)
    limits = {"consensus": 3}
    return {
        name: co.solve(problem, (X, y), agents=3, method=name, max_rounds=limits.get(name, 10_000))
        for name in ("proximal-2", "gram", "consensus")
    }


def test_winners_are_those_who_arrived_with_the_least() -> None:
    results = rivals()
    assert results["consensus"].status == "iteration_limit"
    arrived = ["proximal-2", "gram"]
    best = winners(results)
    assert best["rounds"] == (min(arrived, key=lambda name: results[name].rounds),)
    assert best["bits"] == (min(arrived, key=lambda name: results[name].bill.total.bits),)
    assert set(winners({"consensus": results["consensus"]}).values()) == {()}


def test_runs_that_overlap_in_time_are_a_tie() -> None:
    def lasting(seconds: float) -> co.Result:
        history = rivals()["gram"].history
        return replace(
            rivals()["gram"],
            history=type(history)([*history[:-1], replace(history[-1], seconds=seconds)]),
        )

    fast, slow = lasting(1.0), lasting(1.4)
    results = {"a": fast, "b": slow}
    assert winners(results, {"a": [0.9, 1.0, 1.5], "b": [1.3, 1.4, 1.5]})["seconds"] == ("a", "b")
    assert winners(results, {"a": [0.9, 1.0, 1.1], "b": [1.3, 1.4, 1.5]})["seconds"] == ("a",)
    assert winners(results)["seconds"] == ("a",)
    assert winners({"a": fast, "b": lasting(1.01)})["seconds"] == ("a", "b")
    assert winners(results)["rounds"] == ("a", "b")
    page = Reader(comparison_page(results, {"a": [0.9, 1.0, 1.5], "b": [1.3, 1.4, 1.5]})).text
    assert "a is best or as good in every respect" in page
    assert "1 s (900 ms to 1.5 s)" in page


def test_a_comparison_page_is_well_formed_and_names_the_winners(tmp_path: Path) -> None:
    results = rivals()
    written = write_comparison(results, tmp_path / "report.html").read_text(encoding="utf-8")
    reader = Reader(written)
    assert reader.tags["script"] == 0
    assert max(Counter(reader.ids).values()) == 1
    assert all(link.startswith("data:image/") or link[1:] in reader.ids for link in reader.links)
    best = winners(results)
    (fewest,) = best["rounds"]
    assert f"fewest rounds {fewest} {results[fewest].rounds}" in reader.text
    assert reader.text.count("★") == sum(map(len, best.values()))
    assert "2 of 3 reached it" in reader.text
    for path in save_comparison_figures(results, tmp_path, "svg"):
        assert all(name in path.read_text() for name in results)
    nobody = comparison_page({"consensus": results["consensus"]})
    assert "No method reached the tolerance" in nobody


def test_a_headline_names_a_method_once() -> None:
    results = dict.fromkeys(("newton", "gram", "relay"), rivals()["gram"])

    def headline(rounds: tuple[str, ...], bits: tuple[str, ...]) -> str:
        return _headline(results, {"rounds": rounds, "bits": bits, "seconds": ("relay",)})

    assert (
        headline(("newton",), ("newton", "gram"))
        == "newton needs the fewest rounds and sends the least"
    )
    assert (
        headline(("newton",), ("gram",)) == "newton needs the fewest rounds, gram sends the least"
    )


def test_links_have_units_and_messages_are_no_likeness() -> None:
    """An answer between organisations has its bill over another network of the same shape."""
    made = plain_run()
    found = Reader(page(replace(made, network=replace(made.network))))
    assert "Messages between agents" in found.text
    assert "Similar users" not in found.text
    assert re.search(r"traffic per edge: [\d.]+ [kM]?B", found.text)


def test_preparation_and_more_sections_stand_before_the_settings() -> None:
    names = tuple(f"x{j}" for j in range(25))
    table, recipes = co.Table(X, y, columns=names), [f"{name}: standardise" for name in names]
    made = co.solve(
        co.Problem("squared", "l2", 0.1, intercept=False), table, agents=2, prepare=recipes
    )
    scores = co.evaluate(made, table, agents=2)
    found = Reader(
        page(made, more=[lambda _: "<section><h2>One more</h2></section>"], evaluation=scores)
    ).text
    assert (
        found.index("Held-out rows") < found.index("One more") < found.index("Reproduce this run")
    )
    assert "25 columns: standardise" in found
