"""Two kernels of a file: the sums of parts of K are stored once each, as many as are added, and so is the result."""

from __future__ import annotations

from pathlib import Path

import pytest

from generator.bounds.source import NotUnderstood
from tests.helpers.bounds.kernels import PARTS, PARTS_DESCRIPTORS, SUMS, SUMS_DESCRIPTORS, planted, proof_of, wrong

Changes = tuple[tuple[str, str], ...]

EVERY = (SUMS, SUMS_DESCRIPTORS, PARTS, PARTS_DESCRIPTORS)
POINTERS, DESCRIPTORS, PLAIN, GATES = EVERY[::2], EVERY[1::2], EVERY[:2], EVERY[2:]
#: The second launch's grid, and what it passes of the row.
TILES = "cdiv(M, 16) * cdiv(N, BLOCK_N),)"
ROWS = '"BLOCK_M": 16,\n                "BLOCK_N": BLOCK_N,\n'
TOLD = '                "SPLIT": SPLIT,\n'
#: The first launch's grid.
PROGRAMS = "cdiv(N, BLOCK_N), SPLIT)"
OFFSETS = "    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)\n    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)\n"
STORE = "tl.store(sums_ptrs, acc, mask=in_m[:, None] & in_n[None, :])"
STORE_OF_GATE = STORE.replace("in_n", "in_s")
NOT_ALL_PARTS = "parts of K, not"


@pytest.mark.parametrize("kernel", EVERY)
def test_both_kernels_are_proved(kernel: str, tmp_path: Path) -> None:
    text = planted(kernel)
    proof = proof_of(tmp_path, text)
    assert not wrong(proof)
    second = text[: text.index(f"def {kernel.rpartition('/')[2]}_sum(")].count("\n")
    told = {(access.line > second, access.operand, access.kind) for access in proof.accesses}
    assert told == {
        (False, "a", "load"),
        (False, "b", "load"),
        (False, "sums", "store"),
        (True, "sums", "load"),
        (True, "bias", "load"),
        (True, "out", "store"),
    }


@pytest.mark.parametrize("kernel", EVERY)
def test_one_part_leaves_no_further_sum_to_add(kernel: str, tmp_path: Path) -> None:
    """A configuration of one part never runs the loop over the others, and is no less proved."""
    proof = proof_of(tmp_path, planted(kernel, ('"SPLIT": 2', '"SPLIT": 1')))
    assert not wrong(proof) and not any(access.detail for access in proof.accesses if access.state == "proved")


@pytest.mark.parametrize("kernel", POINTERS)
def test_the_second_may_have_the_tiles_of_the_first(kernel: str, tmp_path: Path) -> None:
    changes = ((TILES, TILES.replace("16", "BLOCK_M")), (ROWS, ROWS.replace("16", "BLOCK_M")))
    assert not wrong(proof_of(tmp_path, planted(kernel, *changes)))


