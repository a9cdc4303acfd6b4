"""The keys of a spec and of the mappings in it, each with its meaning and an example. Nothing else lists keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from generator.language.vocabulary import AXES


@dataclass(frozen=True)
class Key:
    """One key of a mapping: what its value says, and examples of values."""

    meaning: str
    examples: tuple[object, ...] = ()


_AXES: Mapping[str, Key] = {
    "layout": Key("Memory layout of A (M, K), B (K, N) and C (M, N)", ("rcr", "rrr")),
    "dtype": Key(
        "Element types of the operands, the accumulator and the result", ("bf16", {"a": "fp16", "out": "fp32"})
    ),
    "batch": Key("One product, or several of the same shape"),
    "epilogue": Key(
        "What is computed after the product, from left to right: operations joined by +, or a list of operations",
        ("bias+gelu", ["none", "bias+relu"], [["bias", {"clamp": {"min": 0, "max": 6}}]]),
    ),
    "masking": Key("Which of M, N and K may be other than multiples of the tile"),
    "swizzle": Key("The order in which tiles of the result are computed"),
    "schedule": Key("How the work is divided over programs"),
    "load": Key("How tiles of A and B are loaded"),
    "store": Key("How tiles of C are stored"),
    "product": Key("Which operand has the rows of the matrix unit, or that it scales blocks itself"),
    "rounding": Key("Where the running value of the epilogue is rounded"),
    "math": Key("How accurate sigmoid and tanh are"),
    "result": Key("Whether the caller states that C is symmetric, so that about half of it is computed"),
}

#: The keys of a spec.
KEYS: Mapping[str, Key] = {
    "summary": Key("One line that is copied into the docstring of every kernel", ("bf16 GEMM for linear layers.",)),
    "name": Key("The folder of the family under the output directory; by default the file's name without .yaml"),
    **{axis: _AXES[axis] for axis in AXES},
    "tile": Key(
        "Configurations of the kernels; by default a table for each schedule and dtype",
        ([{"m": 128, "n": 128, "k": 64, "warps": 4, "stages": 3}],),
    ),
    "select": Key("How a call chooses its configuration"),
    "backward": Key("What a call does whose operands need gradients"),
    "invariant": Key("What the bits of a row of the result may depend on"),
    "package": Key("How much host code comes with the kernels"),
    "with": Key("What the family brings beside its functions; needs `package: torch`", (["prepare", "inductor"],)),
    "backends": Key("What a call can run; `aten` needs `select: fastest` or `table`", (["triton", "aten"],)),
    "tuned": Key(
        "Files that `tune` wrote, relative to the spec; needs `select: table` or `fastest`", ("tuned/mine.json",)
    ),
    "targets": Key("GPU architectures that the kernels are for", (["sm80", "sm90"],)),
    "triton": Key("A range of Triton versions; kernels narrow it further", (">=3.6,<3.9",)),
    "ops": Key(
        "Epilogue operations of the spec's own, by name",
        ({"soft_cap": {"formula": "cap * tanh(x / cap)", "scalars": {"cap": 30}}},),
    ),
    "exclude": Key(
        "Combinations of values that are left out, each with the reason",
        ([{"schedule": "persistent", "load": "pointer", "because": "it gains by descriptor loads"}],),
    ),
    "header": Key("Lines that are put as comments at the head of every file", ("Copyright 2026 Example",)),
}
REQUIRED = ("summary", "layout", "dtype")

#: The keys of the mapping form of `layout`.
LAYOUT_KEYS: Mapping[str, Key] = {
    operand: Key(f"Layout of {operand.upper()}; strided has both strides at run time") for operand in "abc"
}

#: The keys of the mapping form of `dtype`.
DTYPE_KEYS: Mapping[str, Key] = {
    "a": Key("Type of the elements of A"),
    "b": Key("Type of the elements of B; by default that of A"),
    "acc": Key("Type of the accumulator"),
    "out": Key("Type of the elements of the result"),
    "precision": Key("How exact the product is, for types that have a choice"),
    "scales": Key(
        "Blocks of elements that share a scale, [rows, k] of A and [k, columns] of B; 0 is the whole extent",
        ({"b": [128, 1]}, {"a": [1, 128], "b": [128, 128]}),
    ),
    "zeros": Key("Whether each scale of B has a zero point", ({"b": True},)),
    "sparsity": Key(
        "How many of how many elements of B along K are stored, of a B of 16 bits and A's type", ({"b": "2:4"},)
    ),
    "packing": Key(
        "In which order words of 32 bits hold the elements of a B of 4 or 8 bits: that of the matrix unit's registers",
        ({"b": "fragments"},),
    ),
}

#: The keys of a configuration.
TILE_KEYS: Mapping[str, Key] = {
    "m": Key("Rows of the tile, a power of two; a list of two or three for as many accumulators", ([128, 64],)),
    "n": Key("Columns of the tile, a power of two; a list of two or three for as many accumulators", ([128, 64],)),
    "k": Key("Elements along K in one step, a power of two"),
    "warps": Key("Warps of a program, a power of two"),
    "group": Key("Tiles in a band, for orders that have bands"),
    "stages": Key("Stages of the software pipeline"),
    "split": Key("Programs that share the K of a tile, for schedules that divide K"),
    "chiplets": Key("Dies of the GPU, for `swizzle: chiplet`"),
    "ctas": Key("Not available yet: 1 is the only value"),
    "warp_specialize": Key("Not available yet: false is the only value"),
    "waves_per_eu": Key("Not available yet"),
}
TILE_REQUIRED = ("m", "n", "k", "warps")

#: The keys of an entry of `ops`.
OPERATION_KEYS: Mapping[str, Key] = {
    "formula": Key("The operation as a formula over the running value `x`", ("x * sigmoid(x)",)),
    "operands": Key("Operands that each call gives, by name, each with its shape", ({"s": ["M"]},)),
    "scalars": Key("Numbers of the formula by name, each with its default; null if each call gives it", ({"cap": 30},)),
}

#: The keys of an entry of `exclude`.
EXCLUDE_KEYS: Mapping[str, Key] = {**_AXES, "because": Key("The reason", ("no caller has exact multiples there",))}
