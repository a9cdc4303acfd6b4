"""Weights of fp8 with scales for blocks, as DeepSeek-V3 has them."""

from __future__ import annotations

from torch import Tensor

from .pack import FLOATS, check, laid_out, scale_shape, stored_by


def from_block_fp8(weight: Tensor, weight_scale_inv: Tensor, name: str) -> dict[str, Tensor]:
    """fp8 with a scale for a block, as DeepSeek-V3 has it: `weight` (N, K), `weight_scale_inv` (N/128, K/128).

    A value is an element times the scale of its block. Blocks are the contract's, and the last may be short.
    """
    stored = stored_by(name, "from_block_fp8", ("fp8e4m3", "fp8e5m2"))
    check("weight", weight, (stored.element.dtype,), stored)
    shape = scale_shape(weight.mT.shape, stored.block)
    check("weight_scale_inv", weight_scale_inv, FLOATS, stored, (*shape[:-2], shape[-1], shape[-2]))
    return {"b": laid_out(weight.mT, stored), "b_scale": weight_scale_inv.mT.contiguous()}
