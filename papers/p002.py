"""What the studies of paper 002 share: its five rules, a grid of step sizes, and the best of it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from coterie.api.result import Result
from coterie.api.solve import solve
from coterie.data import Table
from coterie.errors import MissingData
from coterie.problems.problem import Problem
from papers import datasets
from papers.study import Claim, Curve, Numbers, spent

PAPER = "002: CoCoA is ADMM (Wu, Liu, Wang, Wang)"
EXACT, LINEARISED = ("consensus", "proximal-1"), ("lin-consensus", "proximal-2")
OVERLAPPING = 0.3
"""Powers of ten that "almost identical" curves may be apart, in the median over the rounds; more is
"significantly".
"""
EXHAUSTED = 1e-11
"""Gaps below it are all the same: a run ends there, and an earlier end is a better one."""
SAME = 1e-9
"""Relative difference that rounding may leave between duals that are the same."""
SIMPLER = 0.8
"""A rule whose rounds take at most this share of the other's processor time is "significantly
simpler".
"""
OURS = "ours: "
RISES = "rises with ρ = "
"""For every step of a grid: by how many powers of ten the gap rises on its way."""


def run_rule(
    problem: Problem, data: Any, rule: str, agents: int, rounds: int, every: int = 1, **options: Any
) -> Result:
    """A rule as published, unless `acceleration` says otherwise."""
    return solve(
        problem, data, agents=agents, method=rule, max_rounds=rounds, check_every=every, tol=1e-12, progress=False,
        **{"acceleration": "none", **options},
    )  # fmt: skip


def gap_curve(result: Result, panel: str, label: str, **chosen: float) -> Curve:
    """The relative gap against rounds: gap / P(0), as the certificates prove it."""
    method = str(result.certificate.settings["method"]["name"])
    gaps = np.asarray(result.history.gap) / (result.certificate.primal_at_zero or 1.0)
    rounds = np.asarray(result.history.round, float)
    return Curve(panel, label, method, rounds, np.maximum(gaps, 1e-16), spent(result), chosen)


def best_of(
    problem: Problem,
    data: Any,
    rule: str,
    agents: int,
    rounds: int,
    grid: Iterable[float],
    every: int,
    panel: str,
) -> Curve:
    """The curve of the ρ of that grid with the least gap at the end, or the earliest end; for
    consensus β = 1/(ρK).
    """
    found = []
    for rho in grid:
        step = {"beta": 1.0 / (rho * agents)} if "consensus" in rule else {"rho": rho}
        began = time.process_time()
        result = run_rule(problem, data, rule, agents, rounds, every, **step)
        each = (time.process_time() - began) / result.rounds
        found.append(gap_curve(result, panel, rule, rho=rho, seconds_per_round=each))
    best = min(found, key=lambda curve: (max(float(curve.least[-1]), EXHAUSTED), curve.x[-1]))
    calm = {f"{RISES}{curve.chosen['rho']:g}": unrest(curve) for curve in found}
    return replace(best, chosen={**best.chosen, **calm})


def compared(
    problem: Problem,
    data: Any,
    panel: str,
    agents: int,
    rounds: int,
    grid: Sequence[float],
    every: int,
) -> list[Curve]:
    """All five rules with their best step, and `proximal-1` as one would run it: self-tuned and
    accelerated.
    """
    rules = (*EXACT, *LINEARISED)
    curves = [best_of(problem, data, rule, agents, rounds, grid, every, panel) for rule in rules]
    strength = problem.penalty.strong_convexity
    if strength > 0:
        cocoa = run_rule(problem, data, "cocoa", agents, rounds, every)
        twin = run_rule(problem, data, "proximal-1", agents, rounds, every, rho=1.0 / strength)
        apart = np.max(np.abs(twin.history.dual / cocoa.history.dual - 1.0))
        curves.append(gap_curve(cocoa, panel, "cocoa", from_proximal_1=float(apart)))
    ours = run_rule(problem, data, "proximal-1", agents, rounds, every, acceleration="auto")
    curves.append(gap_curve(ours, panel, f"{OURS}self-tuned, accelerated"))
    return curves


def apart(one: Curve, other: Curve) -> float:
    """Powers of ten between the best gaps of two curves, in the median over the rounds."""
    shared = min(len(one.x), len(other.x))
    return float(np.median(np.abs(np.log10(one.least[:shared] / other.least[:shared]))))


def unrest(curve: Curve) -> float:
    """The sum of all rises of log10 gap."""
    steps = np.diff(np.log10(curve.y[np.isfinite(curve.y)]))
    return float(steps[steps > 0].sum())


def family_claims(
    numbers: Numbers, where: Sequence[str], behind: str = "", significantly: bool = False
) -> list[Claim]:
    """What the paper says of Figures 3 and 4 alike; `behind` says why a rule may be behind
    CoCoA.
    """
    claims = []
    for pair in (EXACT, LINEARISED):
        distances = {name: apart(*(numbers.panel(name)[rule] for rule in pair)) for name in where}
        claims.append(
            Claim(
                f"{pair[0]} and {pair[1]} are almost identical.",
                max(distances.values()) <= OVERLAPPING,
                f"powers of ten apart, median over rounds: {_listed(distances)}",
                fails_if=(
                    f"their gaps are more than {OVERLAPPING} powers of ten apart in the median "
                    "(our threshold)."
                ),
            )
        )
    ratios = {}
    for name in where:
        found = numbers.panel(name)
        if "cocoa" in found:
            worst = max(float(found[rule].least[-1]) for rule in (*EXACT, *LINEARISED))
            ratios[name] = math.log10(worst / float(found["cocoa"].least[-1]))
    claims.append(
        Claim(
            (
                "All four ADMM variants with a tuned step "
                f"{'significantly ' * significantly}outperform CoCoA."
            ),
            max(ratios.values()) < -OVERLAPPING * significantly,
            f"log10 of the worst variant's last gap over CoCoA's: {_listed(ratios)}",
            behind,
            cause="size" if behind else "",
            fails_if=(
                f"the worst of the four is not {OVERLAPPING} powers of ten below CoCoA at the end "
                "(our threshold)."
            )
            if significantly
            else "the worst of the four ends with a gap as large as CoCoA's.",
        )
    )
    twins = {c.panel: c.chosen["from_proximal_1"] for c in numbers if c.label == "cocoa"}
    claims.append(
        Claim(
            "CoCoA is proximal-1 with ρ = 1/λ.",
            max(twins.values()) <= SAME,
            (
                "largest relative difference of their duals: "
                f"{', '.join(f'{n}: {v:.0e}' for n, v in twins.items())}"
            ),
            "Local problems are solved to a tolerance: a difference in the last bit can end the "
            "sweeps of one of them "
            "a little earlier, and from then on they differ by what the tolerance leaves. With "
            "exact local solutions "
            "the two rules are equal to the last digits (tests/papers/test_002_family.py).",
            cause="settings",
            fails_if=(
                f"a dual value of the two differs by more than {SAME:g} of itself (our threshold)."
            ),
        )
    )
    leads = {}
    for name in where:
        found = numbers.panel(name)
        rules = [found[rule] for rule in (*EXACT, *LINEARISED)]
        shared = min(len(curve.x) for curve in rules) - 1
        exact, linear = (
            min(float(curve.least[shared]) for curve in pair) for pair in (rules[:2], rules[2:])
        )
        leads[name] = math.log10(exact / linear)
    claims.append(
        Claim(
            (
                "consensus and proximal-1 reach a smaller gap than lin-consensus and proximal-2 in "
                "the same rounds."
            ),
            max(leads.values()) <= 0,
            f"log10 of the gaps' ratio where the first of them ends: {_listed(leads)}",
            fails_if="one of the linearised rules has the smaller gap on one problem.",
        )
    )
    return claims


def classification_data(name: str, rows: int | None, seed: int) -> tuple[Table, str]:
    """One of the paper's three sets, or its outline made by a generator where the file is not here;
    and a remark.
    """
    outline = {
        "a1a": (1605, 119, 22249),
        "w8a": (49749, 300, 579586),
        "real-sim": (72309, 20958, 3709083),
    }[name]
    try:
        if name == "real-sim":
            raise MissingData("real-sim itself is not redistributed")
        table, remark = {"a1a": datasets.a1a, "w8a": datasets.w8a}[name]().train, name
    except MissingData:
        n, d, entries = outline
        kept = n if rows is None else min(rows, n)
        columns = d if rows is None else min(d, max(kept // 2, 20))
        entries = min(entries * kept // n, kept * columns // 4)
        return datasets.text_like(
            kept, columns, entries, seed
        ).train, f"synthetic text in place of {name}"
    if rows is None or rows >= table.n:
        return table, remark
    picked = np.sort(np.random.default_rng(seed).choice(table.n, rows, replace=False))
    return table.take_rows(picked), f"{rows} rows of {name}"


def _listed(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name}: {value:.2f}" for name, value in values.items())
