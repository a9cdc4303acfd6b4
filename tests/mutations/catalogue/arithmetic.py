"""Wrong arithmetic: which tile, the loop over K, sums and their precision, the epilogue, rounding."""

from __future__ import annotations

from ..mutation import Mutation, instead, without
from .kernels import (
    BLOCKS_NAIVE,
    CCC_ADD_ADD,
    CHIPLET,
    CSC,
    DESCRIPTORS,
    ELEMENTWISE,
    ELEMENTWISE_EPILOGUE,
    FP8,
    FP16_SUMS,
    HILBERT,
    IEEE,
    INT8,
    MASKED,
    MASKED_K,
    MASKED_MN,
    RELU,
    RRR,
    SILU,
    TF32,
    TF32X3,
    UNMASKED,
)

DOT = "acc = tl.dot(a, b, acc)"
RANGE = "range(0, K, BLOCK_K)"
HEIGHT = "min(num_m - first_m, GROUP_M)"
FP8_DOT = "acc = tl.dot(a, b, acc, max_num_imprecise_acc=BLOCK_K if BLOCK_K < 128 else 128)"
BIAS = "bias = tl.load(bias_ptr + offs_n, mask=in_n, other=0.0).to(tl.float32)"
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
    share = num_m * num_n // NUM_CHIPLETS
    longer = num_m * num_n % NUM_CHIPLETS
    tile = die * share + min(die, longer) + pid // NUM_CHIPLETS
"""
LINEAR = """\
    num_n = tl.cdiv(N, BLOCK_N)
    pid_m = pid // num_n
    pid_n = pid % num_n
