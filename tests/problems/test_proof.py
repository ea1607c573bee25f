"""No gap is smaller than the truth, and no dual above it: P(w) − P* ≤ gap and dual ≤ P*, checked in
60 digits, over everything that can be chosen.
"""

from __future__ import annotations

from dataclasses import replace

import mpmath as mp
import numpy as np
import pytest
import scipy.sparse as sp

import coterie as co
from coterie.errors import CoterieError
from coterie.numerics.local_loss import weighted_norm
from coterie.numerics.losses import LOSSES
from tests.harness.exact import DIGITS, SMOOTH, Exact, ExactSoftmax

PENALTIES = ("none", "l2", "l1", "elasticnet", "group", "nonnegative", "box", "l1ball")
MEANS = (0.0, 2e3, 1e6, 1e9, 1e12)
CHUNKS, EACH = 5, 50
"""Five times fifty problems in the default run, twenty times as many in the slow one."""
pytestmark = pytest.mark.filterwarnings("ignore:.* looks like a key:coterie.errors.DataWarning")


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
    options = {
        "split": by,
        "agents": agents,
        "max_rounds": rounds,
        "max_seconds": 0.5,
        "seed": seed,
    }
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
        other = co.solve(
            problem, data, agents=1, tol=1e-12, max_rounds=100, max_seconds=0.5, progress=False
        )
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
                and mp.norm([mp.mpf(v if isinstance(v, mp.mpf) else float(v)) for v in w])
                > certificate.radius
            ):
                continue
            best = exact.primal(w, b)
            excess = max(here - best - mp.mpf(certificate.gap), mp.mpf(certificate.dual) - best)
            if excess > 0:
                return float(excess), told
    return None


@pytest.mark.rotates
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_gap_is_smaller_than_the_truth(chunk):
    found = [
        hit
        for seed in range(chunk * EACH, (chunk + 1) * EACH)
        if (hit := violation(seed)) is not None
    ]
    assert not found, max(found)


@pytest.mark.parametrize(
    "chunk", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)]
)
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


# -- several classes -------------------------------------------------------------------------------


def softmax_case(seed: int):
    """Classes that may be far apart, columns of any scale and mean, weights, and single
    precision.
    """
    rng = np.random.default_rng([23, seed])
    classes, n, d = int(rng.integers(2, 4)), int(rng.integers(6, 20)), int(rng.integers(1, 3))
    X = rng.standard_normal((n, d))
    noise = rng.gumbel(size=(n, classes)) * rng.choice([0.0, 1.0])
    y = (X @ rng.standard_normal((d, classes)) * rng.choice([0.5, 3.0, 30.0]) + noise).argmax(
        axis=1
    )
    y[:classes] = np.arange(classes)
    if rng.random() < 0.5:
        X = X * 10.0 ** rng.uniform(-8, 8, d)
    if rng.random() < 0.4:
        X = X + np.abs(X).mean(axis=0) * 10.0 ** rng.uniform(0, 8)
    if rng.random() < 0.25:
        X = X.astype(np.float32)
    weights = rng.uniform(0.1, 3.0, n).astype(X.dtype) if rng.random() < 0.3 else None
    strength = {"none": {}, "l2": {"strength": float(10.0 ** rng.uniform(-5, -0.5))}}
    name = str(rng.choice(["none", "l2"]))
    problem = co.Problem("multinomial", name, intercept=bool(rng.random() < 0.7), **strength[name])
    rounds, agents = int(rng.choice([1, 3, 60])), int(rng.choice([1, 2, 3]))
    return (
        problem,
        X,
        y,
        weights,
        {"agents": agents, "max_rounds": rounds, "max_seconds": 0.5, "seed": seed},
    )


def softmax_violation(seed: int) -> tuple[float, int] | None:
    problem, X, y, weights, options = softmax_case(seed)
    data = (X, y) if weights is None else (X, y, weights)
    result = co.solve(problem, data, progress=False, **options)
    other = co.solve(
        problem, data, agents=1, tol=1e-12, max_rounds=100, max_seconds=0.5, progress=False
    )
    certificate, exact = result.certificate, ExactSoftmax(problem, X, y, weights)
    assert co.verify(certificate, result.model, data).holds
    if not np.isfinite(certificate.gap):
        return None
    with mp.workdps(DIGITS):
        here = exact.primal(exact.point(result.model))
        for point in (exact.point(other.model), exact.polished(other.model)):
            if certificate.radius is not None and exact.length(point) > certificate.radius:
                continue
            best = exact.primal(point)
            excess = max(here - best - mp.mpf(certificate.gap), mp.mpf(certificate.dual) - best)
            if excess > 0:
                return float(excess), seed
    return None


@pytest.mark.parametrize("seeds", [range(4), pytest.param(range(4, 400), marks=pytest.mark.slow)])
def test_no_gap_of_several_classes_is_smaller_than_the_truth(seeds):
    found = [hit for seed in seeds if (hit := softmax_violation(seed)) is not None]
    assert not found, max(found)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("power", [30, 36, 38, 43])
