"""What `save` writes in front of a gated linear unit: two columns for each of C, in both orders and by every access."""

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
summary: Gates behind their saved sums.
layout: [rcr, rcc]
dtype: fp16
epilogue: [save+swiglu, [bias, save, {swiglu: {order: interleaved}}]]
schedule: [tiled, split_k]
load: [pointer, descriptor]
tile: [{m: 32, n: 16, k: 16, group: 2, warps: 4, split: 2}]
targets: [sm90]
"""
PLAIN, BIASED = (
    "gemm_fp16_rcr_save_swiglu__{}_auto_grouped",
    "gemm_fp16_rcc_bias_save_swiglu_interleaved__{}_auto_grouped",
)
KERNELS = [name.format(how) for name in (PLAIN, BIASED) for how in ("tiled_descriptor", "splitk_pointer")]
KERNELS += [PLAIN.format("splitk_descriptor"), BIASED.format("tiled_pointer")]
MASK = ", mask=in_m[:, None] & in_n[None, :])"


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    return rendered(tmp_path_factory.mktemp("halves"), "halves", SPEC)


@pytest.mark.parametrize("name", KERNELS)
def test_both_halves_are_inside_and_each_is_stored_once(family: Rendered, name: str) -> None:
    proof = prove(family.file(name))
    # The hardware bounds what descriptors copy.
    assert {access.state for access in proof.accesses} - {"hardware"} == {proof.order.state} == {"proved"}, proof
    assert sum(access.operand == "preact" for access in proof.accesses) == 2


def test_halves_are_right_and_mistakes_in_them_are_found(
    family: Rendered, tmp_path: Path, pools: Callable[[str], Pool]
) -> None:
    mutants = [
        (KERNELS[0], "acc_up.to(tl.float16)", "acc_gate.to(tl.float16)", "preact: "),
        (KERNELS[1], "acc_up.to(tl.float16)" + MASK, "acc_up.to(tl.float16), mask=in_m[:, None])", ""),
        (KERNELS[1], "ldpreact + N + offs_n", "ldpreact + offs_n", "elements of preact were never written"),
        (KERNELS[2], "(offs_n[None, :] * 2 + 1)", "(offs_n[None, :] * 2)", "elements of preact were never written"),
    ]
    jobs = [Job("interpret", family.folder, name) for name in KERNELS]
    for number, (name, old, new, _) in enumerate(mutants):
        folder = changed(family, tmp_path / f"mutant{number}", name, old, new)
        jobs.append(Job("interpret", folder, name, case="primes"))
    found = [future.result() for future in [pools("interpret").submit(job) for job in jobs]]
    assert {result.state for result in found[: len(KERNELS)]} == {JobState.PASSED}, found[: len(KERNELS)]
    for (_, old, _, words), result in zip(mutants, found[len(KERNELS) :], strict=True):
        assert any(words in failure.message for failure in result.failures), (old, result)
