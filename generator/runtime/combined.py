"""Rows of a matrix that are weighted and added for each token, and the gradients of that: kernels, and their calls.

`SUM` computes for each token the sum over j of `weights[t, j] * y[index[t, j]]`, `SPREAD` the gradient of y, and `DOTS`
that of the weights. Every sum has one order, and each product is rounded before it is added, so that results repeat bit
for bit and have the bits of the same operations of torch in fp32.
"""

# Triton has no type hints.
# mypy: disable-error-code="import-untyped"
# pyright: reportArgumentType=false
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from .arguments import Index, Stride
from .call import Call, Launch, Row, Table
from .call_tensors import Operand, Result, State
from .extents import K, M, N, R, Size, T, ceil
from .launch import name_contract

BLOCK_N = Size("BLOCK_N")
#: Columns of a block: eight elements of 16 bits for each thread of 4 warps, fewer where rows are short.
BLOCKS = [{"BLOCK_N": 128, "num_warps": 1}, {"BLOCK_N": 512, "num_warps": 2}, {"BLOCK_N": 1024, "num_warps": 4}]
# A product and a sum in one instruction would be rounded once.
APART = {"enable_fp_fusion": False}


@triton.jit  # type: ignore[untyped-decorator]
def sum_kernel(  # type: ignore[no-untyped-def]
    y_ptr,
    index_ptr,
    weights_ptr,
    out_ptr,
    N,
    K,
    R,
    stride_ym,
    stride_yn,
    stride_it,
    stride_ij,
    stride_wt,
    stride_wj,
    stride_om,
    stride_on,
    INDEX: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """One block of a token's columns."""
    stride_ym, stride_it, stride_ij = tl.cast(stride_ym, INDEX), tl.cast(stride_it, INDEX), tl.cast(stride_ij, INDEX)
    stride_wt, stride_wj, stride_om = tl.cast(stride_wt, INDEX), tl.cast(stride_wj, INDEX), tl.cast(stride_om, INDEX)
    blocks = tl.cdiv(N, BLOCK_N)
    token = tl.program_id(0) // blocks
    offs_n = ((tl.program_id(0) % blocks) * BLOCK_N + tl.arange(0, BLOCK_N)).to(INDEX)
    in_n = offs_n < N
    acc = tl.zeros((BLOCK_N,), tl.float32)
    for j in tl.range(0, K, loop_unroll_factor=4):
        place = tl.load(index_ptr + token * stride_it + j * stride_ij)
        there = (place >= 0) & (place < R)
        y = tl.load(y_ptr + place * stride_ym + offs_n * stride_yn, mask=in_n & there, other=0.0)
        y = y.to(tl.float32)
        if weights_ptr is not None:
            y *= tl.load(weights_ptr + token * stride_wt + j * stride_wj).to(tl.float32)
        # The weight of an index outside may be infinite or NaN.
        acc += tl.where(there, y, 0.0)
    tl.store(out_ptr + token * stride_om + offs_n * stride_on, acc.to(out_ptr.dtype.element_ty), mask=in_n)


@triton.jit  # type: ignore[untyped-decorator]
def spread_kernel(  # type: ignore[no-untyped-def]
    grad_ptr,
    order_ptr,
    ends_ptr,
    weights_ptr,
    out_ptr,
    N,
    K,
    stride_gm,
    stride_gn,
    stride_wt,
    stride_wj,
    stride_om,
    INDEX: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """One block of the gradient of a row of y: the terms that it is in, in the order of tokens and of their terms."""
    stride_gm, stride_om = tl.cast(stride_gm, INDEX), tl.cast(stride_om, INDEX)
    stride_wt, stride_wj = tl.cast(stride_wt, INDEX), tl.cast(stride_wj, INDEX)
    blocks = tl.cdiv(N, BLOCK_N)
    row = tl.program_id(0) // blocks
    offs_n = ((tl.program_id(0) % blocks) * BLOCK_N + tl.arange(0, BLOCK_N)).to(INDEX)
    in_n = offs_n < N
    first = tl.where(row > 0, tl.load(ends_ptr + tl.maximum(row - 1, 0)), 0)
    acc = tl.zeros((BLOCK_N,), tl.float32)
    for at in tl.range(first, tl.load(ends_ptr + row)):
        term = tl.load(order_ptr + at)
        token = term // K
        grad = tl.load(grad_ptr + token * stride_gm + offs_n * stride_gn, mask=in_n, other=0.0).to(tl.float32)
        if weights_ptr is not None:
            grad *= tl.load(weights_ptr + token * stride_wt + term % K * stride_wj).to(tl.float32)
        acc += grad
    tl.store(out_ptr + row * stride_om + offs_n, acc.to(out_ptr.dtype.element_ty), mask=in_n)


@triton.jit  # type: ignore[untyped-decorator]
def dots_kernel(  # type: ignore[no-untyped-def]
    grad_ptr,
    y_ptr,
    index_ptr,
    out_ptr,
    N,
    K,
    R,
    stride_gm,
    stride_gn,
    stride_ym,
    stride_yn,
    stride_it,
    stride_ij,
    INDEX: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """The gradient of one weight: the sum of what the blocks of its row have in each lane, then that of the lanes."""
    stride_gm, stride_ym = tl.cast(stride_gm, INDEX), tl.cast(stride_ym, INDEX)
    stride_it, stride_ij = tl.cast(stride_it, INDEX), tl.cast(stride_ij, INDEX)
    term = tl.program_id(0)
    token, j = term // K, term % K
    place = tl.load(index_ptr + token * stride_it + j * stride_ij)
    there = (place >= 0) & (place < R)
    acc = tl.zeros((BLOCK_N,), tl.float32)
    for first in tl.range(0, N, BLOCK_N):
        offs_n = (first + tl.arange(0, BLOCK_N)).to(INDEX)
        inside = (offs_n < N) & there
        grad = tl.load(grad_ptr + token * stride_gm + offs_n * stride_gn, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + place * stride_ym + offs_n * stride_yn, mask=inside, other=0.0).to(tl.float32)
        acc += grad * y
    tl.store(out_ptr + term, tl.sum(acc, 0).to(out_ptr.dtype.element_ty))


@dataclass(frozen=True)
class Like(Result):
    """A result of the type of the operand `like`."""

    like: str = ""

    def taken(self, x: Any, state: State) -> Any:
        dtype = state.given[self.like].dtype
        return Result(self.name, self.shape, dtype, self.unit).taken(x, state)


@dataclass(frozen=True)
class Given(Operand):
    """A matrix of any floating type that may be left out, and that has the sizes of another one."""

    def taken(self, x: Any, state: State) -> Any:
        return None if x is None else super().taken(x, state)


def _of_columns(rows: list[Row], sizes: tuple[int, ...], device: torch.device) -> Row:
    """The configuration whose blocks are the smallest that hold a row, or the largest."""
    columns = sizes[1]
    return next((row for row in rows if row["BLOCK_N"] >= columns), rows[-1])


def _strides(**tensors: str) -> Mapping[str, Stride]:
    """The strides of matrices by the ends of their names: `ymn` are those along the dimensions of y."""
    return {
        f"stride_{ends[0]}{end}": Stride(name, at) for name, ends in tensors.items() for at, end in enumerate(ends[1:])
    }


def combine(y: Tensor, index: Tensor, weights: Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
    """For each token the sum over j of `weights[t, j] * y[index[t, j]]`, in fp32 and in the order of j.

    `y` is (rows, N), `index` int32 (tokens, k), `weights` (tokens, k) of any floating type, 1 where there are none. The
    result, a new (tokens, N) tensor or `out` filled, is rounded once to y's type. An index outside `y` adds nothing.
    """
    try:
        found: Tensor = SUM(y=y, index=index, weights=weights, out=out)
    except (TypeError, ValueError, RuntimeError) as error:
        name_contract(error, "combine")
        raise
    return found


_INDEX = Operand("index", (T, K), torch.int32)
_WEIGHTS = Given("weights", (T, K), absent=T)

SUM = Call(
    Table(BLOCKS),
    sizes=(T, N, K),
    operands=(Operand("y", (R, N)), _INDEX, _WEIGHTS),
    results=(Like("out", (T, N), like="y"),),
    launches=(
        Launch(
            sum_kernel,
            grid=(T * ceil(N, BLOCK_N),),
            tensors={"y_ptr": "y", "index_ptr": "index", "weights_ptr": "weights", "out_ptr": "out"},
            numbers={"N": N, "K": K, "R": R, **_strides(y="ymn", index="itj", weights="wtj", out="omn")},
            constants={"INDEX": Index("y", "index", "weights", "out"), **APART},
        ),
    ),
    choose=_of_columns,
)
#: `order` has the terms by the row of y that they read, and `ends` where those of each row end.
SPREAD = Call(
    Table(BLOCKS),
    sizes=(R, N, K),
    operands=(
        Operand("grad", (T, N)),
        Operand("order", (M,), torch.int32, unit=0),
        Operand("ends", (R,), torch.int32, unit=0),
        _INDEX,
        _WEIGHTS,
    ),
    results=(Like("of_y", (R, N), unit=1, like="grad"),),
    launches=(
        Launch(
            spread_kernel,
            grid=(R * ceil(N, BLOCK_N),),
            tensors={
                "grad_ptr": "grad",
                "order_ptr": "order",
                "ends_ptr": "ends",
                "weights_ptr": "weights",
                "out_ptr": "of_y",
            },
            numbers={"N": N, "K": K, **_strides(grad="gmn", weights="wtj"), "stride_om": Stride("of_y", 0)},
            constants={"INDEX": Index("grad", "weights", "of_y"), **APART},
        ),
    ),
    choose=_of_columns,
)
DOTS = Call(
    Table(BLOCKS),
    sizes=(T, K, N),
    operands=(Operand("grad", (T, N)), Operand("y", (R, N)), _INDEX, replace(_WEIGHTS, absent=None)),
    results=(Like("of_weights", (T, K), unit=1, like="weights"),),
    launches=(
        Launch(
            dots_kernel,
            grid=(T * K,),
            tensors={"grad_ptr": "grad", "y_ptr": "y", "index_ptr": "index", "out_ptr": "of_weights"},
            numbers={"N": N, "K": K, "R": R, **_strides(grad="gmn", y="ymn", index="itj")},
            constants={"INDEX": Index("grad", "y", "index"), **APART},
        ),
    ),
    # Always the same number of lanes for the same N.
    choose=lambda rows, sizes, device: _of_columns(rows, (0, sizes[2]), device),
)