def test_what_all_intercepts_have_in_common_hides_no_loss(classes, power):
    """Large scores leave a loss few digits, or none: a gap says so, also where a forger chose
    them.
    """
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 2))
    y = np.digitize(X[:, 0], [0.0] if classes == 2 else [-0.5, 0.5])
    X[:, 0] = 2.0 * (y - y.mean()) + 0.1 * X[:, 0]
    problem = co.Problem("multinomial", "none", intercept=True)
    result = co.solve(problem, (X, y), agents=2, progress=False)
    exact = ExactSoftmax(problem, X, y)
    steps = np.arange(classes) - (classes - 1) / 2
    for scale in (3.0, 6.0, 9.0):
        coef = np.column_stack([scale * steps, 0.0 * steps])
        intercept = 2.0**power - scale * steps**2
        model = replace(result.model, coef_=coef, intercept_=intercept)
        forged = replace(
            result.certificate,
            model_digest=model.digest(),
            witness=tuple(np.empty(0) for _ in result.certificate.witness),
            gap=0.0,
            radius=None,
        )
        found = co.verify(forged, model, (X, y))
        assert not found.holds
        with mp.workdps(DIGITS):
            # The classes can be told apart: the best objective is 0.
            assert mp.mpf(found.gap) >= exact.primal(exact.point(model))
            assert found.dual <= 0.0


# -- low-rank and personal models ------------------------------------------------------------------


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", ["squared", "multinomial", "completion"])
@pytest.mark.parametrize(("scale", "mean"), [(1.0, 50.0), (1e3, 5e3)])
def test_a_low_rank_model_is_certified_as_it_is_stored(loss, intercept, scale, mean, tmp_path):
    """What is verified from the file is what was certified, to the last bit."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((60, 6)) * scale + mean
    scores = (X - mean) / scale @ rng.standard_normal((6, 2)) @ rng.standard_normal((2, 4))
    y = scores + rng.standard_normal(scores.shape) if loss == "squared" else scores.argmax(axis=1)
    shape = {}
    if loss == "completion":
        X = np.argwhere(rng.random((12, 8)) < 0.6).astype(float)
        y = rng.standard_normal(len(X)) * scale + mean
        shape = {"shape": (12, 8)}
    radius = 10.0 * scale if loss == "completion" else 10.0 / scale
    problem = co.Problem(loss, "traceball", radius=radius, intercept=intercept, **shape)
    result = co.solve(problem, (X, y), agents=3, max_rounds=8, progress=False)
    model = co.LowRankModel.load(result.model.save(tmp_path / "model.npz"))
    found = co.verify(result.certificate, model, (X, y))
    assert found.holds, found.objections
    assert (found.primal, found.gap) == (result.certificate.primal, result.certificate.gap)
    assert result.certificate.dual < result.certificate.primal - result.certificate.gap


def test_least_squares_of_low_rank_in_60_digits():
    """In a ball that is wide enough, the best matrix is known; labels and columns lie far from
    0.
    """
    for seed in range(6):
        rng = np.random.default_rng([29, seed])
        n, d, m = 14, 2, 2
        X = rng.standard_normal((n, d)) * 10.0 ** rng.uniform(-2, 3)
        X = X + np.abs(X).mean(axis=0) * float(rng.choice([0.0, 1.0, 1e3]))
        Z = (X - X.mean(axis=0)) / X.std(axis=0)
        Y = (
            Z @ rng.standard_normal((d, m))
            + 0.3 * rng.standard_normal((n, m))
            + float(rng.choice([0.0, 1e3, 1e6]))
        )
        problem = co.Problem(
            "squared", "traceball", radius=30.0 / float(X.std(axis=0).min()), intercept=True
        )
        result = co.solve(problem, (X, Y), agents=2, max_rounds=40, progress=False)
        model, certificate = result.model, result.certificate
        with mp.workdps(DIGITS):
            A = mp.matrix(np.column_stack([X, np.ones(n)]).tolist())
            labels = mp.matrix(Y.tolist())
            best = (A.T * A) ** -1 * (A.T * labels)
            here = (
                mp.matrix(model.U.tolist())
                * mp.diag(model.s.tolist())
                * mp.matrix(model.V.tolist()).T
            )
            values = []
            for W, b in ((best[:d, :], best[d, :]), (here, mp.matrix([model.b.tolist()]))):
                residual = A[:, :d] * W + mp.ones(n, 1) * b - labels
                values.append(mp.fsum(x * x for x in residual) / (2 * n))
            assert values[1] - values[0] <= mp.mpf(certificate.gap)
            assert mp.mpf(certificate.dual) <= values[0]


def test_duals_of_users_are_below_the_optimum():
    """Whatever is better than a personal or a common model is no better than its dual says."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((60, 3))
    y, users = np.where(X[:, 0] + 0.5 * X[:, 1] > 0.0, 1.0, -1.0), np.repeat([0, 1, 2], 20)
    for problem in (
        co.Personal("linear", beta=5.0, mu=0.5),
        co.Shared("logistic", "l2", 1e-3, mu=0.1, intercept=True),
    ):
        how = {"split": "users", "progress": False}
        if isinstance(problem, co.Personal):
            how["network"] = "complete"
        rough, best = (
            co.solve(problem, (X, y, users), tol=tol, **how).certificate for tol in (1e-2, 1e-5)
        )
        for one in (rough, best):
            assert one.dual < one.primal - one.gap
            assert one.dual <= best.primal
