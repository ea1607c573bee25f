"""Seeded problems for `method="auto"`: every loss, penalty and split, with the hard cases that data
brings along.

A seed gives one problem. Seeds walk through all pairs of a loss and a penalty in turn; the rest is
drawn: the split, the shape (n < d in a third of all problems), means up to 1e6 and scales of
columns, duplicates, constant columns, strengths down to 1e-8, classes that no row has, labels that
are all equal, weights, offsets, float32 and sparse rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

import coterie as co

CLASSIFIERS = ("logistic", "hinge", "squared_hinge")
REGRESSIONS = ("squared", "absolute", "huber", "quantile", "poisson", "gamma")
LINEAR = (*REGRESSIONS[:1], *CLASSIFIERS, *REGRESSIONS[1:])
PENALTIES = ("none", "l2", "l1", "elasticnet", "group", "box", "nonnegative", "l1ball")
KINDS = (
    *((loss, penalty) for loss in LINEAR for penalty in PENALTIES),
    *(
        ("multinomial", penalty)
        for penalty in ("none", "l2", "l1", "elasticnet", "multinomial-traceball")
    ),
    *(("cox", penalty) for penalty in ("none", "l2", "l1", "elasticnet")),
    *(("shared", loss) for loss in ("squared", "logistic", "poisson")),
    ("low-rank", "squared"),
)
STEP = 37
"""Seeds take every so manyth kind: no two kinds that are alike follow each other."""


@dataclass(frozen=True)
class Case:
    """One problem and its data."""

    seed: int
    problem: Any
    data: Any
    how: dict[str, Any]
    traits: tuple[str, ...]
    """What is special about it, for reports."""

    def __str__(self) -> str:
        return f"seed {self.seed}: {', '.join(self.traits)}"


def case(seed: int) -> Case:
    """The problem of that seed."""
    rng = np.random.default_rng([seed, 16])
    loss, penalty = KINDS[seed * STEP % len(KINDS)]
    if loss == "shared":
        return _shared(seed, rng, penalty)
    if loss == "low-rank" or penalty == "multinomial-traceball":
        return _low_rank(seed, rng, "multinomial" if loss == "multinomial" else "squared")
    if loss == "cox":
        return _cox(seed, rng, penalty)
    return _linear(seed, rng, loss, penalty)


def _columns(rng: np.random.Generator, traits: list[str], sparse: bool = True) -> np.ndarray:
    """Columns whose scores are of the size of 1 in units of their spread, with everything that
    columns may have.
    """
    shape = str(rng.choice(["tall", "square", "wide", "very wide"], p=[0.5, 0.16, 0.26, 0.08]))
    d = int(rng.integers(*{"tall": (1, 13), "very wide": (80, 161)}.get(shape, (12, 41))))
    n = int(rng.integers(6, max(d // 2, 7)))
    if shape == "tall":
        n = int(rng.integers(5 * d + 8, 5 * d + 120))
    if shape == "square":
        n = d + int(rng.integers(-2, 3))
    traits.append(f"{shape} {n}x{d}")
    X = rng.standard_normal((n, d))
    if rng.random() < 0.15:
        X = (rng.normal(0, 0.7, d) < X).astype(float)
        traits.append("binary")
    if sparse and rng.random() < 0.15:
        X = X * (rng.random((n, d)) < 0.3)
        traits.append("sparse")
    if d > 2 and rng.random() < 0.15:
        X[:, 1] = X[:, 0]
        traits.append("duplicate column")
    if d > 3 and rng.random() < 0.1:
        X[:, 3] = X[:, 0] - 2 * X[:, 2]
        traits.append("collinear")
    if rng.random() < 0.1:
        X[:, -1] = 1.0
        traits.append("constant column")
    if rng.random() < 0.1:
        X[: n // 2] = X[n - n // 2 :]
        traits.append("duplicate rows")
    return X


def _moved(rng: np.random.Generator, X: np.ndarray, traits: list[str]) -> np.ndarray:
    """The columns with other means and scales."""
    d = X.shape[1]
    if rng.random() < 0.3:
        X = X * 10.0 ** rng.uniform(-2, 2, d)
        traits.append("scales")
    if "sparse" not in traits and rng.random() < 0.3:
        size = 10.0 ** rng.integers(1, 7)
        X = X + size * rng.uniform(0.3, 1.0, d) * (rng.random(d) < 0.6)
        traits.append(f"means {size:.0e}")
    return X


def _stored(rng: np.random.Generator, X: np.ndarray, traits: list[str]) -> Any:
    if rng.random() < 0.12:
        traits.append("float32")
        X = X.astype(np.float32)
    return sp.csr_array(X) if "sparse" in traits else X


def _strength(rng: np.random.Generator, traits: list[str]) -> float:
    strength = float(
        10.0 ** rng.choice([-1, -2, -3, -4, -6, -8], p=[0.2, 0.3, 0.15, 0.15, 0.1, 0.1])
    )
    traits.append(f"strength {strength:.0e}")
    return strength


def _penalty(rng: np.random.Generator, name: str, d: int, traits: list[str]) -> dict[str, Any]:
    if name in ("l2", "l1"):
        return {"strength": _strength(rng, traits)}
    if name == "elasticnet":
        return {"strength": _strength(rng, traits), "l1_ratio": float(rng.choice([0.1, 0.5, 0.9]))}
    if name == "group":
        return {"strength": _strength(rng, traits), "groups": [k // 3 for k in range(d)]}
    if name == "box":
        return {"lower": -float(rng.choice([0.0, 0.5])), "upper": float(rng.choice([0.3, 2.0]))}
    return {"radius": float(rng.choice([0.1, 1.0, 10.0]))} if name == "l1ball" else {}


def _labels(
    rng: np.random.Generator, loss: str, scores: np.ndarray, traits: list[str]
) -> np.ndarray:
    n = len(scores)
    noise = float(rng.choice([0.0, 0.3, 1.0]))
    u = scores + noise * rng.standard_normal(n)
    if noise == 0.0:
        traits.append("no noise")
    if loss in CLASSIFIERS:
        shift = float(rng.choice([0.0, 0.0, 1.5]))
        y = np.where(u > shift * max(u.std(), 0.1), 1.0, -1.0)
        if len(set(y)) < 2:
            y[:2] = 1.0, -1.0
        return y
    constant = rng.random() < 0.06
    if constant:
        traits.append("constant labels")
    if loss == "poisson":
        counts = rng.poisson(
            np.exp(np.clip(u, -4, 4)) * float(rng.choice([0.3, 1.0, 20.0]))
        ).astype(float)
        if not counts.any():
            counts[0] = 1.0
        return np.full(n, float(rng.choice([1.0, 3.0, 7.0]))) if constant else counts
    if loss == "gamma":
        return (
            np.full(n, 7.3)
            if constant
            else np.exp(np.clip(u, -5, 5)) * rng.gamma(2.0, 0.5, n) + 1e-6
        )
    if constant:
        return np.full(n, float(rng.choice([0.0, 3.0, 1e6])))
    if rng.random() < 0.2:
        traits.append("labels of mean 2e3")
        u = u + 2e3
    if rng.random() < 0.15:
        traits.append("labels of scale 1e4")
        u = u * 1e4
    if rng.random() < 0.15:
        traits.append("labels rounded")
        u = np.round(u)
    return u


def _linear(seed: int, rng: np.random.Generator, loss: str, penalty: str) -> Case:
    # Columns are split less often than rows; where they are, every loss and penalty is.
    whole = loss == "multinomial" or penalty == "l1ball"
    split = "samples" if whole or rng.random() < 0.6 else "features"
    traits = [loss, penalty, split]
    X = _columns(rng, traits)
    n, d = X.shape
    truth = np.zeros(d)
    truth[: min(d, 5)] = rng.standard_normal(min(d, 5))
    scores = X @ truth
    X = _stored(rng, _moved(rng, X, traits), traits)
    intercept = bool(rng.random() < 0.6)
    traits.append("intercept" if intercept else "no intercept")
    parameters = _penalty(rng, penalty, d, traits)
    if loss == "multinomial":
        classes = int(rng.integers(3, 5))
        y = np.argmax(
            np.outer(scores, rng.standard_normal(classes)) + rng.gumbel(size=(n, classes)), axis=1
        )
        if rng.random() < 0.35:
            traits.append("absent class")
            y[y == int(rng.integers(classes))] = (int(y[0]) + 1) % classes
        if len(set(y)) < 2:
            y[:2] = 0, 1
        parameters["classes"] = tuple(range(classes))
    else:
        y = _labels(rng, loss, scores, traits)
    if loss == "quantile":
        parameters["level"] = float(rng.choice([0.1, 0.5, 0.9]))
    if loss == "huber":
        parameters["threshold"] = float(rng.choice([0.1, 1.0, 10.0]))
    data: list[Any] = [X, y]
    agents = min(int(rng.integers(1, 6)), n if split == "samples" else d)
    how: dict[str, Any] = {"split": split, "agents": agents}
    if split == "features" and penalty == "group":
        # Each agent holds whole groups.
        parts = np.array_split(np.arange((d + 2) // 3), min(agents, (d + 2) // 3))
        how["agents"] = [[column for column in range(d) if column // 3 in part] for part in parts]
    if rng.random() < 0.2:
        weights = rng.uniform(0.1, 3.0, n)
        data.append(weights)
        traits.append("weights")
    if loss != "multinomial" and rng.random() < 0.1:
        how["offset"] = rng.standard_normal(n)
        traits.append("offset")
    return Case(
        seed,
        co.Problem(loss, penalty, intercept=intercept, **parameters),
        tuple(data),
        how,
        tuple(traits),
    )


def _shared(seed: int, rng: np.random.Generator, loss: str) -> Case:
    traits = ["shared", loss, "users"]
    X = _columns(rng, traits, sparse=False)
    n, d = X.shape
    users = np.arange(n) % int(rng.integers(2, 6))
    y = _labels(rng, loss, X @ rng.standard_normal(d) / np.sqrt(d), traits)
    problem = co.Shared(
        loss, "l2", _strength(rng, traits), mu=float(rng.choice([1e-3, 1e-2])), intercept=True
    )
    return Case(
        seed, problem, (_moved(rng, X, traits), y, users), {"split": "users"}, tuple(traits)
    )


def _low_rank(seed: int, rng: np.random.Generator, loss: str) -> Case:
    traits = ["low-rank", loss, "samples"]
    X = _columns(rng, traits, sparse=False)
    n, d = X.shape
    intercept = bool(rng.random() < 0.5)
    if loss == "multinomial":
        y = np.argmax(X @ rng.standard_normal((d, 3)) + rng.gumbel(size=(n, 3)), axis=1)
        y[:3] = range(3)
    else:
        y = X @ rng.standard_normal((d, 3)) / np.sqrt(d) + rng.standard_normal((n, 3))
    problem = co.Problem(
        loss, "traceball", radius=float(rng.choice([0.5, 3.0])), intercept=intercept
    )
    return Case(
        seed,
        problem,
        (X, y),
        {"split": "samples", "agents": min(int(rng.integers(1, 4)), n)},
        tuple(traits),
    )


def _cox(seed: int, rng: np.random.Generator, penalty: str) -> Case:
    traits = ["cox", penalty, "samples"]
    X = _columns(rng, traits)
    n, d = X.shape
    times = np.ceil(10 * rng.exponential(np.exp(np.clip(-X[:, 0], -3, 3))))
    events = (rng.random(n) < 0.7).astype(float)
    events[:1] = 1.0
    X = _moved(rng, X, traits)
    problem = co.Problem(
        "cox", penalty, intercept=False, agent_strata=True, **_penalty(rng, penalty, d, traits)
    )
    agents = min(int(rng.integers(1, 4)), n // 3)
    y = np.column_stack([times, events])
    return Case(
        seed,
        problem,
        (_stored(rng, X, traits), y),
        {"split": "samples", "agents": agents},
        tuple(traits),
    )


def solve(one: Case, **limits: Any) -> co.Result[Any]:
    """The result of `method="auto"` on that problem."""
    return co.solve(one.problem, one.data, progress=False, **{**one.how, **limits})
