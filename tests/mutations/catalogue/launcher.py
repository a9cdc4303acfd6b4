"""Wrong launchers: grids, heuristics, checks, refusals."""

from __future__ import annotations

from ..mutation import Mutation, instead
from .kernels import (
    BLOCKS,
    CCC,
    DESCRIPTORS,
    DESCRIPTORS_CCC,
    ELEMENTWISE,
    FP8,
    MASKED,
    RELU,
    RRR,
    SILU,
    SSS,
    UNMASKED,
)

GRID = 'grid=(triton.cdiv(M, row["BLOCK_M"]) * triton.cdiv(N, row["BLOCK_N"]),)'
SHAPE = """\
    if x.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {tuple(x.shape)}")
"""
DEVICE = """\
    if x.device != device:
        raise ValueError(f"{name} must be on {device} as a is, got {x.device}")
"""
UNIT = """\
    if x.shape[unit] > 1 and x.stride(unit) != 1:
        raise ValueError(f"{name} must have stride 1 along dimension {unit}, got strides {x.stride()}")
"""
OVERLAPPING = "(width > 1 and inner == 0) or (height > 1 and outer < inner * (width - 1) + 1)"
LEADING = "x.shape[0] > 1 and (x.stride(0) % step or x.stride(0) < x.shape[1])"
WRONG_DTYPE = "raise TypeError(f\"{name} must be {dtype or 'of a floating type'}, got {x.dtype}\")"

GRIDS = (
    Mutation(
        "the last tile has no program",
        "grid",
        SILU,
        ((GRID, GRID.replace("=(", "=(max(1, ").replace(",)", " - 1),)")),),
        "it is never written",
        says="never written",
    ),
    Mutation(
        "one program too many",
        "grid",
        UNMASKED,
        ((GRID, GRID.replace(",)", " + 1,)")),),
        "a tile behind the end of C is written",
        says="stray",
    ),
    Mutation(
        "tile rows are rounded down",
        "grid",
        RRR,
        (instead(GRID, 'triton.cdiv(M, row["BLOCK_M"])', '(M // row["BLOCK_M"])'),),
        "the last rows are never written",
        says="never written",
    ),
    Mutation(
        "the grid is counted in transposed tiles",
        "grid",
        CCC,
        ((GRID, 'grid=(triton.cdiv(M, row["BLOCK_N"]) * triton.cdiv(N, row["BLOCK_M"]),)'),),
        "right for square tiles only",
    ),
    Mutation(
        "the grid has a program for each product of M and K",
        "grid",
        ELEMENTWISE,
        (("grid=(M * N,)", "grid=(M * K,)"),),
        "right where K is N",
    ),
)

HEURISTICS = (
    Mutation(
        "EVEN_K asks about M",
        "heuristic",
        SILU,
        (
            (
                '"EVEN_K": lambda args: args["K"] % args["BLOCK_K"] == 0',
                '"EVEN_K": lambda args: args["M"] % args["BLOCK_M"] == 0',
            ),
        ),
        "a ragged K is read unmasked where M divides",
        says="stray load",
    ),
    Mutation(
        "EVEN_N asks for one tile",
        "heuristic",
        CCC,
        (instead('args["N"] % args["BLOCK_N"] == 0', '% args["BLOCK_N"] == 0', '>= args["BLOCK_N"]'),),
        "a last tile that N cuts is accessed unmasked",
        says="stray",
    ),
    Mutation(
        "EVEN_M asks for a multiple of 16",
        "heuristic",
        RELU,
        (('args["M"] % args["BLOCK_M"] == 0', 'args["M"] % 16 == 0'),),
        "right for the smallest row and for odd M: M = 80 under tiles of 64 is accessed unmasked",
        by="bounds",
        says="row 16 of out, which has 16 rows",
    ),
    Mutation(
        "EVEN_K is never so",
        "heuristic",
        RELU,
        (('args["K"] % args["BLOCK_K"] == 0', "False"),),
        "every result is right, and an aligned call runs masked code",
        by="compile",
    ),
)

