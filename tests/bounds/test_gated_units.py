"""Gates: their kernels are proved for every row, and an address in the other half, or past both, is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from generator.emit.render import kernel_source
from tests.helpers.bounds.kernels import proof_of
from tests.helpers.support import BASE, family_of


def test_a_sum_of_a_gate_needs_room_for_both_halves(tmp_path: Path) -> None:
    family = family_of(f"{BASE}epilogue: swiglu\nschedule: stream_k\n")
    (kernel,) = family.kernels
    text = kernel_source(family.spec, kernel)
    proof = proof_of(tmp_path, text)
    assert {access.state for access in proof.accesses} == {"proved"} and proof.order.state == "proved"
    assert '"4*PROGRAMS' in text
    accesses = proof_of(tmp_path, text.replace('"4*PROGRAMS', '"2*PROGRAMS')).accesses
    assert {access.operand for access in accesses if access.state == "refuted"} == {"work"}


#: A gate whose B has a scale for several columns: its second half has one scale in a tile only for some N.
SCALED_GATE = """summary: Test family.
layout: rcr
dtype: {a: fp8e4m3, b: fp8e4m3, scales: {a: [1, 128], b: [128, 128]}}
targets: [sm90]
"""


@pytest.mark.parametrize(
    "words",
    [
        "epilogue: swiglu",
        "epilogue: [[swiglu, row_amax, {quantize: {to: fp8e4m3}}]]\nmasking: mnk",
        "epilogue: swiglu\nmasking: none\nschedule: split_k",
    ],
)
def test_a_gate_under_scales_of_several_columns_is_proved(words: str, tmp_path: Path) -> None:
    family = family_of(f"{SCALED_GATE}{words}\ntile: [{{m: 64, n: 128, k: 64, warps: 4}}]\n")
    (kernel,) = family.kernels
    proof = proof_of(tmp_path, kernel_source(family.spec, kernel))
    assert {access.state for access in proof.accesses} == {"proved"} and proof.order.state == "proved"


@pytest.mark.parametrize(
    ("old", "new", "counterexample"),
    [
        # Only where N is no multiple of the columns of a scale.
        ("in_up & more", "more", "N = 1,"),
        ("in_up = offs_up < 2 * N", "in_up = offs_up <= 2 * N", "N = 64,"),
        # Only where it is one.
        ("offs_up // 128", "offs_up // 64", "N = 128,"),
    ],
)
def test_a_scale_of_no_half_of_a_gate_is_refuted(old: str, new: str, counterexample: str, tmp_path: Path) -> None:
    family = family_of(f"{SCALED_GATE}epilogue: swiglu\ntile: [{{m: 64, n: 128, k: 64, warps: 4}}]\n")
    (kernel,) = family.kernels
    text = kernel_source(family.spec, kernel)
    assert text.count(old) >= 1
    refuted = [x for x in proof_of(tmp_path, text.replace(old, new)).accesses if x.state == "refuted"]
    assert {access.operand for access in refuted} == {"b_scale"}
    assert counterexample in refuted[0].detail
