"""Wrong accesses: strides, offsets, block pointers, descriptors, the width of offsets."""

from __future__ import annotations

from ..mutation import Mutation, instead, without
from .kernels import (
    BLOCKS,
    BLOCKS_MN,
    BLOCKS_NAIVE,
    CCC,
    CSC,
    DESCRIPTORS,
    DESCRIPTORS_CCC,
    DESCRIPTORS_FP8,
    DESCRIPTORS_NAIVE,
    DESCRIPTORS_RCS,
    ELEMENTWISE,
    IEEE,
    MASKED,
    NAIVE,
    RRR,
    SILU,
    SSR,
    SSS,
)
from .masks import A_BLOCK, STORE

OFFS_N = "offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)"

STRIDES = (
    Mutation(
        "leading dimensions of A and B are exchanged",
        "stride",
        SILU,
        (('a.stride(0),\n                "ldb": b.stride(1)', 'b.stride(1),\n                "ldb": a.stride(0)'),),
        "right only where both are equal, as they are unless one is padded",
    ),
    Mutation(
        "padding is read as elements",
        "stride",
        SILU,
        (('"ldb": b.stride(1)', '"ldb": K'),),
        "right only where the leading dimension is not padded",
    ),
    Mutation(
        "strides of A are exchanged",
        "stride",
        SSS,
        (
            (
                "offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak",
                "offs_m[:, None] * stride_ak + offs_k[None, :] * stride_am",
            ),
        ),
        "A is read transposed",
    ),
    Mutation(
        "strides of B are passed in the wrong order",
        "stride",
        CSC,
        (
            (
                '"stride_bk": b.stride(0),\n                "stride_bn": b.stride(1)',
                '"stride_bk": b.stride(1),\n                "stride_bn": b.stride(0)',
            ),
        ),
        "B is read transposed",
    ),
    Mutation(
        "A is read as if row-major",
        "stride",
        CCC,
        (("a_ptr + offs_m[:, None] + offs_k[None, :] * lda", "a_ptr + offs_m[:, None] * lda + offs_k[None, :]"),),
        "the unit stride is taken for that of the other dimension",
    ),
    Mutation(
        "A steps along K by elements",
        "stride",
        CCC,
        (("a_ptrs += BLOCK_K * lda", "a_ptrs += BLOCK_K"),),
        "right while K fits into one step",
    ),
    Mutation(
        "B steps along K by elements",
        "stride",
        RRR,
        (("b_ptrs += BLOCK_K * ldb", "b_ptrs += BLOCK_K"),),
        "right while K fits into one step",
    ),
    Mutation(
        "B steps along K by A's stride",
        "stride",
        SSR,
        (("b_ptrs += BLOCK_K * stride_bk", "b_ptrs += BLOCK_K * stride_ak"),),
        "right while K fits into one step, or A and B are stored alike",
    ),
    Mutation(
        "a strided A is taken to have stride 1",
        "stride",
        SSR,
        (
            (
                "offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak",
                "offs_m[:, None] * stride_am + offs_k[None, :]",
            ),
        ),
        "right only for the layout that is tried first",
    ),
    Mutation(
        "add is read with C's leading dimension",
        "stride",
        CCC,
        (('"ldadd": add.stride(1)', '"ldadd": out.stride(1)'),),
        "right only where add is padded as C is",
    ),
)

OFFSETS = (
    Mutation(
        "the tile's columns begin one too far",
        "offset",
        MASKED,
        ((OFFS_N, f"{OFFS_N} + 1"),),
        "the first column of each tile is left out",
        says="never written",
    ),
    Mutation(
        "tile rows are stepped by BLOCK_N",
        "offset",
        SILU,
        (("offs_m = pid_m * BLOCK_M", "offs_m = pid_m * BLOCK_N"),),
        "right for square tiles only",
    ),
    Mutation(
        "K begins at one",
        "offset",
        NAIVE,
        (("offs_k = tl.arange(0, BLOCK_K)", "offs_k = 1 + tl.arange(0, BLOCK_K)"),),
        "the first product is left out",
        says="elements are wrong",
    ),
    Mutation(
        "row and column come from M",
        "offset",
        ELEMENTWISE,
        (("m = pid // N\n    n = pid % N", "m = pid // M\n    n = pid % M"),),
        "right for square products only",
    ),
)

