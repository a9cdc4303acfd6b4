"""Wrong walks over the tiles, exchanged products not put right again, sums not added, tiles of two widths mixed up."""

from __future__ import annotations

from ..mutation import Mutation
from .kernels import EXCHANGED, FP8_BLOCKS_PAIRED, FP8_PAIRED, PAIRED, PERSISTENT, SUMMED

WALK = "for pid in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):"
RIGHTED = "    acc = acc.T\n"
EDGE = "    offs_n = right + tl.arange(0, BLOCK_N - LEFT_N)\n    in_n = offs_n < N\n"

MUTATIONS = (
    Mutation(
        "programs step over a tile",
        "order",
        PERSISTENT,
        ((WALK, WALK.replace("tl.num_programs(0)", "tl.num_programs(0) + 1")),),
        "tiles that nobody computes",
        says="never written",
    ),
    Mutation(
        "programs stop a tile early",
        "order",
        PERSISTENT,
        ((WALK, WALK.replace("tiles,", "tiles - 1,")),),
        "the last tile is never computed",
        says="never written",
    ),
    Mutation(
        "the sum of a tile goes on from the tile before",
        "arithmetic",
        PERSISTENT,
        (
            ("        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)\n", ""),
            (f"    {WALK}\n", f"    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)\n    {WALK}\n"),
        ),
        "right for the first tile of every program",
        says="are wrong",
    ),
    Mutation(
        "a step's products take the place of the sum",
        "arithmetic",
        SUMMED,
        (("acc += a[:, None, :]", "acc = a[:, None, :]"),),
        "only the last step counts",
        says="are wrong",
    ),
    Mutation(
        "the largest of a step's sums is stored",
        "arithmetic",
        SUMMED,
        (("acc = tl.sum(acc, 2)", "acc = tl.max(acc, 2)"),),
        "a sum of one index",
        says="are wrong",
    ),
    Mutation(
        "a band has more tiles than 32 bits count",
        "order",
        SUMMED,
        (('"BLOCK_N": 4, "BLOCK_K": 256, "GROUP_M": 4', '"BLOCK_N": 4, "BLOCK_K": 256, "GROUP_M": 8'),),
        "N of 2**30 and columns by four",
        says="does not fit 32 bits",
    ),
    Mutation(
        "a tile is stored as its transposed",
        "arithmetic",
        EXCHANGED,
        ((RIGHTED, ""),),
        "rows are columns",
    ),
    Mutation(
        "exchanged products are not added to the sum",
        "arithmetic",
        EXCHANGED,
        (("tl.dot(b.T, a.T, acc)", "tl.dot(b.T, a.T)"),),
        "right while K fits one step",
        says="are wrong",
    ),
    Mutation(
        "the columns at the right begin where those at the left do",
        "order",
        PAIRED,
        (("right = column + LEFT_N", "right = column"),),
        "the last columns of a tile are never computed",
    ),
    Mutation(
        "the columns at the right are products of those at the left",
        "arithmetic",
        PAIRED,
        (("b_right_desc.load([right, k])", "b_right_desc.load([column, k])"),),
        "right in the first columns of a tile",
        says="are wrong",
    ),
    Mutation(
        "products at the right are not added to the sum",
        "arithmetic",
        PAIRED,
        (("tl.dot(a, b_right, acc_right)", "tl.dot(a, b_right)"),),
        "right while K fits one step",
        says="are wrong",
    ),
    Mutation(
        "sums at the right are not promoted",
        "arithmetic",
        FP8_PAIRED,
        (("acc_right, max_num_imprecise_acc=BLOCK_K)", "acc_right)"),),
        "full precision is promoted at least every 128 elements along K",
        by="compile",
    ),
    Mutation(
        "sums at the right are not scaled",
        "storage",
        FP8_BLOCKS_PAIRED,
        (("tl.dot(b_right.T, a.T) * (a_scale * b_scale)[None, :]", "tl.dot(b_right.T, a.T)"),),
        "both widths have the scales of their blocks",
        says="are wrong",
    ),
    Mutation(
        "the mask at the right is that of the columns at the left",
        "mask",
        PAIRED,
        ((EDGE, EDGE.replace("offs_n <", "offs_n - LEFT_N <")),),
        "columns past the edge are written",
    ),
)