CHECKS = (
    Mutation(
        "b's dtype is not checked",
        "check",
        SILU,
        (('_check("b", b, (K, N), torch.float16,', '_check("b", b, (K, N), b.dtype,'),),
        "another type is multiplied, or its bits are",
        says="expected TypeError",
    ),
    Mutation(
        "shapes are not checked",
        "check",
        RELU,
        ((SHAPE, ""),),
        "a bias that is too short is read past its end",
        says="expected ValueError",
    ),
    Mutation(
        "devices are not checked",
        "check",
        MASKED,
        ((DEVICE, ""),),
        "an address of another device is read",
    ),
    Mutation(
        "unit strides are not checked",
        "check",
        RRR,
        ((UNIT, ""),),
        "a transposed operand is read as if it were not",
        says="expected ValueError",
    ),
    Mutation(
        "a single column must have stride 1",
        "check",
        RRR,
        (("if x.shape[unit] > 1 and x.stride(unit) != 1:", "if x.stride(unit) != 1:"),),
        "a column of a matrix is turned down, whose stride nothing steps by",
    ),
    Mutation(
        "another device than the operands' is launched on",
        "check",
        SILU,
        (("with torch.cuda.device_of(a):", "with torch.no_grad():"),),
        "operands on the second GPU are launched for on the first",
        by="compile",
    ),
    Mutation(
        "a scale may have two elements",
        "check",
        FP8,
        (("if x.numel() != 1:", "if x.numel() < 1:"),),
        "the second is ignored",
        says="expected ValueError",
    ),
    Mutation(
        "a scale on another device is read there",
        "check",
        FP8,
        (("return x if x.device == device or not _launchable(**{name: x}) else float(x)", "return x"),),
        "a GPU reads an address of the CPU",
        by="compile",
        launches=("row6-scalar-elsewhere",),
    ),
    Mutation(
        "out may overlap itself",
        "check",
        CCC,
        (("if _overlapping(out):", "if out.dim() != 2:"),),
        "several programs write one address",
        says="was accepted",
    ),
    Mutation(
        "out may have lines that overlap",
        "check",
        SSS,
        ((f"return {OVERLAPPING}", "return width > 1 and inner == 0 and outer <= height * outer"),),
        "a leading dimension shorter than a line lets programs write each other's elements",
    ),
    Mutation(
        "a wrong dtype raises ValueError",
        "check",
        RELU,
        (instead(WRONG_DTYPE, "TypeError", "ValueError"),),
        "the docstring promises TypeError",
        says="expected TypeError",
    ),
    Mutation(
        "the message does not tell the dtype that was found",
        "check",
        SILU,
        (instead(WRONG_DTYPE, ", got {x.dtype}", ""),),
        "the caller must find out what he passed",
        says="float64",
    ),
    Mutation(
        "the result is made in fp32",
        "check",
        SILU,
        (instead("out = torch.empty((M, N), dtype=torch.float16", "float16", "float32"),),
        "the contract says fp16",
        says="torch.float32",
    ),
    Mutation(
        "the result is made row-major",
        "check",
        CCC,
        (
            (
                "torch.empty((N, M), dtype=torch.bfloat16, device=a.device).T",
                "torch.empty((M, N), dtype=torch.bfloat16, device=a.device)",
            ),
        ),
        "its leading dimension is taken for 1",
    ),
    Mutation(
        "a second call reads B where A is",
        "launch",
        RELU,
        (('"b_ptr": "b"', '"b_ptr": "a"'),),
        "the family's function passes the address of A for B from the second call on",
        by="bounds",
        says="the slots are",
    ),
    Mutation(
        "the result goes to another place than out",
        "check",
        SILU,
        (('"c_ptr": out', '"c_ptr": torch.empty_like(out)'),),
        "the caller's tensor is never written",
        says="never written",
    ),
    Mutation(
        "operands on no GPU are accepted",
        "check",
        MASKED,
        (('a.device.type != "cuda" and not', "False and not"),),
        "Triton says that it cannot access a pointer, instead of the launcher that a GPU is needed",
    ),
    Mutation(
        "sizes past 32 bits are accepted",
        "check",
        MASKED,
        (("size > 2**31 - 2**16 for", "size < 0 for"),),
        "offsets within a tile wrap around",
        by="bounds",
        says="does not fit 32 bits",
    ),
)

REFUSALS = (
    Mutation(
        "an unaligned base is accepted",
        "refusal",
        DESCRIPTORS,
        (("if x.data_ptr() % 16:", "if x.data_ptr() % x.element_size():"),),
        "hardware copies from a misaligned base give wrong results without an error",
        says="expected ValueError",
    ),
    Mutation(
        "a base aligned to 8 bytes is accepted",
        "refusal",
        DESCRIPTORS,
        (("if x.data_ptr() % 16:", "if x.data_ptr() % 8:"),),
        "hardware copies from a misaligned base give wrong results without an error",
    ),
    Mutation(
        "any leading dimension is accepted",
        "refusal",
        DESCRIPTORS_CCC,
        ((LEADING, "x.shape[0] > 1 and x.stride(0) < x.shape[1]"),),
        "no descriptor steps by it",
        says="expected ValueError",
    ),
    Mutation(
        "a leading dimension of 8 bytes is accepted",
        "refusal",
        DESCRIPTORS_CCC,
        (("step = 16 // x.element_size()", "step = 8 // x.element_size()"),),
        "no descriptor steps by it",
    ),
    Mutation(
        "any extent is written",
        "refusal",
        DESCRIPTORS,
        (("if b.shape[1] % 8:", "if b.shape[1] % 1:"),),
        "a hardware store writes up to the next 16 bytes",
        says="expected ValueError",
    ),
    Mutation(
        "an extent of 8 bytes is written",
        "refusal",
        DESCRIPTORS,
        (("if b.shape[1] % 8:", "if b.shape[1] % 4:"),),
        "a hardware store writes up to the next 16 bytes",
    ),
    Mutation(
        "extents of 16 bytes are refused",
        "refusal",
        DESCRIPTORS,
        (("if b.shape[1] % 8:", "if b.shape[1] % 16:"),),
        "operands that the docstring accepts are turned down",
    ),
    Mutation(
        "refusal() says nothing of what gemm refuses",
        "refusal",
        DESCRIPTORS,
        (
            ("reason = refusal(a, b, out=out)\n", 'reason = refusal(a, b, out=out) or _unaddressable("a", a)\n'),
            ('matrices = {"a": a, "b": b.T}', 'matrices = {"b": b.T}'),
        ),
        "the family's function picks a kernel that raises, and no sibling",
        says="refusal() returns None",
    ),
    Mutation(
        "a Triton without block pointers is accepted",
        "refusal",
        BLOCKS,
        (("(3, 9):", "(4, 0):"),),
        "the kernel raises what Triton raises, and the family's function finds no sibling",
    ),
    Mutation(
        "more elements than programs are accepted",
        "refusal",
        ELEMENTWISE,
        (("if a.shape[0] * b.shape[1] >= 2**31:", "if a.shape[0] * b.shape[1] < 0:"),),
        "no grid has so many programs",
    ),
)

MUTATIONS = (*GRIDS, *HEURISTICS, *CHECKS, *REFUSALS)
