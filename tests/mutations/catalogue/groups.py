"""Groups of rows gone wrong: which rows a group has, which tile a program, and what a tile may touch."""

from __future__ import annotations

from ..mutation import Mutation, instead
from .kernels import GROUPS, GROUPS_OF_K, GROUPS_OF_K_WALKED, GROUPS_WALKED

STARTS = "starts = tl.associative_scan(tl.minimum(before, T), 0, _larger)"
ENDS = "ends = tl.maximum(tl.minimum(behind, T), starts)"
FOUND = "group = tl.sum((lasts <= number).to(tl.int32), 0)"
ROWS = "M = tl.sum(tl.where(own, ends - starts, 0), 0)"
END = "end = tl.maximum(tl.minimum(tl.load(offsets_ptr + group), T), start)"
PLACES = "tl.load(scatter_ptr + start + offs_m, mask=in_m, other=-1)"
SCALE = "tl.load(scale_m_ptr + start + offs_m, mask=in_m, other=0.0)"

MUTATIONS = (
    Mutation(
        "ends that descend are taken as they are",
        "group",
        GROUPS,
        (instead(STARTS, "tl.associative_scan(tl.minimum(before, T), 0, _larger)", "tl.minimum(before, T)"),),
        "right for ends that never descend; others give a group rows of the one before it",
        says="stray load",
    ),
    Mutation(
        "ends behind the last row are taken as they are",
        "group",
        GROUPS,
        (instead(ENDS, "tl.minimum(behind, T)", "behind"),),
        "right for ends up to T; others read and write behind the operands",
        says="stray load",
    ),
    Mutation(
        "an empty group takes the place of the one behind it",
        "group",
        GROUPS,
        (instead(FOUND, "<=", "<"),),
        "right where no group is empty, but for the first tile of each",
        says="never written",
    ),
    Mutation(
        "a last tile reaches into the next group",
        "group",
        GROUPS,
        (("in_m = offs_m < M", "in_m = offs_m < T - start"),),
        "rows of the next group are written by two programs, with two matrices",
        says="past the end of the last group",
    ),
    Mutation(
        "a group has all rows up to its end",
        "group",
        GROUPS_WALKED,
        (instead(ROWS, "ends - starts", "ends"),),
        "the first group is right",
        says="stray store",
    ),
    Mutation(
        "there are programs for whole tiles only",
        "group",
        GROUPS,
        (("ceil(T, BLOCK_M) + G", "ceil(T, BLOCK_M)"),),
        "right where at most one group ends within a tile",
        says="never written",
    ),
    Mutation(
        "all groups are multiplied with the first matrix",
        "group",
        GROUPS,
        (("b_ptr + group * stride_bg", "b_ptr"),),
        "right for one group",
        says="wrong",
    ),
    Mutation(
        "the scales of a group begin with the first row",
        "group",
        GROUPS,
        (instead(SCALE, "start + ", ""),),
        "right for the first group",
        says="wrong",
    ),
    Mutation(
        "a row is scattered where one of the first group belongs",
        "group",
        GROUPS,
        (instead(PLACES, "start + ", ""),),
        "right for the first group; other groups write over its rows",
        says="never written",
    ),
    Mutation(
        "a row is scattered to the one behind its place",
        "group",
        GROUPS_WALKED,
        (("offs_c = tl.load(", "offs_c = 1 + tl.load("),),
        "each row is that of another token",
        by="bounds",
        says="row",
    ),
    Mutation(
        "scattered rows count from the first of the group",
        "group",
        GROUPS,
        (("first_c = 0", "first_c = start"),),
        "right for the first group; others write past the last row",
        by="bounds",
        says="row",
    ),
    Mutation(
        "rows in front of C are written",
        "group",
        GROUPS,
        (("in_c = (offs_c >= 0) & (offs_c < S)", "in_c = offs_c < S"),),
        "a name below zero, as of a token that is left out, writes in front of C",
        by="bounds",
        says="row -1",
    ),
    Mutation(
        "scattered rows are bounded by those of the product",
        "group",
        GROUPS,
        (("(offs_c < S)", "(offs_c < T)"),),
        "right where C has as many rows as the product",
        by="bounds",
        says="of out",
    ),
    Mutation(
        "a tensor is made where names of its rows are given",
        "library",
        GROUPS,
        (('if given.get(self.named or "") is None:', "if given.get(self.name) is None:"),),
        "what is returned has no rows that were named",
        own="_runtime/call.py",
        says="out",
    ),
    Mutation(
        "programs without a tile go on",
        "group",
        GROUPS,
        (("    if group >= G:\n", "    if group > GROUPS:\n"),),
        "they read a matrix behind the last one",
        says="stray load",
    ),
    Mutation(
        "offsets of any type are taken",
        "group",
        GROUPS,
        (
            (
                'Operand("offsets", (G,), torch.int32, unit=0)',
                'Operand("offsets", (G,), (torch.int32, torch.int64), unit=0)',
            ),
        ),
        "ends of 64 bits are read as twice as many of 32",
        says="expected TypeError",
    ),
    Mutation(
        "the last step of a group sums the first elements of the next one",
        "group",
        GROUPS_OF_K,
        (("in_k = offs_k < K - k", "in_k = offs_k < T - start - k"),),
        "right where each part of K is a multiple of the step, and for the last group",
        says="wrong",
    ),
    Mutation(
        "an end behind the last element is taken as it is",
        "group",
        GROUPS_OF_K,
        (instead(END, "tl.minimum(tl.load(offsets_ptr + group), T)", "tl.load(offsets_ptr + group)"),),
        "right for ends up to T; others read behind the operands",
        says="stray load",
    ),
    Mutation(
        "a group has all elements up to its end",
        "group",
        GROUPS_OF_K_WALKED,
        (("start = tl.max(tl.minimum(before, T), 0)", "start = 0 * tl.max(before, 0)"),),
        "the first group is right",
        says="wrong",
    ),
    Mutation(
        "all groups are written to the first matrix",
        "group",
        GROUPS_OF_K,
        (("c_ptr + group * stride_cg", "c_ptr"),),
        "right for one group",
        says="never written",
    ),
)