BLOCK_POINTERS = (
    Mutation(
        "A's boundary check misses K",
        "block pointer",
        BLOCKS,
        (instead(A_BLOCK, "(0, 1)", "(0,)"),),
        "what lies behind the last column of A is read",
        says="stray load",
    ),
    Mutation(
        "the store's boundary check misses N",
        "block pointer",
        BLOCKS_MN,
        (instead("tl.store(c_block, x.to(tl.float16), boundary_check=(0, 1))", "(0, 1)", "(0,)"),),
        "what lies behind each row of C is overwritten",
        says="stray store",
    ),
    Mutation(
        "B's block is bounded by K along N",
        "block pointer",
        BLOCKS_MN,
        (("shape=(K, N),", "shape=(K, K),"),),
        "right where K is N",
    ),
    Mutation(
        "strides of A's block are exchanged",
        "block pointer",
        BLOCKS_MN,
        (("strides=(lda, 1),", "strides=(1, lda),"),),
        "A is read transposed",
    ),
    Mutation(
        "A's block is advanced along M",
        "block pointer",
        BLOCKS,
        (("tl.advance(a_block, (0, BLOCK_K))", "tl.advance(a_block, (BLOCK_K, 0))"),),
        "right while K fits into one step",
    ),
    Mutation(
        "A's block is unchecked where M alone divides",
        "block pointer",
        BLOCKS,
        (("if EVEN_M and EVEN_K:", "if EVEN_M:"),),
        "what lies behind the last column of A is read",
        says="stray load",
    ),
    Mutation(
        "offsets of C's block are exchanged",
        "block pointer",
        BLOCKS_NAIVE,
        (("offsets=(pid_m * BLOCK_M, pid_n * BLOCK_N),", "offsets=(pid_n * BLOCK_N, pid_m * BLOCK_M),"),),
        "right on the diagonal of tiles",
    ),
)

DESCRIPTOR_ACCESSES = (
    Mutation(
        "descriptors are as wide as the leading dimension",
        "descriptor",
        DESCRIPTORS_CCC,
        (("[*count, rows, columns], [*apart, lead, 1]", "[*count, rows, lead], [*apart, lead, 1]"),),
        "padding is read, and written",
        says="stray",
        own="_runtime/descriptors.py",
    ),
    Mutation(
        "descriptors ignore the leading dimension",
        "descriptor",
        DESCRIPTORS,
        (("lead = down if rows > 1 else", "lead = columns if rows > 1 else"),),
        "right only where no operand is padded",
        own="_runtime/descriptors.py",
    ),
    Mutation(
        "a single row is described with its own stride",
        "descriptor",
        DESCRIPTORS,
        (("lead = down if rows > 1 else -(-columns // 16) * 16", "lead = down"),),
        "M = 1 raises, where the row's stride, which nothing steps by, is no multiple of 16 bytes",
        own="_runtime/descriptors.py",
    ),
    Mutation(
        "coordinates of A are exchanged",
        "descriptor",
        DESCRIPTORS,
        (("a_desc.load([row, k])", "a_desc.load([k, row])"),),
        "right for the first tile alone",
    ),
    Mutation(
        "coordinates of C are exchanged",
        "descriptor",
        DESCRIPTORS,
        (("c_desc.store([row, column]", "c_desc.store([column, row]"),),
        "right for the first tile alone",
    ),
    Mutation(
        "coordinates of B are exchanged",
        "descriptor",
        DESCRIPTORS_NAIVE,
        (("b_desc.load([0, column])", "b_desc.load([column, 0])"),),
        "right for the first column of tiles alone",
    ),
    Mutation(
        "bias is not wrapped around",
        "descriptor",
        DESCRIPTORS_FP8,
        (("bias_ptr + offs_n % N", "bias_ptr + offs_n"),),
        "elements that bias does not have are read",
        says="stray load",
    ),
    Mutation(
        "a plain store behind descriptors is not masked along N",
        "descriptor",
        DESCRIPTORS_RCS,
        (without(STORE, " & in_n[None, :]"),),
        "what lies behind each row of C is overwritten",
        says="stray store",
    ),
    Mutation(
        "an empty matrix is described",
        "descriptor",
        DESCRIPTORS,
        (("if x.numel() == 0:\n        # An", "if x.dim() == 0:\n        # An"),),
        "K = 0 raises, or reads through a descriptor of nothing",
        own="_runtime/descriptors.py",
    ),
)

WIDTHS = (
    Mutation(
        "offsets are 32 bits wide",
        "width",
        SILU,
        (('"INDEX": index_type(a, b, out)', '"INDEX": index_type(bias)'),),
        "offsets past 2**31 elements wrap around",
        says="stray load",
    ),
    Mutation(
        "the width does not ask for C's extent",
        "width",
        IEEE,
        (("index_type(a, b, out)", "index_type(a, b)"),),
        "offsets of C past 2**31 elements wrap around",
        says="stray store",
    ),
    Mutation(
        "the width asks for the number of elements",
        "width",
        SSS,
        (("1 + sum([(n - 1) * step for n, step in zip(x.shape, x.stride())])", "x.numel()"),),
        "a matrix of few elements far apart wraps around",
        says="stray",
        own="_runtime/call.py",
    ),
    Mutation(
        "B's leading dimension is not widened",
        "width",
        RRR,
        (("    ldb = tl.cast(ldb, INDEX)\n", ""),),
        "offsets of B past 2**31 elements wrap around",
        says="stray load",
    ),
    Mutation(
        "the width does not ask for add's extent",
        "width",
        BLOCKS,
        (("index_type(add)", "index_type(bias)"),),
        "offsets of add past 2**31 elements wrap around",
        says="stray load",
    ),
)

MUTATIONS = (*STRIDES, *OFFSETS, *BLOCK_POINTERS, *DESCRIPTOR_ACCESSES, *WIDTHS)
