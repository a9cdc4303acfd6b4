"""Symmetric results: what may have one, its name, its call, and its configurations."""

from __future__ import annotations

import pytest

from generator.epilogue.chain import Epilogue
from generator.language.built_in import chain_of
from generator.language.model import Dtype, Tile
from generator.plan import default_configurations, legality
from generator.plan.contract_call import call
from generator.plan.gradients import gradients, why_none
from tests.helpers.support import family_of, mistakes_of, variant

INT4 = Dtype("bf16", "int4", "fp32", "bf16", None).scaled_by({"b": (128, 1)})


def chain(*words: str) -> Epilogue:
    return chain_of(words)


@pytest.mark.parametrize(
    ("axes", "what"),
    [
        ({"batch": "grouped"}, "grouped divides one of the sizes"),
        ({"batch": "grouped_k"}, "grouped_k divides one of the sizes"),
        ({"dtype": INT4}, "use plain types"),
        ({"epilogue": chain("swiglu")}, "two columns of B"),
        ({"epilogue": chain("bias")}, "bias is for rows or for columns"),
        ({"epilogue": chain("relu", "scale_m")}, "scale_m is for rows or for columns"),
        ({"epilogue": chain("row_sum")}, "row_sum would be reduced over all elements"),
        ({"epilogue": chain("row_amax")}, "row_amax would be reduced over all elements"),
        ({"product": "exchanged"}, "use 'product: direct'"),
        ({"product": "summed", "dtype": Dtype.of("fp32")}, "use 'product: direct'"),
        ({"load": "descriptor", "masking": "auto"}, "use 'store: pointer'"),
        ({"schedule": "naive"}, "schedule naive handles no symmetric results; use tiled or persistent"),
        ({"schedule": "stream_k"}, "schedule stream_k handles no symmetric results"),
        ({"schedule": "elementwise"}, "schedule elementwise handles no symmetric results"),
        ({"schedule": "split_k_atomic", "dtype": Dtype("fp16", "fp16", "fp32", "fp32", None)}, "no symmetric results"),
        ({"load": "block_pointer", "store": "pointer"}, "load block_pointer handles no symmetric results"),
    ],
)
def test_what_has_no_symmetric_result(axes: dict[str, object], what: str) -> None:
    reason = legality.why_not(variant(**{"result": "symmetric", **axes})) or ""
    assert what in reason
    assert legality.why_not(variant(**axes)) is None or "symmetric" not in (legality.why_not(variant(**axes)) or "")


@pytest.mark.parametrize(
    "words", [(), ("scale",), ("scale", "add"), ("mul", "gelu"), ("accumulate",), ("save", "relu")]
)
@pytest.mark.parametrize("schedule", ["tiled", "persistent", "split_k"])
def test_what_has_one(words: tuple[str, ...], schedule: str) -> None:
    for dtype in ("bf16", "fp16", "tf32x3", "fp32"):
        axes = {"epilogue": chain(*words), "schedule": schedule, "dtype": Dtype.of(dtype), "result": "symmetric"}
        v = variant(**axes)
        assert legality.why_not(v) is None
        tiles = default_configurations.defaults(v)
        assert tiles and all(legality.why_no_row(v, tile) is None for tile in tiles)
    batch = legality.why_not(variant(**axes, batch="strided"))
    assert (batch is None) is (schedule != "split_k")


def test_the_name_says_so() -> None:
    v = variant(result="symmetric", rounding="torch", epilogue=chain("add"))
    assert v.contract == "gemm_fp16_rcr_add_roundingtorch_resultsymmetric"
    assert variant(result="symmetric").name.startswith("gemm_fp16_rcr_none_resultsymmetric__tiled_")


def test_m_is_the_only_name_of_both_sizes() -> None:
    described = call(variant(result="symmetric", epilogue=chain("add"), batch="strided"))
    assert described.sizes == ("B", "M", "M", "K")
    shapes = [x.words for x in (described.a, described.b, *described.operands, described.out)]
    assert shapes == ["B M K", "B K M", "B M M", "B M M"]


def test_a_tile_is_at_least_as_wide_as_high() -> None:
    v = variant(result="symmetric")
    assert "at least as wide as high" in (legality.why_no_row(v, Tile(128, 64, 64, warps=4)) or "")
    assert legality.why_no_row(v, Tile(64, 128, 64, warps=4)) is None
    spec = "summary: x\nlayout: rcr\ndtype: fp16\nresult: symmetric\ntile:\n  - {m: 128, n: 64, k: 64, warps: 4}\n"
    assert mistakes_of(spec) or not family_of(spec).kernels[0].tiles


def test_rows_are_not_said_to_be_alike() -> None:
    reason = legality.why_not_selected(variant(result="symmetric", masking="auto"), "heuristic", rows_alike=True) or ""
    assert "M is N in a symmetric result" in reason


def test_gradients_are_of_full_products_and_of_what_is_above_the_diagonal() -> None:
    v = variant(result="symmetric", epilogue=chain("scale", "gelu"))
    assert why_none(v) is None
    found = gradients(v)
    assert all(each.symmetric for each in found)
    assert found[0].a.contract == "gemm_fp16_rrr_none" and found[0].b.contract == "gemm_fp16_crr_none"
    assert (found[0].saving or "").endswith("_resultsymmetric")
