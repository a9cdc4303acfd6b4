"""What the proof has no meaning for is not proved, and says why: never passed over."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from generator import runtime
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
        # The table: what it calls, and what it passes.
        (AUTO, "    CONFIGS,\n", "    CONFIGS[:1],\n", "CONFIGS[:1]"),
        (AUTO, "    CONFIGS,\n", "    tuple(CONFIGS + CONFIGS),\n", "configurations other than CONFIGS"),
        (AUTO, "CALL = Call(\n", "CALL = Result(\n", "name 'Result' is not defined"),
        (AUTO, "CALL = Call(\n", "CALL = dict(\n", "CALL: "),
        (AUTO, "import Call,", "import Launch as Call, Call as Launch,", "CALL: "),
        (AUTO, "choose=cheapest(cost)", "choose=lambda *_: {}", "a choice of configurations"),
        (AUTO, "choose=cheapest(cost)", "choose=cheapest(cost), other=2", "'other'"),
        (AUTO, "choose=cheapest(cost)", "choose=cheapest(cost), memory=2", "CALL: "),
        # Functions of it: no symbol could tell what they ask.
        (AUTO, '"a_ptr": a', '"a_ptr": a if M else b', "a if M else b"),
        (AUTO, '"a_ptr": a', '"a_ptr": a or b', "a or b"),
        (AUTO, '"M": M', '"M": M - (M == N)', "M == N"),
        (AUTO, '"a_ptr": a', '"a_ptr": [x for x in (a, b)][0]', "[x for x in (a, b)]"),
        (AUTO, '"M": M', '"M": cdiv(*M)', "an iterable, not Amount"),
        (AUTO, '"a_ptr": a', '"a_ptr": a.T', "has no attribute 'T'"),
        (AUTO, '"M": M', '"M": min(M, 3)', "name 'min' is not defined"),
        (AUTO, '"M": M', '"M": triton.cdiv(M, 3)', "name 'triton' is not defined"),
        (AUTO, '"M": M', '"M": cost(M)', "name 'cost' is not defined"),
        (AUTO, '"M": M', '"M": cheapest(M)', "the argument M"),
        (AUTO, '"M": M', '"M": -M', "bad operand type for unary -"),
        (AUTO, "(cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N),)", "cdiv(M, BLOCK_M)", "a launch whose grid"),
        (AUTO, "a.stride(0)", "a.stride(2)", "the argument lda"),
        (AUTO, "a.stride(0)", "2 * M", "the argument lda"),
        (AUTO, "a.stride(0)", "add.stride(0)", "has no attribute 'stride'"),
        (AUTO, '"a_ptr": a', '"a_ptr": add', "the argument a_ptr"),
        (AUTO, '"M": M,', '"BLOCK_M": M, "M": M,', "two arguments of one name"),
        (AUTO, "index_type(a, b, out)", "index_type()", "the type of offsets"),
        (AUTO, "index_type(a, b, out)", "index_type(a, M)", "the type of offsets"),
        (AUTO, '"M K", torch.float16, unit=1', '"M K", torch.float16, unit=2', "the tensor a, with dimensions"),
        (AUTO, '"M K", torch.float16', '"M K+1", torch.float16', "a size taken from the dimension K + 1"),
        (AUTO, '"M K", torch.float16', '"M (K)if(M)else(K)", torch.float16', "CALL: "),
        (AUTO, '"M K", torch.float16', '"M (M==K)or(K)", torch.float16', "CALL: "),
        (AUTO, '"out", "M N"', '"out", "M N+1"', "N + 1"),
        (AUTO, '"a", "M K"', '"a", "N K"', "the number M"),
        (AUTO, 'Operand("bias"', 'Operand("a"', "two tensors of one name"),
        (ADDS, 'cleared=("out",)', 'cleared=("a",)', "what is cleared and is no result"),
        (OUTPUTS, '"row_amax_parts", "amax"', '"row_amax_parts", "prod"', "made of parts"),
        (OUTPUTS, '"row_sum_parts", "cdiv(N,BLOCK_N) M"', '"row_sum_parts", "M cdiv(N,BLOCK_N)"', "made of parts"),
        (DEALT_POINTERS, "(PROGRAMS,)", "(M * N,)", "a workspace of programs"),
        (DEALT_POINTERS, '"work", ', '"partial", ', "memory that no kernel is known to need"),
        (DEALT_POINTERS, "registers=", "interpreted=0, registers=", "whose number is not known"),
        (DEALT_POINTERS, "programs=Occupancy(", "programs=dict(", "whose number is not known"),
        (NONE, '"M": M,\n                "N": N', '"M": N,\n                "N": M', "sizes passed under other names"),
        (NONE, "multiple(N, BLOCK_N,", "multiple(N, BLOCK_N - BLOCK_N,", "multiples of BLOCK_N - BLOCK_N"),
        (TUNED, "described(a, BLOCK_M, BLOCK_K)", "described(a, BLOCK_M)", "a block of 1 dimensions of a"),
        (TUNED, "described(a, BLOCK_M, BLOCK_K)", "described(a, BLOCK_M, BLOCK_K, made=True)", "described"),
        # What passes the operands on, or might change a table.
        (AUTO, "CALL(config, a=a, b=b", "CALL(config, a=b, b=a", "gemm, which passes"),
        (AUTO, "    return CALL(", "    b = a\n    return CALL(", "gemm, which passes"),
        (AUTO, "bias=bias, out=out)", "bias=bias)", "gemm, which passes"),
    ],
)
def test_it_is_not_proved(tmp_path: Path, kernel: str, old: str, new: str, reason: str) -> None:
    proof = proof_of(tmp_path, planted(kernel, (old, new)))
    assert proof.accesses
    for access in proof.accesses:
        assert access.state == "not proved"
        assert access.detail.startswith("not understood: line ") and reason in access.detail


@pytest.mark.parametrize(
    ("kernel", "old", "new", "reason"),
    [
        (AUTO, '"ldb": b.stride(1),', "", "the parameter ldb of gemm_kernel, which no launch passes"),
        (
            AUTO,
            '"ldb": b.stride(1),',
            '"ldb": b.stride(1), "ldd": N,',
            "the argument ldd, which gemm_kernel does not",
        ),
        (OUTPUTS, '"hidden_ptr": hidden', '"hidden_ptr": out', "hidden, which is passed to no kernel"),
        (DEALT_POINTERS, ", cleared=True", "", "counters, which are not zero"),
        (ADDS, '    cleared=("out",),\n', "", "a result that is not set to zero before"),
    ],
)
def test_a_wrong_table_is_refuted(tmp_path: Path, kernel: str, old: str, new: str, reason: str) -> None:
    order = proof_of(tmp_path, planted(kernel, (old, new))).order
    assert order.state == "refuted" and reason in order.detail


def test_a_call_that_changes_a_table_is_refused(tmp_path: Path) -> None:
    text = planted(AUTO, ("    turns = ", "    row['BLOCK_M'] = 512\n    turns = "))
    with pytest.raises(NotUnderstood, match="def cost"):
        proof_of(tmp_path, text)


def test_another_library_is_not_understood(tmp_path: Path) -> None:
    library = tmp_path / "_runtime"
    shutil.copytree(Path(runtime.__file__).parent, library)
    module = library / "call.py"
    module.write_text("# Rendered.\n" + module.read_text())
    assert proof_of(tmp_path, planted(AUTO)).order.state == "proved"
    module.write_text(f"{module.read_text()}\nMOST = 2**40\n")
    proof = proof_of(tmp_path, planted(AUTO))
    assert proof.order.state == "not proved" and {access.state for access in proof.accesses} == {"not proved"}
    told = "the family's _runtime is another one (call.py differs from this package's): render it again"
    assert proof.order.detail.startswith("not understood: line ") and proof.order.detail.endswith(told)
    module.unlink()
    assert proof_of(tmp_path, planted(AUTO)).order.detail.endswith(told)


def test_a_grid_of_another_form_leaves_the_order_unproved(tmp_path: Path) -> None:
    proof = proof_of(tmp_path, planted(ELEMENT, ("(M * N,)", "(M * N + 1,)")))
    assert proof.order.state == "not proved" and "the grid" in proof.order.detail
    assert {access.state for access in proof.accesses} == {"not proved"}


def test_a_scalar_is_an_address_only_where_the_launcher_says_so(tmp_path: Path) -> None:
    proof = proof_of(tmp_path, planted(SCALE, (" if SCALE_ON_DEVICE else scale_or_ptr", "")))
    load = next(access for access in proof.accesses if access.operand == "scale")
    assert load.state == "refuted" and load.detail.endswith("scale is a number")


def test_a_descriptor_of_another_layout_is_not_left_to_the_hardware(tmp_path: Path) -> None:
    turned = ("described(a, BLOCK_M, BLOCK_K)", "described(a, BLOCK_M, BLOCK_K, turned=True)")
    proof = proof_of(tmp_path, planted(DESCRIPTOR, turned))
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
