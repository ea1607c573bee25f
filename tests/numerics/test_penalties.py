"""The laws that every penalty obeys; a new file in `coterie/penalties` is tested here without
further ado.
"""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse.linalg import aslinearoperator

from coterie.errors import InvalidProblem
from coterie.numerics.penalties import PENALTIES, Penalty, penalty
from coterie.numerics.penalties.ball import Ball
from coterie.numerics.penalties.box import Bounds, Box

# The parameters a penalty is tested with, for six coefficients (a 3 × 2 matrix for those in
# MATRICES).
PARAMETERS = {
    "none": [{}],
    "l1": [{"strength": 0.4}],
    "l2": [{"strength": 0.4}],
    "elasticnet": [{"strength": 0.4, "l1_ratio": ratio} for ratio in (0.3, 0.0, 1.0)],
    "group": [{"strength": 0.4, "groups": (7, -1, 7, 3, 3, 3)}],
    "box": [
        {"lower": -1.0, "upper": 0.1},
        {
            "lower": (-1.0, -math.inf, 0.0, 0.7, -math.inf, 0.25),
            "upper": (math.inf, 0.7, 0.0, 0.8, math.inf, 0.25),
        },
        {"lower": -math.inf, "upper": (1.0, 2.0, -0.1, 0.0, 1.0, 5.0)},
    ],
    "nonnegative": [{}],
    "columnwise": [
        {"strength": 0.4, "l1": (1.0, 0.3, 2.0, 0.5, 1.5, 0.1)},
        {"strength": 0.4, "l2": (1.0, 0.3, 2.0, 0.5, 1.5, 0.1)},
        {"strength": 0.4, "l1": (1.0, 0.0, 2.0, 0.0, 0.0, 1.0), "l2": (0.0, 0.0, 0.5, 1.0, 2.0, 0)},
        {
            "strength": 0.4,
            "l1": (1.0, 0.0, 2.0, 0.0, 0.0, 1.0),
            "l2": (0.0, 0.0, 0.5, 1.0, 2.0, 0.0),
            "lower": (-1.0, 0.0, -math.inf, 0.3, -0.5, -0.1),
            "upper": (math.inf, math.inf, 0.4, 0.7, 0.5, math.inf),
        },
        {"l1": 0.3, "l2": 0.2, "upper": 0.5},
    ],
    "l1ball": [{"radius": 1.3}],
    "traceball": [{"radius": 1.3}],
}
MATRICES = {"traceball"}
CASES = [(name, parameters) for name in PENALTIES for parameters in PARAMETERS.get(name, [{}])]

# Numbers that would underflow when scaled are left out.
vectors = arrays(float, 6, elements=st.floats(-4, 4).map(lambda x: x if abs(x) > 1e-12 else 0.0))
steps = st.floats(-1, 1).map(lambda exponent: 10.0**exponent)
laws = settings(deadline=None, max_examples=30)


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case[0])
def law(request) -> Penalty:
    name, parameters = request.param
    try:
        return penalty(name, **parameters)
    except TypeError as error:
        pytest.fail(
            f"penalty {name!r} needs parameters: add some for six coefficients to PARAMETERS here "
            f"({error})"
        )


def shaped(law: Penalty, vector: np.ndarray) -> np.ndarray:
    return vector.reshape(3, 2) if law.name in MATRICES else vector


# -- values and conjugates -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "parameters", "value", "conjugate"),
    [
        ("none", {}, 0.0, math.inf),
        ("l2", {"strength": 0.5}, 6.25, 25.0),
        ("l1", {"strength": 0.5}, 3.5, math.inf),
        ("l1", {"strength": 4.0}, 28.0, 0.0),
        ("elasticnet", {"strength": 0.5, "l1_ratio": 0.25}, 5.5625, (2.875**2 + 3.875**2) / 0.75),
        ("group", {"strength": 0.5, "groups": [0, 0]}, math.sqrt(12.5), math.inf),
        ("group", {"strength": 4.0, "groups": [1, 1]}, 20 * math.sqrt(2), 0.0),
        ("group", {"strength": 4.0, "groups": [0, 1]}, 28.0, 0.0),
        ("box", {"lower": [0, -5], "upper": 3}, 0.0, 29.0),
        ("box", {"lower": 0, "upper": 3}, math.inf, 9.0),
        ("nonnegative", {}, math.inf, math.inf),
        ("l1ball", {"radius": 7.0}, 0.0, 28.0),
        ("l1ball", {"radius": 6.9}, math.inf, 27.6),
    ],
)
def test_values_by_hand(name, parameters, value, conjugate):
    law, w = penalty(name, **parameters), np.array([3.0, -4.0])
    assert law.value(w) == pytest.approx(value, rel=1e-14)
    assert law.conjugate(w) == pytest.approx(conjugate, rel=1e-14)


