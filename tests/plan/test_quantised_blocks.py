"""Quantised results: their words, what may have one, names, calls, tiles and targets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from generator.epilogue.chain import Epilogue
from generator.language.built_in import chain_of
from generator.language.model import Dtype, Layout, Tile
from generator.language.quantised_results import RESULT_TYPES, quantised_result
from generator.plan import default_configurations, legality
from generator.plan.contract_call import call
from generator.plan.gradients import why_none
from tests.helpers.support import family_of, mistakes_of, variant


def chain(*before: str, to: str = "fp8e4m3", **settings: Any) -> Epilogue:
    return chain_of([*before, {"operation": "quantize", "to": to, **settings}])


@pytest.mark.parametrize(
    ("axes", "what"),
    [
        ({"schedule": "elementwise"}, "elementwise computes single elements; use tiled"),
        ({"schedule": "paired"}, "has several accumulators; use tiled or persistent"),
        ({"schedule": "tripled_m"}, "has several accumulators; use tiled or persistent"),
        ({"schedule": "split_k_atomic"}, "add their sums one by one; use split_k"),
        ({"layout": Layout.of("rcc")}, "rcc has a column-major C; use r"),
        ({"layout": Layout.of("rrs")}, "rrs has a strided C; use r"),
        ({"result": "symmetric"}, "use 'result: full'"),
        ({"load": "block_pointer"}, "block_pointer handles no results quantised under scales of their own"),
        ({"load": "descriptor", "masking": "auto", "epilogue": chain(to="mxfp4")}, "use 'store: pointer'"),
    ],
)
def test_what_has_no_quantised_result(axes: dict[str, Any], what: str) -> None:
    assert what in (legality.why_not(variant(**{"epilogue": chain(), **axes})) or "")


@pytest.mark.parametrize("schedule", ["tiled", "persistent", "split_k", "stream_k", "naive"])
@pytest.mark.parametrize("to", RESULT_TYPES)
def test_schedules_of_whole_tiles_have_every_type(schedule: str, to: str) -> None:
    v = variant(schedule=schedule, epilogue=chain("bias", "swiglu", to=to))
    assert legality.why_not(v) is None
    for tile in default_configurations.defaults(v):
        assert legality.why_no_row(v, tile) is None, tile


@pytest.mark.parametrize("block", [16, 32, 64, 128, 256])
def test_a_block_divides_the_columns_of_a_tile(block: int) -> None:
    v = variant(epilogue=chain(block=block))
    tiles = default_configurations.defaults(v)
    assert tiles and all(tile.n % block == 0 for tile in tiles)
    told = legality.why_no_row(v, Tile(64, 16, 64, warps=4)) or ""
    assert (told == "") == (block == 16)
    assert block == 16 or f"{block} columns of a tile have one scale" in told


@pytest.mark.parametrize(
    ("epilogue", "name"),
    [
        (chain(), "gemm_bf16_rcr_quantize_fp8e4m3"),
        (chain(block=64), "gemm_bf16_rcr_quantize_fp8e4m3_64_block"),
        (chain(to="int8", scale="pow2"), "gemm_bf16_rcr_quantize_int8_pow2"),
        (chain("bias", "swiglu", to="mxfp4"), "gemm_bf16_rcr_bias_swiglu_quantize_mxfp4"),
        (chain("scale", to="nvfp4"), "gemm_bf16_rcr_scale_quantize_nvfp4"),
    ],
)
def test_the_name_has_the_type_and_what_is_not_the_default(epilogue: Epilogue, name: str) -> None:
    assert variant(dtype=Dtype.of("bf16"), epilogue=epilogue).contract == name
    # The chain is the same read from JSON.
    assert chain_of(json.loads(json.dumps(epilogue.data))) == epilogue


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
def test_a_call_returns_elements_and_scales(
    epilogue: Epilogue, batch: str, out: tuple[str, str], scale: tuple[str, str]
) -> None:
    found = call(variant(epilogue=epilogue, batch=batch))
    assert (found.out.dtype, found.out.told) == out
    assert found.out_scale is not None and (found.out_scale.dtype, found.out_scale.told) == scale
    assert found.results[-1] is found.out_scale


def test_saved_values_have_the_type_of_the_spec_and_come_before_the_scales() -> None:
    found = call(variant(epilogue=chain("save", "row_amax", "relu")))
    assert [x.name for x in found.results] == ["out", "preact", "row_amax", "out_scale"]
    assert found.results[1].dtype == "fp16"


def test_integers_may_be_quantised_behind_operations_of_fp32() -> None:
    v = variant(dtype=Dtype.of("int8"), epilogue=chain("scale_m", "scale_n", to="int8"))
    assert legality.why_not(v) is None
    # `save` would store int32.
    saving = variant(dtype=Dtype.of("int8"), epilogue=chain("scale_m", "save", to="int8"))
    assert "give dtype.out a float type" in (legality.why_not(saving) or "")


@pytest.mark.parametrize(
    ("to", "target", "reason"),
    [
        ("fp8e4m3", "sm80", "convert results to fp8e4m3 on sm80"),
        ("nvfp4", "sm80", "convert results to fp8e4m3 on sm80"),
        ("mxfp4", "sm80", None),
        ("int8", "sm80", None),
        ("mxfp8e5m2", "sm90", None),
    ],
)
def test_a_target_writes_the_elements_and_the_scales(to: str, target: str, reason: str | None) -> None:
    found = legality.why_not_on(variant(epilogue=chain(to=to)), target)
    assert (found is None) if reason is None else (reason in (found or ""))


def test_a_quantised_result_has_no_gradient() -> None:
    assert why_none(variant(epilogue=chain(to="mxfp4"))) == "a result that is quantised to mxfp4 has no gradient"
    (mistake,) = mistakes_of(
        "summary: No gradient.\nlayout: rcr\ndtype: bf16\nbackward: kernels\nepilogue: [[{quantize: {to: int8}}]]\n"
    )
    assert "quantised to int8 has no gradient" in str(mistake)


@pytest.mark.parametrize(
    ("element", "message"),
    [
        ("quantize", "'quantize' needs a type, as in [{quantize: {to: fp8e4m3, block: 128}}]"),
        ("{quantize: fp8e4m3}", "expected a mapping"),
        ("{quantize: {block: 128}}", "the key 'to' is missing"),
        ("{quantize: {to: fp8}}", "unknown value 'fp8'"),
        ("{quantize: {to: int4}}", "unknown value 'int4'"),
        ("{quantize: {to: fp8e4m3, block: 100}}", "100 columns; a block has one of 16, 32, 64, 128, 256"),
        ("{quantize: {to: fp8e4m3, block: 8}}", "8 columns; a block has one of"),
        ("{quantize: {to: mxfp4, block: 16}}", "blocks of mxfp4 have 32 columns, found 16"),
        ("{quantize: {to: nvfp4, scale: fp32}}", "scales of nvfp4 are fp8e4m3"),
        ("{quantize: {to: int8, scale: e8m0}}", "unknown value 'e8m0'; legal: fp32, pow2"),
        ("{quantize: {to: int8, blok: 16}}", "unknown key 'blok'"),
        ("{quantize: {to: int8}}, relu", "an operation behind quantize"),
        ("{quantize: {to: int8}}, {quantize: {to: int8}}", "an operation behind quantize"),
        ("accumulate, {quantize: {to: int8}}", "would read C without its scales"),
        ("grad(quantize)", "has no derivative"),
    ],
)
def test_wrong_words_are_refused_with_their_place(element: str, message: str) -> None:
    text = f"summary: Wrong.\nlayout: rcr\ndtype: bf16\nepilogue:\n  - [{element}]\n"
    found = mistakes_of(text)
    assert any(message in str(each) for each in found), found
    assert all(each.split(":")[1] == "5" for each in found), found


def test_a_block_of_a_format_may_be_said_and_changes_nothing() -> None:
    head = "summary: Said.\nlayout: rcr\ndtype: bf16\n"
    (said,) = family_of(f"{head}epilogue: [[{{quantize: {{to: mxfp4, block: 32}}}}]]\n").kernels
    (left,) = family_of(f"{head}epilogue: [[{{quantize: {{to: mxfp4}}}}]]\n").kernels
    assert said.variant == left.variant


def test_an_operand_cannot_have_the_name_of_the_scales() -> None:
    found = mistakes_of(
        "summary: Taken.\nlayout: rcr\ndtype: bf16\nops:\n  own: {formula: x + out_scale, operands: {out_scale: [N]}}\n"
        "epilogue: [[own, {quantize: {to: int8}}]]\n"
    )
    assert found and "out_scale" in str(found[0])


@pytest.mark.parametrize(("to", "limit"), [("fp8e4m3", 464), ("fp8e5m2", 61440), ("mxfp4", 7), ("int8", 127.5)])
def test_the_limit_is_half_a_step_above_the_largest_number(to: str, limit: float) -> None:
    found = chain(to=to).quantisation
    assert found is not None and quantised_result(found).limit == limit
