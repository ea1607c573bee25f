"""Laws of the products with a data matrix."""

import ctypes
import sys

import numpy as np
import pytest
import scipy.sparse as sp

from coterie.numerics.arrays import Design, is_sparse, is_tensor, product
from coterie.numerics.kernels.gram import add_gram

SIGNALLING = 0x7FA00000
"""Bits of a float32 that is no number, and says so when it is touched."""


class Litter(ctypes.Structure):
    _fields_ = (("bits", ctypes.c_uint32 * 40000),)


def litter_the_stack():
    """Leaves bits that are no numbers where the next function keeps what it has not written yet."""
    touch = ctypes.CDLL(None).getpid
    touch.argtypes = [Litter]
    touch(Litter((ctypes.c_uint32 * 40000)(*[SIGNALLING] * 40000)))


@pytest.mark.parametrize("columns", range(1, 9))
def test_finite_products_do_not_warn(columns):
    rng = np.random.default_rng(columns)
    for rows in range(1, 12):
        X, w = (
            rng.standard_normal((rows, columns)).astype(np.float32),
            rng.standard_normal(columns).astype(np.float32),
        )
        litter_the_stack()
        scores = product(X, w)
        litter_the_stack()
        with_ones = Design(X, intercept=True).forward(np.append(w, np.float32(1)))
        litter_the_stack()
        back = Design(np.asfortranarray(X)).adjoint(scores)
        assert scores.dtype == with_ones.dtype == back.dtype == np.float32
        np.testing.assert_allclose(scores, X.astype(float) @ w, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(with_ones, scores + 1, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(back, X.T.astype(float) @ scores, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("shape", [(7, 4), (3, 6), (1, 5), (5, 1)])
@pytest.mark.parametrize("layout", ["rows", "columns", "a slice of rows", "every other column"])
def test_a_gram_matrix_is_added_to_the_upper_triangle_alone(layout, shape, kind):
    n, d = shape
    whole = np.random.default_rng(n).standard_normal((2 * n, 2 * d)).astype(kind)
    A = {
        "rows": np.ascontiguousarray(whole[:n, :d]),
        "columns": np.asfortranarray(whole[:n, :d]),
        "a slice of rows": whole[1 : n + 1, 1 : d + 1],
        "every other column": whole[:n, ::2],
    }[layout]
    total = np.full((d, d), 3, kind)
    add_gram(A, -2.0, total)
    np.testing.assert_allclose(np.triu(total), np.triu(3 - 2 * A.T @ A), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(np.tril(total, -1), np.tril(np.full((d, d), 3), -1))


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array])
def test_scores_of_a_model_of_zeros_need_no_product(storage, kind, intercept):
    X = storage(np.arange(6.0).reshape(3, 2).astype(kind))
    design, w = Design(X, intercept), np.zeros(2 + intercept)
    w[2:] = 4.0
    scores = design.forward(w)
    assert scores.dtype == np.float64
    np.testing.assert_array_equal(scores, [4.0 * intercept] * 3)
    assert design.forward(w.astype(kind)).dtype == kind


def test_kinds_of_arrays_are_told_apart_where_torch_is_forbidden(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    for X in (
        np.eye(2),
        np.eye(2).view(np.matrix),
        np.ma.masked_array(np.eye(2)),
        sp.eye_array(2),
        [1.0],
        None,
    ):
        assert not is_tensor(X)
        assert is_sparse(X) is sp.issparse(X)