def test_values_of_the_trace_ball_by_hand():
    w = np.array([[0.0, 3.0], [-4.0, 0.0]])
    assert penalty("traceball", radius=7.0).value(w) == 0.0
    assert penalty("traceball", radius=6.9).value(w) == math.inf
    assert penalty("traceball", radius=2.0).conjugate(w) == pytest.approx(8.0)
    with pytest.raises(InvalidProblem, match="needs a matrix"):
        penalty("traceball", radius=1.0).value(w[0])


@laws
@given(a=vectors, u=vectors)
def test_fenchel_young_inequality(law, a, u):
    a, u = shaped(law, a), shaped(law, u)
    for w in (a, law.prox(a, 1.0)):
        for v in (u, law.scale_into_domain(u) * u):
            assert law.value(w) + law.conjugate(v) >= np.vdot(w, v) - 1e-9


@laws
@given(w=vectors, step=steps | arrays(float, 6, elements=steps))
def test_prox_is_optimal(law, w, step):
    # p = prox_{sg}(w) exactly where (w − p)/s ∈ ∂g(p), that is g(p) + g*(u) = ⟨p, u⟩ for u = (w −
    # p)/s.
    w = shaped(law, w)
    if isinstance(step, np.ndarray):
        wished = shaped(law, step)
        step = law.tied(wished)
        assert (step <= wished).all()
        assert not law.separable or (step == wished).all()
    p = law.prox(w, step)
    u = (w - p) / step
    c = law.scale_into_domain(u)
    assert c >= 1 - 1e-9
    assert law.value(p) + law.conjugate(c * u) == pytest.approx(np.vdot(p, u), rel=1e-8, abs=1e-8)


@laws
@given(a=vectors, b=vectors, t=st.floats(0, 1))
def test_convex_along_segments(law, a, b, t):
    a, b = law.prox(shaped(law, a), 1.0), law.prox(shaped(law, b), 1.0)
    bend = law.strong_convexity / 2 * t * (1 - t) * np.vdot(a - b, a - b)
    assert law.value(t * a + (1 - t) * b) <= t * law.value(a) + (1 - t) * law.value(b) - bend + 1e-9


@pytest.mark.parametrize(("ratio", "expected"), [(0.0, 2.0), (0.25, 1.5), (1.0, 0.0)])
def test_strong_convexity_by_hand(ratio, expected):
    assert penalty("elasticnet", strength=2.0, l1_ratio=ratio).strong_convexity == expected
    assert penalty("l2", strength=2.0).strong_convexity == 2.0


# -- the way into the domain of the conjugate ------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@laws
@given(u=vectors, scale=st.sampled_from([0.0, 1e-3, 0.1, 1.0, 1e3]))
def test_scale_into_domain(law, u, scale, dtype):
    u = (scale * shaped(law, u)).astype(dtype)
    c = law.scale_into_domain(u)
    assert 0 <= c <= 1
    assert law.conjugate(c * u) < math.inf
    assert law.conjugate((c * u).astype(float)) < math.inf
    # On the very edge, c stays on the safe side of rounding.
    assert c > 1 - 1e-6 if law.conjugate(u) < math.inf else c < 1
    if c < 1:
        assert law.conjugate(max(1.0001 * c, 1e-6) * u.astype(float)) == math.inf
        assert c > 0 or not law.coercive


