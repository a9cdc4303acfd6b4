"""Wrong masks, and wrong padding of what they leave out."""

from __future__ import annotations

from ..mutation import Mutation, instead, without
from .kernels import (
    BLOCKS,
    CCC,
    CCC_ADD_ADD,
    CSC,
    DESCRIPTORS,
    IEEE,
    INT8,
    MASKED,
    MASKED_K,
    MASKED_MN,
    RRR,
    SILU,
    SSS,
)

A_LOAD = "a = tl.load(a_ptrs, mask=in_m[:, None] & in_k[None, :], other=0.0)"
B_LOAD = "b = tl.load(b_ptrs, mask=in_k[:, None] & in_n[None, :], other=0.0)"
STORE = "x.to(tl.float16), mask=in_m[:, None] & in_n[None, :])"
EVEN_K = "in_k = tl.full((BLOCK_K,), True, tl.int1) if EVEN_K else offs_k < K - k"
BIAS = "bias = tl.load(bias_ptr + offs_n, mask=in_n, other=0.0).to(tl.float32)"
A_BLOCK = 'a = tl.load(a_block, boundary_check=(0, 1), padding_option="zero")'
B_BLOCK = 'b = tl.load(b_block, boundary_check=(0, 1), padding_option="zero")'

MASKS = (
    Mutation(
        "A and B are not masked along K",
        "mask",
        SILU,
        (without(A_LOAD, " & in_k[None, :]"), without(B_LOAD, "in_k[:, None] & "), (f"        {EVEN_K}\n", "")),
        "what lies behind the last column of A is multiplied by what lies behind the last row of B",
        says="stray load",
    ),
    Mutation(
        "A is not masked along K",
        "mask",
        MASKED_K,
        (("a = tl.load(a_ptrs, mask=in_k[None, :], other=0.0)", "a = tl.load(a_ptrs)"),),
        "what lies behind the last column of A is read: NaN times 0 is NaN",
        says="stray load",
    ),
    Mutation(
        "A is not masked along M",
        "mask",
        SILU,
        (without(A_LOAD, "in_m[:, None] & "),),
        "rows that A does not have are read: their results are dropped, the access may be fatal",
        says="stray load",
    ),
    Mutation(
        "B is not masked along N",
        "mask",
        SILU,
        (without(B_LOAD, " & in_n[None, :]"),),
        "columns that B does not have are read: their results are dropped, the access may be fatal",
        says="stray load",
    ),
    Mutation(
        "the store is not masked along N",
        "mask",
        SILU,
        (without(STORE, " & in_n[None, :]"),),
        "what lies behind each row of C is overwritten",
        says="stray store",
    ),
    Mutation(
        "the store is not masked along M",
        "mask",
        RRR,
        (
            instead(
                "tl.store(c_ptrs, x.to(tl.bfloat16), mask=in_m[:, None] & in_n[None, :])",
                "in_m[:, None] & in_n[None, :]",
                "in_n[None, :]",
            ),
        ),
        "what lies behind the last row of C is overwritten",
        says="stray store",
    ),
    Mutation(
        "the store has no mask",
        "mask",
        MASKED_MN,
        (("acc.to(tl.float16), mask=in_m[:, None] & in_n[None, :])", "acc.to(tl.float16))"),),
        "what lies around C is overwritten",
        says="stray store",
    ),
    Mutation(
        "the bound of M is weakened",
        "mask",
        MASKED_MN,
        (("offs_m < M", "offs_m <= M"),),
        "one row too many is read and written",
        says="stray",
    ),
    Mutation(
        "the bound of N is weakened",
        "mask",
        IEEE,
        (("offs_n < N", "offs_n <= N"),),
        "one column too many is read and written",
        says="stray",
    ),
    Mutation(
        "the bound of K is weakened",
        "mask",
        MASKED,
        (("offs_k < K - k", "offs_k <= K - k"),),
        "one product too many is summed",
        says="stray load",
    ),
    Mutation(
        "M is bounded by N",
        "mask",
        CCC,
        (("else offs_m < M", "else offs_m < N"),),
        "right for square products only",
    ),
    Mutation(
        "the bounds of M and N are exchanged",
        "mask",
        RRR,
        (("offs_m < M", "offs_m < N"), ("offs_n < N", "offs_n < M")),
        "right for square products only",
    ),
    Mutation(
        "the bound of M is one short",
        "mask",
        RRR,
        (("offs_m < M", "offs_m < M - 1"),),
        "the last row of C is never written",
        says="never written",
    ),
    Mutation(
        "the bound of K is one short",
        "mask",
        MASKED,
        (("offs_k < K - k", "offs_k < K - k - 1"),),
        "the last product is left out",
        says="elements are wrong",
    ),
    Mutation(
        "the mask of K is not moved along",
        "mask",
        SILU,
        (("offs_k < K - k", "offs_k < K"),),
        "the last step along K reads a whole tile",
        says="stray load",
    ),
    Mutation(
        "bias has no mask",
        "mask",
        SILU,
        (without(BIAS, ", mask=in_n, other=0.0"),),
        "elements that bias does not have are read",
        says="stray load",
    ),
    Mutation(
        "bias_m has no mask",
        "mask",
        CSC,
        (without("tl.load(bias_m_ptr + offs_m, mask=in_m, other=0.0)", ", mask=in_m, other=0.0"),),
        "elements that bias_m does not have are read",
        says="stray load",
    ),
    Mutation(
        "add is not masked along N",
        "mask",
        SSS,
        (without("add = tl.load(add_ptrs, mask=in_m[:, None] & in_n[None, :], other=0.0)", " & in_n[None, :]"),),
        "columns that add does not have are read",
        says="stray load",
    ),
    Mutation(
        "add2 is not masked along M",
        "mask",
        CCC_ADD_ADD,
        (without("add2 = tl.load(add2_ptrs, mask=in_m[:, None] & in_n[None, :], other=0.0)", "in_m[:, None] & "),),
        "rows that add2 does not have are read",
        says="stray load",
    ),
)

