"""What the proof has no meaning for is not proved, and says why: never passed over."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from generator.bounds import NotUnderstood, prove
from tests.helpers.bounds.kernels import (
    ADDS,
    AUTO,
    BLOCK,
    DEALT_POINTERS,
    DESCRIPTOR,
    ELEMENT,
    NONE,
    OUTPUTS,
    SCALE,
    TUNED,
    planted,
    proof_of,
)
from tests.helpers.support import ROOT

DOT = "acc = tl.dot(a, b, acc)"
LAST = "    pid_n = within // height\n"
LAUNCH = "    return SimpleNamespace(\n"


@pytest.mark.parametrize(
    ("kernel", "old", "new", "reason"),
    [
        # Statements and expressions.
        (AUTO, DOT, "while True:\n            break", "while True:"),
        (AUTO, DOT, f"if acc > 0:\n            {DOT}", "the condition acc > 0"),
        (AUTO, DOT, "acc = (y := 1)", "(y := 1)"),
        (AUTO, "range(0, K, BLOCK_K)", "range(K, 0, -BLOCK_K)", "the loop over range(K, 0, -BLOCK_K)"),
        (AUTO, "tl.program_id(0)", "tl.program_id(1)", "a second axis of the grid"),
        # What could touch memory unseen.
        (AUTO, DOT, "acc = helper(a_ptrs)", "helper(a_ptrs)"),
        (AUTO, DOT, "tl.atomic_max(c_ptr + offs_m, 1)", "tl.atomic_max(c_ptr + offs_m, 1)"),
        (AUTO, DOT, "tl.inline_asm_elementwise('', '', [b_ptrs])", "tl.inline_asm_elementwise('', '', [b_ptrs])"),
        (AUTO, DOT, "acc = [tl.load(p) for p in acc]", "[tl.load(p) for p in acc]"),
        # Addresses and masks made of data, or of what a loop changes in a way that is not followed.
        (AUTO, "bias_ptr + offs_n, mask", "bias_ptr + tl.load(bias_ptr), mask", "an address made of data of line"),
        (AUTO, "mask=in_n,", "mask=acc > 0,", "the mask, acc, which the loop"),
        (AUTO, "a_ptrs += BLOCK_K", "a_ptrs += k", "a_ptrs, which the loop of line"),
        (AUTO, "x = acc + bias[None, :]", "tl.store(a_ptrs, 0)", "a_ptrs, which the loop of line"),
        # A tile's column that changes behind an access: not all of the kernel is then about one tile.
        (
            AUTO,
            LAST,
            f"{LAST}    tl.load(bias_ptr + pid_n, pid_n < N)\n    pid_n = num_n - 1 - pid_n\n",
            "after an access",
        ),
        (BLOCK, "boundary_check=(0, 1)", "boundary_check=(0, 2)", "boundary_check=(0, 2) of a block"),
        # The launcher: each statement, and each helper that a fact is taken from.
        (AUTO, LAUNCH, "    M = 2 * M\n" + LAUNCH, "M = 2 * M"),
        (AUTO, "if x.shape != shape:", "if False:", "_check does not compare the shape"),
        (AUTO, "x.stride(unit) != 1:", "x.stride(unit) != 2:", "_check does not compare the stride"),
        (AUTO, '"lda": a.stride(0),', '"lda": lda,', "the argument lda"),
        (AUTO, "            **row,\n", "            **row,\n            **row,\n", "the arguments, with the row"),
        (AUTO, "            **row,\n", "", "the arguments, with the row"),
        # What another launch by the same plan goes by.
        (AUTO, 'results={"out": out},\n', 'results={"out": a},\n', "return SimpleNamespace"),
        (AUTO, 'results={"out": out})', "results={})", "if not _launchable"),
        (AUTO, "kernel=gemm_kernel", "kernel=gemm_kernel.fn", "return SimpleNamespace"),
        (
            AUTO,
            "        kernel=gemm_kernel,\n",
            '        kernel=gemm_kernel,\n        cleared=["a"],\n',
            "return SimpleNamespace",
        ),
        # The launch by the plan.
        (AUTO, "bias=bias, out=out", "bias=out, out=bias", "gemm, which launches"),
        (AUTO, "    if launch.grid is not None:", "    b = a\n    if launch.grid is not None:", "gemm, which launches"),
        (AUTO, "    launch.kernel[", "    a.zero_()\n            launch.kernel[", "gemm, which launches"),
        (AUTO, 'return launch.results["out"]', "return a", "gemm, which launches"),
        (AUTO, "def plan(a, b, *", "def plan(b, a, *", "gemm, which launches"),
        (ADDS, "                launch.results[name].zero_()", "                a.zero_()", "gemm, which launches"),
        (ADDS, '        cleared=["out"],\n', "", "gemm, which launches"),
        (
            DEALT_POINTERS,
            '{"work": work, "counters": counters}',
            '{"work": counters, "counters": work}',
            "return SimpleNamespace",
        ),
        (OUTPUTS, 'torch.amax, "row_amax_parts"', 'torch.amax, "row_sum_parts"', "return SimpleNamespace"),
        (OUTPUTS, '"row_sum_parts": row_sum_parts,', '"row_sum_parts": row_amax_parts,', "return SimpleNamespace"),
        (OUTPUTS, "reduce(launch.parts[parts], -2,", "reduce(launch.parts[parts], -1,", "gemm, which launches"),
        (
            AUTO,
            "        row = CONFIGS[config]",
            "        row = dict(CONFIGS[config], BLOCK_M=256)",
            "_row, through which",
        ),
        (AUTO, "return min(CONFIGS, key=cost)", "return {}", "_select, through which"),
        (AUTO, "(size - 1) * stride for", "size * stride for", "INDEX as"),
        (NONE, "reason = _misfit(M, N, K, [row])", "reason = None", "_row, through which"),
        (NONE, "any(_fits(row, M, N, K) for", "any(True or _fits(row, M, N, K) for", "_misfit, through which"),
        (NONE, "rows = [row for row in CONFIGS if _fits(row, M, N, K)]", "rows = CONFIGS", "_prune, through which"),
        (TUNED, "b.block_shape = [", "b.shape = [", "_tunable, through which"),
        (SCALE, "if x.numel() != 1:", "if x.numel() == 0:", "_scalar"),
        (DESCRIPTOR, "TensorDescriptor(x, [rows, columns]", "TensorDescriptor(x, [rows, 2 * columns]", "_describe"),
    ],
)
def test_it_is_not_proved(tmp_path: Path, kernel: str, old: str, new: str, reason: str) -> None:
    proof = proof_of(tmp_path, planted(kernel, (old, new)))
    assert proof.accesses
    for access in proof.accesses:
        assert access.state == "not proved"
        assert access.detail.startswith("not understood: line ") and reason in access.detail


@pytest.mark.parametrize(
    ("kernel", "old", "new"),
    [
        (AUTO, '"b_ptr": "b",', '"b_ptr": "a",'),
        (AUTO, '"b_ptr": "b", ', ""),
        (AUTO, "slots={", 'slots={"M": "a", '),
        (DESCRIPTOR, '"b_desc": "b"', '"b_desc": "out"'),
        (DEALT_POINTERS, '"work_ptr": "work"', '"work_ptr": "counters"'),
        (SCALE, '"scale_or_ptr": "scale"', '"scale_or_ptr": "bias"'),
    ],
)
def test_slots_that_name_another_operand_are_refuted(tmp_path: Path, kernel: str, old: str, new: str) -> None:
    text = planted(kernel)
    assert proof_of(tmp_path, text).order.state == "proved"
    proof = proof_of(tmp_path, planted(kernel, (old, new)))
    assert proof.order.state == "refuted" and "the slots are" in proof.order.detail
    assert {access.state for access in proof.accesses} == {"not proved"}


def test_a_grid_of_another_form_leaves_the_order_unproved(tmp_path: Path) -> None:
    proof = proof_of(tmp_path, planted(ELEMENT, ("(M * N,)", "(M * N + 1,)")))
    assert proof.order.state == "not proved" and "the grid" in proof.order.detail
    assert {access.state for access in proof.accesses} == {"not proved"}


def test_a_scalar_is_an_address_only_where_the_launcher_says_so(tmp_path: Path) -> None:
    proof = proof_of(tmp_path, planted(SCALE, (" if SCALE_ON_DEVICE else scale_or_ptr", "")))
    load = next(access for access in proof.accesses if access.operand == "scale")
    assert load.state == "refuted" and load.detail.endswith("scale is a number")


def test_a_descriptor_of_another_layout_is_not_left_to_the_hardware(tmp_path: Path) -> None:
    proof = proof_of(tmp_path, planted(DESCRIPTOR, ("a_rows, b_rows = (a, b.T)", "a_rows, b_rows = (a.T, b.T)")))
    states = {access.operand: access.state for access in proof.accesses}
    assert states == {"a": "not proved", "b": "hardware", "bias": "proved", "out": "hardware"}


def test_a_table_that_is_not_written_out_is_refused(tmp_path: Path) -> None:
    text = planted(AUTO, ("CONFIGS = [", "CONFIGS = list() or ["))
    with pytest.raises(NotUnderstood, match="CONFIGS = "):
        proof_of(tmp_path, text)


def test_a_file_without_a_kernel_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.py"
    path.write_text('"""Nothing."""\n\nimport triton.language as tl\n')
    with pytest.raises(NotUnderstood, match="no function gemm_kernel"):
        prove(path)


def test_neither_torch_nor_triton_is_imported() -> None:
    code = "import sys, generator.bounds; sys.exit(any(name in sys.modules for name in ('torch', 'triton', 'numpy')))"
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