#: Kernels, what of each is replaced by what, and the message.
MISTAKES = [
    # What the first stores, and where.
    (EVERY, "sums_ptr + part * stride_sumsp + ", "sums_ptr + ", "store their sums in one place"),
    (EVERY, "sums_ptr + part * stride_sumsp + ", "sums_ptr + part * ldsums + ", "row 1 of sums"),
    (PLAIN, STORE, "tl.store(sums_ptrs, acc)", "row 1 of sums, which has 1 row"),
    (PLAIN, STORE, STORE.replace("in_m[:, None] & ", ""), "row 1 of sums, which has 1 row"),
    (GATES, STORE_OF_GATE, "tl.store(sums_ptrs, acc, mask=in_m[:, None])", "of sums, which has"),
    (PLAIN, STORE, STORE.replace("in_n", "(offs_n < N - 1)"), "its mask may leave out an element"),
    (PLAIN, STORE, f"if first < last:\n        {STORE}", "not every program is known to store its tile"),
    (
        GATES,
        STORE_OF_GATE,
        f"if first < last:\n        {STORE_OF_GATE}",
        "not every program is known to store its tile",
    ),
    (PLAIN, STORE, STORE.replace("tl.store", "tl.atomic_add"), "it adds to what is there"),
    (PLAIN, STORE, f"{STORE}\n    {STORE}", "not every program is known to store its tile"),
    (PLAIN, STORE, f"acc += tl.load(sums_ptrs)\n    {STORE}", "read by the kernel that stores it"),
    (PLAIN, OFFSETS, OFFSETS.replace("pid_m * BLOCK_M", "pid_m * 32"), "is not one of 128 elements"),
    (GATES, "offs_s = 2 * pid_n * BLOCK_N", "offs_s = pid_n * BLOCK_N", "is not one of 128 elements"),
    # How many parts there are: launched, stored and added.
    (EVERY, PROGRAMS, PROGRAMS.replace("SPLIT", "SPLIT - 1"), NOT_ALL_PARTS),
    (EVERY, PROGRAMS, PROGRAMS.replace("SPLIT", "SPLIT + 1"), NOT_ALL_PARTS),
    (EVERY, '"sums", "SPLIT M', '"sums", "SPLIT-1 M', NOT_ALL_PARTS),
    (EVERY, '"sums", "SPLIT M', '"sums", "SPLIT+1 M', NOT_ALL_PARTS),
    (EVERY, TOLD, TOLD.replace("SPLIT,", "SPLIT - 1,"), NOT_ALL_PARTS),
    (EVERY, TOLD, "", "the parameter SPLIT of sum_kernel, which no launch passes"),
    (EVERY, "static_range(1, SPLIT)", "static_range(1, SPLIT + 1)", "matrix 2 of sums, which has 2 matrices"),
    # The room for them.
    (PLAIN, "SPLIT M N", "SPLIT N M", "of sums, which has"),
    (GATES, "SPLIT M 2*N", "SPLIT 2*N M", "of sums, which has"),
    (GATES, "SPLIT M 2*N", "SPLIT M N", "of sums, which has"),
    (PLAIN, "SPLIT M N", "SPLIT M 2*N", "are not known to be those of 2 * N"),
    (EVERY, 'Memory("sums", "SPLIT M ', 'Memory("sums", "M ', NOT_ALL_PARTS),
    (EVERY, 'Memory("sums"', 'Memory("parts"', "'Amount' object has no attribute 'stride'"),
    (POINTERS, "index_type(a, b, sums, ", "index_type(a, b, ", "which does not fit 32 bits"),
    (DESCRIPTORS, "index_type(sums", "index_type(bias", "which does not fit 32 bits"),
    # Which tiles the second has.
    (EVERY, TILES, TILES.replace("16", "32"), "tiles of 16 are not known to be those of"),
    (EVERY, TILES, TILES.replace("16", "BLOCK_M"), "tiles of 16 are not known to be those of"),
    (EVERY, TILES, TILES.replace(",)", ", SPLIT)"), "more than one of them stores the result"),
    (POINTERS, ROWS, ROWS.replace("16", "32"), "tiles of 32 are not known to be those of"),
    (DESCRIPTORS, ROWS, ROWS.replace("16", "32"), "32 * pid_m is not one of 16 elements of each tile"),
    (POINTERS, ROWS, ROWS.replace("16", "BLOCK_M"), "tiles of 128 are not known to be those of"),
    (DESCRIPTORS, "described(out, 16, ", "described(out, BLOCK_M, ", "16 * pid_m is not one of 128"),
    (EVERY, "pid_m = pid // num_n\n", "pid_m = pid % num_n\n", "computes tile"),
    (EVERY, ROWS, ROWS.partition("\n")[0] + "\n", "BLOCK_N"),
    # What the second reads and stores.
    (PLAIN, "tl.load(sums_ptrs, mask=in_m[:, None] & in_n[None, :], other=0.0)", "tl.load(sums_ptrs)", "row 1 of"),
    (
        PLAIN,
        "stride_sumsp, mask=in_m[:, None] & in_n[None, :]",
        "stride_sumsp, mask=in_n[None, :]",
        "row 1 of sums",
    ),
    (
        POINTERS,
        "tl.float16), mask=in_m[:, None] & in_n[None, :]",
        "tl.float16), mask=in_m[:, None]",
        "column 1 of out",
    ),
    (EVERY, "    # Epilogue in", "    tl.store(sums_ptrs, acc)\n    # Epilogue in", "not for this kernel to fill"),
    (
        EVERY,
        "sums.stride(0)",
        "sums.stride(1)",
        "of sums, which has",
    ),
    # The launches.
    (
        EVERY,
        "_sum,\n            grid",
        ",\n            grid",
        "not understood",
    ),
    (
        EVERY,
        "_grouped,\n            grid",
        "_grouped_sum,\n            grid",
        "launches of sum_kernel",
    ),
    (EVERY, "            configured=False,\n", "", "two arguments of one name"),
    (EVERY, '"sums_ptr": sums,\n                "c_', '"sums_ptr": out,\n                "c_', "of out"),
]


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.product)], ids=["pairs", "all"])
@pytest.mark.parametrize(("kernels", "old", "new", "told"), MISTAKES)
def test_a_mistake_between_two_kernels_is_not_proved(
    tmp_path: Path, kernels: tuple[str, ...], old: str, new: str, told: str, whole: bool
) -> None:
    """Of all four, by default the sum by pointers and the gate by descriptors."""
    for kernel in kernels if whole or kernels != EVERY else (SUMS, PARTS_DESCRIPTORS):
        try:
            found = wrong(proof_of(tmp_path, planted(kernel, (old, new))))
        except NotUnderstood as error:
            found = [str(error)]
        assert any(told in each for each in found), (kernel, found)


@pytest.mark.parametrize(
    ("kernel", "changes"),
    [
        (
            SUMS,
            (
                ("auto_grouped(\n", "auto_grouped(\n    c_ptr,\n    ldc,\n"),
                ('"a_ptr": a,', '"c_ptr": out, "ldc": out.stride(0), "a_ptr": a,'),
                (
                    STORE,
                    f"{STORE}\n    {STORE.replace('sums_ptrs', 'c_ptr + offs_m[:, None] * ldc + offs_n[None, :]')}",
                ),
            ),
        ),
        (
            SUMS_DESCRIPTORS,
            (
                ("auto_grouped(\n", "auto_grouped(\n    c_desc,\n"),
                ('"a_desc": described', '"c_desc": described(out, BLOCK_M, BLOCK_N), "a_desc": described'),
                (STORE, f"{STORE}\n    c_desc.store([row, column], acc)"),
            ),
        ),
    ],
)
def test_the_first_does_not_store_the_result(kernel: str, changes: Changes, tmp_path: Path) -> None:
    order = proof_of(tmp_path, planted(kernel, *changes)).order
    assert order.state == "refuted" and "a store to out, which is not for this kernel to fill" in order.detail