PADDING = (
    Mutation(
        "A's masked load has no other",
        "padding",
        SILU,
        (without(A_LOAD, ", other=0.0"),),
        "masked lanes are undefined, and enter the sum",
        says="elements are wrong",
    ),
    Mutation(
        "A and B are padded with ones",
        "padding",
        INT8,
        (
            ("in_k[None, :], other=0)", "in_k[None, :], other=1)"),
            ("in_n[None, :], other=0)", "in_n[None, :], other=1)"),
        ),
        "every product behind the end of K adds 1",
        says="elements are wrong",
    ),
    Mutation(
        "A alone is padded with ones",
        "padding",
        MASKED,
        (instead(A_LOAD, "0.0", "1.0"),),
        "a one meets a zero of B, so every result is right; but an asynchronous copy pads with zeros alone, so that A "
        "goes through registers",
        by="compile",
    ),
    Mutation(
        "A's block is padded with NaN",
        "padding",
        BLOCKS,
        (instead(A_BLOCK, '"zero"', '"nan"'),),
        "NaN times 0 is NaN",
        says="elements are wrong",
    ),
    Mutation(
        "B's block has no padding",
        "padding",
        BLOCKS,
        (without(B_BLOCK, ', padding_option="zero"'),),
        "lanes outside are undefined, and enter the sum",
        says="elements are wrong",
    ),
    Mutation(
        "descriptors pad with NaN",
        "padding",
        DESCRIPTORS,
        (
            (
                "[*apart, lead, 1], [*block])",
                '[*apart, lead, 1], [*block], padding="nan")',
            ),
        ),
        "a K that ends within a tile makes every element NaN",
        says="elements are wrong",
        own="_runtime/descriptors.py",
    ),
)

MUTATIONS = (*MASKS, *PADDING)