def test_a_penalty_that_does_not_grow_says_so(law):
    corners = [shaped(law, sign * row) for row in np.eye(6) for sign in (1e3, -1e3)]
    assert law.coercive == all(law.scale_into_domain(corner) > 0 for corner in corners)


@pytest.mark.parametrize("name", ["l1", "group"])
def test_rounding_does_not_leave_the_domain(name):
    law = penalty(
        **{"name": name, "strength": 0.1, **({"groups": (0, 1)} if name == "group" else {})}
    )
    edge = np.array([0.1, -0.1])
    assert law.conjugate(edge * (1 + 1e-13)) == 0.0
    assert law.bounded_conjugate(edge * (1 + 1e-13), 10.0) == 0.0
    assert law.conjugate(edge * (1 + 1e-11)) == math.inf


@laws
@given(u=vectors, w=vectors, radius=st.floats(0.1, 20))
def test_bounded_conjugate_bounds(law, u, w, radius):
    u, w = shaped(law, u), shaped(law, w)
    bound = law.bounded_conjugate(u, radius)
    assert math.isfinite(bound)
    assert bound <= law.conjugate(u) + 1e-12 * (1 + abs(bound))
    for x in (w, law.prox(w, 1.0), 0 * w):
        x = x * min(1.0, radius / max(np.linalg.norm(x), 1e-300))
        assert bound >= np.vdot(u, x) - law.value(x) - 1e-9


@laws
@given(u=vectors, radius=st.floats(0.1, 20))
def test_bounded_conjugate_is_attained(law, u, radius):
    # The best w in the ball is prox_{g/μ}(u/μ), with μ ≥ 0 such that it just fits: u − μw ∈ ∂g(w).
    u = shaped(law, u)
    low, high = 1e-9, 1e9
    for _ in range(100):
        mu = math.sqrt(low * high)
        w = law.prox(u / mu, 1 / mu)
        low, high = (mu, high) if np.linalg.norm(w) > radius else (low, mu)
    if np.linalg.norm(w) <= radius * (1 + 1e-9):
        attained, bound = np.vdot(u, w) - law.value(w), law.bounded_conjugate(u, radius)
        assert attained <= bound + 1e-6
        # For balls and general boxes it is an upper bound; for the others it is the supremum
        # itself.
        if not isinstance(law, Ball | Box) or law.name == "nonnegative":
            assert attained == pytest.approx(bound, rel=1e-6, abs=1e-6)


# -- projections -----------------------------------------------------------------------------------


@laws
@given(a=vectors, b=vectors, step=steps)
def test_prox_is_nonexpansive(law, a, b, step):
    a, b = shaped(law, a), shaped(law, b)
    contraction = 1 / (1 + step * law.strong_convexity)
    moved = np.linalg.norm(law.prox(a, step) - law.prox(b, step))
    assert moved <= contraction * np.linalg.norm(a - b) * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@laws
@given(w=vectors, scale=st.sampled_from([1e-3, 1.0, 1e8]))
def test_projections_are_feasible_and_idempotent(law, w, scale, dtype):
    if not isinstance(law, Ball | Bounds):
        return
    w = shaped(law, (scale * w).astype(dtype))
    p = law.prox(w, 3.0)
    assert law.value(p) == 0.0
    rounding = 8 * np.finfo(dtype).eps
    np.testing.assert_allclose(law.prox(p, 0.1), p, rtol=rounding, atol=rounding)
    if law.value(w) == 0.0:
        np.testing.assert_allclose(p, w, rtol=1e-8, atol=1e-8)
    # What is feasible in float32 is so in float64.
    assert law.value(p.astype(float)) == 0.0


def test_a_box_too_thin_for_float32_holds_the_nearest_number():
    law = penalty("box", lower=0.3, upper=0.3)
    p = law.prox(np.array([5.0, -5.0], np.float32), 1.0)
    np.testing.assert_array_equal(p, np.float32(0.3))
    assert law.value(p) == 0.0


def test_rounding_does_not_leave_the_box():
    law = penalty("box", lower=0.1, upper=math.inf)
    assert law.value(np.array([0.1 * (1 - 1e-12)])) == 0.0
    assert law.value(np.array([0.1 * (1 - 1e-8)])) == math.inf
    assert penalty("nonnegative").value(np.array([-1e-300])) == math.inf


