"""Operands of a problem: random, never zeros, in as many sets as it takes to outgrow the L2 cache."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from generator.bench.problem import Problem
from generator.epilogue.operations import COLUMNS, ELEMENT, HALVES, MATRIX, ROWS
from generator.language.vocabulary import ELEMENTS
from generator.verify.element_types import torch_type

#: Sets together are this many times the L2 cache, so that none of a set is left there when its turn comes again.
_CACHES = 2
_MOST_SETS = 512

#: What a scalar operand is: a power of two, so that multiplying by it rounds nothing.
SCALAR = 0.5


@dataclass(frozen=True)
class Operands:
    """One set: `a` (M, K), `b` (K, N) and the epilogue's operands, and the output `out` (M, N) that belongs to it.

    Of a batch every matrix has the number of products in front. With a gate `b` is (K, 2N).
    """

    a: torch.Tensor
    b: torch.Tensor
    epilogue: Mapping[str, torch.Tensor | float]
    out: torch.Tensor


def count_sets(problem: Problem, l2_bytes: int) -> int:
    """How many sets outgrow a cache of `l2_bytes`."""
    return min(_MOST_SETS, max(1, math.ceil(_CACHES * l2_bytes / problem.bytes)))


def make_sets(problem: Problem, device: str, count: int, seed: int) -> list[Operands]:
    """`count` sets on `device`, the same for the same seed: normal floats, uniform integers."""
    generator = torch.Generator(device=device)
    generator.manual_seed(seed)
    return [_make(problem, device, generator) for _ in range(count)]


def shadow(problem: Problem) -> Operands:
    """A set without memory: what a kernel's `refusal` reads, for a choice that needs no device."""
    return _make(problem, "meta", None)


def _make(problem: Problem, device: str, generator: torch.Generator | None) -> Operands:
    m, n, k = problem.shape.m, problem.shape.n, problem.shape.k
    layout, front = problem.layout, problem.shape.front

    def matrix(rows: int, columns: int, order: str, word: str) -> torch.Tensor:
        if order == "column":
            return matrix(columns, rows, "row", word).mT
        return _random((*front, rows, columns + problem.shape.pad), word, device, generator)[..., :columns]

    epilogue: dict[str, torch.Tensor | float] = {}
    for operand in problem.epilogue.operands:
        word = problem.operand_type
        if operand.shape == MATRIX:
            epilogue[operand.name] = matrix(m, n, layout.c, word)
        elif operand.shape in (ROWS, COLUMNS, HALVES):
            length = {ROWS: m, COLUMNS: n, HALVES: 2 * n}[operand.shape]
            epilogue[operand.name] = _random((length,), word, device, generator)
        elif operand.shape == ELEMENT:
            epilogue[operand.name] = torch.full((1,), SCALAR, dtype=torch_type(word), device=device)
        else:
            epilogue[operand.name] = SCALAR
    rows, columns = (n, m) if layout.c == "column" else (m, n)
    size = (*front, rows, columns + problem.shape.pad)
    out = torch.empty(size, dtype=torch_type(problem.dtype.out), device=device)[..., :columns]
    out = out.mT if layout.c == "column" else out
    a = matrix(m, k, layout.a, problem.dtype.a)
    return Operands(a, matrix(k, problem.columns, layout.b, problem.dtype.b), epilogue, out)


def _random(size: tuple[int, ...], word: str, device: str, generator: torch.Generator | None) -> torch.Tensor:
    """Standard normal numbers of the element type, or whole numbers over all of an integer type's range."""
    dtype = torch_type(word)
    if not ELEMENTS[word].floating:
        limits = torch.iinfo(dtype)
        return torch.randint(limits.min, limits.max + 1, size, dtype=dtype, device=device, generator=generator)
    wide = torch.float32 if ELEMENTS[word].bits == 8 else dtype
    return torch.randn(size, dtype=wide, device=device, generator=generator).to(dtype)


def poison(out: torch.Tensor) -> None:
    """Fill an output with what no right result holds: of integers, which have no NaN, what is nearly the least one.

    No sum of products of the sizes timed comes near it, and what saturates passes it.
    """
    out.fill_(math.nan if out.dtype.is_floating_point else torch.iinfo(out.dtype).min + 1)
