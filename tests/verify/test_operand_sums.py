"""Mistakes in sums of operands, and in a maximum of all elements, are found by running a kernel or by its proof."""

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
summary: Sums of operands.
layout: rcr
dtype: fp16
epilogue: [[{a_sum: {}}, {b_sum: {}}, {amax: {}}]]
load: pointer
tile: [{m: 32, n: 16, k: 16, group: 2, warps: 4}]
targets: [sm90]
"""
KERNEL = "gemm_fp16_rcr_asum_bsum_amax__tiled_pointer_auto_grouped"
#: What of the kernel is replaced, the case that finds it, and what is said.
MUTANTS = [
    ("if pid_n == 0:", "if pid_n >= 0:", "past-tile", "a_sum: "),
    ("if pid_m == 0:", "if pid_m == 2:", "past-tile", "b_sum: "),
    ("a_sum += tl.sum(a", "a_sum = tl.sum(a", "past-tile", "a_sum: "),
    ("tl.sum(b.to(tl.float32), 0)", "tl.sum(a.to(tl.float32), 1)", "primes", ""),
    ('"amax", along=False', '"sum", along=False', "past-tile", "amax: "),
    ('if source == "a"', 'if source == "b"', "empty-n", ""),
]


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    return rendered(tmp_path_factory.mktemp("sums"), "sums", SPEC)


def test_mistakes_are_found_by_running(family: Rendered, tmp_path: Path, pools: Callable[[str], Pool]) -> None:
    cases = sorted({case for _, _, case, _ in MUTANTS})
    folders = [changed(family, tmp_path / f"mutant{at}", KERNEL, *mutant[:2]) for at, mutant in enumerate(MUTANTS)]
    jobs = [Job("interpret", folder, KERNEL, case=mutant[2]) for folder, mutant in zip(folders, MUTANTS)]
    jobs += [Job("interpret", family.folder, KERNEL, case=case) for case in cases]
    found = [future.result() for future in [pools("interpret").submit(job) for job in jobs]]
    for (_, new, case, words), result in zip(MUTANTS, found):
        assert any(words in failure.message for failure in result.failures), (new, case, result)
    assert {result.state for result in found[len(MUTANTS) :]} == {JobState.PASSED}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tl.store(a_sum_ptrs, a_sum, mask=in_m)", "tl.store(a_sum_ptrs, a_sum)"),
        ("a_sum_ptr + pid_n * lda_sum", "a_sum_ptr + pid_m * lda_sum"),
        ('"amax_parts", "cdiv(M,BLOCK_M) N"', '"amax_parts", "cdiv(M,BLOCK_M) K"'),
    ],
)
def test_an_address_outside_is_not_proved(family: Rendered, tmp_path: Path, old: str, new: str) -> None:
    folder = changed(family, tmp_path / "sums", KERNEL, old, new)
    assert {access.state for access in prove(folder / f"{KERNEL}.py").accesses} != {"proved"}
    assert {access.state for access in prove(family.folder / f"{KERNEL}.py").accesses} == {"proved"}
