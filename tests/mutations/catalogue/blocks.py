"""Blocks of the rows or columns of a tile mixed up: their loads, products and scales, and where they are stored."""

from __future__ import annotations

from ..mutation import Mutation
from .kernels import PAIRED_M, SPLIT_FRAGMENTS, SPLIT_PAIRED, SPLIT_PAIRED_M, STORED_TRIPLED_M, TRIPLED, TRIPLED_M

BOTTOM = "    offs_m = pid_m * BLOCK_M + TOP_M + tl.arange(0, BLOCK_M - TOP_M)\n    in_m = offs_m < M\n"
MIDDLE = "    offs_m = pid_m * BLOCK_M + TOP_M + tl.arange(0, MIDDLE_M)\n"
LAST = "    offs_m = pid_m * BLOCK_M + TOP_M + MIDDLE_M + tl.arange(0, BLOCK_M - TOP_M - MIDDLE_M)\n"
RIGHT = "    offs_n = right + tl.arange(0, BLOCK_N - LEFT_N)\n    in_n = offs_n < N\n"
SUMS = "    sums_ptrs = sums_ptr + part * stride_sumsp + offs_m[:, None] * ldsums + offs_n[None, :]\n"
STORED = "    tl.store(sums_ptrs, acc, mask=in_m[:, None] & in_n[None, :])\n"

