"""Schedules whose programs share the K of a tile: cases, and reads past L1; test_planted.py runs kernels."""

import pytest

from generator.emit.loading import load_kernel
from generator.verify.cases import cases
from generator.verify.expectations import _partial_sums
from generator.verify.launches import launches
from generator.verify.machine_code import MachineCode
from generator.verify.specialise import specialise
from generator.verify.tile_order import wrong_order

SPEC = """\
summary: A product by programs that share tiles.
layout: rcr
dtype: [bf16, {a: fp16, out: fp32}]
epilogue: [none, bias+relu, swiglu]
schedule: [split_k, split_k_atomic, stream_k]
load: pointer
tile: [{m: 32, n: 32, k: 32, group: 2, warps: 4, split: 3}]
"""
SPLIT = "gemm_bf16_rcr_bias_relu__splitk_pointer_auto_grouped"
GATED = "gemm_bf16_rcr_swiglu__splitk_pointer_auto_grouped"
STREAM = "gemm_bf16_rcr_bias_relu__streamk_pointer_auto_grouped"


def test_parts_of_k_are_full_short_and_empty(family):
    found = {case.name: case.sizes for case in cases(family.by_name[SPLIT], hardware=False)}
    # Three parts of 32 a step: two steps each but for the last, whose second is short; then two, two and none.
    assert (found["parts"][2], found["few-parts"][2]) == (191, 128)
    found = {case.name: case.sizes for case in cases(family.by_name[STREAM], hardware=False)}
    assert (found["shared"], found["handed-on"]) == ((32, 32, 223), (160, 32, 96))


@pytest.mark.parametrize(
    ("how", "past"),
    [
        (" cacheModifier = cg", True),
        (" {cachePolicy = #tt.cache_policy<cache_modifier = cg, eviction_policy = evict_normal>}", True),
        (" {cachePolicy = #tt.cache_policy<cache_modifier = ca, eviction_policy = evict_normal>}", False),
        ("", False),
    ],
)
def test_a_read_past_l1_is_known_as_each_triton_spells_it(family, how, past):
    """Up to 3.8 the first, from 3.9 on the second."""
    counted = "tt.store %0, %1\nttg.barrier local\n%2 = tt.atomic_rmw add, acq_rel, gpu, %3\n"
    code = MachineCode(0, 0, 0, 0, {}, f"{counted}%4 = tt.load %5{how} : tensor<32x32x!tt.ptr<f32>>\n")
    assert [*_partial_sums(family.by_name[STREAM].variant, code)] == (
        [] if past else ["partial sums are read through L1, which may hold old values"]
    )
    # A second kernel finds the partial sums of the first in memory.
    assert not [*_partial_sums(family.by_name[SPLIT].variant, code)]


def test_columns_of_sums_are_counted_in_tiles_of_the_result(family):
    """With a gated linear unit a tile of 32 columns has 64 columns of sums."""
    kernel = family.by_name[GATED]
    (tile,) = kernel.tiles
    sums = [(0, 0), (0, 64), (32, 0), (32, 64)]
    down = [sums[0], sums[2], sums[1], sums[3]]
    assert wrong_order(kernel.variant, tile, (64, 64, 32), 1, down) is None
    assert "tile 1 in the order of stores is (0, 1)" in str(wrong_order(kernel.variant, tile, (64, 64, 32), 1, sums))


def test_a_launch_is_specialised_for_each_of_two_kernels(family):
    kernel = family.by_name[SPLIT]
    module = load_kernel(family.file(SPLIT))
    (launch,) = [each for each in launches(kernel, "sm90") if each.name == "row0-aligned"]
    first, second = specialise(module, kernel, launch, "sm90")
    assert (first.passed["BLOCK_M"], first.passed["SPLIT"]) == (32, 3)
    assert (second.passed["BLOCK_M"], second.passed["BLOCK_N"], second.passed["SPLIT"]) == (16, 32, 3)
    assert "BLOCK_K" not in second.passed and first.key != second.key and first.on_device and second.on_device
