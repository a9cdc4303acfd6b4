"""2:4 weights of torch."""

from __future__ import annotations

import torch
from torch import Tensor

from .pack import check, laid_out, stored_by


def from_semi_structured(packed: Tensor, meta: Tensor, name: str) -> dict[str, Tensor]:
    """2:4 weights of torch: `packed` (N, K/2) and int16 `meta` (N, K/16) of a `SparseSemiStructuredTensorCUTLASS`.

    The order of what cuSPARSELt packs is not documented: pass `to_dense().mT` of such a tensor to `quantize`.
    """
    stored = stored_by(name, "from_semi_structured", ("fp16", "bf16"))
    check("packed", packed, (stored.element.dtype,), stored)
    *batch, N, half = packed.shape
    if N % 32 or half % 32:
        raise ValueError(f"packed must have multiples of 32 rows and columns, got shape {tuple(packed.shape)}")
    check("meta", meta, (torch.int16,), stored, (*batch, N, half // 8))
    # CUTLASS keeps two columns together, deals 32 rows r as (r % 8, r // 8), and transposes squares of two by two.
    words = meta.reshape(-1, half // 16, N // 32, 8, 2, 2, 2).permute(0, 2, 4, 6, 3, 1, 5)
    index = words.reshape(meta.shape).view(torch.uint8)
    return {"b": laid_out(packed.mT, stored), "b_index": laid_out(index.mT, stored)}