def test_l1_projection_of_something_far_away():
    w = 1e12 + np.array([0.0, -0.25, -0.5, -3.0, -1e11])
    np.testing.assert_allclose(
        penalty("l1ball", radius=1.5).prox(w, 1.0), [0.75, 0.5, 0.25, 0, 0], rtol=1e-4
    )
    assert penalty("l1ball", radius=1.5).value(penalty("l1ball", radius=1.5).prox(w, 1.0)) == 0.0


# -- linear oracles --------------------------------------------------------------------------------


def balls() -> list[str]:
    return [name for name in PENALTIES if issubclass(PENALTIES[name], Ball)]


@pytest.mark.parametrize("name", balls())
@laws
@given(gradient=vectors, point=vectors)
def test_linear_oracles_beat_every_feasible_point(name, gradient, point):
    law = penalty(name, **PARAMETERS[name][0])
    gradient = shaped(law, gradient)
    atom = law.lmo(gradient)
    dense = atom.dense()
    assert dense.shape == gradient.shape
    assert law.norm(dense) == pytest.approx(law.radius, rel=1e-12)
    assert atom.inner(gradient) == pytest.approx(np.vdot(dense, gradient), rel=1e-9, abs=1e-12)
    assert atom.inner(gradient) == pytest.approx(-law.conjugate(gradient), rel=1e-9, abs=1e-12)
    assert atom.inner(gradient) <= np.vdot(gradient, law.prox(shaped(law, point), 1.0)) + 1e-9


@pytest.mark.parametrize("name", balls())
def test_linear_oracles_know_what_to_do_with_zero(name):
    law = penalty(name, **PARAMETERS[name][0])
    for gradient in [np.zeros((40, 50)), np.zeros((2, 3))] if name in MATRICES else [np.zeros(5)]:
        atom = law.lmo(gradient)
        assert atom.inner(gradient) == 0.0
        assert law.norm(atom.dense()) == pytest.approx(law.radius)


@pytest.mark.parametrize("shape", [(1, 1), (1, 70), (4, 60), (60, 4), (45, 60), (60, 45)])
@pytest.mark.parametrize("form", [np.asarray, aslinearoperator, sp.csr_matrix])
@pytest.mark.parametrize("scale", [1.0, 1e-200])
def test_trace_oracle_on_matrices_and_operators(shape, form, scale):
    matrix = scale * np.random.default_rng(3).standard_normal(shape)
    law = penalty("traceball", radius=2.0)
    atom, again = law.lmo(form(matrix)), law.lmo(form(matrix))
    assert atom.inner(form(matrix)) == pytest.approx(-2.0 * np.linalg.norm(matrix, 2), rel=1e-10)
    assert np.linalg.norm(atom.u) == pytest.approx(1)
    assert np.linalg.norm(atom.v) == pytest.approx(1)
    np.testing.assert_array_equal(atom.dense(), again.dense())


@pytest.mark.parametrize(
    "matrix", [np.eye(50), np.diag(np.r_[np.ones(20), np.full(30, 1 - 1e-10)])]
)
def test_trace_oracle_on_repeated_singular_values(matrix):
    assert penalty("traceball", radius=1.0).lmo(matrix).inner(matrix) == pytest.approx(
        -1.0, rel=1e-9
    )


# -- columns ---------------------------------------------------------------------------------------


@laws
@given(w=vectors, u=vectors, step=steps)
def test_parts_add_up(law, w, u, step):
    parts = [np.array([2, 0]), np.array([], np.intp), np.array([1]), np.array([5, 3, 4])]
    if isinstance(law, Ball):
        with pytest.raises(InvalidProblem, match="Split by samples"):
            law.restrict(parts[0])
        return
    pieces, p = [law.restrict(part) for part in parts], law.prox(w, step)
    assert sum(
        piece.value(p[part]) for piece, part in zip(pieces, parts, strict=True)
    ) == pytest.approx(law.value(p))
    assert sum(
        piece.conjugate(u[part]) for piece, part in zip(pieces, parts, strict=True)
    ) == pytest.approx(law.conjugate(u))
    assert min(
        piece.scale_into_domain(u[part]) for piece, part in zip(pieces, parts, strict=True)
    ) == pytest.approx(law.scale_into_domain(u))
    for piece, part in zip(pieces, parts, strict=True):
        np.testing.assert_allclose(piece.prox(w[part], step), p[part], rtol=1e-14)
        assert math.isfinite(piece.bounded_conjugate(u[part], 1.0))


