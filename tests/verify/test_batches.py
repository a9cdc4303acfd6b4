"""Batches of products: their cases, launches and bounds; test_planted.py runs kernels."""

import torch

from generator.language.model import Dtype
from generator.problem.accumulation_bounds import accumulation_error
from generator.verify.case_setup import prepare
from generator.verify.cases import cases
from generator.verify.launches import launches

SPEC = """\
summary: Batches.
layout: rcr
dtype: bf16
batch: strided
epilogue: bias+add
schedule: [tiled, persistent]
load: [pointer, descriptor]
tile: [{m: 32, n: 32, k: 32, group: 2, warps: 4}]
"""
TILED = "bmm_bf16_rcr_bias_add__tiled_pointer_auto_grouped"
DESCRIPTORS = "bmm_bf16_rcr_bias_add__tiled_descriptor_auto_grouped"
WALKED = "bmm_bf16_rcr_bias_add__persistent_pointer_auto_grouped"


def test_operands_lie_as_their_case_says(family):
    kernel = family.by_name[TILED]
    found = {case.name: case for case in cases(kernel, hardware=False)}
    setups = {name: prepare(kernel, case, torch.device("meta")) for name, case in found.items() if "batch" in name}
    shapes = {name: tuple(setup.a.view.shape) for name, setup in setups.items()}
    assert shapes["batch"][0] == 5 and shapes["batch-empty"][0] == 0 and shapes["batch-one"][0] == 1
    assert setups["batch-repeats-b"].b.view.stride(0) == 0 != setups["batch-repeats-b"].a.view.stride(0)
    interleaved = setups["batch-interleaved"].a.view
    assert interleaved.stride(0) * 3 == interleaved.stride(1)
    far = setups["batch-huge-a"].a.view
    assert far.stride(0) < 2**31 < far.stride(0) * (far.shape[0] - 1)
    assert setups["batch-huge-add"].tensors["add"].view.stride(0) == far.stride(0)


def test_launches_know_of_batches(family):
    named = {launch.case.name for launch in launches(family.by_name[TILED], "sm90")}
    assert {"batch-wide", "batch-wide-stride", "batch-repeats", "batch-unaligned"} <= named
    assert "batch-one" not in named
    named = {launch.case.name for launch in launches(family.by_name[DESCRIPTORS], "sm90")}
    assert {"batch-wide", "batch-wide-stride"} <= named and "batch-repeats" not in named
    assert "batch-one" in {launch.case.name for launch in launches(family.by_name[WALKED], "sm90")}


def test_the_bound_of_a_batch_is_that_of_each_matrix():
    random = torch.Generator().manual_seed(3)
    a = torch.randn((3, 4, 70), generator=random, dtype=torch.float64)
    b = torch.randn((3, 70, 5), generator=random, dtype=torch.float64)
    for word in ("fp16", "fp8e4m3", "tf32x3"):
        whole = accumulation_error(a, b, Dtype.of(word), hardware=True)
        each = [accumulation_error(x, y, Dtype.of(word), hardware=True) for x, y in zip(a, b)]
        assert torch.allclose(whole, torch.stack(each), rtol=1e-12)
