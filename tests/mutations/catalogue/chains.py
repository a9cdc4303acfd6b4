"""What epilogues have beside a chain of operations: gates, outputs, rounding in between, narrow results, fast forms."""

from __future__ import annotations

from ..mutation import Mutation, instead, without
from .kernels import (
    ACCUMULATED,
    FAST,
    GATED,
    HALVES,
    OUTPUTS,
    ROUNDED,
    SAVED,
    TO_FP8,
    TO_INT8,
)

ROW_SUM = "row_sum = tl.sum(tl.where(in_n[None, :], x, 0.0), 1)"
GRADIENT_PTRS = "gradient_ptrs = gradient_ptr + pid_m * ldgradient + offs_n"
AMAX = "row_amax = x.to(tl.int32, bitcast=True) & 0x7FFFFFFF"

GATES = (
    Mutation(
        "the second half of B begins a column late",
        "gate",
        GATED,
        (instead("b_up_ptrs = b_gate_ptrs + N * ldb", "N * ldb", "(N + 1) * ldb"),),
        "each column is multiplied by its neighbour's gate",
    ),
    Mutation(
        "gate and value are exchanged",
        "gate",
        GATED,
        (("x = gate * _fast_sigmoid(gate, APPROX) * x", "x = x * _fast_sigmoid(x, APPROX) * gate"),),
        "the wrong half is activated",
        says="elements are wrong",
    ),
    Mutation(
        "the value has the gate's bias",
        "gate",
        GATED,
        (without("bias = tl.load(bias_ptr + N + offs_n, mask=in_n, other=0.0).to(tl.float32)", "N + "),),
        "the second half of the vector is never read",
        says="elements are wrong",
    ),
    Mutation(
        "the halves of a saved sum are stored in one place",
        "gate",
        HALVES,
        (without("whole_ptrs = whole_ptr + offs_m[:, None] * ldwhole + N + offs_n[None, :]", " + N"),),
        "the gate's half is lost, and the other is where it was",
    ),
    Mutation(
        "a saved half has no mask along N",
        "gate",
        HALVES,
        (
            (
                "acc_gate.to(tl.bfloat16), mask=in_m[:, None] & in_n[None, :])",
                "acc_gate.to(tl.bfloat16), mask=in_m[:, None])",
            ),
        ),
        "the gate's last columns are written over the value's first, or the other way around",
    ),
)

OUTPUT = (
    Mutation(
        "a sum takes the columns past the edge",
        "outputs",
        OUTPUTS,
        ((ROW_SUM, "row_sum = tl.sum(x, 1)"),),
        "what lies past N is added, which the bias makes other than 0",
        says="elements are wrong",
    ),
    Mutation(
        "every tile leaves its part of the sum in one place",
        "outputs",
        OUTPUTS,
        (without(GRADIENT_PTRS, " + pid_m * ldgradient"),),
        "the parts of all tiles but one are lost, and what stood in memory is added",
    ),
    Mutation(
        "the largest value is taken with its sign",
        "outputs",
        OUTPUTS,
        (without(AMAX, " & 0x7FFFFFFF"),),
        "a negative value is never the largest",
        says="elements are wrong",
    ),
    Mutation(
        "what is saved is saved after the next operation",
        "outputs",
        SAVED,
        (("tl.store(preact_ptrs, x.to(", "tl.store(preact_ptrs, tl.maximum(x, 0.0).to("),),
        "training gets another derivative",
        says="elements are wrong",
    ),
    Mutation(
        "beta is added to C",
        "outputs",
        ACCUMULATED,
        (("x = acc + beta * c", "x = acc + (beta + c)"),),
        "C is not scaled",
        says="elements are wrong",
    ),
    Mutation(
        "C is read where beta is 0",
        "outputs",
        ACCUMULATED,
        (("in_n[None, :] & reads", "in_n[None, :]"),),
        "infinity and NaN of a C that nobody wanted are in the result",
        says="elements are wrong",
    ),
)

ROUNDING = (
    Mutation(
        "an operation is rounded to fp16",
        "rounding",
        ROUNDED,
        (("x = tl.cast(tl.cast(x, tl.bfloat16), tl.float32)", "x = tl.cast(tl.cast(x, tl.float16), tl.float32)"),),
        "a large value becomes infinite",
    ),
    Mutation(
        "an int8 result is not saturated",
        "rounding",
        TO_INT8,
        (("    x = tl.minimum(x, 127.0, propagate_nan=tl.PropagateNan.ALL)\n", ""),),
        "a value past 127 wraps around",
    ),
    Mutation(
        "an fp8 result has a bit less",
        "rounding",
        TO_FP8,
        (("* 1572864.0", "* 3145728.0"),),
        "every other number of the type is never stored",
        says="elements are wrong",
    ),
    Mutation(
        "the fast sigmoid has exp2 of the plain argument",
        "rounding",
        FAST,
        (("1 + tl.exp2(x * -1.4426950408889634)", "1 + tl.exp2(-x)"),),
        "it is another curve",
        says="elements are wrong",
    ),
)

MUTATIONS = (*GATES, *OUTPUT, *ROUNDING)
