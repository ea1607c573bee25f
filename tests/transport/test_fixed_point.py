"""Sums of whole numbers: exact in any order, rounded once, and nothing wraps."""

import math
from fractions import Fraction
from types import SimpleNamespace

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coterie as co
from coterie.methods.largest import largest
from coterie.numerics.kernels import fixed_point
from coterie.run.bill import Bill
from coterie.transport.in_process import InProcess
from coterie.transport.links import Tag
from coterie.transport.sums import ExactSums

TAG = Tag("rounds", 1, "Sum")
MODULUS = 2**192


def integers_of(words):
    """The whole numbers that the words stand for, by Python's own arithmetic."""
    found = [
        sum(int(collective) << (64 * k) for k, collective in enumerate(row))
        for row in words.reshape(-1, 3)
    ]
    return [one - MODULUS if one >= MODULUS // 2 else one for one in found]


def words_of(integers):
    rows = [[(one % MODULUS) >> (64 * k) & (2**64 - 1) for k in range(3)] for one in integers]
    return np.array(rows, np.uint64).reshape(-1)


def encoded(x):
    words = fixed_point.zeros(len(x))
    fixed_point.accumulate(words, x)
    return words


sizes = st.floats(allow_nan=False, allow_infinity=False, min_value=-(2.0**92), max_value=2.0**92)
halves = st.builds(
    lambda m, e: math.ldexp(m, e), st.integers(-(2**53), 2**53), st.integers(-150, 38)
)
ties = st.builds(
    lambda m, more: (m + 0.5) * 2.0**-96 * more,
    st.integers(-99, 99),
    st.sampled_from((1.0, 1 + 2**-50)),
)
whole = st.integers(-(2**191) + 1, 2**191 - 1) | st.integers(-(2**60), 2**60)
near_ties = st.builds(
    lambda m, sign, digits, e, off: sign * ((2 * (m | 1 << (digits - 1)) + 1) * 2**e + off),
    st.integers(0, 2**23),
    st.sampled_from((1, -1)),
    st.sampled_from((24, 53)),
    st.sampled_from((0, 1, 5, 11, 40, 64, 70, 128, 136)),
    st.integers(-1, 1),
)


@given(st.lists(sizes | halves | ties, min_size=1, max_size=8))
@settings(deadline=None)
def test_a_number_is_its_multiple_of_the_unit(x):
    assert integers_of(encoded(np.array(x))) == [round(Fraction(one) * 2**96) for one in x]


@given(st.lists(whole | near_ties, min_size=1, max_size=8))
@settings(deadline=None, max_examples=300)
def test_a_total_is_rounded_to_the_nearest_and_ties_to_even(integers):
    exact = [Fraction(one, 2**96) for one in integers]
    words = words_of(integers)
    assert fixed_point.rounded(words, np.float64).tolist() == [float(one) for one in exact]
    for one, found in zip(exact, fixed_point.rounded(words, np.float32), strict=True):
        near = np.float32(float(one))
        others = [
            near,
            np.nextafter(near, np.float32(np.inf)),
            np.nextafter(near, np.float32(-np.inf)),
        ]
        best = min(abs(Fraction(float(other)) - one) for other in others)
        assert abs(Fraction(float(found)) - one) == best
        if sum(abs(Fraction(float(other)) - one) == best for other in others) > 1:
            assert int(np.float32(found).view(np.uint32)) % 2 == 0, "a tie goes to the even one"


@given(st.lists(whole, min_size=2, max_size=6), st.randoms())
@settings(deadline=None)
def test_sums_and_differences_are_those_of_whole_numbers_in_any_order(integers, random):
    total = fixed_point.zeros(1)
    for one in integers:
        fixed_point.add(total, words_of([one]))
    assert (integers_of(total)[0] - sum(integers)) % MODULUS == 0
    assert (integers_of(fixed_point.sum_of(words_of(integers)))[0] - sum(integers)) % MODULUS == 0
    random.shuffle(integers)
    taken = random.randrange(len(integers) + 1)
    fixed_point.mask(total, np.array([words_of([one]) for one in integers]), taken)
    assert (integers_of(total)[0] - 2 * sum(integers[taken:])) % MODULUS == 0


@given(st.lists(st.floats(1e-12, 1e26), min_size=1, max_size=8), st.randoms())
@settings(deadline=None)
def test_from_a_trillionth_up_a_total_is_the_correctly_rounded_sum(x, random):
    x = [one * random.choice((-1, 1)) for one in x]
    sums = ExactSums(len(x))
    assert sums.at_once([np.array([one]) for one in x]).tolist() == [math.fsum(x)]
    total = sums.encoded(np.array(x[:1]), TAG)
    for one in x[1:]:
        sums.add(total, sums.encoded(np.array([one]), TAG))
    assert sums.decoded(total, float).tolist() == [math.fsum(x)]


@given(st.lists(halves, min_size=1, max_size=16))
@settings(deadline=None)
def test_what_is_cut_off_is_at_most_half_a_unit_a_party(x):
    total = ExactSums(len(x)).at_once([np.array([one]) for one in x])[0]
    exact = sum(map(Fraction, x))
    rounding = Fraction(abs(total)) / 2**53
    assert abs(Fraction(float(total)) - exact) <= Fraction(len(x), 2**97) + rounding


@pytest.mark.parametrize("parties", [1, 2, 3, 5, 7, 8, 1000])
def test_nothing_wraps_within_the_range(parties):
    sums = ExactSums(parties)
    largest = np.nextafter(sums.limit, 0.0)
    for sign in (1, -1):
        assert sums.misfit(np.array([0.0, sign * largest])) == -1
        x = [np.array([sign * largest])] * parties
        assert sums.at_once(x)[0] == math.fsum(float(one[0]) for one in x)
    for bad in (sums.limit, -sums.limit, 1e300, math.inf, -math.inf, math.nan):
        assert sums.misfit(np.array([0.0, 1.0, bad])) == 2


def test_single_precision_is_rounded_once():
    """1 + 2⁻²⁴ + 2⁻⁶⁰ is above the tie: by way of a double it would be rounded down to 1."""
    x = [np.array([part], np.float32) for part in (1.0, 2.0**-24, 2.0**-60)]
    total = ExactSums(3).at_once(x)
    assert total.dtype == np.float32
    assert total[0] == np.float32(1.0 + 2.0**-23)


def test_a_sum_of_shapes_keeps_them():
    x = np.arange(6.0).reshape(2, 3)
    assert (ExactSums(2).at_once([x, x[:, ::-1]]) == x + x[:, ::-1]).all()


# -- certificates ----------------------------------------------------------------------------------


def least(X, y, strength):
    """The least objective of ridge regression, and the objective as a function, in 120 digits."""
    X, y, strength = mpmath.matrix(X.tolist()), mpmath.matrix(y.tolist()), mpmath.mpf(strength)

    def objective(w):
        residual = X * w - y
        return sum(r * r for r in residual) / (2 * X.rows) + strength * sum(c * c for c in w) / 2

    best = mpmath.lu_solve(X.T * X / X.rows + strength * mpmath.eye(X.cols), X.T * y / X.rows)
    return objective(best), objective


@pytest.mark.parametrize("method", ["gram", "proximal-2"])
@pytest.mark.parametrize("scale", [1e3, 1e-3, 1e-9, 1e-13, 1e-16, 1e-20, 1e-25, 1e-30])
def test_a_gap_counts_what_was_cut_off(method, scale):
    """Columns so small that most of their sums are below the unit: the gap is a bound all the
    same.
    """
    random = np.random.default_rng(1)
    X, y = scale * random.standard_normal((12, 2)), random.standard_normal(12)
    strength = 0.05 * scale**2
    result = co.solve(
        co.Problem("squared", "l2", strength, intercept=False),
        (X, y),
        agents=3,
        method=method,
        max_rounds=40,
        secure_sums=True,
    )
    with mpmath.workdps(120):
        best, objective = least(X, y, strength)
        lost = objective(mpmath.matrix(result.model.coef_.tolist())) - best
        assert lost <= result.certificate.gap
    if scale >= 1e-9:
        assert result.status == "optimal"


@given(st.lists(st.floats(0.0, 1e20) | st.floats(1e-30, 1e-10), min_size=1, max_size=6))
@settings(deadline=None)
def test_the_largest_number_is_told_up_to_a_quarter_of_an_octave(values):
    """And the sum that tells it is the same whoever has it."""

    def agent(index, secure):
        return SimpleNamespace(
            secure_sums=secure, one_hot=lambda value: np.eye(len(values))[index] * value
        )

    for secure in (False, True):
        found = set()
        for order in (values, values[::-1]):
            star = co.networks.star(len(values), server=True)
            transport = InProcess(star, Bill(star), secure_sums=secure)
            protocols = [largest(agent(index, secure), value) for index, value in enumerate(order)]
            found |= set(transport.converse(protocols, "setup"))
        (found,) = found
        assert found == max(values) if not secure else max(values) <= found
        assert found <= 2**0.2501 * max(max(values), 2.0**-64 * (max(values) > 0))
