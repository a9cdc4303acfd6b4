"""Schedules whose programs share the K of a tile: rendered, proved, interpreted, and not proved with a word wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from generator.bounds import prove
from generator.emit.manifest_reader import Rendered
from generator.verify.cases import cases
from generator.verify.expectations import _partial_sums
from generator.verify.jobs import Job, JobState
from generator.verify.machine_code import MachineCode
from generator.verify.worker_pool import Pool
from tests.helpers.verify.rendered import changed, rendered

SPEC = """\
summary: A product by programs that share tiles.
layout: [rcr, css]
dtype: [bf16, int8, {a: fp16, out: fp32}]
epilogue: [none, bias+relu]
masking: [auto, none]
schedule: [split_k, split_k_atomic, stream_k]
load: [pointer, descriptor, block_pointer]
store: [as_load, pointer]
tile: [{m: 32, n: 32, k: 32, group: 2, warps: 4, split: 3}]
exclude:
  - {layout: css, dtype: [bf16, int8], because: "strides are the same for every type"}
  - {layout: css, load: [descriptor, block_pointer], because: "pointers have them all"}
  - {store: pointer, schedule: [split_k, stream_k], because: "the store is that of other schedules"}
  - {dtype: {a: fp16, out: fp32}, epilogue: bias+relu, because: "one epilogue shows the step"}
  - {dtype: bf16, epilogue: none, because: "the whole sum meets an epilogue"}
  - {masking: none, load: block_pointer, because: "masks are what blocks check"}
  - {masking: none, dtype: int8, because: "masks are the same for every type"}
"""
SPLIT = "gemm_bf16_rcr_bias_relu__splitk_pointer_auto_grouped"
ADDED = "gemm_fp16_fp32_fp32_rcr_none__splitkatomic_pointer_auto_grouped"
STREAM = "gemm_bf16_rcr_bias_relu__streamk_pointer_auto_grouped"
SCHEDULES = {"split_k", "split_k_atomic", "stream_k"}


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    return rendered(tmp_path_factory.mktemp("shared"), "shared", SPEC)


def test_every_access_is_proved_and_one_program_stores_each_tile(family: Rendered) -> None:
    assert {kernel.variant.schedule for kernel in family.kernels} == SCHEDULES
    for kernel in family.kernels:
        proof = prove(family.file(kernel.name))
        assert proof.order.state == "proved", (kernel.name, proof.order)
        assert {access.state for access in proof.accesses} <= {"proved", "hardware"}, (kernel.name, proof.accesses)
        assert not any(access.detail == "never reached" for access in proof.accesses), kernel.name


def test_each_schedule_is_right_with_every_load_and_accumulator_in_the_interpreter(
    family: Rendered, pools: Callable[[str], Pool]
) -> None:
    kinds = {(k.variant.schedule, k.variant.load, k.variant.dtype.acc): k.name for k in family.kernels}
    assert len(kinds) == 15
    jobs = [Job("interpret", family.folder, name) for name in kinds.values()]
    for result in [future.result() for future in [pools("interpret").submit(job) for job in jobs]]:
        assert result.state is JobState.PASSED and result.cases > 20, result


def test_parts_of_k_are_full_short_and_empty(family: Rendered) -> None:
    found = {case.name: case.sizes for case in cases(family.by_name[SPLIT], hardware=False)}
    # Three parts of 32 a step: two steps each but for the last, whose second is short; then two, two and none.
    assert (found["parts"][2], found["few-parts"][2]) == (191, 128)
    found = {case.name: case.sizes for case in cases(family.by_name[STREAM], hardware=False)}
    assert (found["shared"], found["handed-on"]) == ((32, 32, 223), (160, 32, 96))


def test_the_file_says_whether_it_repeats(family: Rendered) -> None:
    for name, kernel in family.by_name.items():
        said = "Repeatable: the same operands" in family.file(name).read_text()
        assert said == (kernel.variant.schedule != "split_k_atomic")


#: Both reads of partial sums.
PAST_L1 = """\
places, cache_modifier=".cg")
                for other in range(1, others + 1):
                    sum_ptrs = work_ptr + 2 * (opener + other) * (BLOCK_M * BLOCK_N) + places
                    acc += tl.load(sum_ptrs, cache_modifier=".cg")
"""


@pytest.mark.parametrize(
    ("kernel", "old", "new", "told"),
    [
        (SPLIT, "", "", ""),
        (STREAM, "", "", ""),
        (ADDED, "", "", ""),
        (STREAM, "            tl.debug_barrier()\n", "", "without a barrier after the stores of all threads"),
        (STREAM, PAST_L1, PAST_L1.replace(', cache_modifier=".cg"', ""), "through L1"),
    ],
)
def test_the_compiler_keeps_the_order_of_a_sum_and_its_count(
    family: Rendered, tmp_path: Path, kernel: str, old: str, new: str, told: str, pools: Callable[[str], Pool]
) -> None:
    folder = changed(family, tmp_path / "shared", kernel, old, new) if old else family.folder
    job = Job("compile", folder, kernel, target="sm90", chosen=("row0-aligned",))
    result = pools("compile").submit(job).result()
    if told:
        assert any(told in failure.message for failure in result.failures)
    else:
        assert result.state is JobState.PASSED, result


@pytest.mark.parametrize(
    ("how", "past"),
    [
        (" cacheModifier = cg", True),
        (" {cachePolicy = #tt.cache_policy<cache_modifier = cg, eviction_policy = evict_normal>}", True),
        (" {cachePolicy = #tt.cache_policy<cache_modifier = ca, eviction_policy = evict_normal>}", False),
        ("", False),
    ],
)
def test_a_read_past_l1_is_known_as_each_triton_spells_it(family: Rendered, how: str, past: bool) -> None:
    """Up to 3.8 the first, from 3.9 on the second."""
    counted = "tt.store %0, %1\nttg.barrier local\n%2 = tt.atomic_rmw add, acq_rel, gpu, %3\n"
    code = MachineCode(0, 0, 0, 0, {}, f"{counted}%4 = tt.load %5{how} : tensor<32x32x!tt.ptr<f32>>\n")
    assert [*_partial_sums(family.by_name[STREAM].variant, code)] == (
        [] if past else ["partial sums are read through L1, which may hold old values"]
    )
    # A second kernel finds the partial sums of the first in memory.
    assert not [*_partial_sums(family.by_name[SPLIT].variant, code)]
