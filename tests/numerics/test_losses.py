"""The laws that every loss obeys; a new file in `coterie/losses` is tested here without further
ado.
"""

from __future__ import annotations

import json
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import expit

from coterie.errors import InvalidProblem
from coterie.numerics.losses import LOSSES, Loss, loss
from coterie.numerics.losses.shifted import Shifted

# The parameters a loss is tested with; others are tested with their defaults.
PARAMETERS = {
    "huber": [{}, {"threshold": 0.3}, {"threshold": 1.0}],
    "quantile": [{}, {"level": 0.9}, {"level": 0.05}],
}
CASES = [(name, parameters) for name in LOSSES for parameters in PARAMETERS.get(name, [{}])]
SHIFTED = [("poisson", {"offset": 1.5}), ("hinge", {"offset": 0.5})]
STEPS = [1e-12, 1e-4, 0.3, 1.0, 7.0, 1e4, 1e12]
HUGE = np.array([0.0, 1e-9, -1e-9, 0.5, 1.0, -1.0, 1e4, -1e4])

scores = arrays(float, 6, elements=st.floats(-20, 20))
raw_labels = arrays(float, 6, elements=st.floats(-5, 5))
steps = st.floats(-3, 3).map(lambda exponent: 10.0**exponent)
laws = settings(deadline=None, max_examples=30)


@pytest.fixture(
    scope="module",
    params=[*CASES, *SHIFTED],
    ids=lambda case: "-".join([case[0], *map(str, case[1].values())]),
)
def law(request) -> Loss:
    name, parameters = request.param
    if request.param in SHIFTED:
        return Shifted(loss(name), np.array(parameters["offset"]))
    try:
        return loss(name, **parameters)
    except TypeError as error:
        pytest.fail(f"loss {name!r} needs parameters: add an entry to PARAMETERS here ({error})")


def labels(law: Loss, raw: np.ndarray) -> np.ndarray:
    if law.kind == "classification":
        return np.where(raw >= 0, 1.0, -1.0).astype(raw.dtype)
    raw = raw if law.accepts(raw).all() else np.abs(raw)
    if law.steep and not law.accepts(np.zeros(1)).all():
        # The best score of a smaller amount would be where e is no longer raised to it.
        raw = np.maximum(raw, raw.dtype.type(1e-20))
    return raw if law.accepts(raw).all() else raw + raw.dtype.type(0.1)


def tame(law: Loss, u: np.ndarray) -> np.ndarray:
    """Scores at which finite differences and brute force still have digits."""
    return u / 4 if law.steep else u


def grid(law: Loss, dtype: type = np.float64) -> tuple[np.ndarray, np.ndarray]:
    """Small and huge scores, each with a positive and a negative label."""
    sizes = [*HUGE, 1e300, -1e300] if np.isfinite(law.lipschitz) and dtype is np.float64 else HUGE
    u, y = np.meshgrid(sizes, [1.0, -1.0] if law.kind == "classification" else [0.7, -3.0])
    return u.ravel().astype(dtype), labels(law, y.ravel().astype(dtype))


