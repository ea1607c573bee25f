"""SHA-256 of every leaf (64 KiB) of an array on a GPU, computed on that GPU: one lane per leaf
(Triton).

A leaf is 1024 blocks of 16 words and one block of padding, which is the same for every leaf. torch
installs Triton where it has CUDA; import this file only there.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

from math import isqrt
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

LEAF = 1 << 16
"""Number of bytes of a leaf."""
LANES = 64
_PRIMES = [p for p in range(2, 312) if all(p % q for q in range(2, isqrt(p) + 1))]


def _root(number: int, degree: int) -> int:
    """The first 32 bits of the fraction of a root of `number`, by bisection on whole numbers."""
    low, high = 0, 1 << 40
    while high - low > 1:
        middle = (low + high) // 2
        if middle**degree <= number << (32 * degree):
            low = middle
        else:
            high = middle
    return low & 0xFFFFFFFF


# FIPS 180-4: square roots of the first 8 primes are the initial state, cube roots of the first 64
# the round constants.
_STATE = [_root(p, 2) for p in _PRIMES[:8]]
_ROUNDS = [_root(p, 3) for p in _PRIMES]
CONSTANTS = np.array(_STATE + _ROUNDS, np.uint32)


@triton.jit
def _rotated(x, by: tl.constexpr):
    return (x >> by) | (x << (32 - by))


@triton.jit
def _swapped(x):
    """A word with its bytes in reverse order: SHA-256 reads the first byte as the highest."""
    return (x >> 24) | ((x >> 8) & 0xFF00) | ((x << 8) & 0xFF0000) | (x << 24)


@triton.jit
def _round(a, b, c, d, e, f, g, h, k, w):
    S1 = _rotated(e, 6) ^ _rotated(e, 11) ^ _rotated(e, 25)
    S0 = _rotated(a, 2) ^ _rotated(a, 13) ^ _rotated(a, 22)
    choice = (e & f) ^ (~e & g)
    majority = (a & b) ^ (a & c) ^ (b & c)
    t = h + S1 + choice + k + w
    return t + S0 + majority, a, b, c, d + t, e, f, g


@triton.jit
def _next(w0, w1, w9, w14):
    s0 = _rotated(w1, 7) ^ _rotated(w1, 18) ^ (w1 >> 3)
    s1 = _rotated(w14, 17) ^ _rotated(w14, 19) ^ (w14 >> 10)
    return w0 + s0 + w9 + s1


@triton.jit
def _loaded(at, mask):
    return _swapped(tl.load(at, mask=mask, other=0).to(tl.uint32, bitcast=True))


@triton.jit
def _store(at, x, mask):
    tl.store(at, _swapped(x).to(tl.int32, bitcast=True), mask=mask)


# One kernel for every count: otherwise Triton compiles special kernels for 1 and for multiples of
# 16.
@triton.jit(do_not_specialize=["count"])
def _leaves(words, constants, out, count, BLOCKS: tl.constexpr, LANES: tl.constexpr):
    leaf = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    local = leaf < count
    first = words + leaf * (BLOCKS * 16)
    zero = tl.zeros((LANES,), tl.uint32)
    h0 = zero + tl.load(constants + 0)
    h1 = zero + tl.load(constants + 1)
    h2 = zero + tl.load(constants + 2)
    h3 = zero + tl.load(constants + 3)
    h4 = zero + tl.load(constants + 4)
    h5 = zero + tl.load(constants + 5)
    h6 = zero + tl.load(constants + 6)
    h7 = zero + tl.load(constants + 7)
    for block in range(BLOCKS + 1):
        inside = local & (block < BLOCKS)
        at = first + block * 16
        w0 = _loaded(at + 0, inside)
        w1 = _loaded(at + 1, inside)
        w2 = _loaded(at + 2, inside)
        w3 = _loaded(at + 3, inside)
        w4 = _loaded(at + 4, inside)
        w5 = _loaded(at + 5, inside)
        w6 = _loaded(at + 6, inside)
        w7 = _loaded(at + 7, inside)
        w8 = _loaded(at + 8, inside)
        w9 = _loaded(at + 9, inside)
        w10 = _loaded(at + 10, inside)
        w11 = _loaded(at + 11, inside)
        w12 = _loaded(at + 12, inside)
        w13 = _loaded(at + 13, inside)
        w14 = _loaded(at + 14, inside)
        w15 = _loaded(at + 15, inside)
        if block == BLOCKS:  # a one, zeros, and the length in bits
            w0 += 0x80000000
            w15 += BLOCKS * 512
        a, b, c, d, e, f, g, h = h0, h1, h2, h3, h4, h5, h6, h7
        # A loop of 64 short rounds, each of which moves the words. Unrolled, it would take seconds
        # to compile.
        for i in range(64):
            a, b, c, d, e, f, g, h = _round(a, b, c, d, e, f, g, h, tl.load(constants + 8 + i), w0)
            new = _next(w0, w1, w9, w14)
            w0, w1, w2, w3, w4, w5, w6, w7 = w1, w2, w3, w4, w5, w6, w7, w8
            w8, w9, w10, w11, w12, w13, w14, w15 = w9, w10, w11, w12, w13, w14, w15, new
        h0 += a
        h1 += b
        h2 += c
        h3 += d
        h4 += e
        h5 += f
        h6 += g
        h7 += h
    digest = out + leaf * 8
    _store(digest + 0, h0, local)
    _store(digest + 1, h1, local)
    _store(digest + 2, h2, local)
    _store(digest + 3, h3, local)
    _store(digest + 4, h4, local)
    _store(digest + 5, h5, local)
    _store(digest + 6, h6, local)
    _store(digest + 7, h7, local)


def leaf_digests(words: Any, leaf: int = LEAF) -> bytes:
    """The digests of all leaves of a flat int32 tensor, concatenated; its size must be a multiple
    of the leaf's.
    """
    count = 4 * words.numel() // leaf
    blocks = leaf // 64
    constants = torch.from_numpy(CONSTANTS.view(np.int32)).to(words.device).view(torch.uint32)
    out = torch.empty(8 * count, dtype=torch.int32, device=words.device)
    grid = (triton.cdiv(count, LANES),)
    with torch.cuda.device_of(
        words
    ):  # Triton launches on the current GPU, which may be another one
        _leaves[grid](words, constants, out, count, blocks, LANES, num_warps=LANES // 32)
    digests: bytes = out.cpu().numpy().tobytes()
    return digests
