"""Operands as they are stored, in fragment order too, or scaled by the matrix unit: kernels, configurations, calls."""

import itertools
from dataclasses import replace

import pytest
import torch

from generator.language.built_in import chain_of
from generator.language.model import Dtype, Layout, Tile
from generator.lowering.shuffled import shuffle_of
from generator.plan import default_configurations, legality, portfolio
from generator.plan.contract_call import call
from generator.plan.resources import in_registers, matrix_instruction, tensor_memory
from generator.problem import stored_values
from tests.helpers.support import family_of, variant

INT4 = Dtype("bf16", "int4", "fp32", "bf16", None).scaled_by({"b": [128, 1]})
SPARSE = replace(Dtype.of("fp16"), sparse=True)
ZEROS = Dtype("fp16", "uint4", "fp32", "fp16", None).scaled_by({"b": [64, 2]}, zeros=True)
MX = Dtype("mxfp8e4m3", "mxfp4", "fp32", "bf16", "full")
NVFP4 = Dtype("nvfp4", "nvfp4", "fp32", "bf16", None)
FP8 = Dtype.of("fp8e4m3").scaled_by({"a": [1, 128], "b": [128, 128]})


def stored(dtype=INT4, **axes):
    return variant(**({"dtype": dtype} | axes))


@pytest.mark.parametrize("dtype", [INT4, ZEROS, FP8, MX, SPARSE])
@pytest.mark.parametrize("product", ["direct", "exchanged"])
@pytest.mark.parametrize("schedule", ["tiled", "persistent", "split_k", "stream_k"])
def test_descriptors_load_both_columns_of_a_gate(dtype, product, schedule):
    axes = {"load": "descriptor", "store": "pointer", "schedule": schedule, "product": product}
    for gate in ("swiglu", "geglu"):
        assert legality.why_not(stored(dtype, epilogue=chain_of((gate,)), **axes)) is None


def test_a_step_has_one_scale():
    reason = legality.why_no_row(stored(), Tile(64, 64, 256, warps=4))
    assert reason == "k is 256, and a step has one scale of b, which is for 128 elements along K"
    assert legality.why_no_row(stored(), Tile(64, 64, 64, warps=4)) is None
    reason = legality.why_no_row(stored(load="descriptor"), Tile(64, 64, 16, warps=4))
    assert reason == "k is 16, and a descriptor copies at least 16 bytes of a row of b"
    for dtype, product in itertools.product(
        (ZEROS, MX, NVFP4, INT4.scaled_by({"b": [32, 1]})), ("direct", "exchanged")
    ):
        v = stored(dtype, product=product)
        assert all(legality.why_no_row(v, tile) is None for tile in default_configurations.defaults(v))


INT4_WORDS = replace(INT4, fragments=True)
INT8_WORDS = replace(Dtype("bf16", "int8", "fp32", "bf16", None).scaled_by({"b": [0, 1]}), fragments=True)
ZEROS_WORDS = replace(ZEROS.scaled_by({"b": [64, 1]}, zeros=True), fragments=True)
BATCH = {"batch": "strided", "epilogue": chain_of(("swiglu",))}


@pytest.mark.parametrize(
    ("dtype", "axes", "expected"),
    [
        (
            ZEROS,
            {},
            "b K//2 N uint8; b_scale cdiv(K,64) cdiv(N,2) SCALES; b_zero cdiv(K,64) cdiv(N,2) (*SCALES, uint8)",
        ),
        (NVFP4, {}, "b K//2 N uint8; a_scale M cdiv(K,16) fp8; b_scale cdiv(K,16) N fp8"),
        (MX, {}, "b K//2 N uint8; a_scale M cdiv(K,32) (e8m0, uint8); b_scale cdiv(K,32) N (e8m0, uint8)"),
        (FP8, BATCH, "b B K 2*N fp8; a_scale B M cdiv(K,128) SCALES; b_scale B cdiv(K,128) cdiv(2*N,128) SCALES"),
        (FP8.scaled_by({"a": [1, 0], "b": [0, 0]}), {}, "b K N fp8; a_scale M 1 SCALES; b_scale 1 1 SCALES"),
        (SPARSE, BATCH, "b B K//2 2*N float16; b_index B K//8 2*N uint8"),
        (INT4_WORDS, {}, "b K//8 N int32; b_scale cdiv(K,128) N SCALES"),
        (INT8_WORDS, {}, "b K//4 N int32; b_scale 1 N SCALES"),
    ],
    ids=lambda value: getattr(value, "word", ""),
)
def test_a_call_describes_containers_and_scales(dtype, axes, expected):
    made = call(stored(dtype, **axes))
    found = "; ".join(f"{x.name} {x.words} {x.torch_dtype}" for x in (made.b, *made.stored)).replace("torch.", "")
    assert found.replace("float8_e4m3fn", "fp8").replace("float8_e8m0fnu", "e8m0") == expected
    assert made.a.words.split()[-1] == ("K//2" if dtype.stored_a.packed == 2 else "K")


