"""Wrong arithmetic of which tile a program computes."""

from __future__ import annotations

from ..mutation import Mutation
from .kernels import CHIPLET, HILBERT, MASKED, MASKED_K, MASKED_MN, RELU, SILU, UNMASKED

HEIGHT = "min(num_m - first_m, GROUP_M)"
GROUPED = """\
    num_m = tl.cdiv(M, BLOCK_M)
    num_n = tl.cdiv(N, BLOCK_N)
    band = pid // (GROUP_M * num_n)
    first_m = band * GROUP_M
    height = min(num_m - first_m, GROUP_M)
    within = pid % (GROUP_M * num_n)
    pid_m = first_m + within % height
    pid_n = within // height
"""
DEALT = """\
    die = pid % NUM_CHIPLETS
    run = num_m * num_n // NUM_CHIPLETS
    longer = num_m * num_n % NUM_CHIPLETS
    tile = die * run + min(die, longer) + pid // NUM_CHIPLETS
"""
LINEAR = """\
    num_n = tl.cdiv(N, BLOCK_N)
    pid_m = pid // num_n
    pid_n = pid % num_n
"""
ALONG = "    pid_n = pid % num_n\n"


def turned(test: str, backwards: str) -> tuple[tuple[str, str], ...]:
    """Rows for which `test` holds are walked backwards, the first tile being `backwards`."""
    return ((ALONG, f"{ALONG}    pid_n = tl.where({test}, {backwards} - pid_n, pid_n)\n"),)


MUTATIONS = (
    Mutation(
        "a band is one tile row too high",
        "order",
        SILU,
        ((HEIGHT, "min(num_m - first_m + 1, GROUP_M)"),),
        "the last band is no permutation of its tiles",
    ),
    Mutation(
        "the last band is as high as the others",
        "order",
        RELU,
        ((HEIGHT, "max(num_m - first_m, GROUP_M)"),),
        "right where the tile rows are a multiple of GROUP_M",
    ),
    Mutation(
        "bands overlap",
        "order",
        UNMASKED,
        (("first_n = band * GROUP_N", "first_n = band * (GROUP_N - 1)"),),
        "tiles are computed twice, others never",
        says="never written",
    ),
    Mutation(
        "tile row and column are exchanged",
        "order",
        MASKED_K,
        (("pid_m = pid % num_m\n    pid_n = pid // num_m", "pid_m = pid // num_m\n    pid_n = pid % num_m"),),
        "right for square grids only",
    ),
    Mutation(
        "swizzle2d is given the grid transposed",
        "order",
        MASKED_MN,
        (("num_m, num_n, GROUP_M)", "num_n, num_m, GROUP_M)"),),
        "right for square grids only",
    ),
    Mutation(
        "tile columns are counted by BLOCK_M",
        "order",
        MASKED,
        (("num_n = tl.cdiv(N, BLOCK_N)", "num_n = tl.cdiv(N, BLOCK_M)"),),
        "right for square tiles only",
    ),
    Mutation(
        "every other row is walked back from one past its end",
        "order",
        MASKED,
        turned("pid_m % 2 == 1", "num_n"),
        "the first tile on the way back lies outside",
        by="bounds",
        says="computes tile",
    ),
    Mutation(
        "every other tile is counted from the end of its row",
        "order",
        MASKED,
        turned("pid_n % 2 == 1", "num_n - 1"),
        "right for an odd number of tile columns",
        by="bounds",
        says="both compute tile",
    ),
    Mutation(
        "rows are walked there and back",
        "order",
        MASKED,
        turned("pid_m % 2 == 1", "num_n - 1"),
        "every tile is computed once, in another order than the spec asks for",
        says="in the order linear it is",
    ),
    Mutation(
        "a tile's column is divided once more",
        "order",
        MASKED,
        ((ALONG, f"{ALONG}    pid_n = pid_n // 2\n"),),
        "tiles are computed twice, others never",
        by="bounds",
        says="both compute tile",
    ),
    Mutation(
        "tiles are visited row after row",
        "order",
        RELU,
        ((GROUPED, LINEAR),),
        "the spec asks for bands: every result is right, and L2 holds less of A and B",
    ),
    Mutation(
        "the curve turns the same way twice",
        "order",
        HILBERT,
        (("dm, dn = -dn, -dm", "dm, dn = dn, dm"),),
        "the last quarter of the curve is walked out of the grid",
    ),
    Mutation(
        "the curve forgets what lies before the last quarter",
        "order",
        HILBERT,
        (("number -= half * side + far * (wide - side)", "number -= far * (wide - side)"),),
        "numbers of the last quarter run past it",
    ),
    Mutation(
        "the curve keeps its corner along the other side",
        "order",
        HILBERT,
        (("            m += side * dn\n            n += side * dm\n", ""),),
        "tiles are computed twice, others never",
    ),
    Mutation(
        "the curve has no end",
        "order",
        HILBERT,
        (("while min(far, wide) > 1", "while min(far, wide) > 0"),),
        "a line of tiles is cut for ever",
    ),
    Mutation(
        "the curve is cut at odd lengths",
        "order",
        HILBERT,
        (("min((wide + 2) // 4 * 2, wide - 1)", "wide // 2"),),
        "every tile is computed once, and steps of the curve go over corners",
        says="in the order hilbert it is",
    ),
    Mutation(
        "tiles left over are given to no die",
        "order",
        CHIPLET,
        (("    longer = num_m * num_n % NUM_CHIPLETS\n", ""), ("min(die, longer) + ", "")),
        "right where the dies divide the number of tiles",
    ),
    Mutation(
        "the first die alone has a longer run",
        "order",
        CHIPLET,
        (("min(die, longer)", "min(min(die, longer), 1)"),),
        "right where one tile is left over at most",
    ),
    Mutation(
        "bands are numbered by the program",
        "order",
        CHIPLET,
        (("band = tile //", "band = pid //"),),
        "right for one band",
    ),
    Mutation(
        "dies are not told apart",
        "order",
        CHIPLET,
        ((DEALT, "    tile = pid\n"),),
        "every tile is computed once, and neighbours share no L2",
        says="in the order chiplet it is",
    ),
)
