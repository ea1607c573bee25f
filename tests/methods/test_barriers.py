"""Barriers of penalties: forces are slopes, curvatures their slopes, and steps lead where they
aim.
"""

from __future__ import annotations

import numpy as np
import pytest

import coterie as co
from coterie.methods.second_order.barriers import Step, barrier_of
from coterie.numerics.penalties import PENALTIES

D = 6
RNG = np.random.default_rng(0)
SETTINGS = {
    "none": {},
    "l2": {"strength": 0.3},
    "l1": {"strength": 0.2},
    "elasticnet": {"strength": 0.2, "l1_ratio": 0.4},
    "group": {"strength": 0.1, "groups": (0, 1, 1, 0, 2, 2)},
    "nonnegative": {},
    "columnwise": {"l1": (0.2, 0.0, 1.5, 0.3, 0.1, 0.0), "l2": (0.1, 0.5, 0.0, 1.0, 0.0, 0.0)},
    "box": {
        "lower": (-1.0, -2.0, -np.inf, 0.0, -1.0, -np.inf),
        "upper": (1.0, np.inf, 2.0, 3.0, 0.5, np.inf),
    },
    "l1ball": {"radius": 4.0},
}


@pytest.fixture(params=SETTINGS)
def penalty(request):
    return PENALTIES[request.param](**SETTINGS[request.param])


@pytest.fixture
def barrier(penalty):
    return barrier_of(penalty.pieces, D + 1, D, 0.3, np.ones(D + 1))


@pytest.fixture
def w(barrier):
    return barrier.inside(np.append(RNG.uniform(0.05, 0.45, D), 7.0))


def away(barrier, w, mu):
    """x near the central path, but not on it."""
    x = barrier.centred(w, mu)
    return x * (1 - 0.02 * RNG.random(len(x)))


def test_every_vector_penalty_is_made_of_pieces(penalty):
    assert set(SETTINGS) == {name for name, entry in PENALTIES.items() if not entry.for_matrices}
    pieces, w = penalty.pieces, penalty.prox(RNG.standard_normal(D), 0.1)
    value = 0.5 * (pieces.ridge * w) @ w + (pieces.threshold * np.abs(w)).sum()
    if pieces.groups is not None:
        value += sum(
            s * np.linalg.norm(w[pieces.groups == g]) for g, s in enumerate(pieces.strengths)
        )
    assert value == pytest.approx(penalty.value(w))
    outside = np.full(D, 50.0)
    allowed = (outside <= pieces.upper).all() and np.abs(outside).sum() <= pieces.radius
    assert np.isfinite(penalty.value(outside)) == allowed


@pytest.mark.parametrize("mu", [1e-3, 0.1, 3.0])
def test_the_force_on_the_path_is_the_slope_of_the_value(barrier, w, mu):
    force, step = barrier.force(barrier.centred(w, mu)), 1e-6
    ends = [[barrier.value(w + sign * step * e, mu) for e in np.eye(D + 1)] for sign in (1, -1)]
    np.testing.assert_allclose(force, np.subtract(*ends) / (2 * step), rtol=1e-5, atol=1e-7)
    assert force[-1] == 0


@pytest.mark.parametrize("mu", [1e-3, 0.1, 3.0])
def test_products_on_the_path(barrier, w, mu):
    x = barrier.centred(w, mu)
    np.testing.assert_allclose(barrier.products(w, x), barrier.beta * mu, rtol=1e-9)
    assert barrier.complementarity(w, x) == pytest.approx(barrier.weight * mu)


@pytest.mark.parametrize("mu", [0.1, 1.0])
def test_a_change_of_the_model_changes_the_force_by_the_curvature(barrier, w, mu):
    x, dw = away(barrier, w, mu), RNG.standard_normal(D + 1)
    C, aims = np.zeros((D + 1, D + 1)), barrier.aims(mu, w, x)
    barrier.add_curvature(w, x, C)
    change = barrier.force(
        barrier.direction(w, x, dw, aims) - barrier.direction(w, x, 0 * dw, aims)
    )
    np.testing.assert_allclose(change, C @ dw, rtol=1e-9, atol=1e-12)
    still = barrier.force(barrier.direction(w, x, 0 * dw, aims))
    np.testing.assert_allclose(barrier.shift(w, x, aims), still, rtol=1e-9, atol=1e-12)
    assert np.linalg.eigvalsh(C).min() >= -1e-12 * np.abs(C).max()


