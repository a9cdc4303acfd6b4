"""A launch of a family's call as rows of a C file's tables: its image, its grid, and where arguments are from.

What stands in the kernel's `CALL` says where each argument comes from. What Triton's compiler was told of the argument
stands in the compiled kernel: that a number or an address is a multiple of 16, or that a stride is 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from triton.backends.nvidia.driver import TMA_DTYPE_DEVICE_TO_HOST

from generator.emit.call_value import Made, Tensor
from generator.emit.cubin.tables import CubinImage, Tables, expression, row
from generator.plan.extents import Amount

#: What `CALL` says of a launch's programs and arguments, the value or the expression of each number, and the index of
#: each operand and each part of the workspace.
Grid: TypeAlias = Sequence[Amount | int]
Sources: TypeAlias = Mapping[str, Any]
Known: TypeAlias = Mapping[str, int | str]
Places: TypeAlias = Mapping[str, int]
#: The bytes of an argument of each type, as Triton writes types.
_BYTES = {"i32": 4, "i64": 8, "fp32": 4}
#: What a plain launch has: no scratch memory, no clusters, no programs that wait for each other or for another kernel.
_PLAIN = {
    "global_scratch_size": 0,
    "profile_scratch_size": 0,
    "num_ctas": 1,
    "launch_cooperative_grid": False,
    "launch_pdl": False,
}
#: The type of a tensor map of fp32 that the hardware rounds to tf32, as `cuTensorMapEncodeTiled` numbers it.
_TF32 = 11


class Unpackable(Exception):
    """What a contract launches cannot be launched without Python; the message says why."""


def launch_of(
    tables: Tables, grid: Grid, sources: Sources, planned: Any, compiled: Any, known: Known, places: Places
) -> str:
    """The row of a launch of a plan and its compiled kernel; raises `Unpackable`."""
    programs = tables.three([expression(each, known) for each in grid])
    arguments = list(_arguments(tables, sources, planned, compiled, known, places))
    ranks = [len(meta["block_size"]) for meta in getattr(compiled.metadata, "tensordesc_meta", None) or ()]
    # Triton adds two arguments, and behind each map its extents and strides.
    tables.count(ARGUMENTS=2 + len(arguments) + 2 * sum(ranks), MAPS=len(ranks))
    image = tables.image(image_of(compiled))
    return row(image, programs, len(arguments), tables.address("argument", *arguments))


def image_of(compiled: Any) -> CubinImage:
    """The compiled kernel with what a launch of it needs; raises `Unpackable` if that is more than a plain launch."""
    metadata = compiled.metadata
    for name, plain in _PLAIN.items():
        if (needed := getattr(metadata, name, None) or plain) != plain:
            raise Unpackable(f"its launch has {name} {needed}, which only Triton's launcher makes")
    return CubinImage(metadata.name, bytes(compiled.asm["cubin"]), metadata.shared, metadata.num_warps)


def _arguments(
    tables: Tables, sources: Sources, planned: Any, compiled: Any, known: Known, places: Places
) -> Iterator[str]:
    """The row of each argument that is passed, or that a call must give as it was compiled."""
    metas = iter(getattr(compiled.metadata, "tensordesc_meta", None) or ())
    for index, (name, kind) in enumerate(compiled.src.signature.items()):
        divisible = ["tt.divisibility", 16] in compiled.src.attrs.get((index,), [])
        meta = next(metas, None) if kind.startswith("tensordesc") else None
        match kind, sources.get(name):
            case "constexpr", source:
                if isinstance(source, Made) and source.function == "stride" and planned.arguments[name] == 1:
                    yield row("STRIDE", 0, False, True, places[source.given[0].name], source.given[1], "NULL")
            case _, Made("described", (Tensor(operand), *_)) as source if meta is not None:
                described = tables.address("map", _map(source, planned.arguments[name], meta))
                yield row("MAP", 64, False, False, places[operand], 0, described)
            case pointer, Tensor(operand) | Made("as_bytes", (Tensor(operand),)) if pointer.startswith("*"):
                yield row("ADDRESS", 8, divisible, False, places[operand], 0, "NULL")
            case "fp32", Tensor(operand):
                yield row("SCALAR", 4, False, False, places[operand], 0, "NULL")
            case "i32" | "i64", Made("stride", (Tensor(operand), dimension)):
                yield row("STRIDE", _BYTES[kind], divisible, False, places[operand], dimension, "NULL")
            case "i32" | "i64", int() | Amount() as source:
                number = tables.number(expression(source, known))
                yield row("NUMBER", _BYTES[kind], False, False, number, 0, "NULL")
            case _, source:
                raise Unpackable(f"it passes {name}, {source} of type {kind}, which only Python makes")


def _map(source: Made, descriptor: Any, meta: Mapping[str, Any]) -> str:
    """The tensor map of an operand as a row, as `make_tensordesc_arg` of Triton's driver makes it."""
    kind = TMA_DTYPE_DEVICE_TO_HOST[meta["elem_type"]]
    if getattr(descriptor, "round_f32_to_tf32", False):
        kind = _TF32
    turned, box = bool(dict(source.options).get("turned")), [*meta["block_size"]]
    described = (meta["swizzle"], meta["elem_size"], kind, bool(meta["fp4_padded"]), descriptor.padding == "nan")
    return row(turned, len(box), *described, [*box, *[0] * (3 - len(box))])
