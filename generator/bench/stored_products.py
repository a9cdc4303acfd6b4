"""What torch multiplies where operands are stored in another way: the same scales of fp8, or the numbers in 16 bits."""

from __future__ import annotations

from collections.abc import Callable

import torch

from generator.bench.problem import Problem
from generator.bench.random_operands import Operands
from generator.language.storage import Block
from generator.verify.element_types import torch_type

#: The blocks of A and of B whose scales torch._scaled_mm takes.
_SCALED = {
    (Block(along=0, across=1), Block(along=0, across=1)): "by rows and columns",
    (Block(along=128, across=1), Block(along=128, across=128)): "by blocks",
}


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
    wide = dtype.a if dtype.stored_a.bits == 16 else "bf16"

    def matmul(operands: Operands, out: torch.Tensor | None) -> torch.Tensor:
        assert operands.dense is not None
        if dtype.out == wide:
            return torch.matmul(*operands.dense, out=out)
        return torch.matmul(*operands.dense).to(torch_type(dtype.out))

    return f"torch.matmul in {wide}", matmul


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
