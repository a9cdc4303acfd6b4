"""Batches, groups and a B that is decoded first: cases, launches, references; test_planted.py runs kernels."""

import torch

from generator.bounds import prove
from generator.language.model import Dtype
from generator.problem.accumulation_bounds import accumulation_error
from generator.problem.grouping import spans
from generator.problem.reference import references
from generator.verify import execute
from generator.verify.case_setup import Setup
from generator.verify.cases import cases
from generator.verify.launches import launches
from generator.verify.refusals import right_case
from generator.verify.tile_order import wrong_order
from tests.helpers.verify.rendered import rendered

SPEC = """\
summary: Batches and groups.
layout: rcr
dtype: bf16
batch: [strided, grouped]
epilogue: bias+scale_m+add+save
schedule: [tiled, persistent]
load: [pointer, descriptor]
store: pointer
tile: [{m: 16, n: 32, k: 32, group: 2, warps: 4}]
"""
NAME = "{}_bf16_rcr_bias_scalem_add_save__{}_auto_grouped_storepointer"
TILED, DESCRIPTORS, WALKED = (
    NAME.format("bmm", how) for how in ("tiled_pointer", "tiled_descriptor", "persistent_pointer")
)
GROUPS, GROUPS_DESCRIPTORS = (NAME.format("gmm", how) for how in ("tiled_pointer", "tiled_descriptor"))


def test_operands_lie_as_their_case_says(family):
    kernel = family.by_name[TILED]
    found = {case.name: case for case in cases(kernel, hardware=False)}
    setups = {name: Setup(kernel, case, torch.device("meta")) for name, case in found.items() if "batch" in name}
    shapes = {name: tuple(setup.a.view.shape) for name, setup in setups.items()}
    assert shapes["batch"][0] == 5 and shapes["batch-empty"][0] == 0 and shapes["batch-one"][0] == 1
    assert setups["batch-repeats-b"].b.view.stride(0) == 0 != setups["batch-repeats-b"].a.view.stride(0)
    interleaved = setups["batch-interleaved"].a.view
    assert interleaved.stride(0) * 3 == interleaved.stride(1)
    far = setups["batch-huge-a"].a.view
    assert far.stride(0) < 2**31 < far.stride(0) * (far.shape[0] - 1)
    assert setups["batch-huge-add"].tensors["add"].view.stride(0) == far.stride(0)


def test_cases_and_launches_know_of_batches_and_groups(family):
    named = {launch.case.name for launch in launches(family.by_name[TILED], "sm90")}
    assert {"batch-wide", "batch-wide-stride", "batch-repeats", "batch-unaligned"} <= named
    assert "batch-one" not in named
    named = {launch.case.name for launch in launches(family.by_name[DESCRIPTORS], "sm90")}
    assert {"batch-wide", "batch-wide-stride"} <= named and "batch-repeats" not in named
    assert "batch-one" in {launch.case.name for launch in launches(family.by_name[WALKED], "sm90")}
    named = {case.name: case for case in cases(family.by_name[GROUPS], hardware=False)}
    assert {"groups-none", "groups-many", "groups-descending", "groups-one-has-all"} <= named.keys()
    assert len(named["groups-many"].offsets(52)) == 65
    (many,) = [case for case in cases(family.by_name[GROUPS], hardware=True) if case.name == "groups-many"]
    assert len(many.offsets(52)) == 512
    found = {launch.case.name for launch in launches(family.by_name[GROUPS_DESCRIPTORS], "sm90")}
    assert {"groups-one", "groups-many"} <= found


def test_the_bound_of_a_batch_is_that_of_each_matrix():
    random = torch.Generator().manual_seed(3)
    a = torch.randn((3, 4, 70), generator=random, dtype=torch.float64)
    b = torch.randn((3, 70, 5), generator=random, dtype=torch.float64)
    for word in ("fp16", "fp8e4m3", "tf32x3"):
        whole = accumulation_error(a, b, Dtype.of(word), hardware=True)
        each = [accumulation_error(x, y, Dtype.of(word), hardware=True) for x, y in zip(a, b)]
        assert torch.allclose(whole, torch.stack(each), rtol=1e-12)


