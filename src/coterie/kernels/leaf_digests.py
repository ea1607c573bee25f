"""SHA-256 of every 64 KiB of an array that lies on a GPU, where it lies: one lane per leaf (Triton).

A message of 64 KiB is 1024 blocks of 16 words and one block of padding, which is the same for every leaf. torch brings
Triton along where it has CUDA; import this file only there.
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
"""Bytes of a leaf."""
LANES = 64
_PRIMES = [p for p in range(2, 312) if all(p % q for q in range(2, isqrt(p) + 1))]


def _root(number: int, degree: int) -> int:
    """The first 32 bits behind the point of that root, by bisection on whole numbers."""
    low, high = 0, 1 << 40
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if middle**degree <= number << (32 * degree) else (low, middle)
    return low & 0xFFFFFFFF


# FIPS 180-4: square roots of the first 8 primes to begin with, cube roots of the first 64 as constants of the rounds.
CONSTANTS = np.array([_root(p, 2) for p in _PRIMES[:8]] + [_root(p, 3) for p in _PRIMES], np.uint32)


@triton.jit
def _rotated(x, by: tl.constexpr):
    return (x >> by) | (x << (32 - by))


@triton.jit
def _swapped(x):
    """The bytes of a word the other way round: the standard reads the first as the highest."""
    return (x >> 24) | ((x >> 8) & 0xFF00) | ((x << 8) & 0xFF0000) | (x << 24)


@triton.jit
def _round(a, b, c, d, e, f, g, h, k, w):
    S1 = _rotated(e, 6) ^ _rotated(e, 11) ^ _rotated(e, 25)
    S0 = _rotated(a, 2) ^ _rotated(a, 13) ^ _rotated(a, 22)
    t = h + S1 + ((e & f) ^ (~e & g)) + k + w
    return t + S0 + ((a & b) ^ (a & c) ^ (b & c)), a, b, c, d + t, e, f, g


@triton.jit
def _next(w0, w1, w9, w14):
    s0 = _rotated(w1, 7) ^ _rotated(w1, 18) ^ (w1 >> 3)
    s1 = _rotated(w14, 17) ^ _rotated(w14, 19) ^ (w14 >> 10)
    return w0 + s0 + w9 + s1


# One kernel for every count: Triton would compile others for 1 and for multiples of 16.
@triton.jit(do_not_specialize=["count"])
def _leaves(words, constants, out, count, BLOCKS: tl.constexpr, LANES: tl.constexpr):
    leaf = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    here = leaf < count
    first = words + leaf * (BLOCKS * 16)
    h0 = tl.zeros((LANES,), tl.uint32) + tl.load(constants + 0)
    h1 = tl.zeros((LANES,), tl.uint32) + tl.load(constants + 1)
    h2 = tl.zeros((LANES,), tl.uint32) + tl.load(constants + 2)
    h3 = tl.zeros((LANES,), tl.uint32) + tl.load(constants + 3)
    h4 = tl.zeros((LANES,), tl.uint32) + tl.load(constants + 4)
    h5 = tl.zeros((LANES,), tl.uint32) + tl.load(constants + 5)
    h6 = tl.zeros((LANES,), tl.uint32) + tl.load(constants + 6)
    h7 = tl.zeros((LANES,), tl.uint32) + tl.load(constants + 7)
    for block in range(BLOCKS + 1):
        inside, at = here & (block < BLOCKS), first + block * 16
        w0 = _swapped(tl.load(at + 0, mask=inside, other=0).to(tl.uint32, bitcast=True))
        w1 = _swapped(tl.load(at + 1, mask=inside, other=0).to(tl.uint32, bitcast=True))
        w2 = _swapped(tl.load(at + 2, mask=inside, other=0).to(tl.uint32, bitcast=True))
        w3 = _swapped(tl.load(at + 3, mask=inside, other=0).to(tl.uint32, bitcast=True))
        w4 = _swapped(tl.load(at + 4, mask=inside, other=0).to(tl.uint32, bitcast=True))
        w5 = _swapped(tl.load(at + 5, mask=inside, other=0).to(tl.uint32, bitcast=True))
        w6 = _swapped(tl.load(at + 6, mask=inside, other=0).to(tl.uint32, bitcast=True))
        w7 = _swapped(tl.load(at + 7, mask=inside, other=0).to(tl.uint32, bitcast=True))
        w8 = _swapped(tl.load(at + 8, mask=inside, other=0).to(tl.uint32, bitcast=True))
        w9 = _swapped(tl.load(at + 9, mask=inside, other=0).to(tl.uint32, bitcast=True))
        w10 = _swapped(tl.load(at + 10, mask=inside, other=0).to(tl.uint32, bitcast=True))
        w11 = _swapped(tl.load(at + 11, mask=inside, other=0).to(tl.uint32, bitcast=True))
        w12 = _swapped(tl.load(at + 12, mask=inside, other=0).to(tl.uint32, bitcast=True))
        w13 = _swapped(tl.load(at + 13, mask=inside, other=0).to(tl.uint32, bitcast=True))
        w14 = _swapped(tl.load(at + 14, mask=inside, other=0).to(tl.uint32, bitcast=True))
        w15 = _swapped(tl.load(at + 15, mask=inside, other=0).to(tl.uint32, bitcast=True))
        if block == BLOCKS:  # a one, zeros, and the length in bits
            w0 += 0x80000000
            w15 += BLOCKS * 512
        a, b, c, d, e, f, g, h = h0, h1, h2, h3, h4, h5, h6, h7
        # A loop of 64 short rounds, in which words move up: written out, it would take seconds to compile.
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
    tl.store(out + leaf * 8 + 0, _swapped(h0).to(tl.int32, bitcast=True), mask=here)
    tl.store(out + leaf * 8 + 1, _swapped(h1).to(tl.int32, bitcast=True), mask=here)
    tl.store(out + leaf * 8 + 2, _swapped(h2).to(tl.int32, bitcast=True), mask=here)
    tl.store(out + leaf * 8 + 3, _swapped(h3).to(tl.int32, bitcast=True), mask=here)
    tl.store(out + leaf * 8 + 4, _swapped(h4).to(tl.int32, bitcast=True), mask=here)
    tl.store(out + leaf * 8 + 5, _swapped(h5).to(tl.int32, bitcast=True), mask=here)
    tl.store(out + leaf * 8 + 6, _swapped(h6).to(tl.int32, bitcast=True), mask=here)
    tl.store(out + leaf * 8 + 7, _swapped(h7).to(tl.int32, bitcast=True), mask=here)


def leaf_digests(words: Any, leaf: int = LEAF) -> bytes:
    """The digests of all leaves of a flat int32 tensor of whole leaves, one after the other."""
    count, blocks = 4 * words.numel() // leaf, leaf // 64
    constants = torch.from_numpy(CONSTANTS.view(np.int32)).to(words.device).view(torch.uint32)
    out = torch.empty(8 * count, dtype=torch.int32, device=words.device)
    with torch.cuda.device_of(words):  # Triton launches on the current GPU, which may be another
        _leaves[(triton.cdiv(count, LANES),)](words, constants, out, count, blocks, LANES, num_warps=LANES // 32)
    digests: bytes = out.cpu().numpy().tobytes()
    return digests
