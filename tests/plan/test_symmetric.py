"""Symmetric results: what may have one, its name, its call, and its configurations."""

from __future__ import annotations

import pytest

from generator.language.built_in import chain_of
from generator.language.model import Dtype
from generator.plan import legality
from generator.plan.contract_call import call
from generator.plan.gradients import gradients, why_none
from tests.helpers.support import variant


@pytest.mark.parametrize("words", ["", "scale", "scale+add", "mul+gelu", "accumulate", "save+relu"])
@pytest.mark.parametrize("schedule", ["tiled", "persistent", "split_k"])
def test_what_has_one(words: str, schedule: str) -> None:
    epilogue = chain_of(filter(None, words.split("+")))
    for dtype in ("bf16", "fp16", "tf32x3", "fp32"):
        axes = {"epilogue": epilogue, "schedule": schedule, "dtype": Dtype.of(dtype), "result": "symmetric"}
        assert legality.why_not(variant(**axes)) is None
    batch = legality.why_not(variant(**axes, batch="strided"))
    assert (batch is None) is (schedule != "split_k")


def test_the_name_says_so() -> None:
    v = variant(result="symmetric", rounding="torch", epilogue=chain_of(["add"]))
    assert v.contract == "gemm_fp16_rcr_add_roundingtorch_resultsymmetric"
    assert variant(result="symmetric").name.startswith("gemm_fp16_rcr_none_resultsymmetric__tiled_")


def test_m_is_the_only_name_of_both_sizes() -> None:
    described = call(variant(result="symmetric", epilogue=chain_of(["add"]), batch="strided"))
    assert described.sizes == ("B", "M", "M", "K")
    shapes = [x.words for x in (described.a, described.b, *described.operands, described.out)]
    assert shapes == ["B M K", "B K M", "B M M", "B M M"]


def test_gradients_are_of_full_products_and_of_what_is_above_the_diagonal() -> None:
    v = variant(result="symmetric", epilogue=chain_of(["scale", "gelu"]))
    assert why_none(v) is None
    found = gradients(v)
    assert all(each.symmetric for each in found)
    assert found[0].a.contract == "gemm_fp16_rrr_none" and found[0].b.contract == "gemm_fp16_crr_none"
    assert (found[0].saving or "").endswith("_resultsymmetric")
