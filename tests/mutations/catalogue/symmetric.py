"""Symmetric results gone wrong: the triangle of tiles, and which elements are stored and mirrored."""

from __future__ import annotations

from ..mutation import Mutation, instead, without
from .kernels import SYMMETRIC, SYMMETRIC_PARTS, SYMMETRIC_WALKED

UPPER = "in_upper = (offs_m[:, None] <= offs_n[None, :])"
MIRRORED = "        tl.store(c_mirror_ptrs, c, mask=in_upper & (offs_m[:, None] < offs_n[None, :]))"
PLACES = "c_mirror_ptrs = c_ptr + offs_n[None, :] * ldc + offs_m[:, None]"
SHIFT = "fold_shift = 1 - num_blocks % 2"
TURNED = "fold_turned = fold_n < fold_block + fold_shift"
SIDE = "num_n = tl.cdiv(N, BLOCK_N) // 2 * 2 + 1"
GRID = "(cdiv(M, BLOCK_N) // 2 * 2 + 1)"

STORES = (
    Mutation(
        "a mirrored tile is stored a second time",
        "symmetric",
        SYMMETRIC,
        (instead(MIRRORED, " & (offs_m[:, None] < offs_n[None, :])", ""),),
        "the same bits where one program stores both, but a store more",
        by="bounds",
        says="is stored, and is none of those",
    ),
    Mutation(
        "a tile on the diagonal is not mirrored",
        "symmetric",
        SYMMETRIC,
        ((f"{MIRRORED}\n", ""),),
        "what is below the diagonal in it keeps what was there",
        by="bounds",
        says="is never stored",
    ),
    Mutation(
        "a tile on the diagonal is stored as it is computed",
        "symmetric",
        SYMMETRIC,
        (instead(UPPER, UPPER, "in_upper = (offs_m[:, None] >= 0)"),),
        "C is not its transpose: sums of two orders are both there",
        by="bounds",
        says="is stored, and is none of those",
    ),
    Mutation(
        "tiles on the diagonal count as above it",
        "symmetric",
        SYMMETRIC_WALKED,
        (
            (
                "tile_above = pid_m * BLOCK_M + BLOCK_M <= pid_n * BLOCK_N",
                "tile_above = pid_m * BLOCK_M <= pid_n * BLOCK_N",
            ),
        ),
        "what is below the diagonal in them is written by two lanes",
        by="bounds",
        says="is stored, and is none of those",
    ),
    Mutation(
        "a tile is mirrored to its own place",
        "symmetric",
        SYMMETRIC,
        ((PLACES, "c_mirror_ptrs = c_ptr + offs_n[None, :] + offs_m[:, None] * ldc"),),
        "nothing below the diagonal is written",
        by="bounds",
        says="is stored twice",
    ),
    Mutation(
        "rows of a symmetric result are masked where tiles end, and not blocks",
        "symmetric",
        SYMMETRIC,
        (('args["M"] % args["BLOCK_N"]', 'args["M"] % args["BLOCK_M"]'),),
        "tiles of the last block past the last row read and write behind it",
        by="bounds",
        says="which has",
    ),
)

ORDERS = (
    Mutation(
        "the folded triangle has a column too few",
        "symmetric",
        SYMMETRIC,
        (without(SIDE, " + 1"),),
        "tiles are missing",
        by="bounds",
        says="program 0",
    ),
    Mutation(
        "the grid of a symmetric result has a column too few",
        "symmetric",
        SYMMETRIC,
        (without(GRID, " + 1"),),
        "the last tiles of the order have no program",
        says="never written",
    ),
    Mutation(
        "a triangle of an even number of blocks is folded as one of an odd number",
        "symmetric",
        SYMMETRIC,
        ((SHIFT, "fold_shift = 0"),),
        "tiles past the last column, for an even number of blocks",
        by="bounds",
        says="computes tile",
    ),
    Mutation(
        "a tile on the diagonal is turned to the last rows",
        "symmetric",
        SYMMETRIC_WALKED,
        (instead(TURNED, "<", "<="),),
        "a tile of the first rows is missing, and one of the last has two programs",
        by="bounds",
        says="computes tile",
    ),
    Mutation(
        "sums are added for the tiles of another triangle",
        "symmetric",
        SYMMETRIC_PARTS,
        (
            (
                "pid_m = fold_block * (BLOCK_N // BLOCK_M) + fold_m % (BLOCK_N // BLOCK_M)\n\n    # Add",
                "pid_m = fold_block * (BLOCK_N // BLOCK_M)\n\n    # Add",
            ),
        ),
        "the first strip of each block is written again and again, and the others never",
        by="bounds",
        says="both compute tile",
    ),
)

MUTATIONS = (*STORES, *ORDERS)
