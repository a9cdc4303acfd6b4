"""Wrong choices: configurations, rows of the table, kernels of a contract."""

from __future__ import annotations

from ..mutation import Mutation, instead, without
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

ROW_FITS = """\
    reason = _misfit(M, N, K, [row])
    if reason is not None:
        raise ValueError(reason)
"""
SMALLEST = '{"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 256, "GROUP_M": 8, "num_warps": 4, "num_stages": 4}'

CHOICES = (
    Mutation(
        "config is ignored",
        "choice",
        SILU,
        (
            without(
                "row = _select(M, N, K, a.device) if config is None else _row(config)",
                " if config is None else _row(config)",
            ),
        ),
        "a caller's choice has no effect",
        says="was accepted",
    ),
    Mutation(
        "config as an index names the row before",
        "choice",
        SILU,
        (("row = CONFIGS[config]", "row = CONFIGS[config - 1]"),),
        "every result is right, and another row runs than was measured",
        by="compile",
        launches=("row0-aligned",),
    ),
    Mutation(
        "every row is launched with 8 warps",
        "choice",
        RELU,
        (("            **row,\n", '            **(row | {"num_warps": 8}),\n'),),
        "every result is right, and another row runs than was measured",
        by="compile",
    ),
    Mutation(
        "config may be any mapping",
        "choice",
        RELU,
        (("elif config in CONFIGS:", "elif isinstance(config, dict):"),),
        "a row that was never proved runs",
        says="was accepted",
    ),
    Mutation(
        "config may be a row that does not divide the sizes",
        "choice",
        UNMASKED,
        ((ROW_FITS, ""),),
        "without masks it runs over every edge",
    ),
    Mutation(
        "config may be a row that does not hold K",
        "choice",
        NAIVE,
        ((ROW_FITS, ""),),
        "what lies behind BLOCK_K is left out of the sum",
    ),
    Mutation(
        "N need not divide",
        "choice",
        MASKED_K,
        (without('return M % row["BLOCK_M"] == 0 and N % row["BLOCK_N"] == 0', ' and N % row["BLOCK_N"] == 0'),),
        "without masks it runs over every edge",
    ),
    Mutation(
        "a row holds twice its BLOCK_K",
        "choice",
        NAIVE,
        (('return K <= row["BLOCK_K"]', 'return K <= 2 * row["BLOCK_K"]'),),
        "what lies behind BLOCK_K is left out of the sum",
    ),
    Mutation(
        "the choice is among all rows",
        "choice",
        UNMASKED,
        (("min([row for row in CONFIGS if _fits(row, M, N, K)], key=cost)", "min(CONFIGS, key=cost)"),),
        "without masks a row that does not divide runs over every edge",
    ),
    Mutation(
        "the first row is chosen, whether it holds K or not",
        "choice",
        NAIVE_FIXED,
        (("return [row for row in CONFIGS if _fits(row, M, N, K)][0]", "return CONFIGS[0]"),),
        "what lies behind BLOCK_K is left out of the sum",
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
        (("rows = [row for row in CONFIGS if _fits(row, M, N, K)]", "rows = CONFIGS"),),
        "without masks a row that does not divide runs over every edge",
    ),
    Mutation(
        "the tuner's choice is kept for another K",
        "choice",
        AUTOTUNED,
        (('key=["M", "N", "K"],', 'key=["M", "N"],'),),
        "without masks a row that does not divide runs over every edge",
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
        (("        if reason is None:\n", "        if not reasons:\n"),),
        "operands that a sibling takes are turned down",
        contract="gemm_fp16_rcr_bias",
        own="_runtime/functions.py",
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
        says="elements are wrong",
    ),
    Mutation(
        "a contract drops config",
        "contract",
        FP16_RCR,
        (
            (
                "return taking[0].gemm(a, b, **operands, out=out, config=config)",
                "return taking[0].gemm(a, b, **operands, out=out)",
            ),
        ),
        "a caller's choice has no effect",
        contract="gemm_fp16_rcr_bias",
        own="_runtime/functions.py",
    ),
    Mutation(
        "a contract drops out",
        "contract",
        FP16_RCR,
        (
            (
                "return taking[0].gemm(a, b, **operands, out=out, config=config)",
                "return taking[0].gemm(a, b, **operands, config=config)",
            ),
            (
                "return target.gemm(a, b, **operands, out=out, config=row)",
                "return target.gemm(a, b, **operands, config=row)",
            ),
        ),
        "the caller's tensor is never written",
        contract="gemm_fp16_rcr_bias",
        own="_runtime/functions.py",
        says="another tensor",
    ),
)

MUTATIONS = (*CHOICES, *TABLES, *CONTRACTS)
