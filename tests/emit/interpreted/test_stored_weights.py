"""Products with the keywords that a family's `_pack.py` makes of a weight."""

import importlib

import torch

from generator.problem import stored_values
from tests.helpers.emit.calls import contracts, drawn

SPEC = """\
summary: Weights as they are stored.
layout: [rcr, rrr]
batch: [none, strided]
dtype:
  - {a: bf16, b: int4, scales: {b: [32, 1]}}
  - {a: fp16, b: int4}
  - {a: fp16, b: uint4, scales: {b: [32, 1]}, zeros: {b: true}}
  - {a: fp16, b: int8, scales: {b: [0, 1]}}
  - {a: bf16, b: int8, scales: {b: [64, 1]}, zeros: {b: true}}
  - {a: bf16, b: fp8e4m3, scales: {b: [64, 16]}}
  - {a: fp8e4m3, b: fp8e4m3, scales: {a: [1, 32], b: [32, 32]}}
  - {a: bf16, b: mxfp4}
  - {a: bf16, b: mxfp8e4m3}
  - {a: mxfp8e4m3, b: mxfp8e5m2}
  - {a: fp16, b: nvfp4}
  - {a: fp16, sparsity: {b: "2:4"}}
tile: [{m: 16, n: 16, k: 32, warps: 1}, {m: 16, n: 16, k: 16, warps: 1}]
"""
#: The last block of each kind is short.
M, N, K = 17, 19, 72


def operands(variant, weight):
    """A, and its scales where the contract has them."""
    batch = weight.shape[:-2]
    a = drawn((*batch, M, K), torch.float32).to(getattr(torch, variant.dtype.stored_a.element.torch))
    blocks = variant.dtype.stored_a.block
    scale = {} if blocks is None else {"a_scale": torch.rand(*batch, M, -(-K // blocks.along)) + 0.5}
    if variant.dtype.stored_a.bytewise:
        scale["a_scale"] = scale["a_scale"].to(torch.float8_e8m0fnu)
    return {"a": a, **scale}


def test_a_product_is_that_with_the_dequantised_weight(family):
    pack = importlib.import_module(f"{family.__name__}._pack")
    assert pack.CONTRACTS.keys() == contracts(family).keys()
    for seed, (name, variant) in enumerate(contracts(family).items()):
        weight = drawn((3, K, N) if variant.batch == "strided" else (K, N), torch.float32, seed=seed).clamp(-7, 7)
        given, packed = operands(variant, weight), pack.quantize(weight, name)
        found = getattr(family, name)(**given, **packed).double()
        a = given["a"].double()
        if "a_scale" in given:
            a = a * given["a_scale"].double().repeat_interleave(variant.dtype.stored_a.block.along, -1)[..., :K]
        expected = a @ pack.dequantize(name, **packed).double()
        scales = {keyword: x for keyword, x in {**given, **packed}.items() if keyword not in ("a", "b")}
        _, bound = stored_values.product(variant.dtype, given["a"], packed["b"], scales, hardware=False)
        rounding = torch.finfo(getattr(torch, {"bf16": "bfloat16", "fp16": "float16"}[variant.dtype.out])).eps
        # `dequantize` rounds a value in fp32.
        rounded = a.abs() @ pack.dequantize(name, **packed).double().abs() * 2.0**-23
        assert ((found - expected).abs() <= bound + rounded + rounding * expected.abs()).all(), name
