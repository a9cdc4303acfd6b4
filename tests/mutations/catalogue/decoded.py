"""A kernel in front that decodes B, or copies it in another order: blocks left out, scales forgotten, other strides."""

from __future__ import annotations

from ..mutation import Mutation
from .kernels import DECODED, FP32_COPIED

MUTATIONS = (
    Mutation(
        "B is decoded without its scales",
        "storage",
        DECODED,
        (("(b.to(tl.float32) * b_scale[:, None])", "b.to(tl.float32)"),),
        "a value is stored * scale",
        says="are wrong",
    ),
    Mutation(
        "half the blocks of B are not decoded",
        "storage",
        DECODED,
        (("(cdiv(K, 128) * cdiv(N, 64),)", "(cdiv(K, 128) * cdiv(N, 128),)"),),
        "a block has 64 columns",
    ),
    Mutation(
        "half the blocks of B are not copied",
        "storage",
        FP32_COPIED,
        (("(cdiv(K, 128) * cdiv(N, 64),)", "(cdiv(K, 128) * cdiv(N, 128),)"),),
        "a block has 64 columns",
    ),
    Mutation(
        "rows of the copy are as far apart as columns of B",
        "storage",
        FP32_COPIED,
        (('"lddecoded": decoded.stride(0)', '"lddecoded": b.stride(1)'),),
        "the copy has another order",
    ),
)
