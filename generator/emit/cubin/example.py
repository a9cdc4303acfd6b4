"""The example of a package: one contract on known numbers, with a few of its results, computed exactly."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from typing import NamedTuple

from generator.emit.cubin.contracts import CubinContract, CubinOperand
from generator.epilogue import formula
from generator.epilogue.constant_folding import NUMBERS
from generator.epilogue.operations import COLUMNS, MATRIX, ROWS
from generator.lowering import approximate_math


class _Type(NamedTuple):
    """How `struct` packs a number, the bits that the type lacks, and the bits of a result that must be right."""

    number: str
    word: str
    lacks: int
    right: int


_TYPES: Mapping[str, _Type] = {
    "float16": _Type("<e", "<H", 0, 10),
    "bfloat16": _Type("<f", "<I", 16, 7),
    "float32": _Type("<f", "<I", 0, 18),
}
#: The numbers that operands are made of, what an operand is that is a number, and the results that are compared.
_NUMBERS, _SCALAR, _CHECKS = tuple(number / 8 for number in range(-8, 9)), 0.5, 8
#: It has no factor in common with usual sizes, so that its multiples are spread over a matrix.
_STEP = 1_000_003


def _bits(number: float, dtype: str) -> int:
    """A number as the bits of an element."""
    x = _TYPES[dtype]
    (word,) = struct.unpack(x.word, struct.pack(x.number, number))
    return int(word) >> x.lacks


@dataclass(frozen=True)
class Example:
    """A contract with the place of its result, sizes of calls with results, and the numbers of operands by types."""

    contract: CubinContract
    out: int
    cases: Sequence[tuple[tuple[int, ...], Sequence[tuple[int, int, int]]]]
    numbers: Mapping[str, Sequence[int]]
    scalar: float = _SCALAR
    most: int = _CHECKS


def example_of(contract: CubinContract, count: int) -> Example | None:
    """The example of a contract, or None where it would need more than products of matrices and a chain."""
    variant = contract.kernel.variant
    if (
        not {x.dtype for x in contract.operands if x.extents} <= {*_TYPES}
        or variant.dtype.acc != "fp32"
        or any(x.unit is None and len(x.extents) > 1 for x in contract.operands)
        or sum(x.written for x in contract.operands) != 1
        or contract.counted == "groups"
        or variant.products.divided
        or variant.epilogue.reads_out
        or variant.epilogue.gate is not None
        or variant.words.get("result", "full") != "full"
        or approximate_math.math_of(variant) == "fast"
        or any(step.output is not None for step in variant.chain.steps)
    ):
        return None
    first, last, several = contract.runs[0], contract.runs[-1], count if contract.counted else 1
    ends = dict.fromkeys([(first.first, first.n, first.k, several), (last.last, last.n, last.k, several)])
    read = dict.fromkeys(x.dtype for x in contract.operands if x.extents and not x.written)
    numbers = {dtype: [_bits(number, dtype) for number in _NUMBERS] for dtype in read}
    out = next(index for index, x in enumerate(contract.operands) if x.written)
    cases = [(sizes, [*islice(_checks(contract, *sizes), _CHECKS)]) for sizes in ends]
    return Example(contract, out, cases, numbers) if all(checks for _, checks in cases) else None


def _checks(contract: CubinContract, m: int, n: int, k: int, count: int) -> Iterator[tuple[int, int, int]]:
    """Results of a call: the place in memory, and the least and the largest magnitude as bits."""
    places = {x.name: index for index, x in enumerate(contract.operands)}
    known = {"s->m": m, "s->n": n, "s->k": k, "s->count": count}

    def at(x: CubinOperand, *indices: int) -> int:
        """The place of an element; of the indices only those of a batch have the first."""
        extents = [known[each] if each in known else int(each) for each in x.extents]
        axes = [*zip(extents, indices[len(indices) - len(extents) :])]
        if len(axes) > 1 and x.unit == len(axes) - 2:
            axes[-2:] = axes[:-3:-1]
        return reduce(lambda place, axis: place * axis[0] + axis[1], axes, 0)

    def value(index: int, *indices: int) -> float:
        """An element of an operand, as `make` of the example has it."""
        x = contract.operands[index]
        return _NUMBERS[(5 * at(x, *indices) + index) % len(_NUMBERS)] if x.extents else _SCALAR

    out = next(x for x in contract.operands if x.written)
    for element in dict.fromkeys(_STEP * i % (count * m * n) for i in range(4 * _CHECKS)):
        b, i, j = element // (m * n), element // n % m, element % n
        indices = {ROWS: (b, i), COLUMNS: (b, j), MATRIX: (b, i, j)}
        result = product = sum(value(0, b, i, index) * value(1, b, index, j) for index in range(k))
        try:
            for step in contract.kernel.variant.chain.steps:
                names = {local: value(places[x.name], *indices.get(x.shape, (b, 0))) for local, x in step.operands}
                result = float(formula.evaluate(step.tree, {**names, formula.X: result}, NUMBERS, float))
            off = math.copysign((abs(result) + abs(product) + 1) * 2.0 ** -_TYPES[out.dtype].right, result)
            if abs(result) > abs(off):
                yield at(out, b, i, j), _bits(result - off, out.dtype), _bits(result + off, out.dtype)
        except (ArithmeticError, ValueError):
            continue
