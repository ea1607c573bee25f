"""Digests of large tables are those of their leaves, whatever the memory layout and the number of
threads.
"""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from coterie.data import Table
from coterie.data import digests as leaves
from coterie.numerics.threads import cores
from coterie.problems.low_rank.proof import LARGE, _spectral_norm

X = np.random.default_rng(1).standard_normal((40_000, 7))


@pytest.mark.parametrize("dtype", ["<f8", "<f4", ">f8"])
def test_a_large_table_is_known_by_its_leaves(dtype, monkeypatch):
    rows = X.astype(dtype)
    small = Table(rows).digest()
    monkeypatch.setattr(leaves, "LARGE", 1 << 20)
    monkeypatch.setattr(leaves, "PIECE", 1 << 17)
    data = rows.astype(rows.dtype.newbyteorder("<")).tobytes()
    each = b"".join(
        hashlib.sha256(data[at : at + 65536]).digest() for at in range(0, len(data), 65536)
    )
    kind = rows.dtype.newbyteorder("<").str
    assert (
        leaves.fingerprint(rows) == f"leaves:{kind}:{rows.shape}:{hashlib.sha256(each).hexdigest()}"
    )
    large = Table(rows).digest()
    assert large != small
    for threads in (1, 3):
        with cores(threads):
            assert Table(np.asfortranarray(rows)).digest() == large
    for place in (0, -1):
        changed = rows.copy()
        changed.flat[place] += 1
        assert Table(changed).digest() != large


@pytest.mark.parametrize(
    ("shape", "scale"),
    [((700, 400), 1.0), ((700, 400), 1e-170), ((400, 700), 1e170), ((400, 700), 0.0)],
)
def test_the_norm_of_a_large_gradient_is_bounded_from_above(shape, scale):
    G = scale * np.random.default_rng(2).standard_normal(shape)
    assert G.size >= LARGE
    found, exact = _spectral_norm(G, G), float(np.linalg.norm(G / (scale or 1.0), 2)) * scale
    assert exact <= found <= exact * (1 + 2e-12)
