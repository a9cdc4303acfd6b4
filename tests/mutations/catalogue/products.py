"""Wrong walks over the tiles, and products of exchanged operands that are not put right again."""

from __future__ import annotations

from ..mutation import Mutation
from .kernels import EXCHANGED, PERSISTENT

WALK = "for pid in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):"
RIGHTED = "    acc = acc.T\n"

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
)
