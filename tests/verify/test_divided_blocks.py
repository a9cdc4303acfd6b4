"""Blocks of a tile with a divided K: each element of each partial sum is stored once, and the results are right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from generator.bounds import prove
from generator.emit.manifest_reader import Rendered
from generator.verify.jobs import Job, JobState
from generator.verify.worker_pool import Pool
from tests.helpers.verify.rendered import changed, rendered

SPEC = """\
summary: Tiles of several blocks with a divided K.
layout: rcr
dtype: fp16
epilogue: [none, swiglu, [bias, {swiglu: {order: interleaved}}, row_sum]]
schedule: split_k
load: [pointer, descriptor]
tile:
  - {m: 48, n: 32, k: 16, group: 2, warps: 4, split: 2}
  - {m: 32, n: 112, k: 16, group: 2, warps: 4, split: 3}
targets: [sm90, sm80]
"""
NAME = "gemm_fp16_rcr_{}__splitk{}_auto_grouped"
#: By rows in two blocks and by columns in three, with two columns of B for each of C and with one.
KERNELS = [
    NAME.format("none", "pairedm_pointer"),
    NAME.format("none", "tripled_descriptor"),
    NAME.format("swiglu", "pairedm_descriptor"),
    NAME.format("swiglu", "tripled_pointer"),
    NAME.format("bias_swiglu_interleaved_rowsum", "tripled_pointer"),
    NAME.format("bias_swiglu_interleaved_rowsum", "tripled_descriptor"),
]
ROWS, COLUMNS, GATE, HALVES = KERNELS[0], KERNELS[1], KERNELS[3], KERNELS[5]
#: The rows at the bottom, and the columns in the middle.
BOTTOM, MIDDLE = (
    "    offs_m = offs_bottom\n    in_m = in_bottom\n",
    "    offs_n = middle_column + tl.arange(0, MIDDLE_N)\n",
)


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    return rendered(tmp_path_factory.mktemp("divided"), "divided", SPEC)


@pytest.mark.parametrize("name", KERNELS)
def test_each_partial_sum_is_stored_once(family: Rendered, name: str) -> None:
    proof = prove(family.file(name))
    # The hardware bounds what descriptors copy.
    assert {access.state for access in proof.accesses} - {"hardware"} == {proof.order.state} == {"proved"}, proof


def test_sums_are_right_and_mistakes_in_them_are_found(
    family: Rendered, tmp_path: Path, pools: Callable[[str], Pool]
) -> None:
    mutants = [
        (ROWS, BOTTOM, BOTTOM.replace("offs_bottom", "offs_bottom - 16"), "are wrong"),
        (
            GATE,
            "acc = tl.join(acc_gate_middle, acc_up_middle)",
            "acc = tl.join(acc_up_middle, acc_gate_middle)",
            "wrong",
        ),
        (HALVES, "acc = acc_right\n", "acc = acc_middle\n", ""),
        (HALVES, "cdiv(N,LEFT_N) M", "cdiv(N,BLOCK_N) M", ""),
    ]
    jobs = [Job("interpret", family.folder, name) for name in KERNELS]
    for number, (name, old, new, _) in enumerate(mutants):
        folder = changed(family, tmp_path / f"mutant{number}", name, old, new)
        jobs.append(Job("interpret", folder, name, case="aligned"))
    found = [future.result() for future in [pools("interpret").submit(job) for job in jobs]]
    assert {result.state for result in found[: len(KERNELS)]} == {JobState.PASSED}, found[: len(KERNELS)]
    for (_, old, _, words), result in zip(mutants, found[len(KERNELS) :], strict=True):
        assert result.failures and any(words in failure.message for failure in result.failures), (old, result)
