"""What calls are given and return; quantised and symmetric results: what may have one, tiles, targets, gradients."""

import pytest

from generator.language.built_in import chain_of
from generator.language.model import Dtype, Tile
from generator.language.quantised_results import quantised_result
from generator.plan import default_configurations, legality
from generator.plan.contract_call import Argument, call
from generator.plan.extents import B, K, N
from generator.plan.gradients import gradients, why_none
from tests.helpers.support import BASE, family_of, variant


def chain(*before, to="fp8e4m3", **settings):
    return chain_of([*before, {"operation": "quantize", "to": to, **settings}])


@pytest.mark.parametrize("block", [16, 32, 64, 128, 256])
def test_a_block_divides_the_columns_of_a_tile(block):
    v = variant(epilogue=chain(block=block))
    tiles = default_configurations.defaults(v)
    assert tiles and all(tile.n % block == 0 for tile in tiles)
    told = legality.why_no_row(v, Tile(64, 16, 64, warps=4)) or ""
    assert (told == "") == (block == 16)
    assert block == 16 or f"{block} columns of a tile have one scale" in told


@pytest.mark.parametrize(
    ("epilogue", "batch", "out", "scale"),
    [
        (chain(), "none", ("fp8e4m3", "(M, N)"), ("fp32", "(M, ceil(N / 128))")),
        (chain(to="int8", block=32), "strided", ("int8", "(B, M, N)"), ("fp32", "(B, M, ceil(N / 32))")),
        (chain(to="mxfp8e5m2"), "grouped", ("fp8e5m2", "(T, N)"), ("e8m0", "(T, ceil(N / 32))")),
        (chain(to="mxfp4"), "grouped_k", ("uint8", "(G, M, N / 2)"), ("e8m0", "(G, M, ceil(N / 32))")),
        (chain(to="nvfp4"), "none", ("uint8", "(M, N / 2)"), ("fp8e4m3", "(M, ceil(N / 16))")),
    ],
)
def test_a_call_returns_elements_and_scales(epilogue, batch, out, scale):
    found = call(variant(epilogue=epilogue, batch=batch))
    assert (found.out.dtype, found.out.description) == out
    assert found.out_scale is not None and (found.out_scale.dtype, found.out_scale.description) == scale
    assert found.results[-1] is found.out_scale
    # Saved values have the type of the spec and come before the scales.
    found = call(variant(epilogue=chain("save", "row_amax", "relu")))
    assert [x.name for x in found.results] == ["out", "preact", "row_amax", "out_scale"]
    assert found.results[1].dtype == "fp16"


def test_a_block_of_a_format_may_be_said_and_changes_nothing():
    said, left = (
        family_of(f"{BASE}epilogue: [[{{quantize: {{to: mxfp4{more}}}}}]]\n").kernels for more in (", block: 32", "")
    )
    assert [kernel.variant for kernel in said] == [kernel.variant for kernel in left]


@pytest.mark.parametrize(("to", "limit"), [("fp8e4m3", 464), ("fp8e5m2", 61440), ("mxfp4", 7), ("int8", 127.5)])
def test_the_limit_is_half_a_step_above_the_largest_number(to, limit):
    found = chain(to=to).quantisation
    assert found is not None and quantised_result(found).limit == limit


@pytest.mark.parametrize("words", ["", "scale", "scale+add", "mul+gelu", "accumulate", "save+relu"])
@pytest.mark.parametrize("schedule", ["tiled", "persistent", "split_k"])
def test_what_has_one(words, schedule):
    epilogue = chain_of(filter(None, words.split("+")))
    for dtype in ("bf16", "fp16", "tf32x3", "fp32"):
        axes = {"epilogue": epilogue, "schedule": schedule, "dtype": Dtype.of(dtype), "result": "symmetric"}
        assert legality.why_not(variant(**axes)) is None
    batch = legality.why_not(variant(**axes, batch="strided"))
    assert (batch is None) is (schedule != "split_k")


def test_m_is_the_only_name_of_both_sizes():
    described = call(variant(result="symmetric", epilogue=chain_of(["add"]), batch="strided"))
    assert described.sizes == ("B", "M", "M", "K")
    shapes = [x.words for x in (described.a, described.b, *described.operands, described.out)]
    assert shapes == ["B M K", "B K M", "B M M", "B M M"]


def test_gradients_are_of_full_products_and_of_what_is_above_the_diagonal():
    v = variant(result="symmetric", epilogue=chain_of(["scale", "gelu"]))
    assert why_none(v) is None
    found = gradients(v)
    assert all(each.symmetric for each in found)
    assert found[0].a.contract == "gemm_fp16_rrr_none" and found[0].b.contract == "gemm_fp16_crr_none"
    assert (found[0].saving or "").endswith("_resultsymmetric")


WORDS = "name: one\nsummary: One.\nlayout: {layout}\ndtype: {dtype}\nbatch: {batch}\nepilogue: {epilogue}\n"
SIZES = {"B": 2, "M": 3, "N": 5, "K": 7}


def listed(layout="rcr", dtype="bf16", batch="none", epilogue="none"):
    """Every argument of the contract's call: name, shape, type, and dimension of stride 1."""
    text = WORDS.format(layout=layout, dtype=dtype, batch=batch, epilogue=epilogue)
    found = call(family_of(text).kernels[0].variant)
    everything = (found.a, found.b, *found.operands, *found.results)
    return [f"{x.name} {x.words} {x.torch_dtype} {x.unit}" for x in everything]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({}, "a M K torch.bfloat16 1, b K N torch.bfloat16 0, out M N torch.bfloat16 1"),
        # A batch stands in front of matrices.
        (
            {"layout": "crc", "batch": "strided", "epilogue": "[[bias, add, row_sum]]"},
            "a B M K torch.bfloat16 1, b B K N torch.bfloat16 2, bias B N None 1, add B M N None 1, "
            "out B M N torch.bfloat16 1, row_sum B M torch.float32 1",
        ),
        # A gate doubles the columns of B and of what precedes it.
        (
            {"epilogue": "[[bias, swiglu, scale]]"},
            "a M K torch.bfloat16 1, b K 2*N torch.bfloat16 0, bias 2*N None 0, scale  None None, "
            "out M N torch.bfloat16 1",
        ),
    ],
)
def test_what_a_call_is_given_and_returns(words, expected):
    assert ", ".join(listed(**words)) == expected


@pytest.mark.parametrize(("extents", "sizes"), [((), ()), ((1,), (1,)), ((2 * N,), (10,)), ((B, K, 2 * N), (2, 7, 10))])
def test_extents_are_numbers_where_the_sizes_are(extents, sizes):
    assert Argument("x", extents).sizes(SIZES) == sizes
