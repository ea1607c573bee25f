"""Completing a matrix in stages: beside alternating least squares, and what is proven of the last
stage.
"""

from __future__ import annotations

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import coterie as co
from coterie.errors import InvalidInput, InvalidProblem
from coterie.problems.low_rank.tasks.completion import Completion
from coterie.problems.low_rank.tasks.task import Means
from coterie.problems.low_rank.tasks.weighted import Weighted, Weights, weighing

QUICK = {"agents": 3, "inner": 5, "space": 30, "tol": 1e-2, "max_rounds": 60, "progress": False}
STAGES = 5


def made(shape, rank, share, noise, seed, means=True):
    """A matrix, and the places and values of the entries that are seen, with noise."""
    rng = np.random.default_rng(seed)
    truth = (
        rng.standard_normal((shape[0], rank))
        @ rng.standard_normal((rank, shape[1]))
        / np.sqrt(rank)
    )
    if means:
        truth += 3.0 + rng.standard_normal((shape[0], 1)) + rng.standard_normal(shape[1])
    pairs = np.argwhere(rng.random(shape) < share)
    return truth, pairs, truth[*pairs.T] + noise * rng.standard_normal(len(pairs))


def alternating(pairs, y, shape, rank, ridge, means, turns=100):
    """Alternating least squares, with a free number for every row and column if there are means."""
    rng, places, level = np.random.default_rng(1), pairs.T, y.mean() * means
    sides, free = (
        [0.1 * rng.standard_normal((size, rank)) for size in shape],
        [np.zeros(size) for size in shape],
    )
    prices = np.diag(np.append(np.full(rank, ridge), 1e-3 if means else 1e9))
    for _ in range(turns):
        for k in (0, 1):
            Z = np.column_stack([sides[1 - k], np.ones(shape[1 - k])])
            where = (places[k], places[1 - k]), (shape[k], shape[1 - k])
            seen = sp.csr_array((np.ones(len(y)), where[0]), shape=where[1])
            rest = sp.csr_array((y - level - free[1 - k][places[1 - k]], where[0]), shape=where[1])
            G = (seen @ (Z[:, :, None] * Z[:, None, :]).reshape(len(Z), -1)).reshape(
                -1, rank + 1, rank + 1
            ) + prices
            found = np.linalg.solve(G, (rest @ Z)[:, :, None])[:, :, 0]
            sides[k], free[k] = found[:, :rank], found[:, rank]
    return sides[0] @ sides[1].T + level + free[0][:, None] + free[1]


def error(found, truth):
    return float(np.sqrt(np.mean((found - truth) ** 2)))


def whole(model, shape):
    everywhere = np.argwhere(np.ones(shape)).astype(float)
    return model.predict(everywhere).reshape(shape)


def chosen(shape, rank, share, noise, seed, means, stages, radii, cv=3):
    """The error of ours and of theirs, each with what is best on entries that were kept back."""
    truth, pairs, y = made(shape, rank, share, noise, seed, means)
    problem = co.Problem(
        "completion", "traceball", radius=1.0, intercept=means, shape=shape, stages=stages
    )
    path = co.path(problem, (pairs.astype(float), y), radii, cv=cv, **{**QUICK, "tol": 1e-3})
    fold = np.random.default_rng(seed).integers(cv, size=len(y))
    losses = {}
    for tried in [
        (k, ridge) for k in (rank - 1, rank, rank + 1) for ridge in (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
    ]:
        kept = [
            alternating(pairs[fold != f], y[fold != f], shape, *tried, means)[*pairs.T]
            for f in range(cv)
        ]
        losses[tried] = sum(float(((kept[f] - y)[fold == f] ** 2).sum()) for f in range(cv))
    theirs = alternating(pairs, y, shape, *min(losses, key=losses.get), means)
    return error(whole(path.best_result.model, shape), truth), error(theirs, truth), path


def radii_of(shape, rank, points=5):
    """Shares of the trace norm of such a matrix, that of the spectrum of random ones."""
    full = np.sqrt(rank) * np.sqrt(shape[0] * shape[1])
    return (full * np.geomspace(0.35, 0.9, points)).tolist()


def test_stages_come_near_to_alternating_least_squares():
    shape = (90, 70)
    truth, pairs, y = made(shape, 2, 0.25, 0.2, 0)
    errors = {}
    for stages in (1, STAGES):
        problem = co.Problem(
            "completion", "traceball", radius=70.0, intercept=True, shape=shape, stages=stages
        )
        result = co.solve(problem, (pairs.astype(float), y), **QUICK)
        errors[stages] = error(whole(result.model, shape), truth)
    theirs = error(alternating(pairs, y, shape, 2, 0.5, True), truth)
    assert errors[STAGES] <= 1.1 * theirs < 0.8 * errors[1]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("shape", "rank", "share", "noise", "means"),
    [
        ((300, 200), 5, 0.15, 0.3, True),
        ((200, 200), 3, 0.1, 0.1, False),
        ((240, 120), 4, 0.3, 1.0, True),
    ],
)
def test_the_best_radius_of_a_path_comes_near_to_alternating_least_squares(
    shape, rank, share, noise, means, seed
):
    ours, theirs, _ = chosen(shape, rank, share, noise, seed, means, STAGES, radii_of(shape, rank))
    print(f"{shape} {rank} {share} {noise} {means} {seed}: {ours:.3f} {theirs:.3f}")
    assert ours <= 1.1 * theirs


