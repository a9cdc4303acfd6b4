"""Products that the matrix unit scales itself: which operands, targets and configurations have them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from generator.language.model import Dtype, Tile
from generator.plan import default_configurations, legality
from generator.plan.resources import matrix_instruction, tensor_memory
from tests.helpers.support import family_of, variant

MXFP8 = Dtype("mxfp8e4m3", "mxfp8e4m3", "fp32", "bf16", "full")
MXFP4 = Dtype("mxfp4", "mxfp4", "fp32", "bf16", None)
MIXED = Dtype("mxfp8e4m3", "mxfp4", "fp32", "bf16", "full")
NVFP4 = Dtype("nvfp4", "nvfp4", "fp32", "bf16", None)


@pytest.mark.parametrize(
    ("dtype", "letter"),
    [
        (Dtype.of("fp16"), "a is stored as fp16"),
        (Dtype("bf16", "mxfp4", "fp32", "bf16", None), "a is stored as bf16"),
        (Dtype.of("fp8e4m3").scaled_by({"a": [1, 128], "b": [128, 128]}), "a is stored as fp8e4m3"),
    ],
)
def test_formats_without_scales_of_their_own_are_refused(dtype: Dtype, letter: str) -> None:
    reason = legality.why_not(variant(dtype=dtype, product="scaled")) or ""
    assert letter in reason and reason.endswith("use 'product: direct'")


@pytest.mark.parametrize(
    ("dtype", "able"),
    [
        (MXFP8, {"sm100", "sm120"}),
        (MXFP4, {"sm100", "sm120"}),
        (NVFP4, {"sm100", "sm120"}),
        # The matrix unit of sm120 has elements of one width in Triton: of two, it would convert them.
        (MIXED, {"sm100"}),
    ],
)
def test_targets_whose_matrix_unit_scales(dtype: Dtype, able: set[str]) -> None:
    v = variant(dtype=dtype, product="scaled")
    assert legality.why_not(v) is None
    found = {target: legality.why_not_on(v, target) for target in ("sm80", "sm90", "sm100", "sm120", "gfx950")}
    assert {target for target, reason in found.items() if reason is None} == able


def test_a_refusal_names_what_the_target_has() -> None:
    scaled = "a scaled product of mxfp4 and mxfp4 needs the matrix unit of sm100 or sm120"
    v = variant(dtype=MXFP4, product="scaled")
    assert legality.why_not_on(v, "sm80") == f"{scaled}; use 'product: direct'"
    assert legality.why_not_on(v, "sm90") == f"{scaled}; use 'product: exchanged'"
    mixed = legality.why_not_on(variant(dtype=MIXED, product="scaled"), "sm120")
    assert mixed == "a scaled product of mxfp8e4m3 and mxfp4 needs the matrix unit of sm100"


@pytest.mark.parametrize(
    ("dtype", "tile", "reason"),
    [
        (MXFP4, Tile(128, 64, 64, warps=4), "k is 64, and the matrix unit needs at least 128"),
        (NVFP4, Tile(128, 64, 32, warps=4), "k is 32, and the matrix unit needs at least 64"),
        (NVFP4, Tile(128, 64, 64, warps=4), None),
        (MXFP8, Tile(64, 64, 128, warps=4), "64 rows and 4 warps, and sm100 multiplies 128 scaled rows"),
        (MXFP8, Tile(128, 64, 128, warps=2), "128 rows and 2 warps, and sm100 multiplies 128 scaled rows"),
        (MXFP8, Tile(256, 256, 128, warps=8, stages=2), "columns of tensor memory"),
        (MXFP8, Tile(128, 256, 128, warps=8), None),
    ],
)
def test_configurations(dtype: Dtype, tile: Tile, reason: str | None) -> None:
    v = variant(dtype=dtype, product="scaled")
    found = legality.why_no_row(v, tile) or legality.why_no_row_on(v, tile, "sm100")
    assert found is None if reason is None else reason in (found or "")


def test_scales_lie_beside_accumulators_in_tensor_memory() -> None:
    v, tile = variant(dtype=MXFP8, product="scaled"), Tile(128, 128, 128, warps=4)
    assert matrix_instruction(v, tile, "sm100") == "tcgen05"
    # 128 columns of sums, and 4 of scales for each operand: the hardware allocates powers of two.
    assert tensor_memory(v, tile, "sm100") == 256
    assert tensor_memory(replace(v, product="direct"), tile, "sm100") == 128


@pytest.mark.parametrize("dtype", [MXFP8, MXFP4, MIXED, NVFP4])
def test_defaults_are_legal(dtype: Dtype) -> None:
    for schedule in ("tiled", "persistent", "split_k"):
        v = variant(dtype=dtype, product="scaled", schedule=schedule)
        tiles = default_configurations.defaults(v)
        assert tiles and all(legality.why_no_row(v, tile) is None for tile in tiles)
        assert any(legality.why_no_row_on(v, tile, "sm100") is None for tile in tiles)


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
