"""Wrong choices: configurations, rows of the table, kernels of a contract."""

from __future__ import annotations

from ..mutation import Mutation, instead
from .kernels import (
    AUTOTUNED,
    FP8,
    MASKED_K,
    NAIVE,
    NAIVE_FIXED,
    RELU,
    SILU,
    UNMASKED,
)

SMALLEST = '{"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 256, "GROUP_M": 8, "num_warps": 4, "num_stages": 4}'

CHOICES = (
    Mutation(
        "config is ignored",
        "choice",
        SILU,
        (
            (
                "        if config is None:\n            return self.chosen(",
                "        if config is not self:\n            return self.chosen(",
            ),
        ),
        "a caller's choice has no effect",
        says="was accepted",
        own="_runtime/call.py",
    ),
    Mutation(
        "config as an index names the row before",
        "choice",
        SILU,
        (("dict(enumerate(self.configs))", "dict(enumerate(self.configs, 1))"),),
        "every result is right, and another row runs than was measured",
        by="compile",
        launches=("row0-aligned",),
        own="_runtime/call.py",
    ),
    Mutation(
        "every row is launched with 8 warps",
        "choice",
        RELU,
        (("(row if self.configured", "({**row, 'num_warps': 8} if self.configured"),),
        "every result is right, and another row runs than was measured",
        by="compile",
        own="_runtime/call.py",
    ),
    Mutation(
        "config may be any mapping",
        "choice",
        RELU,
        (("if row not in self.configs:", "if not isinstance(row, dict):"),),
        "a row that was never proved runs",
        says="was accepted",
        own="_runtime/call.py",
    ),
    Mutation(
        "config may be a row that does not divide the sizes",
        "choice",
        UNMASKED,
        (("self.misfit([row], state.numbers)", "self.misfit(self.configs, state.numbers)"),),
        "without masks it runs over every edge",
        own="_runtime/call.py",
    ),
    Mutation(
        "config may be a row that does not hold K",
        "choice",
        NAIVE,
        (("self.misfit([row], state.numbers)", "self.misfit(self.configs, state.numbers)"),),
        "what lies behind BLOCK_K is left out of the sum",
        own="_runtime/call.py",
    ),
    Mutation(
        "N need not divide",
        "choice",
        MASKED_K,
        (('multiple(N, BLOCK_N, "N: BLOCK_N needs"),', ""),),
        "without masks it runs over every edge",
    ),
    Mutation(
        "a row holds twice its BLOCK_K",
        "choice",
        NAIVE,
        (("at_most(K, BLOCK_K,", "at_most(K // 2, BLOCK_K,"),),
        "what lies behind BLOCK_K is left out of the sum",
    ),
    Mutation(
        "the choice is among all rows",
        "choice",
        UNMASKED,
        (
            (
                "rows = self.fitting(self.offered(device), dict(zip(self.sizes, sizes)))",
                "rows = self.offered(device)",
            ),
        ),
        "without masks a row that does not divide runs over every edge",
        own="_runtime/call.py",
    ),
    Mutation(
        "the first row is chosen, whether it holds K or not",
        "choice",
        NAIVE_FIXED,
        (("return rows[0] if self.choose", "return self.table.rows[0] if self.choose"),),
        "what lies behind BLOCK_K is left out of the sum",
        own="_runtime/call.py",
    ),
    Mutation(
        "rows too large for the device are offered",
        "choice",
        FP8,
        (('TOO_LARGE = {"sm89": (3,)}', "TOO_LARGE = {}"),),
        "the launch fails for want of shared memory",
        by="static",
    ),
    Mutation(
        "the tuner tries rows that do not divide",
        "choice",
        AUTOTUNED,
        (("legal = call.fitting(rows, {**arguments, **others})", "legal = rows"),),
        "without masks a row that does not divide runs over every edge",
        own="_runtime/tuner.py",
    ),
    Mutation(
        "the tuner's choice is kept for another K",
        "choice",
        AUTOTUNED,
        (('key=["M", "N", "K"],', 'key=["M", "N"],'),),
        "without masks a row that does not divide runs over every edge",
        own="_runtime/tuner.py",
    ),
)

TABLES = (
    Mutation(
        "a row has another number of stages",
        "table",
        SILU,
        (('"num_stages": 3}', '"num_stages": 2}'),),
        "the manifest tells of a row that is not there",
        by="static",
    ),
    Mutation(
        "a row has another number of warps",
        "table",
        SILU,
        (instead(SMALLEST, '"num_warps": 4', '"num_warps": 8'),),
        "the manifest tells of a row that is not there",
        by="static",
    ),
    Mutation(
        "a row has other bands",
        "table",
        RELU,
        (instead(SMALLEST, '"GROUP_M": 8', '"GROUP_M": 4'),),
        "the manifest tells of a row that is not there",
        by="static",
    ),
    Mutation(
        "a row has a wider tile",
        "table",
        SILU,
        (instead(SMALLEST, '"BLOCK_N": 32', '"BLOCK_N": 64'),),
        "the manifest tells of a row that is not there",
        by="static",
    ),
    Mutation(
        "a row is missing",
        "table",
        RELU,
        ((f"    {SMALLEST},\n", ""),),
        "the manifest tells of a row that is not there",
        says="CONFIGS has 6 rows",
    ),
)

FP16_RCR = ("fp16_rcr", "gemm_fp16_rcr_bias__tiled_descriptor_auto_grouped")

CONTRACTS = (
    Mutation(
        "the first kernel is taken, whatever it refuses",
        "contract",
        FP16_RCR,
        ((" for kernel, why in reasons.items() if why is None]", " for kernel in reasons]"),),
        "operands that a sibling takes are turned down",
        contract="gemm_fp16_rcr_bias",
        own="_runtime/launch.py",
    ),
    Mutation(
        "a contract lists another's kernel",
        "contract",
        FP16_RCR,
        (
            (
                '        "gemm_fp16_rcr_bias__tiled_descriptor_auto_grouped",\n',
                '        "gemm_fp16_rcr_bias_relu__tiled_descriptor_auto_grouped",\n',
            ),
        ),
        "the function computes another formula where that kernel takes the operands",
        contract="gemm_fp16_rcr_bias",
        own="__init__.py",
        says="elements are wrong",
    ),
    Mutation(
        "a contract drops config",
        "contract",
        FP16_RCR,
        (
            (
                "return self.accepting(given)[0].CALL(config, **given)",
                "return self.accepting(given)[0].CALL(None, **given)",
            ),
        ),
        "a caller's choice has no effect",
        contract="gemm_fp16_rcr_bias",
        own="_runtime/launch.py",
    ),
    Mutation(
        "a contract drops out",
        "contract",
        FP16_RCR,
        (
            (
                'given = {"a": a, "b": b, "out": out, **operands}\n        if getattr',
                'given = {"a": a, "b": b, "out": None, **operands}\n        if getattr',
            ),
        ),
        "the caller's tensor is never written",
        contract="gemm_fp16_rcr_bias",
        own="_runtime/launch.py",
        says="another tensor",
    ),
)

MUTATIONS = (*CHOICES, *TABLES, *CONTRACTS)
