"""What a kernel whose result is quantised makes of every number of 16 bits, beside what the library makes of it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch

from generator.emit.loading import load_kernel
from generator.language.quantised_results import QuantisedResult
from generator.runtime import pack
from generator.runtime.pack import Stored
from generator.verify.interpreter import install

#: The bits of a mantissa in fp32, and what the error of a quotient is below, in units of its last place.
BITS, ERROR = 24, Fraction(1, 2**22)
Array = np.ndarray[Any, np.dtype[Any]]


def every_number(dtype: torch.dtype) -> torch.Tensor:
    """Rows of numbers of one magnitude, then the same in a random order, then blocks of zeros and of small numbers."""
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    shuffled = bits[torch.randperm(len(bits), generator=torch.Generator().manual_seed(0))]
    numbers = torch.cat((bits, shuffled)).view(dtype)
    # What is not finite spoils a whole block, so that most of the shuffled ones have none of it.
    finite = numbers[len(bits) :]
    finite[~finite.isfinite()] = 0
    fractions = torch.tensor([3 / 64, 21 / 448, 1 / 448, -1 / 448, 0.5, -0.0, 0.0, 1.0], dtype=dtype)
    rows = [numbers.view(-1, 256), (fractions.repeat(32) * 2.0**-9).to(dtype)[None], torch.zeros(1, 256, dtype=dtype)]
    rows.append(torch.tensor([float("inf"), -1.0, float("nan"), 2.0], dtype=dtype).repeat_interleave(64)[None])
    return torch.cat(rows)


def by_library(x: torch.Tensor, found: QuantisedResult) -> tuple[torch.Tensor, torch.Tensor]:
    """What `_pack` makes of the rows of x."""
    word = found.format or found.kind
    given = pack.quantize_rows(x, Stored(word, "row", (1, found.block)))
    if found.rule != "pow2":
        return given["a"], given["a_scale"]
    mantissa, exponent = torch.frexp(given["a_scale"])
    power = torch.ldexp(torch.ones_like(mantissa), exponent - (mantissa == 0.5).int())
    scale = power.where(given["a_scale"].isfinite(), given["a_scale"])
    of_each = scale.repeat_interleave(found.block, -1)[:, : x.shape[1]]
    return pack._rounded(x.float() / of_each, pack._ELEMENTS[word]), scale


def differing(folder: Path, name: str, found: QuantisedResult, columns: int, of: str) -> list[Any]:
    """The numbers of 16 bits whose elements or scales a kernel does not find as the library."""
    return differing_of(folder, name, found, every_number(getattr(torch, of))[:, :columns].contiguous().float())


def differing_of(folder: Path, name: str, found: QuantisedResult, x: torch.Tensor) -> list[Any]:
    """The numbers whose elements or scales a kernel, whose chain adds them to nothing, does not find as the library."""
    # A sum that begins at 0 is never -0.
    x, columns = x + 0.0, x.shape[1]
    a, b = torch.zeros(len(x), 1, dtype=torch.bfloat16), torch.zeros(1, columns, dtype=torch.bfloat16)
    out, scale = load_kernel(folder / f"{name}.py").gemm(a, b, add=x)
    wanted, wanted_scale = by_library(x, found)
    same = _same(scale, wanted_scale)
    wrong: list[Any] = [("scale", *at) for at in (~same).nonzero().tolist()]
    return wrong + [("element", *at) for at in (~_same(out, wanted)).nonzero().tolist()]


def differing_where_fused(folder: Path, name: str, found: QuantisedResult, x: torch.Tensor) -> list[Any]:
    """The same with the corrections of Triton's interpreter, which stay in this process."""
    install()
    return differing_of(folder, name, found, x)


def _same(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Whether elements have the same bits; those of a NaN may be others."""
    assert x.dtype == y.dtype and x.shape == y.shape, (x.dtype, y.dtype, x.shape, y.shape)
    integer = {1: torch.uint8, 4: torch.int32}[x.element_size()]
    same = x.contiguous().view(integer) == y.contiguous().view(integer)
    floating = x.dtype.is_floating_point
    return same | (x.float().isnan() & y.float().isnan()) if floating else same


def boundaries(word: str) -> list[Fraction]:
    """The numbers at which rounding to a type changes."""
    element = pack._ELEMENTS[word]
    numbers = pack._values(torch.arange(2**element.bits, dtype=torch.uint8).view(element.dtype), element)
    above = sorted({Fraction(x) for x in numbers.tolist() if 0 <= x < math.inf})
    return [(x + y) / 2 for x, y in itertools.pairwise(above)]


def near(boundary: Fraction) -> Iterator[tuple[int, int, int]]:
    """Each (x, s, e) of mantissas for which x * 2**e / s is almost between `boundary` and a neighbour of it in fp32."""
    exponent = math.floor(math.log2(boundary)) - BITS + 1
    number = int(boundary / Fraction(2) ** exponent)
    assert number * Fraction(2) ** exponent == boundary
    sides = [(2 * number + 1, exponent - 1)]
    sides.append((2 * number - 1, exponent - 1) if number > 1 << BITS - 1 else (4 * number - 1, exponent - 2))
    for (middle, power), shift in itertools.product(sides, (BITS, BITS + 1)):
        most = math.ceil(2 * (1 << BITS) * ERROR)
        for off in range(-most, most + 1):
            # x * 2**shift - s * middle is `off`.
            s = -off * pow(middle, -1, 1 << shift) % (1 << shift)
            x = (s * middle + off) >> shift
            if 1 << BITS - 1 <= s < 1 << BITS and 1 << BITS - 1 <= x < 1 << BITS:
                yield x, s, shift + power


def hard(word: str) -> tuple[Array, Array]:
    """All elements and scales, but for powers of two, whose quotients an error might round to another element."""
    found = []
    for boundary in boundaries(word):
        for x, s, e in near(boundary):
            # The least scale, one of those between, and the largest of a finite block.
            for power in (-149, -24, 96):
                each = math.ldexp(x, power + e), math.ldexp(s, power)
                if max(each) < 2.0**128 and all(float(np.float32(number)) == number for number in each):
                    found.append(each)
    pairs = np.array(found, dtype=np.float32)
    return np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])