def test_the_reference_is_that_of_each_group(family):
    kernel = family.by_name[GROUPS]
    case = next(case for case in cases(kernel, hardware=False) if case.name == "groups-descending")
    setup = Setup(kernel, case, torch.device("cpu"))
    found, saved = references(kernel.variant, setup.a.view, setup.b.view, setup.read, hardware=False)
    offsets = setup.tensors["offsets"].view.tolist()
    a, b = setup.a.view.double(), setup.b.view.double()
    read = {name: x.view.double() for name, x in setup.tensors.items() if name != "offsets"}
    for group, (first, last) in enumerate(spans(offsets, len(a))):
        own = slice(first, last)
        expected = (a[own] @ b[group] + read["bias"][group]) * read["scale_m"][own, None] + read["add"][own]
        torch.testing.assert_close(found.value[own], expected)
        torch.testing.assert_close(saved.value[own], expected)
    assert offsets == [5, 3, -1, 32, 59, 4] and len(a) == 52


def test_groups_come_one_after_the_other(family):
    kernel = family.by_name[GROUPS]
    tile, groups = kernel.tiles[0], [(0, 3), (3, 3), (3, 20)]
    right = [(0, 0), (0, 32), (3, 0), (19, 0), (3, 32), (19, 32)]
    assert wrong_order(kernel.variant, tile, (24, 40, 1), 1, right, groups) is None
    swapped = [right[2], *right[:2], *right[3:]]
    assert "tile 0 in the order of stores is (2, 0, 0)" in str(
        wrong_order(kernel.variant, tile, (24, 40, 1), 1, swapped, groups)
    )


def test_whole_tiles_of_products_divided_along_k_are_proved(tmp_path):
    """Which sizes a configuration takes depends on M and N alone."""
    spec = "summary: Whole tiles.\nlayout: crr\ndtype: fp16\nbatch: grouped_k\nmasking: k\ntargets: [sm90]\n"
    found = rendered(tmp_path, "whole", f"{spec}tile: [{{m: 16, n: 32, k: 32, warps: 4}}]\n")
    (kernel,) = found.kernels
    proof = prove(found.file(kernel.name))
    assert proof.order.state == "proved" and {access.state for access in proof.accesses} == {"proved"}
    text = found.file(kernel.name).read_text()
    assert "multiple(M, BLOCK_M," in text and "multiple(N, BLOCK_N," in text


DECODED = """\
summary: Decoded first.
layout: rcr
dtype: {a: bf16, b: int8, scales: {b: [0, 1]}}
schedule: [tiled, decoded]
load: [pointer, descriptor]
tile: [{m: 32, n: 32, k: 64, group: 2, warps: 4, stages: 2}]
targets: [sm90]
"""
BY_DESCRIPTORS = "gemm_bf16xint8_fp32_bf16_ballx1_rcr_none__decoded_descriptor_auto_grouped"


def test_a_function_is_held_to_the_rounding_of_the_kernel_that_it_runs(tmp_path):
    """Where only some kernels of a contract decode B, and round it once more."""
    several = rendered(tmp_path, "several", DECODED)
    among = {name: kernel for name, kernel in several.by_name.items() if "rcr_none" in name}
    tiled = next(kernel for kernel in among.values() if not kernel.variant.traits.decodes)
    setup = Setup(tiled, right_case(tiled, 0), torch.device("cpu"))
    asked = []

    class Function:
        @staticmethod
        def which(a, b, **others):
            asked.append(sorted(others))
            return BY_DESCRIPTORS, {}

    assert execute._chosen(Function, setup, among, tiled) is among[BY_DESCRIPTORS] and asked == [["b_scale", "out"]]
    alike = {name: kernel for name, kernel in among.items() if not kernel.variant.traits.decodes}
    assert execute._chosen(Function, setup, alike, tiled) is tiled and len(asked) == 1
