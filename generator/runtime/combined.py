"""Rows of a matrix that are weighted and added for each token, and the gradients of that: kernels, and their calls.

`SUM` computes for each token the sum over j of `weights[t, j] * y[index[t, j]]`, `SPREAD` the gradient of y, and `DOTS`
that of the weights. Every sum has one order, and each product is rounded before it is added, so that results repeat bit
for bit and have the bits of the same operations of torch in fp32. `ROUTE` puts pairs of token and expert in the order
of experts.
"""

# Triton has no type hints.
# mypy: disable-error-code="import-untyped"
# pyright: reportArgumentType=false
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from .arguments import stride
from .call import Call, Launch, Operand, Row, State, cdiv, index_type
from .launch import name_contract

#: The types of indices that are routed.
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
#: Columns of a block: eight elements of 16 bits for each thread of 4 warps, fewer where rows are short.
BLOCKS = [{"BLOCK_N": 128, "num_warps": 1}, {"BLOCK_N": 512, "num_warps": 2}, {"BLOCK_N": 1024, "num_warps": 4}]


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


@triton.jit
def experts_of(index_ptr, pair, pairs, K, E, stride_it, stride_ij):  # type: ignore[no-untyped-def]
    """The experts of pairs: E where there is no such expert, and E + 1 behind the last pair."""
    given = tl.load(index_ptr + pair // K * stride_it + pair % K * stride_ij, mask=pair < pairs, other=0).to(tl.int64)
    return tl.where(pair < pairs, tl.where((given >= 0) & (given < E), given, E), E + 1)


@triton.jit  # type: ignore[untyped-decorator]
def route_kernel(  # type: ignore[no-untyped-def]
    index_ptr, offsets_ptr, rows_ptr, order_ptr, places_ptr, T, K, E, stride_it, stride_ij, BLOCK: tl.constexpr
):
    """The pairs of one expert, behind those of all before it; the last program has those without an expert."""
    expert, pairs = tl.program_id(0), T * K
    lanes = tl.arange(0, BLOCK)
    before = tl.zeros((BLOCK,), tl.int32)
    for first in tl.range(0, pairs, BLOCK):
        pair = first + lanes
        before += (experts_of(index_ptr, pair, pairs, K, E, stride_it, stride_ij) < expert).to(tl.int32)
    at = tl.sum(before, 0)
    for first in tl.range(0, pairs, BLOCK):
        pair = first + lanes
        own = experts_of(index_ptr, pair, pairs, K, E, stride_it, stride_ij) == expert
        place = at + tl.cumsum(own.to(tl.int32), 0) - 1
        tl.store(order_ptr + place, pair, mask=own)
        tl.store(rows_ptr + place, pair // K, mask=own)
        tl.store(places_ptr + pair, tl.where(expert < E, place, -1), mask=own)
        at += tl.sum(own.to(tl.int32), 0)
    tl.store(offsets_ptr + expert, at, mask=expert < E)


@dataclass(frozen=True)
class Like(Operand):
    """A result of the type of the operand `like`."""

    like: str = ""

    def filled(self, x: Any, state: State) -> Any:
        return Operand(self.name, self.shape, state.given[self.like].dtype, self.unit).filled(x, state)


def _of_columns(rows: list[Row], sizes: tuple[int, ...], device: torch.device) -> Row:
    """The configuration whose blocks are the smallest that hold a row, or the largest."""
    return next((row for row in rows if row["BLOCK_N"] >= sizes[-1]), rows[-1])


def combine(y: Tensor, index: Tensor, weights: Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
    """For each token the sum over j of `weights[t, j] * y[index[t, j]]`, in fp32 and in the order of j.

    `y` is (rows, N), `index` int32 (tokens, k), `weights` (tokens, k) of any floating type, 1 where there are none. The
    result, a new (tokens, N) tensor or `out` filled, is rounded once to y's type. An index outside `y` adds nothing.
    The same operands give the same bits.

    Raises RuntimeError where a gradient would be recorded and none is computed, NotImplementedError for derivatives by
    transforms, TypeError for what is no tensor and for a wrong type, else ValueError.
    """
    try:
        result: Tensor = SUM(y=y, index=index, weights=weights, out=out)
    except (TypeError, ValueError, RuntimeError) as error:
        name_contract(error, "combine")
        raise
    return result


class _Floating(Operand):
    """An operand of any floating type, which is no mask."""

    masks = False


def _launch(
    kernel: Any, grid: Callable[..., tuple[int, ...]], values: Callable[..., tuple[Any, ...]], **options: Any
) -> tuple[Launch]:
    """The launch of a kernel, with values of its parameters in their order, but for those of a configuration."""
    return (Launch(kernel, grid, lambda **known: {**dict(zip(kernel.arg_names, values(**known))), **options}),)


_INDEX = Operand("index", "T K", torch.int32)
_WEIGHTS = _Floating("weights", "T K", absent="T")

# A product and a sum in one instruction would be rounded once.
_UNFUSED = {"enable_fp_fusion": False}
SUM = Call(
    BLOCKS,
    operands=(_Floating("y", "R N"), _INDEX, _WEIGHTS),
    results=(Like("out", "T N", like="y"),),
    launches=_launch(
        sum_kernel,
        lambda T, N, BLOCK_N, **_: (T * cdiv(N, BLOCK_N),),
        lambda y, index, weights, out, N, K, R, **_: (
            *(y, index, weights, out, N, K, R, *y.stride(), *index.stride()),
            *(stride(weights, 0), stride(weights, 1), *out.stride(), index_type(y, index, weights, out)),
        ),
        **_UNFUSED,
    ),
    choose=_of_columns,
    sized=("T", "N", "N"),
)
#: `order` has the terms by the row of y that they read, and `ends` where those of each row end.
SPREAD = Call(
    BLOCKS,
    operands=(
        Operand("grad", "T N"),
        Operand("order", "M", torch.int32, unit=0),
        Operand("ends", "R", torch.int32, unit=0),
        _INDEX,
        _WEIGHTS,
    ),
    results=(Like("of_y", "R N", unit=1, like="grad"),),
    launches=_launch(
        spread_kernel,
        lambda R, N, BLOCK_N, **_: (R * cdiv(N, BLOCK_N),),
        lambda grad, order, ends, weights, of_y, N, K, **_: (
            *(grad, order, ends, weights, of_y, N, K, *grad.stride()),
            *(stride(weights, 0), stride(weights, 1), of_y.stride(0), index_type(grad, weights, of_y)),
        ),
        **_UNFUSED,
    ),
    choose=_of_columns,
    sized=("R", "N", "N"),
)
DOTS = Call(
    BLOCKS,
    operands=(_Floating("grad", "T N"), _Floating("y", "R N"), _INDEX, _Floating("weights", "T K")),
    results=(Like("of_weights", "T K", unit=1, like="weights"),),
    launches=_launch(
        dots_kernel,
        lambda T, K, **_: (T * K,),
        lambda grad, y, index, of_weights, N, K, R, **_: (
            *(grad, y, index, of_weights, N, K, R, *grad.stride(), *y.stride(), *index.stride()),
            index_type(grad, y, index),
        ),
        **_UNFUSED,
    ),
    # Always the same number of lanes for the same N.
    choose=_of_columns,
    sized=("T", "K", "N"),
)
#: Pairs of token and expert in the order of experts, of which the operand `of` has one along its first dimension.
ROUTE = Call(
    [{"BLOCK": 1024, "num_warps": 4}],
    operands=(Operand("index", "T K", INTEGERS), Operand("of", "E N H")),
    results=(
        Operand("offsets", "E", torch.int32, unit=0),
        Operand("rows", "T*K", torch.int32, unit=0),
        Operand("order", "T*K", torch.int32, unit=0),
        Operand("places", "T K", torch.int32, unit=1),
    ),
    launches=_launch(
        route_kernel,
        lambda E, **_: (E + 1,),
        lambda index, offsets, rows, order, places, T, K, E, **_: (
            *(index, offsets, rows, order, places),
            *(T, K, E, *index.stride()),
        ),
    ),
)
