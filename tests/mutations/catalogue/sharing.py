"""Wrong sharing of tiles: ranges, the workspace, the count of those who are done, who makes the result; adds to it."""

from __future__ import annotations

from ..mutation import Mutation, instead, without
from .kernels import ADDED, STREAM

COUNTED = 'before = tl.atomic_add(counters_ptr + pid, 1, sem="acq_rel", scope="gpu")'
#: The call sets the result to zero.
CLEARS = '    cleared=("out",),\n'
MAKES = "        if before == others:\n"
OPENER = 'acc = tl.load(work_ptr + (2 * opener + 1) * (BLOCK_M * BLOCK_N) + places, cache_modifier=".cg")'
OTHER = 'acc += tl.load(sum_ptrs, cache_modifier=".cg")'
PAST_L1 = ', cache_modifier=".cg"'
HANDED_IN = "tl.store(work_ptr + place * (BLOCK_M * BLOCK_N) + places, acc)"

RANGES = (
    Mutation(
        "a program begins at its own steps in every tile",
        "sharing",
        STREAM,
        (instead("first = tl.cast(max(begin - start, 0), tl.int32)", "max(begin - start, 0)", "begin - start"),),
        "A and B are read before their beginning",
        by="bounds",
    ),
    Mutation(
        "steps are shared out rounding down",
        "sharing",
        STREAM,
        (
            instead(
                "share = tl.cdiv(total, tl.num_programs(0))",
                "tl.cdiv(total, tl.num_programs(0))",
                "total // tl.num_programs(0)",
            ),
        ),
        "the last steps belong to no program",
    ),
)

COUNTS = (
    Mutation(
        "one other too many is waited for",
        "sharing",
        STREAM,
        (instead(MAKES, "others", "others + 1"),),
        "nobody finds so many, and nothing is stored",
        by="bounds",
        says="in the counter computes the result",
    ),
    Mutation(
        "the first to come makes the result",
        "sharing",
        STREAM,
        (instead(MAKES, "others", "0"),),
        "parts that are not there yet are added",
        by="bounds",
        says="in the counter computes the result",
    ),
    Mutation(
        "every program of a tile makes the result",
        "sharing",
        STREAM,
        (instead(MAKES, "before == others", "others >= 0"),),
        "the last store wins, and it may be of one who came early",
        by="bounds",
    ),
    Mutation(
        "one other too few is waited for",
        "sharing",
        STREAM,
        (("if before == others:", "if before == others - 1:"),),
        "the last part is missing, and tiles that are not shared are not stored",
        by="bounds",
    ),
    Mutation(
        "the program behind the last is counted to the tile",
        "sharing",
        STREAM,
        (("(start + steps - 1) // share", "(start + steps) // share"),),
        "where a tile ends with a program, one is waited for that never comes",
    ),
    Mutation(
        "tiles of a row share a counter",
        "sharing",
        STREAM,
        (instead(COUNTED, "counters_ptr + pid,", "counters_ptr + pid_m,"),),
        "some tiles are stored early, others never",
    ),
    Mutation(
        "counters begin with what was there",
        "sharing",
        STREAM,
        ((", cleared=True", ""),),
        "right only where memory was zero",
        by="bounds",
        says="counters, which are not zero",
    ),
    Mutation(
        "no barrier before the count",
        "sharing",
        STREAM,
        (("            tl.debug_barrier()\n", ""),),
        "one thread counts what others have not stored yet",
        by="bounds",
        says="barrier",
    ),
    Mutation(
        "the count orders nothing",
        "sharing",
        STREAM,
        (instead(COUNTED, "acq_rel", "relaxed"),),
        "who sees the count may not see the sum",
        by="bounds",
    ),
)

WORKSPACE = (
    Mutation(
        "the sum of a tile's first program is not added",
        "sharing",
        STREAM,
        ((OPENER, "acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)"),),
        "the first products of every shared tile are missing",
        says="are wrong",
    ),
    Mutation(
        "both sums of a program have one place",
        "sharing",
        STREAM,
        (("place = 2 * program + 1 if begin <= start else 2 * program", "place = 2 * program"),),
        "its second sum takes the place of its first before that is read",
        by="bounds",
        says="a partial sum at",
    ),
    Mutation(
        "all tiles of a row write their partial sums to one place",
        "sharing",
        STREAM,
        (instead(HANDED_IN, "place *", "pid_m *"),),
        "right where one tile is finished before the next, as in the interpreter",
        by="bounds",
        says="a partial sum at",
    ),
    Mutation(
        "the workspace is addressed in 32 bits",
        "sharing",
        STREAM,
        (instead(HANDED_IN, "place *", "tl.cast(place, tl.int32) *"),),
        "a workspace of over 2**31 sums is written before its beginning",
        by="bounds",
        says="does not fit 32 bits",
    ),
    Mutation(
        "partial sums are read through L1",
        "sharing",
        STREAM,
        (without(OPENER, PAST_L1), without(OTHER, PAST_L1)),
        "L1 may hold what was there before",
        by="compile",
        says="L1",
    ),
    Mutation(
        "the last program leaves its counter as it is",
        "sharing",
        STREAM,
        (("                tl.store(counters_ptr + pid, 0)\n", ""),),
        "in the next launch nobody finds all others counted",
        by="bounds",
        says="not set back",
    ),
    Mutation(
        "the last program sets the counter of another tile back",
        "sharing",
        STREAM,
        (("tl.store(counters_ptr + pid, 0)", "tl.store(counters_ptr, 0)"),),
        "in the next launch nobody finds all others counted",
        by="bounds",
        says="not set back",
    ),
    Mutation(
        "there is room for one sum of every program",
        "sharing",
        STREAM,
        (('"2*PROGRAMS', '"PROGRAMS'),),
        "the sums of the second half of the programs lie outside",
    ),
)

ADDS = (
    Mutation(
        "the result is not zero before the adds",
        "sharing",
        ADDED,
        ((CLEARS, ""),),
        "what was there is part of the sum",
        by="bounds",
        says="not set to zero",
    ),
    Mutation(
        "programs add without a mask along M",
        "sharing",
        ADDED,
        (instead("tl.atomic_add(c_ptrs, acc, mask=in_m[:, None] & in_n[None, :]", "in_m[:, None] & ", ""),),
        "rows that C does not have are added to",
        by="bounds",
    ),
    Mutation(
        "programs store what they should add",
        "sharing",
        ADDED,
        (
            (
                'tl.atomic_add(c_ptrs, acc, mask=in_m[:, None] & in_n[None, :], sem="relaxed")',
                "tl.store(c_ptrs, acc, mask=in_m[:, None] & in_n[None, :])",
            ),
        ),
        "the part of one program is the result",
        by="bounds",
    ),
)

MUTATIONS = (*RANGES, *COUNTS, *WORKSPACE, *ADDS)
