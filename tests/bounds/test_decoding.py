"""A kernel that decodes B for the one behind it: every element of the dense B is stored once, from what is inside."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.bounds.kernels import DECODED, DECODED_DESCRIPTORS, DECODED_FP32, planted, proof_of, wrong

EVERY = (DECODED, DECODED_DESCRIPTORS)
FIRST = "            launch.kernel[launch.grid](**launch.arguments)\n"
SECOND = "            launch.then.kernel[launch.then.grid](**launch.then.arguments)\n"
STORE = "tl.store(decoded_ptrs, decoded, mask=in_n[:, None] & in_k[None, :])"
GRID = "(triton.cdiv(K, 128) * triton.cdiv(N, 64),)"
ROOM = "torch.empty_strided((K, N), (1, triton.cdiv(K, 8) * 8), dtype=torch.bfloat16, device=a.device)"
NOT_LAUNCHED, NOT_PLANNED = "gemm, which launches", "return SimpleNamespace"


@pytest.mark.parametrize("kernel", EVERY)
def test_both_kernels_are_proved(kernel: str, tmp_path: Path) -> None:
    text = planted(kernel)
    proof = proof_of(tmp_path, text)
    assert not wrong(proof)
    second = text[: text.index("def gemm_kernel(")].count("\n")
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
    """The rows of fp32 are padded to multiples of four elements; the proof knows no other number than 4 and 8."""
    padded = "(triton.cdiv(N, 4) * 4, 1)"
    assert not wrong(proof_of(tmp_path, planted(DECODED_FP32)))
    assert not wrong(proof_of(tmp_path, planted(DECODED_FP32, (padded, padded.replace("4", "8")))))
    for other in ("3", "-4", "(4 - 8)", "N"):
        assert wrong(proof_of(tmp_path, planted(DECODED_FP32, (padded, padded.replace("4", other)))))


def test_a_row_major_b_is_stored_as_it_lies(tmp_path: Path) -> None:
    """The room is a row-major matrix, whose columns are padded."""
    changes = (
        (ROOM, ROOM.replace("(1, triton.cdiv(K, 8) * 8)", "(triton.cdiv(N, 8) * 8, 1)")),
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
        (STORE, STORE.replace("in_n[:, None] & in_k[None, :]", "in_n[:, None]"), "row 1 of decoded"),
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
        (ROOM, ROOM.replace("triton.cdiv(K", "triton.cdiv(N"), "decoded = torch.empty"),
        (ROOM, ROOM.replace(" * 8)", " * 4)"), "decoded = torch.empty"),
        (ROOM, ROOM.replace("device=a.device", "out=a"), "decoded = torch.empty"),
        ("_extent(decoded), ", "", "which does not fit 32 bits"),
        # The launches.
        (FIRST + SECOND, SECOND + FIRST, NOT_LAUNCHED),
        (SECOND, "", NOT_LAUNCHED),
        ("kernel=decode_kernel", "kernel=gemm_kernel", NOT_PLANNED),
        ("kernel=gemm_kernel", "kernel=decode_kernel", NOT_PLANNED),
        ('        parts={"decoded": decoded},\n', "", NOT_PLANNED),
        ('"decoded_ptr": "decoded"}', '"decoded_ptr": "b"}', "the slots are"),
    ],
)
def test_a_mistake_of_the_kernel_that_decodes_is_not_proved(tmp_path: Path, old: str, new: str, told: str) -> None:
    for kernel in EVERY:
        found = wrong(proof_of(tmp_path, planted(kernel, (old, new))))
        assert any(told in each for each in found), (kernel, found)