def test_an_exchanged_product_reads_what_it_converts_from_registers():
    assert in_registers(stored(product="exchanged")) == "b" and in_registers(stored()) is None
    assert in_registers(stored(FP8, product="exchanged")) is None


def of_one_word(order, group, bits):
    """Whether elements 2i, 2i + 1, 2i + 8 and 2i + 9 of each 16, which a thread has, are of one word of 32 bits."""
    threads = itertools.product(range(0, len(order), group), range(4))
    words = [{order[start + 2 * i + at] * bits // 32 for at in range(group) if at % 8 < 2} for start, i in threads]
    return all(len(each) == 1 for each in words)


@pytest.mark.parametrize(("dtype", "pairs"), [(INT4, 4), (Dtype("bf16", "int8", "fp32", "bf16", None), 2)])
def test_the_order_of_k_is_one_of_each_group(dtype, pairs):
    v = stored(dtype, product="exchanged")
    found = shuffle_of(v, [Tile(16, 64, 64, warps=4)])
    assert found is not None and (found.words, found.pairs, found.group) == (4, pairs, 8 * pairs)
    order = [eval(found.offsets.partition(" = ")[2], {"offs_k": k}) for k in range(64)]
    assert sorted(order) == list(range(64)) and all(
        first // found.group == k // found.group for k, first in enumerate(order)
    )
    assert of_one_word(order, found.group, dtype.stored_b.bits)


def test_of_few_rows_a_has_the_order_in_which_words_of_b_are_decoded():
    found = shuffle_of(stored(product="exchanged", load="descriptor"), [Tile(16, 64, 64, warps=4)])
    assert found is not None and found.few == "4 * BLOCK_M <= BLOCK_N"
    # Of each word of eight elements, those of two bytes that are two apart, first their last bits.
    halves, byte, half = (torch.arange(2)[(..., *[None] * more)] for more in (0, 2, 1))
    decoded = 8 * torch.arange(8)[:, None, None, None] + 4 * halves + 2 * byte + half
    tiles = {"a": torch.arange(64).reshape(1, 64), "b": decoded.reshape(1, 64), "BLOCK_K": 64}
    for name, paired in (("a", False), ("b", True)):
        for statement in found.ordered(name, "1", paired=paired):
            exec(statement, tiles)
    order = tiles["a"].flatten().tolist()
    assert order == tiles["b"].flatten().tolist() and sorted(order) == list(range(64))
    assert of_one_word(order, found.group, 4)


def test_the_order_of_k_is_kept_where_it_is_of_no_use():
    tiles = [Tile(16, 64, 64, warps=4)]
    assert shuffle_of(stored(), tiles) is None
    int8 = Dtype("bf16", "int8", "fp32", "bf16", None)
    assert shuffle_of(stored(int8, product="exchanged", load="descriptor"), tiles) is None
    across = stored(product="exchanged", load="descriptor", layout=Layout("column", "column", "row"))
    assert shuffle_of(across, tiles) is None
    assert shuffle_of(stored(FP8, product="exchanged"), tiles) is None
    assert shuffle_of(stored(product="exchanged"), [*tiles, Tile(16, 64, 16, warps=4)]) is None
    for dtype in (INT4_WORDS, INT8_WORDS):
        assert shuffle_of(stored(dtype, product="exchanged"), [Tile(16, 64, 128, warps=4)]) is None


@pytest.mark.parametrize(("depth", "pairs"), [(16, 2), (64, 8), (128, 16), (256, 16)])
def test_a_thread_reads_whole_words_of_what_is_kept(depth, pairs):
    found = shuffle_of(stored(SPARSE, product="exchanged"), [Tile(16, 64, depth, warps=4)])
    assert found is not None and (found.words, found.pairs) == (4, pairs)
    order = [eval(found.offsets.partition(" = ")[2], {"offs_k": k}) for k in range(depth)]
    assert sorted(order) == list(range(depth))
    for thread in range(4):
        own = [order[2 * thread + at + more] for at in range(0, found.group, 8) for more in (0, 1)]
        # Elements that are neighbours, in groups of four of which none is another thread's.
        assert own == list(range(2 * pairs * thread, 2 * pairs * (thread + 1)))


MXFP8 = Dtype("mxfp8e4m3", "mxfp8e4m3", "fp32", "bf16", "full")
MXFP4 = Dtype("mxfp4", "mxfp4", "fp32", "bf16", None)


def test_scales_lie_beside_accumulators_in_tensor_memory():
    v, tile = variant(dtype=MXFP8, product="scaled"), Tile(128, 128, 128, warps=4)
    assert matrix_instruction(v, tile, "sm100") == "tcgen05"
    # 128 columns of sums, and 4 of scales for each operand: the hardware allocates powers of two.
    assert tensor_memory(v, tile, "sm100") == 256
    assert tensor_memory(replace(v, product="direct"), tile, "sm100") == 128


def test_elements_are_stored_alike_and_multiplied_otherwise():
    v = variant(dtype=MXFP4, product="scaled")
    assert v.dtype.stored_a.multiplied == "e2m1" and not v.dtype.stored_a.converted
    direct = replace(v, product="direct")
    assert direct.dtype == MXFP4 and direct.dtype.stored_a.converted
    assert direct.contract == v.contract


def test_a_portfolio_has_them_where_a_target_scales():
    text = "summary: x.\nlayout: rcr\ndtype: {{a: mxfp4}}\nselect: fastest\ntargets: [{}]\n"
    assert "scaled" in {kernel.variant.product for kernel in family_of(text.format("sm100")).kernels}
    assert "scaled" not in {kernel.variant.product for kernel in family_of(text.format("sm90")).kernels}


def test_a_step_has_whole_groups():
    reason = legality.why_no_row(stored(INT4_WORDS), Tile(64, 64, 16, warps=4))
    assert reason == "k is 16, and b stores 32 elements along K together"
    assert legality.why_no_row(stored(INT8_WORDS), Tile(64, 64, 16, warps=4)) is None
    few = stored(INT4_WORDS.scaled_by({"b": [16, 1]}))
    few = replace(few, dtype=replace(few.dtype, fragments=True))
    assert "16 elements along K, and a step needs a multiple of 32" in (legality.why_not(few) or "")
    for v in (
        stored(dtype, product=word)
        for dtype in (INT4_WORDS, INT8_WORDS, ZEROS_WORDS)
        for word in ("direct", "exchanged")
    ):
        assert all(legality.why_no_row(v, tile) is None for tile in default_configurations.defaults(v))


@pytest.mark.parametrize(("dtype", "alone"), [(INT4_WORDS, True), (INT8_WORDS, False), (ZEROS_WORDS, False)])
def test_elements_are_scaled_where_that_saves_a_sum(dtype, alone):
    assert dtype.stored_b.scaled_alone == alone
    assert dtype.stored_b.scales_sums == (dtype is ZEROS_WORDS)
    assert not replace(dtype, fragments=False).stored_b.scaled_alone


def test_measurements_without_this_order_stand_for_it():
    contracts = list(portfolio.similar(stored(INT4_WORDS)))
    assert contracts[0] == stored(INT4_WORDS).contract
    assert stored(replace(INT4_WORDS, fragments=False)).contract in contracts


def test_the_bound_covers_scales_of_the_elements_type():
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(8, 256, generator=generator).bfloat16()
    b = torch.randint(-(2**31), 2**31, (32, 16), dtype=torch.int32, generator=generator)
    scale = torch.rand(2, 16, generator=generator) + 0.5
    expected = stored_values.product(INT4_WORDS, a, b, {"b_scale": scale}, hardware=False)
    exact, bound = expected.value, expected.error
    elements = stored_values.decoded(INT4_WORDS.stored_b, b, {})
    assert elements.shape == (256, 16) and elements.min() == -8 and elements.max() == 7
    rounded = elements.bfloat16() * scale.bfloat16().repeat_interleave(128, 0)
    found = a.double() @ rounded.double()
    assert bool(((found - exact).abs() <= bound).all()) and bool((found - exact).abs().max() > 0)
    # The bound is not so wide that a scale of another block would pass.
    other = a.double() @ (elements * scale.flip(0).double().repeat_interleave(128, 0))
    assert bool(((other - exact).abs() > bound).any())
