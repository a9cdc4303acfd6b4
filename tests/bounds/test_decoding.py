"""A kernel that decodes B for the one behind it: every element of the dense B is stored once, from what is inside."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.bounds.kernels import DECODED, DECODED_DESCRIPTORS, DECODED_FP32, planted, proof_of, wrong

EVERY = (DECODED, DECODED_DESCRIPTORS)
STORE = "tl.store(decoded_ptrs, decoded, mask=in_n[:, None] & in_k[None, :])"
GRID = "(cdiv(K, 128) * cdiv(N, 64),)"
ROOM = 'Memory("decoded", "K N", torch.bfloat16, unit=0, pitch=8)'


@pytest.mark.parametrize("kernel", EVERY)
def test_both_kernels_are_proved(kernel: str, tmp_path: Path) -> None:
    text = planted(kernel)
    proof = proof_of(tmp_path, text)
    assert not wrong(proof)
    second = text[: text.index(f"def {kernel.rpartition('/')[2]}(")].count("\n")
    assert {(access.line > second, access.operand, access.kind) for access in proof.accesses} == {
        (False, "b", "load"),
        (False, "b_scale", "load"),
        (False, "decoded", "store"),
        (True, "a", "load"),
        (True, "decoded", "load"),
        (True, "bias", "load"),
        (True, "out", "store"),
    }


def test_a_copy_of_another_order_is_proved(tmp_path: Path) -> None:
    """The rows of fp32 are padded to multiples of four elements; so that they do not overlap, any number would do."""
    assert not wrong(proof_of(tmp_path, planted(DECODED_FP32)))
    assert not wrong(proof_of(tmp_path, planted(DECODED_FP32, ("pitch=4", "pitch=8"))))
    for other in ("0", "4 - 8", "N", "True"):
        assert wrong(proof_of(tmp_path, planted(DECODED_FP32, ("pitch=4", f"pitch={other}"))))


def test_a_row_major_b_is_stored_as_it_lies(tmp_path: Path) -> None:
    """The room is a row-major matrix, whose columns are padded."""
    changes = (
        (ROOM, ROOM.replace("unit=0", "unit=1")),
        ("offs_k[None, :] + offs_n[:, None] * lddecoded", "offs_k[None, :] * lddecoded + offs_n[:, None]"),
        ('"lddecoded": decoded.stride(1)', '"lddecoded": decoded.stride(0)'),
        ("offs_k[:, None] + offs_n[None, :] * ldb", "offs_k[:, None] * ldb + offs_n[None, :]"),
        ('"ldb": decoded.stride(1)', '"ldb": decoded.stride(0)'),
        ("        b_ptrs += BLOCK_K\n", "        b_ptrs += BLOCK_K * ldb\n"),
    )
    assert not wrong(proof_of(tmp_path, planted(DECODED, *changes)))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        # What the first stores, and where.
        (STORE, STORE.replace("in_n[:, None] & in_k[None, :]", "in_n[:, None]"), "row 2 of decoded"),
        (STORE, STORE.replace("in_n[:, None] & in_k[None, :]", "in_k[None, :]"), "column 1 of decoded"),
        (STORE, STORE.replace("in_n", "(offs_n < N - 1)"), "its mask may leave out an element"),
        (STORE, f"if pid_k > 0:\n        {STORE}", "not every program is known to store its tile of decoded"),
        (STORE, f"{STORE}\n    {STORE}", "not every program is known to store its tile of decoded"),
        (STORE, f"decoded += tl.load(decoded_ptrs)\n    {STORE}", "read by the kernel that stores it"),
        (STORE, f"{STORE}\n    tl.store(b_scale_ptrs, b_scale, mask=in_n)", "not for this kernel to fill"),
        ("offs_n = pid_n * BLOCK_N + tl", "offs_n = pid_n * 32 + tl", "is not one of 64 elements"),
        # Which blocks there are.
        (GRID, GRID.replace("K, 128", "K, 256"), "computes tile"),
        (GRID, GRID.replace("N, 64", "N, 32"), "tiles of 64 are not known to be those of N"),
        ('"BLOCK_N": 64', '"BLOCK_N": 32', "tiles of 32 are not known to be those of N"),
        ("pid_k = pid % num_k", "pid_k = pid // num_k", "computes tile"),
        # What it reads.
        ("mask=in_n[:, None] & in_p[None, :]", "mask=in_n[:, None]", "of b, which has"),
        ("in_p = offs_p < K // 2", "in_p = offs_p < K", "of b, which has"),
        ("k // 128 * stride_b_scalek", "k // 64 * stride_b_scalek", "of b_scale, which has"),
        ("stride_b_scalek, mask=in_n", "stride_b_scalek, mask=offs_n < N + 1", "of b_scale, which has"),
        # The room, and the widths of offsets.
        (ROOM, ROOM.replace("K N", "N K"), "of decoded, which has"),
        (ROOM, ROOM.replace("K N", "K//2 N"), "of decoded, which has"),
        (ROOM, ROOM.replace("unit=0", "unit=1"), "of decoded"),
        (ROOM, ROOM.replace(", pitch=8", ", pitch=-8"), "the tensor decoded, with"),
        (ROOM, ROOM.replace("K N", "1 K N"), "the tensor decoded, with dimensions"),
        ("b_scale, decoded, ", "b_scale, ", "which does not fit 32 bits"),
        # The launches.
        (
            "_decode,\n            grid",
            ",\n            grid",
            "launches of gemm_kernel",
        ),
        (
            "_storepointer,\n            grid",
            "_storepointer_decode,\n            grid",
            "launches of decode_kernel",
        ),
        (f"    memory=({ROOM},),\n", "", "has no attribute 'stride'"),
        ('"decoded_ptr": decoded', '"decoded_ptr": b', "of b"),
    ],
)
def test_a_mistake_of_the_kernel_that_decodes_is_not_proved(tmp_path: Path, old: str, new: str, told: str) -> None:
    for kernel in EVERY:
        found = wrong(proof_of(tmp_path, planted(kernel, (old, new))))
        assert any(told in each for each in found), (kernel, found)
