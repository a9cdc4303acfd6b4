"""The triangle of a symmetric result: proved of shipped kernels, and what is wrong with others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.bounds.kernels import planted, proof_of, wrong

NONE = "symmetric/gemm_{}_rcr_none_resultsymmetric__{}_auto_grouped_storepointer"
TILED, WALKED = NONE.format("bf16", "tiled_pointer"), NONE.format("bf16", "persistent_descriptor")
PARTS = NONE.format("fp32", "splitk_pointer")
BATCH = TILED.replace("gemm", "bmm")


@pytest.mark.parametrize("kernel", [TILED, WALKED, PARTS, BATCH, TILED.replace("none", "blend")])
def test_every_tile_has_a_program_and_every_element_a_store(kernel: str, tmp_path: Path) -> None:
    assert not wrong(proof_of(tmp_path, planted(kernel)))


@pytest.mark.parametrize(
    ("kernel", "old", "new", "told"),
    [
        (TILED, "in_upper & (offs_m[:, None] < offs_n[None, :])", "in_upper", "none of those that this store is for"),
        (TILED, "(offs_m[:, None] <= offs_n[None, :])", "(offs_m[:, None] < offs_n[None, :])", "is never stored"),
        (TILED, "BLOCK_M + BLOCK_M <= pid_n", "BLOCK_M <= pid_n", "none of those that this store is for"),
        (TILED, "offs_n[None, :] * ldc + offs_m[:, None]", "offs_n[None, :] + offs_m[:, None] * ldc", "stored twice"),
        (TILED, 'args["M"] % args["BLOCK_N"]', 'args["M"] % 16', "of a, which has"),
        (TILED, "// 2 * 2 + 1\n", "// 2 * 2 + 2\n", "program"),
        (TILED, "fold_shift = 1 - num_blocks % 2", "fold_shift = num_blocks % 2", "computes tile"),
        (TILED, "num_blocks - 1 - fold_n", "num_blocks - 2 - fold_n", "computes tile"),
        (TILED, "num_blocks - fold_shift - fold_block", "num_blocks - 1 - fold_block", "both compute tile"),
        (WALKED, "tile_crossed = pid_m * BLOCK_M + BLOCK_M >", "tile_crossed = pid_m * BLOCK_M >", "is never stored"),
        (WALKED, "in_tile = tile_above &", "in_tile =", "none of those that this store is for"),
        (WALKED, "(BLOCK_N // BLOCK_M) * (cdiv", "(BLOCK_N // 16) * (cdiv", "not known to compute every tile"),
        (PARTS, "BLOCK_N // 16) *", "BLOCK_N // 32) *", "program"),
        (BATCH, "pid = tl.program_id(0) % tiles", "pid = tl.program_id(0) // tiles", "tile"),
    ],
)
def test_a_mistake_is_not_proved(kernel: str, old: str, new: str, told: str, tmp_path: Path) -> None:
    found = wrong(proof_of(tmp_path, planted(kernel, (old, new))))
    assert any(told in each for each in found), found
