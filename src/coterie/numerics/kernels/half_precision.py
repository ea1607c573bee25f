"""Products with large matrices in half precision on a GPU, at the speed of its memory, summed in
float32 (Triton).

    row_products(M, v)     = M v        one program per few rows
    column_products(M, z)  = Mᵀ z       one program per chunk of rows and block of columns, then a
                           sum over the chunks
    update_softmax(A, P, keep, x, v)    A ← keep·A + x vᵀ and P ← softmax of its rows, one program
                                        per row

Each function reads and writes every entry once, on the GPU that holds it, and sums in a fixed
order. torch installs Triton where it has CUDA; import this file only there.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

ROWS, COLUMNS = 16, 512
CHUNKS = 1024


@triton.jit
def _row_products(M, v, out, n, d, stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(0, d, COLUMNS):
        columns = first + tl.arange(0, COLUMNS)
        inside = (rows < n)[:, None] & (columns < d)[None, :]
        block = tl.load(M + rows[:, None] * stride + columns[None, :], mask=inside, other=0.0)
        factors = tl.load(v + columns, mask=columns < d, other=0.0)
        total += block.to(tl.float32) * factors[None, :]
    tl.store(out + rows, tl.sum(total, 1), mask=rows < n)


@triton.jit
def _column_products(M, z, out, n, d, stride, chunk, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    start = tl.program_id(1).to(tl.int64) * chunk
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(0, chunk, ROWS):
        rows = start + first + tl.arange(0, ROWS)
        inside = (rows < n)[:, None] & (columns < d)[None, :]
        block = tl.load(M + rows[:, None] * stride + columns[None, :], mask=inside, other=0.0)
        factors = tl.load(z + rows, mask=rows < n, other=0.0)
        total += block.to(tl.float32) * factors[:, None]
    tl.store(out + tl.program_id(1) * d + columns, tl.sum(total, 0), mask=columns < d)


@triton.jit
def _update_softmax(A, P, x, v, keep, m, stride, COLUMNS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, COLUMNS)
    inside = columns < m
    scores = keep * tl.load(A + row * stride + columns, mask=inside, other=0.0)
    scores += tl.load(x + row) * tl.load(v + columns, mask=inside, other=0.0)
    tl.store(A + row * stride + columns, scores, mask=inside)
    scores = tl.where(inside, scores, -float("inf"))
    shares = tl.exp(scores - tl.max(scores, 0))
    shares = (shares / tl.sum(shares, 0)).to(P.dtype.element_ty)
    tl.store(P + row * stride + columns, shares, mask=inside)


def row_products(M: Any, v: Any) -> Any:
    """M v for M whose rows are contiguous."""
    n, d = M.shape
    out = torch.empty(n, dtype=torch.float32, device=M.device)
    with torch.cuda.device_of(M):
        _row_products[(triton.cdiv(n, ROWS),)](
            M, v, out, n, d, M.stride(0), ROWS, COLUMNS, num_warps=4
        )
    return out


def column_products(M: Any, z: Any) -> Any:
    """Mᵀ z for M whose rows are contiguous."""
    n, d = M.shape
    chunk = triton.cdiv(triton.cdiv(n, CHUNKS), ROWS) * ROWS
    partial = torch.empty((CHUNKS, d), dtype=torch.float32, device=M.device)
    grid = triton.cdiv(d, COLUMNS), CHUNKS
    with torch.cuda.device_of(M):
        _column_products[grid](M, z, partial, n, d, M.stride(0), chunk, ROWS, COLUMNS, num_warps=4)
    return partial.sum(0)


def update_softmax(A: Any, P: Any, keep: float, x: Any, v: Any) -> None:
    """A ← keep·A + x vᵀ and P ← softmax of its rows, for A and P of the same strides."""
    n, m = A.shape
    width = triton.next_power_of_2(m)
    warps = max(1, min(8, width // 512))
    with torch.cuda.device_of(A):
        _update_softmax[(n,)](A, P, x, v, keep, m, A.stride(0), width, num_warps=warps)