"""

ORDERS = (
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

LOOPS = (
    Mutation(
        "the loop over K is one step short",
        "loop",
        SILU,
        ((RANGE, "range(0, K - BLOCK_K + 1, BLOCK_K)"),),
        "a last step that is no whole tile is left out",
        says="elements are wrong",
    ),
    Mutation(
        "the loop over K is one step long",
        "loop",
        UNMASKED,
        ((RANGE, "range(0, K + BLOCK_K, BLOCK_K)"),),
        "a tile behind the end of A and B is added",
        says="stray load",
    ),
    Mutation(
        "the loop over K begins with the second step",
        "loop",
        DESCRIPTORS,
        ((RANGE, "range(BLOCK_K, K, BLOCK_K)"),),
        "the first step is left out",
        says="elements are wrong",
    ),
    Mutation(
        "B steps along K by BLOCK_N",
        "loop",
        MASKED,
        (("b_ptrs += BLOCK_K", "b_ptrs += BLOCK_N"),),
        "right where BLOCK_K is BLOCK_N",
    ),
    Mutation(
        "the last product is left out",
        "loop",
        ELEMENTWISE,
        (("range(0, K)", "range(0, K - 1)"),),
        "every element lacks a product",
        says="elements are wrong",
    ),
    Mutation(
        "the loop over K is not pipelined",
        "loop",
        RELU,
        ((RANGE, "tl.range(0, K, BLOCK_K, num_stages=1)"),),
        "every result is right, and the matrix unit waits for each load",
        by="compile",
        says="not pipelined",
    ),
    Mutation(
        "K = 0 loads all the same",
        "loop",
        BLOCKS_NAIVE,
        (("if K > 0:", "if K >= 0:"),),
        "a tile of matrices without elements is read",
        says="stray load",
    ),
)

SUMS = (
    Mutation(
        "only the last step is kept",
        "sum",
        RRR,
        ((DOT, "acc = tl.dot(a, b)"),),
        "right while K fits into one step",
        says="elements are wrong",
    ),
    Mutation(
        "sums are rounded to fp16 each step",
        "sum",
        SILU,
        ((DOT, "acc = tl.dot(a, b, acc).to(tl.float16).to(tl.float32)"),),
        "less accuracy than was asked for",
        says="elements are wrong",
    ),
    Mutation(
        "bf16 is multiplied in fp16",
        "sum",
        RRR,
        ((DOT, "acc = tl.dot(a.to(tl.float16), b.to(tl.float16), acc)"),),
        "what is below 6e-8 is lost, and what is above 65504 infinite",
    ),
    Mutation(
        "integer sums are kept in 16 bits",
        "sum",
        INT8,
        (
            (
                "acc = tl.dot(a, b, acc, out_dtype=tl.int32)",
                "acc = tl.dot(a, b, acc, out_dtype=tl.int32).to(tl.int16).to(tl.int32)",
            ),
        ),
        "sums past 2**15 wrap around",
        says="elements are wrong",
    ),
    Mutation(
        "sums are kept in fp32 where fp16 was asked for",
        "sum",
        FP16_SUMS,
        (
            ("acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float16)", "acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)"),
            ("acc = tl.dot(a, b, acc, out_dtype=tl.float16)", DOT),
            ("tl.store(c_ptrs, acc,", "tl.store(c_ptrs, acc.to(tl.float16),"),
        ),
        "half the speed on some GPUs, which is what fp16 sums were asked for",
        by="compile",
    ),
    Mutation(
        "fp8 sums are never promoted",
        "sum",
        FP8,
        ((FP8_DOT, "acc = tl.dot(a, b, acc)"),),
        "the matrix unit's short accumulator holds the whole sum; the interpreter has none",
        by="compile",
        launches=("row4-aligned",),
    ),
    Mutation(
        "fp8 sums are promoted once a step of 256",
        "sum",
        FP8,
        ((FP8_DOT, "acc = tl.dot(a, b, acc, max_num_imprecise_acc=BLOCK_K)"),),
        "the promise is every 128 along K",
        by="compile",
        launches=("row4-aligned",),
    ),
    Mutation(
        "fp32 is multiplied in tf32",
        "sum",
        IEEE,
        (('input_precision="ieee"', 'input_precision="tf32"'),),
        "10 bits of 23 are left; the interpreter computes tf32 as ieee",
        by="compile",
    ),
    Mutation(
        "fp32 is multiplied in Triton's default",
        "sum",
        IEEE,
        (without('tl.dot(a, b, acc, input_precision="ieee")', ', input_precision="ieee"'),),
        "the default is tf32",
        by="compile",
    ),
    Mutation(
        "tf32x3 is multiplied once",
        "sum",
        TF32X3,
        (('input_precision="tf32x3"', 'input_precision="tf32"'),),
        "10 bits are left where three products give nearly 23",
        by="compile",
    ),
    Mutation(
        "tf32 is multiplied in ieee",
        "sum",
        TF32,
        (('input_precision="tf32"', 'input_precision="ieee"'),),
        "exact, and without the matrix unit: many times slower",
        by="compile",
    ),
)

EPILOGUES = (
    Mutation(
        "bias and relu are exchanged",
        "epilogue",
        RELU,
        (
            ("x = acc + bias[None, :]", "x = tl.maximum(acc, 0.0, propagate_nan=tl.PropagateNan.ALL)"),
            ("x = tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)", "x = x + bias[None, :]"),
        ),
        "relu(A @ B) + bias is another formula",
        says="elements are wrong",
    ),
    Mutation(
        "scale and bias are exchanged",
        "epilogue",
        INT8,
        (
            ("x = acc.to(tl.float32) * scale", "x = acc.to(tl.float32)"),
            ("x = x + bias[None, :]", "x = (x + bias[None, :]) * scale"),
        ),
        "(A @ B + bias) * scale is another formula",
        says="elements are wrong",
    ),
    Mutation(
        "tanh comes before bias_m",
        "epilogue",
        ELEMENTWISE_EPILOGUE,
        (("x = x + bias_m\n    x = _tanh(x)", "x = _tanh(x)\n    x = x + bias_m"),),
        "tanh(A @ B + bias) + bias_m is another formula",
        says="elements are wrong",
    ),
    Mutation(
        "the sum is rounded before the epilogue",
        "epilogue",
        SILU,
        (("x = acc + bias[None, :]", "x = acc.to(tl.float16).to(tl.float32) + bias[None, :]"),),
        "rounded twice: a sum that cancels shows the first rounding",
        says="elements are wrong",
    ),
    Mutation(
        "the result is rounded to fp16 on the way to bf16",
        "epilogue",
        RRR,
        (("x.to(tl.bfloat16)", "x.to(tl.float16).to(tl.bfloat16)"),),
        "rounded twice, and infinite past 65504",
        says="elements are wrong",
    ),
    Mutation(
        "bias goes along M",
        "epilogue",
        SILU,
        (
            instead(BIAS, "bias_ptr + offs_n, mask=in_n", "bias_ptr + offs_m, mask=in_m"),
            ("acc + bias[None, :]", "acc + bias[:, None]"),
        ),
        "right where M is N and bias is constant",
    ),
    Mutation(
        "bias_m goes along N",
        "epilogue",
        CSC,
        (("bias_m_ptr + offs_m, mask=in_m", "bias_m_ptr + offs_n, mask=in_n"), ("bias_m[:, None]", "bias_m[None, :]")),
        "right where M is N and bias_m is constant",
    ),
    Mutation(
        "bias_m is read by column",
        "epilogue",
        ELEMENTWISE_EPILOGUE,
        (("bias_m_ptr + m", "bias_m_ptr + n"),),
        "right where M is N and bias_m is constant",
    ),
    Mutation(
        "scale is read as a vector",
        "epilogue",
        CSC,
        (("tl.load(scale_or_ptr).to(tl.float32)", "tl.load(scale_or_ptr + offs_m).to(tl.float32)[:, None]"),),
        "a tensor of one element is read as one of M",
        says="stray load",
    ),
    Mutation(
        "a scale on the device is taken for a number",
        "epilogue",
        FP8,
        (("SCALE_ON_DEVICE=isinstance(scale, torch.Tensor)", "SCALE_ON_DEVICE=False"),),
        "the sum is multiplied by an address",
    ),
    Mutation(
        "a scale on the device is rounded to fp16",
        "epilogue",
        CSC,
        (("tl.load(scale_or_ptr).to(tl.float32)", "tl.load(scale_or_ptr).to(tl.float16).to(tl.float32)"),),
        "an operand is read with the accuracy of another type",
        says="elements are wrong",
    ),
    Mutation(
        "add2 reads add",
        "epilogue",
        CCC_ADD_ADD,
        (("add2_ptr + offs_m[:, None]", "add_ptr + offs_m[:, None]"),),
        "one operand is added twice, the other never",
    ),
    Mutation(
        "silu lacks its factor",
        "epilogue",
        SILU,
        (("x = x * tl.sigmoid(x)", "x = tl.sigmoid(x)"),),
        "sigmoid is another function",
        says="elements are wrong",
    ),
    Mutation(
        "a constant of gelu has four digits",
        "epilogue",
        TF32,
        (("0.7071067811865476", "0.7071"),),
        "the root of 1/2 to 1e-5",
        says="elements are wrong",
    ),
    Mutation(
        "a constant of gelu_tanh has four digits",
        "epilogue",
        RRR,
        (("0.044715", "0.0447"),),
        "below bf16's spacing, so that it shows only where the result lies next to the middle of two numbers",
        says="elements are wrong",
    ),
    Mutation(
        "tanh has no series near zero",
        "epilogue",
        IEEE,
        (("tl.where(tl.abs(x) < 0.25, near, far)", "tl.where(tl.abs(x) < 0.0, near, far)"),),
        "1 - 2 / (exp(2x) + 1) cancels near zero",
        says="elements are wrong",
    ),
    Mutation(
        "relu drops NaN",
        "epilogue",
        RELU,
        (without("tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)", ", propagate_nan=tl.PropagateNan.ALL"),),
        "a plain max turns NaN into 0; the interpreter's does not",
        by="compile",
    ),
)

MUTATIONS = (*ORDERS, *LOOPS, *SUMS, *EPILOGUES)
