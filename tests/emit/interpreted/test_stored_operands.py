"""Contracts of stored operands as torch sees them: operators, fake tensors, torch.compile, vmap, errors and values."""

import importlib

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from generator.problem import stored_values
from generator.verify.coverage import Coverage, choose
from tests.helpers.emit.calls import contracts, drawn, operands
from tests.helpers.emit.opchecks import checked

SPEC = """\
summary: Stored operands.
layout: rcr
dtype:
  - {a: bf16, b: int4, scales: {b: [32, 1]}}
  - {a: fp16, b: uint4, scales: {b: [32, 2]}, zeros: {b: true}}
  - {a: bf16, b: int4, scales: {b: [32, 1]}, packing: {b: fragments}}
  - {a: fp8e4m3, scales: {a: [1, 32], b: [32, 32]}}
  - {a: mxfp8e4m3, b: mxfp4}
  - {a: mxfp4}
  - {a: fp16, sparsity: {b: "2:4"}}
batch: [none, strided]
epilogue: [none, bias+save+row_amax]
select: fastest
with: prepare
load: pointer
schedule: [tiled, split_k]
tile: [{m: 16, n: 64, k: 32, warps: 4}]
targets: [sm90]
"""
SPARSE = "gemm_fp16_sparse24_rcr_none"
INT4 = "gemm_bf16xint4_fp32_bf16_b32x1_rcr_none"


def pairs(family):
    """Contracts that have every storage in a batch and without, with a bias and without, and every pair of these."""
    found = contracts(family)
    chosen = choose([variant.words for variant in found.values()], Coverage("pairs")).indices
    return {name: variant for place, (name, variant) in enumerate(found.items()) if place in chosen}


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.operators)], ids=["pairs", "all"])
def test_every_contract_is_an_operator(family, whole):
    variants = contracts(family) if whole else pairs(family)
    assert len(variants) == (28 if whole else 15)
    for place, name in enumerate(variants):
        assert checked(family, name) == [name]
        if whole or place % 2 == 0:
            assert checked(family, name, filled=True) == [f"{name}_out"]


TOGETHER = "{} is {}: {} stores {} of its elements together: it must be a multiple of {}"
#: What a call has instead; an operand that is None is left out.
WRONG = [
    (INT4, lambda x: {"b_scale": None}, TypeError, "missing b_scale"),
    (INT4, lambda x: {"b_zero": x["b_scale"]}, TypeError, "unexpected b_zero"),
    (INT4, lambda x: {"b_scale": x["b_scale"].int()}, TypeError, "b_scale must be torch.float32 or .* torch.int32"),
    (INT4, lambda x: {"b": x["b"].view(torch.int8)}, TypeError, "b must be torch.uint8"),
    (INT4, lambda x: {"b_scale": x["b_scale"][:, 1:]}, ValueError, "b_scale must have shape"),
    (INT4, lambda x: {"a": x["a"][:, 1:]}, ValueError, TOGETHER.format("K", 33, "b", 2, 2)),
    (SPARSE, lambda x: {"b_index": None}, TypeError, "missing b_index"),
    (SPARSE, lambda x: {"b_index": x["b_index"].view(torch.int8)}, TypeError, "b_index must be torch.uint8"),
    (SPARSE, lambda x: {"b_index": x["b_index"][1:]}, ValueError, "b_index must have shape"),
    (SPARSE, lambda x: {"a": x["a"][:, :36], "b": x["b"][:18]}, ValueError, TOGETHER.format("K", 36, "b_index", 8, 8)),
]


@pytest.mark.parametrize(("name", "change", "error", "told"), WRONG)
def test_wrong_operands_are_refused_with_memory_and_without(family, name, change, error, told):
    given, function = operands(contracts(family)[name]), getattr(family, name)
    wrong = {x: value for x, value in {**given, **change(given)}.items() if value is not None}
    with pytest.raises(error, match=told):
        function(**wrong)
    with FakeTensorMode() as mode:
        fake = [{x: mode.from_tensor(value) for x, value in each.items()} for each in (given, wrong)]
        assert function(**fake[0]).shape == (given["a"].shape[0], given["b"].shape[1])
        with pytest.raises(error, match=told):
            function(**fake[1])


def test_a_gradient_is_refused(family):
    given = operands(contracts(family)[INT4])
    for name in ("a", "b_scale"):
        with pytest.raises(RuntimeError, match=r"no gradients of such a product are computed") as found:
            getattr(family, INT4)(**{**given, name: given[name].detach().requires_grad_()})
        assert "backward: kernels" not in str(found.value), "which is refused for it"


def test_a_map_over_products_is_a_batch(family):
    single, batch = getattr(family, INT4), getattr(family, INT4.replace("gemm", "bmm"))
    given = operands(contracts(family)[INT4.replace("gemm", "bmm")])
    mapped = torch.vmap(lambda a, b, b_scale: single(a, b, b_scale=b_scale))(*given.values())
    torch.testing.assert_close(mapped, batch(**given))


WEIGHTS = """\
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


def factor(variant, weight):
    """A, and its scales where the contract has them."""
    batch = weight.shape[:-2]
    a = drawn((*batch, M, K), torch.float32).to(getattr(torch, variant.dtype.stored_a.element.torch))
    blocks = variant.dtype.stored_a.block
    scale = {} if blocks is None else {"a_scale": torch.rand(*batch, M, -(-K // blocks.along)) + 0.5}
    if variant.dtype.stored_a.bytewise:
        scale["a_scale"] = scale["a_scale"].to(torch.float8_e8m0fnu)
    return {"a": a, **scale}


def test_a_product_is_that_with_the_dequantised_weight(render):
    """With the keywords that a family's `_pack.py` makes of a weight."""
    family = render("stored_weights", WEIGHTS)
    pack = importlib.import_module(f"{family.__name__}._pack")
    assert pack.CONTRACTS.keys() == contracts(family).keys()
    for seed, (name, variant) in enumerate(contracts(family).items()):
        weight = drawn((3, K, N) if variant.batch == "strided" else (K, N), torch.float32, seed=seed).clamp(-7, 7)
        given, packed = factor(variant, weight), pack.quantize(weight, name)
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