def test_a_group_must_not_be_cut():
    law = penalty("group", strength=1.0, groups=(7, -1, 7, 3))
    with pytest.raises(InvalidProblem, match=r"group 7 is cut: 1 of its 2 columns.*whole groups"):
        law.restrict(np.array([0, 1]))
    assert law.restrict(np.array([2, 3, 0])) == penalty("group", strength=1.0, groups=(7, 3, 7))


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("group", {"strength": 1.0, "groups": (0, 1)}), ("box", {"lower": (0, 0), "upper": 1})],
)
def test_the_number_of_columns_is_checked(name, parameters):
    law = penalty(name, **parameters)
    for call in (law.value, law.conjugate, lambda w: law.prox(w, 1.0)):
        with pytest.raises(InvalidProblem, match=r"Give one \w+ per column"):
            call(np.zeros(3))


# -- manners and parameters ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_arguments_are_kept_and_so_is_their_precision(law, dtype):
    for scale in (1e-3, 1.0, 1e3):
        w = shaped(law, (scale * np.array([1.1, -2, 0, 3, -0.4, 5])).astype(dtype))
        w.flags.writeable = False
        for step in (0.3, np.float64(0.3)):
            p = law.prox(w, step)
            assert p.dtype == dtype
            assert p.shape == w.shape
            assert p.flags.writeable
            assert not np.shares_memory(p, w)
        numbers = [
            law.value(w),
            law.conjugate(w),
            law.scale_into_domain(w),
            law.bounded_conjugate(w, 2.0),
        ]
        assert all(type(number) is float for number in numbers)


@pytest.mark.parametrize("name", ["l1", "l2", "elasticnet", "group"])
def test_float32_is_summed_in_float64(name):
    w = np.full(200_000, 0.1, np.float32)
    law = penalty(name, strength=1.0, **({"groups": (0,) * len(w)} if name == "group" else {}))
    assert law.value(w) == pytest.approx(law.value(w.astype(float)), rel=1e-14)


def test_settings_make_the_penalty_again(law):
    again = penalty(**json.loads(json.dumps(law.settings())))
    assert again == law
    assert hash(again) == hash(law)


@pytest.mark.parametrize(
    "name", [name for name in PENALTIES if "strength" in PENALTIES[name].__dataclass_fields__]
)
@pytest.mark.parametrize("bad", [0, -1.0, math.nan, math.inf, "1", None])
def test_strength_must_be_positive(name, bad):
    with pytest.raises(
        InvalidProblem, match=f"{name} strength must be a positive number.*use 'none'"
    ):
        penalty(name, **{**PARAMETERS.get(name, [{}])[0], "strength": bad})


@pytest.mark.parametrize("name", balls())
@pytest.mark.parametrize("bad", [0, -1.0, math.nan, math.inf, "1", None])
def test_radius_must_be_positive(name, bad):
    with pytest.raises(InvalidProblem, match=f"{name} radius must be a positive number.*'none'"):
        penalty(name, radius=bad)


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("elasticnet", {"strength": 1.0, "l1_ratio": 1.1}, "l1_ratio must lie between 0 .* and 1"),
        (
            "elasticnet",
            {"strength": 1.0, "l1_ratio": math.nan},
            "l1_ratio must lie between 0 .* and 1",
        ),
        (
            "elasticnet",
            {"strength": 1.0, "l1_ratio": "half"},
            "l1_ratio must lie between 0 .* and 1",
        ),
        ("group", {"strength": 1.0, "groups": (0, 0.5)}, "one whole number per column"),
        ("group", {"strength": 1.0, "groups": 3}, "one whole number per column"),
        ("box", {"lower": 1.0, "upper": 0.0}, "the box is empty: lower is 1.0, upper is 0.0"),
        ("box", {"lower": (0.0, 1.0), "upper": (1.0, 0.5)}, "the box is empty at column 1"),
        ("box", {"lower": math.inf, "upper": math.inf}, "a finite number between"),
        ("box", {"lower": -math.inf, "upper": -math.inf}, "a finite number between"),
        ("box", {"lower": math.nan, "upper": 1.0}, "must be a number, or one number per column"),
        ("box", {"lower": "low", "upper": 1.0}, "must be a number, or one number per column"),
        ("box", {"lower": (0.0, 0.0), "upper": (1.0, 1.0, 1.0)}, "2 lower and 3 upper bounds"),
    ],
)
def test_parameter_errors_name_the_fix(name, parameters, message):
    with pytest.raises(InvalidProblem, match=message):
        penalty(name, **parameters)


