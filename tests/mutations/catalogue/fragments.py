"""Weights in fragment order: words of other places, bits that are lost, scales of another block."""

from __future__ import annotations

from ..mutation import Mutation, instead
from .kernels import FRAGMENTS_4, FRAGMENTS_8

ORDER = "b = b.permute((0, 1, 3, 2, 4)).reshape((BLOCK_N, BLOCK_K))"
SHIFTED = "b = b[:, :, :, None] >> (tl.arange(0, 4) * 4)[None, None, None, :]"
SCALE = "b_scale = tl.load(b_scale_ptrs + k // 128 * stride_b_scalek, mask=in_n, other=0.0).to(tl.float32)"

MUTATIONS = (
    Mutation(
        "elements of a word follow each other",
        "storage",
        FRAGMENTS_4,
        (instead(ORDER, ".permute((0, 1, 3, 2, 4))", ""),),
        "a word has elements of four parts of a group along K",
        says="are wrong",
    ),
    Mutation(
        "the first two elements of a word are taken for all",
        "storage",
        FRAGMENTS_4,
        (instead(SHIFTED, "* 4)", "* 0)"),),
        "a word has eight elements",
        says="are wrong",
    ),
    Mutation(
        "elements in fragments have the scale of the first block",
        "storage",
        FRAGMENTS_4,
        (instead(SCALE, "k // 128", "0 // 128"),),
        "each 128 elements along K have a scale",
        says="are wrong",
    ),
    Mutation(
        "elements in fragments are not scaled",
        "storage",
        FRAGMENTS_4,
        (("        b = b * b_scale.to(tl.bfloat16)[:, None]\n", ""),),
        "numbers of four bits are multiplied as they are",
        by="static",
        says="b_scale",
    ),
    Mutation(
        "the sign of eight bits in fragments is lost",
        "storage",
        FRAGMENTS_8,
        (("b_sign = (b & 0x00800080) ^ lead", "b_sign = (b & 0x00000000) ^ lead"),),
        "negative elements are 128 more",
        says="are wrong",
    ),
    Mutation(
        "the sign of eight bits in fragments counts twice",
        "storage",
        FRAGMENTS_8,
        (("b = (b & 0x007F007F) ^ lead", "b = (b & 0x00FF00FF) ^ lead"),),
        "with its eighth bit a number is read with an exponent that is one larger",
        says="are wrong",
    ),
    Mutation(
        "a K that ends within a group of words is taken",
        "check",
        FRAGMENTS_4,
        (("multiple(K, 32, ", "multiple(K, 8, "),),
        "the last words have elements past the end of K",
        says="multiples of 32",
    ),
)
