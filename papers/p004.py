"""What the studies of paper 004 share: its synthetic matrices, its five methods, and ours beside
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from coterie.api.result import Result
from coterie.api.solve import solve
from coterie.numerics.arrays import FloatArray, is_tensor
from coterie.problems.problem import Problem
from papers.study import Curve, spent

PAPER = "004: Distributed Frank-Wolfe for low-rank matrices (Zheng, Bellet, Gallinari)"
OURS = "ours: subspace"
BASELINES = ("naive", "SVA")
POWERS = ("DFW-1", "DFW-2", "DFW-log")
METHODS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "naive": ("naive-dfw", {}),
    "SVA": ("sva", {}),
    "DFW-1": ("dfw-trace", {"power": 1}),
    "DFW-2": ("dfw-trace", {"power": 2}),
    "DFW-log": ("dfw-trace", {"power": "log"}),
    OURS: ("dfw-subspace", {}),
}


DEVICE = "cuda"
"""Where large sizes are computed."""
LARGE = 10_000_000
"""Numbers of X from which on a GPU is worth the way."""


def low_rank_data(
    n: int, d: int, m: int, seed: int, rank: int = 10
) -> tuple[FloatArray, FloatArray]:
    """X standard normal and W of that rank and trace norm 1, with random singular vectors."""
    rng = np.random.default_rng(seed)
    U, V = (np.linalg.qr(rng.standard_normal((side, rank)))[0] for side in (d, m))
    s = rng.random(rank)
    return rng.standard_normal((n, d)), (U * (s / s.sum())) @ V.T


def placed(X: FloatArray, y: Any) -> tuple[Any, Any]:
    """Both on a GPU, if they are large and there is one; else as they are."""
    if X.size < LARGE or not gpu():
        return X, y
    import torch

    return torch.from_numpy(X).to(DEVICE), torch.from_numpy(np.asarray(y)).to(DEVICE)


def gpu() -> str:
    """The name of the GPU, if there is one."""
    try:
        import torch
    except ImportError:
        return ""
    return str(torch.cuda.get_device_name()) if torch.cuda.is_available() else ""


def located(X: Any) -> list[str]:
    """A remark on where these were computed with, if not here."""
    return [f"on a GPU ({gpu()})"] if is_tensor(X) else []


def run(
    problem: Problem[Any],
    data: Any,
    label: str,
    agents: int,
    epochs: int,
    seed: int,
    every: int,
    **more: Any,
) -> Result:
    """One of the methods for so many epochs."""
    name, options = METHODS[label]
    return solve(
        problem, data, agents=agents, method=name, max_rounds=epochs, check_every=every, tol=1e-10, seed=seed,
        progress=False, **{**options, **more},
    )  # fmt: skip


def objective(result: Result, panel: str, label: str, against: str = "epochs") -> Curve:
    """F / F(0) against epochs, or against the numbers sent in them."""
    sent = np.append(0.0, np.cumsum(result.bill.per_round, dtype=float))
    rounds = np.append(0, np.asarray(result.history.round))
    heights = np.append(1.0, np.asarray(result.history.primal) / result.certificate.primal_at_zero)
    x, begin = (rounds.astype(float), 0) if against == "epochs" else (sent[rounds], 1)
    return Curve(
        panel,
        label,
        METHODS[label][0],
        x[begin:],
        np.maximum(heights[begin:], 1e-12),
        spent(result),
    )