MUTATIONS = (
    Mutation(
        "the rows at the bottom are products of those at the top",
        "arithmetic",
        PAIRED_M,
        (("bottom_row = row + TOP_M", "bottom_row = row"),),
        "right in the upper rows of a tile",
        says="are wrong",
    ),
    Mutation(
        "products of the rows at the bottom are not added to the sum",
        "arithmetic",
        PAIRED_M,
        (("tl.dot(b.T, a_bottom.T, acc_bottom)", "tl.dot(b.T, a_bottom.T)"),),
        "right while K fits one step",
        says="are wrong",
    ),
    Mutation(
        "the mask of the rows at the bottom is that of the top",
        "mask",
        PAIRED_M,
        ((BOTTOM, BOTTOM.replace("offs_m <", "offs_m - TOP_M <")),),
        "rows past the edge are written",
    ),
    Mutation(
        "the rows at the bottom are stored where those at the top are",
        "order",
        PAIRED_M,
        ((BOTTOM, BOTTOM.replace(" + TOP_M +", " +")),),
        "rows that nobody writes, and others that are written twice",
    ),
    Mutation(
        "the rows in the middle are products of those at the top",
        "arithmetic",
        TRIPLED_M,
        (("middle_row = row + TOP_M", "middle_row = row"),),
        "a third of a tile has the sums of other rows",
        says="are wrong",
    ),
    Mutation(
        "the rows at the bottom begin behind the top",
        "order",
        TRIPLED_M,
        ((LAST, LAST.replace(" + MIDDLE_M +", " +")),),
        "the last rows of a tile are never written",
    ),
    Mutation(
        "the rows in the middle are stored a row lower",
        "order",
        TRIPLED_M,
        ((MIDDLE, MIDDLE.replace(" + TOP_M +", " + TOP_M + 1 +")),),
        "one row that nobody writes",
    ),
    Mutation(
        "the sums in the middle are not put right again",
        "arithmetic",
        TRIPLED_M,
        (("    acc_middle = acc_middle.T\n", ""),),
        "rows are columns in a third of the tile",
    ),
    Mutation(
        "the columns at the right begin behind those at the left",
        "order",
        TRIPLED,
        (("right = column + LEFT_N + MIDDLE_N", "right = column + LEFT_N"),),
        "the last columns of a tile are never computed",
    ),
    Mutation(
        "products in the middle are not added to the sum",
        "arithmetic",
        TRIPLED,
        (("tl.dot(a, b_middle, acc_middle)", "tl.dot(a, b_middle)"),),
        "right while K fits one step",
        says="are wrong",
    ),
    Mutation(
        "the block for the middle columns is as wide as the left",
        "order",
        TRIPLED,
        (("described(b, MIDDLE_N, BLOCK_K, turned=True)", "described(b, LEFT_N, BLOCK_K, turned=True)"),),
        "a descriptor copies another block than the kernel reads",
    ),
    Mutation(
        "the rows at the bottom have the scales of the step before",
        "storage",
        STORED_TRIPLED_M,
        (
            ("        a_scale_bottom = a_scale_bottom_next.to(tl.float32)\n", ""),
            (
                "    acc_top = tl.zeros(",
                "    a_scale_bottom = a_scale_bottom_next.to(tl.float32)\n    acc_top = tl.zeros(",
            ),
        ),
        "right while K fits one step",
        says="are wrong",
    ),
    Mutation(
        "sums of the rows in the middle are not scaled",
        "storage",
        STORED_TRIPLED_M,
        (("tl.dot(b.T, a_middle.T) * (a_scale_middle * b_scale)[None, :]", "tl.dot(b.T, a_middle.T)"),),
        "two blocks of rows have the scales of their steps",
        says="are wrong",
    ),
    Mutation(
        "the rows at the bottom are summed in the first part of K by every program",
        "sharing",
        SPLIT_PAIRED_M,
        (("a_bottom_desc.load([bottom_row, k])", "a_bottom_desc.load([bottom_row, k - first])"),),
        "right while K fits one part",
        says="are wrong",
    ),
    Mutation(
        "partial sums of the rows at the bottom are stored where those at the top are",
        "sharing",
        SPLIT_PAIRED_M,
        ((BOTTOM, BOTTOM.replace(" + TOP_M +", " +")),),
        "sums that nobody sets are added",
        says="are wrong",
    ),
    Mutation(
        "partial sums of the rows at the bottom are not stored",
        "sharing",
        SPLIT_PAIRED_M,
        (("    acc = acc_bottom\n" + SUMS + STORED, ""),),
        "sums that nobody sets are added",
    ),
    Mutation(
        "partial sums of the rows at the bottom are stored over those at the top",
        "sharing",
        SPLIT_PAIRED_M,
        ((BOTTOM, BOTTOM.replace(" + TOP_M +", " + TOP_M // 2 +")),),
        "one block's sums take the place of another's",
        says="are wrong",
    ),
    Mutation(
        "partial sums of the rows at the bottom are not put right again",
        "sharing",
        SPLIT_PAIRED_M,
        (("    acc_bottom = acc_bottom.T\n", ""),),
        "rows are columns in a part of the tile",
    ),
    Mutation(
        "the mask of partial sums at the right is that of the left",
        "sharing",
        SPLIT_PAIRED,
        ((RIGHT, RIGHT.replace("offs_n < N", "offs_n - LEFT_N < N")),),
        "sums of the next row are written",
        by="bounds",
    ),
    Mutation(
        "partial sums at the right are stored without the part of K",
        "sharing",
        SPLIT_PAIRED,
        (("    acc = acc_right\n" + SUMS, "    acc = acc_right\n" + SUMS.replace("part * stride_sumsp + ", "")),),
        "all parts store there in the place of the first",
        by="bounds",
    ),
    Mutation(
        "the tiles that are added are as wide as those that are multiplied",
        "sharing",
        SPLIT_PAIRED,
        (("cdiv(M, 16) * cdiv(N, LEFT_N)", "cdiv(M, 16) * cdiv(N, BLOCK_N)"),),
        "the last columns are not added",
        by="bounds",
    ),
    Mutation(
        "the second kernel's tiles have all blocks",
        "sharing",
        SPLIT_PAIRED,
        (('"BLOCK_N": LEFT_N', '"BLOCK_N": BLOCK_N'),),
        "a tensor whose size is no power of two",
    ),
    Mutation(
        "scales of weights are counted from the part's first step",
        "storage",
        SPLIT_FRAGMENTS,
        (("b_scale_ptrs + k // 128 *", "b_scale_ptrs + (k - first) // 128 *"),),
        "right while K fits one part",
        says="are wrong",
    ),
)
