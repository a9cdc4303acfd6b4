"""Quotients of a quantised result: products and sums in place of a division, bit for bit the same elements.

A kernel multiplies by the number that is nearest to 1 / scale, and adds to this product what it leaves of x, times the
same number; both are computed with x and scale times a power of two. The error of the sum before it is rounded is below
2**-22 units of its last place. So it differs from x / scale in fp32 only where x / scale is that near to the middle of
two neighbours in fp32; and the element of a narrow type differs only if one of the two is a number at which the type's
rounding changes. All such pairs of x and scale are computed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from generator.language.elements import ELEMENTS, FORMATS
from generator.language.quantised_results import RESULT_TYPES
from generator.runtime import pack
from generator.verify.interpreter import _fused

Array = np.ndarray[Any, np.dtype[Any]]
#: The types that quotients by scales which are no powers of two are rounded to.
KINDS = tuple(word for word in RESULT_TYPES if word not in FORMATS or not ELEMENTS[FORMATS[word].scales[0]].powers)
#: The bits of a mantissa in fp32, and what the error of a quotient is below, in units of its last place.
BITS, ERROR = 24, Fraction(1, 2**22)


def inverse(scale: Array) -> tuple[Array, Array, Array]:
    """`_inverse` of templates/math.j2, in numpy."""
    exponent = scale.view(np.int32) & 0x7F800000
    power = -np.maximum(0x7F000000 - exponent, 0x00800000).view(np.float32)
    nearest = np.float32(1) / (scale * power)
    return power, np.where(nearest < 0, -scale * power, np.float32(0)), nearest


def quotients(x: Array, scale: Array) -> Array:
    """What a kernel makes of x over the scale of its block."""
    power, divisor, nearest = inverse(scale)
    y = x * power
    first = y * nearest
    return _fused(_fused(first, divisor, y), nearest, first)


def elements(x: Array, word: str) -> Array:
    """The bits of the numbers of a type that quotients are rounded to."""
    found = pack._rounded(torch.from_numpy(x), pack._ELEMENTS[word])
    bits: Array = found.view(torch.uint8).numpy()
    return np.where(np.isnan(x) & found.is_floating_point(), 0xFF, bits)


def boundaries(word: str) -> list[Fraction]:
    """The numbers at which rounding to a type changes."""
    element = pack._ELEMENTS[word]
    numbers = pack._values(torch.arange(256, dtype=torch.uint8).view(1, -1).view(element.dtype), element).flatten()
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


def same(x: Array, scale: Array, word: str) -> bool:
    with np.errstate(all="ignore"):
        found, wanted = elements(quotients(x, scale), word), elements(x / scale, word)
    return bool((found == wanted).all())


@pytest.mark.parametrize("word", KINDS)
def test_quotients_that_are_hard_to_round_are_rounded_as_by_a_division(word: str) -> None:
    x, scale = hard(word)
    assert len(x) > 10 * len(boundaries(word))
    assert same(x, scale, word) and same(-x, scale, word)
    # One product by the nearest number to 1 / scale is not enough for them.
    with np.errstate(all="ignore"):
        assert (elements(x * (np.float32(1) / scale), word) != elements(x / scale, word)).any()


@pytest.mark.parametrize("word", KINDS)
def test_quotients_at_a_boundary_and_beside_it_are_rounded_as_by_a_division(word: str) -> None:
    generator = np.random.default_rng(0)
    scales = np.exp2(generator.uniform(-126, 111, 2000)).astype(np.float32)
    scales = np.concatenate((scales, np.array([1, 2**-126, 1.5 * 2**-126, 2 - 2**-23, 1 + 2**-23], np.float32)))
    for boundary in boundaries(word):
        x = (np.float64(float(boundary)) * scales).astype(np.float32)
        for ulps in range(-3, 4):
            moved = (x.view(np.int32) + ulps).view(np.float32)
            moved = moved[(fits := (x.view(np.int32) > 3) & np.isfinite(moved))]
            assert same(moved, scales[fits], word)


@pytest.mark.parametrize("word", KINDS)
def test_quotients_of_any_numbers_are_rounded_as_by_a_division(word: str) -> None:
    most = np.float32(pack._ELEMENTS[word].limit)
    of_16_bits = np.arange(2**16, dtype=np.uint16)
    halves = (of_16_bits.view(np.float16).astype(np.float32), (of_16_bits.astype(np.uint32) << 16).view(np.float32))
    generator = np.random.default_rng(1)
    for scale in np.exp2(generator.uniform(-126, 111, 200)).astype(np.float32):
        any_numbers = generator.integers(0, 2**32, 2**14, dtype=np.uint32).view(np.float32)
        near_scale = (generator.uniform(-1, 1, 2**14) * np.float64(most) * scale).astype(np.float32)
        for x in (*halves, any_numbers, near_scale):
            # A block's magnitudes are at most its scale times the type's largest number.
            x = x[np.abs(x) <= most * scale]
            assert same(x, np.full_like(x, scale), word)


@pytest.mark.parametrize("word", KINDS)
def test_quotients_of_special_numbers_are_those_of_a_division(word: str) -> None:
    numbers = np.array([0.0, -0.0, 1e-45, -1e-45, 1.0, -1.0, 3e38, np.inf, -np.inf, np.nan], np.float32)
    for scale in (np.inf, np.nan):
        assert same(numbers, np.full_like(numbers, scale), word)
    for scale in (2.0**-126, 3e-38, 1.0, 1.1, 1e30):
        assert same(numbers[:4], np.full(4, scale, dtype=np.float32), word)