SHAPE = (9, 7)
_, PAIRS, Y = made(SHAPE, 2, 0.6, 0.1, 3)
PROBLEM = co.Problem("completion", "traceball", radius=6.0, intercept=True, shape=SHAPE, stages=3)
DATA = PAIRS.astype(float), Y


@pytest.fixture(scope="module")
def result():
    return co.solve(PROBLEM, DATA, agents=3, tol=1e-7, progress=False)


def test_the_last_stage_is_the_best_of_its_ball(result):
    weights = Weights.known(result.certificate.witness[0], SHAPE)
    Z, a, b = cp.Variable(SHAPE), cp.Variable((9, 1)), cp.Variable((1, 7))
    A, B = weights.left(np.eye(9)), weights.right(np.eye(7))
    matrix = A @ Z @ B + a @ np.ones((1, 7)) + np.ones((9, 1)) @ b
    entries = cp.hstack([matrix[row, column] for row, column in PAIRS.tolist()])
    loss = 0.5 * cp.sum_squares(entries - Y) / len(Y)
    least = cp.Problem(cp.Minimize(loss), [cp.normNuc(Z) <= 6.0]).solve(solver="CLARABEL")
    assert str(result.status) == "optimal"
    assert result.certificate.dual - 1e-8 <= least <= result.certificate.primal + 1e-8
    assert "last of 3 stages" in result.certificate.proves


def test_a_proof_is_about_the_ball_in_the_witness(result, tmp_path):
    loaded = co.Result.load(result.save(tmp_path / "run"))
    assert co.verify(loaded.certificate, loaded.model, DATA).holds
    wider = tuple(np.append([v[0], 4.0 * v[1]], v[2:]) for v in result.certificate.witness)
    assert not co.verify(replace(result.certificate, witness=wider), result.model, DATA).holds
    nothing = tuple(np.empty(0) for _ in wider)
    assert not co.verify(replace(result.certificate, witness=nothing), result.model, DATA).holds
    broken = tuple(v[:-1] for v in result.certificate.witness)
    with pytest.raises(InvalidInput, match="stage before"):
        co.verify(replace(result.certificate, witness=broken), result.model, DATA)


def test_without_stages_a_witness_changes_nothing(result):
    plain = co.solve(
        PROBLEM.changed(loss=Completion(SHAPE)), DATA, agents=3, tol=1e-6, progress=False
    )
    assert "stages" not in plain.certificate.settings["problem"]["loss"]
    forged = replace(
        plain.certificate, model_digest=result.model.digest(), witness=result.certificate.witness
    )
    assert not co.verify(forged, replace(result.model, problem=plain.model.problem), DATA).holds


def test_a_run_in_stages_goes_on_with_the_same_bits(result, tmp_path):
    how = {"agents": 3, "tol": 1e-14, "check_every": 1, "progress": False}
    at_once = co.solve(PROBLEM, DATA, max_rounds=10, **how)
    co.solve(PROBLEM, DATA, max_rounds=6, checkpoint=tmp_path, **how)
    rest = co.solve(PROBLEM, DATA, max_rounds=10, checkpoint=tmp_path, **how)
    assert (rest.model.digest(), rest.bill) == (at_once.model.digest(), at_once.bill)
    again = co.solve(PROBLEM, DATA, max_rounds=0, agents=3, warm_start=result, progress=False)
    assert again.certificate.gap == pytest.approx(result.certificate.gap, rel=1e-3, abs=1e-12)


def test_weights_are_what_their_formula_says():
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((9, 2)), rng.standard_normal((7, 2))
    weights = Weights.known(weighing(left, right, 6.0, 0.1, 1.5), SHAPE)
    Z = weights.right(weights.left(left @ right.T, -1.0).T, -1.0).T
    assert np.linalg.norm(Z, "nuc") == pytest.approx(6.0 / 1.5)
    information = Completion(SHAPE).stats(co.Table(*DATA))
    weighted = Weighted(Completion(SHAPE).stats(co.Table(*DATA)), weights)
    A, B = weights.left(np.eye(9)), weights.right(np.eye(7))
    G = A @ information.matrix() @ B
    u, v = rng.standard_normal((9, 3)), rng.standard_normal((7, 3))
    assert weighted.matrix() == pytest.approx(G)
    assert weighted.times(v) == pytest.approx(G @ v)
    assert weighted.times_transposed(u) == pytest.approx(G.T @ u)
    assert weighted.squared_norm() == pytest.approx(np.linalg.norm(G) ** 2)
    assert weighted.projected(u, weighted.forward(u), v) == pytest.approx(u.T @ G @ v)
    assert Weights.known(weighing(0 * left, right, 6.0, 0.1, 1.5), SHAPE) is None


def test_other_methods_have_no_stages():
    with pytest.raises(InvalidProblem, match="dfw-subspace"):
        co.solve(PROBLEM, DATA, method="dfw-trace", agents=3)
    with pytest.raises(InvalidProblem, match="stages"):
        co.Problem("completion", "traceball", radius=6.0, shape=SHAPE, stages=0)


def test_labels_keep_their_digits_beside_pairs_in_single_precision():
    pairs, values = DATA
    far = values + 1e7
    means = Means(np.full(SHAPE[0], 1e7), np.zeros(SHAPE[1]))
    single = Completion(SHAPE).stats(co.Table(pairs.astype(np.float32), far), means=means)
    assert single.gradient().dtype == np.float32
    double = Completion(SHAPE).stats(co.Table(pairs, far), means=means)
    assert double.gradient().dtype == np.float64
    np.testing.assert_allclose(single.gradient(), double.gradient(), atol=1e-5)
