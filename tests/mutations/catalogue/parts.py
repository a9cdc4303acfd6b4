"""Wrong parts of K: ranges, the sums that one kernel stores, those that another adds, the launches of both."""

from __future__ import annotations

from ..mutation import Mutation, instead, without
from .kernels import SPLIT, SPLIT_DESCRIPTORS, SPLIT_GATE

SHARE = "share = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLIT) * BLOCK_K"
LAST = "last = min(first + share, K)"
PLACES = "sums_ptrs = sums_ptr + part * stride_sumsp + offs_m[:, None] * ldsums + offs_n[None, :]"
STORE = "tl.store(sums_ptrs, acc, mask=in_m[:, None] & in_n[None, :])"
LOAD = "acc = tl.load(sums_ptrs, mask=in_m[:, None] & in_n[None, :], other=0.0)"
ROOM = 'Memory("sums", "SPLIT M N", torch.float32)'
ROOM_OF_GATE = 'Memory("sums", "SPLIT M 2*N", torch.float32)'
FIRST = "            launch.kernel[launch.grid](**launch.arguments)\n"
SECOND = "            launch.then.kernel[launch.then.grid](**launch.then.arguments)\n"

RANGES = (
    Mutation(
        "parts of K overlap by a step",
        "sharing",
        SPLIT,
        (instead(LAST, "share,", "share + BLOCK_K,"),),
        "products are summed twice",
        says="are wrong",
    ),
    Mutation(
        "each part of K is a step short",
        "sharing",
        SPLIT,
        (instead(LAST, "share,", "share - BLOCK_K,"),),
        "products are left out",
        says="are wrong",
    ),
    Mutation(
        "steps that do not divide by the parts belong to none",
        "sharing",
        SPLIT,
        (instead(SHARE, "tl.cdiv(tl.cdiv(K, BLOCK_K), SPLIT)", "tl.cdiv(K, BLOCK_K) // SPLIT"),),
        "right only where every part has as many steps",
        says="are wrong",
    ),
    Mutation(
        "K is divided within steps",
        "sharing",
        SPLIT,
        (instead(SHARE, "tl.cdiv(tl.cdiv(K, BLOCK_K), SPLIT) * BLOCK_K", "tl.cdiv(K, SPLIT)"),),
        "a step passes the end of its part, and is summed again",
        says="are wrong",
    ),
    Mutation(
        "a program too few to a tile",
        "sharing",
        SPLIT,
        (("cdiv(N, BLOCK_N), SPLIT),", "cdiv(N, BLOCK_N), SPLIT - 1),"),),
        "what stood in memory is added in place of the last part",
        says="are wrong",
    ),
)

STORES = (
    Mutation(
        "all parts store their sums in one matrix",
        "sharing",
        SPLIT,
        (without(PLACES, " + part * stride_sumsp"),),
        "the last store wins, and the other matrices are what stood in memory",
        by="bounds",
        says="in one place",
    ),
    Mutation(
        "a part's sums begin one row further",
        "sharing",
        SPLIT,
        (instead(PLACES, "part * stride_sumsp", "part * ldsums"),),
        "parts store over each other",
        by="bounds",
    ),
    Mutation(
        "partial sums are stored without a mask along M",
        "sharing",
        SPLIT,
        (instead(STORE, "in_m[:, None] & ", ""),),
        "rows of the next part are stored to",
        by="bounds",
    ),
    Mutation(
        "a part without steps stores nothing",
        "sharing",
        SPLIT,
        ((STORE, f"if first < last:\n        {STORE}"),),
        "what stood in memory is added",
        says="are wrong",
    ),
    Mutation(
        "the activation is of each part",
        "sharing",
        SPLIT,
        (instead(STORE, "acc,", "acc * tl.sigmoid(acc),"),),
        "the activation of a sum is not the sum of activations",
        says="are wrong",
    ),
    Mutation(
        "there is room for a part too few",
        "sharing",
        SPLIT,
        (instead(ROOM, "SPLIT", "SPLIT - 1"),),
        "the last part's sums lie outside",
        says="stray",
    ),
    Mutation(
        "there is room for sums of half a gate",
        "sharing",
        SPLIT_GATE,
        (("SPLIT M 2*N", "SPLIT M N"),),
        "the columns of the second half are those of the next row",
        by="bounds",
    ),
    Mutation(
        "partial sums are kept in fp16",
        "sharing",
        SPLIT,
        (('SPLIT M N", torch.float32', 'SPLIT M N", torch.float16'),),
        "each part is rounded by itself",
        says="are wrong",
    ),
    Mutation(
        "INDEX does not count partial sums",
        "sharing",
        SPLIT,
        (("b, sums, out),\n            }", "b, out),\n            }"),),
        "over 2**31 sums are stored before their beginning",
        by="bounds",
        says="does not fit 32 bits",
    ),
)

ADDITIONS = (
    Mutation(
        "the last part is not added",
        "sharing",
        SPLIT,
        (("static_range(1, SPLIT)", "static_range(1, SPLIT - 1)"),),
        "right only where the last part is empty",
        says="are wrong",
    ),
    Mutation(
        "a part too many is added",
        "sharing",
        SPLIT,
        (("static_range(1, SPLIT)", "static_range(1, SPLIT + 1)"),),
        "what lies behind the sums is read",
        by="bounds",
    ),
    Mutation(
        "the first part is added twice",
        "sharing",
        SPLIT,
        (("static_range(1, SPLIT)", "static_range(0, SPLIT)"),),
        "its products count double",
        says="are wrong",
    ),
    Mutation(
        "partial sums are read without a mask",
        "sharing",
        SPLIT,
        ((LOAD, "acc = tl.load(sums_ptrs)"),),
        "the last tile reads behind the sums",
        by="bounds",
    ),
    Mutation(
        "every other strip of the result has a program",
        "sharing",
        SPLIT,
        (("cdiv(M, 16)", "cdiv(M, 32)"),),
        "half of the result is what stood in memory",
        says="never written",
    ),
    Mutation(
        "the second kernel is passed the first one's rows",
        "sharing",
        SPLIT,
        (('                "BLOCK_M": 16,\n', '                "BLOCK_M": BLOCK_M,\n'),),
        "most of its programs lie below the result",
        by="bounds",
    ),
    Mutation(
        "the second kernel's block has the first one's rows",
        "sharing",
        SPLIT_DESCRIPTORS,
        (("described(out, 16, ", "described(out, BLOCK_M, "),),
        "the block copied out is not the block computed",
    ),
)

LAUNCHES = (
    Mutation(
        "sums are added before they are there",
        "sharing",
        SPLIT,
        (("for each in plan.launches]", "for each in reversed(plan.launches)]"),),
        "the result is what stood in memory",
        says="are wrong",
        own="_runtime/call.py",
    ),
    Mutation(
        "the second kernel is not launched",
        "sharing",
        SPLIT,
        (("for each in plan.launches]", "for each in plan.launches[:1]]"),),
        "nobody stores the result",
        says="never written",
        own="_runtime/call.py",
    ),
    Mutation(
        "the first kernel is launched twice",
        "sharing",
        SPLIT,
        (("_sum,\n            grid", ",\n            grid"),),
        "the second launch has arguments that the kernel does not take",
        says="KeyError",
    ),
)

MUTATIONS = (*RANGES, *STORES, *ADDITIONS, *LAUNCHES)
