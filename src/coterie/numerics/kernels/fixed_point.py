"""Sums of doubles as whole numbers of 192 bits: exact in any order, and rounded once.

A number x is stored as round(x · 2⁹⁶), ties to even, modulo 2¹⁹²: three 64-bit words, the lowest
first. Negative numbers are two's complements. A sum does not wrap around as long as it stays below
2⁹⁵ in absolute value.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numba
import numpy as np
import numpy.typing as npt

from coterie.numerics.arrays import FloatArray

Integers: TypeAlias = npt.NDArray[np.uint64]

WORDS = 3
"""Number of 64-bit words of a whole number."""
UNIT = 2.0**-96
"""The double that the whole number 1 stands for; numbers below half of it become 0."""
DIGITS = {8: 53, 4: 24}
"""Number of binary digits of a floating-point number, by its number of bytes."""

_0, _1, _52, _63, _64 = np.uint64(0), np.uint64(1), np.uint64(52), np.uint64(63), np.uint64(64)
_32, _HALF = np.uint64(32), np.uint64(2**32 - 1)
_EXPONENT, _FRACTION, _HIDDEN = np.uint64(0x7FF), np.uint64(2**52 - 1), np.uint64(2**52)
_POINT = 1075 - 96
"""The exponent of a double whose last digit is the unit."""


def zeros(size: int) -> Integers:
    """An array of `size` whole numbers, all 0."""
    return np.zeros(WORDS * size, np.uint64)


def accumulate(total: Integers, x: FloatArray) -> None:
    """Add the numbers x to `total`, each rounded to `UNIT`. Call it only after `misfit` has
    returned −1.
    """
    _accumulate(total, np.ascontiguousarray(x, np.float64).reshape(-1).view(np.uint64))


def rounded(total: Integers, dtype: Any) -> FloatArray:
    """The whole numbers as floating-point numbers of type `dtype`, rounded with ties to even."""
    kind = np.dtype(dtype)
    numbers = np.empty(total.size // WORDS, np.uint64)
    _round(total, numbers, DIGITS[kind.itemsize])
    return numbers.view(np.float64).astype(kind, copy=False)


def misfit(x: FloatArray, limit: float) -> int:
    """The index of the first number that is NaN or not below `limit` in absolute value; −1 if there
    is none.
    """
    return int(_misfit(np.ascontiguousarray(x).reshape(-1), limit))


@numba.njit(nogil=True, cache=True)
def _misfit(x: Any, limit: float) -> int:
    for i in range(x.size):
        if not abs(x[i]) < limit:
            return i
    return -1


@numba.njit(nogil=True, cache=True)
def _accumulate(total: Any, bits: Any) -> None:
    for i in range(bits.size):
        exponent = (bits[i] >> _52) & _EXPONENT
        low = bits[i] & _FRACTION
        if exponent:
            low |= _HIDDEN
        middle = high = _0
        shift = np.int64(exponent) - _POINT
        if shift <= -55:
            low = _0
        elif shift < 0:
            digits = np.uint64(-shift)
            rest = low & ((_1 << digits) - _1)
            half = _1 << (digits - _1)
            low >>= digits
            if rest > half or (rest == half and low & _1):
                low += _1
        else:
            digits = np.uint64(shift & 63)
            above = _0
            if digits:
                above = low >> (_64 - digits)
            low <<= digits
            if shift < 64:
                middle = above
            elif shift < 128:
                low, middle, high = _0, low, above
            else:
                low, high = _0, low
        if bits[i] >> _63:
            low, middle, high = _negative(low, middle, high)
        k = 3 * i
        low += total[k]
        carry = _1 if low < total[k] else _0
        with_carry = middle + carry
        carry = _1 if with_carry < carry else _0
        middle = with_carry + total[k + 1]
        if middle < with_carry:
            carry = _1
        total[k], total[k + 1], total[k + 2] = low, middle, high + total[k + 2] + carry


@numba.njit(nogil=True, cache=True)
def _negative(low: Any, middle: Any, high: Any) -> Any:
    """The words of minus a whole number."""
    low, middle, high = ~low + _1, ~middle, ~high
    if low == _0:
        middle += _1
        if middle == _0:
            high += _1
    return low, middle, high


@numba.njit(nogil=True, cache=True)
def add(total: Any, other: Any) -> None:
    """total ← total + other, for arrays of whole numbers."""
    for k in range(0, total.size, 3):
        low = total[k] + other[k]
        carry = _1 if low < other[k] else _0
        with_carry = other[k + 1] + carry
        middle = total[k + 1] + with_carry
        carry = _1 if (with_carry < carry) | (middle < with_carry) else _0
        total[k], total[k + 1], total[k + 2] = low, middle, total[k + 2] + other[k + 2] + carry


@numba.njit(nogil=True, cache=True)
def mask(total: Any, masks: Any, subtracted: int) -> None:
    """Subtract the first `subtracted` rows of `masks` from `total`, and add the other rows."""
    for row in range(masks.shape[0]):
        other = masks[row]
        if row >= subtracted:
            add(total, other[: total.size])
            continue
        for k in range(0, total.size, 3):
            borrow = _1 if total[k] < other[k] else _0
            taken = other[k + 1] + borrow
            borrow = _1 if (taken < borrow) | (total[k + 1] < taken) else _0
            total[k] -= other[k]
            total[k + 1] -= taken
            total[k + 2] -= other[k + 2] + borrow


@numba.njit(nogil=True, cache=True)
def _round(total: Any, numbers: Any, digits: int) -> None:
    spare = np.uint64(53 - digits)
    for i in range(numbers.size):
        low, middle, high = total[3 * i], total[3 * i + 1], total[3 * i + 2]
        sign = high >> _63
        if sign:
            low, middle, high = _negative(low, middle, high)
        # Skip highest words that are 0: `high` and `middle` then hold the digits, and `rest` the
        # bits below them.
        exponent, rest = 1023 - 96 + 128, low
        if high == _0:
            high, middle, rest, exponent = middle, low, _0, exponent - 64
            if high == _0:
                high, middle, exponent = middle, _0, exponent - 64
                if high == _0:
                    numbers[i] = _0
                    continue
        top, above = 0, high
        for step in (32, 16, 8, 4, 2, 1):
            if above >> np.uint64(step):
                above >>= np.uint64(step)
                top += step
        # Move the digits to the top of `high`. The bits that do not fit decide the rounding.
        shift = np.uint64(63 - top)
        if shift:
            high = (high << shift) | (middle >> (_64 - shift))
            middle <<= shift
        cut = np.uint64(64 - digits)
        kept = high >> cut
        rest_above = high & ((_1 << cut) - _1)
        half = _1 << (cut - _1)
        below = middle | rest
        if rest_above > half or (rest_above == half and (below or kept & _1)):
            kept += _1
        # If rounding carries into the next power of two, the addition increases the exponent.
        numbers[i] = (sign << _63) + (np.uint64(exponent + top - 1) << _52) + (kept << spare)


@numba.njit(nogil=True, cache=True)
def sum_of(integers: Any) -> Any:
    """The sum of whole numbers, modulo 2¹⁹²."""
    low = middle = high = _0
    for k in range(0, integers.size, 3):
        low += integers[k]
        carry = _1 if low < integers[k] else _0
        with_carry = integers[k + 1] + carry
        carry = _1 if with_carry < carry else _0
        middle += with_carry
        if middle < with_carry:
            carry = _1
        high += integers[k + 2] + carry
    return np.array([low, middle, high])


@numba.njit(nogil=True, cache=True)
def keyed_sum_of(integers: Any, keys: Any) -> Any:
    """The sum of whole numbers, each multiplied by a key of 64 bits, modulo 2¹⁹²."""
    total = np.zeros(3, np.uint64)
    product = np.zeros(3, np.uint64)
    for k in range(keys.size):
        key, i = keys[k], 3 * k
        low, middle, high = integers[i], integers[i + 1], integers[i + 2]
        carried = _upper(key, low)
        product[0] = key * low
        product[1] = key * middle + carried
        carry = _1 if product[1] < carried else _0
        product[2] = key * high + _upper(key, middle) + carry
        add(total, product)
    return total


@numba.njit(nogil=True, cache=True)
def _upper(a: Any, b: Any) -> Any:
    """The upper 64 of the 128 bits of a · b."""
    a_low, a_high, b_low, b_high = a & _HALF, a >> _32, b & _HALF, b >> _32
    crossed = a_high * b_low + ((a_low * b_low) >> _32)
    other = a_low * b_high + (crossed & _HALF)
    return a_high * b_high + (crossed >> _32) + (other >> _32)
