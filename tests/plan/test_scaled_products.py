"""Products that the matrix unit scales itself: which operands, targets and configurations have them."""

from __future__ import annotations

from dataclasses import replace

from generator.language.model import Dtype, Tile
from generator.plan.resources import matrix_instruction, tensor_memory
from tests.helpers.support import family_of, variant

MXFP8 = Dtype("mxfp8e4m3", "mxfp8e4m3", "fp32", "bf16", "full")
MXFP4 = Dtype("mxfp4", "mxfp4", "fp32", "bf16", None)


def test_scales_lie_beside_accumulators_in_tensor_memory() -> None:
    v, tile = variant(dtype=MXFP8, product="scaled"), Tile(128, 128, 128, warps=4)
    assert matrix_instruction(v, tile, "sm100") == "tcgen05"
    # 128 columns of sums, and 4 of scales for each operand: the hardware allocates powers of two.
    assert tensor_memory(v, tile, "sm100") == 256
    assert tensor_memory(replace(v, product="direct"), tile, "sm100") == 128


def test_elements_are_stored_alike_and_multiplied_otherwise() -> None:
    v = variant(dtype=MXFP4, product="scaled")
    assert v.dtype.stored_a.multiplied == "e2m1" and not v.dtype.stored_a.converted
    direct = replace(v, product="direct")
    assert direct.dtype == MXFP4 and direct.dtype.stored_a.converted
    assert direct.contract == v.contract


def test_a_portfolio_has_them_where_a_target_scales() -> None:
    text = "summary: x.\nlayout: rcr\ndtype: {{a: mxfp4}}\nselect: fastest\ntargets: [{}]\n"
    assert "scaled" in {kernel.variant.product for kernel in family_of(text.format("sm100")).kernels}
    assert "scaled" not in {kernel.variant.product for kernel in family_of(text.format("sm90")).kernels}
