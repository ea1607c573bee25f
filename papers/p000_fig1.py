"""000 Fig. 1: six graph families, growing numbers of agents, the error of the average against iterations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from coterie.networks import complete
from papers.p000 import FAMILIES, PAPER, ROTATED, LeastSquares
from papers.study import Claim, Curve, Numbers, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OURS = "ours, "
REMARKS = ("the label owner is the star's hub or a lattice's centre", ROTATED)
SIMILAR = 0.5
"""Powers of ten that "very similarly" may be apart."""


class Figure1(Study):
    """Convergence by graph and by number of agents."""

    name: ClassVar[str] = "000 fig1"
    paper: ClassVar[str] = PAPER
    title: ClassVar[str] = "convergence by graph and number of agents"
    quick: ClassVar[Mapping[str, Any]] = {
        "n": 512, "d": 64, "rounds": 500, "every": 20, "agents": (4, 8, 16, 32, 64), "ours": 32, "our_rounds": 200,
        "seed": 0,
    }  # fmt: skip
    full: ClassVar[Mapping[str, Any]] = {
        "n": 16384, "d": 2048, "rounds": 2048, "every": 64, "agents": (4, 8, 16, 32, 64, 128, 256), "ours": 64,
        "our_rounds": 400, "seed": 0,
    }  # fmt: skip
    remark: ClassVar[str] = (
        "The order of the graphs is the paper's; where each is best depends on the size. Ours is the default form of "
        "graph-cp: no constants, one exchange an iteration instead of two, the current model instead of the average."
    )

    def run(self, settings: Mapping[str, Any]) -> Numbers:
        data = LeastSquares(settings["n"], settings["d"], settings["seed"])
        curves = [curve for family in FAMILIES for curve in self.panel(data, family, settings)]
        return Numbers(curves, REMARKS)

    def panel(self, data: LeastSquares, family: str, settings: Mapping[str, Any]) -> list[Curve]:
        """One family of graphs: a single agent, more and more of them, and ours."""
        (graph, least), rounds, every, seed = FAMILIES[family], settings["rounds"], settings["every"], settings["seed"]
        curves = [data.curve(data.papers_form(complete(1), rounds, every), family, "single agent")]
        for m in settings["agents"]:
            if m >= least:
                curves.append(data.curve(data.papers_form(graph(m, seed), rounds, every), family, f"{m} agents"))
        ours = data.improved(graph(settings["ours"], seed), settings["our_rounds"], 10)
        return [*curves, data.curve(ours, family, f"{OURS}{settings['ours']} agents")]

    def claims(self, numbers: Numbers) -> list[Claim]:
        ends = {
            family: {
                int(label.split()[0]): math.log10(c.last)
                for label, c in numbers.panel(family).items()
                if label[0].isdigit()
            }
            for family in FAMILIES
        }
        best = {family: min(found, key=found.__getitem__) for family, found in ends.items()}
        shared = [m for m in ends["complete"] if any(m in found for f, found in ends.items() if f != "complete")]
        beaten = [m for m in shared if ends["complete"][m] > min(found[m] for found in ends.values() if m in found)]
        half, tenth, near = (ends[f] for f in ("Erdős–Rényi 0.5", "Erdős–Rényi 0.1", "geometric"))
        both = sorted(set(half) & set(tenth))
        apart = max(abs(near[m] - tenth[m]) for m in near)
        claims = [
            Claim(
                "The complete graph tends to converge faster than any other for a fixed number of agents.",
                not beaten,
                "log10 errors of complete: " + _listed(ends["complete"]),
                "Not at 64 agents, which have a column each here."
                if beaten == [64] == [max(shared)]
                else f"At 4 agents the lattice, a ring, is level with it: {ends['lattice'][4]:.4f}, "
                f"against {ends['complete'][4]:.4f}."
                if beaten == [4]
                else "",
            ),
            Claim(
                "It performs best at a middle number of agents (64 in the paper) instead of improving for ever.",
                min(ends["complete"]) < best["complete"] < max(ends["complete"]),
                f"best at {best['complete']}",
            ),
            Claim(
                "Erdős–Rényi graphs perform best later: at 128 (p = 0.5) and 256 (p = 0.1) in the paper.",
                best["complete"] <= best["Erdős–Rényi 0.5"] <= best["Erdős–Rényi 0.1"],
                f"best at {best['Erdős–Rényi 0.5']} and {best['Erdős–Rényi 0.1']}",
            ),
            Claim(
                "Convergence degrades as p decreases.",
                all(half[m] <= tenth[m] for m in both),
                f"p = 0.5: {_listed(half)}; p = 0.1: {_listed(tenth)}",
            ),
            Claim(
                "The random geometric graph performs very similarly to Erdős–Rényi with p = 0.1.",
                apart <= SIMILAR,
                f"geometric: {_listed(near)}; at most {apart:.2f} powers of ten apart, and {SIMILAR} counts as similar",
                "Both are drawn at random, and at this size with few agents." if max(near) < 256 else "",
            ),
        ]
        for family in ("star", "lattice"):
            values = [ends[family][m] for m in sorted(ends[family])]
            claims.append(
                Claim(
                    f"The {family} performs increasingly worse as the number of agents grows.",
                    values == sorted(values),
                    _listed(ends[family]),
                )
            )
        return claims

    def draw(self, numbers: Numbers) -> Figure:
        from coterie.report.figures import INK, PURPLE
        from papers.drawing import dashed, ladder, panels

        counts = sorted({int(c.label.split()[0]) for c in numbers if c.label[0].isdigit()})
        hues = {f"{m} agents": ladder(i, len(counts)) for i, m in enumerate(counts)}

        def hue(curve: Curve) -> str:
            return PURPLE if curve.label.startswith(OURS) else hues.get(curve.label, INK)

        axes = "iterations", "relative error"
        return panels(numbers, list(FAMILIES), axes, hue=hue, stroke=dashed(lambda c: c.label == "single agent"))


def _listed(values: dict[int, float]) -> str:
    return ", ".join(f"{m}: {value:.2f}" for m, value in sorted(values.items()))
