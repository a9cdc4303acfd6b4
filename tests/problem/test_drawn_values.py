"""Random values: their magnitudes, what they may be, and the strides of what holds them."""

from dataclasses import replace

import pytest
import torch

from generator.language.model import Dtype
from generator.problem.drawn_values import Draw
from generator.problem.element_types import torch_type
from generator.problem.product import matrix_strides
from generator.problem.stored_values import values

DTYPES = {
    "fp16": Dtype.of("fp16"),
    "fp8": Dtype.of("fp8e4m3").scaled_by({"a": [1, 128], "b": [128, 128]}),
    "int4": Dtype("bf16", "int4", "fp32", "bf16", None).scaled_by({"b": [128, 1]}),
    "uint4": Dtype("fp16", "uint4", "fp32", "fp16", None).scaled_by({"b": [64, 1]}, zeros=True),
    "int8": Dtype("int8", "int8", "int32", "bf16", None).scaled_by({"a": [1, 0], "b": [0, 1]}),
    "unscaled": Dtype("fp16", "int8", "fp32", "fp16", None),
    "mx": Dtype("mxfp8e4m3", "mxfp4", "fp32", "bf16", None),
    "sparse": replace(Dtype.of("fp16"), sparse=True),
}


def drawn(dtype, spread, m=64, n=48, k=512):
    """The numbers that A (M, K) and B (K, N) stand for."""
    recipes = Draw(torch.Generator().manual_seed(3)).stored(dtype, spread)
    made = {}
    for x, lines in zip(dtype.stored, (m, n), strict=True):
        stored = k // 2 if x.sparse else k // x.packed
        shapes = {x.letter: (stored, torch_type(x.container))}
        if x.sparse:
            shapes[x.index] = (k // 8, torch.uint8)
        if x.block is not None:
            blocks = -(-k // x.block.along) if x.block.along else 1
            across = 1 if x.block.across == 0 else -(-lines // x.block.across)
            shapes[x.scale] = shapes[x.zero] = (blocks, torch_type(x.scale_types[0]))
        for name, (along, kind) in shapes.items():
            if name in recipes:
                other = lines if name in (x.letter, x.index) else across
                made[name] = recipes[name]((other, along) if x.letter == "a" else (along, other), kind)
    a, b = (values(x, made[x.letter], made) for x in dtype.stored)
    return a, b


@pytest.mark.parametrize("spread", [1.0, 0.25])
@pytest.mark.parametrize("word", DTYPES)
def test_a_product_has_the_magnitude_that_is_asked_for(word, spread):
    a, b = drawn(DTYPES[word], spread)
    expected = spread**2 * 512**0.5 / (2**0.5 if word == "sparse" else 1.0)
    assert float((a @ b).square().mean().sqrt()) == pytest.approx(expected, rel=0.5), word


def test_integers_have_their_whole_range():
    found = Draw(torch.Generator().manual_seed(1)).plain((64, 64), torch.int8)
    assert found.unique().tolist() == list(range(-128, 128))


def test_positions_are_two_ascending_ones_among_four():
    found = Draw(torch.Generator().manual_seed(1)).positions((64, 64))
    pairs = {byte & 15 for byte in found.flatten().tolist()} | {byte >> 4 for byte in found.flatten().tolist()}
    assert pairs == {first | second << 2 for second in range(4) for first in range(second)}


def test_nothing_is_drawn_without_a_generator():
    recipes = Draw(None, "meta").stored(DTYPES["uint4"])
    made = recipes["b"]((4, 8), torch.uint8), recipes["b_zero"]((1, 8), torch.float32)
    assert {each.device.type for each in made} == {"meta"}


def test_strides_of_a_matrix():
    assert matrix_strides((3, 5), False) == (5, 1) and matrix_strides((3, 5), True) == (1, 3)
    assert matrix_strides((3, 5), False, pad=2, multiple=8, unit=2) == (16, 2)
    assert matrix_strides((0, 0), True, multiple=8) == (1, 8), "a line of nothing has a place of its own"
