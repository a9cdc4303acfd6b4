"""The library of a family gone wrong: what a call is checked for, what is allocated, passed and reduced for it."""

from __future__ import annotations

from ..mutation import Mutation
from .kernels import ACCUMULATED, DESCRIPTORS, OUTPUTS, RELU, UNMASKED

CALL, MEMORY = "_runtime/call.py", "_runtime/memory.py"

MUTATIONS = (
    Mutation(
        "parts of a sum are added along the other dimension",
        "library",
        OUTPUTS,
        (("[..., None], -2, out=result)", "[..., None], -1, out=result)"),),
        "a sum for each tile, and not for each row",
        own=MEMORY,
    ),
    Mutation(
        "sums of tiles are reduced to the largest",
        "library",
        OUTPUTS,
        (("getattr(torch, self.how)(", "torch.amax("),),
        "right for a single tile",
        own=MEMORY,
        says="are wrong",
    ),
    Mutation(
        "sums of an empty product are what stood in memory",
        "library",
        OUTPUTS,
        (("                results[reduction.name].zero_()\n", "                assert reduction\n"),),
        "no program is launched that would write them",
        own=CALL,
        says="never written",
    ),
    Mutation(
        "a stride is that of the dimension before",
        "library",
        RELU,
        (("a.stride(0)", "a.stride(-1)"),),
        "a matrix is read across its lines",
    ),
    Mutation(
        "a gradient is lost without a word",
        "library",
        RELU,
        (("if x.requires_grad and torch.is_grad_enabled():", "if not name:"),),
        "a model is trained without the gradient of this product",
        own="_runtime/launchable.py",
        says="was accepted",
    ),
    Mutation(
        "C is made where it must be given",
        "library",
        ACCUMULATED,
        (("if x is None and self.read:", "if x is None and not self.name:"),),
        "what stood in memory is added to the product",
        own="_runtime/call.py",
        says="was accepted",
    ),
    Mutation(
        "a size that a tile divides has one tile more",
        "library",
        UNMASKED,
        (("return -(-x // y)", "return x // y + 1"),),
        "a tile behind the end of C is written",
        own=CALL,
        says="stray",
    ),
    Mutation(
        "every size is a multiple of a tile",
        "library",
        UNMASKED,
        (("if number % step else", "if number % step < 0 else"),),
        "without masks a tile runs over every edge",
        own="_runtime/limits.py",
    ),
    Mutation(
        "a transposed matrix is described as it is",
        "library",
        DESCRIPTORS,
        (("if turned else (rows", "if False else (rows"),),
        "a line of the descriptor is none of the matrix",
        own="_runtime/descriptors.py",
    ),
    Mutation(
        "a cached launch is keyed without alignment",
        "library",
        RELU,
        (
            (
                "x.device, x.data_ptr() % 16))",
                "x.device))",
            ),
        ),
        "a call with unaligned operands runs what was compiled for aligned ones",
        by="gpu",
        contract="gemm_fp16_rcr_bias_relu",
        own="_runtime/launch.py",
    ),
)
