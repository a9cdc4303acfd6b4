"""Mutations of the table of a call: shapes, strides, the grid, memory, and which configurations are legal."""

from __future__ import annotations

from ..mutation import Mutation
from .kernels import AUTOTUNED, GROUPS, RELU, SSS, STREAM, UNMASKED

MUTATIONS = (
    Mutation(
        "the bias of the table has the length of K",
        "table",
        RELU,
        (('Operand("bias", "N"', 'Operand("bias", "K"'),),
        "a vector of K elements is accepted, and N of them are read",
        by="bounds",
        says="of bias, which has",
    ),
    Mutation(
        "no stride of A must be 1",
        "table",
        RELU,
        (('"M K", torch.float16, unit=1', '"M K", torch.float16'),),
        "a transposed A is read as if its rows were contiguous",
        by="bounds",
        says="which is not one of its strides",
    ),
    Mutation(
        "a row of the result is as far from the next one as a column",
        "table",
        SSS,
        (("out.stride(0)", "out.stride(1)"),),
        "the rows of the result are stored over each other",
        by="bounds",
    ),
    Mutation(
        "the grid has a tile too many along M",
        "table",
        UNMASKED,
        (("(cdiv(M, BLOCK_M) *", "((cdiv(M, BLOCK_M) + 1) *"),),
        "the programs of the last tiles store behind the result",
        by="bounds",
    ),
    Mutation(
        "any multiple of 16 is N enough",
        "table",
        UNMASKED,
        (("multiple(N, BLOCK_N,", "multiple(N, 16,"),),
        "the last tile of an N that is none of its multiples has no mask",
        by="bounds",
        says="which has",
    ),
    Mutation(
        "the tuner tries any configuration for any M",
        "table",
        AUTOTUNED,
        (('multiple(M, BLOCK_M, "M: BLOCK_M needs"),', ""),),
        "the last tile of an M that is none of its multiples has no mask",
        by="bounds",
        says="which has",
    ),
    Mutation(
        "the workspace has one sum of each program",
        "table",
        STREAM,
        (("2*PROGRAMS*BLOCK_M", "PROGRAMS*BLOCK_M"),),
        "a program that ends one tile and begins another stores behind the workspace",
        by="bounds",
        says="of work, which has",
    ),
    Mutation(
        "groups that end within a tile have no program of their own",
        "table",
        GROUPS,
        (("cdiv(T, BLOCK_M) + G", "cdiv(T, BLOCK_M)"),),
        "the last tiles of the groups are not computed",
        says="never written",
    ),
    Mutation(
        "the leading dimension of B is not passed",
        "table",
        RELU,
        (('                "ldb": b.stride(1),\n', ""),),
        "no call can be launched",
        by="bounds",
        says="the parameter ldb of gemm_kernel, which no launch passes",
    ),
)
