"""Operands as they are stored: nibbles, signs, scales and zero points of another place, bytes taken for elements."""

from __future__ import annotations

from ..mutation import Mutation, instead, without
from .kernels import DECODED, FP8_BLOCKS, INT4, INT4_EXCHANGED, INT8_SCALED, SPARSE, UINT4_ZEROS

JOIN = "tl.join((b & 0xFFFF).to(tl.uint16), (b >> 16).to(tl.uint16))"
#: The load of the next step's scale within the loop.
NEXT = "\n        b_scale_next = tl.load(b_scale_ptrs + ahead // 128 * stride_b_scalek"
ZERO = "product = tl.dot(a, b.T) - a_sum[:, None] * b_zero[None, :]"
ORDER = "    offs_k = offs_k // 32 * 32 + offs_k // 2 % 4 * 8 + offs_k // 8 % 4 * 2 + offs_k % 2\n"
#: The step along K of positions.
PLACES = "        b_index_ptrs += BLOCK_K // 8 * stride_b_indexk\n"
SPARSE_ORDER = "    offs_k = offs_k // 128 * 128 + offs_k // 2 % 4 * 32 + offs_k // 8 % 16 * 2 + offs_k % 2\n"
ODD = "    if a.shape[1] % 2:\n"

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
        (("grid=(triton.cdiv(K, 128) * triton.cdiv(N, 64),)", "grid=(triton.cdiv(K, 128) * triton.cdiv(N, 128),)"),),
        "a block has 64 columns",
    ),
    Mutation(
        "the two elements of a byte are exchanged",
        "storage",
        INT4,
        ((JOIN, "tl.join((b >> 16).to(tl.uint16), (b & 0xFFFF).to(tl.uint16))"),),
        "elements 2i and 2i + 1 along K",
        says="are wrong",
    ),
    Mutation(
        "the sign of four bits is lost",
        "storage",
        INT4,
        (("^ 0x43084308", "^ 0x43004300"), (" - 136.0", " - 128.0")),
        "negative elements are 16 more",
        says="are wrong",
    ),
    Mutation(
        "the sign of four bits is flipped, and 8 not taken off",
        "storage",
        INT4_EXCHANGED,
        ((" - 136.0", " - 128.0"),),
        "every element is 8 more",
        says="are wrong",
    ),
    Mutation(
        "all blocks along K have the scale of the first",
        "storage",
        INT4,
        (instead(NEXT, " + ahead // 128 * stride_b_scalek", ""),),
        "right while K fits one block",
        says="are wrong",
    ),
    Mutation(
        "two blocks along K share a scale",
        "storage",
        INT4_EXCHANGED,
        (instead(NEXT, "128", "256"),),
        "right while K fits one block",
        says="are wrong",
    ),
    Mutation(
        "each block along K has the scale of the next",
        "storage",
        INT4,
        (instead(NEXT, "ahead // 128", "(ahead // 128 + 1)"),),
        "the last block has none",
        says="stray load",
    ),
    Mutation(
        "a tile of columns has the scale of the block to its left",
        "storage",
        FP8_BLOCKS,
        (("(pid_n * BLOCK_N // 128)", "(pid_n * BLOCK_N // 256)"),),
        "right in the first columns",
        says="are wrong",
    ),
    Mutation(
        "a step has the scale of the next",
        "storage",
        INT4,
        (
            ("        b_scale = b_scale_next.to(tl.float32)\n", ""),
            ("tl.dot(a, b.T) * b_scale[None, :]", "tl.dot(a, b.T) * b_scale_next[None, :]"),
        ),
        "scales are loaded a step ahead",
        says="are wrong",
    ),
    Mutation(
        "the scales of A are forgotten",
        "storage",
        FP8_BLOCKS,
        (("(a_scale * b_scale)[:, None]", "b_scale"),),
        "rows in other units",
        says="are wrong",
    ),
    Mutation(
        "the zero point is forgotten",
        "storage",
        UINT4_ZEROS,
        ((ZERO, "product = tl.dot(a, b.T)"),),
        "unsigned numbers",
        says="are wrong",
    ),
    Mutation(
        "the zero point is that of the column",
        "storage",
        UINT4_ZEROS,
        (("(offs_n // 32) * stride_b_zeron", "offs_n * stride_b_zeron"),),
        "a block has many columns",
        says="stray load",
    ),
    Mutation(
        "scales of all of K are applied to the last step",
        "storage",
        INT8_SCALED,
        (("acc = tl.dot(a, b, acc, out_dtype=tl.int32)", "acc = tl.dot(a, b, out_dtype=tl.int32)"),),
        "the steps before are lost",
        says="are wrong",
    ),
    Mutation(
        "A keeps the order of K of memory",
        "storage",
        INT4_EXCHANGED,
        (without(ORDER, ORDER),),
        "products of elements of different places along K",
        says="are wrong",
    ),
    Mutation(
        "B steps along K by as many bytes as it has elements",
        "storage",
        INT4,
        (("b_ptrs += BLOCK_K // 2", "b_ptrs += BLOCK_K"),),
        "every second step of B is left out",
        says="stray load",
    ),
    Mutation(
        "the mask of bytes is that of elements",
        "storage",
        INT4,
        (("offs_p < (K - k) // 2", "offs_p < K - k"),),
        "bytes behind the end of B are read",
        says="stray load",
    ),
    Mutation(
        "the two fours of a byte are exchanged",
        "storage",
        SPARSE,
        (("tl.join(b_index & 15, b_index >> 4)", "tl.join(b_index >> 4, b_index & 15)"),),
        "the first four are in the low bits",
        says="are wrong",
    ),
    Mutation(
        "the two of a four are exchanged",
        "storage",
        SPARSE,
        (("b_lower, b_upper = b.to(tl.uint16", "b_upper, b_lower = b.to(tl.uint16"),),
        "the first that is stored has the lower place",
        says="are wrong",
    ),
    Mutation(
        "the second of a four is one place further",
        "storage",
        SPARSE,
        (("(b_index >> 2) * 16", "(b_index + 4 >> 2 & 3) * 16"),),
        "places count from 0",
        says="are wrong",
    ),
    Mutation(
        "all steps have the places of the first",
        "storage",
        SPARSE,
        (without(PLACES, PLACES),),
        "right while K fits one step",
        says="are wrong",
    ),
    Mutation(
        "each four has the places of one byte further",
        "storage",
        SPARSE,
        (instead("b_index_ptrs += offs_i", "offs_i", "(offs_i + 1)"),),
        "the last byte has none",
        says="row 1 of b_index",
    ),
    Mutation(
        "the mask of places is that of what is stored",
        "storage",
        SPARSE,
        (("offs_i < (K - k) // 8", "offs_i < (K - k) // 2"),),
        "a byte is for eight elements",
        says="b_index",
    ),
    Mutation(
        "A keeps the order of K beside a sparse B",
        "storage",
        SPARSE,
        (without(SPARSE_ORDER, SPARSE_ORDER),),
        "products of elements of different places along K",
        says="are wrong",
    ),
    Mutation(
        "a K that ends within a byte of places is taken",
        "check",
        SPARSE,
        (("    if a.shape[1] % 8:\n", "    if False:\n"),),
        "the last elements of A have no place",
        says="multiple of 8",
    ),
    Mutation(
        "an odd K is taken",
        "check",
        INT4,
        ((ODD, "    if False:\n"),),
        "half a byte of B has no element of A",
        says="multiple of 2",
    ),
)
