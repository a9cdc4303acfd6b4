"""A kernel whose loop does not wait for products that read their rows from registers, and the same kernel that does."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from generator.verify.machine_code import MachineCode, compile_to_machine_code, own_cache
from generator.verify.specialise import Specialisation

#: Rows of 64 numbers, which several products of one step read from registers.
BLOCKS = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}


@triton.jit
def weights_kernel(
    a_ptr, b_ptr, c_ptr, K,
    WAITS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """C^T = B^T A^T for weights of int8 that become bf16."""
    offs_m, offs_n, offs_k = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + offs_m[:, None] * K + offs_k[None, :]
    b_ptrs = b_ptr + offs_n[:, None] * K + offs_k[None, :]
    acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs)
        b = tl.load(b_ptrs).to(tl.bfloat16)
        acc = tl.dot(b, a.T, acc)
        if WAITS:
            # Whatever reads the sum has to wait for it.
            acc = tl.where(k < K, acc, 0.0)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K
    tl.store(c_ptr + offs_n[:, None] * BLOCK_M + offs_m[None, :], acc)


def ptxas() -> tuple[int, ...]:
    """The version of Triton's assembler."""
    return tuple(int(part) for part in triton.knobs.nvidia.ptxas.version.split("."))


def compiled(waits: bool) -> MachineCode:
    """The machine code for Hopper, with addresses and K that are multiples of 16."""
    signature = {"a_ptr": "*bf16", "b_ptr": "*i8", "c_ptr": "*fp32", "K": "i32"}
    constants: dict[Any, Any] = {"WAITS": waits, **BLOCKS}
    known = {(number,): [["tt.divisibility", 16]] for number in range(len(signature))}
    kinds = signature | dict.fromkeys(constants, "constexpr")
    options = {"num_warps": 8, "num_stages": 3}
    wanted = Specialisation(weights_kernel, kinds, constants, known, options, True)
    with own_cache():
        return compile_to_machine_code(wanted, "sm90")
