"""Groups of rows: their reference, cases, launches and order of tiles; test_planted.py runs kernels."""

import torch

from generator.bounds import prove
from generator.problem.grouping import spans
from generator.problem.reference import references
from generator.verify.case_setup import prepare
from generator.verify.cases import cases
from generator.verify.launches import launches
from generator.verify.tile_order import wrong_order
from tests.helpers.verify.rendered import rendered

SPEC = """\
summary: Groups.
layout: rcr
dtype: bf16
batch: grouped
epilogue: bias+scale_m+add+save
load: [pointer, descriptor]
store: pointer
tile: [{m: 16, n: 32, k: 32, group: 2, warps: 4}]
"""
TILED = "gmm_bf16_rcr_bias_scalem_add_save__tiled_pointer_auto_grouped_storepointer"
DESCRIPTORS = "gmm_bf16_rcr_bias_scalem_add_save__tiled_descriptor_auto_grouped_storepointer"


def test_the_reference_is_that_of_each_group(family):
    kernel = family.by_name[TILED]
    case = next(case for case in cases(kernel, hardware=False) if case.name == "groups-descending")
    setup = prepare(kernel, case, torch.device("cpu"))
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


def test_cases_and_launches_know_of_groups(family):
    named = {case.name: case for case in cases(family.by_name[TILED], hardware=False)}
    assert {"groups-none", "groups-many", "groups-descending", "groups-one-has-all"} <= named.keys()
    assert len(named["groups-many"].offsets(52)) == 65
    (many,) = [case for case in cases(family.by_name[TILED], hardware=True) if case.name == "groups-many"]
    assert len(many.offsets(52)) == 512
    found = {launch.case.name for launch in launches(family.by_name[DESCRIPTORS], "sm90")}
    assert {"groups-one", "groups-many"} <= found


def test_groups_come_one_after_the_other(family):
    kernel = family.by_name[TILED]
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
