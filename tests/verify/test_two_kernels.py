"""A schedule of two kernels: the order of tiles is that of the first, and both are specialised and counted."""

from __future__ import annotations

import pytest

from generator.emit.loading import load_kernel
from generator.emit.manifest_reader import Rendered
from generator.verify.launches import launches
from generator.verify.machine_code import MachineCode
from generator.verify.specialise import specialise
from generator.verify.tile_order import wrong_order
from tests.helpers.verify.rendered import rendered

SPEC = """\
summary: Summed in parts.
layout: rcr
dtype: bf16
epilogue: [bias+silu, swiglu]
schedule: split_k
load: pointer
tile: [{m: 32, n: 32, k: 32, group: 2, warps: 4, split: 3}]
targets: [sm90]
"""
PLAIN = "gemm_bf16_rcr_bias_silu__splitk_pointer_auto_grouped"
GATED = "gemm_bf16_rcr_swiglu__splitk_pointer_auto_grouped"


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    return rendered(tmp_path_factory.mktemp("parts"), "parts", SPEC)


def test_columns_of_sums_are_counted_in_tiles_of_the_result(family: Rendered) -> None:
    """With a gated linear unit a tile of 32 columns has 64 columns of sums."""
    kernel = family.by_name[GATED]
    (tile,) = kernel.tiles
    sums = [(0, 0), (0, 64), (32, 0), (32, 64)]
    down = [sums[0], sums[2], sums[1], sums[3]]
    assert wrong_order(kernel.variant, tile, (64, 64, 32), 1, down) is None
    assert "tile 1 in the order of stores is (0, 1)" in str(wrong_order(kernel.variant, tile, (64, 64, 32), 1, sums))


def test_a_launch_is_specialised_for_each(family: Rendered) -> None:
    kernel = family.by_name[PLAIN]
    module = load_kernel(family.file(PLAIN))
    (launch,) = [each for each in launches(kernel, "sm90") if each.name == "row0-aligned"]
    first, second = specialise(module, kernel, launch, "sm90")
    assert (first.passed["BLOCK_M"], first.passed["SPLIT"]) == (32, 3)
    assert (second.passed["BLOCK_M"], second.passed["BLOCK_N"], second.passed["SPLIT"]) == (16, 32, 3)
    assert "BLOCK_K" not in second.passed and first.key != second.key and first.on_device and second.on_device


def test_figures_of_both_are_the_larger_and_instructions_are_added() -> None:
    first = MachineCode(100, 0, 40, 0, {"wgmma": 2, "bulk copy out": 0}, "first")
    second = MachineCode(20, 0, 60, 8, {"wgmma": 0, "bulk copy out": 1}, "second")
    assert first.beside(second) == MachineCode(100, 0, 60, 8, {"wgmma": 2, "bulk copy out": 1}, "firstsecond")