def test_parameters_from_numpy_and_lists_become_plain():
    law = penalty("group", strength=np.float32(0.5), groups=np.array([1, 1, 2]))
    assert json.dumps(law.settings()) == '{"name": "group", "strength": 0.5, "groups": [1, 1, 2]}'
    law = penalty("box", lower=[0, np.float32(1)], upper=np.array([2.0, np.inf]))
    assert law == Box(lower=(0.0, 1.0), upper=(2.0, math.inf))
    with pytest.raises(TypeError):
        penalty("nonnegative", lower=1.0)


# -- Fenchel–Young: what gaps are made of ----------------------------------------------------------


@given(vectors, vectors, st.sampled_from([0.0, 1e-9, 1e-3]))
@laws
def test_fenchel_young_is_the_sum_of_its_parts_and_allows_for_errors(law, w, u, error):
    w, u = shaped(law, law.prox(shaped(law, w), 1e-6)), shaped(law, u)
    c = law.scale_into_domain(u, error)
    u = c * u
    term = law.fenchel_young(w, u, c * error)
    rng = np.random.default_rng(0)
    for off in (0.0, 1.0, -1.0, *rng.uniform(-1, 1, (3, 1)).ravel()):
        moved = u + 0.999 * c * error * off
        parts = law.value(w) + law.conjugate(moved) - float(np.vdot(moved, w))
        if math.isfinite(parts):
            assert parts <= term + 1e-12 * (1 + abs(parts))
            if error == 0.0:
                assert term == pytest.approx(max(parts, 0.0), abs=1e-11, rel=1e-6)


@given(vectors, vectors)
@laws
def test_bounded_fenchel_young_is_the_sum_of_its_parts(law, w, u):
    if law.name in MATRICES:
        return
    w = law.prox(w, 1e-6)
    radius = 10.0 * float(np.linalg.norm(w)) + 1.0
    parts = law.value(w) + law.bounded_conjugate(u, radius) - float(u @ w)
    assert law.bounded_fenchel_young(w, u, radius) >= parts - 1e-11 * (1 + abs(parts))
    rng = np.random.default_rng(0)
    for _ in range(5):
        other = law.prox(radius * rng.uniform(-0.4, 0.4, 6), 1e-6)
        if float(np.linalg.norm(other)) <= radius:
            assert law.value(w) + float(u @ other) - law.value(other) - float(u @ w) <= (
                law.bounded_fenchel_young(w, u, radius) + 1e-9
            )


def test_fenchel_young_keeps_its_digits_at_the_optimum():
    """Large coefficients and slopes that fit each other: the parts are 1e6, the term is nothing."""
    w = np.array([1e6, -2e6, 0.0, 3.0])
    assert penalty("l1", strength=0.4).fenchel_young(w, 0.4 * np.sign(w)) <= 1e-8
    assert penalty("l2", strength=0.4).fenchel_young(w, 0.4 * w) <= 1e-16
    group = penalty("group", strength=0.4, groups=(0, 0, 1, 1))
    u = np.concatenate([0.4 * np.sqrt(2) * part / np.linalg.norm(part) for part in (w[:2], w[2:])])
    assert group.fenchel_young(w, u * (1 - 1e-15)) <= 1e-7
