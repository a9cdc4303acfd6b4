"""Changes of the text that change nothing: every level must pass them, or it judges the text and not the kernel."""

from __future__ import annotations

from ..mutation import Mutation, instead, without
from .kernels import INT8_RELU, MASKED, MASKED_MN, RELU, SILU

MUTATIONS = (
    Mutation(
        "another comment",
        "equivalent",
        SILU,
        (instead("# Store, rounding to fp16 once.\n", "once", "a single time"),),
        "the tool itself makes nothing wrong",
        equivalent="a comment; digest and manifest follow",
    ),
    Mutation(
        "rows outside are undefined",
        "equivalent",
        MASKED_MN,
        (without("a = tl.load(a_ptrs, mask=in_m[:, None], other=0.0)", ", other=0.0"),),
        "a masked load without other",
        equivalent="M alone is masked: an undefined row of A spoils its own row of the product, which the store drops",
    ),
    Mutation(
        "bias outside is undefined",
        "equivalent",
        SILU,
        (without("bias = tl.load(bias_ptr + offs_n, mask=in_n, other=0.0)", ", other=0.0"),),
        "a masked load without other",
        equivalent="an undefined element of bias enters its own column, which the store drops",
    ),
    Mutation(
        "the store converts",
        "equivalent",
        SILU,
        (("tl.store(c_ptrs, x.to(tl.float16),", "tl.store(c_ptrs, x,"),),
        "no rounding to be seen",
        equivalent="tl.store converts to the type that its pointer points to, rounding alike",
    ),
    Mutation(
        "the result is rounded before relu",
        "equivalent",
        RELU,
        (("tl.maximum(x, 0.0,", "tl.maximum(x.to(tl.float16), 0.0,"),),
        "rounded within the epilogue",
        equivalent="rounding keeps signs and order, so it commutes with the maximum of x and 0",
    ),
    Mutation(
        "relu of integers does not ask for NaN",
        "equivalent",
        INT8_RELU,
        (without("tl.maximum(acc, 0, propagate_nan=tl.PropagateNan.ALL)", ", propagate_nan=tl.PropagateNan.ALL"),),
        "NaN is not propagated",
        equivalent="no integer is NaN",
    ),
    Mutation(
        "a masked loop is one step long",
        "equivalent",
        MASKED,
        (("range(0, K, BLOCK_K)", "range(0, K + BLOCK_K, BLOCK_K)"),),
        "a step behind the end of K",
        equivalent="the mask leaves no element of that step: zeros are added",
    ),
    Mutation(
        "a masked grid has one program too many",
        "equivalent",
        MASKED,
        (("(cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N),)", "(cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N) + 1,)"),),
        "a tile below the last tile row",
        equivalent="the mask leaves no element of that tile",
    ),
    Mutation(
        "the bound of K is added up",
        "equivalent",
        MASKED,
        (("offs_k < K - k", "k + offs_k < K"),),
        "another comparison",
        equivalent="the same inequality, and K is at most 2**31 - 2**16, so that neither side wraps around",
    ),
)
