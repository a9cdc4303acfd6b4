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
from tests.helpers.bounds.kernels import proof_of
from tests.helpers.verify.rendered import changed, rendered, replaced

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
BLOCKS = "gemm_bf16_rcr_bias_relu__splitk_blockpointer_auto_grouped"
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


STORED = "tl.store(sums_ptrs, acc, mask=in_m[:, None] & in_n[None, :])"
OTHERWISE = "\n    else:\n        tl.store(c_block, "
COUNTED = 'before = tl.atomic_add(counters_ptr + pid, 1, sem="acq_rel", scope="gpu")'


@pytest.mark.parametrize(
    ("kernel", "old", "new", "told"),
    [
        (SPLIT, "sums_ptr + part * stride_sumsp + ", "sums_ptr + ", "store their sums in one place"),
        (SPLIT, "sums_ptr + part * stride_sumsp + ", "sums_ptr + (SPLIT - part) * stride_sumsp + ", "in one place"),
        (SPLIT, STORED, f"if first < last:\n        {STORED}", "not every program is known to store its tile of sums"),
        (SPLIT, STORED, f"{STORED}\n    {STORED}", "not every program is known to store its tile of sums"),
        (SPLIT, "cdiv(M, 16)", "cdiv(M, 32)", "tiles of 16 are not known to be those of"),
        (
            SPLIT,
            "cdiv(N, BLOCK_N), SPLIT)",
            "cdiv(N, BLOCK_N), 2)",
            "parts of K, not",
        ),
        (SPLIT, '"SPLIT": SPLIT,', '"SPLIT": 2,', "parts of K, not"),
        (SPLIT, '"sums", "SPLIT ', '"sums", "8 ', "parts of K, not"),
        (
            BLOCKS,
            OTHERWISE,
            "\n    if EVEN_M:\n        tl.store(c_block, ",
            "not every program is known to store its tile of out",
        ),
        (STREAM, COUNTED, COUNTED.replace("acq_rel", "relaxed"), "without a barrier and a release"),
        (STREAM, COUNTED, COUNTED.replace('"gpu"', '"cta"'), "without a barrier and a release"),
        (STREAM, COUNTED, COUNTED.replace("+ pid", "+ pid_m"), "not every program of its tile increments exactly once"),
        (STREAM, "work_ptr + place * (", "work_ptr + (place + 1) * (", "which other programs may use, too"),
        (STREAM, "work_ptr + place * (", "work_ptr + 2 * others * (", "a place that several programs use"),
        (STREAM, "place = 2 * program + 1 if", "place = 2 * program if", "a place that several programs use"),
        (STREAM, ", cleared=True", "", "counters, which are not zero"),
        (ADDED, "tl.atomic_add(c_ptrs, acc", "tl.store(c_ptrs, acc", "not understood"),
        (STREAM, "if before == others:", "if before == others - 1:", "in the counter computes the result"),
        (STREAM, "if before == others:", "if before <= others:", "not understood"),
        (STREAM, "            tl.debug_barrier()\n", "", "without a barrier"),
        (
            STREAM,
            "if others > 0:\n            # Write",
            "if others > 1:\n            # Write",
            "not every program of its tile increments exactly once",
        ),
        (STREAM, "(start + steps - 1) // share", "(start + steps) // share", "not understood"),
        (STREAM, "min(begin + share, total)", "begin + share", "the loop over"),
        (STREAM, "tl.cdiv(total, tl.num_programs(0))", "total // tl.num_programs(0)", "the loop over"),
    ],
)
def test_a_tile_that_may_be_stored_twice_or_too_early_is_not_proved(
    family: Rendered, tmp_path: Path, kernel: str, old: str, new: str, told: str, pools: Callable[[str], Pool]
) -> None:
    order = proof_of(tmp_path, replaced(family, kernel, old, new)).order
    assert order.state != "proved" and told in order.detail


def test_sums_added_to_a_result_that_is_not_set_to_zero_are_refuted(family: Rendered, tmp_path: Path) -> None:
    text = replaced(family, ADDED, '    cleared=("out",),\n', "")
    order = proof_of(tmp_path, text).order
    assert order.state == "refuted" and "a result that is not set to zero before" in order.detail


@pytest.mark.parametrize(
    ("kernel", "old", "new", "operand"),
    [
        (SPLIT, "static_range(1, SPLIT)", "static_range(1, SPLIT + 1)", "sums"),
        (BLOCKS, "    if EVEN_M and EVEN_N:\n        tl.store(c_", "    if EVEN_M:\n        tl.store(c_", "out"),
        (SPLIT, STORED, "tl.store(sums_ptrs, acc, mask=in_n[None, :])", "sums"),
        (SPLIT, "index_type(a, b, sums, out),\n            }", "index_type(a, b, out),\n            }", "sums"),
        (STREAM, "2*PROGRAMS", "1*PROGRAMS", "work"),
        (STREAM, "range(1, others + 1)", "range(1, others + 2)", "work"),
        (STREAM, "last = min(tl.cast(", "last = max(tl.cast(", "a"),
    ],
)
def test_a_partial_sum_outside_the_room_for_them_is_refuted(
    family: Rendered, tmp_path: Path, kernel: str, old: str, new: str, operand: str
) -> None:
    refuted = [
        access
        for access in proof_of(tmp_path, replaced(family, kernel, old, new)).accesses
        if access.state == "refuted"
    ]
    assert operand in {access.operand for access in refuted}


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
