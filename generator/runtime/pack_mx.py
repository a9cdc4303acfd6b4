"""Weights in MX formats and nvfp4."""

from __future__ import annotations

from torch import Tensor

from .pack import check, laid_out, scale_shape, stored_by


def from_mx(values: Tensor, scales: Tensor, name: str) -> dict[str, Tensor]:
    """MX and nvfp4 weights: fp8 `values` (N, K), or fp4 in bytes (N, K/2); `scales` (N, K/32), for nvfp4 (N, K/16).

    fp4 may also be (N, K/32, 16), as gpt-oss has it. The element of even k is in the low bits of a byte.
    """
    stored = stored_by(name, "from_mx", ("mxfp8e4m3", "mxfp8e5m2", "mxfp4", "nvfp4"))
    packed = stored.element.bits == 4
    if packed and isinstance(values, Tensor) and values.dim() == stored.batched + 3:
        values = values.flatten(-2)
    check("values", values, (stored.element.dtype,), stored)
    *batch, N, length = values.shape
    groups = scale_shape((*batch, 2 * length if packed else length, N), stored.block)[-2]
    check("scales", scales, stored.element.scales, stored, (*batch, N, groups))
    return {"b": laid_out(values.mT, stored), "b_scale": scales.mT.contiguous()}
