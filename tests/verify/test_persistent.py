"""Kernels of the persistent schedule: rendered, proved and interpreted, and faults planted in the walk found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from generator.bounds import prove
from generator.emit.manifest_reader import Rendered
from generator.verify.coverage import Coverage
from generator.verify.job_selection import covered, plan
from generator.verify.jobs import JobState
from generator.verify.worker_pool import Pool
from tests.helpers.bounds.kernels import proof_of
from tests.helpers.verify.rendered import rendered, replaced

SPEC = """\
summary: A product by programs that stay and walk the tiles.
layout: [rcr, csr]
dtype: bf16
epilogue: bias+relu
masking: [auto, mnk]
swizzle: [linear, grouped, grouped_n]
schedule: persistent
load: [pointer, descriptor]
store: [as_load, pointer]
tile:
  - {m: 32, n: 32, k: 32, group: 2, warps: 4}
  - {m: 64, n: 32, k: 32, group: 3, warps: 4}
"""
POINTER = "gemm_bf16_rcr_bias_relu__persistent_pointer_auto_grouped"


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    return rendered(tmp_path_factory.mktemp("persistent"), "walked", SPEC)


def test_every_access_and_the_walk_are_proved(family: Rendered) -> None:
    assert len(family.kernels) == 18
    for kernel in family.kernels:
        proof = prove(family.file(kernel.name))
        assert proof.order.state == "proved", (kernel.name, proof.order)
        assert {access.state for access in proof.accesses} <= {"proved", "hardware"}, kernel.name


@pytest.mark.parametrize(
    ("old", "new", "state"),
    [
        ("tl.num_programs(0), flatten", "tl.num_programs(0) + 1, flatten", "not proved"),
        ("in tl.range(tl.program_id(0), tiles", "in tl.range(tl.program_id(0) + 1, tiles", "not proved"),
        ("tl.cdiv(N, BLOCK_N)\n    for", "tl.cdiv(N, BLOCK_M)\n    for", "not proved"),
        ("(least(cdiv(M", "(next_power(cdiv(M", "not proved"),
        ("registers=", "interpreted=0, registers=", "not proved"),
        ("pid_n = within // height", "pid_n = within // GROUP_M", "refuted"),
    ],
)
def test_a_walk_that_misses_tiles_is_not_proved(
    family: Rendered, tmp_path: Path, old: str, new: str, state: str
) -> None:
    assert proof_of(tmp_path, replaced(family, POINTER, old, new)).order.state == state


def test_a_grid_of_fewer_programs_needs_a_walk(family: Rendered, tmp_path: Path) -> None:
    text = family.file(POINTER).read_text()
    head, loop, rest = text.partition(
        "    for pid in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):\n"
    )
    body, define, host = rest.partition("\n\n\n")
    straight = dedent(body).replace("\n", "\n    ")
    assert loop and define
    proof = proof_of(tmp_path, f"{head}    pid = tl.program_id(0)\n    {straight}{define}{host}")
    assert proof.order.state == "not proved" and "every tile" in proof.order.detail


def test_kernels_of_all_pairs_are_right_in_the_interpreter(family: Rendered, pools: Callable[[str], Pool]) -> None:
    jobs, _ = covered(plan([family], ("interpret",)), [family], Coverage.parse("kernels"))
    results = [pools("interpret").submit(job) for job in jobs if not job.contract]
    for future in results:
        result = future.result()
        assert result.state is JobState.PASSED and result.cases > 30, result
