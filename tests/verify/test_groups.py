"""Groups of rows: every kernel is proved for any ends and interpreted, and what is wrong is found."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

import pytest
import torch

from generator.bounds import prove
from generator.emit.manifest_reader import Rendered
from generator.problem.grouping import spans
from generator.problem.reference import references
from generator.verify.case_setup import prepare
from generator.verify.cases import cases
from generator.verify.job_selection import plan
from generator.verify.jobs import Job, JobState
from generator.verify.launches import launches
from generator.verify.tile_order import wrong_order
from generator.verify.worker_pool import Pool
from tests.helpers.verify.rendered import changed, rendered

SPEC = """\
summary: Groups, by every schedule and load.
layout: [rcr, srr]
dtype: bf16
batch: grouped
epilogue: [bias+scale_m+add+save, swiglu]
schedule: [tiled, persistent, split_k]
load: [pointer, descriptor]
store: pointer
tile: [{m: 16, n: 32, k: 32, group: 2, warps: 4, split: 3}]
"""
TILED = "gmm_bf16_rcr_bias_scalem_add_save__tiled_pointer_auto_grouped_storepointer"
DESCRIPTORS = "gmm_bf16_rcr_bias_scalem_add_save__tiled_descriptor_auto_grouped_storepointer"


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    return rendered(tmp_path_factory.mktemp("groups"), "several", SPEC)


def test_every_access_is_proved_and_every_tile_of_every_group(family: Rendered) -> None:
    assert len(family.kernels) == 18
    for kernel in family.kernels:
        proof = prove(family.file(kernel.name))
        assert proof.order.state == "proved", (kernel.name, proof.order)
        assert {access.state for access in proof.accesses} <= {"proved", "hardware"}, kernel.name


def assert_right(family: Rendered, kernels: Collection[str], pool: Pool) -> None:
    """Some kernels, which have every value of every axis, and all functions are right in the interpreter."""
    words = [{*kernel.variant.words.items()} for kernel in family.kernels if kernel.name in kernels]
    assert set().union(*words) >= {word for kernel in family.kernels for word in kernel.variant.words.items()}
    jobs = [job for job in plan([family], ("interpret",)) if job.contract or job.name in kernels]
    for future in [pool.submit(job) for job in jobs]:
        result = future.result()
        assert result.state is JobState.PASSED, (result.job.name, result.failures, result.not_proved)
        assert result.cases > (1 if result.job.contract else 40)


def test_kernels_and_functions_are_right_in_the_interpreter(family: Rendered, pools: Callable[[str], Pool]) -> None:
    kernels = (
        "gmm_bf16_rcr_bias_scalem_add_save__persistent_descriptor_auto_grouped_storepointer",
        "gmm_bf16_srr_swiglu__tiled_pointer_auto_grouped_storepointer",
        "gmm_bf16_rcr_swiglu__splitk_pointer_auto_grouped_storepointer",
    )
    assert_right(family, kernels, pools("interpret"))


def test_a_mistake_between_groups_is_found_by_the_interpreter(
    family: Rendered, tmp_path: Path, pools: Callable[[str], Pool]
) -> None:
    # The case that tells; all of them for what is refused beside a case.
    changes = {
        "offs_a = start + offs_m": ("offs_a = offs_m", "groups-ragged"),
        "rows_ptr + start + offs_m": ("rows_ptr + offs_m", "groups-named"),
        "b_ptr + group * stride_bg": ("b_ptr", "groups-ragged"),
        "in_m = offs_m < M": ("in_m = offs_m < T - start", "groups-ragged"),
        "ends = tl.maximum(tl.minimum(behind, T), starts)": ("ends = tl.minimum(behind, T)", "groups-descending"),
        "return tl.maximum(a, b)": ("return b", "groups-descending"),
        "cdiv(T, BLOCK_M) + G": ("cdiv(T, BLOCK_M)", "groups-ragged"),
        "scale_m_ptr + start + offs_m": ("scale_m_ptr + offs_m", "groups-ragged"),
        "pid = number - ": ("pid = tl.sum(tl.where(own, tiles, 0), 0) - 1 - number + ", "groups-one"),
        '"offsets", "G", torch.int32': ('"offsets", "G", (torch.int32, torch.int64)', None),
    }
    for number, (old, (new, case)) in enumerate(changes.items()):
        folder = changed(family, tmp_path / str(number) / "several", TILED, old, new)
        result = pools("interpret").submit(Job("interpret", folder, TILED, case=case)).result()
        assert result.failures, (old, new)


def test_ends_count_as_between_the_one_before_and_the_total() -> None:
    assert spans((5, 3, -1, 9, 40, 7), 12) == [(0, 5), (5, 5), (5, 5), (5, 9), (9, 12), (12, 12)]
    assert spans((), 12) == []


def test_the_reference_is_that_of_each_group(family: Rendered) -> None:
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


def test_cases_and_launches_know_of_groups(family: Rendered) -> None:
    named = {case.name: case for case in cases(family.by_name[TILED], hardware=False)}
    assert {"groups-none", "groups-many", "groups-descending", "groups-one-has-all"} <= named.keys()
    assert len(named["groups-many"].offsets(52)) == 65
    (many,) = [case for case in cases(family.by_name[TILED], hardware=True) if case.name == "groups-many"]
    assert len(many.offsets(52)) == 512
    found = {launch.case.name for launch in launches(family.by_name[DESCRIPTORS], "sm90")}
    assert {"groups-one", "groups-many"} <= found


def test_groups_come_one_after_the_other(family: Rendered) -> None:
    kernel = family.by_name[TILED]
    tile, groups = kernel.tiles[0], [(0, 3), (3, 3), (3, 20)]
    right = [(0, 0), (0, 32), (3, 0), (19, 0), (3, 32), (19, 32)]
    assert wrong_order(kernel.variant, tile, (24, 40, 1), 1, right, groups) is None
    swapped = [right[2], *right[:2], *right[3:]]
    assert "tile 0 in the order of stores is (2, 0, 0)" in str(
        wrong_order(kernel.variant, tile, (24, 40, 1), 1, swapped, groups)
    )


SPEC_OF_K = """\
summary: Groups along K.
layout: [crr, rcc]
dtype: bf16
batch: grouped_k
epilogue: [bias+scale_m+add, swiglu]
schedule: [tiled, persistent]
load: [pointer, descriptor]
store: pointer
tile: [{m: 16, n: 32, k: 32, group: 2, warps: 4}]
"""
DESCRIPTORS_OF_K = "gmmk_bf16_crr_bias_scalem_add__tiled_descriptor_auto_grouped_storepointer"


@pytest.fixture(scope="module")
def family_of_k(tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    return rendered(tmp_path_factory.mktemp("parts"), "parts", SPEC_OF_K)


def test_every_access_to_a_part_of_k_is_proved(family_of_k: Rendered) -> None:
    assert len(family_of_k.kernels) == 12
    for kernel in family_of_k.kernels:
        proof = prove(family_of_k.file(kernel.name))
        assert proof.order.state == "proved", (kernel.name, proof.order)
        assert {access.state for access in proof.accesses} <= {"proved", "hardware"}, kernel.name


def test_whole_tiles_of_products_divided_along_k_are_proved(tmp_path: Path) -> None:
    """Which sizes a configuration takes depends on M and N alone."""
    spec = "summary: Whole tiles.\nlayout: crr\ndtype: fp16\nbatch: grouped_k\nmasking: k\ntargets: [sm90]\n"
    found = rendered(tmp_path, "whole", f"{spec}tile: [{{m: 16, n: 32, k: 32, warps: 4}}]\n")
    (kernel,) = found.kernels
    proof = prove(found.file(kernel.name))
    assert proof.order.state == "proved" and {access.state for access in proof.accesses} == {"proved"}
    text = found.file(kernel.name).read_text()
    assert "multiple(M, BLOCK_M," in text and "multiple(N, BLOCK_N," in text


def test_parts_of_k_are_right_in_the_interpreter(family_of_k: Rendered, pools: Callable[[str], Pool]) -> None:
    kernels = (
        "gmmk_bf16_crr_bias_scalem_add__persistent_descriptor_auto_grouped_storepointer",
        "gmmk_bf16_rcc_swiglu__tiled_pointer_auto_grouped_storepointer",
    )
    assert_right(family_of_k, kernels, pools("interpret"))


@pytest.mark.parametrize(
    ("old", "new", "case"),
    [
        ("a = tl.where(in_k[None, :], a, tl.zeros_like(a))", "pass", None),
        ("b = tl.where(in_k[:, None], b, tl.zeros_like(b))", "pass", None),
        ("if rest > 0:", "if rest > 1:", "groups-ragged"),
        ("a_desc.load([start + k, row])", "a_desc.load([k, row])", "groups-ragged"),
    ],
)
def test_a_mistake_between_parts_of_k_is_found_by_the_interpreter(
    family_of_k: Rendered, tmp_path: Path, pools: Callable[[str], Pool], old: str, new: str, case: str | None
) -> None:
    folder = changed(family_of_k, tmp_path / "parts", DESCRIPTORS_OF_K, old, new)
    assert pools("interpret").submit(Job("interpret", folder, DESCRIPTORS_OF_K, case=case)).result().failures