def test_small_steps_lead_to_the_aims(barrier, w):
    """Newton's method on the barrier's equations alone: squared errors."""
    mu, errors = 0.1, []
    x = away(barrier, w, mu)
    for _ in range(6):
        errors.append(np.abs(barrier.centred(w, mu) - x).max(initial=0.0))
        x = x + barrier.direction(w, x, np.zeros(D + 1), barrier.aims(mu, w, x))
    assert errors[-1] <= 1e-12 * (1 + np.abs(x).max(initial=0.0))


def test_the_corrector_makes_good_what_the_predictor_misses(barrier, w):
    """What it misses is of second order, so the step is short."""
    mu, dw = 0.1, 0.01 * RNG.standard_normal(D + 1)
    x = barrier.centred(w, mu)
    first = Step(dw, barrier.direction(w, x, dw, barrier.aims(mu, w, x)))
    second = Step(dw, barrier.direction(w, x, dw, barrier.aims(mu, w, x, first)))
    misses = [
        np.abs(barrier.products(w + dw, x + way.dx) - barrier.beta * mu) for way in (first, second)
    ]
    assert misses[1].max(initial=0) <= 0.5 * misses[0].max(initial=0)


def test_the_longest_step_ends_at_the_edge(barrier, w):
    x, dw = away(barrier, w, 0.1), 3 * RNG.standard_normal(D + 1)
    dx = barrier.direction(w, x, dw, barrier.aims(0.0, w, x))
    longest = barrier.longest(w, x, dw, dx)
    assert 0 < longest <= 2
    inside = 0.999 * longest
    assert (barrier.products(w + inside * dw, x + inside * dx) > 0).all()
    if longest < 2:
        beyond = 1.001 * longest
        assert (
            barrier.longest(
                w + inside * dw, x + inside * dx, (beyond - inside) * dw, (beyond - inside) * dx
            )
            < 1
        )


def test_outlying_products_are_aimed_at(barrier, w):
    x = barrier.centred(w, 1.0)
    aims, still = barrier.aims(1.0, w, x), Step(np.zeros(D + 1), 0 * x)
    middle = barrier.recentred(aims, w, x, still, 1.0, 0.1, 10.0)
    np.testing.assert_array_equal(middle, aims)
    raised = barrier.recentred(aims, w, x, still, 1.0, 2.0, 10.0)
    lowered = barrier.recentred(aims, w, x, still, 1.0, 0.1, 0.2)
    count = len(barrier.products(w, x))
    np.testing.assert_allclose((raised - aims)[len(aims) - count :], barrier.beta, rtol=1e-9)
    np.testing.assert_allclose(
        (lowered - aims)[len(aims) - count :], -0.2 * barrier.beta, rtol=1e-9
    )


def test_a_model_at_the_bounds_is_put_inside(penalty):
    barrier = barrier_of(penalty.pieces, D, D, 0.3, np.ones(D))
    for start in (
        np.zeros(D),
        penalty.prox(np.full(D, 50.0), 1.0),
        penalty.prox(np.full(D, -50.0), 1.0),
    ):
        inside = barrier.inside(start)
        assert np.isfinite(barrier.value(inside, 0.1))
        assert penalty.value(inside) < np.inf


def test_lonely_bounds_do_not_draw_a_model_to_infinity():
    barrier = barrier_of(
        co.Problem("hinge", "nonnegative", intercept=False).penalty.pieces, 1, 1, 0.3, np.ones(1)
    )
    values = [
        barrier.value(np.array([p]), 0.1) + 0.1 * barrier.tilt[0] * p
        for p in np.logspace(-3, 6, 400)
    ]
    assert 1 < np.logspace(-3, 6, 400)[int(np.argmin(values))] < 1e4