def argmin(f, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The naive twin: minimise a convex function of each entry by trisection."""
    for _ in range(100):
        a, b = low + (high - low) / 3, high - (high - low) / 3
        left = f(a) <= f(b)
        low, high = np.where(left, low, a), np.where(left, b, high)
    return (low + high) / 2


def finite_domain(law: Loss, y: np.ndarray, reach: float = 1000.0) -> tuple[np.ndarray, np.ndarray]:
    lower, upper = law.domain(y)
    return np.maximum(lower, -reach), np.minimum(upper, reach)


# -- values and gradients --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "parameters", "u", "y", "value", "conjugate_at_slope"),
    [
        ("squared", {}, 3.0, 1.0, 2.0, 4.0),
        ("huber", {"threshold": 0.5}, 3.0, 1.0, 0.875, 0.625),
        ("huber", {"threshold": 5.0}, 3.0, 1.0, 2.0, 4.0),
        ("absolute", {}, 3.0, 5.0, 2.0, -5.0),
        ("quantile", {"level": 0.9}, 3.0, 5.0, 1.8, -4.5),
        ("quantile", {"level": 0.9}, 5.0, 3.0, 0.2, 0.3),
        ("hinge", {}, -2.0, 1.0, 3.0, -1.0),
        ("hinge", {}, -2.0, -1.0, 0.0, 0.0),
        ("squared_hinge", {}, -2.0, 1.0, 9.0, 3.0),
        ("logistic", {}, 0.0, -1.0, np.log(2), -np.log(2)),
        ("poisson", {}, 1.0, 3.0, np.e - 3, 0.0),
        ("poisson", {}, 0.0, 0.0, 1.0, -1.0),
        ("gamma", {}, 1.0, 3.0, 3 / np.e + 1, -6 / np.e),
    ],
)
def test_values_by_hand(name, parameters, u, y, value, conjugate_at_slope):
    law, u, y = loss(name, **parameters), np.array([u]), np.array([y])
    assert law.each(u, y) == pytest.approx(value, rel=1e-14)
    assert law.conjugate_each(law.gradient(u, y), y) == pytest.approx(conjugate_at_slope, rel=1e-14)


@pytest.mark.parametrize(
    ("name", "below", "above"),
    [
        ("squared", 0.5e8, 0.5e8),
        ("huber", 1.35 * (1e4 - 0.675), 1.35 * (1e4 - 0.675)),
        ("absolute", 1e4, 1e4),
        ("quantile", 5e3, 5e3),
        ("hinge", 1e4 + 1, 0.0),
        ("squared_hinge", (1e4 + 1) ** 2, 0.0),
        ("logistic", 1e4, 0.0),
    ],
)
def test_margins_and_residuals_of_1e4_are_exact(name, below, above):
    law, y = loss(name), np.array([1.0, -1.0])
    scale, centre = (y, 0) if law.kind == "classification" else (1, y)
    np.testing.assert_array_equal(law.each(centre - 1e4 * scale, y), below)
    np.testing.assert_array_equal(law.each(centre + 1e4 * scale, y), above)


def test_nothing_overflows_at_extreme_scores(law):
    u, y = grid(law)
    for result in (law.each(u, y), law.gradient(u, y), law.conjugate_each(law.gradient(u, y), y)):
        assert np.isfinite(result).all()
    assert not np.isnan(law.conjugate_each(u, y)).any()


@laws
@given(u=scores, raw=raw_labels)
def test_gradient_is_the_slope(law, u, raw):
    u, y, h = tame(law, u), labels(law, raw), 1e-5
    slope = (law.each(u + h, y) - law.each(u - h, y)) / (2 * h)
    before, after = law.gradient(u - h, y), law.gradient(u + h, y)
    assert (before <= after + 1e-12).all()
    assert (slope >= before - 1e-7).all()
    assert (slope <= after + 1e-7).all()
    assert (before <= law.gradient(u, y)).all()
    assert (law.gradient(u, y) <= after).all()


@laws
@given(a=scores, b=scores, raw=raw_labels, t=st.floats(0, 1))
def test_convex_along_segments(law, a, b, raw, t):
    y = labels(law, raw)
    chord = t * law.each(a, y) + (1 - t) * law.each(b, y)
    sizes = t * law.sizes(a, y) + (1 - t) * law.sizes(b, y)
    assert (law.each(t * a + (1 - t) * b, y) <= chord + 1e-12 * (1 + sizes)).all()


@laws
@given(a=scores, b=scores, raw=raw_labels)
def test_constants_bound_the_slopes(law, a, b, raw):
    y, distance = labels(law, raw), np.abs(a - b)
    if np.isfinite(law.lipschitz):
        assert (np.abs(law.each(a, y) - law.each(b, y)) <= law.lipschitz * distance + 1e-12).all()
    if np.isfinite(law.smoothness):
        assert (
            np.abs(law.gradient(a, y) - law.gradient(b, y)) <= law.smoothness * distance + 1e-12
        ).all()


def test_constants_are_attained(law):
    u, width = np.linspace(-40, 40, 80001, retstep=True)
    for y in (labels(law, np.ones_like(u)), labels(law, -np.ones_like(u))):
        steepest, most_bent = (
            np.abs(np.diff(f(u, y))).max() / width for f in (law.each, law.gradient)
        )
        assert steepest >= min(0.999 * law.lipschitz, 30)
        assert most_bent >= min(0.999 * law.smoothness, 100)


# -- conjugates ------------------------------------------------------------------------------------


@laws
@given(u=scores, v=scores, raw=raw_labels)
def test_fenchel_young(law, u, v, raw):
    y = labels(law, raw)
    v = np.clip(v, *law.domain(y))
    assert (
        law.each(u, y) + law.conjugate_each(v, y) >= u * v - 1e-12 * (1 + np.abs(u * v) + v**2)
    ).all()
    slope = law.gradient(u, y)
    np.testing.assert_allclose(
        law.each(u, y) + law.conjugate_each(slope, y), u * slope, rtol=1e-12, atol=1e-10
    )


@laws
@given(u=scores, raw=raw_labels)
def test_conjugate_of_the_conjugate_is_the_loss(law, u, raw):
    u, y = tame(law, u), labels(law, raw)
    v = argmin(lambda v: law.conjugate_each(v, y) - u * v, *finite_domain(law, y))
    np.testing.assert_allclose(
        u * v - law.conjugate_each(v, y), law.each(u, y), rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_conjugate_is_finite_in_the_domain_and_infinite_outside(law, dtype):
    y = grid(law, dtype)[1]
    lower, upper = law.domain(y)
    assert lower.dtype == upper.dtype == dtype
    assert (lower <= 0).all()
    assert (upper >= 0).all()
    for edge, outwards in ((lower, -np.inf), (upper, np.inf)):
        inside = np.where(np.isfinite(edge), edge, np.sign(outwards) * 1e4).astype(dtype)
        for share in (0, 0.5, 1):
            assert np.isfinite(law.conjugate_each(dtype(share) * inside, y)).all()
        # What float32 calls inside is inside for float64 too.
        assert np.isfinite(law.conjugate_each(inside.astype(float), y.astype(float))).all()
        bounded = np.isfinite(edge)
        outside = np.nextafter(edge, dtype(outwards))[bounded]
        assert (law.conjugate_each(outside, y[bounded]) == np.inf).all()
        assert (
            law.conjugate_each(edge + dtype(np.sign(outwards) * 1e30), y)[bounded] == np.inf
        ).all()


def test_logistic_conjugate_keeps_small_numbers():
    a = np.array([0.0, 1e-300, 1e-20, 1e-8, 1 - 1e-12, 1.0])
    expected = [0.0, 1e-300 * (np.log(1e-300) - 1), 1e-20 * (np.log(1e-20) - 1)]
    for y in (1.0, -1.0):
        conjugate = loss("logistic").conjugate_each(-y * a, np.full(6, y))
        np.testing.assert_allclose(conjugate[:3], expected, rtol=1e-14)
        assert conjugate[-1] == 0.0
        np.testing.assert_allclose(conjugate[-2], 1e-12 * (np.log(1e-12) - 1), rtol=1e-4)


# -- proximal maps ---------------------------------------------------------------------------------


@laws
@given(u=scores, raw=raw_labels, step=steps)
def test_dual_prox_against_brute_force(law, u, raw, step):
    y = labels(law, raw)
    v = law.dual_prox(u, y, step)
    brute = argmin(
        lambda v: step * law.conjugate_each(v, y) + (v - u) ** 2 / 2, *finite_domain(law, y)
    )
    np.testing.assert_allclose(v, brute, rtol=1e-6, atol=1e-5)


@laws
@given(u=scores, raw=raw_labels, step=steps)
def test_prox_against_brute_force(law, u, raw, step):
    y = labels(law, raw)
    reach = 30 + step * np.minimum(law.lipschitz, 100)
    brute = argmin(lambda x: law.each(x, y) + (x - u) ** 2 / (2 * step), u - reach, u + reach)
    np.testing.assert_allclose(law.prox(u, y, step), brute, rtol=1e-6, atol=1e-5)


@laws
@given(u=scores, raw=raw_labels, step=steps)
def test_moreau(law, u, raw, step):
    y = labels(law, raw)
    x, v = law.prox(u, y, step), law.dual_prox(u / step, y, 1 / step)
    np.testing.assert_allclose(x + step * v, u, rtol=1e-11, atol=1e-11 * (1 + step))
    np.testing.assert_allclose(Loss.prox(law, u, y, step), x, rtol=1e-11, atol=1e-11 * (1 + step))


@pytest.mark.parametrize("step", STEPS)
def test_prox_at_extreme_steps_and_scores(law, step):
    # x = prox_{sℓ}(u) and v = prox_{ℓ*/s}(u/s) are a pair with v ∈ ∂ℓ(x), that is ℓ(x) + ℓ*(v) = x
    # v.
    u, y = grid(law)
    u, y = u[np.abs(u) <= 1e4], y[np.abs(u) <= 1e4]
    x, v = law.prox(u, y, step), law.dual_prox(u / step, y, 1 / step)
    value, conjugate = law.each(x, y), law.conjugate_each(v, y)
    sizes = law.sizes(x, y) + np.abs(conjugate) + np.abs(x * v)
    assert (np.abs(value + conjugate - x * v) <= 1e-11 * (1 + sizes)).all()
    added = np.abs(getattr(law, "offset", 0.0))
    assert (
        np.abs(x + step * v - u) <= 1e-11 * (added + np.abs(u) + np.abs(x) + step * np.abs(v))
    ).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("step", STEPS)
def test_dual_prox_lies_in_the_domain_exactly(law, step, dtype):
    u, y = grid(law, dtype)
    v = law.dual_prox(u, y, step)
    lower, upper = law.domain(y)
    assert ((lower <= v) & (v <= upper)).all()
    assert np.isfinite(law.conjugate_each(v, y)).all()
    assert np.isfinite(law.conjugate_each(v.astype(float), y.astype(float))).all()
    assert np.isfinite(law.prox(u, y, step)).all()


@laws
@given(u=scores, raw=raw_labels, step=arrays(float, 6, elements=steps))
def test_one_step_per_sample(law, u, raw, step):
    y = labels(law, raw)
    for prox in (law.prox, law.dual_prox):
        one_by_one = [prox(u[[i]], y[[i]], float(step[i]))[0] for i in range(len(u))]
        np.testing.assert_array_equal(prox(u, y, step), one_by_one)


def exact_root(q: float, alpha: float, beta: float) -> tuple[Decimal, Decimal]:
    """t and σ(t) with α t + β σ(t) = q, by bisection with 60 digits."""
    with localcontext() as context:
        context.prec = 60
        q_, alpha_, beta_ = Decimal(q), Decimal(alpha), Decimal(beta)
        low, high = (q_ - beta_) / alpha_, q_ / alpha_

        def sigma(t: Decimal) -> Decimal:
            return 1 / (1 + (-t).exp()) if t > 0 else t.exp() / (1 + t.exp())

        while high - low > Decimal(10) ** -25 * max(abs(low), abs(high), Decimal(10) ** -20):
            t = (low + high) / 2
            low, high = (low, t) if alpha_ * t + beta_ * sigma(t) > q_ else (t, high)
        return low, sigma(low)


@pytest.mark.parametrize("step", [1e-10, 1e-6, 1e-3, 0.5, 1.0, 30.0, 1e6, 1e10])
@pytest.mark.parametrize("y", [1.0, -1.0])
def test_logistic_prox_is_exact(step, y):
    law = loss("logistic")
    for u in (
        np.array(
            [0.0, -1e-12, 1e-9, -0.3, -0.5, -1 + 1e-11, -1.2, 3.0, -80.0, 1e4, -1e4, -0.37 * step]
        )
        * y
    ):
        at = (np.array([u]), np.array([y]), step)
        _, a = exact_root(-y * u, step, 1.0)
        # Below 1e-300 only the size matters; a result near ±1 cannot be closer than its last bit.
        assert (
            float(abs(Decimal(float(-y * law.dual_prox(*at)[0])) - a)) <= 1e-12 * float(a) + 1e-300
        )
        t, _ = exact_root(-y * u, 1.0, step)
        assert float(abs(Decimal(float(-y * law.prox(*at)[0])) - t)) <= 1e-13 * max(
            1.0, abs(float(t))
        )


def test_logistic_prox_of_random_points_has_no_residual():
    rng = np.random.default_rng(0)
    y, step = rng.choice([-1.0, 1.0], 10**5), 10 ** rng.uniform(-10, 10, 10**5)
    u = rng.choice([-1, 1], 10**5) * 10 ** rng.uniform(-12, 4, 10**5)
    t = -y * loss("logistic").prox(u, y, step)
    residual = t + step * expit(t) + y * u
    assert (np.abs(residual) <= 1e-12 * (np.abs(t) + step * expit(t) + np.abs(u))).all()


# -- sums, manners, parameters ---------------------------------------------------------------------


@laws
@given(u=scores, raw=raw_labels, weights=arrays(float, 6, elements=st.floats(0.1, 9)))
def test_sums_not_means(law, u, raw, weights):
    y = labels(law, raw)
    v = law.gradient(u, y)
    for total, each, x in ((law.value, law.each, u), (law.conjugate, law.conjugate_each, v)):
        assert total(np.tile(x, 3), np.tile(y, 3)) == pytest.approx(
            3 * total(x, y), rel=1e-12, abs=1e-12
        )
        assert total(x[:2], y[:2]) + total(x[2:], y[2:]) == pytest.approx(
            total(x, y), rel=1e-12, abs=1e-12
        )
        assert total(x, y, weights) == pytest.approx(
            sum(weights * each(x, y)), rel=1e-12, abs=1e-12
        )
        assert total(x[:0], y[:0]) == 0.0


def test_sums_of_float32_are_made_in_float64(law):
    y = labels(law, np.full(200_000, -3, np.float32))
    u, ones = np.full_like(y, 0.1), np.ones_like(y)
    each = float(law.each(u[:1], y[:1])[0])
    assert law.value(u, y) == pytest.approx(len(y) * each, rel=1e-12)
    assert law.value(u, y, ones) == pytest.approx(len(y) * each, rel=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_arguments_are_kept_and_so_is_their_precision(law, dtype):
    u, y = grid(law, dtype)
    step = np.full_like(u, 0.7)
    for array in (u, y, step):
        array.flags.writeable = False
    results = [law.each(u, y), law.gradient(u, y), law.conjugate_each(u, y), *law.domain(y)]
    results += [prox(u, y, s) for prox in (law.prox, law.dual_prox) for s in (0.7, step)]
    for result in results:
        assert result.dtype == dtype
        assert result.shape == u.shape
        assert result.flags.writeable
        assert not np.shares_memory(result, u)
        assert not np.shares_memory(result, y)


def test_amounts_that_are_hardly_numbers_have_a_prox():
    y, u = np.full(3, 2e-311), np.array([0.0, -1.0, 2.0])
    x = loss("gamma").prox(u, y, 1.0)
    np.testing.assert_allclose(x, u - 1.0, atol=1e-12)


def test_settings_make_the_loss_again(law):
    law = getattr(law, "base", law)  # offsets are data
    assert loss(**json.loads(json.dumps(law.settings()))) == law
    assert law.kind in ("regression", "classification")


@pytest.mark.parametrize("bad", [0, -1.0, np.nan, np.inf, "1", None])
def test_huber_refuses_a_threshold_that_is_not_positive(bad):
    with pytest.raises(
        InvalidProblem, match=r"huber threshold must be a positive number.*use 'squared'"
    ):
        loss("huber", threshold=bad)


@pytest.mark.parametrize("bad", [0, 1, -0.1, 90, np.nan, "0.5", None])
def test_quantile_refuses_a_level_outside_0_and_1(bad):
    with pytest.raises(
        InvalidProblem, match=r"quantile level must lie strictly between 0 and 1.*median"
    ):
        loss("quantile", level=bad)


def test_parameters_from_numpy_become_plain_numbers():
    assert (
        json.dumps(loss("huber", threshold=np.float32(2)).settings())
        == '{"name": "huber", "threshold": 2.0}'
    )
    assert loss("quantile", level=np.float32(0.5)) == loss("quantile")


# -- Fenchel–Young terms: what gaps are made of ----------------------------------------------------


def inside(law: Loss, y: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Duals in the domain: a share of the way from one end to the other, where ends at infinity are
    30.
    """
    lower, upper = law.domain(y)
    low, high = np.maximum(lower, -30.0), np.minimum(upper, 30.0)
    return low + share * (high - low)


@given(u=scores, raw=raw_labels, share=arrays(float, 6, elements=st.floats(0, 1)))
@laws
def test_fenchel_young_is_the_sum_of_its_parts(law, u, raw, share):
    y = labels(law, raw)
    v = np.clip(inside(law, y, share), *law.domain(y))
    parts = law.each(u, y) + law.conjugate_each(v, y) - u * v
    terms = law.fenchel_young_each(u, v, y)
    assert (terms >= 0).all()
    np.testing.assert_allclose(
        terms, parts, rtol=1e-9, atol=1e-12 * (1 + np.abs(u * v).max() + np.abs(parts).max())
    )
    assert law.fenchel_young(u, v, y, share) == pytest.approx(float(share @ terms))


@given(u=scores, raw=raw_labels)
@laws
def test_fenchel_young_is_zero_at_the_slope_and_nowhere_below(law, u, raw):
    y = labels(law, raw)
    slope = np.clip(law.gradient(u, y), *law.domain(y))
    assert np.abs(law.fenchel_young_each(u, slope, y)).max() <= 1e-14 * (
        1 + np.abs(u).max() + np.abs(y).max()
    )


def test_fenchel_young_outside_the_domain_is_infinite(law):
    y = labels(law, np.array([1.0, -1.0]))
    lower, upper = law.domain(y)
    for beyond in (upper + 0.1, lower - 0.1):
        outside = np.isfinite(beyond)
        assert np.isinf(law.fenchel_young_each(np.zeros(2), np.where(outside, beyond, 0.0), y))[
            outside
        ].all()


@pytest.mark.parametrize("distance", [1e-1, 1e-4, 1e-7, 1e-10])
def test_fenchel_young_keeps_its_digits_near_the_slope(law, distance):
    """There ℓ + ℓ* − u v is a difference of large numbers; its size is about (distance)² / 2 over
    the curvature.
    """
    if not law.smooth:
        pytest.skip("a kink has no curvature")
    u = np.array([0.3, -0.4, 0.2, 0.1])
    y = (
        labels(law, np.array([1.0, -1.0, 1.0, 1.0]))
        if law.kind == "classification"
        else np.exp(u - 0.1)
        if law.steep
        else u - 0.1
    )
    try:
        slope, curve = law.gradient(u, y), law.curvature(u, y)
    except InvalidProblem:
        pytest.skip("it does not say how curved it is")
    v = slope * (1 - distance)
    expected = 0.5 * (slope - v) ** 2 / curve
    # Beside a label, the dual of a steep loss loses digits before it arrives here.
    rounding = 1e-4 if law.steep else 1e-5
    np.testing.assert_allclose(
        law.fenchel_young_each(u, v, y), expected, rtol=4 * distance + rounding
    )


def test_an_error_in_the_scores_costs_no_more_than_the_distance_of_the_slopes(law):
    rng = np.random.default_rng(0)
    u = rng.uniform(-3, 3, 200)
    y = labels(law, rng.uniform(-2, 2, 200))
    v = np.clip(inside(law, y, rng.random(200)), *law.domain(y))
    for error in (1e-1, 1e-3, 1e-6):
        moved = law.fenchel_young_each(u + error * rng.choice([-1, 1], 200), v, y)
        curved = law.curvature_near(u, y, error) * error**2 if law.smooth else 0.0
        distance = (
            np.abs(law.gradient(u, y) - v) if law.smooth else np.subtract(*law.domain(y)[::-1])
        )
        allowed = distance * error + curved
        assert (
            np.abs(moved - law.fenchel_young_each(u, v, y)) <= allowed * (1 + 1e-9) + 1e-12
        ).all()


@given(u=scores, raw=raw_labels, shift=st.floats(-100, 100))
@laws
def test_a_loss_that_moves_with_labels_does(law, u, raw, shift):
    if not law.moves_with_labels:
        pytest.skip("it does not say so")
    y = labels(law, raw)
    moved, expected = law.each(u + shift, y + shift), law.each(u, y)
    np.testing.assert_allclose(
        moved, expected, atol=1e-12 * (1 + np.abs(u).max() + np.abs(y).max() + 100) ** 2
    )


def test_the_best_constant_is_the_best(law):
    rng = np.random.default_rng(1)
    y = labels(law, rng.uniform(-2, 3, 50))
    constant = law.constant(float(y.mean()))
    if constant is None:
        pytest.skip("it does not follow from the mean label")
    least = law.value(np.full(50, constant), y)
    for other in np.linspace(-5, 5, 401):
        assert least <= law.value(np.full(50, other), y) + 1e-9
