"""No gap is smaller than the truth: P(w) − P* ≤ gap, checked in 60 digits, over everything that can be chosen."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
import scipy.sparse as sp
from tests.exact import DIGITS, SMOOTH, Exact

import coterie as co
from coterie.errors import CoterieError
from coterie.here import weighted_norm
from coterie.losses import LOSSES

PENALTIES = ("none", "l2", "l1", "elasticnet", "group", "nonnegative", "box", "l1ball")
MEANS = (0.0, 2e3, 1e6, 1e9, 1e12)
CHUNKS, EACH = 5, 50
"""Five times fifty problems in the default run, twenty times as many in the slow one."""


def penalty(name: str, d: int, rng: np.random.Generator) -> dict[str, object]:
    strength = float(10.0 ** rng.uniform(-4, -0.5))
    return {
        "none": {},
        "l2": {"strength": strength},
        "l1": {"strength": strength},
        "elasticnet": {"strength": strength, "l1_ratio": float(rng.uniform(0.1, 0.9))},
        "group": {"strength": strength, "groups": tuple(int(j) // 2 for j in range(d))},
        "nonnegative": {},
        "box": {"lower": -0.3, "upper": 0.7},
        "l1ball": {"radius": 0.8},
    }[name]


def case(seed: int):
    """A problem, data, and how to solve it: all that `solve` has to offer, at random."""
    rng = np.random.default_rng([17, seed])
    loss, name = str(rng.choice(sorted(LOSSES))), str(rng.choice(PENALTIES))
    n, d = int(rng.integers(8, 30)), int(rng.integers(1, 6))
    X = rng.standard_normal((n, d))
    if rng.random() < 0.3:
        X[rng.random(X.shape) < 0.5] = 0.0
    y = X @ rng.standard_normal(d) + 0.5 * rng.standard_normal(n)
    if rng.random() < 0.5:
        X = X * 10.0 ** rng.uniform(-8, 8, d)
    if rng.random() < 0.3:
        X = X + np.abs(X).mean(axis=0) * 10.0 ** rng.uniform(0, 8)
    if LOSSES[loss].kind == "classification":
        y = np.where(y > np.median(y), 1.0, -1.0)
    elif LOSSES[loss].steep:
        y = np.abs(y) * 10.0 ** rng.uniform(-1, 6)
        y = np.round(y) if loss == "poisson" else y + 0.01
    else:
        y = y + MEANS[rng.integers(len(MEANS))]
    if rng.random() < 0.25:
        X, y = X.astype(np.float32), y.astype(np.float32)
    if rng.random() < 0.25:
        X = sp.csr_array(X)
    # Weights are held in the precision of the data.
    weights = rng.uniform(0.1, 3.0, n).astype(y.dtype) if rng.random() < 0.3 else None
    problem = co.Problem(loss, name, intercept=bool(rng.random() < 0.6), **penalty(name, d, rng))
    by = "features" if rng.random() < 0.3 and name not in ("group", "l1ball") else "samples"
    agents = int(rng.choice([1, 2, 3, n + 3])) if by == "samples" else int(rng.integers(1, d + 1))
    rounds = int(rng.choice([1, 5, 60]))
    options = {"split": by, "agents": agents, "max_rounds": rounds, "max_seconds": 0.5, "seed": seed}
    return problem, X, y, weights, options


def offsets(seed: int, n: int) -> np.ndarray:
    """Small and huge ones, some of them 0."""
    rng = np.random.default_rng([18, seed])
    found = rng.standard_normal(n) * 10.0 ** rng.uniform(-2, 3) + rng.choice([0.0, 1e3, -1e3])
    return np.where(rng.random(n) < rng.choice([0.0, 0.3]), 0.0, found)


def references(problem, data, exact: Exact, result):
    """Models that may be better than the one that was found."""
    yield result.model.coef_, result.model.intercept_
    try:
        other = co.solve(problem, data, agents=1, tol=1e-12, max_rounds=100, max_seconds=0.5, progress=False)
        yield other.model.coef_, other.model.intercept_
        start = other.model
    except CoterieError:
        start = result.model
    if problem.loss.name in SMOOTH and problem.penalty.name in ("none", "l2"):
        yield exact.polished(start.coef_, start.intercept_)


def violation(seed: int, with_offsets: bool = False) -> tuple[float, str] | None:
    problem, X, y, weights, options = case(seed)
    offset = offsets(seed, len(y)) if with_offsets else None
    if offset is not None and problem.loss.steep and not problem.intercept:
        offset = np.clip(offset, -20.0, 20.0)
    data = (X, y, weights, offset)
    result = co.solve(problem, data, progress=False, **options)
    certificate = result.certificate
    told = f"seed {seed}: {problem.settings()} {options} {result.status}"
    if not np.isfinite(certificate.gap):
        return None
    exact = Exact(problem, X, y, weights, offset)
    with mp.workdps(DIGITS):
        here = exact.primal(result.model.coef_, result.model.intercept_)
        for w, b in references(problem, data, exact, result):
            if (
                certificate.radius is not None
                and mp.norm([mp.mpf(v if isinstance(v, mp.mpf) else float(v)) for v in w]) > certificate.radius
            ):
                continue
            excess = here - exact.primal(w, b) - mp.mpf(certificate.gap)
            if excess > 0:
                return float(excess), told
    return None


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_gap_is_smaller_than_the_truth(chunk):
    found = [hit for seed in range(chunk * EACH, (chunk + 1) * EACH) if (hit := violation(seed)) is not None]
    assert not found, max(found)


@pytest.mark.parametrize("chunk", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_no_gap_is_smaller_than_the_truth_beside_offsets(chunk):
    each = [20, 5 * EACH, 5 * EACH]
    seeds = range(sum(each[:chunk]), sum(each[: chunk + 1]))
    found = [hit for seed in seeds if (hit := violation(seed, with_offsets=True)) is not None]
    assert not found, max(found)


@pytest.mark.parametrize("seed", [1716, 3100, 3872])
def test_columns_in_single_precision_far_from_0_are_proved_as_they_are(seed):
    """Centred or rotated, they are other numbers, which float32 does not hold."""
    problem, X, _, _, options = case(seed)
    assert (X.dtype, options["split"], problem.intercept) == (np.float32, "features", True)
    assert violation(seed) is None


@pytest.mark.parametrize("shape", [(3,), (2, 3)])
def test_lengths_that_are_too_large_are_infinite_without_a_warning(shape):
    assert np.isposinf(weighted_norm(np.full(shape, 1e263), None)).all()


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS, 20 * CHUNKS))
def test_no_gap_is_smaller_than_the_truth_at_large(chunk):
    test_no_gap_is_smaller_than_the_truth(chunk)
