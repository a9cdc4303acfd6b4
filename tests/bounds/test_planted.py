"""Defects planted in rendered kernels: refuted, with numbers that a run of the kernel in plain Python confirms."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from generator.bounds import Access
from tests.helpers import shipped
from tests.helpers.bounds.kernels import (
    AUTO,
    BANDS,
    BLOCK,
    ELEMENT,
    NAIVE,
    NONE,
    STRIDED,
    SWIZZLE,
    configs,
    planted,
    proof_of,
)
from tests.helpers.bounds.replay import Replay


@dataclass(frozen=True)
class Defect:
    """What is planted where, and the operands that the kernel then leaves."""

    kernel: str
    old: str
    new: str
    operands: frozenset[str]

    def __str__(self) -> str:
        return f"{self.kernel.partition('__')[2]}: {self.old} -> {self.new}"


DEFECTS = [
    Defect(kernel, old, new, frozenset(operands.split()))
    for kernel, old, new, operands in (
        # A bound one too far, along each dimension.
        (AUTO, "offs_m < M", "offs_m <= M", "a out"),
        (AUTO, "offs_n < N", "offs_n < N + 1", "b bias out"),
        (AUTO, "offs_k < K - k", "offs_k <= K - k", "a b"),
        # A mask that is not moved along, dropped, or of another dimension.
        (AUTO, "offs_k < K - k", "offs_k < K", "a b"),
        (AUTO, "a_ptrs, mask=in_m[:, None] & in_k[None, :]", "a_ptrs, mask=in_m[:, None]", "a"),
        (AUTO, "a_ptrs, mask=in_m[:, None] & in_k[None, :]", "a_ptrs, mask=in_m[:, None] | in_k[None, :]", "a"),
        (AUTO, "bias_ptr + offs_n, mask=in_n", "bias_ptr + offs_m, mask=in_m", "bias"),
        (AUTO, 'args["M"] % args["BLOCK_M"]', 'args["M"] % 16', "a out"),
        # Addresses that begin, or go on, where they should not.
        (AUTO, "+ tl.arange(0, BLOCK_M)", "+ tl.arange(0, BLOCK_M) - 1", "a out"),
        (AUTO, "a_ptrs += BLOCK_K", "a_ptrs += BLOCK_K + 1", "a"),
        (AUTO, "b_ptrs += BLOCK_K", "b_ptrs += BLOCK_K * ldb", "b"),
        (NONE, "+ tl.arange(0, BLOCK_N)", "+ tl.arange(1, BLOCK_N + 1)", "b bias out"),
        (NONE, "range(0, K, BLOCK_K)", "range(0, K + 1, BLOCK_K)", "a b"),
        (NONE, "multiple(N, BLOCK_N)", "multiple(N, 16)", "b bias out"),
        # Shapes.
        (AUTO, 'Operand("bias", "N"', 'Operand("bias", "K"', "bias"),
        (STRIDED, 'Operand("add", "M N"', 'Operand("add", "N M"', "add"),
        # Strides of another dimension or operand.
        (AUTO, 'a.stride(0),\n                "ldb": b.stride(1)', 'b.stride(1), "ldb": a.stride(0)', "a b"),
        (AUTO, "out.stride(0)", "out.stride(1)", "out"),
        (AUTO, 'Operand("a", "M K", torch.float16, unit=1)', 'Operand("a", "M K", torch.float16)', "a"),
        (STRIDED, "offs_m[:, None] * stride_am", "offs_m[:, None] * stride_ak", "a"),
        (STRIDED, "offs_m[:, None] * stride_am + ", "offs_m[:, None] + ", "a"),
        # Orders of tiles that leave the grid.
        (BANDS, "min(num_m - first_m, GROUP_M)", "min(num_m - first_m + 1, GROUP_M)", "a out"),
        (SWIZZLE, "pid // num_n, pid % num_n", "pid // num_m, pid % num_m", "b out"),
        (ELEMENT, "m = pid // N", "m = pid // K", "a out"),
        (ELEMENT, "range(0, K)", "range(0, K + 1)", "a b"),
        # Block pointers: what is checked, and against what.
        (BLOCK, "b = tl.load(b_block, boundary_check=(0, 1)", "b = tl.load(b_block, boundary_check=(0,)", "b"),
        (BLOCK, "shape=(K, N)", "shape=(K + 1, N)", "b"),
        (BLOCK, "if EVEN_M and EVEN_K", "if EVEN_M", "a"),
        (BLOCK, "tl.advance(b_block, (BLOCK_K, 0))", "tl.advance(b_block, (BLOCK_K + 1, 0))", "b"),
        (NAIVE, "boundary_check=(1,)", "boundary_check=(0,)", "a"),
    )
]  # fmt: skip


def numbers(access: Access) -> dict[str, int]:
    return {name: int(number) for name, number in re.findall(r"(\w+) = (-?\d+)", access.detail)}


#: What runs by default: a mask off by one along each dimension, and others on demand.
FEW = 4


@pytest.mark.parametrize(
    "defect",
    [pytest.param(defect, marks=[pytest.mark.mutations] * (place >= FEW)) for place, defect in enumerate(DEFECTS)],
    ids=str,
)
def test_a_planted_defect_is_refuted_and_the_numbers_are_confirmed(tmp_path: Path, defect: Defect) -> None:
    text = planted(defect.kernel, (defect.old, defect.new))
    refuted = [access for access in proof_of(tmp_path, text).accesses if access.state == "refuted"]
    assert {access.operand for access in refuted} == defect.operands
    rows = configs(text)
    # Numbers that leave their width are a matter of sizes that no replay gets through.
    small = [access for access in refuted if "does not fit" not in access.detail]
    assert {access.operand for access in small} == defect.operands
    for access in small:
        at = numbers(access)
        assert access.row is not None
        found = Replay(text, rows[access.row], {name: at[name] for name in "MNK"}).outside([at["pid"]])
        assert any((each.line, each.operand) == (access.line, access.operand) for each in found), access
        # The very index that the message names.
        named = re.search(r"(row|column|element) (-?\d+) of", access.detail)
        if named:
            place = 1 if named[1] == "column" else 0
            assert any(each.line == access.line and each.index[place] == int(named[2]) for each in found), access


@pytest.mark.parametrize(
    ("kernel", "sizes"),
    [
        (AUTO, (1, 1, 1)),
        (AUTO, (129, 130, 65)),
        (AUTO, (128, 128, 64)),
        (NONE, (256, 128, 64)),
        (NONE, (128, 128, 0)),
        (STRIDED, (65, 129, 70)),
        (BANDS, (1280, 128, 64)),
        (SWIZZLE, (1280, 256, 64)),
        (ELEMENT, (3, 5, 7)),
        (BLOCK, (129, 128, 64)),
        (NAIVE, (64, 32, 33)),
    ],
)
def test_the_kernels_as_they_are_leave_nothing_and_leave_out_nothing(kernel: str, sizes: tuple[int, int, int]) -> None:
    family, _, name = kernel.partition("/")
    text = (shipped.folder(family) / f"{name}.py").read_text()
    replay = Replay(text, configs(text)[0], dict(zip("MNK", sizes)))
    assert replay.outside() == []
    assert replay.stored() == sizes[0] * sizes[1]
