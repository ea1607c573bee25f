"""000 Theorem 1: the bounds (15) and (16) drawn above what the average does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from coterie.api.solve import solve
from coterie.methods.published.graph_cp_paper import steepness
from coterie.networks import Network, complete, ring, star
from coterie.numerics.arrays import FloatArray
from coterie.problems.problem import Problem
from papers.p000 import PAPER
from papers.study import Claim, Curve, Numbers, Study, spent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOSSES = ("absolute", "logistic", "huber", "squared")
BOUND = "bound, "


class Bounds(Study):
    """Theorem 1's bounds and the measured excess risk."""

    name: ClassVar[str] = "000 bounds"
    paper: ClassVar[str] = PAPER
    title: ClassVar[str] = "the bounds (15) and (16) above the curves"
    quick: ClassVar[Mapping[str, Any]] = {"n": 60, "d": 12, "agents": 6, "rounds": 1000, "seed": 0}
    full: ClassVar[Mapping[str, Any]] = {
        "n": 1024,
        "d": 128,
        "agents": 16,
        "rounds": 2048,
        "seed": 0,
    }
    remark: ClassVar[str] = (
        "The bounds hold everywhere, with room: they are worst cases over all data with these "
        "constants. (16), for the "
        "squared loss, says something only once T is large enough, and starts there."
    )

    def run(self, settings: Mapping[str, Any]) -> Numbers:
        n, d, m, rounds = (settings[key] for key in ("n", "d", "agents", "rounds"))
        rng = np.random.default_rng(settings["seed"])
        X = rng.standard_normal((n, d))
        numeric = X @ rng.standard_normal(d) + rng.standard_normal(n)
        curves = []
        for loss in LOSSES:
            y = np.where(numeric > 0, 1.0, -1.0) if loss == "logistic" else numeric
            problem = Problem(loss, "l2", 0.1, intercept=False)
            exact = solve(
                problem,
                (X, y),
                agents=2,
                method="proximal-1",
                tol=1e-8,
                max_rounds=20_000,
                progress=False,
            )
            best, R = exact.certificate.dual, float(np.linalg.norm(exact.model.coef_))
            for graph in (complete(m), ring(m), star(m)):
                constants: dict[str, Any] = {
                    "R": R,
                    "chi": float(np.linalg.norm(X, 2)),
                    "delta": 1.0 / graph.laplacian_pinv_norm(),
                    "D": graph.laplacian_norm(),
                }
                result = solve(
                    problem, (X, y), split="features", agents=m, network=graph, method="graph-cp", variant="paper",
                    iterate="average", max_rounds=rounds, check_every=max(1, rounds // 50), tol=1e-13, progress=False,
                    **constants,
                )  # fmt: skip
                T = np.asarray(result.history.round, float)
                excess = np.asarray(result.history.primal) - best
                limit = bound(problem, graph, n, T, best, **constants) - best
                said = np.isfinite(limit)
                curves.append(Curve(loss, graph.name, "graph-cp", T, excess, spent(result)))
                curves.append(Curve(loss, BOUND + graph.name, "graph-cp", T[said], limit[said]))
        return Numbers(curves, ["l2 penalty of strength 0.1", "R = ‖θ̂‖, χ, δ and D exact"])

    def claims(self, numbers: Numbers) -> list[Claim]:
        claims = []
        for loss in LOSSES:
            found, closest, points, graphs = numbers.panel(loss), math.inf, 0, 0
            for label, limit in found.items():
                if label.startswith(BOUND):
                    measured = (
                        found[label.removeprefix(BOUND)].y[-len(limit.y) :]
                        if len(limit.y)
                        else np.empty(0)
                    )
                    points += len(limit.y)
                    graphs += len(limit.y) > 0
                    closest = min(
                        closest,
                        float(np.min(limit.y / np.maximum(measured, 1e-300), initial=math.inf)),
                    )
            equation = "(16)" if loss == "squared" else "(15)"
            claims.append(
                Claim(
                    f"Bound {equation} holds for the {loss} loss at every T.",
                    points > 0 and closest >= 1.0,
                    f"at {points} places on {graphs} of 3 graphs the bound is at least "
                    f"{closest:.3g} times the "
                    "excess risk",
                    fails_if=(
                        "the excess risk is above the bound at one T, or the bound says nothing "
                        "at every T."
                    ),
                )
            )
        return claims

    def draw(self, numbers: Numbers) -> Figure:
        from papers.drawing import LADDER, dashed, panels

        names = list(dict.fromkeys(c.label.removeprefix(BOUND) for c in numbers))
        hues = dict(zip(names, (LADDER[1], LADDER[2], LADDER[4]), strict=True))
        return panels(
            numbers, LOSSES, ("iterations T", "excess risk of the average"), columns=2,
            hue=lambda c: hues[c.label.removeprefix(BOUND)], stroke=dashed(lambda c: c.label.startswith(BOUND)),
            log_x=True,
        )  # fmt: skip


def bound(
    problem: Problem,
    graph: Network,
    n: int,
    T: FloatArray,
    best: float,
    R: float,
    chi: float,
    delta: float,
    D: float,
) -> FloatArray:
    """The right-hand side of (15), or of (16) for the squared loss, +∞ where that says nothing."""
    m, rho = graph.agents, steepness(problem.loss)
    spread = math.sqrt(1 + 2 * chi**2 / delta**2)
    # 2(χ + D) R ρ √(1 + 2χ²/δ²) / ((n/m)^{1/2} T)
    # (15)
    excess: FloatArray = 2 * (chi + D) * R * rho * spread / (math.sqrt(n / m) * T)
    if problem.loss.name != "squared":
        return best + excess
    sigma = math.sqrt(m) * n**1.5 * rho / ((chi + D) * R * spread)
    # (1 + 2mnρ²/(Tσ)) (𝓛* + half of that)  for  T ≥ 2mnρ²/σ
    # (16)
    limit: FloatArray = (1 + 2 * m * n * rho**2 / (T * sigma)) * (best + excess / 2)
    return np.where(2 * m * n * rho**2 / sigma > T, np.inf, limit)
