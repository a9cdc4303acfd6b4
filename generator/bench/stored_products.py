"""What torch multiplies where operands are stored in another way: the same scales of fp8, or the numbers in 16 bits."""

from __future__ import annotations

from collections.abc import Callable

import torch

from generator.bench.random_operands import Operands
from generator.language.storage import Block
from generator.problem.element_types import torch_type
from generator.problem.product import Problem

#: The blocks of A and of B whose scales torch._scaled_mm takes.
_SCALED = {
    (Block(along=0, across=1), Block(along=0, across=1)): "by rows and columns",
    (Block(along=128, across=1), Block(along=128, across=128)): "by blocks",
}


class NoPeer(Exception):
    """torch has no call that computes this problem."""


def product_of_stored(problem: Problem) -> tuple[str, Callable[[Operands, torch.Tensor | None], torch.Tensor]]:
    """The name of torch's product, and the call: of fp8 under the same scales, if it has it, else of 16-bit numbers."""
    dtype, layout = problem.dtype, problem.layout
    blocks = _SCALED.get((dtype.a_block or Block(-1, -1), dtype.b_block or Block(-1, -1)))
    # cuBLAS reads columns of scales in fours; torch 2.11 neither pads nor refuses others, and its results are wrong.
    whole = problem.shape.k % 512 == 0 if blocks == "by blocks" else problem.shape.k % 16 == 0
    aligned = problem.columns % 16 == 0 and whole and not problem.shape.batch
    fp8 = all(storage.element.floating and storage.bits == 8 for storage in dtype.stored)
    if fp8 and blocks is not None and aligned and layout.word == "rcr" and dtype.out == "bf16":
        return f"torch._scaled_mm {blocks}", scaled_mm(_scales(), torch.bfloat16)

    def matmul(operands: Operands, out: torch.Tensor | None) -> torch.Tensor:
        assert operands.dense is not None
        if dtype.out == dtype.dense:
            return torch.matmul(*operands.dense, out=out)
        return torch.matmul(*operands.dense).to(torch_type(dtype.out))

    return f"torch.matmul in {dtype.dense}", matmul


def product_of_groups(problem: Problem) -> tuple[str, Callable[[Operands, torch.Tensor | None], torch.Tensor]]:
    """The name of torch's product of groups, and the call, which makes a new tensor.

    fp8 under scales of rows and columns is multiplied under these; other stored operands, and those of types that torch
    has no such product of, in 16 bits.
    """
    dtype, pitches = problem.dtype, problem.pitches[:2]
    if any(pitch * max(16, dtype.stored_a.bits) % 128 for pitch in pitches):
        raise NoPeer(f"torch multiplies groups of rows that are multiples of 16 bytes, not of {pitches} elements")
    if dtype.plain and dtype.stored_a.bits > 8:
        return "F.grouped_mm", lambda operands, out: _grouped_mm(operands.a, operands.b, operands, dtype.out)
    blocks = _SCALED.get((dtype.a_block or Block(-1, -1), dtype.b_block or Block(-1, -1)))
    aligned = problem.columns % 16 == 0 and problem.shape.k % 16 == 0 and problem.layout.word == "rcr"
    if blocks == "by rows and columns" and dtype.out == "bf16" and aligned:

        def scaled(operands: Operands, out: torch.Tensor | None) -> torch.Tensor:
            rows, columns = operands.stored["a_scale"][:, 0], operands.stored["b_scale"][:, 0, :]
            return torch._scaled_grouped_mm(
                operands.a, operands.b, rows, columns, offs=operands.offsets, out_dtype=torch.bfloat16
            )

        return "torch._scaled_grouped_mm", scaled
    if dtype.plain:
        raise NoPeer(f"torch multiplies no groups of {dtype.a} without scales")

    def converted(operands: Operands, out: torch.Tensor | None) -> torch.Tensor:
        assert operands.dense is not None
        return _grouped_mm(*operands.dense, operands, dtype.out)

    return f"F.grouped_mm in {dtype.dense}", converted


def _grouped_mm(a: torch.Tensor, b: torch.Tensor, operands: Operands, word: str) -> torch.Tensor:
    result = torch.nn.functional.grouped_mm(a, b, offs=operands.offsets)
    return result.to(torch_type(word))


def _scales() -> Callable[[Operands], tuple[torch.Tensor, torch.Tensor]]:
    #: By their address, scales with the blocks along K next to each other, as torch takes them; made before any timing.
    along_k: dict[int, torch.Tensor] = {}

    def scales(operands: Operands) -> tuple[torch.Tensor, torch.Tensor]:
        scale = operands.stored["b_scale"]
        if scale.data_ptr() not in along_k:
            along_k[scale.data_ptr()] = scale.mT.contiguous().mT
        return operands.stored["a_scale"], along_k[scale.data_ptr()]

    return scales


def scaled_mm(
    scales: Callable[[Operands], tuple[torch.Tensor, torch.Tensor]], out_type: torch.dtype, *, fast: bool = False
) -> Callable[[Operands, torch.Tensor | None], torch.Tensor]:
    """torch's product of fp8 with the scales of A and of B that `scales` finds among the operands."""

    def launch(operands: Operands, out: torch.Tensor | None) -> torch.Tensor:
        one, other = scales(operands)
        result = torch._scaled_mm(
            operands.a, operands.b, scale_a=one, scale_b=other, out_dtype=out_type, use_fast_accum=fast, out=out
        )
        assert isinstance(result, torch.Tensor)
        return result

    return launch
