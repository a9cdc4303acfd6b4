"""Quotients of a quantised result: products and sums in place of a division, bit for bit the same elements.

A kernel multiplies by the number that is nearest to 1 / scale, and adds to this product what it leaves of x, times the
same number; both are computed with x and scale times a power of two. The error of the sum before it is rounded is below
2**-22 units of its last place. So it differs from x / scale in fp32 only where x / scale is that near to the middle of
two neighbours in fp32; and the element of a narrow type differs only if one of the two is a number at which the type's
rounding changes. All such pairs of x and scale are computed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import triton
from triton.compiler import ASTSource

from generator.emit.loading import load_kernel
from generator.emit.manifest_reader import read
from generator.language.elements import ELEMENTS, FORMATS
from generator.language.quantised_results import RESULT_TYPES
from generator.runtime import pack
from generator.verify.interpreter import _fused
from generator.verify.launches import launches
from generator.verify.specialise import gpu_target, specialise
from tests.helpers import shipped
from tests.helpers.verify.quantised_blocks import boundaries, hard

Array = np.ndarray[Any, np.dtype[Any]]
#: The types that quotients by scales which are no powers of two are rounded to.
KINDS = tuple(word for word in RESULT_TYPES if word not in FORMATS or not ELEMENTS[FORMATS[word].scales[0]].powers)


def quotients(x: Array, scale: Array) -> Array:
    """`_quotients` of templates/math.j2 where products and sums are fused, in numpy."""
    exponent = scale.view(np.int32) & 0x7F800000
    power = -np.maximum(0x7F000000 - exponent, 0x00800000).view(np.float32)
    inverse = np.float32(1) / (scale * power)
    divisor = np.where(inverse < 0, -scale * power, np.float32(0))
    y = x * power
    near = y * inverse
    return _fused(_fused(near, divisor, y), inverse, near)


def elements(x: Array, word: str) -> Array:
    """The bits of the numbers of a type that quotients are rounded to."""
    found = pack._rounded(torch.from_numpy(x), pack._ELEMENTS[word])
    bits: Array = found.view(torch.uint8).numpy()
    return np.where(np.isnan(x) & found.is_floating_point(), 0xFF, bits)


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


def test_a_compiled_kernel_divides_for_scales_and_not_for_elements() -> None:
    name = "gemm_bf16_rcr_quantize_fp8e4m3__persistent_descriptor_auto_grouped"
    kernel = read(shipped.folder("quantised_blocks")).by_name[name]
    launch = next(each for each in launches(kernel, "sm90") if "aligned" in each.name)
    wanted = specialise(load_kernel(shipped.folder("quantised_blocks") / f"{name}.py"), kernel, launch, "sm90")[0]
    source = ASTSource(wanted.function, wanted.signature, wanted.constants, wanted.known)
    text = triton.compile(source, target=gpu_target("sm90"), options=wanted.options).asm["ptx"]
    elements_of_a_thread = launch.tile.m * launch.tile.n // (32 * launch.tile.warps)
    assert text.count("div.rn.f32") + text.count("div.full.f32") < elements_of_a_thread / 2
    assert text.count("fma.rn.f32") >= 2 * elements_of_a_thread
