"""000 Fig. 1: six graph families, growing numbers of agents, the error of the average against
iterations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from coterie.networks import complete
from papers.p000 import FAMILIES, PAPER, ROTATED, LeastSquares
from papers.study import Claim, Curve, Numbers, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OURS = "ours, "
REMARKS = ("the label owner is the star's hub or a lattice's centre", ROTATED)
RANDOM = ("Erdős–Rényi 0.5", "Erdős–Rényi 0.1", "geometric")
SIMILAR = 0.5
"""Powers of ten that "very similarly" may be apart."""
EDGES = "share of all edges"
"""What the graph of a curve has: with all of them, a lattice of four agents is a complete graph by
another name.
"""


class Figure1(Study):
    """Convergence by graph and by number of agents."""

    name: ClassVar[str] = "000 fig1"
    paper: ClassVar[str] = PAPER
    title: ClassVar[str] = "convergence by graph and number of agents"
    quick: ClassVar[Mapping[str, Any]] = {
        "n": 512, "d": 64, "rounds": 500, "every": 20, "agents": (4, 8, 16, 32, 64), "ours": 32, "our_rounds": 200,
        "draws": (0, 1, 2), "seed": 0,
    }  # fmt: skip
    full: ClassVar[Mapping[str, Any]] = {
        "n": 16384, "d": 2048, "rounds": 2048, "every": 64, "agents": (4, 8, 16, 32, 64, 128, 256), "ours": 64,
        "our_rounds": 400, "draws": (0,), "seed": 0,
    }  # fmt: skip
    remark: ClassVar[str] = (
        "The order of the graphs is the paper's; where each is best depends on the size. Random "
        "graphs are means of "
        "log errors over several draws. Ours is the default form of graph-cp: no constants, one "
        "exchange an iteration "
        "instead of two, the current model instead of the average."
    )

    def run(self, settings: Mapping[str, Any]) -> Numbers:
        data = LeastSquares(settings["n"], settings["d"], settings["seed"])
        alone = data.papers_form(complete(1), settings["rounds"], settings["every"])
        curves = []
        for family in FAMILIES:
            curves += [
                data.curve(alone, family, "single agent"),
                *self.panel(data, family, settings),
            ]
        return Numbers(curves, [*REMARKS, f"random graphs: {len(settings['draws'])} draw(s)"])

    def panel(self, data: LeastSquares, family: str, settings: Mapping[str, Any]) -> list[Curve]:
        """One family of graphs: more and more agents, and ours."""
        (graph, least), rounds, every = FAMILIES[family], settings["rounds"], settings["every"]
        draws = settings["draws"] if family in RANDOM else settings["draws"][:1]
        curves = []
        for m in settings["agents"]:
            if m >= least:
                graphs = [graph(m, draw) for draw in draws]
                found = [
                    data.curve(data.papers_form(g, rounds, every), family, f"{m} agents")
                    for g in graphs
                ]
                mean = np.exp(np.mean([np.log(curve.y) for curve in found], axis=0))
                share = min(
                    sum(len(g.neighbours(j)) for j in range(m)) / (m * (m - 1)) for g in graphs
                )
                curves.append(replace(found[0], y=mean, chosen={EDGES: share}))
        ours = data.improved(graph(settings["ours"], draws[0]), settings["our_rounds"], 10)
        return [*curves, data.curve(ours, family, f"{OURS}{settings['ours']} agents")]

    def claims(self, numbers: Numbers) -> list[Claim]:
        counted = {
            family: {
                int(label.split()[0]): c
                for label, c in numbers.panel(family).items()
                if label[0].isdigit()
            }
            for family in FAMILIES
        }
        ends = {
            family: {m: math.log10(c.last) for m, c in found.items()}
            for family, found in counted.items()
        }
        best = {family: min(found, key=found.__getitem__) for family, found in ends.items()}
        # A graph with all edges is the complete one, whatever it is called.
        rivals = {
            m: min(
                (ends[f][m], f)
                for f in ends
                if f != "complete" and m in ends[f] and counted[f][m].chosen[EDGES] < 1
            )
            for m in ends["complete"]
        }
        beaten = {m: found for m, found in rivals.items() if found[0] < ends["complete"][m]}
        half, tenth, near = (ends[f] for f in RANDOM)
        both = sorted(set(half) & set(tenth))
        apart = max(abs(near[m] - tenth[m]) for m in near)
        claims = [
            Claim(
                (
                    "The complete graph tends to converge faster than any other for a fixed "
                    "number of "
                    "agents."
                ),
                not beaten,
                f"log10 errors of complete: {_listed(ends['complete'])}; of the next best graph: "
                + _listed({m: found[0] for m, found in rivals.items()}),
                (
                    f"Agents have a column each at {max(ends['complete'])}, where "
                    f"{beaten[max(beaten)][1]} is ahead."
                )
                if list(beaten) == [max(ends["complete"])] and max(beaten) < 256
                else "",
                cause="size"
                if list(beaten) == [max(ends["complete"])] and max(beaten) < 256
                else "",
                fails_if=(
                    "another graph with as many agents, and not all edges, has a smaller error at "
                    "the end."
                ),
            ),
            Claim(
                (
                    "It performs best at a middle number of agents (64 in the paper) instead of "
                    "improving for ever."
                ),
                min(ends["complete"]) < best["complete"] < max(ends["complete"]),
                f"best at {best['complete']}",
                fails_if="the fewest or the most agents have the least error.",
            ),
            Claim(
                (
                    "Erdős–Rényi graphs perform best later: at 128 (p = 0.5) and 256 (p = 0.1) in "
                    "the "
                    "paper."
                ),
                best["complete"] < best["Erdős–Rényi 0.5"] < best["Erdős–Rényi 0.1"],
                (
                    f"best at {best['Erdős–Rényi 0.5']} and {best['Erdős–Rényi 0.1']}, complete at "
                    f"{best['complete']}"
                ),
                fails_if=(
                    "the best number of agents does not grow from complete to p = 0.5 to p = 0.1."
                ),
            ),
            Claim(
                "Convergence degrades as p decreases.",
                all(half[m] < tenth[m] for m in both),
                f"p = 0.5: {_listed(half)}; p = 0.1: {_listed(tenth)}",
                fails_if="p = 0.1 has the smaller error with as many agents.",
            ),
            Claim(
                "The random geometric graph performs very similarly to Erdős–Rényi with p = 0.1.",
                apart <= SIMILAR,
                f"geometric: {_listed(near)}; at most {apart:.2f} powers of ten apart",
                fails_if=(
                    f"their errors are more than {SIMILAR} powers of ten apart (our threshold)."
                ),
            ),
        ]
        for family in ("star", "lattice"):
            values = [ends[family][m] for m in sorted(ends[family])]
            claims.append(
                Claim(
                    f"The {family} performs increasingly worse as the number of agents grows.",
                    values == sorted(values),
                    _listed(ends[family]),
                    fails_if="more agents have a smaller error once.",
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
        return panels(
            numbers,
            list(FAMILIES),
            axes,
            hue=hue,
            stroke=dashed(lambda c: c.label == "single agent"),
        )


def _listed(values: dict[int, float]) -> str:
    return ", ".join(f"{m}: {value:.2f}" for m, value in sorted(values.items()))
