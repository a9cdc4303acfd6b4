"""Numbers that leave the width in which they are computed: refuted, and the numbers worked out again."""

import re

import pytest

from generator.bounds import runtime_theorems
from generator.emit.loading import load_kernel
from tests.helpers.bounds.kernels import AUTO, DESCRIPTOR, planted, proof_of
from tests.helpers.support import render_spec

INDEX = "index_type(a, b, out)"


@pytest.mark.parametrize(
    ("old", "new", "operands"),
    [
        (INDEX, "index_type(bias)", {"a", "b", "out"}),
        (INDEX, "index_type(a, b)", {"out"}),
        ("    ldb = tl.cast(ldb, INDEX)\n", "", {"b"}),
    ],
)
def test_an_offset_that_can_pass_32_bits_is_refuted(tmp_path, old, new, operands):
    refuted = [each for each in proof_of(tmp_path, planted(AUTO, (old, new))).accesses if each.state == "refuted"]
    assert {access.operand for access in refuted} == operands
    for access in refuted:
        at = {name: int(number) for name, number in re.findall(r"(\w+) = (-?\d+)", access.detail)}
        told = re.search(r"stride\((\d)\) = (\d+), (\d+) times it is (\d+)", access.detail)
        assert told is not None, access
        dimension, stride, times, length = map(int, told.groups())
        shape = {"a": ("M", "K"), "b": ("K", "N"), "out": ("M", "N")}[access.operand]
        assert times < at[shape[dimension]] and times * stride == length >= 2**31 > stride


def test_sizes_of_a_larger_limit_would_be_refuted(tmp_path, monkeypatch):
    monkeypatch.setattr(runtime_theorems, "LARGEST", 2**31 - 1)
    proof = proof_of(tmp_path, planted(AUTO))
    assert proof.order.state == "not proved"
    store = next(access for access in proof.accesses if access.kind == "store")
    size, tile = (int(found) for found in re.findall(r"M = (\d+), N = 1, .*: (\d+) \+ M of", store.detail)[0])
    assert store.state == "refuted" and size <= 2**31 - 1 < size + tile


def test_coordinates_of_a_descriptor_must_fit_as_well(tmp_path):
    text = planted(DESCRIPTOR, ("row = pid_m * BLOCK_M", "row = pid_m * BLOCK_M * 4"))
    load = next(access for access in proof_of(tmp_path, text).accesses if access.operand == "a")
    assert load.state == "refuted" and "does not fit 32 bits" in load.detail


BANDS = "summary: x\nlayout: rcr\ndtype: bf16\ntile: [{m: 16, n: 32, k: 64, group: 64, warps: 4}]\n"


def test_tiles_of_a_band_that_pass_32_bits_are_refused(tmp_path):
    text = next(render_spec(tmp_path, "band", f"{BANDS}package: plain\n").glob("gemm_*.py")).read_text()
    fits = text[text.index("    fits=") : text.index("    needs=")]
    assert "at_most(GROUP_M * cdiv(N, BLOCK_N), 2**31 - 1" in fits
    assert proof_of(tmp_path, text).order.state == "proved"
    assert proof_of(tmp_path, text.replace(fits, "")).order.state == "not proved"


def test_a_file_that_stands_alone_refuses_such_a_band_too(tmp_path):
    file = load_kernel(next(render_spec(tmp_path, "alone", f"{BANDS}package: files\n").glob("gemm_*.py")))
    most = runtime_theorems.LARGEST
    assert "bits, are at most 2**31 - 1" in file._misfit(file.CONFIGS[0], M=16, N=most, K=64)
    assert not file._misfit(file.CONFIGS[0], M=most, N=most // 2, K=64)
