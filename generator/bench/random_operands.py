"""Random operands of a problem, in so many sets that they exceed the L2 cache."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from generator.plan.contract_call import Argument
from generator.problem.drawn_values import Draw
from generator.problem.element_types import torch_type
from generator.problem.product import Problem, matrix_strides
from generator.problem.stored_values import values

#: All sets together are this many times as large as the L2, so that no set is still cached when it is used again.
_CACHES = 2
_MOST_SETS = 512
#: At most so many bytes are held by all sets together, where one alone is not larger.
_MOST_BYTES = 40e9

#: The value of scalar operands: a power of two, so that multiplying by it is exact.
SCALAR = 0.5


@dataclass(frozen=True)
class Operands:
    """One operand set: `a` (M, K), `b` (K, N), the operands of the epilogue by name, and the output `out` (M, N).

    With a batch every matrix has the number of products as its first dimension, with groups `b` and the vectors of N
    have their number. With a gated linear unit `b` is (K, 2N).
    """

    a: torch.Tensor
    b: torch.Tensor
    epilogue: Mapping[str, torch.Tensor | float]
    out: torch.Tensor
    #: The scales and zero points of `a` and `b`, and for peers the numbers that these stand for, in 16 bits.
    stored: Mapping[str, torch.Tensor] = field(default_factory=dict)
    dense: tuple[torch.Tensor, torch.Tensor] | None = None
    #: The end of each group's rows.
    offsets: torch.Tensor | None = None

    @property
    def keywords(self) -> Mapping[str, torch.Tensor | float]:
        """The operands behind `a` and `b`."""
        divided = {} if self.offsets is None else {"offsets": self.offsets}
        return {**divided, **self.stored, **self.epilogue}


def count_sets(problem: Problem, l2_bytes: int) -> int:
    """The number of sets that exceed an L2 of `l2_bytes`, at most `_MOST_SETS`, and at most `_MOST_BYTES`."""
    most = min(_MOST_SETS, int(_MOST_BYTES // problem.held))
    return max(1, min(most, math.ceil(_CACHES * l2_bytes / problem.bytes)))


def make_sets(problem: Problem, device: str, count: int, seed: int) -> list[Operands]:
    """`count` sets on `device`, the same for the same seed: normal floats, uniform integers."""
    generator = torch.Generator(device=device)
    generator.manual_seed(seed)
    return [_make(problem, Draw(generator, device)) for _ in range(count)]


def shadow(problem: Problem) -> Operands:
    """A set on torch's meta device, which has no data: enough for a kernel's `refusal`, and needs no GPU."""
    return _make(problem, Draw(None, "meta"))


def _make(problem: Problem, draw: Draw) -> Operands:
    call, ends = problem.call, problem.shape.ends if problem.shape.groups else ()
    recipes = draw.stored(problem.dtype)
    recipes["offsets"] = lambda shape, dtype: torch.tensor(ends, dtype=dtype)
    operands: dict[str, torch.Tensor] = {}
    for x in (*call.operands, call.a, call.b, *call.positional, *call.stored):
        if x.number:
            continue
        operands[x.name] = empty = _empty(problem, x, draw.device)
        # Values are drawn in the order of memory.
        lines = empty.mT if empty.dim() > 1 and empty.stride(-1) != 1 else empty
        if x.extents == ("1",):
            lines.fill_(SCALAR)
        else:
            lines.copy_(recipes.get(x.name, draw.plain)(tuple(lines.shape), lines.dtype))
    if problem.symmetric:
        # B is the transposed of A, in the same memory where its layout allows that.
        turned = operands["a"].mT
        operands["b"] = turned if turned.stride() == operands["b"].stride() else operands["b"].copy_(turned)
        for x in call.operands:
            if x.layout:
                operands[x.name].copy_(operands[x.name].triu() + operands[x.name].triu(1).mT)
    a, b = operands["a"], operands["b"]
    epilogue = {x.name: operands.get(x.name, SCALAR) for x in call.operands}
    stored = {x.name: operands[x.name] for x in call.stored}
    dense = None if problem.dtype.plain else dense_of(problem, a, b, stored)
    return Operands(a, b, epilogue, _empty(problem, call.out, draw.device), stored, dense, operands.get("offsets"))


def _empty(problem: Problem, x: Argument, device: str) -> torch.Tensor:
    """Room for an operand or a result, in its layout."""
    dtype, pad = torch_type(problem.type_of(x)), problem.shape.pad
    # All matrices of a batch have one vector, as peers take it.
    shape = x.sizes(problem.shape.extents)[x.shared :]
    if not x.layout:
        return torch.empty(shape, dtype=dtype, device=device)
    column = x.layout == "column"
    if x.layout == "strided":
        # The scales of a step are those of neighbouring rows of A; positions are in the order of B.
        column, pad = x.name[0] == "a" or (x.name == "b_index" and problem.layout.b == "column"), 0
    strides = matrix_strides(shape[-2:], column, pad=pad)
    # Matrices of a batch follow each other with the padding of their last line.
    front = (max(strides) * shape[-1 if column else -2],) * len(shape[:-2])
    return torch.empty_strided(shape, (*front, *strides), dtype=dtype, device=device)


def dense_of(
    problem: Problem, a: torch.Tensor, b: torch.Tensor, stored: Mapping[str, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """The numbers that stored operands stand for, in the 16-bit type of A, or bf16; each in its operand's layout."""
    wide = torch_type(problem.dtype.dense)
    dense = []
    for storage, x, order in zip(problem.dtype.stored, (a, b), (problem.layout.a, problem.layout.b), strict=True):
        value = x.to(wide) if storage.plain else values(storage, x, stored).to(wide)
        dense.append(value.mT.contiguous().mT if order == "column" else value.contiguous())
    return dense[0], dense[1]
