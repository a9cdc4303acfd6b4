"""Batches gone wrong: the matrix of a program, strides between matrices, what is refused of them."""

from __future__ import annotations

from ..mutation import Mutation, without
from .kernels import BATCHES, BATCHES_ADD, BATCHES_DESCRIPTORS

SPLIT = "batch = tl.program_id(0) // tiles\n    pid = tl.program_id(0) % tiles"
GRID = "(B * cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N),)"
A_PTRS = "a_ptrs = a_ptr + batch * stride_ab + offs_m[:, None] * lda + offs_k[None, :]"

PROGRAMS = (
    Mutation(
        "matrix and tile of a program are exchanged",
        "batch",
        BATCHES,
        ((SPLIT, "batch = tl.program_id(0) % tiles\n    pid = tl.program_id(0) // tiles"),),
        "right where there are as many matrices as tiles",
        by="bounds",
        says="computes tile",
    ),
    Mutation(
        "matrices are next to each other in the order of programs",
        "batch",
        BATCHES,
        (
            (SPLIT, "batch = tl.program_id(0) % B\n    pid = tl.program_id(0) // B % tiles"),
            ("    K,\n    stride_ab,", "    K,\n    B,\n    stride_ab,"),
            ('"K": K,\n', '"K": K,\n            "B": B,\n'),
        ),
        "tiles of one matrix no longer share what is in the L2",
        says="tile 1 in the order of stores is (1, 0, 0)",
    ),
    Mutation(
        "the grid holds one matrix",
        "batch",
        BATCHES,
        (("_: (B * cdiv(M", "_: (cdiv(M"),),
        "all others are never written",
        says="never written",
    ),
    Mutation(
        "the matrix of a program is forgotten again",
        "batch",
        BATCHES,
        ((SPLIT, f"{SPLIT}\n    batch = 0"),),
        "right for a batch of one",
        by="bounds",
        says="both compute tile",
    ),
    Mutation(
        "the tiles of a matrix are counted in columns alone",
        "batch",
        BATCHES_ADD,
        (("tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)", "tiles = tl.cdiv(N, BLOCK_N)"),),
        "right for a single row of tiles",
        by="bounds",
        says="matrix",
    ),
)

STRIDES = (
    Mutation(
        "all matrices of a batch are multiplied by the first of A",
        "batch",
        BATCHES,
        (without(A_PTRS, " + batch * stride_ab"),),
        "right for a batch of one",
        says="elements are wrong",
    ),
    Mutation(
        "B steps from matrix to matrix as A does",
        "batch",
        BATCHES,
        (('"stride_bb": b.stride(0)', '"stride_bb": a.stride(0)'),),
        "right where both steps are equal, and never for an expanded operand",
        by="bounds",
    ),
    Mutation(
        "matrices of the result are taken to lie one after another",
        "batch",
        BATCHES,
        (('"stride_cb": out.stride(0)', '"stride_cb": M * N'),),
        "right unless the result is a part of something larger",
    ),
    Mutation(
        "the stride between matrices stays 32 bits wide",
        "batch",
        BATCHES,
        (("    stride_bb = tl.cast(stride_bb, INDEX)\n", ""),),
        "wraps where a batch spans over 2**31 elements",
        by="bounds",
        says="does not fit 32 bits",
    ),
    Mutation(
        "the width of offsets is decided by one matrix",
        "batch",
        BATCHES,
        (("zip(x.shape, x.stride())", "zip(x.shape[-2:], x.stride()[-2:])"),),
        "wraps where no matrix is large, and the batch is",
        own="_runtime/call.py",
    ),
    Mutation(
        "the operand to be added is that of the first matrix",
        "batch",
        BATCHES_ADD,
        (("add_ptr + batch * stride_addb", "add_ptr"),),
        "right for a batch of one, or where it is expanded",
        says="elements are wrong",
    ),
    Mutation(
        "a descriptor reads the first matrix of B",
        "batch",
        BATCHES_DESCRIPTORS,
        (("b_desc.load([batch, column, k])", "b_desc.load([0, column, k])"),),
        "right for a batch of one",
        says="elements are wrong",
    ),
    Mutation(
        "a descriptor steps as if matrices lay one after another",
        "batch",
        BATCHES_DESCRIPTORS,
        (("[x.stride(0) if many > 1 else rows * lead for many in count]", "[rows * lead for many in count]"),),
        "right unless the batch is padded or interleaved",
        says="stray load",
        own="_runtime/descriptors.py",
    ),
)

CHECKS = (
    Mutation(
        "batches of two sizes are multiplied",
        "check",
        BATCHES,
        (('"; expand a single matrix" * (name == "B") + ', ""),),
        "the message is of shapes, not of what to do",
        says="expected ValueError",
        own="_runtime/call.py",
    ),
    Mutation(
        "a result whose matrices are all one is accepted",
        "check",
        BATCHES,
        (("if size > 1 and stride <= reach:", "if size > 1 and 0 < stride <= reach:"),),
        "every matrix is written to one place",
        says="was accepted",
        own="_runtime/call.py",
    ),
    Mutation(
        "a result whose matrices overlap is accepted",
        "check",
        BATCHES,
        (("if size > 1 and stride <= reach:", "if size > 1 and stride < reach:"),),
        "the last element of a matrix is the first of the next",
        says="was accepted",
        own="_runtime/call.py",
    ),
    Mutation(
        "an empty result overlaps itself",
        "check",
        BATCHES,
        ((" if traced or not x.numel() else", " if traced else"),),
        "a batch of empty matrices is refused",
        says="overlap",
        own="_runtime/call.py",
    ),
    Mutation(
        "more programs are asked for than have numbers",
        "check",
        BATCHES,
        (('2**31 - 2**16, "the number of tiles', '2**40, "the number of tiles'),),
        "a huge batch of small matrices ends in an error of the driver",
        says="expected ValueError",
    ),
    Mutation(
        "a descriptor takes a repeated matrix",
        "check",
        BATCHES_DESCRIPTORS,
        (("(x.stride(0) % step or not x.stride(0))", "x.stride(0) % step"),),
        "the hardware's strides are above 0",
        says="was accepted",
        own="_runtime/descriptors.py",
    ),
    Mutation(
        "a descriptor takes matrices at any distance",
        "check",
        BATCHES_DESCRIPTORS,
        (("(x.stride(0) % step or not x.stride(0))", "not x.stride(0)"),),
        "the hardware steps by 16 bytes",
        own="_runtime/descriptors.py",
    ),
    Mutation(
        "refusal() looks for matrices",
        "check",
        BATCHES_DESCRIPTORS,
        (("x.dim() < 2", "x.dim() != 2"),),
        "no batch is ever refused, and the family's function finds no sibling",
        own="_runtime/descriptors.py",
    ),
)

MUTATIONS = (*PROGRAMS, *STRIDES, *CHECKS)
